//! Packets of a run that have to wait in their link: each step of their way into it is a loop of
//! its own, small enough for the registers, and what is the same for all is asked once.
//!
//! ```text
//! admission: protected? ─▶ records ─▶ link and discipline ─▶ admission and cache of flows are told
//! ```
//!
//! What becomes of a packet is what becomes of it by [the way of single ones](super::admit): that
//! its flow is protected depends on nothing that packets of the run before it change. One of which
//! anything else is to be decided ends the run.

use std::vec::Drain;

use evenkeel_core::Nanos;
use evenkeel_core::link::Framing;
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::{Scheduler, Treated};

use super::Pipeline;
use super::flow_cache::FlowCache;
use super::known::{KnownPacket, frame_len};
use super::packet::{QueuedPacket, UnroutedPacket, VECTOR};
use super::parsed::Parsed;
use super::port::PortSlot;
use super::store::Store;

/// What became of a packet in its link: when, how it was treated, and where its flow is.
type Entered = (Nanos, Treated, u32);

impl PortSlot {
    /// Whether packets that [nobody else](Self::is_nobody_elses) has to do with have to wait for
    /// the link, and nothing is asked of their frames there.
    #[inline]
    pub(super) fn makes_wait(&self) -> bool {
        self.is_nobody_elses() && self.link.passes_none() && !self.link.scheduler().reads_acks()
    }

    /// How many of the first packets of a run the admission of the link lets pass because their
    /// flows are protected; all, if it has none. Nothing enters before `advanced`.
    #[inline(never)] // so that it has the registers for itself
    fn protects_some(
        &mut self,
        parsed: &[Parsed],
        packets: &[UnroutedPacket],
        advanced: Nanos,
    ) -> usize {
        let (framing, port) = (self.link.framing(), self.index.0);
        let mut count = parsed.len();
        if let Some(admission) = &mut self.admission {
            count = 0;
            for (parsed, packet) in parsed.iter().zip(packets) {
                let Parsed::Known(probe) = parsed else { break };
                let (at, arrival) = (packet.arrival.max(advanced), packet.arrival);
                let known = KnownPacket::new(probe, arrival, port, framing);
                if !admission.protects_in_run(at, &known) {
                    break;
                }
                count += 1;
            }
            admission.passed_protected(count as u64);
        }
        let known = self.known(parsed, packets);
        self.busiest.see_all(count, known);
        count
    }

    /// Packets enter the link, where they wait.
    #[inline(never)] // so that it has the registers for itself
    fn queue_all(
        &mut self,
        waiting: &mut Vec<QueuedPacket>,
        advanced: Nanos,
        pool: &mut Store,
    ) -> [Entered; VECTOR] {
        let mut entered = [(Nanos::ZERO, Treated::Queued, Places::NOWHERE); VECTOR];
        let mut places = entered.iter_mut();
        let (link, mut egress) = self.outgoing(pool);
        link.queue_all(advanced, waiting.drain(..), &mut egress, |now, treated, queue| {
            if let Some(place) = places.next() {
                *place = (now, treated, queue);
            }
        });
        entered
    }

    /// The admission is told how packets were treated, and the cache of flows where they wait.
    #[inline(never)] // so that it has the registers for itself
    fn tell_entered(&mut self, parsed: &[Parsed], entered: &[Entered], flow_cache: &FlowCache) {
        for (parsed, (now, treated, queue)) in parsed.iter().zip(entered) {
            let Parsed::Known(probe) = parsed else { break };
            // A discipline that did not take it in need not have looked for its flow.
            if matches!(treated, Treated::Dropped(_)) {
                continue;
            }
            if let Some(admission) = &mut self.admission {
                let is_elastic = *treated == Treated::Queued;
                admission.treated_in_run(*now, probe.places.listed, is_elastic);
            }
            flow_cache.note(probe, Places { queue: *queue, ..probe.places });
        }
    }
}

impl Store {
    /// Adds the packets of a run to those that are going to wait.
    #[inline(never)] // so that it has the registers for itself
    fn make_wait(
        &mut self,
        parsed: &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
        (port, framing): (u16, Framing),
        waiting: &mut Vec<QueuedPacket>,
    ) {
        for (parsed, packet) in parsed.iter().zip(packets) {
            let Parsed::Known(probe) = parsed else { break };
            let UnroutedPacket { mut frame, arrival, .. } = packet;
            frame.trim(frame_len(probe));
            let known = KnownPacket::new(probe, arrival, port, framing);
            waiting.push(self.queued(known.record(frame)));
        }
    }
}

impl Pipeline {
    /// The first packets of a run, which leave by `port`, enter a link that [makes them
    /// wait](PortSlot::makes_wait), as long as its admission, if it has one, has nothing to decide
    /// about them. How many did.
    pub(super) fn enter_waiting(
        &mut self,
        (port, link): (u16, usize),
        parsed: &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) -> usize {
        let Self { pool, ports, flow_cache, agenda, waiting, .. } = self;
        let (slot, advanced) = (&mut ports[link], agenda.advanced());
        let count = slot.protects_some(parsed, packets.as_slice(), advanced);
        if count > 0 {
            let parsed = &parsed[..count];
            pool.make_wait(parsed, packets, (port, slot.link.framing()), waiting);
            let entered = slot.queue_all(waiting, advanced, pool);
            slot.tell_entered(parsed, &entered, flow_cache);
            agenda.touch(link);
        }
        count
    }
}
