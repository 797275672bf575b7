//! The simulator: against ns-3 on the same dumbbell, and on the sizes that it must cope with.
//!
//! Every run is a process of its own, so that its peak memory is its own; runs of both simulators
//! alternate. Each counts the time of the run itself, without start and set-up of the process.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use evenkeel_scenario::Scenario;
use evenkeel_sim::SimOptions;

use crate::timing::Spread;

/// Hosts on either side of the dumbbell; `bench/ns3/dumbbell.cc` has as many.
const PAIRS: u32 = 10;
/// Virtual seconds of a dumbbell.
const SECONDS: u32 = 10;
/// Runs of each simulator.
const ROUNDS: usize = 5;

/// The dumbbells that both simulate: by TCP or UDP, so many flows.
const DUMBBELLS: [(bool, u32); 4] = [(false, 100), (false, 1_000), (true, 10), (true, 1_000)];

/// What a run says of itself.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    packets: u64,
    wall_s: f64,
    peak_mib: f64,
}

/// Prints all comparisons. `ns3` is the binary of `bench/ns3/dumbbell.cc`, if there is one.
pub(crate) fn run(ns3: Option<&Path>) -> ExitCode {
    let result = dumbbells(ns3).and_then(|()| sizes());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evenkeel-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dumbbells(ns3: Option<&Path>) -> Result<(), String> {
    println!(
        "a dumbbell, FIFO of 100 packets, 100 Mbit/s, {SECONDS} virtual seconds; medians (least, \
         most) of {ROUNDS} runs in turn"
    );
    for (tcp, flows) in DUMBBELLS {
        let kind = kind(tcp);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(own(&format!("{kind}-{flows}"))?);
            if let Some(ns3) = ns3 {
                let of = [("tcp", u32::from(tcp)), ("flows", flows), ("seconds", SECONDS)];
                let arguments = of.map(|(name, value)| format!("--{name}={value}"));
                theirs.push(outcome(Command::new(ns3).args(arguments))?);
            }
        }
        let name = format!("{flows} {} flows", kind.to_uppercase());
        compare(&name, &ours, &theirs);
    }
    if ns3.is_none() {
        println!("  ns-3 skipped: not built (scripts/setup.sh bench installs what it needs)");
    }
    Ok(())
}

/// Prints what the runs of a dumbbell took, and what those of ns-3 took, if there are any.
fn compare(name: &str, ours: &[Outcome], theirs: &[Outcome]) {
    let of = |outcomes: &[Outcome], value: fn(&Outcome) -> f64| {
        (!outcomes.is_empty()).then(|| Spread::of(outcomes.iter().map(value).collect()))
    };
    let speed = |outcome: &Outcome| outcome.packets as f64 / outcome.wall_s / 1e3;
    let row = |what: &str, spread: Option<Spread>, unit: &str| {
        if let Some(Spread { median, min, max }) = spread {
            let what = format!("{name}, {what}");
            println!("  {what:<52} {median:>8.1} ({min:.1}, {max:.1}) {unit}");
        }
    };
    row("packets a second", of(ours, speed), "k");
    row("packets a second of ns-3", of(theirs, speed), "k");
    let ratios = || ours.iter().zip(theirs);
    let spread = |values: Vec<f64>| (!values.is_empty()).then(|| Spread::of(values));
    let faster = ratios().map(|(ours, theirs)| speed(ours) / speed(theirs));
    row("times as fast as ns-3 (aim: 30)", spread(faster.collect()), "x");
    row("memory", of(ours, |outcome| outcome.peak_mib), "MiB");
    row("memory of ns-3", of(theirs, |outcome| outcome.peak_mib), "MiB");
    let smaller = ratios().map(|(ours, theirs)| 1e2 * ours.peak_mib / theirs.peak_mib);
    row("memory to that of ns-3 (aim: 20)", spread(smaller.collect()), "%");
}

const fn kind(tcp: bool) -> &'static str {
    if tcp { "tcp" } else { "udp" }
}

/// The traffic of a pair of hosts in a dumbbell that ns-3 simulates, too; `case` is its name.
fn alike(case: &str) -> Option<String> {
    let (tcp, flows) =
        DUMBBELLS.into_iter().find(|(tcp, flows)| case == format!("{}-{flows}", kind(*tcp)))?;
    let (each, rate) = (flows / PAIRS, 110_000_000 / flows);
    Some(if tcp {
        format!("kind = \"tcp\"\ncongestion = \"reno\"\nsize = \"1488B\"\nflows = {each}\n")
    } else {
        format!("kind = \"cbr\"\nrate = \"{rate}bit/s\"\nsize = \"1428B\"\nflows = {each}\n")
    })
}

fn sizes() -> Result<(), String> {
    println!("sizes; packets are those that hosts sent");
    for (case, aim) in [
        ("three-routers", "10 million packets, each through three routers: under 15 s"),
        ("udp-flows", "100 000 UDP flows at once: under 2048 MiB"),
        ("tcp-flows", "5 000 TCP flows at once: under 2048 MiB"),
    ] {
        let outcome = own(case)?;
        println!(
            "  {case:<14} {:>10} packets in {:>6.1} s, {:>6.0} MiB   ({aim})",
            outcome.packets, outcome.wall_s, outcome.peak_mib
        );
    }
    Ok(())
}

/// This program again, for one case.
fn own(case: &str) -> Result<Outcome, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    outcome(Command::new(program).args(["simulate", case]))
}

fn outcome(command: &mut Command) -> Result<Outcome, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |name: &str| {
        let rest = text.split_once(&format!("\"{name}\":"))?.1;
        rest.split(['}', ',']).next()?.trim().parse::<f64>().ok()
    };
    let read = || {
        let packets = field("packets")? as u64;
        Some(Outcome { packets, wall_s: field("wall_s")?, peak_mib: field("peak_kib")? / 1024.0 })
    };
    let failed = || {
        format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr))
    };
    output.status.success().then(read).flatten().ok_or_else(failed)
}

/// Runs one case in this process and prints one line of JSON, as `bench/ns3/dumbbell.cc` does.
pub(crate) fn one(case: &str) -> ExitCode {
    let alike = alike(case);
    let text = match (&alike, case) {
        (Some(traffic), _) => dumbbell(SECONDS, traffic, "100Mbit/s"),
        (None, "udp-flows") => dumbbell(
            5,
            "kind = \"cbr\"\nrate = \"10kbit/s\"\nsize = \"500B\"\nflows = 10000\n",
            "1Gbit/s",
        ),
        (None, "tcp-flows") => {
            dumbbell(5, "kind = \"tcp\"\nsize = \"1488B\"\nflows = 500\n", "1Gbit/s")
        }
        (None, "three-routers") => three_routers(),
        _ => {
            eprintln!("no such case: {case}");
            return ExitCode::from(2);
        }
    };
    let scenario =
        Scenario::parse(&text, case, Path::new(".")).unwrap_or_else(|errors| panic!("{errors}"));
    let begin = Instant::now();
    let outcome = evenkeel_sim::run(&scenario, &SimOptions::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let wall_s = begin.elapsed().as_secs_f64();
    for warning in &outcome.run.warnings {
        eprintln!("warning: {warning}");
    }
    let at_bottleneck =
        |sample: &&evenkeel_report::Sample| sample.router == "r1" && sample.link == "r2";
    let packets = if alike.is_some() {
        outcome.run.samples.iter().filter(at_bottleneck).map(|sample| sample.sent_packets).sum()
    } else {
        outcome.packets
    };
    println!(
        "{{\"packets\":{packets},\"wall_s\":{wall_s},\"events\":{},\"peak_kib\":{}}}",
        outcome.events,
        peak_kib().unwrap_or(0)
    );
    ExitCode::SUCCESS
}

/// The most memory this process had.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn head(seconds: u32) -> String {
    format!(
        "name = \"bench\"\ntitle = \"bench\"\nduration = \"{seconds}s\"\nsettle = \"0s\"\nsample = \
         \"1s\"\n"
    )
}

/// The outgoing link of a router to another: paced, first in, first out.
fn fifo(from: &str, to: &str, rate: &str) -> String {
    format!(
        "[[router]]\nname = \"{from}\"\n[[router.config.link]]\nport = \"{to}\"\nrate = \
         \"{rate}\"\n\
         discipline = {{ kind = \"fifo\", limit = 100 }}\n"
    )
}

fn dumbbell(seconds: u32, traffic: &str, rate: &str) -> String {
    let mut text = head(seconds) + &fifo("r1", "r2", rate) + &fifo("r2", "r1", rate);
    text += "[[wire]]\nends = [\"r1\", \"r2\"]\ndelay = \"10ms\"\n";
    for pair in 0..PAIRS {
        let _ = write!(
            text,
            "[[host]]\nname = \"a{pair}\"\n[[host]]\nname = \"b{pair}\"\n\
             [[wire]]\nends = [\"a{pair}\", \"r1\"]\nrate = \"1Gbit/s\"\ndelay = \"1ms\"\n\
             [[wire]]\nends = [\"r2\", \"b{pair}\"]\nrate = \"1Gbit/s\"\ndelay = \"1ms\"\n\
             [[traffic]]\nname = \"t{pair}\"\nfrom = \"a{pair}\"\nto = \"b{pair}\"\nstart = \
             \"{pair}ms\"\n{traffic}"
        );
    }
    text
}

/// 10 million packets of a few sources from end to end: 84 000 a second for two minutes.
fn three_routers() -> String {
    let mut text = head(120);
    text += &(fifo("r1", "r2", "1Gbit/s")
        + &fifo("r2", "r3", "1Gbit/s")
        + &fifo("r3", "sink", "1Gbit/s"));
    text += "[[host]]\nname = \"sink\"\n[[wire]]\nends = [\"r1\", \"r2\"]\n[[wire]]\nends = \
             [\"r2\", \"r3\"]\n\
             [[wire]]\nends = [\"r3\", \"sink\"]\n";
    for source in 0..4 {
        let _ = write!(
            text,
            "[[host]]\nname = \"h{source}\"\n[[wire]]\nends = [\"h{source}\", \"r1\"]\n\
             [[traffic]]\nname = \"t{source}\"\nfrom = \"h{source}\"\nto = \"sink\"\nkind = \
             \"poisson\"\n\
             rate = \"240Mbit/s\"\nsize = \"1428B\"\n"
        );
    }
    text
}
