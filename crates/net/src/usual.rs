//! Packets as nearly all are, and what tells their flows apart, in two words: for caches of flows,
//! which have no time to parse.

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::Ecn;

use crate::PortIndex;
use crate::frame::usual_head;

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

    /// Its flow, as parsing has it.
    #[inline]
    #[must_use]
    pub fn packed(self) -> PackedFlow {
        PackedFlow::v4(self.addresses, self.rest as u32, (self.rest >> 32) as u8)
    }
}
