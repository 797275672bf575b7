//! FairDrop for the bits of one outgoing link. (The interface; the shadow system follows.)

use super::config::{BandwidthConfig, FairDropError, ShareId};
use super::fairdrop::{FlowView, Ticket};
use crate::reason::Reason;
use crate::units::{BitRate, Bytes, Nanos};

/// Counters of a link's dropper.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BandwidthView {
    /// Packets judged, admitted (charged), refused.
    pub judged: u64,
    /// See `judged`.
    pub admitted: u64,
    /// See `judged`.
    pub refused: u64,
    /// Packets of flows that found no place in the table and were charged to the common entry.
    pub unplaced: u64,
    /// Flows with a shadow backlog.
    pub backlogged: u32,
    /// The shadow queues together.
    pub backlog: Bytes,
}

/// The dropper of one outgoing link.
#[derive(Clone, Debug)]
pub struct BandwidthFairDrop {
    config: BandwidthConfig,
}

impl BandwidthFairDrop {
    /// A dropper with an empty shadow system. Allocates all it will ever need.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(config: BandwidthConfig) -> Result<Self, FairDropError> {
        config.check()?;
        Ok(Self { config })
    }

    /// Before the first [`judge`](Self::judge) of a batch: the shadow is served up to `now`. The first call sets the start.
    pub fn begin_batch(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Whether a packet of this flow is within its share. Charges nothing. Admits whatever comes while the link is not backlogged.
    ///
    /// # Errors
    /// [`Reason::FairdropBandwidth`]: refuse it.
    pub fn judge(&mut self, flow_hash: u64, share: ShareId) -> Result<Ticket, Reason> {
        let _ = (flow_hash, share);
        Ok(Ticket { slot: 0, class: super::ProcessingClass(0) })
    }

    /// The packet is admitted by all: its flow pays for its length on the wire.
    pub fn charge(&mut self, ticket: Ticket, wire_len: Bytes) {
        let _ = (ticket, wire_len);
    }

    /// [`judge`](Self::judge) and [`charge`](Self::charge) in one.
    ///
    /// # Errors
    /// [`Reason::FairdropBandwidth`]: refuse it.
    pub fn admit(&mut self, flow_hash: u64, share: ShareId, wire_len: Bytes) -> Result<(), Reason> {
        let ticket = self.judge(flow_hash, share)?;
        self.charge(ticket, wire_len);
        Ok(())
    }

    /// The link has another rate from `now` on.
    ///
    /// # Errors
    /// A rate out of its range; nothing changes then.
    pub fn set_rate(&mut self, now: Nanos, rate: BitRate) -> Result<(), FairDropError> {
        let changed = BandwidthConfig { rate, ..self.config.clone() };
        changed.check()?;
        self.begin_batch(now);
        self.config = changed;
        Ok(())
    }

    /// The configuration as it is now.
    #[must_use]
    pub fn config(&self) -> &BandwidthConfig {
        &self.config
    }

    /// Counters.
    #[must_use]
    pub fn view(&self) -> BandwidthView {
        BandwidthView::default()
    }

    /// The flows of the table, in the order of their slots.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        core::iter::empty()
    }
}
