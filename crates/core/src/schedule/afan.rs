//! AFAN, approximate flow-aware networking: one queue for streaming packets, one for elastic ones,
//! and approximate fair dropping.
//!
//! Source: abstracts on AFAN (ICC 2009) and approximate fair dropping as published (Pan, Breslau,
//! Prabhakar, Shenker, "Approximate fairness through differential dropping", CCR 2003) and as
//! implemented for Linux and P4. Only the two queues and the dropping are documented of AFAN; the
//! priority test is that of its family.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | PQ, EQ | `Afan::priority`, `Afan::elastic` | – |
//! | b, s, q_target, alpha, beta, 1/f_s | `Afd` | packets, packets, ns or packets, 1/1000, 1/1000, ns |
//! | m_i | `Flow::shadow` | packets in the shadow buffer |
//! | m_fair | `Afan::fair` | 1/65536 packet, from 1 to b packets |
//! | Q | `AfanConfig::quantum` | bytes |
//! | FB | `Afan::fair_bytes`, summed up | bytes |
//! | n | `Afan::elastic_flows` | flows |
//! | pb | `Afan::priority_bytes` | bytes taken into the PQ |
//!
//! One of s arrivals is noted in the shadow buffer, which forgets the oldest. A packet of a flow
//! that has nothing in EQ and, with it, at most Q bytes in PQ goes to PQ, which is served first.
//! Any other is dropped with probability 1 - m_fair / m_i, else goes to EQ. Every 1/f_s
//! `m_fair += alpha (q_prev - q_target) - beta (q - q_target)`, q being the length of EQ.
//!
//! FB is "bytes sent by elastic flows divided by their number in the interval"; here each elastic
//! packet adds its length over n. The published rule that the fair rate is C when there are no
//! elastic flows is left out: idle time of the wire says what they would get.
//!
//! **By time**, the default (this project's). A target in packets is too short for many flows:
//! with 50, from 15 on most greedy flows find none of their packets in EQ, begin anew and have
//! priority. So q_target is what EQ sends in `delay`, at least 16 packets and 3 for each elastic
//! flow. While EQ has packets a flow has priority for Q bytes beyond FB and no more, counted over
//! both queues: to have none in EQ for a moment does not do. The controller's gains are for errors
//! in parts of q_target, and those at 50 the published ones; m_fair may fall to 1/64. n is the
//! number of flows with packets in EQ.
//!
//! **With `target`**, as published: n is counted in windows, the larger of the last window's and
//! the present one's so far, as flows may have no packet in EQ. A greedy flow that has none there
//! begins anew: streams are safe while `q_target` is several packets for each greedy flow (a
//! stream's p99 stays under a packet and 0.5 ms at 6 per flow; at 4 it is tens of milliseconds).
//!
//! Complexity: constant time, no allocation per packet.
//!
//! Bound: per-flow order is kept. Work conserving. Fair shares hold on average only: by time, from
//! 1 to 100 greedy flows Jain's index is 0.99 and more, FB within 3 % of the fair rate.
//!
//! Choices where the sources are silent: each queue has its own limit, so elastic packets never
//! displace streaming ones. A flow without a place in the table is elastic and passes undrawn.
//!
//! **Several workers on a link.** Of each worker's queues most may be empty while the link is full.
//! There a flow has priority only for Q bytes beyond what the elastic flows of all workers were
//! sent each meanwhile, whatever the target (this project's rule).
//!
//! Not implemented: the fair rate by m_fair, smoothing (admission's), a random entry to leave the
//! shadow buffer.

mod config;

use alloc::vec::Vec;

pub use config::*;

use super::buffer::memory_of_flows;
use super::flow_list::Flips;
use super::shared_flows::{ByFlow, Elsewhere};
use super::slab::{NIL, Queue, Slab};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::flow_table::{EntryId, FlowTable};
use crate::packet::{Class, FlowKey, Packet};
use crate::reason::Reason;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{Bytes, Nanos};

impl Discipline for AfanConfig {
    const NAME: &'static str = "afan";
    const MEASURES_FAIR_RATE: bool = true;
    type Queues<P: Packet> = Afan<P>;

    fn memory(&self, packet: u64) -> u64 {
        let queues = memory_of_flows(self.flows.most(), self.limit.saturating_mul(2), packet);
        queues + 4 * u64::from(self.afd.shadow)
    }

    fn build<P: Packet>(self) -> Result<Afan<P>, SettingError> {
        Afan::new(self)
    }

    fn seed(&mut self, seed: u64) {
        self.flows.seed = seed;
    }
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Bytes in PQ.
    priority: Bytes,
    /// Bytes in EQ.
    waiting: Bytes,
    /// `Afan::clock` up to which the flow has been served.
    until: u64,
    /// m_i: packets in the shadow buffer.
    shadow: u32,
    /// The window in which it was last sent an elastic packet, and the number of windows is counted
    /// from 1.
    window: u64,
    /// How many packets of flows without a place had come to EQ before this flow got one: some may
    /// be its own, and are not to be overtaken.
    behind: u64,
    flips: Flips,
}

impl Flow {
    const fn new(behind: u64) -> Self {
        let (priority, waiting) = (Bytes::ZERO, Bytes::ZERO);
        Self { priority, waiting, until: 0, shadow: 0, window: 0, behind, flips: Flips::NEW }
    }

    fn is_idle(&self, window: u64) -> bool {
        let seen = self.window + 1 >= window;
        self.priority == Bytes::ZERO && self.waiting == Bytes::ZERO && self.shadow == 0 && !seen
    }
}

/// One in fixed point: 16 binary digits after the point.
const ONE: u64 = 1 << 16;
/// Least target of the elastic queue by time, in packets, and for each elastic flow.
const LEAST_TARGET: u64 = 16;
const TARGET_PER_FLOW: u64 = 3;
/// The target that the gains are published for, in packets, and the least m_fair by time.
const PUBLISHED_TARGET: i64 = 50;
const LEAST_FAIR: i64 = ONE as i64 / 64;
/// Steps of the controller over which the pace of the elastic queue is a mean.
const PACE_STEPS: u64 = 16;
/// Places of the table that an arrival looks at for a flow to forget, when the table is full.
const SWEEP: u32 = 8;

/// Pseudo-random numbers by counting (SplitMix64): the same on every machine.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Afan<P> {
    config: AfanConfig,
    /// With each packet: its flow, `NIL` if it has no place.
    slab: Slab<P, u32>,
    /// PQ.
    priority: Queue,
    /// EQ.
    elastic: Queue,
    flows: FlowTable<Flow>,
    /// Packets of flows without a place that came to EQ, and that left it.
    placeless_in: u64,
    placeless_out: u64,
    /// The shadow buffer: flows of sampled arrivals, the oldest at `oldest` once it is full.
    shadow: Vec<u32>,
    oldest: usize,
    /// m_fair, in packets of the shadow buffer, with 16 binary digits after the point.
    fair: i64,
    /// q_prev.
    before: i64,
    /// When the controller's next step is due; `None` before the first.
    due: Option<Nanos>,
    random: Random,
    /// The window it is, counted from 1 (0: windows have just changed), how many flows were sent
    /// elastic packets in it, and in the one before.
    window: u64,
    seen: u64,
    seen_before: u64,
    /// Flows that have packets in EQ.
    waiting: u32,
    /// FB summed up, and the part of a byte beyond it in 1/65536.
    fair_bytes: Bytes,
    fair_part: u64,
    /// pb.
    priority_bytes: Bytes,
    flips: u64,
    /// Others use the link: that nothing of a flow waits here does not say that it sends less than
    /// they do.
    crowded: bool,
    /// What each elastic flow of the whole link was sent: FB, or what others' were if that is more.
    clock: u64,
    /// How far it has come by FB since others' was told.
    advanced: u64,
    /// Elastic packets sent since the last step of the controller, and their mean for a step in
    /// 1/65536.
    sent: u64,
    pace: u64,
}

impl<P: Packet> Afan<P> {
    /// The discipline with empty queues. Takes all its memory at once: about 130 bytes per flow, a
    /// packet with 16 bytes per place in the queues, 4 bytes per place in the shadow buffer.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a number is out of range.
    pub fn new(config: AfanConfig) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self {
            config,
            slab: Slab::new(2 * config.limit),
            priority: Queue::EMPTY,
            elastic: Queue::EMPTY,
            flows: FlowTable::new(config.flows.most(), config.flows.seed)?,
            placeless_in: 0,
            placeless_out: 0,
            shadow: Vec::with_capacity(config.afd.shadow as usize),
            oldest: 0,
            fair: i64::from(config.afd.shadow) * ONE as i64,
            before: 0,
            due: None,
            random: Random(config.flows.seed),
            window: 1,
            seen: 0,
            seen_before: 0,
            waiting: 0,
            fair_bytes: Bytes::ZERO,
            fair_part: 0,
            priority_bytes: Bytes::ZERO,
            flips: 0,
            crowded: false,
            clock: 0,
            advanced: 0,
            sent: 0,
            pace: 0,
        })
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &AfanConfig {
        &self.config
    }

    /// m_fair: packets in the shadow buffer that a flow may have without being dropped from, in
    /// 1/65536.
    #[must_use]
    pub const fn fair_share(&self) -> u64 {
        self.fair as u64
    }

    /// How often a flow changed between streaming and elastic since it has a place in the table. A
    /// flow keeps its place until the table is full and nothing else is known of the flow.
    #[must_use]
    pub fn class_flips(&self, flow: &FlowKey, hash: u64) -> Option<u32> {
        self.flows.find(hash, &flow.into()).map(|id| self.flows.value(id).flips.count())
    }

    /// The flow of a packet; `None` if there is no room for it.
    fn flow(&mut self, packet: &P) -> Option<EntryId> {
        let (hash, key) = (packet.flow_hash(), packet.packed_flow());
        if let Some(id) = self.flows.find(hash, &key) {
            return Some(id);
        }
        if self.flows.is_full() {
            let window = self.window;
            self.flows.sweep(SWEEP, |_, flow| flow.is_idle(window));
        }
        self.flows.insert(hash, key, Flow::new(self.placeless_in)).ok()
    }

    /// One of `sample` arrivals goes to the shadow buffer; the oldest leaves it.
    fn sample(&mut self, id: EntryId) {
        if !self.random.next().is_multiple_of(self.config.afd.sample) {
            return;
        }
        let place = id.link();
        if self.shadow.len() < self.config.afd.shadow as usize {
            self.shadow.push(place);
        } else {
            let oldest = core::mem::replace(&mut self.shadow[self.oldest], place);
            self.oldest = (self.oldest + 1) % self.shadow.len();
            self.flows.value_mut(EntryId::from_link(oldest)).shadow -= 1;
        }
        self.flows.value_mut(id).shadow += 1;
    }

    /// Whether a flow with `shadow` packets in the shadow buffer loses the one that arrives: with
    /// probability 1 - m_fair / m_i.
    fn draws(&mut self, shadow: u32) -> bool {
        let sent = u64::from(shadow) * ONE;
        let fair = self.fair as u64;
        sent > fair && u64::from(self.random.next()) * sent < (sent - fair) << 32
    }

    /// Whether what each elastic flow is sent counts for the priority test, as nothing that waits
    /// of a flow may not say enough.
    fn is_contended(&self) -> bool {
        self.crowded || (self.config.afd.target.is_none() && !self.elastic.is_empty())
    }

    /// n: flows that have elastic packets here; with a target as published, those that were sent
    /// some of late, as many may have none.
    fn elastic_flows(&self) -> u64 {
        match self.config.afd.target {
            None => self.waiting.into(),
            Some(_) => self.seen.max(self.seen_before),
        }
    }

    /// q_target.
    fn target(&self) -> u32 {
        let Afd { target, delay, interval, .. } = self.config.afd;
        target.unwrap_or_else(|| {
            let by_time = u128::from(self.pace) * u128::from(delay.0) / u128::from(interval.0);
            let flows = self.elastic_flows();
            let wanted = u64::try_from(by_time >> 16).unwrap_or(u64::MAX);
            let wanted = wanted.max(LEAST_TARGET).max(flows * TARGET_PER_FLOW);
            wanted.min((u64::from(self.config.limit) / 2).max(1)) as u32
        })
    }

    /// The controller's steps that are due. The length of EQ has been the same since the last
    /// packet came or went, so steps missed meanwhile all add the same, but for the first of them.
    fn control(&mut self, now: Nanos) {
        let interval = self.config.afd.interval;
        let due = *self.due.get_or_insert(now.saturating_add(interval));
        if now < due {
            return;
        }
        let more = (now.0 - due.0) / interval.0;
        self.due = Some(due.saturating_add(Nanos(interval.0.saturating_mul(more + 1))));
        let sent = core::mem::take(&mut self.sent) * ONE / (more + 1);
        let steps = PACE_STEPS.saturating_sub(more + 1);
        self.pace = (self.pace * steps + sent * (PACE_STEPS - steps)) / PACE_STEPS;
        let Afd { alpha, beta, shadow, .. } = self.config.afd;
        let by_time = self.config.afd.target.is_none();
        let [alpha, beta, target] = [alpha.0, beta.0, self.target()].map(i64::from);
        let (most, queued) = (i64::from(shadow) * ONE as i64, i64::from(self.elastic.packets));
        // By time the gains are for errors in parts of the target, and those at the published one.
        let (times, per, least) =
            if by_time { (PUBLISHED_TARGET, target, LEAST_FAIR) } else { (1, 1, ONE as i64) };
        // Thousandths to 1/65536; at most 2 * 10^6 * 65536 * 65536 * 50 = 2^59.
        let step = |before: i64| {
            let error = alpha * (before - target) - beta * (queued - target);
            error * ONE as i64 * times / (1_000 * per)
        };
        self.fair = (self.fair + step(self.before)).clamp(least, most);
        let more = step(queued).saturating_mul(i64::try_from(more).unwrap_or(i64::MAX));
        self.fair = self.fair.saturating_add(more).clamp(least, most);
        self.before = queued;
    }

    /// Windows pass.
    fn pass_windows(&mut self, now: Nanos) {
        let window = now.0 / self.config.window.0 + 1;
        if window != self.window {
            let follows = self.window == 0 || window == self.window + 1;
            self.seen_before = if follows { self.seen } else { 0 };
            (self.window, self.seen) = (window, 0);
        }
    }

    /// A packet has left EQ.
    fn left(&mut self, flow: u32, length: Bytes) {
        if flow == NIL {
            self.placeless_out += 1;
        } else {
            let flow = self.flows.value_mut(EntryId::from_link(flow));
            flow.waiting -= length;
            self.waiting -= u32::from(flow.waiting == Bytes::ZERO);
        }
    }

    /// An elastic packet is sent: the fictitious flow would have got as much as each of those that
    /// are.
    fn credit(&mut self, flow: u32, length: Bytes) {
        if flow != NIL {
            let flow = self.flows.value_mut(EntryId::from_link(flow));
            if flow.window != self.window {
                flow.window = self.window;
                self.seen += 1;
            }
        }
        self.sent += 1;
        self.fair_part += length.0 * ONE / self.elastic_flows().max(1);
        let whole = self.fair_part / ONE;
        self.fair_part %= ONE;
        self.fair_bytes += Bytes(whole);
        self.clock += whole;
        self.advanced += whole;
    }
}

impl<P: Packet> ByFlow<P> for Afan<P> {
    /// Elastic flows are those that were sent packets of late: which of them wait is not kept.
    #[inline]
    fn waiting(&self) -> Waiting {
        let backlog =
            |queue: &Queue| Backlog { packets: u64::from(queue.packets), bytes: queue.bytes };
        let flows = if self.elastic.is_empty() { 0 } else { self.elastic_flows().max(1) };
        Waiting {
            urgent: backlog(&self.priority),
            elastic: backlog(&self.elastic),
            weight: Waiting::of_flows(flows as u32),
        }
    }

    /// While others use the link what waits here does not say which flows are elastic: a flow has
    /// priority for Q bytes beyond what each elastic flow of the link was sent, and no more.
    fn elsewhere(&mut self, others: Elsewhere) {
        let advanced = core::mem::take(&mut self.advanced);
        self.clock += others.passed.0.saturating_sub(advanced);
        self.crowded = others.crowded;
    }
}

impl<P: Packet> Scheduler<P> for Afan<P> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        self.control(now);
        let length = packet.wire_len();
        let contended = self.is_contended();
        let id = self.flow(&packet);
        let (streaming, shadow) = match id {
            None => (false, 0),
            Some(id) => {
                self.sample(id);
                let flow = self.flows.value(id);
                let streaming = flow.waiting == Bytes::ZERO
                    && flow.behind <= self.placeless_out
                    && flow.priority + length <= self.config.quantum
                    && (!contended
                        || flow.until.saturating_sub(self.clock) + length.0
                            <= self.config.quantum.0)
                    && self.config.flows.may_start(self.priority.bytes, length);
                (streaming, flow.shadow)
            }
        };
        let queue = if streaming { &self.priority } else { &self.elastic };
        let refused = if queue.packets >= self.config.limit {
            Some(Reason::QueueFull)
        } else {
            (!streaming && self.draws(shadow)).then_some(Reason::FairShare)
        };
        if let Some(id) = id {
            self.flips += u64::from(self.flows.value_mut(id).flips.note(!streaming));
        }
        if let Some(reason) = refused {
            dropped.dropped(packet, reason);
            return Treated::Dropped(reason);
        }
        let place = id.map_or(NIL, EntryId::link);
        let mut flow = id.map(|id| self.flows.value_mut(id));
        if let Some(flow) = &mut flow {
            let from = if contended { flow.until.max(self.clock) } else { self.clock };
            flow.until = from + length.0;
        }
        if streaming {
            self.priority_bytes += length;
            self.slab.push(&mut self.priority, packet, place);
            if let Some(flow) = flow {
                flow.priority += length;
            }
            Treated::Priority
        } else {
            self.slab.push(&mut self.elastic, packet, place);
            match flow {
                Some(flow) => {
                    self.waiting += u32::from(flow.waiting == Bytes::ZERO);
                    flow.waiting += length;
                }
                None => self.placeless_in += 1,
            }
            Treated::Queued
        }
    }

    fn dequeue(&mut self, now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.control(now);
        self.pass_windows(now);
        if let Some((packet, flow)) = self.slab.pop(&mut self.priority) {
            // A flow without a place never has priority.
            self.flows.value_mut(EntryId::from_link(flow)).priority -= packet.wire_len();
            return Some(packet);
        }
        let (packet, flow) = self.slab.pop(&mut self.elastic)?;
        self.left(flow, packet.wire_len());
        self.credit(flow, packet.wire_len());
        Some(packet)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.busy_queues() > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        let first = self.slab.packet(self.priority.head());
        first.or_else(|| self.slab.packet(self.elastic.head())).map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        let mut config = self.config;
        config.set_live(change, 1)?;
        self.slab.reserve(2 * config.limit);
        if config.afd.shadow != self.config.afd.shadow {
            // The sample begins anew.
            for place in self.shadow.drain(..) {
                self.flows.value_mut(EntryId::from_link(place)).shadow -= 1;
            }
            self.oldest = 0;
            self.shadow.reserve_exact(config.afd.shadow as usize);
            self.fair = self.fair.min(i64::from(config.afd.shadow) * ONE as i64);
        }
        if config.window != self.config.window {
            // Numbers of windows mean something else now: those seen count as the last window's,
            // and flows anew.
            (self.window, self.seen) = (0, self.seen.max(self.seen_before));
        }
        self.config = config;
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        while let Some((packet, flow)) = self.slab.pop(&mut self.priority) {
            self.flows.value_mut(EntryId::from_link(flow)).priority -= packet.wire_len();
            into(packet);
        }
        while let Some((packet, flow)) = self.slab.pop(&mut self.elastic) {
            self.left(flow, packet.wire_len());
            into(packet);
        }
    }

    fn meters(&self) -> Meters {
        Meters {
            backlog: Backlog {
                packets: u64::from(self.priority.packets + self.elastic.packets),
                bytes: self.priority.bytes + self.elastic.bytes,
            },
            priority_bytes: Some(self.priority_bytes),
            priority_backlog: Some(self.priority.bytes),
            fair_bytes: Some(self.fair_bytes),
            flows: Some(self.flows.len()),
            elastic_flows: Some((self.waiting().weight / Waiting::ONE) as u32),
            class_flips: Some(self.flips),
            ..Meters::default()
        }
    }

    fn busy_queues(&self) -> usize {
        usize::from(!self.priority.is_empty()) + usize::from(!self.elastic.is_empty())
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        if class == Class(0) { self.meters().backlog } else { Backlog::default() }
    }

    fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
        let id = self.flows.find(hash, &flow.into());
        id.map_or(Bytes::ZERO, |id| self.flows.value(id).priority + self.flows.value(id).waiting)
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

    fn name(&self) -> &'static str {
        AfanConfig::NAME
    }
}
