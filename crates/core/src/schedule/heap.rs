//! A heap of small numbers by a key, the smallest first, in which any member can be found, changed and removed.

use alloc::vec::Vec;

use super::slab::NIL;

/// Members are numbers below the capacity, each at most once. Logarithmic time, no allocation after construction.
#[derive(Clone, Debug)]
pub(super) struct Heap<K> {
    heap: Vec<(K, u32)>,
    /// Where a member would be; it is there only if the heap says so too, so that clearing takes constant time.
    place: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(super) fn new(members: u32) -> Self {
        Self { heap: Vec::with_capacity(members as usize), place: alloc::vec![NIL; members as usize] }
    }

    fn find(&self, member: u32) -> Option<usize> {
        let at = self.place[member as usize] as usize;
        self.heap.get(at).is_some_and(|(_, there)| *there == member).then_some(at)
    }

    /// The member with the smallest key.
    pub(super) fn top(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Puts a member in, or changes its key.
    pub(super) fn set(&mut self, member: u32, key: K) {
        match self.find(member) {
            Some(at) => {
                let before = core::mem::replace(&mut self.heap[at].0, key);
                if key < before {
                    self.up(at);
                } else {
                    self.down(at);
                }
            }
            None => {
                self.heap.push((key, member));
                self.up(self.heap.len() - 1);
            }
        }
    }

    /// Puts a member in, or changes its key to a smaller one; a larger one is left to a later `set`.
    pub(super) fn lower(&mut self, member: u32, key: K) {
        match self.find(member) {
            Some(at) if self.heap[at].0 <= key => {}
            _ => self.set(member, key),
        }
    }

    /// Takes a member out, if it is in.
    pub(super) fn remove(&mut self, member: u32) {
        let Some(at) = self.find(member) else { return };
        let last = self.heap.len() - 1;
        self.heap.swap(at, last);
        self.heap.pop();
        if at < last {
            self.place[self.heap[at].1 as usize] = at as u32;
            self.up(at);
            self.down(at);
        }
    }

    /// The members, in no order.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.heap.iter().map(|(_, member)| *member)
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    fn up(&mut self, mut at: usize) {
        let moved = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].0 <= moved.0 {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, moved);
    }

    fn down(&mut self, mut at: usize) {
        let moved = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].0 < self.heap[child].0 {
                child += 1;
            }
            if moved.0 <= self.heap[child].0 {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, moved);
    }

    fn put(&mut self, at: usize, what: (K, u32)) {
        self.heap[at] = what;
        self.place[what.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_sorted_map() {
        let mut heap = Heap::new(40);
        let mut map: BTreeMap<u32, u64> = BTreeMap::new();
        let mut state = 7u64;
        for _ in 0..50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let (member, key) = ((state >> 33) as u32 % 40, (state >> 40) % 1_000);
            match state >> 61 {
                0..=3 => {
                    heap.set(member, key);
                    map.insert(member, key);
                }
                4 => {
                    heap.lower(member, key);
                    map.entry(member).and_modify(|k| *k = key.min(*k)).or_insert(key);
                }
                5 if state >> 55 & 63 == 0 => {
                    heap.clear();
                    map.clear();
                }
                _ => {
                    heap.remove(member);
                    map.remove(&member);
                }
            }
            let least = map.values().min();
            assert_eq!(heap.top().map(|(key, _)| key).as_ref(), least);
            assert!(heap.top().is_none_or(|(key, member)| map[&member] == key));
        }
    }
}
