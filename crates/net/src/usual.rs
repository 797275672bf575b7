//! Packets as nearly all are, and what tells their flows apart, in two words: for caches of flows,
//! which have no time to parse.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::FlowKey;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::Ecn;

use crate::PortIndex;
use crate::frame::{is_routable, usual_head};

/// A whole TCP or UDP packet in IPv4 without options and tags, with nothing wrong.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// Its flow, as received by no port in particular.
    pub flow: UsualFlow,
    /// Length of the IP packet, bytes.
    pub ip_len: u16,
    /// Time to live.
    pub ttl: u8,
    /// What the header says of congestion notification.
    pub ecn: Ecn,
}

impl Usual {
    /// What is usual about a frame; `None`: not everything is.
    #[inline]
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let head = usual_head(frame)?;
        let (_, addresses) = head.split_first_chunk::<26>()?;
        let (_, ports) = head.split_first_chunk::<34>()?;
        let ports = u32::from_be_bytes(*ports.first_chunk()?);
        let dscp = head[15] >> 2;
        let flow = UsualFlow {
            addresses: u64::from_be_bytes(*addresses.first_chunk()?),
            rest: u64::from(ports) | u64::from(head[23]) << 32 | u64::from(dscp) << 40,
        };
        let ip_len = u16::from_be_bytes([head[16], head[17]]);
        Some(Self { flow, ip_len, ttl: head[22], ecn: Ecn::from_bits(head[15]) })
    }
}

/// Addresses, ports, protocol, DSCP and the port it is received by: all that routes, rules and
/// classes ask of a [usual](Usual) packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UsualFlow {
    /// Source, destination.
    addresses: u64,
    /// Ports, from the lowest bit; protocol, DSCP, port it is received by.
    rest: u64,
}

impl UsualFlow {
    /// The same flow, received by a port.
    #[inline]
    #[must_use]
    pub fn received_by(self, port: PortIndex) -> Self {
        Self { rest: self.rest & ((1 << 48) - 1) | u64::from(port.0) << 48, ..self }
    }

    /// The two words of it.
    #[inline]
    #[must_use]
    pub const fn words(self) -> (u64, u64) {
        (self.addresses, self.rest)
    }

    /// Source and destination.
    #[inline]
    #[must_use]
    pub const fn ends(self) -> [IpAddr; 2] {
        let [source, destination] = [(self.addresses >> 32) as u32, self.addresses as u32];
        [IpAddr::V4(Ipv4Addr::from_bits(source)), IpAddr::V4(Ipv4Addr::from_bits(destination))]
    }

    /// Addresses, ports and protocol, as [`PackedFlow::v4`] takes them.
    #[inline]
    #[must_use]
    pub const fn parts(self) -> (u64, u32, u8) {
        (self.addresses, self.rest as u32, (self.rest >> 32) as u8)
    }

    /// Its flow, as parsing has it.
    #[must_use]
    pub fn key(self) -> FlowKey {
        let [source, destination] = self.ends();
        let (_, ports, protocol) = self.parts();
        let (source_port, destination_port) = ((ports >> 16) as u16, ports as u16);
        FlowKey { source, destination, protocol, source_port, destination_port, flow_label: 0 }
    }

    /// The differentiated services code point.
    #[inline]
    #[must_use]
    pub const fn dscp(self) -> u8 {
        (self.rest >> 40) as u8 & 0x3f
    }

    /// Whether both addresses can be those of hosts beyond their links, as
    /// [`check_transit`](crate::frame::Headers::check_transit) has it.
    #[inline]
    #[must_use]
    pub fn is_routable(self) -> bool {
        self.ends().into_iter().all(is_routable)
    }

    /// The same, packed.
    #[inline]
    #[must_use]
    pub fn packed(self) -> PackedFlow {
        let (addresses, ports, protocol) = self.parts();
        PackedFlow::v4(addresses, ports, protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::parse_usual;
    use crate::hash::FlowHasher;

    #[test]
    fn it_says_what_parsing_says() {
        for (source, destination, dscp) in [
            ([10, 0, 0, 1], [10, 0, 1, 9], 0),
            ([127, 0, 0, 1], [10, 0, 1, 9], 46),
            ([9; 4], [224; 4], 63),
        ] {
            let mut frame = [0; 60];
            frame[12..15].copy_from_slice(&[0x08, 0, 0x45]);
            (frame[15], frame[17], frame[22], frame[23]) = (dscp << 2 | 1, 46, 64, 17);
            frame[26..30].copy_from_slice(&source);
            frame[30..34].copy_from_slice(&destination);
            frame[34..38].copy_from_slice(&[0x12, 0x34, 0xfe, 0xdc]);
            let sum = crate::checksum::sum(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            let (usual, headers) = (Usual::of(&frame).unwrap(), parse_usual(&frame).unwrap());
            let flow = usual.flow.received_by(PortIndex(0xffff));
            assert_eq!((flow.key(), flow.dscp()), (headers.flow, headers.dscp));
            assert_eq!(flow.packed(), PackedFlow::new(&headers.flow));
            let (addresses, ports, protocol) = flow.parts();
            let hasher = FlowHasher::new(9);
            assert_eq!(hasher.v4(addresses, ports, protocol), hasher.hash(&headers.flow));
            assert_eq!(flow.is_routable(), headers.check_transit().is_ok());
        }
    }
}
