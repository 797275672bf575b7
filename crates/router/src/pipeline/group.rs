//! Ports that share a link: one limit over several ports.
//!
//! The packets of all of them wait in the link of one, by its discipline and at its rate, and each
//! knows the port that it leaves by. What leaves the link for another port crosses over to that
//! one at the end of the round.

use evenkeel_core::{Nanos, Reason};

use super::Pipeline;
use super::egress::{OutgoingLink, TX_QUEUE};
use super::port::PortSlot;

/// The ports whose links others use, too.
pub(super) fn shared(ports: &[PortSlot]) -> Vec<usize> {
    let used =
        |at: &usize| ports.iter().enumerate().any(|(o, slot)| o != *at && slot.link_at == *at);
    (0..ports.len()).filter(used).collect()
}

impl Pipeline {
    /// The link of the packets that leave by a port.
    #[inline]
    pub(super) fn link_to(&self, port: usize) -> &OutgoingLink {
        &self.ports[self.ports[port].link_at].link
    }

    /// Drops what waits in a link, unless a port is up that uses it.
    pub(super) fn drain_unless_used(&mut self, now: Nanos, link: usize) {
        if self.ports.iter().any(|slot| slot.link_at == link && slot.up) {
            return;
        }
        let (link, mut egress) = self.outgoing(link);
        link.drain(now, Reason::LinkDown, &mut egress);
    }

    /// Lets the links that ports share do what is due up to `now`, and what has left them cross.
    pub(super) fn finish_shared(&mut self, now: Nanos) {
        for number in 0..self.shared_links.len() {
            let (link, mut egress) = self.outgoing(self.shared_links[number]);
            link.advance(now, &mut egress);
        }
        self.cross();
    }

    /// Links that ports shared may hold packets of several ports, also when they do so no more.
    /// `ports` are, by port of the former pipeline, those of this one.
    pub(super) fn inherit_shared(&mut self, former: &[usize], ports: &[Option<usize>]) {
        self.shared_links.extend(former.iter().filter_map(|at| ports[*at]));
        self.shared_links.sort_unstable();
        self.shared_links.dedup();
    }

    /// Hands what has left shared links to the ports that it leaves by. True: these have something
    /// to send.
    #[inline]
    pub(super) fn cross(&mut self) -> bool {
        !self.shared_links.is_empty() && self.cross_now()
    }

    fn cross_now(&mut self) -> bool {
        let mut crossed = false;
        for number in 0..self.shared_links.len() {
            let at = self.shared_links[number];
            let mut crossing = std::mem::take(&mut self.ports[at].crossing);
            self.ports[at].count.by_others += crossing.len() as u64;
            for (port, frame) in crossing.drain(..) {
                let slot = &mut self.ports[port.index()];
                slot.count.from_others += 1;
                let refused = match slot.up {
                    false => Some(Reason::LinkDown),
                    true => (slot.tx.len() >= TX_QUEUE).then_some(Reason::PortRefused),
                };
                if let Some(reason) = refused {
                    slot.count.tx_dropped[reason.index()] += 1;
                    self.pool.release(frame);
                    continue;
                }
                slot.tx.push_back(frame);
                self.agenda.touch(port.index());
                crossed = true;
            }
            // Its room is kept.
            self.ports[at].crossing = crossing;
        }
        crossed
    }
}
