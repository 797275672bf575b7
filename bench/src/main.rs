//! Measurements side by side. Not a test: it prints ratios, spreads and what the machine did
//! meanwhile.
//!
//! `evenkeel-bench memory | flows | tree | blocked | fib | routes [V4 V6] | rte_sched | cluster |
//! cores | idle | instructions | sim | live`; `make bench` runs all. `cluster-scale DOCS` writes a
//! page. `live` may be told which: parts of the names of cases, and lengths of frames. `loop NETNS
//! LEFT RIGHT` passes frames on and nothing else, for scripts/tcp.py.

mod allocations;
mod bare_loop;
mod blocked;
mod cluster;
mod cluster_scale;
mod cores;
mod disciplines;
mod fairdrop;
mod fib;
mod flows;
mod follow;
mod handle;
mod idle;
mod instructions;
mod live;
mod memory;
mod pipeline;
mod plot;
mod routes;
mod rte;
mod sim;
mod timing;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["memory"] => memory::run(),
        ["flows"] => flows::run(),
        ["blocked"] => blocked::run(),
        ["fib"] => fib::run(),
        ["routes"] => routes::run(1_000_000, 200_000),
        ["routes", v4, v6] => {
            let number = |text: &str| text.parse().expect("a number of routes");
            routes::run(number(v4), number(v6));
        }
        ["tree"] => tree::run(),
        ["cluster"] => cluster::run(),
        ["cluster-scale", folder] => cluster_scale::run(folder.as_ref()),
        ["cores"] => cores::run(),
        ["loop", netns, left, right] => return bare_loop::run(netns, [left, right]),
        ["idle", evenkeel] => return idle::run(evenkeel.as_ref()),
        ["instructions"] => instructions::run(),
        ["count", cases @ ..] => return instructions::count_some(cases),
        ["live", evenkeel, only @ ..] => return live::run(evenkeel.as_ref(), only),
        ["rte_sched", program] => return rte::run(program.as_ref()),
        ["one", case, packets] => {
            instructions::one(case, packets.parse().expect("a number of packets"));
        }
        ["sim"] => return sim::run(None),
        ["sim", ns3] => return sim::run(Some(ns3.as_ref())),
        ["simulate", case] => return sim::one(case),
        _ => {
            eprintln!(
                "usage: evenkeel-bench memory | flows | tree | blocked | fib | routes [V4 V6] | \
                 cluster | cluster-scale DOCS | cores | idle EVENKEEL | instructions | live \
                 EVENKEEL [NAME | BYTES ...] | rte_sched PROGRAM | sim [NS3_DUMBBELL]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
