//! The flushing family: the list of protected flows is cleared, in part or as a whole, when a new flow meets congestion.
//!
//! Sources: Domzal, Jajszczyk: EFM, RAEF, RBAEF (ICC 2008), RPAEF, RAMAF and RMAEF (ICC 2012 and its relatives). One engine covers all:
//! a packet of a new flow arrives at a closed link and T_clear has passed since the last try -> the selected flows are removed
//! -> the after-treatment; FR := min_FR, so the link is open until the next estimate; the packet that triggered it is admitted. Where nothing was
//! selected nothing opens.
//!
//! | kind | selected | afterwards |
//! |---|---|---|
//! | flush | all | - |
//! | EFM | elastic | - |
//! | EFMP | elastic | priority access |
//! | RAEF | elastic, listed for at least the active time | - |
//! | RBAEF | as RAEF | blocked for the blocking time, also on an open link |
//! | RPAEF | as RAEF | priority access |
//! | RAMAF | the K elastic flows with the largest backlogs | priority access |
//! | RMAEF | as RAMAF | - |
//!
//! *Priority access*: the removed flows are awaited for a time; while any of them is, other new flows enter with chance P only.
//! A clearing forces FR only, so it happens when FR or a full list closes the link, not when PL does.
//!
//! BFL and PAFL of the literature are one bounded table, of which the kind uses one meaning. A clearing passes over the whole list of protected
//! flows: O(its size), at most once per T_clear.
//!
//! Not implemented: the variant in which any arriving flow is dropped and the oldest awaited flow takes its place.

use alloc::vec::Vec;

use super::protected::Active;
use super::{AdmissionError, Flush, FlushConfig, MOST_ACTIVE_RANGE};
use crate::flow_table::{FlowTable, PackedFlow};
use crate::units::Nanos;

/// What becomes of removed flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Nothing,
    Blocked,
    Awaited,
}

impl Flush {
    const fn after(self) -> After {
        match self {
            Self::All | Self::Efm | Self::Raef | Self::Rmaef => After::Nothing,
            Self::Rbaef => After::Blocked,
            Self::Efmp | Self::Rpaef | Self::Ramaf => After::Awaited,
        }
    }

    /// Whether the K most active flows are removed, not all that are old enough.
    pub(super) const fn most_active(self) -> bool {
        matches!(self, Self::Ramaf | Self::Rmaef)
    }

    /// Whether flows must have been listed for the active time.
    pub(super) const fn by_age(self) -> bool {
        matches!(self, Self::Raef | Self::Rbaef | Self::Rpaef)
    }

    /// Whether streaming flows are removed as well.
    pub(super) const fn all(self) -> bool {
        matches!(self, Self::All)
    }
}

/// The engine.
#[derive(Clone, Debug)]
pub(super) struct Flushing {
    pub(super) config: FlushConfig,
    last: Option<Nanos>,
    /// Removed flows that are blocked or awaited.
    removed: FlowTable<()>,
    /// Until when they are.
    until: Nanos,
    /// Room for the K most active.
    pub(super) found: Vec<Active>,
}

impl Flushing {
    pub(super) fn new(config: FlushConfig, seed: u64) -> Result<Self, AdmissionError> {
        Ok(Self {
            config,
            last: None,
            removed: FlowTable::new(config.table, seed)?,
            until: Nanos::ZERO,
            found: Vec::with_capacity(*MOST_ACTIVE_RANGE.end() as usize),
        })
    }

    /// Takes changed knobs; the lists stay.
    pub(super) fn configure(&mut self, config: FlushConfig) {
        self.config = config;
    }

    /// Whether a new flow that meets congestion now triggers a clearing.
    pub(super) fn due(&self, now: Nanos) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= self.config.interval)
    }

    /// A clearing happens; what was awaited or blocked before is forgotten.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.last = Some(now);
        if !self.removed.is_empty() {
            self.removed.clear();
        }
        let lasts = match self.config.kind.after() {
            After::Nothing => Nanos::ZERO,
            After::Blocked => self.config.blocking_time,
            After::Awaited => self.config.priority_access_time,
        };
        self.until = now.saturating_add(lasts);
    }

    /// A flow was removed.
    pub(super) fn removed(&mut self, hash: u64, key: &PackedFlow) {
        if self.config.kind.after() != After::Nothing {
            // Full: the flow is removed and forgotten.
            let _ = self.removed.insert(hash, *key, ());
        }
    }

    /// Until when a flow is blocked.
    pub(super) fn blocked(&self, now: Nanos, hash: u64, key: &PackedFlow) -> Option<Nanos> {
        let counts = self.config.kind.after() == After::Blocked && now < self.until;
        (counts && self.removed.find(hash, key).is_some()).then_some(self.until)
    }

    /// How many flows are awaited.
    pub(super) fn awaited(&self, now: Nanos) -> u32 {
        let counts = self.config.kind.after() == After::Awaited && now < self.until;
        if counts { self.removed.len() } else { 0 }
    }

    /// Whether a flow is awaited.
    pub(super) fn awaits(&self, now: Nanos, hash: u64, key: &PackedFlow) -> bool {
        self.awaited(now) > 0 && self.removed.find(hash, key).is_some()
    }

    /// An awaited flow came back.
    pub(super) fn came_back(&mut self, hash: u64, key: &PackedFlow) {
        if let Some(id) = self.removed.find(hash, key) {
            self.removed.remove(id);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.removed.memory() + MOST_ACTIVE_RANGE.count() * size_of::<Active>()
    }
}
