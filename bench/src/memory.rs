//! `evenkeel-bench memory`: nanoseconds and allocations per packet, without any I/O.

use evenkeel_core::Nanos;
use evenkeel_ports::tsc::Tsc;
use evenkeel_router::snapshot::CycleSnapshot;

use crate::allocations;
use crate::disciplines::{BusyLink, CASES, Exchange};
use crate::fairdrop::{self, FLOWS, Judging, RULES};
use crate::pipeline::{Forwarding, SETUPS, Setup};
use crate::timing::{Case, Rounds, Spread};

const ROUNDS: usize = 7;
const PACKETS: u64 = 400_000;

/// Allocations per packet while `run` handles that many packets, after a first run that warms up.
fn allocations(packets: u64, mut run: impl FnMut(u64)) -> f64 {
    run(packets);
    let counted = allocations::measure(|| run(packets));
    counted.count as f64 / packets as f64
}

pub(crate) fn run() {
    disciplines();
    fairdrop();
    pipeline();
}

fn disciplines() {
    println!(
        "Disciplines in memory: one dequeue and one enqueue, 8 packets waiting in every class \
         ({ROUNDS} rounds in turn)"
    );
    let allocated: Vec<f64> = CASES
        .iter()
        .map(|(kind, classes)| {
            let mut exchange = Exchange::new(kind, *classes);
            allocations(PACKETS, |times| exchange.run(times))
        })
        .chain([{
            let mut link = BusyLink::new("wfq-altq", 4);
            allocations(PACKETS, |times| link.run(times))
        }])
        .collect();
    let mut cases: Vec<Case<'_>> = CASES
        .iter()
        .map(|&(kind, classes)| {
            let mut exchange = Exchange::new(kind, classes);
            exchange.run(PACKETS);
            let name = format!("{kind}, {classes} classes");
            let case: Box<dyn FnMut() -> f64> = Box::new(move || exchange.time(PACKETS));
            (name, case)
        })
        .collect();
    let mut link = BusyLink::new("wfq-altq", 4);
    cases.push((
        "whole link, wfq-altq, 4 classes, overloaded".into(),
        Box::new(move || link.time(PACKETS)),
    ));
    print(&Rounds::run(ROUNDS, &mut cases), &allocated, "fifo, 4 classes");
}

fn fairdrop() {
    println!("\nFairDrop in memory: judging and charging bursts of 256, 32 bytes per flow");
    let (mut allocated, mut cases): (Vec<f64>, Vec<Case<'_>>) = (Vec::new(), Vec::new());
    for flows in FLOWS {
        for rule in RULES {
            let mut judging = Judging::new(rule, flows, true);
            allocated.push(allocations(PACKETS, |times| judging.run(times)));
            cases.push((
                format!("rule {rule}, {flows} flows"),
                Box::new(move || judging.time(PACKETS)),
            ));
        }
    }
    print(&Rounds::run(ROUNDS, &mut cases), &allocated, "rule level, 20 flows");
    fairdrop::cycles();
}

fn pipeline() {
    println!(
        "\nWhole pipeline in memory (receive, parse, classify, route, neighbour, rewrite, \
         schedule, transmit), bursts of 32, flows at random"
    );
    // Frame check sequence not counted: 64 and 1500 bytes. What differs in length only differs in
    // the copies of the ports in memory.
    let short = SETUPS.iter().map(|setup| (setup, 60));
    let variants: Vec<(&Setup, u16)> =
        short.chain([(&SETUPS[0], 1496), (&SETUPS[3], 1496)]).collect();
    let mut routers: Vec<Forwarding> =
        variants.iter().map(|(setup, size)| Forwarding::new(setup, *size, false)).collect();
    let allocated: Vec<f64> =
        routers.iter_mut().map(|router| allocations(PACKETS, |times| router.run(times))).collect();
    let mut cases: Vec<Case<'_>> = variants
        .iter()
        .zip(&mut routers)
        .map(|((setup, size), router)| {
            let case: Box<dyn FnMut() -> f64> = Box::new(move || router.time(PACKETS));
            (format!("{}, {} bytes", setup.name, size + 4), case)
        })
        .collect();
    let rounds = Rounds::run(ROUNDS, &mut cases);
    print(&rounds, &allocated, "fifo, 64 bytes");
    for (name, spread) in rounds.rows().skip(3).filter(|(name, _)| name.starts_with("admission")) {
        let time = spread.expect("nothing is refused here").median;
        println!("  {name}: {:.1} million packets a second on one core", 1e3 / time);
    }
    stages();
}

/// Where a packet's time goes, as the router itself accounts for it.
fn stages() {
    const STAGES: [&str; 6] = ["fetch", "look-ahead", "judge", "route", "schedule", "transmit"];
    println!(
        "\nThe same by stage, ns per packet of 64 bytes (median of {ROUNDS}, the reading of the \
         counter taken off)"
    );
    println!("  {:<30} {}", "", STAGES.map(|stage| format!("{stage:>11}")).concat());
    let tsc = Tsc::calibrate(Nanos::from_millis(20));
    // Where packets wait, what a packet takes is not what it itself costs: the first of a burst
    // finds all that has left meanwhile.
    for setup in SETUPS.iter().filter(|setup| setup.backlog == 0) {
        let mut router = Forwarding::new(setup, 60, true);
        router.run(PACKETS);
        let mut found: [Vec<f64>; STAGES.len()] = Default::default();
        for _ in 0..ROUNDS {
            let before = router.accounts();
            router.run(PACKETS / 4);
            let after = router.accounts();
            let reading = reading(&tsc);
            for (found, stage) in found.iter_mut().zip(STAGES) {
                let of = |accounts: &CycleSnapshot| {
                    let row =
                        accounts.stages.iter().find(|row| row.stage == stage).expect("a stage");
                    (row.packets, row.cycles)
                };
                let ((packets, cycles), (more_packets, more_cycles)) = (of(&before), of(&after));
                let each = (more_cycles - cycles) as f64 / (more_packets - packets) as f64;
                // Bursts are measured as a whole, packets one by one.
                let alone = if matches!(stage, "fetch" | "look-ahead" | "transmit") {
                    0.0
                } else {
                    reading
                };
                found.push((each - alone) * 1e9 / tsc.hertz() as f64);
            }
        }
        let columns = found.map(|times| format!("{:>11.1}", Spread::of(times).median));
        println!("  {:<30} {}", setup.name, columns.concat());
    }
    println!(
        "  fetch: copy out of the port; look-ahead: parse, hash, class, route; judge: FairDrop; \
         route: neighbour, rewrite; schedule: admission and the link's"
    );
    println!("  queue; transmit: the link gives what leaves it to the port, which copies it");
}

/// Cycles between two readings of the counter right after each other.
fn reading(tsc: &Tsc) -> f64 {
    const TIMES: u64 = 10_000;
    let begin = tsc.now();
    let mut last = begin;
    for _ in 0..TIMES {
        last = tsc.now();
    }
    (last.0 - begin.0) as f64 / TIMES as f64
}

fn print(rounds: &Rounds, allocated: &[f64], base: &str) {
    println!(
        "  {:<46} {:>9}  {:>17} {:>9} {:>12}",
        "", "ns/packet", "(min to max)", "ratio", "allocations"
    );
    for (index, (name, spread)) in rounds.rows().enumerate() {
        let spread = spread.expect("nothing is refused here");
        println!(
            "  {name:<46} {:>9.1}  {:>17} {:>9.2} {:>12}",
            spread.median,
            format!("({:.1} to {:.1})", spread.min, spread.max),
            rounds.ratio(index, 0),
            allocated[index],
        );
    }
    println!("  ratio: to \"{base}\", round by round; {}", rounds.verdict());
    assert!(allocated.iter().all(|a| *a == 0.0), "something allocates per packet: {allocated:?}");
}
