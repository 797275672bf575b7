//! When a link is congested: FR and PL are estimated at the ends of their intervals, and held
//! against the thresholds, by themselves or with the flows that have come since.

use super::eccm::Eccm;
use super::estimate::Estimates;
use super::newcomers::LEAST_FAIR;
use super::{Admission, Cause, Forced, Measure, Observed, Removal};
use crate::units::{BitRate, Nanos, Ppm};

impl Admission {
    /// When [`tick`](Self::tick) has something to do.
    #[must_use]
    #[inline]
    pub fn next_tick(&self) -> Nanos {
        debug_assert_eq!(self.due, self.when_due(), "nobody has looked since something changed");
        self.due
    }

    /// What [`next_tick`](Self::next_tick) tells, looked for wherever it may change: it is asked
    /// for every packet.
    pub(super) fn when_due(&self) -> Nanos {
        let eccm = self
            .eccm
            .as_ref()
            .map_or(Nanos::MAX, |e| e.removal_due(self.config.fair_rate_interval));
        self.load_due.min(self.next_fair()).min(eccm)
    }

    /// When FR is estimated next: not while ECCM freezes it, but at the end of that at once.
    fn next_fair(&self) -> Nanos {
        match self.forced {
            Some(forced) if forced.by_eccm => forced.until,
            _ => self.fair_due,
        }
    }

    /// Does what is due at `now`: estimates, the end of a forced opening, removals. Nothing before
    /// it is due.
    pub fn tick(&mut self, now: Nanos, observed: &Observed) {
        self.join_window(now);
        if self.flushing.is_some() {
            self.follow_clearing(now);
        }
        let (load, fair) = (now >= self.load_due, now >= self.next_fair());
        if load {
            self.estimate_load(now, observed);
        }
        if fair {
            self.estimate_fair(now, observed);
        }
        if load || fair {
            self.hold_cost(now);
        }
        let due = self
            .eccm
            .as_ref()
            .map_or(Nanos::MAX, |e| e.removal_due(self.config.fair_rate_interval));
        if now >= due {
            while let Some(id) = self.eccm.as_mut().and_then(Eccm::next) {
                if self.list.unmark_eccm(id) {
                    self.remove(now, id, Removal::Eccm, Measure::Nothing, (0, 0));
                }
            }
        }
        self.due = self.when_due();
    }

    fn estimate_load(&mut self, now: Nanos, observed: &Observed) {
        let interval = self.config.load_interval;
        self.estimates.take_load(now, observed, self.config.rate);
        self.load_due = after(self.load_due, interval, now);
        self.newcomers.classify(now, self.config.fair_rate_interval, &self.list);
        self.part_with_guests(now);
        self.count_flows(now, observed);
        let free = Ppm(self.config.max_priority_load.0.saturating_sub(self.estimates.load.0));
        if let Some(budget) = &mut self.budget {
            budget.renew(now, interval, self.config.rate, free);
        }
        // The hand goes round a full list in a few seconds.
        self.sweep(now, (self.list.capacity() / 64).clamp(64, 8_192));
    }

    fn estimate_fair(&mut self, now: Nanos, observed: &Observed) {
        let interval = self.config.fair_rate_interval;
        let restart = self.forced.take().is_some_and(|forced| forced.by_eccm);
        self.fair_due = if restart {
            now.saturating_add(interval)
        } else {
            after(self.fair_due, interval, now)
        };
        self.estimates.take_fair(now, observed, self.config.rate, self.config.smoothing);
        self.list.next_interval();
        self.count_flows(now, observed);
        let congested = self.is_slow(self.min_fair(), false);
        if let Some(eccm) = &mut self.eccm {
            eccm.estimated(now, congested, restart);
        }
        if let Some(users) = &mut self.per_user {
            users.next_interval(now, interval, restart);
        }
        if let Some(second) = &mut self.second {
            second.next_interval(now, self.config.flow_timeout);
        }
    }

    /// How many flows share the link now.
    fn count_flows(&mut self, now: Nanos, observed: &Observed) {
        let (rate, Estimates { fair, load, .. }) = (self.config.rate, &self.estimates);
        self.newcomers.estimated(rate, *fair, *load, observed.elastic_flows);
        if let Some(peers) = &self.peers {
            peers.tell_let_in(now, self.newcomers.let_in());
            self.newcomers.counted_with(peers.let_in(now, self.patience()));
        }
    }

    /// What the other workers have let in by now.
    pub(super) fn hear_peers(&mut self, now: Nanos) {
        if let Some(peers) = &self.peers {
            self.newcomers.hear(peers.let_in(now, self.patience()));
            self.join_window(now);
        }
    }

    /// When ECCM's window that opens at `start` ends.
    fn window_end(&self, start: Nanos) -> Nanos {
        start.saturating_add(Nanos(self.config.fair_rate_interval.0 / 2))
    }

    /// A window that another worker has opened is the link's: each for itself let in as many flows
    /// as there are workers.
    fn join_window(&mut self, now: Nanos) {
        let (Some(peers), Some(eccm)) = (&self.peers, &self.eccm) else { return };
        let start = peers.opened();
        if start > Nanos::ZERO
            && now < self.window_end(start)
            && self.forced.is_none()
            && eccm.is_closed_since_before(start)
        {
            self.open_window(start);
        }
    }

    /// ECCM's window opens, or has at `start`.
    pub(super) fn open_window(&mut self, start: Nanos) {
        let Some(eccm) = &mut self.eccm else { return };
        eccm.open(start);
        self.forced = Some(Forced { until: self.window_end(start), by_eccm: true, closed: false });
        self.due = self.when_due();
    }

    /// The other workers hear of it.
    pub(super) fn tell_peers(&self, now: Nanos) {
        if let Some(peers) = &self.peers {
            peers.tell_let_in(now, self.newcomers.let_in());
        }
    }

    /// A worker that has said nothing for longer stands still.
    fn patience(&self) -> Nanos {
        Nanos(self.config.load_interval.0.saturating_mul(4))
    }

    /// Whether flows would have less than [`LEAST_FAIR`] if all that came turned elastic.
    pub(super) fn is_crowded_at_worst(&self) -> bool {
        let least = BitRate(LEAST_FAIR.of(self.min_fair().0));
        let (rate, load) = (self.config.rate, self.estimates.load);
        self.config.expected_flows && self.newcomers.crowd_at_worst(rate, least, load)
    }

    /// Guests that turned elastic leave.
    fn part_with_guests(&mut self, now: Nanos) {
        let (interval, load) = (self.config.fair_rate_interval, self.config.load_interval);
        while let Some(id) = self.newcomers.next_to_leave(now, interval, load, &mut self.list) {
            self.remove(now, id, Removal::Eccm, Measure::Nothing, (0, 0));
        }
    }

    /// Whether flows would have less than this with those that came after the last estimates.
    pub(super) fn is_crowded(&self, min_fair: BitRate) -> bool {
        let (rate, load) = (self.config.rate, self.estimates.load);
        self.config.expected_flows && self.newcomers.crowd(rate, min_fair, load)
    }

    /// FR as it is, or as it will be with those that have just come, whichever is less.
    pub(super) fn expected_fair(&self) -> BitRate {
        if !self.is_crowded(self.min_fair()) {
            return self.fair();
        }
        let (rate, load) = (self.config.rate, self.estimates.load);
        self.fair().min(self.newcomers.expected(rate, load))
    }

    /// FR as decisions see it.
    pub(super) fn fair(&self) -> BitRate {
        match self.forced {
            Some(forced) if !forced.closed => self.min_fair(),
            _ => self.estimates.fair,
        }
    }

    pub(super) const fn min_fair(&self) -> BitRate {
        self.min_fair
    }

    /// Whether flows have less than `min_fair`, or would have. It is the subscribers that are slow
    /// where these share the link, each for itself.
    fn is_slow(&self, min_fair: BitRate, forced: bool) -> bool {
        let slow = self.fair() < min_fair || (!forced && self.is_crowded(min_fair));
        slow && !self.config.by_subscriber
    }

    /// Why the link is closed to flows with these thresholds.
    pub(super) fn cause(&self, min_fair: BitRate, max_load: Ppm) -> Option<Cause> {
        let forced = self.forced.is_some_and(|forced| !forced.closed);
        if self.is_slow(min_fair, forced) {
            Some(Cause::FairRate)
        } else if self.estimates.load > max_load {
            Some(Cause::PriorityLoad)
        } else if self.list.is_full() {
            Some(Cause::ListFull)
        } else {
            None
        }
    }
}

/// The next instant after `now` of a timer that was due at `due`.
fn after(due: Nanos, interval: Nanos, now: Nanos) -> Nanos {
    let missed = now.saturating_sub(due).0 / interval.0;
    due.saturating_add(Nanos(interval.0.saturating_mul(missed + 1)))
}
