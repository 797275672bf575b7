//! The events to come, in the order of their times; those of one instant in the order in which they
//! were told.
//!
//! Since time never goes back, an event need not be compared with others when it is told: it is put
//! into a slot by its time, behind what was told before.
//!
//! - Most is due within milliseconds. That lies in a *ring* of slots of 4 us each, which reaches to
//!   the end of the next *window* of 17 ms at least: a calendar (Brown: Calendar Queues, 1988). An
//!   event is mostly alone in its slot, and then it is put there and taken from there, and that was
//!   all.
//! - Events that share a slot of the ring are put aside again when its turn comes, and what lies
//!   beyond the ring is when the next window's turn comes. Both lie in wheels of wheels (Varghese,
//!   Lauck: Hashed and Hierarchical Timing Wheels, 1987), by the highest digit, to base 64, in
//!   which their number differs from the present one.
//!
//! Where an event lies follows from its time and the present. So all of an instant lie in the same
//! list, in the order in which they were told, and moves keep that order.

use evenkeel_core::Nanos;

/// What happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// A frame comes out of a direction of a wire: the direction, and the frame's place in the
    /// store.
    Arrival(u32, u32),
    /// A router asked to be called.
    Router(u32),
    /// The next packet of a source is due.
    Source(u32),
    /// An endpoint asked to be called.
    Endpoint(u32),
    /// A conversation begins.
    Begin(u32),
    /// A conversation's traffic stops.
    End(u32),
}

/// log2 of the nanoseconds of a slot of the ring.
const GRAIN: u32 = 12;
/// log2 of the nanoseconds of a window. The ring holds two.
const WINDOW: u32 = 24;
const RING: usize = 1 << (WINDOW + 1 - GRAIN);
/// log2 of the slots of a wheel.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// Digits of a time within a slot of the ring.
const FINE: usize = GRAIN.div_ceil(DIGIT) as usize;
/// Digits of the number of a window.
const FAR: usize = (u64::BITS - WINDOW).div_ceil(DIGIT) as usize;
const WORD: usize = u64::BITS as usize;
const WORDS: usize = RING / WORD;

/// No event: the first of all places is none's.
const NONE: u32 = 0;

/// An event with its time: 24 bytes. Lists are rings: the last one's `next` is the first.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    event: Event,
    next: u32,
}

impl Waiting {
    const NOBODY: Self = Self { at: Nanos::ZERO, event: Event::Router(0), next: NONE };
}

/// Lists by the highest digit in which a number differs from the present one, and by that digit.
/// All numbers of a wheel have the higher digits of the present one, and none has a digit there
/// that is the present one's or below.
#[derive(Debug)]
struct Wheels<const N: usize> {
    /// The last event of each list.
    slots: [[u32; SLOTS]; N],
    /// Which slots of a wheel are not empty.
    filled: [u64; N],
}

impl<const N: usize> Wheels<N> {
    const EMPTY: Self = Self { slots: [[NONE; SLOTS]; N], filled: [0; N] };

    /// The wheel and the slot of a number that differs from the present one.
    fn place(number: u64, present: u64) -> (usize, usize) {
        let wheel = (number ^ present).ilog2() / DIGIT;
        (wheel as usize, (number >> (wheel * DIGIT)) as usize % SLOTS)
    }

    /// The list for such a number.
    fn list(&mut self, number: u64, present: u64) -> &mut u32 {
        let (wheel, slot) = Self::place(number, present);
        self.filled[wheel] |= 1 << slot;
        &mut self.slots[wheel][slot]
    }

    /// Empties the list of such a number.
    fn take(&mut self, number: u64, present: u64) -> u32 {
        let (wheel, slot) = Self::place(number, present);
        self.filled[wheel] &= !(1 << slot);
        std::mem::replace(&mut self.slots[wheel][slot], NONE)
    }

    /// The list with the least numbers, and its wheel.
    fn first(&self) -> Option<(u32, u32)> {
        let (wheel, filled) = (0..).zip(&self.filled).find(|(_, filled)| **filled != 0)?;
        Some((wheel, self.slots[wheel as usize][filled.trailing_zeros() as usize]))
    }
}

/// A queue of events.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The present: that of the event taken last, or later if nothing happens until then.
    now: Nanos,
    /// Events of the present, as all lists by the last of them.
    due: u32,
    /// Places among those that wait whose events have happened.
    free: u32,
    /// The window of the present, and the last one whose events are in the ring.
    window: u64,
    reached: u64,
    /// Events up to the end of the next window, but those that would lie in the present slot; and
    /// which slots are not empty.
    ring: Box<[u32; RING]>,
    filled: Box<[u64; WORDS]>,
    /// Events of the present slot, by their time.
    fine: Wheels<FINE>,
    /// Events beyond the ring, by their window.
    far: Box<Wheels<FAR>>,
    /// All events that wait. They stay where they are when they go from list to list.
    waiting: Vec<Waiting>,
    told: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self {
            now: Nanos::ZERO,
            due: NONE,
            free: NONE,
            window: 0,
            reached: 1,
            ring: Box::new([NONE; RING]),
            filled: Box::new([0; WORDS]),
            fine: Wheels::EMPTY,
            far: Box::new(Wheels::EMPTY),
            waiting: vec![Waiting::NOBODY],
            told: 0,
        }
    }
}

impl EventQueue {
    /// Something happens at `at`, or now if that has passed.
    #[inline(always)] // or the event is written and read again in pieces
    pub(crate) fn push(&mut self, at: Nanos, event: Event) {
        if self.free == NONE {
            self.make_place();
        }
        let (at, place) = (at.max(self.now), self.free);
        let waiting = &mut self.waiting[place as usize];
        self.free = waiting.next;
        *waiting = Waiting { at, event, next: place };
        self.told += 1;
        self.put(at, place);
    }

    /// Room for another event if more wait than ever before.
    #[cold]
    fn make_place(&mut self) {
        self.free = self.waiting.len() as u32;
        self.waiting.push(Waiting::NOBODY);
    }

    /// Puts the event at `place`, a list of its own, where its time belongs.
    #[inline]
    fn put(&mut self, at: Nanos, place: u32) {
        let list = if (at.0 >> WINDOW) - self.window > 1 {
            self.far.list(at.0 >> WINDOW, self.reached)
        } else if (at.0 ^ self.now.0) >> GRAIN != 0 {
            let slot = slot_of(at);
            self.filled[slot / WORD] |= 1 << (slot % WORD);
            &mut self.ring[slot]
        } else if at != self.now {
            self.fine.list(at.0, self.now.0)
        } else {
            &mut self.due
        };
        let last = std::mem::replace(list, place);
        if last != NONE {
            let first = std::mem::replace(&mut self.waiting[last as usize].next, place);
            self.waiting[place as usize].next = first;
        }
    }

    /// The present.
    pub(crate) const fn now(&self) -> Nanos {
        self.now
    }

    /// Makes the time of the next event the present, unless it is after `until`: then there is
    /// nothing to be taken, and nothing may be told before `until`.
    #[inline]
    pub(crate) fn go_on(&mut self, until: Nanos) -> bool {
        if self.due != NONE {
            return self.now <= until;
        }
        if self.fine.filled == [0; FINE]
            && let Some(slot) = self.first_of_ring()
        {
            let last = self.ring[slot];
            let Waiting { at, next, .. } = self.waiting[last as usize];
            if next == last {
                if at > until {
                    return false;
                }
                self.empty(slot);
                self.advance(at);
                self.due = last;
                return true;
            }
        }
        self.go_on_by_parts(until)
    }

    /// The slot of the ring whose turn comes first.
    #[inline]
    fn first_of_ring(&self) -> Option<usize> {
        let present = slot_of(self.now);
        let mut nth = present / WORD;
        let mut word = self.filled[nth] & u64::MAX << (present % WORD);
        while word == 0 {
            nth = (nth + 1) % WORDS;
            word = self.filled[nth];
            // All around: what lies before the present slot in its word comes last.
            if word == 0 && nth == present / WORD {
                return None;
            }
        }
        Some(nth * WORD + word.trailing_zeros() as usize)
    }

    fn empty(&mut self, slot: usize) {
        self.ring[slot] = NONE;
        self.filled[slot / WORD] &= !(1 << (slot % WORD));
    }

    /// Time goes on up to `at`, before which nothing happens.
    #[inline]
    fn advance(&mut self, at: Nanos) {
        self.now = at;
        if at.0 >> WINDOW != self.window {
            self.turn();
        }
    }

    /// A window begins: what lies in it and in the next one comes into the ring.
    #[cold]
    fn turn(&mut self) {
        self.window = self.now.0 >> WINDOW;
        for window in [self.window, self.window + 1] {
            if window > self.reached {
                let last = self.far.take(window, self.reached);
                self.reached = window;
                self.spread(last);
            }
        }
    }

    /// As [`Self::go_on`], when the next event shares its slot with others or lies beyond the ring.
    #[inline(never)]
    fn go_on_by_parts(&mut self, until: Nanos) -> bool {
        while self.due == NONE {
            if let Some((wheel, last)) = self.fine.first() {
                let Waiting { at, next, .. } = self.waiting[last as usize];
                // The last digit tells all of an instant from others.
                let whole = next == last || wheel == 0;
                let at = if whole { at } else { begin(at, wheel * DIGIT) };
                if at > until {
                    return false;
                }
                let filled = &mut self.fine.filled[wheel as usize];
                let slot = filled.trailing_zeros();
                *filled &= !(1 << slot);
                self.fine.slots[wheel as usize][slot as usize] = NONE;
                self.now = at;
                if whole {
                    self.due = last;
                } else {
                    self.spread(last);
                }
            } else if let Some(slot) = self.first_of_ring() {
                let last = self.ring[slot];
                let at = begin(self.waiting[last as usize].at, GRAIN);
                if at > until {
                    return false;
                }
                self.empty(slot);
                self.advance(at);
                self.spread(last);
            } else if let Some((_, last)) = self.far.first() {
                let at = self.earliest(last);
                if at > until {
                    return false;
                }
                self.advance(at);
            } else {
                return false;
            }
        }
        self.now <= until
    }

    /// The earliest time in a list.
    fn earliest(&self, last: u32) -> Nanos {
        let Waiting { mut at, next: mut place, .. } = self.waiting[last as usize];
        while place != last {
            let waiting = &self.waiting[place as usize];
            (at, place) = (at.min(waiting.at), waiting.next);
        }
        at
    }

    /// Takes a list apart: each of its events is put where it belongs now.
    fn spread(&mut self, last: u32) {
        let mut place = self.waiting[last as usize].next;
        while place != NONE {
            let waiting = &mut self.waiting[place as usize];
            let (at, next) = (waiting.at, std::mem::replace(&mut waiting.next, place));
            self.put(at, place);
            place = if place == last { NONE } else { next };
        }
    }

    /// Takes the next event of the present.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let last = self.due;
        if last == NONE {
            return None;
        }
        let place = self.waiting[last as usize].next;
        let waiting = &mut self.waiting[place as usize];
        let (event, next) = (waiting.event, std::mem::replace(&mut waiting.next, self.free));
        self.free = place;
        if place == last {
            self.due = NONE;
        } else {
            self.waiting[last as usize].next = next;
        }
        Some(event)
    }

    /// Something was told that needed no place here.
    pub(crate) const fn tell(&mut self) {
        self.told += 1;
    }

    /// Events told so far.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }
}

/// Where a time lies in the ring.
const fn slot_of(at: Nanos) -> usize {
    (at.0 >> GRAIN) as usize % RING
}

/// The time with its last `bits` bits cleared.
const fn begin(at: Nanos, bits: u32) -> Nanos {
    Nanos(at.0 >> bits << bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pop_until(queue: &mut EventQueue, until: Nanos) -> Option<(Nanos, Event)> {
        if !queue.go_on(until) {
            return None;
        }
        queue.pop().map(|event| (queue.now(), event))
    }

    #[test]
    fn events_come_in_the_order_of_time_and_then_as_told() {
        let mut queue = EventQueue::default();
        for (at, n) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            queue.push(Nanos(at), Event::Source(n));
        }
        let mut order = Vec::new();
        while let Some((at, Event::Source(n))) = pop_until(&mut queue, Nanos(4)) {
            order.push((at.0, n));
        }
        assert_eq!(order, [(3, 1), (3, 3), (4, 4)]);
        assert_eq!(queue.pop(), None);
        assert_eq!(pop_until(&mut queue, Nanos(5)), Some((Nanos(5), Event::Source(0))));
        assert_eq!(queue.pop(), Some(Event::Source(2)));
        assert_eq!(queue.told(), 5);
    }

    proptest! {
        /// Against a sorted list, with events told while others are taken.
        #[test]
        fn it_is_a_stable_sort_by_time(
            told in prop::collection::vec((prop_oneof![0u64..4, 0u64..5_000, 0u64..1 << 26,
                (0u64..4).prop_map(|n| (1 << WINDOW) + n), 0u64..u64::MAX / 4], 0u8..3), 1..200),
        ) {
            let (mut queue, mut expected) = (EventQueue::default(), Vec::new());
            let (mut now, mut taken) = (Nanos::ZERO, Vec::new());
            for (n, (ahead, take)) in told.iter().enumerate() {
                let at = now.saturating_add(Nanos(*ahead));
                queue.push(at, Event::Source(n as u32));
                expected.push((at, n as u32));
                for _ in 0..*take {
                    // Not to be found before its time, and told to wait without harm.
                    let earliest = expected.iter().map(|(at, _)| *at).min();
                    if let Some(earliest) = earliest.filter(|at| *at > Nanos::ZERO && *at > now) {
                        prop_assert_eq!(pop_until(&mut queue, Nanos(earliest.0 - 1)), None);
                    }
                    let next = pop_until(&mut queue, Nanos::MAX);
                    let Some((at, Event::Source(n))) = next else { break };
                    let first = expected.iter().enumerate().min_by_key(|(_, told)| **told)
                        .map(|(i, _)| i);
                    prop_assert_eq!(first.map(|i| expected.remove(i)), Some((at, n)));
                    now = at;
                    taken.push(n);
                }
            }
            prop_assert_eq!(expected.is_empty(), pop_until(&mut queue, Nanos::MAX).is_none());
        }
    }
}
