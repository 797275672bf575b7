//! What a discipline may ask of a packet.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use crate::flow_table::PackedFlow;
use crate::units::{Bytes, Nanos};

/// The index of a traffic class, in the order of the configuration. Class 0 is the default class.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Class(pub u16);

impl Class {
    /// The place of this class in an array of classes.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The index of a port of the router, in the order of the configuration.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// The place of this port in an array of ports.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What identifies a flow: addresses, transport protocol and ports; of IPv6, where the sender has
/// set one, the flow label instead of protocol and ports, which are zero then.
///
/// Protocols without ports have both zero, and so have all fragments of a datagram: only the first
/// carries them. Turning a frame into such a key is up to the parser of frames.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address; of the same family as the source.
    pub destination: IpAddr,
    /// IP protocol number after all IPv6 extension headers (6 TCP, 17 UDP, ...).
    pub protocol: u8,
    /// Source port, host byte order.
    pub source_port: u16,
    /// Destination port, host byte order.
    pub destination_port: u16,
    /// IPv6 flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
}

impl FlowKey {
    /// The flow of an IPv6 flow label, which is not 0: all packets between two addresses that carry
    /// it (RFC 6437, 2).
    #[must_use]
    pub const fn labelled(self) -> Self {
        Self { protocol: 0, source_port: 0, destination_port: 0, ..self }
    }

    const fn is_labelled(&self) -> bool {
        self.flow_label != 0
            && self.protocol == 0
            && self.source_port == 0
            && self.destination_port == 0
    }

    /// Whether it keeps the network running, and so must not depend on its load: ICMP, IGMP, RSVP,
    /// EIGRP, OSPF, PIM, VRRP and IS-IS by protocol; BGP (TCP 179), RIP (UDP 520, 521) and BFD (UDP
    /// 3784, 4784) by either port.
    #[must_use]
    #[inline]
    pub const fn is_control(&self) -> bool {
        is_control(self.protocol, self.source_port, self.destination_port)
    }
}

/// [`FlowKey::is_control`] of a flow with this protocol and these ports.
#[inline]
pub(crate) const fn is_control(protocol: u8, source_port: u16, destination_port: u16) -> bool {
    match protocol {
        6 => source_port == 179 || destination_port == 179,
        17 => is_routing_udp(source_port) || is_routing_udp(destination_port),
        protocol => matches!(protocol, 1 | 2 | 46 | 58 | 88 | 89 | 103 | 112 | 124),
    }
}

const fn is_routing_udp(port: u16) -> bool {
    matches!(port, 520 | 521 | 3784 | 4784)
}

impl fmt::Display for FlowKey {
    /// `10.0.0.1:5000->10.0.1.1:80/udp`, IPv6 addresses in brackets; the flow of a label is
    /// `[fd00::1]->[fd00::2]/label:0x12345`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_labelled() {
            return write!(
                f,
                "[{}]->[{}]/label:{:#x}",
                self.source, self.destination, self.flow_label
            );
        }
        let end = |f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16| match address {
            IpAddr::V4(a) => write!(f, "{a}:{port}"),
            IpAddr::V6(a) => write!(f, "[{a}]:{port}"),
        };
        end(f, self.source, self.source_port)?;
        f.write_str("->")?;
        end(f, self.destination, self.destination_port)?;
        match self.protocol {
            1 => f.write_str("/icmp"),
            6 => f.write_str("/tcp"),
            17 => f.write_str("/udp"),
            58 => f.write_str("/icmpv6"),
            other => write!(f, "/{other}"),
        }
    }
}

/// A text that names no flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowKeyError;

impl fmt::Display for FlowKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a flow is written 10.0.0.1:5000->10.0.1.1:80/udp, IPv6 addresses in brackets; the \
             protocol is tcp, udp, icmp, icmpv6 or a \
             number; an IPv6 flow with a flow label is written [fd00::1]->[fd00::2]/label:0x12345",
        )
    }
}

impl core::error::Error for FlowKeyError {}

impl FromStr for FlowKey {
    type Err = FlowKeyError;

    /// Reads what [`Display`](fmt::Display) writes. A key with protocol and a flow label, which
    /// that leaves out, is read with label 0.
    fn from_str(text: &str) -> Result<Self, FlowKeyError> {
        let (ends, protocol) = text.trim().rsplit_once('/').ok_or(FlowKeyError)?;
        let (from, to) = ends.split_once("->").ok_or(FlowKeyError)?;
        if let Some(label) = protocol.strip_prefix("label:") {
            let key = label_key(from, to, label);
            return key.ok_or(FlowKeyError);
        }
        let parts = || {
            let end = |end: &str| end.trim().parse::<SocketAddr>().ok();
            let protocol = match protocol {
                "icmp" => 1,
                "tcp" => 6,
                "udp" => 17,
                "icmpv6" => 58,
                number => number.parse().ok()?,
            };
            Some((end(from)?, end(to)?, protocol))
        };
        let (from, to, protocol) = parts().ok_or(FlowKeyError)?;
        if from.is_ipv4() != to.is_ipv4() {
            return Err(FlowKeyError);
        }
        Ok(Self {
            source: from.ip(),
            destination: to.ip(),
            protocol,
            source_port: from.port(),
            destination_port: to.port(),
            flow_label: 0,
        })
    }
}

fn label_key(from: &str, to: &str, label: &str) -> Option<FlowKey> {
    let end = |end: &str| -> Option<Ipv6Addr> {
        let end = end.trim();
        end.strip_prefix('[').map_or(Some(end), |end| end.strip_suffix(']'))?.parse().ok()
    };
    let flow_label = match label.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => label.parse().ok()?,
    };
    (1..=0xf_ffff).contains(&flow_label).then_some(())?;
    Some(FlowKey {
        source: end(from)?.into(),
        destination: end(to)?.into(),
        protocol: 0,
        source_port: 0,
        destination_port: 0,
        flow_label,
    })
}

/// What an IP header says of explicit congestion notification (RFC 3168, RFC 9331).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Ecn {
    /// 00: the sender does not listen to marks.
    #[default]
    NotCapable,
    /// ECT(1), 01: a mark is a small hint to a sender that expects many (L4S).
    Scalable,
    /// ECT(0), 10: a mark is as good as a drop.
    Classic,
    /// CE, 11: marked, here or by another router.
    Experienced,
}

impl Ecn {
    /// The two bits of a header.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Scalable,
            2 => Self::Classic,
            _ => Self::Experienced,
        }
    }

    /// Whether its sender listens to marks.
    #[must_use]
    pub const fn listens(self) -> bool {
        !matches!(self, Self::NotCapable)
    }
}

/// What a segment of TCP acknowledges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ack {
    /// The sequence number up to which everything was received (RFC 9293, 3.1).
    pub number: u32,
    /// What it says of congestion: the flags AE, CWR and ECE, in the order of the header (RFC 3168,
    /// AccECN).
    pub flags: u8,
    /// It does nothing but acknowledge: it has no data, no other flag, and no option but a time
    /// stamp.
    pub is_bare: bool,
}

impl Ack {
    /// Whether its sender has said with it all that `older`, of the same connection, says: then
    /// that need not arrive.
    #[must_use]
    #[inline]
    pub const fn covers(self, older: Self) -> bool {
        let ahead = self.number.wrapping_sub(older.number) as i32;
        older.is_bare && self.flags == older.flags && ahead > 0
    }
}

/// Where tables found the flow of an earlier packet: guesses, which save a search where they are
/// right and cost a look where not. What is found never depends on them: keys are compared in full.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Places {
    /// On the list of protected flows ([`Admission::last_place`](crate::admit::Admission)).
    pub listed: u32,
    /// Among the queues ([`Scheduler::last_place`](crate::Scheduler::last_place)).
    pub queue: u32,
}

impl Places {
    /// Nothing is known of a place.
    pub const NOWHERE: u32 = u32::MAX;
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { listed: Self::NOWHERE, queue: Self::NOWHERE };
}

/// A packet as the disciplines see it.
pub trait Packet {
    /// Length of the IP packet, header included: what disciplines count, unless they say otherwise.
    fn ip_len(&self) -> Bytes;
    /// What the wire takes for it: with Ethernet header, frame check sequence, preamble and gap.
    fn wire_len(&self) -> Bytes;
    /// The class it was put into.
    fn class(&self) -> Class;
    /// The flow it belongs to.
    fn flow(&self) -> FlowKey;
    /// The same flow in the form that flow tables compare, several times on a packet's way: packets
    /// on a fast path keep it in this form.
    #[inline]
    fn packed_flow(&self) -> PackedFlow {
        PackedFlow::new(&self.flow())
    }
    /// Whether it is of this flow.
    #[inline]
    fn is_of(&self, flow: &PackedFlow) -> bool {
        self.packed_flow() == *flow
    }
    /// A seeded hash of the flow key; equal for all packets of a flow.
    fn flow_hash(&self) -> u64;
    /// Where its flow was found last.
    #[inline]
    fn places(&self) -> Places {
        Places::UNKNOWN
    }
    /// When it was put into the router's input queue.
    fn arrival(&self) -> Nanos;
    /// The subscriber that it belongs to, as a place in a tree of them
    /// ([`Plan`](crate::schedule::tree::Plan)); 1: it is not known whose it is.
    #[inline]
    fn subscriber(&self) -> u32 {
        crate::schedule::tree::UNKNOWN
    }
    /// How many packets it is on the wire: more than one for a super-frame, whose lengths are those
    /// of its segments together.
    #[inline]
    fn segments(&self) -> u32 {
        1
    }
    /// Whether the router itself made it, to keep the network running: what only passes through is
    /// none such, whatever its protocol, ports and TTL say.
    #[inline]
    fn is_own_control(&self) -> bool {
        false
    }
    /// What its header says of congestion notification.
    #[inline]
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    /// What it acknowledges, where it is TCP and a discipline that
    /// [asks](crate::Scheduler::reads_acks) has it.
    #[inline]
    fn ack(&self) -> Option<Ack> {
        None
    }
    /// Marks it: congestion experienced. Only packets whose [`ecn`](Self::ecn)
    /// [listens](Ecn::listens) are marked.
    fn mark(&mut self) {}
    /// Whether it was marked here.
    #[inline]
    fn is_marked(&self) -> bool {
        false
    }
    /// Begins to read what it stands for, where it is a handle of something that lies elsewhere.
    #[inline]
    fn read_ahead(&self) {}
}

/// What Ethernet adds to an IP packet on the wire: header 14, frame check sequence 4, preamble 8,
/// gap 12.
pub const ETHERNET_WIRE_OVERHEAD: Bytes = Bytes(38);

/// What Ethernet pads shorter IP packets to.
pub const ETHERNET_MIN_PAYLOAD: Bytes = Bytes(46);

/// A packet without contents: for simulations, tests and examples. Real packets implement
/// [`Packet`] themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Descriptor {
    /// Its class.
    pub class: Class,
    /// Length of the IP packet.
    pub ip_len: Bytes,
    /// When it was put into the router's input queue.
    pub arrival: Nanos,
    /// Its flow.
    pub flow: FlowKey,
    /// A hash of its flow.
    pub flow_hash: u64,
}

impl Descriptor {
    /// A packet of the only flow of its class: UDP between unspecified addresses, the class as
    /// source port.
    #[must_use]
    pub const fn new(class: Class, ip_len: Bytes, arrival: Nanos) -> Self {
        let unspecified = IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
        let flow = FlowKey {
            source: unspecified,
            destination: unspecified,
            protocol: 17,
            source_port: class.0,
            destination_port: 0,
            flow_label: 0,
        };
        Self { class, ip_len, arrival, flow, flow_hash: class.0 as u64 }
    }
}

impl Packet for Descriptor {
    fn ip_len(&self) -> Bytes {
        self.ip_len
    }
    /// That of an Ethernet frame without a VLAN tag, padded to the minimum.
    fn wire_len(&self) -> Bytes {
        self.ip_len.max(ETHERNET_MIN_PAYLOAD) + ETHERNET_WIRE_OVERHEAD
    }
    fn class(&self) -> Class {
        self.class
    }
    fn flow(&self) -> FlowKey {
        self.flow
    }
    fn flow_hash(&self) -> u64 {
        self.flow_hash
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_read_as_it_is_written() {
        for text in [
            "10.0.0.1:5000->10.0.1.1:80/udp",
            "[fd00::1]:0->[fd00::2]:0/icmpv6",
            "1.2.3.4:1->5.6.7.8:2/89",
        ] {
            let key: FlowKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
        let labelled: FlowKey = "[fd00::1]->[fd00::2]/label:0x12345".parse().unwrap();
        assert_eq!(labelled.to_string(), "[fd00::1]->[fd00::2]/label:0x12345");
        assert_eq!((labelled.flow_label, labelled.protocol), (0x1_2345, 0));
        assert_eq!("fd00::1 -> fd00::2/label:74565".parse(), Ok(labelled));
        let whole: FlowKey = "[fd00::1]:5->[fd00::2]:6/udp".parse().unwrap();
        assert_eq!(FlowKey { flow_label: 0x1_2345, ..whole }.labelled(), labelled);
        for wrong in [
            "",
            "10.0.0.1->10.0.1.1/label:1",
            "[fd00::1]->[fd00::2]/label:0",
            "[fd00::1]->[fd00::2]/label:0x100000",
            "[fd00::1]:1->[fd00::2]:2/label:1",
            "[fd00::1->[fd00::2]/label:1",
            "10.0.0.1->10.0.1.1/udp",
            "10.0.0.1:5000->10.0.1.1:80",
            "1.1.1.1:1->[::1]:1/tcp",
            "1.1.1.1:1->2.2.2.2:1/300",
        ] {
            assert_eq!(wrong.parse::<FlowKey>(), Err(FlowKeyError), "{wrong}");
        }
    }

    #[test]
    fn control_protocols_are_told_by_protocol_or_port() {
        let is_control = |text: &str| text.parse::<FlowKey>().unwrap().is_control();
        for text in [
            "10.0.0.1:0->10.0.1.1:0/icmp",
            "[fd00::1]:0->[fd00::2]:0/icmpv6",
            "10.0.0.1:0->10.0.1.1:0/89",
            "10.0.0.1:40000->10.0.1.1:179/tcp",
            "10.0.0.1:179->10.0.1.1:40000/tcp",
            "10.0.0.1:520->10.0.1.1:520/udp",
            "[fd00::1]:49152->[fd00::2]:4784/udp",
        ] {
            assert!(is_control(text), "{text}");
        }
        for text in [
            "10.0.0.1:179->10.0.1.1:179/udp",
            "10.0.0.1:520->10.0.1.1:520/tcp",
            "[fd00::1]->[fd00::2]/label:1",
            "10.0.0.1:0->10.0.1.1:0/50",
        ] {
            assert!(!is_control(text), "{text}");
        }
    }
}
