//! Packets to test with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_core::packet::{Ack, Places};
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet};

/// A packet that is known by its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestPacket {
    /// Its number; no other has it.
    pub id: u64,
    /// Its class; it need not be there.
    pub class: Class,
    /// Bytes of the IP packet.
    pub length: u32,
    /// When it came.
    pub arrival: Nanos,
    /// Whose it is.
    pub flow: FlowKey,
    /// Bytes that the wire adds.
    pub overhead: u32,
    /// What it acknowledges.
    pub ack: Option<Ack>,
}

impl TestPacket {
    /// A packet of a class and an IP length; its flow is that of the class. It acknowledges its
    /// number, and does nothing else if it is short.
    pub fn new(id: u64, class: u16, length: u32) -> Self {
        Self {
            id,
            class: Class(class),
            length,
            arrival: Nanos::ZERO,
            flow: flow(class as u8),
            overhead: 38,
            ack: Some(Ack { number: id as u32, flags: 0, is_bare: length < 200 }),
        }
    }
}

impl Packet for TestPacket {
    fn ip_len(&self) -> Bytes {
        Bytes(u64::from(self.length))
    }
    fn wire_len(&self) -> Bytes {
        Bytes(u64::from(self.length + self.overhead))
    }
    fn class(&self) -> Class {
        self.class
    }
    fn flow(&self) -> FlowKey {
        self.flow
    }
    fn flow_hash(&self) -> u64 {
        // Several flows to a hash: disciplines must tell them apart by their keys.
        u64::from(self.flow.source_port % 64)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
    fn ack(&self) -> Option<Ack> {
        self.ack
    }
    /// In a tree classes are subscribers.
    fn subscriber(&self) -> u32 {
        self.class.0.into()
    }
}

/// A packet with a subscriber.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mail {
    /// The packet.
    pub packet: TestPacket,
    /// The number of the subscriber.
    pub to: u32,
    /// Where the flow is queued, as it is guessed.
    pub queue: u32,
}

impl Mail {
    /// For a subscriber; nobody guesses where its flow is queued.
    pub fn new(packet: TestPacket, to: u32) -> Self {
        Self { packet, to, queue: Places::NOWHERE }
    }
}

impl Packet for Mail {
    fn ip_len(&self) -> Bytes {
        self.packet.ip_len()
    }
    fn wire_len(&self) -> Bytes {
        self.packet.wire_len()
    }
    fn class(&self) -> Class {
        self.packet.class()
    }
    fn flow(&self) -> FlowKey {
        self.packet.flow
    }
    fn flow_hash(&self) -> u64 {
        self.packet.flow_hash()
    }
    fn arrival(&self) -> Nanos {
        self.packet.arrival
    }
    fn subscriber(&self) -> u32 {
        self.to
    }
    fn places(&self) -> Places {
        Places { queue: self.queue, ..Places::UNKNOWN }
    }
}

/// One of 256 flows; every fourth is IPv6.
pub fn flow(n: u8) -> FlowKey {
    let (source, destination) = if n % 4 == 3 {
        let host = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        (host(u16::from(n)), host(0x100 + u16::from(n)))
    } else {
        (IpAddr::V4(Ipv4Addr::new(10, 0, n, 1)), IpAddr::V4(Ipv4Addr::new(10, 1, 0, n)))
    };
    FlowKey {
        source,
        destination,
        protocol: 17,
        source_port: 5000 + u16::from(n),
        destination_port: 80,
        flow_label: u32::from(n) * 0x1111,
    }
}
