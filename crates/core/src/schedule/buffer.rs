//! What the disciplines of flow-aware links share in their settings: how much they hold, which
//! packet goes when that is too much, and how many flows they know.

use core::ops::RangeInclusive;

use crate::units::{BitRate, Bytes, Nanos};
use crate::{settings, words};

/// Valid limits of a link's buffer, in packets.
pub const PACKETS_RANGE: RangeInclusive<u32> = 1..=4_194_304;
/// Valid limits of a link's buffer, in bytes.
pub const BYTES_RANGE: RangeInclusive<u64> = 1_538..=268_435_456;
/// Valid limits of a link's buffer, in time.
pub const MAX_DELAY_RANGE: RangeInclusive<u64> = 100_000..=10_000_000_000;
/// Packets that a buffer has room for however slow the link is.
const ANY_RATE: u64 = 16;
/// Packets of each flow that waits that a buffer has room for however many there are.
const EACH_FLOW: u64 = 3;
/// Valid numbers of flows that a discipline keeps state of.
pub const FLOWS_RANGE: RangeInclusive<u32> = 1..=4_194_304;
/// Valid bounds of the priority queue at the start of flows, in bytes.
pub const START_LIMIT_RANGE: RangeInclusive<u64> = 64..=1_048_576;
/// Room for packets under a limit in bytes: one for so many bytes. Shorter packets fill that first.
const BYTES_PER_PLACE: u64 = 64;

/// The default quantum: an IP packet of 1500 bytes as it is on the wire, where the published 1500
/// is that of the IP packet.
pub const DEFAULT_QUANTUM: Bytes = Bytes(1_538);

words! {
    /// Which packet of the flow with the longest backlog goes when the buffer is full.
    pub enum Victim {
        /// The first: TCP notices a round trip earlier. The published rule.
        #[default]
        Head = "head",
        /// The last.
        Tail = "tail",
    }
}

/// Bytes of memory for a flow: its key, its state, its place in an index and in the orders of
/// service.
const FLOW_MEMORY: u64 = 208;
/// The least that the orders of service take, whatever there is in them.
const ORDER_MEMORY: u64 = 96 << 10;

/// Upper bound of the bytes of memory that so many flows, or queues that flows are hashed to, take
/// with so many packets, each of `packet` bytes, with its links in halves of lines of the cache.
pub(super) fn memory_of_flows(flows: u32, packets: u32, packet: u64) -> u64 {
    let packets = u64::from(packets) * (packet + 24).next_multiple_of(32);
    ORDER_MEMORY + u64::from(flows) * FLOW_MEMORY + packets
}

settings! {
    /// The buffer of a discipline with a queue per flow.
    #[derive(Copy, Eq)]
    pub struct Buffer: "" {
        /// Most packets in all queues together.
        live buffer: u32 = 1_000, in PACKETS_RANGE, counting "packets", instead_of buffer_bytes;
        /// Most bytes in all queues together, as packets take them on the wire, instead of
        /// `buffer`. One packet at most for each 64 bytes of it.
        live buffer_bytes: Option<Bytes> = None, in BYTES_RANGE, absent "`buffer` limits packets";
        /// Most that waits as a time at the link's rate, besides `buffer` or `buffer_bytes`; never
        /// less than 16 packets of 1500 bytes, or 3 for each flow that waits. No bound on a link
        /// without a rate.
        live max_delay: Option<Nanos> = None, in MAX_DELAY_RANGE, absent "no bound in time";
        /// Which packet of the flow with the longest backlog goes when the buffer is full.
        live victim: Victim = Victim::Head;
    }
}

impl Buffer {
    /// So many packets.
    #[must_use]
    pub fn packets(packets: u32) -> Self {
        Self { buffer: packets, ..Self::default() }
    }

    /// So many bytes.
    #[must_use]
    pub fn bytes(bytes: Bytes) -> Self {
        Self { buffer_bytes: Some(bytes), ..Self::default() }
    }

    /// Packets there must be room for.
    pub(super) fn places(self) -> u32 {
        self.buffer_bytes.map_or(self.buffer, |bytes| (bytes.0 / BYTES_PER_PLACE) as u32)
    }

    /// What it comes to on a link of this rate.
    pub(super) fn at(self, rate: Option<BitRate>) -> Room {
        let places = self.places();
        let most = self.buffer_bytes.unwrap_or(Bytes(u64::MAX));
        let timed = self.max_delay.zip(rate).map_or(u64::MAX, |(time, rate)| {
            let bytes = u128::from(rate.0) * u128::from(time.0) / 8_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(ANY_RATE * DEFAULT_QUANTUM.0)
        });
        Room { places, most, timed: Bytes(timed) }
    }
}

/// A buffer on a link of a certain rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    places: u32,
    most: Bytes,
    /// What its time comes to.
    timed: Bytes,
}

impl Room {
    /// Whether a buffer that holds `packets` packets of `bytes` bytes, of `flows` flows that wait
    /// for their turns, takes another of `length` bytes.
    #[inline]
    pub(super) fn fits(self, flows: u64, packets: u32, bytes: Bytes, length: Bytes) -> bool {
        let all = bytes + length;
        packets < self.places
            && all <= self.most
            && (all <= self.timed || all.0 <= flows * (EACH_FLOW * DEFAULT_QUANTUM.0))
    }

    /// Whether it takes a packet when it is empty.
    #[inline]
    pub(super) fn takes(self, length: Bytes) -> bool {
        length <= self.longest()
    }

    /// The longest packet that it takes when it is empty.
    #[inline]
    pub(super) fn longest(self) -> Bytes {
        if self.places > 0 { self.most.min(self.timed) } else { Bytes::ZERO }
    }
}

settings! {
    /// The flows that a discipline knows, and how they start.
    #[derive(Copy, Eq)]
    pub struct KnownFlows: "" {
        /// Most flows that it keeps state of: those with packets inside, not those that are
        /// protected.
        fixed flows: u32 = 10_000, in FLOWS_RANGE, counting "flows";
        /// Bound of the peak of delay when many flows start at once: packets longer than an eighth
        /// of it have priority only while the priority queue is not longer than this with them;
        /// `none` takes it away.
        live start_limit: Option<Bytes> = None, in START_LIMIT_RANGE,
            absent "no bound, as published";
    }
    plain {
        /// Seed of the hash by which flows are found; random per boot where flows come from
        /// strangers.
        seed: u64 = 0;
    }
}

impl KnownFlows {
    /// Most flows that it keeps state of.
    #[must_use]
    pub const fn most(&self) -> u32 {
        self.flows
    }

    /// So many at most, the rest by default.
    #[must_use]
    pub fn up_to(flows: u32) -> Self {
        Self { flows, ..Self::default() }
    }

    /// Whether a packet of `length` bytes may join a priority queue of `waiting` bytes.
    ///
    /// The first packet of each flow is a priority packet, so flows that start together put up to a
    /// quantum each in front of the streams: 50 starts at 10 Mbit/s are 60 ms. With a limit,
    /// packets longer than an eighth of it have priority only while the queue is not above the
    /// limit with them; one that finds no room waits in its flow's turn. Short packets, as voice
    /// sends them, always pass.
    pub(super) fn may_start(&self, waiting: Bytes, length: Bytes) -> bool {
        self.start_limit.is_none_or(|limit| length.0 * 8 <= limit.0 || waiting + length <= limit)
    }

    /// The longest packet that a flow may start with while no other does.
    pub(super) fn longest_start(&self) -> Bytes {
        self.start_limit.unwrap_or(Bytes::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_in_time_is_never_less_than_16_packets_or_3_of_each_flow() {
        let buffer = Buffer { max_delay: Some(Nanos::from_millis(50)), ..Buffer::packets(9_000) };
        let holds = |mbps: u64, flows: u64| {
            let room = buffer.at(Some(BitRate::from_mbps(mbps)));
            let fits = |n: &u32| room.fits(flows, *n, Bytes(u64::from(*n) * 1_538), Bytes(1_538));
            (0..20_000).take_while(fits).count()
        };
        assert_eq!(
            [holds(1, 1), holds(20, 1), holds(100, 1), holds(1_000, 1)],
            [16, 81, 406, 4_063]
        );
        assert_eq!([holds(1, 10), holds(20, 40), holds(20, 10_000)], [30, 120, 9_000]);
        let unpaced = buffer.at(None);
        assert!(unpaced.fits(0, 8_999, Bytes(8_999 * 1_538), Bytes(1_538)));
        assert!(!unpaced.fits(0, 9_000, Bytes::ZERO, Bytes(64)));
    }
}
