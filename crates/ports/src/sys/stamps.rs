//! The kernel's stamps, by the clock of the day, as instants of CLOCK_MONOTONIC: also while
//! somebody sets that clock.

use evenkeel_core::Nanos;

use super::{monotonic_now, realtime_minus_monotonic};

/// How far a stamp may lie in the past before it is taken for nonsense.
const CREDIBLE: Nanos = Nanos(10_000_000_000);
/// A clock that has moved by less, nanoseconds, was not set: the two are compared as exactly as
/// that, and in two seconds it is slewed by no more.
const SET: u64 = 1_000_000;

/// How far the clock of the day was ahead when a socket's last stamp was made.
///
/// Once it is set, what waits in the socket has stamps from before and from after. A stamp is read
/// by both: taken by the wrong one it lies in the future, or further back than it was, so the
/// later reading that is not in the future is right. (For a clock that is set forward, of frames
/// that have waited for longer than that: later than right, by at most as much.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DayClock {
    /// Of CLOCK_MONOTONIC, nanoseconds.
    ahead: Option<i64>,
}

impl DayClock {
    /// Turns stamps into instants not later than `now`.
    pub(crate) const fn until(&mut self, now: Nanos) -> Stamps<'_> {
        Stamps { clock: self, now, ahead: None, read: monotonic_now }
    }
}

/// Stamps of a burst.
pub(crate) struct Stamps<'a> {
    clock: &'a mut DayClock,
    now: Nanos,
    /// How far the clock of the day is ahead now.
    ahead: Option<i64>,
    /// A frame may have come since `now`, however long ago that is on a busy machine.
    read: fn() -> Nanos,
}

impl Stamps<'_> {
    /// When a frame without a stamp arrived, as far as is known.
    pub(crate) const fn now(&self) -> Nanos {
        self.now
    }

    /// When a frame with this stamp arrived, nanoseconds of CLOCK_REALTIME.
    pub(crate) fn arrival(&mut self, stamp: i64) -> Nanos {
        // The clocks are compared only if there is a stamp.
        let ahead = *self.ahead.get_or_insert_with(realtime_minus_monotonic);
        let arrival = match self.clock.ahead {
            Some(before) if before.abs_diff(ahead) > SET => self.either(stamp, ahead, before),
            _ => {
                self.clock.ahead = Some(ahead);
                stamp - ahead
            }
        };
        let arrival = Nanos(arrival.max(0) as u64).min(self.now);
        if arrival < self.now.saturating_sub(CREDIBLE) { self.now } else { arrival }
    }

    /// The clock has been set since the last stamp: by which of the two is this one?
    #[cold]
    fn either(&mut self, stamp: i64, ahead: i64, before: i64) -> i64 {
        let latest = ((self.read)().0 + SET) as i64;
        let past = |ahead: i64| Some(stamp - ahead).filter(|arrival| *arrival <= latest);
        let (by_now, by_before) = (past(ahead), past(before));
        if by_now >= by_before {
            self.clock.ahead = Some(ahead);
        }
        by_now.max(by_before).unwrap_or(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1_000);
    const DAY: i64 = 1_700_000_000_000_000_000;
    const SECOND: i64 = 1_000_000_000;
    /// How long frames have waited.
    const AGES: [i64; 3] = [0, 1_000, 3_000_000];

    fn read() -> Nanos {
        NOW
    }

    /// A clock that showed this much too little until it was set, and what it shows now.
    fn set(jump: i64) -> (DayClock, Option<i64>) {
        let ahead = DAY - NOW.0 as i64;
        (DayClock { ahead: Some(ahead - jump) }, Some(ahead))
    }

    #[test]
    fn frames_are_as_old_as_they_are_whenever_the_clock_of_the_day_was_set() {
        let jumps = [20_000_000, SECOND, 5 * SECOND, 11 * SECOND, 3_600 * SECOND];
        for jump in jumps.into_iter().chain(jumps.map(|jump| -jump)).chain([0]) {
            let (mut clock, ahead) = set(jump);
            let clock = &mut clock;
            let mut stamps = Stamps { clock, now: NOW, ahead, read };
            // What came before it was set lies before what came after.
            for stamped in [-jump, 0] {
                for age in AGES {
                    let arrival = stamps.arrival(DAY + stamped - age);
                    assert_eq!(arrival, NOW - Nanos(age as u64), "{jump} {stamped}");
                }
            }
            assert_eq!(stamps.clock.ahead, ahead, "what was before is forgotten: {jump}");
        }
    }

    /// Frames that have waited for longer than the clock was set forward: no reading is in the
    /// future.
    #[test]
    fn a_small_step_forward_makes_frames_younger_by_at_most_as_much() {
        let jump = SECOND;
        let (mut clock, ahead) = set(jump);
        let mut stamps = Stamps { clock: &mut clock, now: NOW, ahead, read };
        assert_eq!(stamps.arrival(DAY - jump - 3 * SECOND), NOW - Nanos::from_secs(3));
        assert_eq!(stamps.arrival(DAY - 2 * SECOND), NOW - Nanos::from_secs(1));
        assert_eq!(stamps.arrival(DAY - 1_000), NOW - Nanos(1_000));
        assert_eq!(
            stamps.arrival(DAY - 2 * SECOND),
            NOW - Nanos::from_secs(2),
            "known from now on"
        );
    }

    /// The thread was kept waiting between the look at its clock and that into the ring.
    #[test]
    fn what_came_since_the_burst_began_is_new_and_not_from_before_the_step() {
        let jump = 5 * SECOND;
        let (mut clock, ahead) = set(jump);
        let read = || NOW + Nanos::from_millis(300);
        let mut stamps = Stamps { clock: &mut clock, now: NOW, ahead, read };
        for (stamped, later) in [(-jump, 200_000_000), (0, 250_000_000)] {
            assert_eq!(stamps.arrival(DAY + stamped + later), NOW);
        }
    }

    /// Whatever a stamp says, nothing comes from the future or from long ago.
    #[test]
    fn nonsense_is_now() {
        let far = 40 * 365 * 86_400 * SECOND;
        for stamp in [i64::MIN / 2, 0, DAY - far, DAY - 11 * SECOND, DAY + SECOND, DAY + far] {
            let (mut clock, ahead) = set(0);
            let mut stamps = Stamps { clock: &mut clock, now: NOW, ahead, read };
            assert_eq!(stamps.arrival(stamp), NOW, "{stamp}");
        }
    }

    /// A clock that is slewed: half a millisecond in a second.
    #[test]
    fn a_clock_that_is_slewed_is_followed() {
        let mut clock = DayClock::default();
        for second in 0..100 {
            let (now, slewed) = (Nanos(NOW.0 + second * 1_000_000_000), second as i64 * 500_000);
            let ahead = DAY - NOW.0 as i64 + slewed;
            let mut stamps = Stamps { clock: &mut clock, now, ahead: Some(ahead), read };
            let stamp = now.0 as i64 + ahead - 5_000;
            assert_eq!(stamps.arrival(stamp), now - Nanos(5_000), "{second}");
        }
    }
}
