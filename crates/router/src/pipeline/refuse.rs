//! Packets that are not forwarded: dropped, refused with an ICMP answer, or left to the kernel.

use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::frame::{Headers, IpVersion};
use evenkeel_net::icmp::{self, IcmpError, MAX_ANSWER_LEN};

use super::Pipeline;
use super::forward::is_local;
use super::packet::UnroutedPacket;
use super::parsed::PacketMeta;
use crate::watch::Point;

impl Pipeline {
    /// FairDrop drops packets in transit only: those for this machine that the kernel has no copy
    /// of reach it.
    pub(super) fn refuse_by_fairdrop(
        &mut self,
        packet: UnroutedPacket,
        meta: &PacketMeta,
        reason: Reason,
    ) {
        let kernel_has_copy = self.ports[packet.port.index()].kernel_has_copy;
        if !kernel_has_copy && is_local(self.decision(&packet, meta), meta.destination) {
            return self.punt(packet);
        }
        self.drop(packet, reason);
    }

    /// Refuses a packet that no route forwards.
    #[cold]
    pub(super) fn refuse_by_route(
        &mut self,
        packet: UnroutedPacket,
        decision: Option<Decision>,
        version: IpVersion,
        at: Nanos,
    ) {
        let (error, reason) = match (decision, version) {
            (Some(Decision::Blackhole), _) => return self.drop(packet, Reason::RouteRefuses),
            (Some(Decision::Prohibit), _) => (IcmpError::AdminProhibited, Reason::RouteRefuses),
            (Some(Decision::Unreachable | Decision::Elsewhere), IpVersion::V4) => {
                (IcmpError::HostUnreachable, Reason::RouteRefuses)
            }
            (Some(Decision::Unreachable | Decision::Elsewhere), IpVersion::V6) => {
                (IcmpError::NoRoute, Reason::RouteRefuses)
            }
            // What is for the host has been given to it; a tunnel cannot end here.
            _ => (IcmpError::NoRoute, Reason::NoRoute),
        };
        self.refuse(packet, error, reason, at);
    }

    /// Drops a packet and tells its sender why, where that is allowed.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        packet: UnroutedPacket,
        error: IcmpError,
        reason: Reason,
        at: Nanos,
    ) {
        if !packet.originated
            && let Some(headers) = self.headers(&packet)
        {
            self.answer(&packet, &headers, error, at);
        }
        self.drop(packet, reason);
    }

    fn answer(&mut self, packet: &UnroutedPacket, headers: &Headers, error: IcmpError, at: Nanos) {
        let bytes = self.pool.bytes(&packet.frame);
        if icmp::may_answer(bytes, headers, error).is_err() {
            return;
        }
        let Some(source) = self.addresses.source_for(packet.port, headers.flow.source) else {
            return;
        };
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
        let answer = UnroutedPacket { frame, arrival: at, port: packet.port, originated: true };
        // What happens to the answer did not happen to the packet.
        let passing = self.take_passing();
        self.route(answer, at);
        self.set_passing(passing);
    }

    /// Leaves a packet to the kernel, which has its own copy of the frame. From a port past the
    /// kernel such frames come only until the port knows of a new address.
    pub(super) fn punt(&mut self, packet: UnroutedPacket) {
        if packet.originated {
            // An answer to this machine itself, whose packets do not come through here.
            return self.drop(packet, Reason::NoRoute);
        }
        if !self.ports[packet.port.index()].kernel_has_copy {
            return self.drop(packet, Reason::MissedHost);
        }
        if self.is_watched() {
            let (port, at) = (packet.port.index(), packet.arrival);
            let text = "left to the kernel".to_owned();
            self.seen_at(port, at, Point::Kernel, text, None, Some(&packet));
        }
        self.ports[packet.port.index()].count.to_host += 1;
        self.pool.release(packet.frame);
    }

    #[cold]
    pub(super) fn drop(&mut self, packet: UnroutedPacket, reason: Reason) {
        self.remember_drop(&packet, reason);
        self.ports[packet.port.index()].count_dropped(packet.originated, reason);
        self.pool.release(packet.frame);
    }

    pub(super) fn no_longer_waiting(&mut self, packet: &UnroutedPacket) {
        let count = &mut self.ports[packet.port.index()].count;
        *(if packet.originated { &mut count.originated_waiting } else { &mut count.waiting }) -= 1;
    }

    /// Forwards the packets whose neighbour has answered.
    pub(super) fn resume(&mut self, now: Nanos) {
        let mut released = self.neighbours.take_released();
        for packet in released.drain(..) {
            self.no_longer_waiting(&packet);
            self.route(packet, now);
        }
        self.neighbours.reuse(released);
    }

    /// Refuses the packets whose neighbour has not answered.
    pub(super) fn give_up(&mut self, now: Nanos, reason: Reason) {
        let mut released = self.neighbours.take_released();
        for packet in released.drain(..) {
            self.no_longer_waiting(&packet);
            self.refuse(packet, IcmpError::HostUnreachable, reason, now);
        }
        self.neighbours.reuse(released);
    }

    /// Gives up neighbours that have not answered in time.
    #[inline]
    pub(super) fn expire(&mut self, now: Nanos) {
        if self.neighbours.expire(now) {
            self.give_up(now, Reason::HostUnreachable);
        }
    }
}
