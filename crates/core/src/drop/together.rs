//! The shadow systems of several workers that send on one link as one.
//!
//! Each worker's shadow holds the flows that it meets. What each flow is due depends on all: the
//! fluid serves every backlogged group of any worker by weight, and in it every backlogged flow of
//! every worker alike, by weight. So each worker says how much weight of each group is backlogged
//! in its shadow, how much work, and how much has come. Whoever begins a batch fills what the link
//! could send since its last one into its own backlogs and those of the others, by weighted
//! max-min: a group, or a worker's flows in it, that need less than their part leave the rest to
//! the others. There is no lock and no waiting: each worker writes cells of its own, three for a
//! packet and some for a batch, and reads those of the others.
//!
//! **What others need.** A worker may begin many batches while another begins one. So what the
//! other needs is what was left of it when it was last looked at and what has come since, though it
//! may be through with it by now; or what it says, if that is more. What it is served here is left
//! out the next time, and what it does not have any more is forgotten. One that has nothing to do
//! says nothing, and is through when it has been served here.
//!
//! **The rate** is what the first worker says, which alone knows it where it follows a line.
//!
//! Bound: what a shadow misses of its share is what backlogs change within a batch. The flows of a
//! group at another worker are taken for one: what some of them do not need the others there have.

use alloc::vec::Vec;

use super::config::FlowTableConfig;
use crate::share::{MAX_WORKERS, Row};
use crate::units::{BitRate, Nanos};

/// Who says the rate.
const FIRST: usize = 0;
/// The cell of when a worker last began a batch; three for each group follow.
const AT: usize = 0;
const CELLS: usize = 3;

/// What the workers' shadows of one link say of themselves.
#[derive(Debug)]
pub struct SharedShadow {
    /// Bits per second; 0: not said.
    rate: Row,
    workers: Vec<Row>,
}

/// The flows of a group at a worker, in work as the shadow counts it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Backlog {
    /// What its backlogged flows weigh.
    pub(super) weights: u64,
    /// What of them waits.
    pub(super) work: u64,
    /// What has come, wrapping.
    pub(super) came: u64,
}

/// What one worker knows of a group at another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// What it said last, and when it had begun a batch; `None`: nothing was heard of it.
    said: Option<(u64, Backlog)>,
    /// What its backlogged flows weigh.
    pub(super) weights: u64,
    /// What is to be served of it; between batches, what is left of that.
    pub(super) needs: u64,
}

impl Known {
    /// It says this now, of a batch that began at `at`.
    fn hear(&mut self, at: u64, says: Backlog) {
        let came = self.said.map_or(says.work, |(_, said)| says.came.wrapping_sub(said.came));
        let left = self.needs.saturating_add(came);
        let is_new = self.said != Some((at, says));
        self.needs = if is_new { left.max(says.work) } else { left };
        // It may be through already with what came.
        self.weights = if says.weights > 0 { says.weights } else { self.weights.max(1) };
        self.said = Some((at, says));
    }

    /// Each unit of its weight has had so much of what it needs.
    pub(super) fn served(&mut self, level: u128) {
        let served = u128::from(self.needs).min(level * u128::from(self.weights));
        let says = self.said.map_or(0, |(_, said)| said.work);
        self.needs = (self.needs - served as u64).min(says);
    }

    /// What it weighs, if anything of it waits.
    pub(super) fn backlogged(&self) -> u64 {
        if self.needs > 0 { self.weights } else { 0 }
    }
}

impl SharedShadow {
    /// Of so many workers, at most [`MAX_WORKERS`]; nothing is backlogged.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let cells = 1 + CELLS * FlowTableConfig::MAX_GROUPS;
        let rows = (0..workers.clamp(1, MAX_WORKERS)).map(|_| Row::new(cells));
        Self { rate: Row::new(1), workers: rows.collect() }
    }

    /// A worker sends by this rate: that of the first one counts.
    pub(super) fn tell_rate(&self, worker: usize, rate: BitRate) {
        if worker == FIRST {
            self.rate.set(0, rate.0);
        }
    }

    /// By what rate the link is served, if that was said.
    pub(super) fn rate(&self) -> Option<BitRate> {
        Some(BitRate(self.rate.get(0))).filter(|rate| rate.0 > 0)
    }

    /// How many other workers there are.
    pub(super) fn others(&self) -> usize {
        self.workers.len() - 1
    }

    /// `worker` begins a batch at `now`.
    pub(super) fn tell_time(&self, worker: usize, now: Nanos) {
        self.workers[worker].set(AT, now.0);
    }

    /// `worker` has this of a group.
    #[inline]
    pub(super) fn tell(&self, worker: usize, group: usize, backlog: Backlog) {
        let (row, at) = (&self.workers[worker], 1 + CELLS * group);
        row.set(at, backlog.weights);
        row.set(at + 1, backlog.work);
        row.set(at + 2, backlog.came);
    }

    /// What a worker said last of a group.
    pub(super) fn said(&self, worker: usize, group: usize) -> Backlog {
        let (row, at) = (&self.workers[worker], 1 + CELLS * group);
        Backlog { weights: row.get(at), work: row.get(at + 1), came: row.get(at + 2) }
    }

    /// What is `known` to `worker` of a group at each of the others, as they say it now.
    pub(super) fn hear(&self, worker: usize, group: usize, known: &mut [Known]) {
        let others = (0..self.workers.len()).filter(|other| *other != worker);
        for (other, known) in others.zip(known) {
            known.hear(self.workers[other].get(AT), self.said(other, group));
        }
    }
}

/// The level of weighted max-min: of `capacity` everybody has what it needs, or this for each unit
/// of its weight. Who wants something is (weight, need).
pub(super) fn level(capacity: u128, wanting: impl Iterator<Item = (u64, u128)> + Clone) -> u128 {
    let mut level = 0;
    loop {
        let (mut left, mut weights) = (capacity, 0);
        for (weight, need) in wanting.clone() {
            if need <= level * u128::from(weight) {
                left = left.saturating_sub(need);
            } else {
                weights += u128::from(weight);
            }
        }
        // Who is content now may leave something to the others.
        match left.checked_div(weights) {
            Some(higher) if higher > level => level = higher,
            Some(_) => return level,
            // 2^64 units of work for each unit of weight are more than anybody has.
            None => return 1 << 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::max_min;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_level_is_that_of_the_water_filling_of_the_reference(
            capacity in 0..3_000_000_u64,
            wanting in prop::collection::vec((1..9_u64, 0..1_000_000_u64), 1..9),
        ) {
            let each = wanting.iter().map(|(weight, need)| (*weight, u128::from(*need)));
            let level = level(capacity.into(), each);
            let demands = wanting.iter().map(|(weight, need)| (*need as f64, *weight as f64));
            let demands: Vec<_> = demands.collect();
            for ((weight, need), fair) in wanting.iter().zip(max_min(capacity as f64, &demands)) {
                let part = u128::from(*need).min(level * u128::from(*weight)) as f64;
                // What cannot be divided evenly is nobody's.
                prop_assert!((part - fair).abs() <= 8.0, "{weight} {need}: {part}, not {fair}");
            }
        }
    }

    /// A worker that begins a batch while this one begins many, or the other way round, needs what
    /// has come to it, once.
    #[test]
    fn what_comes_to_another_is_served_once_however_batches_lie() {
        let says = |weights, work, came| Backlog { weights, work, came };
        let mut known = Known::default();
        known.hear(10, says(1, 500, 500));
        known.served(300);
        assert_eq!((known.needs, known.backlogged()), (200, 1));
        // It says nothing new.
        known.hear(10, says(1, 500, 500));
        known.served(300);
        assert_eq!((known.needs, known.backlogged()), (0, 0));
        // 1,000 came in many batches, of which all but the last 100 have been served there.
        known.hear(90, says(1, 100, 1_500));
        assert_eq!(known.needs, 1_000);
        known.served(600);
        assert_eq!(known.needs, 100, "the rest it does not have any more");
        // Another has taken its place, of which more stands than came since.
        known.hear(95, says(2, 700, 1_500));
        assert_eq!((known.needs, known.weights), (700, 2));
        // And it is through already with what came.
        let mut late = Known::default();
        late.hear(5, says(0, 0, 100));
        late.hear(9, says(0, 0, 160));
        assert_eq!((late.needs, late.backlogged()), (60, 1));
        late.served(1);
        assert_eq!(late.needs, 0);
    }
}
