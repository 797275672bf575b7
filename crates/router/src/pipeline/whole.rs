//! Super-frames: which are kept whole on their way through, and which are cut.
//!
//! A port hands over whole what *some* link may take whole; where a packet goes is known later, and
//! there it is cut if that link is too slow for it, or cannot send it.

use evenkeel_core::Nanos;
use evenkeel_core::link::Framing;
use evenkeel_ports::{Frame, Port};

use super::Pipeline;
use super::forward::ResolvedHop;
use super::packet::{UnroutedPacket, wire_len_of};
use super::parsed::PacketMeta;

/// Disciplines that charge a packet by its bytes, however long it is.
const BY_BYTES: [&str; 4] = ["fifo", "wfq-altq", "pfq", "pdrr"];

impl Pipeline {
    /// Tells the ports how long super-frames may be that they hand over whole. Of those that are
    /// asked in this round, what they take is asked anew.
    #[inline]
    pub(super) fn keep_whole<P: Port>(
        &mut self,
        ports: &mut [P],
        asked: impl Iterator<Item = usize>,
    ) {
        let mut some = false;
        for at in asked {
            let takes_whole = ports[at].takes_whole();
            self.ports[at].takes_whole = takes_whole;
            some |= takes_whole;
        }
        if some {
            self.keep_some_whole(ports);
        }
    }

    fn keep_some_whole<P: Port>(&mut self, ports: &mut [P]) {
        for at in 0..ports.len() {
            let takes_whole = self.ports[at].takes_whole;
            self.ports[at].longest = if takes_whole { self.longest_whole(at) } else { 0 };
        }
        let routed = self.longest_routed();
        for (at, port) in ports.iter_mut().enumerate() {
            let peer = self.ports[at].peer;
            port.keep_whole(peer.map_or(routed, |peer| self.ports[peer].longest));
        }
    }

    /// How many bytes of the wire a super-frame may take that some routed port may send whole.
    fn longest_routed(&self) -> usize {
        // Balancers and clusters count packets; a second link is chosen when there is no time left
        // to cut.
        let second = |link: &evenkeel_config::LinkConfig| {
            link.admission.as_ref().is_some_and(|admission| admission.second_link.port.is_some())
        };
        let single = self.cluster.is_some() || self.balancer.is_some();
        if single || self.settings.links.iter().any(second) {
            return 0;
        }
        let routed = self.ports.iter().filter(|slot| slot.peer.is_none());
        routed.map(|slot| slot.longest).max().unwrap_or(0)
    }

    /// How many bytes of the wire a super-frame may take that is to leave by port `to` whole: what
    /// the slowest rate on its way sends in `split_above`.
    fn longest_whole(&self, to: usize) -> usize {
        let wanted = &self.settings.links[self.ports[to].link_at];
        if !BY_BYTES.contains(&wanted.discipline.name()) {
            return 0;
        }
        let shaper = wanted.core.shaper.map(|shaper| shaper.rate);
        match wanted.core.rate.into_iter().chain(shaper).min() {
            Some(rate) => {
                let bits = u128::from(rate.0) * u128::from(self.settings.split_above.0);
                usize::try_from(bits / 8_000_000_000).unwrap_or(usize::MAX)
            }
            None if self.settings.split_above == Nanos::ZERO => 0,
            None => usize::MAX,
        }
    }

    /// Length of an IP packet, of a super-frame that of its longest segment, bytes.
    pub(super) fn longest_ip_len(&self, packet: &UnroutedPacket, meta: &PacketMeta) -> u32 {
        match packet.frame.segments() {
            1 => meta.ip_len,
            _ => (self.pool.longest_segment(&packet.frame) as u32).saturating_sub(meta.l3.into()),
        }
    }

    /// Whether a super-frame has to be cut for its next hop.
    pub(super) fn must_cut(
        &self,
        packet: &UnroutedPacket,
        meta: &PacketMeta,
        hop: &ResolvedHop<'_>,
    ) -> bool {
        wire_len_of(Framing::ETHERNET, &packet.frame).0 > self.ports[hop.port].longest as u64
            || self.services.of(hop.class).is_some()
            || self.longest_ip_len(packet, meta) > hop.mtu
    }

    /// Cuts a super-frame; from here on its segments are packets like others, as if they had come
    /// in one by one.
    pub(super) fn forward_cut(
        &mut self,
        packet: UnroutedPacket,
        meta: &PacketMeta,
        hop: &ResolvedHop<'_>,
        at: Nanos,
    ) {
        let UnroutedPacket { frame, arrival, port, originated } = packet;
        let segments = frame.segments();
        let count = &mut self.ports[port.index()].count;
        count.cut += 1;
        count.rx_packets += u64::from(segments - 1);
        for number in 0..segments {
            match self.pool.segment(&frame, number) {
                Ok(frame) => {
                    let ip_len = frame.len().saturating_sub(meta.l3.into()) as u32;
                    let meta = PacketMeta { ip_len, ..*meta };
                    let packet = UnroutedPacket { frame, arrival, port, originated };
                    self.forward_to(packet, &meta, hop, at);
                }
                Err(reason) => self.ports[port.index()].count_dropped(originated, reason),
            }
        }
        self.pool.release(frame);
    }
}

/// Length of what is IP of a frame, all segments of a super-frame together, each with its headers.
pub(super) fn ip_len_of(frame: &Frame, meta: &PacketMeta) -> u32 {
    let more = usize::from(frame.segments() - 1);
    let headers = frame.segment_headers().saturating_sub(meta.l3.into());
    meta.ip_len + (more * headers) as u32
}
