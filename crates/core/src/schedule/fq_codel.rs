//! FQ-CoDel: flows take turns by deficit round robin, those that begin go first, and CoDel keeps
//! each flow's queue short.
//!
//! Source: RFC 8290, "The Flow Queue CoDel Packet Scheduler and Active Queue Management Algorithm".
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | number of queues | `FqCodelConfig::queues` | – |
//! | quantum | `FqCodelConfig::quantum` | bytes on the wire |
//! | byte credits | `Bucket::deficit` | bytes |
//! | list of new queues, of old queues | `FqCodel::new`, `FqCodel::old` | – |
//! | TARGET, INTERVAL | `FqCodelConfig::aqm` | time |
//!
//! A queue that gets its first packet becomes one of the new ones, with a quantum. The new queues
//! go first, then the old ones. One whose credits are used up gets a quantum and goes to the end of
//! the old ones; a new one that runs empty does so too while there are others, so that a flow
//! cannot stay among the new by sending one packet at a time; an old one that is empty leaves.
//!
//! Complexity: constant time per packet on average; no allocation per packet. A full buffer costs
//! up to 64 drops at once.
//!
//! Bound: work conserving. Backlogged queues differ by no more than a quantum and the longest
//! packet per round. The target is never below the time of a grant where several workers share.
//!
//! Not implemented: a limit in bytes of memory.

use super::buffer::{DEFAULT_QUANTUM, PACKETS_RANGE, memory_of_flows};
use super::drr::QUANTUM_RANGE;
use super::flow_buckets::{FlowBuckets, QUEUES_RANGE};
use super::flow_list::Ring;
use super::shared_flows::{ByFlow, Elsewhere};
use super::slab::counted;
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::aqm::{AqmConfig, Codel, Taken};
use crate::packet::{Class, FlowKey, Packet};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{Bytes, Nanos};

/// Most packets that the longest queue loses at once when the buffer is full.
const DROP_BATCH: u32 = 64;

settings! {
    /// FQ-CoDel (RFC 8290): deficit round robin by flow, new flows first, CoDel on each.
    #[derive(Copy, Eq)]
    pub struct FqCodelConfig: "discipline = { kind = \"fq-codel\", … }" {
        /// Bytes that a flow may send in its turn: at least the MTU.
        live quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
        /// How many queues flows are hashed to.
        fixed queues: u32 = 1_024, in QUEUES_RANGE, counting "queues";
        /// Most packets in all queues together; then the longest one loses half of its bytes, up to
        /// 64 packets.
        live buffer: u32 = 10_240, in PACKETS_RANGE, counting "packets";
    }
    parts {
        /// When a flow's queue counts as standing.
        aqm: AqmConfig,
    }
}

impl Discipline for FqCodelConfig {
    const NAME: &'static str = "fq-codel";
    type Queues<P: Packet> = FqCodel<P>;

    fn memory(&self, packet: u64) -> u64 {
        memory_of_flows(self.queues, self.buffer, packet)
    }

    fn build<P: Packet>(self) -> Result<FqCodel<P>, SettingError> {
        FqCodel::new(self)
    }
}

/// What is kept of a queue.
#[derive(Clone, Copy, Debug)]
struct State {
    codel: Codel,
    /// In one of the lists.
    listed: bool,
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    config: FqCodelConfig,
    flows: FlowBuckets<P, State>,
    new: Ring,
    old: Ring,
    /// No target is below that.
    least: Nanos,
}

impl<P: Packet> FqCodel<P> {
    /// The discipline with empty queues.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range.
    pub fn new(config: FqCodelConfig) -> Result<Self, SettingError> {
        config.check()?;
        let state = State { codel: Codel::NEW, listed: false };
        Ok(Self {
            flows: FlowBuckets::new(config.queues, config.buffer, state),
            new: Ring::new(config.queues),
            old: Ring::new(config.queues),
            least: Nanos::ZERO,
            config,
        })
    }

    /// The longest queue loses half of its bytes from the head.
    fn shed(&mut self, dropped: &mut dyn DropSink<P>) {
        let Some(queue) = self.flows.fattest() else { return };
        let half = Bytes(self.flows.get(queue).fifo.bytes.0 / 2);
        let mut shed = Bytes::ZERO;
        for _ in 0..DROP_BATCH {
            let Some((packet, length)) = self.flows.pop(queue) else { return };
            dropped.dropped(packet, Reason::LongestFlow);
            shed += length;
            if shed >= half {
                return;
            }
        }
    }

    /// The queue whose turn it is; `None` if no queue is in a list.
    fn turn(&mut self) -> Option<u32> {
        loop {
            let is_new = self.new.first().is_some();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let queue = list.first()?;
            let bucket = self.flows.get_mut(queue);
            if bucket.deficit > 0 {
                return Some(queue);
            }
            bucket.deficit += self.config.quantum.0 as i64;
            list.pop();
            self.old.push(queue);
        }
    }

    /// The queue at the front, which is empty, goes behind the old ones if it was new and there are
    /// some, else it leaves.
    fn end_turn(&mut self, queue: u32) {
        if self.new.first().is_some() {
            self.new.pop();
            if self.old.first().is_some() {
                self.old.push(queue);
                return;
            }
        } else {
            self.old.pop();
        }
        self.flows.get_mut(queue).state.listed = false;
    }
}

/// A new queue goes first among those of its worker, as the only flow of one would with every
/// packet; but on its worker's grants, which are by the number of queues.
impl<P: Packet> ByFlow<P> for FqCodel<P> {
    const PRIORITY: bool = false;

    fn waiting(&self) -> Waiting {
        self.flows.waiting()
    }

    fn elsewhere(&mut self, others: Elsewhere) {
        self.flows.elsewhere(&others, self.config.quantum);
    }

    fn grants_take(&mut self, time: Nanos) {
        self.least = time;
    }
}

impl<P: Packet> Scheduler<P> for FqCodel<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        while self.flows.backlog().packets >= self.config.buffer.into() {
            self.shed(dropped);
        }
        let queue = self.flows.of(packet.flow_hash());
        self.flows.push(queue, packet);
        let bucket = self.flows.get_mut(queue);
        if !core::mem::replace(&mut bucket.state.listed, true) {
            bucket.deficit = self.config.quantum.0 as i64;
            self.new.push(queue);
        }
        Treated::Queued
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        loop {
            let queue = self.turn()?;
            let Self { flows, config, least, .. } = self;
            let mut codel = flows.get(queue).state.codel;
            let take = || {
                let (packet, _) = flows.pop(queue)?;
                Some(Taken { left: flows.get(queue).fifo.bytes, packet })
            };
            let drop = |packet| dropped.dropped(packet, Reason::StandingQueue);
            let given = codel.dequeue(&config.aqm.at_least(*least), now, take, drop);
            let bucket = flows.get_mut(queue);
            bucket.state.codel = codel;
            if let Some(packet) = given {
                bucket.deficit -= i64::from(counted(&packet));
                return Some(packet);
            }
            self.end_turn(queue);
        }
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.flows.busy() > 0).then_some(now)
    }

    /// Turns the lists now, so that [`peek_len`](Scheduler::peek_len) knows who is next.
    fn settle(&mut self, _now: Nanos) {
        while let Some(queue) = self.turn()
            && self.flows.get(queue).fifo.is_empty()
        {
            self.flows.get_mut(queue).state.codel.emptied();
            self.end_turn(queue);
        }
    }

    /// Of the head of the queue whose turn it is, which may be dropped.
    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        let lists = self.new.iter().chain(self.old.iter());
        let waiting = lists.filter(|queue| !self.flows.get(*queue).fifo.is_empty());
        // The first of those that lack the fewest quanta.
        let queue = waiting.min_by_key(|queue| match self.flows.get(*queue).deficit {
            1.. => 0,
            debt => debt.unsigned_abs() / self.config.quantum.0 + 1,
        })?;
        self.flows.head(queue).map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.config.set_live(change, 1)?;
        self.flows.reserve(self.config.buffer);
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        self.flows.drain(into);
        while let Some(queue) = self.new.pop().or_else(|| self.old.pop()) {
            self.flows.get_mut(queue).state.listed = false;
        }
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.flows.backlog(), ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        self.flows.busy()
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        if class == Class(0) { self.flows.backlog() } else { Backlog::default() }
    }

    fn flow_backlog(&self, _flow: &FlowKey, hash: u64) -> Bytes {
        self.flows.get(self.flows.of(hash)).fifo.bytes
    }

    fn name(&self) -> &'static str {
        FqCodelConfig::NAME
    }
}
