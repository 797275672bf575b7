//! Texts of arguments, read as what they mean.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::link::{FramingConfig, LinkConfig, Overhead};
use evenkeel_core::settings::Settings as _;
use evenkeel_core::settings::quantity::{QuantityError, parse_rate, parse_time};
use evenkeel_core::{BitRate, Bytes, Nanos};

/// Why the text of an argument is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("expected PORT=FILE")]
    Capture,
    #[error("expected a number: {0}")]
    Number(#[from] std::num::ParseFloatError),
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    #[error("expected a number of bytes, 1 to 256, or one of {0}")]
    Overhead(String),
    #[error("{text} is out of range: {range}")]
    OutOfRange { text: String, range: &'static str },
}

impl ArgumentError {
    /// `value`, which `text` says, if it is within a range; `range` says which.
    pub(crate) fn within<T>(
        value: T,
        text: &str,
        valid: bool,
        range: &'static str,
    ) -> Result<T, Self> {
        if valid { Ok(value) } else { Err(Self::OutOfRange { text: text.to_owned(), range }) }
    }
}

/// A port and the file for its frames.
pub(crate) fn capture(text: &str) -> Result<(String, PathBuf), ArgumentError> {
    let (port, file) = text.split_once('=').ok_or(ArgumentError::Capture)?;
    Ok((port.to_owned(), file.into()))
}

/// A rate that a link can have.
pub(crate) fn rate(text: &str) -> Result<BitRate, ArgumentError> {
    let rate = parse_rate(text)?;
    let valid = (LinkConfig::MIN_RATE..=LinkConfig::MAX_RATE).contains(&rate);
    ArgumentError::within(rate, text, valid, "1 kbit/s to 1 Tbit/s")
}

/// The delay of a wire that somebody would make a first scenario with.
pub(crate) fn one_way(text: &str) -> Result<Nanos, ArgumentError> {
    let delay = parse_time(text)?;
    ArgumentError::within(delay, text, delay <= Nanos::from_millis(100), "0s to 100ms")
}

/// What a line adds to a packet: a word of router.toml, or bytes.
pub(crate) fn overhead(text: &str) -> Result<FramingConfig, ArgumentError> {
    if let Ok(bytes) = text.parse() {
        let framing = FramingConfig {
            overhead: Overhead::Bytes,
            overhead_bytes: Bytes(bytes),
            overhead_least: Bytes::ZERO,
            ..FramingConfig::default()
        };
        return ArgumentError::within(framing, text, framing.check().is_ok(), "1 to 256 bytes");
    }
    match Overhead::from_name(text) {
        Some(overhead) if overhead != Overhead::Bytes => {
            Ok(FramingConfig { overhead, ..FramingConfig::default() })
        }
        _ => {
            let words = Overhead::ALL.iter().filter(|line| **line != Overhead::Bytes);
            let words: Vec<_> = words.map(|line| line.name()).collect();
            Err(ArgumentError::Overhead(words.join(", ")))
        }
    }
}

/// How long something is for; people say minutes, hours and days.
pub(crate) fn while_it_lasts(text: &str) -> Result<Duration, ArgumentError> {
    let units = [("min", 60), ("h", 3_600), ("d", 86_400)];
    let whole = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(*seconds).map(Duration::from_secs)
    });
    let time = match whole {
        Some(time) => time,
        None => Duration::from_nanos(parse_time(text)?.0),
    };
    let valid = (Duration::from_secs(1)..=Duration::from_secs(365 * 86_400)).contains(&time);
    ArgumentError::within(time, text, valid, "1s, 30min, 2h, to 365d")
}

/// How long a start may wait for its confirmation.
pub(crate) fn confirmation(text: &str) -> Result<Duration, ArgumentError> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    let valid = (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&time);
    ArgumentError::within(time, text, valid, "1 s to an hour")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_while_is_said_as_people_say_it() {
        let seconds = |text| while_it_lasts(text).map(|time| time.as_secs()).ok();
        for (text, wanted) in [("90s", 90), ("30min", 1_800), ("2 h", 7_200), ("3d", 259_200)] {
            assert_eq!(seconds(text), Some(wanted), "{text}");
        }
        for text in ["0h", "h", "-1h", "366d", "99999999999999999999h", "18446744073709551615d"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
