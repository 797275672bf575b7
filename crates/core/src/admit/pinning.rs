//! Path pinning: new flows go around congested links, flows that run stay where they are.
//!
//! Source: the routing scheme for AFAN (GLOBECOM 2012) is not public in detail; this follows its
//! closest public relative, FAMTAR (Wojcik, Domzal, Dulinski: the first packet follows the best
//! route of its time, and the flow stays there), with this project's trunk reservation.
//!
//! The entry of a protected flow keeps the next hop and the TTL of its first packet. For a packet
//! the router asks the candidate links, cheapest first by [`Admission::path_cost`]:
//!
//! 1. the first whose [`Admission::pinned`] knows the flow with the same TTL has it (another TTL is
//!    a loop: routed afresh);
//! 2. otherwise the cheapest decides; if it refuses, the next loop-free link may be tried if it
//!    [`takes rerouted flows`](Admission::takes_rerouted): FR > 2 * min_FR there and not congested.
//!
//! Cost of a link: `base`, or `base * k` from an estimate that says congested until 3 * T_FR later,
//! against oscillation.
//!
//! The cost of a path never closes it: [`Admission::is_open`] says whether the link of the cheapest
//! one refuses new flows now.
//!
//! Constant time per candidate. Not implemented: FAMTAR's own routing protocol; erasing entries of
//! a failed port (flows go with their routes).

use super::{Admission, Pin};
use crate::flow_table::PackedFlow;
use crate::settings;
use crate::units::{BitRate, Nanos};

settings! {
    /// Path pinning: new flows avoid congested links, flows that run stay where they are.
    #[derive(Copy)]
    pub struct PinningConfig: "" {
        /// Path pinning: of the next hops of a route whose links all have it, a new flow takes the
        /// cheapest and stays there. A next hop costs 65536 / weight; those that cost the same
        /// share flows as without.
        live on as pinning: bool = false;
        /// k: how many times as much the link costs from an estimate that says congested until 3
        /// T_FR after the last one.
        live cost_factor: u32 = 10, in 1..=1_000;
    }
}

impl Admission {
    /// The path of a protected flow, if it is pinned here and this packet came with the TTL of its
    /// first one.
    #[must_use]
    pub fn pinned(&self, now: Nanos, hash: u64, flow: &PackedFlow, ttl: u8) -> Option<Pin> {
        self.pin_of(now, hash, flow).filter(|pin| pin.ttl == ttl)
    }

    /// The path of a protected flow, if it is pinned here: for views, which have no packet at hand.
    #[must_use]
    pub fn pin_of(&self, now: Nanos, hash: u64, flow: &PackedFlow) -> Option<Pin> {
        if !self.config.pinning.on {
            return None;
        }
        let id = self.list.find(hash, flow).filter(|id| self.list.expired(*id, now).is_none())?;
        Some(self.list.pin(id))
    }

    /// What the link costs a new flow now, of a cost of `base` without congestion.
    #[must_use]
    pub fn path_cost(&self, now: Nanos, base: u32) -> u64 {
        let pinning = self.config.pinning;
        let factor = if pinning.on && now < self.costly_until { pinning.cost_factor } else { 1 };
        u64::from(base) * u64::from(factor)
    }

    /// Whether a new flow would not be refused for congestion now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.cause(self.min_fair(), self.config.max_priority_load).is_none()
    }

    /// Whether the link takes flows whose own link refused them: FR > 2 * min_FR, and not
    /// congested.
    #[must_use]
    pub fn takes_rerouted(&self) -> bool {
        let reserve = BitRate(self.min_fair().0.saturating_mul(2));
        self.config.pinning.on && self.fair() > reserve && self.is_open()
    }

    /// An estimate was taken: if it says congested the link is costly for a while.
    pub(super) fn hold_cost(&mut self, now: Nanos) {
        if !self.is_open() {
            let hold = Nanos(self.config.fair_rate_interval.0.saturating_mul(3));
            self.costly_until = now.saturating_add(hold);
        }
    }
}
