//! What PDRR drops, and where: the end of the buffer, and the heads of queues that stand.

use super::super::ack_filter::superfluous;
use super::super::buffer::Victim;
use super::super::slab::{Unlinked, counted};
use super::super::{DropSink, Waiting};
use super::Pdrr;
use crate::aqm::elastic::Now;
use crate::aqm::{Round, Verdict};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::reason::Reason;
use crate::units::{Bytes, Nanos};

impl<P: Packet> Pdrr<P> {
    /// Whether the buffer takes another packet of this length.
    #[inline]
    pub(super) fn has_room(&self, length: Bytes) -> bool {
        let held = self.elastic.packets as u32 + self.priority.packets;
        let bytes = self.elastic.bytes + self.priority.bytes;
        self.room.fits(self.busy as u64, held, bytes, length)
    }

    /// Makes room for a packet of this length. Whether there is enough.
    #[cold]
    pub(super) fn make_room(
        &mut self,
        now: Nanos,
        length: Bytes,
        dropped: &mut dyn DropSink<P>,
    ) -> bool {
        while !self.has_room(length) {
            if !self.room.takes(length) || !self.shed(now, dropped) {
                return false;
            }
        }
        true
    }

    /// The longest flow FIFO, within a thirty-second, loses a packet. Whether there was one.
    pub(super) fn shed(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> bool {
        let id = loop {
            let Some(candidate) = self.longest.candidate() else { return false };
            let id = EntryId::from_link(candidate);
            let flow = self.flows.get_mut(id);
            if self.longest.confirm(candidate, &mut flow.place, flow.fifo.bytes) {
                break id;
            }
        };
        if self.config.aqm.is_on() {
            let judge = self.judge(now, id);
            judge.overflowed(&mut self.flows.get_mut(id).aqm);
        }
        let fifo = &self.flows.get(id).fifo;
        let at = match self.config.buffer.victim {
            Victim::Head => fifo.head(),
            Victim::Tail => fifo.tail(),
        };
        let Some(packet) = self.take(now, id, at) else { return false };
        dropped.dropped(packet, Reason::LongestFlow);
        self.look_ahead();
        true
    }

    /// Drops an acknowledgement that the last packet of a flow's FIFO makes superfluous.
    pub(super) fn filter(&mut self, now: Nanos, id: EntryId, dropped: &mut dyn DropSink<P>) {
        let fifo = &self.flows.get(id).fifo;
        if let Some(at) = superfluous(&self.slab, fifo)
            && let Some(packet) = self.take(now, id, at)
        {
            dropped.dropped(packet, Reason::SuperfluousAck);
            self.look_ahead();
        }
    }

    /// Takes the packet of a node out of a flow's FIFO.
    fn take(&mut self, now: Nanos, id: EntryId, at: u32) -> Option<P> {
        let flow = self.flows.get_mut(id);
        let (packet, _) = self.slab.take(&mut flow.fifo, at)?;
        self.elastic.packets -= 1;
        self.elastic.bytes -= Bytes(counted(&packet).into());
        if flow.fifo.is_empty() {
            flow.empties(now);
            self.emptied(id);
        }
        Some(packet)
    }

    /// A flow's FIFO ran empty.
    #[inline]
    pub(super) fn emptied(&mut self, id: EntryId) {
        self.busy -= 1;
        if let Some(hosts) = &mut self.hosts {
            hosts.empties(id);
        }
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

    /// The first packet of a flow's FIFO that the AQM lets go. `None`: it dropped all there were.
    pub(super) fn serve_short(
        &mut self,
        now: Nanos,
        id: EntryId,
        dropped: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let judge = self.judge(now, id);
        let Self { flows, slab, elastic, coin, .. } = self;
        let flow = flows.get_mut(id);
        let mut round = Round::default();
        let mut given = None;
        while let Some(Unlinked { at, length, .. }) = slab.unlink(&mut flow.fifo) {
            elastic.packets -= 1;
            elastic.bytes -= length;
            let Some(mut packet) = slab.release(at) else { break };
            let found = (packet.arrival(), flow.fifo.bytes, packet.ecn());
            let (verdict, blue) = judge.judge(&mut flow.aqm, &mut round, found, coin.flip());
            if verdict == Verdict::Drop {
                // Nobody pays for what was not sent.
                let reason = if blue { Reason::Unresponsive } else { Reason::StandingQueue };
                dropped.dropped(packet, reason);
                continue;
            }
            if verdict == Verdict::Mark {
                packet.mark();
            }
            flow.spends(length);
            if let Some(hosts) = &mut self.hosts {
                hosts.spends(id, length);
            }
            given = Some(packet);
            break;
        }
        if flow.fifo.is_empty() {
            flow.empties(now);
            judge.emptied(&mut flow.aqm);
            self.emptied(id);
        }
        given
    }
}
