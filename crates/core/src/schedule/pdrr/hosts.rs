//! Hosts take turns, and the flows of each take turns within: `fair = "host-flow"`.
//!
//! Deficit round robin twice. A host gets Q each round, and so gets what another host gets, however
//! many flows it has. Its flows go in a circle, each with Q when its turn within is over: a flow
//! stays at the front until it has sent that, also over several turns of its host. Priority packets
//! are paid for by both.
//!
//! A host is known while it has active flows; so there are never more than flows, and a flow that
//! has a place finds one for its host.
//!
//! Complexity: constant time on average, as without hosts: a visit of a host passes flows that lack
//! credit after priority packets, or are empty, once each.

use alloc::vec::Vec;

use super::Fair;
use super::flow::Flow;
use crate::flow_table::{EntryId, PackedFlow};
use crate::packet::Packet;
use crate::schedule::flow_list::{Chain, FlowList, Links};
use crate::settings::SettingError;
use crate::units::Bytes;

/// What is known of a host.
#[derive(Clone, Copy, Debug)]
struct Host {
    /// Its active flows, in the order of turns.
    flows: Chain,
    /// Bytes that it may still send in its turn.
    deficit: i64,
    /// Its flows whose FIFOs have packets.
    waiting: u32,
}

/// The hosts of a link.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    hosts: FlowList<Host>,
    /// The host of each flow that is active; of another, what it was when it was active last.
    of: Vec<EntryId>,
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
    /// The host's turn is over, and it waits for the next.
    Again(EntryId),
    /// The host has no active flow any more, or none is in service.
    None,
}

impl Hosts {
    pub(super) fn new(most: u32, seed: u64) -> Result<Self, SettingError> {
        let host = Host { flows: Chain::EMPTY, deficit: 0, waiting: 0 };
        Ok(Self {
            hosts: FlowList::new(most, seed, host)?,
            of: alloc::vec![EntryId::from_link(0); most as usize],
            links: Links::new(most),
            current: None,
            busy: 0,
        })
    }

    /// A flow becomes active. The host, if it has to be put among those that take turns.
    pub(super) fn begin(
        &mut self,
        flow: EntryId,
        packet: &impl Packet,
        fair: Fair,
    ) -> Option<EntryId> {
        let key = packet.packed_flow().host(fair.is_source());
        let blank = Host { flows: Chain::EMPTY, deficit: 0, waiting: 0 };
        let last = self.of[flow.index()];
        let id = if self.hosts.is_of(last, &key) {
            last
        } else {
            let hash = key.mixed();
            let found = self.hosts.find(hash, &key);
            found.or_else(|| self.hosts.insert(hash, key, blank, |_, _| ()))?
        };
        let begins = !self.hosts.in_use(id);
        if begins {
            self.hosts.begin(id);
            *self.hosts.get_mut(id) = blank;
        }
        self.of[flow.index()] = id;
        self.links.push(&mut self.hosts.get_mut(id).flows, flow.link());
        begins.then_some(id)
    }

    /// A flow's FIFO gets its first packet, or has lost its last.
    pub(super) fn waits(&mut self, flow: EntryId, waits: bool) {
        let host = self.hosts.get_mut(self.of[flow.index()]);
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
        u64::from(self.busy) * u64::from(self.hosts.get(self.of[flow.index()]).waiting)
    }

    /// Bytes of a flow are sent.
    #[inline]
    pub(super) fn spends(&mut self, flow: EntryId, length: Bytes) {
        self.hosts.get_mut(self.of[flow.index()]).deficit -= length.0 as i64;
    }

    /// A host's turn begins.
    pub(super) fn turn(&mut self, host: EntryId, quantum: Bytes) {
        self.hosts.get_mut(host).deficit += quantum.0 as i64;
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
                self.hosts.end(id);
                return Next::None;
            };
            let at = EntryId::from_link(front);
            let flow = flows.get_mut(at);
            if flow.fifo.is_empty() {
                self.links.unlink(&mut host.flows, front);
                return Next::Over(at);
            }
            if !flow.may_send() {
                self.links.unlink(&mut host.flows, front);
                self.links.push(&mut host.flows, front);
                flow.deficit = flow.deficit.saturating_add(quantum.0 as i32);
                continue;
            }
            if i64::from(flow.fifo.head_len()) <= host.deficit {
                return Next::Send(at);
            }
            // A host that has nothing left waits for its turn, the flow for that of its host.
            self.current = None;
            return Next::Again(id);
        }
    }

    /// Takes the flows of a host that takes no turns any more, one by one.
    pub(super) fn pop(&mut self, host: EntryId) -> Option<EntryId> {
        let known = self.hosts.get_mut(host);
        let Some(front) = known.flows.head() else {
            self.hosts.end(host);
            return None;
        };
        self.links.unlink(&mut known.flows, front);
        Some(EntryId::from_link(front))
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        self.busy = 0;
    }
}

/// The host that a packet is of, and its hash.
pub(super) fn host_of(packet: &impl Packet, fair: Fair) -> (u64, PackedFlow) {
    let key = packet.packed_flow().host(fair.is_source());
    (key.mixed(), key)
}
