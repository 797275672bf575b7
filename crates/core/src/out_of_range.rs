//! A value outside its range, with what is valid.

use core::fmt;

/// A value lies outside of its valid range. Nothing changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfRange {
    /// The key in configuration files.
    pub key: &'static str,
    /// The value asked for, in `unit`.
    pub value: u64,
    /// The smallest valid value.
    pub min: u64,
    /// The largest valid value.
    pub max: u64,
    /// The unit of all three; empty for plain numbers.
    pub unit: &'static str,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, min, max, unit } = self;
        let space = if unit.is_empty() { "" } else { " " };
        write!(f, "{key} {value}{space}{unit} is out of range: {min} to {max}{space}{unit}")
    }
}

impl core::error::Error for OutOfRange {}

/// Whether `value` is from `min` to `max`, in `unit`.
pub(crate) fn within(
    key: &'static str,
    value: u64,
    (min, max, unit): (u64, u64, &'static str),
) -> Result<(), OutOfRange> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(OutOfRange { key, value, min, max, unit })
    }
}
