//! QFQ, quick fair queueing: classes share by weight, as closely as timestamps can at constant
//! cost.
//!
//! Source: Checconi, Rizzo, Valente, "QFQ: Efficient Packet Scheduling With Tight Guarantees"
//! (2013).
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | φ, weight of a class | `QfqConfig::weight` | percent of the usual share |
//! | L, its longest packet so far | `Queue::longest` | bytes on the wire |
//! | V, virtual time | `Groups::virtual_time` | 2^-20 bytes by weight |
//! | S, F, start and finish of a class's head | `Stamp::{start, finish}` | as V |
//! | σ, the slot of a group, L/φ rounded up to a power of two | `groups::slot` | as V |
//! | ER, IR, EB, IB | `Groups::sets` | – |
//!
//! A class's head starts where the packet before it finished, or now if that is past, and finishes
//! its length by weight later. Of those that have started the one that finishes first goes next,
//! with starts and finishes of groups of classes rounded to slots, so that a few operations on bits
//! find it (`groups`). V goes on by what was sent, by the sum of all weights, and on to the first
//! start where nobody would have started.
//!
//! Complexity: constant time per packet, whatever the number of classes; no allocation per packet.
//!
//! Bound (Theorem 3 there): work conserving. While a class waits it is never behind its share, φ by
//! the sum of weights of what is sent, by more than 3 φ σ + 2 φ L, less than 8 of its longest
//! packets, whatever the others do: those of the sum of all classes, and L the longest of all.
//!
//! Not implemented: what QFQ+ adds, classes of equal weight served as one, which saves operations
//! and costs a part of the bound. Different: a class's longest packet is learnt from those that
//! arrive, 1538 bytes to begin with. The bound does not hold for the first that is longer, nor
//! across a change of weights.

mod groups;

use alloc::vec::Vec;

use super::shared::ByClass;
use super::wfq_altq::{DEFAULT_WEIGHT, WEIGHT_RANGE};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Wake};
use crate::audit::{Promise, Unit};
use crate::packet::{Class, Packet};
use crate::queue::{LIMIT_RANGE, PacketQueue, check_held, memory_of};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, PerClass, SettingError, Settings};
use crate::units::{Bytes, Nanos, Weight};
use groups::{Groups, group_of};

/// Bits of virtual time below one byte of a class of weight 1.
const FRACTION: u32 = 20;
/// What is taken for a class's longest packet until a longer one comes: a frame of 1500 bytes.
const USUAL_LONGEST: u64 = 1_538;
/// A packet counts as so many bytes at most; no frame is longer.
const MOST: u64 = 1 << 17;
/// How many of the longest packets a class may be behind its share: Theorem 3, 3 φ σ + 2 φ L, with
/// σ below 2 L / φ.
pub const LAG_PACKETS: u64 = 8;

settings! {
    /// Quick fair queueing: classes share by weight, closely and at constant cost.
    #[derive(Eq)]
    pub struct QfqConfig: "discipline = { kind = \"qfq\", … }" {
        /// The share of a class in relation to the others, in percent of the usual one.
        live weight: PerClass<Weight> = PerClass::all(DEFAULT_WEIGHT), in WEIGHT_RANGE;
        /// Most packets queued in each class; what comes then is dropped.
        live limit: u32 = 1_000, in LIMIT_RANGE, counting "packets";
    }
    plain {
        /// How many classes there are.
        classes: u16 = 1;
    }
}

impl Discipline for QfqConfig {
    const NAME: &'static str = "qfq";
    type Queues<P: Packet> = Qfq<P>;

    fn memory(&self, packet: u64) -> u64 {
        let classes = u64::from(self.classes.max(1));
        // Its stamps and its place in a list.
        const CLASS: u64 = 64;
        const GROUPS: u64 = 4_096;
        memory_of(u64::from(self.limit) * classes, packet)
            + classes * (CLASS + size_of::<Queue<()>>() as u64)
            + GROUPS
    }

    fn build<P: Packet>(self) -> Result<Qfq<P>, SettingError> {
        Qfq::new(self)
    }

    fn for_classes(&mut self, classes: u16) {
        self.classes = classes;
    }

    fn promise(&self) -> Promise {
        let weights = self.weight.first(self.classes.into()).map(|w| f64::from(w.0)).collect();
        Promise::Shares { weights, unit: Unit::Wire, bytes: 0, packets: LAG_PACKETS }
    }
}

/// What waits of a class.
#[derive(Clone, Debug)]
struct Queue<P> {
    packets: PacketQueue<P>,
    weight: u64,
    /// Bytes on the wire of its longest packet so far.
    longest: u64,
}

impl<P: Packet> Queue<P> {
    /// The virtual time that a packet takes.
    fn step(&self, packet: &P) -> u64 {
        (length(packet) << FRACTION) / self.weight
    }

    /// Its first packet's step, and the class's group.
    fn head(&self) -> Option<(u64, usize)> {
        let group = group_of((self.longest << FRACTION) / self.weight);
        self.packets.head().map(|head| (self.step(head), group))
    }
}

/// What a packet counts as.
fn length<P: Packet>(packet: &P) -> u64 {
    packet.wire_len().0.clamp(1, MOST)
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Qfq<P> {
    config: QfqConfig,
    /// One for each class.
    queues: Vec<Queue<P>>,
    waiting: Groups,
    /// Those that wait are in `waiting`.
    grouped: bool,
    /// The sum of all weights.
    weights: u64,
    /// What of the bytes sent did not come to a whole step of virtual time yet.
    rest: u64,
    backlog: Backlog,
    /// Classes with packets.
    busy: usize,
}

impl<P: Packet> Qfq<P> {
    /// The discipline with empty queues.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range.
    pub fn new(config: QfqConfig) -> Result<Self, SettingError> {
        config.check()?;
        let classes = usize::from(config.classes.max(1));
        check_held((0..classes).map(|_| config.limit))?;
        let queue = |class| Queue {
            packets: PacketQueue::new(config.limit),
            weight: config.weight.get(class).0.into(),
            longest: USUAL_LONGEST,
        };
        let queues: Vec<Queue<P>> = (0..classes).map(queue).collect();
        Ok(Self {
            weights: queues.iter().map(|queue| queue.weight).sum(),
            waiting: Groups::new(classes),
            grouped: true,
            queues,
            rest: 0,
            backlog: Backlog::default(),
            busy: 0,
            config,
        })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &QfqConfig {
        &self.config
    }

    /// The class of a packet; class 0 for those that there are none of.
    fn class(&self, packet: &P) -> usize {
        let class = packet.class().index();
        if class < self.queues.len() { class } else { 0 }
    }

    /// A class that has packets, and is not among those that wait, becomes one of them.
    fn group(&mut self, class: usize) {
        if let Some((step, group)) = self.queues[class].head() {
            self.waiting.enter(class, step, group);
        }
    }

    /// Takes the first packet of a class.
    fn pop(&mut self, class: usize) -> Option<P> {
        let packet = self.queues[class].packets.pop()?;
        self.backlog.packets -= 1;
        self.backlog.bytes -= packet.ip_len();
        self.busy -= usize::from(self.queues[class].packets.is_empty());
        Some(packet)
    }
}

/// With several workers grants say who is served, and groups have a part only on a link that has
/// lost its rate.
impl<P: Packet> ByClass<P> for Qfq<P> {
    fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    fn weight(&self, queue: u16) -> u32 {
        self.config.weight.get(usize::from(queue)).0
    }

    fn is_empty(&self, queue: usize) -> bool {
        self.queues[queue].packets.is_empty()
    }

    fn head_len(&self, queue: usize) -> Option<Bytes> {
        self.queues[queue].packets.head().map(Packet::ip_len)
    }

    fn take(&mut self, _now: Nanos, queue: usize, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        if core::mem::take(&mut self.grouped) {
            self.waiting.clear();
        }
        self.pop(queue)
    }
}

impl<P: Packet> Scheduler<P> for Qfq<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let (class, bytes) = (self.class(&packet), packet.ip_len());
        let queue = &mut self.queues[class];
        queue.longest = queue.longest.max(length(&packet));
        let begins = queue.packets.is_empty();
        if let Err(packet) = queue.packets.push(packet) {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.backlog.packets += 1;
        self.backlog.bytes += bytes;
        self.busy += usize::from(begins);
        if begins && self.grouped {
            self.group(class);
        }
        Treated::Queued
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        if !core::mem::replace(&mut self.grouped, true) {
            (0..self.queues.len()).for_each(|class| self.group(class));
        }
        let class = self.waiting.next()?;
        let packet = self.pop(class)?;
        let sent = (length(&packet) << FRACTION) + self.rest;
        self.rest = sent % self.weights;
        self.waiting.served(sent / self.weights, self.queues[class].head());
        Some(packet)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.busy > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.queues[self.waiting.next()?].packets.head().map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        let before = self.config.limit;
        self.config.set_live(change, self.config.classes)?;
        let limit = self.config.limit;
        if let Err(error) = check_held(self.queues.iter().map(|_| limit)) {
            self.config.limit = before;
            return Err(error);
        }
        for (class, queue) in self.queues.iter_mut().enumerate() {
            queue.packets.set_limit(limit);
            queue.weight = self.config.weight.get(class).0.into();
        }
        self.weights = self.queues.iter().map(|queue| queue.weight).sum();
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        for class in 0..self.queues.len() {
            while let Some(packet) = self.pop(class) {
                into(packet);
            }
        }
        self.waiting.clear();
    }

    fn meters(&self) -> Meters {
        let virtual_time = Some(self.waiting.virtual_time());
        Meters { backlog: self.backlog, virtual_time, ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        self.busy
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        self.queues.get(class.index()).map(|queue| queue.packets.backlog()).unwrap_or_default()
    }

    fn name(&self) -> &'static str {
        QfqConfig::NAME
    }
}
