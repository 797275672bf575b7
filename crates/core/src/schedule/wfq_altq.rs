//! WFQ as ALTQ has it: a weighted round robin of byte quotas over queues, debt carried (surplus
//! round robin).
//!
//! Source: the WFQ discipline of ALTQ (1997), as measured in "How Unfair can WFQ be?". In spite of
//! its name it has no virtual time.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | weight w | `WfqAltqConfig::weight`, `Slot::weight` | percent |
//! | quota added per visit, 512 w / 100 | `Slot::quantum` | bytes, integer division |
//! | quota | `Slot::quota` | bytes, negative is debt |
//! | ring of active queues, `rrp` | `Slot::{next, prev}`, `pointer` | – |
//! | hwm, the limit over all queues | `WfqAltqConfig::high_water` | bytes |
//! | Q, the limit of each queue | `WfqAltqConfig::limit` | packets |
//!
//! A packet is sent when the queue at the ring pointer has a positive quota; its length is taken
//! off, maybe below zero. A queue without quota passes the pointer on, and the queue that gets it
//! gets its quantum. A queue that enters the ring enters just before the pointer with quota zero,
//! except the very first, which keeps what it had and gets a quantum. A queue that ran empty stays
//! in the ring, keeping its debt, until it is visited with a positive quota.
//!
//! Complexity: enqueue is constant time, plus a scan of all queues per packet dropped from the
//! longest. Dequeue takes a visit per queue passed. Rounds in which no quota turns positive are
//! added in one go, so a packet costs at most two rounds of the ring, and two for each queue that
//! leaves it meanwhile, even at weight 1, whose quota of 5 bytes would need hundreds.
//!
//! Bound: work conserving. Over any time in which a set of queues is always backlogged, the bytes
//! each sends follow the *integer* quanta (weight 30: 153 bytes, not 153.6) within one quantum and
//! the largest packet.
//!
//! Not implemented: the token bucket that ALTQ puts below the discipline (the link has a shaper).
//! Differences: weights below 1 are refused (they divide by zero and loop); the source address is
//! always looked at where a policy hashes it (the original's filter never asked for it); addresses
//! and ports are read as little-endian numbers of the bytes on the wire, as the original did on a
//! PC; the drop search passes over empty queues. IPv6 flow labels are folded like addresses:
//! unfolded, the byte that decides among 256 queues is always zero.

mod aqm;
mod by_class;
mod drops;
mod select;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Wake};
use crate::audit::{Promise, Unit};
use crate::packet::{Class, Packet};
use crate::queue::{DEFAULT_LIMIT, LIMIT_RANGE, QueueSet, check_held, memory_of};
use crate::reason::Reason;
use crate::settings::{Change, PerClass, SettingError, Settings, in_range};
use crate::units::{BitRate, Bytes, Nanos, Weight};
use crate::{settings, words};

use aqm::Standing;
use drops::store_for;

pub use aqm::{ClassAqm, ClassAqmConfig};
pub use select::QueueSelect;

/// Valid weights, in percent of the usual share.
pub const WEIGHT_RANGE: RangeInclusive<u32> = 1..=10_000;
/// Valid numbers of queues.
pub const QUEUES_RANGE: RangeInclusive<u16> = 1..=2_048;
/// Valid limits over all queues, in bytes.
pub const HIGH_WATER_RANGE: RangeInclusive<u64> = 1_500..=16_777_216;
/// The weight of queues for which none is given.
pub const DEFAULT_WEIGHT: Weight = Weight(100);
/// The quota that a queue of weight 100 gets per visit, in bytes.
const QUANTUM: i64 = 512;
/// The shortest IP packet, in bytes: with the limit over all queues it bounds how many packets can
/// be queued.
const SHORTEST_PACKET: u64 = 20;

words! {
    /// Which packet goes when there are too many.
    pub enum DropRule {
        /// The published measurements': the arriving packet, when its queue is at `limit`.
        #[default]
        Tail = "tail",
        /// ALTQ's: while all hold more than `high_water`, the head of the queue with the most bytes
        /// by weight. It biases the shares: drops alone already push the backlogs towards the
        /// weights.
        Longest = "longest",
    }
}

settings! {
    /// Weighted fair queueing as ALTQ has it: a round robin of byte quotas, 512 bytes per visit at
    /// weight 100.
    #[derive(Eq)]
    pub struct WfqAltqConfig: "discipline = { kind = \"wfq-altq\", … }" {
        /// The share of a class in relation to the others, in percent of the usual one.
        live weight: PerClass<Weight> = PerClass::all(DEFAULT_WEIGHT), in WEIGHT_RANGE,
            with select ["class"];
        /// How a packet finds its queue.
        fixed select: QueueSelect = QueueSelect::Class;
        /// How many queues flows are hashed to.
        fixed queues: u16 = 256, in QUEUES_RANGE, counting "queues",
            with select ["hash-destination", "hash-source", "hash-source-port", "hash-full"];
        /// Which packet goes when there are too many. `tail` is what the published measurements
        /// used, `longest` what ALTQ ships.
        fixed drop: DropRule = DropRule::Tail;
        /// Most packets in each queue.
        live limit: PerClass<u32> = PerClass::all(DEFAULT_LIMIT), in LIMIT_RANGE,
            counting "packets",
            with drop ["tail"];
        /// Most bytes in all queues together.
        live high_water: Bytes = Bytes(65_536), in HIGH_WATER_RANGE, with drop ["longest"];
    }
    parts {
        /// What keeps the queues short.
        aqm: ClassAqmConfig,
    }
    plain {
        /// How many classes there are: queues, where they are by class.
        classes: u16 = 1;
    }
}

/// The least that the queue of the heaviest class must hold, packets, so that weights are followed
/// above a ring of `slots` that is refilled as a whole: Q >= R * w_max / sum(w) ("How Unfair can
/// WFQ be?", and docs/when-wfq-differentiates.md). `heaviest` of the weights, and their `sum`.
#[must_use]
pub fn least_queue(slots: u64, heaviest: u64, sum: u64) -> u64 {
    slots.saturating_mul(heaviest).div_ceil(sum.max(1))
}

/// Of queues by class with tail drop: the heaviest weight, the sum of all weights, and the most
/// packets in the heaviest class's queue, all for [`least_queue`]. `None` for others, and where
/// there is one class.
#[must_use]
pub fn weight_and_sum(config: &WfqAltqConfig) -> Option<(u64, u64, u32)> {
    let by_class = config.select == QueueSelect::Class && config.drop == DropRule::Tail;
    if !by_class || config.classes < 2 {
        return None;
    }
    let classes = 0..usize::from(config.classes);
    let weight = |class: usize| u64::from(config.weight.get(class).0);
    let heaviest = classes.clone().max_by_key(|class| weight(*class))?;
    let sum = classes.map(weight).sum();
    Some((weight(heaviest), sum, config.limit.get(heaviest)))
}

impl WfqAltqConfig {
    /// A queue for each of these weights, by class; the rest by default.
    #[must_use]
    pub fn with_weights(weights: impl Into<Vec<Weight>>) -> Self {
        let weights = weights.into();
        let classes = weights.len() as u16;
        Self { weight: PerClass::new(weights, DEFAULT_WEIGHT), classes, ..Self::default() }
    }

    /// As ALTQ ships it: 256 queues by a hash of the destination, drops from the longest.
    #[must_use]
    pub fn altq() -> Self {
        Self { select: QueueSelect::HashDestination, drop: DropRule::Longest, ..Self::default() }
    }

    /// How many queues there are.
    #[must_use]
    pub const fn queue_count(&self) -> u16 {
        if matches!(self.select, QueueSelect::Class) { self.classes } else { self.queues }
    }
}

impl Discipline for WfqAltqConfig {
    const NAME: &'static str = "wfq-altq";
    type Queues<P: Packet> = WfqAltq<P>;

    fn memory(&self, packet: u64) -> u64 {
        let queues = self.queue_count();
        let packets = match self.drop {
            DropRule::Longest => self.high_water.0 / SHORTEST_PACKET + 1,
            DropRule::Tail => self.limit.first(queues.into()).map(u64::from).sum(),
        };
        memory_of(packets, packet) + u64::from(queues) * size_of::<[Slot; 2]>() as u64
    }

    fn build<P: Packet>(self) -> Result<WfqAltq<P>, SettingError> {
        WfqAltq::new(self)
    }

    fn for_classes(&mut self, classes: u16) {
        self.classes = classes;
    }

    /// In a round each queue sends its quantum and up to a packet more, and pays that back in the
    /// next: a class is behind by no more than what all of them send in one round, and a packet.
    fn promise(&self) -> Promise {
        if self.select != QueueSelect::Class {
            return Promise::WorkConserving;
        }
        let weights = self.weight.first(self.classes.into());
        let weights: Vec<f64> = weights.map(|weight| quantum(weight) as f64).collect();
        let bytes = weights.iter().sum::<f64>() as u64;
        let packets = weights.len() as u64 + 1;
        Promise::Shares { weights, unit: Unit::Ip, bytes, packets }
    }

    fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        let why = "its queues are of hashes, which are not compared over workers: \
                   drr, fq-codel, pfq and pdrr share by flow";
        (self.select != QueueSelect::Class).then_some(("select = \"hash-…\"", why))
    }
}

/// Not in the ring.
const OUT: u16 = u16::MAX;

/// A queue's place in the ring.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Bytes it may still send; negative is debt.
    quota: i64,
    /// Bytes it gets per visit.
    quantum: i64,
    weight: Weight,
    /// Packets; looked at under [`DropRule::Tail`] only.
    limit: u32,
    next: u16,
    prev: u16,
}

/// The discipline. Its queues are the classes of settings, also where flows are hashed to them.
#[derive(Clone, Debug)]
pub struct WfqAltq<P> {
    config: WfqAltqConfig,
    queues: QueueSet<P>,
    slots: Vec<Slot>,
    /// The queue whose turn it is; `OUT` until the first packet.
    pointer: u16,
    /// Queues in the ring.
    ring: usize,
    /// Under `longest`: 1 + bytes * 100 / weight of queues with packets, 0 of empty ones. Kept
    /// apart from the slots so that the search for the largest reads consecutive memory.
    loads: Vec<u32>,
    standing: Standing,
}

impl<P: Packet> WfqAltq<P> {
    /// The discipline with empty queues.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a number is out of range.
    pub fn new(config: WfqAltqConfig) -> Result<Self, SettingError> {
        let queues = config.queue_count();
        let (min, max) = (u64::from(*QUEUES_RANGE.start()), u64::from(*QUEUES_RANGE.end()));
        in_range("queues", u64::from(queues), min..=max, "queues")?;
        config.check()?;
        let slot = |queue| {
            let (weight, limit) = (config.weight.get(queue), config.limit.get(queue));
            Slot { quota: 0, quantum: quantum(weight), weight, limit, next: OUT, prev: OUT }
        };
        let slots: Vec<Slot> = (0..usize::from(queues)).map(slot).collect();
        check_held(slots.iter().map(|slot| slot.limit).filter(|_| config.drop == DropRule::Tail))?;
        let mut this = Self {
            queues: QueueSet::new(slots.len(), 0),
            loads: alloc::vec![0; slots.len()],
            standing: Standing::new(slots.len()),
            slots,
            pointer: OUT,
            ring: 0,
            config,
        };
        this.reserve();
        Ok(this)
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &WfqAltqConfig {
        &self.config
    }

    /// Makes room for all packets that there can be. A queue may hold more than its limit, if that
    /// was lowered; it will not again.
    fn reserve(&mut self) {
        let store = match self.config.drop {
            DropRule::Longest => store_for(self.config.high_water),
            DropRule::Tail => {
                let held = |q: usize| self.queues.backlog(q).packets as usize;
                let slots = self.slots.iter().enumerate();
                slots.map(|(q, slot)| held(q).max(slot.limit as usize)).sum()
            }
        };
        self.queues.reserve(store);
    }

    /// How many queues there are.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.slots.len() as u16
    }

    /// The weight of a queue, if there is one.
    #[must_use]
    pub fn weight(&self, queue: u16) -> Option<Weight> {
        self.slots.get(usize::from(queue)).map(|s| s.weight)
    }

    /// Bytes that a queue may still send before the pointer passes on; negative is debt.
    #[must_use]
    pub fn quota(&self, queue: u16) -> Option<i64> {
        self.slots.get(usize::from(queue)).map(|s| s.quota)
    }

    /// The queues in the ring in the order of their turns, starting at the ring pointer.
    pub fn ring(&self) -> impl Iterator<Item = u16> + '_ {
        let first = (self.ring > 0).then_some(self.pointer);
        core::iter::successors(first, |q| Some(self.slots[usize::from(*q)].next)).take(self.ring)
    }

    /// The queue that `packet` belongs to.
    fn queue_of(&self, packet: &dyn Packet) -> usize {
        match self.config.select {
            QueueSelect::Class => {
                let index = packet.class().index();
                if index < self.slots.len() { index } else { 0 }
            }
            hashed => {
                hashed.hash(&packet.flow()).map_or(0, |hash| hash as usize % self.slots.len())
            }
        }
    }

    /// Puts `queue` into the ring, where it is not yet.
    fn enter(&mut self, queue: usize) {
        if self.slots[queue].next != OUT {
            return;
        }
        let me = queue as u16;
        if self.ring == 0 {
            let slot = &mut self.slots[queue];
            (slot.next, slot.prev) = (me, me);
            slot.quota += slot.quantum;
            self.pointer = me;
        } else {
            let next = self.pointer;
            let prev = self.slots[usize::from(next)].prev;
            self.slots[usize::from(prev)].next = me;
            self.slots[usize::from(next)].prev = me;
            let slot = &mut self.slots[queue];
            (slot.next, slot.prev) = (next, prev);
            slot.quota = 0;
        }
        self.ring += 1;
    }

    /// Takes the first packet of a queue that is not dropped.
    fn next_of(&mut self, now: Nanos, queue: usize, dropped: &mut dyn DropSink<P>) -> Option<P> {
        if self.config.aqm.is_on() {
            return self.pop_short(now, queue, dropped);
        }
        self.pop(queue)
    }

    /// Takes the first packet of a queue.
    fn pop(&mut self, queue: usize) -> Option<P> {
        let packet = self.queues.pop(queue)?;
        self.ends(queue);
        self.weigh(queue);
        Some(packet)
    }

    /// Takes the queue at the pointer out of the ring, which has others; the pointer stays on it.
    fn leave(&mut self, queue: usize) -> u16 {
        let Slot { next, prev, .. } = self.slots[queue];
        self.slots[usize::from(prev)].next = next;
        self.slots[usize::from(next)].prev = prev;
        (self.slots[queue].next, self.slots[queue].prev) = (OUT, OUT);
        self.ring -= 1;
        next
    }

    /// Turns the ring until the pointer is at a queue that may send. Some queue of the ring has
    /// packets, or there is a `visitor`: a queue of the ring that counts as having one.
    fn turn(&mut self, visitor: Option<usize>) -> usize {
        let mut vain = 0;
        loop {
            let queue = usize::from(self.pointer);
            let slot = self.slots[queue];
            let next = if slot.quota > 0 {
                if visitor == Some(queue) || !self.queues.is_empty(queue) {
                    return queue;
                }
                vain = 0;
                self.leave(queue)
            } else {
                vain += 1;
                if vain == self.ring {
                    vain = 0;
                    if self.skip_rounds() {
                        continue;
                    }
                }
                slot.next
            };
            self.pointer = next;
            let slot = &mut self.slots[usize::from(next)];
            slot.quota += slot.quantum;
        }
    }

    /// Adds the whole rounds that end with no quota above zero, in one go. No queue of the ring has
    /// a positive quota. Whether there was any such round.
    fn skip_rounds(&mut self) -> bool {
        let mut rounds = i64::MAX;
        for queue in self.ring() {
            rounds = rounds.min(self.rounds_before(queue, rounds));
        }
        let mut queue = self.pointer;
        for _ in 0..self.ring {
            let slot = &mut self.slots[usize::from(queue)];
            slot.quota += rounds * slot.quantum;
            queue = slot.next;
        }
        rounds > 0
    }

    /// How many whole rounds, each starting and ending at the pointer, pass before `queue` is
    /// visited with a positive quota; `best` if it is not fewer than that.
    fn rounds_before(&self, queue: u16, best: i64) -> i64 {
        let Slot { quota, quantum, .. } = self.slots[usize::from(queue)];
        // The queue at the pointer already had its quantum; every other gets it within the round
        // that visits it.
        let visited_with = if queue == self.pointer { quota } else { quota + quantum };
        if visited_with > 0 {
            return 0;
        }
        // A product settles most queues; the division is for those that come sooner.
        if best < i64::from(u32::MAX) && visited_with + (best - 1) * quantum <= 0 {
            return best;
        }
        -visited_with / quantum + 1
    }

    /// The queue that `dequeue` would serve. Passing an empty queue costs no visit, so only those
    /// with packets count.
    fn next_queue(&self) -> Option<u16> {
        let mut best = None;
        let mut rounds = i64::MAX;
        for queue in self.ring().filter(|q| !self.queues.is_empty(usize::from(*q))) {
            let before = self.rounds_before(queue, rounds);
            if before < rounds {
                (best, rounds) = (Some(queue), before);
            }
            if rounds == 0 {
                break;
            }
        }
        best
    }
}

/// Bytes that a queue of this weight gets per visit.
fn quantum(weight: Weight) -> i64 {
    QUANTUM * i64::from(weight.0) / 100
}

impl<P: Packet> Scheduler<P> for WfqAltq<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let queue = self.queue_of(&packet);
        if self.config.drop == DropRule::Tail
            && self.queues.backlog(queue).packets >= u64::from(self.slots[queue].limit)
        {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.begins(queue);
        self.queues.push(queue, packet);
        self.weigh(queue);
        self.enter(queue);
        match self.config.drop {
            DropRule::Longest => self.shed(queue, dropped),
            DropRule::Tail => Treated::Queued,
        }
    }

    /// The ring turns as it would for the packet; only the packet is not stored.
    fn bypass(&mut self, _now: Nanos, packet: &dyn Packet) -> Option<Treated> {
        let length = packet.ip_len();
        let too_long = self.config.drop == DropRule::Longest && length > self.config.high_water;
        if self.queues.busy() > 0 || too_long {
            return None;
        }
        let queue = self.queue_of(packet);
        self.enter(queue);
        let turn = self.turn(Some(queue));
        self.slots[turn].quota -= cost(length);
        Some(Treated::Queued)
    }

    fn bypasses(&self) -> bool {
        self.queues.busy() == 0
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        while self.queues.busy() > 0 {
            let queue = self.turn(None);
            if let Some(packet) = self.next_of(now, queue, dropped) {
                self.slots[queue].quota -= cost(packet.ip_len());
                return Some(packet);
            }
        }
        None
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.queues.busy() > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.queues.head(usize::from(self.next_queue()?)).map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        if change.key == "limit" && self.config.drop == DropRule::Tail {
            let mut config = self.config.clone();
            config.set_live(change, self.queues())?;
            check_held(config.limit.first(self.slots.len()))?;
        }
        self.config.set_live(change, self.queues())?;
        for queue in 0..self.slots.len() {
            let slot = &mut self.slots[queue];
            slot.limit = self.config.limit.get(queue);
            let weight = self.config.weight.get(queue);
            if slot.weight != weight {
                (slot.weight, slot.quantum) = (weight, quantum(weight));
                self.weigh(queue);
            }
        }
        self.weigh_all();
        self.reserve();
        Ok(Wake::No)
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.standing.set_rate(rate);
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        for queue in 0..self.slots.len() {
            while let Some(packet) = self.queues.pop(queue) {
                into(packet);
            }
            let slot = &mut self.slots[queue];
            (slot.quota, slot.next, slot.prev) = (0, OUT, OUT);
            self.loads[queue] = 0;
        }
        (self.pointer, self.ring) = (OUT, 0);
        self.weigh_all();
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.queues.total(), ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        self.queues.busy()
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        match self.config.select {
            QueueSelect::Class if class.index() < self.slots.len() => {
                self.queues.backlog(class.index())
            }
            QueueSelect::Class => Backlog::default(),
            _hashed if class == Class(0) => self.queues.total(),
            _hashed => Backlog::default(),
        }
    }

    fn name(&self) -> &'static str {
        WfqAltqConfig::NAME
    }
}

/// What a packet takes off the quota.
fn cost(length: Bytes) -> i64 {
    i64::from(u32::try_from(length.0).unwrap_or(u32::MAX))
}
