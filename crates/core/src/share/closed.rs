//! What the workers of a link do together while it is closed to new flows: their lists of protected
//! flows are cleared by one event, and the load of the second link is what all have sent there.
//!
//! Words that only some links need lie apart from the cells that workers write for each packet.
//! Each is a whole statement. When the lists were last cleared is one word: who finds T_clear over
//! replaces it, and of two who do at once one does.

use super::{Ordering, Row, SharedLink};
use crate::units::{Bytes, Nanos};

/// Of all: when the lists were last cleared, and the last clearing that took a flow off one.
const LAST: usize = 0;
const REMOVED: usize = 1;
/// Of a worker: flows that it awaits since a clearing, and bytes that went by the second link.
const AWAITED: usize = 0;
const DIVERTED: usize = 1;

/// Bits for a number of flows, of which a list has 2^24 at most.
const FLOWS: u32 = 25;
/// Clearings are further apart than 2^23 ns: their instants differ in what is left of them.
const APART: u32 = 23;

impl SharedLink {
    /// The last clearing of the lists, and the last one that took a flow off any; zero: none.
    pub(crate) fn clearings(&self) -> (Nanos, Nanos) {
        let row = &self.closed.clearings;
        (Nanos(row.get(LAST)), Nanos(row.get(REMOVED)))
    }

    /// A worker wants the lists to be cleared at `now`. The instant of the clearing; `None`: the
    /// last one was within `interval`, or another worker was faster.
    pub(crate) fn claim_clearing(&self, now: Nanos, interval: Nanos) -> Option<Nanos> {
        let last = self.closed.clearings.cell(LAST);
        let before = last.load(Ordering::Relaxed);
        // Zero stands for none.
        let start = now.max(Nanos(1));
        let due = before == 0 || now.0.saturating_sub(before) >= interval.0;
        let claims =
            || last.compare_exchange(before, start.0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (due && claims()).then_some(start)
    }

    /// The lists were cleared at `start`, when these workers did not share the link yet.
    pub(crate) fn know_clearing(&self, start: Nanos) {
        self.closed.clearings.cell(LAST).fetch_max(start.0, Ordering::Relaxed);
    }

    /// The clearing at `start` took a flow off a worker's list; whether it is the first to say so.
    pub(crate) fn clearing_removed(&self, start: Nanos) -> bool {
        let removed = self.closed.clearings.cell(REMOVED);
        removed.fetch_max(start.0, Ordering::Relaxed) < start.0
    }

    /// A worker awaits so many flows that the clearing at `start` took off its list.
    pub(crate) fn tell_awaited(&self, worker: usize, start: Nanos, flows: u32) {
        let told = start.0 >> APART << FLOWS | u64::from(flows);
        self.closed.workers[worker].set(AWAITED, told);
    }

    /// Flows of the clearing at `start` that other workers await.
    pub(crate) fn awaited_elsewhere(&self, worker: usize, start: Nanos) -> u64 {
        let told = self.others(worker).map(|other| other.get(AWAITED));
        let same = told.filter(|told| told >> FLOWS == start.0 >> APART);
        same.map(|told| told % (1 << FLOWS)).sum()
    }

    /// A worker sends a packet of this length by the second link.
    pub(crate) fn tell_diverted(&self, worker: usize, length: Bytes) {
        let row = &self.closed.workers[worker];
        row.set(DIVERTED, row.get(DIVERTED).wrapping_add(length.0));
    }

    /// Bytes that the others have sent by the second link, wrapping.
    pub(crate) fn diverted_elsewhere(&self, worker: usize) -> u64 {
        let sent = self.others(worker).map(|other| other.get(DIVERTED));
        sent.fold(0, u64::wrapping_add)
    }

    fn others(&self, worker: usize) -> impl Iterator<Item = &Row> {
        let rows = self.closed.workers.iter().enumerate();
        rows.filter(move |(other, _)| *other != worker).map(|(_, row)| row)
    }
}
