//! Checks the cycle of a cluster of three nodes, over all ways in which a few things go wrong in a
//! few cycles; and that planted faults are found. Ends with 1 if not all is as it should be.

use std::process::ExitCode;
use std::time::Instant;

use evenkeel_cluster::Variant;
use evenkeel_core::Nanos;
use evenkeel_prove::node::Fault;
use evenkeel_prove::segment::{Also, Choice, Scenario, check};

/// Seven cycles, of 72 us.
const WITHIN: Nanos = Nanos::from_micros(500);

fn scenario(name: &'static str, faults: u32, recovers: u64, also: Also) -> Scenario {
    Scenario {
        name,
        variant: Variant::Pipelined,
        faults,
        kinds: &[Choice::Lost, Choice::Twice, Choice::Late],
        within: WITHIN,
        recovers: Nanos::from_millis(recovers),
        also,
        wrong: None,
    }
}

fn main() -> ExitCode {
    let multiple = |scenario| Scenario { variant: Variant::Multiple, ..scenario };
    let lost = |scenario| Scenario { kinds: &[Choice::Lost], ..scenario };
    let all = [
        scenario("two frames lost, doubled or late", 2, 10, Also::Nothing),
        multiple(scenario("the same, m-ds", 2, 10, Also::Nothing)),
        lost(scenario("three frames lost", 3, 10, Also::Nothing)),
        scenario("the master starts anew, and one frame", 1, 60, Also::Restarts(1, true)),
        scenario("the last node starts anew, its clock behind", 1, 60, Also::Restarts(3, false)),
        scenario("the master dies, and one frame", 1, 60, Also::Dies(1)),
        // Told to each at any instant: there are many ways to do that.
        Scenario {
            within: Nanos::from_micros(220),
            ..lost(scenario("another configuration, and one frame lost", 1, 20, Also::Change))
        },
    ];
    let wrong = |scenario, fault| Scenario { wrong: Some((2, fault)), ..scenario };
    let change = all.last().expect("there are some").clone();
    let planted = [
        wrong(all[0].clone(), Fault::SendsUndecided),
        wrong(all[0].clone(), Fault::DeafToClocks),
        wrong(change, Fault::ChangesLate),
    ];
    let mut bad = false;
    let only = std::env::args().nth(1).unwrap_or_default();
    for scenario in all.iter().filter(|one| one.name.contains(&only)) {
        let begun = Instant::now();
        let outcome = check(scenario);
        let took = begun.elapsed().as_secs_f64();
        println!("{:<48} {:>9} states, {took:.1} s", scenario.name, outcome.states);
        for (property, how) in outcome.broken {
            bad = true;
            println!("  BROKEN: {property}: {how}");
        }
    }
    for scenario in &planted {
        let fault = scenario.wrong.expect("one is wrong").1;
        let outcome = check(scenario);
        let found: Vec<_> = outcome.broken.iter().map(|(property, _)| *property).collect();
        println!("planted: {fault:?}: {}", if found.is_empty() { "NOT FOUND" } else { "found" });
        bad |= found.is_empty();
    }
    ExitCode::from(u8::from(bad))
}
