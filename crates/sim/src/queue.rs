//! The events to come, in the order of their times; those of one instant in the order in which they were told.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_core::Nanos;

/// What happens.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
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

/// A queue of events. Events carry indices only: 32 bytes each.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    told: u64,
}

impl EventQueue {
    /// Something happens at `at`.
    pub(crate) fn push(&mut self, at: Nanos, event: Event) {
        self.heap.push(Reverse((at, self.told, event)));
        self.told += 1;
    }

    /// When the next thing happens.
    pub(crate) fn next_time(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next thing, if it happens at `at` or before.
    pub(crate) fn pop_until(&mut self, at: Nanos) -> Option<(Nanos, Event)> {
        let Reverse((time, ..)) = self.heap.peek()?;
        if *time > at {
            return None;
        }
        self.heap.pop().map(|Reverse((time, _, event))| (time, event))
    }

    /// Events told so far.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(queue.next_time(), Some(Nanos(5)));
        assert_eq!(queue.pop_until(Nanos(5)), Some((Nanos(5), Event::Source(0))));
        assert_eq!(queue.told(), 5);
    }
}
