//! Units as types: nanoseconds, bytes, bits per second, weights, cycles.
//!
//! A bare number says nothing about its scale; each of these says it in its name, and only the
//! conversions that have a meaning exist. All are plain integers: no rounding hides in them, and
//! results are the same on every machine.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub $inner);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);
            /// The largest value that can be told.
            pub const MAX: Self = Self(<$inner>::MAX);

            /// The sum, or `MAX` if it cannot be told.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The difference, or zero if `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl Mul<$inner> for $name {
            type Output = Self;
            fn mul(self, factor: $inner) -> Self {
                Self(self.0 * factor)
            }
        }

        impl core::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

quantity! {
    /// A length of time, or an instant as time since a start that the caller chose. Nanoseconds;
    /// 584 years fit.
    Nanos(u64)
}
quantity! {
    /// A number of bytes.
    Bytes(u64)
}
quantity! {
    /// Processor cycles, as the time-stamp counter counts them.
    Cycles(u64)
}
quantity! {
    /// Bits per second.
    BitRate(u64)
}
quantity! {
    /// The relative share of a class. Disciplines say which range they take; none takes zero.
    Weight(u32)
}

quantity! {
    /// A share of something, in parts per million.
    Ppm(u32)
}

quantity! {
    /// A factor, in thousandths.
    Thousandths(u32)
}

quantity! {
    /// A fraction, in units of 2^-16.
    Fraction(u32)
}

impl Ppm {
    /// The whole.
    pub const ONE: Self = Self(1_000_000);

    /// `n` hundredths.
    #[must_use]
    pub const fn percent(n: u32) -> Self {
        Self(n * 10_000)
    }

    /// This share of `whole`, rounded down.
    #[must_use]
    pub const fn of(self, whole: u64) -> u64 {
        // Of the millions and of the rest: asked per packet, where a division of 128 bits is dear.
        let (millions, rest) = (whole / 1_000_000, whole % 1_000_000);
        let of_rest = rest * self.0 as u64 / 1_000_000;
        millions.saturating_mul(self.0 as u64).saturating_add(of_rest)
    }
}

impl Nanos {
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// `n` microseconds.
    #[must_use]
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// Seconds, for printing only: no discipline computes in floating point.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The first multiple of `tick` that is not before `self`. A `tick` of zero means exact time.
    #[must_use]
    pub const fn round_up_to(self, tick: Self) -> Self {
        if tick.0 == 0 {
            return self;
        }
        match self.0 % tick.0 {
            0 => self,
            past => Self(self.0.saturating_add(tick.0 - past)),
        }
    }
}

impl BitRate {
    /// `n` megabits (10^6 bits) per second.
    #[must_use]
    pub const fn from_mbps(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// How long `length` takes at this rate, rounded up to the nanosecond. `Nanos::MAX` at rate
    /// zero.
    #[must_use]
    pub const fn time_for(self, length: Bytes) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        let bit_nanos = length.0 as u128 * 8 * 1_000_000_000;
        let nanos = bit_nanos.div_ceil(self.0 as u128);
        if nanos > u64::MAX as u128 { Nanos::MAX } else { Nanos(nanos as u64) }
    }

    /// How many whole bytes pass in `time` at this rate.
    #[must_use]
    pub const fn bytes_in(self, time: Nanos) -> Bytes {
        let bytes = self.0 as u128 * time.0 as u128 / 8_000_000_000;
        if bytes > u64::MAX as u128 { Bytes::MAX } else { Bytes(bytes as u64) }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(
            f,
            self.0,
            &[(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")],
        )
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Ppm {
    /// As per cent: `70 %`, `0.05 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0.into(), &[(10_000, "%")])
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles", self.0)
    }
}

/// Writes `value` in the largest unit it reaches, with up to three decimals and no trailing zeros.
fn scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let last = units.len() - 1;
    let (unit, name) =
        units.iter().copied().find(|(unit, _)| value >= *unit).unwrap_or(units[last]);
    let whole = value / unit;
    let mut thousandths = (u128::from(value % unit) * 1_000 / u128::from(unit)) as u64;
    if thousandths == 0 {
        return write!(f, "{whole} {name}");
    }
    let mut digits = 3;
    while thousandths.is_multiple_of(10) {
        thousandths /= 10;
        digits -= 1;
    }
    write!(f, "{whole}.{thousandths:0digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_takes_its_wire_time() {
        // 1428-byte IP packet: 1466 bytes on the wire, 117.28 us at 100 Mbit/s.
        assert_eq!(BitRate::from_mbps(100).time_for(Bytes(1466)), Nanos(117_280));
        assert_eq!(BitRate(0).time_for(Bytes(1)), Nanos::MAX);
        assert_eq!(BitRate::from_mbps(100).bytes_in(Nanos(117_280)), Bytes(1466));
    }

    #[test]
    fn ticks_round_up() {
        assert_eq!(Nanos(1).round_up_to(Nanos(10)), Nanos(10));
        assert_eq!(Nanos(10).round_up_to(Nanos(10)), Nanos(10));
        assert_eq!(Nanos(11).round_up_to(Nanos::ZERO), Nanos(11));
        assert_eq!(Nanos::MAX.round_up_to(Nanos(10)), Nanos::MAX);
    }

    #[test]
    fn a_share_is_exact_as_far_as_it_can_be_told() {
        let wholes = [0, 1, 999_999, 1_000_000, 1_000_001, 123_456_789_012, 1 << 63, u64::MAX];
        for (whole, part) in wholes.into_iter().flat_map(|whole| {
            [0, 1, 3, 999_999, 1_000_000, 1_000_001, u32::MAX].map(|part| (whole, part))
        }) {
            let exact = u128::from(whole) * u128::from(part) / 1_000_000;
            let told = u64::try_from(exact).unwrap_or(u64::MAX);
            assert_eq!(Ppm(part).of(whole), told, "{part} ppm of {whole}");
        }
    }

    #[test]
    fn text_uses_the_largest_unit() {
        assert_eq!(Nanos(1_500).to_string(), "1.5 us");
        assert_eq!(Nanos(0).to_string(), "0 ns");
        assert_eq!(BitRate::from_mbps(100).to_string(), "100 Mbit/s");
        assert_eq!(BitRate(1_005_000).to_string(), "1.005 Mbit/s");
    }
}
