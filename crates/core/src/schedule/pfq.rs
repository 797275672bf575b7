//! PFQ, priority fair queueing: start-time fair queueing in which slow flows go first.
//!
//! Source: pseudo-code of the flow-aware networking group at AGH Kraków, after Kortebi,
//! Muscariello, Oueslati, Roberts, "On the scalability of fair queueing" (HotNets III, 2004);
//! expiry as in the public simulator of that group.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | vt, virtual time | `Pfq::virtual_time` | bytes |
//! | PIFO and pointer P | `Pfq::priority` (all in front of P), `Pfq::service` with `Flow::fifo` (all behind) | – |
//! | ft, finish tag of flow f | `Flow::finish` | bytes of virtual time |
//! | g | `GRAIN` | 32 bytes of virtual time |
//! | bytes(f) since it was listed | `Flow::offered` | bytes |
//! | backlog(f) | `Flow::fifo` and `Flow::urgent` | bytes |
//! | MTU | `PfqConfig::quantum` | bytes |
//! | pb | `Pfq::priority_bytes` | bytes taken in with priority |
//!
//! A packet of a flow that is not listed, or that has had less than MTU bytes taken in with
//! priority since it was, goes to the end of the priority packets, with the stamp vt. Any other
//! gets its flow's finish tag for a stamp. Either way the tag grows by the packet's length. When a
//! packet begins service, vt is its stamp, and flows whose finish tag vt has reached are not listed
//! any more: a flow that sends slower than vt always goes first. When nothing waits, no flow is
//! listed; vt is never set back, as the fair rate is measured by it.
//!
//! The published form is one list sorted by stamp with a pointer behind its priority packets. No
//! stamp behind the pointer is below vt, and vt does not move while a packet before it waits: so a
//! FIFO and the flows by the stamp of their first elastic packet serve in the same order. Elastic
//! packets of a flow follow each other without gaps in virtual time up to its finish tag, so the
//! stamp of the first one is that tag less what waits, and no packet keeps one.
//!
//! **Stamps are told apart to within g.** Flows stand in a calendar: in buckets
//! of g bytes of virtual time, those of a bucket in the order in which they came there. A listed
//! flow stands in it once, by the stamp of its first elastic packet, or, if it has none, a bucket
//! behind its finish tag, which is the stamp that its next one would get: so who gets a packet
//! stays where he is, and those whose packets wait with equal stamps go before him. (Where packets
//! are of one length nearly all stamps are equal, and one that goes first for being new is a packet
//! of everybody's delay.) A flow that stands too early, because more of it went with priority,
//! moves on when its bucket is served; one of which no packet waits is not listed any more then.
//!
//! Complexity: constant time, flat in the number of flows. A packet that virtual time passes may
//! unlist many flows, each of which was listed by a packet. No allocation per packet.
//!
//! Bound: per-flow order is kept. Work conserving. The stamp of an elastic packet that is served is
//! less than g above the smallest that waits, less than 2 g if nothing elastic waited of that one's
//! flow before (it stood a bucket behind its tag, where its packet found it: one g for the bucket,
//! one for being behind), but that of a flow which lost packets with priority: until it has caught
//! up with vt it may wait as if it had not. So over any time two flows that always have elastic
//! packets get the same but for a longest packet of each and 2 g; the published order gives the
//! same but for a longest packet of each ([`crate::reference::ExactPfq`]). A flow is listed as long
//! as published.
//! What overflows is shared like what is sent: whatever each sends, those that always wait get the
//! same.
//!
//! **What a flow loses it does not pay for.** The published rules do not say what becomes of the
//! tag of a flow that loses a packet to overflow. Left alone it runs ahead of what the flow has
//! sent, and a flow that goes on sending above its share gets less than the others, in the end
//! nothing. Here the tag, and the stamps of what waits behind the packet, are as if it had never
//! come; a flow whose tag is no more than vt then is not listed any more. What counts as taken in
//! with priority, bytes(f) and pb, stays as published.
//!
//! **Hosts** (`fair`). Where hosts share and within each its flows, a packet moves its flow's tag
//! on by as many lengths as flows of the busier of its two hosts have elastic packets waiting:
//! start-time fair queueing with the weights of CAKE's host isolation. An elastic packet does so
//! when it is sent, so that stamps within a queue stay without gaps; one with priority when it
//! comes. Where several workers share the link, flows at all of them count: each has the same part
//! of its host, wherever it is.
//!
//! Choices where the sources are silent: overflow drops the head (or tail) of the flow with the
//! longest backlog, to a thirty-second; a packet in front of P may be dropped, too. A flow that is
//! not listed any more keeps its place in the list until virtual time has passed its bucket, and
//! one that still is, but of which nothing waits, may lose it a little before where the list is
//! full.
//!
//! Not implemented: weights of flows; the patents' delayed unlisting.

mod drops;
mod flow;
mod order;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::buffer::{Buffer, DEFAULT_QUANTUM, KnownFlows, Room, memory_of_flows};
use super::calendar::{Calendar, GRAIN};
use super::flow_list::FlowList;
use super::hosts::{Fair, Hosts};
use super::longest::Longest;
use super::shared_flows::{ByFlow, Elsewhere};
use super::slab::{NIL, Queue, Slab, counted};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::aqm::Codel;
use crate::aqm::blue::Coin;
use crate::aqm::elastic::{ElasticAqm, Pace, packets_at};
use crate::audit::{Alike, Promise};
use crate::packet::{Class, FlowKey, Packet, Places};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::share::SharedLink;
use crate::units::{BitRate, Bytes, Nanos};
use flow::{Flow, Tag};

/// Valid priority quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 0..=65_535;
/// By how many quanta, beyond two of the longest packets, what two flows are sent may differ that
/// always wait. Start-time fair queueing (Goyal, Vin, Cheng 1996, Theorem 1) gives the two packets;
/// a flow that has just been listed may have had the quantum with priority, ahead of its tag. The
/// calendar adds two grains.
pub const SPREAD_QUANTA: u64 = 1;

settings! {
    /// Priority fair queueing: every flow gets its fair share, and flows that send less than that
    /// go first. Constant time. See docs/cross-protect.md.
    #[derive(Copy, Eq)]
    pub struct PfqConfig: "discipline = { kind = \"pfq\", … }" {
        /// Bytes that a flow may put in with priority since it was listed: the MTU. Looked at
        /// before a packet is added.
        live quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
        /// Whether acknowledgements that wait go when later ones of their connection say the same:
        /// for lines that carry far less this way than the other.
        live ack_filter: bool = false;
        /// Who gets the same: flows, hosts, or hosts and within each its flows. With hosts the fair
        /// rate is that of a host. Of several workers the first one has the link with `source`,
        /// `destination` and `host-flow`.
        fixed fair: Fair = Fair::Flow;
    }
    parts {
        /// Most that waits, and which packet goes when that is full.
        buffer: Buffer,
        /// The flows listed. While the list is full, flows that are not on it have priority, as
        /// published.
        flows: KnownFlows,
        /// What keeps the queue of each flow short.
        aqm: ElasticAqm,
    }
}

impl Discipline for PfqConfig {
    const NAME: &'static str = "pfq";
    const MEASURES_FAIR_RATE: bool = true;
    type Queues<P: Packet> = Pfq<P>;

    fn memory(&self, packet: u64) -> u64 {
        let flows = self.flows.most();
        let aqm = u64::from(flows) * size_of::<Codel>() as u64;
        // A host takes as much as a flow.
        memory_of_flows(flows + self.fair.hosts(flows), self.buffer.places(), packet) + aqm
    }

    /// What packets of hosts' flows pay changes with who waits: two flows may pay for theirs at
    /// different times.
    fn promise(&self) -> Promise {
        if self.fair != Fair::Flow {
            return Promise::WorkConserving;
        }
        let spread = Bytes(self.quantum.0 * SPREAD_QUANTA + 2 * GRAIN);
        Promise::Flows { spread, places: self.flows.most(), alike: Alike::All }
    }

    fn build<P: Packet>(self) -> Result<Pfq<P>, SettingError> {
        Pfq::new(self)
    }

    fn seed(&mut self, seed: u64) {
        self.flows.seed = seed;
    }

    fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        self.fair.for_one_worker()
    }
}

/// So many services ahead of the present one the state of a flow is read ahead, so many its first
/// packet, and so many what that stands for.
const AHEAD: [u32; 3] = [12, 8, 4];

/// The discipline.
#[derive(Clone, Debug)]
pub struct Pfq<P> {
    config: PfqConfig,
    rate: Option<BitRate>,
    /// What `config` and `rate` come to: room, and what no queue stands for.
    room: Room,
    pace: Pace,
    coin: Coin,
    /// What other workers are due for what waits there, in 2^-16.
    elsewhere: u64,
    /// What keeps the queue of each flow short: beside the flow's line, which is full.
    aqm: Vec<Codel>,
    slab: Slab<P, Tag>,
    /// The packets in front of the pointer P.
    priority: Queue,
    flows: FlowList<Flow>,
    /// The place of the flow of the packet that came last.
    last: u32,
    /// The listed flows.
    service: Calendar,
    longest: Longest,
    /// Whose flows they are, where hosts share.
    hosts: Option<Hosts<()>>,
    /// No hosts share, and no acknowledgements are looked for: asked once per packet.
    is_plain: bool,
    /// vt.
    virtual_time: u64,
    total: Backlog,
    /// Flows with elastic packets.
    busy: usize,
    /// pb.
    priority_bytes: Bytes,
    flips: u64,
    /// Others use the link: that nothing waits here does not make it idle.
    crowded: bool,
    /// Virtual time that passed elsewhere.
    passed: u64,
    /// How often no flow was listed any more, wrapping.
    purges: u32,
}

impl<P: Packet> Pfq<P> {
    /// The discipline with empty queues. Takes all its memory at once: about 170 bytes per flow,
    /// and a packet with 24 bytes, rounded up to 32, per place in the buffer.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a number is out of range.
    pub fn new(config: PfqConfig) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self {
            rate: None,
            room: config.buffer.at(None),
            pace: Pace::default(),
            coin: Coin::NEW,
            elsewhere: 0,
            aqm: alloc::vec![Codel::NEW; config.flows.most() as usize],
            config,
            slab: Slab::new(config.buffer.places()),
            priority: Queue::EMPTY,
            flows: FlowList::new(config.flows.most(), config.flows.seed, Flow::NEW)?,
            last: Places::NOWHERE,
            service: Calendar::new(config.flows.most()),
            longest: Longest::new(config.flows.most()),
            is_plain: !config.fair.is_nested() && !config.ack_filter,
            hosts: Hosts::new(config.fair, config.flows.most(), config.flows.seed, ())?,
            virtual_time: 0,
            total: Backlog::default(),
            busy: 0,
            priority_bytes: Bytes::ZERO,
            flips: 0,
            crowded: false,
            passed: 0,
            purges: 0,
        })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &PfqConfig {
        &self.config
    }

    /// ft of a listed flow, in bytes of virtual time.
    #[must_use]
    pub fn finish_tag(&self, flow: &FlowKey, hash: u64) -> Option<u64> {
        let flow = self.flows.get(self.flows.find(hash, &flow.into())?);
        flow.is_listed(self.virtual_time, self.purges).then_some(flow.finish)
    }

    /// How often a flow changed between streaming and elastic since it has a place in the list. A
    /// flow keeps its place until the list is full and it has been unlisted for long.
    #[must_use]
    pub fn class_flips(&self, flow: &FlowKey, hash: u64) -> Option<u32> {
        self.flows.find(hash, &flow.into()).map(|id| self.flows.get(id).flips.count())
    }
}

impl<P: Packet> ByFlow<P> for Pfq<P> {
    #[inline]
    fn waiting(&self) -> Waiting {
        let urgent =
            Backlog { packets: u64::from(self.priority.packets), bytes: self.priority.bytes };
        let elastic = Backlog {
            packets: self.total.packets - urgent.packets,
            bytes: self.total.bytes - urgent.bytes,
        };
        let of_hosts = self.hosts.as_ref().and_then(|hosts| hosts.weight());
        let weight = of_hosts.unwrap_or(Waiting::of_flows(self.busy as u32));
        Waiting { urgent, elastic, weight }
    }

    fn elsewhere(&mut self, others: Elsewhere) {
        self.pass(others.passed);
        self.set_crowded(others.crowded);
        self.elsewhere = others.weight;
    }

    fn share(&mut self, link: &Arc<SharedLink>) {
        if let Some(hosts) = &mut self.hosts {
            hosts.share(link, self.config.flows.seed, 1);
        }
    }

    fn grants_take(&mut self, time: Nanos) {
        self.pace.grants = time;
    }
}

impl<P: Packet> Scheduler<P> for Pfq<P> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let counted = counted(&packet);
        let length = Bytes(counted.into());
        loop {
            let (flows, Backlog { packets, bytes }) = (self.busy as u64, self.total);
            if self.room.fits(flows, packets as u32, bytes, length) {
                break;
            }
            if !self.room.takes(length) || !self.shed(now, dropped) {
                dropped.dropped(packet, Reason::PriorityFull);
                return Treated::Dropped(Reason::PriorityFull);
            }
        }
        self.total.packets += 1;
        self.total.bytes += length;
        let Some(id) = self.place(&packet) else {
            let tag = Tag { flow: NIL, prev: NIL, next: NIL };
            self.slab.push(&mut self.priority, packet, tag);
            self.priority_bytes += length;
            return Treated::Priority;
        };
        let member = id.link();
        let begins = !self.flows.in_use(id);
        if begins && let Some(hosts) = &mut self.hosts {
            hosts.begin(id, &packet);
        }
        let flow = self.flows.get_mut(id);
        let listed = flow.is_listed(self.virtual_time, self.purges);
        if !listed {
            (flow.finish, flow.offered, flow.elastic) = (self.virtual_time, 0, false);
            flow.purges = self.purges;
        }
        let streaming = !flow.elastic
            && (!listed || u64::from(flow.offered) < self.config.quantum.0)
            && self.config.flows.may_start(self.priority.bytes, length);
        flow.finish += length.0;
        let mut waits = false;
        self.flips += u64::from(flow.flips.note(!streaming));
        if streaming {
            flow.offered = flow.offered.saturating_add(u16::try_from(counted).unwrap_or(u16::MAX));
            flow.urgent = flow.urgent.saturating_add(counted);
            self.priority_bytes += length;
            let prev = flow.last;
            let tag = Tag { flow: member, prev, next: NIL };
            let at = self.slab.push(&mut self.priority, packet, tag);
            match self.slab.meta_mut(prev) {
                Some(before) => before.next = at,
                None => flow.first = at,
            }
            flow.last = at;
        } else {
            flow.elastic = true;
            waits = flow.fifo.is_empty();
            self.busy += usize::from(waits);
            let tag = Tag { flow: member, prev: NIL, next: NIL };
            self.slab.push(&mut flow.fifo, packet, tag);
        }
        let backlog = flow.backlog();
        self.longest.grown(member, &mut flow.place, backlog);
        if !self.is_plain {
            self.queued(id, (!streaming).then_some(waits), length, dropped);
        }
        if begins {
            let key = self.flows.get(id).key();
            self.flows.begin(id);
            self.service.push(self.virtual_time, key, member);
        }
        if streaming { Treated::Priority } else { Treated::Queued }
    }

    /// The first packet of a flow that is not listed, as none is while nothing waits.
    fn bypasses_up_to(&self) -> Option<(Bytes, Treated)> {
        let longest = self.room.longest().min(self.config.flows.longest_start());
        (self.total.packets == 0).then_some((longest, Treated::Priority))
    }

    fn bypassed(&mut self, bytes: Bytes) {
        self.priority_bytes += bytes;
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let packet = if !self.priority.is_empty() {
            self.serve_priority()
        } else if self.config.aqm.is_on() {
            let mut given = None;
            while given.is_none()
                && let Some(flow) = self.next_flow()
            {
                given = self.serve_short(now, flow, dropped);
            }
            given
        } else {
            let flow = self.next_flow()?;
            self.serve_elastic(flow)
        };
        if self.total.packets == 0 && !self.crowded {
            self.purge();
        }
        packet
    }

    /// Finds who is next, so that [`peek_len`](Scheduler::peek_len) need not search.
    fn settle(&mut self, _now: Nanos) {
        if self.priority.is_empty() {
            self.next_flow();
        }
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.total.packets > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        let next = self.slab.packet(self.priority.head());
        let next = next.or_else(|| self.slab.packet(self.peek_flow()?.fifo.head()));
        next.map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.config.set_live(change, 1)?;
        self.slab.reserve(self.config.buffer.places());
        self.room = self.config.buffer.at(self.rate);
        self.is_plain = self.hosts.is_none() && !self.config.ack_filter;
        Ok(Wake::No)
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.rate = rate;
        self.room = self.config.buffer.at(rate);
        self.pace.packets = packets_at(rate);
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some(packet) = self.serve_priority() {
            into(packet);
        }
        while let Some(flow) = self.next_flow() {
            self.serve_elastic(flow).into_iter().for_each(&mut *into);
        }
        self.purge();
    }

    fn meters(&self) -> Meters {
        Meters {
            backlog: self.total,
            priority_bytes: Some(self.priority_bytes),
            priority_backlog: Some(self.priority.bytes),
            virtual_time: Some(self.virtual_time),
            fair_bytes: Some(Bytes(self.virtual_time)),
            flows: Some(self.flows.len()),
            elastic_flows: Some(self.busy as u32),
            class_flips: Some(self.flips),
            busy: None,
        }
    }

    fn busy_queues(&self) -> usize {
        self.busy + usize::from(!self.priority.is_empty())
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        if class == Class(0) { self.total } else { Backlog::default() }
    }

    fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
        self.flows.find(hash, &flow.into()).map_or(Bytes::ZERO, |id| self.flows.get(id).backlog())
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
        PfqConfig::NAME
    }
}
