//! The shadow system: a fluid that serves every backlogged flow at once, by weight (head-of-line
//! processor sharing).
//!
//! Sources: Addanki, Linguaglossa, Roberts, Rossi, "Controlling software router resource sharing by
//! fair packet dropping" (IFIP Networking 2018; demo paper 2018). Virtual time: Parekh and
//! Gallager, 1993.
//!
//! The published code drains `credit` units of work by walking all backlogged flows, each loses its
//! share, what emptied flows left over is walked over again. Here nobody is walked. Virtual time
//! `v` of a group is the work that a flow of weight 1, backlogged all the time, would have been
//! served: a credit of `c` moves it by `c / W`, W the weights of the backlogged flows. A flow that
//! got work `x` at `v` is through at `v + x / w`, whatever others do, so flows leave in the order
//! of these instants, and between two of them `W` does not change. `tests/` prove it equal to the
//! walk.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | VQ_i | `(finish - clock) * weight` of a backlogged flow, else 0 | work: cycles or bits |
//! | active list A, nbl | `Departures`, `Group::count` | flows |
//! | W, sum of w over A | `Group::weights` | - |
//! | W_g | `Group::weight` | - |
//! | credit | argument of [`Shadow::drain`] | work |
//!
//! Numbers: work is Q48.16 in `u64` (2^-16 of a cycle or bit); virtual time is work per unit of
//! weight in the same layout and wraps. What a division leaves over is kept for the next drain, so
//! nothing is lost but what an emptied group cannot use.
//!
//! ```text
//!   63                        16 15          0
//!   |  whole cycles or bits     |  fraction  |
//! ```
//!
//! Two levels: groups share by their weights, flows within their group. A group's share does not
//! depend on how it is used inside, so groups are served first, by their total backlogs, and each
//! group then drains what it got. (The published two-level walk hands what an emptied flow left
//! over to all groups, its own included; here it stays in the group as long as the group has
//! backlog, as in hierarchical GPS.)
//!
//! **A given clock.** Where the speed of the clock is given from outside (the level rule, without
//! groups), no list of backlogged flows is needed: a flow's queue is `finish - clock` when its next
//! packet comes, and 0 if that is negative. Then flows are in no queue, nothing is done for a flow
//! that leaves, and a packet costs a comparison and an addition. What is left to do is that finish
//! times of silent flows must not be overtaken by a clock that wraps: every 2^61 / N of the clock
//! one of the N places is refreshed.
//!
//! Complexity: charging a packet O(1), without a division; a drain costs one division per flow that
//! leaves, whatever the number of flows; with G groups O(G^2) at worst besides; advancing a given
//! clock costs nothing per flow.

use alloc::vec::Vec;

use super::config::{FlowTableConfig, ProcessingClass, ShareId};
use super::departures::Departures;
use super::table::{Flow, IDLE, Table};
use super::together::Backlog;
use crate::out_of_range::within;
use crate::settings::SettingError;

/// One flow of a dropper's table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowView {
    /// The upper half of its hash.
    pub tag: u32,
    /// What it is due.
    pub share: ShareId,
    /// The class its last packet took.
    pub class: ProcessingClass,
    /// Cycles (or bits) charged to it since it entered the table.
    pub charged: u64,
    /// Packets refused since then (saturates).
    pub refused: u32,
    /// Its shadow queue now, in cycles (or bits).
    pub backlog: u64,
}

/// Bits of fraction of work and of virtual time.
pub(super) const FRACTION: u32 = 16;
/// The longest credit that is told apart from more: seven minutes of a core at 2.6 GHz.
pub(super) const MAX_CREDIT: u64 = 1 << (40 + FRACTION);

#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Virtual time.
    pub(super) clock: u64,
    /// Sum of the weights of its backlogged flows.
    pub(super) weights: u64,
    /// How many they are.
    pub(super) count: u32,
    /// Its weight among groups.
    pub(super) weight: u64,
    /// Refuse above this: virtual time per packet's flow, that is, work per unit of weight.
    pub(super) limit: u64,
    /// What is charged to a flow that is further ahead is not held against it.
    pub(super) cap: u64,
    /// Work of all its flows together.
    pub(super) backlog: u128,
    /// Work that it was given and that is too little to move the clock by one.
    rest: u64,
    departures: Departures,
}

impl Group {
    fn new(weight: u16) -> Self {
        Self {
            clock: 0,
            weights: 0,
            count: 0,
            weight: weight.into(),
            limit: u64::MAX,
            cap: u64::MAX,
            backlog: 0,
            rest: 0,
            departures: Departures::new(),
        }
    }

    /// What the other workers are told of it, with what has come.
    pub(super) fn told(&self, came: u64) -> Backlog {
        let work = u64::try_from(self.backlog).unwrap_or(u64::MAX);
        Backlog { weights: self.weights, work, came }
    }
}

/// Tables of flows and groups, and the fluid in them.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    pub(super) table: Table,
    pub(super) groups: Vec<Group>,
    shares: Vec<Row>,
    /// Work too little to be shared among groups.
    rest: u64,
    /// The clock of the only group is given: see the [module](self).
    given: bool,
    /// Flows that got work when they had none, since the given clock last moved.
    started: u32,
    /// The place to be refreshed next, and how far the clock went since one was.
    hand: u32,
    unrefreshed: u64,
}

/// A flow that was looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) index: u32,
    /// Its backlog per unit of weight.
    pub(super) ahead: u64,
    /// Above which it is refused.
    pub(super) limit: u64,
}

/// What a flow is due, ready for use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// 2^63 / weight, rounded up: `(work * reciprocal) >> 63` is `work / weight` exactly for all
    /// work up to 2^52.
    reciprocal: u64,
    pub(super) weight: u16,
    pub(super) group: u8,
}

fn rows(config: &FlowTableConfig) -> Vec<Row> {
    let row = |share: &super::Share| Row {
        reciprocal: (1_u64 << 63).div_ceil(share.weight.into()),
        weight: share.weight,
        group: share.group,
    };
    config.shares.iter().map(row).collect()
}

/// `work` per unit of weight.
#[inline]
fn per_weight(work: u64, row: &Row) -> u64 {
    ((u128::from(work) * u128::from(row.reciprocal)) >> 63) as u64
}

/// Most work that is charged at once: a packet at the largest cost is less than half of it.
pub(super) const MAX_WORK: u64 = 1 << 52;
/// No flow is further ahead of a given clock than that.
pub(super) const MAX_AHEAD: u64 = 1 << 61;
/// How far a given clock goes between two refreshments of one and the same place.
const REFRESH: u64 = 1 << 61;
/// Places that are looked at to know how many flows are backlogged, where the clock is given.
const SAMPLED: usize = 1 << 16;

impl Shadow {
    /// Empty. `config` was checked.
    pub(super) fn new(config: &FlowTableConfig) -> Self {
        Self {
            table: Table::new(config.flows),
            groups: config.groups.iter().map(|weight| Group::new(*weight)).collect(),
            shares: rows(config),
            rest: 0,
            given: false,
            started: 0,
            hand: 0,
            unrefreshed: 0,
        }
    }

    /// The place of a flow, its backlog per unit of weight, and above which it is refused.
    #[inline]
    pub(super) fn look(&mut self, hash: u64, share: ShareId) -> Looked {
        let known = self.known(share);
        if self.given {
            let Group { clock, limit, .. } = self.groups[0];
            let index = self.table.find(hash, clock, |flow| behind(flow, clock) > 0);
            let flow = &mut self.table.flows[index as usize];
            let ahead = behind(flow, clock);
            if ahead == 0 {
                flow.share = known;
            }
            return Looked { index, ahead, limit };
        }
        let index = self.table.find(hash, 0, |flow| !flow.is_idle());
        let flow = &mut self.table.flows[index as usize];
        if flow.is_idle() {
            flow.share = known;
        }
        let group = &self.groups[usize::from(self.shares[usize::from(flow.share)].group)];
        let ahead = if flow.is_idle() { 0 } else { flow.finish.wrapping_sub(group.clock) };
        Looked { index, ahead, limit: group.limit }
    }

    /// Rows beyond the table count as the first.
    #[inline]
    fn known(&self, share: ShareId) -> u8 {
        if usize::from(share.0) < self.shares.len() { share.0 } else { 0 }
    }

    /// What the flow at a place is due.
    #[inline]
    pub(super) fn share(&self, index: u32) -> Row {
        self.shares[usize::from(self.table.flows[index as usize].share)]
    }

    /// Shadow backlog of the flow at a place.
    fn ahead_work(&self, index: u32) -> u64 {
        let flow = &self.table.flows[index as usize];
        let share = self.share(index);
        let clock = self.groups[usize::from(share.group)].clock;
        let ahead = match self.given {
            true => behind(flow, clock),
            false if flow.is_idle() => 0,
            false => flow.finish.wrapping_sub(clock),
        };
        ahead.saturating_mul(share.weight.into())
    }

    /// Shadow backlog of the flow at a place, in whole units.
    pub(super) fn backlog_of(&self, index: u32) -> u64 {
        self.ahead_work(index) >> FRACTION
    }

    /// The flow at a place got `work`, at most [`MAX_WORK`].
    #[inline]
    pub(super) fn charge(&mut self, index: u32, work: u64) {
        let ahead = match self.given {
            true => behind(&self.table.flows[index as usize], self.groups[0].clock),
            false => 0,
        };
        self.charge_looked_up(index, ahead, work);
    }

    /// The same, right after it was [looked up](Self::look) and `ahead` was found.
    #[inline]
    pub(super) fn charge_looked_up(&mut self, index: u32, ahead: u64, work: u64) {
        let flow = &mut self.table.flows[index as usize];
        let row = &self.shares[usize::from(flow.share)];
        let virtual_work = per_weight(work, row);
        flow.charged = flow.charged.wrapping_add(work >> FRACTION);
        if self.given {
            let group = &self.groups[0];
            self.started += u32::from(ahead == 0);
            if ahead <= group.cap {
                flow.finish = group.clock.wrapping_add(ahead + virtual_work);
            }
            return;
        }
        let group = &mut self.groups[usize::from(row.group)];
        let (weight, virtual_work) = (u64::from(row.weight), virtual_work.max(1));
        if flow.next != IDLE && flow.finish.wrapping_sub(group.clock) > group.cap {
            return;
        }
        group.backlog += u128::from(virtual_work * weight);
        if flow.next == IDLE {
            flow.finish = group.clock.wrapping_add(virtual_work);
            group.weights += weight;
            group.count += 1;
            group.departures.insert(&mut self.table.flows, index, group.clock);
        } else {
            flow.finish = flow.finish.wrapping_add(virtual_work);
        }
    }

    /// Work of all flows together.
    #[inline]
    pub(super) fn work(&self) -> u128 {
        match self.groups.as_slice() {
            [flat] => flat.backlog,
            groups => groups.iter().map(|group| group.backlog).sum(),
        }
    }

    /// Work of all flows together, in whole units.
    pub(super) fn backlog(&self) -> u64 {
        u64::try_from(self.work() >> FRACTION).unwrap_or(u64::MAX)
    }

    /// How many flows are backlogged; where the clock is given and the table is large, projected
    /// from a part of it.
    pub(super) fn backlogged(&self) -> u32 {
        if !self.given {
            return self.groups.iter().map(|group| group.count).sum();
        }
        let (flows, clock) = (&self.table.flows, self.groups[0].clock);
        let step = flows.len().div_ceil(SAMPLED);
        let seen = flows.iter().step_by(step).filter(|flow| behind(flow, clock) > 0).count();
        (seen * step) as u32
    }

    /// Sum of the weights of groups that are backlogged; with one group, of its backlogged flows.
    pub(super) fn weights(&self) -> u64 {
        match self.groups.as_slice() {
            [flat] => flat.weights,
            groups => groups.iter().filter(|g| g.count > 0).map(|g| g.weight).sum(),
        }
    }

    /// All flows that were ever seen and are remembered.
    pub(super) fn views(&self) -> impl Iterator<Item = FlowView> + '_ {
        let seen = |(_, flow): &(usize, &Flow)| flow.tag != 0;
        self.table.flows.iter().enumerate().filter(seen).map(|(index, flow)| FlowView {
            tag: flow.tag,
            share: ShareId(flow.share),
            class: ProcessingClass(flow.class),
            charged: flow.charged,
            refused: flow.refused,
            backlog: self.backlog_of(index as u32),
        })
    }

    /// Other weights for the same groups: every flow keeps its backlog. Walks the table: for
    /// changes of configuration.
    ///
    /// # Errors
    /// The number of groups would change.
    pub(super) fn reweigh(&mut self, config: &FlowTableConfig) -> Result<(), SettingError> {
        let groups = self.groups.len() as u64;
        within("groups", config.groups.len() as u64, (groups, groups, "groups"))?;
        self.rebuild(config, self.given);
        Ok(())
    }

    /// Whether the clock is given from now on; where there are several groups it never is. Every
    /// flow keeps its backlog. Walks the table if that changes.
    pub(super) fn give_clock(&mut self, config: &FlowTableConfig, given: bool) {
        let given = given && self.groups.len() == 1;
        if given != self.given {
            self.rebuild(config, given);
        }
    }

    fn rebuild(&mut self, config: &FlowTableConfig, given: bool) {
        let backlogs: Vec<u64> =
            (0..self.table.flows.len()).map(|i| self.ahead_work(i as u32)).collect();
        let limits: Vec<(u64, u64)> =
            self.groups.iter().map(|group| (group.limit, group.cap)).collect();
        for (group, weight) in self.groups.iter_mut().zip(&config.groups) {
            *group = Group::new(*weight);
        }
        (self.shares, self.given) = (rows(config), given);
        for (index, mut work) in backlogs.into_iter().enumerate() {
            let flow = &mut self.table.flows[index];
            (flow.next, flow.finish) = (IDLE, 0);
            if usize::from(flow.share) >= self.shares.len() {
                flow.share = 0;
            }
            let charged = flow.charged;
            while work > 0 {
                let part = work.min(MAX_WORK);
                self.charge(index as u32, part);
                work -= part;
            }
            self.table.flows[index].charged = charged;
        }
        for (group, (limit, cap)) in self.groups.iter_mut().zip(limits) {
            group.limit = limit;
            group.cap = if given { cap.min(REFRESH) } else { cap };
        }
    }

    /// Serves `credit` (Q48.16) to all; returns how many flows it emptied.
    pub(super) fn drain(&mut self, credit: u64) -> u32 {
        let credit = credit.min(MAX_CREDIT);
        if self.groups.len() == 1 {
            return self.serve(0, credit);
        }
        // The same fluid one level up, by walking: groups are few, and how many are backlogged is
        // all that counts.
        let mut active = (0..self.groups.len())
            .filter(|g| self.groups[*g].count > 0)
            .fold(0u64, |set, g| set | 1 << g);
        let mut left = credit + self.rest;
        let mut emptied = 0;
        loop {
            let weights: u64 = bits(active).map(|g| self.groups[g].weight).sum();
            if weights == 0 {
                self.rest = 0;
                return emptied;
            }
            let (share, before) = (left / weights, active);
            for g in bits(before) {
                let group = &self.groups[g];
                let needs = group.backlog - u128::from(group.rest);
                if needs <= u128::from(share * group.weight) {
                    left -= needs as u64;
                    active &= !(1 << g);
                    emptied += self.serve(g, needs as u64);
                }
            }
            if active == before {
                self.rest = left - share * weights;
                return emptied
                    + bits(active)
                        .map(|g| self.serve(g, share * self.groups[g].weight))
                        .sum::<u32>();
            }
        }
    }

    /// One group drains `work` and loses what it cannot use.
    pub(super) fn serve(&mut self, group: usize, work: u64) -> u32 {
        let shares = &self.shares;
        let flows = &mut self.table.flows;
        let group = &mut self.groups[group];
        let mut work = work + group.rest;
        let mut emptied = 0;
        while group.weights > 0 {
            let reach = work / group.weights;
            let until = group.clock.wrapping_add(reach);
            let Some(index) = group.departures.pop_due(flows, until) else {
                group.clock = until;
                group.backlog -= u128::from(reach * group.weights);
                group.rest = work - reach * group.weights;
                return emptied;
            };
            let flow = &flows[index as usize];
            let used = flow.finish.wrapping_sub(group.clock) * group.weights;
            group.clock = flow.finish;
            group.backlog -= u128::from(used);
            group.weights -= u64::from(shares[usize::from(flow.share)].weight);
            group.count -= 1;
            work -= used;
            emptied += 1;
        }
        group.rest = 0;
        emptied
    }

    /// Moves the given clock by `by`: every flow is served at the same rate. How many flows got
    /// work since the last call that had none: they are below that rate.
    pub(super) fn advance(&mut self, by: u64) -> u32 {
        let by = by.min(MAX_CREDIT);
        let clock = self.groups[0].clock.wrapping_add(by);
        self.groups[0].clock = clock;
        self.unrefreshed += by;
        let step = REFRESH / self.table.flows.len() as u64;
        while self.unrefreshed >= step {
            self.unrefreshed -= step;
            let flow = &mut self.table.flows[self.hand as usize];
            flow.finish = clock.wrapping_add(behind(flow, clock));
            self.hand = (self.hand + 1) % self.table.flows.len() as u32;
        }
        core::mem::take(&mut self.started)
    }
}

/// How far a given clock is behind the finish time of a flow: 0 for one that is through.
#[inline]
fn behind(flow: &Flow, clock: u64) -> u64 {
    (flow.finish.wrapping_sub(clock) as i64).max(0) as u64
}

/// The places of the ones in a set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        (set != 0).then(|| {
            let place = set.trailing_zeros() as usize;
            set &= set - 1;
            place
        })
    })
}
