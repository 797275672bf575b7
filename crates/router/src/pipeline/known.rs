//! The short way of packets of [known](super::flow_cache) flows, from their port to their link.
//!
//! Where nobody judges or measures packets on their way, one look at a packet is enough: who sent
//! it to whom on the wire is compared, time to live, checksum and addresses are changed, and the
//! link has it. Whatever is not as expected goes [the way of all others](Pipeline::receive), with
//! nothing changed; what both ways do to a packet, a test holds to each other.

use evenkeel_core::admit::Pin;
use evenkeel_net::{PortIndex, frame, rewrite};

use super::Pipeline;
use super::cycles::{Stage, processing_class};
use super::fairdrop::FairDrop;
use super::flow_cache::{Known, Probe};
use super::packet::{Acks, ETHERNET_HEADER, QueuedPacket, UnroutedPacket, wire_len};
use super::subscribers::whose_before;

impl Pipeline {
    /// Whether nobody looks at packets between their port and their link.
    pub(super) fn goes_straight(&self) -> bool {
        !self.meter.is_on() && !self.fairdrop.as_ref().is_some_and(FairDrop::is_on)
    }

    /// Forwards a packet of a known flow. `Err`: something is not as usual.
    #[inline]
    pub(super) fn forward_straight(
        &mut self,
        mut packet: UnroutedPacket,
        probe: &Probe,
    ) -> Result<(), UnroutedPacket> {
        // Asked for once: that they are this frame's is checked each time.
        let bytes = self.pool.bytes_mut(&packet.frame);
        let Some((destination, source)) = frame::station_bits(bytes) else { return Err(packet) };
        let from = &self.ports[packet.port.index()];
        let expected = from.up && from.peer.is_none() && destination == from.mac.bits();
        if !expected || self.addresses.is_port(source) {
            return Err(packet);
        }
        let Some(known) = self.flow_cache.known(probe) else { return Err(packet) };
        let link = self.ports[usize::from(known.way.port)].link_at;
        let subscriber = whose_before(&self.ports[link], bytes);
        if rewrite::forward_usual(bytes, &known.way.stations).is_err() {
            return Err(packet);
        }
        let count = &mut self.ports[packet.port.index()].count;
        count.rx_packets += 1;
        count.rx_segments += 1;
        count.rx_bytes += packet.frame.len() as u64;
        count.forwarded += 1;
        self.pool.trim(&mut packet.frame, frame_len(probe));
        self.enqueue_known(packet, probe, &known, subscriber);
        Ok(())
    }

    /// Forwards a packet of a known flow where it is judged or measured.
    pub(super) fn forward_known(
        &mut self,
        mut packet: UnroutedPacket,
        probe: &Probe,
        known: &Known,
    ) {
        let Known { way, class, hash } = *known;
        self.meter.is_of(class);
        let whose = self.whose_cycles(hash, || probe.flow.packed(), &packet.frame);
        if let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on()) {
            let ticket = match fairdrop.judge_cpu(whose, class) {
                Ok(ticket) => ticket,
                Err(reason) => return self.drop(packet, reason),
            };
            self.meter.stage(Stage::Judge);
            let link = self.ports[usize::from(way.port)].link_at;
            let framing = self.ports[link].link.framing();
            let (wire, plain) = (wire_len(framing, frame_len(probe)), processing_class(None));
            let judged = fairdrop.judge_link(link, hash, class, wire, ticket, plain);
            if let Err(reason) = judged {
                return self.drop(packet, reason);
            }
        } else {
            self.meter.stage(Stage::Judge);
        }
        self.pool.trim(&mut packet.frame, frame_len(probe));
        let subscriber = self.subscriber_before(way.port.into(), &packet.frame);
        let bytes = self.pool.bytes_mut(&packet.frame);
        if let Err(reason) = rewrite::forward_usual(bytes, &way.stations) {
            return self.drop(packet, reason);
        }
        self.meter.stage(Stage::Route);
        self.meter.handed_on();
        self.ports[packet.port.index()].count.forwarded += 1;
        self.enqueue_known(packet, probe, known, subscriber);
    }

    #[inline(always)] // or it is a call, and the packet is copied once more
    fn enqueue_known(
        &mut self,
        packet: UnroutedPacket,
        probe: &Probe,
        known: &Known,
        subscriber: u32,
    ) {
        let link = self.ports[usize::from(known.way.port)].link_at;
        let framing = self.ports[link].link.framing();
        let queued = QueuedPacket {
            frame: packet.frame,
            flow: probe.flow.packed(),
            flow_hash: known.hash,
            arrival: packet.arrival,
            ip_len: probe.ip_len.into(),
            wire_len: framing.of(probe.ip_len.into()).0 as u32,
            subscriber,
            class: known.class,
            port: PortIndex(known.way.port),
            ecn: probe.ecn,
            marked: false,
            acks: Acks::default(),
            originated: false,
        };
        let pin = Pin { next_hop: 0, ttl: probe.ttl };
        self.enqueue_at(link, queued, pin, packet.arrival);
    }
}

/// Bytes of the frame up to the end of the IP packet.
fn frame_len(probe: &Probe) -> usize {
    ETHERNET_HEADER as usize + usize::from(probe.ip_len)
}
