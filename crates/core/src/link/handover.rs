//! Handing a link over to another link, for changes that no link can live through: other classes
//! to count by, or another worker that owns the link.
//!
//! The old link becomes a [`Handover`], the new one [takes it over](Link::take_over). Packets of
//! the old ring enter the new ring first. Queued packets enter the new discipline in the order of
//! arrival and keep their stamps; what it has no room for is dropped. The packet on the wire is
//! sent again from its first bit: it is late by what had been sent of it.
//!
//! **Conservation.** The new link adds the counters of the old one to its own, so its identity
//! holds as if it had been there from the start.

use alloc::vec::Vec;

use super::{Drops, Link, LinkSink};
use crate::audit::Verdict;
use crate::measure::Qostat;
use crate::packet::{Class, Packet};
use crate::reason::Reason;
use crate::schedule::Scheduler;
use crate::units::Nanos;

/// The packets a link held and the counters it had when it was handed over.
#[derive(Debug)]
pub struct Handover<P> {
    in_ring: Vec<P>,
    queued: Vec<P>,
    qostat: Qostat,
    verdict: Verdict,
}

impl<P: Packet> Handover<P> {
    /// Of a link that another process had, which counted for itself: what lay in its ring, and
    /// what was queued, each in the order of arrival. They count as if they came at `now`, which
    /// keeps their delays.
    #[must_use]
    pub fn of_packets(now: Nanos, in_ring: Vec<P>, queued: Vec<P>, classes: u16) -> Self {
        let mut qostat = Qostat::new(classes);
        in_ring.iter().chain(&queued).for_each(|packet| qostat.came(now, packet));
        in_ring.iter().for_each(|packet| qostat.given(now, packet));
        Self { in_ring, queued, qostat, verdict: Verdict::default() }
    }
}

/// Translates what the old link held into terms of the new one.
pub trait Translate<P> {
    /// The class of the new link that a class of the old one becomes.
    fn class(&self, class: Class) -> Class;

    /// The packet with its class in the new link, and with its frame where the new link needs it.
    /// On `Err` the packet, its class translated all the same, is dropped for the reason.
    ///
    /// # Errors
    /// Why the new link cannot have the packet.
    fn packet(&mut self, packet: P) -> Result<P, (P, Reason)>;
}

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// Takes the link apart at `now`, after everything that is due until then has happened.
    pub fn hand_over(mut self, now: Nanos, sink: &mut impl LinkSink<P>) -> Handover<P> {
        self.arrive_at(now, sink);
        let queued = self.unqueue();
        let ring = core::iter::from_fn(|| self.ring.pop());
        let in_ring = ring.map(|(packet, _)| packet).collect();
        Handover { in_ring, queued, qostat: self.qostat, verdict: self.audit.verdict }
    }

    /// Shows everything that the link holds at `now`, after all that is due until then: what lies
    /// in the ring, the packet on the wire first, and then (true) what is queued, in the order of
    /// arrival. Everything stays.
    pub fn show<K: LinkSink<P>>(
        &mut self,
        now: Nanos,
        sink: &mut K,
        look: &mut impl FnMut(&K, bool, &P),
    ) {
        let now = self.arrive_at(now, sink);
        self.ring.iter().for_each(|packet| look(sink, false, packet));
        for packet in self.unqueue() {
            look(sink, true, &packet);
            let because = Some(Reason::Reconfigured);
            let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
            let drops = &mut Drops { sink, qostat, ledger, at: now, because };
            let _ = self.scheduler.enqueue(now, packet, drops);
        }
        self.restart(now);
        self.run(now, sink);
    }

    /// Goes on where another link ended. What the discipline has no room for is dropped as
    /// [`Reason::Reconfigured`]. Several links can be taken over, one after the other.
    pub fn take_over(
        &mut self,
        now: Nanos,
        handover: Handover<P>,
        translate: &mut impl Translate<P>,
        sink: &mut impl LinkSink<P>,
    ) {
        let now = self.arrive_at(now, sink);
        self.qostat.merge(&handover.qostat, |class| translate.class(class));
        self.audit.verdict.take_over(&handover.verdict);
        for packet in handover.in_ring {
            match translate.packet(packet) {
                Ok(packet) => {
                    self.audit.ledger.came(&packet);
                    self.ring.push(packet);
                }
                Err((packet, reason)) => {
                    self.qostat.lost_behind(&packet, reason);
                    sink.dropped(now, packet, reason);
                }
            }
        }
        for packet in handover.queued {
            match translate.packet(packet) {
                Ok(packet) => {
                    self.audit.ledger.came(&packet);
                    let because = Some(Reason::Reconfigured);
                    let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
                    let drops = &mut Drops { sink, qostat, ledger, at: now, because };
                    let _ = self.scheduler.enqueue(now, packet, drops);
                }
                Err((packet, reason)) => self.lose_foreign(now, packet, reason, sink),
            }
        }
        self.audit.took_over(&self.qostat);
        if self.wire.is_idle() {
            self.begin(now);
        }
        self.restart(now);
        self.run(now, sink);
    }

    pub(super) fn lose(
        &mut self,
        now: Nanos,
        packet: P,
        reason: Reason,
        sink: &mut impl LinkSink<P>,
    ) {
        self.audit.ledger.lost(&packet, &self.qostat);
        self.lose_foreign(now, packet, reason, sink);
    }

    /// Of a packet that this link has never taken in.
    fn lose_foreign(&mut self, now: Nanos, packet: P, reason: Reason, sink: &mut impl LinkSink<P>) {
        self.qostat.lost(now, &packet, reason);
        sink.dropped(now, packet, reason);
    }
}
