//! Where the forwarder of a cluster meets ports and links.

use evenkeel_core::{Nanos, Reason};
use evenkeel_net::PortIndex;

use super::Pipeline;
use super::packet::{QueuedPacket, UnroutedPacket};
use super::port::LinkState;

impl Pipeline {
    /// Takes a frame of the exchange; gives any other back.
    pub(super) fn take_exchange_frame(&mut self, packet: UnroutedPacket) -> Option<UnroutedPacket> {
        let Some(role) = &mut self.cluster else { return Some(packet) };
        let frame = self.pool.bytes(&packet.frame);
        if !role.is_exchange(packet.port, frame) {
            return Some(packet);
        }
        self.ports[packet.port.index()].count.exchange_received += 1;
        // A copy, because the engine may need the pool while it reads.
        self.scratch.clear();
        self.scratch.extend_from_slice(frame);
        role.receive(self.agenda.last_round(), &self.scratch, &mut self.pool);
        self.pool.release(packet.frame);
        None
    }

    /// A packet enters the queue of one of the cluster's links.
    pub(super) fn queue_for_cluster(&mut self, link: u16, packet: QueuedPacket) {
        match &mut self.cluster {
            Some(role) => role.enqueue(link, packet, &mut self.pool),
            None => self.pool.release(packet.into_frame()),
        }
    }

    /// Runs the engine, and sends what it broadcasts and what it has granted. `horizon` is where
    /// the links have got to.
    pub(super) fn run_cluster(&mut self, now: Nanos, horizon: Nanos) {
        let Some(role) = &mut self.cluster else { return };
        role.run_engine(now, &mut self.pool);
        self.send_exchange();
        while let Some((port, packet)) =
            self.cluster.as_mut().and_then(|role| role.pop_granted(now))
        {
            self.enter(port, packet, self.agenda.entry_time(horizon));
        }
    }

    /// Puts frames of the exchange before everything else that waits for their port.
    fn send_exchange(&mut self) {
        let Some(role) = self.cluster.as_mut().filter(|role| role.has_outbox()) else { return };
        let at = role.port();
        let slot = &mut self.ports[at];
        for frame in role.drain_outbox() {
            if slot.up {
                slot.count.exchange_sent += 1;
                slot.tx.push_front(frame);
            } else {
                self.pool.release(frame);
            }
        }
        self.agenda.touch(at);
    }

    /// A port came up, went down or has another address. The exchange begins when its port is up
    /// for the first time; what was to leave by a port that went down is dropped.
    pub(super) fn cluster_port_changed(
        &mut self,
        now: Nanos,
        port: PortIndex,
        link: Option<LinkState>,
    ) {
        let Some(role) = &mut self.cluster else { return };
        match link.filter(|link| link.up) {
            Some(link) if port.index() == role.port() => {
                if let Err(error) = role.set_port_address(now, link.mac.0) {
                    // `ClusterRole::new` has checked all that it checks.
                    debug_assert!(false, "{error}");
                }
            }
            Some(_) => {}
            None => role.drop_queues(Some(port), Reason::LinkDown, &mut self.pool),
        }
    }
}
