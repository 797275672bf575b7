//! FairDrop's own cost per polled packet: bursts of 256 packets of many flows through the dropper
//! of an overloaded core, nothing else. Whose packets they are, and their hashes, is drawn
//! beforehand: on the wire the port or the parser knows it.

use std::hint::black_box;
use std::time::Instant;

use evenkeel_core::drop::{
    CpuConfig, CpuFairDrop, FlowTableConfig, Poll, ProcessingClass, Rule, ShareId,
};
use evenkeel_core::{Cycles, Nanos};
use evenkeel_ports::tsc::{Source, Tsc};

/// Packets of a burst.
const BATCH: usize = 256;
/// Packets that are drawn beforehand, 16 bytes each.
const DRAWN: usize = 1 << 18;
/// Cycles of a light packet; one flow in ten is ten times as dear.
const LIGHT: u64 = 350;
/// Numbers of flows that are measured.
pub(crate) const FLOWS: [u32; 3] = [20, 1_000, 100_000];
/// The rules: ours and the published one that was cheapest.
pub(crate) const RULES: [&str; 2] = ["level", "fixed"];
/// Bursts that are timed, and how many of them together: short enough that now and then nobody
/// interrupts.
const TIMED: usize = 8_192;
const TOGETHER: usize = 16;

/// A dropper and the packets that it judges.
pub(crate) struct Judging {
    dropper: CpuFairDrop,
    packets: Vec<(u64, ProcessingClass)>,
    at: usize,
    now: u64,
    busy: u64,
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
        // Flows in an order that no cache foresees.
        let draw = |number: usize| {
            let flow = mixed(number as u64) % u64::from(flows);
            (mixed(flow + 1), ProcessingClass(u8::from(flow.is_multiple_of(10))))
        };
        let packets = (0..DRAWN).map(draw).collect();
        let mut judging = Self { dropper, packets, at: 0, now: 0, busy: 0, drains: true };
        // Until every flow is in the table and the level has settled.
        judging.run(u64::from(flows) * 8 + 200_000);
        judging.drains = drains;
        judging
    }

    /// One burst: what is read of its flows is asked for before the first is judged.
    fn burst(&mut self) {
        let Self { dropper, packets, .. } = self;
        let burst = &packets[self.at..self.at + BATCH];
        self.at = (self.at + BATCH) % DRAWN;
        self.now += if self.drains { self.busy } else { 0 };
        let waiting = dropper.config().ring - BATCH as u32;
        let poll = Poll {
            now: Cycles(self.now),
            busy: Cycles(self.busy),
            polled: BATCH as u32,
            waiting,
            queued: waiting,
        };
        dropper.begin_batch(&poll);
        for (hash, _) in burst {
            dropper.prefetch(*hash);
        }
        self.busy = BATCH as u64 * 26;
        for (hash, class) in burst {
            let admitted = black_box(dropper.admit(*hash, ShareId(0), *class)).is_ok();
            let cost = if class.0 > 0 { 10 * LIGHT } else { LIGHT };
            self.busy += if admitted { cost } else { 0 };
        }
    }

    /// `packets` packets, whole bursts of them.
    pub(crate) fn run(&mut self, packets: u64) {
        for _ in 0..packets.div_ceil(BATCH as u64) {
            self.burst();
        }
    }

    /// Nanoseconds per packet.
    pub(crate) fn time(&mut self, packets: u64) -> f64 {
        let begin = Instant::now();
        self.run(packets);
        begin.elapsed().as_nanos() as f64 / packets as f64
    }

    /// Cycles of the counter per packet: the least of all bursts, the least of [`TOGETHER`] bursts
    /// in a row, the median.
    fn cycles(&mut self, counter: &Tsc) -> [f64; 3] {
        let mut each = Vec::with_capacity(TIMED);
        for _ in 0..TIMED {
            let begin = counter.now();
            self.burst();
            each.push(counter.now().0.saturating_sub(begin.0) as f64 / BATCH as f64);
        }
        let rows = each.chunks(TOGETHER).map(|row| row.iter().sum::<f64>() / row.len() as f64);
        let row = rows.fold(f64::INFINITY, f64::min);
        each.sort_unstable_by(f64::total_cmp);
        [each[0], row, each[TIMED / 2]]
    }
}

/// Cycles per polled packet, for every number of flows and rule.
pub(crate) fn cycles() {
    let counter = Tsc::calibrate(Nanos::from_millis(20));
    let unit = match counter.source() {
        Source::Counter => {
            format!("cycles of the time-stamp counter, {} MHz", counter.hertz() / 1_000_000)
        }
        Source::Clock(why) => format!("nanoseconds ({why})"),
    };
    println!("\nFairDrop per polled packet, bursts of {BATCH}: {unit}");
    println!("  {:<46} {:>9}  {:>17} {:>9}", "", "least", "16 bursts in a row", "median");
    for flows in FLOWS {
        for rule in RULES {
            let [least, row, median] = Judging::new(rule, flows, true).cycles(&counter);
            println!(
                "  {:<46} {least:>9.1}  {row:>17.1} {median:>9.1}",
                format!("rule {rule}, {flows} flows")
            );
        }
    }
}
