//! Why a setting was not changed. Nothing changed.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::RangeInclusive;

use super::schema::Key;
use super::value::Value;
use crate::packet::Class;

/// Why a setting was not changed. Nothing changed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SettingError {
    /// There is no such setting.
    NoSuchSetting {
        /// The name asked for.
        key: &'static str,
        /// Whose settings were looked at: a discipline's name.
        of: &'static str,
    },
    /// There is no such class.
    NoSuchClass {
        /// The class asked for.
        class: Class,
        /// How many classes there are.
        classes: u16,
    },
    /// A class was named, but the setting is of the whole link.
    NotOfAClass {
        /// The setting.
        key: &'static str,
    },
    /// The value lies outside of the valid range.
    OutOfRange {
        /// The setting.
        key: &'static str,
        /// The value asked for, with its unit.
        value: String,
        /// The valid range, with its unit.
        valid: String,
    },
    /// The value is not of the setting's type.
    WrongType {
        /// The setting.
        key: &'static str,
        /// What must be written.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The setting has no meaning beside another one as it is.
    OnlyWith {
        /// The setting.
        key: &'static str,
        /// The other setting.
        other: &'static str,
        /// What the other one must be: one of these.
        words: &'static [&'static str],
    },
    /// The setting cannot change while the router runs.
    Fixed {
        /// The setting.
        key: &'static str,
    },
    /// The setting changes with the whole file only.
    ByReload {
        /// The setting.
        key: &'static str,
    },
    /// The settings do not fit each other.
    Contradiction {
        /// The setting; empty: all of the table.
        key: &'static str,
        /// What does not fit, and what would.
        message: String,
    },
    /// A table that is the value of a setting is wrong.
    Within {
        /// The setting.
        table: &'static str,
        /// Which of its tables, from 0, where it has several.
        at: Option<usize>,
        /// What is wrong in there.
        error: Box<SettingError>,
    },
}

impl SettingError {
    /// The same of a table that is the value of the setting `key`.
    #[must_use]
    pub fn within(self, key: &'static str) -> Self {
        match self {
            Self::Within { table: "", at, error } => Self::Within { table: key, at, error },
            error => Self::Within { table: key, at: None, error: error.into() },
        }
    }

    /// The same of one of several tables; [`within`](Self::within) says of which setting.
    pub(super) fn of_item(self, at: usize) -> Self {
        Self::Within { table: "", at: Some(at), error: self.into() }
    }

    /// The value is not of the type that `key` declares.
    pub(super) fn wrong_type(key: &Key, value: &Value) -> Self {
        Self::WrongType { key: key.name, expected: key.kind.expected(), found: value.inline(&[]) }
    }
}

impl From<crate::OutOfRange> for SettingError {
    fn from(error: crate::OutOfRange) -> Self {
        let crate::OutOfRange { key, value, min, max, unit } = error;
        let told = |text: String| String::from(text.trim_end());
        let valid = told(format!("{min} to {max} {unit}"));
        Self::OutOfRange { key, value: told(format!("{value} {unit}")), valid }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSetting { key, of } => write!(f, "{of} has no {key}"),
            Self::NoSuchClass { class, classes } => {
                write!(f, "no class {class}: classes are 0 to {}", classes.saturating_sub(1))
            }
            Self::NotOfAClass { key } => write!(f, "{key} is of the whole link, not of a class"),
            Self::OutOfRange { key, value, valid } => {
                write!(f, "{key}: {value} is out of range; valid: {valid}")
            }
            Self::WrongType { key, expected, found } => {
                write!(f, "{key}: expected {expected}, found {found}")
            }
            Self::OnlyWith { key, other, words } => {
                write!(f, "{key}: only together with {other} = \"{}\"", words.join("\" or \""))
            }
            Self::Fixed { key } => write!(f, "{key} cannot change while the router runs"),
            Self::ByReload { key } => write!(f, "{key} changes by reload only"),
            Self::Contradiction { key: "", message } => f.write_str(message),
            Self::Within { table, at, error } => {
                f.write_str(table)?;
                at.map_or(Ok(()), |at| write!(f, "[{at}]"))?;
                let whole = matches!(**error, Self::Contradiction { key: "", .. });
                write!(f, "{}{error}", if whole { ": " } else { "." })
            }
            Self::Contradiction { key, message } => write!(f, "{key}: {message}"),
        }
    }
}

impl core::error::Error for SettingError {}

/// Refuses a `value` outside of `range`.
pub(crate) fn in_range(
    key: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
    unit: &'static str,
) -> Result<(), SettingError> {
    if range.contains(&value) {
        return Ok(());
    }
    let space = if unit.is_empty() { "" } else { " " };
    let valid = format!("{} to {}{space}{unit}", range.start(), range.end());
    Err(SettingError::OutOfRange { key, value: format!("{value}{space}{unit}"), valid })
}
