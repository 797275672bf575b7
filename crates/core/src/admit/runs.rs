//! Packets of protected flows, one after the other: nothing but their flows' own entries has to be
//! looked at, and what is the same for all is told once.
//!
//! ```text
//! a run begins ─▶ its flow is protected? ... ─▶ they have passed ─▶ each was treated so
//! ```

use super::protected::States;
use super::{Admission, Rule};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::units::Nanos;

/// Packets that pass one after the other because their flows are protected.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProtectedRun {
    /// Until when nothing else has to be done first.
    until: Nanos,
    packets: u64,
    /// What their flows are.
    states: States,
}

impl Admission {
    /// A run of packets of protected flows begins.
    #[must_use]
    pub fn protected_run(&self) -> ProtectedRun {
        // The router's list hears of each packet before the next.
        let until = if self.config.global_list { Nanos::ZERO } else { self.next_tick() };
        ProtectedRun { until, ..ProtectedRun::default() }
    }

    /// Decides about a packet in a [run](Self::protected_run) as [`decide`](Self::decide) does, if
    /// its flow is protected where it was listed last: it passes. How it is treated is to be told
    /// [by that place](Self::treated_in_run), and when no other is decided about [that all
    /// passed](Self::passed_protected). False: nothing has changed.
    #[inline(always)] // in a run of packets most of it is known
    pub fn protects_in_run(
        &mut self,
        run: &mut ProtectedRun,
        now: Nanos,
        packet: &impl Packet,
    ) -> bool {
        if run.until <= now {
            return false;
        }
        let guessed = self.list.guessed(packet);
        let Some(states) = guessed.and_then(|id| self.protects(now, id, packet)) else {
            return false;
        };
        run.packets += 1;
        run.states.add(states);
        true
    }

    /// The packets of a run have passed, because their flows [are
    /// protected](Self::protects_in_run).
    pub fn passed_protected(&mut self, run: &ProtectedRun) {
        debug_assert!(self.config.global_list || run.until == self.next_tick());
        self.counts.packets += run.packets;
        self.passed[Rule::Protected as usize] += run.packets;
    }

    /// [`treated`](Self::treated) of a packet that [passed in a run](Self::protects_in_run), whose
    /// flow is listed at this [place](crate::packet::Places::listed): it went into an elastic
    /// queue, or among the priority packets.
    #[inline]
    pub fn treated_in_run(
        &mut self,
        run: &mut ProtectedRun,
        now: Nanos,
        place: u32,
        is_elastic: bool,
    ) {
        // A priority packet of a flow that is not elastic changes nothing.
        run.states.add_elastic(is_elastic);
        if run.states.some_elastic() {
            self.list.treated(EntryId::from_link(place), now, is_elastic);
        }
    }
}
