//! The keys of `[core]`.

use evenkeel_core::settings::Kind;
use evenkeel_core::{Bytes, Cycles, Nanos, Thousandths, settings, words};

use super::LONGEST;
use crate::core_model::CoreLink;

const CYCLES: u64 = 1 << 32;

settings! {
    /// A core that fetches bursts from the ring of a port, judges every packet (FairDrop) and
    /// processes what it admits. All costs are in cycles.
    pub struct CoreSection: "[core]" {
        /// Cycles per second.
        stated clock: u64 = 2_600_000_000, in 1_000_000..=100_000_000_000_u64, counting "Hz";
        /// Most packets of a burst.
        stated batch: u16 = 256, in 1..=65_535, counting "packets";
        /// Packets that the ring holds, at least a burst; what comes on top is lost.
        stated ring: u32 = 2_048, in 1..=1 << 24, counting "packets";
        /// For each packet fetched and judged.
        stated poll: u32 = 26, in 0..=1_000_000, counting "cycles";
        /// For each packet refused, besides.
        stated refuse: u32 = 0, in 0..=1_000_000, counting "cycles";
        /// For each burst, besides.
        stated round: u32 = 0, in 0..=1_000_000_000, counting "cycles";
        /// What decides which packets are processed.
        stated rule: Dropper = Dropper::Level;
        /// Of rule `kappa`.
        stated kappa: Thousandths = Thousandths(1_080), between 1.0..=10.0;
        /// Of rule `fixed`; where `mimd-ring` begins; the largest of `mimd-batch`.
        stated threshold: Cycles = Cycles(6_000), in 1..=CYCLES;
        /// Of rule `level`: how much of its rate a flow may save up.
        stated burst: Nanos = Nanos::from_millis(3), in 100_000..=1_000_000_000;
        /// The outgoing link.
        stated link: Option<CoreLink> = None, absent "the link is never the bottleneck";
        /// Who sends.
        stated flows as flow: Vec<FlowSection> = Vec::new(), in 1..=64, is required;
    }
}

words! {
    /// What decides which packets are processed.
    pub enum Dropper {
        /// FairDrop, our default: every flow may use the same rate of cycles by weight.
        #[default]
        Level = "level",
        /// FairDrop as in IFIP Networking 2018: threshold kappa x credit / backlogged flows.
        Kappa = "kappa",
        /// FairDrop, the journal version: a fixed threshold, charged at the next poll.
        Fixed = "fixed",
        /// FairDrop, authors' simulators: threshold steered by whether bursts are full.
        MimdBatch = "mimd-batch",
        /// FairDrop, branch adth: threshold steered by the ring's occupancy.
        MimdRing = "mimd-ring",
        /// No dropper: what does not fit into the ring is lost there.
        None = "none",
    }
}

settings! {
    /// Flows alike, measured as one class.
    pub struct FlowSection: "[[core.flow]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written Kind::Name(31), is required;
        /// How many they are.
        stated flows: u32 = 1, in 1..=100_000, counting "flows";
        /// Packets per second of each.
        stated pps: u64 = 1, in 1..=100_000_000, counting "packets/s", is required;
        /// Length of its frames, check sequence included.
        stated size: Bytes = Bytes(64), in 64..=9_216;
        /// Cycles of a packet, besides polling. Flows with the same cost take the same class of
        /// processing.
        stated cost: u64 = 1, in 1..=CYCLES, counting "cycles", is required;
        /// Of each flow.
        stated weight: u16 = 1, in 1..=1_000;
        /// Time between packets.
        stated spacing: Spacing = Spacing::Even;
        /// How many packets come at once, with as many times the time between them.
        stated train: u16 = 1, in 1..=1_000, counting "packets";
        /// When its packets begin to cost `cost_then`.
        stated changes: Option<Nanos> = None, in 0..=LONGEST, absent "never";
        /// Cycles of a packet from `changes` on.
        stated cost_then: Option<u64> = None, in 1..=CYCLES, counting "cycles", absent "as before";
        /// First packet not before.
        stated start: Nanos = Nanos::ZERO, in 0..=LONGEST;
        /// Last packet before.
        stated stop: Option<Nanos> = None, in 0..=LONGEST, absent "the end";
    }
}

words! {
    /// Time between packets.
    pub enum Spacing {
        /// Constant.
        #[default]
        Even = "even",
        /// Exponential.
        Poisson = "poisson",
    }
}
