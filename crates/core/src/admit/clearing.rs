//! A clearing: what the [flushing family](super::flush) selects leaves the list of protected flows,
//! and the link is open until the next estimate.
//!
//! **Several workers** of a link have a part of its list each, and a clearing is one event of the
//! link. Whoever meets congestion once T_clear is over claims it; the others follow at their next
//! new flow or their next estimate, within an interval of the priority load: each takes the
//! selected flows off its own part, and is open until its own next estimate of the fair rate if
//! anything was taken off any part. What was removed is blocked or awaited until the same instant
//! everywhere. One that has not come for so long that it has to estimate anyway does not open, and
//! of several clearings that it has missed it follows the last. Who had no admission here yet, or
//! another kind of it, when the lists were cleared has nothing to do with that; T_clear counts all
//! the same.
//!
//! What differs from one worker: a flow that was listed elsewhere in that interval goes as well. If
//! nothing is selected where the clearing was claimed, the packet for which it was is refused; its
//! flow enters when another worker has found something.

use super::flush::Flushing;
use super::peers::Peers;
use super::{Admission, Backlogs, Forced, Measure, Removal};
use crate::packet::FlowKey;
use crate::units::{Bytes, Nanos};

impl Admission {
    /// A new flow meets congestion: the list is cleared if T_clear is over. Whether that opens the
    /// link.
    pub(super) fn clear_if_due(&mut self, now: Nanos, backlogs: Backlogs<'_>) -> bool {
        let Some(flushing) = self.flushing.as_ref().filter(|flushing| flushing.due(now)) else {
            return false;
        };
        let start = match self.cleared_with() {
            Some((peers, _)) => peers.claim_clearing(now, flushing.config.interval),
            None => Some(now),
        };
        start.is_some_and(|start| self.clear(now, start, backlogs))
    }

    /// Follows a clearing that another worker has begun.
    #[inline(never)] // so that who has none does not pay for it
    pub(super) fn follow_clearing(&mut self, now: Nanos) {
        let Some((peers, flushing)) = self.cleared_with() else { return };
        let (last, removed) = peers.clearings();
        // A tick that is late comes with the instant at which it was due, which may be before.
        if last <= now && flushing.is_behind(last) {
            // Kinds that ask how much waits are not followed.
            self.clear(now, last, &|_: &FlowKey| Bytes::ZERO);
        } else if flushing.is_opened_by(removed) {
            self.open_since(removed);
        }
    }

    /// The other workers, if their lists are cleared together with this one. Which flows are the
    /// most active nobody of them knows.
    fn cleared_with(&self) -> Option<(&Peers, &Flushing)> {
        let flushing = self.flushing.as_ref().filter(|own| !own.config.kind.most_active())?;
        self.peers.as_ref().map(|peers| (peers, flushing))
    }

    /// Clears the list as the flushing family has it, in the clearing that begins at `start`. False
    /// if there was nothing to clear, as far as is known: then nothing opens, and the next try
    /// comes after T_clear.
    fn clear(&mut self, now: Nanos, start: Nanos, backlogs: Backlogs<'_>) -> bool {
        let Some(mut flushing) = self.flushing.take() else { return false };
        let before = self.list.len();
        flushing.begin(start);
        let kind = flushing.config.kind;
        if kind.most_active() {
            let most = flushing.config.most_active as usize;
            self.list.most_active(now, backlogs, most, &mut flushing.found);
            for at in 0..flushing.found.len() {
                let id = flushing.found[at].id;
                flushing.removed(self.list.key(id).hash(self.seed), self.list.key(id));
                self.remove(now, id, Removal::Flushed, Measure::Nothing, (0, 0));
            }
        } else {
            let active = if kind.by_age() { flushing.config.active_time } else { Nanos::ZERO };
            for place in 0..self.list.capacity() {
                if let Some(id) = self.list.selected(place, now, kind.all(), active) {
                    flushing.removed(self.list.key(id).hash(self.seed), self.list.key(id));
                    self.remove(now, id, Removal::Flushed, Measure::Nothing, (0, 0));
                }
            }
        }
        self.flushing = Some(flushing);
        self.tell_awaited();
        self.opens(start, self.list.len() < before)
    }

    /// Whether the clearing at `start` opens the link: it `removed` flows here, or others have said
    /// so of theirs. The first to find some counts it.
    fn opens(&mut self, start: Nanos, removed: bool) -> bool {
        let (first, opens) = match self.cleared_with() {
            Some((peers, _)) if removed => (peers.clearing_removed(start), true),
            Some((peers, _)) => (false, peers.clearings().1 == start),
            None => (removed, removed),
        };
        self.counts.clearings += u64::from(first);
        if opens {
            self.open_since(start);
        }
        opens
    }

    /// The clearing at `start` opens the link until the next estimate, if that is not taken yet.
    fn open_since(&mut self, start: Nanos) {
        if let Some(flushing) = &mut self.flushing {
            flushing.opened();
        }
        if self.estimates.fair_since() <= start {
            let forced = Forced { until: self.fair_due, by_eccm: false, closed: false };
            self.forced = self.forced.or(Some(forced));
        }
    }

    /// How many flows are awaited, of all workers.
    pub(super) fn awaited(&self, now: Nanos) -> u64 {
        let Some(start) = self.flushing.as_ref().and_then(|flushing| flushing.awaits_since(now))
        else {
            return 0;
        };
        let own = self.flushing.as_ref().map_or(0, |flushing| flushing.awaited(now).into());
        let elsewhere = self.cleared_with().map_or(0, |(peers, _)| peers.awaited(start));
        elsewhere.saturating_add(own)
    }

    /// The other workers hear how many flows are awaited here.
    pub(super) fn tell_awaited(&self) {
        if let Some((peers, flushing)) = self.cleared_with() {
            let (start, flows) = flushing.told();
            peers.tell_awaited(start, flows);
        }
    }

    /// There are other workers now: T_clear goes on, and nothing is awaited twice.
    pub(super) fn share_clearings(&self) {
        if let Some((peers, flushing)) = self.cleared_with() {
            peers.know_clearing(flushing.told().0);
            self.tell_awaited();
        }
    }
}
