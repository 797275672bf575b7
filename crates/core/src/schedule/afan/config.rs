//! What AFAN is told: the queues, and the controller of approximate fair dropping.

use core::ops::RangeInclusive;

use super::super::buffer::{DEFAULT_QUANTUM, KnownFlows};
use crate::settings;
use crate::units::{Bytes, Nanos, Thousandths};

/// Valid priority quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 256..=65_535;
/// Valid limits of each of the two queues, in packets.
pub const LIMIT_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid target lengths of the elastic queue, in packets.
pub const TARGET_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid target delays of the elastic queue, in nanoseconds.
pub const DELAY_RANGE: RangeInclusive<u64> = 1_000_000..=1_000_000_000;
/// Valid sizes of the shadow buffer, in packets.
pub const SHADOW_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid sampling intervals: one of so many arrivals is sampled.
pub const SAMPLE_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid times between two steps of the controller, in nanoseconds.
pub const INTERVAL_RANGE: RangeInclusive<u64> = 10_000..=10_000_000_000;
/// Valid windows over which elastic flows are counted, in nanoseconds.
pub const WINDOW_RANGE: RangeInclusive<u64> = 1_000_000..=60_000_000_000;

settings! {
    /// Approximate fair dropping keeps the elastic queue at `delay` or `target`: a flow with more
    /// packets in a sample of recent arrivals than the fair number loses the part above it.
    #[derive(Copy, Eq)]
    pub struct Afd: "afd = { … }" {
        /// b: size of the sample.
        live shadow: u32 = 1_000, in SHADOW_RANGE, counting "packets";
        /// s: one of so many arrivals is sampled.
        live sample: u32 = 5, in SAMPLE_RANGE, counting "arrivals";
        /// Time that the elastic queue is steered to, at the pace at which it is sent: at least 16
        /// packets and 3 of each elastic flow, at most half of `limit`.
        live delay: Nanos = Nanos::from_millis(50), in DELAY_RANGE, instead_of target;
        /// Length that the elastic queue is steered to, with a priority test that forgets flows
        /// without a packet there, as published with 50.
        live target: Option<u32> = None, in TARGET_RANGE, counting "packets",
            absent "`delay` says it";
        /// Gain for the queue before.
        live alpha: Thousandths = Thousandths(1_700);
        /// Gain for the queue now.
        live beta: Thousandths = Thousandths(1_800);
        /// Time between two steps of the controller: 160 Hz by default.
        live interval: Nanos = Nanos(6_250_000), in INTERVAL_RANGE;
    }
}

settings! {
    /// Approximate flow-aware networking: one queue for streaming flows, one for elastic ones,
    /// shares by approximate fair dropping. See docs/cross-protect.md.
    #[derive(Copy, Eq)]
    pub struct AfanConfig: "discipline = { kind = \"afan\", … }" {
        /// Q: bytes of a flow that may wait with priority.
        live quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
        /// Most packets in each of the two queues.
        live limit: u32 = 500, in LIMIT_RANGE, counting "packets";
        /// Over which time elastic flows are counted for the fair rate: should be admission's
        /// `fair_rate_interval`.
        live window: Nanos = Nanos::from_millis(500), in WINDOW_RANGE;
        /// The controller of approximate fair dropping. Changes all of it together.
        live afd: Afd = Afd::default();
    }
    parts {
        /// The flows of which state is kept: those with packets inside, in the shadow buffer, or
        /// seen in the window. While there is no room, packets of other flows go to the elastic
        /// queue. The seed is that of the sampling, too.
        flows: KnownFlows,
    }
}
