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
//! **Several workers** share a link where hosts are on one side. A worker has the part w of a host
//! that its flows which wait here are of all that wait, and gives it w Q in each round: so rounds
//! take as long as anywhere, and what the host gets at all workers is Q. w is read when a turn
//! begins, and is at least 1/64.
//!
//! Complexity: constant time on average, as without hosts: a visit of a host passes flows that lack
//! credit after priority packets, are empty, or change over, once each. With several workers a host
//! is visited 1/w times for each Q; but rounds take the time in which a host is sent Q by the link,
//! so no worker has more visits than the whole link sends quanta.
//!
//! Bound with several workers: what changes of w within a round miss, and by the least w: a host
//! that has flows at M of them gets at most (M - 1)/64 too much, and of a host with more than 64
//! flows that wait, a flow that is alone at its worker gets 1/64 of what its host does. What a host
//! sends with priority it pays for where its flows wait at the same worker.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::flow::Flow;
use super::{Fair, PdrrConfig};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::schedule::flow_list::{Chain, FlowList, Links};
use crate::schedule::{Waiting, hosts};
use crate::settings::SettingError;
use crate::share::SharedLink;
use crate::units::Bytes;

/// The least part of a host that a worker has, in 2^-16: as many visits it takes to send a quantum.
const LEAST: u32 = (Waiting::ONE / 64) as u32;

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

    /// Several workers share the link, all with this seed.
    pub(super) fn share(&mut self, link: &Arc<SharedLink>, seed: u64) {
        self.hosts.share(link, seed, LEAST);
    }

    /// What this worker is due for its hosts, where it is one of several.
    #[inline]
    pub(super) fn weight(&self) -> Option<u64> {
        self.hosts.weight()
    }

    /// Counts a flow among those that wait of its host, or not any more.
    fn count(&mut self, flow: EntryId, waits: bool) {
        let id = self.of(flow);
        self.hosts.tell(id, waits);
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
    /// `elsewhere` is what other workers are due.
    pub(super) fn queues(&self, flow: EntryId, elsewhere: u64) -> u64 {
        let host = self.of(flow);
        let of_all = self.hosts.queues_of(host, elsewhere);
        of_all.unwrap_or(u64::from(self.busy) * u64::from(self.hosts.get(host).own.waiting))
    }

    /// Bytes of a flow are sent.
    #[inline]
    pub(super) fn spends(&mut self, flow: EntryId, length: Bytes) {
        let id = self.of(flow);
        let host = self.hosts.get_mut(id);
        host.deficit = host.deficit.saturating_sub_unsigned(length.0 as u32);
    }

    /// A host's turn begins, in this round.
    pub(super) fn turn(&mut self, host: EntryId, quantum: Bytes, round: u32) {
        let quantum = match self.hosts.part(host) {
            None => quantum,
            Some(part) => part_of(quantum, part, round),
        };
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

/// A part of a quantum, in 2^-16 of it, in whole bytes: over rounds they come to just that part.
fn part_of(quantum: Bytes, part: u32, round: u32) -> Bytes {
    let each = quantum.0 * u64::from(part);
    let by = |round: u64| (round * each) >> 16;
    let round = u64::from(round & 0xffff);
    Bytes(by(round + 1) - by(round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_quanta_add_up_over_rounds() {
        for (quantum, part) in [(1_538, 21_845), (256, LEAST), (65_535, 65_536), (300, 1_489)] {
            for from in [0, 65_000, u32::MAX - 500] {
                let rounds = (0..1_000).map(|round| from.wrapping_add(round));
                let sum: u64 = rounds.map(|round| part_of(Bytes(quantum), part, round).0).sum();
                let exact = 1_000 * quantum * u64::from(part) / Waiting::ONE;
                assert!(sum.abs_diff(exact) <= 1, "{quantum} {part}: {sum} of {exact}");
            }
        }
    }
}
