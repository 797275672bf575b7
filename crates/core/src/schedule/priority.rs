//! Strict priority: of the packets that wait, one of the highest level goes next.
//!
//! Source: none needed; the peer that shows what guarantees without fairness cost.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | level of a class | `PriorityConfig::level` | – |
//! | Q, the queue limit | `PriorityConfig::limit` | packets |
//!
//! Complexity: constant time, no allocation per packet.
//!
//! Bound: work conserving. A packet waits for those of its level and above, and for one packet in
//! transmission. Levels below may starve.
//!
//! Not implemented: rates that bound a level.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::shared::{ByClass, Order};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Wake};
use crate::audit::Promise;
use crate::packet::{Class, Packet};
use crate::queue::{LIMIT_RANGE, PacketQueue, check_held, memory_of};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, PerClass, SettingError, Settings};
use crate::units::{Bytes, Nanos};

/// Valid levels.
pub const LEVEL_RANGE: RangeInclusive<u32> = 0..=63;

settings! {
    /// Strict priority: a class goes when nothing of a higher level waits.
    #[derive(Eq)]
    pub struct PriorityConfig: "discipline = { kind = \"priority\", … }" {
        /// The level of a class: the highest goes first; classes of one level share a queue.
        fixed level: PerClass<u32> = PerClass::all(0), in LEVEL_RANGE, counting "levels";
        /// Most packets queued in each level; what comes then is dropped.
        live limit: u32 = 1_000, in LIMIT_RANGE, counting "packets";
    }
    plain {
        /// How many classes there are.
        classes: u16 = 1;
    }
}

impl Discipline for PriorityConfig {
    const NAME: &'static str = "priority";
    type Queues<P: Packet> = Priority<P>;

    fn memory(&self, packet: u64) -> u64 {
        // A queue for each level, of which there are no more than classes.
        memory_of(u64::from(self.limit) * u64::from(self.classes.max(1)), packet)
    }

    fn build<P: Packet>(self) -> Result<Priority<P>, SettingError> {
        Priority::new(self)
    }

    fn for_classes(&mut self, classes: u16) {
        self.classes = classes;
    }

    fn promise(&self) -> Promise {
        Promise::Levels { levels: self.level.first(self.classes.into()).collect() }
    }
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Priority<P> {
    config: PriorityConfig,
    /// One for each level that some class has, the highest first.
    queues: Vec<PacketQueue<P>>,
    /// The queue of each class.
    queue_of: Vec<usize>,
    /// What waits, by class.
    backlogs: Vec<Backlog>,
    /// Bit `n`: queue `n` has packets.
    busy: u64,
}

impl<P: Packet> Priority<P> {
    /// The discipline with empty queues.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range.
    pub fn new(config: PriorityConfig) -> Result<Self, SettingError> {
        config.check()?;
        let classes = usize::from(config.classes.max(1));
        let mut levels: Vec<u32> = (0..classes).map(|class| config.level.get(class)).collect();
        levels.sort_unstable_by(|a, b| b.cmp(a));
        levels.dedup();
        check_held(levels.iter().map(|_| config.limit))?;
        let queue_of = |class| levels.iter().position(|level| *level == config.level.get(class));
        Ok(Self {
            queues: levels.iter().map(|_| PacketQueue::new(config.limit)).collect(),
            queue_of: (0..classes).map(|class| queue_of(class).unwrap_or(0)).collect(),
            backlogs: alloc::vec![Backlog::default(); classes],
            busy: 0,
            config,
        })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &PriorityConfig {
        &self.config
    }

    /// The class of a packet; class 0 for those that there are none of.
    fn class(&self, packet: &P) -> usize {
        let class = packet.class().index();
        if class < self.queue_of.len() { class } else { 0 }
    }

    fn pop(&mut self, queue: usize) -> Option<P> {
        let packet = self.queues[queue].pop()?;
        if self.queues[queue].is_empty() {
            self.busy &= !(1 << queue);
        }
        let class = self.class(&packet);
        self.backlogs[class].packets -= 1;
        self.backlogs[class].bytes -= packet.ip_len();
        Some(packet)
    }

    /// The queue that goes next.
    fn next(&self) -> Option<usize> {
        (self.busy != 0).then(|| self.busy.trailing_zeros() as usize)
    }
}

impl<P: Packet> ByClass<P> for Priority<P> {
    const ORDER: Order = Order::Levels;

    fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    fn queues_of_classes(&self) -> Vec<u16> {
        self.queue_of.iter().map(|queue| *queue as u16).collect()
    }

    fn is_empty(&self, queue: usize) -> bool {
        self.queues[queue].is_empty()
    }

    fn head_len(&self, queue: usize) -> Option<Bytes> {
        self.queues[queue].head().map(Packet::ip_len)
    }

    fn take(&mut self, _now: Nanos, queue: usize, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.pop(queue)
    }
}

impl<P: Packet> Scheduler<P> for Priority<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let (class, length) = (self.class(&packet), packet.ip_len());
        let queue = self.queue_of[class];
        if let Err(packet) = self.queues[queue].push(packet) {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.busy |= 1 << queue;
        self.backlogs[class].packets += 1;
        self.backlogs[class].bytes += length;
        Treated::Queued
    }

    fn bypasses_up_to(&self) -> Option<(Bytes, Treated)> {
        (self.busy == 0).then_some((Bytes::MAX, Treated::Queued))
    }

    fn bypasses_untold(&self) -> bool {
        self.busy == 0
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.pop(self.next()?)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.busy != 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.queues[self.next()?].head().map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        let mut config = self.config.clone();
        config.set_live(change, self.config.classes)?;
        check_held(self.queues.iter().map(|_| config.limit))?;
        self.queues.iter_mut().for_each(|queue| queue.set_limit(config.limit));
        self.config = config;
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some(packet) = self.next().and_then(|queue| self.pop(queue)) {
            into(packet);
        }
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.backlog(), ..Meters::default() }
    }

    fn backlog(&self) -> Backlog {
        self.queues.iter().map(PacketQueue::backlog).fold(Backlog::default(), |sum, each| Backlog {
            packets: sum.packets + each.packets,
            bytes: sum.bytes + each.bytes,
        })
    }

    fn busy_queues(&self) -> usize {
        self.busy.count_ones() as usize
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        self.backlogs.get(class.index()).copied().unwrap_or_default()
    }

    fn name(&self) -> &'static str {
        PriorityConfig::NAME
    }
}
