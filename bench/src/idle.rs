//! `evenkeel-bench idle EVENKEEL`: what the modes of a worker cost and give: CPU when nothing comes
//! and under a small load, and one-way latency, against Linux forwarding on the same veth pairs in
//! the same run.
//!
//! The tester has CPU 0 for itself: it sends frames with a stamp, one at a time, and asks its
//! receive ring in between. The worker has CPU 1. Latency is from the tester's clock before it
//! sends to the kernel's stamp of arrival, so it holds two crossings of a veth pair and the
//! tester's own send. Linux forwards on the CPU of the sender, within the call that sends, unless
//! it is told to steer packets to CPU 1: then an interrupt wakes that one, as it wakes a worker
//! that sleeps.
//!
//! CPU is the worker's own time; for Linux it is what CPU 1 did not idle, which whatever else runs
//! there is part of.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_core::Nanos;
use evenkeel_lab::qualify::{Addresses, PortPlace, Tester, Trial};
use evenkeel_netns::testing::{available, has_tool};
use evenkeel_ports::sys;

use crate::live::bed::{Bed, CpuTime, GENERATOR_CPU, Linux, ROUTER_CPU};
use crate::live::router::{Router, Task};
use crate::timing::Spread;

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(600);
/// Frames per second.
const LOADS: [f64; 3] = [1_000.0, 10_000.0, 100_000.0];
const SIZE: u16 = 64;

/// Who forwards.
#[derive(Clone, Copy, Debug)]
enum Case {
    /// The kernel; whether on CPU 1.
    Linux(bool),
    /// In this mode.
    Evenkeel(&'static str),
}

const CASES: [(&str, Case); 5] = [
    ("Linux", Case::Linux(false)),
    ("Linux, steered to CPU 1", Case::Linux(true)),
    ("Evenkeel, event", Case::Evenkeel("event")),
    ("Evenkeel, adaptive", Case::Evenkeel("adaptive")),
    ("Evenkeel, busy", Case::Evenkeel("busy")),
];

/// A load in a round.
struct Row {
    cpu: f64,
    /// Microseconds: p50, p99, p99.9.
    latency: Option<[f64; 3]>,
    lost: u64,
    /// The largest part of the time that tester or worker waited for a CPU.
    waited: f64,
}

pub(crate) fn run(evenkeel: &Path) -> ExitCode {
    let name = "evenkeel-bench idle";
    if !(available(name) && has_tool(name, "tc", "iproute2") && has_tool(name, "sysctl", "procps"))
    {
        return ExitCode::SUCCESS;
    }
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("{name}: skipped: tester and router need a CPU each");
        return ExitCode::SUCCESS;
    }
    // Pinned, and gone afterwards.
    let thread = std::thread::scope(|scope| scope.spawn(|| measure(evenkeel)).join());
    match thread.expect("the tester ends") {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(evenkeel: &Path) -> Result<(), String> {
    let bed = Bed::new();
    let [tx, rx] = bed.ends().map(|(namespace, interface)| PortPlace {
        namespace: Some(namespace),
        interface: interface.into(),
    });
    let addresses = Addresses {
        device: bed.router_mac(),
        source: [10, 0, 1, 2].into(),
        destination: [10, 9, 0, 1].into(),
    };
    let mut tester = Tester::open(&tx, &rx, addresses, true).map_err(|error| error.to_string())?;
    sys::pin_to_cpu(GENERATOR_CPU).map_err(|error| error.to_string())?;
    // By case, by load (the first is none), by round.
    let mut rows: Vec<Vec<Vec<Row>>> =
        CASES.iter().map(|_| (0..=LOADS.len()).map(|_| Vec::new()).collect()).collect();
    for _ in 0..ROUNDS {
        for ((name, case), rows) in CASES.iter().zip(&mut rows) {
            let turn =
                turn(evenkeel, &bed, &mut tester, *case).map_err(|why| format!("{name}: {why}"))?;
            rows.iter_mut().zip(turn).for_each(|(rows, row)| rows.push(row));
        }
    }
    print(&rows);
    Ok(())
}

/// One case, once: a row for each load.
fn turn(evenkeel: &Path, bed: &Bed, tester: &mut Tester, case: Case) -> Result<Vec<Row>, String> {
    bed.linux(Linux { own_cpu: matches!(case, Case::Linux(true)), htb: false });
    let mut router = match case {
        Case::Linux(_) => None,
        Case::Evenkeel(mode) => {
            let task = Task { mode, discipline: "", io: "af-xdp", link: "", more: "" };
            Some(Router::start(evenkeel, bed, task)?)
        }
    };
    // Neighbours are known, caches warm.
    tester.trial(SIZE, 1_000.0, Nanos::from_millis(50), Nanos::from_millis(20));
    let by_kernel = bed.counts().by_kernel;
    let mut rows = Vec::new();
    let mut received = 0;
    for load in [None].into_iter().chain(LOADS.map(Some)) {
        let before = Used::now(router.as_ref());
        let trial = load.map(|rate| {
            tester.trial(SIZE, rate, Nanos(TIME.as_nanos() as u64), Nanos::from_millis(20))
        });
        if trial.is_none() {
            sleep(TIME);
        }
        // With the 30 ms of quiet that the tester waits for after its last frame.
        let used = Used::now(router.as_ref());
        let time = used.at - before.at;
        let waited = used.worker.since(before.worker).waited
            + trial.as_ref().map_or(Duration::ZERO, |t| t.waited);
        received += trial.as_ref().map_or(0, |trial| trial.received);
        rows.push(Row {
            cpu: if router.is_some() {
                used.worker.since(before.worker).ran.as_secs_f64() / time.as_secs_f64()
            } else {
                (used.busy - before.busy) / time.as_secs_f64()
            },
            latency: trial.as_ref().and_then(latency),
            lost: trial.as_ref().map_or(0, |trial| trial.sent - trial.received),
            waited: waited.as_secs_f64() / time.as_secs_f64(),
        });
    }
    let by_kernel = bed.counts().by_kernel - by_kernel;
    let by_router = match &mut router {
        Some(router) => router.show()?.ports.iter().map(|port| port.forwarded).sum(),
        None => 0,
    };
    let wrong = match case {
        Case::Linux(_) => by_router > 0 || by_kernel < received,
        Case::Evenkeel(_) => by_kernel > 0 || by_router < received,
    };
    if wrong {
        return Err(format!(
            "of {received} frames Linux forwarded {by_kernel} and Evenkeel {by_router}"
        ));
    }
    Ok(rows)
}

fn latency(trial: &Trial) -> Option<[f64; 3]> {
    let at = |part| Some(trial.latency.quantile(part)?.0 as f64 / 1e3);
    Some([at(0.5)?, at(0.99)?, at(0.999)?])
}

/// Processor time up to now.
struct Used {
    at: Instant,
    worker: CpuTime,
    /// Seconds that the router's CPU was not idle.
    busy: f64,
}

impl Used {
    fn now(router: Option<&Router>) -> Self {
        Self {
            at: Instant::now(),
            worker: router.map(|router| CpuTime::of(router.worker())).unwrap_or_default(),
            busy: busy(),
        }
    }
}

/// Seconds that the router's CPU was not idle since the machine started, in the kernel's ticks of
/// 10 ms.
fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{ROUTER_CPU} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // User, nice, system, idle, iowait, interrupts, soft interrupts, stolen.
    let idle = [3, 4];
    let busy = ticks.iter().take(8).enumerate().filter(|(at, _)| !idle.contains(at));
    busy.map(|(_, ticks)| ticks * 0.01).sum()
}

fn print(rows: &[Vec<Vec<Row>>]) {
    println!(
        "A worker's modes: CPU and one-way latency of {SIZE}-byte frames over two veth pairs \
         (medians of {ROUNDS} rounds in turn)"
    );
    println!(
        "  {:<26} {:>10} {:>8} {:>10} {:>10} {:>10} {:>7} {:>8}",
        "", "frames/s", "CPU", "p50 us", "p99 us", "p99.9 us", "lost", "waited"
    );
    for ((name, _), rows) in CASES.iter().zip(rows) {
        for (load, rows) in [0.0].into_iter().chain(LOADS).zip(rows) {
            let median =
                |value: &dyn Fn(&Row) -> f64| Spread::of(rows.iter().map(value).collect()).median;
            let latency = |at: usize| {
                let all: Vec<f64> = rows.iter().filter_map(|row| Some(row.latency?[at])).collect();
                if all.is_empty() {
                    "-".to_owned()
                } else {
                    format!("{:.1}", Spread::of(all).median)
                }
            };
            let cpu = if name.starts_with("Linux") && !name.contains("CPU 1") && load > 0.0 {
                "tester's".to_owned()
            } else {
                format!("{:.1} %", median(&|row| row.cpu) * 100.0)
            };
            println!(
                "  {name:<26} {load:>10.0} {cpu:>8} {:>10} {:>10} {:>10} {:>7} {:>7.1}%",
                latency(0),
                latency(1),
                latency(2),
                rows.iter().map(|row| row.lost).sum::<u64>(),
                median(&|row| row.waited) * 100.0,
            );
        }
    }
    println!(
        "  waited: for a CPU that something else had, tester and worker together; beyond a percent \
         the tails are the machine's"
    );
}
