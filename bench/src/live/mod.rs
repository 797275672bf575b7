//! `evenkeel-bench live EVENKEEL`: packets per second through the router against Linux, on the same
//! veth pairs in the same run.
//!
//! The generator has CPU 0 for itself and offers as much as it can; frames are counted where the
//! sink receives them. On a veth pair the work of receiving is done on the CPU of the sender: for
//! Evenkeel the copy into the receive ring is made on CPU 0 and the rest on CPU 1; Linux forwards
//! wholly on CPU 0 or, with receive packet steering, on CPU 1. So the generator's offer depends on
//! who forwards, and is told.
//!
//! A turn counts only if the counters of who should have forwarded say that he did, and if neither
//! generator nor router had to share its CPU.

mod bare;
pub(crate) mod bed;
pub(crate) mod generator;
pub(crate) mod router;
mod testpmd;

use std::cell::RefCell;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_netns::testing::{available, has_tool};

use crate::timing::{self, Rounds, Spread};
use bare::Bare;
use bed::{Bed, Counts, CpuTime, Linux};
use generator::Generator;
use router::{Router, Task};
use testpmd::Testpmd;

const ROUNDS: usize = 5;
/// Before counting: caches, rings and the generator get going.
const WARM_UP: Duration = Duration::from_millis(150);
/// How long is counted.
const COUNTED: Duration = Duration::from_millis(500);
/// A turn in which a thread waited for its CPU longer than this part of the time is repeated.
const DISTURBED: f64 = 0.03;
/// How often at most.
const TRIES: usize = 2;
/// No turn is repeated after this: the whole is to end within six minutes.
const PATIENCE: Duration = Duration::from_secs(180);
/// Part of the frames at the sink that their forwarder's own counter must know of: the two are not
/// read at the same instant. It may know of more, those lost on the way to the sink.
const OWNED: f64 = 0.9;

/// Who forwards.
#[derive(Clone, Copy, Debug)]
enum Case {
    Linux(Linux),
    Evenkeel(Task),
    /// Two of Evenkeel's AF_XDP ports that give each other their frames.
    Bare,
    /// DPDK's testpmd with this driver.
    Testpmd(&'static str),
}

const WFQ: &str = "kind = \"wfq-altq\", limit = 1024, weight = { b = 30, c = 300, d = 1000 }";
const PDRR: &str = "kind = \"pdrr\"";
/// Never refuses: what it costs is measured, not what it turns away.
const ADMISSION: &str =
    "admission = { rate = \"100Gbit/s\", budget = false, expected_flows = false }\n";
const FAIRDROP: &str = "[fairdrop]\non = true\n";

const FIFO: Task = Task { mode: "busy", io: "af-packet", discipline: "", link: "", more: "" };
const XDP: Task = Task { io: "af-xdp", ..FIFO };

const PDRR_LINK: Task = Task { discipline: PDRR, link: ADMISSION, ..XDP };

const CASES: [(&str, Case); 15] = [
    ("Linux", Case::Linux(Linux { own_cpu: false, htb: false })),
    ("Linux, steered to CPU 1", Case::Linux(Linux { own_cpu: true, htb: false })),
    ("Linux + HTB", Case::Linux(Linux { own_cpu: false, htb: true })),
    ("Linux + HTB, steered to CPU 1", Case::Linux(Linux { own_cpu: true, htb: true })),
    ("testpmd, af_xdp", Case::Testpmd("net_af_xdp")),
    ("testpmd, af_packet", Case::Testpmd("net_af_packet")),
    ("Evenkeel's AF_XDP ports, nothing between", Case::Bare),
    ("Evenkeel, af-xdp", Case::Evenkeel(XDP)),
    ("Evenkeel + WFQ/ALTQ, af-xdp", Case::Evenkeel(Task { discipline: WFQ, ..XDP })),
    ("Evenkeel + PDRR + admission, af-xdp", Case::Evenkeel(PDRR_LINK)),
    ("Evenkeel + FairDrop, af-xdp", Case::Evenkeel(Task { more: FAIRDROP, ..XDP })),
    ("Evenkeel, af-packet", Case::Evenkeel(FIFO)),
    ("Evenkeel + WFQ/ALTQ, af-packet", Case::Evenkeel(Task { discipline: WFQ, ..FIFO })),
    (
        "Evenkeel + PDRR + admission, af-packet",
        Case::Evenkeel(Task { io: "af-packet", ..PDRR_LINK }),
    ),
    ("Evenkeel + FairDrop, af-packet", Case::Evenkeel(Task { more: FAIRDROP, ..FIFO })),
];
/// Lengths of frames, bytes, check sequence included.
const SIZES: [u16; 3] = [64, 512, 1500];
/// What ratios are to: the best of the cases whose names begin so, and not with HTB where that is
/// not said.
const BASES: [&str; 3] = ["Linux", "Linux + HTB", "testpmd, af_xdp"];

/// What one turn gave.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Frames per second at the sink, and from the generator.
    forwarded: f64,
    offered: f64,
    /// Part of the time that the router's worker used its CPU; not a number for Linux, whose work
    /// no thread does.
    worker: f64,
    /// The largest part of the time that a thread waited for its CPU.
    waited: f64,
}

/// `only`: lengths of frames (bytes, check sequence included) and parts of the names of cases;
/// empty: all of them.
pub(crate) fn run(evenkeel: &Path, only: &[&str]) -> std::process::ExitCode {
    let name = "evenkeel-bench live";
    if !(available(name) && has_tool(name, "tc", "iproute2") && has_tool(name, "sysctl", "procps"))
    {
        return std::process::ExitCode::SUCCESS;
    }
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("{name}: skipped: generator and router need a CPU each");
        return std::process::ExitCode::SUCCESS;
    }
    let begin = Instant::now();
    let bed = Bed::new();
    println!(
        "Packets through the router, against Linux on the same veth pairs ({ROUNDS} rounds in turn)"
    );
    let mut good = true;
    let (sizes, names): (Vec<&str>, Vec<&str>) =
        only.iter().partition(|word| word.parse::<u16>().is_ok());
    let sizes = sizes.iter().filter_map(|word| word.parse().ok()).collect::<Vec<u16>>();
    let cases: Vec<(&str, Case)> = CASES
        .into_iter()
        .filter(|(case, _)| names.is_empty() || names.iter().any(|name| case.contains(name)))
        .collect();
    for size in if sizes.is_empty() { SIZES.to_vec() } else { sizes } {
        if !(64..=1518).contains(&size) || cases.is_empty() {
            eprintln!("{name}: frames of 64 to 1518 bytes, and parts of these names:");
            CASES.iter().for_each(|(case, _)| eprintln!("  {case}"));
            return std::process::ExitCode::from(2);
        }
        // Without the check sequence.
        good &= compare(evenkeel, &bed, size - 4, &cases, begin + PATIENCE);
    }
    if good { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// All cases with frames of one size.
fn compare(
    evenkeel: &Path,
    bed: &Bed,
    size: u16,
    chosen: &[(&str, Case)],
    patience: Instant,
) -> bool {
    let turns: RefCell<Vec<Vec<Turn>>> = RefCell::new(vec![Vec::new(); chosen.len()]);
    let refused = RefCell::new(Vec::new());
    let repeated = RefCell::new(0);
    let generator = bed.generate(size);
    let mut cases: Vec<timing::Case<'_>> = Vec::new();
    for (index, (name, case)) in chosen.iter().enumerate() {
        let (turns, refused, repeated, generator) = (&turns, &refused, &repeated, &generator);
        let run = move || {
            let mut best: Option<Turn> = None;
            for _ in 0..TRIES {
                match turn(evenkeel, bed, generator, *case) {
                    Ok(turn) => {
                        if best.is_none_or(|best| turn.waited < best.waited) {
                            best = Some(turn);
                        }
                    }
                    Err(why) => {
                        refused.borrow_mut().push(format!("{name}: {why}"));
                        if matches!(case, Case::Testpmd(_)) {
                            break;
                        }
                    }
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
    println!(
        "  {} turns were repeated because something else ran on their CPU",
        repeated.into_inner()
    );
    let refused = refused.into_inner();
    for (index, why) in
        refused.iter().enumerate().filter(|(index, why)| !refused[..*index].contains(why))
    {
        let times = refused[index..].iter().filter(|other| *other == why).count();
        println!("  refused ({times} times): {why}");
    }
    // What is not ours may be missing, or not work with this kernel: that was told above.
    let ours = |(index, (_, spread)): (usize, (&str, Option<Spread>))| {
        spread.is_some() || matches!(chosen[index].1, Case::Testpmd(_))
    };
    rounds.rows().enumerate().all(ours)
}

/// One case, once.
fn turn(evenkeel: &Path, bed: &Bed, generator: &Generator, case: Case) -> Result<Turn, String> {
    let plain = Linux { own_cpu: false, htb: false };
    bed.linux(if let Case::Linux(how) = case { how } else { plain });
    // testpmd's packet sockets leave the kernel a copy of each frame; and what the kernel forwarded
    // could not be told from what it or the bare ports did.
    bed.kernel_forwards(!matches!(case, Case::Testpmd(_) | Case::Bare));
    let mut router = match case {
        Case::Evenkeel(task) => Some(Router::start(evenkeel, bed, task)?),
        Case::Linux(_) | Case::Testpmd(_) | Case::Bare => None,
    };
    let bare = matches!(case, Case::Bare).then(|| Bare::start(bed)).transpose()?;
    let testpmd = match case {
        Case::Testpmd(driver) => Some(Testpmd::start(bed, driver)?),
        Case::Linux(_) | Case::Evenkeel(_) | Case::Bare => None,
    };
    let worker = testpmd
        .as_ref()
        .map(Testpmd::worker)
        .or_else(|| bare.as_ref().map(|bare| bare.task().to_owned()));
    generator.send(true);
    sleep(WARM_UP);
    let before = Reading::now(bed, generator, router.as_mut(), worker.as_deref());
    sleep(COUNTED);
    let after = Reading::now(bed, generator, router.as_mut(), worker.as_deref());
    generator.send(false);
    let (before, after) = (before?, after?);

    let time = after.counts.at - before.counts.at;
    let arrived = after.counts.arrived - before.counts.arrived;
    let by_kernel = after.counts.by_kernel - before.counts.by_kernel;
    let by_router = after.by_router - before.by_router;
    let (right, wrong, who) = match case {
        Case::Evenkeel(_) => (by_router, by_kernel, "Evenkeel"),
        Case::Linux(_) => (by_kernel, by_router, "Linux"),
        // They have no counters that can be read meanwhile; nobody else is there.
        Case::Testpmd(_) => (arrived, by_kernel, "testpmd"),
        Case::Bare => (arrived, by_kernel, "the ports"),
    };
    if arrived == 0 || wrong > 0 || (right as f64) < OWNED * arrived as f64 {
        return Err(format!(
            "of {arrived} frames that arrived Linux forwarded {by_kernel} and Evenkeel \
             {by_router}: not {who} alone"
        ));
    }
    let waited = |before: CpuTime, after: CpuTime| {
        after.since(before).waited.as_secs_f64() / time.as_secs_f64()
    };
    let ran = after.worker.since(before.worker).ran.as_secs_f64() / time.as_secs_f64();
    Ok(Turn {
        worker: if matches!(case, Case::Linux(_)) { f64::NAN } else { ran },
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
    fn now(
        bed: &Bed,
        generator: &Generator,
        router: Option<&mut Router>,
        other: Option<&str>,
    ) -> Result<Self, String> {
        let (by_router, worker) = match router {
            Some(router) => {
                let snapshot = router.show()?;
                let sent = snapshot
                    .ports
                    .iter()
                    .find(|port| port.name == "out")
                    .map(|port| port.tx_packets);
                (sent.ok_or("the router has lost its port")?, CpuTime::of(router.worker()))
            }
            None => (0, other.map(CpuTime::of).unwrap_or_default()),
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
        "\n  {:<40} {:>9}  {:>17} {:>9} {:>7} {:>9} {:>7} {:>8}",
        format!("frames of {} bytes", size + 4),
        "kpps",
        "(min to max)",
        "offered",
        "worker",
        "to Linux",
        "to HTB",
        "to DPDK"
    );
    let bases = BASES.map(|base| {
        let is =
            |name: &str| name.starts_with(base) && (base.contains("HTB") || !name.contains("HTB"));
        rounds
            .rows()
            .enumerate()
            .filter(|(_, (name, _))| is(name))
            .map(|(index, _)| index)
            .collect::<Vec<_>>()
    });
    for (index, (name, spread)) in rounds.rows().enumerate() {
        let Some(spread) = spread else {
            println!("  {name:<40} no round was accepted");
            continue;
        };
        let offered = Spread::of(turns[index].iter().map(|turn| turn.offered).collect());
        let worker = Spread::of(turns[index].iter().map(|turn| turn.worker).collect());
        let [plain, htb, dpdk] =
            bases.each_ref().map(|bases| match rounds.ratio_to_best(index, bases) {
                ratio if ratio.is_nan() => "-".to_owned(),
                ratio => format!("{ratio:.2}"),
            });
        println!(
            "  {name:<40} {:>9.0}  {:>17} {:>9.0} {:>7} {plain:>9} {htb:>7} {dpdk:>8}",
            spread.median / 1e3,
            format!("({:.0} to {:.0})", spread.min / 1e3, spread.max / 1e3),
            offered.median / 1e3,
            if worker.median.is_nan() {
                String::new()
            } else {
                format!("{:.0} %", worker.median * 100.0)
            },
        );
    }
    println!(
        "  offered: by the generator; where it equals kpps, CPU 0 was the limit. worker: its CPU \
         time"
    );
    println!(
        "  ratios: to the better of the rows of Linux (with HTB: to the better of those), and to \
         testpmd with af_xdp, round by round; {}",
        rounds.verdict()
    );
}
