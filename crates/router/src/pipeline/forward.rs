//! The way of one packet from a port to an outgoing link.

use std::net::IpAddr;

use evenkeel_config::Hairpin;
use evenkeel_core::admit::Pin;
use evenkeel_core::drop::Ticket;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, Nanos, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::fragment::fragment_ipv4;
use evenkeel_net::frame::{self, Headers, IpVersion, Parsed};
use evenkeel_net::icmp::{self, IcmpError, MAX_ANSWER_LEN};
use evenkeel_net::neighbour::Resolution;
use evenkeel_net::{MacAddr, PortIndex, checksum, rewrite};
use evenkeel_ports::{Frame, RxFrame};

use super::cycles::{Stage, processing_class};
use super::packet::{QueuedPacket, wire_len};
use super::pinning::Seeker;
use super::{CONFIRM_EVERY, Pipeline};
use crate::mirror::NeighbourRequest;

/// A packet on its way, before it is known where to. While its neighbour is asked for it waits like this: nothing of it has been
/// changed, so that an ICMP answer can quote it as it came.
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
struct Judged(Option<Ticket>);

/// What is known of a packet once it has been parsed.
pub(super) struct Known {
    pub(super) headers: Headers,
    pub(super) flow_hash: u64,
    pub(super) class: Class,
}

/// Where a packet goes, all checks passed. Flow and class are those that it came with, also in a tunnel.
pub(super) struct Way {
    pub(super) port: usize,
    pub(super) mac: MacAddr,
    pub(super) flow: PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) class: Class,
    pub(super) pin: Pin,
    /// The link of the cluster that it takes, if it is one of those.
    pub(super) cluster: Option<u16>,
}

impl Pipeline {
    /// A frame has been received.
    pub(super) fn receive(&mut self, packet: Packet) {
        let at = packet.arrival;
        let slot = &mut self.ports[packet.port.index()];
        slot.count.rx_packets += 1;
        slot.count.rx_bytes += packet.frame.len() as u64;
        let (up, own) = (slot.up, slot.mac);
        if !up {
            return self.drop(packet, Reason::LinkDown);
        }
        let bytes = self.pool.bytes(&packet.frame);
        let (Some(destination), Some(source)) = (frame::destination_mac(bytes), frame::source_mac(bytes))
        else {
            return self.drop(packet, Reason::Truncated);
        };
        if self.stations.contains(&source.bits()) {
            return self.drop(packet, Reason::OwnFrame);
        }
        if destination.is_group() {
            if let Some(packet) = self.hear(packet) {
                self.leave_to_host(packet);
            }
            return;
        }
        if destination != own {
            return self.drop(packet, Reason::OtherStation);
        }
        let Some((packet, known)) = self.parse(packet) else { return };
        self.meter.is_of(known.class);
        if self.balancer.is_some() {
            return self.balance(packet, &known, at);
        }
        let mut ticket = None;
        if let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on()) {
            match fairdrop.judge_cpu(known.flow_hash, known.class) {
                Ok(given) => ticket = Some(Judged(given)),
                Err(reason) => return self.refused_share(packet, &known, reason),
            }
        }
        self.meter.stage(Stage::Judge);
        self.route_known(packet, &known, ticket, at);
    }

    /// FairDrop drops what is in transit only. What is for this machine, and of which the kernel has no copy of its own, reaches it.
    fn refused_share(&mut self, packet: Packet, known: &Known, reason: Reason) {
        let destination = known.headers.flow.destination;
        let for_host = |decision| {
            matches!(decision, Some(Decision::Local | Decision::Broadcast | Decision::Multicast))
                || frame::is_group(destination)
        };
        if !self.ports[packet.port.index()].kernel_has_copy
            && for_host(self.fib.lookup(destination, known.flow_hash))
        {
            return self.leave_to_host(packet);
        }
        self.drop(packet, reason);
    }

    /// Finds out where an unchanged packet goes, and sends it there. It enters its link at `at`.
    pub(super) fn route(&mut self, packet: Packet, at: Nanos) {
        if let Some((packet, known)) = self.parse(packet) {
            self.route_known(packet, &known, None, at);
        }
    }

    /// `None`: it was nothing for us, and is where it belongs.
    #[inline]
    fn parse(&mut self, packet: Packet) -> Option<(Packet, Known)> {
        match frame::parse(self.pool.bytes(&packet.frame)) {
            Ok(Parsed::Ip(headers)) => {
                let flow_hash = self.hasher.hash(&headers.flow_id());
                if let Some(fairdrop) = &self.fairdrop {
                    fairdrop.prefetch(flow_hash);
                }
                let class = self.class_map.classify(&headers.flow, headers.dscp);
                return Some((packet, Known { headers, flow_hash, class }));
            }
            Ok(Parsed::Other { .. }) => self.leave_to_host(packet),
            Err(reason) => self.drop(packet, reason),
        }
        None
    }

    fn route_known(&mut self, packet: Packet, known: &Known, judged: Option<Judged>, at: Nanos) {
        let Known { headers, flow_hash, class } = *known;
        let destination = headers.flow.destination;
        let mut decision = self.fib.lookup(destination, flow_hash);
        if matches!(decision, Some(Decision::Local | Decision::Broadcast | Decision::Multicast))
            || frame::is_group(destination)
        {
            return self.leave_to_host(packet);
        }
        if !packet.originated {
            if let Err(reason) = headers.check_transit() {
                return self.drop(packet, reason);
            }
            if headers.ttl <= 1 {
                return self.refuse(packet, &headers, IcmpError::TimeExceeded, Reason::TtlExpired, at);
            }
        }
        let service = self.services.of(class);
        let tunnel = service.and_then(|at| self.services.tunnel(at));
        if let Some(tunnel) = tunnel {
            // From here on it is the tunnel's packet that has to find its way.
            decision = self.fib.lookup(tunnel.remote(), self.hasher.hash(&tunnel.outer_flow()));
        }
        let (port, next_hop) = match decision {
            Some(Decision::Forward { port, next_hop }) => (port, next_hop),
            Some(Decision::Unreachable) => {
                let error = match headers.version {
                    IpVersion::V4 => IcmpError::HostUnreachable,
                    IpVersion::V6 => IcmpError::NoRoute,
                };
                return self.refuse(packet, &headers, error, Reason::RouteRefuses, at);
            }
            Some(Decision::Prohibit) => {
                return self.refuse(packet, &headers, IcmpError::AdminProhibited, Reason::RouteRefuses, at);
            }
            Some(Decision::Blackhole) => return self.drop(packet, Reason::RouteRefuses),
            // The first three have been given to the host; a tunnel cannot end here.
            Some(Decision::Local | Decision::Broadcast | Decision::Multicast) | None => {
                return self.refuse(packet, &headers, IcmpError::NoRoute, Reason::NoRoute, at);
            }
        };
        if port == packet.port && !packet.originated && self.hairpin == Hairpin::Drop {
            return self.drop(packet, Reason::SamePort);
        }
        let flow = PackedFlow::new(&headers.flow_id());
        let mut pin = Pin { next_hop: 0, ttl: headers.ttl };
        let (mut port, mut next_hop) = (port, next_hop);
        if self.pins && tunnel.is_none() && !packet.originated {
            let (ttl, from) = (headers.ttl, packet.port);
            let seeker = Seeker { destination, flow: &flow, hash: flow_hash, ttl, from };
            if let Some(path) = self.choose_path(&seeker, port, at) {
                (port, next_hop, pin) = (path.port, path.next_hop, path.pin);
            }
        }
        // Borrowed anew: the choice may have let estimates happen.
        let tunnel = service.and_then(|at| self.services.tunnel(at));
        let Some(out) = self.ports.get(port.index()).filter(|slot| slot.up) else {
            return self.drop(packet, Reason::LinkDown);
        };
        // What is read there arrives while the frame is rewritten.
        out.prefetch(flow_hash);
        let (mtu, mut ip_len, mut whole, mut inner_mtu) =
            (out.mtu, headers.ip_len, headers.dont_fragment, out.mtu);
        if let Some(tunnel) = tunnel {
            ip_len = tunnel.growth(ip_len).ip_len;
            whole = tunnel.outer_dont_fragment(&headers);
            // RFC 8200, 5: no IPv6 host has to make its packets smaller than this.
            let least = if headers.version == IpVersion::V6 { 1_280 } else { 68 };
            inner_mtu = tunnel.inner_mtu(mtu).max(least);
        }
        if ip_len > mtu && whole {
            return self.refuse(packet, &headers, IcmpError::TooBig { mtu: inner_mtu }, Reason::TooBig, at);
        }
        if let (Some(Judged(ticket)), Some(fairdrop)) = (judged, &mut self.fairdrop) {
            let wire = wire_len(usize::from(headers.l3) + ip_len as usize);
            let processing = processing_class(service);
            if let Err(reason) = fairdrop.judge_link(port.index(), flow_hash, class, wire, ticket, processing)
            {
                return self.drop(packet, reason);
            }
        }
        let cluster = self.cluster.as_ref().and_then(|cluster| cluster.link_of(port, next_hop));
        let way = |mac| Way { port: port.index(), mac, flow, flow_hash, class, pin, cluster };
        if let Some(mac) = self.neighbours.mac(port, next_hop) {
            return self.send_on(packet, headers, &way(mac), at);
        }
        let (from, originated) = (packet.port.index(), packet.originated);
        match self.neighbours.resolve(at, port, next_hop, packet) {
            Resolution::Mac(mac, packet) => self.send_on(packet, headers, &way(mac), at),
            Resolution::Wait => {
                self.meter.handed_on();
                let count = &mut self.ports[from].count;
                *(if originated { &mut count.originated_waiting } else { &mut count.waiting }) += 1;
            }
            Resolution::WaitFull(packet) => self.drop(packet, Reason::NeighbourWaitFull),
            Resolution::Unreachable(packet) => {
                self.refuse(packet, &headers, IcmpError::HostUnreachable, Reason::HostUnreachable, at);
            }
        }
    }

    /// Rewrites the frame and hands it to its link, in fragments if need be.
    fn send_on(&mut self, mut packet: Packet, mut headers: Headers, way: &Way, at: Nanos) {
        let out = &self.ports[way.port];
        let (source, mtu) = (out.mac, out.mtu);
        self.pool.trim(&mut packet.frame, headers.frame_len());
        let bytes = self.pool.bytes_mut(&packet.frame);
        let rewritten = (|| {
            if !packet.originated {
                rewrite::decrement_ttl(bytes, &mut headers)?;
            }
            if packet.frame.partial_checksum() {
                checksum::complete_l4(bytes, &headers)?;
            }
            rewrite::set_macs(bytes, source, way.mac)
        })();
        if let Err(reason) = rewritten {
            return self.drop(packet, reason);
        }
        packet.frame.set_partial_checksum(false);
        if let Some(service) = self.services.of(way.class) {
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
            return self.send_fragments(packet, &headers, way, at);
        }
        let count = &mut self.ports[packet.port.index()].count;
        *(if packet.originated { &mut count.originated } else { &mut count.forwarded }) += 1;
        self.enqueue(packet.frame, packet.arrival, headers.ip_len, way, at);
    }

    pub(super) fn enqueue(&mut self, frame: Frame, arrival: Nanos, ip_len: u32, way: &Way, at: Nanos) {
        let queued = QueuedPacket {
            frame,
            flow: way.flow,
            flow_hash: way.flow_hash,
            arrival,
            ip_len,
            class: way.class,
        };
        if let Some(link) = way.cluster {
            return self.queue_for_cluster(link, queued);
        }
        self.ports[way.port].control_until(at, &mut self.pool);
        let at = at.max(self.advanced);
        if self.ports[way.port].admission.is_some() {
            return self.admit(way.port, queued, way.pin, at);
        }
        self.enter(way.port, queued, at);
    }

    fn send_fragments(&mut self, packet: Packet, headers: &Headers, way: &Way, at: Nanos) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(self.pool.bytes(&packet.frame));
        let mtu = self.ports[way.port].mtu;
        let from = packet.port.index();
        let mut sent = 0;
        let result = fragment_ipv4(&scratch, headers, mtu, |fragment| {
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
            self.enqueue(frame, packet.arrival, ip_len, way, at);
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
    fn refuse(&mut self, packet: Packet, headers: &Headers, error: IcmpError, reason: Reason, at: Nanos) {
        if !packet.originated {
            self.answer(&packet, headers, error, at);
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
    pub(super) fn leave_to_host(&mut self, packet: Packet) {
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
            match frame::parse(self.pool.bytes(&packet.frame)) {
                Ok(Parsed::Ip(headers)) => {
                    self.refuse(packet, &headers, IcmpError::HostUnreachable, reason, now);
                }
                _ => self.drop(packet, reason),
            }
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
