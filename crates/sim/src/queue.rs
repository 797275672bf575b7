//! The events to come, in the order of their times; those of one instant in the order in which they
//! were told.
//!
//! A timing wheel of wheels (Varghese, Lauck: Hashed and Hierarchical Timing Wheels, 1987) that
//! jumps to what comes next instead of turning. Since time never goes back, an event need not be
//! compared with others when it is told: it is put aside by the highest digit, to base 64, in which
//! its time differs from the present. When that digit's turn comes, what lies there is put aside
//! again by its lower digits. So an event is moved once per digit at most, mostly once or twice in
//! all. Moves keep the order, so that events of one instant stay in the order in which they were
//! told without a number of their own.

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

/// log2 of the slots of a wheel.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// Digits of a time.
const WHEELS: usize = u64::BITS.div_ceil(DIGIT) as usize;

/// No event.
const NONE: u32 = u32::MAX;

/// An event with its time, and the place of the next one in its list: 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    event: Event,
    next: u32,
}

/// Events in the order in which they were told: the places of the first and of the last.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// A queue of events.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The present: that of the event taken last.
    now: Nanos,
    /// Events of the present.
    due: List,
    /// Later events: by the highest digit in which they differ from the present, and by that digit.
    /// Those of a wheel have the higher digits of the present, and there is none whose digit is the
    /// present's or below.
    slots: Box<[[List; SLOTS]; WHEELS]>,
    /// Which slots of a wheel are not empty, and which wheels.
    filled: [u64; WHEELS],
    wheels: u32,
    /// All events that wait. They stay where they are when they go from list to list. The places of
    /// those that have happened are a list, too.
    waiting: Vec<Waiting>,
    free: u32,
    told: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self {
            now: Nanos::ZERO,
            due: List::EMPTY,
            slots: Box::new([[List::EMPTY; SLOTS]; WHEELS]),
            filled: [0; WHEELS],
            wheels: 0,
            waiting: Vec::new(),
            free: NONE,
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
        *waiting = Waiting { at, event, next: NONE };
        self.told += 1;
        self.put(at, place);
    }

    /// Room for another event if more wait than ever before.
    #[cold]
    fn make_place(&mut self) {
        self.free = self.waiting.len() as u32;
        self.waiting.push(Waiting { at: Nanos::ZERO, event: Event::Router(0), next: NONE });
    }

    /// Puts the event at `place`, behind which there is none, where its time belongs.
    #[inline]
    fn put(&mut self, at: Nanos, place: u32) {
        let list = match (at.0 ^ self.now.0).checked_ilog2() {
            None => &mut self.due,
            Some(bit) => {
                let wheel = bit / DIGIT;
                let slot = (at.0 >> (wheel * DIGIT)) as usize % SLOTS;
                self.filled[wheel as usize] |= 1 << slot;
                self.wheels |= 1 << wheel;
                &mut self.slots[wheel as usize][slot]
            }
        };
        match list.first {
            NONE => list.first = place,
            _ => self.waiting[list.last as usize].next = place,
        }
        list.last = place;
    }

    /// The present.
    pub(crate) const fn now(&self) -> Nanos {
        self.now
    }

    /// Makes the time of the next event the present, unless it is after `until`: then there is
    /// nothing to be taken.
    #[inline]
    pub(crate) fn go_on(&mut self, until: Nanos) -> bool {
        if self.due.first != NONE {
            return self.now <= until;
        }
        let wheel = self.wheels.trailing_zeros() as usize;
        let Some(filled) = self.filled.get_mut(wheel) else { return false };
        let slot = filled.trailing_zeros() as usize;
        // The earliest is here, and all of its instant with it.
        let list = &mut self.slots[wheel][slot];
        let List { first, last } = *list;
        let mut earliest = self.waiting[first as usize].at;
        let mut place = first;
        while place != last {
            let waiting = &self.waiting[place as usize];
            (earliest, place) = (earliest.min(waiting.at), waiting.next);
        }
        earliest = earliest.min(self.waiting[last as usize].at);
        if earliest > until {
            return false;
        }
        self.now = earliest;
        *list = List::EMPTY;
        *filled &= !(1 << slot);
        if *filled == 0 {
            self.wheels &= !(1 << wheel);
        }
        if first == last {
            self.due = List { first, last };
        } else {
            self.spread(first);
        }
        true
    }

    /// Takes a list apart whose events share the digit that they were put aside by, and the higher
    /// ones, with the present: all go to lower wheels.
    fn spread(&mut self, first: u32) {
        let mut place = first;
        while let Some(waiting) = self.waiting.get_mut(place as usize) {
            let (at, next) = (waiting.at, std::mem::replace(&mut waiting.next, NONE));
            self.put(at, place);
            place = next;
        }
    }

    /// Takes the next event of the present.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let place = self.due.first;
        let waiting = self.waiting.get_mut(place as usize)?;
        self.due.first = std::mem::replace(&mut waiting.next, self.free);
        self.free = place;
        Some(waiting.event)
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
            told in prop::collection::vec((prop_oneof![0u64..4, 0u64..5_000, 0u64..u64::MAX / 4],
                0u8..3), 1..200),
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
