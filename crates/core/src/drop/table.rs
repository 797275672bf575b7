//! The flows a dropper knows: a table of fixed size, two sets of four places for every flow.
//!
//! Not the general [`flow_table`](crate::flow_table): a dropper sees every packet that arrives, so
//! what it keeps per flow must fit into half a cache line together with everything that finds it.
//! Here an entry *is* the state: 32 bytes, no key besides 32 bits of the seeded hash (two flows of
//! one set that agree in them share one share: one pair in 2^32), no list of free places, and the
//! link of the departure queue in it.
//!
//! ```text
//!  0       8        16   20   24      28      30    31   32
//!  | finish | charged | tag | next | refused | pending | share | class |
//! ```
//!
//! With two sets to choose from, 95 % of the places fill before a flow finds none. A new flow takes
//! an empty place or that of a flow without shadow backlog; never that of a backlogged one. If
//! there is none, it is charged to one common entry, the last.

use alloc::vec;
use alloc::vec::Vec;

use crate::prefetch;

/// `next` of a flow that is not backlogged.
pub(super) const IDLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(super) struct Flow {
    /// Virtual time at which its shadow queue is empty; Q48.16 units of work per unit of weight,
    /// wrapping. Stale while idle, unless the shadow's clock is given: then it lies within 2^62 of
    /// the clock always.
    pub(super) finish: u64,
    /// Units of work charged since it entered.
    pub(super) charged: u64,
    /// Upper half of the hash; 0: a free place.
    pub(super) tag: u32,
    /// Link of the departure queue; [`IDLE`] where there is none.
    pub(super) next: u32,
    /// Packets refused; saturates.
    pub(super) refused: u32,
    /// Packets admitted but not yet charged (journal rule).
    pub(super) pending: u16,
    /// Row of the table of shares. Does not change while backlogged.
    pub(super) share: u8,
    /// Class of processing of its last packet.
    pub(super) class: u8,
}

const _: () = assert!(size_of::<Flow>() == 32);

impl Flow {
    const NOBODY: Self = Self {
        finish: 0,
        charged: 0,
        tag: 0,
        next: IDLE,
        refused: 0,
        pending: 0,
        share: 0,
        class: 0,
    };

    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.next == IDLE
    }
}

/// The place of a flow that was judged: what `charge` needs to find it again. Valid until the next
/// packet is judged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "an admitted packet is charged"]
pub struct Ticket {
    place: u32,
    /// Its backlog per unit of weight, as it was looked up; see there.
    ahead: u64,
}

impl Ticket {
    /// A bit beyond all places.
    const SAMPLED: u32 = 1 << 31;

    /// For a packet of the flow at `index`; `sampled`: the audit follows it.
    #[inline]
    pub(super) fn of(index: u32, ahead: u64, sampled: bool) -> Self {
        Self { place: index | (u32::from(sampled) * Self::SAMPLED), ahead }
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        self.place & !Self::SAMPLED
    }

    #[inline]
    pub(super) fn ahead(self) -> u64 {
        self.ahead
    }

    #[inline]
    pub(super) fn is_sampled(self) -> bool {
        self.place & Self::SAMPLED != 0
    }
}

const WAYS: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) flows: Vec<Flow>,
    mask: usize,
    /// Turns so that the same place is not robbed again and again.
    victim: usize,
    pub(super) unplaced: u64,
}

impl Table {
    /// Room for `flows` flows, rounded up to a power of two, and the common entry.
    pub(super) fn new(flows: u32) -> Self {
        let places = (flows as usize).next_power_of_two();
        Self {
            flows: vec![Flow::NOBODY; places + 1],
            mask: places / WAYS - 1,
            victim: 0,
            unplaced: 0,
        }
    }

    fn common(&self) -> u32 {
        (self.flows.len() - 1) as u32
    }

    #[inline]
    fn places(&self, hash: u64) -> (u32, usize, usize) {
        let tag = ((hash >> 32) as u32).max(1);
        let first = hash as usize & self.mask;
        let second = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & self.mask;
        (tag, first * WAYS, second * WAYS)
    }

    #[inline]
    fn search(&self, set: usize, tag: u32) -> Option<u32> {
        let ways = &self.flows[set..set + WAYS];
        // Without branches: which of four it is cannot be predicted.
        let found = ways
            .iter()
            .enumerate()
            .fold(0, |found, (way, flow)| found | u32::from(flow.tag == tag) << way);
        (found != 0).then(|| set as u32 + found.trailing_zeros())
    }

    /// Reads what a look-up of `hash` will read first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let set = (hash as usize & self.mask) * WAYS;
        // A set lies in two lines of the cache or three.
        prefetch::element(&self.flows, set);
        prefetch::element(&self.flows, set + WAYS / 2);
    }

    /// The place of a flow; it gets one if it has none. Not that of a flow that is `backlogged`;
    /// `fresh` is the finish time of one that never was.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        fresh: u64,
        backlogged: impl Fn(&Flow) -> bool,
    ) -> u32 {
        let (tag, first, second) = self.places(hash);
        if let Some(index) = self.search(first, tag) {
            return index;
        }
        match self.search(second, tag) {
            Some(index) => index,
            None => self.place_new(tag, [first, second], fresh, backlogged),
        }
    }

    #[cold]
    fn place_new(
        &mut self,
        tag: u32,
        sets: [usize; 2],
        fresh: u64,
        backlogged: impl Fn(&Flow) -> bool,
    ) -> u32 {
        self.victim = self.victim.wrapping_add(1);
        let turn = self.victim;
        let place = |accept: &dyn Fn(&Flow) -> bool| {
            sets.into_iter().find_map(|set| {
                (0..WAYS)
                    .map(|way| set + (way + turn) % WAYS)
                    .find(|index| accept(&self.flows[*index]))
            })
        };
        let found = place(&|flow| flow.tag == 0).or_else(|| place(&|flow| !backlogged(flow)));
        let Some(index) = found else {
            self.unplaced += 1;
            return self.common();
        };
        self.flows[index] = Flow { tag, finish: fresh, ..Flow::NOBODY };
        index as u32
    }
}
