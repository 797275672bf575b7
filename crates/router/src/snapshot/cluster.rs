//! What forwarders and balancers of a cluster count.

use std::collections::BTreeMap;
use std::ops::Deref;

use evenkeel_cluster::Counters;
use evenkeel_cluster::balancer::BalancerCounters;
use evenkeel_core::audit::Cause;
use evenkeel_core::counters;
use serde::{Deserialize, Serialize};

use super::Drops;

counters! {
    /// A forwarder of a cluster.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClusterSnapshot {
        /// Its id.
        key node: u16;
        /// The hash of what all members must agree upon.
        state configuration: String;
        /// The hash of the configuration that it is ready to change to.
        state next_configuration: Option<String>;
        /// Living members that are not ready for that.
        state waits_for: Vec<u16>;
        /// The master it obeys, maybe itself.
        state master: Option<u16>;
        /// The cycle whose exchange was last opened.
        state cycle: u64, "cycles";
        /// Whether it has the cluster's clocks.
        state in_step: bool;
        /// Members that take part.
        state present: Vec<u16>;
        /// What its engine counted.
        #[serde(flatten, with = "crate::counted")]
        part counts: Counters;
        /// Exchange frames used.
        count used_frames: u64, "frames";
        /// Exchange frames not used, by what was wrong with them: `forged`, `replayed`,
        /// `other_configuration`.
        part refused: BTreeMap<String, u64>, "frames";
        /// Packets granted whose time has not come.
        gauge granted_waiting: u64, "packets";
        /// Packets whose time was over by more than `t_br` when they could be sent, and which wait
        /// for another: the machine is too slow for this schedule.
        count late: u64, "packets";
        /// Whether the cluster keeps the shares that it was told, and this node sends what was
        /// granted to it.
        #[serde(default)]
        part audit: ClusterAuditSnapshot;
        /// The links in the order of the configuration.
        each links: Vec<ClusterLinkSnapshot>;
    }
}

/// The counts are read like fields of the snapshot.
impl Deref for ClusterSnapshot {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.counts
    }
}

counters! {
    /// The audit of a cluster, at one of its forwarders.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClusterAuditSnapshot {
        /// Windows whose shares were judged.
        count windows: u64, "windows";
        /// Windows that were not: somebody was not heard, or charges were taken back.
        count blind: u64, "windows";
        /// Promises broken.
        count violations: u64, "violations";
        /// The same by the cause: `discipline` where a class was behind its share of a link,
        /// `worker_late` where packets could not be sent in the time that was granted to them.
        part by_cause: Drops, "violations";
        /// The furthest that a class was behind another, in millionths of its bound.
        most worst_ppm: u64, "ppm";
        /// The last class that was behind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state last: Option<ClusterViolationSnapshot>;
    }
}

impl ClusterAuditSnapshot {
    /// What was broken and why, for people; nothing where nothing was.
    #[must_use]
    pub fn words(&self) -> String {
        let late = self.by_cause.get(Cause::WorkerLate.name()).copied().unwrap_or(0);
        let behind = self.last.as_ref().filter(|_| late < self.violations);
        let late = (late > 0).then(|| {
            format!(
                "{late} times this node was too late to send what was granted to it, and what it \
                 had of a link's time is lost"
            )
        });
        let behind = behind.map(ClusterViolationSnapshot::words);
        behind.into_iter().chain(late).collect::<Vec<_>>().join("; ")
    }
}

/// A class that had too little of a cluster's link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClusterViolationSnapshot {
    /// The cycle in which it was seen.
    pub cycle: u64,
    /// The link.
    pub link: String,
    /// The class that was behind.
    pub class: String,
    /// The one that was ahead of it.
    pub other: String,
    /// By how much.
    pub lag_bytes: u64,
    /// How much was allowed.
    pub bound_bytes: u64,
    /// Its part of what both should have had, millionths.
    pub told_ppm: u32,
    /// And of what they had.
    pub delivered_ppm: u32,
}

impl ClusterViolationSnapshot {
    /// What was broken, by how much, for people.
    #[must_use]
    pub fn words(&self) -> String {
        let [told, delivered] = [self.told_ppm, self.delivered_ppm].map(|ppm| f64::from(ppm) / 1e4);
        format!(
            "link {}: of what classes {} and {} had, {} was told {told:.1} % and had \
             {delivered:.1} %, {} B behind against {} B",
            self.link, self.class, self.other, self.class, self.lag_bytes, self.bound_bytes
        )
    }
}

counters! {
    /// One outgoing link of a cluster, as this forwarder has it.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClusterLinkSnapshot {
        /// Its name.
        key name: String;
        /// The port that leads to it.
        state port: String;
        /// Its queues.
        each classes: Vec<ClusterQueueSnapshot>;
    }
}

counters! {
    /// A queue for one link and class:
    /// `in_packets = granted_packets + sum(dropped) + queued_packets`.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClusterQueueSnapshot {
        /// The class.
        key name: String;
        /// Packets that came for it.
        count in_packets: u64, "packets";
        /// Packets granted.
        count granted_packets: u64, "packets";
        /// Their IP bytes.
        count granted_bytes: u64, "bytes";
        /// Drops by reason.
        part dropped: Drops, "packets";
        /// Packets waiting.
        gauge queued_packets: u64, "packets";
        /// Their IP bytes.
        gauge queued_bytes: u64, "bytes";
    }
}

counters! {
    /// A balancer.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct BalancerSnapshot {
        /// What it did with packets.
        #[serde(flatten, with = "crate::counted")]
        part counts: BalancerCounters;
        /// The forwarders in the order of the configuration.
        each forwarders: Vec<ForwarderSnapshot>;
    }
}

/// The counts are read like fields of the snapshot.
impl Deref for BalancerSnapshot {
    type Target = BalancerCounters;

    fn deref(&self) -> &BalancerCounters {
        &self.counts
    }
}

counters! {
    /// A forwarder as a balancer sees it.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ForwarderSnapshot {
        /// Its id.
        key id: u16;
        /// Its Ethernet address.
        state mac: String;
        /// `active`, `draining`, `out`.
        state state: String;
        /// What its exchange frames say: `heard`, `silent`, `other-configuration`, `unknown`. Only
        /// one that is heard or unknown gets something.
        #[serde(default)]
        state health: String;
        /// Places of the table of new flows.
        state places: u64, "places";
        /// Flows seen within the idle time: zero means that it is drained.
        gauge flows: u64, "flows";
        /// Packets sent to it.
        count packets: u64, "packets";
        /// Their IP bytes.
        count bytes: u64, "bytes";
    }
}
