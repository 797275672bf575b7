//! The packet as it waits in an outgoing link: all a discipline may ask, and the handle of its frame.

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::ETHERNET_WIRE_OVERHEAD;
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet};
use evenkeel_ports::Frame;

/// A packet in an outgoing link. At most 96 bytes, so that queues of thousands stay in the cache's reach.
#[derive(Debug)]
pub struct QueuedPacket {
    pub(super) frame: Frame,
    pub(super) flow: PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) arrival: Nanos,
    pub(super) ip_len: u32,
    pub(super) class: Class,
}

const _: () = assert!(size_of::<QueuedPacket>() <= 96);

/// The shortest payload of an Ethernet frame: shorter ones are padded on the wire.
const SHORTEST_PAYLOAD: u64 = 46;
const ETHERNET_HEADER: u64 = 14;

/// What the wire takes for a frame of `length` bytes, with padding, frame check sequence, preamble and gap.
pub(super) fn wire_len(length: usize) -> Bytes {
    let payload = (length as u64).saturating_sub(ETHERNET_HEADER);
    Bytes(payload.max(SHORTEST_PAYLOAD)) + ETHERNET_WIRE_OVERHEAD
}

impl QueuedPacket {
    /// The frame's handle, the packet being done with.
    pub fn into_frame(self) -> Frame {
        self.frame
    }
}

impl Packet for QueuedPacket {
    fn ip_len(&self) -> Bytes {
        Bytes(u64::from(self.ip_len))
    }

    /// With VLAN tags and padding, as they are sent.
    fn wire_len(&self) -> Bytes {
        wire_len(self.frame.len())
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
        self.flow_hash
    }

    fn arrival(&self) -> Nanos {
        self.arrival
    }
}
