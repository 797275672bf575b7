//! Packets whose route leaves by an interface that is no port: the kernel forwards them, as if they
//! had only now arrived.

use evenkeel_net::checksum;
use evenkeel_ports::Port;

use super::Pipeline;
use super::packet::UnroutedPacket;
use super::parsed::PacketMeta;
use crate::watch::Point;

impl Pipeline {
    /// Keeps a packet for the kernel; gives it back if the kernel cannot be given any.
    #[cold]
    pub(super) fn leave_elsewhere(
        &mut self,
        packet: UnroutedPacket,
        meta: &PacketMeta,
    ) -> Option<UnroutedPacket> {
        // What a cluster shares leaves by its links or not at all.
        let closed = self.cluster.is_some() || self.balancer.is_some();
        if packet.originated || closed || !self.ports[packet.port.index()].hands_over {
            return Some(packet);
        }
        let mut packet = packet;
        if packet.frame.partial_checksum() && !packet.frame.is_described() {
            // The kernel could not know.
            if let Some(headers) = self.headers(&packet) {
                let bytes = self.pool.bytes_mut(&packet.frame);
                let _ = checksum::complete_l4(bytes, &headers);
            }
            packet.frame.set_partial_checksum(false);
        }
        if self.is_watched() {
            let (port, at) = (packet.port.index(), packet.arrival);
            let text = "given to the kernel, which forwards it".to_owned();
            self.seen_at(port, at, Point::Kernel, text, None, Some(&packet));
        }
        self.routing.goes_elsewhere(meta.destination);
        let slot = &mut self.ports[packet.port.index()];
        slot.count.to_host += 1;
        slot.count.elsewhere += 1;
        slot.elsewhere.push_back(packet.frame);
        None
    }

    /// Gives the kernel what was kept for it in this round.
    pub(super) fn hand_over<P: Port>(&mut self, ports: &mut [P]) {
        if !self.routing.has_elsewhere() {
            return;
        }
        for (slot, port) in self.ports.iter_mut().zip(ports) {
            if !slot.elsewhere.is_empty() {
                slot.count.elsewhere_lost +=
                    port.hand_over(&mut self.pool, &mut slot.elsewhere) as u64;
            }
        }
    }
}
