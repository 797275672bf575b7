//! Settings: what can be told to an algorithm, declared once beside it.
//!
//! [`settings!`](crate::settings!) declares a struct of settings: name, type with unit, range,
//! default, live or fixed, meaning. From it come the struct, its `Default`, checks, access by key
//! and the [`Section`] from which crate `evenkeel-settings` reads and writes files, JSON schemas
//! and reference pages, and `evenkeel ctl set` its names and help. [`words!`](crate::words!) does
//! the same for enums. A setting that is added is added in one place.
//!
//! ```
//! use evenkeel_core::settings::{Change, Settings};
//! use evenkeel_core::{Bytes, settings, words};
//!
//! words! {
//!     /// Which packet goes when the buffer is full.
//!     pub enum Victim {
//!         /// The first.
//!         #[default]
//!         Head = "head",
//!         /// The last.
//!         Tail = "tail",
//!     }
//! }
//! settings! {
//!     /// What a queue is told.
//!     #[derive(Copy)]
//!     pub struct QueueConfig: "queue = { … }" {
//!         /// Most bytes that wait.
//!         live limit: Bytes = Bytes(65_536), in 1_500..=1_048_576;
//!         /// Which packet goes when it is full.
//!         fixed victim: Victim = Victim::Head;
//!     }
//! }
//!
//! let mut config = QueueConfig::default();
//! config.set(&Change::new("limit", Bytes(3_000)), 1)?;
//! assert_eq!(config.limit, Bytes(3_000));
//! let refused = config.set(&Change::new("limit", Bytes(1)), 1).unwrap_err();
//! assert_eq!(refused.to_string(), "limit: 1B is out of range; valid: 1500B to 1MiB");
//! assert!(config.set_live(&Change::new("victim", Victim::Tail), 1).is_err());
//! # Ok::<(), evenkeel_core::settings::SettingError>(())
//! ```

mod declare;
mod error;
pub mod names;
mod per_class;
pub mod quantity;
pub mod schema;
mod value;

use alloc::vec::Vec;

use crate::packet::Class;
pub use declare::Trimmed;
pub use error::SettingError;
pub(crate) use error::in_range;
pub use per_class::PerClass;
pub use schema::{Change as ChangeTime, Key, Kind, Presence, Section};
pub(crate) use value::shortest;
pub use value::{Held, Name, Value};

/// A new value for one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The setting's name.
    pub key: &'static str,
    /// The class it is for; `None`: all, or the setting is of no class.
    pub class: Option<Class>,
    /// The value.
    pub value: Value,
}

impl Change {
    /// A change of a setting as a whole; for one that each class has: of all classes.
    #[must_use]
    pub fn new(key: &'static str, value: impl Into<Value>) -> Self {
        Self { key, class: None, value: value.into() }
    }

    /// A change of a setting for one class.
    #[must_use]
    pub fn of(key: &'static str, class: Class, value: impl Into<Value>) -> Self {
        Self { key, class: Some(class), value: value.into() }
    }
}

/// What does not fit each other; none at all takes no memory.
pub type Faults = Vec<SettingError>;

/// A struct that [`settings!`](crate::settings!) declares.
pub trait Settings: Clone + Default + PartialEq {
    /// The declaration.
    const SECTION: &'static Section;

    /// What a setting holds; `None`: there is no such setting.
    fn get(&self, key: &str) -> Option<Value> {
        self.get_of(key, None)
    }

    /// As [`get`](Self::get), of one class where the setting has a value for each.
    fn get_of(&self, key: &str, class: Option<Class>) -> Option<Value>;

    /// Takes over a value, whatever its range. Whether it has the right type, and a class only
    /// where the setting takes one; `None`: there is no such setting.
    fn put(&mut self, key: &str, class: Option<Class>, value: &Value) -> Option<bool>;

    /// All that does not fit each other, also within tables.
    fn faults(&self) -> Faults {
        Faults::new()
    }

    /// Whether the settings fit each other.
    ///
    /// # Errors
    /// The first of the [`faults`](Self::faults) if not.
    fn consistent(&self) -> Result<(), SettingError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Whether the setting that this one needs is as it must be: its declaration may say `with`.
    fn goes_with(&self, key: &Key) -> bool {
        key.with.is_none_or(|(other, words)| {
            let held = self.get(other);
            held.as_ref().and_then(Value::as_text).is_some_and(|word| words.contains(&word))
        })
    }

    /// Whether the setting has a meaning beside the others as they are.
    fn applies(&self, key: &Key) -> bool {
        let replaced = |rival| self.get(rival).is_some_and(|value| value != Value::Absent);
        self.goes_with(key) && !key.instead_of.is_some_and(replaced)
    }

    /// The settings that have a meaning and a value.
    fn entries(&self) -> Vec<(&'static Key, Value)> {
        let keys = Self::SECTION.keys().filter(|key| self.applies(key));
        let held = keys.map(|key| (key, self.get(key.name).unwrap_or(Value::Absent)));
        held.filter(|(_, value)| *value != Value::Absent).collect()
    }

    /// Whether every value lies in its range and all fit each other.
    ///
    /// # Errors
    /// For the first that does not.
    fn check(&self) -> Result<(), SettingError> {
        for key in Self::SECTION.keys() {
            let value = self.get(key.name).unwrap_or(Value::Absent);
            key.admits(&value)?;
        }
        self.consistent()
    }

    /// Makes a change, or changes nothing. `classes`: how many classes there are.
    ///
    /// # Errors
    /// No such setting or class, wrong type, out of range, or a contradiction.
    fn set(&mut self, change: &Change, classes: u16) -> Result<(), SettingError> {
        let key = Self::SECTION.key(change.key).ok_or_else(|| SettingError::NoSuchSetting {
            key: change.key,
            of: Self::SECTION.name(),
        })?;
        if change.class.is_some() && !key.is_per_class() {
            return Err(SettingError::NotOfAClass { key: key.name });
        }
        if let Some(class) = change.class.filter(|class| class.0 >= classes) {
            return Err(SettingError::NoSuchClass { class, classes });
        }
        key.admits(&change.value)?;
        if let Some((other, words)) = key.with.filter(|_| !self.goes_with(key)) {
            return Err(SettingError::OnlyWith { key: key.name, other, words });
        }
        // What stood there is put back if it does not fit: a copy of all would allocate.
        let before = self.get_of(key.name, change.class).unwrap_or(Value::Absent);
        let rival = key.instead_of.map(|rival| (rival, self.get(rival).unwrap_or(Value::Absent)));
        if self.put(key.name, change.class, &change.value) != Some(true) {
            return Err(SettingError::wrong_type(key, &change.value));
        }
        let fits = self.consistent();
        if fits.is_err() {
            self.put(key.name, change.class, &before);
            rival.and_then(|(rival, value)| self.put(rival, None, &value));
        }
        fits
    }

    /// As [`set`](Self::set), for settings that change while packets flow.
    ///
    /// # Errors
    /// As [`set`](Self::set), and [`SettingError::Fixed`].
    fn set_live(&mut self, change: &Change, classes: u16) -> Result<(), SettingError> {
        match Self::SECTION.key(change.key) {
            Some(key) if key.change == ChangeTime::Fixed => {
                Err(SettingError::Fixed { key: key.name })
            }
            Some(key) if key.change == ChangeTime::Reload => {
                Err(SettingError::ByReload { key: key.name })
            }
            _ => self.set(change, classes),
        }
    }

    /// Whether `wanted` leaves what is fixed as it is.
    ///
    /// # Errors
    /// [`SettingError::Fixed`] if not.
    fn keeps_fixed(&self, wanted: &Self) -> Result<(), SettingError> {
        let mut fixed = Self::SECTION.keys().filter(|key| key.change == ChangeTime::Fixed);
        match fixed.find(|key| self.get(key.name) != wanted.get(key.name)) {
            Some(key) => Err(SettingError::Fixed { key: key.name }),
            None => Ok(()),
        }
    }
}

/// Settings as a value: a table within another one.
#[must_use]
pub fn table_of<S: Settings>(settings: &S) -> Value {
    let held = |key: &Key| (key.name, settings.get(key.name).unwrap_or(Value::Absent));
    let keys = S::SECTION.keys().filter(|key| settings.applies(key));
    Value::Table(keys.map(held).collect())
}

/// As [`table_of`], of a table that is one of several.
#[must_use]
pub fn table_of_kind<S: Settings>(kind: &'static str, settings: &S) -> Value {
    let mut entries = alloc::vec![(KIND, Value::Text(kind.into()))];
    if let Value::Table(own) = table_of(settings) {
        entries.extend(own);
    }
    Value::Table(entries)
}

/// The key that says which of several tables one is.
pub const KIND: &str = "kind";

/// The settings that a table says, the rest by default; `None`: a value is of another type.
#[must_use]
pub fn from_table<S: Settings>(value: &Value) -> Option<S> {
    let Value::Table(entries) = value else { return None };
    let mut settings = S::default();
    let mut given = entries.iter().filter(|(key, value)| *key != KIND && *value != Value::Absent);
    given.all(|(key, value)| settings.put(key, None, value) == Some(true)).then_some(settings)
}

#[cfg(test)]
mod tests;
