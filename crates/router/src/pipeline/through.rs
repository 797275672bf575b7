//! Ports that are joined in pairs: what comes in by one leaves by the other, unchanged.
//!
//! So an interface is attached inline, between the kernel and its wire: who routes, translates and
//! answers is the kernel. Here a packet gets a class, and a place in the queue of the link it
//! leaves by. So, too, leaves by a routed port what the kernel sends there itself.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::admit::Pin;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::{Class, FlowKey, Nanos, Reason};
use evenkeel_net::{MacAddr, checksum};

use super::Pipeline;
use super::cycles::{Stage, processing_class};
use super::forward::ResolvedHop;
use super::packet::{ETHERNET_HEADER, UnroutedPacket, wire_len_of};
use super::parsed::Parsed;
use super::whole::ip_len_of;

/// What is not IP, or broken, is for whoever receives it to judge: here it is one flow of the first
/// class.
const NAMELESS: FlowKey = FlowKey {
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    source_port: 0,
    destination_port: 0,
    flow_label: 0,
};

impl Pipeline {
    /// Hands a packet to the link of the port that its own is joined with.
    pub(super) fn pass_through(
        &mut self,
        mut packet: UnroutedPacket,
        parsed: &Parsed,
        to: usize,
        at: Nanos,
    ) {
        if !self.ports[to].up {
            return self.drop(packet, Reason::LinkDown);
        }
        if packet.frame.partial_checksum() && !self.ports[to].takes_whole {
            // Whoever receives it could not know.
            if let Some(headers) = self.headers(&packet) {
                let _ = checksum::complete_l4(self.pool.bytes_mut(&packet.frame), &headers);
            }
            packet.frame.set_partial_checksum(false);
        }
        let link = self.ports[to].link_at;
        let framing = self.ports[link].link.framing();
        let (length, wire) = (packet.frame.len(), wire_len_of(framing, &packet.frame));
        let nameless = PackedFlow::new(&NAMELESS);
        let below;
        let meta = match parsed {
            Parsed::Ip(meta) => Some(meta),
            Parsed::Other => {
                below = self.classifier.parse_below(self.pool.bytes(&packet.frame));
                below.as_ref()
            }
            Parsed::Known(_) | Parsed::Invalid(_) => None,
        };
        let inner;
        let (flow, flow_hash, class, ip_len, ttl) = match meta {
            Some(meta) => {
                let ip_len = ip_len_of(&packet.frame, meta);
                let (flow, hash) = match self.translations.inner(meta.flow_hash, &meta.flow) {
                    Some(flow) => {
                        inner = PackedFlow::new(&flow);
                        (&inner, self.classifier.hash(&flow))
                    }
                    None => (&meta.flow, meta.flow_hash),
                };
                (flow, hash, meta.class, ip_len, meta.ttl)
            }
            None => {
                let ip_len = length.saturating_sub(ETHERNET_HEADER as usize) as u32;
                (&nameless, 0, Class(0), ip_len, 0)
            }
        };
        self.meter.is_of(class);
        let whose = self.whose_cycles(flow_hash, || *flow, &packet.frame);
        if let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on()) {
            let processing = processing_class(self.services.of(class));
            let judged = fairdrop.judge_cpu(whose, class).and_then(|ticket| {
                fairdrop.judge_link(link, flow_hash, class, wire, ticket, processing)
            });
            if let Err(reason) = judged {
                return self.drop(packet, reason);
            }
        }
        self.meter.stage(Stage::Judge);
        self.meter.stage(Stage::Route);
        self.meter.handed_on();
        self.ports[packet.port.index()].count.forwarded += 1;
        let hop = ResolvedHop {
            port: to,
            mac: MacAddr::default(),
            mtu: u32::MAX,
            flow,
            flow_hash,
            class,
            subscriber: UNKNOWN,
            pin: Pin { next_hop: 0, ttl },
            cluster: None,
            // Only the kernel's own leaves by a port that is routed otherwise.
            originated: self.ports[to].peer.is_none(),
        };
        self.enqueue(packet.frame, packet.arrival, ip_len, &hop, at);
    }
}
