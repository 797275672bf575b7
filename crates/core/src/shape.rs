//! A token bucket that delays: over no interval does more pass than `burst` plus what the rate
//! gives in that interval.
//!
//! Credit is kept in bit-nanoseconds (bits times 10^9): each nanosecond adds exactly `rate` of
//! them, each byte costs 8 * 10^9. Nothing is ever rounded, so the long-run rate is exact and no
//! remainder is lost between calls.
//!
//! A packet longer than `burst` passes when the bucket is full and leaves a debt (deficit); so the
//! bound for such packets is one packet instead of `burst`. Lengths are those of IP packets.

use crate::link::LinkConfig;
use crate::settings;
use crate::units::{BitRate, Bytes, Nanos};

/// Bit-nanoseconds in a byte.
const BYTE: u128 = 8_000_000_000;

settings! {
    /// Over no interval does more pass than `burst` plus what `rate` gives in that interval. Counts
    /// IP packets.
    #[derive(Copy, Eq)]
    pub struct ShaperConfig: "shaper = { … }" {
        /// The long-run rate.
        fixed rate: BitRate = BitRate::ZERO, in LinkConfig::MIN_RATE.0..=LinkConfig::MAX_RATE.0,
            is required;
        /// What may pass at once after a pause.
        fixed burst: Bytes = Bytes(15_000), in LinkConfig::MIN_BURST.0..=LinkConfig::MAX_BURST.0;
    }
}

/// A token bucket. Starts full.
#[derive(Clone, Debug)]
pub struct Shaper {
    config: ShaperConfig,
    /// Bit-nanoseconds in the bucket at `as_of`; negative after a packet longer than the bucket.
    credit: i128,
    as_of: Nanos,
}

impl Shaper {
    /// A full bucket. `config.rate` must not be zero: the caller checks its ranges
    /// ([`Settings::check`](crate::settings::Settings::check)); a rate of zero lets nothing pass
    /// after the first burst.
    #[must_use]
    pub fn new(config: ShaperConfig, now: Nanos) -> Self {
        Self { config, credit: cost(config.burst), as_of: now }
    }

    /// What it keeps to.
    #[must_use]
    pub const fn config(&self) -> ShaperConfig {
        self.config
    }

    /// When a packet of `length` may pass if nothing else does before: `now` or later. Constant
    /// time; divides only if it has to wait.
    #[must_use]
    pub fn ready_at(&self, now: Nanos, length: Bytes) -> Nanos {
        let credit = self.credit_at(now);
        let needed = cost(length.min(self.config.burst));
        if credit >= needed {
            return now;
        }
        let missing = (needed - credit) as u128;
        if self.config.rate.0 == 0 {
            return Nanos::MAX;
        }
        let wait = missing.div_ceil(u128::from(self.config.rate.0));
        now.saturating_add(Nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Whether a packet of `length` passes at `now`; then it is charged. Never divides.
    #[must_use]
    pub fn takes(&mut self, now: Nanos, length: Bytes) -> bool {
        let passes = self.credit_at(now) >= cost(length.min(self.config.burst));
        if passes {
            self.charge(now, length);
        }
        passes
    }

    /// A packet of `length` passes at `now`.
    pub fn charge(&mut self, now: Nanos, length: Bytes) {
        self.credit = self.credit_at(now) - cost(length);
        self.as_of = self.as_of.max(now);
    }

    /// Changes rate and burst; what is in the bucket stays, up to the new burst.
    pub fn reconfigure(&mut self, now: Nanos, config: ShaperConfig) {
        self.credit = self.credit_at(now).min(cost(config.burst));
        self.as_of = self.as_of.max(now);
        self.config = config;
    }

    fn credit_at(&self, now: Nanos) -> i128 {
        let elapsed = now.saturating_sub(self.as_of);
        let earned = u128::from(elapsed.0) * u128::from(self.config.rate.0);
        // Half of u128's range is far beyond any burst.
        let earned = i128::try_from(earned).unwrap_or(i128::MAX / 2);
        (self.credit + earned).min(cost(self.config.burst))
    }
}

/// A length in bit-nanoseconds: below 2^97, so sums and differences of a few fit.
fn cost(length: Bytes) -> i128 {
    (u128::from(length.0) * BYTE) as i128
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: ShaperConfig = ShaperConfig { rate: BitRate(8_000_000), burst: Bytes(3_000) };

    #[test]
    fn a_burst_passes_and_then_the_rate_rules() {
        let mut shaper = Shaper::new(CONFIG, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let mut at = [Nanos::ZERO; 5];
        for slot in &mut at {
            now = shaper.ready_at(now, Bytes(1_000));
            shaper.charge(now, Bytes(1_000));
            *slot = now;
        }
        // 8 Mbit/s is one byte in a microsecond.
        assert_eq!(at.map(|t| t.0), [0, 0, 0, 1_000_000, 2_000_000]);
    }

    #[test]
    fn a_packet_longer_than_the_burst_passes_alone_and_pays() {
        let mut shaper = Shaper::new(CONFIG, Nanos::ZERO);
        assert_eq!(shaper.ready_at(Nanos::ZERO, Bytes(5_000)), Nanos::ZERO);
        shaper.charge(Nanos::ZERO, Bytes(5_000));
        assert_eq!(shaper.ready_at(Nanos::ZERO, Bytes(5_000)), Nanos::from_millis(5));
        assert_eq!(shaper.ready_at(Nanos::ZERO, Bytes(1)), Nanos(2_001_000));
    }

    #[test]
    fn a_smaller_burst_takes_the_excess_away() {
        let mut shaper = Shaper::new(CONFIG, Nanos::ZERO);
        shaper.reconfigure(Nanos::ZERO, ShaperConfig { burst: Bytes(1_000), ..CONFIG });
        shaper.charge(Nanos::ZERO, Bytes(1_000));
        assert_eq!(shaper.ready_at(Nanos::ZERO, Bytes(1_000)), Nanos::from_millis(1));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let config = ShaperConfig { rate: BitRate::MAX, burst: Bytes::MAX };
        let mut shaper = Shaper::new(config, Nanos::ZERO);
        shaper.charge(Nanos::MAX, Bytes::MAX);
        assert_eq!(shaper.ready_at(Nanos::MAX, Bytes::MAX), Nanos::MAX);
        assert_eq!(
            Shaper::new(ShaperConfig { rate: BitRate(1), ..CONFIG }, Nanos::ZERO)
                .ready_at(Nanos(7), Bytes(9)),
            Nanos(7)
        );
    }

    proptest! {
        /// Whatever is offered whenever: between any two departures passes at most burst (or one
        /// packet) plus rate times interval.
        #[test]
        fn never_more_than_burst_plus_rate(
            rate in 1_000u64..10_000_000_000,
            burst in 64u64..20_000,
            offered in prop::collection::vec((0u64..3_000_000, 40u64..9_000), 1..60),
        ) {
            let config = ShaperConfig { rate: BitRate(rate), burst: Bytes(burst) };
            let mut shaper = Shaper::new(config, Nanos::ZERO);
            let mut now = Nanos::ZERO;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (gap, length) in offered {
                now = now.saturating_add(Nanos(gap));
                now = shaper.ready_at(now, Bytes(length));
                prop_assert_eq!(shaper.ready_at(now, Bytes(length)), now);
                shaper.charge(now, Bytes(length));
                sent.push((now.0, length));
            }
            for from in 0..sent.len() {
                let mut bytes = 0u128;
                let mut longest = 0;
                for &(at, length) in &sent[from..] {
                    bytes += u128::from(length);
                    longest = longest.max(length);
                    let earned = u128::from(at - sent[from].0) * u128::from(rate);
                    // A packet longer than the burst takes what the burst lacks on credit, and only
                    // it.
                    let allowed = u128::from(burst.max(longest)) * BYTE + earned;
                    prop_assert!(bytes * BYTE <= allowed, "{bytes} bytes");
                }
            }
        }
    }
}
