//! Finding the headers of a frame, and whether it may be forwarded.
//!
//! Understood: Ethernet II with up to two VLAN tags (IEEE 802.1Q and 802.1ad), IPv4 with options
//! (RFC 791), IPv6 with extension headers (RFC 8200), and the ports of TCP, UDP, UDP-Lite, SCTP and
//! DCCP. Anything else is [`Parsed::Other`] and belongs to the host.
//!
//! Lengths are believed only after they were checked: once [`parse`] has returned [`Headers`], the
//! frame holds the whole IP packet. It may hold more, since Ethernet pads short frames: cut it to
//! [`Headers::frame_len`].

mod extension;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_core::{FlowKey, Reason};

use crate::MacAddr;
use crate::checksum;

/// Length of an Ethernet header without tags.
pub const ETHERNET_HEADER: usize = 14;
/// Length of one VLAN tag.
pub const VLAN_TAG: usize = 4;
/// Most VLAN tags that are followed.
pub const MAX_VLAN_TAGS: usize = 2;
/// Most IPv6 extension headers that are followed.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Ethernet types.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// Address resolution of IPv4.
    pub const ARP: u16 = 0x0806;
    /// Customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// Service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

/// IP protocol numbers.
pub mod protocol {
    /// ICMP of IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6's fragment header.
    pub const FRAGMENT: u8 = 44;
    /// ICMP of IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// IPv6: nothing follows.
    pub const NO_NEXT_HEADER: u8 = 59;
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed {
    /// An IP packet.
    Ip(Headers),
    /// Something the host must see to: ARP, an unknown type, too many tags.
    Other {
        /// The Ethernet type (or IEEE 802.3 length) after the tags that were followed.
        ethertype: u16,
    },
}

/// IP version.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Whether a packet is a part of a larger one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fragment {
    /// It is whole.
    No,
    /// The part with offset 0: it carries the transport header.
    First,
    /// A part with a higher offset: what follows its IP header is payload, not a transport header.
    Later,
}

/// Where the headers of a frame are and what a router needs of them.
///
/// Offsets are bytes from the start of the frame. When made by [`parse`],
/// `l3 <= l4 <= l3 + ip_len <= frame length`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Headers {
    /// Offset of the IP header: 14, or 4 and 8 more with tags.
    pub l3: u16,
    /// Offset of what follows the IP header with its options or extension headers.
    pub l4: u16,
    /// Length of the IP packet, header included.
    pub ip_len: u32,
    /// IP version.
    pub version: IpVersion,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// IP protocol after all IPv6 extension headers; the same as in `flow`.
    pub protocol: u8,
    /// Addresses, protocol, ports, label as this packet carries them: for rules. See
    /// [`flow_id`](Self::flow_id).
    pub flow: FlowKey,
    /// Whether routers may not fragment the packet: the DF bit; always for IPv6.
    pub dont_fragment: bool,
    /// Whether it is a part of a larger packet.
    pub fragment: Fragment,
    /// Identifier of the outer VLAN, 0 to 4095.
    pub vlan: Option<u16>,
    /// Whether the frame was sent to a group of stations (multicast or broadcast).
    pub link_group: bool,
}

impl Headers {
    /// Whether it belongs to the port's own VLAN: it has no tag, or one that says a priority and
    /// no VLAN (802.1Q, 6.9).
    #[must_use]
    pub fn is_untagged(&self) -> bool {
        match self.vlan {
            None => true,
            Some(vlan) => vlan == 0 && usize::from(self.l3) == ETHERNET_HEADER + VLAN_TAG,
        }
    }

    /// Offset of the first byte after the IP packet: cut the frame to it to lose Ethernet padding.
    #[must_use]
    pub const fn frame_len(&self) -> usize {
        self.l3 as usize + self.ip_len as usize
    }

    /// The flow that the packet belongs to, for whatever keeps state of flows or spreads them: the
    /// same for all packets of a flow, where [`flow`](Self::flow) has what this packet happens to
    /// carry.
    ///
    /// | packet | key |
    /// |---|---|
    /// | IPv6 with a flow label that is not 0, also in fragments | addresses, label (RFC 6437, 2) |
    /// | whole, with ports | addresses, protocol, ports |
    /// | whole, without ports | addresses, protocol |
    /// | any fragment of IPv4, the first too | addresses, protocol |
    /// | any fragment of IPv6 without a label | addresses, the fragment header's number: later ones need not know the protocol |
    /// | of a [control](FlowKey::is_control) protocol | addresses, protocol, ports (none in fragments), label: it must be told as such |
    ///
    /// Extension headers are walked for the protocol. Keys have a direction. Datagrams that are
    /// fragmented on their way are another flow than the whole ones of the same ports.
    #[must_use]
    #[inline]
    pub const fn flow_id(&self) -> FlowKey {
        let mut flow = self.flow;
        let fragment = !matches!(self.fragment, Fragment::No);
        if fragment {
            (flow.source_port, flow.destination_port) = (0, 0);
        }
        if matches!(self.version, IpVersion::V4) || flow.is_control() {
            return flow;
        }
        if flow.flow_label != 0 {
            return flow.labelled();
        }
        if fragment {
            flow.protocol = protocol::FRAGMENT;
        }
        flow
    }

    /// Whether the packet may be forwarded at all, by its addresses. For packets in transit only:
    /// ask it after the route look-up has said that the destination is neither this machine nor a
    /// group or broadcast.
    ///
    /// Sources that no unicast host may have and destinations that never leave a host or link are
    /// refused: RFC 1812, 5.3.7 (networks 0 and 127, multicast, class E, limited broadcast), RFC
    /// 3927, 7 and RFC 4291, 2.5.6 (link-local), RFC 4291, 2.5.2, 2.5.3 (unspecified, loopback),
    /// RFC 4942, 2.2 (IPv4-mapped addresses on the wire).
    ///
    /// # Errors
    /// [`Reason::MartianSource`] or [`Reason::MartianDestination`].
    #[inline]
    pub fn check_transit(&self) -> Result<(), Reason> {
        if !is_routable(self.flow.source) {
            return Err(Reason::MartianSource);
        }
        if !is_routable(self.flow.destination) {
            return Err(Reason::MartianDestination);
        }
        Ok(())
    }

    /// Refuses options of IPv4 that no router may follow, and those that cannot be read. `frame` is
    /// the one that these are the headers of.
    ///
    /// # Errors
    /// [`Reason::SourceRouted`] or [`Reason::BadHeaderLength`].
    pub fn check_options(&self, frame: &[u8]) -> Result<(), Reason> {
        let begin = usize::from(self.l3) + 20;
        match (self.version, frame.get(begin..usize::from(self.l4))) {
            (IpVersion::V4, Some(options)) => check_options(options),
            _ => Ok(()),
        }
    }
}

fn check_options(mut options: &[u8]) -> Result<(), Reason> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    while let [kind, rest @ ..] = options {
        options = match (*kind, rest) {
            (END, _) => return Ok(()),
            (NO_OPERATION, _) => rest,
            (LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, _) => return Err(Reason::SourceRouted),
            (_, [size, ..]) if *size >= 2 => {
                options.get(usize::from(*size)..).ok_or(Reason::BadHeaderLength)?
            }
            _ => return Err(Reason::BadHeaderLength),
        };
    }
    Ok(())
}

/// Whether `address` can be that of one host beyond the link it is seen on.
#[inline]
pub(crate) fn is_routable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let [first, second, ..] = a.octets();
            matches!(first, 1..=126 | 128..=223) && (first, second) != (169, 254)
        }
        IpAddr::V6(a) => {
            let [first, ..] = a.segments();
            let bits = a.to_bits();
            let multicast = first >= 0xff00;
            let link_local = first & 0xffc0 == 0xfe80;
            let unspecified_or_loopback = bits <= 1;
            let mapped = bits >> 32 == 0xffff;
            !(multicast || link_local || unspecified_or_loopback || mapped)
        }
    }
}

/// Whether `address` is one that any station of a segment or group listens to: multicast, or IPv4's
/// limited broadcast.
#[must_use]
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}

/// The destination address of a frame; `None` if it is too short to have one.
#[inline]
#[must_use]
pub fn destination_mac(frame: &[u8]) -> Option<MacAddr> {
    frame.first_chunk::<6>().map(|mac| MacAddr(*mac))
}

/// The source address of a frame; `None` if it is too short to have one.
#[inline]
#[must_use]
pub fn source_mac(frame: &[u8]) -> Option<MacAddr> {
    let (header, _) = frame.split_first_chunk::<12>()?;
    header.last_chunk::<6>().map(|mac| MacAddr(*mac))
}

/// Destination and source of a frame as numbers, as [`MacAddr::bits`] has them: for comparing them
/// with others without taking them apart. `None` if the frame ends before its Ethernet header does.
#[inline]
#[must_use]
pub fn station_bits(frame: &[u8]) -> Option<(u64, u64)> {
    let header = frame.first_chunk::<ETHERNET_HEADER>()?;
    let destination = u64::from_be_bytes(*header.first_chunk()?) >> 16;
    let source = u64::from_be_bytes(*header.last_chunk()?) >> 16;
    Some((destination, source))
}

/// Where an IP packet without VLAN tag wants to go, unchecked: what [`parse`] will say if it finds
/// nothing wrong. For reading tables ahead.
#[inline]
#[must_use]
pub fn destination_ip(frame: &[u8]) -> Option<IpAddr> {
    let (header, packet) = frame.split_first_chunk::<ETHERNET_HEADER>()?;
    match be16(header[12], header[13]) {
        ethertype::IPV4 => {
            packet.get(16..20)?.first_chunk::<4>().map(|address| IpAddr::V4((*address).into()))
        }
        ethertype::IPV6 => {
            packet.get(24..40)?.first_chunk::<16>().map(|address| IpAddr::V6((*address).into()))
        }
        _ => None,
    }
}

#[inline]
fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

/// Finds and checks the headers of an Ethernet frame without its frame check sequence. Constant
/// time: at most two tags and [`MAX_EXTENSION_HEADERS`] extension headers are looked at.
///
/// Transport headers are not checked, as RFC 1812 leaves them to the hosts: a packet too short for
/// ports has both zero.
///
/// # Errors
/// - [`Reason::Truncated`]: the frame ends before its headers do;
/// - [`Reason::BadVersion`], [`Reason::BadHeaderLength`],
///   [`Reason::BadTotalLength`], [`Reason::BadChecksum`]: RFC 1812, 5.2.2; a jumbogram (RFC 2675)
///   is a bad total length;
/// - [`Reason::BadExtensionHeader`]: a chain that leaves the packet or has more than
///   [`MAX_EXTENSION_HEADERS`], or a hop-by-hop header that is not the first.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Parsed, Reason> {
    match parse_usual(frame) {
        Some(headers) => Ok(Parsed::Ip(headers)),
        None => parse_any(frame),
    }
}

/// What nearly all frames begin with: Ethernet without tags, IPv4 without options, ports.
const PLAIN: usize = ETHERNET_HEADER + 20 + 4;

/// [`parse`] for what is nearly always there: a whole TCP or UDP packet in IPv4 without options and
/// tags, with nothing wrong. `None`: something is not as usual, and [`parse`] finds out what.
#[inline]
#[must_use]
pub fn parse_usual(frame: &[u8]) -> Option<Headers> {
    let head = usual_head(frame)?;
    let total_len = be16(head[16], head[17]);
    let flags = be16(head[20], head[21]);
    let protocol = head[23];
    Some(Headers {
        l3: ETHERNET_HEADER as u16,
        l4: ETHERNET_HEADER as u16 + 20,
        ip_len: total_len.into(),
        version: IpVersion::V4,
        dscp: head[15] >> 2,
        ecn: head[15] & 3,
        ttl: head[22],
        protocol,
        flow: FlowKey {
            source: IpAddr::V4(Ipv4Addr::new(head[26], head[27], head[28], head[29])),
            destination: IpAddr::V4(Ipv4Addr::new(head[30], head[31], head[32], head[33])),
            protocol,
            source_port: be16(head[34], head[35]),
            destination_port: be16(head[36], head[37]),
            flow_label: 0,
        },
        dont_fragment: flags & 0x4000 != 0,
        fragment: Fragment::No,
        vlan: None,
        link_group: head[0] & 1 != 0,
    })
}

/// The first bytes of a frame with a usual packet.
#[inline]
pub(crate) fn usual_head(frame: &[u8]) -> Option<&[u8; PLAIN]> {
    let head: &[u8; PLAIN] = frame.first_chunk()?;
    let (_, typed) = head.split_first_chunk::<12>()?;
    let (_, flagged) = head.split_first_chunk::<20>()?;
    // Whole words are compared with what they are to be, which is much less work than bytes. From
    // the lowest byte: type, version and length of header, DSCP, length, number.
    let first = u64::from_le_bytes(*typed.first_chunk()?);
    // Fragment, TTL, protocol.
    let second = u32::from_le_bytes(*flagged.first_chunk()?);
    let total_len = usize::from(((first >> 32) as u16).swap_bytes());
    let usual = first & 0xff_ffff == 0x45_0008
        && second & 0xff3f == 0
        && matches!((second >> 24) as u8, protocol::TCP | protocol::UDP)
        && total_len >= PLAIN - ETHERNET_HEADER
        && total_len + ETHERNET_HEADER <= frame.len();
    let (_, ip) = head.split_first_chunk::<ETHERNET_HEADER>()?;
    (usual && checksum::is_right_20(ip.first_chunk()?)).then_some(head)
}

/// [`parse`] of any frame.
#[inline(never)] // keeps the usual case small
fn parse_any(frame: &[u8]) -> Result<Parsed, Reason> {
    let Some((header, mut rest)) = frame.split_first_chunk::<ETHERNET_HEADER>() else {
        return Err(Reason::Truncated);
    };
    let link_group = header[0] & 1 != 0;
    let mut ethertype = be16(header[12], header[13]);
    let mut l3 = ETHERNET_HEADER;
    let mut vlan = None;
    for _ in 0..MAX_VLAN_TAGS {
        if ethertype != ethertype::VLAN && ethertype != ethertype::SERVICE_VLAN {
            break;
        }
        let Some((tag, after)) = rest.split_first_chunk::<VLAN_TAG>() else {
            return Err(Reason::Truncated);
        };
        vlan = vlan.or(Some(be16(tag[0], tag[1]) & 0x0fff));
        ethertype = be16(tag[2], tag[3]);
        l3 += VLAN_TAG;
        rest = after;
    }
    let link = Link { l3: l3 as u16, vlan, link_group };
    match ethertype {
        ethertype::IPV4 => parse_ipv4(rest, link).map(Parsed::Ip),
        ethertype::IPV6 => parse_ipv6(rest, link).map(Parsed::Ip),
        ethertype => Ok(Parsed::Other { ethertype }),
    }
}

/// Parses the IP header that begins at `l3`, whatever stands before it.
///
/// # Errors
/// As [`parse`].
pub fn parse_at(frame: &[u8], l3: usize) -> Result<Headers, Reason> {
    let packet = frame.get(l3..).ok_or(Reason::Truncated)?;
    let link = Link { l3: l3 as u16, vlan: None, link_group: false };
    match packet.first().map(|first| first >> 4) {
        Some(4) => parse_ipv4(packet, link),
        Some(6) => parse_ipv6(packet, link),
        _ => Err(Reason::BadVersion),
    }
}

/// What is known of a frame before its IP header is looked at.
#[derive(Clone, Copy)]
struct Link {
    l3: u16,
    vlan: Option<u16>,
    link_group: bool,
}

#[inline]
fn parse_ipv4(packet: &[u8], link: Link) -> Result<Headers, Reason> {
    let Some((ip, _)) = packet.split_first_chunk::<20>() else {
        return Err(Reason::Truncated);
    };
    if ip[0] >> 4 != 4 {
        return Err(Reason::BadVersion);
    }
    let header_len = usize::from(ip[0] & 0x0f) * 4;
    if header_len < 20 {
        return Err(Reason::BadHeaderLength);
    }
    let Some(header) = packet.get(..header_len) else {
        return Err(Reason::Truncated);
    };
    let total_len = usize::from(be16(ip[2], ip[3]));
    if total_len < header_len || total_len > packet.len() {
        return Err(Reason::BadTotalLength);
    }
    let sum = if header_len == 20 { checksum::sum_20(ip) } else { checksum::sum(header) };
    if sum.fold() != 0xffff {
        return Err(Reason::BadChecksum);
    }
    let flags = be16(ip[6], ip[7]);
    let fragment = match (flags & 0x1fff, flags & 0x2000) {
        (0, 0) => Fragment::No,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    };
    let protocol = ip[9];
    let (source_port, destination_port) =
        ports(protocol, fragment, packet.get(header_len..total_len).unwrap_or_default());
    Ok(Headers {
        l3: link.l3,
        l4: link.l3 + header_len as u16,
        ip_len: total_len as u32,
        version: IpVersion::V4,
        dscp: ip[1] >> 2,
        ecn: ip[1] & 3,
        ttl: ip[8],
        protocol,
        flow: FlowKey {
            source: IpAddr::V4(Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15])),
            destination: IpAddr::V4(Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19])),
            protocol,
            source_port,
            destination_port,
            flow_label: 0,
        },
        dont_fragment: flags & 0x4000 != 0,
        fragment,
        vlan: link.vlan,
        link_group: link.link_group,
    })
}

#[inline]
fn parse_ipv6(packet: &[u8], link: Link) -> Result<Headers, Reason> {
    let Some((ip, _)) = packet.split_first_chunk::<40>() else {
        return Err(Reason::Truncated);
    };
    if ip[0] >> 4 != 6 {
        return Err(Reason::BadVersion);
    }
    let payload_len = usize::from(be16(ip[4], ip[5]));
    let next = ip[6];
    // A length of zero with a hop-by-hop header announces a jumbogram, which no port here can
    // carry.
    if payload_len == 0 && next == extension::HOP_BY_HOP {
        return Err(Reason::BadTotalLength);
    }
    let Some(payload) = packet.get(40..40 + payload_len) else {
        return Err(Reason::BadTotalLength);
    };
    let upper = if extension::is_extension(next) {
        extension::walk(next, payload)?
    } else {
        extension::Upper { protocol: next, offset: 0, fragment: Fragment::No }
    };
    let (source_port, destination_port) =
        ports(upper.protocol, upper.fragment, payload.get(upper.offset..).unwrap_or_default());
    let word = u32::from_be_bytes([ip[0], ip[1], ip[2], ip[3]]);
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&ip[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from_octets(octets))
    };
    Ok(Headers {
        l3: link.l3,
        // At most 8 headers of at most 2048 bytes: no overflow.
        l4: link.l3 + 40 + upper.offset as u16,
        ip_len: 40 + payload_len as u32,
        version: IpVersion::V6,
        dscp: (word >> 22) as u8 & 0x3f,
        ecn: (word >> 20) as u8 & 3,
        ttl: ip[7],
        protocol: upper.protocol,
        flow: FlowKey {
            source: address(8),
            destination: address(24),
            protocol: upper.protocol,
            source_port,
            destination_port,
            flow_label: word & 0x000f_ffff,
        },
        dont_fragment: true,
        fragment: upper.fragment,
        vlan: link.vlan,
        link_group: link.link_group,
    })
}

/// Source and destination port of a transport that has them at its start; zeros where they are not
/// there.
#[inline]
fn ports(protocol: u8, fragment: Fragment, transport: &[u8]) -> (u16, u16) {
    use protocol::{DCCP, SCTP, TCP, UDP, UDP_LITE};
    match (protocol, fragment, transport.first_chunk::<4>()) {
        (
            TCP | UDP | SCTP | DCCP | UDP_LITE,
            Fragment::No | Fragment::First,
            Some(&[a, b, c, d]),
        ) => (be16(a, b), be16(c, d)),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The short way says nothing that the whole parser would not say. Frames are usual ones
        /// with some bytes changed; often the checksum is right.
        #[test]
        fn the_usual_packet_is_what_any_packet_is(
            mut frame in prop::collection::vec(any::<u8>(), PLAIN..80),
            tcp in any::<bool>(),
            changes in prop::collection::vec((0usize..PLAIN, any::<u8>()), 0..3),
            cut in 0usize..80,
            right in any::<bool>(),
        ) {
            frame[12..18].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 0]);
            let total_len = (frame.len() - ETHERNET_HEADER) as u16;
            frame[16..18].copy_from_slice(&total_len.to_be_bytes());
            frame[20] &= 0x40;
            frame[21] = 0;
            frame[23] = if tcp { protocol::TCP } else { protocol::UDP };
            for (at, byte) in changes {
                frame[at] = byte;
            }
            if right {
                frame[24..26].fill(0);
                let sum = checksum::sum(&frame[14..34]).checksum();
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            frame.truncate(cut.max(1));
            if let Some(headers) = parse_usual(&frame) {
                prop_assert_eq!(parse_any(&frame), Ok(Parsed::Ip(headers)));
            }
        }
    }

    #[test]
    fn a_usual_packet_takes_the_short_way() {
        let mut frame = [0; 60];
        frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0xb8]);
        frame[16..18].copy_from_slice(&46u16.to_be_bytes());
        frame[22..24].copy_from_slice(&[64, protocol::UDP]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum::sum(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert!(parse_usual(&frame).is_some_and(|headers| headers.dscp == 46));
        frame[15] = 0;
        assert_eq!((parse_usual(&frame), parse(&frame)), (None, Err(Reason::BadChecksum)));
    }
}
