//! Hosts whose flows are on several workers: what part of a host a worker has.
//!
//! Which flows wait elsewhere the [link](crate::share) knows. It is read again when one of a
//! host's flows begins or ceases to wait, and when the host is served, so what a worker says of
//! itself (n) is of the same counts as what it serves by.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::flow_table::{EntryId, PackedFlow};
use crate::schedule::Waiting;
use crate::schedule::buffer::FLOWS_RANGE;
use crate::share::counts::Counts;
use crate::share::hosts::FLOWS;
use crate::share::{MAX_WORKERS, SharedLink};

// All flows of all workers can be of one host.
const _: () = assert!(*FLOWS_RANGE.end() as u64 * (MAX_WORKERS as u64) < FLOWS);

/// What was known of a host when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Its flows that wait here, and everywhere.
    own: u32,
    all: u32,
    /// What this worker is due for it, in 2^-16.
    weight: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Over {
    counts: Counts,
    seen: Vec<Seen>,
    /// The least part of a host, in 2^-16.
    least: u32,
    /// n, the sum of all weights, in 2^-16.
    weight: u64,
}

impl Over {
    pub(super) fn new(link: &Arc<SharedLink>, hosts: usize, seed: u64, least: u32) -> Self {
        let counts = Counts::new(Arc::clone(link), hosts, seed);
        Self { counts, seen: alloc::vec![Seen::default(); hosts], least, weight: 0 }
    }

    /// This is the host of an entry that was another's.
    pub(super) fn name(&mut self, host: EntryId, key: &PackedFlow) {
        self.counts.name(host.index(), key);
    }

    /// One more of a host's flows waits, or one less.
    pub(super) fn change(&mut self, host: EntryId, more: bool) {
        self.counts.change(host.index(), more);
        self.look(host);
    }

    /// How many flows of a host wait.
    pub(super) fn look(&mut self, host: EntryId) -> u32 {
        let (own, all) = (self.counts.own(host.index()), self.counts.all(host.index()));
        let seen = &mut self.seen[host.index()];
        if (own, all) != (seen.own, seen.all) {
            let weight = if own == 0 { 0 } else { part(own, all).max(self.least) };
            self.weight = self.weight + u64::from(weight) - u64::from(seen.weight);
            *seen = Seen { own, all, weight };
        }
        all
    }

    /// How many flows of a host waited when it was looked at last.
    pub(super) fn known(&self, host: EntryId) -> u32 {
        self.seen[host.index()].all
    }

    /// What part of a host is here, in 2^-16; where nothing of it waits, that of a flow that did.
    pub(super) fn part(&mut self, host: EntryId) -> u32 {
        self.look(host);
        match self.seen[host.index()] {
            Seen { own: 0, all, .. } => part(1, all).max(self.least),
            Seen { weight, .. } => weight,
        }
    }

    /// n.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        if self.weight > 0 {
            self.counts.clear();
            self.seen.fill(Seen::default());
            self.weight = 0;
        }
    }
}

/// How large a part `own` flows are of `all`.
fn part(own: u32, all: u32) -> u32 {
    (u64::from(own) * Waiting::ONE / u64::from(all.max(own))) as u32
}

/// What several workers have in common, where several there are. A copy of a discipline is no
/// worker's: its hosts are counted nowhere.
#[derive(Debug, Default)]
pub(super) struct Shared(pub(super) Option<Box<Over>>);

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self(None)
    }
}
