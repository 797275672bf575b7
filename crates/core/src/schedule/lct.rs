//! LCT-UC: a round robin in which each class waits a time of its own between two packets.
//!
//! Source: "An Effective Scheduler for IP Routers" (the scheduler of the University of Coimbra's LCT router).
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
//! Module 1: classes are visited in ring order from RR; the first with packets whose DT has passed is served, its DT
//! becomes now + X, and RR moves behind it. A class alone is served at once. Module 2: not even a class alone is
//! served before its DT, so that classes with X above zero may not use idle capacity; the packet is held and a timer
//! set. What the paper leaves open when several classes wait and none is due is a choice, [`MultiBacklog`]; docs/lct.md
//! has the evidence for its default. Empty
//! classes visited past their DT get a new one (the paper's positions 1 and 2), so that the first packet of an idle
//! class waits too; `rearm_empty` turns that off.
//!
//! Complexity: dequeue is O(classes): a bitmap finds those with packets, 64 at a time; giving visited empty classes a
//! new DT is one pass over consecutive numbers without branches. Enqueue is constant time.
//!
//! Bound: with module 2, a class alone sends at most one packet per X; with `HoldWithModule2`, the default, or `Hold`
//! each class does, whoever else waits. With the other policies a class sends up to what the link has while another waits
//! with it. A class with X = 0 is never held. Without module 2, and with a policy other than `Hold`, the discipline is work
//! conserving.
//!
//! Setting X from what is measured, the paper's plan, is [`crate::control`]'s. Difference: a timer that was set for a packet
//! which then left earlier does not fire in vain.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{Backlog, DropSink, Knob, KnobError, Meters, MultiBacklog, Scheduler, Treated, Wake, in_range};
use crate::packet::{Class, Packet};
use crate::queue::{DEFAULT_LIMIT, PacketQueue};
use crate::reason::Reason;
use crate::units::{Bytes, Nanos};

/// Valid intervals between packets of a class, in nanoseconds: 0 to 60 s.
pub const X_DELAY_RANGE: RangeInclusive<u64> = 0..=60_000_000_000;
/// Valid numbers of classes.
pub const CLASSES_RANGE: RangeInclusive<usize> = 1..=2_048;
/// Valid timer ticks, in nanoseconds: 0 (exact) to 1 s.
pub const TIMER_TICK_RANGE: RangeInclusive<u64> = 0..=1_000_000_000;
/// The tick of FreeBSD 2.2's time-outs (HZ = 100), on which the published measurements ran.
pub const FREEBSD_TICK: Nanos = Nanos::from_millis(10);

/// What an [`Lct`] is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LctConfig {
    /// X_DELAY of each class, in [`X_DELAY_RANGE`]; their number, in [`CLASSES_RANGE`], is the number of classes.
    pub x_delay: Vec<Nanos>,
    /// Most packets each class may have queued; in [`LIMIT_RANGE`](crate::queue::LIMIT_RANGE).
    pub limit: u32,
    /// Whether a class alone is held until its time.
    pub module2: bool,
    /// Which packet goes when several classes wait and none is due.
    pub policy: MultiBacklog,
    /// Whether empty classes visited past their time get a new one.
    pub rearm_empty: bool,
    /// Times at which a held packet is looked at again are multiples of this; 0 is exact. In [`TIMER_TICK_RANGE`].
    pub timer_tick: Nanos,
}

impl Default for LctConfig {
    /// One class with X = 0; module 2 on, `HoldWithModule2`, empty classes re-armed, exact timer.
    fn default() -> Self {
        Self {
            x_delay: alloc::vec![Nanos::ZERO],
            limit: DEFAULT_LIMIT,
            module2: true,
            policy: MultiBacklog::default(),
            rearm_empty: true,
            timer_tick: Nanos::ZERO,
        }
    }
}

/// The discipline. Knobs: [`Knob::XDelay`], [`Knob::QueueLimit`], [`Knob::Module2`], [`Knob::MultiBacklog`],
/// [`Knob::RearmEmpty`].
#[derive(Clone, Debug)]
pub struct Lct<P> {
    queues: Vec<PacketQueue<P>>,
    x: Vec<Nanos>,
    dt: Vec<Nanos>,
    rr: usize,
    busy: Bitmap,
    total: Backlog,
    module2: bool,
    policy: MultiBacklog,
    rearm_empty: bool,
    timer_tick: Nanos,
}

/// What a call of the scheduler finds.
struct Search {
    /// The class to serve, or when the first of those held is due.
    found: Result<usize, Nanos>,
    /// How many classes were visited before, from the round-robin pointer on.
    passed: usize,
}

impl<P: Packet> Lct<P> {
    /// The name in configuration files.
    pub const NAME: &'static str = "lct";

    /// The discipline with empty queues, every class due.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] if a number is out of range.
    pub fn new(config: LctConfig) -> Result<Self, KnobError> {
        let classes = config.x_delay.len();
        let (min, max) = (*CLASSES_RANGE.start() as u64, *CLASSES_RANGE.end() as u64);
        in_range("classes", classes as u64, min..=max, "classes")?;
        config.x_delay.iter().try_for_each(|x| check_x_delay(*x))?;
        in_range("timer_tick", config.timer_tick.0, TIMER_TICK_RANGE, "ns")?;
        Ok(Self {
            queues: (0..classes).map(|_| PacketQueue::new(config.limit)).collect::<Result<_, _>>()?,
            x: config.x_delay,
            dt: alloc::vec![Nanos::ZERO; classes],
            rr: 0,
            busy: Bitmap::new(classes),
            total: Backlog::default(),
            module2: config.module2,
            policy: config.policy,
            rearm_empty: config.rearm_empty,
            timer_tick: config.timer_tick,
        })
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

    /// Whether a class alone is held until its time.
    #[must_use]
    pub const fn module2(&self) -> bool {
        self.module2
    }

    /// Which packet goes when several classes wait and none is due.
    #[must_use]
    pub const fn policy(&self) -> MultiBacklog {
        self.policy
    }

    /// Whether empty classes visited past their time get a new one.
    #[must_use]
    pub const fn rearm_empty(&self) -> bool {
        self.rearm_empty
    }

    /// The class that a call at `now` would serve; `None` if nothing waits. It changes nothing: new DTs of empty
    /// classes have no bearing on the choice of the same call.
    fn search(&self, now: Nanos) -> Option<Search> {
        let waiting = || self.busy.ring(self.rr);
        if let Some(k) = waiting().find(|k| now >= self.dt[*k]) {
            return Some(Search { found: Ok(k), passed: self.steps_to(k) });
        }
        let first = waiting().next()?;
        if self.busy.count == 1 {
            let found = if self.module2 { Err(self.dt[first]) } else { Ok(first) };
            return Some(Search { found, passed: self.steps_to(first) });
        }
        // `min_by_key` gives the first of equals.
        let earliest = || waiting().min_by_key(|k| self.dt[*k]).unwrap_or(first);
        let found = match self.policy {
            MultiBacklog::MinX => Ok(waiting().min_by_key(|k| self.x[*k]).unwrap_or(first)),
            MultiBacklog::EarliestDue => Ok(earliest()),
            policy if policy.holds(self.module2) => Err(self.dt[earliest()]),
            MultiBacklog::RoundRobin | MultiBacklog::HoldWithModule2 | MultiBacklog::Hold => Ok(first),
        };
        Some(Search { found, passed: self.dt.len() })
    }

    /// Gives a new DT to the empty classes among the `passed` from the pointer on whose own has passed. Classes with
    /// packets need no look: a search passes only those that are not due.
    fn rearm(&mut self, now: Nanos, passed: usize) {
        let to_end = passed.min(self.dt.len() - self.rr);
        for range in [self.rr..self.rr + to_end, 0..passed - to_end] {
            for (dt, x) in self.dt[range.clone()].iter_mut().zip(&self.x[range]) {
                let next = now.saturating_add(*x);
                *dt = if now >= *dt { next } else { *dt };
            }
        }
    }

    /// The class that a packet is queued in.
    fn class_of(&self, packet: &P) -> usize {
        let class = packet.class().index();
        if class < self.queues.len() { class } else { 0 }
    }

    /// How many classes a search passes before it comes to class `k`.
    fn steps_to(&self, k: usize) -> usize {
        if k >= self.rr { k - self.rr } else { k + self.dt.len() - self.rr }
    }

    /// A packet of class `k` leaves after `passed` classes were visited.
    fn serve(&mut self, now: Nanos, k: usize, passed: usize) {
        if self.rearm_empty {
            self.rearm(now, passed);
        }
        self.dt[k] = now.saturating_add(self.x[k]);
        self.rr = if k + 1 == self.queues.len() { 0 } else { k + 1 };
    }

    fn known(&self, class: Class) -> Result<usize, KnobError> {
        if class.index() < self.queues.len() {
            return Ok(class.index());
        }
        Err(KnobError::NoSuchClass { class, classes: self.classes() })
    }

    fn change(&mut self, now: Nanos, knob: Knob) -> Result<(), KnobError> {
        match knob {
            Knob::XDelay(class, x) => {
                check_x_delay(x)?;
                let k = self.known(class)?;
                self.x[k] = x;
                self.dt[k] = self.dt[k].min(now.saturating_add(x));
            }
            Knob::QueueLimit(Some(class), limit) => {
                let k = self.known(class)?;
                self.queues[k].set_limit(limit)?;
            }
            Knob::QueueLimit(None, limit) => {
                self.queues.iter_mut().try_for_each(|queue| queue.set_limit(limit))?;
            }
            Knob::Module2(on) => self.module2 = on,
            Knob::MultiBacklog(policy) => self.policy = policy,
            Knob::RearmEmpty(on) => self.rearm_empty = on,
            other => {
                return Err(KnobError::NoSuchKnob { knob: other.name(), discipline: Self::NAME });
            }
        }
        Ok(())
    }
}

fn check_x_delay(x: Nanos) -> Result<(), KnobError> {
    in_range("x_delay", x.0, X_DELAY_RANGE, "ns")
}

impl<P: Packet> Scheduler<P> for Lct<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let k = self.class_of(&packet);
        let length = packet.ip_len();
        if let Err(packet) = self.queues[k].push(packet) {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.busy.insert(k);
        self.total.packets += 1;
        self.total.bytes += length;
        Treated::Queued
    }

    /// The class is alone, so it is served at once, unless module 2 has it wait.
    fn bypass(&mut self, now: Nanos, packet: &P) -> Option<Treated> {
        let k = self.class_of(packet);
        let held = self.module2 && now < self.dt[k];
        if self.busy.count > 0 || held {
            return None;
        }
        self.serve(now, k, self.steps_to(k));
        Some(Treated::Queued)
    }

    fn bypasses(&self) -> bool {
        self.busy.count == 0
    }

    fn dequeue(&mut self, now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        let Search { found, passed } = self.search(now)?;
        let Ok(k) = found else {
            if self.rearm_empty {
                self.rearm(now, passed);
            }
            return None;
        };
        let packet = self.queues[k].pop()?;
        if self.queues[k].is_empty() {
            self.busy.remove(k);
        }
        self.total.packets -= 1;
        self.total.bytes -= packet.ip_len();
        self.serve(now, k, passed);
        Some(packet)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        Some(match self.search(now)?.found {
            Ok(_) => now,
            Err(due) => due.round_up_to(self.timer_tick),
        })
    }

    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        let k = self.search(now)?.found.ok()?;
        self.queues[k].head().map(Packet::ip_len)
    }

    fn set(&mut self, now: Nanos, knob: Knob) -> Result<Wake, KnobError> {
        // What may go earlier than was told, now or at an earlier time, must be asked for again.
        let before = self.next_wake(now);
        self.change(now, knob)?;
        Ok(if self.next_wake(now) < before { Wake::Now } else { Wake::No })
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        for queue in &mut self.queues {
            while let Some(packet) = queue.pop() {
                into(packet);
            }
        }
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
        Self::NAME
    }
}

/// A set of classes, found in ring order.
#[derive(Clone, Debug)]
struct Bitmap {
    words: Vec<u64>,
    count: usize,
}

impl Bitmap {
    fn new(classes: usize) -> Self {
        Self { words: alloc::vec![0; classes.div_ceil(64)], count: 0 }
    }

    fn insert(&mut self, k: usize) {
        let (word, bit) = (&mut self.words[k / 64], 1 << (k % 64));
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    fn remove(&mut self, k: usize) {
        let (word, bit) = (&mut self.words[k / 64], 1 << (k % 64));
        self.count -= usize::from(*word & bit != 0);
        *word &= !bit;
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The members from `start` on, around the ring.
    fn ring(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        let (split, high) = (start / 64, !0 << (start % 64));
        let masks = [(split, high)]
            .into_iter()
            .chain((split + 1..self.words.len()).map(|w| (w, !0)))
            .chain((0..split).map(|w| (w, !0)))
            .chain([(split, !high)]);
        masks.flat_map(|(w, mask)| {
            let mut word: u64 = self.words[w] & mask;
            core::iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                (word != 0).then(|| {
                    word &= word - 1;
                    w * 64 + bit
                })
            })
        })
    }
}
