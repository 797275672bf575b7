//! How far away the subscribers of a tree are: the round trip between a link and what is at its
//! end, smoothed as TCP does it (RFC 6298, 2.3), on the link towards them and on the one away.
//!
//! Written by the worker, and taken along to the list that follows by whoever builds that one
//! beside.

use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_core::Nanos;
use evenkeel_core::measure::round_trips::RoundTrip;

/// So long a round trip is told after it was measured, seconds.
const RECENT: u64 = 60;

/// Of each place, on the link up and on the link down: above the second in which it was measured
/// last, counted from one, below microseconds; 0: never.
pub(super) struct Distances(Box<[[AtomicU64; 2]]>);

impl Distances {
    /// Of so many places.
    pub(super) fn new(places: usize) -> Self {
        Self((0..places).map(|_| Default::default()).collect())
    }

    /// A packet of who has a place went over the link towards him, or away from him, and back.
    pub(super) fn came_back(&self, place: u32, down: bool, at: Nanos, trip: &RoundTrip) {
        let Some(both) = self.0.get(place as usize) else { return };
        let before = self.of(place, down, at);
        // The answer may have waited for a second packet: it says only that he is no farther.
        if trip.late && before.is_some_and(|before| before < trip.rtt) {
            return;
        }
        let rtt = before.map_or(trip.rtt.0, |before| (7 * before.0 + trip.rtt.0) / 8);
        let us = (rtt / 1_000).clamp(1, u64::from(u32::MAX));
        let packed = (second(at) << 32) | us;
        both[usize::from(down)].store(packed, Ordering::Relaxed);
    }

    /// That of who has a place, if it was measured in the last minute.
    pub(super) fn of(&self, place: u32, down: bool, now: Nanos) -> Option<Nanos> {
        let packed = self.0.get(place as usize)?[usize::from(down)].load(Ordering::Relaxed);
        let recent = packed != 0 && (packed >> 32) + RECENT >= second(now);
        recent.then(|| Nanos((packed & u64::from(u32::MAX)) * 1_000))
    }

    /// Who had `place` in `former` is still there.
    pub(super) fn keep(&self, place: u32, former: &Self) {
        let (Some(own), Some(before)) = (self.0.get(place as usize), former.0.get(place as usize))
        else {
            return;
        };
        for (own, before) in own.iter().zip(before) {
            own.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

fn second(at: Nanos) -> u64 {
    (at.0 / Nanos::SECOND.0 + 1) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(ms: u64, late: bool) -> RoundTrip {
        let rtt = Nanos::from_millis(ms);
        RoundTrip { host: 1, sent: Nanos::ZERO, rtt, above: None, bytes: 0, late }
    }

    #[test]
    fn a_distance_is_smoothed_is_of_one_direction_and_grows_old() {
        let all = Distances::new(2);
        let at = Nanos::SECOND;
        all.came_back(1, true, at, &trip(80, true));
        all.came_back(1, true, at, &trip(40, true));
        assert_eq!(all.of(1, true, at), Some(Nanos::from_millis(75)));
        all.came_back(1, true, at, &trip(155, true));
        assert_eq!(all.of(1, true, at), Some(Nanos::from_millis(75)), "it may have waited");
        all.came_back(1, true, at, &trip(155, false));
        assert_eq!(all.of(1, true, at), Some(Nanos::from_millis(85)));
        assert_eq!((all.of(1, false, at), all.of(0, true, at)), (None, None));
        all.came_back(9, true, at, &trip(1, false));
        let later = at + Nanos::from_secs(60);
        assert_eq!(all.of(1, true, later), Some(Nanos::from_millis(85)));
        assert_eq!(all.of(1, true, later + Nanos::SECOND), None);
        let next = Distances::new(9);
        next.keep(1, &all);
        next.keep(5, &all);
        assert_eq!(next.of(1, true, later), Some(Nanos::from_millis(85)));
    }
}
