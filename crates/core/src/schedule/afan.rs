//! Approximate flow-aware networking.

use core::ops::RangeInclusive;

use super::buffer::{DEFAULT_FLOWS, check_flows, check_start_limit};
use super::{KnobError, in_range};
use crate::units::{Bytes, Nanos};

/// Valid priority quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 256..=65_535;
/// Valid limits of each of the two queues, in packets.
pub const LIMIT_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid target lengths of the elastic queue, in packets.
pub const TARGET_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid sizes of the shadow buffer, in packets.
pub const SHADOW_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid sampling intervals: one of so many arrivals is sampled.
pub const SAMPLE_RANGE: RangeInclusive<u64> = 1..=65_536;
/// Valid gains of the controller, in thousandths.
pub const GAIN_RANGE: RangeInclusive<u64> = 0..=1_000_000;
/// Valid times between two steps of the controller, in nanoseconds.
pub const INTERVAL_RANGE: RangeInclusive<u64> = 10_000..=10_000_000_000;
/// Valid windows over which elastic flows are counted, in nanoseconds.
pub const WINDOW_RANGE: RangeInclusive<u64> = 1_000_000..=60_000_000_000;

/// Approximate fair dropping: the controller's parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Afd {
    /// b: packets in the shadow buffer; in [`SHADOW_RANGE`]; default 1000.
    pub shadow: u32,
    /// s: one of so many arriving packets is sampled; in [`SAMPLE_RANGE`]; default 5.
    pub sample: u32,
    /// `q_target`: length that the elastic queue is steered to, in packets; in [`TARGET_RANGE`]; default 50.
    pub target: u32,
    /// alpha in thousandths; in [`GAIN_RANGE`]; default 1700.
    pub alpha: u32,
    /// beta in thousandths; in [`GAIN_RANGE`]; default 1800.
    pub beta: u32,
    /// 1/f_s: time between two steps of the controller; in [`INTERVAL_RANGE`]; default 6.25 ms (160 Hz).
    pub interval: Nanos,
}

impl Default for Afd {
    fn default() -> Self {
        Self { shadow: 1_000, sample: 5, target: 50, alpha: 1_700, beta: 1_800, interval: Nanos(6_250_000) }
    }
}

impl Afd {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        in_range("afd.shadow", self.shadow.into(), SHADOW_RANGE, "packets")?;
        in_range("afd.sample", self.sample.into(), SAMPLE_RANGE, "packets")?;
        in_range("afd.target", self.target.into(), TARGET_RANGE, "packets")?;
        in_range("afd.alpha", self.alpha.into(), GAIN_RANGE, "thousandths")?;
        in_range("afd.beta", self.beta.into(), GAIN_RANGE, "thousandths")?;
        in_range("afd.interval", self.interval.0, INTERVAL_RANGE, "ns")
    }
}

/// What an AFAN is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AfanConfig {
    /// Q: bytes of a flow that may wait with priority; in [`QUANTUM_RANGE`]; default 1500.
    pub quantum: Bytes,
    /// Most packets in each of the two queues; in [`LIMIT_RANGE`]; default 500.
    pub limit: u32,
    /// Most flows of which state is kept (those with packets inside, in the shadow buffer, or seen in the window); in
    /// [`FLOWS_RANGE`](super::buffer::FLOWS_RANGE); default 10 000. While the list is full, packets of other flows go to
    /// the elastic queue.
    pub flows: u32,
    /// Approximate fair dropping.
    pub afd: Afd,
    /// Window over which elastic flows are counted for the fair rate; should be admission's `T_FR`; in
    /// [`WINDOW_RANGE`]; default 0.5 s.
    pub window: Nanos,
    /// Bound of the peak when many flows start at once, in bytes of the priority queue and in
    /// [`START_LIMIT_RANGE`](super::buffer::START_LIMIT_RANGE): packets longer than an eighth of it have priority only
    /// while the priority queue is not longer than this with them. Default `None`: no bound, as published.
    pub start_limit: Option<Bytes>,
    /// Seed of the flow list's hash and of the sampling.
    pub seed: u64,
}

impl Default for AfanConfig {
    fn default() -> Self {
        Self {
            quantum: Bytes(1_500),
            limit: 500,
            flows: DEFAULT_FLOWS,
            afd: Afd::default(),
            window: Nanos::from_millis(500),
            start_limit: None,
            seed: 0,
        }
    }
}

impl AfanConfig {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        in_range("quantum", self.quantum.0, QUANTUM_RANGE, "bytes")?;
        in_range("limit", self.limit.into(), LIMIT_RANGE, "packets")?;
        check_flows(self.flows)?;
        self.afd.check()?;
        in_range("window", self.window.0, WINDOW_RANGE, "ns")?;
        check_start_limit(self.start_limit)
    }
}
