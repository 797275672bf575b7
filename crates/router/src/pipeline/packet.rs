//! A packet before it is routed, and as it waits in an outgoing link.

use std::ops::{Deref, DerefMut};

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::link::Framing;
use evenkeel_core::packet::{Ack, Ecn, Places};
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet, read_ahead};
use evenkeel_net::{PortIndex, acks, rewrite};
use evenkeel_ports::{Frame, FramePool, RxFrame};

use super::store::Store;

/// Frames taken from one port in one round.
pub const BURST: usize = 256;
/// Packets that are parsed together: their headers and the state of their flows, some 300 bytes
/// each, fit the nearest cache beside the code's own data.
pub(super) const VECTOR: usize = 32;

/// A packet before it is known where it goes: as a port gave it. While its neighbour is resolved it
/// waits like this, unchanged, so that an ICMP answer can quote it as it came.
pub(super) type UnroutedPacket = RxFrame;

/// A packet in an outgoing link, as disciplines hold it: the handle of its record. Queues of
/// thousands stay in the cache's reach, and what goes from queue to queue is 8 bytes.
#[derive(Debug)]
pub struct QueuedPacket(Box<PacketRecord>);

const _: () = assert!(size_of::<QueuedPacket>() == 8);

/// All that a discipline may ask of a packet, and the handle of its frame. At most 104 bytes.
#[derive(Debug)]
pub struct PacketRecord {
    pub(super) frame: Frame,
    pub(super) flow: PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) arrival: Nanos,
    pub(super) ip_len: u32,
    /// What the line of its link takes for it, bytes.
    pub(super) wire_len: u32,
    /// Whose it is, on a link with a tree of subscribers. On one with an ACK filter, which has no
    /// tree, the number that it acknowledges.
    pub(super) subscriber: u32,
    /// Where its flow was found among the queues of its link last: see [`Places`].
    pub(super) queue_place: u32,
    pub(super) class: Class,
    /// The port it leaves by.
    pub(super) port: PortIndex,
    /// It was made here.
    pub(super) originated: bool,
    pub(super) ecn: Ecn,
    /// Its frame is marked when it leaves.
    pub(super) marked: bool,
    pub(super) acks: Acks,
}

/// What a packet acknowledges besides the number, in the last byte that there is room for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks(u8);

impl Acks {
    const ANY: u8 = 1 << 7;
    const BARE: u8 = 1 << 6;
    const FLAGS: u8 = Self::BARE - 1;
}

const _: () = assert!(size_of::<PacketRecord>() <= 104);

pub(super) const ETHERNET_HEADER: u64 = 14;

/// What the line takes for a frame of `length` bytes: with tags, without padding.
#[inline]
pub(super) fn wire_len(framing: Framing, length: usize) -> Bytes {
    framing.of((length as u64).saturating_sub(ETHERNET_HEADER))
}

/// What the line takes for a frame, or for all segments of a super-frame. That the last of these
/// may be padded by 5 bytes is left out.
#[inline]
pub(super) fn wire_len_of(framing: Framing, frame: &Frame) -> Bytes {
    let length = frame.cut_len();
    match u64::from(frame.segments()) {
        1 => wire_len(framing, length),
        count => framing.of_all((length as u64).saturating_sub(count * ETHERNET_HEADER), count),
    }
}

impl Deref for QueuedPacket {
    type Target = PacketRecord;

    #[inline]
    fn deref(&self) -> &PacketRecord {
        &self.0
    }
}

impl DerefMut for QueuedPacket {
    #[inline]
    fn deref_mut(&mut self) -> &mut PacketRecord {
        &mut self.0
    }
}

impl QueuedPacket {
    #[inline]
    pub(super) fn new(record: Box<PacketRecord>) -> Self {
        Self(record)
    }

    #[inline]
    pub(super) fn into_record(self) -> Box<PacketRecord> {
        self.0
    }

    /// The frame as it leaves.
    #[inline]
    pub(super) fn leave(self, store: &mut Store) -> Frame {
        let marked = self.marked;
        let frame = store.taken(self);
        leaving(frame, marked, store)
    }
}

impl PacketRecord {
    /// Of no packet.
    pub(super) fn none() -> Self {
        Self {
            frame: Frame::NOTHING,
            flow: PackedFlow::v4(0, 0, 0),
            flow_hash: 0,
            arrival: Nanos::ZERO,
            ip_len: 0,
            wire_len: 0,
            subscriber: 0,
            queue_place: Places::NOWHERE,
            class: Class(0),
            port: PortIndex(0),
            originated: false,
            ecn: Ecn::NotCapable,
            marked: false,
            acks: Acks::default(),
        }
    }

    /// Notes what its frame acknowledges, for a link that asks.
    #[inline(never)] // so that who asks for nothing does not pay for it
    pub(super) fn note_ack(&mut self, frame: &[u8]) {
        let Some(Ack { number, flags, is_bare }) = acks::ack_of(frame) else { return };
        let bare = if is_bare { Acks::BARE } else { 0 };
        (self.subscriber, self.acks) = (number, Acks(Acks::ANY | bare | flags & Acks::FLAGS));
    }
}

/// A frame as it leaves.
#[inline]
pub(super) fn leaving(frame: Frame, marked: bool, pool: &mut FramePool) -> Frame {
    if marked {
        rewrite::mark(pool.bytes_mut(&frame));
    }
    frame
}

impl Packet for PacketRecord {
    fn ip_len(&self) -> Bytes {
        Bytes(u64::from(self.ip_len))
    }

    /// With VLAN tags, as they are sent.
    fn wire_len(&self) -> Bytes {
        Bytes(self.wire_len.into())
    }

    fn subscriber(&self) -> u32 {
        self.subscriber
    }

    fn segments(&self) -> u32 {
        self.frame.segments().into()
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

    fn is_of(&self, flow: &PackedFlow) -> bool {
        self.flow == *flow
    }

    fn flow_hash(&self) -> u64 {
        self.flow_hash
    }

    fn places(&self) -> Places {
        Places { queue: self.queue_place, ..Places::UNKNOWN }
    }

    fn arrival(&self) -> Nanos {
        self.arrival
    }

    /// An answer by ICMP: sessions of this machine's kernel do not come through here.
    fn is_own_control(&self) -> bool {
        self.originated && self.flow.is_control()
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn ack(&self) -> Option<Ack> {
        let Acks(bits) = self.acks;
        (bits & Acks::ANY != 0).then_some(Ack {
            number: self.subscriber,
            flags: bits & Acks::FLAGS,
            is_bare: bits & Acks::BARE != 0,
        })
    }

    fn mark(&mut self) {
        self.marked = true;
    }

    fn is_marked(&self) -> bool {
        self.marked
    }
}

/// What its record says.
impl Packet for QueuedPacket {
    #[inline]
    fn ip_len(&self) -> Bytes {
        self.0.ip_len()
    }

    #[inline]
    fn wire_len(&self) -> Bytes {
        self.0.wire_len()
    }

    #[inline]
    fn subscriber(&self) -> u32 {
        self.0.subscriber()
    }

    #[inline]
    fn segments(&self) -> u32 {
        self.0.segments()
    }

    #[inline]
    fn class(&self) -> Class {
        self.0.class()
    }

    #[inline]
    fn flow(&self) -> FlowKey {
        self.0.flow()
    }

    #[inline]
    fn packed_flow(&self) -> PackedFlow {
        self.0.packed_flow()
    }

    #[inline]
    fn is_of(&self, flow: &PackedFlow) -> bool {
        self.0.is_of(flow)
    }

    #[inline]
    fn flow_hash(&self) -> u64 {
        self.0.flow_hash()
    }

    #[inline]
    fn places(&self) -> Places {
        self.0.places()
    }

    #[inline]
    fn arrival(&self) -> Nanos {
        self.0.arrival()
    }

    #[inline]
    fn is_own_control(&self) -> bool {
        self.0.is_own_control()
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        self.0.ecn()
    }

    #[inline]
    fn ack(&self) -> Option<Ack> {
        self.0.ack()
    }

    #[inline]
    fn mark(&mut self) {
        self.0.mark();
    }

    #[inline]
    fn is_marked(&self) -> bool {
        self.0.is_marked()
    }

    #[inline]
    fn read_ahead(&self) {
        read_ahead(std::slice::from_ref(&*self.0), 0);
    }
}
