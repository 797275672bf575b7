//! Who may enter: admission of new flows to an outgoing link (flow-aware networking, cross-protect).
//!
//! The interface stands, the rules follow: `view() -> AdmissionView`, `explain(&FlowKey) -> Explanation`, `link_down(now)`,
//! `link_up(now, &Observed)`, and for path pinning `pinned(now, &packet, ttl) -> Option<Pin>`, `path_cost(base) -> u64`,
//! `takes_rerouted() -> bool`.

pub mod config;
pub mod view;

use crate::packet::{FlowKey, Packet};
use crate::reason::Reason;
use crate::schedule::{Meters, Treated};
use crate::units::{Bytes, Nanos};

pub use config::*;
pub use view::*;

/// What the scheduler and the wire were measured to have done, as of now. All are cumulated and monotone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observed {
    /// Bytes that a fictitious flow that always has packets would have been sent; `None`: the discipline does not tell, and the
    /// fair rate counts as C.
    pub fair_bytes: Option<u64>,
    /// Bytes that the scheduler took as priority.
    pub priority_bytes: Option<Bytes>,
    /// Time the wire was idle.
    pub idle: Nanos,
}

/// Says how many bytes of a flow wait in the scheduler. `Fn(&FlowKey) -> Bytes`; asked only when the most active flows are looked for.
pub type Backlogs<'a> = &'a dyn Fn(&FlowKey) -> Bytes;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Verdict {
    /// It goes to the scheduler.
    Pass,
    /// It is dropped.
    Refuse(Reason),
    /// It goes to the second link (MFAN).
    Divert,
}

/// Lists that all outgoing links of a router share: the GPFL.
#[derive(Clone, Debug)]
pub struct RouterLists {}

/// The size of the global list, how long a flow stays on it, and what it takes to get there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RouterListsConfig {
    /// Size of the global list; in [`LIST_RANGE`]; fixed. Default 100 000.
    pub flows: u32,
    /// A flow that is silent for longer leaves it; in [`TIMEOUT_RANGE`]. Default 20 s.
    pub flow_timeout: Nanos,
    /// K_add: a flow enters after so many priority packets in a row; in [`K_ADD_RANGE`]. Default 1.
    pub k_add: u32,
}

impl RouterLists {
    /// Empty lists. `seed` should be random per boot.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(config: RouterListsConfig, seed: u64) -> Result<Self, AdmissionError> {
        let _ = (config, seed);
        Ok(Self {})
    }
}

/// Admission control of one outgoing link.
///
/// The caller keeps this order: [`tick`](Self::tick) whenever [`next_tick`](Self::next_tick) has come (before a packet of the same
/// instant), [`decide`](Self::decide) for each packet whose outgoing link is known, and for a packet that passed, after the scheduler
/// took it in, [`treated`](Self::treated).
#[derive(Clone, Debug)]
pub struct Admission {
    config: AdmissionConfig,
}

impl Admission {
    /// An admission control that starts at `now`: FR = C, PL = 0, nothing listed. `seed` should be random per boot.
    ///
    /// # Errors
    /// [`AdmissionError`]: a value out of its range, or values that contradict each other.
    pub fn new(config: AdmissionConfig, seed: u64, now: Nanos) -> Result<Self, AdmissionError> {
        let _ = (seed, now);
        config.check()?;
        Ok(Self { config })
    }

    /// What is done with `packet`, whose outgoing link is this one. `ttl` is its time to live on arrival, kept for path pinning
    /// (0 where paths are not pinned).
    pub fn decide<P: Packet>(
        &mut self,
        now: Nanos,
        packet: &P,
        pin: Pin,
        backlogs: Backlogs<'_>,
        lists: &mut RouterLists,
    ) -> Verdict {
        let _ = (now, packet, pin, backlogs, lists);
        Verdict::Pass
    }

    /// Learns how the scheduler treated a packet that passed.
    pub fn treated<P: Packet>(&mut self, now: Nanos, packet: &P, treated: Treated, lists: &mut RouterLists) {
        let _ = (now, packet, treated, lists);
    }

    /// When [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn next_tick(&self) -> Nanos {
        Nanos::MAX
    }

    /// Does what is due at `now`: estimates, the end of a forced opening, removals.
    pub fn tick(&mut self, now: Nanos, observed: &Observed) {
        let _ = (now, observed);
    }

    /// Changes knobs while packets flow: pass a changed copy of [`config`](Self::config). Thresholds hold at once, intervals from the
    /// next estimate on; mechanisms that are switched off forget their lists.
    ///
    /// # Errors
    /// [`AdmissionError`]; nothing changed then.
    pub fn set(&mut self, now: Nanos, config: AdmissionConfig) -> Result<(), AdmissionError> {
        let _ = now;
        self.config.check_change(&config)?;
        self.config = config;
        Ok(())
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &AdmissionConfig {
        &self.config
    }
}

impl Observed {
    /// From a discipline's meters and the idle time of its wire.
    #[must_use]
    pub fn new(meters: &Meters, idle: Nanos) -> Self {
        Self { fair_bytes: None, priority_bytes: meters.priority_bytes, idle }
    }
}
