//! `evenkeel-bench memory`: nanoseconds and allocations per packet, without any I/O.

use crate::disciplines::{BusyLink, CASES, Exchange};
use crate::fairdrop::{Drawing, FLOWS, Judging, RULES};
use crate::pipeline::Forwarding;
use crate::timing::{Case, Rounds};

const ROUNDS: usize = 7;
const PACKETS: u64 = 400_000;

/// Allocations per packet while `run` handles that many packets, after a first run that warms up.
fn allocations(packets: u64, mut run: impl FnMut(u64)) -> f64 {
    run(packets);
    let counted = allocation_counter::measure(|| run(packets));
    counted.count_total as f64 / packets as f64
}

pub(crate) fn run() {
    disciplines();
    fairdrop();
    pipeline();
}

fn disciplines() {
    println!(
        "Disciplines in memory: one dequeue and one enqueue, 8 packets waiting in every class ({ROUNDS} rounds in turn)"
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
    cases.push(("whole link, wfq-altq, 4 classes, overloaded".into(), Box::new(move || link.time(PACKETS))));
    print(&Rounds::run(ROUNDS, &mut cases), &allocated, "fifo, 4 classes");
}

fn fairdrop() {
    println!(
        "\nFairDrop in memory: judging and charging bursts of 256, 32 bytes per flow; \"draw\" is in all others of its size"
    );
    let (mut allocated, mut cases): (Vec<f64>, Vec<Case<'_>>) = (Vec::new(), Vec::new());
    for flows in FLOWS {
        let mut drawing = Drawing::new(flows);
        allocated.push(allocations(PACKETS, |times| drawing.run(times)));
        cases.push((format!("draw one of {flows} flows"), Box::new(move || drawing.time(PACKETS))));
        for rule in RULES {
            let mut judging = Judging::new(rule, flows, true);
            allocated.push(allocations(PACKETS, |times| judging.run(times)));
            cases.push((format!("rule {rule}, {flows} flows"), Box::new(move || judging.time(PACKETS))));
        }
    }
    print(&Rounds::run(ROUNDS, &mut cases), &allocated, "draw one of 20 flows");
}

fn pipeline() {
    println!(
        "\nWhole pipeline in memory (receive, parse, route, neighbour, classify, rewrite, schedule, transmit), bursts of 32"
    );
    let variants =
        [("fifo", 64), ("fifo", 1500), ("wfq-altq", 64), ("wfq-altq", 1500), ("lct", 64), ("lct", 1500)];
    let allocated: Vec<f64> = variants
        .iter()
        .map(|(kind, size)| {
            let mut forwarding = Forwarding::new(kind, *size);
            allocations(PACKETS, |times| forwarding.run(times))
        })
        .collect();
    let mut cases: Vec<Case<'_>> = variants
        .iter()
        .map(|&(kind, size)| {
            let mut forwarding = Forwarding::new(kind, size);
            forwarding.run(PACKETS);
            let case: Box<dyn FnMut() -> f64> = Box::new(move || forwarding.time(PACKETS));
            (format!("{kind}, {size}-byte frames"), case)
        })
        .collect();
    print(&Rounds::run(ROUNDS, &mut cases), &allocated, "fifo, 64-byte frames");
}

fn print(rounds: &Rounds, allocated: &[f64], base: &str) {
    println!("  {:<46} {:>9}  {:>17} {:>9} {:>12}", "", "ns/packet", "(min to max)", "ratio", "allocations");
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
