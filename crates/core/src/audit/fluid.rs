//! The fluid server that a link is held against, a step at a time.
//!
//! In each step the bytes that the link could send, or has sent, are filled into what waits in the
//! fluid by weighted max-min, level by level: what generalised processor sharing does in that time
//! if what came in the step was there from its beginning. While a class has something waiting in
//! the fluid the step is exact; one that begins or ends in it is served too early by no more than
//! came in it. One of which the link had nothing for a part of the step is behind by no more after
//! it than before: what came after the pause was not there from the beginning, and such steps, one
//! for each pause, would add up while the class loses packets.
//!
//! **What is lost** is lost in the fluid too, but only as far as the fluid holds as much as the
//! link did when it dropped: a class that was served too slowly lost packets that the fluid would
//! have had room for. So what a link loses because it is unfair counts as not delivered. Of a burst
//! that comes at once only what fits into the queue is offered to the fluid: no server could have
//! made room for more ([`Runs`](super::ledger)).
//!
//! **Lag** of a class: what the fluid has sent of it less what the link has. When the fluid has
//! nothing left of a class, its lag is what still waits in the link; when the link has not, none.

use alloc::vec::Vec;

use super::ledger::Account;

/// Less than this many bytes is rounding.
const DUST: f64 = 0.5;

/// One class in the fluid.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Its weight among those of its level.
    pub(super) weight: f64,
    /// Higher levels are served first.
    pub(super) level: u32,
    /// What waits in the fluid, bytes.
    backlog: f64,
    /// By how many bytes the link is behind the fluid.
    pub(super) lag: f64,
    /// What the fluid sent since the last [`Fluid::align`].
    pub(super) due: f64,
    /// What the link sent since then.
    pub(super) had: f64,
    /// What the fluid sends of it in this step.
    part: f64,
}

/// The fluid.
#[derive(Clone, Debug, Default)]
pub(super) struct Fluid {
    pub(super) shares: Vec<Share>,
}

impl Fluid {
    /// Classes by (level, weight), nothing in them. A class of weight zero has no claim.
    pub(super) fn new(classes: impl Iterator<Item = (u32, f64)>) -> Self {
        let share = |(level, weight)| Share { level, weight, ..Share::default() };
        Self { shares: classes.map(share).collect() }
    }

    /// Has in it what waits in the link, and no lag.
    pub(super) fn align(&mut self, accounts: &[Account]) {
        for (share, account) in self.shares.iter_mut().zip(accounts) {
            let backlog = account.waits() as f64;
            *share =
                Share { weight: share.weight, level: share.level, backlog, ..Share::default() };
        }
    }

    /// A step in which `capacity` bytes could leave, `moved` is what happened in the link by class,
    /// and `accounts` how it stands after that.
    pub(super) fn step(&mut self, capacity: f64, moved: &[Account], accounts: &[Account]) {
        for (share, moved) in self.shares.iter_mut().zip(moved) {
            share.backlog += moved.offered.saturating_sub(moved.in_vain) as f64;
            share.part = 0.0;
        }
        self.fill(capacity);
        for ((share, moved), account) in self.shares.iter_mut().zip(moved).zip(accounts) {
            let lost = moved.lost.saturating_sub(moved.in_vain) as f64;
            let sent = moved.sent as f64;
            if account.paused {
                // What came after the pause was there from the beginning for the fluid only.
                share.part = share.part.min(sent + (-share.lag).max(0.0));
            }
            share.lag += share.part - sent;
            share.due += share.part;
            share.had += sent;
            share.backlog -= share.part;
            let waits = account.waits() as f64;
            if waits == 0.0 {
                // The link has nothing of it left and owes it nothing. The fluid has left what the
                // link sent before it would.
                share.lag = share.lag.min(0.0);
                share.backlog = share.backlog.min(-share.lag);
            } else if lost > 0.0 {
                let room = waits.max(account.full as f64);
                share.backlog = share.backlog.min(room).max(share.backlog - lost).max(0.0);
            } else if share.backlog < DUST {
                share.backlog = 0.0;
                share.lag = share.lag.min(waits);
            }
        }
        self.even();
    }

    /// What the fluid has sent of a class that the link then lost is owed to nobody any more: the
    /// others have had it in its place. So lags add up to nothing again.
    fn even(&mut self) {
        let sum: f64 = self.shares.iter().map(|share| share.lag).sum();
        let ahead: f64 = self.shares.iter().map(|share| share.lag.min(0.0)).sum();
        if sum > -DUST {
            return;
        }
        for share in self.shares.iter_mut().filter(|share| share.lag < 0.0) {
            let had = share.lag / ahead * -sum;
            share.lag += had;
            share.backlog = (share.backlog - had).max(0.0);
        }
    }

    fn fill(&mut self, mut left: f64) {
        let mut below = None;
        while let Some(level) = self.highest(below) {
            left = self.fill_level(level, left);
            below = Some(level);
        }
    }

    /// The highest level with something waiting, below `below`.
    fn highest(&self, below: Option<u32>) -> Option<u32> {
        let waits = self.shares.iter().filter(|s| s.backlog > 0.0 && s.weight > 0.0);
        waits.map(|s| s.level).filter(|level| below.is_none_or(|below| *level < below)).max()
    }

    /// Weighted max-min in one level; what is left.
    fn fill_level(&mut self, level: u32, mut left: f64) -> f64 {
        // Each turn serves those to the end who need less than their share, or all that is left.
        while left > DUST {
            let open =
                |s: &&mut Share| s.level == level && s.weight > 0.0 && s.backlog - s.part > 0.0;
            let weights: f64 = self.shares.iter_mut().filter(open).map(|s| s.weight).sum();
            if weights == 0.0 {
                return left;
            }
            let unit = left / weights;
            let mut ended = false;
            for share in self.shares.iter_mut().filter(open) {
                let needs = share.backlog - share.part;
                if needs <= unit * share.weight {
                    share.part = share.backlog;
                    left -= needs;
                    ended = true;
                }
            }
            if !ended {
                for share in self.shares.iter_mut().filter(open) {
                    share.part += unit * share.weight;
                }
                return 0.0;
            }
        }
        left
    }

    /// The class that is furthest beyond its bound, and by how many times.
    pub(super) fn worst(&self, bound: impl Fn(usize) -> f64) -> Option<(usize, f64)> {
        let beyond = self.shares.iter().enumerate().map(|(at, s)| (at, s.lag / bound(at).max(1.0)));
        beyond.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The parts of all that the fluid and the link sent of a class since the last
    /// [`align`](Self::align), in millionths: told, delivered.
    pub(super) fn parts(&self, class: usize) -> (u32, u32) {
        let sum = |of: fn(&Share) -> f64| self.shares.iter().map(of).sum::<f64>().max(1.0);
        let ppm = |part: f64, all: f64| (part / all * 1e6) as u32;
        let share = &self.shares[class];
        (ppm(share.due, sum(|s| s.due)), ppm(share.had, sum(|s| s.had)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Gps, max_min};
    use crate::{BitRate, Bytes, Nanos, Weight};

    fn came(bytes: &[u64]) -> Vec<Account> {
        bytes.iter().map(|b| Account { offered: *b, ..Account::default() }).collect()
    }

    #[test]
    fn a_step_is_the_water_filling_of_the_reference() {
        for (capacity, demands) in
            [(1_000.0, [800, 100, 800]), (500.0, [100, 100, 100]), (7_000.0, [9_000, 9_000, 1])]
        {
            let weights = [1.0, 1.0, 2.0];
            let mut fluid = Fluid::new(weights.into_iter().map(|w| (0, w)));
            fluid.step(capacity, &came(&demands), &came(&demands));
            let pairs: Vec<_> = demands.iter().map(|d| *d as f64).zip(weights).collect();
            for (share, wanted) in fluid.shares.iter().zip(max_min(capacity, &pairs)) {
                assert!((share.due - wanted).abs() < 1.0, "{share:?} {wanted}");
            }
        }
    }

    #[test]
    fn steps_follow_fluid_processor_sharing_within_what_comes_in_one() {
        let weights = [Weight(1), Weight(3), Weight(2)];
        let mut gps = Gps::new(BitRate::from_mbps(8), &weights);
        let mut fluid = Fluid::new(weights.into_iter().map(|w| (0, f64::from(w.0))));
        // A byte in a microsecond; steps of 500 us; class 1 pauses in every fourth.
        for n in 0..400u64 {
            let sizes = [400, if n % 4 == 0 { 0 } else { 500 }, 90];
            for (class, bytes) in sizes.into_iter().enumerate() {
                gps.arrive(Nanos::from_micros(n * 500), class, Bytes(bytes));
            }
            gps.advance(Nanos::from_micros(n * 500 + 500));
            fluid.step(500.0, &came(&sizes), &came(&sizes));
            for class in 0..3 {
                let (have, wanted) = (fluid.shares[class].due, gps.served(class));
                assert!((have - wanted).abs() < 1.0, "{n} {class}: {have} {wanted}");
            }
        }
    }

    #[test]
    fn a_higher_level_takes_all_it_needs() {
        let mut fluid = Fluid::new([(0, 1.0), (7, 1.0), (0, 1.0)].into_iter());
        let all = came(&[600, 700, 600]);
        fluid.step(1_000.0, &all, &all);
        assert_eq!([0, 1, 2].map(|at| fluid.shares[at].due), [150.0, 700.0, 150.0]);
    }
}
