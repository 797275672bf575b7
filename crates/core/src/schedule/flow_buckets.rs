//! Queues that flows are hashed to, with what DRR and FQ-CoDel have in common: a deficit each, one
//! store for all packets, and the fattest queue found in constant time.
//!
//! **Where several workers share.** Grants are by the number of queues that want more than they
//! get. One that offers no more than such a queue is sent anywhere is *light*: its worker is
//! granted what it asks for first, as in max-min. Counted like the others it would bring its worker
//! a whole share, which those beside it would take. A queue offers more when its packets, from the
//! level that the others have reached on, are ahead of that level by more than a quantum and what a
//! window brings; it is light again when it begins anew and is not.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::longest::{ListNumber, Longest};
use super::shared_flows::Elsewhere;
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
    /// Whether it wants more than it gets, and the level that it has asked for, in bytes: where
    /// several workers share.
    heavy: bool,
    asked: u64,
}

/// What other workers' queues have got that always wait.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Since the start, in bytes.
    reached: u64,
    /// By how much a light queue may be ahead of that; 0: nobody shares.
    ahead: u64,
    /// Somebody's demand was left unmet.
    crowded: bool,
}

/// See the module. All operations take constant time.
#[derive(Clone, Debug)]
pub(super) struct FlowBuckets<P, S> {
    buckets: Vec<Bucket<S>>,
    slab: Slab<P, ()>,
    longest: Longest,
    backlog: Backlog,
    busy: usize,
    level: Level,
    /// Of the backlog, what waits in light queues; and how many others have packets.
    light: Backlog,
    heavy: u32,
}

impl<P: Packet, S: Clone> FlowBuckets<P, S> {
    /// So many queues, with room for `packets` packets in all of them together.
    pub(super) fn new(queues: u32, packets: u32, state: S) -> Self {
        let fifo = Queue::EMPTY;
        let place = ListNumber::OUT;
        let bucket = Bucket { fifo, deficit: 0, state, place, heavy: false, asked: 0 };
        Self {
            buckets: alloc::vec![bucket; queues as usize],
            slab: Slab::new(packets),
            longest: Longest::new(queues),
            backlog: Backlog::default(),
            busy: 0,
            level: Level::default(),
            light: Backlog::default(),
            heavy: 0,
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
        if self.level.ahead > 0 {
            self.weigh(queue, before);
        }
    }

    /// A packet has come to a queue that held so many bytes: what is it now?
    fn weigh(&mut self, queue: u32, before: Bytes) {
        let Self { buckets, level, light, heavy, .. } = self;
        let bucket = &mut buckets[queue as usize];
        let length = bucket.fifo.bytes - before;
        let begins = bucket.fifo.packets == 1;
        let from = if level.crowded { bucket.asked.max(level.reached) } else { level.reached };
        let asked = from + length.0;
        // What it has not been sent is not held against it for longer than that.
        bucket.asked = asked.min(level.reached + 2 * level.ahead);
        let was_heavy = bucket.heavy && !begins;
        bucket.heavy = was_heavy || asked > level.reached + level.ahead;
        if !bucket.heavy {
            light.packets += 1;
            light.bytes += length;
        } else if !was_heavy {
            light.packets -= u64::from(bucket.fifo.packets) - 1;
            light.bytes -= before;
            *heavy += 1;
        }
    }

    /// A packet of this length has left a queue.
    fn lighten(&mut self, queue: u32, length: Bytes) {
        let bucket = &self.buckets[queue as usize];
        if !bucket.heavy {
            self.light.packets -= 1;
            self.light.bytes -= length;
        } else if bucket.fifo.is_empty() {
            self.heavy -= 1;
        }
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
        if self.level.ahead > 0 {
            self.lighten(queue, length);
        }
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

    /// What waits: light queues are what is granted first.
    pub(super) fn waiting(&self) -> Waiting {
        let elastic = Backlog {
            packets: self.backlog.packets - self.light.packets,
            bytes: self.backlog.bytes - self.light.bytes,
        };
        Waiting { urgent: self.light, elastic, weight: Waiting::of_flows(self.heavy) }
    }

    /// What others have got, who send in turns of `quantum` as well.
    pub(super) fn elsewhere(&mut self, others: &Elsewhere, quantum: Bytes) {
        if self.level.ahead == 0 {
            // What waits already is light until more comes.
            self.light = self.backlog;
        }
        let ahead = quantum.0 + others.passed.0;
        self.level = Level { reached: others.level.0, ahead, crowded: others.crowded };
    }

    /// How many queues have packets.
    pub(super) const fn busy(&self) -> usize {
        self.busy
    }
}
