//! Packets that leave one after the other while others wait, as nearly always on a busy link: what
//! [happens in general](super::events) then is the same each time.
//!
//! ```text
//! a packet is through ─▶ the other of the ring follows at once ─▶ the scheduler gives another
//! ```

use super::sink::Drops;
use super::{Link, LinkSink};
use crate::packet::Packet;
use crate::schedule::Scheduler;
use crate::units::Nanos;

/// What comes after packets that left one after the other.
enum End {
    /// Nothing is due any more.
    Over,
    /// At this instant a slot became free, and something else comes first, or nothing waits.
    Free(Nanos),
    /// The scheduler gave nothing at this instant.
    Idle(Nanos),
}

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// Whether the scheduler is called as soon as a slot of the ring, which is full, is free, and
    /// takes no time.
    #[inline]
    fn streams(&self) -> bool {
        self.waiting.is_empty()
            && self.shaper.is_none()
            && self.config.dequeue_time == Nanos::ZERO
            && self.processor_free <= self.wire.done()
            && self.wire.flows()
    }

    /// Lets packets leave that are due by `now`, and the scheduler fill the ring, which is full, as
    /// long as nothing else happens. It is to [publish](Scheduler::publish) afterwards.
    #[inline(never)] // so that it has the registers for itself
    pub(super) fn stream(&mut self, now: Nanos, sink: &mut impl LinkSink<P>) {
        // Before the discipline's own work.
        let until = Nanos(self.tick.unwrap_or(Nanos::MAX).0.saturating_sub(1)).min(now);
        if self.wire.done() > until || !self.streams() {
            return;
        }
        let Some((mut on_wire, mut next)) = self.ring.take_pair() else { return };
        let Self { scheduler, ring, qostat, audit, .. } = self;
        let mut wire = self.wire;
        let ledger = &mut audit.ledger;
        let mut drops = Drops { sink, qostat, ledger, at: wire.done(), because: None };
        let end = loop {
            let at = wire.done();
            if at > until {
                ring.push(on_wire);
                ring.push(next);
                break End::Over;
            }
            wire.follow(next.wire_len());
            let through = core::mem::replace(&mut on_wire, next);
            drops.qostat.sent(&through);
            drops.ledger.sent(&through);
            drops.sink.transmitted(at, through);
            if wire.done() <= at {
                ring.push(on_wire);
                break End::Free(at);
            }
            drops.at = at;
            let (busy, given) = scheduler.call(at, &mut drops);
            if busy == 0 {
                ring.push(on_wire);
                break End::Free(at);
            }
            drops.qostat.called(busy);
            let Some(packet) = given else {
                ring.push(on_wire);
                break End::Idle(at);
            };
            drops.qostat.given(at, &packet);
            drops.ledger.given(&packet, drops.qostat);
            next = packet;
        };
        self.wire = wire;
        match end {
            End::Over => {}
            End::Free(at) => self.restart(at),
            End::Idle(at) => self.idle(at),
        }
    }
}
