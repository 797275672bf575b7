//! Rewriting a packet for its next hop, and handing it to its link.

use evenkeel_core::packet::Places;
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fragment::fragment_ipv4;
use evenkeel_net::frame::Headers;
use evenkeel_net::{PortIndex, checksum, rewrite};
use evenkeel_ports::Frame;

use super::Pipeline;
use super::cycles::Stage;
use super::forward::ResolvedHop;
use super::packet::{Acks, PacketRecord, UnroutedPacket, wire_len_of};
use super::parsed::PacketMeta;
use super::whole::ip_len_of;
use crate::handing::Taker;

impl Pipeline {
    /// Rewrites the frame and hands it to its link.
    pub(super) fn forward_to(
        &mut self,
        mut packet: UnroutedPacket,
        meta: &PacketMeta,
        hop: &ResolvedHop<'_>,
        at: Nanos,
    ) {
        let is_super = packet.frame.segments() > 1;
        if is_super && self.must_cut(&packet, meta, hop) {
            return self.forward_cut(packet, meta, hop, at);
        }
        let out = &self.ports[hop.port];
        // Whoever sends it is told that its checksum is to be completed.
        let left_to_port = out.takes_whole && packet.frame.is_described();
        let unusual = (packet.frame.partial_checksum() && !left_to_port)
            || packet.originated
            || (meta.ip_len > hop.mtu && !is_super)
            || self.services.of(hop.class).is_some();
        if unusual {
            return self.rewrite_and_serve(packet, hop, at);
        }
        let source = out.mac;
        packet.frame.trim(meta.frame_len());
        let bytes = self.pool.bytes_mut(&packet.frame);
        let rewritten = rewrite::decrement_ttl_at(bytes, meta.l3, meta.version)
            .and_then(|_| rewrite::set_macs(bytes, source, hop.mac));
        if let Err(reason) = rewritten {
            return self.drop(packet, reason);
        }
        self.meter.stage(Stage::Route);
        self.meter.handed_on();
        self.ports[packet.port.index()].count.forwarded += 1;
        let ip_len = ip_len_of(&packet.frame, meta);
        self.enqueue(packet.frame, packet.arrival, ip_len, hop, at);
    }

    /// Does everything but plain rewriting: services, checksums, fragments. Then hands the packet
    /// to its link.
    fn rewrite_and_serve(&mut self, mut packet: UnroutedPacket, hop: &ResolvedHop<'_>, at: Nanos) {
        let Some(mut headers) = self.headers(&packet) else {
            return self.drop(packet, Reason::Truncated);
        };
        let out = &self.ports[hop.port];
        let (source, mtu) = (out.mac, hop.mtu);
        packet.frame.trim(headers.frame_len());
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
        let wire_len = wire_len_of(self.link_to(hop.port).framing(), &frame).0 as u32;
        let queued = PacketRecord {
            ecn: rewrite::ecn(self.pool.bytes(&frame)),
            marked: false,
            acks: Acks::default(),
            queue_place: Places::NOWHERE,
            frame,
            flow: *hop.flow,
            flow_hash: hop.flow_hash,
            arrival,
            ip_len,
            wire_len,
            subscriber: hop.subscriber,
            class: hop.class,
            port: PortIndex(hop.port as u16),
            originated: hop.originated,
        };
        if let Some(link) = hop.cluster {
            if self.ports[hop.port].is_others {
                return self.hand_on(hop.port, Taker::Cluster(link), queued, hop.pin);
            }
            return self.queue_for_cluster(link, queued);
        }
        self.enqueue_at(self.ports[hop.port].link_at, queued, hop.pin, at);
    }

    fn send_fragments(
        &mut self,
        packet: UnroutedPacket,
        headers: &Headers,
        hop: &ResolvedHop<'_>,
        at: Nanos,
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(self.pool.bytes(&packet.frame));
        let from = packet.port.index();
        let mut sent = 0;
        let result = fragment_ipv4(&scratch, headers, hop.mtu, |fragment| {
            let frame = self.pool.alloc_for(fragment.frame_len()).ok_or(Reason::NoBuffer)?;
            // The buffer was made exactly as long as the fragment.
            let _ = fragment.write_into(self.pool.bytes_mut(&frame));
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
}
