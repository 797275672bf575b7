//! Path pinning: which of several next hops a flow takes, by what the admissions of their links
//! say.
//!
//! Source: [`evenkeel_core::admit`], `pinning.rs`, whose rule this carries out with the next hops
//! of one route as candidates. They are loop-free because whoever made the route says so; a packet
//! that comes round all the same has another TTL and is routed afresh. Candidates are those whose
//! port is up and whose link has an admission with path pinning, not the port that the packet came
//! from. A next hop costs 65536 / weight: with unequal weights flows take the heaviest until it is
//! congested, with equal ones they are spread by hash.
//!
//! Cost: one look-up per candidate, for packets to routes with several next hops only. Not
//! implemented: a second try where it is not congestion that refuses a flow (user quota, budget of
//! first packets); packets that this router makes or a tunnel carries.

use std::net::IpAddr;

use evenkeel_core::Nanos;
use evenkeel_core::admit::{Admission, Pin};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_net::PortIndex;
use evenkeel_net::fib::NextHop;
use evenkeel_net::policy::LookupKey;

use super::Pipeline;
use super::port::PortSlot;

/// Cost of a next hop of weight 1 without congestion.
const COST: u32 = 65_536;
/// Next hops that are looked at.
const MOST: usize = 16;

/// A packet that a path is looked for.
pub(super) struct PathQuery<'a> {
    pub(super) destination: IpAddr,
    pub(super) flow: &'a PackedFlow,
    pub(super) hash: u64,
    pub(super) ttl: u8,
    pub(super) from: PortIndex,
    pub(super) key: LookupKey,
}

/// The chosen path.
pub(super) struct Path {
    pub(super) port: PortIndex,
    pub(super) next_hop: IpAddr,
    pub(super) pin: Pin,
}

impl Pipeline {
    /// The path of a packet whose route has a choice; `None`: as the route says. `usual` is the
    /// port that the hash chose.
    pub(super) fn choose_path(
        &mut self,
        query: &PathQuery<'_>,
        usual: PortIndex,
        at: Nanos,
    ) -> Option<Path> {
        let hops = self.routing.tables.choices(query.destination, || query.key);
        let hops = &hops[..hops.len().min(MOST)];
        for hop in hops {
            // Estimates that are due come before what is asked of them.
            if let Some(slot) = self.ports.get_mut(hop.port.index()) {
                slot.admit_until(at, &mut self.pool);
            }
        }
        choose(&self.ports, hops, query, usual, at)
    }

    /// The port that a flow is pinned to.
    pub(super) fn pinned_port(&self, now: Nanos, flow: &PackedFlow, hash: u64) -> Option<usize> {
        let known = |slot: &PortSlot| slot.admission.as_ref()?.pin_of(now, hash, flow);
        self.ports.iter().position(|slot| known(slot).is_some())
    }
}

fn choose(
    ports: &[PortSlot],
    hops: &[NextHop],
    query: &PathQuery<'_>,
    usual: PortIndex,
    at: Nanos,
) -> Option<Path> {
    let admission_of = |hop: &NextHop| -> Option<&Admission> {
        let slot = ports.get(hop.port.index()).filter(|slot| slot.up && hop.port != query.from)?;
        slot.admission.as_deref().filter(|admission| admission.config().pinning.on)
    };
    // A route whose links do not all pin keeps to its hash.
    admission_of(hops.iter().find(|hop| hop.port == usual)?)?;
    let candidates = || {
        hops.iter()
            .enumerate()
            .filter_map(|(at, hop)| admission_of(hop).map(|admission| (at, hop, admission)))
    };
    let path = |(number, hop): (usize, &NextHop)| Path {
        port: hop.port,
        next_hop: hop.gateway.unwrap_or(query.destination),
        pin: Pin { next_hop: number as u8, ttl: query.ttl },
    };
    for (number, hop, admission) in candidates() {
        if let Some(pin) = admission.pinned(at, query.hash, query.flow, query.ttl) {
            // Several next hops may lie behind one port; the route may have changed since.
            let own = hops.get(usize::from(pin.next_hop)).filter(|own| own.port == hop.port);
            return Some(path(own.map_or((number, hop), |own| (pin.next_hop.into(), own))));
        }
    }
    let cost = |hop: &NextHop, admission: &Admission| {
        let base = COST / u32::from(hop.weight.max(1));
        // Among equals the hash decides, as without pinning.
        (admission.path_cost(at, base), hop.port != usual)
    };
    let (number, best, admission) =
        candidates().min_by_key(|(_, hop, admission)| cost(hop, admission))?;
    if !admission.is_open() {
        let others =
            candidates().filter(|(_, hop, other)| hop.port != best.port && other.takes_rerouted());
        if let Some((number, other, _)) =
            others.min_by_key(|(_, hop, admission)| cost(hop, admission))
        {
            return Some(path((number, other)));
        }
    }
    Some(path((number, best)))
}
