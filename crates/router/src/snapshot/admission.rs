//! The admission of a link as plain data.

use std::cmp::Ordering;
use std::ops::Deref;

use evenkeel_core::Reason;
use evenkeel_core::admit::{AdmissionCounts, AdmissionView, Owner, Removal, Rule, UserAdmissions};
use evenkeel_core::counters;
use evenkeel_core::measure::Histogram;
use serde::{Deserialize, Serialize};

use super::Drops;

counters! {
    /// The admission of a link: who may enter, who was let in and who was not. Counters are since
    /// the start.
    ///
    /// Conservation: `packets = Σ passed + Σ refused + diverted_packets`.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct AdmissionSnapshot {
        /// The fair rate, as decisions see it, bit/s.
        state fair_rate_bps: u64, "bit/s";
        /// Below this new flows are refused, bit/s.
        state min_fair_rate_bps: u64, "bit/s";
        /// The priority load, a part of the capacity.
        state priority_load: f64;
        /// Above this new flows are refused.
        state max_priority_load: f64;
        /// Why new flows are refused now, as the reason of their refusal; `None`: the link is open.
        most congested: Option<String>;
        /// Until when the fair rate is forced to its minimum, `CLOCK_MONOTONIC`, ns.
        most forced_until_ns: Option<u64>, "ns";
        /// Protected flows: streaming and elastic ones.
        gauge protected: u64, "flows";
        /// Those that send less than the fair rate.
        gauge streaming: u64, "flows";
        /// The others.
        gauge elastic: u64, "flows";
        /// Those that have not proved themselves yet by coming again.
        gauge probation: u64, "flows";
        /// Size of the list.
        gauge capacity: u64, "flows";
        /// Flows on the second link.
        gauge diverted: u64, "flows";
        /// What was counted.
        #[serde(flatten, with = "crate::counted")]
        part counts: AdmissionCounts;
        /// Packets that passed, by rule.
        part passed: Drops, "packets";
        /// Packets refused, by reason.
        part refused: Drops, "packets";
        /// Flows taken off it, by cause.
        part removed: Drops, "flows";
        /// Whether each subscriber is open or closed for itself; then rates and load of the link
        /// are not asked.
        #[serde(default)]
        most by_subscriber: bool;
        /// Whether a flood of one-packet flows is held down.
        most flood: bool;
        /// Times from a flow's first packet to its first that passed: (lowest of the bucket in ns,
        /// flows), ascending, without empty buckets.
        buckets accept_delay_buckets: Vec<(u64, u64)>, "ns";
        /// Users that started flows in this interval, busiest first.
        each users: Vec<UserSnapshot>;
        /// Memory of the tables, bytes.
        gauge memory_bytes: u64, "bytes";
    }
}

counters! {
    /// A user and the flows it started since the last estimate of the fair rate.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct UserSnapshot {
        /// The network address of the user's prefix, or the subscriber's name.
        key user: String;
        /// The flows.
        gauge flows: u64, "flows";
    }
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

/// A flow that sends much by a link, from a sample of one packet of sixteen.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BusyFlow {
    /// The link, named by its port.
    pub link: String,
    /// The flow.
    pub flow: String,
    /// Its class.
    pub class: String,
    /// What it gave to the link, bit/s of IP.
    pub bps: f64,
    /// Packets, as they are on the wire, per second.
    pub pps: f64,
    /// What waits of it now, bytes; 0 where the discipline does not know flows.
    pub waiting_bytes: u64,
    /// The time that the rates are of, s: the last 5 to 10 where it has run so long.
    pub seconds: f64,
}

impl BusyFlow {
    /// Those that send most first, then by name.
    #[must_use]
    pub fn busiest_first(a: &Self, b: &Self) -> Ordering {
        b.bps.total_cmp(&a.bps).then_with(|| a.flow.cmp(&b.flow))
    }
}

/// The counts are read like fields of the snapshot.
impl Deref for AdmissionSnapshot {
    type Target = AdmissionCounts;

    fn deref(&self) -> &AdmissionCounts {
        &self.counts
    }
}

impl AdmissionSnapshot {
    /// From what the admission says of itself; `name` knows subscribers by their places.
    #[must_use]
    pub fn of(view: &AdmissionView, name: impl Fn(u32) -> String) -> Self {
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
            counts: view.counts.clone(),
            passed: named(Rule::ALL.iter().zip(view.passed).map(|(rule, n)| (rule.name(), n))),
            refused: named(
                Reason::ALL.iter().zip(view.refused).map(|(reason, n)| (reason.name(), n)),
            ),
            removed: named(
                Removal::ALL.iter().zip(view.removed).map(|(removal, n)| (removal.name(), n)),
            ),
            by_subscriber: view.by_subscriber,
            flood: view.flood,
            accept_delay_buckets: view
                .accept_delay
                .buckets()
                .map(|(index, n)| (Histogram::bounds(index).0.0, n))
                .collect(),
            users: view
                .users
                .iter()
                .map(|UserAdmissions { user, flows }| {
                    let user = match user {
                        Owner::Address(address) => address.to_string(),
                        Owner::Subscriber(place) => name(*place),
                    };
                    UserSnapshot { user, flows: (*flows).into() }
                })
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
