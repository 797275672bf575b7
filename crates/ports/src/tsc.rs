//! The time-stamp counter: cycles for little, where it can be trusted.
//!
//! On x86-64 with an invariant counter that the kernel itself uses as its clock, reading it costs
//! about 8 ns, against about 20 for the clock. Everywhere else the monotonic clock stands in, one
//! cycle per nanosecond, and [`Tsc::source`] says so aloud.

use evenkeel_core::{Cycles, Nanos};

use crate::sys::monotonic_now;

/// Where cycles come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The processor's time-stamp counter.
    Counter,
    /// CLOCK_MONOTONIC, at one cycle per nanosecond; with the reason.
    Clock(&'static str),
}

/// A calibrated counter.
#[derive(Clone, Copy, Debug)]
pub struct Tsc {
    source: Source,
    hertz: u64,
}

impl Tsc {
    /// Measures the counter against the clock for `span` (20 ms give about 10 parts per million; at
    /// least 1 ms).
    #[must_use]
    pub fn calibrate(span: Nanos) -> Self {
        if let Some(reason) = distrust() {
            return Self::clock(reason);
        }
        let span = span.max(Nanos::from_millis(1));
        let (start, start_cycles) = simultaneous();
        std::thread::sleep(std::time::Duration::from_nanos(span.0));
        let (end, end_cycles) = simultaneous();
        let hertz = u128::from(end_cycles.wrapping_sub(start_cycles)) * 1_000_000_000
            / u128::from((end - start).0);
        match u64::try_from(hertz) {
            Ok(hertz) if (100_000_000..=20_000_000_000).contains(&hertz) => {
                Self { source: Source::Counter, hertz }
            }
            _ => Self::clock("the counter runs at an impossible rate"),
        }
    }

    /// The clock in place of the counter.
    const fn clock(reason: &'static str) -> Self {
        Self { source: Source::Clock(reason), hertz: 1_000_000_000 }
    }

    /// The counter now.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Cycles {
        match self.source {
            Source::Counter => Cycles(read_counter()),
            Source::Clock(_) => Cycles(monotonic_now().0),
        }
    }

    /// Cycles per second.
    #[must_use]
    pub const fn hertz(&self) -> u64 {
        self.hertz
    }

    /// How long `cycles` take.
    #[must_use]
    pub const fn to_nanos(&self, cycles: Cycles) -> Nanos {
        Nanos((cycles.0 as u128 * 1_000_000_000 / self.hertz as u128) as u64)
    }

    /// How many cycles `time` has.
    #[must_use]
    pub const fn to_cycles(&self, time: Nanos) -> Cycles {
        Cycles((time.0 as u128 * self.hertz as u128 / 1_000_000_000) as u64)
    }

    /// Where cycles come from.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }
}

/// The clock, and the counter at that moment: of several readings, the one that took least, since a
/// reading that was interrupted is far off.
fn simultaneous() -> (Nanos, u64) {
    (0..8)
        .map(|_| {
            let before = read_counter();
            let now = monotonic_now();
            let after = read_counter();
            (after.wrapping_sub(before), now, before.wrapping_add(after.wrapping_sub(before) / 2))
        })
        .min_by_key(|(took, ..)| *took)
        .map(|(_, now, cycles)| (now, cycles))
        .expect("eight readings were made")
}

#[cfg(target_arch = "x86_64")]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; Linux leaves it enabled for user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    monotonic_now().0
}

/// Why the counter cannot be used as a clock, if it cannot.
#[cfg(target_arch = "x86_64")]
fn distrust() -> Option<&'static str> {
    use core::arch::x86_64::__cpuid;
    let (max, flags) = (__cpuid(0x8000_0000).eax, 0x8000_0007);
    let invariant = max >= flags && __cpuid(flags).edx & (1 << 8) != 0;
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    not_trusted(invariant, || std::fs::read_to_string(path).unwrap_or_default())
}

/// Under some hypervisors the flag is hidden although the kernel found the counter good enough for
/// its own clock.
#[cfg(target_arch = "x86_64")]
fn not_trusted(invariant: bool, kernel_clock: impl Fn() -> String) -> Option<&'static str> {
    let trusted = invariant || kernel_clock().trim() == "tsc";
    (!trusted).then_some("the counter is not invariant and the kernel does not use it as its clock")
}

#[cfg(not(target_arch = "x86_64"))]
fn distrust() -> Option<&'static str> {
    Some("no time-stamp counter on this architecture")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_convert_both_ways_without_drift() {
        let tsc = Tsc { source: Source::Counter, hertz: 2_500_000_000 };
        assert_eq!(tsc.to_nanos(Cycles(2_500)), Nanos(1_000));
        assert_eq!(tsc.to_cycles(Nanos(1_000)), Cycles(2_500));
        // A century does not overflow.
        let century = Nanos::from_secs(3_155_760_000);
        assert_eq!(tsc.to_nanos(tsc.to_cycles(century)), century);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_counter_that_is_not_invariant_is_replaced_by_the_clock() {
        assert_eq!(not_trusted(true, || unreachable!("nobody has to be asked")), None);
        assert_eq!(not_trusted(false, || "tsc\n".into()), None);
        let reason = not_trusted(false, || "hpet\n".into()).expect("neither of them trusts it");
        let tsc = Tsc::clock(reason);
        assert_eq!((tsc.source(), tsc.hertz()), (Source::Clock(reason), 1_000_000_000));
        let (before, counted, after) = (monotonic_now(), tsc.now(), monotonic_now());
        assert!((before.0..=after.0).contains(&counted.0));
        assert_eq!(tsc.to_nanos(counted).0, counted.0);
    }

    #[test]
    fn the_counter_and_the_clock_agree_on_a_length_of_time() {
        let tsc = Tsc::calibrate(Nanos::from_millis(20));
        let ((start, start_cycles), _) = (simultaneous(), ());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (end, end_cycles) = simultaneous();
        if tsc.source() == Source::Counter {
            let counted = tsc.to_nanos(Cycles(end_cycles - start_cycles)).0 as f64;
            let ratio = counted / (end - start).0 as f64;
            assert!((0.999..1.001).contains(&ratio), "{ratio}");
        }
        assert!(tsc.now() <= tsc.now());
    }
}
