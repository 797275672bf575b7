//! The wire: takes one packet at a time for as long as its bits take at the link's rate, exactly.

use crate::units::{BitRate, Bytes, Nanos};

/// Bit-nanoseconds in a byte.
const BYTE: u64 = 8_000_000_000;

/// A wire in virtual time.
///
/// Instants are whole nanoseconds, a packet's time is not: each completion is told at the first
/// whole nanosecond that is not before it, and what that was too late is taken off the next packet
/// if it follows without a gap. So the long-run rate is exact, and never above the link's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    rate: Option<BitRate>,
    /// When the packet on the wire is through; `Nanos::MAX` if the wire is idle.
    done: Nanos,
    /// The last completion.
    last: Nanos,
    /// How long it was idle in all, up to the last completion.
    idle: Nanos,
    /// How long it was held although something was on it.
    lost: Nanos,
    /// Nothing starts before.
    not_before: Nanos,
    /// How much too late `done` (or `last`, if idle) is, in bit-nanoseconds: below the rate.
    late: u64,
    /// What the length before takes at the rate.
    usual: Took,
}

/// What a packet takes on the wire: mostly one is as long as that before.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    length: Bytes,
    /// Whole nanoseconds.
    time: u64,
    /// What is left of its bits, in bit-nanoseconds: below the rate.
    rest: u64,
}

impl Took {
    fn new(length: Bytes, rate: BitRate) -> Self {
        let bits = length.0.saturating_mul(BYTE);
        Self { length, time: bits / rate.0, rest: bits % rate.0 }
    }
}

impl Wire {
    pub(super) fn new(rate: Option<BitRate>) -> Self {
        Self {
            rate,
            done: Nanos::MAX,
            last: Nanos::ZERO,
            idle: Nanos::ZERO,
            lost: Nanos::ZERO,
            not_before: Nanos::ZERO,
            late: 0,
            usual: Took::default(),
        }
    }

    pub(super) fn is_paced(&self) -> bool {
        self.rate.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.done == Nanos::MAX
    }

    /// When the packet on the wire is through; `Nanos::MAX` if there is none.
    pub(super) fn done(&self) -> Nanos {
        self.done
    }

    /// A packet starts at `at`. Nothing happens on a wire without a rate.
    pub(super) fn begin(&mut self, at: Nanos, length: Bytes) {
        let Some(rate) = self.rate else { return };
        let at = at.max(self.not_before);
        if at != self.last {
            self.late = 0;
            self.idle += at.saturating_sub(self.last);
        }
        self.take(rate, at, length);
    }

    /// The packet on the wire is through, and the next one follows at once. Nothing is held.
    #[inline]
    pub(super) fn follow(&mut self, length: Bytes) {
        let Some(rate) = self.rate else { return };
        self.last = self.done;
        self.take(rate, self.done, length);
    }

    /// A packet is on the wire from `at` on.
    #[inline]
    fn take(&mut self, rate: BitRate, at: Nanos, length: Bytes) {
        if length != self.usual.length {
            self.usual = Took::new(length, rate);
        }
        let Took { time, rest, .. } = self.usual;
        // The first whole nanosecond by which its bits, less what is owed, are through.
        let (time, owed) = match rest.checked_sub(self.late) {
            Some(0) => (time, 0),
            Some(more) => (time.saturating_add(1), rate.0 - more),
            None => (time, self.late - rest),
        };
        self.late = owed;
        self.done = at.saturating_add(Nanos(time));
    }

    /// No packet is through before `until`, and none starts before.
    pub(super) fn hold(&mut self, until: Nanos) {
        self.not_before = self.not_before.max(until);
        if self.done < until {
            self.lost += until - self.done;
            self.done = until;
            self.late = 0;
        }
    }

    /// Whether by `now` the next packet is through too, if it is as long as the one on the wire.
    #[inline]
    pub(super) fn is_behind(&self, now: Nanos) -> bool {
        now.saturating_sub(self.done) >= self.done.saturating_sub(self.last)
    }

    /// Whether nothing keeps the next packet from following the one that is on the wire.
    pub(super) fn flows(&self) -> bool {
        self.rate.is_some() && self.not_before <= self.done
    }

    /// The packet on the wire is through.
    pub(super) fn finish(&mut self) {
        self.last = self.done;
        self.done = Nanos::MAX;
    }

    /// How long nothing was on the wire, from the start of time to `now`, which is not before the
    /// last event.
    pub(super) fn idle_time(&self, now: Nanos) -> Nanos {
        if self.is_idle() { self.idle + now.saturating_sub(self.last) } else { self.idle }
    }

    /// How much of the wire's time was lost because nobody came in time to use it.
    pub(super) fn lost_time(&self) -> Nanos {
        self.lost
    }

    /// What is on the wire is taken off it at `now`.
    pub(super) fn abort(&mut self, now: Nanos) {
        if !self.is_idle() {
            self.last = now;
        }
        self.done = Nanos::MAX;
        self.late = 0;
    }

    /// Changes the rate. The bits of the current packet that have not left go at the new one.
    pub(super) fn set_rate(&mut self, now: Nanos, rate: Option<BitRate>) {
        if rate == self.rate {
            return;
        }
        let old = core::mem::replace(&mut self.rate, rate);
        self.usual = Took::default();
        let (Some(old), Some(new), false) = (old, rate, self.is_idle()) else {
            self.abort(now);
            return;
        };
        let left = u128::from(self.done.saturating_sub(now).0) * u128::from(old.0);
        let left = left.saturating_sub(u128::from(self.late));
        let time = left.div_ceil(u128::from(new.0));
        self.late = (time * u128::from(new.0) - left) as u64;
        self.done = now.saturating_add(Nanos(u64::try_from(time).unwrap_or(u64::MAX)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever follows whatever, each packet is through at the first nanosecond that is not
        /// before its last bit; lengths repeat, as they do on links.
        #[test]
        fn packets_of_all_lengths_take_their_bits(
            lengths in prop::collection::vec(
                prop_oneof![Just(64_u64), Just(1_538), 0_u64..4, 1_u64..1_000_000],
                1..60,
            ),
            rate in prop_oneof![1_u64..2_000, 1_000_000_u64..1_000_000_000_000_000],
        ) {
            let mut wire = Wire::new(Some(BitRate(rate)));
            let mut bits = 0_u128;
            for (at, length) in lengths.into_iter().enumerate() {
                if at == 0 {
                    wire.begin(Nanos::ZERO, Bytes(length));
                } else {
                    wire.follow(Bytes(length));
                }
                bits += u128::from(length) * 8;
                let exact = (bits * 1_000_000_000).div_ceil(rate.into());
                prop_assert_eq!(u128::from(wire.done().0), exact);
            }
        }
    }

    #[test]
    fn the_long_run_rate_is_exact() {
        // 64 bytes at 3 Gbit/s: 170.666... ns.
        let mut wire = Wire::new(Some(BitRate(3_000_000_000)));
        let mut now = Nanos::ZERO;
        for n in 1..=3_000u64 {
            wire.begin(now, Bytes(64));
            now = wire.done();
            wire.finish();
            assert_eq!(now.0, (n * 512).div_ceil(3));
        }
        assert_eq!(now.0, 512_000);
        // After a pause nothing is owed.
        wire.begin(Nanos(600_000), Bytes(64));
        assert_eq!(wire.done(), Nanos(600_171));
    }

    #[test]
    fn many_bits_fit_into_a_nanosecond() {
        let mut wire = Wire::new(Some(BitRate(1_000_000_000_000)));
        let mut now = Nanos::ZERO;
        for n in 1..=1_000u64 {
            wire.begin(now, Bytes(1));
            now = wire.done();
            wire.finish();
            assert_eq!(now.0, (n * 8).div_ceil(1_000));
        }
    }

    #[test]
    fn a_new_rate_rules_the_bits_that_have_not_left() {
        let mut wire = Wire::new(Some(BitRate(8_000_000)));
        wire.begin(Nanos::ZERO, Bytes(1_000));
        assert_eq!(wire.done(), Nanos::from_millis(1));
        wire.set_rate(Nanos::from_micros(400), Some(BitRate(16_000_000)));
        assert_eq!(wire.done(), Nanos::from_micros(700));
        // And all of one that is as long.
        wire.follow(Bytes(1_000));
        assert_eq!(wire.done(), Nanos::from_micros(1_200));
        wire.set_rate(Nanos::from_micros(1_100), None);
        assert!(wire.is_idle());
    }
}
