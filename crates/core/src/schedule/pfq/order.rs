//! Which flow is served next, and when flows cease to be listed.

use super::flow::{Flow, Tag};
use super::{AHEAD, Pfq};
use crate::aqm::Codel;
use crate::flow_table::{EntryId, PackedFlow};
use crate::packet::{Packet, Places};
use crate::schedule::DropSink;
use crate::schedule::calendar::GRAIN;
use crate::schedule::flow_list::FlowList;
use crate::schedule::hosts::Hosts;
use crate::schedule::longest::Longest;
use crate::schedule::slab::{NIL, Unlinked};
use crate::units::Bytes;

impl<P: Packet> Pfq<P> {
    /// The flow whose elastic packet goes next, which comes first in the calendar then. `None`:
    /// there is none.
    pub(super) fn next_flow(&mut self) -> Option<EntryId> {
        while self.busy > 0 {
            let member = self.service.first()?;
            let id = EntryId::from_link(member);
            let flow = self.flows.get(id);
            let due = self.service.is_due(flow.start());
            if due && !flow.fifo.is_empty() {
                return Some(id);
            }
            self.service.pop();
            if due {
                self.end(member);
            } else {
                let key = flow.key();
                self.service.push(self.virtual_time, key, member);
            }
        }
        None
    }

    /// The flow that [`next_flow`](Self::next_flow) finds, without moving anyone.
    pub(super) fn peek_flow(&self) -> Option<&Flow> {
        let mut moved: Option<(u64, &Flow)> = None;
        for (end, member) in self.service.iter() {
            if moved.is_some_and(|(key, _)| key + GRAIN < end) {
                break;
            }
            let flow = self.flows.get(EntryId::from_link(member));
            match flow.start() {
                _ if flow.fifo.is_empty() => {}
                key if key < end => return Some(flow),
                // It will stand behind those that are in its bucket.
                key if moved.is_none_or(|(first, _)| key / GRAIN < first / GRAIN) => {
                    moved = Some((key, flow));
                }
                _ => {}
            }
        }
        moved.map(|(_, flow)| flow)
    }

    /// The first priority packet, to be sent. Its stamp is the virtual time: that does not move
    /// while one waits.
    pub(super) fn serve_priority(&mut self) -> Option<P> {
        let Unlinked { at, length, meta } = self.slab.unlink(&mut self.priority)?;
        self.gone(length, meta);
        self.slab.release(at)
    }

    /// The first elastic packet of the flow that comes first, to be sent. Virtual time is its
    /// stamp, if it is not later.
    pub(super) fn serve_elastic(&mut self, id: EntryId) -> Option<P> {
        self.read_ahead();
        let flow = self.flows.get_mut(id);
        self.virtual_time = self.virtual_time.max(flow.start());
        let Unlinked { at, length, .. } = self.slab.unlink(&mut flow.fifo)?;
        let emptied = flow.fifo.is_empty();
        self.busy -= usize::from(emptied);
        let mut key = flow.key();
        if let Some(hosts) = &mut self.hosts {
            // One length it has paid for when it came.
            flow.finish += length.0 * u64::from(hosts.siblings_now(id) - 1);
            key = flow.key();
            if emptied {
                hosts.waits(id, false);
            }
        }
        self.service.pop();
        self.service.push(self.virtual_time, key, id.link());
        self.total.packets -= 1;
        self.total.bytes -= length;
        self.slab.release(at)
    }

    /// A packet has been taken out of the priority queue.
    #[inline]
    pub(super) fn gone(&mut self, length: Bytes, tag: Tag) {
        self.total.packets -= 1;
        self.total.bytes -= length;
        let Tag { flow, prev, next } = tag;
        if flow == NIL {
            return;
        }
        let flow = self.flows.get_mut(EntryId::from_link(flow));
        flow.urgent -= length.0 as u32;
        match self.slab.meta_mut(prev) {
            Some(before) => before.next = next,
            None => flow.first = next,
        }
        match self.slab.meta_mut(next) {
            Some(behind) => behind.prev = prev,
            None => flow.last = prev,
        }
    }

    /// Reads ahead what the next services will read.
    #[inline]
    pub(super) fn read_ahead(&self) {
        if !self.flows.is_long() {
            return;
        }
        self.flows.prefetch_state(self.service.ahead(AHEAD[0]));
        if let Some(flow) = self.flows.guess(self.service.ahead(AHEAD[1])) {
            self.slab.prefetch(flow.fifo.head());
        }
        if let Some(flow) = self.flows.guess(self.service.ahead(AHEAD[2])) {
            self.slab.prefetch_packet(flow.fifo.head());
        }
    }

    /// Nothing waits any more: no flow is listed.
    pub(super) fn purge(&mut self) {
        self.purges = self.purges.wrapping_add(1);
        while let Some(flow) = self.service.pop() {
            self.end(flow);
        }
        if let Some(hosts) = &mut self.hosts {
            hosts.clear();
        }
    }

    /// Other workers have sent `bytes` to each of their elastic flows; here nothing elastic waits,
    /// so virtual time is theirs.
    pub(super) fn pass(&mut self, bytes: Bytes) {
        if self.busy > 0 {
            return;
        }
        self.passed += bytes.0;
        // It does not move while a priority packet waits.
        if self.priority.is_empty() {
            self.virtual_time += core::mem::take(&mut self.passed);
            let Self { flows, longest, service, hosts, .. } = self;
            service.pop_before(self.virtual_time, |flow| end(flows, longest, hosts, flow));
        }
    }

    /// Whether others use the link, so that it is not idle when nothing waits here.
    pub(super) fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
        if !crowded && self.total.packets == 0 && self.flows.len() > 0 {
            self.purge();
        }
    }

    /// The flow of a packet. `None` if the list is full.
    #[inline]
    pub(super) fn place(&mut self, packet: &P) -> Option<EntryId> {
        let guessed = self.config.fair.is_by_flow().then(|| self.flows.guessed(packet)).flatten();
        let place = guessed.or_else(|| {
            let (hash, key) = self.config.fair.queue_of(packet);
            self.flows.find(hash, &key).or_else(|| self.know(hash, key))
        });
        self.last = place.map_or(Places::NOWHERE, EntryId::link);
        place
    }

    /// A place for a flow that has none.
    #[inline(never)]
    pub(super) fn know(&mut self, hash: u64, key: PackedFlow) -> Option<EntryId> {
        let longest = &mut self.longest;
        let forget = |old: EntryId, flow: &mut Flow| longest.forget(old.link(), &mut flow.place);
        let id = self.flows.insert(hash, key, Flow::NEW, forget)?;
        self.aqm[id.index()] = Codel::NEW;
        Some(id)
    }

    /// A packet has been queued: elastic, with whether it is the first of its flow that waits, or
    /// with priority. What its host pays, and whether it makes another one superfluous.
    #[inline(never)] // so that who has neither does not pay for it
    pub(super) fn queued(
        &mut self,
        id: EntryId,
        elastic: Option<bool>,
        length: Bytes,
        dropped: &mut dyn DropSink<P>,
    ) {
        if let Some(hosts) = &mut self.hosts {
            match elastic {
                None => {
                    let more = u64::from(hosts.siblings_now(id) - 1);
                    self.flows.get_mut(id).finish += length.0 * more;
                }
                Some(true) => hosts.waits(id, true),
                Some(false) => {}
            }
        }
        if elastic == Some(false) && self.config.ack_filter {
            self.filter(id, dropped);
        }
    }

    pub(super) fn end(&mut self, flow: u32) {
        end(&mut self.flows, &mut self.longest, &mut self.hosts, flow);
    }
}

/// A flow does not stand in the calendar any more. Nothing of it waits: where it is among the
/// longest does not depend on what it had before.
fn end(
    flows: &mut FlowList<Flow>,
    longest: &mut Longest,
    hosts: &mut Option<Hosts<()>>,
    flow: u32,
) {
    let id = EntryId::from_link(flow);
    longest.forget(flow, &mut flows.get_mut(id).place);
    flows.end(id);
    if let Some(hosts) = hosts {
        hosts.end(id);
    }
}
