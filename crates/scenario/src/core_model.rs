//! `[core]`: one core that polls a ring of packets, in place of hosts, wires and routers.

use evenkeel_core::drop::Rule;
use evenkeel_core::{BitRate, Bytes, Nanos, settings};

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

settings! {
    /// The link behind the core: a FIFO of bytes and a wire.
    #[derive(Copy)]
    pub struct CoreLink: "[core.link]" {
        /// Bits per second on the wire, preamble and gap included.
        stated rate: BitRate = BitRate(1_000), in 1_000..=1_000_000_000_000_u64, is required;
        /// Bytes that may wait; what does not fit is lost.
        stated buffer: Bytes = Bytes(1 << 20), in 1_538..=1_000_000_000;
        /// Whether FairDrop shares its bits, too: a packet must be within its flow's share of both.
        stated fair as fairdrop: bool = true;
    }
}

/// Flows alike.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreFlows {
    /// Name of the class they form.
    pub name: String,
    /// How many they are.
    pub flows: u32,
    /// Packets per second of each; more than 0.
    pub pps: f64,
    /// Length of their frames, check sequence included.
    pub size: Bytes,
    /// Cycles of a packet, besides polling.
    pub cost: u64,
    /// Weight of each.
    pub weight: u16,
    /// Exponential spacing instead of even.
    pub poisson: bool,
    /// Packets that come at once; the time between such trains is as many times as long.
    pub train: u16,
    /// From this time on packets cost that much: the flows change to another class of processing.
    pub change: Option<(Nanos, u64)>,
    /// First packet not before.
    pub start: Nanos,
    /// Last packet before.
    pub stop: Nanos,
}
