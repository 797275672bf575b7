//! CLOCK_MONOTONIC, the time of the whole house, and its distance from CLOCK_REALTIME.

use evenkeel_core::Nanos;
use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time since an origin that all processes of the machine share. Costs about 20 ns.
#[must_use]
pub fn monotonic_now() -> Nanos {
    Nanos(read(ClockId::Monotonic))
}

/// How long the calling thread has run, without the time in which others had its processor. A
/// system call, of some tenths of a microsecond.
#[must_use]
pub fn thread_time() -> Nanos {
    Nanos(read(ClockId::ThreadCPUTime))
}

/// What to subtract from a stamp of CLOCK_REALTIME to have the same instant in CLOCK_MONOTONIC,
/// nanoseconds; good to some 50 ns, until somebody sets the clock.
#[must_use]
pub fn realtime_minus_monotonic() -> i64 {
    let before = read(ClockId::Monotonic);
    let realtime = read(ClockId::Realtime);
    let after = read(ClockId::Monotonic);
    realtime as i64 - (before + (after - before) / 2) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let mut last = monotonic_now();
        for _ in 0..10_000 {
            let now = monotonic_now();
            assert!(now >= last);
            last = now;
        }
    }
}
