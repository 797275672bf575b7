//! Which of many queues is the longest, in constant time and to within a thirty-second.
//!
//! Queues are kept in lists by their length, 32 lists per power of two. A queue that grows into a
//! longer list moves at once; one that shrinks stays where it was, and moves when the search finds
//! it: each such move is paid by a packet that has left, so a search takes constant time on average
//! and serving packets costs nothing.
//!
//! In which list a queue is, the caller keeps with the queue ([`ListNumber`]), where it is at hand:
//! a queue that does not grow into a longer list costs no access to memory here.

use alloc::vec::Vec;

use super::flow_list::{Chain, Links};
use crate::units::Bytes;

/// Lists per power of two.
const STEPS: u32 = 32;
/// Lengths up to 2^40 bytes are told apart.
const LISTS: usize = (36 * STEPS) as usize;

/// The list that a queue is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ListNumber(u16);

impl ListNumber {
    /// In no list.
    pub(super) const OUT: Self = Self(u16::MAX);
}

/// The list of a length: exact below 64 bytes, then 32 per power of two.
fn list_of(length: Bytes) -> u16 {
    let length = length.0.min((1 << 40) - 1);
    let shift = (63 - (length | u64::from(STEPS)).leading_zeros()) - STEPS.ilog2();
    (shift * STEPS + (length >> shift) as u32) as u16
}

/// The queues by length.
#[derive(Clone, Debug)]
pub(super) struct Longest {
    lists: Vec<Chain>,
    /// Bit of each list that has members.
    busy: [u64; LISTS.div_ceil(64)],
    links: Links,
}

impl Longest {
    pub(super) fn new(queues: u32) -> Self {
        Self {
            lists: alloc::vec![Chain::EMPTY; LISTS],
            busy: [0; LISTS.div_ceil(64)],
            links: Links::new(queues),
        }
    }

    /// `queue`, which is at `place`, has grown to `length`.
    #[inline]
    pub(super) fn grown(&mut self, queue: u32, place: &mut ListNumber, length: Bytes) {
        let list = list_of(length);
        if *place == ListNumber::OUT || place.0 < list {
            self.forget(queue, place);
            self.put(queue, place, list);
        }
    }

    fn put(&mut self, queue: u32, place: &mut ListNumber, list: u16) {
        *place = ListNumber(list);
        self.links.push(&mut self.lists[usize::from(list)], queue);
        self.busy[usize::from(list) / 64] |= 1 << (list % 64);
    }

    /// `queue`, which is at `place`, is empty, or another one gets its number.
    pub(super) fn forget(&mut self, queue: u32, place: &mut ListNumber) {
        let ListNumber(list) = core::mem::replace(place, ListNumber::OUT);
        let Some(chain) = self.lists.get_mut(usize::from(list)) else { return };
        self.links.unlink(chain, queue);
        if chain.head().is_none() {
            self.busy[usize::from(list) / 64] &= !(1 << (list % 64));
        }
    }

    /// The queue to look at: the one longest in the last list. `None` if all are empty. It is the
    /// longest if [`confirm`](Self::confirm) says so; else the next to look at may be.
    pub(super) fn candidate(&self) -> Option<u32> {
        let word = self.busy.iter().rposition(|bits| *bits != 0)?;
        let top = word * 64 + 63 - self.busy[word].leading_zeros() as usize;
        self.lists[top].head()
    }

    /// Whether the [candidate](Self::candidate), at `place`, whose length is `now`, still is where
    /// its length belongs; else it is moved there.
    pub(super) fn confirm(&mut self, candidate: u32, place: &mut ListNumber, now: Bytes) -> bool {
        let list = list_of(now);
        if place.0 == list && now > Bytes::ZERO {
            return true;
        }
        self.forget(candidate, place);
        if now > Bytes::ZERO {
            self.put(candidate, place, list);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_of_lengths_and_narrow() {
        let mut last = 0;
        for length in 0..100_000u64 {
            let list = list_of(Bytes(length));
            assert!(list == last || list == last + 1, "{length}");
            last = list;
        }
        for shift in 6..40 {
            let (low, high) = (1u64 << shift, (1u64 << shift) + (1 << (shift - 5)));
            assert_eq!(list_of(Bytes(low)) + 1, list_of(Bytes(high)));
            assert_eq!(list_of(Bytes(low)), list_of(Bytes(high - 1)));
        }
        assert!(usize::from(list_of(Bytes(u64::MAX))) < LISTS);
    }

    #[test]
    fn it_finds_the_longest() {
        let mut lengths = [0u64; 50];
        let (mut longest, mut places) = (Longest::new(50), [ListNumber::OUT; 50]);
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let queue = (state >> 40) as usize % 50;
            let amount = 40 + (state >> 20) % 1_460;
            if state >> 63 == 0 {
                lengths[queue] += amount;
                longest.grown(queue as u32, &mut places[queue], Bytes(lengths[queue]));
            } else {
                lengths[queue] = lengths[queue].saturating_sub(amount);
            }
            let most = *lengths.iter().max().unwrap();
            let found = loop {
                let Some(candidate) = longest.candidate() else { break None };
                let at = candidate as usize;
                if longest.confirm(candidate, &mut places[at], Bytes(lengths[at])) {
                    break Some(candidate);
                }
            };
            match found {
                None => assert_eq!(most, 0),
                Some(found) => {
                    let found = lengths[found as usize];
                    assert!(found > 0 && found + most / 32 >= most, "{found} of {most}");
                }
            }
        }
    }
}
