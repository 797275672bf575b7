//! PDRR, priority deficit round robin: streaming packets first, elastic flows by deficit round
//! robin.
//!
//! Source: pseudo-code of the flow-aware networking group at AGH Kraków, after Kortebi, Oueslati,
//! Roberts, "Implicit service differentiation using deficit round robin" (ITC 19, 2005).
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | PQ, the priority queue | `Pdrr::priority` | – |
//! | AFL, the list of active flows | `Pdrr::turns`, and the flows in use of `Pdrr::flows` | – |
//! | FIFO of flow i | `Flow::fifo` | – |
//! | Q | `PdrrConfig::quantum` | bytes |
//! | DC_i | `Flow::deficit` | bytes, negative after priority packets |
//! | ByteCount_i | `Flow::offered` | bytes offered since flow i became active, less what it had to spare |
//! | fb, credit of a fictitious flow that always has packets | `Pdrr::fair_bytes` | bytes |
//! | pb | `Pdrr::priority_bytes` | bytes taken into the PQ |
//!
//! A flow that is not active becomes so with its first packet, which is a priority packet, as are
//! the next ones while all that the flow has offered stays within Q; the rest waits in the flow's
//! FIFO. The PQ is looked at before every packet, also amid a flow's turn. A flow whose FIFO is
//! empty when its turn ends, or at its turn, is not active any more: it sent less than the fair
//! rate. When nothing waits at all, no flow is active. The fictitious flow gets Q in every round in
//! which something waits in a FIFO.
//!
//! Complexity: constant time on average, flat in the number of flows. One `dequeue` may pass flows
//! that lack credit after priority packets (once each while they are active) or have become empty
//! (once). No allocation per packet.
//!
//! Bound: per-flow order is kept. Work conserving. A flow sends at most Q and a packet more than
//! another backlogged one over any time; a priority packet waits for the PQ before it and one
//! packet in transmission.
//!
//! **What a flow has to spare.** A round takes as long as what its flows send in it, and with
//! 1000-byte packets and Q = 1500 each sends one packet in one round and two in the next. As
//! published, a flow at more than half the fair rate offers more than Q in the long rounds, waits
//! for its turn, and is late by a round. Here a flow whose turn finds it with less than Q offered
//! keeps the difference, up to Q, for its next activity if that begins within a round; so its
//! priority bytes are held against Q per round on average, as the fair rate is, and a burst of one
//! Q more. A stream below the fair rate has priority at all times.
//!
//! **What a flow owes.** A packet longer than Q goes with priority where it is the first of its
//! flow. As published the flow is free of what that was beyond Q as soon as its turn has come: one
//! that waits for that each time had six times the share of others with packets of 9000 bytes. Here
//! it owes the rest: what it sends before so many rounds have passed waits for its turns.
//!
//! Choices where the sources are silent: a flow in service whose FIFO has run empty keeps its turn
//! until the next packet is asked for. Overflow takes from the FIFO with the most bytes, exact to a
//! thirty-second; priority packets are never dropped for others. `afl_linger` keeps the *rule* that
//! packets of a flow go to its FIFO for that long after it ran empty; the flow does not stay in the
//! list, so lingering flows cost no visits. While the list is full, flows that are not on it have
//! priority, as published for PFQ.
//!
//! Not implemented: quanta per flow.

mod drops;
mod flow;
mod hosts;
mod peek;
mod turns;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::RangeInclusive;

use super::buffer::{Buffer, DEFAULT_QUANTUM, KnownFlows, Room, memory_of_flows};
use super::flow_list::{FlowList, Ring};
use super::hosts::Fair;
use super::longest::Longest;
use super::shared_flows::{ByFlow, Elsewhere};
use super::slab::{NIL, Queue, Slab, Unlinked, counted};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::aqm::blue::Coin;
use crate::aqm::elastic::{ElasticAqm, Pace, packets_at};
use crate::audit::{Alike, Promise};
use crate::flow_table::EntryId;
use crate::packet::{Class, FlowKey, Packet, Places};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::share::SharedLink;
use crate::units::{BitRate, Bytes, Nanos};
use flow::Flow;
use hosts::Hosts;

/// Valid quanta, in bytes. Below the longest packet a visit may end with nothing sent and cost more
/// than constant time.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 256..=65_535;
/// By how many quanta, beyond two of the longest packets, what two flows are sent may differ that
/// always wait: one for the turn that the one has had and the other not yet, one that a flow has to
/// spare or owes when the time begins.
pub const SPREAD_QUANTA: u64 = 2;
/// Valid times that an empty flow stays active.
pub const AFL_LINGER_RANGE: RangeInclusive<u64> = 0..=10_000_000_000;

settings! {
    /// Priority deficit round robin: as PFQ in constant time. See docs/cross-protect.md.
    #[derive(Copy, Eq)]
    pub struct PdrrConfig: "discipline = { kind = \"pdrr\", … }" {
        /// Q: bytes that a flow may send in a round, and put in with priority since it became
        /// active: at least the MTU.
        live quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
        /// Whether acknowledgements that wait go when later ones of their connection say the same:
        /// for lines that carry far less this way than the other.
        live ack_filter: bool = false;
        /// How long a flow whose queue is empty stays elastic, so that it does not change its class
        /// with every gap. 0: not at all, as published.
        live afl_linger: Nanos = Nanos::ZERO, in AFL_LINGER_RANGE;
        /// Who gets the same: flows, hosts, or hosts and within each its flows. With hosts the fair
        /// rate is that of a host. Of several workers the first one has the link with `source`,
        /// `destination` and `host-flow`.
        fixed fair: Fair = Fair::Flow;
    }
    parts {
        /// Most that waits, and which packet goes when that is full.
        buffer: Buffer,
        /// The flows active at a time. While the list is full, flows that are not on it have
        /// priority.
        flows: KnownFlows,
        /// What keeps the queue of each flow short.
        aqm: ElasticAqm,
    }
}

impl Discipline for PdrrConfig {
    const NAME: &'static str = "pdrr";
    const MEASURES_FAIR_RATE: bool = true;
    type Queues<P: Packet> = Pdrr<P>;

    fn memory(&self, packet: u64) -> u64 {
        // A host takes as much as a flow.
        let flows = self.flows.most();
        memory_of_flows(flows + self.fair.hosts(flows), self.buffer.places(), packet)
    }

    /// Where hosts are on either side two flows between the same two change over one after the
    /// other, and what they get until then differs by more than a quantum.
    fn promise(&self) -> Promise {
        let alike = match self.fair {
            Fair::Flow => Alike::All,
            Fair::SourceFlow | Fair::DestinationFlow => Alike::SameHosts,
            Fair::HostFlow | Fair::Source | Fair::Destination => return Promise::WorkConserving,
        };
        // One quantum more where a flow's turn is broken off by that of its host.
        let quanta = SPREAD_QUANTA + u64::from(self.fair.is_nested());
        let spread = Bytes(self.quantum.0 * quanta);
        Promise::Flows { spread, places: self.flows.most(), alike }
    }

    fn build<P: Packet>(self) -> Result<Pdrr<P>, SettingError> {
        Pdrr::new(self)
    }

    fn seed(&mut self, seed: u64) {
        self.flows.seed = seed;
    }

    fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        self.fair.for_one_worker()
    }
}

/// The fictitious flow among those that take turns.
const FICTITIOUS: u32 = NIL;

/// So many turns ahead of the present one the state of a flow is read ahead, so many the first
/// packet of its FIFO, and so many the second: each takes about as long as two or three packets, so
/// that all are there in time.
const AHEAD: [usize; 3] = [12, 8, 4];

/// The discipline.
#[derive(Clone, Debug)]
pub struct Pdrr<P> {
    config: PdrrConfig,
    rate: Option<BitRate>,
    /// What `config` and `rate` come to: room, and what no queue stands for.
    room: Room,
    pace: Pace,
    coin: Coin,
    /// What other workers are due for what waits there, in 2^-16.
    elsewhere: u64,
    /// With each packet: its flow, `NIL` if it has no place.
    slab: Slab<P, u32>,
    /// PQ.
    priority: Queue,
    /// Those in use are the active ones.
    flows: FlowList<Flow>,
    /// AFL, in the order of turns. The fictitious flow is one of them.
    turns: Ring,
    longest: Longest,
    /// Who takes turns instead of flows.
    hosts: Option<Box<Hosts>>,
    /// The place of the flow of the packet that came last.
    last: u32,
    /// The flow in service, which is not in the AFL; where hosts take turns, the one that is next.
    current: Option<EntryId>,
    /// What waits in FIFOs.
    elastic: Backlog,
    /// FIFOs that have packets.
    busy: usize,
    /// fb.
    fair_bytes: Bytes,
    /// Visits of the fictitious flow, wrapping.
    round: u32,
    /// pb.
    priority_bytes: Bytes,
    flips: u64,
    /// Others use the link: that nothing waits here does not make it idle.
    crowded: bool,
    /// Bytes of a round that passed elsewhere.
    passed: u64,
}

impl<P: Packet> Pdrr<P> {
    /// The discipline with empty queues. Takes all its memory at once: about 150 bytes per flow,
    /// and a packet, rounded up to 64, with 16 bytes per place in the buffer.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a number is out of range.
    pub fn new(config: PdrrConfig) -> Result<Self, SettingError> {
        config.check()?;
        let most = config.flows.most();
        let mut turns = Ring::new(most.max(config.fair.hosts(most)) + 1);
        turns.push(FICTITIOUS);
        Ok(Self {
            rate: None,
            room: config.buffer.at(None),
            pace: Pace::default(),
            coin: Coin::NEW,
            elsewhere: 0,
            config,
            slab: Slab::new(config.buffer.places()),
            priority: Queue::EMPTY,
            flows: FlowList::new(config.flows.most(), config.flows.seed, Flow::NEW)?,
            turns,
            longest: Longest::new(config.flows.most()),
            hosts: Hosts::new(&config)?.map(Box::new),
            last: Places::NOWHERE,
            current: None,
            elastic: Backlog::default(),
            busy: 0,
            fair_bytes: Bytes::ZERO,
            round: 0,
            priority_bytes: Bytes::ZERO,
            flips: 0,
            crowded: false,
            passed: 0,
        })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &PdrrConfig {
        &self.config
    }

    /// DC of an active flow, in bytes.
    #[must_use]
    pub fn deficit(&self, flow: &FlowKey, hash: u64) -> Option<i64> {
        let id = self.flows.find(hash, &flow.into()).filter(|id| self.flows.in_use(*id))?;
        Some(self.flows.get(id).deficit.into())
    }

    /// How often a flow changed between streaming and elastic since it has a place in the list. A
    /// flow keeps its place until the list is full and it has been inactive for long.
    #[must_use]
    pub fn class_flips(&self, flow: &FlowKey, hash: u64) -> Option<u32> {
        self.flows.find(hash, &flow.into()).map(|id| self.flows.get(id).flips.count())
    }

    /// A packet of an elastic flow, none having priority.
    #[inline(never)] // so that who takes one with priority does not pay for it
    fn dequeue_elastic(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let packet = if self.config.aqm.is_on() {
            let mut given = None;
            while given.is_none() && self.busy > 0 {
                let id = self.turn();
                given = self.serve_short(now, id, dropped);
                if given.is_none() {
                    self.look_ahead();
                }
            }
            given
        } else {
            if self.busy == 0 {
                return None;
            }
            let id = self.turn();
            let flow = self.flows.get_mut(id);
            let Unlinked { at, length, .. } = self.slab.unlink(&mut flow.fifo)?;
            flow.spends(length);
            if let Some(hosts) = &mut self.hosts {
                hosts.spends(id, length);
            }
            self.elastic.packets -= 1;
            self.elastic.bytes -= length;
            if flow.fifo.is_empty() {
                flow.empties(now);
                self.emptied(id);
            }
            self.slab.release(at)
        };
        self.given();
        packet
    }

    /// A packet has gone, or none was there.
    #[inline(always)] // as a rule more waits, and nothing is done
    fn given(&mut self) {
        if self.busy == 0 && self.priority.is_empty() && !self.crowded {
            self.purge();
        } else {
            self.look_ahead();
        }
    }

    /// Takes a packet in.
    #[inline(always)] // as one of a run, without a call
    fn put(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let length = Bytes(counted(&packet).into());
        if !self.has_room(length) && !self.make_room(now, length, dropped) {
            dropped.dropped(packet, Reason::PriorityFull);
            return Treated::Dropped(Reason::PriorityFull);
        }
        let Some(id) = self.place(&packet) else {
            self.slab.push(&mut self.priority, packet, NIL);
            self.priority_bytes += length;
            return Treated::Priority;
        };
        // Looked at once: this is the path of every packet.
        let begins = self.flows.begin(id);
        if begins {
            match &self.hosts {
                None => self.turns.push(id.link()),
                Some(_) => self.begin_host(id, &packet),
            }
        }
        let flow = self.flows.get_mut(id);
        if begins {
            flow.begin(now, self.round, &self.config);
        }
        flow.offers(length);
        // The first packet is within the quantum always.
        let within = begins || flow.offered <= self.config.quantum.0 as i32;
        let streaming = !flow.is_elastic()
            && within
            && self.config.flows.may_start(self.priority.bytes, length);
        if flow.flips.note(!streaming) {
            self.flips += 1;
        }
        if !streaming {
            self.wait(now, id, packet, dropped);
            return Treated::Queued;
        }
        self.slab.push(&mut self.priority, packet, id.link());
        self.priority_bytes += length;
        Treated::Priority
    }

    /// A packet goes to the FIFO of its flow.
    #[inline(never)] // so that one with priority does not pay for it
    fn wait(&mut self, now: Nanos, id: EntryId, packet: P, dropped: &mut dyn DropSink<P>) {
        let length = Bytes(counted(&packet).into());
        let flow = self.flows.get_mut(id);
        flow.set_elastic(true);
        let waits = flow.fifo.is_empty();
        self.busy += usize::from(waits);
        self.slab.push(&mut flow.fifo, packet, id.link());
        self.longest.grown(id.link(), &mut flow.place, flow.fifo.bytes);
        self.elastic.packets += 1;
        self.elastic.bytes += length;
        if self.config.ack_filter && !waits {
            self.filter(now, id, dropped);
        }
        if waits && let Some(hosts) = &mut self.hosts {
            self.turns.extend(hosts.fills(id).map(EntryId::link));
            self.look_ahead();
        }
    }

    /// Whether others use the link, so that it is not idle when nothing waits here.
    fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
        if !crowded && self.busy == 0 && self.priority.is_empty() && self.flows.len() > 0 {
            self.purge();
        }
    }
}

impl<P: Packet> ByFlow<P> for Pdrr<P> {
    #[inline]
    fn waiting(&self) -> Waiting {
        let urgent =
            Backlog { packets: u64::from(self.priority.packets), bytes: self.priority.bytes };
        let of_hosts = self.hosts.as_ref().and_then(|hosts| hosts.weight());
        let weight = of_hosts.unwrap_or(Waiting::of_flows(self.busy as u32));
        Waiting { urgent, elastic: self.elastic, weight }
    }

    fn elsewhere(&mut self, others: Elsewhere) {
        self.pass(others.passed);
        self.set_crowded(others.crowded);
        self.elsewhere = others.weight;
    }

    fn share(&mut self, link: &Arc<SharedLink>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.share(link, self.config.flows.seed);
        }
    }

    fn grants_take(&mut self, time: Nanos) {
        self.pace.grants = time;
    }
}

impl<P: Packet> Scheduler<P> for Pdrr<P> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        self.put(now, packet, dropped)
    }

    #[inline(always)] // a run of packets is given to it in one place
    fn take_in(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> (Treated, u32) {
        (self.put(now, packet, dropped), self.last)
    }

    /// A first packet of a flow that is not active, as no flow is while nothing waits. What the
    /// flow has to spare stays as it is.
    fn bypasses_up_to(&self) -> Option<(Bytes, Treated)> {
        // A flow that is elastic for a while after it ran empty has to be looked up.
        let forgets = self.config.afl_linger == Nanos::ZERO;
        let longest = self.room.longest().min(self.config.flows.longest_start());
        let all = (longest, Treated::Priority);
        (self.busy == 0 && self.priority.is_empty() && forgets).then_some(all)
    }

    fn bypassed(&mut self, bytes: Bytes) {
        self.priority_bytes += bytes;
    }

    #[inline(always)] // a priority packet is taken out in a few steps
    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let Some(Unlinked { at, length, meta: flow }) = self.slab.unlink(&mut self.priority) else {
            return self.dequeue_elastic(now, dropped);
        };
        if flow != NIL {
            let id = EntryId::from_link(flow);
            self.flows.get_mut(id).spends(length);
            if let Some(hosts) = &mut self.hosts {
                hosts.spends(id, length);
            }
        }
        let packet = self.slab.release(at);
        self.given();
        packet
    }

    /// Turns the list now, so that [`peek_len`](Scheduler::peek_len) need not look for who is next.
    fn settle(&mut self, _now: Nanos) {
        if self.hosts.is_none() && self.priority.is_empty() && self.busy > 0 {
            let _ = self.turn();
        }
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.busy > 0 || !self.priority.is_empty()).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.next_len()
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.config.set_live(change, 1)?;
        self.slab.reserve(self.config.buffer.places());
        self.room = self.config.buffer.at(self.rate);
        Ok(Wake::No)
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.rate = rate;
        self.room = self.config.buffer.at(rate);
        self.pace.packets = packets_at(rate);
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some((packet, _)) = self.slab.pop(&mut self.priority) {
            into(packet);
        }
        let mut give = |pdrr: &mut Self, id: EntryId| {
            let flow = pdrr.flows.get_mut(id);
            while let Some((packet, _)) = pdrr.slab.pop(&mut flow.fifo) {
                into(packet);
            }
            flow.set_elastic(false);
            pdrr.flows.end(id);
        };
        if self.hosts.is_some() {
            self.end_hosts(give);
        } else {
            self.turns.extend(self.current.take().map(EntryId::link));
            while let Some(member) = self.turns.pop() {
                if member != FICTITIOUS {
                    give(self, EntryId::from_link(member));
                }
            }
            self.turns.push(FICTITIOUS);
        }
        (self.elastic, self.busy) = (Backlog::default(), 0);
    }

    fn meters(&self) -> Meters {
        Meters {
            backlog: Backlog {
                packets: self.elastic.packets + u64::from(self.priority.packets),
                bytes: self.elastic.bytes + self.priority.bytes,
            },
            priority_bytes: Some(self.priority_bytes),
            priority_backlog: Some(self.priority.bytes),
            fair_bytes: Some(self.fair_bytes),
            flows: Some(self.flows.len()),
            elastic_flows: Some(self.busy as u32),
            class_flips: Some(self.flips),
            ..Meters::default()
        }
    }

    fn busy_queues(&self) -> usize {
        self.busy + usize::from(!self.priority.is_empty())
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        if class == Class(0) { self.meters().backlog } else { Backlog::default() }
    }

    fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
        let id = self.flows.find(hash, &flow.into());
        id.map_or(Bytes::ZERO, |id| self.flows.get(id).fifo.bytes)
    }

    fn looks_up_flows(&self) -> bool {
        true
    }

    fn prefetch_bucket(&self, hash: u64) {
        self.flows.prefetch_bucket(hash);
    }

    fn prefetch(&self, hash: u64) {
        self.flows.prefetch(hash);
    }

    fn prefetch_place(&self, place: u32) {
        self.flows.prefetch_place(place);
    }

    fn last_place(&self) -> u32 {
        self.last
    }

    fn reads_acks(&self) -> bool {
        self.config.ack_filter
    }

    fn name(&self) -> &'static str {
        PdrrConfig::NAME
    }
}
