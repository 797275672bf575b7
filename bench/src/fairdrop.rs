//! FairDrop's own cost per polled packet: bursts of 256 packets of many flows through the dropper of an overloaded core, nothing else.

use std::hint::black_box;
use std::time::Instant;

use evenkeel_core::Cycles;
use evenkeel_core::drop::{CpuConfig, CpuFairDrop, FlowTableConfig, Poll, ProcessingClass, Rule, ShareId};

/// Packets of a burst.
const BATCH: u64 = 256;
/// Cycles of a light packet; one flow in ten is ten times as dear.
const LIGHT: u64 = 350;
/// Numbers of flows that are measured.
pub(crate) const FLOWS: [u32; 3] = [20, 1_000, 100_000];
/// The rules: ours and the published one that was cheapest.
pub(crate) const RULES: [&str; 2] = ["level", "fixed"];

/// A dropper and the packets that it judges.
pub(crate) struct Judging {
    dropper: CpuFairDrop,
    hashes: Vec<u64>,
    next: u64,
    now: u64,
    /// Whether virtual time moves: without, what is left is the loop over packets.
    drains: bool,
}

fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Judging {
    pub(crate) fn new(rule: &str, flows: u32, drains: bool) -> Self {
        let config = CpuConfig {
            table: FlowTableConfig {
                flows: flows.next_power_of_two().max(1_024),
                ..FlowTableConfig::default()
            },
            costs: vec![Cycles(LIGHT), Cycles(10 * LIGHT)],
            rule: if rule == "fixed" { Rule::JOURNAL } else { Rule::default() },
            ..CpuConfig::default()
        };
        let dropper = CpuFairDrop::new(config).expect("the knobs are in range");
        let hashes = (0..u64::from(flows)).map(|flow| mixed(flow + 1)).collect();
        let mut judging = Self { dropper, hashes, next: 0, now: 0, drains: true };
        // Until every flow is in the table and the level has settled.
        judging.run(u64::from(flows) * 8 + 200_000);
        judging.drains = drains;
        judging
    }

    /// `packets` packets, whole bursts of them.
    pub(crate) fn run(&mut self, packets: u64) {
        let mut busy = 0;
        for _ in 0..packets.div_ceil(BATCH) {
            self.now += if self.drains { busy } else { 0 };
            let waiting = self.dropper.config().ring - BATCH as u32;
            self.dropper.begin_batch(&Poll {
                now: Cycles(self.now),
                busy: Cycles(busy),
                polled: BATCH as u32,
                waiting,
            });
            busy = BATCH * 26;
            for _ in 0..BATCH {
                // Flows in an order that no cache foresees.
                self.next = self.next.wrapping_add(1);
                let flow = (mixed(self.next) % self.hashes.len() as u64) as usize;
                let heavy = flow.is_multiple_of(10);
                let class = ProcessingClass(u8::from(heavy));
                if black_box(self.dropper.admit(self.hashes[flow], ShareId(0), class)).is_ok() {
                    busy += if heavy { 10 * LIGHT } else { LIGHT };
                }
            }
        }
    }

    /// Nanoseconds per packet; the loop that draws flows is in it.
    pub(crate) fn time(&mut self, packets: u64) -> f64 {
        let begin = Instant::now();
        self.run(packets);
        begin.elapsed().as_nanos() as f64 / packets as f64
    }
}

/// The loop that draws flows, alone: what every case above holds besides.
pub(crate) struct Drawing {
    hashes: Vec<u64>,
    next: u64,
}

impl Drawing {
    pub(crate) fn new(flows: u32) -> Self {
        Self { hashes: (0..u64::from(flows)).map(|flow| mixed(flow + 1)).collect(), next: 0 }
    }

    pub(crate) fn run(&mut self, packets: u64) {
        for _ in 0..packets {
            self.next = self.next.wrapping_add(1);
            let flow = (mixed(self.next) % self.hashes.len() as u64) as usize;
            black_box(self.hashes[flow]);
        }
    }

    pub(crate) fn time(&mut self, packets: u64) -> f64 {
        let begin = Instant::now();
        self.run(packets);
        begin.elapsed().as_nanos() as f64 / packets as f64
    }
}
