//! A link shared by workers: shares, rate, conservation, order, however classes fall on workers and
//! whoever stands still.

use crate::common::{tail, weighted};
use evenkeel_core::schedule::wfq_altq::WfqAltq;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_core::link::{Link, LinkConfig, LinkSink};
use evenkeel_core::packet::Descriptor;
use evenkeel_core::schedule::qfq::QfqConfig;
use evenkeel_core::schedule::shared::Shared;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::settings::{Change, PerClass};
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Packet, Reason, Scheduler, Weight};

pub(crate) const RATE: BitRate = BitRate(1_000_000_000);
pub(crate) const STEP: Nanos = Nanos::from_micros(20);
const PATIENCE: Nanos = Nanos::from_millis(5);

type WorkerLink = Link<Descriptor, AnyScheduler<Descriptor>>;

#[derive(Default)]
pub(crate) struct Out {
    bytes: BTreeMap<u16, u64>,
    packets: u64,
    pub(crate) dropped: u64,
    pub(crate) longest_wait: Nanos,
    last: BTreeMap<u16, Nanos>,
    /// When each packet of a class left.
    times: BTreeMap<u16, Vec<Nanos>>,
}

impl Out {
    pub(crate) fn packets_of(&self, class: u16) -> usize {
        self.times.get(&class).map_or(0, Vec::len)
    }
}

impl LinkSink<Descriptor> for Out {
    fn transmitted(&mut self, at: Nanos, packet: Descriptor) {
        *self.bytes.entry(packet.class().0).or_default() += packet.wire_len().0;
        self.packets += 1;
        self.times.entry(packet.class().0).or_default().push(at);
        self.longest_wait = self.longest_wait.max(at - packet.arrival());
        let last = self.last.entry(packet.class().0).or_default();
        assert!(packet.arrival() >= *last, "a class is one flow here, and keeps its order");
        *last = packet.arrival();
    }
    fn dropped(&mut self, _at: Nanos, _packet: Descriptor, _reason: Reason) {
        self.dropped += 1;
    }
}

pub(crate) fn wfq_altq(weights: &[u32]) -> DisciplineConfig {
    DisciplineConfig::WfqAltq(weighted(weights, tail(100)))
}

pub(crate) fn qfq(weights: &[u32]) -> DisciplineConfig {
    let weight =
        PerClass::new(weights.iter().copied().map(Weight).collect::<Vec<_>>(), Weight(100));
    DisciplineConfig::Qfq(QfqConfig { weight, limit: 100, ..QfqConfig::default() })
}

pub(crate) struct Router {
    pub(crate) shared: Arc<SharedLink>,
    pub(crate) links: Vec<WorkerLink>,
    pub(crate) outs: Vec<Out>,
    offered: u64,
    pub(crate) now: Nanos,
    weights: Vec<u32>,
}

impl Router {
    fn new(workers: usize, weights: &[u32], rate: BitRate) -> Self {
        Self::with(workers, &wfq_altq(weights), weights, rate)
    }

    /// Workers with a discipline that shares by these weights, one for each class.
    pub(crate) fn with(
        workers: usize,
        discipline: &DisciplineConfig,
        weights: &[u32],
        rate: BitRate,
    ) -> Self {
        let shared = Arc::new(SharedLink::new(workers, weights.len(), PATIENCE));
        shared.set_rate(Some(rate));
        let classes = weights.len() as u16;
        let link = |worker| {
            let part = discipline.build_part(classes, Arc::clone(&shared), worker).unwrap();
            Link::new(LinkConfig::paced(rate), part, classes).unwrap()
        };
        Self {
            links: (0..workers).map(link).collect(),
            outs: (0..workers).map(|_| Out::default()).collect(),
            offered: 0,
            now: Nanos::ZERO,
            weights: weights.to_vec(),
            shared,
        }
    }

    pub(crate) fn offer(&mut self, worker: usize, class: u16, bytes: u64) {
        let packet = Descriptor::new(Class(class), Bytes(bytes), self.now);
        let _ = self.links[worker].enqueue(self.now, packet, &mut self.outs[worker]);
        self.offered += 1;
    }

    /// One step of time. `greedy`: (worker, class, bytes) that always have something. Workers in
    /// `asleep` do nothing.
    pub(crate) fn step(&mut self, greedy: &[(usize, u16, u64)], asleep: &[usize]) {
        self.now += STEP;
        for (worker, class, bytes) in
            greedy.iter().copied().filter(|(worker, ..)| !asleep.contains(worker))
        {
            while self.links[worker].scheduler().class_backlog(Class(class)).packets < 60 {
                self.offer(worker, class, bytes);
            }
        }
        for worker in (0..self.links.len()).filter(|worker| !asleep.contains(worker)) {
            self.links[worker].advance(self.now, &mut self.outs[worker]);
        }
    }

    pub(crate) fn run(&mut self, time: Nanos, greedy: &[(usize, u16, u64)], asleep: &[usize]) {
        let end = self.now + time;
        while self.now < end {
            self.step(greedy, asleep);
        }
    }

    pub(crate) fn sent(&self, class: u16) -> u64 {
        self.outs.iter().filter_map(|out| out.bytes.get(&class)).sum()
    }

    /// When the packets of a class left, those of each worker in their order.
    pub(crate) fn times_of(&self, class: u16) -> Vec<Nanos> {
        self.outs.iter().filter_map(|out| out.times.get(&class)).flatten().copied().collect()
    }

    /// Bytes on the wire of all classes that a worker sent.
    pub(crate) fn sent_by(&self, worker: usize) -> u64 {
        self.outs[worker].bytes.values().sum()
    }

    pub(crate) fn total(&self) -> u64 {
        (0..self.weights.len() as u16).map(|class| self.sent(class)).sum()
    }

    pub(crate) fn check_conservation(&self) {
        let held: u64 =
            self.links.iter().map(|link| link.held().queued + link.held().in_ring).sum();
        let out: u64 = self.outs.iter().map(|out| out.packets + out.dropped).sum();
        assert_eq!(self.offered, held + out);
    }

    /// Shares within 1 % of the weights, and the rate, from a point on at which `before` was sent.
    pub(crate) fn check_shares(&self, before: &[u64], time: Nanos) {
        let sent: Vec<u64> = before
            .iter()
            .enumerate()
            .map(|(class, before)| self.sent(class as u16) - before)
            .collect();
        let all: u64 = sent.iter().sum();
        let weights: u32 = self.weights.iter().sum();
        for (sent, weight) in sent.iter().zip(&self.weights) {
            let fair = all as f64 * f64::from(*weight) / f64::from(weights);
            assert!((*sent as f64 / fair - 1.0).abs() < 0.01, "{sent} of {all} at weight {weight}");
        }
        let wire = RATE.0 as f64 / 8e9 * time.0 as f64;
        assert!((all as f64 / wire - 1.0).abs() < 0.005, "{all} of {wire}");
    }

    pub(crate) fn all_sent(&self) -> Vec<u64> {
        (0..self.weights.len() as u16).map(|class| self.sent(class)).collect()
    }
}

#[test]
fn shares_and_rate_are_the_links_however_classes_fall_on_workers() {
    let spreads: [&[(usize, u16, u64)]; 5] = [
        // Each class at a worker of its own.
        &[(0, 0, 1500), (1, 1, 1500), (2, 2, 1500)],
        // One worker has all of two classes, and all have the third.
        &[(0, 0, 1500), (0, 1, 1500), (0, 2, 1500), (1, 2, 1500), (2, 2, 1500)],
        // All everywhere.
        &[
            (0, 0, 1500),
            (1, 0, 1500),
            (2, 0, 1500),
            (0, 1, 1500),
            (1, 1, 1500),
            (2, 1, 1500),
            (0, 2, 1500),
            (1, 2, 1500),
            (2, 2, 1500),
        ],
        // One worker alone.
        &[(1, 0, 1500), (1, 1, 1500), (1, 2, 1500)],
        // Sizes that differ.
        &[(0, 0, 64), (2, 0, 700), (1, 1, 1500), (2, 2, 400)],
    ];
    let weights = [100, 200, 700];
    for discipline in [wfq_altq(&weights), qfq(&weights)] {
        for greedy in spreads {
            let mut router = Router::with(3, &discipline, &weights, RATE);
            router.run(Nanos::from_millis(5), greedy, &[]);
            let before = router.all_sent();
            router.run(Nanos::from_millis(100), greedy, &[]);
            router.check_shares(&before, Nanos::from_millis(100));
            router.check_conservation();
        }
    }
}

/// The theorem of docs/many-cores.md: of two classes that always ask for more, over any time, not
/// only over long ones.
#[test]
fn two_classes_differ_by_a_window_and_a_packet_of_each_worker_over_any_time() {
    // What a window of eight long frames carries.
    const WINDOW: f64 = 8.0 * 1_538.0;
    let mut random = crate::closed_loop::Random::new(7);
    let mut below = |end: usize| random.next() as usize % end;
    for case in 0..40 {
        let workers = 2 + below(3);
        let weights: Vec<u32> = (0..3).map(|_| 100 + below(9) as u32 * 100).collect();
        let mut greedy = Vec::new();
        let mut packets = [0.0; 3];
        for class in 0..3_u16 {
            let length = [600, 1_000, 1_500][below(3)];
            let first = below(workers);
            for worker in (0..workers).filter(|worker| *worker == first || below(2) == 0) {
                greedy.push((worker, class, length));
                packets[usize::from(class)] += length as f64 + 38.0;
            }
        }
        let mut router = Router::new(workers, &weights, RATE);
        router.run(Nanos::from_millis(5), &greedy, &[]);
        let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut seen = [[f64::INFINITY, f64::NEG_INFINITY]; 3];
        let pairs = [(0, 1), (1, 2), (2, 0)];
        for _ in 0..1_500 {
            router.step(&greedy, &[]);
            let had = |class: usize| router.sent(class as u16) as f64 / f64::from(weights[class]);
            for ([least, most], (one, other)) in seen.iter_mut().zip(pairs) {
                let apart = had(one) - had(other);
                (*least, *most) = (least.min(apart), most.max(apart));
            }
        }
        for ([least, most], (one, other)) in seen.into_iter().zip(pairs) {
            let of = |class: usize| packets[class] / f64::from(weights[class]);
            let bound = 2.0 * WINDOW / all + of(one) + of(other);
            println!("{case}: {:.1} of {bound:.1}", most - least);
            assert!(most - least <= bound, "{case}, {weights:?}, {greedy:?}: {least} {most}");
        }
        router.check_conservation();
    }
}

#[test]
fn what_a_class_does_not_use_is_the_others_and_comes_back_to_it() {
    let mut router = Router::new(2, &[500, 500], RATE);
    router.run(Nanos::from_millis(20), &[(0, 0, 1500)], &[]);
    let (alone, wire) = (router.sent(0), 2_500_000.0);
    assert!((alone as f64 / wire - 1.0).abs() < 0.02, "{alone}");
    router.run(Nanos::from_millis(2), &[(0, 0, 1500), (1, 1, 1500)], &[]);
    let before = router.all_sent();
    router.run(Nanos::from_millis(50), &[(0, 0, 1500), (1, 1, 1500)], &[]);
    router.check_shares(&before, Nanos::from_millis(50));
}

#[test]
fn a_light_class_waits_for_no_more_than_a_window_and_what_is_on_the_wire() {
    let mut router = Router::new(2, &[100, 100], RATE);
    let greedy = [(0, 0, 1500), (1, 0, 1500)];
    for turn in 0..500 {
        router.step(&greedy, &[]);
        if turn % 10 == 0 {
            router.offer(turn / 10 % 2, 1, 100);
        }
    }
    router.run(Nanos::from_millis(1), &greedy, &[]);
    assert_eq!(
        router.sent(1),
        50 * Descriptor::new(Class(1), Bytes(100), Nanos::ZERO).wire_len().0
    );
    // A window, what a worker has in its ring, and the step in which workers are called.
    let window = SharedLink::window_at(RATE);
    for link in &router.links {
        let waited = link.qostat().class(Class(1)).delay_max;
        assert!(waited <= window + window + STEP, "{waited:?}");
    }
}

#[test]
fn an_idle_link_sends_at_once() {
    let mut router = Router::new(4, &[100], RATE);
    router.now = Nanos::from_secs(3);
    router.offer(2, 0, 1500);
    router.step(&[], &[]);
    assert_eq!(router.outs[2].packets, 1);
    assert!(router.outs[2].longest_wait < STEP);
}

#[test]
fn a_worker_that_stands_still_costs_the_link_nothing_and_does_not_hoard() {
    let greedy = [(0, 0, 1500), (1, 0, 1500), (1, 1, 1500), (0, 1, 1500)];
    let mut router = Router::new(2, &[300, 100], RATE);
    router.run(Nanos::from_millis(10), &greedy, &[]);
    // Its patience, and then the other has all.
    router.run(Nanos::from_millis(20), &greedy, &[1]);
    let before = router.all_sent();
    router.run(Nanos::from_millis(50), &greedy, &[1]);
    router.check_shares(&before, Nanos::from_millis(50));
    // What it still may send is bounded, and after it all is as before.
    let hoard = router.total();
    router.run(Nanos::from_millis(20), &greedy, &[]);
    let extra = (router.total() - hoard) as f64 - 2_500_000.0;
    let bound = RATE.0 as f64 / 8e9 * PATIENCE.0 as f64 * 2.0 + 40_000.0;
    assert!(extra < bound, "{extra} of {bound}");
    let before = router.all_sent();
    router.run(Nanos::from_millis(50), &greedy, &[]);
    router.check_shares(&before, Nanos::from_millis(50));
    router.check_conservation();
}

#[test]
fn a_link_that_goes_down_frees_its_grants_and_weights_change_while_it_runs() {
    let greedy = [(0, 0, 1500), (1, 1, 1500)];
    let mut router = Router::new(2, &[100, 100], RATE);
    router.run(Nanos::from_millis(5), &greedy, &[]);
    let now = router.now;
    router.links[1].drain(now, Reason::LinkDown, &mut router.outs[1]);
    router.run(Nanos::from_millis(2), &greedy[..1], &[1]);
    let before = router.sent(0);
    router.run(Nanos::from_millis(20), &greedy[..1], &[1]);
    assert!(router.sent(0) - before > 2_450_000);
    for worker in 0..2 {
        let change = Change::of("weight", Class(1), Weight(300));
        router.links[worker].set(router.now, &change, &mut router.outs[worker]).unwrap();
    }
    router.weights[1] = 300;
    router.run(Nanos::from_millis(10), &greedy, &[]);
    let before = router.all_sent();
    router.run(Nanos::from_millis(50), &greedy, &[]);
    router.check_shares(&before, Nanos::from_millis(50));
    router.check_conservation();
    assert!(router.shared.is_paced());
}

#[test]
fn threads_keep_the_rate_the_shares_and_every_packet() {
    // Each thread has a time of its own that goes at its own pace: what differs from run to run is
    // who opens a window.
    let workers = 4;
    let weights = [100, 300];
    let rate = BitRate(10_000_000_000);
    let shared = Arc::new(SharedLink::new(workers, 2, PATIENCE));
    shared.set_rate(Some(rate));
    let start = std::time::Instant::now();
    let stop = AtomicBool::new(false);
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = |worker: usize| {
            let (shared, stop) = (Arc::clone(&shared), &stop);
            move || {
                let part = Shared::new(
                    WfqAltq::new(weighted(&weights, tail(100))).unwrap(),
                    shared,
                    worker,
                );
                let mut link = Link::new(LinkConfig::paced(rate), part, 2).unwrap();
                let mut out = Out::default();
                let mut offered = 0;
                while !stop.load(Ordering::Relaxed) {
                    let now = Nanos(start.elapsed().as_nanos() as u64 + 1_000_000_000);
                    // Uneven: the workers' classes differ.
                    let class = Class(u16::from(worker != 0));
                    for _ in 0..32 {
                        let _ =
                            link.enqueue(now, Descriptor::new(class, Bytes(1500), now), &mut out);
                        offered += 1;
                    }
                    link.advance(now, &mut out);
                }
                let held = link.held();
                assert_eq!(offered, out.packets + out.dropped + held.queued + held.in_ring);
                out.bytes
            }
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(run(worker))).collect();
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let passed = start.elapsed().as_nanos() as f64;
    let sum: u64 = results.iter().flat_map(BTreeMap::values).sum();
    assert!(results.iter().all(|bytes| bytes.values().sum::<u64>() > 0), "{results:?}");
    // The rate, and what every worker may have saved.
    let most = rate.0 as f64 / 8e9 * (passed + (PATIENCE.0 * workers as u64) as f64);
    assert!((sum as f64) < most, "{sum} of {most}");
}
