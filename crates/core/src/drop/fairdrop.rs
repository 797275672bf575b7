//! FairDrop for the cycles of one core: which packets of a burst are worth starting on.
//!
//! Source: Addanki, Linguaglossa, Roberts, Rossi, "Controlling software router resource sharing by
//! fair packet dropping" (IFIP Networking 2018, and the demo paper of that year); the rules of the
//! threshold as in the authors' published versions. Rule [`Rule::Level`] is ours.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | w\[c\] | `Cost::learnt` | cycles/256 per packet of a class |
//! | c\[c\] = w\[c\] T_busy / S | `Cost::charged` | 2^-16 cycles |
//! | S, n | `Cost::admitted` of all classes, costs applied | packets of this round |
//! | T_busy | [`Poll::busy`] | cycles |
//! | TH | `Group::limit` | 2^-16 cycles per unit of weight |
//! | credit | time between two fetches | cycles |
//! | level (ours) | `level` | 2^-32 of the core per unit of weight |
//!
//! **Charging.** All cycles of a round (fetching, refusing, cache misses) are charged to the
//! packets admitted in it, in proportion to the learnt cost of the class each of them really took.
//! So what flows are charged adds up to what the core was busy, and a flow that changes to a dearer
//! class pays for it from its first packet on.
//!
//! **Why a rule of our own.** While the ring overflows, the fair point is not unique: a flow that
//! gets all of what is left of it through is satisfied in the eyes of the dropper, and heavy flows
//! may keep whatever the others do not use, from their fair share up to what they would have
//! without a dropper. The published thresholds choose one of these points by accident of batch size
//! and cost (see `docs/fairdrop.md` for the picture). The level rule does not hand on what flows
//! below their share leave: every flow is served at the same *given* rate, the level, which is what
//! max-min fairness is. The level is lowered while frames are lost at the ring and some flow is
//! below the level (what that flow loses, it loses undeserved), raised when the ring is not full or
//! when no flow is below it (refusing more would only cost cycles). Its fixed points are those of
//! water filling; the second condition makes it the one with the least refusing.
//!
//! Complexity: `judge` and `charge` O(1), without a division; `begin_batch` O(1) with the level
//! rule and one group, else one move per flow that was charged or left since (see `departures.rs`).
//! Memory: 32 bytes per flow. Nothing is allocated after construction. In a large table what a
//! packet takes is its wait for memory: [`CpuFairDrop::prefetch`].
//!
//! Not implemented: a priority queue for flows below their share (`VPthresh` of the authors'
//! simulator, unused there too).

use alloc::vec::Vec;

use super::audit::Audit;
use super::config::{
    CpuConfig, Fixed, Kappa, MimdBatch, MimdRing, ProcessingClass, Rule, ShareId, WaterLevel,
};
use super::cost::{COST_FRACTION, Cost};
use super::level::{Level, Pressure};
use super::shadow::{FRACTION, FlowView, Looked, MAX_AHEAD, MAX_WORK, Shadow};
use super::table::Ticket;
use super::wait::{WaitControl, is_within};
use crate::reason::Reason;
use crate::settings::SettingError;
use crate::units::{Cycles, Nanos, Thousandths};

/// What the worker knows right after it fetched a non-empty burst.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Poll {
    /// The cycle counter at the fetch. Monotone; the first call sets the start.
    pub now: Cycles,
    /// Cycles the previous round took from its fetch to its end, idle polls left out: what its
    /// packets are charged together. 0: not known, others ran on the core; packets then cost what
    /// they cost before.
    pub busy: Cycles,
    /// Frames fetched.
    pub polled: u32,
    /// Frames that still wait in the port's ring after the fetch; of several rings in the fullest,
    /// as a part of [`CpuConfig::ring`]. A port that cannot tell gives 0 after a burst below the
    /// maximum and the ring's capacity after a full one.
    pub waiting: u32,
    /// Frames that still wait in all rings together.
    pub queued: u32,
}

/// Counters and estimates of a core's dropper.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CpuView {
    /// Packets judged: those admitted by this dropper, and those refused. What another dropper
    /// refused after it is among the former but not among `charged`.
    pub judged: u64,
    /// Packets charged: judged, admitted by all.
    pub charged: u64,
    /// Packets refused.
    pub refused: u64,
    /// Packets of flows that found no place in the table and were charged to the common entry.
    pub unplaced: u64,
    /// Flows with a shadow backlog; in tables of more than 65 536 places an estimate with the level
    /// rule.
    pub backlogged: u32,
    /// The threshold of a flow of weight 1 in the first group, cycles; `u64::MAX` while nothing is
    /// refused.
    pub threshold: u64,
    /// The water level: millionths of the core that a flow of weight 1 may use. 0 with another rule
    /// than `Level`.
    pub level: u32,
    /// Busy cycles per cycle that the classes' costs explain, in thousandths: T_busy / S.
    pub scale: u32,
    /// Cost estimate of each class, cycles.
    pub costs: Vec<u64>,
    /// Measurements that were absurd (no packets, no cycles, more than the largest cost, a counter
    /// that ran backwards): left out or clamped.
    pub absurd: u64,
}

/// A flow is not charged beyond this many times what it may save up.
const FORGIVEN: u64 = 4;
/// A round should not take longer than a second divided by this.
const ROUNDS_PER_SECOND: u64 = 2_000;
/// 1 as a scale.
const ONE: u64 = 1 << 16;

/// The dropper of one worker.
#[derive(Clone, Debug)]
pub struct CpuFairDrop {
    pub(super) config: CpuConfig,
    pub(super) shadow: Shadow,
    costs: [Cost; CpuConfig::MAX_CLASSES],
    /// T_busy / S, 16 fraction bits.
    scale: u64,
    last: Option<Cycles>,
    /// Threshold of rules that steer it, cycles with [`FRACTION`] bits.
    steered: u64,
    level: Level,
    wait: WaitControl,
    pub(super) audit: Audit,
    /// Flows with packets that are not charged yet (journal rule).
    touched: Vec<u32>,
    /// Defers charges: the rule is the journal's.
    defers: bool,
    /// In earlier rounds.
    charged: u64,
    refused: u64,
    absurd: u64,
    /// Frames to fetch at most: see [`CpuFairDrop::burst`].
    burst: u16,
}

impl CpuFairDrop {
    /// A dropper with an empty shadow system. Allocates all it will ever need.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(config: CpuConfig) -> Result<Self, SettingError> {
        config.check()?;
        let mut costs = [Cost::NONE; CpuConfig::MAX_CLASSES];
        for (cost, configured) in costs.iter_mut().zip(&config.costs) {
            *cost = Cost::configured(*configured);
        }
        let mut dropper = Self {
            shadow: Shadow::new(&config.table),
            costs,
            scale: ONE,
            last: None,
            steered: 0,
            level: Level::default(),
            wait: WaitControl::default(),
            audit: Audit::new(),
            touched: Vec::with_capacity(usize::from(config.batch)),
            defers: false,
            charged: 0,
            refused: 0,
            absurd: 0,
            burst: config.batch,
            config,
        };
        dropper.start_rule();
        Ok(dropper)
    }

    fn start_rule(&mut self) {
        self.defers = matches!(self.config.rule, Rule::Fixed(_));
        self.steered = match self.config.rule {
            Rule::MimdBatch(MimdBatch { start, .. }) => start.0 << FRACTION,
            Rule::MimdRing(MimdRing { start, .. }) => start.0 << FRACTION,
            Rule::Fixed(Fixed { threshold }) => threshold.0 << FRACTION,
            Rule::Level(_) | Rule::Kappa(_) => 0,
        };
        self.level = Level::default();
        self.burst = self.config.batch;
        self.wait.restart();
        self.shadow.give_clock(&self.config.table, matches!(self.config.rule, Rule::Level(_)));
    }

    /// Right after a non-empty fetch: costs are rescaled by what the previous round really took,
    /// the shadow is served for the time that passed, the threshold follows its rule. Before the
    /// first [`judge`](Self::judge).
    pub fn begin_batch(&mut self, poll: &Poll) {
        let classes = self.config.costs.len();
        let (admitted, explained) =
            self.costs[..classes].iter().fold((0, 0), |(all, work), cost| {
                (all + cost.admitted, work + cost.learnt * u64::from(cost.admitted))
            });
        let explained = explained >> COST_FRACTION;
        self.audit.polled(poll.waiting.saturating_add(poll.polled) >= self.config.ring);
        if self.audit.is_due(poll.now) {
            self.look(poll.now);
        }
        self.wait.round_ends(poll, admitted, explained);
        let useful = self.rescale(poll.busy.0, explained);
        self.settle();
        let last = self.last.replace(poll.now).unwrap_or(poll.now);
        if poll.now < last {
            self.absurd += 1;
        }
        let elapsed = poll.now.saturating_sub(last).0.min(1 << 40);
        let weights = self.shadow.weights();
        let limit = match self.config.rule {
            Rule::Level(rule) => {
                let affordable = useful * 1_000 >= ONE * (1_000 - u64::from(rule.overhead.0));
                self.follow_level(poll, elapsed, &rule, affordable);
                return;
            }
            Rule::Kappa(Kappa { kappa }) => {
                let limit = match weights {
                    0 => u64::MAX,
                    _ => {
                        (u128::from(elapsed << FRACTION) * u128::from(kappa.0)
                            / 1_000
                            / u128::from(weights)) as u64
                    }
                };
                self.shadow.drain(elapsed << FRACTION);
                limit
            }
            Rule::Fixed(_) => {
                self.shadow.drain(elapsed << FRACTION);
                self.steered
            }
            Rule::MimdBatch(MimdBatch { down, up, min, max, .. }) => {
                self.shadow.drain(elapsed << FRACTION);
                let factor = if poll.polled >= u32::from(self.config.batch) { down } else { up };
                self.steered =
                    times(self.steered, factor).clamp(min.0 << FRACTION, max.0 << FRACTION);
                self.steered
            }
            Rule::MimdRing(MimdRing { down, up, high, low, .. }) => {
                self.shadow.drain(elapsed << FRACTION);
                let factor = match poll.waiting {
                    waiting if waiting > high => down,
                    waiting if 0 < waiting && waiting < low => up,
                    _ => Thousandths(1_000),
                };
                self.steered =
                    times(self.steered, factor).clamp(ONE, CpuConfig::MAX_CYCLES.0 << FRACTION);
                self.steered
            }
        };
        let groups = self.shadow.groups.len();
        for group in &mut self.shadow.groups {
            group.cap = u64::MAX;
            // A group's flows are served at its part of the credit: the threshold of a flow
            // follows.
            group.limit = match (groups, limit) {
                (1, _) | (_, u64::MAX) => limit,
                _ => {
                    (u128::from(limit) * u128::from(group.weight)
                        / u128::from(group.weights.max(1))) as u64
                }
            };
        }
    }

    /// How many frames to fetch at most: with our rule fewer than a batch where packets take so
    /// long that a whole one would hold the core up for milliseconds. The shares then follow the
    /// load round by round, and a packet is judged late.
    #[inline]
    #[must_use]
    pub fn burst(&self) -> u16 {
        self.burst
    }

    fn follow_burst(&mut self, poll: &Poll) {
        let (busy, longest) = (poll.busy.0, self.config.clock / ROUNDS_PER_SECOND);
        if busy > longest {
            self.burst = (self.burst / 2).max(1);
        } else if 0 < busy && busy < longest / 4 && poll.waiting > 0 {
            self.burst = self.burst.saturating_mul(2).min(self.config.batch);
        }
    }

    fn follow_level(&mut self, poll: &Poll, elapsed: u64, rule: &WaterLevel, affordable: bool) {
        self.follow_burst(poll);
        let cycles = |time: Nanos| {
            (u128::from(time.0) * u128::from(self.config.clock) / 1_000_000_000) as u64
        };
        let ring = self.config.ring;
        let waiting = poll.waiting.saturating_add(poll.polled);
        // The ring holds less than a burst: the core keeps up, and whatever came is worth its
        // cycles. Where load is told by time nothing is let pass so.
        let by_time = self.wait.choose(ring, cycles(rule.wait).max(1), rule);
        let overloaded = by_time || waiting >= u32::from(self.config.batch);
        let rate = match by_time {
            true => {
                let Self { wait, level, refused, .. } = self;
                wait.follow(level, poll, elapsed, *refused, affordable);
                wait.rate(level.level())
            }
            false => self.level.rate(waiting, ring),
        };
        let granted = ((u128::from(rate) * u128::from(elapsed)) >> (32 - FRACTION)) as u64;
        let mut below = 0;
        if self.shadow.groups.len() == 1 {
            below = self.shadow.advance(granted);
        } else {
            for group in 0..self.shadow.groups.len() {
                below += self.shadow.serve(
                    group,
                    granted.saturating_mul(self.shadow.groups[group].weight).min(1 << 56),
                );
            }
        }
        if !by_time {
            let below = below > 0;
            self.level.follow(&Pressure { waiting, ring, overloaded, below, affordable });
        }
        if by_time {
            let classes = self.config.costs.len();
            for cost in &mut self.costs[..classes] {
                cost.saved = self.wait.saved(cost.charged);
            }
        }
        // What a flow may save up: its rate for the length of a burst, or for two rounds where
        // those are longer.
        let span = cycles(rule.burst).max(2 * elapsed);
        let span = if by_time { self.wait.left_of(span) } else { span };
        let limit = ((u128::from(self.level.level()) * u128::from(span)) >> (32 - FRACTION)) as u64;
        let groups = self.shadow.groups.len();
        for group in &mut self.shadow.groups {
            let due = match groups {
                1 => limit,
                _ => {
                    (u128::from(limit) * u128::from(group.weight)
                        / u128::from(group.weights.max(1))) as u64
                }
            };
            // What a flow took while nothing was refused is not held against it later; but for a
            // while it is, or near capacity, where rounds that refuse and rounds that do not take
            // turns, some flows would always come in the latter.
            group.cap = if by_time { MAX_AHEAD } else { FORGIVEN.saturating_mul(due) };
            group.limit = if overloaded { due } else { u64::MAX };
        }
    }

    /// Takes up what the previous round took; returns S / T_busy with 16 fraction bits.
    fn rescale(&mut self, busy: u64, explained: u64) -> u64 {
        let classes = self.config.costs.len();
        let costs = &mut self.costs[..classes];
        let mut useful = ONE;
        if explained > 0 && busy > 0 {
            let busy = busy.min(1 << 40);
            // Twice too dear to four times too cheap: beyond that the counter was wrong or the
            // worker was not running.
            let scale = (busy * ONE / explained).clamp(ONE / 2, ONE * 4);
            self.scale = match self.config.rule {
                // Rounds are short, and dear packets come together: in their rounds refusing is a
                // smaller part than in those before.
                Rule::Level(_) if self.wait.is_on() => self.scale - self.scale / 256 + scale / 256,
                Rule::Level(_) | Rule::Kappa(_) => self.scale - self.scale / 8 + scale / 8,
                // As published.
                _ => scale,
            };
            useful = (explained * ONE / busy).min(ONE);
        } else if busy > 0 {
            useful = 0;
        }
        let scale = self.scale;
        for cost in costs {
            self.charged += u64::from(core::mem::take(&mut cost.admitted));
            cost.charge_at(scale);
        }
        useful
    }

    /// Journal rule: what was admitted is charged, now that its cost is known.
    fn settle(&mut self) {
        for index in self.touched.drain(..) {
            let flow = &mut self.shadow.table.flows[index as usize];
            let (pending, class) = (core::mem::take(&mut flow.pending), flow.class);
            if pending > 0 {
                let work = self.costs[usize::from(class)].charged.saturating_mul(pending.into());
                self.shadow.charge(index, work.min(MAX_WORK));
            }
        }
    }

    /// Reads what [`judge`](Self::judge) will read of a flow. Called as soon as a packet's hash is
    /// known, for all packets of a burst if possible, the reads wait for memory together and while
    /// other work is done.
    #[inline]
    pub fn prefetch(&self, flow_hash: u64) {
        self.shadow.table.prefetch(flow_hash);
    }

    /// Whether a packet of this flow is within its share. Charges nothing: a packet that is
    /// admitted by all must be charged before the next one is judged.
    ///
    /// # Errors
    /// [`Reason::FairdropCpu`]: refuse it.
    #[inline]
    pub fn judge(&mut self, flow_hash: u64, share: ShareId) -> Result<Ticket, Reason> {
        let Looked { index, ahead: queued, limit } = self.shadow.look(flow_hash, share);
        let ahead = if self.defers { queued + self.deferred(index) } else { queued };
        let sampled = self.audit.meets(flow_hash, share);
        if ahead <= limit || (self.wait.is_on() && self.is_saved(index, ahead)) {
            return Ok(Ticket::of(index, queued, sampled));
        }
        let flow = &mut self.shadow.table.flows[index as usize];
        flow.refused = flow.refused.saturating_add(1);
        self.refused += 1;
        if sampled {
            self.audit.refused();
        }
        Err(Reason::FairdropCpu)
    }

    /// Where load is told by time: a few of its packets a flow may have whatever its rate.
    fn is_saved(&self, index: u32, ahead: u64) -> bool {
        let flow = &self.shadow.table.flows[index as usize];
        let Cost { charged, saved, .. } = self.costs[usize::from(flow.class)];
        let ahead = ahead.saturating_mul(self.shadow.share(index).weight.into());
        is_within(ahead, saved, charged, flow.tag)
    }

    /// Journal rule: what a flow was admitted for and is not charged for yet, per unit of weight.
    fn deferred(&self, index: u32) -> u64 {
        let flow = &self.shadow.table.flows[index as usize];
        let cost = self.costs[usize::from(flow.class)].learnt << (FRACTION - COST_FRACTION);
        cost * u64::from(flow.pending) / u64::from(self.shadow.share(index).weight)
    }

    /// The packet is admitted by all: its flow pays for the class of processing that it really
    /// takes. Classes that are not configured count as the first.
    #[inline]
    pub fn charge(&mut self, ticket: Ticket, class: ProcessingClass) {
        let class = if usize::from(class.0) < self.config.costs.len() { class.0 } else { 0 };
        let cost = &mut self.costs[usize::from(class)];
        cost.admitted += 1;
        let work = cost.charged;
        if ticket.is_sampled() {
            self.audit.charged(cost.cycles());
        }
        let index = ticket.index();
        self.shadow.table.flows[index as usize].class = class;
        if self.defers {
            self.defer(index, work);
        } else {
            self.shadow.charge_looked_up(index, ticket.ahead(), work);
        }
    }

    fn defer(&mut self, index: u32, work: u64) {
        let flow = &mut self.shadow.table.flows[index as usize];
        if flow.pending == 0 {
            if self.touched.len() == self.touched.capacity() {
                // More packets than the configured burst: charged at once.
                return self.shadow.charge(index, work);
            }
            self.touched.push(index);
        }
        flow.pending = flow.pending.saturating_add(1);
    }

    /// [`judge`](Self::judge) and [`charge`](Self::charge) in one.
    ///
    /// # Errors
    /// [`Reason::FairdropCpu`]: refuse it.
    #[inline]
    pub fn admit(
        &mut self,
        flow_hash: u64,
        share: ShareId,
        class: ProcessingClass,
    ) -> Result<(), Reason> {
        let ticket = self.judge(flow_hash, share)?;
        self.charge(ticket, class);
        Ok(())
    }

    /// `packets` of `class` took `cycles` together, in the stages that depend on the class: what
    /// the class's cost is learnt from (all cycles by all packets of the last 16 rounds, whose
    /// weights fall exponentially; the first measurement counts whole). Once per class and round,
    /// or for a sample of rounds.
    pub fn measured(&mut self, class: ProcessingClass, packets: u32, cycles: Cycles) {
        let Some(cost) = self.costs[..self.config.costs.len()].get_mut(usize::from(class.0)) else {
            self.absurd += 1;
            return;
        };
        if packets == 0 {
            self.absurd += 1;
            return;
        }
        let each = cycles.0 / u64::from(packets);
        let possible = each.clamp(1, CpuConfig::MAX_CYCLES.0);
        self.absurd += u64::from(each != possible);
        let most = CpuConfig::MAX_CYCLES.0.saturating_mul(packets.into()).min(1 << 48);
        cost.learn(packets, cycles.0.min(most));
        cost.charge_at(self.scale);
    }

    /// Changes the rule. What flows are charged for stays.
    ///
    /// # Errors
    /// A value out of its range; nothing changes then.
    pub fn set_rule(&mut self, rule: Rule) -> Result<(), SettingError> {
        rule.check()?;
        self.settle();
        self.config.rule = rule;
        self.start_rule();
        Ok(())
    }

    /// Changes weights of flows and groups, whatever their backlogs.
    ///
    /// # Errors
    /// A value out of its range, or another number of groups; nothing changes then.
    pub fn set_shares(&mut self, table: &super::FlowTableConfig) -> Result<(), SettingError> {
        let table = super::FlowTableConfig { flows: self.config.table.flows, ..table.clone() };
        table.check()?;
        self.shadow.reweigh(&table)?;
        self.config.table = table;
        Ok(())
    }

    /// The configuration as it is now.
    #[must_use]
    pub fn config(&self) -> &CpuConfig {
        &self.config
    }

    /// Counters and estimates.
    #[must_use]
    pub fn view(&self) -> CpuView {
        let limit = self.shadow.groups[0].limit;
        CpuView {
            judged: self.audit.judged(),
            charged: self.charged
                + self.costs.iter().map(|cost| u64::from(cost.admitted)).sum::<u64>(),
            refused: self.refused,
            unplaced: self.shadow.table.unplaced,
            backlogged: self.shadow.backlogged(),
            threshold: if limit == u64::MAX { limit } else { limit >> FRACTION },
            level: match self.config.rule {
                Rule::Level(_) => ((self.level.level() * 1_000_000) >> 32) as u32,
                _ => 0,
            },
            scale: ((self.scale * 1_000) >> 16) as u32,
            costs: self.costs[..self.config.costs.len()].iter().map(Cost::cycles).collect(),
            absurd: self.absurd,
        }
    }

    /// The flows of the table, in the order of their places.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.shadow.views()
    }
}

fn times(value: u64, factor: Thousandths) -> u64 {
    (u128::from(value) * u128::from(factor.0) / 1_000) as u64
}
