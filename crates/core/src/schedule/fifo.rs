//! First in, first out: one queue for all classes, tail drop. What a router without a discipline does.
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

use super::{Backlog, DropSink, Knob, KnobError, Meters, Scheduler, Treated, Wake};
use crate::packet::{Class, Packet};
use crate::queue::{DEFAULT_LIMIT, PacketQueue};
use crate::reason::Reason;
use crate::units::{Bytes, Nanos};

/// What a [`Fifo`] is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FifoConfig {
    /// Most packets it holds; in [`LIMIT_RANGE`](crate::queue::LIMIT_RANGE).
    pub limit: u32,
}

impl Default for FifoConfig {
    fn default() -> Self {
        Self { limit: DEFAULT_LIMIT }
    }
}

/// One queue for all classes. Knob: [`Knob::QueueLimit`] of `None` or of class 0.
#[derive(Clone, Debug)]
pub struct Fifo<P> {
    queue: PacketQueue<P>,
}

impl<P: Packet> Fifo<P> {
    /// The name in configuration files.
    pub const NAME: &'static str = "fifo";

    /// An empty queue.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] if the limit is out of range.
    pub fn new(config: FifoConfig) -> Result<Self, KnobError> {
        Ok(Self { queue: PacketQueue::new(config.limit)? })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> FifoConfig {
        FifoConfig { limit: self.queue.limit() }
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

    fn bypass(&mut self, _now: Nanos, _packet: &P) -> Option<Treated> {
        self.queue.is_empty().then_some(Treated::Queued)
    }

    fn bypasses(&self) -> bool {
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

    fn set(&mut self, _now: Nanos, knob: Knob) -> Result<Wake, KnobError> {
        match knob {
            Knob::QueueLimit(None | Some(Class(0)), limit) => self.queue.set_limit(limit)?,
            Knob::QueueLimit(Some(class), _) => {
                return Err(KnobError::NoSuchClass { class, classes: 1 });
            }
            other => {
                return Err(KnobError::NoSuchKnob { knob: other.name(), discipline: Self::NAME });
            }
        }
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
        Self::NAME
    }
}
