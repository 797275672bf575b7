//! Forwarding one packet from a port to an outgoing link.

use std::net::IpAddr;

use evenkeel_config::Hairpin;
use evenkeel_core::admit::Pin;
use evenkeel_core::drop::Ticket;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, Nanos, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::fragment::fragment_ipv4;
use evenkeel_net::frame::{self, Headers, IpVersion};
use evenkeel_net::icmp::{self, IcmpError, MAX_ANSWER_LEN};
use evenkeel_net::neighbour::Resolution;
use evenkeel_net::policy::{LookupKey, Origin};
use evenkeel_net::{MacAddr, PortIndex, checksum, rewrite};
use evenkeel_ports::{Frame, RxFrame};

use super::ahead::{PacketMeta, Parsed};
use super::cycles::{Stage, processing_class};
use super::packet::{QueuedPacket, wire_len};
use super::pinning::PathQuery;
use super::{CONFIRM_EVERY, Pipeline};
use crate::mirror::NeighbourRequest;

/// A packet before it is known where it goes. While its neighbour is resolved it waits like this,
/// unchanged, so that an ICMP answer can quote it as it came.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) frame: Frame,
    pub(super) arrival: Nanos,
    /// Its place in the burst.
    pub(super) order: u32,
    /// Where it came from, or for whose packet it was made.
    pub(super) port: PortIndex,
    /// Made here, not received.
    pub(super) originated: bool,
}

impl Packet {
    pub(super) fn received(port: PortIndex, order: u32, received: RxFrame) -> Self {
        Self { frame: received.frame, arrival: received.arrival, order, port, originated: false }
    }
}

/// FairDrop has let the packet pass so far; if it shares cycles, with the ticket they are charged by.
#[derive(Clone, Copy)]
struct FairDropPass(Option<Ticket>);

/// Where a packet goes, all checks passed. Flow and class are those that it came with, also in a tunnel.
pub(super) struct ResolvedHop<'a> {
    pub(super) port: usize,
    pub(super) mac: MacAddr,
    /// The longest IP packet that goes there whole: by port and route.
    pub(super) mtu: u32,
    pub(super) flow: &'a PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) class: Class,
    pub(super) pin: Pin,
    /// The link of the cluster that it takes, if it is one of those.
    pub(super) cluster: Option<u16>,
}

impl Pipeline {
    /// A frame has been received, of which `parsed` is meta.
    #[inline]
    pub(super) fn receive(&mut self, packet: Packet, parsed: &Parsed) {
        let at = packet.arrival;
        let slot = &mut self.ports[packet.port.index()];
        slot.count.rx_packets += 1;
        slot.count.rx_bytes += packet.frame.len() as u64;
        let (up, own) = (slot.up, slot.mac.bits());
        if !up {
            return self.drop(packet, Reason::LinkDown);
        }
        let Some((destination, source)) = frame::station_bits(self.pool.bytes(&packet.frame)) else {
            return self.drop(packet, Reason::Truncated);
        };
        if self.port_macs.contains(&source) {
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
        let meta = match parsed {
            Parsed::Ip(meta) => meta,
            Parsed::Other => return self.punt(packet),
            Parsed::Invalid(reason) => return self.drop(packet, *reason),
        };
        self.meter.is_of(meta.class);
        if self.balancer.is_some() {
            return self.balance(packet, meta, at);
        }
        let mut ticket = None;
        if let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on()) {
            match fairdrop.judge_cpu(meta.flow_hash, meta.class) {
                Ok(given) => ticket = Some(FairDropPass(given)),
                Err(reason) => return self.refuse_by_fairdrop(packet, meta, reason),
            }
        }
        self.meter.stage(Stage::Judge);
        self.route_parsed(packet, meta, ticket, at);
    }

    /// FairDrop drops what is in transit only. What is for this machine, and of which the kernel has no copy of its own, reaches it.
    fn refuse_by_fairdrop(&mut self, packet: Packet, meta: &PacketMeta, reason: Reason) {
        let destination = meta.destination;
        let is_local = |decision| {
            matches!(decision, Some(Decision::Local | Decision::Broadcast | Decision::Multicast))
                || frame::is_group(destination)
        };
        if !self.ports[packet.port.index()].kernel_has_copy && is_local(self.decision(&packet, meta)) {
            return self.punt(packet);
        }
        self.drop(packet, reason);
    }

    /// Finds out where an unchanged packet goes, and sends it there. It enters its link at `at`.
    pub(super) fn route(&mut self, packet: Packet, at: Nanos) {
        match self.parse(&packet.frame) {
            Parsed::Ip(meta) => self.route_parsed(packet, &meta, None, at),
            Parsed::Other => self.punt(packet),
            Parsed::Invalid(reason) => self.drop(packet, reason),
        }
    }

    /// What the tables say of a packet's destination, asked ahead or now.
    #[inline]
    pub(super) fn decision(&self, packet: &Packet, meta: &PacketMeta) -> Option<Decision> {
        meta.route.unwrap_or_else(|| {
            self.fib.lookup(meta.destination, meta.flow_hash, || self.lookup_key(packet, meta))
        })
    }

    fn route_parsed(&mut self, packet: Packet, meta: &PacketMeta, pass: Option<FairDropPass>, at: Nanos) {
        let &PacketMeta { destination, flow_hash, class, .. } = meta;
        let mut decision = self.decision(&packet, meta);
        if matches!(decision, Some(Decision::Local | Decision::Broadcast | Decision::Multicast))
            || frame::is_group(destination)
        {
            return self.punt(packet);
        }
        if !packet.originated {
            if let Some(reason) = meta.martian {
                return self.drop(packet, reason);
            }
            if meta.ttl <= 1 {
                return self.refuse(packet, IcmpError::TimeExceeded, Reason::TtlExpired, at);
            }
        }
        let service = self.services.of(class);
        let tunnel = service.and_then(|at| self.services.tunnel(at));
        if let Some(tunnel) = tunnel {
            // From here on the outer packet is routed.
            let flow = tunnel.outer_flow();
            let dscp = self.lookup_key(&packet, meta).dscp;
            let key = || LookupKey { flow, dscp, origin: Origin::Host(packet.port) };
            decision = self.fib.lookup(tunnel.remote(), self.hasher.hash(&flow), key);
        }
        let Some(Decision::Forward { port, next_hop, mtu: route_mtu }) = decision else {
            return self.refuse_by_route(packet, decision, meta.version, at);
        };
        if port == packet.port && !packet.originated && self.hairpin == Hairpin::Drop {
            return self.drop(packet, Reason::SamePort);
        }
        let mut pin = Pin { next_hop: 0, ttl: meta.ttl };
        let (mut port, mut next_hop) = (port, next_hop);
        if self.pins && tunnel.is_none() && !packet.originated {
            let (ttl, from, key) = (meta.ttl, packet.port, self.lookup_key(&packet, meta));
            let query = PathQuery { destination, flow: &meta.flow, hash: flow_hash, ttl, from, key };
            if let Some(path) = self.choose_path(&query, port, at) {
                (port, next_hop, pin) = (path.port, path.next_hop, path.pin);
            }
        }
        let Some(out) = self.ports.get(port.index()).filter(|slot| slot.up) else {
            return self.drop(packet, Reason::LinkDown);
        };
        let mtu = out.mtu.min(route_mtu);
        let (mut ip_len, mut whole, mut inner_mtu) = (meta.ip_len, meta.dont_fragment, mtu);
        // Borrowed anew: the choice may have let estimates happen.
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
        if let (Some(FairDropPass(ticket)), Some(fairdrop)) = (pass, &mut self.fairdrop) {
            let wire = wire_len(usize::from(meta.l3) + ip_len as usize);
            let processing = processing_class(service);
            if let Err(reason) = fairdrop.judge_link(port.index(), flow_hash, class, wire, ticket, processing)
            {
                return self.drop(packet, reason);
            }
        }
        let cluster = self.cluster.as_ref().and_then(|cluster| cluster.link_of(port, next_hop));
        let hop = |mac| ResolvedHop {
            port: port.index(),
            mac,
            mtu,
            flow: &meta.flow,
            flow_hash,
            class,
            pin,
            cluster,
        };
        if let Some(mac) = self.neighbours.mac(port, next_hop) {
            return self.forward_to(packet, meta, &hop(mac), at);
        }
        let (from, originated) = (packet.port.index(), packet.originated);
        match self.neighbours.resolve(at, port, next_hop, packet) {
            Resolution::Mac(mac, packet) => self.forward_to(packet, meta, &hop(mac), at),
            Resolution::Wait => {
                self.meter.handed_on();
                let count = &mut self.ports[from].count;
                *(if originated { &mut count.originated_waiting } else { &mut count.waiting }) += 1;
            }
            Resolution::WaitFull(packet) => self.drop(packet, Reason::NeighbourWaitFull),
            Resolution::Unreachable(packet) => {
                self.refuse(packet, IcmpError::HostUnreachable, Reason::HostUnreachable, at);
            }
        }
    }

    /// No route forwards the packet.
    #[cold]
    fn refuse_by_route(&mut self, packet: Packet, decision: Option<Decision>, version: IpVersion, at: Nanos) {
        let (error, reason) = match (decision, version) {
            (Some(Decision::Blackhole), _) => return self.drop(packet, Reason::RouteRefuses),
            (Some(Decision::Prohibit), _) => (IcmpError::AdminProhibited, Reason::RouteRefuses),
            (Some(Decision::Unreachable), IpVersion::V4) => {
                (IcmpError::HostUnreachable, Reason::RouteRefuses)
            }
            (Some(Decision::Unreachable), IpVersion::V6) => (IcmpError::NoRoute, Reason::RouteRefuses),
            // What is for the host has been given to it; a tunnel cannot end here.
            _ => (IcmpError::NoRoute, Reason::NoRoute),
        };
        self.refuse(packet, error, reason, at);
    }

    /// Rewrites the frame and hands it to its link.
    fn forward_to(&mut self, mut packet: Packet, meta: &PacketMeta, hop: &ResolvedHop<'_>, at: Nanos) {
        let out = &self.ports[hop.port];
        let unusual = packet.frame.partial_checksum()
            || packet.originated
            || meta.ip_len > hop.mtu
            || self.services.of(hop.class).is_some();
        if unusual {
            return self.rewrite_and_serve(packet, hop, at);
        }
        let source = out.mac;
        self.pool.trim(&mut packet.frame, meta.frame_len());
        let bytes = self.pool.bytes_mut(&packet.frame);
        let rewritten = rewrite::decrement_ttl_at(bytes, meta.l3, meta.version)
            .and_then(|_| rewrite::set_macs(bytes, source, hop.mac));
        if let Err(reason) = rewritten {
            return self.drop(packet, reason);
        }
        self.meter.stage(Stage::Route);
        self.meter.handed_on();
        self.ports[packet.port.index()].count.forwarded += 1;
        self.enqueue(packet.frame, packet.arrival, meta.ip_len, hop, at);
    }

    /// Does what there is to do on a packet besides rewriting it, and hands it to its link, in fragments if need be.
    fn rewrite_and_serve(&mut self, mut packet: Packet, hop: &ResolvedHop<'_>, at: Nanos) {
        let Some(mut headers) = self.headers(&packet) else {
            return self.drop(packet, Reason::Truncated);
        };
        let out = &self.ports[hop.port];
        let (source, mtu) = (out.mac, hop.mtu);
        self.pool.trim(&mut packet.frame, headers.frame_len());
        let bytes = self.pool.bytes_mut(&packet.frame);
        let rewritten = (|| {
            if !packet.originated {
                rewrite::decrement_ttl(bytes, &mut headers)?;
            }
            if packet.frame.partial_checksum() {
                checksum::complete_l4(bytes, &headers)?;
            }
            rewrite::set_macs(bytes, source, hop.mac)
        })();
        if let Err(reason) = rewritten {
            return self.drop(packet, reason);
        }
        packet.frame.set_partial_checksum(false);
        if let Some(service) = self.services.of(hop.class) {
            let Self { services, pool, meter, .. } = self;
            match services.serve(service, pool, &mut packet.frame, &headers, meter) {
                Ok(changed) => headers = changed,
                Err(reason) => return self.drop(packet, reason),
            }
        } else {
            self.meter.stage(Stage::Route);
        }
        self.meter.handed_on();
        if headers.ip_len > mtu {
            return self.send_fragments(packet, &headers, hop, at);
        }
        let count = &mut self.ports[packet.port.index()].count;
        *(if packet.originated { &mut count.originated } else { &mut count.forwarded }) += 1;
        self.enqueue(packet.frame, packet.arrival, headers.ip_len, hop, at);
    }

    #[inline]
    pub(super) fn enqueue(
        &mut self,
        frame: Frame,
        arrival: Nanos,
        ip_len: u32,
        hop: &ResolvedHop<'_>,
        at: Nanos,
    ) {
        let queued = QueuedPacket {
            frame,
            flow: *hop.flow,
            flow_hash: hop.flow_hash,
            arrival,
            ip_len,
            class: hop.class,
        };
        if let Some(link) = hop.cluster {
            return self.queue_for_cluster(link, queued);
        }
        self.ports[hop.port].control_until(at, &mut self.pool);
        let at = at.max(self.advanced);
        if self.ports[hop.port].admission.is_some() {
            return self.admit(hop.port, queued, hop.pin, at);
        }
        self.enter(hop.port, queued, at);
    }

    fn send_fragments(&mut self, packet: Packet, headers: &Headers, hop: &ResolvedHop<'_>, at: Nanos) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(self.pool.bytes(&packet.frame));
        let from = packet.port.index();
        let mut sent = 0;
        let result = fragment_ipv4(&scratch, headers, hop.mtu, |fragment| {
            let mut frame = self.pool.alloc().ok_or(Reason::NoBuffer)?;
            let Some(bytes) = self.pool.extend(&mut frame, fragment.frame_len()) else {
                self.pool.release(frame);
                return Err(Reason::FrameTooLong);
            };
            // The buffer was made exactly as long as the fragment.
            let _ = fragment.write_into(bytes);
            let ip_len = (fragment.frame_len() - usize::from(headers.l3)) as u32;
            sent += 1;
            self.ports[from].count.originated += 1;
            self.enqueue(frame, packet.arrival, ip_len, hop, at);
            Ok(())
        });
        self.scratch = scratch;
        let count = &mut self.ports[from].count;
        match result {
            Err(reason) if sent == 0 => return self.drop(packet, reason),
            Err(reason) => count.originated_dropped[reason.index()] += 1,
            Ok(_) => {}
        }
        if packet.originated {
            // An answer in fragments: it was made, and it is gone; its fragments have been counted.
            self.pool.release(packet.frame);
            return;
        }
        count.forwarded += 1;
        count.fragmented += 1;
        self.pool.release(packet.frame);
    }

    /// Drops a packet and tells its sender why, where that is allowed.
    #[cold]
    fn refuse(&mut self, packet: Packet, error: IcmpError, reason: Reason, at: Nanos) {
        if !packet.originated
            && let Some(headers) = self.headers(&packet)
        {
            self.answer(&packet, &headers, error, at);
        }
        self.drop(packet, reason);
    }

    fn answer(&mut self, packet: &Packet, headers: &Headers, error: IcmpError, at: Nanos) {
        let bytes = self.pool.bytes(&packet.frame);
        if icmp::may_answer(bytes, headers, error).is_err() {
            return;
        }
        let Some(source) = self.own.source_for(packet.port, headers.flow.source) else { return };
        let slot = &mut self.ports[packet.port.index()];
        if !slot.limiter.allow(at) {
            slot.count.answers_limited += 1;
            return;
        }
        let mut answer = [0; MAX_ANSWER_LEN];
        let Ok(len) = icmp::answer(bytes, headers, error, source, &mut answer) else { return };
        slot.count.answered += 1;
        let Some(frame) = self.pool.alloc_from(&answer[..len]) else {
            slot.count.originated_dropped[Reason::NoBuffer.index()] += 1;
            return;
        };
        let answer = Packet { frame, arrival: at, order: 0, port: packet.port, originated: true };
        self.route(answer, at);
    }

    /// The kernel has its own copy of the frame: ours is not needed. Of a port past the kernel such frames come only until the port knows of
    /// a new address.
    pub(super) fn punt(&mut self, packet: Packet) {
        if packet.originated {
            // An answer to this machine itself, whose packets do not come through here.
            return self.drop(packet, Reason::NoRoute);
        }
        if !self.ports[packet.port.index()].kernel_has_copy {
            return self.drop(packet, Reason::MissedHost);
        }
        self.ports[packet.port.index()].count.to_host += 1;
        self.pool.release(packet.frame);
    }

    #[cold]
    pub(super) fn drop(&mut self, packet: Packet, reason: Reason) {
        let count = &mut self.ports[packet.port.index()].count;
        let dropped = if packet.originated { &mut count.originated_dropped } else { &mut count.dropped };
        dropped[reason.index()] += 1;
        self.pool.release(packet.frame);
    }

    pub(super) fn no_longer_waiting(&mut self, packet: &Packet) {
        let count = &mut self.ports[packet.port.index()].count;
        *(if packet.originated { &mut count.originated_waiting } else { &mut count.waiting }) -= 1;
    }

    /// Packets whose neighbour answered: on they go.
    pub(super) fn resume(&mut self, now: Nanos) {
        let mut released = std::mem::take(&mut self.released);
        for packet in released.drain(..) {
            self.no_longer_waiting(&packet);
            self.route(packet, now);
        }
        self.released = released;
    }

    /// Packets whose neighbour did not answer.
    pub(super) fn give_up(&mut self, now: Nanos, reason: Reason) {
        let mut released = std::mem::take(&mut self.released);
        for packet in released.drain(..) {
            self.no_longer_waiting(&packet);
            self.refuse(packet, IcmpError::HostUnreachable, reason, now);
        }
        self.released = released;
    }

    /// Neighbours that did not answer in time.
    pub(super) fn expire(&mut self, now: Nanos) {
        if self.neighbours.next_deadline().is_some_and(|due| due <= now) {
            let released = &mut self.released;
            self.neighbours.expire(now, |_port, _address, packet| released.push(packet));
            self.give_up(now, Reason::HostUnreachable);
        }
    }

    /// Names the neighbours that the kernel should be asked for: those that packets wait for, and once a second those in use that it has not
    /// confirmed for a while.
    pub fn drain_requests(&mut self, now: Nanos, mut ask: impl FnMut(NeighbourRequest)) {
        let mut ask = |port: PortIndex, address: IpAddr| ask(NeighbourRequest { port, address });
        if self.neighbours.has_asks() {
            self.neighbours.drain_asks(&mut ask);
        }
        if let Some(NeighbourRequest { port, address }) = self.wanted.take() {
            ask(port, address);
        }
        if now >= self.confirm_due {
            self.neighbours.stale_in_use(&mut ask);
            self.confirm_due = now + CONFIRM_EVERY;
        }
    }
}
