//! What is noted, as it stands in the file: JSON, compressed.

use std::io::{Read as _, Write as _};

use evenkeel_control::rates::RouterRates;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Longest content when unpacked: a router with as many links and classes as can be told.
const LONGEST: u64 = 16 << 20;
/// Digits that are kept of a rate.
const DIGITS: i32 = 6;

/// Something that happened: a change, an alarm.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Happened {
    /// When, ms since 1970.
    pub time_ms: u64,
    /// `change`; of an alarm `raised` or `cleared`.
    pub kind: String,
    /// What, in words.
    pub text: String,
}

/// A window with as many digits as anybody reads.
pub(crate) fn rounded(rates: &RouterRates) -> Value {
    let mut value = serde_json::to_value(rates).expect("rates are plain data");
    round(&mut value);
    value
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(exact) = number.as_f64().filter(|_| number.is_f64()) {
                *value = nearest(exact);
            }
        }
        Value::Array(inside) => inside.iter_mut().for_each(round),
        Value::Object(inside) => inside.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn nearest(exact: f64) -> Value {
    if exact == 0.0 {
        return Value::from(0);
    }
    let scale = 10_f64.powi(DIGITS - 1 - exact.abs().log10().floor() as i32);
    let near = (exact * scale).round() / scale;
    // A whole number is shorter without its point, and read as well.
    if near.fract() == 0.0 && near.abs() < 1e15 {
        return Value::from(near as i64);
    }
    Number::from_f64(near).map_or(Value::Null, Value::Number)
}

pub(crate) fn packed<T: Serialize>(what: &T) -> Vec<u8> {
    let text = serde_json::to_vec(what).expect("what is noted is plain data");
    let mut packer = DeflateEncoder::new(Vec::new(), Compression::default());
    packer.write_all(&text).and_then(|()| packer.finish()).expect("memory takes everything")
}

pub(crate) fn unpacked<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    let mut text = Vec::new();
    DeflateDecoder::new(content).take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Milliseconds since 1970 as RFC 3339 writes them, in UTC: `2026-01-31T08:09:10Z`. Days are
/// counted from the first of March, so that a leap day is the last of its year.
#[must_use]
pub fn rfc3339(time_ms: u64) -> String {
    let seconds = time_ms / 1_000;
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // date -u -d @N +%FT%TZ
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_795_516_628, "2026-11-24T10:37:08Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000 + 999), text);
        }
    }

    #[test]
    fn rates_keep_six_digits() {
        let near = |exact| nearest(exact).to_string();
        assert_eq!(near(19_234_567.891), "19234600");
        assert_eq!(near(0.123_456_789), "0.123457");
        assert_eq!((near(0.0), near(-1.5)), ("0".to_owned(), "-1.5".to_owned()));
    }
}
