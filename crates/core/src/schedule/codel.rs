//! CoDel: one queue for all classes that does not stand.
//!
//! Source: RFC 8289. The law is in [`crate::aqm`], here is its queue.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | the queue limit | `CodelConfig::limit` | packets |
//! | TARGET, INTERVAL | `CodelConfig::aqm` | time |
//!
//! Complexity: constant time per packet, and per packet dropped; no allocation per packet.
//!
//! Bound: work conserving. Nothing is dropped at the head while one packet in every interval waits
//! less than the target, which is never below the time of a grant where several workers share.

use super::shared::{ByClass, Order};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Wake};
use crate::aqm::{AqmConfig, Codel as Law, Taken};
use crate::packet::{Class, Packet};
use crate::queue::{LIMIT_RANGE, PacketQueue, memory_of};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{Bytes, Nanos};

settings! {
    /// CoDel (RFC 8289): one queue for all classes, kept short by drops at its head.
    #[derive(Copy, Eq)]
    pub struct CodelConfig: "discipline = { kind = \"codel\", … }" {
        /// Most packets queued; what comes then is dropped.
        live limit: u32 = 1_000, in LIMIT_RANGE, counting "packets";
    }
    parts {
        /// When the queue counts as standing.
        aqm: AqmConfig,
    }
}

impl Discipline for CodelConfig {
    const NAME: &'static str = "codel";
    type Queues<P: Packet> = Codel<P>;

    fn memory(&self, packet: u64) -> u64 {
        memory_of(self.limit.into(), packet)
    }

    fn build<P: Packet>(self) -> Result<Codel<P>, SettingError> {
        Codel::new(self)
    }
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    config: CodelConfig,
    queue: PacketQueue<P>,
    law: Law,
    /// No target is below that.
    least: Nanos,
}

impl<P: Packet> Codel<P> {
    /// An empty queue.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range.
    pub fn new(config: CodelConfig) -> Result<Self, SettingError> {
        config.check()?;
        let queue = PacketQueue::new(config.limit);
        Ok(Self { config, queue, law: Law::NEW, least: Nanos::ZERO })
    }
}

/// Of several workers each judges what waits at it.
impl<P: Packet> ByClass<P> for Codel<P> {
    const ORDER: Order = Order::One;

    fn queues(&self) -> u16 {
        1
    }

    fn grants_take(&mut self, time: Nanos) {
        self.least = time;
    }

    fn is_empty(&self, _queue: usize) -> bool {
        self.queue.is_empty()
    }

    fn head_len(&self, _queue: usize) -> Option<Bytes> {
        self.queue.head().map(Packet::ip_len)
    }

    fn take(&mut self, now: Nanos, _queue: usize, dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.dequeue(now, dropped)
    }
}

impl<P: Packet> Scheduler<P> for Codel<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        match self.queue.push(packet) {
            Ok(()) => Treated::Queued,
            Err(packet) => {
                dropped.dropped(packet, Reason::QueueFull);
                Treated::Dropped(Reason::QueueFull)
            }
        }
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let Self { config, queue, law, least } = self;
        let take = || {
            let packet = queue.pop()?;
            Some(Taken { left: queue.backlog().bytes, packet })
        };
        let drop = |packet| dropped.dropped(packet, Reason::StandingQueue);
        law.dequeue(&config.aqm.at_least(*least), now, take, drop)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (!self.queue.is_empty()).then_some(now)
    }

    /// Of the head, which may be dropped.
    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.queue.head().map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.config.set_live(change, 1)?;
        self.queue.set_limit(self.config.limit);
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some(packet) = self.queue.pop() {
            into(packet);
        }
        self.law = Law::NEW;
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.queue.backlog(), ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        usize::from(!self.queue.is_empty())
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        if class == Class(0) { self.queue.backlog() } else { Backlog::default() }
    }

    fn name(&self) -> &'static str {
        CodelConfig::NAME
    }
}
