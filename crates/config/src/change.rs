//! Changes to a running link, in text: what `evenkeel ctl set` and the steps of a scenario say.

use evenkeel_core::BitRate;
use evenkeel_core::link::RingConfig;
use evenkeel_core::schedule::Knob;
use thiserror::Error;

use crate::discipline::DisciplineConfig;

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
}

/// Why a change was refused. The message says what would be valid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct ChangeError(pub String);

/// Reads a change: the name of a knob (`weight`, `x_delay`, `limit`, `module2`, `multi_backlog`, `rearm_empty`, `rate`,
/// `ring`, `discipline`), the class it concerns (if it concerns one), and its value as it would stand in `router.toml`
/// (without quotes: `200us`, `{ slots = 4, refill = "any" }`). `classes` are the router's class names in order.
///
/// # Errors
/// Unknown knob or class (with the nearest valid name), wrong unit, value out of range (with the range).
pub fn parse_change(
    knob: &str,
    class: Option<&str>,
    value: &str,
    classes: &[&str],
) -> Result<Change, ChangeError> {
    let _ = (knob, class, value, classes);
    Err(ChangeError(String::new()))
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
    let _ = (knob, class, value, classes);
    Err(ChangeError(String::new()))
}
