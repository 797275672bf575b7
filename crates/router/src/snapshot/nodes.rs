//! Subscribers, and the nodes that they are behind.

use serde::{Deserialize, Serialize};

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
    /// Bytes that wait, of a subscriber.
    pub backlog_bytes: u64,
    /// Packets that wait, of a subscriber.
    pub backlog_packets: u64,
    /// Flows that wait, or children of which something waits.
    pub busy: u64,
    /// Whether it waits for its own cap now.
    pub capped: bool,
}
