//! The admission of a link as plain data.

use std::cmp::Ordering;

use evenkeel_core::Reason;
use evenkeel_core::admit::{AdmissionView, Removal, Rule};
use evenkeel_core::measure::Histogram;
use serde::{Deserialize, Serialize};

use super::Drops;

/// The admission of a link: who may enter, who was let in and who was not. Counters are since the start.
///
/// Conservation: `packets = Σ passed + Σ refused + diverted_packets`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AdmissionSnapshot {
    /// The fair rate, as decisions see it, bit/s.
    pub fair_rate_bps: u64,
    /// Below this new flows are refused, bit/s.
    pub min_fair_rate_bps: u64,
    /// The priority load, a part of the capacity.
    pub priority_load: f64,
    /// Above this new flows are refused.
    pub max_priority_load: f64,
    /// Why new flows are refused now, as the reason of their refusal; `None`: the link is open.
    pub congested: Option<String>,
    /// Until when the fair rate is forced to its minimum, `CLOCK_MONOTONIC`, ns.
    pub forced_until_ns: Option<u64>,
    /// Protected flows: streaming and elastic ones.
    pub protected: u64,
    /// Those that send less than the fair rate.
    pub streaming: u64,
    /// The others.
    pub elastic: u64,
    /// Those that have not proved themselves yet by coming again.
    pub probation: u64,
    /// Size of the list.
    pub capacity: u64,
    /// Flows on the second link.
    pub diverted: u64,
    /// Packets that were decided upon.
    pub packets: u64,
    /// Packets that passed, by rule.
    pub passed: Drops,
    /// Packets sent to the second link.
    pub diverted_packets: u64,
    /// Packets refused, by reason.
    pub refused: Drops,
    /// Flows put on the list.
    pub admissions: u64,
    /// Flows taken off it, by cause.
    pub removed: Drops,
    /// Changes between streaming and elastic, of all flows.
    pub class_flips: u64,
    /// Openings by ECCM.
    pub openings: u64,
    /// Clearings of the list.
    pub clearings: u64,
    /// Whether a flood of one-packet flows is held down.
    pub flood: bool,
    /// Times from a flow's first packet to its first that passed: (lowest of the bucket in ns, flows), ascending, without empty buckets.
    pub accept_delay_buckets: Vec<(u64, u64)>,
    /// Waiting flows that were forgotten: their delays are told too short.
    pub forgotten: u64,
    /// Users that started flows in this interval, busiest first.
    pub users: Vec<UserSnapshot>,
    /// Memory of the tables, bytes.
    pub memory_bytes: u64,
}

/// A user and the flows it started since the last estimate of the fair rate.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct UserSnapshot {
    /// The network address of the user's prefix.
    pub user: String,
    /// The flows.
    pub flows: u64,
}

/// A protected flow.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FlowSnapshot {
    /// The link: its port.
    pub link: String,
    /// The flow, `10.0.0.1:5000->10.0.1.1:80/udp`.
    pub flow: String,
    /// Whether it is elastic; streaming otherwise.
    pub elastic: bool,
    /// Its bytes in this or the last interval of the fair rate.
    pub recent_bytes: u64,
    /// Its bytes that wait.
    pub backlog_bytes: u64,
    /// How long it has been protected, ns.
    pub protected_ns: u64,
    /// How long ago its last packet came, ns.
    pub silent_ns: u64,
    /// Where paths are pinned, which next hop of its route it keeps to, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<u8>,
}

impl FlowSnapshot {
    /// Those with most bytes of late first, then by name.
    #[must_use]
    pub fn busiest_first(a: &Self, b: &Self) -> Ordering {
        (b.recent_bytes, b.backlog_bytes)
            .cmp(&(a.recent_bytes, a.backlog_bytes))
            .then_with(|| a.flow.cmp(&b.flow))
    }
}

impl AdmissionSnapshot {
    /// From what the admission says of itself.
    #[must_use]
    pub fn of(view: &AdmissionView) -> Self {
        fn named<'n>(counts: impl Iterator<Item = (&'n str, u64)>) -> Drops {
            counts.filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
        }
        Self {
            fair_rate_bps: view.fair_rate.0,
            min_fair_rate_bps: view.min_fair_rate.0,
            priority_load: f64::from(view.priority_load.0) / 1e6,
            max_priority_load: f64::from(view.max_priority_load.0) / 1e6,
            congested: view.congested.map(|cause| cause.reason().name().to_owned()),
            forced_until_ns: view.forced_until.map(|until| until.0),
            protected: view.protected.into(),
            streaming: view.streaming.into(),
            elastic: view.elastic.into(),
            probation: view.probation.into(),
            capacity: view.capacity.into(),
            diverted: view.diverted.into(),
            packets: view.packets,
            passed: named(Rule::ALL.iter().zip(view.passed).map(|(rule, n)| (rule.name(), n))),
            diverted_packets: view.diverted_packets,
            refused: named(Reason::ALL.iter().zip(view.refused).map(|(reason, n)| (reason.name(), n))),
            admissions: view.admissions,
            removed: named(Removal::ALL.iter().zip(view.removed).map(|(removal, n)| (removal.name(), n))),
            class_flips: view.class_flips,
            openings: view.openings,
            clearings: view.clearings,
            flood: view.flood,
            accept_delay_buckets: view
                .accept_delay
                .buckets()
                .map(|(index, n)| (Histogram::bounds(index).0.0, n))
                .collect(),
            forgotten: view.forgotten,
            users: view
                .users
                .iter()
                .map(|user| UserSnapshot { user: user.user.to_string(), flows: user.flows.into() })
                .collect(),
            memory_bytes: view.memory as u64,
        }
    }

    /// Packets refused, for whatever reason.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }
}
