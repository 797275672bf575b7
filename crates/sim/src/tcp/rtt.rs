//! The retransmission time-out (RFC 6298).
//!
//! | symbol | field |
//! |---|---|
//! | SRTT, RTTVAR | `smoothed`, `variation` |
//! | RTO | [`timeout`](RttEstimator::timeout) |
//! | G | `margin` |
//! | alpha = 1/8, beta = 1/4, K = 4 | as there |
//!
//! Where round trips are all alike RTTVAR goes to zero, and G is what keeps the time-out apart from
//! the round trip. As in Linux it is large, and takes the place of the shortest time-out of one
//! second (2.4).

use evenkeel_core::Nanos;

/// Before anything was measured (2.1).
const INITIAL: Nanos = Nanos::SECOND;
/// Never longer (2.5).
const LONGEST: Nanos = Nanos::from_secs(60);

/// Round-trip time, smoothed, and the time-out that follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttEstimator {
    smoothed: Option<Nanos>,
    variation: Nanos,
    margin: Nanos,
    backoff: u32,
    /// All round trips together, and how many they are.
    all: (Nanos, u64),
}

impl RttEstimator {
    /// Nothing measured yet. Time-outs are longer than SRTT by `margin` at least.
    pub(super) const fn new(margin: Nanos) -> Self {
        Self { smoothed: None, variation: Nanos::ZERO, margin, backoff: 0, all: (Nanos::ZERO, 0) }
    }

    /// A round trip took `rtt`.
    pub(super) fn sample(&mut self, rtt: Nanos) {
        self.backoff = 0;
        self.all = (self.all.0.saturating_add(rtt), self.all.1 + 1);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = Nanos(rtt.0 / 2);
            return;
        };
        let error = smoothed.0.abs_diff(rtt.0);
        self.variation = Nanos((3 * self.variation.0 + error) / 4);
        self.smoothed = Some(Nanos((7 * smoothed.0 + rtt.0) / 8));
    }

    /// SRTT; zero before anything was measured.
    pub(super) fn smoothed(&self) -> Nanos {
        self.smoothed.unwrap_or(Nanos::ZERO)
    }

    /// How long all round trips took together, and how many they are.
    pub(super) const fn all(&self) -> (Nanos, u64) {
        self.all
    }

    /// A time-out ran off: the next is twice as long (5.5).
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Whether a time-out ran off and nothing has been measured since.
    pub(super) const fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// RTO.
    pub(super) fn timeout(&self) -> Nanos {
        let base = match self.smoothed {
            None => INITIAL,
            Some(smoothed) => smoothed.saturating_add(Nanos(4 * self.variation.0).max(self.margin)),
        };
        Nanos(base.0 << self.backoff).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_rfc() {
        let mut rtt = RttEstimator::new(Nanos::from_millis(200));
        assert_eq!(rtt.timeout(), Nanos::SECOND, "before anything is known");
        rtt.sample(Nanos::from_millis(100));
        // 2.2: SRTT = R, RTTVAR = R / 2, RTO = R + max(G, 4 R / 2).
        assert_eq!(rtt.timeout(), Nanos::from_millis(300));
        rtt.sample(Nanos::from_millis(180));
        // 2.3: RTTVAR = 3/4 50 + 1/4 80 = 57.5, SRTT = 7/8 100 + 1/8 180 = 110.
        assert_eq!(rtt.smoothed(), Nanos::from_millis(110));
        assert_eq!(rtt.timeout(), Nanos::from_millis(340));
        rtt.back_off();
        assert_eq!(rtt.timeout(), Nanos::from_millis(680));
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), Nanos::from_secs(60), "never longer");
        for _ in 0..200 {
            rtt.sample(Nanos::from_millis(10));
        }
        assert_eq!(
            rtt.timeout(),
            Nanos(210_000_000),
            "SRTT and the margin, and no longer backed off"
        );
    }
}
