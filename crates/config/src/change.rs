//! Changes to a running link, in text: what `evenkeel ctl set` and the steps of a scenario say.

use std::collections::HashSet;
use std::iter;

use evenkeel_core::Class;
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::link::LinkConfig as WireConfig;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::settings::{
    self, ChangeTime, Key, Kind, Presence, Section, SettingError, Settings,
};
use evenkeel_settings::read::{Reader, parse_toml, suggest};
use evenkeel_settings::typed::{held, node};
use evenkeel_settings::{Diagnostic, Diagnostics};
use thiserror::Error;

use crate::admission;
use crate::cluster::ForwarderState;
use crate::discipline::parse_discipline;
use crate::model::{LinkConfig, RouterConfig};
use evenkeel_core::drop::FairDropConfig;

/// A change to a running router, parsed and checked as far as it can be without the router.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Of the outgoing link of the port with this name.
    Link(String, LinkChange),
    /// Of a key of `[fairdrop]`. A router without the table gets one with its defaults.
    FairDrop(settings::Change),
    /// What a forwarder gets from this balancer. Established flows stay where they are, except
    /// those of one that is out.
    Forwarder {
        /// The forwarder.
        id: u16,
        /// What it gets.
        state: ForwarderState,
    },
}

/// A change to a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkChange {
    /// A setting of its discipline.
    Setting(settings::Change),
    /// A setting of its wire: rate, ring.
    Wire(settings::Change),
    /// Another discipline in place of the one it has; what is queued is kept as far as it fits.
    Discipline(DisciplineConfig),
    /// Whether its dynamic control turns knobs (the texts `on` and `off`). Switched off, it puts
    /// them back.
    Control(bool),
    /// A key of its admission (`admission.min_fair_rate`).
    Admission(settings::Change),
    /// Its admission as a whole; `None`: every flow may enter (the texts `on` for that with the
    /// defaults, and `off`).
    WholeAdmission(Option<Box<AdmissionConfig>>),
}

impl LinkChange {
    /// As a change of the link of this port.
    #[must_use]
    pub fn on(self, link: &str) -> Change {
        Change::Link(link.to_owned(), self)
    }
}

impl LinkConfig {
    /// The link after a change, for a router with so many classes.
    ///
    /// # Errors
    /// The link refuses it, for what it is or has.
    pub fn changed(&self, change: &LinkChange, classes: u16) -> Result<Self, LinkChangeError> {
        let mut link = self.clone();
        match change {
            LinkChange::Setting(change) => link.discipline.set_live(change, classes)?,
            LinkChange::Wire(change) => link.core.set_live(change, classes)?,
            LinkChange::Discipline(discipline) => link.discipline = discipline.clone(),
            LinkChange::Control(on) => match &mut link.control {
                Some(control) => control.set_on(*on),
                None => return Err(LinkChangeError::NoControl(link.port)),
            },
            LinkChange::Admission(change) => match &mut link.admission {
                Some(admission) => {
                    admission.set_live(change, classes).map_err(LinkChangeError::Admission)?;
                }
                None => return Err(LinkChangeError::NoAdmission(link.port)),
            },
            LinkChange::WholeAdmission(admission) => link.admission = admission.as_deref().cloned(),
        }
        if !link.also.is_empty() && link.core.rate.is_none() {
            return Err(LinkChangeError::NoRateToShare(link.port));
        }
        Ok(link)
    }
}

impl RouterConfig {
    /// The configuration after a change of the running router, as `ctl running` tells it.
    ///
    /// # Errors
    /// No such link or forwarder, or the link refuses the change. A router that takes its
    /// forwarders from elsewhere may have changed one that no file names.
    pub fn changed(&self, change: &Change) -> Result<Self, ChangeError> {
        let mut config = self.clone();
        let classes = self.class_count();
        let refused = |error: &dyn std::error::Error| ChangeError(error.to_string());
        match change {
            Change::Link(name, change) => {
                let known = config.link_mut(name);
                let link = known.ok_or_else(|| ChangeError(format!("no link {name:?}")))?;
                *link = link.changed(change, classes).map_err(|error| refused(&error))?;
            }
            Change::FairDrop(change) => {
                let fairdrop = config.fairdrop.get_or_insert_with(FairDropConfig::off);
                fairdrop.set_live(change, classes).map_err(|error| refused(&error))?;
            }
            Change::Forwarder { id, state } => {
                let all = config.balancer.iter_mut().flat_map(|role| &mut role.forwarders);
                let known = all.into_iter().find(|one| one.id == *id);
                known.ok_or_else(|| ChangeError(format!("no forwarder {id}")))?.state = *state;
            }
        }
        Ok(config)
    }
}

/// Why a link refuses a change.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum LinkChangeError {
    /// Its discipline or its wire refuses.
    #[error("{0}")]
    Setting(#[from] SettingError),
    /// Its admission refuses.
    #[error("admission.{0}")]
    Admission(SettingError),
    /// It has no admission.
    #[error("link {0} has no admission: switch it on first (set {0} admission on)")]
    NoAdmission(String),
    /// Several ports share its rate.
    #[error("link {0} is shared by several ports (also): a rate is what they share")]
    NoRateToShare(String),
    /// It has no dynamic control.
    #[error(
        "link {0} has no control: give it [link.control], with kind = \"lct\" and discipline lct, \
         or kind = \"latency\" and a rate"
    )]
    NoControl(String),
}

/// Stands for the link's name in changes of `[fairdrop]`.
pub const FAIRDROP: &str = "fairdrop";

/// Why a change was refused. The message says what would be valid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct ChangeError(pub String);

/// Prefix of the keys of an admission.
const ADMISSION: &str = "admission.";

/// The parts of a link that change as a whole, beside single settings, and what each holds.
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
    let sections = iter::once(WireConfig::SECTION).chain(disciplines);
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
) -> Result<LinkChange, ChangeError> {
    let value = value.trim();
    if let Some(key) = name.strip_prefix(ADMISSION) {
        no_class(name, class)?;
        return admission::parse(key, value).map(LinkChange::Admission);
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
                let of_link = WireConfig::SECTION.key(name).is_some();
                return Ok(if of_link {
                    LinkChange::Wire(change)
                } else {
                    LinkChange::Setting(change)
                });
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| ChangeError(unknown(name))))
}

fn unknown(name: &str) -> String {
    let fixed = DisciplineConfig::BUILT_IN.iter().any(|(_, section)| section.key(name).is_some())
        || WireConfig::SECTION.key(name).is_some();
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
        LinkChange::Setting(change) => Ok(change),
        _ => Err(ChangeError(format!("{name} is not a knob of a discipline but of the link"))),
    }
}

/// A change of something as a whole.
fn whole(name: &str, value: &str, classes: &[&str]) -> Result<LinkChange, ChangeError> {
    match (name, value) {
        ("discipline", table) => match parse_discipline(table, classes)? {
            DisciplineConfig::Tree(_) => Err(ChangeError(
                "a tree comes with a [[tree]] of the file: add one that names the link, and reload"
                    .to_owned(),
            )),
            discipline => Ok(LinkChange::Discipline(discipline)),
        },
        ("admission", "off") => Ok(LinkChange::WholeAdmission(None)),
        ("admission", table) => {
            let admission = admission::parse_table(table)?;
            Ok(LinkChange::WholeAdmission(Some(Box::new(admission))))
        }
        (_, "on") => Ok(LinkChange::Control(true)),
        (_, "off") => Ok(LinkChange::Control(false)),
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

/// Reads a text as the value of a setting, of one class where it has one for each.
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
