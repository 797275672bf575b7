//! ECCM, the Efficient Congestion Control Mechanism: a link that is closed to new flows for too
//! long opens for half an interval, and those that turn out elastic leave again.
//!
//! Source: Domzal et al., GLOBECOM 2020; the exact timing is this project's reading of it (for
//! T_FR = 1 s, max_accept_delay = 2 s):
//!
//! ```text
//!  0      estimate: congested          clock `closed_since` starts
//!  >= 2.0 packet of a new flow         FR := min_FR, so open; it is admitted, and every new flow until
//!  2.5    half of T_FR later           estimate at once, T_FR starts anew; if congested the clock starts here
//!  3.0    T_FR after the opening       flows admitted in the window that turned elastic leave the list
//!  >= 4.5                              next opening
//! ```
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | max_accept_delay | [`EccmConfig::max_accept_delay`] | ns |
//! | t_cong | `closed_since` | instant |
//! | t_start | `window` | instant |
//! | ECCM table | `table`, and a bit in the entries of the protected flow list | places |
//!
//! Only FR is forced: if PL > max_PL the link stays closed, protecting accepted streams wins. So
//! the bound `max(max_accept_delay, T_FR/2)` plus one packet spacing holds while PL <= max_PL and
//! no user quota refuses. The budget of first packets does not hold up flows that were waiting when
//! the window opened. A flow is elastic here if any packet of it entered an elastic queue since its
//! admission.
//!
//! A link that several workers let flows in to is opened by the first of them for all.
//!
//! Constant time per packet; the removal takes the time of the flows that were let in. When the
//! table is full the window closes. Not implemented: nothing of the published mechanism is left
//! out.

use alloc::vec::Vec;

use super::config::{LIST_RANGE, PERIOD_RANGE};
use crate::flow_table::EntryId;
use crate::settings;
use crate::units::Nanos;

settings! {
    /// ECCM: bounds the acceptance delay of streaming flows.
    #[derive(Copy)]
    pub struct EccmConfig: "" {
        /// ECCM: a link that has been closed for `max_accept_delay` opens for half of T_FR; elastic
        /// flows that came in go again.
        live on as eccm: bool = true;
        /// How long the link may stay closed with `eccm`. 6 s is ITU-T E.721's for local calls.
        live max_accept_delay: Nanos = Nanos::from_secs(6), in PERIOD_RANGE;
        /// Flows that one opening may let in: with the last of them the link closes again. A change
        /// empties it.
        live table as eccm_table: u32 = 4_096, in LIST_RANGE, counting "flows";
    }
}

/// The clock and the table.
#[derive(Clone, Debug)]
pub(super) struct Eccm {
    pub(super) config: EccmConfig,
    /// t_cong.
    closed_since: Option<Nanos>,
    /// t_start, until the removal is done.
    window: Option<Nanos>,
    table: Vec<EntryId>,
}

impl Eccm {
    pub(super) fn new(config: EccmConfig) -> Self {
        let table = Vec::with_capacity(config.table as usize);
        Self { config, closed_since: None, window: None, table }
    }

    /// An estimate was taken: did it find FR below min_FR? `restart`: it is the one at the end of a
    /// window.
    pub(super) fn estimated(&mut self, now: Nanos, congested: bool, restart: bool) {
        match (congested, restart) {
            (false, _) => self.closed_since = None,
            (true, true) => self.closed_since = Some(now),
            (true, false) => self.closed_since = self.closed_since.or(Some(now)),
        }
    }

    /// Whether the link must be opened for a new flow that comes now.
    pub(super) fn must_open(&self, now: Nanos) -> bool {
        let waited = self
            .closed_since
            .is_some_and(|t| now.saturating_sub(t) >= self.config.max_accept_delay);
        waited && self.window.is_none()
    }

    /// Whether it is closed since before `start`, and was not opened since.
    pub(super) fn is_closed_since_before(&self, start: Nanos) -> bool {
        self.closed_since.is_some_and(|since| since < start) && self.window.is_none()
    }

    /// The link opens.
    pub(super) fn open(&mut self, now: Nanos) {
        self.window = Some(now);
    }

    /// When the link was opened, until the removal is done.
    pub(super) fn window(&self) -> Option<Nanos> {
        self.window
    }

    /// Whether another flow can be noted: otherwise the window is over.
    pub(super) fn has_room(&self) -> bool {
        self.table.len() < self.config.table as usize
    }

    /// A flow was admitted in the window.
    pub(super) fn note(&mut self, id: EntryId) {
        self.table.push(id);
    }

    /// When the flows that were let in are looked at: T_FR after the opening.
    pub(super) fn removal_due(&self, fair_rate_interval: Nanos) -> Nanos {
        self.window.map_or(Nanos::MAX, |start| start.saturating_add(fair_rate_interval))
    }

    /// The next flow to look at; after the last one the window is done.
    pub(super) fn next(&mut self) -> Option<EntryId> {
        let next = self.table.pop();
        if next.is_none() {
            self.window = None;
        }
        next
    }

    pub(super) fn memory(&self) -> usize {
        self.config.table as usize * size_of::<EntryId>()
    }
}
