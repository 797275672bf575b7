//! Seeded simulations frozen as tables: a change of behaviour shows up as a difference to be looked
//! at.

use std::path::Path;

use evenkeel_report::table;
use evenkeel_scenario::Scenario;
use evenkeel_sim::{Outcome, SimOptions};

fn shipped(file: &str, time_scale: f64) -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
    let scenario = Scenario::load(&path).expect("it is valid");
    evenkeel_sim::run(&scenario, &SimOptions { time_scale, ..SimOptions::default() })
        .expect("it runs")
}

fn told(outcome: &Outcome) -> String {
    let mut text = table::steps(&outcome.run);
    for flow in &outcome.flows {
        text += &format!(
            "\n{}: {} packets sent, {} arrived, {} B",
            flow.name, flow.sent_packets, flow.received_packets, flow.received_bytes
        );
    }
    text + &format!("\n{} events, {} packets\n", outcome.events, outcome.packets)
}

#[test]
fn table_1_of_how_unfair_can_wfq_be() {
    insta::assert_snapshot!(told(&shipped("wfq-altq/table1.toml", 0.4)));
}

#[test]
fn lct_uc_behind_a_ring_of_128() {
    insta::assert_snapshot!(told(&shipped("demo/lct.toml", 1.0)));
}

/// Three routers in a row, every kind of source that needs no tool, wires that are slow, long,
/// lossy and untidy.
const ROW: &str = r#"
name = "row"
title = "every kind of source over every kind of wire"
seed = 7
sample = "250ms"
settle = "0s"
duration = "1s"
[[host]]
name = "a"
[[host]]
name = "b"
[[router]]
name = "r1"
[[router.config.link]]
port = "r2"
rate = "30Mbit/s"
discipline = { kind = "fifo" }
[[router]]
name = "r2"
[[router]]
name = "r3"
[[router.config.link]]
port = "b"
rate = "20Mbit/s"
[router.config.link.discipline]
kind = "fifo"
limit = 40
[[wire]]
ends = ["a", "r1"]
rate = "100Mbit/s"
[[wire]]
ends = ["r1", "r2"]
delay = "5ms"
jitter = "1ms"
loss = 0.01
[[wire]]
ends = ["r2", "r3"]
rate = "25Mbit/s"
queue = 20
delay = "2ms"
reorder = 0.02
[[wire]]
ends = ["r3", "b"]
[[traffic]]
name = "cbr"
from = "a"
to = "b"
rate = "4Mbit/s"
[[traffic]]
name = "poisson"
from = "a"
to = "b"
kind = "poisson"
rate = "6Mbit/s"
size = "700B"
ipv6 = true
[[traffic]]
name = "bursts"
from = "b"
to = "a"
kind = "on-off"
rate = "8Mbit/s"
mean_on = "20ms"
mean_off = "20ms"
[[traffic]]
name = "flows"
from = "a"
to = "b"
kind = "flows"
rate = "5Mbit/s"
flow_size = "20000B"
distribution = "lognormal"
[[traffic]]
name = "many"
from = "a"
to = "b"
rate = "50kbit/s"
flows = 40
[[traffic]]
name = "greedy"
from = "a"
to = "b"
kind = "greedy"
start = "750ms"
"#;

#[test]
fn every_kind_of_source_over_every_kind_of_wire() {
    let scenario = Scenario::parse(ROW, "row.toml", Path::new(".")).expect("it is valid");
    let outcome = evenkeel_sim::run(&scenario, &SimOptions::default()).expect("it runs");
    assert_eq!(outcome.run.warnings, Vec::<String>::new());
    insta::assert_snapshot!(told(&outcome));
}
