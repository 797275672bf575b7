//! Packets of [known](super::flow_cache) flows that are judged or measured on their way from their
//! port to their link. The others go [straight](super::straight).

use evenkeel_core::Nanos;
use evenkeel_core::admit::Pin;
use evenkeel_core::link::Framing;
use evenkeel_net::{PortIndex, rewrite};
use evenkeel_ports::Frame;

use super::Pipeline;
use super::cycles::{Stage, processing_class};
use super::flow_cache::{Known, Probe};
use super::packet::{Acks, ETHERNET_HEADER, QueuedPacket, UnroutedPacket, wire_len};

impl Pipeline {
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
        let link = self.ports[usize::from(way.port)].link_at;
        let framing = self.ports[link].link.framing();
        let queued = queued(packet.frame, packet.arrival, probe, known, subscriber, framing);
        let pin = Pin { next_hop: 0, ttl: probe.ttl };
        self.enqueue_at(link, queued, pin, packet.arrival);
    }
}

/// A packet of a known flow, as it waits in its link.
#[inline(always)] // or it is copied once more
pub(super) fn queued(
    frame: Frame,
    arrival: Nanos,
    probe: &Probe,
    known: &Known,
    subscriber: u32,
    framing: Framing,
) -> QueuedPacket {
    QueuedPacket {
        frame,
        flow: probe.flow.packed(),
        flow_hash: known.hash,
        arrival,
        ip_len: probe.ip_len.into(),
        wire_len: framing.of(probe.ip_len.into()).0 as u32,
        subscriber,
        class: known.class,
        port: PortIndex(known.way.port),
        ecn: probe.ecn,
        marked: false,
        acks: Acks::default(),
        originated: false,
    }
}

/// Bytes of the frame up to the end of the IP packet.
pub(super) fn frame_len(probe: &Probe) -> usize {
    ETHERNET_HEADER as usize + usize::from(probe.ip_len)
}
