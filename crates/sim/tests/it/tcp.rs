//! TCP connections through whole simulated networks.

use std::path::Path;

use evenkeel_core::Bytes;
use evenkeel_report::Report;
use evenkeel_scenario::{Scenario, TrafficKind};
use evenkeel_sim::{FlowTotals, Outcome, SimOptions};

fn dumbbell() -> Scenario {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/examples/tcp-dumbbell.toml");
    Scenario::load(&path).expect("a valid scenario")
}

fn run(scenario: &Scenario, options: &SimOptions) -> Outcome {
    let outcome = evenkeel_sim::run(scenario, options).expect("it can be simulated");
    assert_eq!(outcome.run.warnings, Vec::<String>::new());
    outcome
}

#[test]
fn ten_connections_fill_a_link_and_share_it() {
    let scenario = dumbbell();
    for seed in 1..=3 {
        let outcome = run(&scenario, &SimOptions { seed: Some(seed), ..SimOptions::default() });
        for judgement in &outcome.judgements {
            assert!(!judgement.verdict.is_bad(), "{} {:?}", judgement.name, judgement.measured);
        }
        for FlowTotals { name, sent_packets, received_packets, sender, receiver, .. } in
            &outcome.flows
        {
            assert!(
                sender.retransmitted > 0,
                "{name}: losses are what tells it the size of the queue"
            );
            assert!(sender.timeouts <= 5, "{name}: {} time-outs", sender.timeouts);
            assert!(receiver.delivered_bytes >= sender.acknowledged_bytes, "{name}");
            // What is missing was lost, or is still on its way: some tens of segments.
            let missing = sent_packets - received_packets;
            assert!(
                sender.retransmitted <= missing + 5,
                "{name}: {} sent again for {missing}",
                sender.retransmitted
            );
        }
    }
    let without = SimOptions { without: Some("a queue".into()), ..SimOptions::default() };
    assert!(run(&scenario, &without).passed(), "what has to fail without a queue fails");
}

/// Connections of 100 kB each: what is told of each adds up to what their ends counted, and a
/// connection that is done took at least the time of its bytes on the link.
#[test]
fn every_flow_is_told_with_its_completion_time() {
    let mut scenario = dumbbell();
    for traffic in &mut scenario.traffic {
        if let TrafficKind::Tcp { bytes, .. } = &mut traffic.kind {
            *bytes = Some(Bytes(100_000));
        }
    }
    let outcome = run(&scenario, &SimOptions::default());
    let flows = &outcome.run.flows;
    assert_eq!(flows.len(), scenario.traffic.len(), "one row for each");
    assert!(flows.is_sorted_by_key(|flow| flow.start_s));
    for flow in flows {
        let totals = outcome.flows.iter().find(|totals| totals.name == flow.traffic).unwrap();
        if flow.transport == "udp" {
            assert_eq!(flow.sent_packets, Some(totals.sent_packets));
            assert_eq!((flow.end_s, flow.timeouts), (None, None));
            continue;
        }
        assert_eq!(flow.delivered_bytes, totals.sender.acknowledged_bytes);
        assert_eq!(flow.lost_packets, totals.sender.retransmitted);
        assert_eq!((flow.delivered_bytes, flow.asked_bytes), (100_000, Some(100_000)));
        let (time, goodput) = (flow.completion_s().unwrap(), flow.goodput_bps().unwrap());
        assert!((goodput * time - 800_000.0).abs() < 1.0, "{flow:?}");
        assert!(goodput < 20e6 && time < 20.0, "{flow:?}");
    }
    assert!(flows.iter().any(|flow| flow.transport == "tcp"));
    let report = Report { runs: vec![outcome.run.clone()], ..Report::default() };
    let mut csv = Vec::new();
    evenkeel_report::csv::write_flows(&mut csv, &report).unwrap();
    let lines = String::from_utf8(csv).unwrap().lines().count();
    assert_eq!(lines, 1 + flows.len());
    assert_eq!(evenkeel_report::columns::flows(&[&report]).rows(), flows.len());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = dumbbell();
    let told = |seed| {
        let outcome = run(&scenario, &SimOptions { seed: Some(seed), ..SimOptions::default() });
        format!("{:?} {:?}", outcome.flows, outcome.run)
    };
    assert_eq!(told(7), told(7));
}

/// Two hosts and a router whose queue is too short for the burst of a slow start.
fn transfer(keys: &str) -> FlowTotals {
    transfer_over("", keys)
}

/// The same over a wire that is not perfect.
fn transfer_over(wire: &str, keys: &str) -> FlowTotals {
    let text = format!(
        r#"
name = "transfer"
title = "One transfer"
duration = "20s"
[[host]]
name = "h1"
[[host]]
name = "h2"
[[router]]
name = "r1"
[[router.config.link]]
port = "h2"
rate = "10Mbit/s"
[router.config.link.discipline]
kind = "fifo"
limit = 20
[[wire]]
ends = ["h1", "r1"]
[[wire]]
ends = ["r1", "h2"]
{wire}
[[traffic]]
name = "t"
from = "h1"
to = "h2"
kind = "tcp"
{keys}
"#
    );
    let scenario =
        Scenario::parse(&text, "transfer.toml", Path::new("")).expect("a valid scenario");
    run(&scenario, &SimOptions::default()).flows.remove(0)
}

#[test]
fn a_transfer_arrives_whole_and_then_ends() {
    for keys in ["", "ipv6 = true", "congestion = \"reno\"", "size = \"576B\"", "dscp = 46"] {
        let flow = transfer(&format!("{keys}\nbytes = \"1000001B\""));
        assert_eq!(flow.receiver.delivered_bytes, 1_000_001, "{keys}");
        assert_eq!(flow.sender.acknowledged_bytes, 1_000_001, "{keys}");
        assert!(flow.sender.retransmitted > 0, "{keys}: the queue is too short for slow start");
        let segments = flow.sender.data_segments - flow.sender.retransmitted;
        let payload = match keys {
            "size = \"576B\"" => 576 - 52,
            "ipv6 = true" => 1428 - 72,
            _ => 1428 - 52,
        };
        assert_eq!(
            segments,
            1_000_001_u64.div_ceil(payload),
            "{keys}: each segment once, but for those lost"
        );
    }
}

/// The whole way, queue, wires and both ends, and not just the two ends as in `tcp_response.rs`:
/// RFC 5348 at a loss of 1 % and 50 ms, where the link's rate is far.
#[test]
fn random_loss_on_a_wire_is_what_limits_a_connection() {
    let flow = transfer_over("delay = \"25ms\"\nloss = 0.01", "congestion = \"reno\"");
    let (p, r): (f64, f64) = (0.01, 0.05);
    let formula = 1376.0 / (r * (2.0 * p / 3.0).sqrt() + 12.0 * r * (3.0 * p / 8.0).sqrt() * p);
    let ratio = flow.receiver.delivered_bytes as f64 / 20.0 / formula;
    // Some forty losses only: their number alone varies by a sixth.
    assert!((0.75..1.25).contains(&ratio), "{ratio}");
}

#[test]
fn a_transfer_survives_whatever_a_wire_does() {
    for wire in [
        "loss = 0.1",
        "delay = \"20ms\"\nreorder = 0.05",
        "delay = \"1ms\"\njitter = \"30ms\"\nloss = 0.02",
    ] {
        let flow = transfer_over(wire, "bytes = \"300000B\"");
        assert_eq!(flow.receiver.delivered_bytes, 300_000, "{wire}");
        assert_eq!(flow.sender.acknowledged_bytes, 300_000, "{wire}");
    }
}

#[test]
fn a_connection_stops_when_its_traffic_does() {
    let all = transfer("");
    let half = transfer("stop = \"10s\"");
    let ratio = half.receiver.delivered_bytes as f64 / all.receiver.delivered_bytes as f64;
    assert!((0.48..0.52).contains(&ratio), "{ratio}");
    // 10 Mbit/s carry 1376 bytes of payload in 1466 bytes on the wire.
    let most = 10e6 / 8.0 * 20.0 * 1376.0 / 1466.0;
    let used = all.receiver.delivered_bytes as f64 / most;
    assert!((0.85..=1.0).contains(&used), "{used}");
}
