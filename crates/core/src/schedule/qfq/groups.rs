//! Who is next, found by bits: classes of like step lie in a group, groups in four sets.
//!
//! The step of a class is the virtual time that its longest packet takes. Groups hold the classes
//! whose steps round up to the same power of two, their slot; within a group classes are sorted
//! into slots by their start. Of a group only the front is compared with other groups:
//!
//! - eligible: its start is not after virtual time;
//! - ready: no eligible group of longer slots finishes before it.
//!
//! Ready and eligible groups finish in the order of their number, so that the first bit of that set
//! says who is next. When virtual time goes on, which groups become eligible is told by the highest
//! bit that changed. Times wrap: they are compared by their difference.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// How many groups there are, at most as a word has bits.
pub(super) const GROUPS: usize = 24;
/// The slot of group 0 is this power of two, of virtual time.
const SHORTEST_SLOT: u32 = 14;
/// How many slots a group has: the starts of its classes are never further apart.
const SLOTS: u32 = 32;
/// No class.
const NONE: u16 = u16::MAX;

/// Neither blocked nor early: the first of them is next.
const READY: usize = 0;
/// It starts after virtual time.
const EARLY: usize = 1;
/// An eligible group of longer slots finishes first.
const BLOCKED: usize = 2;
/// Both.
const EARLY_AND_BLOCKED: usize = EARLY | BLOCKED;

/// The group of classes whose longest packet takes this virtual time.
pub(super) fn group_of(step: u64) -> usize {
    let bits = u64::BITS - step.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(SHORTEST_SLOT) as usize).min(GROUPS - 1)
}

/// Of a group, the length of a slot, as a power of two.
const fn slot(group: usize) -> u32 {
    SHORTEST_SLOT + group as u32
}

/// The begin of the slot that `time` is in.
const fn begin(time: u64, slot: u32) -> u64 {
    time >> slot << slot
}

/// Whether `a` is after `b`.
const fn after(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The lowest group of a set.
const fn first(set: u32) -> Option<usize> {
    if set == 0 { None } else { Some(set.trailing_zeros() as usize) }
}

#[derive(Clone, Copy, Debug)]
struct Stamp {
    start: u64,
    finish: u64,
    group: usize,
    /// The next class in the same slot.
    next: u16,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// The begin of the slot at the front.
    start: u64,
    /// Two slots after `start`: nobody at the front finishes later.
    finish: u64,
    /// Which slots have classes; bit 0 is the one at the front.
    full: u32,
    /// Where in `slots` the front is.
    front: u32,
    /// The first class of each slot.
    slots: [u16; SLOTS as usize],
}

impl Group {
    const EMPTY: Self =
        Self { start: 0, finish: 0, full: 0, front: 0, slots: [NONE; SLOTS as usize] };

    const fn place(&self, slot: u32) -> usize {
        ((self.front + slot) % SLOTS) as usize
    }

    const fn head(&self) -> u16 {
        self.slots[self.front as usize]
    }

    fn begin_at(&mut self, start: u64, slot: u32) {
        (self.start, self.finish) = (start, start.wrapping_add(2 << slot));
    }

    /// Makes the first slot that has a class the front; the class.
    fn skip_empty(&mut self) -> Option<usize> {
        if self.full == 0 {
            return None;
        }
        let empty = self.full.trailing_zeros();
        self.full >>= empty;
        self.front = (self.front + empty) % SLOTS;
        Some(usize::from(self.head()))
    }

    /// Makes room before the front for a slot that begins at `start`.
    fn extend_to(&mut self, start: u64, slot: u32) {
        let slots = (self.start.wrapping_sub(start) >> slot).min(u64::from(SLOTS - 1)) as u32;
        self.full <<= slots;
        self.front = (self.front + SLOTS - slots) % SLOTS;
    }
}

/// All classes that wait, and virtual time.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    groups: Box<[Group; GROUPS]>,
    /// [`READY`] and so on: a bit for each group that has classes, in one of them.
    sets: [u32; 4],
    virtual_time: u64,
    stamps: Vec<Stamp>,
}

impl Groups {
    /// Nobody waits.
    pub(super) fn new(classes: usize) -> Self {
        let stamp = Stamp { start: 0, finish: 0, group: 0, next: NONE };
        Self {
            groups: Box::new([Group::EMPTY; GROUPS]),
            sets: [0; 4],
            virtual_time: 0,
            stamps: alloc::vec![stamp; classes],
        }
    }

    /// Virtual time now.
    pub(super) const fn virtual_time(&self) -> u64 {
        self.virtual_time
    }

    /// The class whose head goes next.
    pub(super) fn next(&self) -> Option<usize> {
        Some(usize::from(self.groups[first(self.sets[READY])?].head()))
    }

    /// A class that did not wait has a packet now, which takes `step` of virtual time; the longest
    /// of its packets puts it into `group`.
    pub(super) fn enter(&mut self, class: usize, step: u64, group: usize) {
        let slot = slot(group);
        let finish = self.stamps[class].finish;
        let latest = begin(self.virtual_time, slot).wrapping_add(1 << slot);
        // Where it left off, unless that is past, or from so long ago or from such a different
        // group that it has no meaning here.
        let goes_on = after(finish, self.virtual_time) && !after(begin(finish, slot), latest);
        let start = if goes_on { finish } else { self.virtual_time };
        let stamp = &mut self.stamps[class];
        (stamp.start, stamp.finish, stamp.group) = (start, start.wrapping_add(step), group);
        let from = begin(start, slot);
        let waits = self.groups[group].full != 0;
        if waits && !after(self.groups[group].start, start) {
            self.insert(class);
            return;
        }
        if waits {
            self.groups[group].extend_to(from, slot);
            self.sets.iter_mut().for_each(|set| *set &= !(1 << group));
        } else if self.sets[READY] == 0 && after(from, self.virtual_time) {
            // Nobody waits at all: time is where the first one starts.
            self.virtual_time = from;
        }
        self.groups[group].begin_at(from, slot);
        let state = self.state(group);
        self.sets[state] |= 1 << group;
        self.insert(class);
    }

    /// The class that is [`next`](Self::next) sent its head, and virtual time goes on by `passed`.
    /// `then`: the step of its new head and its group, if it has one.
    pub(super) fn served(&mut self, passed: u64, then: Option<(u64, usize)>) {
        let Some(group) = first(self.sets[READY]) else { return };
        let slot = slot(group);
        let class = usize::from(self.groups[group].head());
        let was = self.virtual_time;
        self.virtual_time = was.wrapping_add(passed);
        let stays = then.filter(|(_, next)| *next == group);
        let stamp = &mut self.stamps[class];
        stamp.start = stamp.finish;
        if let Some((step, _)) = stays {
            stamp.finish = stamp.start.wrapping_add(step);
        }
        let start = stamp.start;
        if stays.is_none() || begin(start, slot) != self.groups[group].start {
            self.remove_next(group);
            if stays.is_some() {
                self.insert(class);
            }
            self.front_changed(group);
        }
        self.make_eligible(was);
        if let (None, Some((step, other))) = (stays, then) {
            self.enter(class, step, other);
        }
    }

    /// Nobody waits any longer.
    pub(super) fn clear(&mut self) {
        *self.groups = [Group::EMPTY; GROUPS];
        self.sets = [0; 4];
    }

    /// Puts a class into its group, in the slot of its start.
    fn insert(&mut self, class: usize) {
        let Stamp { start, group, .. } = self.stamps[class];
        let (slot, of) = (slot(group), &mut self.groups[group]);
        let away = begin(start, slot).wrapping_sub(of.start) >> slot;
        // Further away is nobody whose longest packet is what it says; such a one starts earlier.
        let away = away.min(u64::from(SLOTS - 1)) as u32;
        let place = of.place(away);
        self.stamps[class].next = core::mem::replace(&mut of.slots[place], class as u16);
        of.full |= 1 << away;
    }

    /// Takes the class that goes next out of its group.
    fn remove_next(&mut self, group: usize) {
        let of = &mut self.groups[group];
        let next = self.stamps[usize::from(of.head())].next;
        of.slots[of.front as usize] = next;
        if next == NONE {
            of.full &= !1;
        }
    }

    /// The class at the front of a ready group left it: who is at the front now, and whom does the
    /// group block no longer?
    fn front_changed(&mut self, group: usize) {
        let slot = slot(group);
        let (was, finish) = (self.groups[group].start, self.groups[group].finish);
        match self.groups[group].skip_empty() {
            None => self.sets[READY] &= !(1 << group),
            Some(class) => {
                let start = begin(self.stamps[class].start, slot);
                if start == was {
                    return;
                }
                self.groups[group].begin_at(start, slot);
                self.sets[READY] &= !(1 << group);
                let state = self.state(group);
                self.sets[state] |= 1 << group;
            }
        }
        let above = self.sets[READY] & (u32::MAX << (group + 1));
        let blocks = |other: usize| !after(self.groups[other].finish, finish);
        if !first(above).is_some_and(blocks) {
            let below = (1 << group) - 1;
            self.move_groups(below, BLOCKED, READY);
            self.move_groups(below, EARLY_AND_BLOCKED, EARLY);
        }
    }

    /// The set that a group belongs to, in none of which it is.
    fn state(&self, group: usize) -> usize {
        let Group { start, finish, .. } = self.groups[group];
        let longer = self.sets[READY] & (u32::MAX << group);
        let blocks = |other: usize| after(finish, self.groups[other].finish);
        let blocked = first(longer).is_some_and(blocks);
        let early = after(start, self.virtual_time);
        (if early { EARLY } else { 0 }) | (if blocked { BLOCKED } else { 0 })
    }

    fn move_groups(&mut self, which: u32, from: usize, to: usize) {
        let moved = self.sets[from] & which;
        self.sets[from] &= !moved;
        self.sets[to] |= moved;
    }

    /// Virtual time went on from `was`: groups that it reached are eligible. It goes on to the
    /// first start where nobody would be.
    fn make_eligible(&mut self, was: u64) {
        let early = self.sets[EARLY] | self.sets[EARLY_AND_BLOCKED];
        let Some(earliest) = first(early) else { return };
        let start = self.groups[earliest].start;
        if self.sets[READY] == 0 && after(start, self.virtual_time) {
            self.virtual_time = start;
        }
        // Starts are begins of slots. An early group starts in the slot after the present one, so
        // it is reached when its slot's number changes, which a change of any higher bit is.
        let changed = (self.virtual_time ^ was) >> SHORTEST_SLOT;
        let reached = (u64::BITS - changed.leading_zeros()).min(GROUPS as u32);
        let groups = (1 << reached) - 1;
        self.move_groups(groups, EARLY, READY);
        self.move_groups(groups, EARLY_AND_BLOCKED, BLOCKED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who goes next, of classes that come and go by a fixed pattern, from this time on.
    fn order(from: u64) -> Vec<usize> {
        let mut groups = Groups::new(8);
        groups.virtual_time = from;
        let step = |class: usize, n: u64| ((1 << 14) + n * 977 % 4_096) << (2 * class);
        let waits = |class: usize, n: usize| !(n / 7 + class).is_multiple_of(5);
        let mut order = Vec::new();
        let mut inside = [false; 8];
        for n in 0..4_000 {
            for (class, inside) in inside.iter_mut().enumerate() {
                if waits(class, n) && !core::mem::replace(inside, true) {
                    groups.enter(class, step(class, n as u64), group_of(step(class, 1_000)));
                }
            }
            let class = groups.next().expect("somebody waits");
            order.push(class);
            inside[class] = waits(class, n + 1);
            let then = (step(class, n as u64 + 1), group_of(step(class, 1_000)));
            groups.served(1 << 12, inside[class].then_some(then));
        }
        order
    }

    /// At weight 1 virtual time wraps after 16 TB.
    #[test]
    fn times_that_wrap_change_nothing() {
        let usual = order(0);
        assert!((0..8).all(|class| usual.contains(&class)), "all had a turn");
        for before in [1u64 << 40, 1 << 42] {
            assert_eq!(usual, order(before.wrapping_neg()));
        }
    }
}
