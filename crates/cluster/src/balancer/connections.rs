//! The flows that were seen lately: a bounded table, four places to a bucket, two buckets to a
//! flow.
//!
//! A flow is known by its 64-bit hash: two flows with equal hashes go to the same forwarder, which
//! does no harm. A new flow takes a place in the emptier of its two buckets, so that they fill
//! evenly (Azar et al., "Balanced allocations", 1999): with half of the places taken one flow in
//! ten thousand finds none, with three in four one in a hundred. If both are full of flows that are
//! not idle, it is not remembered: it follows the Maglev table and may move when that changes.
//! Nobody established loses its place to a flood.
//!
//! How many flows each forwarder has is kept, not counted when somebody asks: places are taken and
//! given up one by one, and a [sweep](Connections::sweep) gives up those of idle flows. It passes
//! the whole table eight times within the idle time, some places at each call.

use std::cell::Cell;
use std::ops::Range;

use evenkeel_core::Nanos;

use crate::types::NodeId;

const WAYS: usize = 4;
/// Most flows.
const MOST: usize = 1 << 24;
/// The sweep passes the table so many times within the idle time.
const SWEEPS: u64 = 8;
/// Places that one call looks at: some microseconds.
const SWEEP_MOST: u64 = 4_096;

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// 0: free.
    hash: u64,
    /// In 2^-10 of 2^30 ns, about a millisecond each; wraps after 49 days, so that a flow that old
    /// may be taken for one that is not idle.
    seen: u32,
    node: u16,
    /// The forwarder that it was taken from, plus one; 0: none.
    from: u16,
}

/// The places, which are reached in this way only, and how many were looked at: a worker that looks
/// at all of them for somebody who asks stands still for as long (74 ms with 16 million).
#[derive(Clone, Debug)]
struct Places {
    entries: Vec<Connection>,
    looked_at: Cell<u64>,
}

impl Places {
    fn new(size: usize) -> Self {
        Self { entries: vec![Connection::default(); size], looked_at: Cell::new(0) }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn of(&self, places: Range<usize>) -> &[Connection] {
        self.looked_at.set(self.looked_at.get() + places.len() as u64);
        &self.entries[places]
    }

    #[inline]
    fn at(&self, place: usize) -> &Connection {
        &self.of(place..place + 1)[0]
    }

    #[inline]
    fn at_mut(&mut self, place: usize) -> &mut Connection {
        self.looked_at.set(self.looked_at.get() + 1);
        &mut self.entries[place]
    }
}

/// Hash to forwarder, for flows seen within the idle time.
#[derive(Clone, Debug)]
pub struct Connections {
    places: Places,
    idle: u32,
    /// Places taken, by forwarder.
    counts: Vec<(NodeId, usize)>,
    /// The place that the sweep looks at next, and when it got there.
    hand: usize,
    swept: Option<Nanos>,
    /// Time to pass all places once.
    pass: Nanos,
}

const fn ticks(time: Nanos) -> u32 {
    (time.0 >> 20) as u32
}

impl Connections {
    /// For so many flows, rounded up to a power of two.
    #[must_use]
    pub fn new(flows: usize, idle: Nanos) -> Self {
        let size = flows.clamp(WAYS, MOST).next_power_of_two();
        Self {
            places: Places::new(size),
            idle: ticks(idle).max(1),
            counts: Vec::with_capacity(crate::config::MAX_NODES),
            hand: 0,
            swept: None,
            pass: Nanos(idle.0 / SWEEPS).max(Nanos(1)),
        }
    }

    /// Where the two buckets of a flow begin.
    fn buckets(&self, hash: u64) -> [usize; 2] {
        let buckets = self.places.len() / WAYS;
        // The low bits choose the place in the Maglev table.
        let bucket = |bits: u64| (bits as usize & (buckets - 1)) * WAYS;
        [bucket(hash >> 32), bucket(crate::mix::mix64(hash) >> 32)]
    }

    fn find_place(&self, key: u64, buckets: [usize; 2]) -> Option<usize> {
        let in_bucket = |begin: usize| {
            let places = self.places.of(begin..begin + WAYS);
            places.iter().position(|entry| entry.hash == key).map(|at| begin + at)
        };
        buckets.into_iter().find_map(in_bucket)
    }

    fn is_idle(&self, entry: &Connection, now: u32) -> bool {
        now.wrapping_sub(entry.seen) > self.idle
    }

    /// Where this flow goes; it counts as seen.
    pub fn find(&mut self, now: Nanos, hash: u64) -> Option<NodeId> {
        let (now, key) = (ticks(now), hash | 1);
        let place = self.find_place(key, self.buckets(hash))?;
        if self.is_idle(self.places.at(place), now) {
            return None;
        }
        let entry = self.places.at_mut(place);
        entry.seen = now;
        Some(NodeId(entry.node))
    }

    /// The forwarder that this flow was taken from, because it could not be used.
    #[must_use]
    pub fn taken_from(&self, hash: u64) -> Option<NodeId> {
        let place = self.find_place(hash | 1, self.buckets(hash))?;
        self.places.at(place).from.checked_sub(1).map(NodeId)
    }

    /// Remembers where a flow goes; `false` if there is no place.
    pub fn insert(&mut self, now: Nanos, hash: u64, node: NodeId) -> bool {
        self.insert_taken(now, hash, node, None)
    }

    /// The same for a flow that was taken `from` a forwarder.
    pub fn insert_taken(
        &mut self,
        now: Nanos,
        hash: u64,
        node: NodeId,
        from: Option<NodeId>,
    ) -> bool {
        let (now, key) = (ticks(now), hash | 1);
        let buckets = self.buckets(hash);
        let free = |entry: &Connection| entry.hash == 0 || self.is_idle(entry, now);
        let bucket = |begin: usize| self.places.of(begin..begin + WAYS).iter();
        let room = |begin: usize| bucket(begin).filter(|entry| free(entry)).count();
        let place = self.find_place(key, buckets).or_else(|| {
            let [first, second] = buckets;
            let begin = if room(second) > room(first) { second } else { first };
            let at = bucket(begin).position(free)?;
            Some(begin + at)
        });
        let Some(place) = place else { return false };
        self.give_up(place);
        *self.places.at_mut(place) = {
            let from = from.map_or(0, |from| from.0.saturating_add(1));
            Connection { hash: key, seen: now, node: node.0, from }
        };
        match self.counts.iter_mut().find(|count| count.0 == node) {
            Some(count) => count.1 += 1,
            None => self.counts.push((node, 1)),
        }
        true
    }

    fn give_up(&mut self, place: usize) {
        let entry = std::mem::take(self.places.at_mut(place));
        if entry.hash != 0
            && let Some(at) = self.counts.iter().position(|count| count.0.0 == entry.node)
        {
            self.counts[at].1 -= 1;
            if self.counts[at].1 == 0 {
                self.counts.swap_remove(at);
            }
        }
    }

    /// Gives up places of idle flows: as many places are looked at as are due since the last call,
    /// at most 4096.
    pub fn sweep(&mut self, now: Nanos) {
        let last = *self.swept.get_or_insert(now);
        let size = self.places.len() as u64;
        let elapsed = now.saturating_sub(last).0.min(self.pass.0);
        let due = u128::from(elapsed) * u128::from(size) / u128::from(self.pass.0);
        let due = (due as u64).min(SWEEP_MOST);
        if due == 0 {
            return;
        }
        // What was not done of a long pause is not made up for: idle flows wait a little longer.
        let done = Nanos((u128::from(self.pass.0) * u128::from(due) / u128::from(size)) as u64);
        self.swept = Some(if due < SWEEP_MOST { last + done } else { now });
        for _ in 0..due {
            let entry = self.places.at(self.hand);
            if entry.hash != 0 && self.is_idle(entry, ticks(now)) {
                self.give_up(self.hand);
            }
            self.hand = (self.hand + 1) & (self.places.len() - 1);
        }
    }

    /// How many places were looked at since the beginning.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.places.looked_at.get()
    }

    /// Flows of a forwarder that have a place.
    #[must_use]
    pub fn count(&self, node: NodeId) -> usize {
        self.counts.iter().find(|count| count.0 == node).map_or(0, |count| count.1)
    }
}
