//! What a discipline may ask of a packet.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

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

/// What identifies a flow: addresses, transport protocol and ports.
///
/// Protocols without ports, and fragments that do not carry them, have both ports zero; so all fragments of a datagram
/// beyond the first fall into one flow.
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

impl fmt::Display for FlowKey {
    /// `10.0.0.1:5000->10.0.1.1:80/udp`, IPv6 addresses in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            "a flow is written 10.0.0.1:5000->10.0.1.1:80/udp, IPv6 addresses in brackets; the protocol is tcp, udp, icmp, icmpv6 or a number",
        )
    }
}

impl core::error::Error for FlowKeyError {}

impl FromStr for FlowKey {
    type Err = FlowKeyError;

    /// Reads what [`Display`](fmt::Display) writes; the flow label, which that leaves out, is 0.
    fn from_str(text: &str) -> Result<Self, FlowKeyError> {
        let parts = || {
            let (ends, protocol) = text.trim().rsplit_once('/')?;
            let (from, to) = ends.split_once("->")?;
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

/// A packet as the disciplines see it.
pub trait Packet {
    /// Length of the IP packet, header included: what disciplines count, unless they say otherwise.
    fn ip_len(&self) -> Bytes;
    /// What the wire takes for it: with Ethernet header, frame check sequence, preamble and gap.
    fn wire_len(&self) -> Bytes;
    /// The class it was put into.
    fn class(&self) -> Class;
    /// The flow it belongs to.
    fn flow(&self) -> &FlowKey;
    /// A seeded hash of the flow key; equal for all packets of a flow.
    fn flow_hash(&self) -> u64;
    /// When it was put into the router's input queue.
    fn arrival(&self) -> Nanos;
}

/// What Ethernet adds to an IP packet on the wire: header 14, frame check sequence 4, preamble 8, gap 12.
pub const ETHERNET_WIRE_OVERHEAD: Bytes = Bytes(38);

/// What Ethernet pads shorter IP packets to.
pub const ETHERNET_MIN_PAYLOAD: Bytes = Bytes(46);

/// A packet without contents: for simulations, tests and examples. Real packets implement [`Packet`] themselves.
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
    /// A packet of the only flow of its class: UDP between unspecified addresses, the class as source port.
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
    fn flow(&self) -> &FlowKey {
        &self.flow
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
        for text in
            ["10.0.0.1:5000->10.0.1.1:80/udp", "[fd00::1]:0->[fd00::2]:0/icmpv6", "1.2.3.4:1->5.6.7.8:2/89"]
        {
            let key: FlowKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
        for wrong in [
            "",
            "10.0.0.1->10.0.1.1/udp",
            "10.0.0.1:5000->10.0.1.1:80",
            "1.1.1.1:1->[::1]:1/tcp",
            "1.1.1.1:1->2.2.2.2:1/300",
        ] {
            assert_eq!(wrong.parse::<FlowKey>(), Err(FlowKeyError), "{wrong}");
        }
    }
}
