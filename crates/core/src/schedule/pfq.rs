//! Priority fair queueing.

use core::ops::RangeInclusive;

use super::buffer::{BufferLimit, DEFAULT_BUFFER, DEFAULT_FLOWS, Victim, check_flows, check_start_limit};
use super::{KnobError, in_range};
use crate::units::Bytes;

/// Valid priority quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 0..=65_535;

/// What a PFQ is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PfqConfig {
    /// Bytes that a flow may put in with priority since it was listed (the published MTU), looked at before a packet is
    /// added: in [`QUANTUM_RANGE`]; default 1500.
    pub quantum: Bytes,
    /// Most that waits; default 1000 packets.
    pub buffer: BufferLimit,
    /// Which packet of the longest flow goes when the buffer is full; default the head.
    pub victim: Victim,
    /// Most flows listed, in [`FLOWS_RANGE`](super::buffer::FLOWS_RANGE); default 10 000. While the list is full, flows
    /// that are not on it have priority, as published.
    pub flows: u32,
    /// Bound of the peak when many flows start at once, in bytes of the priority queue and in
    /// [`START_LIMIT_RANGE`](super::buffer::START_LIMIT_RANGE): packets longer than an eighth of it have priority only
    /// while the priority queue is not longer than this with them. Default `None`: no bound, as published.
    pub start_limit: Option<Bytes>,
    /// Seed of the flow list's hash; random per boot where flows come from strangers.
    pub seed: u64,
}

impl Default for PfqConfig {
    fn default() -> Self {
        Self {
            quantum: Bytes(1_500),
            buffer: DEFAULT_BUFFER,
            victim: Victim::Head,
            flows: DEFAULT_FLOWS,
            start_limit: None,
            seed: 0,
        }
    }
}

impl PfqConfig {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        in_range("quantum", self.quantum.0, QUANTUM_RANGE, "bytes")?;
        self.buffer.check()?;
        check_flows(self.flows)?;
        check_start_limit(self.start_limit)
    }
}
