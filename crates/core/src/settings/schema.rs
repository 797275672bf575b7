//! How a table of keys is declared: name, kind, range, default, meaning. One declaration drives the
//! reading of files, their errors, JSON schemas and the generated reference (crate `evenkeel-settings`).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::quantity::{rate_text, size_text, time_text};
use crate::units::{BitRate, Bytes, Nanos};

/// A TOML table: what may stand in it.
#[derive(Debug)]
pub struct Section {
    /// How it is written in a file, for the reference: `[[port]]`, `shaper = { … }`.
    pub heading: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// Its keys, in the order of the reference.
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug)]
pub struct Key {
    /// As in the file.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it may be left out, and what that means.
    pub presence: Presence,
    /// What it is for: a sentence or two.
    pub doc: &'static str,
}

impl Key {
    /// One that may not be left out.
    #[must_use]
    pub const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, presence: Presence::Required, doc }
    }

    /// One that has `value`, given as in a file, if it is left out.
    #[must_use]
    pub const fn defaulted(name: &'static str, kind: Kind, value: &'static str, doc: &'static str) -> Self {
        Self { name, kind, presence: Presence::Default(value), doc }
    }

    /// One that may be left out; `absent` says what then.
    #[must_use]
    pub const fn optional(name: &'static str, kind: Kind, absent: &'static str, doc: &'static str) -> Self {
        Self { name, kind, presence: Presence::Optional(absent), doc }
    }
}

/// Whether a key may be left out.
#[derive(Clone, Copy, Debug)]
pub enum Presence {
    /// It may not.
    Required,
    /// Then it has this value, given as in a file.
    Default(&'static str),
    /// Then what these words say.
    Optional(&'static str),
}

/// What a key holds. Ranges include both ends.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
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
    /// A transport protocol, by name or number.
    Protocol,
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
    /// One of these for each class: a table by class names, or one value for all classes. Classes not named have the
    /// default, given as in a file.
    ByClass(&'static Kind, &'static str),
    /// Anything; read by whoever knows it. The words say what.
    Foreign(&'static str),
}

impl Kind {
    /// What must be written, for messages: `a length of time such as "10us" (units: ns, us, ms, s)`.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Name(most) => {
                format!("a name (a letter, then letters, digits, `-`, `_`, `.`; at most {most} characters)")
            }
            Self::Interface => {
                "the name of a network interface (1 to 15 bytes, no `/`, `:` or space)".to_owned()
            }
            Self::Path => "the path of a file".to_owned(),
            Self::Switch => "`true` or `false`".to_owned(),
            Self::Integer { .. } => format!("a whole number, {}", self.range()),
            Self::Number { .. } => format!("a number, {}", self.range()),
            Self::Time { .. } => "a length of time such as \"10us\" (units: ns, us, ms, s)".to_owned(),
            Self::Rate { .. } => {
                "a rate such as \"100Mbit/s\" (units: bit/s, kbit/s, Mbit/s, Gbit/s)".to_owned()
            }
            Self::Size { .. } => "a size such as \"1500B\" (units: B, KiB, MiB, GiB)".to_owned(),
            Self::Choice(words) => format!("one of {}", choices(words)),
            Self::Prefix => "an IP prefix such as \"10.0.1.0/24\" or \"2001:db8::/32\"".to_owned(),
            Self::Protocol => {
                "a protocol: \"udp\", \"tcp\", \"icmp\", \"icmpv6\" or its number, 0 to 255".to_owned()
            }
            Self::Ports => "a port or a range of ports such as \"5000-5010\", within 0 to 65535".to_owned(),
            Self::List(of) => format!("a list, each {}", of.expected()),
            Self::Table(section) => format!("a table {}", section.heading),
            Self::Tables { section, .. } => format!("tables {}", section.heading),
            Self::Variants(variants) => {
                let kinds: Vec<_> = variants.iter().map(|(kind, _)| format!("\"{kind}\"")).collect();
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
            Self::Text => "text".to_owned(),
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
            Self::Protocol => "protocol".to_owned(),
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
            Self::Integer { min, max, unit } => format!("{min} to {max} {unit}").trim_end().to_owned(),
            Self::Number { min, max } => format!("{min} to {max}"),
            Self::Time { min, max } => format!("{} to {}", time_text(*min), time_text(*max)),
            Self::Rate { min, max } => format!("{} to {}", rate_text(*min), rate_text(*max)),
            Self::Size { min, max } => format!("{} to {}", size_text(*min), size_text(*max)),
            Self::Choice(words) => choices(words),
            Self::Protocol => "`\"udp\"`, `\"tcp\"`, `\"icmp\"`, `\"icmpv6\"`, 0 to 255".to_owned(),
            Self::Ports => "0 to 65535".to_owned(),
            Self::List(of) | Self::ByClass(of, _) => of.range(),
            Self::Tables { min, max, .. } => format!("{min} to {max} of them"),
            Self::Variants(variants) => {
                let kinds: Vec<_> = variants.iter().map(|(kind, _)| format!("kind = `\"{kind}\"`")).collect();
                kinds.join(", ")
            }
            Self::Text | Self::Path | Self::Prefix | Self::Table(_) | Self::Foreign(_) => String::new(),
        }
    }
}

fn choices(words: &[(&str, &str)]) -> String {
    let quoted: Vec<_> = words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
    quoted.join(", ")
}

impl Section {
    /// The key with this name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}
