//! PFQ, priority fair queueing: start-time fair queueing in which slow flows go first.
//!
//! Source: pseudo-code of the flow-aware networking group at AGH Kraków, after Kortebi, Muscariello, Oueslati, Roberts,
//! "On the scalability of fair queueing" (HotNets III, 2004); expiry as in the public simulator of that group.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | vt, virtual time | `Pfq::virtual_time` | bytes |
//! | PIFO and pointer P | `Pfq::priority` (all in front of P), `Pfq::service` with `Flow::fifo` (all behind) | – |
//! | ft, finish tag of flow f | `Flow::finish` | bytes of virtual time |
//! | bytes(f) since it was listed | `Flow::offered` | bytes |
//! | backlog(f) | `Flow::backlog` | bytes |
//! | MTU | `PfqConfig::quantum` | bytes |
//! | pb | `Pfq::priority_bytes` | bytes taken in with priority |
//!
//! A packet of a flow that is not listed, or that has had less than MTU bytes taken in with priority since it was, goes
//! to the end of the priority packets, with the stamp vt. Any other gets its flow's finish tag for a stamp. Either way the tag
//! grows by the packet's length. When a packet begins service, vt is its stamp, and flows whose finish tag vt has
//! reached are not listed any more: whoever sends slower than vt always goes first. When nothing waits, no flow is
//! listed; vt is never set back, as the fair rate is measured by it.
//!
//! The published form is one list sorted by stamp with a pointer behind its priority packets. No stamp behind the pointer is
//! below vt, and vt does not move while a packet before it waits: so a FIFO and a heap of flows by the stamp
//! of their first elastic packet serve in the same order (a property test compares them).
//!
//! Complexity: O(log n) in the flows that wait, for the three heaps: service, expiry by finish tag, longest backlog. A
//! packet that virtual time passes may unlist many flows, each of which was listed by a packet. No allocation per packet.
//!
//! Bound: per-flow order is kept. Work conserving. Elastic flows share as in start-time fair queueing.
//!
//! Choices where the sources are silent: overflow drops the head (or tail) of the flow with the longest backlog, among
//! equals of that with the smallest hash, and leaves its tags alone; a packet in front of P may be dropped, too.
//!
//! Not implemented: weights; the patents' delayed unlisting.

use core::cmp::Reverse;
use core::ops::RangeInclusive;

use super::buffer::{Buffer, KnownFlows, Victim};
use super::flow_list::{Flips, FlowList};
use super::heap::Heap;
use super::slab::{NIL, Queue, Slab};
use super::{Backlog, DropSink, Knob, KnobError, Meters, Scheduler, Treated, Waiting, Wake, in_range};
use crate::flow_table::EntryId;
use crate::packet::{Class, FlowKey, Packet};
use crate::reason::Reason;
use crate::units::{Bytes, Nanos};

/// Valid priority quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 0..=65_535;

/// What a PFQ is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PfqConfig {
    /// Bytes that a flow may put in with priority since it was listed (the published MTU), looked at before a packet is
    /// added: in [`QUANTUM_RANGE`]; default 1500.
    pub quantum: Bytes,
    /// Most that waits, and who goes when that is full.
    pub buffer: Buffer,
    /// The flows listed. While the list is full, flows that are not on it have priority, as published.
    pub flows: KnownFlows,
}

impl Default for PfqConfig {
    fn default() -> Self {
        Self { quantum: Bytes(1_500), buffer: Buffer::default(), flows: KnownFlows::default() }
    }
}

impl PfqConfig {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), KnobError> {
        in_range("quantum", self.quantum.0, QUANTUM_RANGE, "bytes")?;
        self.buffer.check()?;
        self.flows.check()
    }
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
struct Flow {
    hash: u64,
    /// Elastic packets that wait.
    fifo: Queue,
    /// First and last of its packets in the priority queue.
    first: u32,
    last: u32,
    /// Bytes that wait, with and without priority.
    backlog: Bytes,
    /// ft, in bytes of virtual time.
    finish: u64,
    /// Priority bytes since it was listed.
    offered: Bytes,
    flips: Flips,
    /// An elastic packet came since it was listed: none may have priority any more, or it would overtake.
    elastic: bool,
}

impl Flow {
    const fn new(hash: u64) -> Self {
        Self {
            hash,
            fifo: Queue::EMPTY,
            first: NIL,
            last: NIL,
            backlog: Bytes::ZERO,
            finish: 0,
            offered: Bytes::ZERO,
            flips: Flips::NEW,
            elastic: false,
        }
    }
}

/// What is kept with a packet.
#[derive(Clone, Copy, Debug)]
struct Tag {
    /// Its flow; `NIL` if it has no place.
    flow: u32,
    /// The flow's packets before and after it in the priority queue.
    prev: u32,
    next: u32,
    /// Virtual time and number of its arrival: the order of service among elastic packets.
    stamp: (u64, u64),
}

/// The discipline. Knobs: [`Knob::Quantum`], [`Knob::Buffer`], [`Knob::Victim`], [`Knob::StartLimit`].
#[derive(Clone, Debug)]
pub struct Pfq<P> {
    config: PfqConfig,
    slab: Slab<P, Tag>,
    /// The packets in front of the pointer P.
    priority: Queue,
    flows: FlowList<Flow>,
    /// Flows with elastic packets by the stamp of the first one. A flow's stamps rise, so one place per flow is enough.
    service: Heap<(u64, u64)>,
    /// Listed flows by finish tag; a tag that has grown is put right when it comes to the top.
    expiry: Heap<u64>,
    /// Flows by backlog, the longest first, and by hash; a backlog that shrank is put right when it comes to the top.
    longest: Heap<(Reverse<Bytes>, u64)>,
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
    /// The name in configuration files.
    pub const NAME: &'static str = "pfq";

    /// The discipline with empty queues. Takes all its memory at once: about 250 bytes per flow, and a packet, rounded up to 64, with 48
    /// bytes per place in the buffer.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] if a number is out of range.
    pub fn new(config: PfqConfig) -> Result<Self, KnobError> {
        config.check()?;
        Ok(Self {
            config,
            slab: Slab::new(config.buffer.places()),
            priority: Queue::EMPTY,
            flows: FlowList::new(config.flows.most, config.flows.seed, Flow::new(0))?,
            service: Heap::new(config.flows.most),
            expiry: Heap::new(config.flows.most),
            longest: Heap::new(config.flows.most),
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

    /// How often a flow changed between streaming and elastic since it has a place in the list. A flow keeps its place
    /// until the list is full and it has been unlisted for long.
    #[must_use]
    pub fn class_flips(&self, flow: &FlowKey, hash: u64) -> Option<u32> {
        self.flows.find(hash, &flow.into()).map(|id| self.flows.get(id).flips.count)
    }

    /// The flow with the longest backlog loses a packet. Whether there was one.
    fn shed(&mut self, dropped: &mut dyn DropSink<P>) -> bool {
        while let Some(((Reverse(known), hash), victim)) = self.longest.top() {
            let id = EntryId::from_link(victim);
            let flow = *self.flows.get(id);
            if flow.backlog == Bytes::ZERO {
                self.longest.remove(victim);
                continue;
            }
            if flow.backlog != known {
                self.longest.set(victim, (Reverse(flow.backlog), hash));
                continue;
            }
            let packet = match self.config.buffer.victim {
                Victim::Head if flow.first != NIL => self.take_priority(flow.first),
                Victim::Head => self.take_elastic(id, flow.fifo.head()),
                Victim::Tail if flow.fifo.is_empty() => self.take_priority(flow.last),
                Victim::Tail => self.take_elastic(id, flow.fifo.tail()),
            };
            let Some(packet) = packet else { return false };
            dropped.dropped(packet, Reason::LongestFlow);
            return true;
        }
        false
    }

    /// Takes a packet out of the priority queue.
    fn take_priority(&mut self, at: u32) -> Option<P> {
        let (packet, tag) = self.slab.take(&mut self.priority, at)?;
        self.gone(&packet);
        if tag.flow != NIL {
            let flow = self.flows.get_mut(EntryId::from_link(tag.flow));
            flow.backlog -= packet.ip_len();
            match self.slab.meta_mut(tag.prev) {
                Some(prev) => prev.next = tag.next,
                None => flow.first = tag.next,
            }
            match self.slab.meta_mut(tag.next) {
                Some(next) => next.prev = tag.prev,
                None => flow.last = tag.prev,
            }
        }
        Some(packet)
    }

    /// Takes a packet out of a flow's elastic ones.
    fn take_elastic(&mut self, id: EntryId, at: u32) -> Option<P> {
        let flow = self.flows.get_mut(id);
        let (packet, _) = self.slab.take(&mut flow.fifo, at)?;
        flow.backlog -= packet.ip_len();
        match self.slab.meta(flow.fifo.head()) {
            Some(head) => self.service.set(id.link(), head.stamp),
            None => {
                self.service.remove(id.link());
                self.busy -= 1;
            }
        }
        self.gone(&packet);
        Some(packet)
    }

    fn gone(&mut self, packet: &P) {
        self.total.packets -= 1;
        self.total.bytes -= packet.ip_len();
    }

    /// Virtual time has moved: flows whose finish tag it has reached are not listed any more.
    fn expire(&mut self) {
        while let Some((tag, flow)) = self.expiry.top()
            && tag <= self.virtual_time
        {
            let id = EntryId::from_link(flow);
            let finish = self.flows.get(id).finish;
            debug_assert!(self.flows.in_use(id));
            if finish > self.virtual_time {
                self.expiry.set(flow, finish);
            } else {
                self.expiry.remove(flow);
                self.flows.end(id);
            }
        }
    }

    /// Nothing waits any more: no flow is listed.
    fn purge(&mut self) {
        self.flows.end_all(self.expiry.members());
        self.expiry.clear();
    }

    /// What waits, for [`super::shared_flows`].
    #[inline]
    pub(super) fn waiting(&self) -> Waiting {
        let urgent = Backlog { packets: u64::from(self.priority.packets), bytes: self.priority.bytes };
        let elastic =
            Backlog { packets: self.total.packets - urgent.packets, bytes: self.total.bytes - urgent.bytes };
        Waiting { urgent, elastic, flows: self.busy as u32 }
    }

    /// Other workers have sent `bytes` to each of their elastic flows; here nothing elastic waits, so virtual time is theirs.
    pub(super) fn pass(&mut self, bytes: Bytes) {
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
    pub(super) fn set_crowded(&mut self, crowded: bool) {
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
            None => self.flows.insert(hash, key, Flow::new(hash), |old, _| longest.remove(old.link()))?,
        };
        if self.flows.in_use(id) {
            return Some((id, true));
        }
        let flow = self.flows.get_mut(id);
        (flow.finish, flow.offered, flow.elastic) = (self.virtual_time, Bytes::ZERO, false);
        self.flows.begin(id);
        Some((id, false))
    }
}

impl<P: Packet> Scheduler<P> for Pfq<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let length = packet.ip_len();
        while !self.config.buffer.fits(self.total.packets as u32, self.total.bytes, length) {
            if !self.config.buffer.fits(0, Bytes::ZERO, length) || !self.shed(dropped) {
                dropped.dropped(packet, Reason::PriorityFull);
                return Treated::Dropped(Reason::PriorityFull);
            }
        }
        self.total.packets += 1;
        self.total.bytes += length;
        self.arrivals += 1;
        let Some((id, listed)) = self.list(&packet) else {
            let tag = Tag { flow: NIL, prev: NIL, next: NIL, stamp: (self.virtual_time, self.arrivals) };
            self.slab.push(&mut self.priority, packet, tag);
            self.priority_bytes += length;
            return Treated::Priority;
        };
        let member = id.link();
        let flow = self.flows.get_mut(id);
        let streaming = !flow.elastic
            && (!listed || flow.offered < self.config.quantum)
            && self.config.flows.may_start(self.priority.bytes, length);
        let stamp = if streaming { self.virtual_time } else { flow.finish };
        let mut tag = Tag { flow: member, prev: NIL, next: NIL, stamp: (stamp, self.arrivals) };
        flow.finish += length.0;
        flow.backlog += length;
        self.flips += u64::from(flow.flips.note(!streaming));
        self.expiry.lower(member, flow.finish);
        self.longest.lower(member, (Reverse(flow.backlog), flow.hash));
        if streaming {
            flow.offered += length;
            self.priority_bytes += length;
            tag.prev = flow.last;
            let at = self.slab.push(&mut self.priority, packet, tag);
            match self.slab.meta_mut(tag.prev) {
                Some(prev) => prev.next = at,
                None => flow.first = at,
            }
            flow.last = at;
            Treated::Priority
        } else {
            flow.elastic = true;
            if flow.fifo.is_empty() {
                self.service.set(member, tag.stamp);
                self.busy += 1;
            }
            self.slab.push(&mut flow.fifo, packet, tag);
            Treated::Queued
        }
    }

    /// The first packet of a flow that is not listed, as none is while nothing waits.
    fn bypass(&mut self, _now: Nanos, packet: &P) -> Option<Treated> {
        let length = packet.ip_len();
        if self.total.packets > 0
            || !self.config.buffer.fits(0, Bytes::ZERO, length)
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

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        let packet = if self.priority.is_empty() {
            let ((stamp, _), flow) = self.service.top()?;
            let id = EntryId::from_link(flow);
            let packet = self.take_elastic(id, self.flows.get(id).fifo.head())?;
            if stamp > self.virtual_time {
                self.virtual_time = stamp;
                self.expire();
            }
            packet
        } else {
            // Its stamp is the virtual time: that does not move while a priority packet waits.
            self.take_priority(self.priority.head())?
        };
        if self.total.packets == 0 && !self.crowded {
            self.purge();
        }
        Some(packet)
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

    fn set(&mut self, _now: Nanos, knob: Knob) -> Result<Wake, KnobError> {
        let mut config = self.config;
        match knob {
            Knob::Quantum(quantum) => config.quantum = quantum,
            Knob::Buffer(limit) => config.buffer.limit = limit,
            Knob::Victim(victim) => config.buffer.victim = victim,
            Knob::StartLimit(limit) => config.flows.start_limit = limit,
            other => {
                return Err(KnobError::NoSuchKnob { knob: other.name(), discipline: Self::NAME });
            }
        }
        config.check()?;
        self.config = config;
        self.slab.reserve(config.buffer.places());
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some(packet) = self.take_priority(self.priority.head()) {
            into(packet);
        }
        while let Some((_, flow)) = self.service.top() {
            let id = EntryId::from_link(flow);
            while let Some(packet) = self.take_elastic(id, self.flows.get(id).fifo.head()) {
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
        self.flows.find(hash, &flow.into()).map_or(Bytes::ZERO, |id| self.flows.get(id).backlog)
    }

    fn prefetch_bucket(&self, hash: u64) {
        self.flows.prefetch_bucket(hash);
    }

    fn prefetch(&self, hash: u64) {
        self.flows.prefetch(hash);
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}
