//! What PFQ drops, and where: the end of the buffer, and the heads of queues that stand.

use super::super::ack_filter::superfluous;
use super::super::buffer::Victim;
use super::super::slab::{NIL, counted};
use super::super::{DropSink, Waiting};
use super::Pfq;
use crate::aqm::elastic::Now;
use crate::aqm::{Round, Verdict};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::reason::Reason;
use crate::units::{Bytes, Nanos};

impl<P: Packet> Pfq<P> {
    /// The flow with the longest backlog loses a packet. Whether there was one.
    pub(super) fn shed(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> bool {
        let (id, flow) = loop {
            let Some(candidate) = self.longest.candidate() else { return false };
            let id = EntryId::from_link(candidate);
            let flow = self.flows.get_mut(id);
            let backlog = flow.backlog();
            if self.longest.confirm(candidate, &mut flow.place, backlog) {
                break (id, *flow);
            }
        };
        if self.config.aqm.is_on() {
            let judge = self.judge(now, id);
            judge.overflowed(&mut self.aqm[id.index()]);
        }
        let packet = match self.config.buffer.victim {
            Victim::Head if flow.first != NIL => self.lose_priority(flow.first),
            Victim::Head => self.lose_elastic(id, flow.fifo.head()),
            Victim::Tail if flow.fifo.is_empty() => self.lose_priority(flow.last),
            Victim::Tail => self.lose_elastic(id, flow.fifo.tail()),
        };
        let Some(packet) = packet else { return false };
        self.refund(id, Bytes(counted(&packet).into()));
        dropped.dropped(packet, Reason::LongestFlow);
        true
    }

    /// Drops an acknowledgement that the last of a flow's elastic packets makes superfluous.
    pub(super) fn filter(&mut self, id: EntryId, dropped: &mut dyn DropSink<P>) {
        let fifo = &self.flows.get(id).fifo;
        if let Some(at) = superfluous(&self.slab, fifo)
            && let Some(packet) = self.lose_elastic(id, at)
        {
            self.refund(id, Bytes(counted(&packet).into()));
            dropped.dropped(packet, Reason::SuperfluousAck);
        }
    }

    /// Takes a packet that is dropped out of the priority queue.
    fn lose_priority(&mut self, at: u32) -> Option<P> {
        let (packet, tag) = self.slab.take(&mut self.priority, at)?;
        self.gone(Bytes(counted(&packet).into()), tag);
        Some(packet)
    }

    /// Takes a packet that is dropped out of a flow's elastic ones.
    fn lose_elastic(&mut self, id: EntryId, at: u32) -> Option<P> {
        let flow = self.flows.get_mut(id);
        let (packet, _) = self.slab.take(&mut flow.fifo, at)?;
        self.total.packets -= 1;
        self.total.bytes -= Bytes(counted(&packet).into());
        if flow.fifo.is_empty() {
            self.busy -= 1;
            if let Some(hosts) = &mut self.hosts {
                hosts.waits(id, false);
            }
        }
        Some(packet)
    }

    /// A flow does not pay for a packet that it lost: its tag is what it would be without it, and
    /// so are the stamps of what waits behind it.
    fn refund(&mut self, id: EntryId, length: Bytes) {
        self.flows.get_mut(id).finish -= length.0;
    }

    /// What the queue of a flow is judged by at `now`.
    #[inline]
    fn judge(&self, now: Nanos, flow: EntryId) -> Now {
        let queues = match &self.hosts {
            None => self.busy as u64 + self.elsewhere / Waiting::ONE,
            Some(hosts) => hosts.queues(flow, self.elsewhere),
        };
        Now::new(&self.config.aqm, self.pace, queues, now)
    }

    /// The first elastic packet that the AQM lets go of the flow which comes first. `None`: it
    /// dropped all there were.
    pub(super) fn serve_short(
        &mut self,
        now: Nanos,
        id: EntryId,
        dropped: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let judge = self.judge(now, id);
        let mut round = Round::default();
        loop {
            let flow = self.flows.get(id);
            let head = flow.fifo.head();
            if flow.fifo.is_empty() {
                judge.emptied(&mut self.aqm[id.index()]);
                return None;
            }
            let packet = self.slab.packet(head)?;
            let left = flow.fifo.bytes - Bytes(counted(packet).into());
            let found = (packet.arrival(), left, packet.ecn());
            let aqm = &mut self.aqm[id.index()];
            let (verdict, blue) = judge.judge(aqm, &mut round, found, self.coin.flip());
            if verdict == Verdict::Drop {
                let packet = self.lose_elastic(id, head)?;
                self.refund(id, Bytes(counted(&packet).into()));
                let reason = if blue { Reason::Unresponsive } else { Reason::StandingQueue };
                dropped.dropped(packet, reason);
                continue;
            }
            if left == Bytes::ZERO {
                judge.emptied(aqm);
            }
            let mut packet = self.serve_elastic(id)?;
            if verdict == Verdict::Mark {
                packet.mark();
            }
            return Some(packet);
        }
    }
}
