//! A token bucket for ICMP errors (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f).

use core::fmt;

use evenkeel_core::Nanos;

/// Lets `burst` events pass at once and `rate` per second in the long run.
///
/// Kept as one instant, the time at which the bucket will be full again (the generic cell rate
/// algorithm, ITU-T I.371): no rounding accumulates. Constant time, no allocation.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    /// What one event costs, in time.
    interval: u64,
    /// How far ahead of `now` the bucket may be overdrawn.
    tolerance: u64,
    full_at: u64,
    refused: u64,
}

/// The rate or the burst is out of range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitError {
    /// `"rate"` or `"burst"`.
    pub what: &'static str,
    /// The value asked for.
    pub value: u32,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is out of range: 1 to {}", self.what, self.value, RateLimiter::MAX)
    }
}

impl core::error::Error for LimitError {}

impl RateLimiter {
    /// Largest rate (events per second) and burst (events).
    pub const MAX: u32 = 1_000_000;

    /// A full bucket of `burst` events that gains `rate` per second. Both 1 to [`Self::MAX`].
    ///
    /// # Errors
    /// [`LimitError`] if either is out of range.
    pub const fn new(rate: u32, burst: u32) -> Result<Self, LimitError> {
        if rate == 0 || rate > Self::MAX {
            return Err(LimitError { what: "rate", value: rate });
        }
        if burst == 0 || burst > Self::MAX {
            return Err(LimitError { what: "burst", value: burst });
        }
        let interval = 1_000_000_000_u64.div_ceil(rate as u64);
        Ok(Self { interval, tolerance: interval * (burst as u64 - 1), full_at: 0, refused: 0 })
    }

    /// Whether an event may pass at `now`; if so it is charged.
    pub fn allow(&mut self, now: Nanos) -> bool {
        let full_at = self.full_at.max(now.0);
        if full_at - now.0 > self.tolerance {
            self.refused += 1;
            return false;
        }
        self.full_at = full_at.saturating_add(self.interval);
        true
    }

    /// How many events were refused since the start.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut limiter = RateLimiter::new(100, 10).unwrap();
        let start = Nanos::from_secs(5);
        assert_eq!((0..50).filter(|_| limiter.allow(start)).count(), 10);
        assert_eq!(limiter.refused(), 40);
        // One more every 10 ms, none before.
        assert!(!limiter.allow(start + Nanos(9_999_999)));
        assert!(limiter.allow(start + Nanos(10_000_000)));
        assert!(!limiter.allow(start + Nanos(10_000_001)));
        // 1000 tries in the next second: 100 pass.
        let next = start + Nanos(10_000_000);
        let passed = (1..=1000).filter(|i| limiter.allow(next + Nanos::from_millis(*i))).count();
        assert_eq!(passed, 100);
        // A long rest fills the bucket to its burst, not beyond.
        let later = next + Nanos::from_secs(1_000);
        assert_eq!((0..50).filter(|_| limiter.allow(later)).count(), 10);
    }

    #[test]
    fn extremes() {
        assert_eq!(RateLimiter::new(0, 1).unwrap_err().what, "rate");
        assert_eq!(RateLimiter::new(1, 0).unwrap_err().what, "burst");
        assert!(RateLimiter::new(RateLimiter::MAX + 1, 1).is_err());
        assert!(RateLimiter::new(1, RateLimiter::MAX + 1).is_err());
        let mut slowest = RateLimiter::new(1, 1).unwrap();
        assert!(slowest.allow(Nanos::MAX));
        assert!(slowest.allow(Nanos::MAX), "saturates instead of overflowing");
        let mut largest = RateLimiter::new(1, RateLimiter::MAX).unwrap();
        assert_eq!(
            (0..RateLimiter::MAX + 5).filter(|_| largest.allow(Nanos::ZERO)).count(),
            RateLimiter::MAX as usize
        );
        assert_eq!(
            RateLimiter::new(3, 1).map(|limiter| limiter.interval),
            Ok(333_333_334),
            "never above the rate"
        );
    }
}
