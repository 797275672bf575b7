//! Where frames lie, and the records of packets that wait in links.

use std::ops::{Deref, DerefMut};

use evenkeel_ports::{Frame, FramePool};

use super::packet::{PacketRecord, QueuedPacket};

/// The buffers of frames, with room for a record for each of them.
pub(crate) struct Store {
    frames: FramePool,
    /// Those that no packet has. The one used last is taken first, because it is in the cache.
    #[expect(clippy::vec_box, reason = "a packet takes its box along")]
    records: Vec<Box<PacketRecord>>,
}

impl Deref for Store {
    type Target = FramePool;

    fn deref(&self) -> &FramePool {
        &self.frames
    }
}

impl DerefMut for Store {
    fn deref_mut(&mut self) -> &mut FramePool {
        &mut self.frames
    }
}

/// A place for a record, where there is none left.
#[cold]
fn new_place() -> Box<PacketRecord> {
    Box::new(PacketRecord::none())
}

impl Store {
    pub(super) fn new(frames: FramePool) -> Self {
        let records = Vec::with_capacity(frames.most_frames());
        Self { frames, records }
    }

    /// Makes a record for each of the buffers, so that none is allocated on a packet's way.
    pub(super) fn make_records(&mut self) {
        self.records.resize_with(self.frames.most_frames(), new_place);
    }

    /// Memory for the records of a pool of `buffers` buffers, bytes.
    pub(crate) const fn memory(buffers: usize) -> u64 {
        let each = size_of::<PacketRecord>() + size_of::<Box<PacketRecord>>();
        (FramePool::most_frames_of(buffers) * each) as u64
    }

    /// A packet that is going to wait.
    #[inline(always)] // so that the record is made where it stays
    pub(super) fn queued(&mut self, record: PacketRecord) -> QueuedPacket {
        let mut place = self.records.pop().unwrap_or_else(new_place);
        *place = record;
        QueuedPacket::new(place)
    }

    /// Makes places for so many packets that are going to wait, if there are not enough.
    #[inline]
    pub(super) fn provide(&mut self, packets: usize) {
        while self.records.len() < packets {
            self.records.push(new_place());
        }
    }

    /// A packet that is going to wait, where there is a [place](Self::provide) for it.
    #[inline(always)] // as above
    pub(super) fn queued_there(&mut self, record: PacketRecord) -> Option<QueuedPacket> {
        let mut place = self.records.pop()?;
        *place = record;
        Some(QueuedPacket::new(place))
    }

    /// The frame of a packet that waits no longer.
    #[inline]
    pub(super) fn taken(&mut self, packet: QueuedPacket) -> Frame {
        let mut place = packet.into_record();
        let frame = std::mem::replace(&mut place.frame, Frame::NOTHING);
        self.give_back(place);
        frame
    }

    /// The record of a packet that waits no longer.
    pub(super) fn opened(&mut self, packet: QueuedPacket) -> PacketRecord {
        let mut place = packet.into_record();
        let record = std::mem::replace(&mut *place, PacketRecord::none());
        self.give_back(place);
        record
    }

    #[inline]
    fn give_back(&mut self, place: Box<PacketRecord>) {
        // It may have come from another store, with its packet.
        if self.records.len() < self.records.capacity() {
            self.records.push(place);
        }
    }

    /// A packet is dropped.
    #[inline]
    pub(super) fn discard(&mut self, packet: QueuedPacket) {
        let frame = self.taken(packet);
        self.frames.release(frame);
    }
}
