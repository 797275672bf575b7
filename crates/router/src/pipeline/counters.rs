//! What the pipeline counts at a port, and its form in a snapshot.

use evenkeel_core::Reason;

use crate::snapshot::Drops;
use crate::tally::{Tally, add_port_counts};

/// Counters by reason.
pub(super) type ByReason = [u64; Reason::COUNT];

/// Counters of one port. See [`PortSnapshot`](crate::snapshot::PortSnapshot) for what each means and what they add up to.
#[derive(Clone, Debug)]
pub(super) struct PortCount {
    pub(super) rx_packets: u64,
    pub(super) rx_bytes: u64,
    pub(super) to_host: u64,
    pub(super) exchange_received: u64,
    pub(super) exchange_sent: u64,
    pub(super) forwarded: u64,
    pub(super) fragmented: u64,
    pub(super) waiting: u64,
    pub(super) dropped: ByReason,
    pub(super) answered: u64,
    pub(super) answers_limited: u64,
    pub(super) originated: u64,
    pub(super) originated_waiting: u64,
    pub(super) originated_dropped: ByReason,
    pub(super) tx_dropped: ByReason,
}

impl PortCount {
    pub(super) const fn new() -> Self {
        Self {
            rx_packets: 0,
            rx_bytes: 0,
            to_host: 0,
            exchange_received: 0,
            exchange_sent: 0,
            forwarded: 0,
            fragmented: 0,
            waiting: 0,
            dropped: [0; Reason::COUNT],
            answered: 0,
            answers_limited: 0,
            originated: 0,
            originated_waiting: 0,
            originated_dropped: [0; Reason::COUNT],
            tx_dropped: [0; Reason::COUNT],
        }
    }
}

impl Tally for PortCount {
    fn add(&mut self, other: &Self) {
        add_port_counts!(self, other);
    }
}

/// By name; reasons never met left out.
pub(super) fn named(counts: &ByReason) -> Drops {
    let met = |reason: &&Reason| counts[reason.index()] > 0;
    Reason::ALL.iter().filter(met).map(|reason| (reason.name().to_owned(), counts[reason.index()])).collect()
}
