//! When a worker that finds nothing to do goes to sleep.
//!
//! Sleeping costs what waking costs: some microseconds on the way of the next frame, and as much of
//! the processor for each. Staying awake costs the whole processor. So in mode `adaptive` the
//! worker stays awake for as long as a frame is likely to come soon: while the mean gap between
//! rounds that found frames is at most `spin`, and no longer than `spin` after the last of them.
//! The mean forgets an eighth with each gap, and long gaps count as [`LONGEST`] times `spin`: one
//! pause puts a loaded worker to sleep, and six short gaps keep it awake again; after an idle time
//! it takes some twenty. So a ping does not keep the worker awake, and a transfer does within its
//! first milliseconds.

use evenkeel_config::Mode;
use evenkeel_core::Nanos;

/// A gap counts as at most so many times `spin`.
const LONGEST: u64 = 16;
/// Frames are found in so many rounds in a row, without sleeping, before the worker tells the
/// kernel to wake it for none.
const SETTLED: u32 = 64;

/// A worker's choice between sleeping and staying awake.
#[derive(Debug)]
pub(crate) struct Idle {
    mode: Mode,
    spin: Nanos,
    /// When frames were last found.
    last: Nanos,
    /// Mean gap, nanoseconds times eight.
    mean: u64,
    /// Rounds with frames since it last slept.
    awake: u32,
}

impl Idle {
    pub(crate) fn new(mode: Mode, spin: Nanos) -> Self {
        Self { mode, spin, last: Nanos::ZERO, mean: 8 * LONGEST * spin.0, awake: 0 }
    }

    /// A round at `now` found frames.
    pub(crate) fn found(&mut self, now: Nanos) {
        let gap = now.saturating_sub(self.last).0.min(LONGEST * self.spin.0);
        self.mean = self.mean - self.mean / 8 + gap;
        self.last = now;
        self.awake = self.awake.saturating_add(1);
    }

    /// Whether to look for frames again at once although the round at `now` found nothing.
    pub(crate) fn stays_awake(&self, now: Nanos) -> bool {
        match self.mode {
            Mode::Busy => true,
            Mode::Event => false,
            Mode::Adaptive => {
                self.mean <= 8 * self.spin.0 && now.saturating_sub(self.last) < self.spin
            }
        }
    }

    /// Whether the kernel should look for the worker when a frame comes. Each frame that does costs
    /// a quarter of the throughput, and turning it on and off a system call per port: it is off in
    /// mode `busy`, and in mode `adaptive` when the worker has been awake for a while.
    pub(crate) fn wants_to_be_woken(&self) -> bool {
        match self.mode {
            Mode::Busy => false,
            Mode::Event => true,
            Mode::Adaptive => self.awake < SETTLED,
        }
    }

    /// It goes to sleep.
    pub(crate) fn sleeps(&mut self) {
        self.awake = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Nanos = Nanos::from_micros(100);

    /// Of a worker that looks every microsecond while frames come every `gap` for a while: the part
    /// of the time that it is awake at the end, in thousandths.
    fn awake(idle: &mut Idle, now: &mut Nanos, gap: Nanos, frames: u32) -> u64 {
        let (mut looked, mut all) = (0, 0);
        for n in 0..frames {
            let next = *now + gap;
            idle.found(*now);
            let begin = *now;
            while *now < next && idle.stays_awake(*now) {
                *now += Nanos::from_micros(1);
            }
            if n >= frames / 2 {
                looked += (*now - begin).0;
                all += gap.0;
            }
            if *now < next {
                idle.sleeps();
            }
            *now = next;
        }
        looked * 1_000 / all
    }

    #[test]
    fn it_is_awake_under_load_and_asleep_when_idle() {
        let (mut idle, mut now) = (Idle::new(Mode::Adaptive, SPIN), Nanos::SECOND);
        assert!(idle.wants_to_be_woken());
        for (gap, part) in
            [(1_000_000, 0), (10, 1_000), (300, 0), (90, 1_000), (110, 0), (10_000, 0)]
        {
            let part_awake = awake(&mut idle, &mut now, Nanos::from_micros(gap), 2_000);
            assert_eq!(part_awake, part, "a frame every {gap} us");
            assert_eq!(idle.wants_to_be_woken(), part == 0);
        }
        for (mode, part, woken) in [(Mode::Busy, 1_000, false), (Mode::Event, 0, true)] {
            let (mut idle, mut now) = (Idle::new(mode, SPIN), Nanos::SECOND);
            assert_eq!(awake(&mut idle, &mut now, Nanos::from_micros(500), 100), part);
            assert_eq!(idle.wants_to_be_woken(), woken);
        }
    }

    #[test]
    fn one_packet_does_not_keep_it_awake_and_one_pause_not_asleep() {
        let (mut idle, mut now) = (Idle::new(Mode::Adaptive, SPIN), Nanos::SECOND);
        let rounds = |idle: &mut Idle, now: &mut Nanos| {
            let mut rounds = 0;
            loop {
                idle.found(*now);
                rounds += 1;
                if idle.stays_awake(*now + Nanos(1)) {
                    return rounds;
                }
                *now += Nanos::from_micros(5);
            }
        };
        let first = rounds(&mut idle, &mut now);
        assert!((15..30).contains(&first), "{first}");
        // A pause of a second.
        awake(&mut idle, &mut now, Nanos::from_micros(5), 100);
        now += Nanos::SECOND;
        let again = rounds(&mut idle, &mut now);
        assert!((2..10).contains(&again), "{again}");
    }
}
