//! The shadow systems of several workers that send on one link as one.
//!
//! Each worker's shadow holds the flows that it meets. What each flow is due depends on all: the
//! fluid serves every backlogged flow of every worker alike, by weight. So each worker says how
//! much weight is backlogged in its shadow and how much work, and is served the part of the link's
//! rate that its weight is of all; a flow's part of the buffer is told in the same way. There is no
//! lock and no waiting: each worker writes three cells of its own per batch and reads those of the
//! others.
//!
//! A worker that has nothing to do writes nothing: what it said last counts for as long as its part
//! of the rate would have taken to serve it.
//!
//! Bound: what a shadow misses of its share is what weights change within a batch; packets of the
//! others since their last batch are not seen yet. Not implemented: groups, whose weights count
//! once however many workers their flows are on.

use alloc::vec::Vec;

use crate::share::{MAX_WORKERS, Row};
use crate::units::Nanos;

const WEIGHTS: usize = 0;
const WORK: usize = 1;
const AT: usize = 2;

/// What the workers' shadows of one link say of themselves.
#[derive(Debug)]
pub struct SharedShadow(Vec<Row>);

/// What backlogged flows elsewhere weigh, and their work in bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elsewhere {
    pub(super) weights: u64,
    pub(super) work: u64,
}

impl SharedShadow {
    /// Of so many workers, at most [`MAX_WORKERS`]; nothing is backlogged.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self((0..workers.clamp(1, MAX_WORKERS)).map(|_| Row::new(3)).collect())
    }

    /// `worker` has this backlog at `now`.
    pub(super) fn tell(&self, worker: usize, now: Nanos, weights: u64, work: u64) {
        let row = &self.0[worker];
        row.set(AT, now.0);
        row.set(WORK, work);
        row.set(WEIGHTS, weights);
    }

    /// What the others have at `now`, in a fluid that serves `rate` bits per second to all; `own`:
    /// weights of `worker` itself.
    pub(super) fn elsewhere(&self, worker: usize, now: Nanos, rate: u64, own: u64) -> Elsewhere {
        let others =
            || self.0.iter().enumerate().filter(|(other, _)| *other != worker).map(|(_, row)| row);
        let all: u64 = others().map(|row| row.get(WEIGHTS)).fold(own, u64::saturating_add);
        others().fold(Elsewhere::default(), |sum, row| {
            let weights = row.get(WEIGHTS);
            let passed = u128::from(now.0.saturating_sub(row.get(AT)));
            let bits = u128::from(rate) * passed / 1_000_000_000 * u128::from(weights)
                / u128::from(all.max(1));
            let left = u128::from(row.get(WORK)).saturating_sub(bits) as u64;
            match left {
                0 => sum,
                left => Elsewhere {
                    weights: sum.weights + weights,
                    work: sum.work.saturating_add(left),
                },
            }
        })
    }
}
