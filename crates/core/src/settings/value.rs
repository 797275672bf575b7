//! Values of settings, and the types that can be held by one.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use super::Faults;
use super::quantity::{rate_text, size_text, time_text};
use super::schema::Kind;
use crate::packet::Class;
use crate::prefix::Prefix;
use crate::units::{BitRate, Bytes, Cycles, Fraction, Nanos, Ppm, Thousandths, Weight};

/// What a setting holds, whatever its type in Rust.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing: a setting that may be left out was.
    Absent,
    /// `true` or `false`.
    Switch(bool),
    /// A whole number.
    Integer(u64),
    /// A number.
    Number(f64),
    /// A length of time.
    Time(Nanos),
    /// A rate.
    Rate(BitRate),
    /// A size.
    Size(Bytes),
    /// A text.
    Text(String),
    /// A word of an enum. As a file has it, it may be a text as well.
    Word(&'static str),
    /// Several.
    List(Vec<Value>),
    /// A table of settings, by name.
    Table(Vec<(&'static str, Value)>),
    /// One for each class: the first have their own, all others have `rest`.
    PerClass {
        /// Of the classes after the first.
        rest: Box<Value>,
        /// Of the first classes.
        own: Vec<Value>,
    },
}

/// A word is the text that stands for it.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) => true,
            (Self::Switch(a), Self::Switch(b)) => a == b,
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::Time(a), Self::Time(b)) => a == b,
            (Self::Rate(a), Self::Rate(b)) => a == b,
            (Self::Size(a), Self::Size(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            // The order of keys says nothing.
            (Self::Table(a), Self::Table(b)) => {
                a.len() == b.len() && a.iter().all(|entry| b.contains(entry))
            }
            (Self::PerClass { rest: a, own }, Self::PerClass { rest: b, own: others }) => {
                a == b && own == others
            }
            (a, b) => a.as_text().is_some() && a.as_text() == b.as_text(),
        }
    }
}

impl Value {
    /// A text or word.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Word(word) => Some(word),
            _other => None,
        }
    }

    /// As it stands in a file, on one line; classes by `classes`, their names.
    #[must_use]
    pub fn inline(&self, classes: &[&str]) -> String {
        match self {
            Self::Absent => "none".to_owned(),
            Self::Switch(switch) => switch.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Time(time) => format!("\"{}\"", time_text(*time)),
            Self::Rate(rate) => format!("\"{}\"", rate_text(*rate)),
            Self::Size(size) => format!("\"{}\"", size_text(*size)),
            Self::Text(text) => format!("{text:?}"),
            Self::Word(word) => format!("{word:?}"),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|item| item.inline(classes)).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Table(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .filter(|(_, value)| *value != Self::Absent)
                    .map(|(key, value)| format!("{key} = {}", value.inline(classes)))
                    .collect();
                format!("{{ {} }}", entries.join(", "))
            }
            Self::PerClass { rest, own } if own.iter().all(|one| one == &**rest) => {
                rest.inline(classes)
            }
            Self::PerClass { rest, own } => {
                let of = |class: usize| own.get(class).unwrap_or(rest).inline(classes);
                let named =
                    classes.iter().enumerate().map(|(at, class)| format!("{class:?} = {}", of(at)));
                let named: Vec<_> = named.collect();
                format!("{{ {} }}", named.join(", "))
            }
        }
    }

    /// As it is said on a command line: as in a file, a text without its quotes.
    #[must_use]
    pub fn plain(&self, classes: &[&str]) -> String {
        match self {
            Self::Time(time) => time_text(*time),
            Self::Rate(rate) => rate_text(*rate),
            Self::Size(size) => size_text(*size),
            Self::Text(text) => text.clone(),
            Self::Word(word) => (*word).to_owned(),
            other => other.inline(classes),
        }
    }

    /// Which of several tables it is.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Table(entries) => entries.iter().find_map(|entry| match entry {
                (super::KIND, Self::Text(kind)) => Some(kind.as_str()),
                _ => None,
            }),
            _ => None,
        }
    }

    /// What it holds for one class.
    #[must_use]
    pub fn of_class(&self, class: usize) -> &Self {
        match self {
            Self::PerClass { rest, own } => own.get(class).unwrap_or(rest),
            same_for_all => same_for_all,
        }
    }
}

/// A type that a setting can hold.
pub trait Held: Sized {
    /// What is written in a file, over the type's whole range.
    const KIND: Kind;
    /// Whether each class has a value of its own.
    const PER_CLASS: bool = false;

    /// The value.
    fn to_value(&self) -> Value;

    /// The value, of one class where the type has one for each.
    fn value_of(&self, _class: Option<Class>) -> Value {
        self.to_value()
    }

    /// What a value says; `None`: it is of another type.
    fn from_value(value: &Value) -> Option<Self>;

    /// What does not fit together, where it is a table or several.
    fn faults(&self) -> Faults {
        Faults::new()
    }

    /// Takes over a value, for one class where the type has one for each. Whether it could.
    fn take(&mut self, class: Option<Class>, value: &Value) -> bool {
        match Self::from_value(value).filter(|_| class.is_none()) {
            Some(new) => {
                *self = new;
                true
            }
            None => false,
        }
    }
}

impl<T: Held> From<T> for Value {
    fn from(value: T) -> Self {
        value.to_value()
    }
}

/// Types that are one variant of [`Value`].
macro_rules! held {
    ($($ty:ty: $variant:ident, $kind:expr, $to:expr, $from:expr;)+) => {
        $(impl Held for $ty {
            const KIND: Kind = $kind;

            fn to_value(&self) -> Value {
                Value::$variant($to(*self))
            }

            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => $from(*value),
                    _ => None,
                }
            }
        })+
    };
}

const fn whole(max: u64, unit: &'static str) -> Kind {
    Kind::Integer { min: 0, max, unit }
}

/// A number in parts of `1 / one`; `None`: it cannot be told so.
fn fixed(number: f64, one: f64) -> Option<u32> {
    let parts = number * one + 0.5;
    (parts >= 0.0 && parts <= f64::from(u32::MAX)).then_some(parts as u32)
}

/// The largest whole number of a TOML file.
const MOST: u64 = i64::MAX as u64;

held! {
    bool: Switch, Kind::Switch, |v: bool| v, Some;
    u8: Integer, whole(u8::MAX as u64, ""), u64::from, |v: u64| u8::try_from(v).ok();
    u16: Integer, whole(u16::MAX as u64, ""), u64::from, |v: u64| u16::try_from(v).ok();
    u32: Integer, whole(u32::MAX as u64, ""), u64::from, |v: u64| u32::try_from(v).ok();
    u64: Integer, whole(MOST, ""), |v: u64| v, Some;
    Weight: Integer, whole(u32::MAX as u64, ""), |v: Weight| v.0.into(),
        |v: u64| u32::try_from(v).ok().map(Weight);
    Cycles: Integer, whole(MOST, "cycles"), |v: Cycles| v.0, |v: u64| Some(Cycles(v));
    Nanos: Time, Kind::Time { min: Nanos::ZERO, max: Nanos::MAX }, |v: Nanos| v, Some;
    BitRate: Rate, Kind::Rate { min: BitRate::ZERO, max: BitRate::MAX }, |v: BitRate| v, Some;
    Bytes: Size, Kind::Size { min: Bytes::ZERO, max: Bytes::MAX }, |v: Bytes| v, Some;
    f64: Number, Kind::Number { min: f64::MIN, max: f64::MAX }, |v: f64| v, Some;
    Thousandths: Number, Kind::Number { min: 0.0, max: 1_000.0 },
        |v: Thousandths| f64::from(v.0) / 1e3,
        |v: f64| fixed(v, 1e3).map(Thousandths);
    Fraction: Number, Kind::Number { min: 0.0, max: 1.0 },
        |v: Fraction| shortest(f64::from(v.0) / 65_536.0, |n| fixed(n, 65_536.0) == Some(v.0)),
        |v: f64| fixed(v, 65_536.0).map(Fraction);
    Ppm: Number, Kind::Number { min: 0.0, max: 1.0 }, |v: Ppm| f64::from(v.0) / 1e6,
        |v: f64| fixed(v, 1e6).map(Ppm);
}

/// The number with the fewest decimals, up to nine, that `is_same`; otherwise the exact one.
pub(crate) fn shortest(exact: f64, is_same: impl Fn(f64) -> bool) -> f64 {
    let powers = core::iter::successors(Some(1.0), |power| Some(power * 10.0)).take(10);
    let mut rounded = powers.map(|power: f64| ((exact * power + 0.5) as u64) as f64 / power);
    rounded.find(|number| is_same(*number)).unwrap_or(exact)
}

/// Types that are a text in files.
macro_rules! held_as_text {
    ($($ty:ty: $kind:expr, $from:expr;)+) => {
        $(impl Held for $ty {
            const KIND: Kind = $kind;

            fn to_value(&self) -> Value {
                Value::Text(self.to_string())
            }

            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::Text(text) => $from(text),
                    _ => None,
                }
            }
        })+
    };
}

/// A name: of a port, say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Name(pub String);

impl Name {
    /// Most characters.
    pub const LENGTH: usize = 32;
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

held_as_text! {
    Name: Kind::Name(Self::LENGTH), |text: &String| Some(Self(text.clone()));
    String: Kind::Text, |text: &String| Some(text.clone());
    Prefix: Kind::Prefix, |text: &String| text.parse().ok();
    IpAddr: Kind::Address, |text: &String| text.parse().ok();
}

/// A range of ports, both ends included.
impl Held for RangeInclusive<u16> {
    const KIND: Kind = Kind::Ports;

    fn to_value(&self) -> Value {
        Value::Text(format!("{}-{}", self.start(), self.end()))
    }

    fn from_value(value: &Value) -> Option<Self> {
        let (first, last) = value.as_text()?.split_once('-')?;
        Some(first.parse().ok()?..=last.parse().ok()?)
    }
}

/// Several; none at all is as if the setting were left out.
impl<T: Held> Held for Vec<T> {
    const KIND: Kind = Kind::list(&T::KIND);

    fn to_value(&self) -> Value {
        match self.as_slice() {
            [] => Value::Absent,
            items => Value::List(items.iter().map(Held::to_value).collect()),
        }
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Absent => Some(Self::new()),
            Value::List(items) => items.iter().map(T::from_value).collect(),
            one => T::from_value(one).map(|one| alloc::vec![one]),
        }
    }

    fn faults(&self) -> Faults {
        let of = |(at, item): (usize, &T)| {
            let faults = item.faults().into_iter();
            faults.map(move |fault| fault.of_item(at)).collect::<Faults>()
        };
        self.iter().enumerate().flat_map(of).collect()
    }
}

/// A setting that may be left out.
impl<T: Held> Held for Option<T> {
    const KIND: Kind = T::KIND;

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Absent, Held::to_value)
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Absent => Some(None),
            value => T::from_value(value).map(Some),
        }
    }

    fn faults(&self) -> Faults {
        self.as_ref().map_or_else(Faults::new, Held::faults)
    }
}
