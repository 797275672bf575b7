//! Single values: from TOML to what a key holds, with the error text if it is not that.

use evenkeel_core::{ParsePrefixError, Prefix};

use crate::diagnostic::ValueError;
use crate::read::{Value, nearest};
use crate::tree::Data;
use evenkeel_core::settings::quantity::{
    parse_rate, parse_size, parse_time, rate_text, size_text, time_text,
};
use evenkeel_core::settings::schema::Kind;

/// Protocols that have a name in configuration files.
pub const PROTOCOLS: &[(&str, u8)] = &[("icmp", 1), ("tcp", 6), ("udp", 17), ("icmpv6", 58)];

/// Converts a single value and checks its range.
pub fn scalar(kind: &Kind, value: &Data) -> Result<Value, ValueError> {
    let text = value.as_text();
    let wrong = || ValueError(format!("expected {}, found {}", kind.expected(), value.found()));
    let text_or_wrong = || text.ok_or_else(wrong);
    match kind {
        Kind::Text => Ok(Value::Text(text_or_wrong()?.to_owned())),
        Kind::Form(_, fits) => match text_or_wrong()? {
            text if fits(text) => Ok(Value::Text(text.to_owned())),
            _ => Err(wrong()),
        },
        // What it is instead is not repeated: messages end up in logs.
        Kind::Secret(form, fits) => match text.filter(|text| fits(text)) {
            Some(text) => Ok(Value::Text(text.to_owned())),
            None => Err(ValueError(format!("expected {form}"))),
        },
        Kind::Path => match text_or_wrong()? {
            "" => Err(ValueError("the path is empty".to_owned())),
            path if path.contains('\0') => {
                Err(ValueError("a path cannot hold a zero byte".to_owned()))
            }
            path => Ok(Value::Text(path.to_owned())),
        },
        Kind::Name(most) => name(text_or_wrong()?, *most).ok_or_else(wrong),
        Kind::Interface => {
            let name = text_or_wrong()?;
            let valid = (1..=15).contains(&name.len())
                && name != "."
                && name != ".."
                && !name.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace());
            if valid { Ok(Value::Text(name.to_owned())) } else { Err(wrong()) }
        }
        Kind::Switch => match value {
            Data::Switch(switch) => Ok(Value::Switch(*switch)),
            _ => Err(wrong()),
        },
        Kind::Integer { min, max, .. } => {
            let Data::Integer(number) = value else { return Err(wrong()) };
            within(u64::try_from(*number).ok(), *min, *max)
                .map(Value::Integer)
                .ok_or_else(|| out_of_range(kind, &number.to_string()))
        }
        Kind::Number { min, max } => {
            let number = match value {
                Data::Integer(number) => *number as f64,
                Data::Number(number) => *number,
                _ => return Err(wrong()),
            };
            within(Some(number), *min, *max)
                .map(Value::Number)
                .ok_or_else(|| out_of_range(kind, &number.to_string()))
        }
        Kind::Time { min, max } => {
            let time = parse_time(text_or_wrong()?)?;
            within(Some(time), *min, *max)
                .map(Value::Time)
                .ok_or_else(|| out_of_range(kind, &time_text(time)))
        }
        Kind::Rate { min, max } => {
            let rate = parse_rate(text_or_wrong()?)?;
            within(Some(rate), *min, *max)
                .map(Value::Rate)
                .ok_or_else(|| out_of_range(kind, &rate_text(rate)))
        }
        Kind::Size { min, max } => {
            let size = parse_size(text_or_wrong()?)?;
            within(Some(size), *min, *max)
                .map(Value::Size)
                .ok_or_else(|| out_of_range(kind, &size_text(size)))
        }
        Kind::Choice(words) => {
            let word = text_or_wrong()?;
            if words.iter().any(|(valid, _)| *valid == word) {
                return Ok(Value::Text(word.to_owned()));
            }
            let near = nearest(word, words.iter().map(|(valid, _)| *valid));
            let hint = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
            Err(ValueError(format!("expected {}, found {word:?}{hint}", kind.expected())))
        }
        Kind::Prefix => prefix(text_or_wrong()?),
        Kind::Address => match prefix(text_or_wrong()?)? {
            Value::Prefix(host) if host.is_host() => Ok(Value::Text(host.address().to_string())),
            Value::Prefix(network) => {
                Err(ValueError(format!("{network} is a network, not one address")))
            }
            _ => Err(wrong()),
        },
        Kind::Protocol => protocol(value).map(Value::Protocol).ok_or_else(wrong),
        Kind::Ports => ports(value).ok_or_else(wrong),
        Kind::List(_)
        | Kind::Table(_)
        | Kind::Tables { .. }
        | Kind::Variants(_)
        | Kind::ByClass(..)
        | Kind::Foreign(_) => Err(wrong()),
    }
}

fn within<T: PartialOrd>(value: Option<T>, min: T, max: T) -> Option<T> {
    value.filter(|value| *value >= min && *value <= max)
}

fn out_of_range(kind: &Kind, value: &str) -> ValueError {
    ValueError(format!("{value} is out of range; valid: {}", kind.range()))
}

fn name(text: &str, most: usize) -> Option<Value> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let goes_on = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (begins && goes_on && text.len() <= most).then(|| Value::Text(text.to_owned()))
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

fn protocol(value: &Data) -> Option<u8> {
    match value {
        Data::Text(text) => {
            PROTOCOLS.iter().find(|(name, _)| name == text).map(|(_, number)| *number)
        }
        Data::Integer(number) => u8::try_from(*number).ok(),
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
