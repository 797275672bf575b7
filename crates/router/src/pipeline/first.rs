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
use super::flow_cache::{Probe, Way};
use super::forward::is_local;
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
    /// the packets of the others. How many flows were found out, and whether what links keep of
    /// some of them is on its way from memory.
    #[inline(never)] // so that packets of known flows do not pay for it
    pub(super) fn find_out(
        &mut self,
        packets: &[UnroutedPacket],
        parsed: &mut [Parsed],
    ) -> (usize, bool) {
        let by_tables = self.is_decided_by_tables();
        if by_tables {
            self.prefetch_routes(parsed);
        }
        let (mut found, mut fetches) = (0, false);
        for (parsed, packet) in parsed.iter_mut().zip(packets) {
            let Parsed::Known(probe) = parsed else { continue };
            if probe.is_found() {
                continue;
            }
            if by_tables && self.ask_tables(packet, probe) {
                found += 1;
                let link = self.ports[self.flow_cache.port(probe.way)].link_at;
                fetches |= self.ports[link].tables().begin(probe.hash, probe.places);
            } else {
                *parsed = self.parse(&packet.frame);
            }
        }
        (found, fetches)
    }

    /// Asks the tables how the packets of a flow go on; whether they say so.
    fn ask_tables(&mut self, packet: &UnroutedPacket, probe: &mut Probe) -> bool {
        let from = &self.ports[packet.port.index()];
        let stations = frame::station_bits(self.pool.bytes(&packet.frame));
        let is_to_us = stations.is_some_and(|(to, _)| to == from.mac.bits());
        if !is_to_us || from.peer.is_some() || packet.originated || probe.ttl <= 1 {
            return false;
        }
        let (flow, dscp) = (probe.flow.key(), probe.flow.dscp());
        if !probe.flow.is_routable() || self.addresses.is_own(flow.source) {
            return false;
        }
        let hash = self.classifier.hash(&flow);
        let class = self.classifier.class(&flow, dscp);
        let key = || LookupKey { flow, dscp, origin: Origin::Port(packet.port) };
        let decision = self.routing.tables.lookup(flow.destination, hash, key);
        let Some(Decision::Forward { port, next_hop, mtu }) = decision else { return false };
        if self.services.of(class).is_some()
            || is_local(decision, flow.destination)
            || port == packet.port && self.settings.hairpin == Hairpin::Drop
            || !self.may_come_from(packet, || flow, hash, || dscp)
        {
            return false;
        }
        let Some(out) = self.ports.get(port.index()).filter(|slot| slot.up) else { return false };
        // Whether a neighbour that may have gone is used is noted with each packet.
        let Some(known) = self.neighbours.known(port, next_hop).filter(|known| !known.stale) else {
            return false;
        };
        let way = Way::new(port.index(), out.mtu.min(mtu), out.mac, known.mac);
        self.flow_cache.learn(probe, (class, hash), way)
    }
}
