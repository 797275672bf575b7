//! The budget of first packets: what may enter between two estimates of the priority load.
//!
//! Every first packet goes among the priority packets, and PL says so only at the next estimate: in
//! between admission is blind. So first packets get no more than what was free at the last
//! estimate:
//!
//! ```text
//! budget = min(max_PL - PL, share) * C * T_PL / 8   bytes per interval
//! ```
//!
//! A flow enters while the packets before it have not used the budget up; what the last one takes
//! beyond is owed to the next interval, so that a link too slow for a whole packet per interval
//! lets one in every few. The budget grows through the interval, `burst` ahead of time, instead of
//! being there at its start, which spreads flows that begin together.
//!
//! **Floods.** Flows of a few packets never come again. Admissions, [`MATURE`] intervals later, and
//! proofs (packets of flows that were admitted at least two intervals ago) are counted in sums that
//! lose an eighth per interval. A flood begins when fewer than a quarter of at least
//! [`FLOOD_FLOWS`] admissions prove themselves, and ends when half of them do or when the budget
//! refused no flow in [`CALM`] intervals in a row. While it lasts `share` is `flood_share`, and
//! flows that come for the first time may use half of the budget: the rest is for those that were
//! refused and come again two intervals later or more, which flows of a few packets never do.
//!
//! Half of the list is kept from flows that come for the first time and have not proved themselves,
//! flood or not, so that a flood cannot fill it before it is told.
//!
//! **Bound.** A flood of flows with `m` packets each, sent within two intervals, takes at most
//! max_PL until it is told ([`MATURE`] intervals) and then m times half of `flood_share` among the
//! priority packets. One whose flows come again later is believed: it takes up to m / (m + 1) of
//! max_PL, and costs its sender two intervals of memory for each flow.
//!
//! **Several workers** on one link have one budget: what the others let in counts as used here, and
//! what is let in here is told to them, without a lock; two who let a flow in at the same instant
//! may both take the last of it. In a flood each worker has its part of `flood_share` for itself:
//! whether flows come again each sees of its own only.
//!
//! Constant time; with several workers, a read of each one's count for a flow that is let in or
//! refused. Source: this project's.

use super::config::BURST_OR_NONE;
use super::peers::Peers;
use crate::settings;
use crate::units::{BitRate, Bytes, Nanos, Ppm};

settings! {
    /// Limits first packets between two estimates of the priority load.
    #[derive(Copy)]
    pub struct BudgetConfig: "" {
        /// Whether first packets are limited between two estimates: to (max_PL - PL) C T_PL / 8
        /// bytes.
        live on as budget: bool = true;
        /// Most of the rate that first packets may take.
        live share as budget_share: Ppm = Ppm::ONE, between 0.000_001..=1.0;
        /// How much of an interval's budget may be used ahead of time, as a time, from 100 us to
        /// `load_interval`, which means all of it at once; shorter ones spread the admissions. 0: a
        /// tenth of `load_interval`.
        live burst as budget_burst: Nanos = Nanos::ZERO, in BURST_OR_NONE;
        /// Most of the rate that first packets may take while few of the flows let in are ever seen
        /// again.
        live flood_share: Ppm = Ppm::percent(3), between 0.000_001..=1.0;
    }
}

/// Fewer admissions than this in the memory of about eight intervals are no flood.
pub const FLOOD_FLOWS: u64 = 16;
/// Intervals without a refusal that end a flood.
pub const CALM: u32 = 8;
/// Intervals after which an admission counts: by then its flow has had time to prove itself.
pub const MATURE: usize = 3;
/// One flow in the decaying sums.
const ONE: u64 = 256;

/// The budget of the present interval.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    config: BudgetConfig,
    allowed: u64,
    used: u64,
    from: Nanos,
    interval: Nanos,
    /// Decaying sums.
    admitted: u64,
    proved: u64,
    /// Admissions of the last intervals, which do not count yet: the present one first.
    fresh: [u64; MATURE],
    /// Intervals since the budget refused a flow.
    calm: u32,
    flood: bool,
    peers: Option<Peers>,
}

impl Budget {
    /// The budget of the first interval, on a link with this capacity and free share.
    pub(super) fn new(
        config: BudgetConfig,
        now: Nanos,
        interval: Nanos,
        rate: BitRate,
        free: Ppm,
    ) -> Self {
        let mut budget = Self {
            config,
            allowed: 0,
            used: 0,
            from: now,
            interval,
            admitted: 0,
            proved: 0,
            fresh: [0; MATURE],
            calm: 0,
            flood: false,
            peers: None,
        };
        budget.renew(now, interval, rate, free);
        budget
    }

    pub(super) fn configure(&mut self, config: BudgetConfig) {
        self.config = config;
    }

    pub(super) fn share(&mut self, peers: Option<Peers>) {
        self.peers = peers;
    }

    /// Takes up what others have let in, which is used here too; in a flood each counts its own.
    pub(super) fn follow_peers(&mut self) {
        if let Some(peers) = &mut self.peers {
            let entered = peers.entered();
            if !self.flood {
                self.used = self.used.saturating_add(entered);
            }
        }
    }

    /// PL was estimated: `free` is max_PL - PL.
    pub(super) fn renew(&mut self, now: Nanos, interval: Nanos, rate: BitRate, free: Ppm) {
        self.follow_peers();
        if self.flood {
            self.flood = self.proved * 2 < self.admitted.max(1) && self.calm < CALM;
            self.calm = self.calm.saturating_add(1);
        } else if self.admitted >= FLOOD_FLOWS * ONE && self.proved * 4 < self.admitted {
            // Before, the priority load may have closed the link in its stead.
            (self.flood, self.calm) = (true, 0);
        }
        self.admitted = (self.admitted - self.admitted / 8).saturating_add(self.fresh[MATURE - 1]);
        self.fresh.rotate_right(1);
        self.fresh[0] = 0;
        self.proved -= self.proved / 8;
        self.used = self.used.saturating_sub(self.allowed);
        let most = if self.flood {
            self.config.flood_share.min(self.config.share)
        } else {
            self.config.share
        };
        self.allowed = free.min(most).of(rate.bytes_in(interval).0);
        if let (true, Some(peers)) = (self.flood, &self.peers) {
            self.allowed /= peers.workers();
        }
        (self.from, self.interval) = (now, interval);
    }

    /// What first packets have taken, and what they may have taken by now. `again`: of a flow that
    /// was refused before, and still comes.
    pub(super) fn state(&self, now: Nanos, again: bool) -> (Bytes, Bytes) {
        let burst = match self.config.burst {
            Nanos::ZERO => Nanos(self.interval.0 / 10),
            burst => burst,
        };
        let time = now.saturating_sub(self.from).saturating_add(burst).min(self.interval);
        let so_far =
            u128::from(self.allowed) * u128::from(time.0) / u128::from(self.interval.0.max(1));
        let so_far = u64::try_from(so_far).unwrap_or(u64::MAX);
        let so_far = if self.flood && !again { so_far / 2 } else { so_far };
        (Bytes(self.used), Bytes(so_far))
    }

    /// A flow was admitted with a first packet of this length.
    pub(super) fn spend(&mut self, length: Bytes) {
        self.used = self.used.saturating_add(length.0);
        if let Some(peers) = &self.peers {
            peers.tell_entered(length);
        }
        self.fresh[0] = self.fresh[0].saturating_add(ONE);
    }

    /// A flow was refused because of it.
    pub(super) fn refused(&mut self) {
        self.calm = 0;
    }

    /// A flow proved itself.
    pub(super) fn proved(&mut self) {
        self.proved = self.proved.saturating_add(ONE);
    }

    /// Whether a flood of one-packet flows is held down.
    pub(super) fn flood(&self) -> bool {
        self.flood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: BitRate = BitRate::from_mbps(10);
    const T: Nanos = Nanos::from_millis(50);

    /// How many packets of `length` enter at `now`.
    fn enter(budget: &mut Budget, now: Nanos, length: u64) -> u64 {
        let mut entered = 0;
        loop {
            let (used, so_far) = budget.state(now, false);
            if used >= so_far {
                return entered;
            }
            budget.spend(Bytes(length));
            budget.proved();
            entered += 1;
        }
    }

    #[test]
    fn the_formula_and_the_debt() {
        // (0.7 - 0.3) * 10 Mbit/s * 50 ms / 8 = 25 000 bytes.
        let at_once = BudgetConfig { burst: T, ..BudgetConfig::default() };
        let mut budget = Budget::new(at_once, Nanos::ZERO, T, C, Ppm::percent(40));
        assert_eq!(enter(&mut budget, Nanos::ZERO, 1_500), 17);
        // 500 bytes too many: 24 500 are left.
        budget.renew(T, T, C, Ppm::percent(40));
        assert_eq!(enter(&mut budget, T, 500), 49);
        // A link that carries 280 bytes per interval lets a packet of 1 500 in every six.
        let mut slow = Budget::new(at_once, Nanos::ZERO, T, BitRate(64_000), Ppm::percent(70));
        let entered: u64 = (0..60)
            .map(|n| {
                let now = T * n;
                slow.renew(now, T, BitRate(64_000), Ppm::percent(70));
                enter(&mut slow, now, 1_500)
            })
            .sum();
        assert_eq!(entered, 60 * 280 / 1_500 + 1);
    }

    #[test]
    fn a_burst_shorter_than_the_interval_spreads() {
        let config = BudgetConfig { burst: Nanos::from_millis(5), ..BudgetConfig::default() };
        let mut budget = Budget::new(config, Nanos::ZERO, T, C, Ppm::percent(40));
        let entered: Vec<u64> =
            (0..10).map(|n| enter(&mut budget, Nanos::from_millis(5 * n), 500)).collect();
        assert_eq!(entered, [5; 10], "2 500 bytes every 5 ms");
        assert_eq!(enter(&mut budget, Nanos::from_millis(200), 500), 0);
    }

    #[test]
    fn flows_that_never_come_again_are_held_down() {
        let at_once = BudgetConfig { burst: T, ..BudgetConfig::default() };
        let mut budget = Budget::new(at_once, Nanos::ZERO, T, C, Ppm::percent(70));
        for interval in 0..40u64 {
            let now = T * interval;
            budget.renew(now, T, C, Ppm::percent(70));
            for _ in 0..100 {
                let (used, so_far) = budget.state(now, false);
                if used < so_far {
                    budget.spend(Bytes(40));
                } else {
                    budget.refused();
                }
            }
            assert_eq!(budget.flood(), interval > MATURE as u64, "interval {interval}");
        }
        let (used, fresh) = budget.state(T * 40, false);
        let (_, again) = budget.state(T * 40, true);
        // 3 % of 62 500 bytes; half of it for flows that come again.
        assert_eq!((again, fresh), (Bytes(1_875), Bytes(937)));
        assert!(used >= fresh && used < again);
        // It ends when nothing comes any more.
        for interval in 40..70 {
            budget.renew(T * interval, T, C, Ppm::percent(70));
        }
        assert!(!budget.flood());
    }
}
