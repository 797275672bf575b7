//! Subscribers, and the nodes that they are behind.

use evenkeel_core::counters;
use serde::{Deserialize, Serialize};

counters! {
    /// The tree of subscribers on a link.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct TreeSnapshot {
        /// Its name.
        state name: String;
        /// Subscribers in its list.
        gauge subscribers: u64, "subscribers";
        /// Packets sent that belong to nobody in the list.
        count unknown_packets: u64, "packets";
        /// Their bytes on the wire.
        count unknown_bytes: u64, "bytes";
        /// Packets of nobody in the list that were dropped.
        count unknown_dropped: u64, "packets";
        /// What the latest packet of nobody would have been found by: its address, and what of its
        /// frame the list goes by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state last_unknown: Option<String>;
        /// Nodes that subscribers are behind, the first 256 of the list.
        each nodes: Vec<BranchSnapshot>;
    }
}

counters! {
    /// A node that subscribers are behind, on one link.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct BranchSnapshot {
        /// Its name in the list.
        key name: String;
        /// The name of what it is behind.
        state parent: String;
        /// The most it may send, bit/s; `None`: as much as what it is behind.
        state cap_bps: Option<u64>, "bit/s";
        /// Packets sent.
        count sent_packets: u64, "packets";
        /// Their bytes on the wire.
        count sent_bytes: u64, "bytes";
        /// How often it had to wait for its own cap.
        count own_cap: u64, "waits";
        /// Of those behind it, how many have something that waits.
        gauge busy: u64, "children";
    }
}

/// A subscriber or a node on one of the links of its tree.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct NodeSnapshot {
    /// The tree.
    pub tree: String,
    /// The link, by its port.
    pub link: String,
    /// The link leads towards the subscribers.
    pub down: bool,
    /// The name in the list; `unknown`: whom no line names; `the link`: all of them.
    pub name: String,
    /// The name of what it is behind.
    pub parent: String,
    /// Whether it is a subscriber; else others are behind it.
    pub subscriber: bool,
    /// The most it may send, bit/s; `None`: as much as what it is behind.
    pub cap_bps: Option<u64>,
    /// What it gets before others share, bit/s.
    pub guarantee_bps: u64,
    /// What its packets are found by, where one is asked for by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_by: Vec<String>,
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes on the wire.
    pub sent_bytes: u64,
    /// Packets dropped because there was no room for them.
    pub overflow: u64,
    /// Packets dropped because their queue stood. Goes round at 2^32, as the following counts.
    pub standing: u64,
    /// Packets marked.
    pub marked: u64,
    /// How often it had to wait for its own cap.
    pub own_cap: u64,
    /// How often its turn was over while it had more to send.
    pub turns_over: u64,
    /// Packets by the time that they waited: below 65.5 us, and twice as long each.
    pub delays: Vec<u64>,
    /// The round trip between the link and what is at its end, of the subscriber's TCP and echoes,
    /// us: on the link that leads to it how far away it is, on the other one who it talks with.
    /// `None`: none was seen in the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Bytes that wait, of a subscriber.
    pub backlog_bytes: u64,
    /// Packets that wait, of a subscriber.
    pub backlog_packets: u64,
    /// Flows that wait, or children of which something waits.
    pub busy: u64,
    /// Whether it waits for its own cap now.
    pub capped: bool,
}
