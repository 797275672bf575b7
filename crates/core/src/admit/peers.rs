//! The other workers of a link, each with an admission for the flows that it meets: what they tell
//! each other, by the [link](crate::share) that they share.

use alloc::sync::Arc;

use crate::share::{LetIn, SharedLink};
use crate::units::{Bytes, Nanos};

/// The other workers that let flows in to the same link.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    link: Arc<SharedLink>,
    worker: usize,
    /// What they have let in that is known here.
    known: u64,
}

impl Peers {
    pub(super) fn new(link: Arc<SharedLink>, worker: usize) -> Self {
        let known = link.entered_elsewhere(worker);
        Self { link, worker, known }
    }

    /// What the others have let in of late; what one that stands still for `patience` has said is
    /// forgotten.
    pub(super) fn let_in(&self, now: Nanos, patience: Nanos) -> LetIn {
        self.link.let_in_elsewhere(self.worker, now, patience)
    }

    /// The others are told what this one has let in of late.
    pub(super) fn tell_let_in(&self, now: Nanos, let_in: LetIn) {
        self.link.tell_let_in(self.worker, now, let_in);
    }

    /// This one opens the link by ECCM.
    pub(super) fn tell_opened(&self, now: Nanos) {
        self.link.tell_opened(self.worker, now);
    }

    /// When another last opened it.
    pub(super) fn opened(&self) -> Nanos {
        self.link.opened_elsewhere(self.worker)
    }

    /// What first packets the others have let in since the last call.
    pub(super) fn entered(&mut self) -> u64 {
        let entered = self.link.entered_elsewhere(self.worker);
        entered.wrapping_sub(core::mem::replace(&mut self.known, entered))
    }

    /// How many workers share the link.
    pub(super) fn workers(&self) -> u64 {
        self.link.workers() as u64
    }

    /// This one let a flow in whose first packet is so long.
    pub(super) fn tell_entered(&self, length: Bytes) {
        self.link.flow_entered(self.worker, length);
    }

    /// The last clearing of the link, and the last that took a flow off any worker's list.
    pub(super) fn clearings(&self) -> (Nanos, Nanos) {
        self.link.clearings()
    }

    /// This one clears the lists of all, if T_clear is over: see [`SharedLink::claim_clearing`].
    pub(super) fn claim_clearing(&self, now: Nanos, interval: Nanos) -> Option<Nanos> {
        self.link.claim_clearing(now, interval)
    }

    /// The others hear of a clearing before they shared the link with this one.
    pub(super) fn know_clearing(&self, start: Nanos) {
        self.link.know_clearing(start);
    }

    /// A clearing took a flow off this one's list; whether it is the first.
    pub(super) fn clearing_removed(&self, start: Nanos) -> bool {
        self.link.clearing_removed(start)
    }

    /// This one awaits so many flows of a clearing.
    pub(super) fn tell_awaited(&self, start: Nanos, flows: u32) {
        self.link.tell_awaited(self.worker, start, flows);
    }

    /// Flows of a clearing that the others await.
    pub(super) fn awaited(&self, start: Nanos) -> u64 {
        self.link.awaited_elsewhere(self.worker, start)
    }

    /// This one sends a packet by the second link.
    pub(super) fn tell_diverted(&self, length: Bytes) {
        self.link.tell_diverted(self.worker, length);
    }

    /// Bytes that the others have sent there, wrapping.
    pub(super) fn diverted(&self) -> u64 {
        self.link.diverted_elsewhere(self.worker)
    }
}
