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

use std::collections::VecDeque;

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

/// A queue of events. Events carry indices only: 24 bytes each with their times.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The present: that of the event taken last.
    now: Nanos,
    /// Events of the present.
    due: VecDeque<Event>,
    /// Later events: by the highest digit in which they differ from the present, and by that digit.
    /// Those of a wheel have the higher digits of the present, and there is none whose digit is the
    /// present's or below.
    slots: Vec<Vec<(Nanos, Event)>>,
    /// Which slots of a wheel are not empty, and which wheels.
    filled: [u64; WHEELS],
    wheels: u32,
    told: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        let slots = (0..WHEELS * SLOTS).map(|_| Vec::new()).collect();
        let (now, due) = (Nanos::ZERO, VecDeque::new());
        Self { now, due, slots, filled: [0; WHEELS], wheels: 0, told: 0 }
    }
}

impl EventQueue {
    /// Something happens at `at`, or now if that has passed.
    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, event: Event) {
        self.told += 1;
        self.put(at.max(self.now), event);
    }

    #[inline]
    fn put(&mut self, at: Nanos, event: Event) {
        let Some(bit) = (at.0 ^ self.now.0).checked_ilog2() else {
            self.due.push_back(event);
            return;
        };
        let wheel = bit / DIGIT;
        let slot = (at.0 >> (wheel * DIGIT)) as usize % SLOTS;
        self.slots[wheel as usize * SLOTS + slot].push((at, event));
        self.filled[wheel as usize] |= 1 << slot;
        self.wheels |= 1 << wheel;
    }

    /// The next thing, if it happens at `until` or before.
    #[inline]
    pub(crate) fn pop_until(&mut self, until: Nanos) -> Option<(Nanos, Event)> {
        if self.due.is_empty()
            && let Some(only) = self.go_on(until)
        {
            return Some((self.now, only));
        }
        if self.now > until {
            return None;
        }
        self.due.pop_front().map(|event| (self.now, event))
    }

    /// One more thing that happens at the same instant as the one before.
    #[inline]
    pub(crate) fn pop_now(&mut self) -> Option<Event> {
        self.due.pop_front()
    }

    /// Makes the time of the next event the present, if it is not after `until`. Gives the event if
    /// there is one of that time; several are due then.
    #[inline]
    fn go_on(&mut self, until: Nanos) -> Option<Event> {
        let wheel = self.wheels.trailing_zeros() as usize;
        let filled = self.filled.get_mut(wheel)?;
        let slot = filled.trailing_zeros();
        // The earliest is here, and all of its instant with it.
        let waiting = &mut self.slots[wheel * SLOTS + slot as usize];
        let earliest = waiting.iter().map(|(at, _)| *at).min()?;
        if earliest > until {
            return None;
        }
        self.now = earliest;
        *filled &= !(1 << slot);
        if *filled == 0 {
            self.wheels &= !(1 << wheel);
        }
        if let [(_, only)] = waiting[..] {
            waiting.clear();
            return Some(only);
        }
        // They share this digit and the higher ones with the earliest: all go to lower wheels.
        let mut spread = std::mem::take(waiting);
        for (at, event) in spread.drain(..) {
            self.put(at, event);
        }
        // The memory of many events is not kept for a turn that may be far: with many flows that
        // would be most of the queue's.
        if spread.capacity() <= SLOTS {
            self.slots[wheel * SLOTS + slot as usize] = spread;
        }
        None
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

    #[test]
    fn events_come_in_the_order_of_time_and_then_as_told() {
        let mut queue = EventQueue::default();
        for (at, n) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            queue.push(Nanos(at), Event::Source(n));
        }
        let mut order = Vec::new();
        while let Some((at, Event::Source(n))) = queue.pop_until(Nanos(4)) {
            order.push((at.0, n));
        }
        assert_eq!(order, [(3, 1), (3, 3), (4, 4)]);
        assert_eq!(queue.pop_now(), None);
        assert_eq!(queue.pop_until(Nanos(5)), Some((Nanos(5), Event::Source(0))));
        assert_eq!(queue.pop_now(), Some(Event::Source(2)));
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
                        prop_assert_eq!(queue.pop_until(Nanos(earliest.0 - 1)), None);
                    }
                    let Some((at, Event::Source(n))) = queue.pop_until(Nanos::MAX) else { break };
                    let first = expected.iter().enumerate().min_by_key(|(_, told)| **told)
                        .map(|(i, _)| i);
                    prop_assert_eq!(first.map(|i| expected.remove(i)), Some((at, n)));
                    now = at;
                    taken.push(n);
                }
            }
            prop_assert_eq!(expected.is_empty(), queue.pop_until(Nanos::MAX).is_none());
        }
    }
}
