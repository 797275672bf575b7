//! A refill that blocks arrivals: [`Refill::WholeRingBlocking`].

use super::{Drops, Link, LinkSink, Refill, Start};
use crate::packet::Packet;
use crate::reason::Reason;
use crate::schedule::{Scheduler, Treated};
use crate::units::Nanos;

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// Whether arrivals wait during a refill; a link without a rate has no ring to refill.
    pub(super) fn blocks(&self) -> bool {
        self.wire.is_paced() && self.config.ring.refill == Refill::WholeRingBlocking
    }

    /// An arrival during the calls of a refill that blocks.
    pub(super) fn wait(&mut self, now: Nanos, packet: P, sink: &mut impl LinkSink<P>) -> Treated {
        if self.waiting.len() >= self.config.ring.slots as usize {
            self.lose(now, packet, Reason::QueueFull, sink);
            return Treated::Dropped(Reason::QueueFull);
        }
        self.waiting.push_back(packet);
        Treated::Queued
    }

    /// When those that wait for the end of a refill, of whom there are some, enter the discipline.
    #[cold]
    pub(super) fn release(&self) -> Nanos {
        match self.start {
            Start::Due(_) => Nanos::MAX,
            _ => self.processor_free,
        }
    }

    /// The calls of a refill are over: those that waited for it enter the discipline.
    pub(super) fn let_in(&mut self, at: Nanos, sink: &mut impl LinkSink<P>) {
        let mut queued = false;
        while let Some(packet) = self.waiting.pop_front() {
            let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
            let drops = &mut Drops { sink, qostat, ledger, at, because: None };
            queued |= !matches!(self.scheduler.enqueue(at, packet, drops), Treated::Dropped(_));
        }
        match self.start {
            Start::Idle { .. } if !queued => self.still_idle(at),
            Start::Idle { .. } | Start::Shaped(_) | Start::Blocked => self.kick(at),
            Start::Due(_) | Start::Full => {}
        }
    }
}
