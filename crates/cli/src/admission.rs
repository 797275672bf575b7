//! The admission of links, for people: who may enter, who was refused and why, how long flows
//! waited, what happened to one of them.

use std::fmt::Write as _;

use evenkeel_core::measure::Histogram;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_core::{BitRate, Nanos};
use evenkeel_report::table::Table;
use evenkeel_router::snapshot::{AdmissionSnapshot, Drops, FlowSnapshot};

/// The view of one link.
pub(crate) fn view(seen: &AdmissionSnapshot, now_ns: u64) -> String {
    let state = match &seen.congested {
        Some(reason) => format!("closed to new flows ({reason})"),
        None => "open".to_owned(),
    };
    let rates = if seen.by_subscriber {
        "each subscriber is closed for itself while its flows share it among too many".to_owned()
    } else {
        format!(
            "fair rate {} (minimum {}), priority load {:.1} % (maximum {:.0} %)",
            rate_text(BitRate(seen.fair_rate_bps)),
            rate_text(BitRate(seen.min_fair_rate_bps)),
            seen.priority_load * 100.0,
            seen.max_priority_load * 100.0,
        )
    };
    let mut text = format!("admission: {state}; {rates}\n");
    if let Some(until) = seen.forced_until_ns {
        let left = Nanos(until.saturating_sub(now_ns));
        let _ = writeln!(text, "  opened by force, for {left} more");
    }
    let _ = writeln!(
        text,
        "  protected flows: {} of {}: {} streaming ({} on probation), {} elastic; {} changes of \
         class",
        seen.protected,
        seen.capacity,
        seen.streaming,
        seen.probation,
        seen.elastic,
        seen.class_flips
    );
    if seen.diverted > 0 || seen.diverted_packets > 0 {
        let _ = writeln!(
            text,
            "  on the second link: {} flows, {} packets",
            seen.diverted, seen.diverted_packets
        );
    }
    let _ = writeln!(
        text,
        "  {} packets passed: {}",
        seen.passed.values().sum::<u64>(),
        counts(&seen.passed)
    );
    let _ = writeln!(text, "  {} packets refused: {}", seen.refused_total(), counts(&seen.refused));
    let _ = writeln!(
        text,
        "  flows let in: {}; taken off the list: {}",
        seen.admissions,
        counts(&seen.removed)
    );
    if seen.openings + seen.clearings > 0 {
        let _ =
            writeln!(text, "  openings by ECCM: {}, clearings: {}", seen.openings, seen.clearings);
    }
    if seen.flood {
        text += "  a flood of one-packet flows is held down\n";
    }
    text += &acceptance(seen);
    if !seen.users.is_empty() {
        let users: Vec<_> =
            seen.users.iter().map(|user| format!("{} {}", user.user, user.flows)).collect();
        let _ = writeln!(text, "  flows of users in this interval: {}", users.join(", "));
    }
    text
}

/// `fair_rate_low 12, per_user_limit 3`, or `none`.
fn counts(counts: &Drops) -> String {
    let all: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// How long flows waited: quantiles, and a histogram by factors of ten.
fn acceptance(seen: &AdmissionSnapshot) -> String {
    let mut histogram = Histogram::new();
    let mut decades = [0u64; 6];
    for &(lowest, flows) in &seen.accept_delay_buckets {
        histogram.record_many(Nanos(lowest), flows);
        let limits = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
        decades[limits.partition_point(|limit| *limit <= lowest)] += flows;
    }
    let Some(median) = histogram.quantile(0.5) else { return String::new() };
    let p99 = histogram.quantile(0.99).unwrap_or(median);
    let names = ["below 1 ms", "1-10 ms", "10-100 ms", "0.1-1 s", "1-10 s", "10 s and more"];
    let met = names.iter().zip(decades).filter(|(_, flows)| *flows > 0);
    let met: Vec<_> = met.map(|(name, flows)| format!("{name}: {flows}")).collect();
    let mut text = format!(
        "  acceptance delay: half within {median}, 99 % within {p99}; {}\n",
        met.join(", ")
    );
    if seen.forgotten > 0 {
        let _ = writeln!(
            text,
            "  {} waiting flows were forgotten: their delays are told too short",
            seen.forgotten
        );
    }
    text
}

/// Protected flows as a table.
pub(crate) fn flows(flows: &[FlowSnapshot]) -> String {
    if flows.is_empty() {
        return "no flow is protected\n".to_owned();
    }
    let mut table = Table::new([
        "link",
        "flow",
        "class",
        "bytes of late",
        "waiting",
        "protected s",
        "silent ms",
    ]);
    for flow in flows {
        table.row([
            flow.link.clone(),
            flow.flow.clone(),
            if flow.elastic { "elastic" } else { "streaming" }.to_owned(),
            flow.recent_bytes.to_string(),
            flow.backlog_bytes.to_string(),
            format!("{:.1}", flow.protected_ns as f64 / 1e9),
            format!("{:.0}", flow.silent_ns as f64 / 1e6),
        ]);
    }
    table.render()
}
