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
        /// How many were compared at the last look.
        gauge flows_compared: u64, "flows";
        /// Of how many flows one is sampled; 0: none are.
        most one_flow_of: u64, "flows";
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
        if let Some(class) = &self.class {
            let percent = |ppm: u32| f64::from(ppm) / 1e4;
            let _ = write!(
                text,
                " (class {class}, told {:.1} %, delivered {:.1} %)",
                percent(self.told_ppm),
                percent(self.delivered_ppm)
            );
        }
        let why = cause.map_or(self.cause.clone(), |cause| plain(cause.describe()));
        format!("{text}: {} B against {} B. {why}", self.lag_bytes, self.bound_bytes)
    }
}
