//! Single values: from TOML to what a key holds, with the error text if it is not that.

use evenkeel_core::{ParsePrefixError, Prefix};

use crate::diagnostic::ValueError;
use crate::read::{Value, nearest};
use crate::tree::Data;
use evenkeel_core::settings::names::number_of;
use evenkeel_core::settings::quantity::{
    parse_rate, parse_size, parse_time, rate_text, size_text, time_text,
};
use evenkeel_core::settings::schema::Kind;

/// Converts a single value and checks its range.
pub fn scalar(kind: &Kind, value: &Data) -> Result<Value, ValueError> {
    let wrong = || ValueError(format!("expected {}, found {}", kind.expected(), value.found()));
    let text = || value.as_text().ok_or_else(wrong);
    match kind {
        Kind::Text => Ok(Value::Text(text()?.to_owned())),
        Kind::Form(_, fits) => text_if(text()?, fits).ok_or_else(wrong),
        // What it is instead is not repeated: messages end up in logs.
        Kind::Secret(form, fits) => value
            .as_text()
            .and_then(|text| text_if(text, fits))
            .ok_or_else(|| ValueError(format!("expected {form}"))),
        Kind::Path => path(text()?),
        Kind::Name(most) => text_if(text()?, |text| is_name(text, *most)).ok_or_else(wrong),
        Kind::Interface => text_if(text()?, is_interface).ok_or_else(wrong),
        Kind::Switch => match value {
            Data::Switch(switch) => Ok(Value::Switch(*switch)),
            _ => Err(wrong()),
        },
        Kind::Integer { min, max, .. } => match value {
            Data::Integer(number) => match u64::try_from(*number) {
                Ok(number) => ranged(kind, number, (min, max), |n| n.to_string(), Value::Integer),
                Err(_negative) => Err(out_of_range(kind, &number.to_string())),
            },
            _ => Err(wrong()),
        },
        Kind::Number { min, max } => {
            let number = match value {
                Data::Integer(number) => *number as f64,
                Data::Number(number) => *number,
                _ => return Err(wrong()),
            };
            ranged(kind, number, (min, max), |n| n.to_string(), Value::Number)
        }
        Kind::Time { min, max } => {
            ranged(kind, parse_time(text()?)?, (min, max), time_text, Value::Time)
        }
        Kind::Rate { min, max } => {
            ranged(kind, parse_rate(text()?)?, (min, max), rate_text, Value::Rate)
        }
        Kind::Size { min, max } => {
            ranged(kind, parse_size(text()?)?, (min, max), size_text, Value::Size)
        }
        Kind::Choice(words) => choice(kind, words, text()?),
        Kind::Prefix => prefix(text()?),
        Kind::Address => match prefix(text()?)? {
            Value::Prefix(host) if host.is_host() => Ok(Value::Text(host.address().to_string())),
            Value::Prefix(network) => {
                Err(ValueError(format!("{network} is a network, not one address")))
            }
            _ => Err(wrong()),
        },
        Kind::Named { names, max, .. } => {
            let number = named(value, names).ok_or_else(wrong)?;
            match u64::try_from(number) {
                Ok(number) if number <= u64::from(*max) => Ok(Value::Integer(number)),
                _ => Err(ValueError(format!("{number} is out of range; valid: 0 to {max}"))),
            }
        }
        Kind::Ports => ports(value).ok_or_else(wrong),
        Kind::List(_)
        | Kind::Table(_)
        | Kind::Tables { .. }
        | Kind::Variants(_)
        | Kind::ByClass(..)
        | Kind::Foreign(_) => Err(wrong()),
    }
}

fn text_if(text: &str, fits: impl Fn(&str) -> bool) -> Option<Value> {
    fits(text).then(|| Value::Text(text.to_owned()))
}

/// A value that must lie in the range of its kind. `shown` writes it for the error.
fn ranged<T: Copy + PartialOrd>(
    kind: &Kind,
    value: T,
    (min, max): (&T, &T),
    shown: fn(T) -> String,
    held: fn(T) -> Value,
) -> Result<Value, ValueError> {
    if value >= *min && value <= *max {
        Ok(held(value))
    } else {
        Err(out_of_range(kind, &shown(value)))
    }
}

fn out_of_range(kind: &Kind, value: &str) -> ValueError {
    ValueError(format!("{value} is out of range; valid: {}", kind.range()))
}

fn choice(kind: &Kind, words: &[(&str, &str)], word: &str) -> Result<Value, ValueError> {
    let valid = || words.iter().map(|(valid, _)| *valid);
    if valid().any(|valid| valid == word) {
        return Ok(Value::Text(word.to_owned()));
    }
    let near = nearest(word, valid());
    let hint = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    Err(ValueError(format!("expected {}, found {word:?}{hint}", kind.expected())))
}

fn path(text: &str) -> Result<Value, ValueError> {
    match text {
        "" => Err(ValueError("the path is empty".to_owned())),
        path if path.contains('\0') => Err(ValueError("a path cannot hold a zero byte".to_owned())),
        path => Ok(Value::Text(path.to_owned())),
    }
}

/// Whether Linux takes it as the name of a network interface.
fn is_interface(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && !text.contains(|c: char| "/:\0".contains(c) || c.is_whitespace())
}

fn is_name(text: &str, most: usize) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let goes_on = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    begins && goes_on && text.len() <= most
}

fn prefix(text: &str) -> Result<Value, ValueError> {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let (written, len) = Prefix::split(text).map_err(|error| match error {
        ParsePrefixError::Address => ValueError(format!(
            "expected {}, found {text:?}: {address:?} is no IP address",
            Kind::Prefix.expected()
        )),
        ParsePrefixError::Length { most } => {
            ValueError(format!("{length:?} is no prefix length; valid: 0 to {most}"))
        }
    })?;
    let prefix =
        Prefix::new(written, len).ok_or_else(|| ValueError(format!("{text:?} is no prefix")))?;
    if prefix.address() != written {
        let message = format!("{text:?} has bits behind its prefix; did you mean \"{prefix}\"?");
        return Err(ValueError(message));
    }
    Ok(Value::Prefix(prefix))
}

/// The number that is told, also by its name.
fn named(value: &Data, names: &[(&str, u8)]) -> Option<i128> {
    match value {
        // Numbers from a command line are texts.
        Data::Text(text) => {
            number_of(names, text).map_or_else(|| text.parse().ok(), |n| Some(n.into()))
        }
        Data::Integer(number) => Some(*number),
        _ => None,
    }
}

fn ports(value: &Data) -> Option<Value> {
    let range = match value {
        Data::Text(text) => match text.split_once('-') {
            Some((first, last)) => first.trim().parse().ok()?..=last.trim().parse().ok()?,
            None => {
                let port: u16 = text.trim().parse().ok()?;
                port..=port
            }
        },
        Data::Integer(number) => {
            let port = u16::try_from(*number).ok()?;
            port..=port
        }
        _ => return None,
    };
    (!range.is_empty()).then_some(Value::Ports(range))
}
