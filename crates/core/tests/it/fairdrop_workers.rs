//! FairDrop of a link's bits over several workers: every flow has its max-min share of the link
//! whatever worker it is on.

use std::sync::Arc;

use evenkeel_core::drop::{BandwidthConfig, BandwidthFairDrop, Share, ShareId, SharedShadow};
use evenkeel_core::reference::{max_min, max_min_of_groups};
use evenkeel_core::{BitRate, Bytes, Nanos};

const RATE: BitRate = BitRate::from_mbps(100);
const LENGTH: u64 = 1_250;

/// A flow: its worker, what it offers in Mbit/s, the row of its share.
#[derive(Clone, Copy)]
struct Flow(usize, f64, u8);

/// Workers with their flows, in steps of a batch.
struct Bed {
    droppers: Vec<BandwidthFairDrop>,
    flows: Vec<Flow>,
    owed: Vec<f64>,
    admitted: Vec<f64>,
    now: Nanos,
}

impl Bed {
    fn new(workers: usize, flows: &[Flow], weights: &[u16]) -> Self {
        let shares: Vec<_> =
            weights.iter().map(|weight| Share { weight: *weight, group: 0 }).collect();
        Self::grouped(workers, flows, &shares, &[1])
    }

    /// With rows of shares, and groups by weight.
    fn grouped(workers: usize, flows: &[Flow], shares: &[Share], groups: &[u16]) -> Self {
        let shadow = Arc::new(SharedShadow::new(workers));
        let mut config = BandwidthConfig::new(RATE);
        (config.table.shares, config.table.groups) = (shares.to_vec(), groups.to_vec());
        let dropper = |worker| {
            let mut dropper = BandwidthFairDrop::new(config.clone()).unwrap();
            dropper.share(Arc::clone(&shadow), worker);
            dropper
        };
        Self {
            droppers: (0..workers).map(dropper).collect(),
            flows: flows.to_vec(),
            owed: vec![0.0; flows.len()],
            admitted: vec![0.0; flows.len()],
            now: Nanos::from_secs(5),
        }
    }

    /// `time` passes in batches; `asleep` workers have none, and nothing comes to them.
    fn run(&mut self, time: Nanos, asleep: &[usize]) {
        let batch = Nanos::from_micros(200);
        let end = self.now + time;
        while self.now < end {
            self.now += batch;
            for worker in (0..self.droppers.len()).filter(|worker| !asleep.contains(worker)) {
                // Workers do not poll at the same instant.
                let now = self.now + Nanos(worker as u64 * 37_000);
                let mut begun = false;
                for (at, Flow(of, mbps, share)) in self.flows.iter().enumerate() {
                    if *of != worker {
                        continue;
                    }
                    self.owed[at] += mbps * batch.0 as f64 / 8e3;
                    while self.owed[at] >= LENGTH as f64 {
                        self.owed[at] -= LENGTH as f64;
                        if !begun {
                            self.droppers[worker].begin_batch(now);
                            begun = true;
                        }
                        let hash =
                            (at as u64 + 1) << 32 | (at as u64 + 1).wrapping_mul(0x9e37_79b9);
                        let passed =
                            self.droppers[worker].admit(hash, ShareId(*share), Bytes(LENGTH));
                        self.admitted[at] += f64::from(u8::from(passed.is_ok())) * LENGTH as f64;
                    }
                }
            }
        }
    }

    /// Mbit/s admitted of each flow within two seconds.
    fn rates(&mut self, asleep: &[usize]) -> Vec<f64> {
        self.run(Nanos::SECOND, asleep);
        self.admitted.fill(0.0);
        self.run(Nanos::from_secs(2), asleep);
        self.admitted.iter().map(|bytes| bytes * 8.0 / 2e6).collect()
    }
}

fn near(got: &[f64], fair: &[f64], within: f64) {
    for (at, (got, fair)) in got.iter().zip(fair).enumerate() {
        assert!((got / fair - 1.0).abs() < within, "flow {at}: {got}, not {fair}");
    }
}

#[test]
fn flows_have_their_max_min_share_whatever_worker_they_are_on() {
    let spreads: [&[usize]; 4] = [&[3, 30], &[1, 30], &[17, 16], &[1, 2, 10, 20]];
    for spread in spreads {
        let mut flows = Vec::new();
        for (worker, count) in spread.iter().enumerate() {
            // One in four asks for less than its share.
            flows.extend((0..*count).map(|n| Flow(worker, if n % 4 == 3 { 1.5 } else { 9.0 }, 0)));
        }
        let demands: Vec<_> = flows.iter().map(|Flow(_, mbps, _)| (*mbps, 1.0)).collect();
        let mut bed = Bed::new(spread.len(), &flows, &[1]);
        near(&bed.rates(&[]), &max_min(100.0, &demands), 0.05);
    }
}

#[test]
fn weights_hold_over_workers_and_what_one_does_not_use_is_the_others() {
    let flows = [Flow(0, 90.0, 0), Flow(1, 90.0, 1), Flow(1, 90.0, 0)];
    let mut bed = Bed::new(2, &flows, &[1, 2]);
    near(&bed.rates(&[]), &[25.0, 50.0, 25.0], 0.03);
    // Nothing comes to the first worker any more, and what it said last does not count for ever.
    let rates = bed.rates(&[0]);
    assert_eq!(rates[0], 0.0);
    near(&rates[1..], &[200.0 / 3.0, 100.0 / 3.0], 0.03);
    near(&bed.rates(&[]), &[25.0, 50.0, 25.0], 0.03);
}

/// Each worker alone has less than the link carries, and may be through with all of it when it
/// begins a batch.
#[test]
fn a_flow_at_each_worker_has_its_share_of_a_link_that_no_worker_fills_alone() {
    for offered in [&[90.0, 90.0][..], &[60.0, 60.0], &[20.0, 90.0], &[30.0, 45.0, 60.0]] {
        let flows: Vec<_> = offered.iter().zip(0..).map(|(mbps, at)| Flow(at, *mbps, 0)).collect();
        let demands: Vec<_> = offered.iter().map(|mbps| (*mbps, 1.0)).collect();
        let mut bed = Bed::new(flows.len(), &flows, &[1]);
        near(&bed.rates(&[]), &max_min(100.0, &demands), 0.03);
    }
}

#[test]
fn below_capacity_nothing_is_refused() {
    let flows = [Flow(0, 60.0, 0), Flow(1, 35.0, 0)];
    let mut bed = Bed::new(2, &flows, &[1]);
    near(&bed.rates(&[]), &[60.0, 35.0], 0.001);
    assert!(bed.droppers.iter().all(|dropper| dropper.view().refused == 0));
}

/// A row of shares of weight 1 for each of so many groups.
fn of_groups(groups: u8) -> Vec<Share> {
    (0..groups).map(|group| Share { weight: 1, group }).collect()
}

/// By group and worker, how many flows; each offers 9 Mbit/s, or 1.5.
#[test]
fn groups_have_their_shares_whatever_workers_their_flows_are_on() {
    let spreads: [&[[usize; 4]]; 4] = [
        &[[20, 0, 0, 0], [0, 20, 0, 0]],
        &[[30, 1, 0, 0], [1, 3, 0, 0], [10, 10, 0, 0]],
        &[[1, 2, 10, 20], [20, 10, 2, 1], [0, 0, 0, 12]],
        // The second one takes less than its share: the others have the rest.
        &[[8, 8, 0, 0], [1, 1, 0, 0], [0, 16, 0, 0]],
    ];
    for spread in spreads {
        let weights = &[1, 2, 1][..spread.len()];
        let mut flows = Vec::new();
        for (group, workers) in spread.iter().enumerate() {
            let of = |(worker, count): (usize, &usize)| {
                (0..*count)
                    .map(move |n| Flow(worker, if n % 4 == 3 { 1.5 } else { 9.0 }, group as u8))
            };
            flows.extend(workers.iter().enumerate().flat_map(of));
        }
        let demands: Vec<_> =
            flows.iter().map(|Flow(_, mbps, group)| (*mbps, 1.0, usize::from(*group))).collect();
        let by_weight: Vec<_> = weights.iter().map(|weight| f64::from(*weight)).collect();
        let fair = max_min_of_groups(100.0, &demands, &by_weight);
        let rows = of_groups(spread.len() as u8);
        let mut bed = Bed::grouped(4, &flows, &rows, weights);
        near(&bed.rates(&[]), &fair, 0.05);
    }
}

/// A group whose worker stands still is told of no more, and the others have its share.
#[test]
fn what_a_group_had_at_a_worker_that_has_nothing_to_do_is_the_others() {
    let flows = [Flow(0, 90.0, 0), Flow(1, 90.0, 1), Flow(1, 90.0, 2)];
    let mut bed = Bed::grouped(2, &flows, &of_groups(3), &[2, 1, 1]);
    near(&bed.rates(&[]), &[50.0, 25.0, 25.0], 0.03);
    near(&bed.rates(&[0])[1..], &[50.0, 50.0], 0.03);
    near(&bed.rates(&[]), &[50.0, 25.0, 25.0], 0.03);
}

/// Where a rate follows a line only the first worker knows it.
#[test]
fn all_judge_by_the_rate_that_the_first_worker_says() {
    let flows = [Flow(0, 90.0, 0), Flow(1, 90.0, 0)];
    let mut bed = Bed::new(2, &flows, &[1]);
    near(&bed.rates(&[]), &[50.0, 50.0], 0.03);
    let now = bed.now;
    bed.droppers[0].set_rate(now, BitRate::from_mbps(30)).unwrap();
    near(&bed.rates(&[]), &[15.0, 15.0], 0.03);
    // What another one was told does not count.
    let now = bed.now;
    bed.droppers[1].set_rate(now, RATE).unwrap();
    near(&bed.rates(&[]), &[15.0, 15.0], 0.03);
    assert_eq!(bed.droppers[1].config().rate, BitRate::from_mbps(30));
}
