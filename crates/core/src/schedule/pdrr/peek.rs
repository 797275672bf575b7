//! Which packet goes next, without turning the list.

use super::flow::Flow;
use super::{FICTITIOUS, Pdrr};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::units::Bytes;

impl<P: Packet> Pdrr<P> {
    /// IP length of the packet that goes next.
    pub(super) fn next_len(&self) -> Option<Bytes> {
        if let Some(packet) = self.slab.packet(self.priority.head()) {
            return Some(packet.ip_len());
        }
        let in_service = self.current.map(|id| self.flows.get(id));
        if let Some(flow) = in_service
            && flow.may_send()
            && let Some(head) = self.slab.packet(flow.fifo.head())
        {
            return Some(head.ip_len());
        }
        if self.hosts.is_some() {
            let head = self.current.map(|id| self.flows.get(id).fifo.head());
            return head.and_then(|head| self.slab.packet(head)).map(Packet::ip_len);
        }
        let waiting = self.turns.iter().filter(|member| *member != FICTITIOUS);
        let waiting = waiting.map(|member| self.flows.get(EntryId::from_link(member)));
        // The first of the smallest.
        waiting
            .chain(in_service)
            .filter_map(|flow| self.rounds(flow))
            .min_by_key(|(rounds, _)| *rounds)
            .map(|(_, len)| len)
    }

    /// How many visits of its flow pass before the head of a FIFO goes.
    fn rounds(&self, flow: &Flow) -> Option<(i64, Bytes)> {
        let head = self.slab.packet(flow.fifo.head())?;
        let lacks = (i64::from(flow.fifo.head_len()) - i64::from(flow.deficit)).max(1);
        Some(((lacks as u64).div_ceil(self.config.quantum.0) as i64, head.ip_len()))
    }
}
