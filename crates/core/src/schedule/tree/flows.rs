//! Packets come: the flows of subscribers, room for them, and when a subscriber has something that
//! waits.

use super::flow::{Flow, Flows};
use super::node::{Cold, fine};
use super::plan::LINK;
use super::within::Groups;
use super::{Backlog, Tree};
use crate::aqm::elastic::{Now, Pace};
use crate::flow_table::{EntryId, PackedFlow};
use crate::packet::{Packet, Places};
use crate::reason::Reason;
use crate::schedule::slab::{NIL, counted};
use crate::schedule::{DropSink, Treated};
use crate::units::{Bytes, Nanos};

impl<P: Packet> Tree<P> {
    pub(super) fn put(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let leaf = self.leaf_of(&packet);
        let length = Bytes(counted(&packet).into());
        let place = self.place(leaf, &packet);
        self.last = place.map_or(Places::NOWHERE, EntryId::link);
        let Some(id) = place else {
            return self.refuse(leaf, packet, dropped);
        };
        while self.lacks_room(leaf, length) {
            if !self.shed(leaf, Some(id.link()), now, dropped) {
                return self.refuse(leaf, packet, dropped);
            }
        }
        while self.backlog.packets >= u64::from(self.config.buffer) {
            if !self.shed_most(now, dropped) {
                return self.refuse(leaf, packet, dropped);
            }
        }
        // One that lost all it had may still be in a list.
        let begins = !self.flows.in_use(id);
        if begins && let Some(groups) = &mut self.groups {
            groups.begin(id, leaf, &packet);
        }
        let flow = self.flows.get_mut(id);
        let waits = flow.fifo.is_empty();
        self.slab.push(&mut flow.fifo, packet, id.link());
        self.backlog.packets += 1;
        self.backlog.bytes += length;
        let cold = &mut self.cold[leaf as usize];
        cold.packets += 1;
        cold.bytes += length.0 as u32;
        self.longest.grown(leaf, &mut cold.place, Bytes(cold.bytes.into()));
        if waits && self.flow_begins(id, leaf, begins, now) {
            return Treated::Priority;
        }
        Treated::Queued
    }

    fn refuse(&mut self, leaf: u32, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        self.meters[leaf as usize].overflow += 1;
        dropped.dropped(packet, Reason::QueueFull);
        Treated::Dropped(Reason::QueueFull)
    }

    /// Whether a packet more is more than may wait of a subscriber. One always may.
    #[inline]
    fn lacks_room(&self, leaf: u32, length: Bytes) -> bool {
        let cold = &self.cold[leaf as usize];
        cold.packets > 0 && u64::from(cold.bytes) + length.0 > u64::from(cold.room)
    }

    /// The place of a packet's flow. `None`: all are in use.
    #[inline]
    fn place(&mut self, leaf: u32, packet: &P) -> Option<EntryId> {
        let key = packet.packed_flow().of_subscriber(leaf);
        let last = EntryId::from_link(packet.places().queue);
        if self.flows.is_of(last, &key) && self.flows.get(last).leaf == leaf {
            return Some(last);
        }
        let hash = packet.flow_hash() ^ u64::from(leaf).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let found = self.flows.find(hash, &key).filter(|id| self.flows.get(*id).leaf == leaf);
        if found.is_some() {
            return found;
        }
        let state = Flow::of(leaf);
        if self.flows.find(hash, &key).is_none() {
            return self.flows.insert(hash, key, state, |_, _| ());
        }
        // Addresses that two subscribers have both: all of them is one flow of the second.
        let key = PackedFlow::v4(u64::from(leaf), u32::MAX, u8::MAX);
        match self.flows.find(u64::from(leaf), &key) {
            Some(id) => (self.flows.get(id).leaf == leaf).then_some(id),
            None => self.flows.insert(u64::from(leaf), key, state, |_, _| ()),
        }
    }

    /// A flow has its first packet. Whether it goes before other flows of the subscriber.
    fn flow_begins(&mut self, id: EntryId, leaf: u32, begins: bool, now: Nanos) -> bool {
        let idle = self.flows.get(id).idle(now);
        self.flows.get_mut(id).aqm.blue.rested(idle);
        self.busy_flows += 1;
        if let Some(groups) = &mut self.groups {
            self.cold[leaf as usize].groups += u32::from(groups.fills(id));
        }
        let mut first = false;
        if begins {
            self.flows.begin(id);
            let mut turns = self.hot[leaf as usize].turns;
            first = turns.enter(&mut self.members(), id.link());
            self.hot[leaf as usize].turns = turns;
        }
        self.cold[leaf as usize].busy += 1;
        if self.cold[leaf as usize].busy == 1 {
            self.waits(leaf, fine(now));
            self.activate(leaf, fine(now));
        }
        first
    }

    /// The flows of a subscriber as they take turns.
    pub(super) fn members(&mut self) -> Flows<'_> {
        let quantum = self.quantum();
        Flows { flows: &mut self.flows, groups: &mut self.groups, quantum }
    }

    /// As many queues as there would have to be for each to have what a queue of this flow has.
    pub(super) fn queues(&self, flow: EntryId, leaf: u32) -> u64 {
        let Cold { busy, groups, .. } = self.cold[leaf as usize];
        let by_group = |of: &Groups| u64::from(groups) * u64::from(of.siblings(flow));
        self.groups.as_ref().map_or(busy.into(), by_group)
    }

    /// A flow has sent or lost its last packet.
    pub(super) fn flow_ends(&mut self, flow: EntryId, leaf: u32) {
        if let Some(groups) = &mut self.groups {
            self.cold[leaf as usize].groups -= u32::from(groups.empties(flow));
        }
        self.busy_flows -= 1;
        let mut node = leaf;
        loop {
            let busy = &mut self.cold[node as usize].busy;
            *busy -= 1;
            if *busy > 0 || node == LINK {
                return;
            }
            node = self.hot[node as usize].parent();
        }
    }

    /// A node has something that waits, and had not.
    fn waits(&mut self, mut node: u32, now: u64) {
        loop {
            self.cold[node as usize].sure.begin(now);
            if node == LINK {
                return;
            }
            node = self.hot[node as usize].parent();
            self.cold[node as usize].busy += 1;
            if self.cold[node as usize].busy > 1 {
                return;
            }
        }
    }

    /// The subscriber with the most bytes loses a packet.
    fn shed_most(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> bool {
        loop {
            let Some(leaf) = self.longest.candidate() else { return false };
            let cold = &mut self.cold[leaf as usize];
            if self.longest.confirm(leaf, &mut cold.place, Bytes(cold.bytes.into())) {
                return self.shed(leaf, None, now, dropped);
            }
        }
    }

    /// The longest of some flows of a subscriber loses its first packet.
    fn shed(
        &mut self,
        leaf: u32,
        own: Option<u32>,
        now: Nanos,
        dropped: &mut dyn DropSink<P>,
    ) -> bool {
        let turns = self.hot[leaf as usize].turns;
        let bytes = |tree: &Self, flow: u32| tree.flows.get(EntryId::from_link(flow)).fifo.bytes;
        let mut longest = (own.map_or(Bytes::ZERO, |flow| bytes(self, flow)), own.unwrap_or(NIL));
        let mut some = [NIL; 16];
        let mut count = 0;
        turns.some(&mut self.members(), |flow| {
            some[count] = flow;
            count += 1;
        });
        for flow in &some[..count] {
            longest = longest.max((bytes(self, *flow), *flow));
        }
        let (length, victim) = longest;
        if length == Bytes::ZERO {
            return false;
        }
        let id = EntryId::from_link(victim);
        let judge = self.config.aqm.is_on().then(|| {
            let packets = Nanos(self.cold[leaf as usize].packets_time());
            let pace = Pace { packets, grants: Nanos::ZERO };
            Now::new(&self.config.aqm, pace, self.queues(id, leaf), now)
        });
        let flow = self.flows.get_mut(id);
        if let Some(judge) = judge {
            judge.overflowed(&mut flow.aqm);
        }
        let Some((packet, _)) = self.slab.pop(&mut flow.fifo) else { return false };
        let is_empty = flow.fifo.is_empty();
        if is_empty {
            flow.empties(now);
        }
        self.meters[leaf as usize].overflow += 1;
        self.uncount(leaf, Bytes(counted(&packet).into()));
        dropped.dropped(packet, Reason::LongestFlow);
        if is_empty {
            self.flow_ends(id, leaf);
            if self.cold[leaf as usize].busy == 0 {
                self.fade(leaf);
            }
        }
        true
    }

    /// Everything that waits.
    pub(super) fn empty(&mut self, into: &mut dyn FnMut(P)) {
        for leaf in 0..self.hot.len() as u32 {
            if self.cold[leaf as usize].packets > 0 {
                self.empty_leaf(leaf, into);
            }
        }
        debug_assert_eq!(self.backlog, Backlog::default());
    }

    /// Everything that waits of a subscriber, flow by flow.
    pub(super) fn empty_leaf(&mut self, leaf: u32, into: &mut dyn FnMut(P)) {
        loop {
            let mut turns = self.hot[leaf as usize].turns;
            let picked = turns.pick(&mut self.members());
            self.hot[leaf as usize].turns = turns;
            let Some(picked) = picked else { break };
            let id = EntryId::from_link(picked);
            while let Some((packet, _)) = self.slab.pop(&mut self.flows.get_mut(id).fifo) {
                self.uncount(leaf, Bytes(counted(&packet).into()));
                into(packet);
            }
            self.flow_ends(id, leaf);
            let mut turns = self.hot[leaf as usize].turns;
            turns.leave(&mut self.members(), picked);
            self.hot[leaf as usize].turns = turns;
        }
        self.fade(leaf);
    }
}
