//! Values of settings, and the types that can be held by one.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::quantity::{rate_text, size_text, time_text};
use super::schema::Kind;
use crate::packet::Class;
use crate::units::{BitRate, Bytes, Cycles, Nanos, Ppm, Weight};

/// What a setting holds, whatever its type in Rust.
#[derive(Clone, Debug, PartialEq)]
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
    /// A text or word.
    Text(String),
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

impl Value {
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
            Self::PerClass { rest, own } if own.iter().all(|one| one == &**rest) => rest.inline(classes),
            Self::PerClass { rest, own } => {
                let of = |class: usize| own.get(class).unwrap_or(rest).inline(classes);
                let named = classes.iter().enumerate().map(|(at, class)| format!("{class:?} = {}", of(at)));
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
            other => other.inline(classes),
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

    /// What a value says; `None`: it is of another type.
    fn from_value(value: &Value) -> Option<Self>;

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
    Ppm: Number, Kind::Number { min: 0.0, max: 1.0 }, |v: Ppm| f64::from(v.0) / 1e6,
        |v: f64| Some(Ppm((v * 1e6 + 0.5) as u32));
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
}
