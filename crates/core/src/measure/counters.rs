//! Counters are declared once: `counters!` makes the struct and all that follows from each line.
//!
//! From a line follow how the counter adds up over workers and windows, what it was between two
//! instants, its name in JSON, CSV and Parquet, and its line in the reference of counters.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::units::{Bytes, Nanos};

/// What the values of a counter mean together.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CounterKind {
    /// Tells things of one kind apart: a name, a number.
    Key,
    /// Is as it is: of several workers the first one's holds.
    State,
    /// Never goes back: adds up over workers; between two instants the difference counts.
    Count,
    /// Goes up and down: adds up over workers, is told as it is at the end of a window.
    Gauge,
    /// The largest of all workers.
    Maximum,
    /// The smallest of all workers.
    Minimum,
    /// Lowest value of a bucket and how many fell into it, ascending.
    Buckets,
    /// Counters of its own.
    Part,
}

impl CounterKind {
    /// The word of the reference.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::State => "state",
            Self::Count => "count",
            Self::Gauge => "gauge",
            Self::Maximum => "maximum",
            Self::Minimum => "minimum",
            Self::Buckets => "distribution",
            Self::Part => "part",
        }
    }
}

/// What is known of a counter without looking at it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Counter {
    /// Its name in the program and in JSON.
    pub name: &'static str,
    /// Its unit; empty for texts and numbers without.
    pub unit: &'static str,
    /// Its unit in a mean over time: of counts per second.
    pub rate: &'static str,
    /// What its values mean together.
    pub kind: CounterKind,
    /// What is counted.
    pub help: &'static str,
    /// Its column in samples and its name as a metric; empty where it stays in snapshots.
    pub column: &'static str,
    /// The counters inside it.
    pub parts: &'static [Counter],
}

impl Counter {
    /// Whether tables for people show it beside the packets sent.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        !self.column.is_empty() && self.unit == "packets"
    }
}

/// What adds up with others of its kind. `counters!` writes it for structs.
pub trait Tally: Clone {
    /// The counters inside.
    const COUNTERS: &'static [Counter] = &[];
    /// Counts what `other` has counted too.
    fn add(&mut self, other: &Self);
    /// What was counted after `earlier`; from zero if it was begun anew in between.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self;
    /// Whether it has counted less than `earlier`: it was begun anew in between.
    fn went_back(&self, earlier: &Self) -> bool;
    /// Whether both count the same thing.
    fn is_same(&self, _other: &Self) -> bool {
        true
    }
    /// The value of the count or gauge called `name`; of a number, whatever the name, its own.
    fn value(&self, _name: &str) -> Option<u64> {
        None
    }
    /// Sets it; nothing if there is no such number.
    fn set_value(&mut self, _name: &str, _value: u64) {}
}

/// Declares counters. See [the module](crate::measure::counters).
///
/// ```text
/// counters! {
///     /// What these counters are about.
///     #[derive(Clone, Debug, Default)]
///     pub struct Name {
///         /// What is counted.
///         count field: u64, "packets", as "column";
///     }
///     after Self::mend     // fn(&mut difference, now, earlier)
/// }
/// ```
/// Kinds: `key`, `state`, `count`, `gauge`, `most`, `least`, `buckets`, `part` (begun anew with
/// the whole) and `each` (a `Vec` by key or an `Option`, judged by itself). Unit and column are
/// optional.
#[macro_export]
macro_rules! counters {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])*
                $kind:ident $field:ident: $ty:ty
                    $(, $unit:literal)? $(, as $column:literal)?;
            )*
        }
        $(after $mend:path)?
    ) => {
        $(#[doc = $about])+
        $(#[derive($($derive),+)])?
        $vis struct $name {
            $($(#[doc = $doc])+ $(#[serde($($serde)*)])* pub $field: $ty,)*
        }

        #[allow(unused_mut, unused_variables, reason = "not every kind needs each")]
        impl $crate::measure::Tally for $name {
            const COUNTERS: &'static [$crate::measure::Counter] = &[$($crate::measure::Counter {
                name: stringify!($field),
                unit: concat!($($unit)?),
                rate: $crate::counters!(@rate $kind $($unit)?),
                kind: $crate::counters!(@kind $kind),
                help: const { $crate::settings::Trimmed(concat!($($doc),+)).text() },
                column: concat!($($column)?),
                parts: $crate::counters!(@parts $kind $ty),
            },)*];

            fn add(&mut self, other: &Self) {
                $($crate::counters!(@add $kind self.$field, other.$field);)*
            }

            fn since(&self, earlier: &Self) -> Self {
                let zero = Self::default();
                let before = if self.went_back(earlier) { &zero } else { earlier };
                let mut difference = Self {
                    $($field: $crate::counters!(@since $kind self.$field, before.$field,
                        earlier.$field),)*
                };
                $($mend(&mut difference, self, before);)?
                difference
            }

            fn went_back(&self, earlier: &Self) -> bool {
                false $(|| $crate::counters!(@back $kind self.$field, earlier.$field))*
            }

            fn is_same(&self, other: &Self) -> bool {
                true $(&& $crate::counters!(@same $kind self.$field, other.$field))*
            }

            fn value(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($field) => $crate::counters!(@get $kind self.$field),)*
                    _ => None,
                }
            }

            fn set_value(&mut self, name: &str, value: u64) {
                match name {
                    $(stringify!($field) => $crate::counters!(@put $kind self.$field, value),)*
                    _ => {}
                }
            }
        }
    };
    (@kind key) => { $crate::measure::CounterKind::Key };
    (@kind state) => { $crate::measure::CounterKind::State };
    (@kind count) => { $crate::measure::CounterKind::Count };
    (@kind gauge) => { $crate::measure::CounterKind::Gauge };
    (@kind most) => { $crate::measure::CounterKind::Maximum };
    (@kind least) => { $crate::measure::CounterKind::Minimum };
    (@kind buckets) => { $crate::measure::CounterKind::Buckets };
    (@kind $part:ident) => { $crate::measure::CounterKind::Part };
    (@rate count $unit:literal) => { concat!($unit, "/s") };
    (@rate $kind:ident $($unit:literal)?) => { concat!($($unit)?) };
    (@parts part $ty:ty) => { <$ty as $crate::measure::Tally>::COUNTERS };
    (@parts each $ty:ty) => { <$ty as $crate::measure::Tally>::COUNTERS };
    (@parts $kind:ident $ty:ty) => { &[] };
    (@add key $all:expr, $more:expr) => {};
    (@add state $all:expr, $more:expr) => {};
    (@add most $all:expr, $more:expr) => { if $more > $all { $all.clone_from(&$more); } };
    (@add least $all:expr, $more:expr) => { if $more < $all { $all.clone_from(&$more); } };
    (@add buckets $all:expr, $more:expr) => { $crate::measure::add_buckets(&mut $all, &$more) };
    (@add $kind:ident $all:expr, $more:expr) => { $crate::measure::Tally::add(&mut $all, &$more) };
    (@since count $now:expr, $before:expr, $ever:expr) => {
        $crate::measure::Tally::since(&$now, &$before)
    };
    (@since part $now:expr, $before:expr, $ever:expr) => {
        $crate::measure::Tally::since(&$now, &$before)
    };
    (@since each $now:expr, $before:expr, $ever:expr) => {
        $crate::measure::Tally::since(&$now, &$ever)
    };
    (@since buckets $now:expr, $before:expr, $ever:expr) => {
        $crate::measure::buckets_since(&$now, &$before)
    };
    (@since $kind:ident $now:expr, $before:expr, $ever:expr) => { Clone::clone(&$now) };
    (@back count $now:expr, $before:expr) => { $crate::measure::Tally::went_back(&$now, &$before) };
    (@back part $now:expr, $before:expr) => { $crate::measure::Tally::went_back(&$now, &$before) };
    (@back $kind:ident $now:expr, $before:expr) => { false };
    (@same key $a:expr, $b:expr) => { $a == $b };
    (@same $kind:ident $a:expr, $b:expr) => { true };
    (@get count $of:expr) => { $crate::measure::Tally::value(&$of, "") };
    (@get gauge $of:expr) => { $crate::measure::Tally::value(&$of, "") };
    (@get $kind:ident $of:expr) => { None };
    (@put count $of:expr, $value:expr) =>
        { $crate::measure::Tally::set_value(&mut $of, "", $value) };
    (@put gauge $of:expr, $value:expr) =>
        { $crate::measure::Tally::set_value(&mut $of, "", $value) };
    (@put $kind:ident $of:expr, $value:expr) => { {} };
}

/// Numbers. Nanoseconds wrap, so differences of their sums stay right.
macro_rules! numbers {
    ($($number:ty, $a:ident, $b:ident: $add:expr, $since:expr, $back:expr, $get:expr,
        $put:expr;)+) => {
        $(impl Tally for $number {
            fn add(&mut self, other: &Self) {
                let ($a, $b) = (*self, *other);
                *self = $add;
            }
            fn since(&self, earlier: &Self) -> Self {
                let ($a, $b) = (*self, *earlier);
                $since
            }
            fn went_back(&self, earlier: &Self) -> bool {
                $back && self < earlier
            }
            fn value(&self, _name: &str) -> Option<u64> {
                let $a = *self;
                Some($get)
            }
            fn set_value(&mut self, _name: &str, $a: u64) {
                *self = $put;
            }
        })+
    };
}

numbers! {
    u64, a, b: a + b, a.saturating_sub(b), true, a, a;
    f64, a, b: a + b, a - b, true, a as u64, a as f64;
    Bytes, a, b: a + b, Bytes(a.0.saturating_sub(b.0)), true, a.0, Bytes(a);
    Nanos, a, b: Nanos(a.0.wrapping_add(b.0)), Nanos(a.0.wrapping_sub(b.0)), false, a.0, Nanos(a);
}

impl<const N: usize> Tally for [u64; N] {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(all, more)| *all += more);
    }
    fn since(&self, earlier: &Self) -> Self {
        core::array::from_fn(|at| self[at].saturating_sub(earlier[at]))
    }
    fn went_back(&self, earlier: &Self) -> bool {
        self.iter().zip(earlier).any(|(now, before)| now < before)
    }
}

/// By name; who lacks a name has counted none, and a difference of none is left out.
impl Tally for BTreeMap<String, u64> {
    fn add(&mut self, other: &Self) {
        for (name, more) in other {
            *self.entry(name.clone()).or_default() += more;
        }
    }
    fn since(&self, earlier: &Self) -> Self {
        let had = |name: &str| earlier.get(name).copied().unwrap_or(0);
        let added = self.iter().map(|(name, now)| (name.clone(), now.saturating_sub(had(name))));
        added.filter(|(_, added)| *added > 0).collect()
    }
    fn went_back(&self, earlier: &Self) -> bool {
        earlier.iter().any(|(name, before)| self.get(name).is_none_or(|now| now < before))
    }
}

/// A number by name, in lists of them.
impl Tally for (String, u64) {
    fn add(&mut self, other: &Self) {
        self.1 += other.1;
    }
    fn since(&self, earlier: &Self) -> Self {
        (self.0.clone(), self.1.saturating_sub(earlier.1))
    }
    fn went_back(&self, earlier: &Self) -> bool {
        self.1 < earlier.1
    }
    fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Of what may not be measured: what one of both has measured.
impl<T: Tally> Tally for Option<T> {
    const COUNTERS: &'static [Counter] = T::COUNTERS;

    fn add(&mut self, other: &Self) {
        match (self, other) {
            (Some(all), Some(more)) => all.add(more),
            (all @ None, more) => all.clone_from(more),
            (Some(_), None) => {}
        }
    }
    fn since(&self, earlier: &Self) -> Self {
        self.as_ref().map(|now| earlier.as_ref().map_or_else(|| now.clone(), |e| now.since(e)))
    }
    fn went_back(&self, earlier: &Self) -> bool {
        matches!((self, earlier), (Some(now), Some(earlier)) if now.went_back(earlier))
    }
    fn value(&self, name: &str) -> Option<u64> {
        self.as_ref()?.value(name)
    }
}

/// By key. Both are nearly always in the order of the configuration.
impl<T: Tally> Tally for Vec<T> {
    const COUNTERS: &'static [Counter] = T::COUNTERS;

    fn add(&mut self, other: &Self) {
        for (at, more) in other.iter().enumerate() {
            match find(self, at, more) {
                Some(at) => self[at].add(more),
                None => self.push(more.clone()),
            }
        }
    }
    fn since(&self, earlier: &Self) -> Self {
        let now = self.iter().enumerate();
        now.map(|(at, now)| match find(earlier, at, now) {
            Some(before) => now.since(&earlier[before]),
            None => now.clone(),
        })
        .collect()
    }
    fn went_back(&self, _earlier: &Self) -> bool {
        false
    }
}

/// Where `list` counts the same as `of`, which stands at `at` in its own.
fn find<T: Tally>(list: &[T], at: usize, of: &T) -> Option<usize> {
    let here = list.get(at).is_some_and(|known| known.is_same(of));
    if here { Some(at) } else { list.iter().position(|known| known.is_same(of)) }
}

/// Adds the buckets of a distribution: lowest value and number, ascending.
pub fn add_buckets(all: &mut Vec<(u64, u64)>, more: &[(u64, u64)]) {
    for (lowest, number) in more {
        match all.binary_search_by_key(lowest, |(lowest, _)| *lowest) {
            Ok(at) => all[at].1 += number,
            Err(at) => all.insert(at, (*lowest, *number)),
        }
    }
}

/// What fell into each bucket after `earlier`; buckets without are left out.
#[must_use]
pub fn buckets_since(now: &[(u64, u64)], earlier: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let had = |lowest: u64| {
        let at = earlier.binary_search_by_key(&lowest, |(lowest, _)| *lowest);
        at.map_or(0, |at| earlier[at].1)
    };
    let added = now.iter().map(|&(lowest, number)| (lowest, number.saturating_sub(had(lowest))));
    added.filter(|(_, number)| *number > 0).collect()
}
