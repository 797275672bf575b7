//! A value for each class.

use alloc::vec::Vec;

use super::schema::Kind;
use super::value::{Held, Value};
use crate::packet::Class;

/// A value for each class: the first classes may have values of their own, all others one in
/// common.
#[derive(Clone, Debug)]
pub struct PerClass<T> {
    /// What classes have that have none of their own.
    rest: T,
    /// Values of the first classes.
    own: Vec<T>,
}

impl<T: Copy + PartialEq> PerClass<T> {
    /// The same for all classes.
    #[must_use]
    pub const fn all(value: T) -> Self {
        Self { rest: value, own: Vec::new() }
    }

    /// These for the first classes, `rest` for all others.
    #[must_use]
    pub fn new(own: impl Into<Vec<T>>, rest: T) -> Self {
        Self { rest, own: own.into() }
    }

    /// The value of a class.
    #[must_use]
    pub fn get(&self, class: usize) -> T {
        self.own.get(class).copied().unwrap_or(self.rest)
    }

    /// What classes have that have none of their own.
    #[must_use]
    pub const fn rest(&self) -> T {
        self.rest
    }

    /// The values of the first `classes` classes.
    pub fn first(&self, classes: usize) -> impl Iterator<Item = T> + '_ {
        (0..classes).map(|class| self.get(class))
    }

    /// A value for one class.
    pub fn set(&mut self, class: Class, value: T) {
        let rest = self.rest;
        if self.own.len() <= class.index() {
            self.own.resize(class.index() + 1, rest);
        }
        self.own[class.index()] = value;
    }

    /// The same with `change` made to every value.
    #[must_use]
    pub fn map<U: Copy + PartialEq>(&self, change: impl Fn(T) -> U) -> PerClass<U> {
        PerClass { rest: change(self.rest), own: self.own.iter().map(|own| change(*own)).collect() }
    }
}

/// They are equal if every class has the same.
impl<T: Copy + PartialEq> PartialEq for PerClass<T> {
    fn eq(&self, other: &Self) -> bool {
        let classes = self.own.len().max(other.own.len());
        self.rest == other.rest && self.first(classes).eq(other.first(classes))
    }
}

impl<T: Copy + Eq> Eq for PerClass<T> {}

impl<T: Held + Copy + PartialEq> Held for PerClass<T> {
    const KIND: Kind = T::KIND;
    const PER_CLASS: bool = true;

    fn to_value(&self) -> Value {
        let own = self.own.iter().map(Held::to_value).collect();
        Value::PerClass { rest: self.rest.to_value().into(), own }
    }

    fn value_of(&self, class: Option<Class>) -> Value {
        class.map_or_else(|| self.to_value(), |class| self.get(class.index()).to_value())
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::PerClass { rest, own } => Some(Self {
                rest: T::from_value(rest)?,
                own: own.iter().map(T::from_value).collect::<Option<_>>()?,
            }),
            one => T::from_value(one).map(Self::all),
        }
    }

    fn take(&mut self, class: Option<Class>, value: &Value) -> bool {
        match class {
            None => Self::from_value(value).map(|all| *self = all).is_some(),
            Some(class) => T::from_value(value).map(|one| self.set(class, one)).is_some(),
        }
    }
}
