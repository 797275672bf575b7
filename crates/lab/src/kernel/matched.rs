//! What came into a router and what left it, laid over each other: pure, so that it can be tested
//! without a kernel.
//!
//! A packet is known by its bytes without what a router changes. One that has not left when the
//! queues are empty was dropped; what is counted of the queue is therefore worked out after the run
//! only.

use std::collections::{HashMap, VecDeque};

use evenkeel_core::measure::Histogram;
use evenkeel_core::{Bytes, Nanos};
use evenkeel_router::snapshot::ClassSnapshot;

/// The reason that drops of the kernel's disciplines are counted under.
const REASON: &str = "linux";

/// A packet that came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Nanos,
    /// What it is known by.
    pub(super) key: u64,
    /// The link that leads to its destination, and its class there.
    pub(super) place: Place,
    /// Length of the IP packet.
    pub(super) bytes: u32,
    /// Whether it was marked (ECN) when it came.
    pub(super) marked: bool,
}

/// A link and a class, both counted from 0.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Place {
    pub(super) link: usize,
    pub(super) class: usize,
}

/// A packet that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) at: Nanos,
    pub(super) key: u64,
    pub(super) link: usize,
    pub(super) marked: bool,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fate {
    at: Nanos,
    /// When it left; `None`: it was dropped.
    left: Option<Nanos>,
    place: Place,
    bytes: u32,
    /// Whether it was marked here.
    marked: bool,
}

impl Fate {
    /// Whether it left by this link, or would have.
    pub(super) const fn is_of(&self, link: usize) -> bool {
        self.place.link == link
    }

    pub(super) const fn is_dropped(&self) -> bool {
        self.left.is_none()
    }
}

/// What became of each packet that came in. What the router itself sent is left out.
pub(super) fn fates(mut arrivals: Vec<Arrival>, mut departures: Vec<Departure>) -> Vec<Fate> {
    arrivals.sort_by_key(|arrival| arrival.at);
    departures.sort_by_key(|departure| departure.at);
    let mut fates: Vec<Fate> = Vec::with_capacity(arrivals.len());
    let mut inside: HashMap<u64, VecDeque<usize>> = HashMap::new();
    for arrival in arrivals {
        inside.entry(arrival.key).or_default().push_back(fates.len());
        let Arrival { at, place, bytes, marked, .. } = arrival;
        fates.push(Fate { at, left: None, place, bytes, marked });
    }
    for departure in departures {
        let Some(fate) = inside.get_mut(&departure.key).and_then(VecDeque::pop_front) else {
            continue;
        };
        let fate = &mut fates[fate];
        fate.left = Some(departure.at.max(fate.at));
        fate.place.link = departure.link;
        fate.marked = departure.marked && !fate.marked;
    }
    fates
}

/// What is counted of a place so far.
struct Meter {
    class: ClassSnapshot,
    delays: Histogram,
    /// When the length of the queue last changed, and the area below it until then, in packets
    /// times ns.
    changed: Nanos,
    area: u128,
}

impl Meter {
    fn new(name: &str) -> Self {
        let class = ClassSnapshot { name: name.to_owned(), ..ClassSnapshot::default() };
        Self { class, delays: Histogram::new(), changed: Nanos::ZERO, area: 0 }
    }

    fn until(&mut self, at: Nanos) {
        let passed = at.saturating_sub(self.changed).0;
        self.area += u128::from(self.class.queued_packets) * u128::from(passed);
        self.changed = at;
    }

    fn came(&mut self, fate: &Fate) {
        let bytes = Bytes(u64::from(fate.bytes));
        self.class.counts.in_packets += 1;
        self.class.counts.in_segments += 1;
        self.class.counts.in_bytes += bytes;
        if fate.is_dropped() {
            self.class.counts.dropped_segments += 1;
            *self.class.dropped.entry(REASON.to_owned()).or_default() += 1;
            return;
        }
        self.until(fate.at);
        self.class.queued_packets += 1;
        self.class.queued_bytes += bytes.0;
        self.class.queue_most = self.class.queue_most.max(self.class.queued_packets);
    }

    fn left(&mut self, fate: &Fate, at: Nanos) {
        let bytes = Bytes(u64::from(fate.bytes));
        self.until(at);
        self.class.queued_packets -= 1;
        self.class.queued_bytes -= bytes.0;
        let counts = &mut self.class.counts;
        counts.out_packets += 1;
        counts.sent_packets += 1;
        counts.sent_segments += 1;
        counts.out_bytes += bytes;
        counts.sent_bytes += bytes;
        counts.marked_packets += u64::from(fate.marked);
        let delay = at - fate.at;
        self.class.delay_sum_ns += delay.0;
        self.class.delay_max_ns = self.class.delay_max_ns.max(delay.0);
        self.delays.record(delay);
    }

    fn told(&mut self, at: Nanos) -> ClassSnapshot {
        self.until(at);
        self.class.counts.queue_us = (self.area / 1_000) as u64;
        let buckets = self.delays.buckets();
        self.class.delay_buckets =
            buckets.map(|(index, packets)| (Histogram::bounds(index).0.0, packets)).collect();
        self.class.clone()
    }
}

/// The counters of the classes of a link at each of some instants, in order of time.
pub(super) fn at_times(
    fates: &[Fate],
    link: usize,
    classes: &[&str],
    times: &[Nanos],
) -> Vec<Vec<ClassSnapshot>> {
    let mut events: Vec<(Nanos, bool, &Fate)> = Vec::new();
    for fate in fates.iter().filter(|fate| fate.is_of(link)) {
        events.push((fate.at, false, fate));
        events.extend(fate.left.map(|left| (left, true, fate)));
    }
    events.sort_by_key(|(at, leaves, _)| (*at, *leaves));
    let mut meters: Vec<Meter> = classes.iter().map(|name| Meter::new(name)).collect();
    let mut events = events.into_iter().peekable();
    let mut all = Vec::with_capacity(times.len());
    for time in times {
        while let Some((at, leaves, fate)) = events.next_if(|(at, ..)| at <= time) {
            let meter = &mut meters[fate.place.class];
            if leaves {
                meter.left(fate, at);
            } else {
                meter.came(fate);
            }
        }
        all.push(meters.iter_mut().map(|meter| meter.told(*time)).collect());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn came(at_ms: u64, key: u64, class: usize) -> Arrival {
        let place = Place { link: 0, class };
        Arrival { at: Nanos(at_ms * MS), key, place, bytes: 1_000, marked: false }
    }

    fn left(at_ms: u64, key: u64) -> Departure {
        Departure { at: Nanos(at_ms * MS), key, link: 0, marked: key == 3 }
    }

    #[test]
    fn delays_queues_drops_and_marks_are_those_of_the_packets() {
        // Two alike, one that is marked, one that never leaves, one of the router's own.
        let arrivals = vec![came(1, 7, 0), came(2, 7, 0), came(3, 3, 1), came(4, 9, 0)];
        let departures = vec![left(5, 7), left(9, 7), left(6, 3), left(6, 77)];
        let fates = fates(arrivals, departures);
        let times = [Nanos(4 * MS), Nanos(10 * MS)];
        let told = at_times(&fates, 0, &["a", "b"], &times);
        let [early, late] = [&told[0][0], &told[1][0]];
        assert_eq!((early.in_packets, early.sent_packets, early.queued_packets), (3, 0, 2));
        assert_eq!((late.in_packets, late.sent_packets, late.queued_packets), (3, 2, 0));
        assert_eq!(late.dropped, [(REASON.to_owned(), 1)].into());
        assert_eq!((late.delay_sum_ns, late.delay_max_ns), (11 * MS, 7 * MS));
        // 1 packet from 1 to 2 ms, 2 to 5 ms, 1 to 9 ms.
        assert_eq!((late.queue_us, late.queue_most), (1_000 + 2 * 3_000 + 4_000, 2));
        assert_eq!(late.delay_buckets.iter().map(|(_, n)| n).sum::<u64>(), 2);
        assert_eq!((told[1][1].sent_packets, told[1][1].marked_packets), (1, 1));
        let conserved = |class: &ClassSnapshot| {
            class.in_packets == class.sent_packets + class.dropped_total() + class.queued_packets
        };
        assert!(told.iter().flatten().all(conserved));
    }

    #[test]
    fn a_mark_that_it_came_with_is_not_the_links_and_another_link_sees_nothing() {
        let mut first = came(1, 3, 0);
        first.marked = true;
        let fates = fates(vec![first], vec![left(2, 3)]);
        let of = |link| at_times(&fates, link, &["a"], &[Nanos(9 * MS)])[0][0].clone();
        assert_eq!((of(0).sent_packets, of(0).marked_packets), (1, 0));
        assert_eq!(of(1).in_packets, 0);
    }
}
