//! The flushing family: the list of protected flows is cleared, in part or as a whole, when a new
//! flow meets congestion.
//!
//! Sources: Domzal, Jajszczyk: EFM, RAEF, RBAEF (ICC 2008), RPAEF, RAMAF and RMAEF (ICC 2012 and
//! its relatives). One engine covers all: a packet of a new flow arrives at a closed link and
//! T_clear has passed since the last try -> the selected flows are removed -> the after-treatment;
//! FR := min_FR, so the link is open until the next estimate; the packet that triggered it is
//! admitted. Where nothing was selected nothing opens.
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
//! *Priority access*: the removed flows are awaited for a time; while any of them is, other new
//! flows enter with chance P only. A clearing forces FR only, so it happens when FR or a full list
//! closes the link, not when PL does.
//!
//! Of several workers all clear their parts of the list in one clearing of the link
//! ([`clearing`](super::clearing)), and flows that any of them awaits count. RAMAF and RMAEF need
//! all flows in one place: the K most active of a part are not those of the link.
//!
//! BFL and PAFL of the literature are one bounded table, of which the kind uses one meaning. A
//! clearing passes over the whole list of protected flows: O(its size), at most once per T_clear.
//!
//! Not implemented: the variant in which any arriving flow is dropped and the oldest awaited flow
//! takes its place.

use alloc::vec::Vec;

use super::config::{LIST_RANGE, PERIOD_RANGE};
use super::protected::Active;
use crate::flow_table::{FlowTable, PackedFlow};
use crate::settings::SettingError;
use crate::units::{Nanos, Ppm};
use crate::{settings, words};

/// Most flows that are removed as most active.
const MOST_ACTIVE: u32 = 64;

words! {
    /// Which protected flows are removed when a clearing happens, and what becomes of them.
    pub enum Flush {
        /// none
        #[default]
        Off = "off",
        /// all flows
        All = "all",
        /// elastic flows
        Efm = "efm",
        /// elastic flows, which may then come back first
        Efmp = "efmp",
        /// elastic flows listed for `active_time`
        Raef = "raef",
        /// the same, blocked for `blocking_time`
        Rbaef = "rbaef",
        /// the same, which may then come back first
        Rpaef = "rpaef",
        /// the `most_active` elastic flows, which may then come back first
        Ramaf = "ramaf",
        /// the `most_active` elastic flows
        Rmaef = "rmaef",
    }
}

settings! {
    /// The flushing family.
    #[derive(Copy)]
    pub struct FlushConfig: "" {
        /// Which flows lose their protection when a new one meets a congested link.
        live kind as flushing: Flush = Flush::Off;
        /// T_clear: least time between two such clearings.
        live interval as flush_interval: Nanos = Nanos::from_secs(5), in PERIOD_RANGE;
        /// Least time on the list of flows that `raef`, `rbaef` and `rpaef` take off.
        live active_time: Nanos = Nanos::from_secs(5), in PERIOD_RANGE;
        /// How long `rbaef` blocks.
        live blocking_time: Nanos = Nanos::from_millis(500), in PERIOD_RANGE;
        /// How long flows that may come back first are waited for.
        live priority_access_time: Nanos = Nanos::from_secs(1), in PERIOD_RANGE;
        /// P: chance of any other new flow meanwhile.
        live others_chance: Ppm = Ppm::percent(3);
        /// K of `ramaf` and `rmaef`.
        live most_active: u32 = 10, in 1..=MOST_ACTIVE, counting "flows";
        /// Size of the list of blocked or awaited flows: others are removed and forgotten. A change
        /// empties it.
        live table as flush_table: u32 = 4_096, in LIST_RANGE, counting "flows";
    }
}

impl FlushConfig {
    /// The defaults, for this kind.
    #[must_use]
    pub fn new(kind: Flush) -> Self {
        Self { kind, ..Self::default() }
    }
}

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
            Self::Off | Self::All | Self::Efm | Self::Raef | Self::Rmaef => After::Nothing,
            Self::Rbaef => After::Blocked,
            Self::Efmp | Self::Rpaef | Self::Ramaf => After::Awaited,
        }
    }

    /// Whether the K most active flows are removed, not all that are old enough.
    #[must_use]
    pub const fn most_active(self) -> bool {
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
    /// Clearings of other workers before that are none of this list.
    since: Nanos,
    /// The last clearing has opened the link.
    opened: bool,
    /// Removed flows that are blocked or awaited.
    removed: FlowTable<()>,
    /// Until when they are.
    until: Nanos,
    /// Room for the K most active.
    pub(super) found: Vec<Active>,
}

impl Flushing {
    /// With nothing cleared yet at `now`.
    pub(super) fn new(config: FlushConfig, seed: u64, now: Nanos) -> Result<Self, SettingError> {
        Ok(Self {
            config,
            last: None,
            since: now,
            opened: false,
            removed: FlowTable::new(config.table, seed)?,
            until: Nanos::ZERO,
            found: Vec::with_capacity(MOST_ACTIVE as usize),
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

    /// Whether another worker has begun a clearing at `start` that this list has yet to follow.
    pub(super) fn is_behind(&self, start: Nanos) -> bool {
        start > Nanos::ZERO && start >= self.since && self.last.is_none_or(|last| last < start)
    }

    /// Whether the last clearing is the one at `start`, and has not opened the link here yet.
    pub(super) fn is_opened_by(&self, start: Nanos) -> bool {
        !self.opened && self.last == Some(start)
    }

    /// The last clearing has opened the link.
    pub(super) fn opened(&mut self) {
        self.opened = true;
    }

    /// A clearing happens; what was awaited or blocked before is forgotten.
    pub(super) fn begin(&mut self, now: Nanos) {
        (self.last, self.opened) = (Some(now), false);
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
        if self.awaits_since(now).is_some() { self.removed.len() } else { 0 }
    }

    /// Since which clearing flows are awaited, if it is not too long ago.
    pub(super) fn awaits_since(&self, now: Nanos) -> Option<Nanos> {
        self.last.filter(|_| self.config.kind.after() == After::Awaited && now < self.until)
    }

    /// The last clearing, zero if none, and how many of its flows have not come back.
    pub(super) fn told(&self) -> (Nanos, u32) {
        (self.last.unwrap_or(Nanos::ZERO), self.removed.len())
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
        self.removed.memory() + MOST_ACTIVE as usize * size_of::<Active>()
    }
}
