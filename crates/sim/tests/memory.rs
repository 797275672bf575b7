//! What a simulation takes of memory, in a process of its own.

use evenkeel_scenario::Scenario;
use evenkeel_sim::SimOptions;

const DUMBBELL: &str = r#"
name = "dumbbell"
title = "Two routers, a hundred flows"
duration = "1s"
settle = "0s"
sample = "1s"
[[host]]
name = "a"
[[host]]
name = "b"
[[router]]
name = "r1"
[[router.config.link]]
port = "r2"
rate = "100Mbit/s"
discipline = { kind = "fifo", limit = 100 }
[[router]]
name = "r2"
[[wire]]
ends = ["a", "r1"]
delay = "1ms"
[[wire]]
ends = ["r1", "r2"]
delay = "10ms"
[[wire]]
ends = ["r2", "b"]
delay = "1ms"
[[traffic]]
name = "t"
from = "a"
to = "b"
kind = "cbr"
rate = "1100kbit/s"
size = "1428B"
flows = 100
"#;

/// A number of kibibytes that the kernel tells of this process.
fn kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Tables that are as large as a real router's are had as far as something lies in them: two
/// routers took 35 MiB when they were written to from end to end.
#[test]
fn a_simulated_router_takes_what_its_flows_and_packets_need() {
    let scenario = Scenario::parse(DUMBBELL, "dumbbell.toml", ".".as_ref()).unwrap();
    let before = kib("VmRSS:");
    let outcome = evenkeel_sim::run(&scenario, &SimOptions::default()).unwrap();
    let took = kib("VmHWM:") - before;
    println!("{} packets, {took} KiB", outcome.packets);
    assert!(outcome.packets > 9_000, "{} packets", outcome.packets);
    assert!(took < 20 << 10, "{took} KiB for two routers and a hundred flows");
}
