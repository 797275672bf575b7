//! When the mirror reads everything again, and when the rules.

use evenkeel_core::Nanos;

use super::state::Resync;

const SOON: Nanos = Nanos::from_millis(20);
const LATER: Nanos = Nanos::from_millis(300);
/// A burst without a pause may put the re-reading off for so long.
const LATEST: Nanos = Nanos::from_secs(2);
const PERIOD: Nanos = Nanos::from_secs(10);

/// When to read everything again.
#[derive(Debug)]
pub(super) struct Schedule {
    due: Nanos,
    /// The first request for a re-reading that has not been served.
    first: Option<Nanos>,
    not_before: Nanos,
}

impl Schedule {
    /// Everything is being read from now on.
    pub(super) fn new(now: Nanos) -> Self {
        Self { due: now + PERIOD, first: None, not_before: now }
    }

    /// Everything has been read.
    pub(super) fn has_read(&mut self, began: Nanos, now: Nanos) {
        self.due = self.due.min(now + PERIOD);
        self.not_before = now.saturating_add((now - began) * 10);
    }

    pub(super) fn want(&mut self, now: Nanos, resync: Resync) {
        let due = match resync {
            Resync::No | Resync::Rules => return,
            Resync::Now => now,
            Resync::Soon => now + SOON,
            Resync::Later => {
                let first = *self.first.get_or_insert(now);
                // A change of links has asked for an earlier time: routes that follow do not put it
                // off.
                if self.due < now + SOON {
                    return;
                }
                (now + LATER).min(first + LATEST)
            }
        };
        self.due = if resync == Resync::Later { due } else { due.min(self.due) };
    }

    pub(super) fn due(&self) -> Nanos {
        self.due.max(self.not_before)
    }
}

/// When to read the rules again: at once after each change, but a change of thousands of rules one
/// by one costs no more than a tenth of one core's time.
#[derive(Debug, Default)]
pub(super) struct RuleReading {
    pub(super) wanted: bool,
    not_before: Nanos,
}

impl RuleReading {
    pub(super) fn due(&self) -> Nanos {
        if self.wanted { self.not_before } else { Nanos::MAX }
    }

    pub(super) fn has_read(&mut self, began: Nanos, now: Nanos) {
        self.wanted = false;
        self.not_before = now.saturating_add((now - began) * 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_routes_is_read_again_when_it_has_calmed_down_but_not_too_late() {
        let start = Nanos::from_secs(100);
        let mut schedule = Schedule::new(start);
        schedule.want(start + Nanos::from_secs(1), Resync::Later);
        assert_eq!(schedule.due(), start + Nanos::from_secs(1) + LATER);
        for tenths in 11..40 {
            schedule.want(start + Nanos::from_millis(tenths * 100), Resync::Later);
        }
        assert_eq!(schedule.due(), start + Nanos::from_secs(1) + LATEST);
    }

    #[test]
    fn a_change_of_links_is_not_put_off_by_routes() {
        let start = Nanos::from_secs(100);
        let mut schedule = Schedule::new(start);
        schedule.want(start, Resync::Soon);
        schedule.want(start + Nanos(1), Resync::Later);
        assert_eq!(schedule.due(), start + SOON);
        schedule.want(start + Nanos(2), Resync::Now);
        assert_eq!(schedule.due(), start + Nanos(2));
    }

    #[test]
    fn reading_takes_at_most_a_tenth_of_the_time() {
        let start = Nanos::from_secs(100);
        let mut schedule = Schedule::new(start);
        // What is asked for while it is read is not forgotten.
        schedule.want(start + Nanos::from_millis(100), Resync::Soon);
        schedule.has_read(start, start + Nanos::from_millis(200));
        assert_eq!(schedule.due(), start + Nanos::from_millis(2_200));
    }

    #[test]
    fn nothing_happening_it_is_read_periodically() {
        let start = Nanos::from_secs(100);
        assert_eq!(Schedule::new(start).due(), start + PERIOD);
    }
}
