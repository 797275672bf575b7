//! Priority deficit round robin.

use core::ops::RangeInclusive;

use super::buffer::{BufferLimit, DEFAULT_BUFFER, DEFAULT_FLOWS, Victim, check_flows, check_start_limit};
use super::{KnobError, in_range};
use crate::units::{Bytes, Nanos};

/// Valid quanta, in bytes. Below the longest packet a visit may end with nothing sent and cost more than constant time.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 256..=65_535;
/// Valid times that an empty flow stays active.
pub const AFL_LINGER_RANGE: RangeInclusive<u64> = 0..=10_000_000_000;

/// What a PDRR is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PdrrConfig {
    /// Q: bytes that a flow may send per round, and bytes it may put in with priority since it became active; in
    /// [`QUANTUM_RANGE`]; default 1500, should be at least the MTU.
    pub quantum: Bytes,
    /// Most that waits; default 1000 packets.
    pub buffer: BufferLimit,
    /// Which packet of the longest flow goes when the buffer is full; default the head.
    pub victim: Victim,
    /// Most flows active at a time, in [`FLOWS_RANGE`](super::buffer::FLOWS_RANGE); default 10 000. While the list is
    /// full, flows that are not on it have priority.
    pub flows: u32,
    /// How long a flow whose queue is empty stays active, so that a short gap does not make it a streaming flow; 0 to
    /// 10 s, in [`AFL_LINGER_RANGE`]. Default 0: not at all, the textbook's rule.
    pub afl_linger: Nanos,
    /// Bound of the peak when many flows start at once, in bytes of the priority queue and in
    /// [`START_LIMIT_RANGE`](super::buffer::START_LIMIT_RANGE): packets longer than an eighth of it have priority only
    /// while the priority queue is not longer than this with them. Default `None`: no bound, as published.
    pub start_limit: Option<Bytes>,
    /// Seed of the flow list's hash; random per boot where flows come from strangers.
    pub seed: u64,
}

impl Default for PdrrConfig {
    fn default() -> Self {
        Self {
            quantum: Bytes(1_500),
            buffer: DEFAULT_BUFFER,
            victim: Victim::Head,
            flows: DEFAULT_FLOWS,
            afl_linger: Nanos::ZERO,
            start_limit: None,
            seed: 0,
        }
    }
}

impl PdrrConfig {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        in_range("quantum", self.quantum.0, QUANTUM_RANGE, "bytes")?;
        self.buffer.check()?;
        check_flows(self.flows)?;
        in_range("afl_linger", self.afl_linger.0, AFL_LINGER_RANGE, "ns")?;
        check_start_limit(self.start_limit)
    }
}
