//! Small numbers in the order of a key that grows with them, to within a grain: a calendar of
//! buckets, of which a bit each tells whether anything is in it.
//!
//! Source: Saeed et al., "Eiffel: Efficient and Flexible Software Packet Scheduling" (NSDI 2019),
//! section 3.1: a queue in buckets over a window that moves, its first one found by two searches
//! for a bit (FFS).
//!
//! ```text
//! now / GRAIN                                          now / GRAIN + BUCKETS - 1
//! ├───┬───┬───┬───┬─── … ───┬───┬───┤   each bucket: numbers in the order in which they came
//!       ↑ front: none before it holds anything
//! ```
//!
//! A bucket is a chain of blocks, each a line of the cache with fifteen numbers and the next block:
//! what comes next is known without a look at who comes first, and can be read ahead. A key beyond
//! the window stands in its last bucket. Numbers cannot be taken out of the midst: who has changed
//! its key is put in again when it comes to the front, which the owner sees by
//! [`is_due`](Calendar::is_due).
//!
//! Complexity: constant time, whatever the keys. No allocation after construction.
//!
//! Bound: of two numbers whose keys are more than a [`GRAIN`] apart and within the window the
//! smaller comes first.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::slab::NIL;

const GRAIN_BITS: u32 = 5;
/// Keys that are not further apart may come in any order.
pub(super) const GRAIN: u64 = 1 << GRAIN_BITS;
/// The window is 256 KiB: the longest quantum and two of the longest super-frames.
const BUCKETS: usize = 8_192;
const WORDS: usize = BUCKETS / 64;
/// Words of a block; the last one is the next block.
const BLOCK: u32 = 16;
const NEXT: u32 = BLOCK - 1;

/// Places are numbered through all blocks.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The first number; `NIL`: there is none, and no block.
    first: u32,
    /// Behind the last one: in the same block, if only at its link.
    end: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    buckets: Box<[Bucket; BUCKETS]>,
    /// A bit for each bucket that holds something, and one for each word of those.
    busy: Box<[u64; WORDS]>,
    words: u128,
    /// No bucket before this one, of those of all time, holds anything.
    front: u64,
    blocks: Vec<[u32; BLOCK as usize]>,
    free: u32,
}

impl Calendar {
    /// An empty one with room for so many numbers.
    pub(super) fn new(members: u32) -> Self {
        // Of each bucket the first block and the last one may be full in part.
        let part = 2 * members.min(BUCKETS as u32);
        let blocks = (0..members.div_ceil(NEXT) + part).map(|at| {
            let mut block = [NIL; BLOCK as usize];
            block[NEXT as usize] = at + 1;
            block
        });
        let mut blocks: Vec<_> = blocks.collect();
        if let Some(last) = blocks.last_mut() {
            last[NEXT as usize] = NIL;
        }
        Self {
            buckets: Box::new([Bucket { first: NIL, end: NIL }; BUCKETS]),
            busy: Box::new([0; WORDS]),
            words: 0,
            front: 0,
            blocks,
            free: 0,
        }
    }

    /// Whether a number with this key, which is the first one, is where it belongs, and not before.
    #[inline]
    pub(super) fn is_due(&self, key: u64) -> bool {
        key >> GRAIN_BITS <= self.front
    }

    /// Puts a number in. `now` never falls, no number that is in has a bucket before its, and the
    /// number is not in; a smaller key counts as `now`.
    #[inline]
    pub(super) fn push(&mut self, now: u64, key: u64, member: u32) {
        let now = now >> GRAIN_BITS;
        let bucket = (key >> GRAIN_BITS).clamp(now, now + (BUCKETS as u64 - 1));
        if self.words == 0 || bucket < self.front {
            self.front = bucket;
        }
        let at = bucket as usize % BUCKETS;
        let Bucket { first, mut end } = self.buckets[at];
        if first == NIL {
            end = self.block();
            self.buckets[at].first = end;
            self.busy[at / 64] |= 1 << (at % 64);
            self.words |= 1 << (at / 64);
        } else if end % BLOCK == NEXT {
            let next = self.block();
            *self.place(end) = next / BLOCK;
            end = next;
        }
        *self.place(end) = member;
        self.buckets[at].end = end + 1;
    }

    #[inline]
    fn place(&mut self, at: u32) -> &mut u32 {
        &mut self.blocks[(at / BLOCK) as usize][(at % BLOCK) as usize]
    }

    /// The first place of a free block.
    #[inline]
    fn block(&mut self) -> u32 {
        let at = self.free;
        self.free = self.blocks[at as usize][NEXT as usize];
        at * BLOCK
    }

    #[inline]
    fn free(&mut self, block: u32) {
        self.blocks[block as usize][NEXT as usize] = self.free;
        self.free = block;
    }

    /// The first bucket that holds something, from that of the front on.
    #[inline]
    fn first_bucket(&self) -> Option<usize> {
        let from = self.front as usize % BUCKETS;
        let here = self.busy[from / 64] & u64::MAX << (from % 64);
        if here != 0 {
            return Some(from / 64 * 64 + here.trailing_zeros() as usize);
        }
        let after = self.words & (u128::MAX << (from / 64) << 1);
        // Or, once round, before it.
        let words = if after == 0 { self.words } else { after };
        let word = words.trailing_zeros() as usize;
        let bits = self.busy.get(word)?;
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Moves the front to the first number, and gives that and its bucket.
    #[inline]
    fn move_to_first(&mut self) -> Option<(u32, usize)> {
        let at = self.first_bucket()?;
        self.front += at.wrapping_sub(self.front as usize) as u64 % BUCKETS as u64;
        Some((self.buckets[at].first, at))
    }

    /// The number that comes first.
    #[inline]
    pub(super) fn first(&mut self) -> Option<u32> {
        let (first, _) = self.move_to_first()?;
        Some(*self.place(first))
    }

    /// A guess at the number that comes so many later than the first one, fewer than fifteen: any
    /// if that is in another bucket.
    #[inline]
    pub(super) fn ahead(&self, count: u32) -> u32 {
        let Bucket { first, .. } = self.buckets[self.front as usize % BUCKETS];
        let Some(block) = self.blocks.get((first / BLOCK) as usize) else { return NIL };
        let at = first % BLOCK + count;
        if at < NEXT {
            return block[at as usize];
        }
        let next = self.blocks.get(block[NEXT as usize] as usize);
        next.map_or(NIL, |next| next[(at - NEXT) as usize % NEXT as usize])
    }

    /// Takes out the number that comes first.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let (first, at) = self.move_to_first()?;
        let member = *self.place(first);
        let next = first + 1;
        if next == self.buckets[at].end {
            self.free(first / BLOCK);
            self.buckets[at].first = NIL;
            self.busy[at / 64] &= !(1 << (at % 64));
            if self.busy[at / 64] == 0 {
                self.words &= !(1 << (at / 64));
            }
        } else if next % BLOCK == NEXT {
            let block = *self.place(next);
            self.free(first / BLOCK);
            self.buckets[at].first = block * BLOCK;
        } else {
            self.buckets[at].first = next;
        }
        Some(member)
    }

    /// Takes out all numbers in buckets before that of `now`, and tells them.
    pub(super) fn pop_before(&mut self, now: u64, mut each: impl FnMut(u32)) {
        while let Some(_first) = self.move_to_first()
            && self.front < now >> GRAIN_BITS
        {
            self.pop().into_iter().for_each(&mut each);
        }
    }

    /// All numbers in order, each with what its bucket ends below.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        (self.front..self.front + BUCKETS as u64).flat_map(move |bucket| {
            let Bucket { first, end } = self.buckets[bucket as usize % BUCKETS];
            let mut at = if first == NIL { end } else { first };
            core::iter::from_fn(move || {
                if at == end {
                    return None;
                }
                let block = &self.blocks[(at / BLOCK) as usize];
                if at % BLOCK == NEXT {
                    at = block[NEXT as usize] * BLOCK;
                }
                let block = &self.blocks[(at / BLOCK) as usize];
                let member = block[(at % BLOCK) as usize];
                at += 1;
                Some(((bucket + 1) << GRAIN_BITS, member))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// What it is: a queue for each bucket.
    #[derive(Default)]
    struct Model(std::collections::BTreeMap<u64, VecDeque<u32>>);

    impl Model {
        fn pop(&mut self) -> Option<(u64, u32)> {
            let mut first = self.0.first_entry()?;
            let (bucket, member) = (*first.key(), first.get_mut().pop_front());
            if first.get().is_empty() {
                first.remove();
            }
            Some((bucket, member?))
        }
    }

    #[test]
    fn it_is_a_queue_for_each_bucket_of_a_window_that_moves() {
        for (members, spread) in [(1u32, 40u64), (40, 3_000), (3_000, 3_000), (3_000, 400_000)] {
            let mut calendar = Calendar::new(members);
            let mut model = Model::default();
            let (mut out, mut now, mut state) = ((0..members).collect::<Vec<_>>(), 0, spread);
            for _ in 0..60_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                if state >> 63 == 0
                    && let Some(member) = out.pop()
                {
                    let key = now + (state >> 20) % spread;
                    calendar.push(now, key, member);
                    let last = now / GRAIN + BUCKETS as u64 - 1;
                    model.0.entry((key / GRAIN).min(last)).or_default().push_back(member);
                } else {
                    let expected = model.pop();
                    assert_eq!(calendar.first(), expected.map(|(_, member)| member));
                    assert_eq!(calendar.pop(), expected.map(|(_, member)| member));
                    if let Some((bucket, member)) = expected {
                        now = now.max(bucket * GRAIN + (state >> 30) % GRAIN);
                        assert!(calendar.is_due(now) && !calendar.is_due(now + GRAIN));
                        out.push(member);
                    }
                }
                if state >> 50 & 1_023 == 0 {
                    let all = model.0.iter();
                    let all = all.flat_map(|(bucket, members)| {
                        members.iter().map(move |member| ((bucket + 1) * GRAIN, *member))
                    });
                    assert!(calendar.iter().eq(all));
                }
                if state >> 50 & 1_023 == 1 {
                    now += (state >> 20) % spread;
                    calendar.pop_before(now, |member| out.push(member));
                    model.0 = model.0.split_off(&(now / GRAIN));
                }
            }
        }
    }

    #[test]
    fn who_comes_next_is_guessed() {
        let mut calendar = Calendar::new(100);
        (0..100).for_each(|member| calendar.push(0, 5, member));
        for next in 0..86 {
            assert_eq!(calendar.first(), Some(next));
            assert!((0..14).all(|ahead| calendar.ahead(ahead) == next + ahead));
            assert_eq!(calendar.pop(), Some(next));
        }
        // Beyond its bucket it is any, and no place beyond all blocks.
        (0..40).for_each(|ahead| _ = calendar.ahead(ahead));
    }
}
