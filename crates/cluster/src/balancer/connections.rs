//! The flows that were seen lately: a bounded table, four places to a bucket.
//!
//! A flow is known by its 64-bit hash: two flows with equal hashes go to the same forwarder, which
//! does no harm. A bucket that is full of flows that are not idle takes no more: those flows follow
//! the Maglev table and may move when it changes.

use evenkeel_core::Nanos;

use crate::types::NodeId;

const WAYS: usize = 4;
/// Most flows.
const MOST: usize = 1 << 24;

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// 0: free.
    hash: u64,
    /// In 2^-10 of 2^30 ns, about a millisecond each; wraps after 49 days, so that a flow that old
    /// may be taken for one that is not idle.
    seen: u32,
    node: u16,
}

/// Hash to forwarder, for flows seen within the idle time.
#[derive(Clone, Debug)]
pub struct Connections {
    entries: Vec<Connection>,
    idle: u32,
}

const fn ticks(time: Nanos) -> u32 {
    (time.0 >> 20) as u32
}

impl Connections {
    /// For so many flows, rounded up to a power of two.
    #[must_use]
    pub fn new(flows: usize, idle: Nanos) -> Self {
        let size = flows.clamp(WAYS, MOST).next_power_of_two();
        Self { entries: vec![Connection::default(); size], idle: ticks(idle).max(1) }
    }

    fn bucket(&mut self, hash: u64) -> &mut [Connection] {
        let buckets = self.entries.len() / WAYS;
        // The low bits choose the place in the Maglev table.
        let bucket = (hash >> 32) as usize & (buckets - 1);
        &mut self.entries[bucket * WAYS..][..WAYS]
    }

    /// Where this flow goes; it counts as seen.
    pub fn find(&mut self, now: Nanos, hash: u64) -> Option<NodeId> {
        let (now, idle, key) = (ticks(now), self.idle, hash | 1);
        let entry = self.bucket(hash).iter_mut().find(|entry| entry.hash == key)?;
        if now.wrapping_sub(entry.seen) > idle {
            return None;
        }
        entry.seen = now;
        Some(NodeId(entry.node))
    }

    /// Remembers where a flow goes; `false` if there is no place.
    pub fn insert(&mut self, now: Nanos, hash: u64, node: NodeId) -> bool {
        let (now, idle, key) = (ticks(now), self.idle, hash | 1);
        let bucket = self.bucket(hash);
        let old = |entry: &Connection| entry.hash == 0 || now.wrapping_sub(entry.seen) > idle;
        let place = bucket
            .iter()
            .position(|entry| entry.hash == key)
            .or_else(|| bucket.iter().position(old));
        let Some(place) = place else { return false };
        bucket[place] = Connection { hash: key, seen: now, node: node.0 };
        true
    }

    /// Flows of a forwarder that are not idle.
    #[must_use]
    pub fn count(&self, now: Nanos, node: NodeId) -> usize {
        let now = ticks(now);
        let counts = |entry: &&Connection| {
            entry.hash != 0 && entry.node == node.0 && now.wrapping_sub(entry.seen) <= self.idle
        };
        self.entries.iter().filter(counts).count()
    }
}
