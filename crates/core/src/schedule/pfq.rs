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
//! FIFO and a tournament of flows by the stamp of their first elastic packet serve in the same
//! order (a property test compares them). Elastic packets of a flow follow each other without gaps
//! in virtual time up to its finish tag, so the stamp of the first one is that tag less what waits,
//! and no packet keeps one.
//!
//! Complexity: O(log n), n the flows there is room for and have been seen, to serve an elastic
//! packet and for a flow that is listed, unlisted, or gets its first elastic packet; constant time
//! to take a packet in behind others of its flow. A dropped packet costs O(log n) for the search of
//! the longest backlog, which costs nothing while the buffer is not full and no backlog is longer
//! than it ever was. A packet that virtual time passes may unlist many flows, each of which was
//! listed by a packet. No allocation per packet.
//!
//! Bound: per-flow order is kept. Work conserving. Elastic flows share as in start-time fair
//! queueing, also what overflows: whatever each sends, those that always wait get the same.
//!
//! **What a flow loses it does not pay for.** The published rules do not say what becomes of the
//! tag of a flow that loses a packet to overflow. Left alone it runs ahead of what the flow has
//! sent, and a flow that goes on sending above its share gets less than the others, in the end
//! nothing. Here the tag, and the stamps of what waits behind the packet, are as if it had never
//! come; a flow whose tag is no more than vt then is not listed any more. What counts as taken in
//! with priority, bytes(f) and pb, stays as published.
//!
//! Choices where the sources are silent: overflow drops the head (or tail) of the flow with the
//! longest backlog, among equals of that with the smallest hash (its last 42 bits); a packet in
//! front of P may be dropped, too.
//!
//! Not implemented: weights; the patents' delayed unlisting.

mod drops;
mod flow;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::buffer::{Buffer, DEFAULT_QUANTUM, KnownFlows, Room, memory_of_flows};
use super::flow_list::FlowList;
use super::shared_flows::{ByFlow, Elsewhere};
use super::slab::{NIL, Queue, Slab, Unlinked, counted};
use super::tournament::{Key, Tournament};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::aqm::Codel;
use crate::aqm::blue::Coin;
use crate::aqm::elastic::{ElasticAqm, packets_at};
use crate::flow_table::EntryId;
use crate::packet::{Class, FlowKey, Packet};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{BitRate, Bytes, Nanos};
use flow::{Flow, Tag, rank};

/// Valid priority quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 0..=65_535;

settings! {
    /// Priority fair queueing: every flow gets its fair share, and flows that send less than that
    /// go first. Logarithmic in the number of flows. See docs/cross-protect.md.
    #[derive(Copy, Eq)]
    pub struct PfqConfig: "discipline = { kind = \"pfq\", … }" {
        /// Bytes that a flow may put in with priority since it was listed: the MTU. Looked at
        /// before a packet is added.
        live quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
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
        memory_of_flows(flows, self.buffer.places(), packet) + aqm
    }

    fn build<P: Packet>(self) -> Result<Pfq<P>, SettingError> {
        Pfq::new(self)
    }

    fn seed(&mut self, seed: u64) {
        self.flows.seed = seed;
    }
}

/// How far ahead of its service the state of a flow is read, and its first packet: when it gets to
/// be the first of one of 4^n parts of all flows.
const AHEAD: [usize; 2] = [3, 2];

/// The discipline.
#[derive(Clone, Debug)]
pub struct Pfq<P> {
    config: PfqConfig,
    rate: Option<BitRate>,
    /// What `config` and `rate` come to: room, and the time of a packet and a half.
    room: Room,
    packets: Nanos,
    coin: Coin,
    /// Elastic flows that wait at other workers.
    elsewhere: u32,
    /// What keeps the queue of each flow short: beside the flow's line, which is full.
    aqm: Vec<Codel>,
    slab: Slab<P, Tag>,
    /// The packets in front of the pointer P.
    priority: Queue,
    flows: FlowList<Flow>,
    /// Flows with elastic packets by the stamp and the arrival of the first one.
    service: Tournament,
    /// The other listed flows by finish tag.
    expiry: Tournament,
    /// Flows by backlog, the longest first, and by hash. A backlog that shrank is put right when it
    /// comes to the top, so what waits for its turn costs nothing here.
    longest: Tournament,
    /// vt.
    virtual_time: u64,
    arrivals: u64,
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
}

impl<P: Packet> Pfq<P> {
    /// The discipline with empty queues. Takes all its memory at once: about 210 bytes per flow,
    /// and a packet, rounded up to 64, with 32 bytes per place in the buffer.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a number is out of range.
    pub fn new(config: PfqConfig) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self {
            rate: None,
            room: config.buffer.at(None),
            packets: Nanos::ZERO,
            coin: Coin::NEW,
            elsewhere: 0,
            aqm: alloc::vec![Codel::NEW; config.flows.most() as usize],
            config,
            slab: Slab::new(config.buffer.places()),
            priority: Queue::EMPTY,
            flows: FlowList::new(config.flows.most(), config.flows.seed, Flow::NEW)?,
            service: Tournament::new(config.flows.most()),
            expiry: Tournament::new(config.flows.most()),
            longest: Tournament::new(config.flows.most()),
            virtual_time: 0,
            arrivals: 0,
            total: Backlog::default(),
            busy: 0,
            priority_bytes: Bytes::ZERO,
            flips: 0,
            crowded: false,
            passed: 0,
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
        let id = self.flows.find(hash, &flow.into()).filter(|id| self.flows.in_use(*id))?;
        Some(self.flows.get(id).finish)
    }

    /// How often a flow changed between streaming and elastic since it has a place in the list. A
    /// flow keeps its place until the list is full and it has been unlisted for long.
    #[must_use]
    pub fn class_flips(&self, flow: &FlowKey, hash: u64) -> Option<u32> {
        self.flows.find(hash, &flow.into()).map(|id| self.flows.get(id).flips.count())
    }

    /// Puts a listed flow where its first elastic packet, or else its finish tag, says.
    fn line_up(&mut self, id: EntryId) {
        let flow = self.flows.get(id);
        match self.slab.meta(flow.fifo.head()) {
            Some(Tag::Elastic { arrival }) => {
                self.service.set(id.link(), Key { stamp: flow.start(), number: *arrival });
            }
            _ => {
                self.busy -= usize::from(self.service.remove(id.link()));
                self.expiry.set(id.link(), Key { stamp: flow.finish, number: 0 });
            }
        }
    }

    /// The first priority packet, to be sent. Its stamp is the virtual time: that does not move
    /// while one waits.
    fn serve_priority(&mut self) -> Option<P> {
        let Unlinked { at, length, meta } = self.slab.unlink(&mut self.priority)?;
        self.gone(length, meta);
        self.slab.release(at)
    }

    /// The first elastic packet of a flow, to be sent.
    fn serve_elastic(&mut self, id: EntryId) -> Option<P> {
        let flow = self.flows.get_mut(id);
        let Unlinked { at, length, meta } = self.slab.unlink(&mut flow.fifo)?;
        self.gone(length, meta);
        self.line_up(id);
        self.read_ahead(id.link());
        self.slab.release(at)
    }

    /// A packet has been taken out of its queue.
    fn gone(&mut self, length: Bytes, tag: Tag) {
        self.total.packets -= 1;
        self.total.bytes -= length;
        let Tag::Priority { flow, prev, next } = tag else { return };
        if flow == NIL {
            return;
        }
        let flow = self.flows.get_mut(EntryId::from_link(flow));
        flow.urgent -= length;
        match self.slab.meta_mut(prev) {
            Some(Tag::Priority { next: link, .. }) => *link = next,
            _ => flow.first = next,
        }
        match self.slab.meta_mut(next) {
            Some(Tag::Priority { prev: link, .. }) => *link = prev,
            _ => flow.last = prev,
        }
    }

    /// Reads ahead what the next services will read, after that of a flow: who comes in its place
    /// in larger and smaller parts of the tournament.
    #[inline]
    fn read_ahead(&self, served: u32) {
        if !self.flows.is_long() {
            return;
        }
        let far = self.service.first_near(served, AHEAD[0]);
        self.flows.prefetch_state(far);
        self.service.prefetch(far);
        self.expiry.prefetch(far);
        if let Some(flow) = self.flows.guess(self.service.first_near(served, AHEAD[1])) {
            self.slab.prefetch(flow.fifo.head());
        }
        if let Some((_, next)) = self.service.top()
            && let Some(flow) = self.flows.guess(next)
            && flow.fifo.packets > 1
        {
            self.slab.prefetch_next(flow.fifo.head());
        }
    }

    /// Virtual time has moved: flows whose finish tag it has reached are not listed any more.
    fn expire(&mut self) {
        let flows = &mut self.flows;
        self.expiry.remove_to(self.virtual_time, &mut |flow| flows.end(EntryId::from_link(flow)));
    }

    /// Nothing waits any more: no flow is listed.
    fn purge(&mut self) {
        let flows = &mut self.flows;
        self.expiry.remove_to(u64::MAX, &mut |flow| flows.end(EntryId::from_link(flow)));
    }

    /// Other workers have sent `bytes` to each of their elastic flows; here nothing elastic waits,
    /// so virtual time is theirs.
    fn pass(&mut self, bytes: Bytes) {
        if self.busy > 0 {
            return;
        }
        self.passed += bytes.0;
        // It does not move while a priority packet waits.
        if self.priority.is_empty() {
            self.virtual_time += core::mem::take(&mut self.passed);
            self.expire();
        }
    }

    /// Whether others use the link, so that it is not idle when nothing waits here.
    fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
        if !crowded && self.total.packets == 0 && self.flows.len() > 0 {
            self.purge();
        }
    }

    /// The flow of a packet, listed from now on, and whether it was. `None` if the list is full.
    fn list(&mut self, packet: &P) -> Option<(EntryId, bool)> {
        let (hash, key) = (packet.flow_hash(), packet.packed_flow());
        let longest = &mut self.longest;
        let id = match self.flows.find(hash, &key) {
            Some(id) => id,
            None => {
                let forget = |old: EntryId, _: &mut Flow| {
                    longest.remove(old.link());
                };
                let id = self.flows.insert(hash, key, Flow::NEW, forget)?;
                self.aqm[id.index()] = Codel::NEW;
                id
            }
        };
        if self.flows.in_use(id) {
            return Some((id, true));
        }
        let flow = self.flows.get_mut(id);
        (flow.finish, flow.offered, flow.elastic) = (self.virtual_time, 0, false);
        self.flows.begin(id);
        Some((id, false))
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
        Waiting { urgent, elastic, flows: self.busy as u32 }
    }

    fn elsewhere(&mut self, others: Elsewhere) {
        self.pass(others.passed);
        self.set_crowded(others.crowded);
        self.elsewhere = others.flows;
    }
}

impl<P: Packet> Scheduler<P> for Pfq<P> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let (hash, counted) = (packet.flow_hash(), counted(&packet));
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
        self.arrivals += 1;
        let Some((id, listed)) = self.list(&packet) else {
            let tag = Tag::Priority { flow: NIL, prev: NIL, next: NIL };
            self.slab.push(&mut self.priority, packet, tag);
            self.priority_bytes += length;
            return Treated::Priority;
        };
        let member = id.link();
        let flow = self.flows.get_mut(id);
        let streaming = !flow.elastic
            && (!listed || u64::from(flow.offered) < self.config.quantum.0)
            && self.config.flows.may_start(self.priority.bytes, length);
        let stamp = flow.finish;
        flow.finish += length.0;
        self.flips += u64::from(flow.flips.note(!streaming));
        if streaming {
            flow.offered = flow.offered.saturating_add(u16::try_from(counted).unwrap_or(u16::MAX));
            flow.urgent += length;
            self.priority_bytes += length;
            let prev = flow.last;
            let tag = Tag::Priority { flow: member, prev, next: NIL };
            let at = self.slab.push(&mut self.priority, packet, tag);
            match self.slab.meta_mut(prev) {
                Some(Tag::Priority { next, .. }) => *next = at,
                _ => flow.first = at,
            }
            flow.last = at;
            self.expiry.set(member, Key { stamp: flow.finish, number: 0 });
        } else {
            flow.elastic = true;
            if flow.fifo.is_empty() {
                self.expiry.remove(member);
                self.service.set(member, Key { stamp, number: self.arrivals });
                self.busy += 1;
            }
            self.slab.push(&mut flow.fifo, packet, Tag::Elastic { arrival: self.arrivals });
        }
        let length = flow.length();
        if length > flow.known {
            flow.known = length;
            self.longest.set(member, Key { stamp: rank(length), number: hash });
        }
        if streaming { Treated::Priority } else { Treated::Queued }
    }

    /// The first packet of a flow that is not listed, as none is while nothing waits.
    fn bypass(&mut self, _now: Nanos, packet: &P) -> Option<Treated> {
        let length = packet.wire_len();
        if self.total.packets > 0
            || !self.room.takes(length)
            || !self.config.flows.may_start(Bytes::ZERO, length)
        {
            return None;
        }
        self.arrivals += 1;
        self.priority_bytes += length;
        Some(Treated::Priority)
    }

    fn bypasses(&self) -> bool {
        self.total.packets == 0
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let packet = if !self.priority.is_empty() {
            self.serve_priority()
        } else if self.config.aqm.is_on() {
            let mut given = None;
            while given.is_none()
                && let Some((_, flow)) = self.service.top()
            {
                given = self.serve_short(now, EntryId::from_link(flow), dropped);
            }
            given.map(|(stamp, packet)| {
                if stamp > self.virtual_time {
                    self.virtual_time = stamp;
                    self.expire();
                }
                packet
            })
        } else {
            let (stamp, flow) = self.service.top()?;
            let packet = self.serve_elastic(EntryId::from_link(flow))?;
            if stamp > self.virtual_time {
                self.virtual_time = stamp;
                self.expire();
            }
            Some(packet)
        };
        if self.total.packets == 0 && !self.crowded {
            self.purge();
        }
        packet
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.total.packets > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        let next = self.slab.packet(self.priority.head()).or_else(|| {
            let (_, flow) = self.service.top()?;
            self.slab.packet(self.flows.get(EntryId::from_link(flow)).fifo.head())
        });
        next.map(Packet::ip_len)
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
        self.packets = packets_at(rate);
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some(packet) = self.serve_priority() {
            into(packet);
        }
        while let Some((_, flow)) = self.service.top() {
            while let Some(packet) = self.serve_elastic(EntryId::from_link(flow)) {
                into(packet);
            }
        }
        self.purge();
    }

    fn meters(&self) -> Meters {
        Meters {
            backlog: self.total,
            priority_bytes: Some(self.priority_bytes),
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

    fn prefetch_bucket(&self, hash: u64) {
        self.flows.prefetch_bucket(hash);
    }

    fn prefetch(&self, hash: u64) {
        if let Some(flow) = self.flows.prefetch(hash) {
            self.service.prefetch(flow);
            self.expiry.prefetch(flow);
        }
    }

    fn name(&self) -> &'static str {
        PfqConfig::NAME
    }
}
