//! Changes to a running link, in text: what `evenkeel ctl set` and the steps of a scenario say.

use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::link::{Refill, RingConfig};
use evenkeel_core::schedule::Knob;
use evenkeel_core::schedule::buffer::BufferLimit;
use evenkeel_core::{BitRate, Class, Weight, settings};
use thiserror::Error;

use crate::admission;
use crate::discipline::{DisciplineConfig, multi_backlog, parse_discipline};
use crate::flow_aware;
use crate::tables;
use evenkeel_core::settings::schema::Kind;
use evenkeel_settings::read::{Fields, Reader, Value, parse_toml, suggest};
use evenkeel_settings::tree::{Data, Node, single};
use evenkeel_settings::{Diagnostic, Diagnostics};

/// A change to one link.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A knob of its discipline.
    Knob(Knob),
    /// Its rate; `None`: unpaced (the text `unpaced`).
    Rate(Option<BitRate>),
    /// Its transmit ring.
    Ring(RingConfig),
    /// Another discipline in place of the one it has.
    Discipline(DisciplineConfig),
    /// Whether its dynamic control turns knobs (the texts `on` and `off`).
    Control(bool),
    /// A key of `[fairdrop]`, which is of the whole router and of no link.
    FairDrop {
        /// The key.
        key: String,
        /// Its value as in a file, without quotes.
        value: String,
    },
    /// A key of its admission (`admission.min_fair_rate`).
    Admission(settings::Change),
    /// Its admission as a whole, `None`: everybody may enter (the texts `on` for that with the defaults, and `off`).
    WholeAdmission(Option<Box<AdmissionConfig>>),
}

/// What stands in the place of a link's name in changes of `[fairdrop]`.
pub const FAIRDROP: &str = "fairdrop";

/// Why a change was refused. The message says what would be valid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct ChangeError(pub String);

/// What can be changed while a router runs. Ranges and types are those of the same keys in `router.toml`.
pub const NAMES: &[&str] = &[
    "weight",
    "x_delay",
    "limit",
    "module2",
    "multi_backlog",
    "rearm_empty",
    "high_water",
    "quantum",
    "buffer",
    "buffer_bytes",
    "victim",
    "afl_linger",
    "start_limit",
    "window",
    "afd",
    "rate",
    "ring",
    "discipline",
    "control",
    "admission",
];

/// What stands before the names of the keys of an admission.
const ADMISSION: &str = "admission.";

/// Reads a change: the name of a knob (one of [`NAMES`]), the class it concerns (if it concerns one), and its value as it
/// would stand in `router.toml`, without quotes: `200us`, `{ slots = 4, refill = "any" }`. `classes` are the router's
/// class names in order.
///
/// # Errors
/// Unknown knob or class (with the nearest valid name), wrong unit, value out of range (with the range).
pub fn parse_change(
    knob: &str,
    class: Option<&str>,
    value: &str,
    classes: &[&str],
) -> Result<Change, ChangeError> {
    if let Some(key) = knob.strip_prefix(ADMISSION) {
        class_of(knob, class, classes)?;
        return admission::parse(key, value).map(Change::Admission);
    }
    let Some(name) = NAMES.iter().find(|name| **name == knob) else {
        return Err(ChangeError(format!("no knob {knob:?}; {}", suggest(knob, NAMES))));
    };
    let class = class_of(name, class, classes)?;
    let value = value.trim();
    match *name {
        "discipline" => parse_discipline(value, classes).map(Change::Discipline),
        "admission" if value == "off" => Ok(Change::WholeAdmission(None)),
        "admission" => {
            admission::parse_table(value).map(|admission| Change::WholeAdmission(Some(Box::new(admission))))
        }
        "start_limit" if value == "none" => Ok(Change::Knob(Knob::StartLimit(None))),
        "rate" if value == "unpaced" => Ok(Change::Rate(None)),
        "control" => match value {
            "on" => Ok(Change::Control(true)),
            "off" => Ok(Change::Control(false)),
            _ => Err(ChangeError(format!("control: expected on or off, found {value:?}"))),
        },
        _ => {
            let kind = kind_of(name);
            let (_, mut reader) = parse_toml("", "");
            let item = reader.value(&kind, &node(&kind, value), name);
            let change = item.and_then(|item| change(name, class, &item.value));
            concluded(reader, change)
        }
    }
}

/// As [`parse_change`], for knobs of disciplines only.
///
/// # Errors
/// As [`parse_change`].
pub fn parse_knob(
    knob: &str,
    class: Option<&str>,
    value: &str,
    classes: &[&str],
) -> Result<Knob, ChangeError> {
    match parse_change(knob, class, value, classes)? {
        Change::Knob(knob) => Ok(knob),
        _ => Err(ChangeError(format!("{knob} is not a knob of a discipline but of the link"))),
    }
}

fn class_of(knob: &str, class: Option<&str>, classes: &[&str]) -> Result<Option<Class>, ChangeError> {
    let Some(name) = class else {
        return match knob {
            "weight" | "x_delay" => Err(ChangeError(format!(
                "{knob} is of a class: say which; there are: {}",
                classes.join(", ")
            ))),
            _ => Ok(None),
        };
    };
    if !matches!(knob, "weight" | "x_delay" | "limit") {
        return Err(ChangeError(format!("{knob} is of the whole link, not of a class")));
    }
    match classes.iter().position(|class| *class == name) {
        Some(index) => Ok(u16::try_from(index).ok().map(Class)),
        None => Err(ChangeError(format!("no class {name:?}; {}", suggest(name, classes)))),
    }
}

/// What the key of this name holds in `router.toml`, for one class where it has one for each.
fn kind_of(name: &str) -> Kind {
    let sections = tables::DISCIPLINES.iter().map(|(_, section)| *section).chain([&tables::LINK]);
    let kind = sections.filter_map(|section| section.key(name)).map(|key| key.kind).next();
    match kind {
        Some(Kind::ByClass(of, _)) => *of,
        Some(kind) => kind,
        None => Kind::Foreign("nothing"),
    }
}

/// A text that is not in a TOML file as the node it would be there.
pub(crate) fn node(kind: &Kind, text: &str) -> Node {
    let plain = || Node { at: 0..0, data: Data::Text(text.to_owned()) };
    match kind {
        Kind::Switch | Kind::Integer { .. } | Kind::Number { .. } | Kind::Table(_) => {
            single(text).unwrap_or_else(|_not_toml| plain())
        }
        _ => plain(),
    }
}

fn change(name: &str, class: Option<Class>, value: &Value) -> Option<Change> {
    let knob = match (name, value) {
        ("weight", Value::Integer(weight)) => Knob::Weight(class?, Weight(u32::try_from(*weight).ok()?)),
        ("x_delay", Value::Time(x)) => Knob::XDelay(class?, *x),
        ("limit", Value::Integer(limit)) => Knob::QueueLimit(class, u32::try_from(*limit).ok()?),
        ("module2", Value::Switch(on)) => Knob::Module2(*on),
        ("rearm_empty", Value::Switch(on)) => Knob::RearmEmpty(*on),
        ("multi_backlog", Value::Text(word)) => Knob::MultiBacklog(multi_backlog(word)),
        ("high_water", Value::Size(bytes)) => Knob::HighWater(*bytes),
        ("quantum", Value::Size(bytes)) => Knob::Quantum(*bytes),
        ("buffer", Value::Integer(packets)) => {
            Knob::Buffer(BufferLimit::Packets(u32::try_from(*packets).ok()?))
        }
        ("buffer_bytes", Value::Size(bytes)) => Knob::Buffer(BufferLimit::Bytes(*bytes)),
        ("victim", Value::Text(word)) => Knob::Victim(flow_aware::victim(word)),
        ("afl_linger", Value::Time(linger)) => Knob::AflLinger(*linger),
        ("start_limit", Value::Size(bytes)) => Knob::StartLimit(Some(*bytes)),
        ("window", Value::Time(window)) => Knob::Window(*window),
        ("afd", Value::Table(fields)) => Knob::Afd(flow_aware::afd(fields)?),
        ("rate", Value::Rate(rate)) => return Some(Change::Rate(Some(*rate))),
        ("ring", Value::Table(fields)) => return ring(fields).map(Change::Ring),
        _ => return None,
    };
    Some(Change::Knob(knob))
}

/// The ring that a table says, which was read by its declaration.
pub(crate) fn ring(fields: &Fields) -> Option<RingConfig> {
    let slots = u32::try_from(fields.integer("slots")?).ok()?;
    let refill = if fields.text("refill")? == "whole" { Refill::WholeRing } else { Refill::AnySlot };
    Some(RingConfig { slots, refill })
}

/// The result, or all that was wrong in one message without a place.
pub(crate) fn concluded<T>(reader: Reader, result: Option<T>) -> Result<T, ChangeError> {
    reader.finish(result).map_err(|errors| ChangeError::of(errors, ""))
}

impl ChangeError {
    /// All that was wrong in one message without a place; `of` stands before the keys.
    pub(crate) fn of(errors: Diagnostics, of: &str) -> Self {
        let message = |error: Diagnostic| match error.key.as_str() {
            "" => error.message,
            key => format!("{of}{key}: {}", error.message),
        };
        let messages: Vec<_> = errors.0.into_iter().map(message).collect();
        Self(messages.join("; "))
    }
}
