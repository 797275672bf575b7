//! Small numbers by a key, the smallest first: a tournament, in which the key of any member can be
//! changed.
//!
//! Members stand in groups of four, each a line of the cache. The smallest of a group stands in a
//! group of the next level, and so on up to one group. The place of a member is its number: nothing
//! has to be looked up or moved, the lines that a change will touch are known before, so that they
//! can be read ahead and no access waits for another, and there is no branch by which of a group is
//! the smallest. In a heap members move: where each is has to be kept, and which line is next is
//! known only when the one above has been read.
//!
//! Complexity: one step for each level, of which there are as many as the largest member that was
//! ever in makes necessary; a change that does not touch the smallest of a group ends there, as
//! most of those in the midst do.

use alloc::vec::Vec;

use crate::prefetch;

/// Bits of a key that hold the member: enough for [`FLOWS_RANGE`](super::buffer::FLOWS_RANGE).
const MEMBER_BITS: u32 = 22;
/// Levels that so many members need.
const LEVELS: usize = (MEMBER_BITS / 2) as usize;
/// The key of who is not in: larger than any.
const OUT: u128 = u128::MAX;

/// A stamp and a number which decides among equal stamps.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    pub(super) stamp: u64,
    /// Its lowest 42 bits count: packets that come within five days at ten million a second.
    pub(super) number: u64,
}

impl Key {
    /// In one word, with the member.
    fn pack(self, member: u32) -> u128 {
        u128::from(self.stamp) << 64 | u128::from(self.number << MEMBER_BITS | u64::from(member))
    }
}

fn member(packed: u128) -> u32 {
    packed as u32 & ((1 << MEMBER_BITS) - 1)
}

fn stamp(packed: u128) -> u64 {
    (packed >> 64) as u64
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([u128; 4]);

impl Group {
    const EMPTY: Self = Self([OUT; 4]);

    #[inline]
    fn least(&self) -> u128 {
        let [a, b, c, d] = self.0;
        a.min(b).min(c.min(d))
    }
}

/// The members. No allocation after construction.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    /// The groups of all levels, the members' first.
    groups: Vec<Group>,
    /// Where each level begins.
    begins: [u32; LEVELS],
    /// Levels in use: those above would have a single entry.
    levels: usize,
    /// The smallest key of all.
    top: u128,
}

impl Tournament {
    /// An empty one with room for so many members, which have the numbers below that.
    pub(super) fn new(members: u32) -> Self {
        let (mut begins, mut total, mut width) = ([0; LEVELS], 0, members);
        for begin in &mut begins {
            width = width.div_ceil(4);
            *begin = total;
            total += width;
        }
        Self { groups: alloc::vec![Group::EMPTY; total as usize], begins, levels: 1, top: OUT }
    }

    /// The member with the smallest key, and the stamp of it.
    #[inline]
    pub(super) fn top(&self) -> Option<(u64, u32)> {
        (self.top != OUT).then_some((stamp(self.top), member(self.top)))
    }

    /// Puts a member in, or changes its key.
    #[inline]
    pub(super) fn set(&mut self, member: u32, key: Key) {
        while member >> (2 * self.levels) != 0 {
            let below = self.top;
            self.groups[self.begins[self.levels] as usize].0[0] = below;
            self.levels += 1;
        }
        self.put(member, key.pack(member));
    }

    /// Takes a member out. Whether it was in.
    #[inline]
    pub(super) fn remove(&mut self, member: u32) -> bool {
        let was_in = self.groups[member as usize / 4].0[member as usize % 4] != OUT;
        if was_in {
            self.put(member, OUT);
        }
        was_in
    }

    /// Changes the stamp of a member that is in, and not its number.
    pub(super) fn restamp(&mut self, member: u32, stamp: u64) {
        let number = self.groups[member as usize / 4].0[member as usize % 4] as u64;
        self.put(member, u128::from(stamp) << 64 | u128::from(number));
    }

    fn put(&mut self, member: u32, mut key: u128) {
        let mut at = member as usize;
        for begin in &self.begins[..self.levels] {
            let group = &mut self.groups[*begin as usize + at / 4];
            let entry = &mut group.0[at % 4];
            if *entry == key {
                return;
            }
            *entry = key;
            key = group.least();
            at /= 4;
        }
        self.top = key;
    }

    /// Takes out all members whose stamp is not above `last`, and tells them.
    pub(super) fn remove_to(&mut self, last: u64, each: &mut impl FnMut(u32)) {
        if stamp(self.top) <= last && self.top != OUT {
            self.top = self.clear(self.levels - 1, 0, last, each);
        }
    }

    /// The same below a group; what is its smallest key then.
    fn clear(&mut self, level: usize, at: usize, last: u64, each: &mut impl FnMut(u32)) -> u128 {
        let place = self.begins[level] as usize + at;
        for entry in 0..4 {
            let key = self.groups[place].0[entry];
            if stamp(key) <= last && key != OUT {
                self.groups[place].0[entry] = match level.checked_sub(1) {
                    Some(below) => self.clear(below, 4 * at + entry, last, each),
                    None => {
                        each(member(key));
                        OUT
                    }
                };
            }
        }
        self.groups[place].least()
    }

    /// The member with the smallest key in that of 4^`depth` parts of the tournament in which `of`
    /// is; any number if there is none. Who is first of one of so many parts will be first of all
    /// about so many changes of the first one later.
    #[inline]
    pub(super) fn first_near(&self, of: u32, depth: usize) -> u32 {
        let level = self.levels.saturating_sub(depth).min(LEVELS - 1);
        let at = of as usize >> (2 * level);
        let group = self.groups.get(self.begins[level] as usize + at / 4);
        group.map_or(u32::MAX, |group| member(group.0[at % 4]))
    }

    /// Reads ahead what a change of this member will touch first; a number that is none is as good
    /// as any.
    #[inline]
    pub(super) fn prefetch(&self, member: u32) {
        prefetch::element(&self.groups, member as usize / 4);
        prefetch::element(&self.groups, self.begins[1] as usize + member as usize / 16);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_sorted_map() {
        for members in [1u32, 3, 4, 5, 40, 300] {
            let mut tournament = Tournament::new(members);
            let mut map: BTreeMap<u32, Key> = BTreeMap::new();
            let mut state = u64::from(members);
            for step in 0..30_000u32 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                // Large numbers come late: there are more levels then.
                let member = (state >> 33) as u32 % members.min(1 + step / 20);
                let key = Key { stamp: (state >> 40) % 50, number: (state >> 20) % 1_000 };
                match state >> 61 {
                    0..=2 => {
                        tournament.set(member, key);
                        map.insert(member, key);
                    }
                    3 if map.contains_key(&member) => {
                        tournament.restamp(member, key.stamp);
                        map.entry(member).and_modify(|old| old.stamp = key.stamp);
                    }
                    4 if state >> 55 & 63 == 0 => {
                        let (mut removed, last) = (Vec::new(), key.stamp);
                        tournament.remove_to(last, &mut |member| removed.push(member));
                        removed.sort_unstable();
                        let due = map
                            .iter()
                            .filter(|(_, key)| key.stamp <= last)
                            .map(|(member, _)| *member);
                        assert_eq!(removed, due.collect::<Vec<_>>());
                        map.retain(|_, key| key.stamp > last);
                    }
                    5 if state >> 55 & 63 == 0 => {
                        let mut removed = 0;
                        tournament.remove_to(u64::MAX, &mut |_| removed += 1);
                        assert_eq!(removed, map.len());
                        map.clear();
                    }
                    _ => {
                        assert_eq!(tournament.remove(member), map.remove(&member).is_some());
                    }
                }
                let least = map.iter().map(|(member, key)| (*key, *member)).min();
                assert_eq!(tournament.top(), least.map(|(key, member)| (key.stamp, member)));
                if let Some((_, first)) = tournament.top() {
                    assert_eq!(tournament.first_near(first, 1), first);
                    assert_eq!(tournament.first_near(first, 2), first);
                }
                let _ = (tournament.first_near(member, 2), tournament.first_near(u32::MAX, 3));
            }
        }
    }

    #[test]
    fn the_largest_keys_are_told_apart() {
        let members = 1 << MEMBER_BITS;
        let mut tournament = Tournament::new(members);
        let last = members - 1;
        tournament.set(last, Key { stamp: u64::MAX, number: 1 });
        assert_eq!(tournament.top(), Some((u64::MAX, last)));
        tournament.set(0, Key { stamp: u64::MAX, number: 2 });
        assert_eq!(tournament.top(), Some((u64::MAX, last)));
        tournament.set(last, Key { stamp: u64::MAX, number: 3 });
        assert_eq!(tournament.top(), Some((u64::MAX, 0)));
        assert!(tournament.remove(0) && tournament.remove(last) && !tournament.remove(0));
        assert_eq!(tournament.top(), None);
    }
}
