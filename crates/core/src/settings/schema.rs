//! How a table of keys is declared: name, kind, range, default, meaning. One declaration drives the
//! reading of files, their errors, JSON schemas and the generated reference (crate
//! `evenkeel-settings`).

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::error::SettingError;
use super::quantity::{rate_text, size_text, time_text};
use super::value::Value;
use crate::units::{BitRate, Bytes, Nanos};

/// A TOML table: what may stand in it.
#[derive(Debug)]
pub struct Section {
    /// How it is written in a file, for the reference: `[[port]]`, `shaper = { … }`.
    pub heading: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// Its own keys, in the order of the reference.
    pub own: &'static [Key],
    /// Groups of keys that it has in common with other tables.
    pub parts: &'static [&'static Section],
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As in the file.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it may be left out, and what that means.
    pub presence: Presence,
    /// What it is for: a sentence or two.
    pub doc: &'static str,
    /// When it can change.
    pub change: Change,
    /// Another key that must hold one of these words; else this one has no meaning.
    pub with: Option<(&'static str, &'static [&'static str])>,
    /// A key that cannot stand beside this one: setting one takes the other away.
    pub instead_of: Option<&'static str>,
}

/// When a setting can change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// While packets flow.
    Live,
    /// Only with a restart, or together with all of its table.
    Fixed,
    /// With the whole file.
    Reload,
    /// It is not a setting of something that runs.
    Untold,
}

impl Key {
    /// One that may not be left out.
    #[must_use]
    pub const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self::with_presence(name, kind, Presence::Required, doc)
    }

    /// One that has `value`, given as in a file, if it is left out.
    #[must_use]
    pub const fn defaulted(
        name: &'static str,
        kind: Kind,
        value: &'static str,
        doc: &'static str,
    ) -> Self {
        Self::with_presence(name, kind, Presence::Default(value), doc)
    }

    /// One that may be left out; `absent` says what then.
    #[must_use]
    pub const fn optional(
        name: &'static str,
        kind: Kind,
        absent: &'static str,
        doc: &'static str,
    ) -> Self {
        Self::with_presence(name, kind, Presence::Optional(absent), doc)
    }

    const fn with_presence(
        name: &'static str,
        kind: Kind,
        presence: Presence,
        doc: &'static str,
    ) -> Self {
        Self { name, kind, presence, doc, change: Change::Untold, with: None, instead_of: None }
    }

    /// Whether each class has a value of its own.
    #[must_use]
    pub const fn is_per_class(&self) -> bool {
        matches!(self.kind, Kind::ByClass(..))
    }

    /// Whether a value is of the right type and in its range.
    ///
    /// # Errors
    /// [`SettingError::WrongType`], [`SettingError::OutOfRange`].
    pub fn admits(&self, value: &Value) -> Result<(), SettingError> {
        match (value, self.presence) {
            (Value::Absent, Presence::Required | Presence::Default(_)) => {
                Err(SettingError::wrong_type(self, value))
            }
            (Value::Absent, _) => Ok(()),
            _ => self.kind.admits(self, value),
        }
    }
}

/// Whether a key may be left out.
#[derive(Clone, Copy, Debug)]
pub enum Presence {
    /// It may not.
    Required,
    /// Then it has this value, given as in a file.
    Default(&'static str),
    /// Then it has this value.
    Made(fn() -> Value),
    /// Then what these words say.
    Optional(&'static str),
}

impl Presence {
    /// What a key that was left out has, as in a file; `None`: nothing.
    #[must_use]
    pub fn default_text(self) -> Option<Cow<'static, str>> {
        match self {
            Self::Default(text) => Some(text.into()),
            Self::Made(value) => Some(value().inline(&[]).into()),
            Self::Required | Self::Optional(_) => None,
        }
    }
}

/// What a key holds. Ranges include both ends.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text of a form that these words tell, and whether one has it: `the address of a station`.
    Form(&'static str, fn(&str) -> bool),
    /// As [`Form`](Self::Form); what it says is shown nowhere.
    Secret(&'static str, fn(&str) -> bool),
    /// A name: a letter, then letters, digits, `-`, `_`, `.`; at most this many characters.
    Name(usize),
    /// The name of a network interface: 1 to 15 bytes without `/`, `:` and white space.
    Interface,
    /// A path of a file.
    Path,
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Integer {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
        /// What is counted; may be empty.
        unit: &'static str,
    },
    /// A number with or without decimals.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A length of time with its unit.
    Time {
        /// Shortest.
        min: Nanos,
        /// Longest.
        max: Nanos,
    },
    /// A rate with its unit.
    Rate {
        /// Slowest.
        min: BitRate,
        /// Fastest.
        max: BitRate,
    },
    /// A number of bytes with its unit.
    Size {
        /// Smallest.
        min: Bytes,
        /// Largest.
        max: Bytes,
    },
    /// One of these words; each with its meaning.
    Choice(&'static [(&'static str, &'static str)]),
    /// An IP prefix, or an address for one host.
    Prefix,
    /// An IP address.
    Address,
    /// A number, which may be told by its name.
    Named {
        /// What it is of: `a protocol`.
        what: &'static str,
        /// Names that are told; lower case.
        names: &'static [(&'static str, u8)],
        /// The largest number.
        max: u8,
    },
    /// A port or a range of ports.
    Ports,
    /// A list of these; one that stands alone is a list of one.
    List(&'static Kind),
    /// A table.
    Table(&'static Section),
    /// A list of tables.
    Tables {
        /// What each holds.
        section: &'static Section,
        /// Fewest.
        min: usize,
        /// Most.
        max: usize,
    },
    /// A table whose key `kind` says which of these it is.
    Variants(&'static [(&'static str, &'static Section)]),
    /// One of these for each class: a table by class names, or one value for all classes. Classes
    /// not named have the default.
    ByClass(&'static Kind, Presence),
    /// Anything; read by the code that knows it. The words say what.
    Foreign(&'static str),
}

impl Kind {
    /// What must be written, for messages:
    /// `a length of time such as "10us" (units: ns, us, ms, s)`.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Form(form, _) | Self::Secret(form, _) => (*form).to_owned(),
            Self::Name(most) => {
                format!(
                    "a name (a letter, then letters, digits, `-`, `_`, `.`; at most {most} \
                     characters)"
                )
            }
            Self::Interface => {
                "the name of a network interface (1 to 15 bytes, no `/`, `:` or space)".to_owned()
            }
            Self::Path => "the path of a file".to_owned(),
            Self::Switch => "`true` or `false`".to_owned(),
            Self::Integer { .. } => format!("a whole number, {}", self.range()),
            Self::Number { .. } => format!("a number, {}", self.range()),
            Self::Time { .. } => {
                "a length of time such as \"10us\" (units: ns, us, ms, s)".to_owned()
            }
            Self::Rate { .. } => {
                "a rate such as \"100Mbit/s\" (units: bit/s, kbit/s, Mbit/s, Gbit/s)".to_owned()
            }
            Self::Size { .. } => "a size such as \"1500B\" (units: B, KiB, MiB, GiB)".to_owned(),
            Self::Choice(words) => format!("one of {}", choices(words)),
            Self::Prefix => "an IP prefix such as \"10.0.1.0/24\" or \"2001:db8::/32\"".to_owned(),
            Self::Address => "an IP address such as \"10.0.1.1\" or \"2001:db8::1\"".to_owned(),
            Self::Named { what, names, max } => {
                let some = names.iter().take(4).map(|(name, _)| format!("\"{name}\""));
                let some: Vec<_> = some.collect();
                format!("{what}: its number, 0 to {max}, or a name such as {}", some.join(", "))
            }
            Self::Ports => {
                "a port or a range of ports such as \"5000-5010\", within 0 to 65535".to_owned()
            }
            Self::List(of) => format!("a list, each {}", of.expected()),
            Self::Table(section) => format!("a table {}", section.heading),
            Self::Tables { section, .. } => format!("tables {}", section.heading),
            Self::Variants(variants) => {
                let kinds: Vec<_> =
                    variants.iter().map(|(kind, _)| format!("\"{kind}\"")).collect();
                format!("a table with `kind`: one of {}", kinds.join(", "))
            }
            Self::ByClass(of, _) => {
                format!("for all classes, or in a table by class name, {}", of.expected())
            }
            Self::Foreign(what) => (*what).to_owned(),
        }
    }

    /// The type and unit, for the reference.
    #[must_use]
    pub fn shape(&self) -> String {
        match self {
            Self::Text | Self::Form(..) | Self::Secret(..) => "text".to_owned(),
            Self::Name(_) => "name".to_owned(),
            Self::Interface => "interface".to_owned(),
            Self::Path => "path".to_owned(),
            Self::Switch => "switch".to_owned(),
            Self::Integer { unit: "", .. } => "whole number".to_owned(),
            Self::Integer { unit, .. } => format!("whole number of {unit}"),
            Self::Number { .. } => "number".to_owned(),
            Self::Time { .. } => "time".to_owned(),
            Self::Rate { .. } => "rate".to_owned(),
            Self::Size { .. } => "size".to_owned(),
            Self::Choice(_) => "word".to_owned(),
            Self::Prefix => "IP prefix".to_owned(),
            Self::Address => "IP address".to_owned(),
            Self::Named { .. } => "number or name".to_owned(),
            Self::Ports => "port or range".to_owned(),
            Self::List(of) => format!("list of {}", of.shape()),
            Self::Table(_) | Self::Variants(_) => "table".to_owned(),
            Self::Tables { .. } => "tables".to_owned(),
            Self::ByClass(of, _) => format!("{}, for all classes or by class name", of.shape()),
            Self::Foreign(what) => (*what).to_owned(),
        }
    }

    /// The valid range in words; empty where there is none to tell.
    #[must_use]
    pub fn range(&self) -> String {
        match self {
            Self::Name(most) => format!("1 to {most} characters"),
            Self::Interface => "1 to 15 bytes".to_owned(),
            Self::Switch => "`true`, `false`".to_owned(),
            Self::Integer { min, max, unit } => {
                format!("{min} to {max} {unit}").trim_end().to_owned()
            }
            Self::Number { min, max } => format!("{min} to {max}"),
            Self::Time { min, max } => format!("{} to {}", time_text(*min), time_text(*max)),
            Self::Rate { min, max } => format!("{} to {}", rate_text(*min), rate_text(*max)),
            Self::Size { min, max } => format!("{} to {}", size_text(*min), size_text(*max)),
            Self::Choice(words) => choices(words),
            Self::Named { names, max, .. } => {
                let all: Vec<_> = names.iter().map(|(name, _)| format!("`\"{name}\"`")).collect();
                format!("0 to {max}, {}", all.join(", "))
            }
            Self::Ports => "0 to 65535".to_owned(),
            Self::List(of) | Self::ByClass(of, _) => of.range(),
            Self::Tables { min, max, .. } => format!("{min} to {max} of them"),
            Self::Variants(variants) => {
                let kinds: Vec<_> =
                    variants.iter().map(|(kind, _)| format!("kind = `\"{kind}\"`")).collect();
                kinds.join(", ")
            }
            Self::Form(form, _) | Self::Secret(form, _) => (*form).to_owned(),
            Self::Text
            | Self::Path
            | Self::Prefix
            | Self::Address
            | Self::Table(_)
            | Self::Foreign(_) => String::new(),
        }
    }
}

fn choices(words: &[(&str, &str)]) -> String {
    let quoted: Vec<_> = words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
    quoted.join(", ")
}

/// A value and its range as texts with their units.
fn out_of_range(key: &Key, kind: &Kind, value: &Value) -> SettingError {
    SettingError::OutOfRange { key: key.name, value: value.plain(&[]), valid: kind.range() }
}

impl Kind {
    /// The same with other bounds, in the base unit. Kinds without bounds stay as they are.
    #[must_use]
    pub const fn within(self, min: u64, max: u64) -> Self {
        match self {
            Self::Integer { unit, .. } => Self::Integer { min, max, unit },
            Self::Time { .. } => Self::Time { min: Nanos(min), max: Nanos(max) },
            Self::Rate { .. } => Self::Rate { min: BitRate(min), max: BitRate(max) },
            Self::Size { .. } => Self::Size { min: Bytes(min), max: Bytes(max) },
            Self::Tables { section, .. } => {
                Self::Tables { section, min: min as usize, max: max as usize }
            }
            other => other,
        }
    }

    /// A list of these.
    #[must_use]
    pub const fn list(of: &'static Self) -> Self {
        match of {
            Self::Table(section) => Self::Tables { section, min: 0, max: usize::MAX },
            _ => Self::List(of),
        }
    }

    /// The same with other bounds of a number with decimals.
    #[must_use]
    pub const fn between(self, min: f64, max: f64) -> Self {
        match self {
            Self::Number { .. } => Self::Number { min, max },
            other => other,
        }
    }

    /// The same with the name of what is counted.
    #[must_use]
    pub const fn counting(self, unit: &'static str) -> Self {
        match self {
            Self::Integer { min, max, .. } => Self::Integer { min, max, unit },
            other => other,
        }
    }

    fn admits(&self, key: &Key, value: &Value) -> Result<(), SettingError> {
        let inside = match (self, value) {
            (Self::Integer { min, max, .. }, Value::Integer(number)) => {
                (min..=max).contains(&number)
            }
            (Self::Number { min, max }, Value::Number(number)) => number >= min && number <= max,
            (Self::Time { min, max }, Value::Time(time)) => (min..=max).contains(&time),
            (Self::Rate { min, max }, Value::Rate(rate)) => (min..=max).contains(&rate),
            (Self::Size { min, max }, Value::Size(size)) => (min..=max).contains(&size),
            (Self::Choice(words), Value::Text(_) | Value::Word(_)) => {
                words.iter().any(|(known, _)| value.as_text() == Some(known))
            }
            (Self::Switch, Value::Switch(_)) => true,
            (
                Self::Text
                | Self::Name(_)
                | Self::Interface
                | Self::Path
                | Self::Prefix
                | Self::Address
                | Self::Ports,
                Value::Text(_),
            ) => true,
            (Self::Form(_, fits), Value::Text(text)) => fits(text),
            // What it is instead is not told: messages end up in logs.
            (Self::Secret(_, fits), Value::Text(text)) if !fits(text) => {
                return Err(out_of_range(key, self, &Value::Word("a secret")));
            }
            (Self::Secret(..), Value::Text(_)) => true,
            (Self::Named { max, .. }, Value::Integer(number)) => *number <= (*max).into(),
            (Self::Tables { section, min, max }, Value::List(tables)) => {
                if !(min..=max).contains(&&tables.len()) {
                    return Err(out_of_range(key, self, &Value::Integer(tables.len() as u64)));
                }
                let of = |(at, one): (usize, &Value)| match one {
                    Value::Table(entries) => {
                        let admitted = section.admits(entries);
                        admitted.map_err(|error| error.of_item(at).within(key.name))
                    }
                    other => Err(SettingError::wrong_type(key, other)),
                };
                return tables.iter().enumerate().try_for_each(of);
            }
            (Self::List(of), Value::List(items)) => {
                return items.iter().try_for_each(|item| of.admits(key, item));
            }
            (Self::Table(section), Value::Table(entries)) => {
                return section.admits(entries).map_err(|error| error.within(key.name));
            }
            (Self::Variants(variants), Value::Table(entries)) => {
                let kind = value.kind();
                match variants.iter().find(|(name, _)| Some(*name) == kind) {
                    Some((_, section)) => {
                        return section.admits(entries).map_err(|error| error.within(key.name));
                    }
                    None => return Err(SettingError::wrong_type(key, value)),
                }
            }
            (Self::ByClass(of, _), Value::PerClass { rest, own }) => {
                own.iter().try_for_each(|one| of.admits(key, one))?;
                return of.admits(key, rest);
            }
            (Self::ByClass(of, _), one) => return of.admits(key, one),
            _ => return Err(SettingError::wrong_type(key, value)),
        };
        if inside { Ok(()) } else { Err(out_of_range(key, self, value)) }
    }
}

impl Section {
    /// A table of these keys.
    #[must_use]
    pub const fn new(heading: &'static str, doc: &'static str, own: &'static [Key]) -> Self {
        Self { heading, doc, own, parts: &[] }
    }

    /// All its keys, in the order of the reference.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let (own, parts) = (self.own, self.parts);
        // Parts may have parts, but those have none.
        let of = |part: &'static &'static Self| {
            part.own.iter().chain(part.parts.iter().flat_map(|inner| inner.own))
        };
        own.iter().chain(parts.iter().flat_map(of))
    }

    /// The key with this name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// Whether the values of these keys are of the right type and in their range.
    fn admits(&self, entries: &[(&str, Value)]) -> Result<(), SettingError> {
        let known = |(name, value): &(&str, Value)| self.key(name).map(|key| key.admits(value));
        entries.iter().filter_map(known).collect()
    }

    /// What its table is called in messages: its kind where it is one of several, else its heading.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let quoted = self.heading.split('"').nth(1);
        quoted.unwrap_or(self.heading)
    }
}
