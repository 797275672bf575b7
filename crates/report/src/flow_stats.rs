//! The flows of a run by their `[[traffic]]`: completion times and goodput, with intervals.

use serde_json::{Value, json};

use crate::bootstrap::{Interval, mean, percentile};
use crate::run::{FlowRow, Run};

/// The percentiles of completion times that are told.
pub const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// The flows of a `[[traffic]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStats {
    /// Its name.
    pub traffic: String,
    /// Flows that were followed.
    pub flows: usize,
    /// Of those that had so much to carry and no more: how many there are, and how many were done
    /// by the end of the run.
    pub done: (usize, usize),
    /// [`PERCENTILES`] of the completion time, seconds. A flow that was not done is the slowest of
    /// all.
    pub fct_s: [Option<Interval>; 3],
    /// Mean goodput of a flow, bit/s.
    pub goodput_bps: Option<Interval>,
}

impl FlowStats {
    fn of(traffic: &str, rows: &[&FlowRow]) -> Self {
        let asked: Vec<&&FlowRow> = rows.iter().filter(|row| row.asked_bytes.is_some()).collect();
        let times: Vec<f64> =
            asked.iter().map(|row| row.completion_s().unwrap_or(f64::INFINITY)).collect();
        let goodput: Vec<f64> = rows.iter().filter_map(|row| row.goodput_bps()).collect();
        Self {
            traffic: traffic.to_owned(),
            flows: rows.len(),
            done: (asked.len(), times.iter().filter(|time| time.is_finite()).count()),
            fct_s: PERCENTILES.map(|(_, part)| percentile(&times, part)),
            goodput_bps: mean(&goodput),
        }
    }

    /// For `summary.json`. What flows that were not done decide is `null`.
    #[must_use]
    pub fn json(&self) -> Value {
        let interval = |interval: &Interval| {
            let [low, high] = interval.ends.map_or([None; 2], |ends| ends.map(finite));
            json!({ "value": finite(interval.value), "low": low, "high": high })
        };
        let percentiles = PERCENTILES.iter().zip(&self.fct_s);
        let fct: serde_json::Map<String, Value> = percentiles
            .filter_map(|((name, _), of)| Some(((*name).to_owned(), interval(of.as_ref()?))))
            .collect();
        json!({
            "traffic": self.traffic,
            "flows": self.flows,
            "asked": self.done.0,
            "done": self.done.1,
            "fct_s": fct,
            "goodput_bit_per_s": self.goodput_bps.as_ref().map(interval),
        })
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The flows of a run by their traffic, in the order in which these first come; empty where nobody
/// followed them.
#[must_use]
pub fn flow_stats(run: &Run) -> Vec<FlowStats> {
    let mut groups: Vec<(&str, Vec<&FlowRow>)> = Vec::new();
    for row in &run.flows {
        match groups.iter_mut().find(|(traffic, _)| *traffic == row.traffic) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((&row.traffic, vec![row])),
        }
    }
    groups.iter().map(|(traffic, rows)| FlowStats::of(traffic, rows)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(traffic: &str, start_s: f64, end_s: Option<f64>) -> FlowRow {
        FlowRow {
            traffic: traffic.to_owned(),
            start_s,
            end_s,
            until_s: end_s.unwrap_or(10.0),
            asked_bytes: (traffic == "web").then_some(1_000),
            delivered_bytes: 1_000,
            ..FlowRow::default()
        }
    }

    #[test]
    fn flows_that_were_not_done_are_the_slowest_and_leave_the_end_open() {
        let mut flows: Vec<FlowRow> =
            (1..=9).map(|n| flow("web", 0.0, Some(f64::from(n) / 10.0))).collect();
        flows.push(flow("web", 0.0, None));
        flows.push(flow("bulk", 0.0, None));
        let found = flow_stats(&Run { flows, ..Run::default() });
        let [web, bulk] = &found[..] else { panic!("two kinds: {found:?}") };
        assert_eq!((web.flows, web.done, bulk.done), (10, (10, 9), (0, 0)));
        let median = web.fct_s[0].unwrap();
        let [low, high] = median.ends.unwrap();
        assert!(low < 0.5 && median.value == 0.5 && high < 1.0, "{median:?}");
        assert_eq!(web.json()["fct_s"]["p99"]["value"], Value::Null);
        assert_eq!(bulk.json()["fct_s"], json!({}));
        assert_eq!(bulk.goodput_bps.map(|goodput| goodput.value), Some(800.0));
    }
}
