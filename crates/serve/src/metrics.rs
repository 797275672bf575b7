//! The counters of all routers as OpenMetrics.
//!
//! Names, help and labels follow from the declarations of the counters (`counters!`): a counter
//! that is added there is a metric. `links[].classes[].sent_bytes` becomes
//! `evenkeel_link_class_sent_bytes_total{router, link, class}`; drops by reason have the label
//! `reason`; distributions become histograms in seconds. Labels are names from configurations,
//! reasons and stages: all of them bounded. What others choose (addresses of users) is no label.

use std::collections::BTreeMap;
use std::fmt;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_core::measure::{Counter, CounterKind, Tally};
use evenkeel_router::Snapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};

use crate::list::{Kept, Subscriber};
use crate::served::failed;
use crate::state::{State, Status};

/// What [`answer`] gives.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Series told at most; the rest is counted in `evenkeel_serve_series_left_out`.
const MAX_SERIES: usize = 200_000;
/// Lists whose keys are not from a configuration.
const UNBOUNDED: [&str; 1] = ["users"];
/// Upper ends of the buckets of histograms, seconds: what is nearer does not help anybody.
const BOUNDS: [f64; 15] = [
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];

/// Metrics as they are answered.
pub(crate) fn answer(families: Families) -> Response {
    match text(families) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// # Errors
/// None that a text in memory could have.
fn text(families: Families) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(families));
    let mut out = String::new();
    encode(&mut out, &registry)?;
    Ok(out)
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, family) in &self.0 {
            family.encode(name, &mut encoder)?;
        }
        Ok(())
    }
}

/// Series with one name.
#[derive(Debug)]
struct Family {
    help: String,
    kind: MetricType,
    series: Vec<(Labels, Measured)>,
}

type Labels = Vec<(String, String)>;

#[derive(Debug)]
enum Measured {
    Count(u64),
    /// Of nanoseconds.
    Seconds(f64),
    Now(f64),
    /// The sum, if it is counted, and how many fell between the bounds.
    Spread(Option<f64>, Vec<(f64, u64)>),
}

impl Family {
    fn encode(&self, name: &str, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut metric = to.encode_descriptor(name, &self.help, None, self.kind)?;
        for (labels, measured) in &self.series {
            let mut one = metric.encode_family(labels)?;
            match measured {
                Measured::Count(n) => one.encode_counter::<NoLabelSet, _, f64>(n, None)?,
                Measured::Seconds(s) => one.encode_counter::<NoLabelSet, _, f64>(s, None)?,
                Measured::Now(value) => one.encode_gauge(value)?,
                Measured::Spread(sum, buckets) => {
                    let count = buckets.iter().map(|(_, n)| n).sum();
                    one.encode_histogram::<NoLabelSet>(sum.unwrap_or(0.0), count, buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// Families by name, so that each is told once, and how many series they have.
#[derive(Debug, Default)]
pub(crate) struct Families(BTreeMap<String, Family>, usize, u64);

impl Families {
    fn add(&mut self, name: String, help: &str, kind: MetricType, labels: &Labels, is: Measured) {
        if self.1 >= MAX_SERIES {
            self.2 += 1;
            return;
        }
        self.1 += 1;
        let of_name = self.0.entry(name).or_insert_with(|| Family {
            help: one_line(help),
            kind,
            series: Vec::new(),
        });
        of_name.series.push((labels.clone(), is));
    }
}

/// The subscribers that sent most, `top` of each router, which are told its lists in that order.
pub(crate) fn of_subscribers(routers: &[(String, Kept<Subscriber>)], top: usize) -> Families {
    type Of = fn(&Subscriber) -> Option<f64>;
    const TOLD: [(&str, &str, Of); 6] = [
        ("bits_per_second", "What it has, of bytes on the wire.", |one| Some(one.bps as f64)),
        ("cap_bits_per_second", "The most it may have.", |one| one.cap_bps.map(|bps| bps as f64)),
        ("waiting_packets", "Packets that wait.", |one| Some(one.waiting_packets as f64)),
        ("dropped_per_second", "Packets dropped.", |one| Some(one.dropped_pps as f64)),
        ("delay_p95_seconds", "95 of 100 packets waited no longer.", |one| {
            one.p95_us.map(|us| us as f64 / 1e6)
        }),
        ("rtt_seconds", "Round trip between the link and what is at its end.", |one| {
            one.rtt_us.map(|us| us as f64 / 1e6)
        }),
    ];
    let mut all = Families::default();
    for (router, kept) in routers {
        for one in kept.rows.iter().take(top) {
            let texts = [("router", router), ("link", &one.link), ("subscriber", &one.name)];
            let mut labels: Labels =
                texts.map(|(name, text)| (name.to_owned(), text.clone())).to_vec();
            labels.push(("parent".to_owned(), one.parent.clone()));
            for (name, help, of) in TOLD {
                let Some(value) = of(one) else { continue };
                let name = format!("evenkeel_subscriber_{name}");
                all.add(name, help, MetricType::Gauge, &labels, Measured::Now(value));
            }
        }
    }
    all
}

/// All other metrics.
pub(crate) fn families(state: &State) -> Families {
    let mut all = Families::default();
    let add = |all: &mut Families, name: &str, help, labels: &Labels, kind, value: u64| {
        let is = match kind {
            MetricType::Counter => Measured::Count(value),
            _ => Measured::Now(value as f64),
        };
        all.add(format!("evenkeel_{name}"), help, kind, labels, is);
    };
    for router in &state.routers {
        let labels = vec![("router".to_owned(), router.watched.name.clone())];
        let (status, snapshot, restarts) =
            router.read(|seen| (seen.status.clone(), seen.snapshot.clone(), seen.restarts));
        let answers = matches!(status, Status::Answers { .. });
        let help = "Whether the router answers; its other metrics are left out while it does not.";
        add(&mut all, "up", help, &labels, MetricType::Gauge, answers.into());
        let help = "How often the router was seen to have been started anew.";
        add(&mut all, "restarts_seen", help, &labels, MetricType::Counter, restarts);
        let help = "Whether an alarm is raised: 1, or over: 0. `about`: a port or link.";
        router.read(|seen| {
            for alarm in seen.alarms.known() {
                let labels = with(&labels, "alarm", alarm.alarm);
                let labels = with(&labels, "about", &alarm.about);
                add(&mut all, "alarm", help, &labels, MetricType::Gauge, alarm.raised.into());
            }
        });
        let help = "How often something of the past could not be noted in its file.";
        let failed = router.past().failed;
        add(&mut all, "serve_history_failed", help, &labels, MetricType::Counter, failed);
        if let Some(snapshot) = snapshot.filter(|_| answers) {
            of_router(&mut all, &snapshot, &labels);
        }
    }
    if let Some(hook) = &state.hook {
        let help = "How often the command for alarms failed, or was not run.";
        let none = Vec::new();
        add(&mut all, "serve_hook_failed", help, &none, MetricType::Counter, hook.failed());
    }
    let left_out = all.2;
    all.1 = 0;
    let help = "Series that are not told because there would be too many.";
    add(&mut all, "serve_series_left_out", help, &Vec::new(), MetricType::Gauge, left_out);
    all
}

fn of_router(all: &mut Families, snapshot: &Snapshot, labels: &Labels) {
    // Names in JSON are those of the declarations, which a test holds to.
    if let Ok(Value::Object(fields)) = serde_json::to_value(snapshot) {
        walk(all, "evenkeel", Snapshot::COUNTERS, &fields, labels);
    }
}

/// The counters at one place, then those inside them.
fn walk(
    all: &mut Families,
    prefix: &str,
    counters: &[Counter],
    fields: &Map<String, Value>,
    labels: &Labels,
) {
    for counter in counters {
        // Parts of this name stand in JSON beside the others.
        if counter.name == "counts" {
            walk(all, prefix, counter.parts, fields, labels);
            continue;
        }
        let Some(value) = fields.get(counter.name) else { continue };
        match (counter.kind, value) {
            (CounterKind::Part, Value::Object(inside)) if !counter.parts.is_empty() => {
                walk(all, &format!("{prefix}_{}", counter.name), counter.parts, inside, labels);
            }
            (CounterKind::Part, Value::Array(inside)) if !UNBOUNDED.contains(&counter.name) => {
                each(all, &format!("{prefix}_{}", one_of(counter.name)), counter, inside, labels);
            }
            _ => single(all, prefix, counter, value, fields, labels),
        }
    }
}

/// Each thing of a list, told apart by its key.
fn each(all: &mut Families, prefix: &str, of: &Counter, list: &[Value], labels: &Labels) {
    let key = of.parts.iter().find(|counter| counter.kind == CounterKind::Key);
    for (at, value) in list.iter().enumerate() {
        let Value::Object(fields) = value else { continue };
        let named = match key.and_then(|key| fields.get(key.name)) {
            Some(Value::String(name)) => name.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => at.to_string(),
        };
        let labels = with(labels, one_of(of.name), &named);
        walk(all, prefix, of.parts, fields, &labels);
    }
}

/// One counter, whatever its shape.
fn single(
    all: &mut Families,
    prefix: &str,
    of: &Counter,
    value: &Value,
    beside: &Map<String, Value>,
    labels: &Labels,
) {
    let name = format!("{prefix}_{}", name_of(of));
    let counts = matches!(of.kind, CounterKind::Count | CounterKind::Part);
    match value {
        Value::Number(number) if counts => {
            let number = number.as_u64().unwrap_or(0);
            let is = match of.unit {
                "ns" => Measured::Seconds(number as f64 / 1e9),
                _ => Measured::Count(number),
            };
            all.add(name, of.help, MetricType::Counter, labels, is);
        }
        Value::Number(number) => {
            // A number without unit that is not a part of something is a name: a seed.
            let is_told = of.kind != CounterKind::State || !of.unit.is_empty() || number.is_f64();
            let scale = if of.unit == "ns" { 1e-9 } else { 1.0 };
            let is = Measured::Now(number.as_f64().unwrap_or(0.0) * scale);
            if is_told && of.kind != CounterKind::Key {
                all.add(name, of.help, MetricType::Gauge, labels, is);
            }
        }
        Value::Bool(is) => {
            all.add(name, of.help, MetricType::Gauge, labels, Measured::Now(f64::from(*is)));
        }
        Value::Object(reasons) if of.kind == CounterKind::Part => {
            for (reason, number) in reasons {
                let labels = with(labels, "reason", reason);
                let is = Measured::Count(number.as_u64().unwrap_or(0));
                all.add(name.clone(), of.help, MetricType::Counter, &labels, is);
            }
        }
        Value::Array(buckets) if of.kind == CounterKind::Buckets => {
            let sum = of.name.replace("_buckets", "_sum_ns");
            let sum = beside.get(&sum).and_then(Value::as_u64).map(|ns| ns as f64 / 1e9);
            let is = Measured::Spread(sum, spread(buckets));
            all.add(name, of.help, MetricType::Histogram, labels, is);
        }
        Value::Array(numbers) if of.kind == CounterKind::Count => {
            for (at, number) in numbers.iter().enumerate() {
                let labels = with(labels, "index", &at.to_string());
                let is = Measured::Count(number.as_u64().unwrap_or(0));
                all.add(name.clone(), of.help, MetricType::Counter, &labels, is);
            }
        }
        _ => {}
    }
}

/// The name of a counter with its base unit: seconds instead of nanoseconds.
fn name_of(of: &Counter) -> String {
    let name = of.name;
    let strip = |end| name.strip_suffix(end).unwrap_or(name);
    match (of.kind, of.unit) {
        // What ends in `_total` goes up for ever.
        (CounterKind::Gauge, _) if name == "total" => "capacity".to_owned(),
        (CounterKind::Buckets, _) => format!("{}_seconds", strip("_buckets")),
        (_, "ns") => format!("{}_seconds", strip("_ns")),
        (_, "bit/s") => format!("{}_bits_per_second", strip("_bps")),
        (CounterKind::Part, unit) if !unit.is_empty() => {
            format!("{name}_{}", unit.replace([' ', '-'], "_"))
        }
        _ => name.to_owned(),
    }
}

/// `links` are told as one `link` each.
fn one_of(list: &str) -> &str {
    list.strip_suffix("es")
        .filter(|one| one.ends_with("ss"))
        .unwrap_or_else(|| list.strip_suffix('s').unwrap_or(list))
}

fn with(labels: &Labels, name: &str, value: &str) -> Labels {
    let mut labels = labels.clone();
    // A list within a list of the same name, or a label that is taken: neither is declared today.
    labels.retain(|(known, _)| known != name);
    labels.push((name.to_owned(), value.to_owned()));
    labels
}

fn one_line(help: &str) -> String {
    let words: Vec<&str> = help.split_whitespace().collect();
    words.join(" ").replace('\\', "\\\\").replace('"', "'")
}

/// How many of (lowest ns of a bucket, number) fell between the bounds. A bucket of the router is
/// a sixteenth of its lowest wide: its middle decides.
fn spread(buckets: &[Value]) -> Vec<(f64, u64)> {
    let mut all: Vec<(f64, u64)> = BOUNDS.iter().map(|bound| (*bound, 0)).collect();
    all.push((f64::INFINITY, 0));
    for bucket in buckets {
        let (Some(lowest), Some(number)) = (bucket[0].as_u64(), bucket[1].as_u64()) else {
            continue;
        };
        let middle = lowest as f64 * (1.0 + 1.0 / 32.0) / 1e9;
        if let Some((_, of_bound)) = all.iter_mut().find(|(bound, _)| middle <= *bound) {
            *of_bound += number;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use evenkeel_control::Version;
    use evenkeel_core::Bytes;
    use evenkeel_core::measure::ClassCounters;
    use evenkeel_router::snapshot::{
        AdmissionSnapshot, AuditSnapshot, BalancerSnapshot, BranchSnapshot, ClassSnapshot,
        ClusterSnapshot, CycleSnapshot, FairDropSnapshot, FollowSnapshot, LinkSnapshot,
        PortSnapshot, RemovedSnapshot, ServiceSnapshot, TreeSnapshot, UserSnapshot,
    };

    /// A router with one of everything that can be counted.
    fn snapshot() -> Snapshot {
        let class = ClassSnapshot {
            name: "vo\"ice".into(),
            counts: ClassCounters { in_packets: 7, ..ClassCounters::of_sent(5, Bytes(700)) },
            dropped: [("queue_full".to_owned(), 2)].into(),
            delay_sum_ns: 2_000_000_000,
            delay_buckets: vec![(98_304, 3), (1_048_576, 2), (1 << 36, 1)],
            ..ClassSnapshot::default()
        };
        let admission = AdmissionSnapshot {
            fair_rate_bps: 1_000_000,
            priority_load: 0.5,
            passed: [("protected".to_owned(), 4)].into(),
            users: vec![UserSnapshot { user: "10.7.7.7".into(), flows: 3 }],
            accept_delay_buckets: vec![(2_000_000, 1)],
            ..AdmissionSnapshot::default()
        };
        let link = LinkSnapshot {
            port: "wan".into(),
            rate_bps: Some(5_000_000),
            calls: [1, 2, 3],
            admission: Some(admission),
            follow: Some(FollowSnapshot::default()),
            tree: Some(TreeSnapshot {
                nodes: vec![BranchSnapshot { name: "north".into(), ..Default::default() }],
                last_unknown: Some("10.7.7.7".into()),
                ..TreeSnapshot::default()
            }),
            audit: Some(AuditSnapshot::default()),
            classes: vec![class],
            ..LinkSnapshot::default()
        };
        let port = PortSnapshot { name: "wan".into(), up: true, ..PortSnapshot::default() };
        Snapshot {
            seed: 77,
            uptime_ns: 1_500_000_000,
            ports: vec![port],
            links: vec![link],
            cycles: Some(CycleSnapshot::default()),
            services: vec![ServiceSnapshot { name: "tunnel".into(), ..Default::default() }],
            fairdrop: Some(FairDropSnapshot::default()),
            cluster: Some(ClusterSnapshot::default()),
            balancer: Some(BalancerSnapshot::default()),
            removed: Some(RemovedSnapshot::default()),
            ..Snapshot::default()
        }
    }

    fn text_of(snapshot: Snapshot) -> String {
        let state = Arc::new(State::new(&crate::options::edge()).unwrap());
        state.read(0, snapshot, &Version::own());
        text(families(&state)).unwrap()
    }

    #[test]
    fn counters_become_metrics_with_their_labels_and_base_units() {
        let text = text_of(snapshot());
        let class = r#"router="edge",link="wan",class="vo\"ice""#;
        for line in [
            r#"evenkeel_up{router="edge"} 1.0"#.to_owned(),
            r#"evenkeel_uptime_seconds{router="edge"} 1.5"#.to_owned(),
            r#"evenkeel_port_up{router="edge",port="wan"} 1.0"#.to_owned(),
            r#"evenkeel_link_rate_bits_per_second{router="edge",link="wan"} 5000000.0"#.to_owned(),
            r#"evenkeel_link_calls_total{router="edge",link="wan",index="2"} 3"#.to_owned(),
            format!("evenkeel_link_class_sent_bytes_total{{{class}}} 700"),
            format!("evenkeel_link_class_dropped_packets_total{{{class},reason=\"queue_full\"}} 2"),
            format!("evenkeel_link_class_delay_seconds_sum{{{class}}} 2.0"),
            format!("evenkeel_link_class_delay_seconds_count{{{class}}} 6"),
            format!("evenkeel_link_class_delay_seconds_bucket{{le=\"0.0002\",{class}}} 3"),
            format!("evenkeel_link_class_delay_seconds_bucket{{le=\"0.002\",{class}}} 5"),
            format!("evenkeel_link_class_delay_seconds_bucket{{le=\"+Inf\",{class}}} 6"),
            r#"evenkeel_link_admission_priority_load{router="edge",link="wan"} 0.5"#.to_owned(),
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("10.7.7.7"), "addresses are no labels");
        assert!(!text.contains("_seed"), "names are no numbers");
    }

    /// Whoever declares a counter has declared a metric.
    #[test]
    fn every_number_that_is_declared_is_a_metric() {
        fn names(counters: &[Counter], found: &mut Vec<String>) {
            for counter in counters {
                names(counter.parts, found);
                let counts = matches!(counter.kind, CounterKind::Count | CounterKind::Gauge);
                if counter.parts.is_empty() && counts && counter.name != "flows" {
                    found.push(name_of(counter));
                }
            }
        }
        let text = text_of(snapshot());
        let mut found = Vec::new();
        for part in [
            Snapshot::COUNTERS.iter().filter(|of| of.parts.is_empty()).copied().collect(),
            LinkSnapshot::COUNTERS.to_vec(),
            PortSnapshot::COUNTERS.to_vec(),
            ServiceSnapshot::COUNTERS.to_vec(),
        ] {
            let part: Vec<Counter> = part;
            names(&part, &mut found);
        }
        assert!(found.len() > 50, "{found:?}");
        let metrics: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        for name in found {
            let end = format!("_{name}");
            assert!(metrics.iter().any(|metric| metric.ends_with(&end)), "{name}\n{metrics:?}");
        }
    }

    #[test]
    fn each_name_is_told_once_and_no_series_twice() {
        let text = text_of(snapshot());
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with("# HELP")) {
            let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
            assert!(seen.insert(series), "{series} stands there twice");
        }
        for line in text.lines().filter(|line| line.starts_with("# HELP")) {
            assert!(!line.contains('\n') && line.len() < 500, "{line}");
        }
    }

    #[test]
    fn series_are_bounded_and_what_is_left_out_is_told() {
        let mut many = snapshot();
        let class = many.links[0].classes[0].clone();
        let classes: Vec<_> =
            (0..1_024).map(|n| ClassSnapshot { name: format!("c{n}"), ..class.clone() }).collect();
        let link = LinkSnapshot { classes, ..many.links[0].clone() };
        many.links =
            (0..16).map(|n| LinkSnapshot { port: format!("p{n}"), ..link.clone() }).collect();
        let state = Arc::new(State::new(&crate::options::edge()).unwrap());
        state.read(0, many, &Version::own());
        let all = families(&state);
        let told: usize = all.0.values().map(|family| family.series.len()).sum();
        assert_eq!(told, MAX_SERIES + 1);
        let left = &all.0["evenkeel_serve_series_left_out"].series[0].1;
        assert!(matches!(left, Measured::Now(n) if *n > 10_000.0), "{left:?}");
    }
}
