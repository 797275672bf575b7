//! What the disciplines of flow-aware links share in their configuration: how much they hold, who has to go when that is too much, and how many
//! flows they know.

use core::fmt;
use core::ops::RangeInclusive;

use super::{KnobError, in_range};
use crate::units::Bytes;

/// Valid limits of a link's buffer, in packets.
pub const PACKETS_RANGE: RangeInclusive<u32> = 1..=4_194_304;
/// Valid limits of a link's buffer, in bytes.
pub const BYTES_RANGE: RangeInclusive<u64> = 1_538..=268_435_456;
/// Valid numbers of flows that a discipline keeps state of.
pub const FLOWS_RANGE: RangeInclusive<u32> = 1..=4_194_304;
/// Valid bounds of the priority queue at the start of flows, in bytes.
pub const START_LIMIT_RANGE: RangeInclusive<u64> = 64..=1_048_576;
/// Room for packets under a limit in bytes: one for so many bytes. Shorter packets fill that room first.
const BYTES_PER_PLACE: u64 = 64;

/// The published buffer of flow-aware routers, in packets.
pub const DEFAULT_BUFFER: BufferLimit = BufferLimit::Packets(1_000);
/// The default quantum: an IP packet of 1500 bytes as it is on the wire, where the published 1500 is
/// that of the IP packet.
pub const DEFAULT_QUANTUM: Bytes = Bytes(1_538);
/// The default size of a discipline's flow list.
pub const DEFAULT_FLOWS: u32 = 10_000;

/// Most that a link's buffer holds, over all its queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BufferLimit {
    /// So many packets; in [`PACKETS_RANGE`].
    Packets(u32),
    /// So many bytes, as packets take them on the wire; in [`BYTES_RANGE`]. And at most one packet for each 64 bytes of it.
    Bytes(Bytes),
}

impl Default for BufferLimit {
    fn default() -> Self {
        DEFAULT_BUFFER
    }
}

impl fmt::Display for BufferLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl BufferLimit {
    /// Whether the limit lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] if not.
    pub fn check(self) -> Result<(), KnobError> {
        match self {
            Self::Packets(packets) => {
                let (min, max) = (u64::from(*PACKETS_RANGE.start()), u64::from(*PACKETS_RANGE.end()));
                in_range("buffer", u64::from(packets), min..=max, "packets")
            }
            Self::Bytes(bytes) => in_range("buffer", bytes.0, BYTES_RANGE, "bytes"),
        }
    }
}

/// Which packet of the flow with the longest backlog goes when the buffer is full.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Victim {
    /// The first: TCP notices a round trip earlier. The published rule.
    #[default]
    Head,
    /// The last.
    Tail,
}

/// The buffer of a discipline with a queue per flow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Buffer {
    /// Most that waits; default 1000 packets.
    pub limit: BufferLimit,
    /// Which packet of the longest flow goes when the buffer is full; default the head.
    pub victim: Victim,
}

impl From<BufferLimit> for Buffer {
    fn from(limit: BufferLimit) -> Self {
        Self { limit, ..Self::default() }
    }
}

impl Buffer {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        self.limit.check()
    }

    /// Packets there must be room for.
    pub(super) fn places(self) -> u32 {
        match self.limit {
            BufferLimit::Packets(packets) => packets,
            BufferLimit::Bytes(bytes) => (bytes.0 / BYTES_PER_PLACE) as u32,
        }
    }

    /// Whether a buffer that holds `packets` packets of `bytes` bytes takes another of `length` bytes.
    pub(super) fn fits(self, packets: u32, bytes: Bytes, length: Bytes) -> bool {
        let bytes_fit = match self.limit {
            BufferLimit::Packets(_) => true,
            BufferLimit::Bytes(most) => bytes + length <= most,
        };
        packets < self.places() && bytes_fit
    }
}

/// The flows that a discipline knows, and how they start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KnownFlows {
    /// Most flows of which state is kept, in [`FLOWS_RANGE`]; default 10 000.
    pub most: u32,
    /// Bound of the peak when many flows start at once, in bytes of the priority queue and in [`START_LIMIT_RANGE`]: packets longer than an
    /// eighth of it have priority only while the priority queue is not longer than this with them. Default `None`: no bound, as published.
    pub start_limit: Option<Bytes>,
    /// Seed of the hash by which flows are found; random per boot where flows come from strangers.
    pub seed: u64,
}

impl Default for KnownFlows {
    fn default() -> Self {
        Self { most: DEFAULT_FLOWS, start_limit: None, seed: 0 }
    }
}

impl KnownFlows {
    /// So many at most, the rest by default.
    #[must_use]
    pub fn up_to(most: u32) -> Self {
        Self { most, ..Self::default() }
    }

    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        check_flows(self.most)?;
        let in_start_range = |limit: Bytes| in_range("start_limit", limit.0, START_LIMIT_RANGE, "bytes");
        self.start_limit.map_or(Ok(()), in_start_range)
    }

    /// Whether a packet of `length` bytes may join a priority queue of `waiting` bytes.
    ///
    /// Everybody's first packet is a priority packet, so flows that start together put up to a quantum each in front of the
    /// streams: 50 starts at 10 Mbit/s are 60 ms. With a limit, packets longer than an eighth of it have priority only
    /// while the queue is not above the limit with them; one that finds no room waits in its flow's turn. Short packets, as voice sends them, always pass.
    pub(super) fn may_start(&self, waiting: Bytes, length: Bytes) -> bool {
        self.start_limit.is_none_or(|limit| length.0 * 8 <= limit.0 || waiting + length <= limit)
    }
}

pub(super) fn check_flows(flows: u32) -> Result<(), KnobError> {
    let (min, max) = (u64::from(*FLOWS_RANGE.start()), u64::from(*FLOWS_RANGE.end()));
    in_range("flows", u64::from(flows), min..=max, "flows")
}
