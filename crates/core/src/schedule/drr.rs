//! DRR, deficit round robin: flows take turns, each sends up to a quantum of bytes in its turn.
//!
//! Source: Shreedhar, Varghese, "Efficient Fair Queuing Using Deficit Round-Robin" (1996), with
//! queues by a hash of the flow and, when the buffer is full, drops from the longest queue (buffer
//! stealing), as there; of its head.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | n, the number of queues | `DrrConfig::queues` | – |
//! | `Quantum` | `DrrConfig::quantum` | bytes on the wire |
//! | `DC_i` | `Bucket::deficit` | bytes |
//! | `ActiveList` | `Drr::active` | – |
//!
//! A queue that gets its first packet goes to the end of the active list with a deficit of nothing.
//! The queue at its front gets a quantum and sends while its head fits; then what it has left stays
//! if packets do, and it goes to the end, or leaves with nothing.
//!
//! Complexity: constant time per packet where the quantum is not below the longest packet; no
//! allocation per packet.
//!
//! Bound: work conserving. While two queues are backlogged, what they send differs by no more than
//! three of the larger of quantum and longest packet. A packet waits for a turn of all others.
//!
//! Not implemented: quanta per flow.

use core::ops::RangeInclusive;

use super::buffer::{DEFAULT_QUANTUM, PACKETS_RANGE, memory_of_flows};
use super::flow_buckets::{FlowBuckets, QUEUES_RANGE};
use super::flow_list::Ring;
use super::shared_flows::{ByFlow, Elsewhere};
use super::{Backlog, Discipline, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::packet::{Class, FlowKey, Packet};
use crate::reason::Reason;
use crate::settings;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{Bytes, Nanos};

/// Valid quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 256..=65_535;

settings! {
    /// Deficit round robin over queues that flows are hashed to.
    #[derive(Copy, Eq)]
    pub struct DrrConfig: "discipline = { kind = \"drr\", … }" {
        /// Bytes that a flow may send in its turn: at least the MTU.
        live quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
        /// How many queues flows are hashed to.
        fixed queues: u32 = 1_024, in QUEUES_RANGE, counting "queues";
        /// Most packets in all queues together; then the longest one loses its first.
        live buffer: u32 = 1_000, in PACKETS_RANGE, counting "packets";
    }
}

impl Discipline for DrrConfig {
    const NAME: &'static str = "drr";
    type Queues<P: Packet> = Drr<P>;

    fn memory(&self, packet: u64) -> u64 {
        memory_of_flows(self.queues, self.buffer, packet)
    }

    fn build<P: Packet>(self) -> Result<Drr<P>, SettingError> {
        Drr::new(self)
    }
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Drr<P> {
    config: DrrConfig,
    /// Of each queue, whether it is in the active list or in service.
    flows: FlowBuckets<P, bool>,
    /// Queues with packets, in the order of their turns, without the one in service.
    active: Ring,
    /// The queue whose turn it is.
    current: Option<u32>,
}

impl<P: Packet> Drr<P> {
    /// The discipline with empty queues.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range.
    pub fn new(config: DrrConfig) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self {
            flows: FlowBuckets::new(config.queues, config.buffer, false),
            active: Ring::new(config.queues),
            current: None,
            config,
        })
    }

    /// The longest queue loses its head.
    fn steal(&mut self, dropped: &mut dyn DropSink<P>) {
        let stolen = self.flows.fattest().and_then(|queue| self.flows.pop(queue));
        if let Some((packet, _)) = stolen {
            dropped.dropped(packet, Reason::LongestFlow);
        }
    }

    /// Of the queues that wait for their turn, and of `current` behind them, the one whose head
    /// fits after the fewest quanta.
    fn first_to_fit(&self, current: Option<u32>) -> Option<u32> {
        let waiting = self.active.iter().chain(current);
        let with_packets = waiting.filter(|queue| !self.flows.get(*queue).fifo.is_empty());
        with_packets.min_by_key(|queue| {
            let bucket = self.flows.get(*queue);
            let lacks = (i64::from(bucket.fifo.head_len()) - bucket.deficit).max(1);
            (lacks as u64).div_ceil(self.config.quantum.0)
        })
    }

    /// The queue whose head goes next; `None` if nothing waits.
    fn turn(&mut self) -> Option<u32> {
        loop {
            if let Some(queue) = self.current {
                let bucket = self.flows.get(queue);
                if bucket.fifo.is_empty() {
                    self.end_turn(queue);
                } else if i64::from(bucket.fifo.head_len()) <= bucket.deficit {
                    return Some(queue);
                } else {
                    self.active.push(queue);
                }
            }
            self.current = self.active.pop();
            self.flows.get_mut(self.current?).deficit += self.config.quantum.0 as i64;
        }
    }

    /// The queue in service has nothing left: it leaves with nothing.
    fn end_turn(&mut self, queue: u32) {
        let bucket = self.flows.get_mut(queue);
        (bucket.deficit, bucket.state) = (0, false);
        self.current = None;
    }
}

impl<P: Packet> ByFlow<P> for Drr<P> {
    const PRIORITY: bool = false;

    fn waiting(&self) -> Waiting {
        self.flows.waiting()
    }

    fn elsewhere(&mut self, others: Elsewhere) {
        self.flows.elsewhere(&others, self.config.quantum);
    }
}

impl<P: Packet> Scheduler<P> for Drr<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        while self.flows.backlog().packets >= self.config.buffer.into() {
            self.steal(dropped);
        }
        let queue = self.flows.of(packet.flow_hash());
        self.flows.push(queue, packet);
        if !core::mem::replace(&mut self.flows.get_mut(queue).state, true) {
            self.active.push(queue);
        }
        Treated::Queued
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        let queue = self.turn()?;
        let (packet, length) = self.flows.pop(queue)?;
        let bucket = self.flows.get_mut(queue);
        bucket.deficit -= length.0 as i64;
        if bucket.fifo.is_empty() {
            self.end_turn(queue);
        }
        Some(packet)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.flows.busy() > 0).then_some(now)
    }

    /// Turns the list now, so that [`peek_len`](Scheduler::peek_len) knows who is next.
    fn settle(&mut self, _now: Nanos) {
        let _ = self.turn();
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        let fits = |queue: &u32| {
            let bucket = self.flows.get(*queue);
            i64::from(bucket.fifo.head_len()) <= bucket.deficit
        };
        let current = self.current.filter(|queue| !self.flows.get(*queue).fifo.is_empty());
        let next = current.filter(fits).or_else(|| self.first_to_fit(current));
        next.and_then(|queue| self.flows.head(queue)).map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.config.set_live(change, 1)?;
        self.flows.reserve(self.config.buffer);
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        self.flows.drain(into);
        while let Some(queue) = self.current.take().or_else(|| self.active.pop()) {
            self.end_turn(queue);
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
        DrrConfig::NAME
    }
}
