//! What the admissions of a link's workers have let in of late, which is not in the fair rate yet:
//! each tells the others.
//!
//! A worker's statement is several cells, which need not fit together: a reader may miss a flow
//! that comes while it reads, as it would a moment earlier. What a worker that stands still has
//! said is forgotten.

use super::{SharedLink, Told};
use crate::units::{Bytes, Nanos};

/// Flows that were let in of late; sums of several workers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LetIn {
    /// Flows that may turn elastic yet, and how many probably will, in 2^-16.
    pub young: u64,
    pub coming: u64,
    /// Guests that take a place, and how many of them probably turn elastic, in 2^-16.
    pub guests: u64,
    pub likely: u64,
}

impl LetIn {
    /// The larger of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            young: self.young.max(other.young),
            coming: self.coming.max(other.coming),
            guests: self.guests.max(other.guests),
            likely: self.likely.max(other.likely),
        }
    }
}

impl SharedLink {
    /// A worker admitted a flow whose first packet is `length` long.
    pub(crate) fn flow_entered(&self, worker: usize, length: Bytes) {
        let before = self.told(worker, Told::First);
        self.tell(worker, Told::First, before.wrapping_add(length.0));
    }

    /// Bytes of first packets of all flows that the other workers admitted, wrapping.
    pub(crate) fn entered_elsewhere(&self, worker: usize) -> u64 {
        self.all_told(Told::First).wrapping_sub(self.told(worker, Told::First))
    }

    /// A worker says what it has let in of late.
    pub(crate) fn tell_let_in(&self, worker: usize, now: Nanos, let_in: LetIn) {
        let LetIn { young, coming, guests, likely } = let_in;
        self.tell(worker, Told::Young, young);
        self.tell(worker, Told::Coming, coming);
        self.tell(worker, Told::Guests, guests);
        self.tell(worker, Told::Likely, likely);
        self.tell(worker, Told::LetInAt, now.0);
    }

    /// A worker opens the closed link by ECCM.
    pub(crate) fn tell_opened(&self, worker: usize, now: Nanos) {
        self.tell(worker, Told::Opened, now.0);
    }

    /// When another worker last opened the link.
    pub(crate) fn opened_elsewhere(&self, worker: usize) -> Nanos {
        let others = (0..self.workers).filter(|other| *other != worker);
        Nanos(others.map(|other| self.told(other, Told::Opened)).max().unwrap_or(0))
    }

    /// What the other workers have let in, of those that said so within `patience`.
    pub(crate) fn let_in_elsewhere(&self, worker: usize, now: Nanos, patience: Nanos) -> LetIn {
        let mut sum = LetIn::default();
        for other in (0..self.workers).filter(|other| *other != worker) {
            if now.saturating_sub(Nanos(self.told(other, Told::LetInAt))) > patience {
                continue;
            }
            sum.young += self.told(other, Told::Young);
            sum.coming += self.told(other, Told::Coming);
            sum.guests += self.told(other, Told::Guests);
            sum.likely += self.told(other, Told::Likely);
        }
        sum
    }
}
