//! What the pipeline counts at a port, and its form in a snapshot.

use std::ops::{Deref, DerefMut};

use evenkeel_core::Reason;
use evenkeel_core::measure::Tally;

use crate::snapshot::{Drops, PortCounts};

/// Counters by reason.
pub(super) type ByReason = [u64; Reason::COUNT];

/// Counters of one port. See [`PortSnapshot`](crate::snapshot::PortSnapshot) for what each means
/// and what they add up to.
#[derive(Clone, Debug)]
pub(super) struct PortCount {
    pub(super) counts: PortCounts,
    /// Super-frames received that were cut for the link they leave by.
    pub(super) cut: u64,
    pub(super) dropped: ByReason,
    pub(super) originated_dropped: ByReason,
    pub(super) tx_dropped: ByReason,
}

impl PortCount {
    pub(super) fn new() -> Self {
        let none = [0; Reason::COUNT];
        let counts = PortCounts::default();
        Self { counts, cut: 0, dropped: none, originated_dropped: none, tx_dropped: none }
    }

    /// Counts plain packets of so many bytes together that were received and forwarded.
    pub(super) fn forwarded(&mut self, packets: u64, bytes: u64) {
        self.counts.rx_packets += packets;
        self.counts.rx_segments += packets;
        self.counts.rx_bytes += bytes;
        self.counts.forwarded += packets;
    }

    /// Counts what another port has counted, too.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.cut += other.cut;
        self.dropped.add(&other.dropped);
        self.originated_dropped.add(&other.originated_dropped);
        self.tx_dropped.add(&other.tx_dropped);
    }
}

/// The counts are read and written like fields.
impl Deref for PortCount {
    type Target = PortCounts;

    fn deref(&self) -> &PortCounts {
        &self.counts
    }
}

impl DerefMut for PortCount {
    fn deref_mut(&mut self) -> &mut PortCounts {
        &mut self.counts
    }
}

/// By name; reasons never met left out.
pub(super) fn named(counts: &ByReason) -> Drops {
    let met = |reason: &&Reason| counts[reason.index()] > 0;
    Reason::ALL
        .iter()
        .filter(met)
        .map(|reason| (reason.name().to_owned(), counts[reason.index()]))
        .collect()
}
