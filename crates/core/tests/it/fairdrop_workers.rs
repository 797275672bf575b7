//! FairDrop of a link's bits over several workers: every flow has its max-min share of the link
//! whatever worker it is on.

use std::sync::Arc;

use evenkeel_core::drop::{BandwidthConfig, BandwidthFairDrop, Share, ShareId, SharedShadow};
use evenkeel_core::reference::max_min;
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
        let shadow = Arc::new(SharedShadow::new(workers));
        let mut config = BandwidthConfig::new(RATE);
        config.table.shares =
            weights.iter().map(|weight| Share { weight: *weight, group: 0 }).collect();
        let dropper = |worker| {
            let mut dropper = BandwidthFairDrop::new(config.clone()).unwrap();
            dropper.share(Arc::clone(&shadow), worker).unwrap();
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

#[test]
fn below_capacity_nothing_is_refused_and_groups_are() {
    let flows = [Flow(0, 60.0, 0), Flow(1, 35.0, 0)];
    let mut bed = Bed::new(2, &flows, &[1]);
    near(&bed.rates(&[]), &[60.0, 35.0], 0.001);
    assert!(bed.droppers.iter().all(|dropper| dropper.view().refused == 0));

    let mut config = BandwidthConfig::new(RATE);
    config.table.groups = vec![1, 2];
    let mut grouped = BandwidthFairDrop::new(config).unwrap();
    let error = grouped.share(Arc::new(SharedShadow::new(2)), 0).unwrap_err();
    assert!(error.to_string().contains("groups"), "{error}");
}
