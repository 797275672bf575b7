//! What PFQ knows of a flow, and keeps with a packet.

use crate::schedule::calendar::GRAIN;
use crate::schedule::flow_list::Flips;
use crate::schedule::longest::ListNumber;
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
    pub(super) urgent: u32,
    /// Where it is among the longest.
    pub(super) place: ListNumber,
    /// Priority bytes since it was listed, as many as there can be in a quantum.
    pub(super) offered: u16,
    /// ft, in bytes of virtual time.
    pub(super) finish: u64,
    pub(super) flips: Flips,
    /// How often nobody was listed any more when it was listed.
    pub(super) purges: u32,
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
        urgent: 0,
        place: ListNumber::OUT,
        offered: 0,
        finish: 0,
        flips: Flips::NEW,
        purges: 0,
        elastic: false,
    };

    /// Bytes that wait, with and without priority.
    pub(super) fn backlog(&self) -> Bytes {
        self.fifo.bytes + Bytes(self.urgent.into())
    }

    /// The stamp of its first elastic packet, or of the next one if none waits. Those that follow
    /// have stamps without gaps, and the last one ends at the finish tag.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.finish - self.fifo.bytes.0
    }

    /// What it stands by in the calendar. What comes of a flow of which nothing elastic waits comes
    /// after all that waits: among equal stamps that goes first, as published.
    #[inline]
    pub(super) fn key(&self) -> u64 {
        self.start() + if self.fifo.is_empty() { GRAIN } else { 0 }
    }

    /// Whether it is listed at this virtual time, `purges` times after which nobody was.
    #[inline]
    pub(super) fn is_listed(&self, virtual_time: u64, purges: u32) -> bool {
        let ahead = self.finish > virtual_time || self.backlog() > Bytes::ZERO;
        ahead && self.purges == purges
    }
}

/// What is kept with a packet that has priority: its flow, `NIL` if that has no place, and the
/// flow's packets before and after it in the priority queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(super) flow: u32,
    pub(super) prev: u32,
    pub(super) next: u32,
}
