//! What a packet of a class takes of the core, learnt from rounds.

use super::config::CpuConfig;
use super::shadow::FRACTION;
use crate::units::Cycles;

/// Fraction bits of learnt costs.
pub(super) const COST_FRACTION: u32 = 8;
/// Fraction bits of a mean number of packets.
const COUNT_FRACTION: u32 = 24;
/// Rounds that a mean remembers.
const REMEMBERED: u64 = 16;

/// One class of processing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Cycles of a packet, with [`COST_FRACTION`] bits.
    pub(super) learnt: u64,
    /// Means over rounds: cycles of the class with [`COST_FRACTION`] bits, its packets with
    /// [`COUNT_FRACTION`] bits.
    cycles: u64,
    packets: u64,
    /// What a packet is charged in this round, with [`FRACTION`] bits.
    pub(super) charged: u64,
    /// Where load is told by time: how far a flow of such packets may be ahead in this round.
    pub(super) saved: u64,
    /// Packets charged in this round.
    pub(super) admitted: u32,
    /// Whether it was measured: the configured cost is a guess.
    measured: bool,
}

impl Cost {
    pub(super) const NONE: Self = Self {
        learnt: 0,
        cycles: 0,
        packets: 0,
        charged: 0,
        saved: 0,
        admitted: 0,
        measured: false,
    };

    /// As configured, until the first measurement.
    pub(super) fn configured(each: Cycles) -> Self {
        Self { learnt: each.0 << COST_FRACTION, charged: each.0 << FRACTION, ..Self::NONE }
    }

    /// Cycles of a packet.
    pub(super) fn cycles(&self) -> u64 {
        self.learnt >> COST_FRACTION
    }

    /// Charges what it learnt times `scale`, which has 16 fraction bits.
    pub(super) fn charge_at(&mut self, scale: u64) {
        self.charged = (self.learnt * scale) >> COST_FRACTION;
    }

    /// Learns from a round in which so many packets, not 0, took so many cycles.
    ///
    /// The mean of cycles is divided by that of packets. A mean of what a packet took in each round
    /// would let a round with one packet, which has all that a round costs, count as much as one
    /// with many: those of a cheap class seem dearer by it than those of a dear one.
    pub(super) fn learn(&mut self, packets: u32, cycles: u64) {
        let (cycles, packets) = (cycles << COST_FRACTION, u64::from(packets) << COUNT_FRACTION);
        let mean = |mean: u64, new: u64| mean - mean / REMEMBERED + new / REMEMBERED;
        (self.cycles, self.packets) = if self.measured {
            (mean(self.cycles, cycles), mean(self.packets, packets))
        } else {
            (cycles, packets)
        };
        self.measured = true;
        let learnt = (u128::from(self.cycles) << COUNT_FRACTION) / u128::from(self.packets.max(1));
        let most = u128::from(CpuConfig::MAX_CYCLES.0) << COST_FRACTION;
        self.learnt = learnt.clamp(1 << COST_FRACTION, most) as u64;
    }
}
