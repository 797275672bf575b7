//! Packets as the router queues them: a handle of 8 bytes of a record that lies elsewhere.

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::Places;
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet};

/// What disciplines ask of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) flow: PackedFlow,
    pub(crate) hash: u64,
    pub(crate) arrival: Nanos,
    /// Where its flow was found last.
    pub(crate) places: Places,
    /// The place of who it is for, where there is a tree of them.
    pub(crate) subscriber: u32,
    /// Of the IP packet.
    pub(crate) len: u16,
    pub(crate) class: Class,
}

impl Packet for Record {
    fn ip_len(&self) -> Bytes {
        Bytes(u64::from(self.len))
    }
    fn wire_len(&self) -> Bytes {
        Bytes(u64::from(self.len) + 38)
    }
    fn class(&self) -> Class {
        self.class
    }
    fn flow(&self) -> FlowKey {
        self.flow.unpack()
    }
    fn packed_flow(&self) -> PackedFlow {
        self.flow
    }
    fn flow_hash(&self) -> u64 {
        self.hash
    }
    fn places(&self) -> Places {
        self.places
    }
    fn subscriber(&self) -> u32 {
        self.subscriber
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
}

/// What queues hold.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Box<Record>);

const _: () = assert!(size_of::<Handle>() == 8);

impl Packet for Handle {
    fn ip_len(&self) -> Bytes {
        self.0.ip_len()
    }
    fn wire_len(&self) -> Bytes {
        self.0.wire_len()
    }
    fn class(&self) -> Class {
        self.0.class()
    }
    fn flow(&self) -> FlowKey {
        self.0.flow()
    }
    fn packed_flow(&self) -> PackedFlow {
        self.0.packed_flow()
    }
    fn is_of(&self, flow: &PackedFlow) -> bool {
        self.0.flow == *flow
    }
    fn flow_hash(&self) -> u64 {
        self.0.flow_hash()
    }
    fn places(&self) -> Places {
        self.0.places()
    }
    fn subscriber(&self) -> u32 {
        self.0.subscriber()
    }
    fn arrival(&self) -> Nanos {
        self.0.arrival()
    }
    fn read_ahead(&self) {
        evenkeel_core::read_ahead(std::slice::from_ref(&*self.0), 0);
    }
}

/// Records that no packet has. The one used last is taken first, because it is in the cache.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a packet takes its box along")]
pub(crate) struct Spare(Vec<Box<Record>>);

impl Spare {
    /// A packet with this record.
    pub(crate) fn packet(&mut self, record: Record) -> Handle {
        match self.0.pop() {
            Some(mut place) => {
                *place = record;
                Handle(place)
            }
            None => Handle(Box::new(record)),
        }
    }

    /// A packet is gone.
    pub(crate) fn take(&mut self, packet: Handle) {
        self.0.push(packet.0);
    }
}
