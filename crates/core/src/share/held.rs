//! Classes that are held: each goes when its time has come, whichever worker sends it.
//!
//! A time is one word that all workers read, and whoever sends a packet of the class replaces it by
//! the next: of two who find it passed at once one does, and the other finds the class held. So
//! that it is not always the same, who sent a packet of the class of late comes a grace after those
//! that have waited longer.

use super::{AtomicU64, Ordering, SharedLink};
use crate::units::Nanos;

impl SharedLink {
    /// Classes beyond the columns share the last one, and are held together.
    fn column(&self, class: usize) -> usize {
        class.min(self.classes - 1)
    }

    fn due_of(&self, class: usize) -> &AtomicU64 {
        self.held.due.cell(self.column(class))
    }

    /// From when on a class may be served.
    pub(crate) fn due(&self, class: usize) -> Nanos {
        Nanos(self.due_of(class).load(Ordering::Relaxed))
    }

    /// The same for a worker: later by a `grace` for each other one with packets whose last turn
    /// is longer ago.
    pub(crate) fn due_for(&self, worker: usize, class: usize, grace: Nanos) -> Nanos {
        let (lengths, turns) = (&self.held.lengths, &self.held.turns);
        let class = self.column(class);
        let own = turns[worker].get(class);
        let before = lengths
            .iter()
            .zip(turns)
            .filter(|(length, turn)| length.get(class) > 0 && turn.get(class) < own)
            .count();
        self.due(class).saturating_add(grace * before as u64)
    }

    /// A packet of a class, which is due at `now`, is about to be sent, and the next is not before
    /// `next`. `false`: another worker was faster, or it is not due.
    pub(crate) fn claim(&self, class: usize, now: Nanos, next: Nanos) -> bool {
        let due = self.due_of(class);
        let before = due.load(Ordering::Relaxed);
        before <= now.0
            && due.compare_exchange(before, next.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// A worker sends a packet of a class at `now`.
    pub(crate) fn tell_turn(&self, worker: usize, class: usize, now: Nanos) {
        self.held.turns[worker].set(self.column(class), now.0);
    }

    /// A class need not wait longer than until `due`.
    pub(crate) fn hasten(&self, class: usize, due: Nanos) {
        self.due_of(class).fetch_min(due.0, Ordering::Relaxed);
    }

    /// What waits of a class at a worker has this mean length; `None`: nothing waits.
    pub(crate) fn tell_length(&self, worker: usize, class: usize, length: Option<u32>) {
        let class = self.column(class);
        self.held.lengths[worker].set(class, length.map_or(0, |length| u64::from(length.max(1))));
    }

    /// Whether packets of a class wait at other workers.
    pub(crate) fn waits_elsewhere(&self, worker: usize, class: usize) -> bool {
        let class = self.column(class);
        let others = (0..self.workers).filter(|other| *other != worker);
        others.map(|other| self.held.lengths[other].get(class)).any(|length| length > 0)
    }

    /// The mean of the lengths that workers told of what waits of a class; 1 if nothing does.
    pub(super) fn mean_length(&self, class: usize) -> u64 {
        let told = self.held.lengths.iter().map(|row| row.get(class)).filter(|length| *length > 0);
        let (sum, count) = told.fold((0, 0), |(sum, count), length| (sum + length, count + 1));
        u64::checked_div(sum, count).unwrap_or(1)
    }
}
