//! LCT-UC: a round robin in which each class waits a time of its own between two packets.
//!
//! Source: "An Effective Scheduler for IP Routers" (the scheduler of the University of Coimbra's
//! LCT router).
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | X_DELAY, X | `LctConfig::x_delay`, `x` | nanoseconds (the paper: microseconds) |
//! | DEQUEUE_TIME, DT | `dt` | nanoseconds since the caller's start |
//! | round-robin pointer, RR | `rr` | – |
//! | module 2 | `LctConfig::module2` | on or off |
//! | Q, the queue limit | `LctConfig::limit` | packets, per class |
//! | timer | `LctConfig::timer_tick`, told by `next_wake` | nanoseconds |
//!
//! Module 1: classes are visited in ring order from RR; the first with packets whose DT has passed
//! is served, its DT becomes now + X, and RR moves behind it. A class alone is served at once.
//! Module 2: not even a class alone is served before its DT, so that classes with X above zero may
//! not use idle capacity; the packet is held and a timer set. What the paper leaves open when
//! several classes wait and none is due is a choice, [`MultiBacklog`]; docs/lct.md has the evidence
//! for its default. Empty classes visited past their DT get a new one (the paper's positions 1
//! and 2), so that the first packet of an idle class waits too; `rearm_empty` turns that off.
//!
//! Complexity: dequeue is O(classes): a bitmap finds those with packets, 64 at a time; giving
//! visited empty classes a new DT is one pass over consecutive numbers without branches. Enqueue is
//! constant time.
//!
//! Bound: with module 2, a class alone sends at most one packet per X; with `HoldWithModule2`, the
//! default, or `Hold` each class does, whoever else waits. With the other policies a class sends up
//! to what the link has while another waits with it. A class with X = 0 is never held. Without
//! module 2, and with a policy other than `Hold`, the discipline is work conserving.
//!
//! Several workers have the DTs in common, where every class is held: see `lct/by_class.rs`.
//!
//! Setting X from what is measured, the paper's plan, is [`crate::control`]'s. Difference: a timer
//! that was set for a packet which then left earlier does not fire in vain.

mod by_class;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::bitmap::Bitmap;
use super::shared::Common;
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Wake};
use crate::audit::Promise;
use crate::packet::{Class, Packet};
use crate::queue::{DEFAULT_LIMIT, LIMIT_RANGE, PacketQueue, check_held, memory_of};
use crate::reason::Reason;
use crate::settings::{Change, PerClass, SettingError, Settings, in_range};
use crate::units::{Bytes, Nanos};
use crate::{settings, words};

/// Valid intervals between packets of a class, in nanoseconds: 0 to 60 s.
pub const X_DELAY_RANGE: RangeInclusive<u64> = 0..=60_000_000_000;
/// Valid numbers of classes.
pub const CLASSES_RANGE: RangeInclusive<usize> = 1..=2_048;
/// Valid timer ticks, in nanoseconds: 0 (exact) to 1 s.
pub const TIMER_TICK_RANGE: RangeInclusive<u64> = 0..=1_000_000_000;
/// The tick of FreeBSD 2.2's time-outs (HZ = 100), on which the published measurements ran.
pub const FREEBSD_TICK: Nanos = Nanos::from_millis(10);

words! {
    /// Which packet goes when several classes wait and none is due (LCT-UC, contradiction C4 of the
    /// specification). docs/lct.md sets each rule against each sentence of the paper.
    pub enum MultiBacklog {
        /// With `module2` as `hold`, without it as `round-robin`: so `module2` alone says whether
        /// classes are held.
        #[default]
        HoldWithModule2 = "hold-with-module2",
        /// The next in the order of classes: position 3 of the paper's figure 1 as it is drawn.
        RoundRobin = "round-robin",
        /// The one with the smallest `x_delay`; the first in ring order among equals.
        MinX = "min-x",
        /// None, with `module2` or without: wait until the first is due.
        Hold = "hold",
        /// The one that is due first.
        EarliestDue = "earliest-due",
    }
}

impl MultiBacklog {
    /// Whether classes that wait together are held until one is due.
    #[must_use]
    pub const fn holds(self, module2: bool) -> bool {
        matches!((self, module2), (Self::Hold, _) | (Self::HoldWithModule2, true))
    }
}

settings! {
    /// LCT-UC: a round robin in which each class waits a time of its own between two packets.
    #[derive(Eq)]
    pub struct LctConfig: "discipline = { kind = \"lct\", … }" {
        /// The least time between two packets of a class, with `module2` and the default of
        /// `multi_backlog`. Give the class that needs delay least the largest, and the most
        /// urgent 0.
        live x_delay: PerClass<Nanos> = PerClass::all(Nanos::ZERO), in X_DELAY_RANGE;
        /// Most packets queued in each class.
        live limit: PerClass<u32> = PerClass::all(DEFAULT_LIMIT), in LIMIT_RANGE,
            counting "packets";
        /// Whether a class is held until its time even when no other has packets: so it may not use
        /// idle capacity.
        live module2: bool = true;
        /// Which class goes when several have packets and none is due. The paper leaves it open:
        /// docs/lct.md sets each rule against what it says.
        live multi_backlog: MultiBacklog = MultiBacklog::HoldWithModule2;
        /// Whether an empty class that is visited past its time gets a new one, so that the first
        /// packet after a pause waits too.
        live rearm_empty: bool = true;
        /// Held packets are looked at again at multiples of this; 0 is exact, 10 ms is FreeBSD 2.2.
        fixed timer_tick: Nanos = Nanos::ZERO, in TIMER_TICK_RANGE;
    }
    plain {
        /// How many classes there are; in [`CLASSES_RANGE`].
        classes: u16 = 1;
    }
}

impl LctConfig {
    /// These delays, one for each class; the rest by default.
    #[must_use]
    pub fn with_delays(x_delay: impl Into<Vec<Nanos>>) -> Self {
        let x_delay = x_delay.into();
        let classes = x_delay.len() as u16;
        Self { x_delay: PerClass::new(x_delay, Nanos::ZERO), classes, ..Self::default() }
    }
}

impl Discipline for LctConfig {
    const NAME: &'static str = "lct";
    type Queues<P: Packet> = Lct<P>;

    fn memory(&self, packet: u64) -> u64 {
        let packets = self.limit.first(self.classes.into()).map(u64::from).sum();
        memory_of(packets, packet)
    }

    fn build<P: Packet>(self) -> Result<Lct<P>, SettingError> {
        Lct::new(self)
    }

    fn for_classes(&mut self, classes: u16) {
        self.classes = classes;
    }

    /// It may hold any class back for its X.
    fn promise(&self) -> Promise {
        Promise::Nothing
    }

    fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        let why = "a class may go before its time when no other is due, and a worker does not see \
                   those of the others";
        (!self.is_shareable()).then_some(("kind = \"lct\" that does not hold every class", why))
    }
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Lct<P> {
    config: LctConfig,
    queues: Vec<PacketQueue<P>>,
    /// X_DELAY of each class, as the search reads it.
    x: Vec<Nanos>,
    dt: Vec<Nanos>,
    rr: usize,
    busy: Bitmap,
    total: Backlog,
    /// Other workers have a part of the link: the DTs are common, and `dt` is what was last known
    /// of them.
    common: Option<Common>,
    /// The mean length on the wire of each class's packets, which the others are told.
    lengths: Vec<u32>,
    /// Some class has a delay.
    delays: bool,
    /// By how much a class is later for a worker that has just had it.
    grace: Nanos,
}

/// What a call of the scheduler finds.
struct Search {
    /// The class to serve, or when the first of those held is due.
    found: Result<usize, Nanos>,
    /// How many classes were visited before, from the round-robin pointer on.
    passed: usize,
}

impl<P: Packet> Lct<P> {
    /// The discipline with empty queues, every class due.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a number is out of range.
    pub fn new(config: LctConfig) -> Result<Self, SettingError> {
        let classes = usize::from(config.classes);
        let (min, max) = (*CLASSES_RANGE.start() as u64, *CLASSES_RANGE.end() as u64);
        in_range("classes", classes as u64, min..=max, "classes")?;
        config.check()?;
        check_held(config.limit.first(classes))?;
        Ok(Self {
            queues: config.limit.first(classes).map(PacketQueue::new).collect(),
            x: config.x_delay.first(classes).collect(),
            dt: alloc::vec![Nanos::ZERO; classes],
            rr: 0,
            busy: Bitmap::new(classes),
            total: Backlog::default(),
            common: None,
            lengths: Vec::new(),
            delays: has_delays(&config, classes),
            grace: Nanos::ZERO,
            config,
        })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &LctConfig {
        &self.config
    }

    /// How many classes there are.
    #[must_use]
    pub fn classes(&self) -> u16 {
        self.queues.len() as u16
    }

    /// X_DELAY of a class, if there is one.
    #[must_use]
    pub fn x_delay(&self, class: Class) -> Option<Nanos> {
        self.x.get(class.index()).copied()
    }

    /// DEQUEUE_TIME of a class: from when on it may be served.
    #[must_use]
    pub fn dequeue_time(&self, class: Class) -> Option<Nanos> {
        self.dt.get(class.index()).copied()
    }

    /// The queue limit of a class, in packets.
    #[must_use]
    pub fn limit(&self, class: Class) -> Option<u32> {
        self.queues.get(class.index()).map(PacketQueue::limit)
    }

    /// The class that a call at `now` would serve; `None` if nothing waits. It changes nothing: new
    /// DTs of empty classes have no bearing on the choice of the same call.
    fn search(&self, now: Nanos) -> Option<Search> {
        let waiting = || self.busy.ring(self.rr);
        if let Some(k) = waiting().find(|k| now >= self.dt[*k]) {
            return Some(Search { found: Ok(k), passed: self.steps_to(k) });
        }
        let first = waiting().next()?;
        if self.busy.count == 1 {
            let found = if self.config.module2 { Err(self.dt[first]) } else { Ok(first) };
            return Some(Search { found, passed: self.steps_to(first) });
        }
        // `min_by_key` gives the first of equals.
        let earliest = || waiting().min_by_key(|k| self.dt[*k]).unwrap_or(first);
        let found = match self.config.multi_backlog {
            MultiBacklog::MinX => Ok(waiting().min_by_key(|k| self.x[*k]).unwrap_or(first)),
            MultiBacklog::EarliestDue => Ok(earliest()),
            policy if policy.holds(self.config.module2) => Err(self.dt[earliest()]),
            MultiBacklog::RoundRobin | MultiBacklog::HoldWithModule2 | MultiBacklog::Hold => {
                Ok(first)
            }
        };
        Some(Search { found, passed: self.dt.len() })
    }

    /// Gives a new DT to the empty classes among the `passed` from the pointer on whose own has
    /// passed. Classes with packets need no look: a search passes only those that are not due.
    fn rearm(&mut self, now: Nanos, passed: usize) {
        let to_end = passed.min(self.dt.len() - self.rr);
        for range in [self.rr..self.rr + to_end, 0..passed - to_end] {
            if let Some(common) = &self.common {
                range.for_each(|k| self.rearm_common(common, now, k));
                continue;
            }
            for (dt, x) in self.dt[range.clone()].iter_mut().zip(&self.x[range]) {
                let next = now.saturating_add(*x);
                *dt = if now >= *dt { next } else { *dt };
            }
        }
    }

    /// The class that a packet is queued in.
    fn class_of(&self, packet: &dyn Packet) -> usize {
        let class = packet.class().index();
        if class < self.queues.len() { class } else { 0 }
    }

    /// How many classes a search passes before it comes to class `k`.
    fn steps_to(&self, k: usize) -> usize {
        if k >= self.rr { k - self.rr } else { k + self.dt.len() - self.rr }
    }

    fn pop(&mut self, k: usize) -> Option<P> {
        let packet = self.queues[k].pop()?;
        if self.queues[k].is_empty() {
            self.busy.remove(k);
            self.tell_empty(k);
        }
        self.total.packets -= 1;
        self.total.bytes -= packet.ip_len();
        Some(packet)
    }

    /// Whether empty classes get a new DT when they are passed. Where several workers hold them
    /// together, those without a delay have none.
    #[inline]
    fn rearms(&self) -> bool {
        self.config.rearm_empty && (self.delays || self.common.is_none())
    }

    /// A packet of class `k` leaves, which a search from the pointer on comes to first.
    #[inline]
    fn serve_next(&mut self, now: Nanos, k: usize) {
        let passed = if self.rearms() { self.steps_to(k) } else { 0 };
        self.serve(now, k, passed);
    }

    /// A packet of class `k` leaves after `passed` classes were visited.
    fn serve(&mut self, now: Nanos, k: usize, passed: usize) {
        if self.rearms() {
            self.rearm(now, passed);
        }
        self.dt[k] = now.saturating_add(self.x[k]);
        self.rr = if k + 1 == self.queues.len() { 0 } else { k + 1 };
    }
}

impl<P: Packet> Scheduler<P> for Lct<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let k = self.class_of(&packet);
        let length = packet.ip_len();
        let on_wire = if self.common.is_some() { packet.wire_len() } else { Bytes::ZERO };
        if let Err(packet) = self.queues[k].push(packet) {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.busy.insert(k);
        self.total.packets += 1;
        self.total.bytes += length;
        self.tell_came(k, on_wire);
        Treated::Queued
    }

    /// The class is alone, so it is served at once, unless module 2 has it wait.
    fn bypass(&mut self, now: Nanos, packet: &dyn Packet) -> Option<Treated> {
        let k = self.class_of(packet);
        let held = self.config.module2 && now < self.dt[k];
        if self.busy.count > 0 || held {
            return None;
        }
        self.serve_next(now, k);
        Some(Treated::Queued)
    }

    fn bypasses(&self) -> bool {
        self.busy.count == 0
    }

    fn dequeue(&mut self, now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        loop {
            self.look_at_others();
            let Search { found, passed } = self.search(now)?;
            let Ok(k) = found else {
                if self.rearms() {
                    self.rearm(now, passed);
                }
                return None;
            };
            if !self.claims(now, k) {
                continue;
            }
            let packet = self.pop(k)?;
            self.serve(now, k, passed);
            return Some(packet);
        }
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        Some(match self.search(now)?.found {
            Ok(_) => now,
            Err(due) => due.round_up_to(self.config.timer_tick),
        })
    }

    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        let k = self.search(now)?.found.ok()?;
        self.queues[k].head().map(Packet::ip_len)
    }

    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        // What may go earlier than was told, now or at an earlier time, must be asked for again.
        let before = self.next_wake(now);
        if change.key == "limit" || self.common.is_some() {
            let mut config = self.config.clone();
            config.set_live(change, self.classes())?;
            check_held(config.limit.first(self.queues.len()))?;
            if let Some((what, why)) = config.for_one_worker().filter(|_| self.common.is_some()) {
                let message = alloc::format!("{what} works with workers = 1 only: {why}");
                return Err(SettingError::Contradiction { key: change.key, message });
            }
        }
        self.config.set_live(change, self.classes())?;
        for (k, queue) in self.queues.iter_mut().enumerate() {
            let (x, limit) = (self.config.x_delay.get(k), self.config.limit.get(k));
            if self.x[k] != x {
                self.x[k] = x;
                self.dt[k] = self.dt[k].min(now.saturating_add(x));
                if let Some(common) = &self.common {
                    common.link.hasten(k, now.saturating_add(x));
                }
            }
            if queue.limit() != limit {
                queue.set_limit(limit);
            }
        }
        self.delays = has_delays(&self.config, self.queues.len());
        Ok(if self.next_wake(now) < before { Wake::Now } else { Wake::No })
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        for queue in &mut self.queues {
            while let Some(packet) = queue.pop() {
                into(packet);
            }
        }
        (0..self.queues.len()).for_each(|k| self.tell_empty(k));
        self.busy.clear();
        self.total = Backlog::default();
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.total, ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        self.busy.count
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        self.queues.get(class.index()).map_or(Backlog::default(), PacketQueue::backlog)
    }

    fn name(&self) -> &'static str {
        LctConfig::NAME
    }
}

fn has_delays(config: &LctConfig, classes: usize) -> bool {
    config.x_delay.first(classes).any(|x| x > Nanos::ZERO)
}
