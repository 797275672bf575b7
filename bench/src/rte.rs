//! `evenkeel-bench rte_sched PROGRAM`: our flow-aware schedulers against DPDK's hierarchical
//! scheduler, in memory, in turn.

use std::path::Path;
use std::process::{Command, ExitCode};

use evenkeel_core::Nanos;
use evenkeel_ports::tsc::Tsc;

use crate::flows::ManyFlows;
use crate::timing::{Case, Rounds};
use crate::tree::{Full, TWO_LEVELS};

/// Pipes of `rte_sched`; each has 16 queues, and as many packets wait.
const PIPES: [u32; 2] = [256, 4_096];
const QUEUES_PER_PIPE: u32 = 16;
/// Many and short: what else the machine does meets some of them, and the smallest of each side
/// tell what the code costs.
const ROUNDS: usize = 15;
const BURSTS: u32 = 5_000;
const BURST: u32 = crate::flows::BURST as u32;

/// One round of the program, which warms up by as many bursts before.
fn theirs(program: &Path, pipes: u32) -> Result<f64, String> {
    let numbers = [pipes, pipes * QUEUES_PER_PIPE, BURSTS, 1].map(|number| number.to_string());
    let output = Command::new(program).args(numbers).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    text.lines().last().and_then(|line| line.parse().ok()).ok_or_else(said)
}

/// One round of ours, which warms up as well: other cases have had the caches meanwhile.
fn ours(mut time_calls: impl FnMut(u64) -> f64) -> f64 {
    let _ = time_calls(u64::from(BURSTS));
    time_calls(u64::from(BURSTS))
}

pub(crate) fn run(program: &Path) -> ExitCode {
    println!(
        "Scheduler alone against DPDK rte_sched: one packet in, one out, bursts of {BURST}, a \
         packet waiting per queue ({ROUNDS} rounds in turn)"
    );
    let tsc = Tsc::calibrate(Nanos::from_millis(20));
    for pipes in PIPES {
        let queues = pipes * QUEUES_PER_PIPE;
        if let Err(why) = theirs(program, pipes) {
            println!("  rte_sched: {why}");
            return ExitCode::FAILURE;
        }
        let mut cases: Vec<Case<'_>> = vec![(
            format!("rte_sched, {pipes} pipes, {queues} queues"),
            Box::new(move || theirs(program, pipes).unwrap_or(f64::NAN)),
        )];
        for kind in ["pfq", "pdrr"] {
            let mut many = ManyFlows::new(kind, queues);
            many.remember();
            let time: Box<dyn FnMut() -> f64> =
                Box::new(move || ours(|bursts| many.time_calls(bursts, &tsc)));
            cases.push((format!("{kind}, {queues} flows"), time));
        }
        for kind in ["tree", TWO_LEVELS] {
            let mut full = Full::new(kind, queues);
            let time: Box<dyn FnMut() -> f64> =
                Box::new(move || ours(|bursts| full.time_calls(bursts, &tsc)));
            cases.push((format!("{kind}, {queues} subscribers"), time));
        }
        let rounds = Rounds::run(ROUNDS, &mut cases);
        println!(
            "  {:<40} {:>9} {:>17} {:>12} {:>12}",
            "", "ns/packet", "(min to max)", "times faster", "by minima"
        );
        let least = rounds
            .rows()
            .next()
            .and_then(|(_, spread)| spread)
            .map_or(f64::NAN, |spread| spread.min);
        for (index, (name, spread)) in rounds.rows().enumerate() {
            let Some(spread) = spread else { continue };
            println!(
                "  {name:<40} {:>9.1} {:>17} {:>12.2} {:>12.2}",
                spread.median,
                format!("({:.1} to {:.1})", spread.min, spread.max),
                1.0 / rounds.ratio(index, 0),
                least / spread.min,
            );
        }
        println!("  {}", rounds.verdict());
    }
    println!(
        "  Timed are the two calls alone, on both sides: what a packet holds, and for rte_sched \
         the queue it goes to, is made up off the clock."
    );
    println!(
        "  rte_sched accounts for token buckets of subport and pipe and serves 12 strict classes \
         and 4 weighted queues per pipe; a packet's queue is"
    );
    println!(
        "  written into it beforehand. Ours are told beforehand where the flow's packet before was \
         queued, as the router's cache of flows tells it, hold that"
    );
    println!(
        "  against the whole key, share by flow and prefer new flows; rates are the link's \
         business, not theirs. Both queue a pointer."
    );
    println!(
        "  Both read ahead over the burst of 32, and warm up by as many packets as are timed."
    );
    ExitCode::SUCCESS
}
