//! Packets of a run that have to wait in their link: each step of their way into it is a loop of
//! its own, small enough for the registers, and what is the same for all is asked once.
//!
//! ```text
//! admission and records ─▶ link and discipline; admission and cache of flows are told
//! ```
//!
//! What becomes of a packet is what becomes of it by [the way of single ones](super::admit): that
//! its flow is protected depends on nothing that packets of the run before it change. One of which
//! anything else is to be decided ends the run.

use std::vec::Drain;

use evenkeel_core::Nanos;
use evenkeel_core::admit::ProtectedRun;
use evenkeel_core::link::Framing;
use evenkeel_core::packet::{Packet, Places};
use evenkeel_core::schedule::{Scheduler, Treated};

use super::Pipeline;
use super::flow_cache::FlowCache;
use super::known::{KnownPacket, frame_len};
use super::packet::{QueuedPacket, UnroutedPacket};
use super::parsed::Parsed;
use super::port::PortSlot;
use super::store::Store;

impl PortSlot {
    /// Whether packets that [nobody else](Self::is_nobody_elses) has to do with have to wait for
    /// the link, and nothing is asked of their frames there.
    #[inline]
    pub(super) fn makes_wait(&self) -> bool {
        self.is_nobody_elses() && self.link.passes_none() && !self.link.scheduler().reads_acks()
    }

    /// Adds the first packets of a run, which leave by `port`, to those that are going to wait, as
    /// long as the admission of the link, if it has one, lets them pass because their flows are
    /// protected; what it has to know of them afterwards. Nothing enters before `advanced`.
    fn make_wait(
        &mut self,
        (port, parsed): (u16, &[Parsed]),
        packets: &mut Drain<'_, UnroutedPacket>,
        waiting: &mut Vec<QueuedPacket>,
        advanced: Nanos,
        pool: &mut Store,
    ) -> ProtectedRun {
        let behind = (port, self.link.framing());
        let mut run = ProtectedRun::default();
        if let Some(admission) = &mut self.admission {
            run = admission.protected_run();
            pool.make_wait(behind, parsed, packets, waiting, |known| {
                admission.protects_in_run(&mut run, known.arrival.max(advanced), known)
            });
            admission.passed_protected(&run);
        } else {
            pool.make_wait(behind, parsed, packets, waiting, |_| true);
        }
        let known = self.known(parsed, |at| Some(waiting.get(at)?.arrival()));
        self.busiest.see_all(waiting.len(), known);
        run
    }

    /// Packets of flows that `parsed` names enter the link, where they wait. The admission is told
    /// how they were treated, and the cache of flows where they wait.
    #[inline(never)] // so that it has the registers for itself
    fn queue_all(
        &mut self,
        (parsed, mut run): (&[Parsed], ProtectedRun),
        waiting: &mut Vec<QueuedPacket>,
        advanced: Nanos,
        pool: &mut Store,
        flow_cache: &FlowCache,
    ) {
        let mut admission = self.admission.take();
        let (link, mut egress) = self.outgoing(pool);
        let mut known = parsed.iter();
        link.queue_all(advanced, waiting.drain(..), &mut egress, |now, treated, queue| {
            let Some(Parsed::Known(probe)) = known.next() else { return };
            // A discipline that did not take it in need not have looked for its flow.
            if matches!(treated, Treated::Dropped(_)) {
                return;
            }
            if let Some(admission) = &mut admission {
                let is_elastic = treated == Treated::Queued;
                admission.treated_in_run(&mut run, now, probe.places.listed, is_elastic);
            }
            flow_cache.note(probe, Places { queue, ..probe.places });
        });
        self.admission = admission;
    }
}

impl Store {
    /// Adds the first packets of a run, which leave by a port, to those that are going to wait, as
    /// long as they pass.
    #[inline(never)] // so that it has the registers for itself
    fn make_wait(
        &mut self,
        (port, framing): (u16, Framing),
        parsed: &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
        waiting: &mut Vec<QueuedPacket>,
        mut passes: impl FnMut(&KnownPacket<'_>) -> bool,
    ) {
        // Beforehand, or each packet is kept aside until it has its place.
        self.provide(parsed.len());
        waiting.extend(parsed.iter().map_while(|parsed| {
            let Parsed::Known(probe) = parsed else { return None };
            let arrival = packets.as_slice().first()?.arrival;
            let known = KnownPacket::new(probe, arrival, port, framing);
            if !passes(&known) {
                return None;
            }
            let mut frame = packets.next()?.frame;
            frame.trim(frame_len(probe));
            self.queued_there(known.record(frame))
        }));
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
        let run = slot.make_wait((port, parsed), packets, waiting, advanced, pool);
        let count = waiting.len();
        if count > 0 {
            slot.queue_all((&parsed[..count], run), waiting, advanced, pool, flow_cache);
            agenda.touch(link);
        }
        count
    }
}
