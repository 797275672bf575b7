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
        Handover { in_ring, queued, qostat: self.qostat }
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
        for packet in handover.in_ring {
            match translate.packet(packet) {
                Ok(packet) => self.ring.push(packet),
                Err((packet, reason)) => {
                    self.qostat.lost_behind(&packet, reason);
                    sink.dropped(now, packet, reason);
                }
            }
        }
        for packet in handover.queued {
            match translate.packet(packet) {
                Ok(packet) => {
                    let because = Some(Reason::Reconfigured);
                    let drops = &mut Drops { sink, qostat: &mut self.qostat, at: now, because };
                    let _ = self.scheduler.enqueue(now, packet, drops);
                }
                Err((packet, reason)) => self.lose(now, packet, reason, sink),
            }
        }
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
        self.qostat.lost(now, &packet, reason);
        sink.dropped(now, packet, reason);
    }
}
