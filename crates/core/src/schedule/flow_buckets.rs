//! Queues that flows are hashed to, with what DRR and FQ-CoDel have in common: a deficit each, one
//! store for all packets, and the fattest queue found in constant time.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::longest::{ListNumber, Longest};
use super::slab::{Queue, Slab};
use super::{Backlog, Waiting};
use crate::packet::Packet;
use crate::units::Bytes;

/// Valid numbers of queues.
pub(super) const QUEUES_RANGE: RangeInclusive<u32> = 1..=65_536;

/// What is kept of a queue.
#[derive(Clone, Debug)]
pub(super) struct Bucket<S> {
    pub(super) fifo: Queue,
    /// Bytes it may still send in its turn; negative is debt.
    pub(super) deficit: i64,
    /// What the discipline keeps of it.
    pub(super) state: S,
    place: ListNumber,
}

/// See the module. All operations take constant time.
#[derive(Clone, Debug)]
pub(super) struct FlowBuckets<P, S> {
    buckets: Vec<Bucket<S>>,
    slab: Slab<P, ()>,
    longest: Longest,
    backlog: Backlog,
    busy: usize,
}

impl<P: Packet, S: Clone> FlowBuckets<P, S> {
    /// So many queues, with room for `packets` packets in all of them together.
    pub(super) fn new(queues: u32, packets: u32, state: S) -> Self {
        let bucket = Bucket { fifo: Queue::EMPTY, deficit: 0, state, place: ListNumber::OUT };
        Self {
            buckets: alloc::vec![bucket; queues as usize],
            slab: Slab::new(packets),
            longest: Longest::new(queues),
            backlog: Backlog::default(),
            busy: 0,
        }
    }

    /// Makes room for `packets` packets in all.
    pub(super) fn reserve(&mut self, packets: u32) {
        self.slab.reserve(packets);
    }

    /// The queue of a flow.
    #[inline]
    pub(super) fn of(&self, hash: u64) -> u32 {
        // Mixed, because not every source of hashes fills all bits; and no division.
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((mixed * self.buckets.len() as u64) >> 32) as u32
    }

    #[inline]
    pub(super) fn get(&self, queue: u32) -> &Bucket<S> {
        &self.buckets[queue as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, queue: u32) -> &mut Bucket<S> {
        &mut self.buckets[queue as usize]
    }

    /// Appends a packet.
    pub(super) fn push(&mut self, queue: u32, packet: P) {
        let bucket = &mut self.buckets[queue as usize];
        let before = bucket.fifo.bytes;
        self.busy += usize::from(bucket.fifo.is_empty());
        self.slab.push(&mut bucket.fifo, packet, ());
        self.backlog.packets += 1;
        self.backlog.bytes += bucket.fifo.bytes - before;
        self.longest.grown(queue, &mut bucket.place, bucket.fifo.bytes);
    }

    /// Takes the first packet of a queue; with it, what was counted for it.
    pub(super) fn pop(&mut self, queue: u32) -> Option<(P, Bytes)> {
        let bucket = &mut self.buckets[queue as usize];
        let before = bucket.fifo.bytes;
        let (packet, ()) = self.slab.pop(&mut bucket.fifo)?;
        let length = before - bucket.fifo.bytes;
        self.backlog.packets -= 1;
        self.backlog.bytes -= length;
        self.busy -= usize::from(bucket.fifo.is_empty());
        Some((packet, length))
    }

    /// The queue with the most bytes, within a thirty-second; `None` if all are empty.
    pub(super) fn fattest(&mut self) -> Option<u32> {
        loop {
            let candidate = self.longest.candidate()?;
            let bucket = &mut self.buckets[candidate as usize];
            if self.longest.confirm(candidate, &mut bucket.place, bucket.fifo.bytes) {
                return Some(candidate);
            }
        }
    }

    /// The first packet of a queue.
    pub(super) fn head(&self, queue: u32) -> Option<&P> {
        self.slab.packet(self.get(queue).fifo.head())
    }

    /// All packets, queue by queue.
    pub(super) fn drain(&mut self, into: &mut dyn FnMut(P)) {
        for queue in 0..self.buckets.len() as u32 {
            while let Some((packet, _)) = self.pop(queue) {
                into(packet);
            }
        }
    }

    pub(super) const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// What waits, of queues that are alike.
    pub(super) fn waiting(&self) -> Waiting {
        let urgent = Backlog::default();
        Waiting { urgent, elastic: self.backlog, flows: self.busy as u32 }
    }

    /// How many queues have packets.
    pub(super) const fn busy(&self) -> usize {
        self.busy
    }
}
