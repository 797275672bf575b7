//! A packet enters its outgoing link, or is refused there, or goes by the second link.

use evenkeel_core::admit::{Pin, Verdict, Waiting};
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::schedule::{AnyScheduler, Scheduler, Sharing, Treated};
use evenkeel_core::{Bytes, FlowKey, Nanos, Reason};
use evenkeel_net::{PortIndex, rewrite};
use evenkeel_ports::FramePool;

use super::Pipeline;
use super::packet::{QueuedPacket, wire_len_of};
use super::parsed::Classifier;
use super::subscribers::Behind;
use crate::mirror::NeighbourRequest;

/// The queues of a link, as its admission asks them.
struct Queues<'a> {
    scheduler: &'a AnyScheduler<QueuedPacket>,
    classifier: &'a Classifier,
}

impl Waiting for Queues<'_> {
    fn of_flow(&self, flow: &FlowKey) -> Bytes {
        self.scheduler.flow_backlog(flow, self.classifier.hash(flow))
    }

    fn sharing(&self, subscriber: u32) -> Option<Sharing> {
        self.scheduler.sharing(subscriber)
    }
}

impl QueuedPacket {
    /// Looks whose it is, if that is not known.
    #[inline]
    fn find_subscriber(&mut self, behind: &Behind, pool: &FramePool) {
        if self.subscriber == UNKNOWN {
            self.subscriber = behind.place_of(&self.flow, pool.bytes(&self.frame));
        }
    }
}

impl Pipeline {
    /// Asks the admission of the link of `port`, where the packet arrives at `at`. `pin` is the
    /// chosen path and the TTL that it came with.
    #[inline]
    pub(super) fn admit(&mut self, port: usize, mut queued: QueuedPacket, pin: Pin, at: Nanos) {
        let slot = &mut self.ports[port];
        slot.admit_until(at, &mut self.pool);
        let at = self.agenda.entry_time(at);
        if let Some(behind) = &slot.behind {
            queued.find_subscriber(behind, &self.pool);
        }
        let Some(admission) = &mut slot.admission else {
            let _ = self.enter_known(port, queued, at);
            return;
        };
        let waiting = Queues { scheduler: slot.link.scheduler(), classifier: &self.classifier };
        match admission.decide(at, &queued, pin, &waiting, &mut self.admissions.lists) {
            Verdict::Pass => {
                let treated = self.enter_known(port, queued, at);
                if let Some(admission) = &mut self.ports[port].admission {
                    admission.treated(at, treated, &mut self.admissions.lists);
                }
            }
            Verdict::Refuse(reason) => self.refuse_at_link(port, queued, reason, at),
            Verdict::Divert => self.divert(port, queued, at),
        }
    }

    /// A packet enters a link without being asked. How it was treated is in the link's meters, too.
    #[inline(always)] // or the packet is copied once more
    pub(super) fn enter(&mut self, port: usize, mut queued: QueuedPacket, at: Nanos) -> Treated {
        if let Some(behind) = &self.ports[port].behind {
            queued.find_subscriber(behind, &self.pool);
        }
        self.enter_known(port, queued, at)
    }

    /// The same of a packet whose subscriber has been looked for.
    #[inline(always)] // or the packet is copied once more
    fn enter_known(&mut self, port: usize, mut queued: QueuedPacket, at: Nanos) -> Treated {
        self.agenda.touch(port);
        if self.watching.is_some() {
            self.watch_queued(port, &queued, at);
        }
        let slot = &mut self.ports[port];
        slot.busiest.see(&queued);
        let room = slot.room.saturating_sub(slot.tx.len());
        if let Some(treated) = slot.link.pass(at, &queued, room) {
            if let Some(line) = &mut slot.line {
                line.leaves(at, &queued, self.pool.bytes(&queued.frame));
            }
            if let Some(seen) = &mut slot.seen {
                seen.left(at, &queued, self.pool.bytes(&queued.frame), None);
            }
            slot.tx.push_back(queued.leave(&mut self.pool));
            return treated;
        }
        if slot.link.scheduler().reads_acks() {
            queued.note_ack(self.pool.bytes(&queued.frame));
        }
        let (link, mut egress) = slot.outgoing(&mut self.pool);
        link.queue(at, queued, &mut egress)
    }

    fn refuse_at_link(&mut self, port: usize, queued: QueuedPacket, reason: Reason, at: Nanos) {
        let (link, mut egress) = self.outgoing(port);
        link.refuse(at, queued, reason, &mut egress);
    }

    /// Sends a packet by the second link of `port`. Its next hop there must be known: no packet
    /// waits for it.
    fn divert(&mut self, port: usize, queued: QueuedPacket, at: Nanos) {
        let admission = self.settings.links[port].admission.as_ref();
        let to = admission.and_then(|admission| {
            let second = &admission.second_link;
            let name = &second.port.as_ref()?.0;
            let to = self.ports.iter().position(|slot| slot.name == *name)?;
            Some((to, second.via.unwrap_or(queued.flow.unpack().destination)))
        });
        let Some((to, via)) = to.filter(|(to, _)| self.ports[*to].up) else {
            return self.refuse_at_link(port, queued, Reason::LinkDown, at);
        };
        let Some(mac) = self.neighbours.mac(PortIndex(to as u16), via) else {
            let request = NeighbourRequest { port: PortIndex(to as u16), address: via };
            self.neighbours.want(request);
            return self.refuse_at_link(port, queued, Reason::HostUnreachable, at);
        };
        if queued.ip_len > self.ports[to].mtu {
            return self.refuse_at_link(port, queued, Reason::TooBig, at);
        }
        let bytes = self.pool.bytes_mut(&queued.frame);
        if let Err(reason) = rewrite::set_macs(bytes, self.ports[to].mac, mac) {
            return self.refuse_at_link(port, queued, reason, at);
        }
        let slot = &mut self.ports[to];
        let wire_len = wire_len_of(slot.link.framing(), &queued.frame).0 as u32;
        let queued =
            QueuedPacket { wire_len, subscriber: UNKNOWN, port: PortIndex(to as u16), ..queued };
        slot.control_until(at, &mut self.pool);
        slot.admit_until(at, &mut self.pool);
        let _ = self.enter(to, queued, at);
    }
}
