//! Packets that somebody watches: which, and what is told of them.

use evenkeel_core::FlowKey;
use evenkeel_core::class_map::Match;
use serde::{Deserialize, Serialize};

/// Which packets are watched, and what is kept of them.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Chosen by who asks: whoever watches later takes over, and the former is told so.
    pub id: u64,
    /// Only packets for which one of these holds, in either direction; none: all.
    pub filter: Vec<Match>,
    /// Only packets that come by this port, or are given to its link.
    pub port: Option<String>,
    /// Only what was dropped.
    pub drops: bool,
    /// Only the end of each packet, with so many bytes of its frame; `None`: each stage.
    pub snap: Option<u32>,
}

impl Watch {
    /// Whether packets of a flow are watched. DSCP is that of the packet.
    pub(crate) fn wants(&self, flow: &FlowKey, dscp: u8) -> bool {
        let back = FlowKey {
            source: flow.destination,
            destination: flow.source,
            source_port: flow.destination_port,
            destination_port: flow.source_port,
            ..*flow
        };
        let holds = |of: &Match| of.holds(flow, dscp) || of.holds(&back, dscp);
        self.filter.is_empty() || self.filter.iter().any(holds)
    }
}

/// Where a packet was seen.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// It was received.
    Received,
    /// It waits until its next hop has answered.
    Waits,
    /// It was given to a link.
    Queued,
    /// It left a link.
    Sent,
    /// It was dropped.
    Dropped,
    /// It was left to the kernel.
    Kernel,
}

/// A packet at a stage of its way.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sighting {
    /// When: `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// Its arrival tells packets of a flow apart: `CLOCK_MONOTONIC`, ns.
    pub arrival_ns: u64,
    /// The port it came by, or whose link it was given to.
    pub port: String,
    /// Where on its way.
    pub point: Point,
    /// The flow; empty: it is not IP.
    pub flow: String,
    /// The verdict, in words.
    pub text: String,
    /// The reason of a drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Bytes of the frame.
    pub length: u32,
    /// The first of them, as hexadecimal digits; empty unless they are asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bytes: String,
}

/// What was seen since it was asked last.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Sightings {
    /// In the order of time.
    pub seen: Vec<Sighting>,
    /// Those for which there was no room.
    pub missed: u64,
}
