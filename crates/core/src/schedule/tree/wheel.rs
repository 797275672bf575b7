//! When to look at whom again: a timing wheel of three levels.
//!
//! Source: Varghese, Lauck, "Hashed and hierarchical timing wheels" (1987); for pacing: Saeed et
//! al., "Carousel" (2017), and "Eiffel" (2019) for finding the next slot by a bit.
//!
//! | level | slots | of |
//! |---|---|---|
//! | 0 | 256 | 16.4 us |
//! | 1 | 256 | 4.2 ms |
//! | 2 | 256 | 1.07 s |
//!
//! Nobody is looked at too late by more than a slot of level 0. Who waits for long is looked at
//! early, at the beginning of its slot, and put back by whoever looks: times are not kept here.
//!
//! Complexity: constant time, and two looks more at those who wait beyond a level.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::schedule::flow_list::{Chain, Links};
use crate::units::Nanos;

/// 2^14 ns.
const TICK: u32 = 14;
/// 256 slots a level.
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 3;
/// In no slot.
const OUT: u16 = u16::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Wheel {
    slots: Box<[[Chain; SLOTS]; LEVELS]>,
    busy: [[u64; SLOTS / 64]; LEVELS],
    links: Links,
    /// By entry, the slot that it is in.
    at: Vec<u16>,
    /// Everything up to this tick has been looked at.
    now: u64,
}

impl Wheel {
    /// For entries with numbers below `entries`.
    pub(super) fn new(entries: u32) -> Self {
        Self {
            slots: Box::new([[Chain::EMPTY; SLOTS]; LEVELS]),
            busy: [[0; SLOTS / 64]; LEVELS],
            links: Links::new(entries),
            at: alloc::vec![OUT; entries as usize],
            now: 0,
        }
    }

    /// Whether someone is to be looked at.
    pub(super) fn contains(&self, entry: u32) -> bool {
        self.at[entry as usize] != OUT
    }

    /// Looks at `entry`, which is not in the wheel, from `due` on.
    pub(super) fn insert(&mut self, entry: u32, due: Nanos) {
        let tick = due.0.div_ceil(1 << TICK).max(self.now);
        let level = (0..LEVELS - 1)
            .find(|level| {
                let block = BITS * (*level as u32 + 1);
                tick >> block == self.now >> block
            })
            .unwrap_or(LEVELS - 1);
        let shift = BITS * level as u32;
        let last = (self.now >> shift) + SLOTS as u64 - 1;
        let slot = ((tick >> shift).min(last) % SLOTS as u64) as usize;
        self.links.push(&mut self.slots[level][slot], entry);
        self.busy[level][slot / 64] |= 1 << (slot % 64);
        self.at[entry as usize] = (level * SLOTS + slot) as u16;
    }

    /// Takes `entry` out, if it is in.
    pub(super) fn remove(&mut self, entry: u32) {
        let at = usize::from(core::mem::replace(&mut self.at[entry as usize], OUT));
        if at == usize::from(OUT) {
            return;
        }
        let (level, slot) = (at / SLOTS, at % SLOTS);
        self.links.unlink(&mut self.slots[level][slot], entry);
        if self.slots[level][slot].head().is_none() {
            self.busy[level][slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Someone to be looked at by `now`, taken out; `None`: nobody any more.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<u32> {
        let target = now.0 >> TICK;
        let Some((tick, level, slot)) = self.first().filter(|(tick, ..)| *tick <= target) else {
            self.now = self.now.max(target);
            return None;
        };
        self.now = self.now.max(tick);
        let entry = self.slots[level][slot].head()?;
        self.remove(entry);
        Some(entry)
    }

    /// When someone is to be looked at next.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.first().map(|(tick, ..)| Nanos(tick << TICK))
    }

    /// The first slot that is not empty, and its tick.
    fn first(&self) -> Option<(u64, usize, usize)> {
        let levels = (0..LEVELS).filter_map(|level| {
            let shift = BITS * level as u32;
            let here = self.now >> shift;
            let from = (here % SLOTS as u64) as usize;
            let slot = self.search(level, from)?;
            let ahead = (slot + SLOTS - from) % SLOTS;
            Some((((here + ahead as u64) << shift).max(self.now), level, slot))
        });
        levels.min_by_key(|(tick, ..)| *tick)
    }

    /// The first slot of a level that is not empty, from `from` on, going round.
    fn search(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.busy[level];
        let here = words[from / 64] & u64::MAX << (from % 64);
        if here != 0 {
            return Some(from / 64 * 64 + here.trailing_zeros() as usize);
        }
        let mut others = (1..=words.len()).map(|n| (from / 64 + n) % words.len());
        let word = others.find(|word| words[*word] != 0)?;
        Some(word * 64 + words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_forgotten_or_late() {
        let mut wheel = Wheel::new(500);
        let mut due = vec![None; 500];
        let (mut state, mut now) = (7u64, 1u64 << 50);
        let mut fired = 0;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let entry = (state >> 40) as usize % 500;
            if due[entry].is_none() {
                let at = now + 1 + ((state >> 20) & ((1 << (8 + state % 32)) - 1));
                due[entry] = Some(at);
                wheel.insert(entry as u32, Nanos(at));
            } else if state % 97 == 0 {
                due[entry] = None;
                wheel.remove(entry as u32);
            }
            if state >> 60 < 4 {
                now += state >> 8 & ((1 << (10 + (state >> 50) % 24)) - 1);
                while let Some(entry) = wheel.pop(Nanos(now)) {
                    let at = due[entry as usize].unwrap();
                    if at > now {
                        wheel.insert(entry, Nanos(at));
                        continue;
                    }
                    fired += 1;
                    due[entry as usize] = None;
                }
                let late = due.iter().flatten().filter(|at| **at + (1 << TICK) <= now).count();
                assert_eq!(late, 0);
                // The time told is not after anybody's.
                let first = due.iter().flatten().min();
                assert_eq!(wheel.next().is_some(), first.is_some());
                if let (Some(next), Some(first)) = (wheel.next(), first) {
                    assert!(next.0 < first + (1 << TICK) && next.0 > now, "{next:?} {first}");
                }
            }
        }
        assert!(fired > 10_000, "{fired}");
    }
}
