//! What the audits of links have found, as plain data.

use std::fmt::Write as _;

use evenkeel_core::audit::{Breach, Cause};
use evenkeel_core::counters;
use serde::{Deserialize, Serialize};

use super::Drops;

counters! {
    /// The audit of one outgoing link: what it was told, held against what it delivered.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct AuditSnapshot {
        /// How often it has looked.
        count looks: u64, "looks";
        /// For how long it has judged shares.
        count watched_ns: u64, "ns";
        /// Promises broken, each by more than its bound.
        count violations: u64, "violations";
        /// The same by the promise.
        part by_breach: Drops, "violations";
        /// The same by the cause, as far as it is known.
        part by_cause: Drops, "violations";
        /// The last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state last: Option<ViolationSnapshot>;
        /// How far the link is behind its rate while something waits.
        part rate: LagSnapshot;
        /// What left beyond the rate; its bound is the burst.
        part excess: LagSnapshot;
        /// How far each class is behind its share, or its level; none where the discipline promises
        /// none.
        each classes: Vec<AuditClass>;
        /// By how much flows that always wait differ, of those sampled.
        part flows: LagSnapshot;
        /// How far packets of flows with priority are behind going first.
        #[serde(default)]
        part priority: LagSnapshot;
        /// How many were compared at the last look.
        gauge flows_compared: u64, "flows";
        /// Of how many flows one is sampled; 0: none are.
        most one_flow_of: u64, "flows";
        /// Of a tree: what the node that is nearest to its bound was sent beyond its cap, of those
        /// sampled.
        #[serde(default)]
        part caps: LagSnapshot;
        /// Of a tree: how far the node that is nearest to its bound is behind the share that a
        /// sibling of it had, of those sampled that always wait.
        #[serde(default)]
        part siblings: LagSnapshot;
        /// How many nodes are sampled now.
        #[serde(default)]
        gauge nodes_watched: u64, "nodes";
    }
}

impl AuditSnapshot {
    /// Every promise that was judged, and how it stands.
    #[must_use]
    pub fn promises(&self) -> Vec<(String, &LagSnapshot)> {
        let classes =
            self.classes.iter().map(|class| (format!("class {}", class.name), &class.lag));
        let all = [
            ("not above the rate", &self.excess),
            ("all of the rate", &self.rate),
            ("flows alike", &self.flows),
            ("priority goes first", &self.priority),
            ("caps of nodes", &self.caps),
            ("shares of siblings", &self.siblings),
        ];
        let whole = all.into_iter().map(|(promise, lag)| (promise.to_owned(), lag));
        whole.chain(classes).filter(|(_, lag)| lag.bound_bytes > 0).collect()
    }
}

counters! {
    /// One class in the audit.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct AuditClass {
        /// Name from the configuration.
        key name: String;
        /// Its part of the link while all classes of its level wait, millionths.
        state told_ppm: u64, "ppm";
        /// Its level: higher ones go first.
        state level: u64, "levels";
        /// How far it is behind.
        part lag: LagSnapshot;
    }
}

counters! {
    /// A lag and its bound.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct LagSnapshot {
        /// At the last look.
        most lag_bytes: u64, "bytes";
        /// The largest since the start.
        most worst_bytes: u64, "bytes";
        /// What discipline and ring are allowed.
        most bound_bytes: u64, "bytes";
        /// What the audit cannot tell, because it looks once in a step: allowed besides.
        most within_bytes: u64, "bytes";
    }
}

counters! {
    /// The audit of a core that FairDrop shares.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct CyclesSnapshot {
        /// Seconds in which some flow asked for more of the core than it got.
        count windows: u64, "seconds";
        /// Of those, in how many a flow was further behind another than is allowed.
        count violations: u64, "violations";
        /// Flows that were compared, in the last of those seconds.
        gauge compared: u64, "flows";
        /// Of how many flows one is looked at.
        most one_flow_of: u64, "flows";
        /// The furthest that a flow was behind another, millionths of what it should have had.
        most worst_ppm: u64, "ppm";
        /// The last violation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state last: Option<CyclesViolationSnapshot>;
    }
}

/// A flow that had too little of a core.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CyclesViolationSnapshot {
    /// Its class, and the class of the flow that had more.
    pub class: String,
    /// See there.
    pub other: String,
    /// What it had of what it should have had, millionths.
    pub delivered_ppm: u32,
    /// Why, as far as it is known.
    pub cause: String,
}

impl CyclesViolationSnapshot {
    /// What was broken, by how much and why, for people.
    #[must_use]
    pub fn words(&self) -> String {
        let cause = Cause::ALL.iter().find(|cause| cause.name() == self.cause);
        let why = cause.map_or(self.cause.as_str(), |cause| cause.describe()).trim();
        format!(
            "a flow of class {} had {:.1} % of the cycles that it should have had beside one of \
             class {}. {why}",
            self.class,
            f64::from(self.delivered_ppm) / 1e4,
            self.other
        )
    }
}

/// A broken promise.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ViolationSnapshot {
    /// When it was seen: `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// Which promise.
    pub breach: String,
    /// Why, as far as it is known.
    pub cause: String,
    /// The class that was behind, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The node of a tree that was sent too much or too little, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// By how much.
    pub lag_bytes: u64,
    /// How much was allowed.
    pub bound_bytes: u64,
    /// The class's part of what should have left, in millionths.
    pub told_ppm: u32,
    /// And of what did.
    pub delivered_ppm: u32,
}

impl ViolationSnapshot {
    /// What was broken, by how much and why, for people.
    #[must_use]
    pub fn words(&self) -> String {
        let breach = Breach::ALL.iter().find(|breach| breach.name() == self.breach);
        let cause = Cause::ALL.iter().find(|cause| cause.name() == self.cause);
        let plain = |text: &str| text.trim().trim_end_matches('.').to_owned();
        let mut text = breach.map_or(self.breach.clone(), |breach| plain(breach.describe()));
        let percent = |ppm: u32| f64::from(ppm) / 1e4;
        let parts = format!(
            "told {:.1} %, delivered {:.1} %",
            percent(self.told_ppm),
            percent(self.delivered_ppm)
        );
        if let Some(class) = &self.class {
            let _ = write!(text, " (class {class}, {parts})");
        }
        match &self.node {
            // Its part of what it and a sibling had.
            Some(node) if self.told_ppm > 0 => {
                let _ = write!(text, " ({node}, beside a sibling {parts})");
            }
            Some(node) => {
                let _ = write!(text, " ({node})");
            }
            None => {}
        }
        let why = cause.map_or(self.cause.clone(), |cause| plain(cause.describe()));
        format!("{text}: {} B against {} B. {why}", self.lag_bytes, self.bound_bytes)
    }
}
