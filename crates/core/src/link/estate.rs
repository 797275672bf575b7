//! A link taken apart, and another one that goes on where it ended: for changes that no link can live through, as of the classes that it
//! counts by, or of the worker that it belongs to.
//!
//! Nothing is lost but what the heir's discipline has no room for. The ring's packets go on into the heir's ring, before everything else; what was
//! queued goes to its discipline in the order of arrival, with its stamps. The packet on the wire begins anew: it is late by what it had sent.
//!
//! **Conservation.** The heir counts as its own what the estate had counted, so its identity holds as if it had been there from the start.

use alloc::vec::Vec;

use super::{Drops, Link, LinkSink};
use crate::measure::Qostat;
use crate::packet::{Class, Packet};
use crate::reason::Reason;
use crate::schedule::Scheduler;
use crate::units::Nanos;

/// What a link held and what it had counted.
#[derive(Debug)]
pub struct Estate<P> {
    in_ring: Vec<P>,
    queued: Vec<P>,
    qostat: Qostat,
}

/// How an heir takes things over.
pub trait Heir<P> {
    /// Which of its classes stands for a class of the estate.
    fn class(&self, class: Class) -> Class;

    /// Makes a packet of the estate the heir's own: its class, and whatever else depends on whom it belongs to. `Err`, with the class changed all the same:
    /// it cannot be had, and is dropped for the reason.
    ///
    /// # Errors
    /// Why the heir cannot have it.
    fn adopt(&mut self, packet: P) -> Result<P, (P, Reason)>;
}

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// Takes the link apart at `now`, everything due until then having happened.
    pub fn dismantle(mut self, now: Nanos, sink: &mut impl LinkSink<P>) -> Estate<P> {
        self.arrive_at(now, sink);
        let queued = self.unqueue();
        let in_ring = core::iter::from_fn(|| self.ring.pop()).map(|(packet, _)| packet).collect();
        Estate { in_ring, queued, qostat: self.qostat }
    }

    /// Goes on where another link ended. What the discipline has no room for is dropped as [`Reason::Reconfigured`]. Several estates can be taken over, one
    /// after the other.
    pub fn inherit(
        &mut self,
        now: Nanos,
        estate: Estate<P>,
        heir: &mut impl Heir<P>,
        sink: &mut impl LinkSink<P>,
    ) {
        let now = self.arrive_at(now, sink);
        self.qostat.merge(&estate.qostat, |class| heir.class(class));
        for packet in estate.in_ring {
            match heir.adopt(packet) {
                Ok(packet) => self.ring.push(packet),
                Err((packet, reason)) => self.lose(now, packet, reason, sink),
            }
        }
        for packet in estate.queued {
            match heir.adopt(packet) {
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

    fn lose(&mut self, now: Nanos, packet: P, reason: Reason, sink: &mut impl LinkSink<P>) {
        self.qostat.lost(&packet, reason);
        sink.dropped(now, packet, reason);
    }
}
