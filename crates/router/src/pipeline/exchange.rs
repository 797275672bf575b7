//! Where the forwarder of a cluster meets ports and links.

use evenkeel_core::{Nanos, Reason};
use evenkeel_net::PortIndex;
use evenkeel_ports::{Frame, FramePool};

use super::Pipeline;
use super::cluster::ClusterRole;
use super::packet::{PacketRecord, UnroutedPacket};
use super::port::{LinkState, PortSlot};

impl Pipeline {
    /// Takes a frame of the exchange; gives any other back.
    pub(super) fn take_exchange_frame(&mut self, packet: UnroutedPacket) -> Option<UnroutedPacket> {
        let frame = self.pool.bytes(&packet.frame);
        let forwarder =
            self.cluster.as_ref().is_some_and(|role| role.is_exchange(packet.port, frame));
        let balancer =
            self.balancer.as_ref().is_some_and(|role| role.is_exchange(packet.port, frame));
        if !forwarder && !balancer {
            return Some(packet);
        }
        let at = packet.port.index();
        self.ports[at].count.exchange_received += 1;
        if self.is_first() {
            let now = self.agenda.last_round();
            // A copy, because the engine may need the pool while it reads.
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            scratch.extend_from_slice(frame);
            self.receive_exchange(now, &scratch);
            self.scratch = scratch;
        } else {
            self.hand_exchange_on(at, &packet.frame);
        }
        self.pool.release(packet.frame);
        None
    }

    /// A frame of the exchange, which has come to this worker or to another.
    pub(super) fn receive_exchange(&mut self, now: Nanos, frame: &[u8]) {
        if let Some(role) = &mut self.balancer {
            role.receive(now, frame);
        }
        if let Some(role) = &mut self.cluster {
            role.receive(now, frame, &mut self.pool);
        }
    }

    /// A packet enters the queue of one of the cluster's links.
    pub(super) fn queue_for_cluster(&mut self, link: u16, packet: PacketRecord) {
        self.ports[packet.port.index()].busiest.see(&packet);
        match &mut self.cluster {
            Some(role) => role.enqueue(link, self.pool.queued(packet), &mut self.pool),
            None => self.pool.release(packet.frame),
        }
    }

    /// Whether the router is a forwarder of a cluster or its balancer.
    #[inline]
    pub(super) const fn has_role(&self) -> bool {
        self.cluster.is_some() || self.balancer.is_some()
    }

    /// Runs the engine, and sends what it broadcasts and what it has granted. `horizon` is where
    /// the links have got to.
    pub(super) fn run_roles(&mut self, now: Nanos, horizon: Nanos) {
        if let Some(role) = &mut self.balancer {
            role.run(now, &mut self.pool);
        }
        if let Some(role) = &mut self.cluster {
            role.run_engine(now, &mut self.pool);
        }
        let entry = self.agenda.entry_time(horizon);
        // What a window that is over still has leaves before the state that opens the next one.
        let mut behind = false;
        while let Some((port, packet)) =
            self.cluster.as_mut().and_then(ClusterRole::pop_of_old_window)
        {
            let packet = self.pool.opened(packet);
            let _ = self.enter(port, packet, entry);
            // When the link has more to do is asked when the round's links advance.
            let _ = self.ports[port].advance(entry, &mut self.pool);
            behind = true;
        }
        self.send_exchange(behind);
        while let Some((port, packet)) =
            self.cluster.as_mut().and_then(|role| role.pop_granted(now))
        {
            let packet = self.pool.opened(packet);
            let _ = self.enter(port, packet, entry);
        }
    }

    /// Puts frames of the exchange before everything else that waits for their port, or behind.
    fn send_exchange(&mut self, behind: bool) {
        if let Some(role) = self.cluster.as_mut().filter(|role| role.has_outbox()) {
            let at = role.port();
            let slot = &mut self.ports[at];
            let before = if behind { slot.tx.len() } else { 0 };
            push_at(before, slot, &mut self.pool, role.drain_outbox());
            self.agenda.touch(at);
        }
        if let Some(role) = self.balancer.as_mut().filter(|role| role.has_outbox()) {
            let at = role.port();
            push_at(0, &mut self.ports[at], &mut self.pool, role.drain_outbox());
            self.agenda.touch(at);
        }
    }

    /// A port came up, went down or has another address. The exchange begins when its port is up
    /// for the first time; what was to leave by a port that went down is dropped.
    pub(super) fn cluster_port_changed(
        &mut self,
        now: Nanos,
        port: PortIndex,
        link: Option<LinkState>,
    ) {
        if !self.is_first() {
            // One worker speaks for all, and has what waits.
            return;
        }
        if let (Some(role), Some(link)) = (&mut self.balancer, link.filter(|link| link.up))
            && port.index() == role.port()
        {
            role.set_port_address(now, link.mac.0);
        }
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

/// Puts frames of the exchange, the last one first, behind so many that wait for their port.
fn push_at(
    before: usize,
    slot: &mut PortSlot,
    pool: &mut FramePool,
    frames: impl Iterator<Item = Frame>,
) {
    for frame in frames {
        if slot.up {
            slot.count.exchange_sent += 1;
            slot.tx.insert(before, frame);
        } else {
            pool.release(frame);
        }
    }
}
