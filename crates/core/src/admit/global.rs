//! GPFL, the Global Protected Flow List: streaming flows that the router knows, whatever link they
//! go over.
//!
//! Source: Domzal et al., GLOBECOM 2020. `AddGPFL` stands at the input of the priority queues,
//! `DelGPFL` at that of the elastic queues; a flow on the list enters a congested link at once,
//! which makes a change of route go unnoticed by streams.
//!
//! | symbol | here |
//! |---|---|
//! | GPFL | [`RouterLists`], one per router |
//! | K_add | [`RouterListsConfig::k_add`]: priority packets in a row before a flow is on the list; 1 is the published prototype |
//!
//! Constant expected time per packet; 56 bytes per flow. Candidates (fewer than K_add packets) take
//! places as well. When it is full and nothing is stale, further flows are not listed and
//! [`RouterLists::overflows`] counts.
//!
//! Not implemented: the original concept's list of all flows with the streaming ones marked; the
//! prototype keeps streaming flows only.

use super::config::{LIST_RANGE, PERIOD_RANGE};
use super::protected::{age, stamp};
use crate::flow_table::{FlowTable, PackedFlow};
use crate::settings;
use crate::settings::{SettingError, Settings};
use crate::units::Nanos;

settings! {
    /// The size of the global list, how long a flow stays on it, and what it takes to get there.
    #[derive(Copy)]
    pub struct RouterListsConfig: "" {
        /// Size of the global list of protected flows (GPFL).
        fixed flows as global_list: u32 = 100_000, in LIST_RANGE, counting "flows";
        /// A flow that is silent for longer leaves the global list.
        fixed flow_timeout as global_timeout: Nanos = Nanos::from_secs(20), in PERIOD_RANGE;
        /// K_add: so many packets in a row with priority, and a flow is on the global list; the
        /// first without takes it off.
        fixed k_add: u32 = 1, in 1..=255, counting "packets";
    }
}

#[derive(Clone, Copy, Debug)]
struct GlobalRecord {
    seen: u32,
    /// Priority packets in a row.
    row: u32,
}

/// Lists that all outgoing links of a router share: the GPFL. A router of which no
/// link uses them has [unused](Self::unused) ones.
#[derive(Clone, Debug)]
pub struct RouterLists {
    config: RouterListsConfig,
    table: FlowTable<GlobalRecord>,
    overflows: u64,
}

impl RouterLists {
    /// Empty lists. `seed` should be random per boot.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(config: RouterListsConfig, seed: u64) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self { config, table: FlowTable::new(config.flows, seed)?, overflows: 0 })
    }

    /// Lists that nobody asks yet: with room for one flow, to be replaced by [new](Self::new) ones
    /// before somebody does.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn unused(config: RouterListsConfig) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self { config, table: FlowTable::new(1, 0)?, overflows: 0 })
    }

    /// Whether they have the room that they were told to have.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.table.capacity() != self.config.flows
    }

    /// What they were told.
    #[must_use]
    pub const fn config(&self) -> &RouterListsConfig {
        &self.config
    }

    /// Changes the time-out and K_add while packets flow.
    ///
    /// # Errors
    /// A value out of its range, or another size; nothing changed then.
    pub fn set(&mut self, config: RouterListsConfig) -> Result<(), SettingError> {
        config.check()?;
        if config.flows != self.config.flows {
            return Err(SettingError::Fixed { key: "global_list" });
        }
        self.config = config;
        Ok(())
    }

    /// Flows and candidates on the list.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.table.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How often a flow could not be listed because the list was full.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// All memory of the lists, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Whether a flow is on the list.
    pub(super) fn lists(&self, now: Nanos, hash: u64, key: &PackedFlow) -> bool {
        self.table.find(hash, key).is_some_and(|id| {
            let entry = self.table.value(id);
            entry.row >= self.config.k_add && age(now, entry.seen) <= self.config.flow_timeout
        })
    }

    /// AddGPFL: a packet of the flow went among the priority packets.
    pub(super) fn priority(&mut self, now: Nanos, hash: u64, key: &PackedFlow) {
        let timeout = self.config.flow_timeout;
        if let Some(id) = self.table.find(hash, key) {
            let entry = self.table.value_mut(id);
            let fresh = age(now, entry.seen) > timeout;
            *entry = GlobalRecord {
                seen: stamp(now),
                row: if fresh { 1 } else { entry.row.saturating_add(1) },
            };
            return;
        }
        let looked = if self.table.is_full() { super::protected::SEARCH } else { 2 };
        self.table.sweep(looked, |_, entry| age(now, entry.seen) > timeout);
        if self.table.insert(hash, *key, GlobalRecord { seen: stamp(now), row: 1 }).is_err() {
            self.overflows += 1;
        }
    }

    /// DelGPFL: a packet of the flow went into an elastic queue.
    pub(super) fn elastic(&mut self, hash: u64, key: &PackedFlow) {
        if let Some(id) = self.table.find(hash, key) {
            self.table.remove(id);
        }
    }
}
