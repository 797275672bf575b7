//! WFQ as ALTQ has it: a weighted round robin of byte quotas over queues, debt carried (surplus round robin).
//!
//! Source: the WFQ discipline of ALTQ (1997), as measured in "How Unfair can WFQ be?". In spite of its name it has no
//! virtual time.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | weight w | `WfqAltqConfig::weights`, `Slot::weight` | percent |
//! | quota added per visit, 512 w / 100 | `Slot::quantum` | bytes, integer division |
//! | quota | `Slot::quota` | bytes, negative is debt |
//! | ring of active queues, `rrp` | `Slot::{next, prev}`, `pointer` | – |
//! | hwm, the limit over all queues | `DropRule::LongestHead::high_water` | bytes |
//! | Q, the limit of each queue | `DropRule::TailPerQueue::limit` | packets |
//!
//! A packet is sent when the queue at the ring pointer has a positive quota; its length is taken off, maybe below
//! zero. A queue without quota passes the pointer on, and the queue that gets it gets its quantum. A queue that
//! enters the ring enters just before the pointer with quota zero, except the very first, which keeps what it had and
//! gets a quantum. A queue that ran empty stays in the ring, keeping its debt, until it is visited with a positive
//! quota.
//!
//! Complexity: enqueue is constant time, plus a scan of all queues per packet dropped from the longest. Dequeue takes
//! a visit per queue passed. Rounds in which nobody's quota turns positive are added in one go, so a packet costs at
//! most two rounds of the ring, and two for each queue that leaves it meanwhile, even at weight 1, whose quota of 5
//! bytes would need hundreds.
//!
//! Bound: work conserving. Over any time in which a set of queues is always backlogged, the bytes each sends follow
//! the *integer* quanta (weight 30: 153 bytes, not 153.6) within one quantum and the largest packet.
//!
//! Not implemented: the token bucket that ALTQ puts below the discipline (the link has a shaper). Differences:
//! weights below 1 are refused (they divide by zero and loop); the source address is always looked at where a policy
//! hashes it (the original's filter never asked for it); addresses and ports are read as little-endian numbers of the
//! bytes on the wire, as the original did on a PC; the drop search passes over empty queues. IPv6 flow labels are
//! folded like addresses: unfolded, the byte that decides among 256 queues is always zero.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use super::{Backlog, DropSink, Knob, KnobError, Meters, Scheduler, Treated, Wake, in_range};
use crate::packet::{Class, FlowKey, Packet};
use crate::queue::{QueueSet, check_limit};
use crate::reason::Reason;
use crate::units::{Bytes, Nanos, Weight};

/// Valid weights, in percent of the usual share.
pub const WEIGHT_RANGE: RangeInclusive<u32> = 1..=10_000;
/// Valid numbers of queues.
pub const QUEUES_RANGE: RangeInclusive<u16> = 1..=2_048;
/// Valid limits over all queues, in bytes.
pub const HIGH_WATER_RANGE: RangeInclusive<u64> = 1_500..=16_777_216;
/// The weight of queues for which none is given.
pub const DEFAULT_WEIGHT: Weight = Weight(100);
/// ALTQ's number of queues.
pub const DEFAULT_QUEUES: u16 = 256;
/// ALTQ's limit over all queues.
pub const DEFAULT_HIGH_WATER: Bytes = Bytes(65_536);

/// The quota that a queue of weight 100 gets per visit, in bytes.
const QUANTUM: i64 = 512;
/// The shortest IP packet, in bytes: with the limit over all queues it bounds how many packets can be queued.
const SHORTEST_PACKET: u64 = 20;

/// What the queue of a packet is chosen by, where it is not its class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HashPolicy {
    /// Destination address (IPv6: flow label).
    #[default]
    Destination,
    /// Source port.
    SourcePort,
    /// Both addresses, both ports and the protocol (IPv6: flow label).
    Full,
    /// Source address (IPv6: flow label).
    Source,
}

impl HashPolicy {
    /// The hash of `flow` before it is taken modulo the number of queues.
    #[must_use]
    pub fn hash(self, flow: &FlowKey) -> u32 {
        let address = |address: IpAddr| match address {
            IpAddr::V4(v4) => u32::from_le_bytes(v4.octets()),
            IpAddr::V6(_) => u32::from_le_bytes(flow.flow_label.to_be_bytes()),
        };
        let fold = |v: u32| v ^ v >> 8 ^ v >> 16 ^ v >> 24;
        let port = |port: u16| u32::from(u16::from_le_bytes(port.to_be_bytes()));
        match self {
            Self::Destination => fold(address(flow.destination)),
            Self::Source => fold(address(flow.source)),
            Self::SourcePort => {
                let v = port(flow.source_port);
                v ^ v >> 8
            }
            Self::Full if flow.destination.is_ipv6() => fold(address(flow.destination)),
            Self::Full => {
                let a = address(flow.destination) ^ address(flow.source);
                let b = port(flow.destination_port) ^ port(flow.source_port) ^ u32::from(flow.protocol);
                fold(a) ^ b ^ b >> 8
            }
        }
    }
}

/// How a packet finds its queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueSelect {
    /// The queue of its class; queue 0 if there is none.
    Class,
    /// A hash of its flow key modulo the number of queues: flows may share a queue.
    Hash(HashPolicy),
}

/// Which packet goes when there are too many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DropRule {
    /// ALTQ's: while all queues together hold more than `high_water`, the head of the queue with the most bytes by
    /// weight. It biases the discipline: drops alone already push the backlogs towards the weights.
    LongestHead {
        /// Limit over all queues; in [`HIGH_WATER_RANGE`].
        high_water: Bytes,
    },
    /// The published measurements': the arriving packet, when its queue holds `limit` packets.
    TailPerQueue {
        /// Limit of each queue; in [`LIMIT_RANGE`](crate::queue::LIMIT_RANGE).
        limit: u32,
    },
}

impl Default for DropRule {
    fn default() -> Self {
        Self::LongestHead { high_water: DEFAULT_HIGH_WATER }
    }
}

/// What a [`WfqAltq`] is made of. The default is ALTQ's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WfqAltqConfig {
    /// How many queues; in [`QUEUES_RANGE`].
    pub queues: u16,
    /// Weights of the first queues, in [`WEIGHT_RANGE`]; those of the others are [`DEFAULT_WEIGHT`].
    pub weights: Vec<Weight>,
    /// How a packet finds its queue.
    pub select: QueueSelect,
    /// Which packet goes when there are too many.
    pub drop: DropRule,
}

impl Default for WfqAltqConfig {
    fn default() -> Self {
        Self {
            queues: DEFAULT_QUEUES,
            weights: Vec::new(),
            select: QueueSelect::Hash(HashPolicy::default()),
            drop: DropRule::default(),
        }
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
    /// Packets; looked at under [`DropRule::TailPerQueue`] only.
    limit: u32,
    next: u16,
    prev: u16,
}

/// The discipline. Knobs: [`Knob::Weight`] (the class is the index of the queue), [`Knob::QueueLimit`] under
/// [`DropRule::TailPerQueue`], [`Knob::HighWater`] under [`DropRule::LongestHead`].
#[derive(Clone, Debug)]
pub struct WfqAltq<P> {
    queues: QueueSet<P>,
    slots: Vec<Slot>,
    /// The queue whose turn it is; `OUT` until the first packet.
    pointer: u16,
    /// Queues in the ring.
    ring: usize,
    select: QueueSelect,
    drop: DropRule,
    /// Under `LongestHead`: 1 + bytes * 100 / weight of queues with packets, 0 of empty ones. Kept apart from the
    /// slots so that the search for the largest reads consecutive memory.
    loads: Vec<u32>,
}

impl<P: Packet> WfqAltq<P> {
    /// The name in configuration files.
    pub const NAME: &'static str = "wfq-altq";

    /// The discipline with empty queues.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] if a number is out of range, [`KnobError::NoSuchClass`] if there are more weights
    /// than queues.
    pub fn new(config: WfqAltqConfig) -> Result<Self, KnobError> {
        let queues = config.queues;
        let (min, max) = (u64::from(*QUEUES_RANGE.start()), u64::from(*QUEUES_RANGE.end()));
        in_range("queues", u64::from(queues), min..=max, "queues")?;
        if config.weights.len() > usize::from(queues) {
            return Err(KnobError::NoSuchClass { class: Class(queues), classes: queues });
        }
        config.weights.iter().try_for_each(|w| check_weight(*w))?;
        let (limit, store) = match config.drop {
            DropRule::LongestHead { high_water } => {
                check_high_water(high_water)?;
                (0, store_for(high_water))
            }
            DropRule::TailPerQueue { limit } => {
                check_limit(limit)?;
                (limit, usize::from(queues) * limit as usize)
            }
        };
        let given = config.weights.iter().copied();
        let slots = given
            .chain(core::iter::repeat(DEFAULT_WEIGHT))
            .take(usize::from(queues))
            .map(|weight| Slot { quota: 0, quantum: quantum(weight), weight, limit, next: OUT, prev: OUT })
            .collect();
        Ok(Self {
            queues: QueueSet::new(usize::from(queues), store),
            slots,
            pointer: OUT,
            ring: 0,
            select: config.select,
            drop: config.drop,
            loads: alloc::vec![0; usize::from(queues)],
        })
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

    /// What a queue may still send before the pointer passes on, in bytes; negative is debt.
    #[must_use]
    pub fn quota(&self, queue: u16) -> Option<i64> {
        self.slots.get(usize::from(queue)).map(|s| s.quota)
    }

    /// The limit of a queue in packets; `None` if there is no such queue or the limit is over all queues.
    #[must_use]
    pub fn limit(&self, queue: u16) -> Option<u32> {
        match self.drop {
            DropRule::LongestHead { .. } => None,
            DropRule::TailPerQueue { .. } => self.slots.get(usize::from(queue)).map(|s| s.limit),
        }
    }

    /// How packets find their queues.
    #[must_use]
    pub const fn select(&self) -> QueueSelect {
        self.select
    }

    /// Which packet goes when there are too many. Limits set for single queues are told by [`limit`](Self::limit).
    #[must_use]
    pub const fn drop_rule(&self) -> DropRule {
        self.drop
    }

    /// The queues in the ring in the order of their turns, starting at the ring pointer.
    pub fn ring(&self) -> impl Iterator<Item = u16> + '_ {
        let first = (self.ring > 0).then_some(self.pointer);
        core::iter::successors(first, |q| Some(self.slots[usize::from(*q)].next)).take(self.ring)
    }

    /// The queue that `packet` belongs to.
    fn queue_of(&self, packet: &P) -> usize {
        match self.select {
            QueueSelect::Class => {
                let index = packet.class().index();
                if index < self.slots.len() { index } else { 0 }
            }
            QueueSelect::Hash(policy) => policy.hash(&packet.flow()) as usize % self.slots.len(),
        }
    }

    /// The first packet of `queue`, out of turn: for who has rules of his own for whose turn it is, and never calls `dequeue`.
    pub(super) fn take(&mut self, queue: usize) -> Option<P> {
        let packet = self.queues.pop(queue)?;
        self.weigh(queue);
        Some(packet)
    }

    /// Whether nothing waits in `queue`.
    pub(super) fn is_empty(&self, queue: usize) -> bool {
        self.queues.is_empty(queue)
    }

    /// IP length of the first packet of `queue`.
    pub(super) fn head_len(&self, queue: usize) -> Option<Bytes> {
        self.queues.head(queue).map(Packet::ip_len)
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

    /// Takes the queue at the pointer out of the ring, which has others; the pointer stays on it.
    fn leave(&mut self, queue: usize) -> u16 {
        let Slot { next, prev, .. } = self.slots[queue];
        self.slots[usize::from(prev)].next = next;
        self.slots[usize::from(next)].prev = prev;
        (self.slots[queue].next, self.slots[queue].prev) = (OUT, OUT);
        self.ring -= 1;
        next
    }

    /// Turns the ring until the pointer is at a queue that may send. Some queue of the ring has packets, or there is a `visitor`: a queue of
    /// the ring that counts as having one.
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

    /// Adds the whole rounds that end with no quota above zero, in one go. No queue of the ring has a positive quota.
    /// Whether there was any such round.
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

    /// How many whole rounds, each starting and ending at the pointer, pass before `queue` is visited with a positive
    /// quota; `best` if it is not fewer than that.
    fn rounds_before(&self, queue: u16, best: i64) -> i64 {
        let Slot { quota, quantum, .. } = self.slots[usize::from(queue)];
        // The queue at the pointer already had its quantum; every other gets it within the round that visits it.
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

    /// The queue that `dequeue` would serve. Passing an empty queue costs nobody a visit, so only those with packets
    /// count.
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

    /// Notes that the backlog or the weight of `queue` changed.
    fn weigh(&mut self, queue: usize) {
        if let DropRule::LongestHead { .. } = self.drop {
            let backlog = self.queues.backlog(queue);
            self.loads[queue] = if backlog.packets == 0 {
                0
            } else {
                let by_weight = backlog.bytes.0 * 100 / u64::from(self.slots[queue].weight.0);
                u32::try_from(by_weight).unwrap_or(u32::MAX - 1) + 1
            };
        }
    }

    /// The queue with the most bytes by weight; the first from the pointer among equals.
    fn longest(&self) -> Option<usize> {
        let most = self.loads.iter().copied().max().filter(|most| *most > 0)?;
        let mut at = self.loads.iter().enumerate().filter(|(_, load)| **load == most);
        let (first, _) = at.next()?;
        if at.next().is_none() {
            return Some(first);
        }
        self.ring().map(usize::from).find(|q| self.loads[*q] == most)
    }

    /// Drops from the longest queue until the limit over all queues is kept. Whether the last packet of `arrived`
    /// went.
    fn shed(&mut self, high_water: Bytes, arrived: usize, dropped: &mut dyn DropSink<P>) -> Treated {
        let mut treated = Treated::Queued;
        while self.queues.total().bytes > high_water
            || self.queues.total().packets as usize >= store_for(high_water)
        {
            let Some(queue) = self.longest() else { break };
            let Some(packet) = self.queues.pop(queue) else { break };
            self.weigh(queue);
            if queue == arrived && self.queues.is_empty(queue) {
                treated = Treated::Dropped(Reason::LongestQueue);
            }
            dropped.dropped(packet, Reason::LongestQueue);
        }
        treated
    }

    fn slot_mut(&mut self, class: Class) -> Result<&mut Slot, KnobError> {
        let classes = self.queues();
        self.slots.get_mut(class.index()).ok_or(KnobError::NoSuchClass { class, classes })
    }
}

/// Bytes that a queue of this weight gets per visit.
fn quantum(weight: Weight) -> i64 {
    QUANTUM * i64::from(weight.0) / 100
}

/// Packets that fit under `high_water`, and the one that arrives when it is reached.
fn store_for(high_water: Bytes) -> usize {
    (high_water.0 / SHORTEST_PACKET) as usize + 1
}

fn check_weight(weight: Weight) -> Result<(), KnobError> {
    let (min, max) = (u64::from(*WEIGHT_RANGE.start()), u64::from(*WEIGHT_RANGE.end()));
    in_range("weight", u64::from(weight.0), min..=max, "percent")
}

fn check_high_water(high_water: Bytes) -> Result<(), KnobError> {
    in_range("high_water", high_water.0, HIGH_WATER_RANGE, "bytes")
}

impl<P: Packet> Scheduler<P> for WfqAltq<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let queue = self.queue_of(&packet);
        if let DropRule::TailPerQueue { .. } = self.drop
            && self.queues.backlog(queue).packets >= u64::from(self.slots[queue].limit)
        {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.queues.push(queue, packet);
        self.weigh(queue);
        self.enter(queue);
        match self.drop {
            DropRule::LongestHead { high_water } => self.shed(high_water, queue, dropped),
            DropRule::TailPerQueue { .. } => Treated::Queued,
        }
    }

    /// The ring turns as it would for the packet; only the packet is not stored.
    fn bypass(&mut self, _now: Nanos, packet: &P) -> Option<Treated> {
        let length = packet.ip_len();
        let too_long = matches!(self.drop, DropRule::LongestHead { high_water } if length > high_water);
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

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        if self.queues.busy() == 0 {
            return None;
        }
        let queue = self.turn(None);
        let packet = self.queues.pop(queue)?;
        self.weigh(queue);
        self.slots[queue].quota -= cost(packet.ip_len());
        Some(packet)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.queues.busy() > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.queues.head(usize::from(self.next_queue()?)).map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, knob: Knob) -> Result<Wake, KnobError> {
        match (knob, self.drop) {
            (Knob::Weight(class, weight), _) => {
                check_weight(weight)?;
                let slot = self.slot_mut(class)?;
                (slot.weight, slot.quantum) = (weight, quantum(weight));
                self.weigh(class.index());
            }
            (Knob::QueueLimit(class, limit), DropRule::TailPerQueue { .. }) => {
                check_limit(limit)?;
                if let Some(class) = class {
                    self.slot_mut(class)?.limit = limit;
                } else {
                    self.slots.iter_mut().for_each(|slot| slot.limit = limit);
                    self.drop = DropRule::TailPerQueue { limit };
                }
                // A queue may hold more than its limit, if that was lowered; it will not again.
                let held = |q: usize| self.queues.backlog(q).packets as usize;
                let slots = self.slots.iter().enumerate();
                let store = slots.map(|(q, slot)| held(q).max(slot.limit as usize)).sum();
                self.queues.reserve(store);
            }
            (Knob::HighWater(high_water), DropRule::LongestHead { .. }) => {
                check_high_water(high_water)?;
                self.drop = DropRule::LongestHead { high_water };
                self.queues.reserve(store_for(high_water));
            }
            (other, _) => {
                return Err(KnobError::NoSuchKnob { knob: other.name(), discipline: Self::NAME });
            }
        }
        Ok(Wake::No)
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
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.queues.total(), ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        self.queues.busy()
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        match self.select {
            QueueSelect::Class if class.index() < self.slots.len() => self.queues.backlog(class.index()),
            QueueSelect::Hash(_) if class == Class(0) => self.queues.total(),
            _ => Backlog::default(),
        }
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

/// What a packet takes off the quota.
fn cost(length: Bytes) -> i64 {
    i64::from(u32::try_from(length.0).unwrap_or(u32::MAX))
}
