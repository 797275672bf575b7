//! Forwarding one packet from a port to an outgoing link.

use std::net::IpAddr;

use evenkeel_config::Hairpin;
use evenkeel_core::admit::Pin;
use evenkeel_core::drop::Ticket;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, Nanos, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::frame::{self, IpVersion};
use evenkeel_net::icmp::IcmpError;
use evenkeel_net::neighbour::Resolution;
use evenkeel_net::policy::{LookupKey, Origin};
use evenkeel_net::usual::Usual;
use evenkeel_net::{MacAddr, PortIndex};

use super::Pipeline;
use super::cycles::{Stage, processing_class};
use super::flow_cache::Way;
use super::packet::{UnroutedPacket, wire_len, wire_len_of};
use super::parsed::{PacketMeta, Parsed};
use super::pinning::{Path, PathQuery};
use crate::watch::Point;

/// FairDrop has let the packet pass so far. If it shares cycles, the ticket charges them.
#[derive(Clone, Copy)]
struct FairDropPass(Option<Ticket>);

/// Where the tables and the admissions send a packet.
struct Route {
    path: Path,
    /// The longest IP packet that the route takes whole.
    mtu: u32,
    service: Option<u16>,
}

/// Where a packet goes after all checks. Flow and class are those that it came with, also in a
/// tunnel.
pub(super) struct ResolvedHop<'a> {
    pub(super) port: usize,
    pub(super) mac: MacAddr,
    /// The longest IP packet that goes there whole: by port and route.
    pub(super) mtu: u32,
    pub(super) flow: &'a PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) class: Class,
    /// Whose it is, as far as the frame says it that it came in.
    pub(super) subscriber: u32,
    pub(super) pin: Pin,
    /// The link of the cluster that it takes, if it is one of those.
    pub(super) cluster: Option<u16>,
    /// The packet was made here.
    pub(super) originated: bool,
}

/// Whether a destination is this machine, or also this machine.
pub(super) fn is_local(decision: Option<Decision>, destination: IpAddr) -> bool {
    matches!(decision, Some(Decision::Local | Decision::Broadcast | Decision::Multicast))
        || frame::is_group(destination)
}

impl Pipeline {
    /// Forwards a frame that was received.
    #[inline]
    pub(super) fn receive(&mut self, packet: UnroutedPacket, parsed: &Parsed) {
        let at = packet.arrival;
        let slot = &mut self.ports[packet.port.index()];
        slot.count.rx_packets += 1;
        slot.count.rx_bytes += packet.frame.cut_len() as u64;
        slot.count.rx_segments += u64::from(packet.frame.segments());
        let (up, own, peer) = (slot.up, slot.mac.bits(), slot.peer);
        if !up {
            return self.drop(packet, Reason::LinkDown);
        }
        if let Some(peer) = peer {
            return self.pass_through(packet, parsed, peer, at);
        }
        let stations = frame::station_bits(self.pool.bytes(&packet.frame));
        let Some((destination, source)) = stations else {
            return self.drop(packet, Reason::Truncated);
        };
        if self.addresses.is_port(source) {
            return self.drop(packet, Reason::OwnFrame);
        }
        if destination & MacAddr::GROUP_BIT != 0 {
            if let Some(packet) = self.take_exchange_frame(packet) {
                self.punt(packet);
            }
            return;
        }
        if destination != own {
            return self.drop(packet, Reason::OtherStation);
        }
        let again;
        let parsed = match parsed {
            Parsed::Known(probe) => match self.flow_cache.way(probe).copied() {
                Some(way) if self.flow_cache.holds() => {
                    return self.forward_known(packet, probe, &way);
                }
                _ => {
                    again = self.parse(&packet.frame);
                    &again
                }
            },
            parsed => parsed,
        };
        let meta = match parsed {
            Parsed::Ip(meta) => meta,
            Parsed::Known(_) => return self.punt(packet),
            Parsed::Other => return self.punt(packet),
            Parsed::Invalid(reason) => return self.drop(packet, *reason),
        };
        self.meter.is_of(meta.class);
        if self.balancer.is_some() {
            return self.balance(packet, meta, at);
        }
        let mut pass = None;
        let whose = self.whose_cycles(meta.flow_hash, || meta.flow, &packet.frame);
        if let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on()) {
            match fairdrop.judge_cpu(whose, meta.class) {
                Ok(ticket) => pass = Some(FairDropPass(ticket)),
                Err(reason) => return self.refuse_by_fairdrop(packet, meta, reason),
            }
        }
        self.meter.stage(Stage::Judge);
        self.route_parsed(packet, meta, pass, at);
    }

    /// Routes an unchanged packet, and forwards it. It enters its link at `at`.
    pub(super) fn route(&mut self, packet: UnroutedPacket, at: Nanos) {
        match self.parse(&packet.frame) {
            Parsed::Ip(meta) => self.route_parsed(packet, &meta, None, at),
            Parsed::Known(_) | Parsed::Other => self.punt(packet),
            Parsed::Invalid(reason) => self.drop(packet, reason),
        }
    }

    /// What the tables say of a packet's destination, looked up ahead or now.
    #[inline]
    pub(super) fn decision(&self, packet: &UnroutedPacket, meta: &PacketMeta) -> Option<Decision> {
        meta.route.unwrap_or_else(|| {
            let key = || self.lookup_key(packet, meta);
            self.routing.tables.lookup(meta.destination, meta.flow_hash, key)
        })
    }

    fn route_parsed(
        &mut self,
        packet: UnroutedPacket,
        meta: &PacketMeta,
        pass: Option<FairDropPass>,
        at: Nanos,
    ) {
        let mut decision = self.decision(&packet, meta);
        if is_local(decision, meta.destination) {
            return self.punt(packet);
        }
        if !packet.originated {
            // Who sends from an address of this machine is not it: nobody is answered.
            let own = || self.addresses.is_own(meta.flow.unpack().source);
            let martian = meta.martian.or_else(|| own().then_some(Reason::MartianSource));
            let strange = || {
                let dscp = || self.lookup_key(&packet, meta).dscp;
                let flow = || meta.flow.unpack();
                let comes_right = self.may_come_from(&packet, flow, meta.flow_hash, dscp);
                (!comes_right).then_some(Reason::MartianSource)
            };
            if let Some(reason) = martian.or_else(strange) {
                return self.drop(packet, reason);
            }
            if meta.ttl <= 1 {
                return self.refuse(packet, IcmpError::TimeExceeded, Reason::TtlExpired, at);
            }
        }
        let service = self.services.of(meta.class);
        let tunnel = service.and_then(|at| self.services.tunnel(at));
        let has_tunnel = tunnel.is_some();
        if let Some(tunnel) = tunnel {
            // From here on the outer packet is routed.
            let flow = tunnel.outer_flow();
            let dscp = self.lookup_key(&packet, meta).dscp;
            let key = || LookupKey { flow, dscp, origin: Origin::Host(packet.port) };
            decision =
                self.routing.tables.lookup(tunnel.remote(), self.classifier.hash(&flow), key);
        }
        let Some(Decision::Forward { port, next_hop, mtu }) = decision else {
            let kept = match decision {
                Some(Decision::Elsewhere) if !has_tunnel => self.leave_elsewhere(packet, meta),
                _ => Some(packet),
            };
            let Some(packet) = kept else { return };
            return self.refuse_by_route(packet, decision, meta.version, at);
        };
        if port == packet.port && !packet.originated && self.settings.hairpin == Hairpin::Drop {
            return self.drop(packet, Reason::SamePort);
        }
        let mut path = Path { port, next_hop, pin: Pin { next_hop: 0, ttl: meta.ttl } };
        if self.admissions.pins && !has_tunnel && !packet.originated {
            let query = PathQuery {
                destination: meta.destination,
                flow: &meta.flow,
                hash: meta.flow_hash,
                ttl: meta.ttl,
                from: packet.port,
                key: self.lookup_key(&packet, meta),
            };
            if let Some(chosen) = self.choose_path(&query, port, at) {
                path = chosen;
            }
        }
        self.send_by_route(packet, meta, Route { path, mtu, service }, pass, at);
    }

    /// Checks what the outgoing port takes, and resolves the next hop.
    #[inline]
    fn send_by_route(
        &mut self,
        packet: UnroutedPacket,
        meta: &PacketMeta,
        route: Route,
        pass: Option<FairDropPass>,
        at: Nanos,
    ) {
        let Route { path: Path { port, next_hop, pin }, mtu: route_mtu, service } = route;
        let Some(out) = self.ports.get(port.index()).filter(|slot| slot.up) else {
            return self.drop(packet, Reason::LinkDown);
        };
        let mtu = out.mtu.min(route_mtu);
        let longest = self.longest_ip_len(&packet, meta);
        let (mut ip_len, mut whole, mut inner_mtu) = (longest, meta.dont_fragment, mtu);
        if let Some(tunnel) = service.and_then(|at| self.services.tunnel(at))
            && let Some(headers) = self.headers(&packet)
        {
            ip_len = tunnel.growth(ip_len).ip_len;
            whole = tunnel.outer_dont_fragment(&headers);
            // RFC 8200, 5: no IPv6 host has to make its packets smaller than this.
            let least = if meta.version == IpVersion::V6 { 1_280 } else { 68 };
            inner_mtu = tunnel.inner_mtu(mtu).max(least);
        }
        if ip_len > mtu && whole {
            return self.refuse(packet, IcmpError::TooBig { mtu: inner_mtu }, Reason::TooBig, at);
        }
        let &PacketMeta { flow_hash, class, .. } = meta;
        if let (Some(FairDropPass(ticket)), Some(fairdrop)) = (pass, &mut self.fairdrop) {
            let link = self.ports[port.index()].link_at;
            let framing = self.ports[link].link.framing();
            let wire = match packet.frame.segments() {
                1 => wire_len(framing, usize::from(meta.l3) + ip_len as usize),
                _ => wire_len_of(framing, &packet.frame),
            };
            let processing = processing_class(service);
            let judged = fairdrop.judge_link(link, flow_hash, class, wire, ticket, processing);
            if let Err(reason) = judged {
                return self.drop(packet, reason);
            }
        }
        let cluster = self.cluster.as_ref().and_then(|cluster| cluster.link_of(port, next_hop));
        let flow = &meta.flow;
        let (from, originated) = (packet.port, packet.originated);
        let subscriber = self.subscriber_before(port.index(), &packet.frame);
        let hop = |mac| ResolvedHop {
            port: port.index(),
            mac,
            mtu,
            flow,
            flow_hash,
            class,
            subscriber,
            pin,
            cluster,
            originated,
        };
        if let Some(known) = self.neighbours.known(port, next_hop) {
            let hop = hop(known.mac);
            // Whether a neighbour that may have gone is used is noted with each packet.
            if service.is_none() && !known.stale {
                self.remember(&packet, &hop);
            }
            return self.forward_to(packet, meta, &hop, at);
        }
        match self.neighbours.resolve(at, port, next_hop, packet) {
            Resolution::Mac(mac, packet) => self.forward_to(packet, meta, &hop(mac), at),
            Resolution::Wait => {
                if self.is_watched() && !originated {
                    let text = format!("waits until {next_hop} has said its address");
                    self.seen_at(from.index(), at, Point::Waits, text, None, None);
                }
                self.begins_to_wait(from, originated);
            }
            Resolution::WaitFull(packet) => self.drop(packet, Reason::NeighbourWaitFull),
            Resolution::Unreachable(packet) => {
                self.refuse(packet, IcmpError::HostUnreachable, Reason::HostUnreachable, at);
            }
        }
    }

    /// Remembers where a packet goes, for those of its flow that look like it.
    #[inline]
    fn remember(&mut self, packet: &UnroutedPacket, hop: &ResolvedHop<'_>) {
        let decided_each_time = packet.originated || hop.cluster.is_some() || self.admissions.pins;
        if !self.flow_cache.is_on() || decided_each_time {
            return;
        }
        if let Some(Usual { flow, .. }) = Usual::of(self.pool.bytes(&packet.frame)) {
            let way = Way::new(hop.port, hop.mtu, self.ports[hop.port].mac, hop.mac);
            let flow = flow.received_by(packet.port);
            self.flow_cache.remember(flow, (hop.class, hop.flow_hash), way);
        }
    }

    /// Where a packet would go, by rules and tables alone. `flow_hash` chooses among several next
    /// hops.
    #[must_use]
    pub fn decide(&self, key: &LookupKey, flow_hash: u64) -> Option<Decision> {
        self.routing.tables.lookup(key.flow.destination, flow_hash, || *key)
    }

    fn begins_to_wait(&mut self, from: PortIndex, originated: bool) {
        self.meter.handed_on();
        let count = &mut self.ports[from.index()].count;
        *(if originated { &mut count.originated_waiting } else { &mut count.waiting }) += 1;
    }
}
