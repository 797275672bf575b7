//! Flows of UDP followed one by one, and the rows of all flows in their order.

use std::net::SocketAddr;

use evenkeel_core::Nanos;
use evenkeel_report::FlowRow;
use evenkeel_scenario::{Scenario, Traffic, TrafficKind};

use crate::payload;
use crate::sampling;
use crate::source::ports_of_flow;

/// What was sent, or what arrived, of the flows of one `[[traffic]]`, by their number.
#[derive(Clone, Debug, Default)]
pub struct Followed(Vec<Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    /// IP length.
    bytes: u64,
    first: Nanos,
    last: Nanos,
}

impl Followed {
    /// A packet of flow number `flow`, of `ip_len` bytes, at `at`.
    pub fn count(&mut self, flow: u64, ip_len: u64, at: Nanos) {
        let Ok(place) = usize::try_from(flow) else { return };
        if place >= self.0.len() {
            self.0.resize(place + 1, Count::default());
        }
        let count = &mut self.0[place];
        if count.packets == 0 {
            count.first = at;
        }
        count.last = at;
        count.packets += 1;
        count.bytes += ip_len;
    }

    fn of(&self, flow: usize) -> Count {
        self.0.get(flow).copied().unwrap_or_default()
    }
}

/// Rows of the flows of `traffic` that were `sent`, and of which this `arrived`; times of `sent`
/// count from `start`, and the run has lasted until `now`.
#[must_use]
pub fn rows(
    scenario: &Scenario,
    traffic: &Traffic,
    (sent, arrived): (&Followed, &Followed),
    (start, now): (Nanos, Nanos),
) -> Vec<FlowRow> {
    let Some(key) = sampling::flow_key(scenario, traffic) else { return Vec::new() };
    // Flows that come and go have a time of their own; the others last as long as their traffic.
    let come_and_go = matches!(traffic.kind, TrafficKind::Flows { .. });
    let headers = payload::headers(key.destination);
    let row = |flow: usize| {
        let (sent, arrived) = (sent.of(flow), arrived.of(flow));
        let (from, to) = ports_of_flow(key.source_port, key.destination_port, flow as u64);
        let (begin, end) = match come_and_go {
            true => (sent.first.saturating_sub(start), sent.last.saturating_sub(start)),
            false => (traffic.start, traffic.stop.min(now)),
        };
        let (source, destination) = scenario.ends(traffic, flow as u64)?;
        (sent.packets > 0).then(|| FlowRow {
            traffic: traffic.name.clone(),
            flow: flow as u64,
            transport: "udp".to_owned(),
            source: SocketAddr::new(source, from).to_string(),
            destination: SocketAddr::new(destination, to).to_string(),
            start_s: begin.as_secs_f64(),
            until_s: end.as_secs_f64(),
            delivered_bytes: arrived.bytes.saturating_sub(headers * arrived.packets),
            sent_packets: Some(sent.packets),
            lost_packets: sent.packets.saturating_sub(arrived.packets),
            ..FlowRow::default()
        })
    };
    (0..sent.0.len()).filter_map(row).collect()
}

/// Rows in the order of their beginning; those that began together in the order of the scenario.
pub fn sort(scenario: &Scenario, rows: &mut [FlowRow]) {
    let place = |flow: &FlowRow| scenario.traffic.iter().position(|of| of.name == flow.traffic);
    rows.sort_by(|a, b| {
        let by_start = a.start_s.total_cmp(&b.start_s);
        by_start.then_with(|| (place(a), a.flow).cmp(&(place(b), b.flow)))
    });
}
