//! `evenkeel-bench live EVENKEEL`: packets per second through the router against Linux, on the same veth pairs in the same run.
//!
//! The generator has CPU 0 for itself and offers as much as it can; frames are counted where the sink receives them. On a veth pair the work
//! of receiving is done on the CPU of the sender: for Evenkeel the copy into the receive ring is made on CPU 0 and the rest on CPU 1; Linux forwards wholly
//! on CPU 0 or, with receive packet steering, on CPU 1. So the generator's offer depends on who forwards, and is told.
//!
//! A turn counts only if the counters of who should have forwarded say that he did, and if neither generator nor router had to share its CPU.

mod bed;
mod generator;
mod router;

use std::cell::RefCell;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_netns::testing::{available, has_tool};

use crate::timing::{self, Rounds, Spread};
use bed::{Bed, Counts, CpuTime, Linux};
use generator::Generator;
use router::{Router, Task};

const ROUNDS: usize = 5;
/// Before counting: caches, rings and the generator get going.
const WARM_UP: Duration = Duration::from_millis(150);
/// How long is counted.
const COUNTED: Duration = Duration::from_millis(500);
/// A turn in which a thread waited for its CPU longer than this part of the time is repeated.
const DISTURBED: f64 = 0.03;
/// How often at most.
const TRIES: usize = 3;
/// No turn is repeated after this: the whole is to end within three minutes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Part of the frames at the sink that their forwarder's own counter must know of: the two are not read at the same instant. It may know
/// of more, those lost on the way to the sink.
const OWNED: f64 = 0.9;

/// Who forwards.
#[derive(Clone, Copy, Debug)]
enum Case {
    Linux(Linux),
    Evenkeel(Task),
}

const WFQ: &str = "kind = \"wfq-altq\", limit = 1024, weight = { b = 30, c = 300, d = 1000 }";
const LCT: &str =
    "kind = \"lct\", limit = 1024, module2 = false, x_delay = { b = \"10us\", c = \"50us\", d = \"200us\" }";

const CASES: [(&str, Case); 10] = [
    ("Linux", Case::Linux(Linux { own_cpu: false, htb: false })),
    ("Linux, steered to CPU 1", Case::Linux(Linux { own_cpu: true, htb: false })),
    ("Linux + HTB", Case::Linux(Linux { own_cpu: false, htb: true })),
    ("Linux + HTB, steered to CPU 1", Case::Linux(Linux { own_cpu: true, htb: true })),
    ("Evenkeel FIFO, busy", Case::Evenkeel(Task { mode: "busy", discipline: "" })),
    ("Evenkeel WFQ/ALTQ, busy", Case::Evenkeel(Task { mode: "busy", discipline: WFQ })),
    ("Evenkeel LCT-UC, busy", Case::Evenkeel(Task { mode: "busy", discipline: LCT })),
    ("Evenkeel FIFO, event", Case::Evenkeel(Task { mode: "event", discipline: "" })),
    ("Evenkeel WFQ/ALTQ, event", Case::Evenkeel(Task { mode: "event", discipline: WFQ })),
    ("Evenkeel LCT-UC, event", Case::Evenkeel(Task { mode: "event", discipline: LCT })),
];
/// What ratios are to: the better of Linux without a queueing discipline, and the better with HTB.
const PLAIN: [usize; 2] = [0, 1];
const HTB: [usize; 2] = [2, 3];

/// What one turn gave.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Frames per second at the sink, and from the generator.
    forwarded: f64,
    offered: f64,
    /// Part of the time that the router's worker used its CPU; not a number for Linux, whose work no thread does.
    worker: f64,
    /// The largest part of the time that a thread waited for its CPU.
    waited: f64,
}

pub(crate) fn run(evenkeel: &Path) -> std::process::ExitCode {
    let name = "evenkeel-bench live";
    if !(available(name) && has_tool(name, "tc", "iproute2") && has_tool(name, "sysctl", "procps")) {
        return std::process::ExitCode::SUCCESS;
    }
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("{name}: skipped: generator and router need a CPU each");
        return std::process::ExitCode::SUCCESS;
    }
    let begin = Instant::now();
    let bed = Bed::new();
    println!("Packets through the router, against Linux on the same veth pairs ({ROUNDS} rounds in turn)");
    let mut good = true;
    for size in [60, 1514] {
        good &= compare(evenkeel, &bed, size, begin + PATIENCE);
    }
    if good { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// All cases with frames of one size.
fn compare(evenkeel: &Path, bed: &Bed, size: u16, patience: Instant) -> bool {
    let turns: RefCell<Vec<Vec<Turn>>> = RefCell::new(vec![Vec::new(); CASES.len()]);
    let refused = RefCell::new(Vec::new());
    let repeated = RefCell::new(0);
    let mut cases: Vec<timing::Case<'_>> = Vec::new();
    for (index, (name, case)) in CASES.iter().enumerate() {
        let (turns, refused, repeated) = (&turns, &refused, &repeated);
        let run = move || {
            let mut best: Option<Turn> = None;
            for _ in 0..TRIES {
                match turn(evenkeel, bed, size, *case) {
                    Ok(turn) => {
                        if best.is_none_or(|best| turn.waited < best.waited) {
                            best = Some(turn);
                        }
                    }
                    Err(why) => refused.borrow_mut().push(format!("{name}: {why}")),
                }
                if best.is_some_and(|best| best.waited < DISTURBED) || Instant::now() > patience {
                    break;
                }
                *repeated.borrow_mut() += 1;
            }
            let Some(best) = best else { return f64::NAN };
            turns.borrow_mut()[index].push(best);
            best.forwarded
        };
        cases.push(((*name).to_owned(), Box::new(run)));
    }
    let rounds = Rounds::run(ROUNDS, &mut cases);
    drop(cases);
    print(size, &rounds, &turns.into_inner());
    println!("  {} turns were repeated because something else ran on their CPU", repeated.into_inner());
    for why in refused.borrow().iter() {
        println!("  refused: {why}");
    }
    rounds.rows().all(|(_, spread)| spread.is_some())
}

/// One case, once.
fn turn(evenkeel: &Path, bed: &Bed, size: u16, case: Case) -> Result<Turn, String> {
    let mut router = match case {
        Case::Linux(how) => {
            bed.linux(how);
            None
        }
        Case::Evenkeel(task) => {
            bed.linux(Linux { own_cpu: false, htb: false });
            Some(Router::start(evenkeel, bed, task)?)
        }
    };
    let generator = bed.generate(size);
    sleep(WARM_UP);
    let before = Reading::now(bed, &generator, router.as_mut())?;
    sleep(COUNTED);
    let after = Reading::now(bed, &generator, router.as_mut())?;
    drop(generator);

    let time = after.counts.at - before.counts.at;
    let arrived = after.counts.arrived - before.counts.arrived;
    let by_kernel = after.counts.by_kernel - before.counts.by_kernel;
    let by_router = after.by_router - before.by_router;
    let (right, wrong, who) =
        if router.is_some() { (by_router, by_kernel, "Evenkeel") } else { (by_kernel, by_router, "Linux") };
    if arrived == 0 || wrong > 0 || (right as f64) < OWNED * arrived as f64 {
        return Err(format!(
            "of {arrived} frames that arrived Linux forwarded {by_kernel} and Evenkeel {by_router}: not {who} alone"
        ));
    }
    let waited =
        |before: CpuTime, after: CpuTime| after.since(before).waited.as_secs_f64() / time.as_secs_f64();
    let ran = after.worker.since(before.worker).ran.as_secs_f64() / time.as_secs_f64();
    Ok(Turn {
        worker: if router.is_some() { ran } else { f64::NAN },
        forwarded: arrived as f64 / time.as_secs_f64(),
        offered: (after.offered - before.offered) as f64 / time.as_secs_f64(),
        waited: waited(before.generator, after.generator).max(waited(before.worker, after.worker)),
    })
}

/// Everything that is read before and after.
struct Reading {
    counts: Counts,
    offered: u64,
    by_router: u64,
    generator: CpuTime,
    worker: CpuTime,
}

impl Reading {
    fn now(bed: &Bed, generator: &Generator, router: Option<&mut Router>) -> Result<Self, String> {
        let (by_router, worker) = match router {
            Some(router) => {
                let snapshot = router.show()?;
                let sent = snapshot.ports.iter().find(|port| port.name == "out").map(|port| port.tx_packets);
                (sent.ok_or("the router has lost its port")?, CpuTime::of(router.worker()))
            }
            None => (0, CpuTime::default()),
        };
        let counts = bed.counts();
        Ok(Self {
            counts,
            offered: generator.sent(),
            by_router,
            generator: CpuTime::of(generator.task()),
            worker,
        })
    }
}

fn print(size: u16, rounds: &Rounds, turns: &[Vec<Turn>]) {
    println!(
        "\n  {:<40} {:>9}  {:>17} {:>9} {:>7} {:>9} {:>7}",
        format!("frames of {size} bytes"),
        "kpps",
        "(min to max)",
        "offered",
        "worker",
        "to Linux",
        "to HTB"
    );
    for (index, (name, spread)) in rounds.rows().enumerate() {
        let Some(spread) = spread else {
            println!("  {name:<40} no round was accepted");
            continue;
        };
        let offered = Spread::of(turns[index].iter().map(|turn| turn.offered).collect());
        let worker = Spread::of(turns[index].iter().map(|turn| turn.worker).collect());
        println!(
            "  {name:<40} {:>9.0}  {:>17} {:>9.0} {:>7} {:>9.2} {:>7.2}",
            spread.median / 1e3,
            format!("({:.0} to {:.0})", spread.min / 1e3, spread.max / 1e3),
            offered.median / 1e3,
            if worker.median.is_nan() { String::new() } else { format!("{:.0} %", worker.median * 100.0) },
            rounds.ratio_to_best(index, &PLAIN),
            rounds.ratio_to_best(index, &HTB),
        );
    }
    println!("  offered: by the generator; where it equals kpps, CPU 0 was the limit. worker: its CPU time");
    println!("  ratios: to the better of the two rows of Linux, round by round; {}", rounds.verdict());
}
