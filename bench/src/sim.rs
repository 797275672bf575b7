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

/// Hosts on either side of the dumbbell; `bench/ns3/dumbbell.cc` has as many.
const PAIRS: u32 = 10;
/// Virtual seconds of a dumbbell.
const SECONDS: u32 = 10;
/// Runs of each simulator; the median counts.
const ROUNDS: usize = 3;

/// What a run says of itself.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    packets: u64,
    wall_s: f64,
    peak_mib: f64,
}

impl Outcome {
    fn per_second(&self) -> f64 {
        self.packets as f64 / self.wall_s
    }
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
        "Simulated dumbbell, FIFO of 100 packets, 100 Mbit/s, {SECONDS} virtual seconds; medians \
         of {ROUNDS}\n"
    );
    println!("{:<14} {:>10} {:>16} {:>12}", "", "packets", "packets/s (wall)", "peak MiB");
    for (name, case, arguments) in [
        ("100 UDP flows", "udp", ["--tcp=0", "--flows=100"]),
        ("10 TCP flows", "tcp", ["--tcp=1", "--flows=10"]),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(own(case)?);
            if let Some(ns3) = ns3 {
                theirs.push(outcome(
                    Command::new(ns3).args(arguments).arg(format!("--seconds={SECONDS}")),
                )?);
            }
        }
        let ours = median(ours);
        println!("{name}");
        row("  evenkeel", &ours);
        if theirs.is_empty() {
            println!(
                "  ns-3         skipped: not built (scripts/setup.sh bench installs what it needs)"
            );
            continue;
        }
        let theirs = median(theirs);
        row("  ns-3", &theirs);
        println!(
            "  evenkeel is {:.0} times as fast, in 1/{:.1} of the memory\n",
            ours.per_second() / theirs.per_second(),
            theirs.peak_mib / ours.peak_mib
        );
    }
    Ok(())
}

fn sizes() -> Result<(), String> {
    println!("\nSizes; packets are those that hosts sent\n");
    for (case, aim) in [
        ("three-routers", "10 million packets, each through three routers: under 15 s"),
        ("udp-flows", "100 000 UDP flows at once: under 2048 MiB"),
        ("tcp-flows", "5 000 TCP flows at once: under 2048 MiB"),
    ] {
        let outcome = own(case)?;
        println!(
            "{case:<14} {:>10} packets in {:>6.1} s, {:>6.0} MiB   ({aim})",
            outcome.packets, outcome.wall_s, outcome.peak_mib
        );
    }
    Ok(())
}

fn row(name: &str, outcome: &Outcome) {
    println!(
        "{name:<14} {:>10} {:>16.0} {:>12.1}",
        outcome.packets,
        outcome.per_second(),
        outcome.peak_mib
    );
}

fn median(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    outcomes[outcomes.len() / 2]
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
    let text = match case {
        "udp" => dumbbell(
            SECONDS,
            "kind = \"cbr\"\nrate = \"1100kbit/s\"\nsize = \"1428B\"\nflows = 10\n",
            "100Mbit/s",
        ),
        "tcp" => dumbbell(
            SECONDS,
            "kind = \"tcp\"\ncongestion = \"reno\"\nsize = \"1488B\"\n",
            "100Mbit/s",
        ),
        "udp-flows" => dumbbell(
            5,
            "kind = \"cbr\"\nrate = \"10kbit/s\"\nsize = \"500B\"\nflows = 10000\n",
            "1Gbit/s",
        ),
        "tcp-flows" => dumbbell(5, "kind = \"tcp\"\nsize = \"1488B\"\nflows = 500\n", "1Gbit/s"),
        "three-routers" => three_routers(),
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
    let packets = match case {
        "udp" | "tcp" => {
            outcome.run.samples.iter().filter(at_bottleneck).map(|sample| sample.sent_packets).sum()
        }
        _ => outcome.packets,
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
