//! `[core]`: one core that polls a ring of packets, in place of hosts, wires and routers.

use evenkeel_core::drop::Rule;
use evenkeel_core::{BitRate, Bytes, Nanos};

/// The name of the core as a router, in samples and expectations.
pub const CORE: &str = "core";
/// The name of its outgoing link there.
pub const OUT: &str = "out";

/// A core that fetches bursts from a ring, judges and processes them.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreModel {
    /// Cycles per second.
    pub clock: u64,
    /// Most packets of a burst.
    pub batch: u16,
    /// Packets that the ring holds; more are lost.
    pub ring: u32,
    /// Cycles for each packet fetched (and judged).
    pub poll: u32,
    /// Cycles for each packet refused, besides.
    pub refuse: u32,
    /// Cycles of a burst, besides.
    pub round: u32,
    /// The dropper for cycles; `None`: every packet fetched is processed.
    pub rule: Option<Rule>,
    /// The outgoing link, if it may be a bottleneck.
    pub link: Option<CoreLink>,
    /// Who sends.
    pub flows: Vec<CoreFlows>,
}

/// The outgoing link of a core: a FIFO of bytes in front of a wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreLink {
    /// Bits per second on the wire.
    pub rate: BitRate,
    /// Bytes that may wait; what does not fit is lost.
    pub buffer: Bytes,
    /// Whether FairDrop shares its bits.
    pub fair: bool,
}

/// Flows alike.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreFlows {
    /// Name of the class they form.
    pub name: String,
    /// How many they are.
    pub flows: u32,
    /// Packets per second of each.
    pub pps: u64,
    /// Length of their frames, check sequence included.
    pub size: Bytes,
    /// Cycles of a packet, besides polling.
    pub cost: u64,
    /// Weight of each.
    pub weight: u16,
    /// Exponential spacing instead of even.
    pub poisson: bool,
    /// From this time on packets cost that much: the flows change to another class of processing.
    pub change: Option<(Nanos, u64)>,
    /// First packet not before.
    pub start: Nanos,
    /// Last packet before.
    pub stop: Nanos,
}
