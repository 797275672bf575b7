//! Changes to a running link, in text: what `evenkeel ctl set` and the steps of a scenario say.

use std::collections::HashSet;
use std::iter;

use evenkeel_core::Class;
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::link::LinkConfig as LinkSettings;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::settings::{self, ChangeTime, Key, Kind, Presence, Section, Settings};
use evenkeel_settings::read::{Reader, parse_toml, suggest};
use evenkeel_settings::tree::{Data, Node, single};
use evenkeel_settings::typed::held;
use evenkeel_settings::{Diagnostic, Diagnostics};
use thiserror::Error;

use crate::admission;
use crate::discipline::parse_discipline;

/// A change to one link.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A setting of its discipline.
    Setting(settings::Change),
    /// A setting of its wire: rate, ring.
    Link(settings::Change),
    /// Another discipline in place of the one it has.
    Discipline(DisciplineConfig),
    /// Whether its dynamic control turns knobs (the texts `on` and `off`).
    Control(bool),
    /// A key of `[fairdrop]`, which is of the whole router and of no link.
    FairDrop(settings::Change),
    /// A key of its admission (`admission.min_fair_rate`).
    Admission(settings::Change),
    /// Its admission as a whole, `None`: everybody may enter (the texts `on` for that with the
    /// defaults, and `off`).
    WholeAdmission(Option<Box<AdmissionConfig>>),
}

/// What stands in the place of a link's name in changes of `[fairdrop]`.
pub const FAIRDROP: &str = "fairdrop";

/// Why a change was refused. The message says what would be valid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct ChangeError(pub String);

/// What stands before the names of the keys of an admission.
const ADMISSION: &str = "admission.";

/// What changes as a whole, beside single settings, and what it holds.
pub const WHOLES: [(&str, &str); 3] = [
    ("discipline", "a table as in router.toml, `{ kind = \"pdrr\" }`: what waits is kept"),
    ("control", "`on` or `off`"),
    ("admission", "a table as in router.toml, `on` for that with the defaults, or `off`"),
];

/// The settings of a link that change while it runs: of its wire, and of the disciplines. Ranges
/// and types are those of the same keys in `router.toml`. Two disciplines may have a setting of one
/// name.
pub fn live_keys() -> impl Iterator<Item = &'static Key> {
    let disciplines = DisciplineConfig::BUILT_IN.iter().map(|(_, section)| *section);
    let sections = iter::once(LinkSettings::SECTION).chain(disciplines);
    sections.flat_map(Section::keys).filter(|key| key.change == ChangeTime::Live)
}

/// The names of all that can be changed while a router runs, each once, for help and messages.
#[must_use]
pub fn live_names() -> Vec<&'static str> {
    let mut names: Vec<_> = live_keys().map(|key| key.name).collect();
    names.extend(WHOLES.iter().map(|(name, _)| *name));
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

/// Reads a change: the name of a setting (one of [`live_names`]), the class it concerns (if it
/// concerns one), and its value as it would stand in `router.toml`, without quotes: `200us`,
/// `{ slots = 4, refill = "any" }`; `none` takes a setting away that may be left out. `classes` are
/// the router's class names in order.
///
/// # Errors
/// Unknown setting or class (with the nearest valid name), wrong unit, value out of range (with the
/// range). Whether the discipline of the link has the setting is not known here.
pub fn parse_change(
    name: &str,
    class: Option<&str>,
    value: &str,
    classes: &[&str],
) -> Result<Change, ChangeError> {
    let value = value.trim();
    if let Some(key) = name.strip_prefix(ADMISSION) {
        no_class(name, class)?;
        return admission::parse(key, value).map(Change::Admission);
    }
    if WHOLES.iter().any(|(whole, _)| *whole == name) {
        no_class(name, class)?;
        return whole(name, value, classes);
    }
    let candidates: Vec<&Key> = live_keys().filter(|key| key.name == name).collect();
    let Some(first) = candidates.first() else {
        return Err(ChangeError(unknown(name)));
    };
    if !candidates.iter().any(|key| key.is_per_class()) {
        no_class(name, class)?;
    }
    let class = class.map(|class| class_of(class, classes)).transpose()?;
    let mut refused = None;
    for key in &candidates {
        match value_of(key, value) {
            Ok(value) => {
                let change = settings::Change { key: first.name, class, value };
                let of_link = LinkSettings::SECTION.key(name).is_some();
                return Ok(if of_link { Change::Link(change) } else { Change::Setting(change) });
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| ChangeError(unknown(name))))
}

fn unknown(name: &str) -> String {
    let fixed = DisciplineConfig::BUILT_IN.iter().any(|(_, section)| section.key(name).is_some())
        || LinkSettings::SECTION.key(name).is_some();
    if fixed {
        return format!("{name} does not change alone while the router runs: reload the file");
    }
    format!("no knob {name:?}; {}", suggest(name, &live_names()))
}

/// As [`parse_change`], for settings of disciplines only.
///
/// # Errors
/// As [`parse_change`].
pub fn parse_knob(
    name: &str,
    class: Option<&str>,
    value: &str,
    classes: &[&str],
) -> Result<settings::Change, ChangeError> {
    match parse_change(name, class, value, classes)? {
        Change::Setting(change) => Ok(change),
        _ => Err(ChangeError(format!("{name} is not a knob of a discipline but of the link"))),
    }
}

/// A change of something as a whole.
fn whole(name: &str, value: &str, classes: &[&str]) -> Result<Change, ChangeError> {
    match (name, value) {
        ("discipline", table) => parse_discipline(table, classes).map(Change::Discipline),
        ("admission", "off") => Ok(Change::WholeAdmission(None)),
        ("admission", table) => {
            let admission = admission::parse_table(table)?;
            Ok(Change::WholeAdmission(Some(Box::new(admission))))
        }
        (_, "on") => Ok(Change::Control(true)),
        (_, "off") => Ok(Change::Control(false)),
        _ => Err(ChangeError(format!("{name}: expected on or off, found {value:?}"))),
    }
}

fn no_class(name: &str, class: Option<&str>) -> Result<(), ChangeError> {
    match class {
        Some(_) => Err(ChangeError(format!("{name} is of the whole link, not of a class"))),
        None => Ok(()),
    }
}

fn class_of(name: &str, classes: &[&str]) -> Result<Class, ChangeError> {
    let index =
        classes.iter().position(|class| *class == name).and_then(|at| u16::try_from(at).ok());
    index
        .map(Class)
        .ok_or_else(|| ChangeError(format!("no class {name:?}; {}", suggest(name, classes))))
}

/// What a text says for a setting, of one class where it has one for each.
fn value_of(key: &Key, text: &str) -> Result<settings::Value, ChangeError> {
    if matches!(key.presence, Presence::Optional(_)) && matches!(text, "none" | "unpaced") {
        return Ok(settings::Value::Absent);
    }
    let kind = match key.kind {
        Kind::ByClass(of, _) => *of,
        kind => kind,
    };
    let (_, mut reader) = parse_toml("", "");
    let item = reader.value(&kind, &node(&kind, text), key.name);
    concluded(reader, item).map(|item| held(&item.value))
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
