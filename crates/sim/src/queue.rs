//! The events to come, in the order of their times; those of one instant in the order in which they were told.
//!
//! A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan: Faster Algorithms for the Shortest Path Problem, 1990): since time never goes back, an event
//! need not be compared with others when it is told. It is put aside by the highest bit in which its time differs from the present; when
//! that bit's turn comes, what lies there is spread over the bits below. An event is moved at most once per bit of the time it lies ahead, always
//! sequentially. Moves keep the order, so events of one instant stay in the order in which they were told without a number of their own.

use std::collections::VecDeque;

use evenkeel_core::Nanos;

/// What happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// A frame comes out of a direction of a wire: the direction, and the frame's place in the store.
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

/// A queue of events. Events carry indices only: 24 bytes each with their times.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The present: that of the event taken last.
    now: Nanos,
    /// Events of the present.
    due: VecDeque<Event>,
    /// Later events, by the highest bit in which their time differs from the present.
    later: [Vec<(Nanos, Event)>; 64],
    /// The bits for which there are some.
    bits: u64,
    told: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        let later = std::array::from_fn(|_| Vec::new());
        Self { now: Nanos::ZERO, due: VecDeque::new(), later, bits: 0, told: 0 }
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
        match (at.0 ^ self.now.0).checked_ilog2() {
            None => self.due.push_back(event),
            Some(bit) => {
                self.later[bit as usize].push((at, event));
                self.bits |= 1 << bit;
            }
        }
    }

    /// The next thing, if it happens at `until` or before.
    pub(crate) fn pop_until(&mut self, until: Nanos) -> Option<(Nanos, Event)> {
        if self.due.is_empty() && !self.go_on(until) || self.now > until {
            return None;
        }
        self.due.pop_front().map(|event| (self.now, event))
    }

    /// One more thing that happens at the same instant as the one before.
    #[inline]
    pub(crate) fn pop_now(&mut self) -> Option<Event> {
        self.due.pop_front()
    }

    /// Makes the time of the next event the present, if it is not after `until`.
    fn go_on(&mut self, until: Nanos) -> bool {
        // Below the lowest bit nothing waits, so the earliest is there, and all of its instant with it.
        let bit = self.bits.trailing_zeros();
        if bit == u64::BITS {
            return false;
        }
        let mut waiting = std::mem::take(&mut self.later[bit as usize]);
        let earliest = waiting.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::MAX);
        let goes_on = earliest <= until;
        if goes_on {
            self.now = earliest;
            self.bits &= !(1 << bit);
            // All go to lower bits: they agree with the earliest in this one and those above.
            for (at, event) in waiting.drain(..) {
                self.put(at, event);
            }
        }
        self.later[bit as usize] = waiting;
        goes_on
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
            told in prop::collection::vec((prop_oneof![0u64..4, 0u64..5_000, 0u64..u64::MAX / 4], 0u8..3), 1..200),
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
                    let first = expected.iter().enumerate().min_by_key(|(_, told)| **told).map(|(i, _)| i);
                    prop_assert_eq!(first.map(|i| expected.remove(i)), Some((at, n)));
                    now = at;
                    taken.push(n);
                }
            }
            prop_assert_eq!(expected.is_empty(), queue.pop_until(Nanos::MAX).is_none());
        }
    }
}
