//! When flows that left a silent forwarder go back to it.
//!
//! Without that a pause of a tenth of a second would leave a forwarder with next to nothing as long
//! as its former flows last. Bounded, so that one that comes and goes does not take flows with it
//! each time: a flow goes back once for each time it had to leave; not before its forwarder has
//! been heard for [`WAIT`], which doubles with each silence within [`MEMORY`] of the last one; and
//! all of them within [`SPREAD`], each at a time that is a matter of its hash, alike on all
//! balancers.

use evenkeel_core::Nanos;

use crate::config::MAX_NODES;
use crate::types::NodeId;

/// How long a forwarder is heard before the first flow goes back.
const WAIT: Nanos = Nanos::SECOND;
/// Most that this becomes.
const MOST_WAIT: Nanos = Nanos::from_secs(64);
/// The first flow goes back so long before the last one.
const SPREAD: Nanos = Nanos::SECOND;
/// A silence that long ago is no sign that the next will follow soon.
const MEMORY: Nanos = Nanos::from_secs(60);
/// Parts that flows go back in.
const PARTS: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct Absence {
    id: NodeId,
    /// Since when it may be used again.
    back: Option<Nanos>,
    wait: Nanos,
}

/// The forwarders that were away.
#[derive(Clone, Debug)]
pub(super) struct Returns(Vec<Absence>);

impl Returns {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(MAX_NODES))
    }

    /// Forgets those that are no targets any more.
    pub(super) fn keep(&mut self, is_target: impl Fn(NodeId) -> bool) {
        self.0.retain(|absence| is_target(absence.id));
    }

    /// It may be used from now on, or may not.
    pub(super) fn set(&mut self, now: Nanos, id: NodeId, usable: bool) {
        let known = self.0.iter_mut().find(|absence| absence.id == id);
        match (known, usable) {
            (None, true) => {}
            (None, false) => self.0.push(Absence { id, back: None, wait: WAIT }),
            (Some(absence), true) => absence.back = absence.back.or(Some(now)),
            (Some(absence), false) => {
                if let Some(back) = absence.back.take() {
                    let soon = now.saturating_sub(back) < MEMORY;
                    absence.wait = if soon { (absence.wait * 2).min(MOST_WAIT) } else { WAIT };
                }
            }
        }
    }

    /// Whether a flow that left it goes back now.
    pub(super) fn is_due(&self, now: Nanos, id: NodeId, hash: u64) -> bool {
        self.0.iter().find(|absence| absence.id == id).is_none_or(|absence| {
            let part = Nanos(SPREAD.0 / PARTS * (hash >> 24 & (PARTS - 1)));
            absence.back.is_some_and(|back| now >= back + absence.wait + part)
        })
    }
}
