//! Rates, times and sizes in text: `100Mbit/s`, `4.5us`, `1500B`.
//!
//! A number, optional space, a unit. The unit is never left out and never guessed.

use evenkeel_core::{BitRate, Bytes, Nanos};
use thiserror::Error;

/// Why a text is not a quantity. The message names the valid units.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct QuantityError(pub String);

/// A rate: `100Mbit/s`, `1.5 Gbit/s`. Units: bit/s, kbit/s, Mbit/s, Gbit/s (powers of ten).
pub fn parse_rate(text: &str) -> Result<BitRate, QuantityError> {
    todo!("{text}")
}

/// A length of time: `10us`, `4.5us`, `25s`. Units: ns, us, ms, s.
pub fn parse_time(text: &str) -> Result<Nanos, QuantityError> {
    todo!("{text}")
}

/// A number of bytes: `1500B`, `64KiB`. Units: B, KiB, MiB, GiB.
pub fn parse_size(text: &str) -> Result<Bytes, QuantityError> {
    todo!("{text}")
}

/// The shortest text that [`parse_rate`] reads as exactly this rate.
#[must_use]
pub fn rate_text(rate: BitRate) -> String {
    todo!("{rate}")
}

/// The shortest text that [`parse_time`] reads as exactly this time.
#[must_use]
pub fn time_text(time: Nanos) -> String {
    todo!("{time}")
}

/// The shortest text that [`parse_size`] reads as exactly this size.
#[must_use]
pub fn size_text(size: Bytes) -> String {
    todo!("{size}")
}
