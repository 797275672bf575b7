//! What forwarders and balancers of a cluster count.

use std::collections::BTreeMap;

use evenkeel_cluster::Counters;
use serde::{Deserialize, Serialize};

use super::Drops;

/// A forwarder of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClusterSnapshot {
    /// Its id.
    pub node: u16,
    /// The hash of what all members must agree upon.
    pub configuration: String,
    /// The hash of the configuration that it is ready to change to.
    pub next_configuration: Option<String>,
    /// Living members that are not ready for that.
    pub waits_for: Vec<u16>,
    /// The master it obeys, maybe itself.
    pub master: Option<u16>,
    /// The cycle whose exchange was last opened.
    pub cycle: u64,
    /// Whether it has the cluster's clocks.
    pub in_step: bool,
    /// Members that take part.
    pub present: Vec<u16>,
    /// Exchanges opened.
    pub cycles: u64,
    /// Cycles decided.
    pub decided: u64,
    /// Cycles in which it sent nothing because it did not know enough.
    pub abstained: u64,
    /// States of present members that did not come: older ones were used, or it abstained.
    pub missing: u64,
    /// Rounds decided.
    pub rounds: u64,
    /// Grants to this node.
    pub grants: u64,
    /// Their bytes.
    pub granted_bytes: u64,
    /// Members whose last charges were taken back.
    pub refunds: u64,
    /// Times its clocks were found to differ.
    pub out_of_step: u64,
    /// Times it became master.
    pub takeovers: u64,
    /// Exchange frames sent.
    pub sent_frames: u64,
    /// Times it set others' clocks.
    pub sent_clocks: u64,
    /// Exchange frames used.
    pub used_frames: u64,
    /// Exchange frames not used, by what was wrong with them: `forged`, `replayed`, `other_configuration`.
    pub refused: BTreeMap<String, u64>,
    /// Packets granted whose time has not come.
    pub granted_waiting: u64,
    /// Packets that left later than granted by more than `t_br`: the machine is too slow for this schedule.
    pub late: u64,
    /// The links in the order of the configuration.
    pub links: Vec<ClusterLinkSnapshot>,
}

impl ClusterSnapshot {
    pub(crate) fn count(&mut self, counters: &Counters) {
        self.cycles = counters.cycles;
        self.decided = counters.decided;
        self.abstained = counters.abstained;
        self.missing = counters.missing;
        self.rounds = counters.rounds;
        self.grants = counters.grants;
        self.granted_bytes = counters.granted_bytes;
        self.refunds = counters.refunds;
        self.out_of_step = counters.out_of_step;
        self.takeovers = counters.takeovers;
        self.sent_frames = counters.sent_frames;
        self.sent_clocks = counters.sent_clocks;
        self.used_frames = counters.states + counters.clocks;
        let refused = [
            ("foreign", counters.foreign),
            ("echoes", counters.echoes),
            ("short", counters.short),
            ("long", counters.long),
            ("version", counters.version),
            ("malformed", counters.malformed),
            ("strangers", counters.strangers),
            ("duplicate_ids", counters.duplicate_ids),
            ("other_configuration", counters.other_configuration),
            ("forged", counters.forged),
            ("replayed", counters.replayed),
            ("late", counters.late),
            ("repeated", counters.repeated),
            ("second_master", counters.second_master),
            ("unwanted_clocks", counters.unwanted_clocks),
        ];
        let met = refused.into_iter().filter(|(_, n)| *n > 0);
        self.refused = met.map(|(name, n)| (name.to_owned(), n)).collect();
    }
}

/// One outgoing link of a cluster, as this forwarder has it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClusterLinkSnapshot {
    /// Its name.
    pub name: String,
    /// The port that leads to it.
    pub port: String,
    /// Its queues.
    pub classes: Vec<ClusterQueueSnapshot>,
}

/// A queue for one link and class: `in_packets = granted_packets + sum(dropped) + queued_packets`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClusterQueueSnapshot {
    /// The class.
    pub name: String,
    /// Packets that came for it.
    pub in_packets: u64,
    /// Packets granted.
    pub granted_packets: u64,
    /// Their IP bytes.
    pub granted_bytes: u64,
    /// Drops by reason.
    pub dropped: Drops,
    /// Packets waiting.
    pub queued_packets: u64,
    /// Their IP bytes.
    pub queued_bytes: u64,
}

/// A balancer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BalancerSnapshot {
    /// Packets of flows that were remembered.
    pub known: u64,
    /// Packets of flows that were not.
    pub new: u64,
    /// Of these, those that found no place and follow the table alone.
    pub untracked: u64,
    /// Flows whose forwarder had gone.
    pub moved: u64,
    /// The forwarders in the order of the configuration.
    pub forwarders: Vec<ForwarderSnapshot>,
}

/// A forwarder as a balancer sees it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ForwarderSnapshot {
    /// Its id.
    pub id: u16,
    /// Its Ethernet address.
    pub mac: String,
    /// `active`, `draining`, `out`.
    pub state: String,
    /// Places of the table of new flows.
    pub places: u64,
    /// Flows seen within the idle time: zero means that it is drained.
    pub flows: u64,
    /// Packets sent to it.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
}
