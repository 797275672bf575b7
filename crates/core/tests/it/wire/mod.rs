//! A packet, a sink that keeps what left a link, and what holds for every link at every instant.
#![allow(unreachable_pub, reason = "shared by the tests of this program")]

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::link::{Link, LinkSink};
use evenkeel_core::packet::ETHERNET_WIRE_OVERHEAD;
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet, Reason, Scheduler};

/// The packets of the published measurements: 1400 bytes of payload behind UDP and IP headers.
pub const IP_LEN: Bytes = Bytes(1428);

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestPacket {
    /// Counts the packets of a test in the order of arrival.
    pub id: u64,
    pub class: Class,
    pub ip_len: Bytes,
    pub arrival: Nanos,
    pub flow: FlowKey,
}

/// A packet of the only flow of its class.
pub fn packet(id: u64, class: u16, ip_len: Bytes, arrival: Nanos) -> TestPacket {
    let [high, low] = class.to_be_bytes();
    TestPacket {
        id,
        class: Class(class),
        ip_len,
        arrival,
        flow: FlowKey {
            source: IpAddr::V4(Ipv4Addr::new(10, 0, high, low)),
            destination: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
            protocol: 17,
            source_port: 1000,
            destination_port: 2000,
            flow_label: 0,
        },
    }
}

impl Packet for TestPacket {
    fn ip_len(&self) -> Bytes {
        self.ip_len
    }
    fn wire_len(&self) -> Bytes {
        self.ip_len + ETHERNET_WIRE_OVERHEAD
    }
    fn class(&self) -> Class {
        self.class
    }
    fn flow(&self) -> FlowKey {
        self.flow
    }
    fn flow_hash(&self) -> u64 {
        u64::from(self.class.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
}

/// Keeps what left the link, and when.
#[derive(Debug)]
pub struct Out {
    pub sent: Vec<(Nanos, TestPacket)>,
    pub dropped: Vec<(Nanos, TestPacket, Reason)>,
    /// What a port would say that it can take; used up by each packet.
    pub room: usize,
}

impl Default for Out {
    fn default() -> Self {
        Self { sent: Vec::new(), dropped: Vec::new(), room: usize::MAX }
    }
}

impl LinkSink<TestPacket> for Out {
    fn room(&self) -> usize {
        self.room
    }
    fn transmitted(&mut self, at: Nanos, packet: TestPacket) {
        if self.room != usize::MAX {
            // A paced link sends without asking.
            self.room = self.room.saturating_sub(1);
        }
        self.sent.push((at, packet));
    }
    fn dropped(&mut self, at: Nanos, packet: TestPacket, reason: Reason) {
        self.dropped.push((at, packet, reason));
    }
}

/// Packets in = sent + queued + in the ring + drops by reason, by the link's own meters and by what
/// left it.
pub fn assert_conserved<S: Scheduler<TestPacket>>(link: &Link<TestPacket, S>, out: &Out) {
    let held = link.held();
    let (mut came, mut given, mut sent, mut dropped) = (0, 0, 0, 0);
    for meter in link.qostat().classes() {
        came += meter.in_packets;
        given += meter.out_packets;
        sent += meter.sent_packets;
        dropped += meter.dropped_packets();
        assert_eq!(meter.delay.count(), meter.out_packets);
    }
    assert_eq!(came, sent + held.queued + held.in_ring + dropped, "{held:?}");
    let queued: u64 = link.qostat().classes().iter().map(|meter| meter.queue.packets).sum();
    assert_eq!(queued, held.queued, "whether the discipline queues by class or not");
    assert_eq!(sent, out.sent.len() as u64);
    assert_eq!(dropped, out.dropped.len() as u64);
    assert!(given >= sent);
    for reason in Reason::ALL {
        let counted: u64 = link.qostat().classes().iter().map(|m| m.dropped[reason.index()]).sum();
        assert_eq!(counted, out.dropped.iter().filter(|(_, _, r)| r == reason).count() as u64);
    }
}
