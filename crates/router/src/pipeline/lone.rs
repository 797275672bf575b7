//! A packet of a [known](super::flow_cache) flow that is alone in its round, as nearly all are at
//! light load and in simulations. It goes as packets go in [runs](super::straight), each step for
//! it alone: what is asked, kept and counted for many would cost it more than its way.

use evenkeel_core::packet::Places;
use evenkeel_net::rewrite;

use super::Pipeline;
use super::known::{KnownPacket, frame_len};
use super::straight::comes_as_usual;

impl Pipeline {
    /// Forwards the only packet of a round. False: something about it is unusual, or its link has
    /// more to do than to take it; nothing has changed.
    #[inline(never)] // so that it has the registers for itself
    pub(super) fn forward_lone(&mut self) -> bool {
        if !self.goes_straight() || self.looks_at_lines() || !self.flow_cache.is_on() {
            return false;
        }
        let Self { receiver, pool, ports, flow_cache, addresses, agenda, .. } = self;
        let Some(packet) = receiver.lone() else { return false };
        let (received, arrival) = (packet.port.index(), packet.arrival);
        let from = &ports[received];
        let bytes = pool.bytes_mut(&packet.frame);
        let Some(mut probe) = flow_cache.probe(bytes, &packet.frame, packet.port) else {
            return false;
        };
        if !from.up
            || from.peer.is_some()
            || !comes_as_usual(bytes, from.mac.bits(), addresses)
            || !flow_cache.find(&mut probe)
        {
            return false;
        }
        let way = flow_cache.way_of(probe.way);
        let port = way.port;
        let link = ports[usize::from(port)].link_at;
        if !way.takes(&probe)
            || !ports[link].is_plain()
            || rewrite::forward_usual(bytes, &way.stations).is_err()
        {
            return false;
        }
        ports[received].count.forwarded(1, bytes.len() as u64);
        let Some(mut frame) = receiver.take_lone() else { return false };
        frame.trim(frame_len(&probe));
        let slot = &mut ports[link];
        let packet = KnownPacket::new(&probe, arrival, port, slot.link.framing());
        let (_, queue) = slot.enter_lone(&packet, frame, agenda.entry_time(arrival), pool);
        flow_cache.note(&probe, Places { queue, ..probe.places });
        agenda.touch(link);
        true
    }
}
