//! What PDRR knows of a flow.

use super::PdrrConfig;
use crate::aqm::Codel;
use crate::schedule::flow_list::Flips;
use crate::schedule::longest::ListNumber;
use crate::schedule::slab::Queue;
use crate::units::{Bytes, Nanos};

/// What is known of a flow: one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// Packets that wait for the flow's turn.
    pub(super) fifo: Queue,
    /// DC: bytes it may still send in its turn; negative after priority packets.
    pub(super) deficit: i32,
    /// `ByteCount`: bytes offered since it became active, less what it had to spare then. While it
    /// is not active: what it has, negative.
    pub(super) offered: i32,
    /// What keeps its FIFO short.
    pub(super) aqm: Codel,
    /// When its FIFO ran empty, see [`since`](Self::since).
    emptied: u32,
    /// The round in which it ceased to be active.
    pub(super) round: u32,
    /// Where it is among the longest.
    pub(super) place: ListNumber,
    pub(super) flips: Flips,
    states: u8,
}

/// A packet went to the FIFO since it became active: none may go to the priority queue, or it would
/// overtake.
const ELASTIC: u8 = 1;
/// Not active, it owes `-deficit`: what it sent with priority beyond its turn's quantum.
const OWES: u8 = 2;
/// 2^14 ns: what `emptied` counts, which goes round after 19 hours.
const TICK: u32 = 14;

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    pub(super) const NEW: Self = Self {
        fifo: Queue::EMPTY,
        deficit: 0,
        offered: 0,
        aqm: Codel::NEW,
        emptied: 0,
        round: 0,
        place: ListNumber::OUT,
        flips: Flips::NEW,
        states: 0,
    };

    pub(super) fn is_elastic(&self) -> bool {
        self.states & ELASTIC != 0
    }

    pub(super) fn set_elastic(&mut self, elastic: bool) {
        self.states = self.states & !ELASTIC | if elastic { ELASTIC } else { 0 };
    }

    pub(super) fn owes(&self) -> bool {
        self.states & OWES != 0
    }

    pub(super) fn set_owes(&mut self, owes: bool) {
        self.states = self.states & !OWES | if owes { OWES } else { 0 };
    }

    /// It becomes active, in this round.
    #[inline]
    pub(super) fn begin(&mut self, now: Nanos, round: u32, config: &PdrrConfig) {
        let idle = self.since(now);
        self.aqm.blue.rested(idle);
        let passed = round.wrapping_sub(self.round);
        self.deficit = if self.owes() {
            self.set_owes(false);
            // Each round it was away has paid a quantum of it.
            let paid = i64::from(passed).saturating_mul(config.quantum.0 as i64);
            let left = i64::from(self.deficit).saturating_add(paid).min(0);
            i32::try_from(left).unwrap_or(i32::MIN)
        } else {
            0
        };
        self.set_elastic(self.is_elastic() && idle < config.afl_linger || self.deficit < 0);
        // Of a flow that was active when nothing waited any more this is what it had offered.
        let recent = passed <= 1;
        self.offered = if recent { self.offered.min(0) } else { 0 };
    }

    /// Its FIFO ran empty at `now`.
    pub(super) fn empties(&mut self, now: Nanos) {
        self.emptied = (now.0 >> TICK) as u32;
    }

    /// How long ago that was.
    pub(super) fn since(&self, now: Nanos) -> Nanos {
        Nanos(u64::from(((now.0 >> TICK) as u32).wrapping_sub(self.emptied)) << TICK)
    }

    /// Bytes are sent; a debt beyond 2 GB is as large.
    #[inline]
    pub(super) fn spends(&mut self, length: Bytes) {
        let left = i64::from(self.deficit) - i64::from(length.0 as u32);
        self.deficit = left.max(i32::MIN.into()) as i32;
    }

    /// Bytes are offered; beyond 2 GB they are as many.
    #[inline]
    pub(super) fn offers(&mut self, length: Bytes) {
        let offered = i64::from(self.offered) + i64::from(length.0 as u32);
        self.offered = offered.min(i32::MAX.into()) as i32;
    }

    /// Whether the head of its FIFO is within its deficit.
    pub(super) fn may_send(&self) -> bool {
        // No frame is longer than a deficit can grow.
        let head = i32::try_from(self.fifo.head_len()).unwrap_or(i32::MAX);
        !self.fifo.is_empty() && head <= self.deficit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_two_gigabytes_is_as_much() {
        let mut flow = Flow::NEW;
        for _ in 0..3 {
            flow.spends(Bytes(1 << 30));
            flow.offers(Bytes(1 << 30));
        }
        assert_eq!((flow.deficit, flow.offered), (i32::MIN, i32::MAX));
        // As long as a packet is ever counted.
        let mut flow = Flow::NEW;
        flow.spends(Bytes(u32::MAX.into()));
        flow.offers(Bytes(u32::MAX.into()));
        assert_eq!((flow.deficit, flow.offered), (i32::MIN, i32::MAX));
        let mut flow = Flow::NEW;
        flow.spends(Bytes(1_500));
        flow.offers(Bytes(64));
        assert_eq!((flow.deficit, flow.offered), (-1_500, 64));
    }
}
