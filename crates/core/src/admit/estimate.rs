//! Fair rate and priority load of a link, estimated at timer instants.
//!
//! Source: flow-aware networking (Oueslati, Roberts et al.: US 7 646 715 B2; PFQ and PDRR of
//! "Cross-protect").
//!
//! ```text
//! FR = max(S*C, 8*(vt2 - vt1)) / (t2 - t1)     clipped to C      PL = 8*(pb2 - pb1) / (C*(t2 - t1))     at most 1
//! ```
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | C | `rate` | bit/s |
//! | S | difference of [`Observed::idle`]: the wire was idle | ns (a time, not a share) |
//! | vt, fb, FB | difference of [`Observed::fair_bytes`]: PFQ's virtual time, PDRR's fictitious flow, AFAN's mean elastic flow | bytes |
//! | pb | difference of [`Observed::priority_bytes`] | bytes |
//! | FR | `Estimates::fair` | bit/s, rounded down: FR < min_FR holds for the whole number exactly if it holds for the quotient |
//! | PL | `Estimates::load` | parts per million, rounded up: the same for PL > max_PL |
//!
//! Before the first estimate FR = C and PL = 0. A discipline that was exchanged in between starts
//! its counters anew: the estimate before it stands until the next.
//!
//! Not implemented: PL by transmitted packets, as the patent has it (the same unless priority
//! packets are lost).

use super::Observed;
use crate::units::{BitRate, Bytes, Nanos, Ppm};

/// FR of an interval of length `elapsed` (not zero) in which a flow that always has packets would
/// have been sent `fair_bytes`, and the wire was idle for `idle`.
#[must_use]
pub fn fair_rate(rate: BitRate, fair_bytes: Bytes, idle: Nanos, elapsed: Nanos) -> BitRate {
    let idle_bit_nanos = u128::from(idle.0) * u128::from(rate.0);
    let sent_bit_nanos = u128::from(fair_bytes.0) * 8 * 1_000_000_000;
    let bits = idle_bit_nanos.max(sent_bit_nanos) / u128::from(elapsed.0.max(1));
    BitRate(u64::try_from(bits).unwrap_or(u64::MAX)).min(rate)
}

/// PL of an interval of length `elapsed` (not zero) in which `priority` bytes were taken as
/// priority.
#[must_use]
pub fn priority_load(rate: BitRate, priority: Bytes, elapsed: Nanos) -> Ppm {
    let bits = u128::from(priority.0) * 8 * 1_000_000_000 * 1_000_000;
    let parts = bits.div_ceil((u128::from(rate.0) * u128::from(elapsed.0)).max(1));
    Ppm(u32::try_from(parts).unwrap_or(u32::MAX)).min(Ppm::ONE)
}

/// Both estimates of a link, and the counters at the start of their intervals.
#[derive(Clone, Debug)]
pub(super) struct Estimates {
    /// FR.
    pub(super) fair: BitRate,
    /// PL.
    pub(super) load: Ppm,
    fair_from: (Nanos, Option<Bytes>, Nanos),
    load_from: (Nanos, Option<Bytes>),
}

impl Estimates {
    /// FR = C, PL = 0; both intervals begin at `now`.
    pub(super) fn new(rate: BitRate, now: Nanos, observed: &Observed) -> Self {
        Self {
            fair: rate,
            load: Ppm::ZERO,
            fair_from: (now, observed.fair_bytes, observed.idle),
            load_from: (now, observed.priority_bytes),
        }
    }

    /// When the present interval of FR began.
    pub(super) fn fair_since(&self) -> Nanos {
        self.fair_from.0
    }

    /// Estimates FR at `now` and begins the next interval.
    pub(super) fn take_fair(
        &mut self,
        now: Nanos,
        observed: &Observed,
        rate: BitRate,
        smoothing: Ppm,
    ) {
        let (from, bytes, idle) = self.fair_from;
        self.fair_from = (now, observed.fair_bytes, observed.idle);
        let elapsed = now.saturating_sub(from);
        if elapsed == Nanos::ZERO {
            return;
        }
        let idle = observed.idle.saturating_sub(idle);
        let measured = match (bytes, observed.fair_bytes) {
            (Some(before), Some(after)) if after >= before => {
                fair_rate(rate, after - before, idle, elapsed)
            }
            // The discipline was exchanged or tells no fair rate.
            (Some(_), Some(_)) | (None, Some(_)) => return,
            (_, None) => rate,
        };
        let keep = smoothing.of(self.fair.0);
        let rest = Ppm(Ppm::ONE.0 - smoothing.0).of(measured.0);
        self.fair = BitRate(keep + rest).min(rate);
    }

    /// Estimates PL at `now` and begins the next interval.
    pub(super) fn take_load(&mut self, now: Nanos, observed: &Observed, rate: BitRate) {
        let (from, bytes) = self.load_from;
        self.load_from = (now, observed.priority_bytes);
        let elapsed = now.saturating_sub(from);
        if elapsed == Nanos::ZERO {
            return;
        }
        match (bytes, observed.priority_bytes) {
            (Some(before), Some(after)) if after >= before => {
                self.load = priority_load(rate, after - before, elapsed);
            }
            (_, None) => self.load = Ppm::ZERO,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: BitRate = BitRate::from_mbps(10);

    #[test]
    fn vector_v4() {
        let (half, tenth) = (Nanos::from_millis(500), Nanos::from_millis(100));
        assert_eq!(fair_rate(C, Bytes(150_000), tenth, half), BitRate(2_400_000));
        assert_eq!(priority_load(C, Bytes(25_000), Nanos::from_millis(50)), Ppm(400_000));
    }

    #[test]
    fn idle_time_and_clipping_bound_the_fair_rate() {
        let second = Nanos::SECOND;
        assert_eq!(fair_rate(C, Bytes(0), Nanos::from_millis(250), second), BitRate(2_500_000));
        assert_eq!(fair_rate(C, Bytes::MAX, Nanos::ZERO, second), C);
        assert_eq!(fair_rate(C, Bytes(0), Nanos::ZERO, second), BitRate(0));
        assert_eq!(priority_load(C, Bytes(u64::MAX), second), Ppm::ONE);
        // One byte above 70 % is above 70 %.
        assert_eq!(priority_load(C, Bytes(875_000), second), Ppm(700_000));
        assert_eq!(priority_load(C, Bytes(875_001), second), Ppm(700_001));
        // One byte below 5 % is below 5 %.
        assert_eq!(fair_rate(C, Bytes(62_500), Nanos::ZERO, second), BitRate(500_000));
        assert_eq!(fair_rate(C, Bytes(62_499), Nanos::ZERO, second), BitRate(499_992));
    }

    #[test]
    fn smoothing_and_exchanged_disciplines() {
        let at = |bytes| Observed {
            fair_bytes: Some(Bytes(bytes)),
            priority_bytes: Some(Bytes(bytes)),
            idle: Nanos::ZERO,
            elastic_flows: None,
        };
        let mut estimates = Estimates::new(C, Nanos::ZERO, &at(0));
        estimates.take_fair(Nanos::SECOND, &at(125_000), C, Ppm::percent(10));
        assert_eq!(estimates.fair, BitRate(1_900_000));
        // The counter starts anew: the estimate stands, and the next interval counts from there.
        estimates.take_fair(Nanos::from_secs(2), &at(10), C, Ppm::ZERO);
        assert_eq!(estimates.fair, BitRate(1_900_000));
        estimates.take_fair(Nanos::from_secs(3), &at(250_010), C, Ppm::ZERO);
        assert_eq!(estimates.fair, BitRate(2_000_000));
        estimates.take_fair(Nanos::from_secs(4), &Observed::default(), C, Ppm::ZERO);
        assert_eq!(estimates.fair, C);
    }
}
