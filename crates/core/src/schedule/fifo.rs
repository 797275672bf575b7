//! First in, first out: one queue for all classes, tail drop. What a router without a discipline
//! does.
//!
//! Source: none needed; the peer that every published comparison starts from.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | Q, the queue limit | `FifoConfig::limit` | packets |
//!
//! Complexity: constant time, no allocation per packet.
//!
//! Bound: work conserving; a packet waits for at most the `limit` packets before it.
//!
//! Not implemented: limits in bytes, head drop.

use super::shared::{ByClass, Order};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Wake};
use crate::packet::{Class, Packet};
use crate::queue::{LIMIT_RANGE, PacketQueue, memory_of};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{Bytes, Nanos};

settings! {
    /// First in, first out: one queue for all classes.
    #[derive(Copy, Eq)]
    pub struct FifoConfig: "discipline = { kind = \"fifo\", … }" {
        /// Most packets queued; what comes then is dropped.
        live limit: u32 = 1_000, in LIMIT_RANGE, counting "packets";
    }
}

impl FifoConfig {
    /// So many packets, the rest by default.
    #[must_use]
    #[allow(clippy::needless_update, reason = "there may be more settings one day")]
    pub fn packets(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }
}

impl Discipline for FifoConfig {
    const NAME: &'static str = "fifo";
    type Queues<P: Packet> = Fifo<P>;

    fn memory(&self, packet: u64) -> u64 {
        memory_of(self.limit.into(), packet)
    }

    fn build<P: Packet>(self) -> Result<Fifo<P>, SettingError> {
        Fifo::new(self)
    }
}

/// One queue for all classes.
#[derive(Clone, Debug)]
pub struct Fifo<P> {
    config: FifoConfig,
    queue: PacketQueue<P>,
}

impl<P: Packet> Fifo<P> {
    /// An empty queue.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if the limit is out of range.
    pub fn new(config: FifoConfig) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self { config, queue: PacketQueue::new(config.limit) })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &FifoConfig {
        &self.config
    }
}

impl<P: Packet> ByClass<P> for Fifo<P> {
    const ORDER: Order = Order::One;

    fn queues(&self) -> u16 {
        1
    }

    fn is_empty(&self, _queue: usize) -> bool {
        self.queue.is_empty()
    }

    fn head_len(&self, _queue: usize) -> Option<Bytes> {
        self.queue.head().map(Packet::ip_len)
    }

    fn take(&mut self, _now: Nanos, _queue: usize, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.queue.pop()
    }
}

impl<P: Packet> Scheduler<P> for Fifo<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        match self.queue.push(packet) {
            Ok(()) => Treated::Queued,
            Err(packet) => {
                dropped.dropped(packet, Reason::QueueFull);
                Treated::Dropped(Reason::QueueFull)
            }
        }
    }

    fn bypasses_up_to(&self) -> Option<(Bytes, Treated)> {
        self.queue.is_empty().then_some((Bytes::MAX, Treated::Queued))
    }

    fn bypasses_untold(&self) -> bool {
        self.queue.is_empty()
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.queue.pop()
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (!self.queue.is_empty()).then_some(now)
    }

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
        FifoConfig::NAME
    }
}
