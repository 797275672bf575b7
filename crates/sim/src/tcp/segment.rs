//! Segments, and their form in the head of an IP packet (RFC 9293, 3.1; options of RFC 2018 and
//! RFC 7323).

use core::net::IpAddr;

use evenkeel_net::checksum::{Sum, sum};

use crate::host::{HEAD, IpPacket};

/// SACK blocks that fit beside a time stamp.
pub(super) const SACK_BLOCKS: usize = 3;

const IPV4: usize = 20;
const IPV6: usize = 40;
const FIXED: usize = 20;
const PROTOCOL: u8 = 6;
/// Time stamp option, padded: in every segment but a refusal.
pub(super) const STAMP: usize = 12;

/// Control bits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flags(pub u8);

impl Flags {
    /// Opens a connection.
    pub const SYN: Self = Self(0x02);
    /// The payload is for the application now.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number means something.
    pub const ACK: Self = Self(0x10);
    /// A packet came marked (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The window has been reduced for it.
    pub const CWR: Self = Self(0x80);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The ECN field of an IP header (RFC 3168, RFC 9331).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Codepoint {
    /// Dropped where others are marked.
    #[default]
    NotEct = 0,
    /// ECT(1): L4S.
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// Congestion was met.
    Ce = 3,
}

impl Codepoint {
    const fn of(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// A segment without what is in its payload.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Segment {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Next byte expected.
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window as in the header: not scaled.
    pub window: u16,
    /// Bytes of payload.
    pub payload: u32,
    /// Time stamp and its echo.
    pub stamp: (u32, u32),
    /// With [`Flags::SYN`]: maximum segment size and shift of the window. SACK is permitted
    /// whenever they are there.
    pub opening: Option<(u16, u8)>,
    /// SACK blocks: first byte and the one after the last.
    pub sack: [Option<(u32, u32)>; SACK_BLOCKS],
    /// The ECN field of its IP header.
    pub ecn: Codepoint,
}

/// Where packets of one end come from and go to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Route {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) dscp: u8,
}

impl Segment {
    fn options_len(&self) -> usize {
        let opening = if self.opening.is_some() { 12 } else { 0 };
        let blocks = self.sack.iter().flatten().count();
        STAMP + opening + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }

    /// Writes the head of the packet. Returns its length and that of the whole packet.
    pub(super) fn write(
        &self,
        route: &Route,
        identification: u16,
        out: &mut [u8; HEAD],
    ) -> (usize, u32) {
        let header = FIXED + self.options_len();
        let tcp_len = header as u32 + self.payload;
        let (l4, ip_len) = ip_header(route, self.ecn, identification, tcp_len, out);
        let tcp = &mut out[l4..l4 + header];
        tcp[0..2].copy_from_slice(&route.source_port.to_be_bytes());
        tcp[2..4].copy_from_slice(&route.destination_port.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        tcp[12] = (header as u8 / 4) << 4;
        tcp[13] = self.flags.0;
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        tcp[16..20].fill(0);
        self.write_options(&mut tcp[FIXED..]);
        // A payload of zeros adds nothing to the sum.
        let total = sum(tcp).plus(pseudo_header(route, tcp_len));
        tcp[16..18].copy_from_slice(&total.checksum().to_be_bytes());
        (l4 + header, ip_len)
    }

    fn write_options(&self, mut at: &mut [u8]) {
        let mut put = |bytes: &[u8]| {
            let (head, tail) = core::mem::take(&mut at).split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            at = tail;
        };
        if let Some((mss, shift)) = self.opening {
            let [high, low] = mss.to_be_bytes();
            put(&[2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, shift]);
        }
        put(&[1, 1, 8, 10]);
        put(&self.stamp.0.to_be_bytes());
        put(&self.stamp.1.to_be_bytes());
        let blocks = self.sack.iter().flatten().count();
        if blocks > 0 {
            put(&[1, 1, 5, 2 + 8 * blocks as u8]);
            for (left, right) in self.sack.iter().flatten() {
                put(&left.to_be_bytes());
                put(&right.to_be_bytes());
            }
        }
    }

    /// Reads the head of a packet; `None` if it is not a TCP segment, or not whole.
    pub(super) fn read(packet: IpPacket<'_>) -> Option<Self> {
        let head = packet.head;
        let (l4, ecn) = match head.first()? >> 4 {
            4 if *head.get(9)? == PROTOCOL => (usize::from(head[0] & 0x0f) * 4, head[1]),
            6 if *head.get(6)? == PROTOCOL => (IPV6, head[1] >> 4),
            _ => return None,
        };
        let tcp = head.get(l4..)?;
        let fixed: &[u8; FIXED] = tcp.first_chunk()?;
        let header = usize::from(fixed[12] >> 4) * 4;
        let mut segment = Self {
            seq: u32_at(fixed, 4)?,
            ack: u32_at(fixed, 8)?,
            flags: Flags(fixed[13]),
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            payload: packet.ip_len.checked_sub((l4 + header) as u32)?,
            ecn: Codepoint::of(ecn),
            ..Self::default()
        };
        let mut options = tcp.get(FIXED..header)?;
        let (mut mss, mut shift) = (None, None);
        while let Some((&kind, rest)) = options.split_first() {
            if kind == 0 {
                break;
            }
            if kind == 1 {
                options = rest;
                continue;
            }
            let length = usize::from(*rest.first()?);
            let value = options.get(2..length)?;
            match (kind, value.len()) {
                (2, 2) => mss = Some(u16::from_be_bytes([value[0], value[1]])),
                (3, 1) => shift = Some(value[0].min(14)),
                (5, _) => {
                    for (block, bytes) in segment.sack.iter_mut().zip(value.as_chunks::<8>().0) {
                        *block = Some((u32_at(bytes, 0)?, u32_at(bytes, 4)?));
                    }
                }
                (8, 8) => segment.stamp = (u32_at(value, 0)?, u32_at(value, 4)?),
                _ => {}
            }
            options = options.get(length..)?;
        }
        segment.opening = mss.zip(shift);
        Some(segment)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes the IP header. Returns where the transport header begins, and the length of the packet.
fn ip_header(
    route: &Route,
    ecn: Codepoint,
    identification: u16,
    tcp_len: u32,
    out: &mut [u8; HEAD],
) -> (usize, u32) {
    match (route.source, route.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip_len = IPV4 as u32 + tcp_len;
            let ip = &mut out[..IPV4];
            ip[..2].copy_from_slice(&[0x45, route.dscp << 2 | ecn as u8]);
            ip[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            // Do not fragment; 64 hops; no checksum yet.
            ip[6..12].copy_from_slice(&[0x40, 0, 64, PROTOCOL, 0, 0]);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            let checksum = sum(ip).checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            (IPV4, ip_len)
        }
        (source, destination) => {
            let ip = &mut out[..IPV6];
            let low = route.dscp << 6 | (ecn as u8) << 4;
            ip[..4].copy_from_slice(&[0x60 | route.dscp >> 2, low, 0, 0]);
            ip[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&[PROTOCOL, 64]);
            ip[8..24].copy_from_slice(&v6(source));
            ip[24..40].copy_from_slice(&v6(destination));
            (IPV6, IPV6 as u32 + tcp_len)
        }
    }
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn pseudo_header(route: &Route, tcp_len: u32) -> Sum {
    let addresses = match (route.source, route.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            sum(&source.octets()).plus(sum(&destination.octets()))
        }
        (source, destination) => sum(&v6(source)).plus(sum(&v6(destination))),
    };
    addresses.add_u16(u16::from(PROTOCOL)).add_u32(tcp_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketHeaders, SlicedPacket, TransportHeader, TransportSlice};

    fn routes() -> [Route; 2] {
        [("10.0.0.1", "10.0.1.2"), ("fd00::1", "fd00:1::2")].map(|(source, destination)| Route {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            source_port: 40_001,
            destination_port: 5_001,
            dscp: 46,
        })
    }

    fn segments() -> [Segment; 3] {
        let data = Segment {
            seq: u32::MAX - 3,
            ack: 77,
            flags: Flags::ACK.and(Flags::PSH),
            window: 1234,
            payload: 1_000,
            stamp: (1, 0xfffe_0002),
            ecn: Codepoint::Ect1,
            ..Segment::default()
        };
        let syn = Segment { flags: Flags::SYN, opening: Some((1460, 9)), payload: 0, ..data };
        let ack = Segment {
            payload: 0,
            sack: [Some((5, 9)), Some((0xffff_fff0, 3)), Some((20, 21))],
            flags: Flags::ACK.and(Flags::ECE).and(Flags::CWR),
            ecn: Codepoint::Ce,
            ..data
        };
        [data, syn, ack]
    }

    #[test]
    fn segments_survive_the_wire() {
        for route in routes() {
            for segment in segments() {
                let mut out = [0; HEAD];
                let (head, ip_len) = segment.write(&route, 9, &mut out);
                let packet = IpPacket { head: &out[..head], ip_len };
                assert_eq!(Segment::read(packet), Some(segment));
                for cut in 0..head {
                    let packet = IpPacket { head: &out[..cut], ip_len };
                    assert_eq!(Segment::read(packet), None, "{cut} of {head} bytes");
                }
            }
        }
    }

    /// Another implementation reads the same and finds the checksums right.
    #[test]
    fn packets_are_real_ones() {
        for route in routes() {
            for segment in segments() {
                let mut out = [0; HEAD];
                let (head, ip_len) = segment.write(&route, 9, &mut out);
                let mut whole = out[..head].to_vec();
                whole.resize(ip_len as usize, 0);
                let headers = PacketHeaders::from_ip_slice(&whole).expect("an IP packet");
                let Some(TransportHeader::Tcp(tcp)) = headers.transport else {
                    panic!("{headers:?}")
                };
                assert_eq!((tcp.source_port, tcp.destination_port), (40_001, 5_001));
                assert_eq!((tcp.sequence_number, tcp.window_size), (segment.seq, segment.window));
                assert_eq!(tcp.syn, segment.flags.has(Flags::SYN));
                let Some(TransportSlice::Tcp(slice)) =
                    SlicedPacket::from_ip(&whole).expect("an IP packet").transport
                else {
                    panic!("no TCP");
                };
                let right = match (route.source, route.destination) {
                    (IpAddr::V4(a), IpAddr::V4(b)) => {
                        slice.calc_checksum_ipv4(a.octets(), b.octets())
                    }
                    (IpAddr::V6(a), IpAddr::V6(b)) => {
                        slice.calc_checksum_ipv6(a.octets(), b.octets())
                    }
                    _ => unreachable!("one family"),
                };
                assert_eq!(right, Ok(tcp.checksum));
                assert_eq!(slice.payload().len(), segment.payload as usize);
            }
        }
    }
}
