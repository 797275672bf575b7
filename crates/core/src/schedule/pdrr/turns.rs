//! Who is served next: the turns of flows, or of hosts, and when flows cease to be active.

use super::flow::Flow;
use super::hosts::Next;
use super::{AHEAD, FICTITIOUS, Pdrr};
use crate::flow_table::EntryId;
use crate::packet::{Packet, Places};
use crate::units::Bytes;

impl<P: Packet> Pdrr<P> {
    /// Nothing waits any more: no flow is active.
    #[inline(never)] // so that who goes on does not pay for it
    pub(super) fn purge(&mut self) {
        if self.hosts.is_some() {
            return self.end_hosts(|pdrr, id| pdrr.flows.end(id));
        }
        let in_service = self.current.take().map(EntryId::link);
        let active = self.turns.iter().filter(|flow| *flow != FICTITIOUS).chain(in_service);
        self.flows.end_all(active);
        self.turns.clear();
        self.turns.push(FICTITIOUS);
    }

    /// The place of a packet's flow. `None` if the list is full.
    #[inline]
    pub(super) fn place(&mut self, packet: &P) -> Option<EntryId> {
        if self.config.fair.is_by_flow()
            && let Some(id) = self.flows.guessed(packet)
        {
            self.last = id.link();
            return Some(id);
        }
        self.look_up(packet)
    }

    /// A flow becomes active that takes its turns with its host.
    #[inline(never)] // so that flows by themselves do not pay for it
    pub(super) fn begin_host(&mut self, id: EntryId, packet: &P) {
        let Some(hosts) = &mut self.hosts else { return };
        self.turns.extend(hosts.begin(id, packet).map(EntryId::link));
    }

    /// The same of one that is not where the one before of its flow was.
    #[inline(never)] // or it is there wherever packets are taken in
    fn look_up(&mut self, packet: &P) -> Option<EntryId> {
        let (hash, key) = self.config.fair.queue_of(packet);
        let longest = &mut self.longest;
        let forget = |id: EntryId, old: &mut Flow| longest.forget(id.link(), &mut old.place);
        let place = match self.flows.find(hash, &key) {
            Some(id) => Some(id),
            None => self.flows.insert(hash, key, Flow::NEW, forget),
        };
        self.last = place.map_or(Places::NOWHERE, EntryId::link);
        place
    }

    /// The turn of the flow in service is over.
    pub(super) fn end_turn(&mut self, id: EntryId) {
        self.current = None;
        let flow = self.flows.get_mut(id);
        if !flow.fifo.is_empty() {
            self.turns.push(id.link());
        } else {
            self.leave(id);
        }
    }

    /// A flow whose FIFO is empty is not active any more.
    pub(super) fn leave(&mut self, id: EntryId) {
        let flow = self.flows.get_mut(id);
        {
            let quantum = self.config.quantum.0 as i32;
            // What its first packet was beyond a quantum and what it had to spare.
            let beyond = flow.offered.saturating_sub(quantum);
            let owes = !flow.is_elastic() && beyond > 0;
            flow.set_owes(owes);
            if owes {
                flow.deficit = -beyond;
            }
            (flow.offered, flow.round) = (beyond.clamp(-quantum, 0), self.round);
            self.flows.end(id);
        }
    }

    /// All hosts take no turns any more; `end` is told each of their flows.
    pub(super) fn end_hosts(&mut self, mut end: impl FnMut(&mut Self, EntryId)) {
        let Some(mut hosts) = self.hosts.take() else { return };
        if let Some(host) = hosts.current.take() {
            self.turns.push(host.link());
        }
        while let Some(member) = self.turns.pop() {
            if member == FICTITIOUS {
                continue;
            }
            while let Some(flow) = hosts.pop(EntryId::from_link(member)) {
                end(self, flow);
            }
        }
        hosts.clear();
        self.hosts = Some(hosts);
        self.turns.push(FICTITIOUS);
        self.current = None;
    }

    /// The flow whose packet goes next, where hosts take turns.
    pub(super) fn turn_of_hosts(&mut self) -> Option<EntryId> {
        let quantum = self.config.quantum;
        loop {
            let Self { hosts, flows, .. } = self;
            match hosts.as_mut()?.next(flows, quantum) {
                Next::Send(flow) => return Some(flow),
                Next::Over(flow) => self.leave(flow),
                Next::Again(host) | Next::Joins(host) => self.turns.push(host.link()),
                Next::None => {
                    let member = self.turns.pop()?;
                    if member == FICTITIOUS {
                        self.fair_bytes += quantum;
                        self.round = self.round.wrapping_add(1);
                        self.turns.push(member);
                    } else if let Some(hosts) = &mut self.hosts {
                        hosts.turn(EntryId::from_link(member), quantum, self.round);
                    }
                }
            }
        }
    }

    /// Where hosts take turns the next flow is known before it is asked for.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        if self.hosts.is_some() {
            self.current = if self.busy > 0 { self.turn_of_hosts() } else { None };
        }
    }

    /// Reads ahead what the next turns will read.
    #[inline]
    pub(super) fn read_ahead(&self) {
        if !self.flows.is_long() {
            return;
        }
        self.flows.prefetch_state(self.turns.ahead(AHEAD[0]));
        if let Some(flow) = self.flows.guess(self.turns.ahead(AHEAD[1])) {
            self.slab.prefetch(flow.fifo.head());
        }
        if let Some(flow) = self.flows.guess(self.turns.ahead(AHEAD[2])) {
            self.slab.prefetch_packet(flow.fifo.head());
        }
    }

    /// The flow whose packet goes next: turns the list until the head of the flow in service fits
    /// its deficit. Some FIFO has packets.
    // Where a packet is taken, that is on its way; the other caller is a rare one.
    #[inline(always)]
    pub(super) fn turn(&mut self) -> EntryId {
        if self.hosts.is_some()
            && let Some(id) = self.current.or_else(|| self.turn_of_hosts())
        {
            return id;
        }
        loop {
            if let Some(id) = self.current {
                if self.flows.get(id).may_send() {
                    return id;
                }
                self.end_turn(id);
            }
            let Some(member) = self.turns.pop() else { continue };
            self.read_ahead();
            if member == FICTITIOUS {
                self.fair_bytes += self.config.quantum;
                self.round = self.round.wrapping_add(1);
                self.turns.push(member);
            } else {
                let id = EntryId::from_link(member);
                let flow = self.flows.get_mut(id);
                flow.deficit = flow.deficit.saturating_add(self.config.quantum.0 as i32);
                self.current = Some(id);
            }
        }
    }

    /// Other workers have sent `bytes` to each of their elastic flows; here nothing elastic waits,
    /// so the turns of all active flows come with every quantum of it.
    pub(super) fn pass(&mut self, bytes: Bytes) {
        if self.busy > 0 {
            return;
        }
        self.passed += bytes.0;
        let rounds = self.passed / self.config.quantum.0;
        // No turn comes while a priority packet waits.
        if rounds == 0 || !self.priority.is_empty() {
            return;
        }
        self.passed %= self.config.quantum.0;
        if self.hosts.is_some() {
            self.end_hosts(Self::leave);
            self.round = self.round.wrapping_add(rounds as u32);
            return;
        }
        if let Some(id) = self.current {
            self.end_turn(id);
        }
        while let Some(member) = self.turns.pop() {
            if member != FICTITIOUS {
                self.end_turn(EntryId::from_link(member));
            }
        }
        self.turns.push(FICTITIOUS);
        self.round = self.round.wrapping_add(rounds as u32);
    }
}
