//! Whether the machine was steady while something was measured.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Two calibrations further apart than this are of a machine that changed its speed.
const STEADY: f64 = 1.25;

/// Nanoseconds per step of a loop that only depends on the processor: about 20 ms of multiply and
/// rotate.
#[must_use]
pub fn calibrate() -> f64 {
    const STEPS: u64 = 10_000_000;
    let begin = Instant::now();
    let mut x = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for i in 0..STEPS {
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31) ^ i;
    }
    black_box(x);
    begin.elapsed().as_nanos() as f64 / STEPS as f64
}

/// Whether calibrations of one measurement are near enough to each other that absolute numbers mean
/// something.
#[must_use]
pub fn is_steady(speeds: &[f64]) -> bool {
    let low = speeds.iter().copied().fold(f64::INFINITY, f64::min);
    speeds.iter().all(|speed| *speed <= low * STEADY)
}

/// How long a thread has run, and how long it has waited for its CPU because something else ran
/// there.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// Time on a CPU.
    pub ran: Duration,
    /// Time ready to run, on none.
    pub waited: Duration,
}

impl CpuTime {
    /// Of the thread with this folder under `/proc`; zero if it is gone, or the kernel does not
    /// count (`CONFIG_SCHEDSTATS`).
    #[must_use]
    pub fn of(task: &str) -> Self {
        let text = fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
        let mut numbers =
            text.split_whitespace().map(|n| Duration::from_nanos(n.parse().unwrap_or(0)));
        Self { ran: numbers.next().unwrap_or_default(), waited: numbers.next().unwrap_or_default() }
    }

    /// From an earlier reading to this one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_slows_down_is_noticed() {
        assert!(is_steady(&[1.0, 1.2, 1.1]));
        assert!(!is_steady(&[1.0, 1.3]));
        assert!(is_steady(&[]));
    }

    #[test]
    fn the_kernel_counts_what_a_thread_ran() {
        let before = CpuTime::of("/proc/thread-self");
        let _ = calibrate();
        assert!(CpuTime::of("/proc/thread-self").since(before).ran > Duration::ZERO);
    }
}
