//! Where entries are by their hashes: a line of the cache that tells twelve places by a byte of the
//! hash each.
//!
//! A chain has to be walked: half of the look-ups in a full table read a place that is not the one
//! looked for, which costs a wait for memory and a branch that cannot be predicted. Here, of a
//! hundred look-ups that find something, ninety-seven or more look at one place, and that one can
//! be read ahead. The index is about speed alone: what it does not tell, the chains do.

use alloc::vec::Vec;

/// Places that a group tells.
const PLACES: u32 = 12;
/// Buckets per group: as many as there are entries on average when the table is full, so that few
/// groups overflow.
const BUCKETS: u32 = 6;

/// Bytes of which each is one, as a number.
const ONES: u64 = 0x0101_0101_0101_0101;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Group {
    places: [u32; PLACES as usize],
    /// A byte of each place's hash, the first in the lowest bits; 0: there is none. Those of the
    /// first eight, and of the others.
    tags: u64,
    more_tags: u32,
    /// Entries of the group's buckets that it does not tell.
    missing: u32,
}

/// The places of a group that have a tag, and a few that have not, the first of which has: a bit
/// for each in a byte, the last four in the bytes of the first.
#[derive(Clone, Copy)]
struct Matches(u64);

impl Iterator for Matches {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit / 8 + bit % 8 * 8)
    }
}

impl Group {
    const EMPTY: Self = Self { places: [0; PLACES as usize], tags: 0, more_tags: 0, missing: 0 };

    #[inline]
    fn matches(&self, tag: u8) -> Matches {
        // A byte that is zero loses its highest bit to the subtraction; so may those above it.
        let zeros = |word: u64| word.wrapping_sub(ONES) & !word & ONES << 7;
        let pattern = ONES * u64::from(tag);
        let (first, last) =
            (self.tags ^ pattern, (u64::from(self.more_tags) ^ pattern) | 0xffff_ffff << 32);
        Matches(zeros(first) >> 7 | zeros(last) >> 6)
    }

    fn set(&mut self, slot: usize, tag: u8) {
        let shift = slot % 8 * 8;
        if slot < 8 {
            self.tags = self.tags & !(0xff << shift) | u64::from(tag) << shift;
        } else {
            self.more_tags = self.more_tags & !(0xff << shift) | u32::from(tag) << shift;
        }
    }

    fn is_set(&self, slot: usize) -> bool {
        let tags = if slot < 8 { self.tags } else { self.more_tags.into() };
        tags >> (slot % 8 * 8) & 0xff != 0
    }
}

/// The index of a table.
#[derive(Clone, Debug)]
pub(super) struct Index(Vec<Group>);

/// What stands for an entry in its group: never 0.
pub(super) fn tag(mixed: u64) -> u8 {
    ((mixed >> 24) as u8).max(1)
}

impl Index {
    pub(super) fn new(buckets: u32) -> Self {
        Self(alloc::vec![Group::EMPTY; buckets.div_ceil(BUCKETS) as usize])
    }

    pub(super) fn memory(&self) -> usize {
        self.0.len() * size_of::<Group>()
    }

    #[inline]
    pub(super) fn prefetch(&self, bucket: u32) {
        crate::prefetch::existing(&self.0, (bucket / BUCKETS) as usize);
    }

    /// Places where an entry of the bucket with this tag may be, the likeliest first.
    #[inline]
    pub(super) fn candidates(&self, bucket: u32, tag: u8) -> impl Iterator<Item = u32> + '_ {
        let group = &self.0[(bucket / BUCKETS) as usize];
        group.matches(tag).filter_map(|slot| group.places.get(slot).copied())
    }

    /// Whether no entry of the bucket is told by the chain alone.
    #[inline]
    pub(super) fn is_complete(&self, bucket: u32) -> bool {
        self.0[(bucket / BUCKETS) as usize].missing == 0
    }

    /// An entry of the bucket was put into `place`.
    pub(super) fn insert(&mut self, bucket: u32, tag: u8, place: u32) {
        let group = &mut self.0[(bucket / BUCKETS) as usize];
        let slot = group.matches(0).next().unwrap_or(PLACES as usize);
        match group.places.get_mut(slot) {
            Some(free) => {
                *free = place;
                group.set(slot, tag);
            }
            None => group.missing += 1,
        }
    }

    /// The entry of the bucket was taken out of `place`.
    pub(super) fn remove(&mut self, bucket: u32, place: u32) {
        let group = &mut self.0[(bucket / BUCKETS) as usize];
        let told = |slot: &usize| group.places[*slot] == place && group.is_set(*slot);
        match (0..PLACES as usize).find(told) {
            Some(slot) => group.set(slot, 0),
            None => group.missing -= 1,
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(Group::EMPTY);
    }
}
