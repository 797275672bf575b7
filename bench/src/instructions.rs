//! `evenkeel-bench instructions`: instructions per packet, counted by valgrind, because virtual
//! machines rarely have hardware counters. The same binary, inputs and environment give the same
//! count whatever else the machine does.
//!
//! FairDrop has two: both of its loops, and the loop over packets alone (virtual time stands
//! still). The pipeline is counted without FairDrop, with it switched off, and with it: what is
//! switched off should not be seen.
//!
//! What a round pays for the heartbeat is counted alone: `heartbeat:10us` is a worker of which a
//! round takes 10 µs, which looks and goes on, `heartbeat:20ms` one that stores each time. That
//! needs a map of BPF, so root.
//!
//! A case is run with N and with 2 N packets; the difference, divided by N, is what a packet costs,
//! set-up left out. Of the pipeline only what happens inside its rounds is counted, the copies out
//! of and into ports in memory included: the hosts at its ends are not its own. Flows have sent
//! three packets before, but where each packet is the first of its flow.

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use evenkeel_core::Nanos;
use evenkeel_ports::heartbeat::{Beater, Heartbeat};

use crate::disciplines::{BusyLink, CASES, Exchange, FULL_LINKS, FullLink};
use crate::fairdrop::{FLOWS, Judging, RULES};
use crate::flows::{self, ManyFlows};
use crate::follow::Lines;
use crate::pipeline::{Forwarding, SETUPS};
use crate::plot;
use crate::tree::Full;

const PACKETS: u64 = 20_000;
const PIPELINE: &str = "pipeline:";
/// An interval of one of 200 links whose rates follow their lines.
const FOLLOW: &str = "follow:interval";
/// Rounds and how far they are apart.
const HEARTBEATS: [(&str, Nanos); 2] =
    [("heartbeat:10us", Nanos(10_000)), ("heartbeat:20ms", Nanos::from_millis(20))];

/// Every case that [`one`] knows.
fn names() -> Vec<String> {
    let mut names: Vec<String> =
        CASES.iter().map(|(kind, classes)| format!("{kind}:{classes}")).collect();
    names.push("link:wfq-altq".into());
    names.extend(FULL_LINKS.map(|(name, _)| name.to_owned()));
    names.extend(HEARTBEATS.map(|(name, _)| name.to_owned()));
    names.push(FOLLOW.into());
    names.extend(SETUPS.iter().map(|setup| format!("pipeline:{}", setup.name)));
    for kind in flows::KINDS {
        names.extend(flows::COUNTED.map(|flows| format!("flows:{kind}:{flows}")));
    }
    for flows in FLOWS {
        for rule in RULES {
            names.extend(
                ["fairdrop", "fairdrop-admit"].map(|what| format!("{what}:{rule}:{flows}")),
            );
        }
    }
    names
}

/// Runs one case: what valgrind is given.
pub(crate) fn one(case: &str, packets: u64) {
    if let Some((_, apart)) = HEARTBEATS.iter().find(|(name, _)| *name == case) {
        return beat(*apart, packets);
    }
    if case == FOLLOW {
        return Lines::new().run(packets);
    }
    if let Some((_, audited)) = FULL_LINKS.iter().find(|(name, _)| *name == case) {
        return FullLink::new(*audited).run(packets);
    }
    match case.split_once(':') {
        Some(("pipeline", name)) => {
            let setup =
                SETUPS.iter().find(|setup| setup.name == name).expect("a router that is measured");
            Forwarding::untimed(setup, 60).run(packets);
        }
        Some(("flows", case)) => {
            let (kind, flows) = case.split_once(':').expect("a kind and a number of flows");
            ManyFlows::new(kind, flows.parse().expect("a number of flows")).run(packets);
        }
        Some(("people", case)) => {
            let (kind, people) = case.split_once(':').expect("a kind and how many");
            Full::new(kind, people.parse().expect("how many")).run(packets);
        }
        Some(("link", kind)) => BusyLink::new(kind, 4).run(packets),
        Some((what @ ("fairdrop" | "fairdrop-admit"), case)) => {
            let (rule, flows) = case.split_once(':').expect("a rule and a number of flows");
            let flows = flows.parse().expect("a number of flows");
            Judging::new(rule, flows, what == "fairdrop").run(packets);
        }
        Some((kind, classes)) => {
            let classes = classes.parse().expect("a number of classes");
            Exchange::new(kind, classes).run(packets);
        }
        None => panic!("no such case: {case}"),
    }
}

/// Rounds of a worker, with nothing in them but the sign of life. No clock is read, as a round has
/// read it already; valgrind shows none that a process could read without a system call.
fn beat(apart: Nanos, rounds: u64) {
    let heart = Heartbeat::new(Nanos::from_millis(200)).expect("root, for a map of BPF");
    let mut beater = Beater::waiting(Arc::clone(&heart), 0);
    let mut now = Nanos::ZERO;
    for _ in 0..rounds {
        now += apart;
        assert!(black_box(&mut beater).beat(black_box(now)).is_none(), "it is never silent");
    }
}

/// Instructions per packet of a case; `None` if valgrind cannot be run.
pub(crate) fn per_packet(case: &str) -> Option<f64> {
    // What comes before is not counted there.
    let before = if case.starts_with(PIPELINE) { 0 } else { count(case, PACKETS)? };
    let packets = if before == 0 { PACKETS } else { 2 * PACKETS };
    Some((count(case, packets)? - before) as f64 / PACKETS as f64)
}

/// What the guard of the tests asks for: a line for each case.
pub(crate) fn count_some(cases: &[&str]) -> ExitCode {
    for case in cases {
        let Some(each) = per_packet(case) else { return ExitCode::FAILURE };
        println!("{each:>6.0}  {case}");
    }
    ExitCode::SUCCESS
}

/// Instructions that valgrind counts for a run of this program; `None` if it cannot be run.
fn count(case: &str, packets: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let only = case.starts_with(PIPELINE).then_some("--toggle-collect=*::counted_round*");
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(only)
        .arg(program)
        .args(["one", case, &packets.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .ok()
        .filter(|done| done.status.success())?;
    let said = String::from_utf8_lossy(&done.stderr);
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

pub(crate) fn run() {
    println!("Instructions per packet (valgrind; exact, the machine's speed has no part in them)");
    let mut counted = Vec::new();
    for case in names() {
        match per_packet(&case) {
            Some(each) => {
                println!("  {case:<46} {each:>9.0}");
                if case.starts_with("flows:") {
                    counted.push((case, each));
                }
            }
            None if case.starts_with("heartbeat") => {
                println!("  {case:<46}   skipped: needs root and CAP_BPF");
            }
            None => {
                println!(
                    "  skipped: valgrind is missing or failed (Debian package valgrind; make setup \
                     installs it)"
                );
                return;
            }
        }
    }
    println!("\n  By the number of flows; a column is 20 instructions");
    for (case, each) in &counted {
        println!("  {case:<28} {} {each:.0}", "#".repeat((each / 20.0).round() as usize));
    }
    let points: Vec<_> = counted
        .iter()
        .filter_map(|(case, each)| {
            let (kind, flows) = case.strip_prefix("flows:")?.split_once(':')?;
            Some((kind, flows.parse().ok()?, *each))
        })
        .collect();
    plot::write(
        "flows-instructions.svg",
        "Instructions per packet by the number of flows",
        "instructions",
        &points,
    );
}

#[cfg(test)]
mod tests {
    use super::{names, one};

    /// A change elsewhere, of a default for one, must not keep a case from being counted.
    #[test]
    fn every_case_runs() {
        for case in names() {
            one(&case, 256);
        }
    }
}
