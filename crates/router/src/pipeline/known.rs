//! Packets of [known](super::flow_cache) flows that are judged or measured on their way from their
//! port to their link. The others go [straight](super::straight).

use evenkeel_core::admit::Pin;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::link::Framing;
use evenkeel_core::packet::{Ecn, Places};
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet};
use evenkeel_net::{PortIndex, rewrite};
use evenkeel_ports::Frame;

use super::Pipeline;
use super::cycles::{Stage, processing_class};
use super::flow_cache::{Probe, Way};
use super::packet::{Acks, ETHERNET_HEADER, PacketRecord, UnroutedPacket, wire_len};

impl Pipeline {
    /// Forwards a packet of a known flow where it is judged or measured.
    pub(super) fn forward_known(&mut self, mut packet: UnroutedPacket, probe: &Probe, way: &Way) {
        let (class, hash) = (probe.class, probe.hash);
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
        packet.frame.trim(frame_len(probe));
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
        let arrival = packet.arrival;
        let mut known = KnownPacket::new(probe, arrival, way.port, framing);
        known.subscriber = subscriber;
        self.enqueue_at(link, known.record(packet.frame), known.pin(), arrival);
    }
}

/// A packet of a known flow on its way to its link, before it is known whether it has to wait
/// there: what is asked of it is made then.
pub(super) struct KnownPacket<'a> {
    pub(super) probe: &'a Probe,
    /// The port it leaves by.
    pub(super) port: u16,
    pub(super) arrival: Nanos,
    /// What the line of its link takes for it, bytes.
    pub(super) wire_len: u32,
    /// Whose it is, on a link with a tree of subscribers.
    pub(super) subscriber: u32,
}

impl<'a> KnownPacket<'a> {
    /// On its way to a link by `port`, whose line adds to it as `framing` says.
    #[inline(always)] // what is not asked for is not made
    pub(super) fn new(probe: &'a Probe, arrival: Nanos, port: u16, framing: Framing) -> Self {
        let wire_len = framing.of(probe.ip_len.into()).0 as u32;
        Self { probe, port, arrival, wire_len, subscriber: probe.subscriber }
    }

    /// What is known of it where it waits.
    #[inline(always)] // or it is copied once more
    pub(super) fn record(&self, frame: Frame) -> PacketRecord {
        let Self { probe, port, arrival, wire_len, subscriber } = *self;
        PacketRecord {
            frame,
            flow: probe.flow.packed(),
            flow_hash: probe.hash,
            arrival,
            ip_len: probe.ip_len.into(),
            wire_len,
            subscriber,
            queue_place: probe.places.queue,
            class: probe.class,
            port: PortIndex(port),
            ecn: probe.ecn,
            marked: false,
            acks: Acks::default(),
            originated: false,
        }
    }

    /// The way that is known of it, for a list of flows: there is no other to choose.
    #[inline]
    pub(super) fn pin(&self) -> Pin {
        Pin { next_hop: 0, ttl: self.probe.ttl }
    }
}

impl Packet for KnownPacket<'_> {
    #[inline]
    fn ip_len(&self) -> Bytes {
        Bytes(self.probe.ip_len.into())
    }

    #[inline]
    fn wire_len(&self) -> Bytes {
        Bytes(self.wire_len.into())
    }

    #[inline]
    fn class(&self) -> Class {
        self.probe.class
    }

    fn flow(&self) -> FlowKey {
        self.packed_flow().unpack()
    }

    fn packed_flow(&self) -> PackedFlow {
        self.probe.flow.packed()
    }

    #[inline]
    fn is_of(&self, flow: &PackedFlow) -> bool {
        let (addresses, ports, protocol) = self.probe.flow.parts();
        flow.is_v4_of(addresses, ports, protocol)
    }

    #[inline]
    fn flow_hash(&self) -> u64 {
        self.probe.hash
    }

    #[inline]
    fn places(&self) -> Places {
        self.probe.places
    }

    #[inline]
    fn subscriber(&self) -> u32 {
        self.subscriber
    }

    #[inline]
    fn arrival(&self) -> Nanos {
        self.arrival
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        self.probe.ecn
    }
}

/// Bytes of the frame up to the end of the IP packet.
pub(super) fn frame_len(probe: &Probe) -> usize {
    ETHERNET_HEADER as usize + usize::from(probe.ip_len)
}
