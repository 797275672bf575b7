//! QFQ: shares by weight, and never far behind them, whatever the others do.

use std::collections::VecDeque;

use crate::common::TestPacket;
use evenkeel_core::schedule::qfq::{Qfq, QfqConfig};
use evenkeel_core::schedule::wfq_altq::{WfqAltq, WfqAltqConfig};
use evenkeel_core::settings::{Change, PerClass};
use evenkeel_core::{Class, Nanos, Packet as _, Scheduler, Weight};
use proptest::prelude::*;

/// A frame of 1500 bytes, on the wire: what QFQ takes for the longest.
const LONGEST: u64 = 1_538;
const NOW: Nanos = Nanos(1);

fn qfq(weights: &[u32]) -> Qfq<TestPacket> {
    let own: Vec<_> = weights.iter().copied().map(Weight).collect();
    let weight = PerClass::new(own, Weight(100));
    let classes = weights.len() as u16;
    Qfq::new(QfqConfig { weight, classes, limit: 10_000 }).unwrap()
}

/// What has been sent, and how far each class that waits fell behind its share since then.
struct Shares {
    weights: Vec<u32>,
    sent: Vec<u64>,
    waiting: Vec<u64>,
    /// The least that a class was behind since it waits, in bytes times all weights.
    least: Vec<i128>,
    /// The most that one fell behind from there, likewise.
    worst: Vec<i128>,
}

impl Shares {
    fn new(weights: &[u32]) -> Self {
        let classes = weights.len();
        Self {
            weights: weights.to_vec(),
            sent: vec![0; classes],
            waiting: vec![0; classes],
            least: vec![0; classes],
            worst: vec![0; classes],
        }
    }

    fn behind(&self, class: usize) -> i128 {
        let all: u64 = self.sent.iter().sum();
        let weights: u32 = self.weights.iter().sum();
        i128::from(all) * i128::from(self.weights[class])
            - i128::from(self.sent[class]) * i128::from(weights)
    }

    fn arrived(&mut self, class: usize) {
        self.waiting[class] += 1;
        if self.waiting[class] == 1 {
            self.least[class] = self.behind(class);
        }
    }

    fn left(&mut self, class: usize, length: u64) {
        self.sent[class] += length;
        self.waiting[class] -= 1;
        for other in 0..self.weights.len() {
            let behind = self.behind(other);
            self.least[other] = self.least[other].min(behind);
            if self.waiting[other] > 0 || other == class {
                self.worst[other] = self.worst[other].max(behind - self.least[other]);
            }
        }
    }

    /// The most bytes that `class` was behind its share while it waited.
    fn worst(&self, class: usize) -> f64 {
        self.worst[class] as f64 / f64::from(self.weights.iter().sum::<u32>())
    }

    /// 3 φ σ + 2 φ L.
    fn bound(&self, class: usize) -> f64 {
        let weight = u64::from(self.weights[class]);
        let slot = ((LONGEST << 20) / weight).next_power_of_two();
        let share = weight as f64 / f64::from(self.weights.iter().sum::<u32>());
        3.0 * (slot * weight) as f64 / f64::from(1 << 20) + 2.0 * share * LONGEST as f64
    }
}

/// Sends all of `arrivals` through `scheduler`: each is a class and an IP length, and how many
/// packets go before it comes.
fn pass(
    scheduler: &mut impl Scheduler<TestPacket>,
    weights: &[u32],
    arrivals: impl IntoIterator<Item = (u16, u32, u8)>,
) -> Shares {
    let mut shares = Shares::new(weights);
    let send = |scheduler: &mut dyn Scheduler<TestPacket>, shares: &mut Shares| {
        let sent = scheduler.dequeue(NOW, &mut |_, _| panic!("nothing is dropped"));
        if let Some(packet) = &sent {
            shares.left(packet.class.index(), packet.wire_len().0);
        }
        sent.is_some()
    };
    for (id, (class, length, gap)) in arrivals.into_iter().enumerate() {
        for _ in 0..gap {
            send(scheduler, &mut shares);
        }
        shares.arrived(class.into());
        let packet = TestPacket::new(id as u64, class, length);
        let _ = scheduler.enqueue(NOW, packet, &mut |_, _| panic!("nothing is dropped"));
    }
    while send(scheduler, &mut shares) {}
    assert!(shares.waiting.iter().all(|waiting| *waiting == 0), "the link rests while some wait");
    shares
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![Just(1u32), Just(100), Just(10_000), 1u32..=10_000];
    prop::collection::vec(weight, 1..40)
}

/// Runs of packets of a class, long and short ones, with pauses in which some go.
fn arrivals() -> impl Strategy<Value = Vec<(u16, u32, u8)>> {
    let run = (0u16..40, prop_oneof![Just(46u32), Just(1_500), 20u32..1_501], 1usize..40, 0u8..3);
    prop::collection::vec(run, 1..60).prop_map(|runs| {
        let run = |(class, length, packets, gap)| vec![(class, length, gap); packets];
        runs.into_iter().flat_map(run).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_class_that_waits_is_behind_its_share_by_the_bound_at_most(
        weights in weights(),
        arrivals in arrivals(),
    ) {
        let of = |(class, length, gap)| (class % weights.len() as u16, length, gap);
        let shares = pass(&mut qfq(&weights), &weights, arrivals.into_iter().map(of));
        for class in 0..weights.len() {
            let (worst, bound) = (shares.worst(class), shares.bound(class));
            prop_assert!(worst <= bound, "class {} of {:?}: {} > {}", class, weights, worst, bound);
        }
    }
}

/// What each class is sent of so many packets while all wait.
fn greedy(scheduler: &mut impl Scheduler<TestPacket>, lengths: &[u32], packets: usize) -> Vec<u64> {
    let mut queued = vec![0u32; lengths.len()];
    let mut sent = vec![0; lengths.len()];
    let mut refill: VecDeque<usize> = (0..lengths.len()).cycle().take(lengths.len() * 3).collect();
    for id in 0..packets {
        while let Some(class) = refill.pop_front() {
            let packet = TestPacket::new(id as u64, class as u16, lengths[class]);
            let _ = scheduler.enqueue(NOW, packet, &mut |_, _| panic!("nothing is dropped"));
            queued[class] += 1;
        }
        let packet = scheduler.dequeue(NOW, &mut |_, _| panic!("nothing is dropped")).unwrap();
        sent[packet.class.index()] += packet.wire_len().0;
        refill.push_back(packet.class.index());
    }
    sent
}

#[test]
fn greedy_classes_share_by_weight_whatever_their_lengths() {
    let weights = [1, 30, 100, 1_000, 10_000, 10_000];
    for lengths in [[1_500; 6], [46, 1_500, 700, 46, 1_500, 46], [9_000, 46, 46, 9_000, 46, 1_500]]
    {
        let mut qfq = qfq(&weights);
        greedy(&mut qfq, &lengths, 20_000);
        let sent = greedy(&mut qfq, &lengths, 400_000);
        let all: u64 = sent.iter().sum();
        for (class, (sent, weight)) in sent.iter().zip(weights).enumerate() {
            let share = all as f64 * f64::from(weight) / 21_131.0;
            // Within some of the packets that it may send, and 0.1 %.
            let off = (*sent as f64 - share).abs();
            let longest = f64::from(lengths[class] + 38).max(LONGEST as f64);
            let most = share * 0.001 + 4.0 * longest;
            assert!(off <= most, "class {class} of {lengths:?}: {sent}, {share:.0}");
        }
    }
}

/// One class with half of the link and 63 with the rest: a round of quotas sends the half in one
/// lump, timestamps send every other packet.
#[test]
fn half_of_a_link_is_every_other_packet() {
    let mut weights = vec![100; 64];
    weights[0] = 6_300;
    let all = |rounds: u32| (0..rounds).flat_map(|_| (0..64).chain([0; 62]).map(|c| (c, 1_500, 0)));
    let stamped = pass(&mut qfq(&weights), &weights, all(60));
    assert!(stamped.worst(0) < 4.0 * LONGEST as f64, "{}", stamped.worst(0));
    assert!(stamped.worst(0) <= stamped.bound(0));

    let of = weights.iter().copied().map(Weight).collect::<Vec<_>>();
    let config = WfqAltqConfig::with_weights(of);
    let config = WfqAltqConfig { limit: PerClass::all(10_000), ..config };
    let quotas = pass(&mut WfqAltq::new(config).unwrap(), &weights, all(60));
    assert!(quotas.worst(0) > 2.0 * stamped.bound(0), "{}", quotas.worst(0));
}

/// A class that runs empty with each packet and has the next one at once goes on where it left off:
/// it gets no more than one that always waits.
#[test]
fn a_class_that_comes_and_goes_gets_its_share_and_no_more() {
    // Half of the weight is nobody's.
    let mut qfq = qfq(&[100, 100, 200]);
    let mut sent = [0_u64; 3];
    let mut id = 0;
    let mut arrive = |qfq: &mut Qfq<TestPacket>, class| {
        id += 1;
        let packet = TestPacket::new(id, class, 1_500);
        let _ = qfq.enqueue(NOW, packet, &mut |_, _| panic!("nothing is dropped"));
    };
    for class in [0, 1, 1, 1] {
        arrive(&mut qfq, class);
    }
    for _ in 0..10_000 {
        let packet = qfq.dequeue(NOW, &mut |_, _| panic!("nothing is dropped")).unwrap();
        sent[packet.class.index()] += 1;
        arrive(&mut qfq, packet.class.0);
    }
    assert!(sent[0].abs_diff(sent[1]) <= 8, "{sent:?}");
}

#[test]
fn a_weight_changes_while_packets_wait() {
    let mut qfq = qfq(&[100, 100]);
    let sent = greedy(&mut qfq, &[1_500; 2], 1_000);
    assert!(sent[0].abs_diff(sent[1]) <= 2 * LONGEST);
    for weight in [10_000, 1, 300] {
        let _ = qfq.set(NOW, &Change::of("weight", Class(0), Weight(weight))).unwrap();
        // What waited keeps its stamps.
        greedy(&mut qfq, &[1_500; 2], 400);
        let sent = greedy(&mut qfq, &[1_500; 2], 40_000);
        let ratio = sent[0] as f64 / sent[1] as f64 / (f64::from(weight) / 100.0);
        let one = LONGEST as f64 / sent.iter().copied().min().unwrap() as f64;
        assert!((ratio - 1.0).abs() <= 0.001 + 2.0 * one, "{weight}: {sent:?}");
    }
}
