//! Which backlogged flow is through first: a monotone queue of buckets, without a heap and without
//! keys of its own.
//!
//! Keys are virtual finish times (`Flow::finish`), read where they stand. A digit of a key has six
//! bits; a flow hangs in the bucket (level, digit) where level is the highest digit in which its
//! key differs from `base`, the virtual time when buckets were last opened. Buckets are singly
//! linked through `Flow::next`. To find the first flow, the lowest bucket of the lowest level is
//! opened: `base` moves up, and its flows sink to lower levels (Denardo and Fox 1979; radix heap
//! with 64 ways).
//!
//! Admitting a packet raises a key and touches nothing here: the bucket then holds the flow too
//! early, and it is moved when the bucket is opened. So a flow of many packets costs one move per
//! batch, not one per packet.
//!
//! Complexity: insertion O(1); a flow is moved at most once per level between two departures (11
//! levels of 64-bit keys; with n flows about log n to base 64 of them are met). Memory: 2.9 KB per
//! queue, 4 bytes per flow. Keys may wrap: all lie within 2^63 above `base`.

use super::table::{Flow, IDLE};

/// Ends a list.
const END: u32 = u32::MAX - 1;
/// Bits of a digit.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
const LEVELS: usize = 64_usize.div_ceil(DIGIT as usize);

#[derive(Clone, Debug)]
pub(super) struct Departures {
    base: u64,
    /// One bit per level that has a bucket in use.
    levels: u16,
    /// One bit per bucket in use.
    buckets: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
}

impl Departures {
    pub(super) fn new() -> Self {
        Self { base: 0, levels: 0, buckets: [0; LEVELS], heads: [[END; SLOTS]; LEVELS] }
    }

    fn place(&self, key: u64) -> (usize, usize) {
        let differs = key ^ self.base;
        let level = if differs == 0 { 0 } else { differs.ilog2() / DIGIT };
        (level as usize, (key >> (level * DIGIT)) as usize % SLOTS)
    }

    /// Hangs a flow in by its finish time. `clock` is the virtual time now.
    #[inline]
    pub(super) fn insert(&mut self, flows: &mut [Flow], index: u32, clock: u64) {
        if self.levels == 0 {
            self.base = clock;
        }
        self.hang(flows, index);
    }

    #[inline]
    fn hang(&mut self, flows: &mut [Flow], index: u32) {
        let flow = &mut flows[index as usize];
        let (level, slot) = self.place(flow.finish);
        flow.next = self.heads[level][slot];
        self.heads[level][slot] = index;
        self.buckets[level] |= 1 << slot;
        self.levels |= 1 << level;
    }

    /// Takes out the flow that finishes first, if it does so at `until` or before. Else virtual
    /// time will move to `until`.
    pub(super) fn pop_due(&mut self, flows: &mut [Flow], until: u64) -> Option<u32> {
        loop {
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let shift = level as u32 * DIGIT;
            let used = self.buckets[level];
            let slot = if level == LEVELS - 1 {
                // The highest digit wraps: its buckets are in order from that of `base` on.
                let from = (self.base >> shift) as u32;
                (used.rotate_right(from).trailing_zeros() + from) as usize % SLOTS
            } else {
                used.trailing_zeros() as usize
            };
            let above = if level == LEVELS - 1 {
                0
            } else {
                self.base >> (shift + DIGIT) << (shift + DIGIT)
            };
            let first = above | (slot as u64) << shift;
            if until.wrapping_sub(self.base) < first.wrapping_sub(self.base) {
                return None;
            }
            if level == 0 {
                // All hung here with the same key; who was raised since goes where it belongs now.
                let index = self.heads[0][slot];
                let flow = &mut flows[index as usize];
                self.heads[0][slot] = flow.next;
                if flow.next == END {
                    self.close(0, slot);
                }
                if flow.finish == first {
                    flow.next = IDLE;
                    return Some(index);
                }
                self.hang(flows, index);
                continue;
            }
            let head = core::mem::replace(&mut self.heads[level][slot], END);
            self.close(level, slot);
            // `base` may move to the first of the keys, but neither beyond `until` (flows may come
            // that finish right after it) nor out of this bucket (flows of other buckets differ
            // from the old and from the new base in the same digit).
            let last = first | ((1 << shift) - 1);
            let mut to = until.wrapping_sub(self.base).min(last.wrapping_sub(self.base));
            let mut index = head;
            while index != END {
                let flow = &flows[index as usize];
                to = to.min(flow.finish.wrapping_sub(self.base));
                index = flow.next;
            }
            self.base = self.base.wrapping_add(to);
            let mut index = head;
            while index != END {
                let next = flows[index as usize].next;
                self.hang(flows, index);
                index = next;
            }
        }
    }

    fn close(&mut self, level: usize, slot: usize) {
        self.buckets[level] &= !(1 << slot);
        if self.buckets[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}
