//! Flows that come and go: exponential gaps between them, sizes of a distribution, each sent at its
//! own constant rate.
//!
//! | symbol | here |
//! |---|---|
//! | λ, flows per second | load / mean size |
//! | gap between flows | exponential with mean 1 / λ, fractions of a nanosecond kept |
//! | packets of a flow | full ones at the peak rate, back to back, and a shorter last one |
//!
//! Cost of a packet: logarithmic in the number of flows that are being sent, whose memory it takes.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::random::{Dice, ONE};
use crate::sizes::Sizes;
use crate::source::SourceError;

/// What [`FlowArrivals`] are made from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowsConfig {
    /// Bits of IP packets per second that all flows offer together, on average: 1 bit/s to 1
    /// Tbit/s.
    pub load: BitRate,
    /// Mean of the flows' sizes, in bytes of IP packets, 1 to 2^40.
    pub mean_size: Bytes,
    /// How the sizes are distributed.
    pub sizes: Sizes,
    /// Bits of IP packets per second of a flow while it is sent: 1 bit/s to 1 Tbit/s.
    pub peak: BitRate,
    /// Length of full IP packets.
    pub ip_len: Bytes,
    /// Shortest IP packet: a shorter rest is filled up.
    pub min_len: Bytes,
    /// No flow begins before.
    pub start: Nanos,
    /// No packet at or after.
    pub stop: Nanos,
    /// Seed of the run.
    pub seed: u64,
    /// Number of this source within the run.
    pub stream: u64,
}

/// One packet of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowEmission {
    /// When. Never before the one before it.
    pub at: Nanos,
    /// Length of the IP packet.
    pub ip_len: Bytes,
    /// The flow: 0 for the first that began, one more for each.
    pub flow: u64,
    /// Whether it is the last of its flow.
    pub last: bool,
}

/// When flows begin and how long they are: what [`FlowArrivals`] sends as packets, and others as
/// connections. Of the configuration, `peak`, `ip_len` and `min_len` do not matter here.
#[derive(Clone, Debug)]
pub struct Beginnings {
    config: FlowsConfig,
    dice: Dice,
    /// When the next flow begins, and fractions of a nanosecond in units of 1 / (load x 2^32).
    begins: Nanos,
    rest: u128,
}

/// A source of flows. See the [module](self).
#[derive(Clone, Debug)]
pub struct FlowArrivals {
    beginnings: Beginnings,
    flows: u64,
    /// Flows being sent: next packet, number, bytes left.
    active: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    spacing: Nanos,
}

const MAX_RATE: u64 = 1_000_000_000_000;

impl Beginnings {
    /// No flow has begun.
    ///
    /// # Errors
    /// A value outside of its range.
    pub fn new(config: FlowsConfig) -> Result<Self, SourceError> {
        if let Some(rate) =
            [config.load, config.peak].into_iter().find(|r| r.0 == 0 || r.0 > MAX_RATE)
        {
            return Err(SourceError::Rate(rate));
        }
        if config.ip_len.0 == 0 || config.ip_len.0 > 65_535 || config.min_len > config.ip_len {
            return Err(SourceError::Length(config.ip_len));
        }
        if config.mean_size.0 == 0 || config.mean_size.0 > 1 << 40 || !config.sizes.is_valid() {
            return Err(SourceError::FlowSize(config.mean_size, config.sizes));
        }
        let dice = Dice::new(config.seed, config.stream);
        let mut beginnings = Self { dice, begins: config.start, rest: 0, config };
        beginnings.gap();
        Ok(beginnings)
    }

    /// On to the flow after.
    fn gap(&mut self) {
        let parts = u128::from(self.config.load.0) * u128::from(ONE);
        let gap = u128::from(self.config.mean_size.0) * 8_000_000_000;
        // Below 2^73 times a variate that is below 2^40 with a probability of all but e^-256.
        let sum = self.rest + gap.saturating_mul(u128::from(self.dice.exponential()));
        self.rest = sum % parts;
        self.begins =
            self.begins.saturating_add(Nanos(u64::try_from(sum / parts).unwrap_or(u64::MAX)));
    }
}

/// Flow after flow, until the source stops: when, and how many bytes.
impl Iterator for Beginnings {
    type Item = (Nanos, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.begins;
        if at >= self.config.stop {
            return None;
        }
        let size = self.config.sizes.draw(self.config.mean_size, &mut self.dice);
        self.gap();
        Some((at, size))
    }
}

impl FlowArrivals {
    /// A source that has sent nothing.
    ///
    /// # Errors
    /// A value outside of its range.
    pub fn new(config: FlowsConfig) -> Result<Self, SourceError> {
        let bits = u128::from(config.ip_len.0) * 8_000_000_000;
        let beginnings = Beginnings::new(config)?;
        let spacing = Nanos(u64::try_from(bits / u128::from(config.peak.0)).unwrap_or(u64::MAX));
        Ok(Self { beginnings, flows: 0, active: BinaryHeap::new(), spacing })
    }

    /// Flows that have begun.
    #[must_use]
    pub const fn flows(&self) -> u64 {
        self.flows
    }

    /// Flows that are being sent.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.len()
    }

    fn next_packet(&mut self) -> Option<FlowEmission> {
        let Reverse((at, flow, left)) = self.active.pop()?;
        let config = &self.beginnings.config;
        if at >= config.stop {
            return None;
        }
        let ip_len = left.clamp(config.min_len.0, config.ip_len.0);
        let left = left.saturating_sub(ip_len);
        if left > 0 {
            self.active.push(Reverse((at.saturating_add(self.spacing), flow, left)));
        }
        Some(FlowEmission { at, ip_len: Bytes(ip_len), flow, last: left == 0 })
    }
}

/// Packet after packet, until the source stops.
impl Iterator for FlowArrivals {
    type Item = FlowEmission;

    fn next(&mut self) -> Option<Self::Item> {
        let due = self.active.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
        if self.beginnings.begins <= due {
            // If no more begins, whatever else is due comes later still.
            let (begins, size) = self.beginnings.next()?;
            self.active.push(Reverse((begins, self.flows, size.0)));
            self.flows += 1;
        }
        self.next_packet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> FlowsConfig {
        FlowsConfig {
            load: BitRate::from_mbps(50),
            mean_size: Bytes(50_000),
            sizes: Sizes::Fixed,
            peak: BitRate::from_mbps(10),
            ip_len: Bytes(1_000),
            min_len: Bytes(72),
            start: Nanos::from_secs(1),
            stop: Nanos::from_secs(101),
            seed: 3,
            stream: 9,
        }
    }

    fn all(config: FlowsConfig) -> Vec<FlowEmission> {
        FlowArrivals::new(config).unwrap().collect()
    }

    #[test]
    fn load_order_and_lengths_are_as_told() {
        let packets = all(config());
        assert!(packets.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(packets.iter().all(|p| p.ip_len == Bytes(1_000)), "50 full packets each");
        assert!(packets.first().unwrap().at > Nanos::from_secs(1));
        assert!(packets.last().unwrap().at < Nanos::from_secs(101));
        // 125 flows per second for 100 s: 12 500, standard deviation 112.
        let begun = packets.iter().map(|p| p.flow).max().unwrap() + 1;
        assert!((12_050..=12_950).contains(&begun), "{begun}");
        let bits: u64 = packets.iter().map(|p| p.ip_len.0 * 8).sum();
        assert!((bits as f64 / 5e9 - 1.0).abs() < 0.05, "{bits}");
        // Packets of a flow come at its peak rate.
        let first: Vec<_> = packets.iter().filter(|p| p.flow == 0).collect();
        assert_eq!(first.len(), 50);
        assert_eq!(first[49].at - first[0].at, Nanos::from_micros(49 * 800));
        assert!(first[49].last && !first[48].last);
    }

    #[test]
    fn seeds_and_streams_are_all_that_matters() {
        let pareto = FlowsConfig { sizes: Sizes::Pareto { shape_milli: 1_200 }, ..config() };
        assert_eq!(all(pareto), all(pareto));
        assert_ne!(all(pareto), all(FlowsConfig { seed: 4, ..pareto }));
        assert_ne!(all(pareto), all(FlowsConfig { stream: 4, ..pareto }));
    }

    #[test]
    fn short_rests_are_filled_up_and_ranges_kept() {
        let rest = FlowsConfig { mean_size: Bytes(2_010), ..config() };
        let lengths: Vec<_> =
            all(rest).iter().filter(|p| p.flow == 5).map(|p| p.ip_len.0).collect();
        assert_eq!(lengths, [1_000, 1_000, 72]);
        assert!(FlowArrivals::new(FlowsConfig { load: BitRate(0), ..config() }).is_err());
        assert!(
            FlowArrivals::new(FlowsConfig {
                sizes: Sizes::Pareto { shape_milli: 1_000 },
                ..config()
            })
            .is_err()
        );
    }
}
