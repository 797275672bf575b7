//! CLOCK_MONOTONIC, the time of the whole house, and its distance from CLOCK_REALTIME.

use evenkeel_core::Nanos;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable timespec.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "both clocks exist on every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time since an origin that all processes of the machine share. Costs about 20 ns.
#[must_use]
pub fn monotonic_now() -> Nanos {
    Nanos(read(libc::CLOCK_MONOTONIC))
}

/// What to subtract from a stamp of CLOCK_REALTIME to have the same instant in CLOCK_MONOTONIC, nanoseconds; good to
/// some 50 ns, until somebody sets the clock.
#[must_use]
pub fn realtime_minus_monotonic() -> i64 {
    let before = read(libc::CLOCK_MONOTONIC);
    let realtime = read(libc::CLOCK_REALTIME);
    let after = read(libc::CLOCK_MONOTONIC);
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
