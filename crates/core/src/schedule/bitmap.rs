//! A set of small numbers, found in ring order: which classes have packets.

use alloc::vec::Vec;

/// A set of numbers below a bound.
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    /// How many are in it.
    pub(super) count: usize,
}

impl Bitmap {
    pub(super) fn new(bound: usize) -> Self {
        Self { words: alloc::vec![0; bound.div_ceil(64)], count: 0 }
    }

    pub(super) fn insert(&mut self, k: usize) {
        let (word, bit) = (&mut self.words[k / 64], 1 << (k % 64));
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    pub(super) fn remove(&mut self, k: usize) {
        let (word, bit) = (&mut self.words[k / 64], 1 << (k % 64));
        self.count -= usize::from(*word & bit != 0);
        *word &= !bit;
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The members from `start`, which is below the bound, on, around the ring.
    #[inline]
    pub(super) fn ring(&self, start: usize) -> Ring<'_> {
        let (at, before) = (start / 64, !(!0 << (start % 64)));
        let word = self.words.get(at).map_or(0, |word| word & !before);
        Ring { words: &self.words, at, word, before, left: self.words.len() }
    }
}

/// Members of a set in ring order.
#[derive(Clone, Debug)]
pub(super) struct Ring<'a> {
    words: &'a [u64],
    at: usize,
    /// What is left of the word at `at`.
    word: u64,
    /// Of the first word, what comes last.
    before: u64,
    /// Words to come.
    left: usize,
}

impl Iterator for Ring<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.left = self.left.checked_sub(1)?;
            self.at = if self.at + 1 < self.words.len() { self.at + 1 } else { 0 };
            self.word = self.words[self.at] & if self.left == 0 { self.before } else { !0 };
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.at * 64 + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_ring_order() {
        let mut state = 1_u64;
        for bound in [1, 2, 63, 64, 65, 128, 300] {
            let mut set = Bitmap::new(bound);
            let mut members = alloc::vec![false; bound];
            for _ in 0..300 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let at = (state >> 33) as usize % bound;
                if state >> 63 == 0 {
                    set.insert(at);
                } else {
                    set.remove(at);
                }
                members[at] = state >> 63 == 0;
                let start = (state >> 20) as usize % bound;
                let wanted = (start..bound).chain(0..start).filter(|at| members[*at]);
                assert!(set.ring(start).eq(wanted), "{bound} from {start}");
                assert_eq!(set.count, members.iter().filter(|member| **member).count());
            }
            set.clear();
            assert_eq!((set.ring(0).next(), set.count), (None, 0));
        }
    }
}
