//! Hosts take turns, and the flows of each take turns within: `fair = "host-flow"`.
//!
//! Deficit round robin twice. A host gets Q each round, and so gets what another host gets, however
//! many flows it has. Its flows go in a circle, each with Q when its turn within is over: a flow
//! stays at the front until it has sent that, also over several turns of its host. Priority packets
//! are paid for by both.
//!
//! Where hosts may be on either side a flow takes its turns with the busier of its two. It changes
//! over when its queue fills, and when its turn is over.
//!
//! A host is known while it has active flows; so there are never more on a side than flows, and a
//! flow that has a place finds one for its host.
//!
//! Complexity: constant time on average, as without hosts: a visit of a host passes flows that lack
//! credit after priority packets, are empty, or change over, once each.

use alloc::vec::Vec;

use super::flow::Flow;
use super::{Fair, PdrrConfig};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::schedule::flow_list::{Chain, FlowList, Links};
use crate::schedule::hosts;
use crate::settings::SettingError;
use crate::units::Bytes;

/// A host's turns.
#[derive(Clone, Copy, Debug)]
struct Turns {
    /// Its active flows that take their turns with it, in their order.
    flows: Chain,
    /// Bytes that it may still send in its turn; a debt beyond 2 GB is as large.
    deficit: i32,
    /// How many of `flows` have packets in their FIFOs.
    waiting: u32,
    /// It takes turns: it has flows, or had some since its last one.
    listed: bool,
}

/// The hosts of a link.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    hosts: hosts::Hosts<Turns>,
    /// The host that each active flow takes its turns with, and on which side that is.
    of: Vec<(EntryId, u8)>,
    /// Hosts may be on either side.
    either: bool,
    links: Links,
    /// The host in service, which is not in the list of turns.
    pub(super) current: Option<EntryId>,
    /// Hosts with packets that wait in FIFOs.
    busy: u32,
}

/// What a host's turn has come to.
pub(super) enum Next {
    /// This flow's head goes.
    Send(EntryId),
    /// The flow is empty: it is not active any more.
    Over(EntryId),
    /// This host takes turns from now on.
    Joins(EntryId),
    /// The host's turn is over, and it waits for the next.
    Again(EntryId),
    /// The host has no active flow any more, or none is in service.
    None,
}

impl Hosts {
    /// `None` where flows take turns.
    pub(super) fn new(config: &PdrrConfig) -> Result<Option<Self>, SettingError> {
        let turns = Turns { flows: Chain::EMPTY, deficit: 0, waiting: 0, listed: false };
        let (most, seed) = (config.flows.most(), config.flows.seed);
        let hosts = hosts::Hosts::new(config.fair, most, seed, turns)?;
        Ok(hosts.map(|hosts| Self {
            hosts,
            of: alloc::vec![(EntryId::from_link(0), 0); most as usize],
            either: config.fair == Fair::HostFlow,
            links: Links::new(most),
            current: None,
            busy: 0,
        }))
    }

    /// The host that a flow takes its turns with.
    #[inline]
    fn of(&self, flow: EntryId) -> EntryId {
        self.of[flow.index()].0
    }

    /// A flow becomes active. The host, if it has to be put among those that take turns.
    pub(super) fn begin(&mut self, flow: EntryId, packet: &impl Packet) -> Option<EntryId> {
        self.hosts.begin(flow, packet);
        let side = self.hosts.busier(flow);
        self.join(flow, side)
    }

    /// A flow takes its turns with the host on this side. The host, if it took none.
    fn join(&mut self, flow: EntryId, side: usize) -> Option<EntryId> {
        let id = self.hosts.of(flow, side);
        self.of[flow.index()] = (id, side as u8);
        let host = self.hosts.get_mut(id);
        self.links.push(&mut host.flows, flow.link());
        let joins = !host.listed;
        if joins {
            (host.listed, host.deficit) = (true, 0);
            self.hosts.hold(id);
        }
        joins.then_some(id)
    }

    /// The side on which a flow would take its turns, if it is not the one where it does.
    #[inline]
    fn changes_to(&self, flow: EntryId) -> Option<usize> {
        if !self.either {
            return None;
        }
        let busier = self.hosts.busier(flow);
        (busier != usize::from(self.of[flow.index()].1)).then_some(busier)
    }

    /// A flow's FIFO gets its first packet. A host, if that takes turns from now on.
    pub(super) fn fills(&mut self, flow: EntryId) -> Option<EntryId> {
        if self.either {
            self.hosts.waits(flow, true);
        }
        let joins = self.changes_to(flow).and_then(|side| {
            let id = self.of(flow);
            self.links.unlink(&mut self.hosts.get_mut(id).flows, flow.link());
            self.join(flow, side)
        });
        self.count(flow, true);
        joins
    }

    /// A flow's FIFO has lost its last packet.
    pub(super) fn empties(&mut self, flow: EntryId) {
        if self.either {
            self.hosts.waits(flow, false);
        }
        self.count(flow, false);
    }

    /// Counts a flow among those that wait of its host, or not any more.
    fn count(&mut self, flow: EntryId, waits: bool) {
        let id = self.of(flow);
        let host = self.hosts.get_mut(id);
        if waits {
            self.busy += u32::from(host.waiting == 0);
            host.waiting += 1;
        } else {
            host.waiting -= 1;
            self.busy -= u32::from(host.waiting == 0);
        }
    }

    /// As many queues as there would have to be for each to have what a queue of this flow has.
    pub(super) fn queues(&self, flow: EntryId) -> u64 {
        u64::from(self.busy) * u64::from(self.hosts.get(self.of(flow)).own.waiting)
    }

    /// Bytes of a flow are sent.
    #[inline]
    pub(super) fn spends(&mut self, flow: EntryId, length: Bytes) {
        let id = self.of(flow);
        let host = self.hosts.get_mut(id);
        host.deficit = host.deficit.saturating_sub_unsigned(length.0 as u32);
    }

    /// A host's turn begins.
    pub(super) fn turn(&mut self, host: EntryId, quantum: Bytes) {
        let deficit = &mut self.hosts.get_mut(host).deficit;
        *deficit = deficit.saturating_add(quantum.0 as i32);
        self.current = Some(host);
    }

    /// What the host in service does; flows get `quantum` for their next turn.
    #[inline]
    pub(super) fn next(&mut self, flows: &mut FlowList<Flow>, quantum: Bytes) -> Next {
        let Some(id) = self.current else { return Next::None };
        loop {
            let host = self.hosts.get_mut(id);
            let Some(front) = host.flows.head() else {
                self.current = None;
                self.delist(id);
                return Next::None;
            };
            let at = EntryId::from_link(front);
            let flow = flows.get_mut(at);
            if flow.fifo.is_empty() {
                self.links.unlink(&mut host.flows, front);
                self.hosts.end(at);
                return Next::Over(at);
            }
            if !flow.may_send() {
                self.links.unlink(&mut host.flows, front);
                flow.deficit = flow.deficit.saturating_add(quantum.0 as i32);
                let Some(side) = self.changes_to(at) else {
                    self.links.push(&mut self.hosts.get_mut(id).flows, front);
                    continue;
                };
                self.count(at, false);
                let joins = self.join(at, side);
                self.count(at, true);
                match joins {
                    Some(joins) => return Next::Joins(joins),
                    None => continue,
                }
            }
            if i64::from(flow.fifo.head_len()) <= i64::from(host.deficit) {
                return Next::Send(at);
            }
            // A host that has nothing left waits for its turn, the flow for that of its host.
            self.current = None;
            return Next::Again(id);
        }
    }

    /// A host takes no turns any more.
    fn delist(&mut self, host: EntryId) {
        self.hosts.get_mut(host).listed = false;
        self.hosts.release(host);
    }

    /// Takes the flows of a host that takes no turns any more, one by one.
    pub(super) fn pop(&mut self, host: EntryId) -> Option<EntryId> {
        let known = self.hosts.get_mut(host);
        let Some(front) = known.flows.head() else {
            self.delist(host);
            return None;
        };
        self.links.unlink(&mut known.flows, front);
        let flow = EntryId::from_link(front);
        self.hosts.end(flow);
        Some(flow)
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        self.busy = 0;
        self.hosts.clear();
    }
}
