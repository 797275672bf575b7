//! First packets of flows where tables alone decide about them: what these say is found out ahead
//! and remembered, and the packet goes [straight](super::straight), as the others of its flow will.
//!
//! What is not as usual about a packet, or has to be decided for each one, is left to
//! [the way of all others](Pipeline::receive), which remembers what it finds out as well. Both ways
//! ask the same tables in the same order, and a test holds what they do to each other.

use evenkeel_config::Hairpin;
use evenkeel_net::fib::Decision;
use evenkeel_net::frame;
use evenkeel_net::policy::{LookupKey, Origin};

use super::Pipeline;
use super::flow_cache::{Found, Probe, Way};
use super::packet::UnroutedPacket;
use super::parsed::Parsed;

impl Pipeline {
    /// Whether there are packets about which tables alone decide.
    fn is_decided_by_tables(&self) -> bool {
        self.goes_straight()
            && !self.admissions.pins
            && self.cluster.is_none()
            && self.balancer.is_none()
    }

    /// Finds out how the flows go on that are not known yet, where tables alone decide, and parses
    /// the packets of the others. What is found then, these flows among it.
    #[inline(never)] // so that packets of known flows do not pay for it
    pub(super) fn find_out(
        &mut self,
        packets: &[UnroutedPacket],
        parsed: &mut [Parsed],
        mut found: Found,
    ) -> Found {
        let by_tables = self.is_decided_by_tables();
        if by_tables {
            self.prefetch_routes(parsed);
        }
        let mut last = None;
        for (parsed, packet) in parsed.iter_mut().zip(packets) {
            let Parsed::Known(probe) = parsed else { continue };
            if probe.is_found() {
                continue;
            }
            if by_tables && self.ask_tables(packet, probe, &mut last) {
                found.add(probe.way);
            } else {
                *parsed = self.parse(&packet.frame);
            }
        }
        found
    }

    /// Asks the tables how the packets of a flow go on; whether they say so. `last` is what was
    /// decided last, and the number of the way that it came to: nearly always it is this one.
    #[inline]
    fn ask_tables(
        &mut self,
        packet: &UnroutedPacket,
        probe: &mut Probe,
        last: &mut Option<(Decision, u16)>,
    ) -> bool {
        let from = &self.ports[packet.port.index()];
        let stations = frame::station_bits(self.pool.bytes(&packet.frame));
        let is_to_us = stations.is_some_and(|(to, _)| to == from.mac.bits());
        if !is_to_us || from.peer.is_some() || packet.originated || probe.ttl <= 1 {
            return false;
        }
        let flow = probe.flow;
        let [source, destination] = flow.ends();
        // What is routable is no group.
        if !flow.is_routable() || self.addresses.is_own(source) {
            return false;
        }
        let (class, hash) = self.classifier.of_usual(flow);
        let (key, dscp) = (|| flow.key(), || flow.dscp());
        let asked = || LookupKey { flow: key(), dscp: dscp(), origin: Origin::Port(packet.port) };
        let decision = self.routing.tables.lookup(destination, hash, asked);
        let Some(decision @ Decision::Forward { port, .. }) = decision else { return false };
        if self.services.of(class).is_some()
            || port == packet.port && self.settings.hairpin == Hairpin::Drop
            || !self.may_come_from(packet, key, hash, dscp)
        {
            return false;
        }
        let way = match *last {
            Some((before, way)) if before == decision => way,
            _ => {
                let Some(way) = self.way_of(decision) else { return false };
                *last = Some((decision, way));
                way
            }
        };
        self.flow_cache.learn(probe, (class, hash), way);
        true
    }

    /// The number of the way that a decision comes to, if it can be remembered.
    fn way_of(&mut self, decision: Decision) -> Option<u16> {
        let Decision::Forward { port, next_hop, mtu } = decision else { return None };
        let out = self.ports.get(port.index()).filter(|slot| slot.up)?;
        // Whether a neighbour that may have gone is used is noted with each packet.
        let known = self.neighbours.known(port, next_hop).filter(|known| !known.stale)?;
        self.flow_cache.number(Way::new(port.index(), out.mtu.min(mtu), out.mac, known.mac))
    }
}
