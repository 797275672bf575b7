//! What happens on a link, in the order of virtual time: packets leave the wire, the scheduler is
//! called, and does what it does periodically.

use super::sink::Drops;
use super::{Link, LinkSink, Start};
use crate::packet::Packet;
use crate::schedule::Scheduler;
use crate::units::Nanos;

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// Lets everything happen up to `now` and gives the instant it is now.
    pub(super) fn arrive_at(&mut self, now: Nanos, sink: &mut impl LinkSink<P>) -> Nanos {
        let now = now.max(self.clock);
        if self.tick.is_none() {
            self.clock = now;
            self.tick = Some(self.ticked(now));
        }
        self.run(now, sink);
        self.clock = now;
        if self.audit.due <= now {
            self.look(now);
        }
        now
    }

    pub(super) fn next_event(&self) -> Nanos {
        let tick = self.tick.unwrap_or(Nanos::MAX);
        let at = self.wire.done().min(self.start.instant()).min(tick);
        if self.waiting.is_empty() { at } else { at.min(self.release()) }
    }

    /// Lets happen what is due by `now`.
    #[inline(always)] // a call would cost more than what it mostly finds out: that nothing is
    pub(super) fn run(&mut self, now: Nanos, sink: &mut impl LinkSink<P>) {
        if self.next_event() <= now {
            self.run_due(now, sink);
        }
    }

    fn run_due(&mut self, now: Nanos, sink: &mut impl LinkSink<P>) {
        // One packet alone goes the general way, which takes nothing out of the ring and back.
        if self.start == Start::Full && self.wire.is_behind(now) {
            self.stream(now, sink);
            self.scheduler.publish();
        }
        loop {
            let at = self.next_event();
            if at > now || at == Nanos::MAX {
                return;
            }
            let mut busy = None;
            if self.wire.done() == at {
                busy = self.complete(at, sink);
                // With packets that wait the scheduler's turn is nearly always next.
                if self.start != Start::Due(at) || !self.waiting.is_empty() || self.is_due(at) {
                    continue;
                }
            } else if self.tick == Some(at) {
                self.tick = Some(self.ticked(at));
                if let Start::Idle { .. } = self.start {
                    match self.scheduler.next_wake(at) {
                        Some(wake) if wake <= at => self.kick(at),
                        _ => self.idle(at),
                    }
                }
                continue;
            } else if !self.waiting.is_empty() && self.release() <= at {
                self.let_in(at, sink);
                continue;
            } else if let Start::Idle { .. } = self.start {
                self.kick(at);
                continue;
            }
            let busy = busy.unwrap_or_else(|| self.scheduler.busy_queues());
            self.call(at, busy, sink);
        }
    }

    /// Whether the wire or the discipline's own work comes before a call of the scheduler at `at`.
    #[inline]
    fn is_due(&self, at: Nanos) -> bool {
        self.wire.done() <= at || self.ticks_by(at)
    }

    /// The scheduler's periodic work; gives when it is due next, always later than `at`.
    pub(super) fn ticked(&mut self, at: Nanos) -> Nanos {
        let next = self.scheduler.tick(at);
        next.map_or(Nanos::MAX, |next| next.max(at.saturating_add(Nanos(1))))
    }

    /// The packet on the wire is through. How many queues have packets, if that was asked.
    fn complete(&mut self, at: Nanos, sink: &mut impl LinkSink<P>) -> Option<usize> {
        self.wire.finish();
        let (packet, freed) = self.ring.pop()?;
        self.begin(at);
        self.leave(at, packet, sink);
        if !freed || !matches!(self.start, Start::Idle { .. } | Start::Full) {
            return None;
        }
        let busy = self.scheduler.busy_queues();
        if busy > 0 {
            self.kick(at);
        } else {
            self.restart(at);
        }
        Some(busy)
    }

    /// The next packet of the ring, if any, starts on the wire.
    pub(super) fn begin(&mut self, at: Nanos) {
        if let Some(next) = self.ring.front() {
            self.wire.begin(at, next.wire_len());
        }
    }

    #[inline(always)] // or the packet is copied once more
    fn leave(&mut self, at: Nanos, packet: P, sink: &mut impl LinkSink<P>) {
        self.qostat.sent(&packet);
        self.audit.ledger.sent(&packet);
        sink.transmitted(at, packet);
    }

    /// Starts the transmit side if there is anything to send.
    pub(super) fn restart(&mut self, at: Nanos) {
        let ring_waits = !self.wire.is_paced() && self.ring.len() > 0;
        if ring_waits || self.scheduler.busy_queues() > 0 {
            self.kick(at);
        } else {
            self.start = Start::Idle { wake: Nanos::MAX };
            self.empties();
        }
    }

    /// Starts the transmit side.
    pub(super) fn kick(&mut self, at: Nanos) {
        self.start = if self.wire.is_paced() && !self.ring.has_slot() {
            Start::Full
        } else {
            Start::Due(at.max(self.processor_free))
        };
    }

    /// Nothing can be sent at `at`: waits for what the scheduler asks for, which is later, or it
    /// would have sent.
    pub(super) fn idle(&mut self, at: Nanos) {
        let wake = self.scheduler.next_wake(at);
        let wake = wake.map_or(Nanos::MAX, |wake| wake.max(at.saturating_add(Nanos(1))));
        self.start = Start::Idle { wake };
        self.empties();
    }

    /// Something happened that does not start the transmit side. The time the scheduler had asked
    /// for stands if it has nothing better to say than now: a coarse timer does not fire earlier
    /// because of a packet that was dropped.
    pub(super) fn still_idle(&mut self, now: Nanos) {
        let before = self.start;
        self.idle(now);
        if before.instant() > now
            && before.instant() != Nanos::MAX
            && self.scheduler.next_wake(now).is_some_and(|w| w <= now)
        {
            self.start = before;
        }
    }

    /// One scheduler call, unless port or shaper forbid it; `busy` of its queues have packets.
    fn call(&mut self, at: Nanos, busy: usize, sink: &mut impl LinkSink<P>) {
        let paced = self.wire.is_paced();
        if !paced {
            while sink.room() > 0
                && let Some((packet, _)) = self.ring.pop()
            {
                self.leave(at, packet, sink);
            }
            if sink.room() == 0 {
                self.start = Start::Blocked;
                return;
            }
        }
        if self.shaper.is_some() {
            self.scheduler.settle(at);
        }
        if let Some(shaper) = &self.shaper
            && let Some(length) = self.scheduler.peek_len(at)
        {
            let ready = shaper.ready_at(at, length);
            if ready > at {
                self.start = Start::Shaped(ready);
                return;
            }
        }
        self.qostat.called(busy);
        let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
        let drops = &mut Drops { sink, qostat, ledger, at, because: None };
        let given = self.scheduler.dequeue(at, drops);
        self.processor_free = at.saturating_add(self.config.dequeue_time);
        let Some(packet) = given else {
            self.idle(at);
            return;
        };
        self.qostat.given(at, &packet);
        self.audit.ledger.given(&packet, &self.qostat);
        if let Some(shaper) = &mut self.shaper {
            shaper.charge(at, packet.ip_len());
        }
        if paced {
            self.ring.push(packet);
            if self.wire.is_idle() {
                self.begin(at);
            }
        } else {
            self.leave(at, packet, sink);
        }
        self.kick(at);
    }
}
