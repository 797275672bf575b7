//! What a link is held against: see [`crate::audit`].

use super::Link;
use crate::audit::{Outside, Told, Verdict};
use crate::packet::Packet;
use crate::schedule::Scheduler;
use crate::units::Nanos;

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// From `now` on the link is audited against `told`, which is what its configuration says.
    /// [`advance`](Self::advance) to `now` first. What it found before stays counted.
    pub fn tell(&mut self, now: Nanos, told: Told) {
        self.audit.tell(now.max(self.clock), told, &self.qostat);
    }

    /// What the audit has found; nothing on a link that was [told](Self::tell) nothing.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.audit.verdict
    }

    /// Nothing waits in the discipline, or it gives nothing.
    #[inline]
    pub(super) fn empties(&mut self) {
        if self.ring.len() == 0 && self.scheduler.busy_queues() == 0 {
            self.audit.ledger.emptied();
        }
    }

    /// The audit looks.
    #[cold]
    pub(super) fn look(&mut self, now: Nanos) {
        let held = self.held();
        let scheduler = &self.scheduler;
        self.audit.look(
            now,
            &Outside {
                qostat: &self.qostat,
                held: held.queued + held.in_ring,
                in_ring: held.in_ring,
                meters: scheduler.meters(),
                flow_backlog: &|flow, hash| scheduler.flow_backlog(flow, hash).0,
                nodes: (scheduler.node_places(), &|place| scheduler.node_account(place)),
            },
        );
    }
}
