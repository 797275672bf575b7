//! What PDRR knows of a flow.

use crate::schedule::flow_list::Flips;
use crate::schedule::longest::ListNumber;
use crate::schedule::slab::Queue;
use crate::units::Nanos;

/// What is known of a flow: one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// Packets that wait for the flow's turn.
    pub(super) fifo: Queue,
    /// DC: bytes it may still send in its turn; negative after priority packets.
    pub(super) deficit: i64,
    /// `ByteCount`: bytes offered since it became active, less what it had to spare then. While it
    /// is not active: what it has, negative.
    pub(super) offered: i64,
    /// When its FIFO ran empty.
    pub(super) emptied: Nanos,
    pub(super) flips: Flips,
    /// The round in which it ceased to be active.
    pub(super) round: u32,
    /// Where it is among the longest.
    pub(super) place: ListNumber,
    /// A packet went to the FIFO since it became active: none may go to the priority queue, or it
    /// would overtake.
    pub(super) elastic: bool,
    /// Not active, it owes `-deficit`: what it sent with priority beyond its turn's quantum.
    pub(super) owes: bool,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    pub(super) const NEW: Self = Self {
        fifo: Queue::EMPTY,
        deficit: 0,
        offered: 0,
        emptied: Nanos::ZERO,
        flips: Flips::NEW,
        round: 0,
        place: ListNumber::OUT,
        elastic: false,
        owes: false,
    };

    /// Whether the head of its FIFO is within its deficit.
    pub(super) fn may_send(&self) -> bool {
        !self.fifo.is_empty() && i64::from(self.fifo.head_len()) <= self.deficit
    }
}
