//! CLOCK_MONOTONIC, the time of the whole house, and its distance from CLOCK_REALTIME.

use std::sync::OnceLock;

use evenkeel_core::Nanos;
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn read(clock: ClockId) -> u64 {
    nanos(clock_gettime(clock))
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

/// How far CLOCK_MONOTONIC of this process is ahead of the kernel's own, nanoseconds: programs in
/// the kernel read the latter. Not zero in a namespace of time only, as a container may have one.
/// Read once, since a process of several threads stays where it is.
pub(crate) fn ahead_of_the_kernel() -> i64 {
    static AHEAD: OnceLock<i64> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    *AHEAD.get_or_init(|| monotonic_offset(&read()).unwrap_or(0))
}

/// From one tick of the kernel to the next, at which its coarse clocks go on: 1 to 10 ms.
pub(crate) fn tick_length() -> Nanos {
    Nanos(nanos(clock_getres(ClockId::MonotonicCoarse)))
}

/// `monotonic <seconds> <nanoseconds>`, a line of several.
fn monotonic_offset(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_namespace_of_time_are_read() {
        let text = "monotonic        -100  250000000\nboottime          7         0\n";
        assert_eq!(monotonic_offset(text), Some(-99_750_000_000));
        assert_eq!(monotonic_offset("monotonic           0         0\n"), Some(0));
        assert_eq!(monotonic_offset(""), None);
    }

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
