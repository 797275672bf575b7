//! Rates, times and sizes in text: `100Mbit/s`, `4.5us`, `1500B`.
//!
//! A number, optional space, a unit. The unit is never left out and never guessed, and a value that
//! is not a whole number of the base unit (bit/s, ns, B) is refused rather than rounded.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::units::{BitRate, Bytes, Nanos};

/// Why a text is not a quantity. The message names the valid units.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuantityError(pub String);

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for QuantityError {}

/// A family of units, the largest first; the last is the base unit with factor 1.
struct Family {
    /// What is measured: `a rate`.
    what: &'static str,
    /// A text that is right.
    example: &'static str,
    /// How nothing is written.
    zero: &'static str,
    /// Name and factor.
    units: &'static [(&'static str, u64)],
}

const RATE: Family = Family {
    what: "a rate",
    example: "100Mbit/s",
    zero: "0bit/s",
    units: &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)],
};
const TIME: Family = Family {
    what: "a length of time",
    example: "10us",
    zero: "0s",
    units: &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)],
};
const SIZE: Family = Family {
    what: "a size",
    example: "1500B",
    zero: "0B",
    units: &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)],
};

/// Spellings seen elsewhere, and what is meant by them here. None is accepted: `Mbps` is read as
/// megabits by some and as megabytes by others, `KB` as 1000 or as 1024.
const HINTS: &[(&str, &str)] = &[
    ("bps", "bit/s"),
    ("kbps", "kbit/s"),
    ("mbps", "Mbit/s"),
    ("gbps", "Gbit/s"),
    ("bit", "bit/s"),
    ("kbit", "kbit/s"),
    ("mbit", "Mbit/s"),
    ("gbit", "Gbit/s"),
    ("kb/s", "kbit/s"),
    ("mb/s", "Mbit/s"),
    ("gb/s", "Gbit/s"),
    ("µs", "us"),
    ("μs", "us"),
    ("usec", "us"),
    ("msec", "ms"),
    ("sec", "s"),
    ("byte", "B"),
    ("bytes", "B"),
    ("octets", "B"),
    ("k", "KiB"),
    ("kb", "KiB"),
    ("mb", "MiB"),
    ("gb", "GiB"),
];

impl Family {
    fn unit_names(&self) -> String {
        let names: Vec<_> = self.units.iter().rev().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    fn error(&self, text: &str, why: &str) -> QuantityError {
        QuantityError(format!(
            "{text:?} is not {}: {why}; write it as \"{}\" (units: {})",
            self.what,
            self.example,
            self.unit_names()
        ))
    }

    fn unknown_unit(&self, text: &str, unit: &str) -> QuantityError {
        let known = |name: &str| {
            self.units.iter().find(|(valid, _)| *valid == name).map(|(valid, _)| *valid)
        };
        let lower = unit.to_lowercase();
        let meant = HINTS
            .iter()
            .filter(|(seen, _)| *seen == lower)
            .find_map(|(_, meant)| known(meant))
            .or_else(|| {
                self.units
                    .iter()
                    .find(|(name, _)| name.to_lowercase() == lower)
                    .map(|(name, _)| *name)
            });
        match meant {
            Some(meant) => {
                self.error(text, &format!("unit {unit:?} is not known here, write `{meant}`"))
            }
            None => self.error(text, &format!("unit {unit:?} is not known here")),
        }
    }

    /// Exact decimal arithmetic: `digits * factor / 10^decimals` must be whole and fit.
    fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let trimmed = text.trim();
        let end = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let unit = unit.trim_start();
        if number.is_empty() {
            let why = if unit.starts_with('-') {
                "it is negative"
            } else {
                "it does not begin with a number"
            };
            return Err(self.error(text, why));
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: String = whole.chars().chain(fraction.chars()).filter(|c| *c != '_').collect();
        let decimals = fraction.chars().filter(|c| *c != '_').count();
        let malformed =
            digits.is_empty() || digits.contains('.') || (number.contains('.') && decimals == 0);
        if malformed || whole.is_empty() {
            return Err(self.error(text, &format!("{number:?} is not a number")));
        }
        if unit.is_empty() {
            return Err(self.error(text, "its unit is missing"));
        }
        let factor = self
            .units
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| self.unknown_unit(text, unit))?;
        let too_large = || self.error(text, "it is too large");
        let scaled = digits
            .parse::<u128>()
            .map_err(|_too_many_digits| too_large())?
            .checked_mul(u128::from(factor))
            .ok_or_else(too_large)?;
        let divisor = u32::try_from(decimals).ok().and_then(|n| 10_u128.checked_pow(n));
        let divisor = divisor.ok_or_else(|| self.error(text, "it has too many decimals"))?;
        if scaled % divisor != 0 {
            let base = self.units[self.units.len() - 1].0;
            return Err(self.error(text, &format!("it is not a whole number of {base}")));
        }
        u64::try_from(scaled / divisor).map_err(|_too_large| too_large())
    }

    /// The largest unit in which the value is whole, or has at most three decimals where the units
    /// are decimal.
    fn text(&self, value: u64) -> String {
        if value == 0 {
            return self.zero.to_owned();
        }
        let decimal = self.units[0].1 == 1_000_000_000;
        let parts = if decimal { 1_000 } else { 1 };
        for (name, factor) in self.units {
            let thousandths = u128::from(value) * parts;
            let factor = u128::from(*factor);
            let reached = u128::from(value) >= factor;
            if reached && thousandths % factor == 0 {
                let (whole, rest) = (thousandths / factor / parts, thousandths / factor % parts);
                let decimals = format!(".{rest:03}");
                let decimals = if rest == 0 { "" } else { decimals.trim_end_matches('0') };
                return format!("{whole}{decimals}{name}");
            }
        }
        format!("{value}{}", self.units[self.units.len() - 1].0)
    }
}

/// A rate: `100Mbit/s`, `1.5 Gbit/s`. Units: bit/s, kbit/s, Mbit/s, Gbit/s (powers of ten).
///
/// # Errors
/// Not a number with one of these units, or more than 2^64 - 1 bit/s.
pub fn parse_rate(text: &str) -> Result<BitRate, QuantityError> {
    RATE.parse(text).map(BitRate)
}

/// A length of time: `10us`, `4.5us`, `25s`. Units: ns, us, ms, s.
///
/// # Errors
/// Not a number with one of these units, not a whole number of nanoseconds, or more than 2^64 - 1
/// ns.
pub fn parse_time(text: &str) -> Result<Nanos, QuantityError> {
    TIME.parse(text).map(Nanos)
}

/// A number of bytes: `1500B`, `64KiB`. Units: B, KiB, MiB, GiB (powers of 1024).
///
/// # Errors
/// Not a number with one of these units, not a whole number of bytes, or more than 2^64 - 1 bytes.
pub fn parse_size(text: &str) -> Result<Bytes, QuantityError> {
    SIZE.parse(text).map(Bytes)
}

/// A text that [`parse_rate`] reads as exactly this rate: in the largest fitting unit.
#[must_use]
pub fn rate_text(rate: BitRate) -> String {
    RATE.text(rate.0)
}

/// A text that [`parse_time`] reads as exactly this time: in the largest fitting unit.
#[must_use]
pub fn time_text(time: Nanos) -> String {
    TIME.text(time.0)
}

/// A text that [`parse_size`] reads as exactly this size: in the largest fitting unit.
#[must_use]
pub fn size_text(size: Bytes) -> String {
    SIZE.text(size.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(parse_time("4.5us"), Ok(Nanos(4_500)));
        assert_eq!(parse_time(" 12.5 s "), Ok(Nanos(12_500_000_000)));
        assert_eq!(parse_rate("1.5 Gbit/s"), Ok(BitRate(1_500_000_000)));
        assert_eq!(parse_rate("100Mbit/s"), Ok(BitRate::from_mbps(100)));
        assert_eq!(parse_size("64KiB"), Ok(Bytes(65_536)));
        assert_eq!(parse_size("1.5KiB"), Ok(Bytes(1_536)));
        assert!(parse_time("0.1ns").unwrap_err().0.contains("whole number of ns"));
    }

    #[test]
    fn a_wrong_unit_names_the_right_ones() {
        let mbps = parse_rate("100Mbps").unwrap_err().0;
        assert!(
            mbps.contains("write `Mbit/s`") && mbps.contains("bit/s, kbit/s, Mbit/s, Gbit/s"),
            "{mbps}"
        );
        assert!(parse_time("10µs").unwrap_err().0.contains("write `us`"));
        assert!(parse_time("10").unwrap_err().0.contains("unit is missing"));
        assert!(parse_time("-1s").unwrap_err().0.contains("negative"));
        assert!(parse_time("10Mbit/s").unwrap_err().0.contains("ns, us, ms, s"));
        assert!(parse_size("64kb").unwrap_err().0.contains("write `KiB`"));
        for bad in [
            "",
            ".",
            "1.",
            ".5s",
            "1.2.3s",
            "s",
            "1e3s",
            "99999999999999999999999999999999999999999s",
        ] {
            assert!(parse_time(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn texts_use_the_largest_whole_unit() {
        assert_eq!(time_text(Nanos(4_500)), "4.5us");
        assert_eq!(time_text(Nanos(12_500_000_000)), "12.5s");
        assert_eq!(time_text(Nanos(1_000_000_001)), "1000000.001us");
        assert_eq!(time_text(Nanos(0)), "0s");
        assert_eq!(time_text(Nanos::from_secs(25)), "25s");
        assert_eq!(rate_text(BitRate::from_mbps(45)), "45Mbit/s");
        assert_eq!(size_text(Bytes(65_536)), "64KiB");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: u64) {
            prop_assert_eq!(parse_time(&time_text(Nanos(value))), Ok(Nanos(value)));
            prop_assert_eq!(parse_rate(&rate_text(BitRate(value))), Ok(BitRate(value)));
            prop_assert_eq!(parse_size(&size_text(Bytes(value))), Ok(Bytes(value)));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (parse_time(&text), parse_rate(&text), parse_size(&text));
        }

        #[test]
        fn no_near_miss_panics(number in "[0-9._]{0,45}", unit in "[ a-zA-Z/µ]{0,7}") {
            let text = format!("{number}{unit}");
            let _ = (parse_time(&text), parse_rate(&text), parse_size(&text));
        }
    }
}
