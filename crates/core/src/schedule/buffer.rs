//! What the disciplines with a queue per flow share in their configuration: how much they hold, and who has to go when that is too much.

use core::fmt;
use core::ops::RangeInclusive;

use super::{KnobError, in_range};
use crate::units::Bytes;

/// Valid limits of a link's buffer, in packets.
pub const PACKETS_RANGE: RangeInclusive<u32> = 1..=4_194_304;
/// Valid limits of a link's buffer, in bytes.
pub const BYTES_RANGE: RangeInclusive<u64> = 1_500..=268_435_456;
/// Valid numbers of flows that a discipline keeps state of.
pub const FLOWS_RANGE: RangeInclusive<u32> = 1..=4_194_304;
/// Valid bounds of the priority queue at the start of flows, in bytes.
pub const START_LIMIT_RANGE: RangeInclusive<u64> = 64..=1_048_576;
/// Room for packets under a limit in bytes: one for so many bytes. Shorter packets fill that room first.
const BYTES_PER_PLACE: u64 = 64;

/// The published buffer of flow-aware routers, in packets.
pub const DEFAULT_BUFFER: BufferLimit = BufferLimit::Packets(1_000);
/// The default size of a discipline's flow list.
pub const DEFAULT_FLOWS: u32 = 10_000;

/// Most that a link's buffer holds, over all its queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BufferLimit {
    /// So many packets; in [`PACKETS_RANGE`].
    Packets(u32),
    /// So many bytes of IP packets; in [`BYTES_RANGE`]. And at most one packet for each 64 bytes of it.
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

    /// Packets there must be room for.
    pub(super) fn places(self) -> u32 {
        match self {
            Self::Packets(packets) => packets,
            Self::Bytes(bytes) => (bytes.0 / BYTES_PER_PLACE) as u32,
        }
    }

    /// Whether a buffer that holds `packets` packets of `bytes` bytes takes another of `length` bytes.
    pub(super) fn fits(self, packets: u32, bytes: Bytes, length: Bytes) -> bool {
        let bytes_fit = match self {
            Self::Packets(_) => true,
            Self::Bytes(most) => bytes + length <= most,
        };
        packets < self.places() && bytes_fit
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

pub(super) fn check_flows(flows: u32) -> Result<(), KnobError> {
    let (min, max) = (u64::from(*FLOWS_RANGE.start()), u64::from(*FLOWS_RANGE.end()));
    in_range("flows", u64::from(flows), min..=max, "flows")
}

pub(super) fn check_start_limit(limit: Option<Bytes>) -> Result<(), KnobError> {
    limit.map_or(Ok(()), |limit| in_range("start_limit", limit.0, START_LIMIT_RANGE, "bytes"))
}

/// Whether a packet of `length` bytes may join a priority queue of `waiting` bytes.
///
/// Everybody's first packet is a priority packet, so flows that start together put up to a quantum each in front of the
/// streams: 50 starts at 10 Mbit/s are 60 ms. With a limit, packets longer than an eighth of it have priority only
/// while the queue is not above the limit with them; one that finds no room waits in its flow's turn. Short packets, as voice sends them, always pass.
pub(super) fn may_start(limit: Option<Bytes>, waiting: Bytes, length: Bytes) -> bool {
    limit.is_none_or(|limit| length.0 * 8 <= limit.0 || waiting + length <= limit)
}
