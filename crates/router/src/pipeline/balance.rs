//! A packet that came to the balancer.

use evenkeel_core::admit::Pin;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::frame::Headers;
use evenkeel_net::{checksum, rewrite};

use super::Pipeline;
use super::forward::{ResolvedHop, is_local};
use super::packet::UnroutedPacket;
use super::parsed::PacketMeta;

impl Pipeline {
    /// A packet that came to the balancer: on to a forwarder, or to the machine itself.
    pub(super) fn balance(&mut self, packet: UnroutedPacket, meta: &PacketMeta, at: Nanos) {
        if is_local(self.decision(&packet, meta), meta.destination) {
            return self.punt(packet);
        }
        if let Some(reason) = meta.martian {
            return self.drop(packet, reason);
        }
        let Some(headers) = self.headers(&packet) else {
            return self.drop(packet, Reason::Truncated);
        };
        let Some(role) = &mut self.balancer else { return self.drop(packet, Reason::NoRoute) };
        let port = role.port();
        let out = &self.ports[port];
        if !out.up {
            return self.drop(packet, Reason::LinkDown);
        }
        let out_mtu = out.mtu;
        if headers.ip_len > out_mtu {
            return self.drop(packet, Reason::TooBig);
        }
        let Some(mac) = role.pick(at, &headers) else { return self.drop(packet, Reason::NoRoute) };
        let flow = PackedFlow::new(&headers.flow);
        let hop = ResolvedHop {
            port,
            mac,
            mtu: out_mtu,
            flow: &flow,
            flow_hash: meta.flow_hash,
            subscriber: UNKNOWN,
            class: meta.class,
            pin: Pin { next_hop: 0, ttl: headers.ttl },
            cluster: None,
            originated: false,
        };
        self.forward_balanced(packet, &headers, &hop, at);
    }

    fn forward_balanced(
        &mut self,
        mut packet: UnroutedPacket,
        headers: &Headers,
        hop: &ResolvedHop<'_>,
        at: Nanos,
    ) {
        let source = self.ports[hop.port].mac;
        packet.frame.trim(headers.frame_len());
        let bytes = self.pool.bytes_mut(&packet.frame);
        let rewritten = (|| {
            if packet.frame.partial_checksum() {
                checksum::complete_l4(bytes, headers)?;
            }
            rewrite::set_macs(bytes, source, hop.mac)
        })();
        if let Err(reason) = rewritten {
            return self.drop(packet, reason);
        }
        packet.frame.set_partial_checksum(false);
        self.meter.handed_on();
        self.ports[packet.port.index()].count.forwarded += 1;
        self.enqueue(packet.frame, packet.arrival, headers.ip_len, hop, at);
    }
}
