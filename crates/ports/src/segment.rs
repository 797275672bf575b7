//! Super-frames: what the kernel hands over as one frame and the wire carries as many.
//!
//! A sender leaves the cutting of its TCP and UDP data to the last device. A packet socket with
//! `PACKET_VNET_HDR` gets such a frame whole, with a header in front that says how it would be
//! cut: `struct virtio_net_hdr`. [`Segments`] cuts it as the kernel does (net/ipv4/tcp_offload.c,
//! net/ipv4/udp_offload.c): the headers of the first are those of all, but for
//!
//! | field | in segment i of n |
//! |---|---|
//! | IPv4 total length, IPv6 payload length, UDP length | its own |
//! | IPv4 identification | the first's + i |
//! | TCP sequence number | the first's + i × size |
//! | TCP FIN, PSH | only in the last |
//! | TCP CWR | only in the first |
//! | checksums | computed |
//!
//! Of a packet in a tunnel (IP in IP, GRE, UDP without checksum, as the kernel's own tunnels make
//! them) both IP headers are cut, and the UDP length of the outer one. A packet socket cannot be
//! told of the outer headers, so such a frame is never sent whole.

/// Length of `struct virtio_net_hdr`, bytes.
pub(crate) const HEADER: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
/// Set beside the kind where the sender uses ECN.
const ECN: u8 = 0x80;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Where the IP header of an untagged frame begins.
const ETHERNET: usize = 14;

/// What the kernel says of a frame that it hands over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct VnetHeader {
    flags: u8,
    kind: u8,
    /// Data in a segment, bytes.
    size: u16,
    /// Where the transport header begins, in the frame.
    start: u16,
    /// Where the checksum is, behind that.
    offset: u16,
}

/// Why a frame cannot be cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Uncut {
    /// It is of a kind whose cutting is not known here.
    Kind,
    /// It is not what its header says.
    Broken,
}

impl VnetHeader {
    /// Reads the header; fields are in the byte order of the machine.
    pub(crate) fn read(bytes: &[u8; HEADER]) -> Self {
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self { flags: bytes[0], kind: bytes[1], size: half(4), start: half(6), offset: half(8) }
    }

    /// The header of the same frame after `bytes` were put in before its transport header.
    pub(crate) const fn moved(self, bytes: u16) -> Self {
        Self { start: self.start + bytes, ..self }
    }

    /// What says the same to the kernel. `linear`: bytes of headers, 0 where there is nothing to
    /// cut.
    pub(crate) fn write(self, linear: u16) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        // That its checksum was found right says nothing to whoever sends it.
        (bytes[0], bytes[1]) = (self.flags & NEEDS_CHECKSUM, self.kind);
        for (at, half) in [(2, linear), (4, self.size), (6, self.start), (8, self.offset)] {
            bytes[at..at + 2].copy_from_slice(&half.to_ne_bytes());
        }
        bytes
    }

    /// Whether the sender has left the checksum to the device.
    pub(crate) const fn needs_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// Data in a segment, bytes.
    pub(crate) const fn size(self) -> u16 {
        self.size
    }

    /// Whether the frame is one of many.
    pub(crate) const fn is_super(self) -> bool {
        self.kind & !ECN != 0
    }
}

/// How a super-frame is cut: where its headers end, and how long what follows them is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    tcp: bool,
    v6: bool,
    /// Where the IP header begins.
    l3: usize,
    /// Where the transport header begins.
    l4: usize,
    /// Where the data begin.
    data: usize,
    /// Data in a segment, bytes.
    size: usize,
    /// Length of the frame.
    length: usize,
    outer: Option<Outer>,
}

/// The headers of a tunnel.
#[derive(Clone, Copy, Debug)]
struct Outer {
    v6: bool,
    l3: usize,
    /// Where its UDP header begins, if it has one.
    udp: Option<usize>,
}

impl Outer {
    /// The headers before the inner IP header at `inner`, if the outer one at `l3` is that of a
    /// tunnel. `Err`: of one that cannot be cut here.
    fn of(frame: &[u8], l3: usize, v6: bool, inner: usize) -> Result<Self, Uncut> {
        let half = |at: usize| {
            let bytes = frame.get(at..at + 2).ok_or(Uncut::Broken)?;
            Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let header = ip_header_len(frame, l3, v6);
        if header < 20 {
            return Err(Uncut::Broken);
        }
        let behind = l3 + header;
        let ends = match protocol(frame, l3, v6) {
            Some(IP_IN_IP | IPV6_IN_IP) => inner == behind,
            Some(GRE) => {
                // With checksum or number each segment would need its own.
                let flags = half(behind)?;
                let length = if flags & GRE_KEY == 0 { 4 } else { 8 };
                let ethernet = if half(behind + 2)? == ETHERNET_IN_GRE { ETHERNET } else { 0 };
                flags & !GRE_KEY == 0 && inner == behind + length + ethernet
            }
            Some(UDP_HEADER) => half(behind + 6)? == 0 && inner >= behind + 8,
            _ => false,
        };
        let udp = (protocol(frame, l3, v6) == Some(UDP_HEADER)).then_some(behind);
        if ends { Ok(Self { v6, l3, udp }) } else { Err(Uncut::Kind) }
    }
}

const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const TCP_HEADER: u8 = 6;
const UDP_HEADER: u8 = 17;
const GRE_KEY: u16 = 0x2000;
/// The type of an Ethernet frame in GRE.
const ETHERNET_IN_GRE: u16 = 0x6558;

/// What follows the IP header at `l3`.
fn protocol(frame: &[u8], l3: usize, v6: bool) -> Option<u8> {
    frame.get(l3 + if v6 { 6 } else { 9 }).copied()
}

/// Without extension headers.
fn ip_header_len(frame: &[u8], l3: usize, v6: bool) -> usize {
    if v6 { 40 } else { usize::from(frame.get(l3).map_or(0, |byte| byte & 0x0f)) * 4 }
}

impl Segments {
    /// Looks at a super-frame.
    pub(crate) fn of(header: VnetHeader, frame: &[u8]) -> Result<Self, Uncut> {
        Self::of_head(header, frame, frame.len())
    }

    /// Looks at a super-frame of `length` bytes of which only the first ones are at hand.
    pub(crate) fn of_head(header: VnetHeader, frame: &[u8], length: usize) -> Result<Self, Uncut> {
        let (tcp, v6) = match header.kind & !ECN {
            TCP_V4 => (true, Some(false)),
            TCP_V6 => (true, Some(true)),
            UDP => (false, None),
            _ => return Err(Uncut::Kind),
        };
        let l3 = l3_of(frame).ok_or(Uncut::Broken)?;
        let is_v6 = match frame.get(l3).map(|byte| byte >> 4) {
            Some(4) => false,
            Some(6) => true,
            _ => return Err(Uncut::Broken),
        };
        let tunnelled = match protocol(frame, l3, is_v6) {
            Some(IP_IN_IP | IPV6_IN_IP | GRE) => true,
            Some(UDP_HEADER) => tcp,
            _ => false,
        };
        if tunnelled {
            return Self::of_tunnel(header, frame, length, (tcp, v6), (l3, is_v6));
        }
        if v6.is_some_and(|v6| v6 != is_v6) {
            return Err(Uncut::Broken);
        }
        let l4 = if header.flags & NEEDS_CHECKSUM != 0 {
            usize::from(header.start)
        } else if is_v6 {
            l3 + 40
        } else {
            l3 + ip_header_len(frame, l3, false)
        };
        Self::with_headers(header, frame, (tcp, is_v6), (l3, l4), length)
    }

    /// Of a packet in a tunnel: the kernel tells where the inner transport header begins, and the
    /// inner IP header, without options, lies before it.
    fn of_tunnel(
        header: VnetHeader,
        frame: &[u8],
        length: usize,
        (tcp, v6): (bool, Option<bool>),
        (l3, outer_v6): (usize, bool),
    ) -> Result<Self, Uncut> {
        if header.flags & NEEDS_CHECKSUM == 0 {
            return Err(Uncut::Kind);
        }
        let l4 = usize::from(header.start);
        let wanted = if tcp { TCP_HEADER } else { UDP_HEADER };
        let is_inner = |v6: bool| {
            let inner = l4.checked_sub(if v6 { 40 } else { 20 })?;
            let first = *frame.get(inner)?;
            let is_ip = if v6 { first >> 4 == 6 } else { first == 0x45 };
            (is_ip && protocol(frame, inner, v6) == Some(wanted)).then_some((inner, v6))
        };
        let found = match v6 {
            Some(v6) => is_inner(v6),
            None => is_inner(false).or_else(|| is_inner(true)),
        };
        let (inner, v6) = found.ok_or(Uncut::Kind)?;
        let outer = Outer::of(frame, l3, outer_v6, inner)?;
        let segments = Self::with_headers(header, frame, (tcp, v6), (inner, l4), length)?;
        Ok(Self { outer: Some(outer), ..segments })
    }

    fn with_headers(
        header: VnetHeader,
        frame: &[u8],
        (tcp, is_v6): (bool, bool),
        (l3, l4): (usize, usize),
        length: usize,
    ) -> Result<Self, Uncut> {
        // Whoever sends from a packet socket or a virtual machine says where the transport header
        // begins: it may lie. Extension headers may stand before it, options are in the header.
        let behind = l3 + ip_header_len(frame, l3, is_v6);
        let lies = if is_v6 { l4 < behind } else { l4 < l3 + 20 || l4 != behind };
        let transport =
            if tcp { usize::from(frame.get(l4 + 12).ok_or(Uncut::Broken)? >> 4) * 4 } else { 8 };
        let data = l4 + transport;
        let size = usize::from(header.size);
        let short = transport < if tcp { 20 } else { 8 };
        if lies || short || data > frame.len() || size == 0 {
            return Err(Uncut::Broken);
        }
        Ok(Self { tcp, v6: is_v6, l3, l4, data, size, length, outer: None })
    }

    /// Whether it is in a tunnel: the kernel cannot be given it whole.
    pub(crate) const fn is_tunnelled(&self) -> bool {
        self.outer.is_some()
    }

    /// Bytes of headers that each segment has.
    pub(crate) const fn headers(&self) -> usize {
        self.data
    }

    /// Length of the super-frame, bytes.
    pub(crate) const fn frame_len(&self) -> usize {
        self.length
    }

    /// How many segments there are; at least one.
    pub(crate) const fn count(&self) -> usize {
        let segments = (self.length - self.data).div_ceil(self.size);
        if segments == 0 { 1 } else { segments }
    }

    /// Length of segment `at`, bytes.
    pub(crate) fn len(&self, at: usize) -> usize {
        self.data + self.size.min((self.length - self.data).saturating_sub(at * self.size))
    }

    /// Writes segment `at` of `frame` to `out`, which has its length.
    pub(crate) fn write(&self, frame: &[u8], at: usize, out: &mut [u8]) {
        let from = self.data + at * self.size;
        let data = out.len() - self.data;
        out[..self.data].copy_from_slice(&frame[..self.data]);
        out[self.data..].copy_from_slice(&frame[from..from + data]);
        let (first, last) = (at == 0, at + 1 == self.count());
        if self.tcp {
            let sequence = &mut out[self.l4 + 4..self.l4 + 8];
            let number = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
            let number = number.wrapping_add((at * self.size) as u32);
            sequence.copy_from_slice(&number.to_be_bytes());
            let flags = &mut out[self.l4 + 13];
            if !last {
                *flags &= !(TCP_FIN | TCP_PSH);
            }
            if !first {
                *flags &= !TCP_CWR;
            }
        } else {
            let length = (out.len() - self.l4) as u16;
            out[self.l4 + 4..self.l4 + 6].copy_from_slice(&length.to_be_bytes());
        }
        set_lengths((self.l3, self.v6), at, out);
        self.set_checksum(out);
        if let Some(Outer { v6, l3, udp }) = self.outer {
            set_lengths((l3, v6), at, out);
            if let Some(udp) = udp {
                let length = (out.len() - udp) as u16;
                out[udp + 4..udp + 6].copy_from_slice(&length.to_be_bytes());
            }
        }
    }

    fn set_checksum(&self, out: &mut [u8]) {
        let field = self.l4 + if self.tcp { 16 } else { 6 };
        out[field..field + 2].fill(0);
        let addresses =
            if self.v6 { self.l3 + 8..self.l3 + 40 } else { self.l3 + 12..self.l3 + 20 };
        let protocol = if self.tcp { 6 } else { 17 };
        let length = (out.len() - self.l4) as u64;
        let sum = add(protocol + length, &out[addresses]);
        let sum = finish(add(sum, &out[self.l4..]));
        let sum = if sum == 0 && !self.tcp { 0xffff } else { sum };
        out[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Sets what an IP header says of the length, its identification and its checksum.
fn set_lengths((l3, v6): (usize, bool), at: usize, out: &mut [u8]) {
    if v6 {
        let length = (out.len() - l3 - 40) as u16;
        out[l3 + 4..l3 + 6].copy_from_slice(&length.to_be_bytes());
        return;
    }
    let length = (out.len() - l3) as u16;
    out[l3 + 2..l3 + 4].copy_from_slice(&length.to_be_bytes());
    let id = u16::from_be_bytes([out[l3 + 4], out[l3 + 5]]).wrapping_add(at as u16);
    out[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
    out[l3 + 10..l3 + 12].fill(0);
    let end = l3 + ip_header_len(out, l3, false);
    let sum = finish(add(0, &out[l3..end]));
    out[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Where the IP header begins: behind at most two VLAN tags.
fn l3_of(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET;
    for _ in 0..2 {
        match frame.get(at - 2..at)? {
            [0x81, 0x00] | [0x88, 0xa8] => at += 4,
            _ => break,
        }
    }
    Some(at)
}

/// Adds the 16-bit words of `bytes`, the last one filled up with a zero, to a sum.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    // Words of 32 bits: the carry of the folding is the same, in half the additions.
    let mut words = bytes.chunks_exact(4);
    let mut sum = words.by_ref().fold(sum, |sum, word| {
        sum + u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    });
    let mut rest = [0; 4];
    let left = words.remainder();
    rest[..left.len()].copy_from_slice(left);
    sum += u64::from(u32::from_be_bytes(rest));
    sum
}

/// The checksum: the one's complement of the sum, folded to 16 bits.
fn finish(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(data: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 20 + data];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[18..20].copy_from_slice(&0xffff_u16.to_be_bytes());
        frame[23] = 6;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[38..42].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
        frame[46] = 0x50;
        frame[47] = TCP_CWR | TCP_PSH | TCP_FIN | 0x10;
        for (at, byte) in frame[54..].iter_mut().enumerate() {
            *byte = (at / 100) as u8;
        }
        frame
    }

    fn header(kind: u8, size: u16) -> VnetHeader {
        VnetHeader { flags: NEEDS_CHECKSUM, kind, size, start: 34, offset: 16 }
    }

    /// F17: what the fuzzer has found, and what it starts from.
    #[test]
    #[cfg_attr(miri, ignore = "the memory port's frames take Miri long enough")]
    fn f17_super_frames_of_the_corpus_are_cut_and_no_byte_is_lost() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/segmentation");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
        assert!(files.len() >= 6, "{} files in {folder}", files.len());
        for file in files {
            crate::segmentation_case::run(&std::fs::read(file.path()).unwrap());
        }
    }

    #[test]
    fn a_sender_that_lies_about_its_headers_is_refused() {
        let mut frame = tcp(2500);
        for first in [0x40, 0x44, 0x46, 0x4d, 0x4f] {
            frame[14] = first;
            let whole = Segments::of(header(TCP_V4, 1000), &frame);
            assert!(matches!(whole, Err(Uncut::Broken)), "{first:x}: {whole:?}");
        }
        // With options, and the transport header behind them.
        frame[14] = 0x46;
        frame[50] = 0x50;
        let longer = VnetHeader { start: 38, ..header(TCP_V4, 1000) };
        assert!(Segments::of(longer, &frame).is_ok());
    }

    #[test]
    fn flags_numbers_and_lengths_are_those_of_each_segment() {
        let frame = tcp(2500);
        let segments = Segments::of(header(TCP_V4 | ECN, 1000), &frame).unwrap();
        assert_eq!(segments.count(), 3);
        let mut data = Vec::new();
        for at in 0..3 {
            let mut out = vec![0; segments.len(at)];
            segments.write(&frame, at, &mut out);
            assert_eq!(u16::from_be_bytes([out[16], out[17]]) as usize, out.len() - 14);
            let id = u16::from_be_bytes([out[18], out[19]]);
            assert_eq!(id, 0xffff_u16.wrapping_add(at as u16));
            let sequence = u32::from_be_bytes(out[38..42].try_into().unwrap());
            assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(1000 * at as u32));
            let flags = [TCP_CWR, 0, TCP_PSH | TCP_FIN][at] | 0x10;
            assert_eq!(out[47], flags, "segment {at}");
            assert_eq!(finish(add(0, &out[14..34])), 0, "IP checksum of segment {at}");
            let pseudo = add(6 + (out.len() - 34) as u64, &out[26..34]);
            assert_eq!(finish(add(pseudo, &out[34..])), 0, "TCP checksum of segment {at}");
            data.extend_from_slice(&out[54..]);
        }
        assert_eq!(data, frame[54..]);
    }

    /// A packet of TCP behind an outer IPv4 header of `protocol` and `between` bytes.
    fn tunnelled(protocol: u8, between: &[u8]) -> Vec<u8> {
        let mut frame = tcp(2500);
        let mut outer = frame[14..34].to_vec();
        (outer[9], outer[15]) = (protocol, 9);
        outer.extend_from_slice(between);
        frame.splice(14..14, outer);
        frame
    }

    /// Merged by a NIC, or made by a host: with TCP's headers taken for those behind the outer IP
    /// header, each segment would have been damaged.
    #[test]
    fn in_a_tunnel_both_ip_headers_are_cut() {
        let ethernet = [&[0x65, 0x58][..], &[7; 12], &[8, 0]].concat();
        for (protocol, between) in [
            (IP_IN_IP, vec![]),
            (GRE, vec![0, 0, 8, 0]),
            (GRE, [&[0x20, 0, 8, 0][..], &[1, 2, 3, 4]].concat()),
            (GRE, [&[0, 0][..], &ethernet].concat()),
            (
                UDP_HEADER,
                [&[9, 9, 0x12, 0xb5, 0, 0, 0, 0][..], &[8; 8], &[7; 12], &[8, 0]].concat(),
            ),
        ] {
            let frame = tunnelled(protocol, &between);
            let inner = 34 + between.len();
            let start = (inner + 20) as u16;
            let header = VnetHeader { start, ..header(TCP_V4, 1000) };
            let segments = Segments::of(header, &frame).unwrap();
            assert!(segments.is_tunnelled() && segments.count() == 3, "{protocol} {between:?}");
            let mut data = Vec::new();
            for at in 0..3 {
                let mut out = vec![0; segments.len(at)];
                segments.write(&frame, at, &mut out);
                for l3 in [14, inner] {
                    assert_eq!(finish(add(0, &out[l3..l3 + 20])), 0, "IP checksum at {l3}");
                    let length = u16::from_be_bytes([out[l3 + 2], out[l3 + 3]]);
                    assert_eq!(usize::from(length), out.len() - l3);
                }
                if protocol == UDP_HEADER {
                    let length = u16::from_be_bytes([out[38], out[39]]);
                    assert_eq!(usize::from(length), out.len() - 34);
                }
                let l4 = inner + 20;
                let pseudo = add(6 + (out.len() - l4) as u64, &out[inner + 12..l4]);
                assert_eq!(finish(add(pseudo, &out[l4..])), 0, "TCP checksum of segment {at}");
                data.extend_from_slice(&out[l4 + 20..]);
            }
            assert_eq!(data, frame[inner + 40..]);
        }
        // Each segment would need a checksum, or a number, of its own.
        for between in [vec![0x80, 0, 8, 0, 0, 0, 0, 0], vec![0x10, 0, 8, 0, 0, 0, 0, 1]] {
            let header = VnetHeader { start: 62, ..header(TCP_V4, 1000) };
            let refused = Segments::of(header, &tunnelled(GRE, &between)).err();
            assert_eq!(refused, Some(Uncut::Kind), "{between:?}");
        }
    }

    #[test]
    fn frames_that_are_not_what_their_header_says_are_refused() {
        let frame = tcp(2000);
        assert_eq!(Segments::of(header(3, 1000), &frame).err(), Some(Uncut::Kind));
        for (kind, size, length) in [
            (TCP_V6, 1000, frame.len()),
            (TCP_V4, 0, frame.len()),
            (TCP_V4, 1000, 20),
            (TCP_V4, 1000, 46),
            (TCP_V4, 1000, 50),
        ] {
            let refused = Segments::of(header(kind, size), &frame[..length]).err();
            assert_eq!(refused, Some(Uncut::Broken), "{kind} {size} {length}");
        }
        let mut short = frame;
        short[46] = 0x40;
        assert_eq!(Segments::of(header(TCP_V4, 1000), &short).err(), Some(Uncut::Broken));
    }
}
