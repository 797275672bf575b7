//! What is counted of a node.

use crate::units::Nanos;

/// How many buckets the histogram of delays has: below 64 us, then twice as long each.
pub const DELAY_BUCKETS: usize = 16;

/// Counts of a node since it is there. Bytes are those of the wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(align(64))]
pub struct NodeMeters {
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped because its own buffer, or that of all, was full.
    pub overflow: u64,
    /// Packets dropped because their queue stood.
    pub standing: u32,
    /// Packets marked.
    pub marked: u32,
    /// How often it had to wait for its own cap.
    pub own_cap: u32,
    /// How often its turn was over while it had more to send.
    pub turns_over: u32,
    /// Packets by the time that they waited.
    pub delays: [u32; DELAY_BUCKETS],
}

impl NodeMeters {
    /// The upper bound of a bucket; `None`: of the last.
    #[must_use]
    pub fn bucket_end(bucket: usize) -> Option<Nanos> {
        (bucket + 1 < DELAY_BUCKETS).then(|| Nanos(1 << (16 + bucket)))
    }

    #[inline]
    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent_packets += 1;
        self.sent_bytes += bytes;
    }

    #[inline]
    pub(super) fn waited(&mut self, delay: Nanos) {
        let bits = (u64::BITS - (delay.0 >> 16).leading_zeros()) as usize;
        let bucket = &mut self.delays[bits.min(DELAY_BUCKETS - 1)];
        *bucket = bucket.wrapping_add(1);
    }

    /// All packets that were dropped.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.overflow + self.standing as u64
    }
}

/// A node now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NodeState {
    /// Its counts.
    pub meters: NodeMeters,
    /// Bytes that wait, of a subscriber.
    pub backlog_bytes: u64,
    /// Packets that wait, of a subscriber.
    pub backlog_packets: u64,
    /// Flows that wait, of a subscriber; children with something that waits, of others.
    pub busy: u32,
    /// Whether it waits for its own cap at this moment.
    pub capped: bool,
}
