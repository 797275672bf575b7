//! What PFQ knows of a flow, and keeps with a packet.

use crate::schedule::flow_list::Flips;
use crate::schedule::slab::{NIL, Queue};
use crate::units::Bytes;

/// What is known of a flow: one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// Elastic packets that wait.
    pub(super) fifo: Queue,
    /// First and last of its packets in the priority queue.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Bytes of it that wait in the priority queue.
    pub(super) urgent: Bytes,
    /// ft, in bytes of virtual time.
    pub(super) finish: u64,
    /// Priority bytes since it was listed, as many as there can be in a quantum.
    pub(super) offered: u16,
    pub(super) flips: Flips,
    /// The backlog by which it stands among the longest; not below its backlog.
    pub(super) known: u32,
    /// An elastic packet came since it was listed: none may have priority any more, or it would
    /// overtake.
    pub(super) elastic: bool,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    pub(super) const NEW: Self = Self {
        fifo: Queue::EMPTY,
        first: NIL,
        last: NIL,
        urgent: Bytes::ZERO,
        finish: 0,
        offered: 0,
        flips: Flips::NEW,
        known: 0,
        elastic: false,
    };

    /// Bytes that wait, with and without priority.
    pub(super) fn backlog(&self) -> Bytes {
        self.fifo.bytes + self.urgent
    }

    /// The same as it is compared: more than 2^32 - 1 bytes are as many.
    pub(super) fn length(&self) -> u32 {
        u32::try_from(self.backlog().0).unwrap_or(u32::MAX)
    }

    /// The stamp of its first elastic packet. Those that follow have stamps without gaps, and the
    /// last one ends at the finish tag.
    pub(super) fn start(&self) -> u64 {
        self.finish - self.fifo.bytes.0
    }
}

/// The longer a backlog, the smaller.
pub(super) fn rank(backlog: u32) -> u64 {
    u64::from(u32::MAX - backlog)
}

/// What is kept with a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tag {
    /// In the priority queue: its flow, `NIL` if that has no place, and the flow's packets before
    /// and after it there.
    Priority { flow: u32, prev: u32, next: u32 },
    /// The number of its arrival: the order of service among elastic packets of equal stamp.
    Elastic { arrival: u64 },
}
