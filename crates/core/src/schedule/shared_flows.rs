//! One worker's part of a link that several workers share by flows: any discipline [`ByFlow`].
//!
//! Source: see [`crate::share`], which decides how much this worker may send; the queueing, the
//! rule of who has priority, and drops are the discipline's own. A flow always meets the same
//! worker, so its state is that worker's. What is common is
//!
//! - the rate, by grants: priority packets of all workers first, then each worker by the number of
//!   its elastic flows that wait, so that an elastic flow gets the same wherever it is;
//! - time: where nothing elastic waits here but elsewhere it does, rounds (PDRR) and virtual time
//!   (PFQ) go on at the pace of the others' flows, and the flows here stay active until their turn
//!   would have come. Or a flow alone on its worker would find it empty with each packet, and have
//!   priority at any rate;
//! - the meters: fair rate and priority load are those of the whole link
//!   ([`SharedLink::together`]).
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | grants, T, S | `part` | 2^-16 bytes on the wire |
//! | C, W, what the others have | `link` | – |
//! | n | `Waiting::weight` | 2^-16 |
//!
//! A packet with priority goes before all others of its worker, ahead of its grant if need be; an
//! elastic one when its worker has grants left, or as long as bytes are left that no worker
//! demanded. With DRR and FQ-CoDel nothing goes ahead of grants: their queues that ask for no more
//! than a share are granted first, and sent in their turn (see `flow_buckets`). Disciplines and
//! link count bytes on the wire, in which flows are equal over all workers.
//!
//! Complexity: the discipline's, and constant time; a new window costs what [`crate::share`] says,
//! and where nothing elastic waits, what the flows cost that cease to be active in it.
//!
//! Bound: flows that always wait get the same within what their discipline grants between two of
//! one worker, a largest packet per worker, and what changes of n within a window miss. A packet
//! with priority waits for the others of its worker that came before it, one packet on the wire,
//! and, if more than C·W/M have come to this worker within a window, for the end of that window. On
//! the real wire, the packets of the other workers come on top: at most one of each, and what all
//! have sent ahead, C·W.
//!
//! **Where hosts share** n is the number of hosts of which something waits: of one that has flows
//! at several workers each of them counts as large a part as it has of the flows that wait, by a
//! [table](crate::share) of all. So each worker gets what its flows are due, and gives a host its
//! part of that: PFQ by weights of flows, PDRR by quanta of hosts. FB is what a host was sent.
//!
//! On a link without a rate each worker serves its flows alone.
//!
//! Not implemented: buffers in common; each worker has the whole of the configured one, and drops
//! from its own longest flow.

use alloc::sync::Arc;
use core::marker::PhantomData;

use super::shared::tell_once_for_a_burst;
use super::{Backlog, DropSink, Meters, Scheduler, Treated, Waiting, Wake};
use crate::packet::{Class, FlowKey, Packet};
use crate::settings::{Change, SettingError};
use crate::share::{ELASTIC, Part, SharedLink, URGENT};
use crate::units::{BitRate, Bytes, Nanos};

/// A discipline that tells flows apart, so that each worker's part is as large as its flows'
/// shares.
pub trait ByFlow<P: Packet>: Scheduler<P> {
    /// Whether what is urgent goes before all others, ahead of its grant if need be. Else it is
    /// what is granted first, and goes in its turn.
    const PRIORITY: bool = true;

    /// What waits.
    fn waiting(&self) -> Waiting;

    /// What has happened elsewhere.
    fn elsewhere(&mut self, others: Elsewhere);

    /// Several workers share the link from now on. Nothing has come yet.
    fn share(&mut self, _link: &Arc<SharedLink>) {}

    /// Packets wait so long for a grant, although their queue does not stand.
    fn grants_take(&mut self, _time: Nanos) {}
}

/// What other workers have done and do.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere {
    /// Bytes that they have sent to each of their elastic flows since the last call.
    pub passed: Bytes,
    /// And since the start.
    pub level: Bytes,
    /// Whether they use the link at all.
    pub crowded: bool,
    /// The shares that what waits there is due, as [`Waiting::weight`].
    pub weight: u64,
}

/// One worker's part of a link that several workers share by flows.
#[derive(Debug)]
pub struct SharedFlows<P, Q> {
    queues: Q,
    link: Arc<SharedLink>,
    part: Part,
    /// FB up to which time has passed here.
    level: Bytes,
    /// What waits may be other than what the others were told.
    changed: bool,
    /// Until then nothing elastic may go. Of a link that is overloaded most packets come to find
    /// that.
    held_until: Nanos,
    packets: PhantomData<fn() -> P>,
}

impl<P: Packet, Q: ByFlow<P>> SharedFlows<P, Q> {
    /// `worker`'s part, with these queues, empty.
    ///
    /// # Panics
    /// The link has no such worker.
    pub fn new(mut queues: Q, link: Arc<SharedLink>, worker: usize) -> Self {
        let part = link.part_by_flows(worker);
        queues.share(&link);
        Self {
            queues,
            level: part.level(),
            changed: false,
            part,
            link,
            held_until: Nanos::ZERO,
            packets: PhantomData,
        }
    }

    #[inline]
    fn waiting(&self) -> Waiting {
        self.queues.waiting()
    }

    /// Takes over the grants of a new window, and what has happened elsewhere meanwhile, if the
    /// present window is over.
    #[inline]
    fn follow(&mut self, now: Nanos) {
        if now >= self.part.until() && self.link.is_paced() {
            self.turn(now);
        }
    }

    #[inline(never)] // it is once in a window that one is over
    fn turn(&mut self, now: Nanos) {
        self.publish();
        self.part.at(&self.link, now);
        self.held_until = Nanos::ZERO;
        let level = self.part.level();
        let passed = level - core::mem::replace(&mut self.level, level);
        let crowded = self.part.is_contended();
        let weight = self.link.weight_elsewhere(&self.part);
        self.queues.elsewhere(Elsewhere { passed, level, crowded, weight });
        self.changed = true;
    }

    /// Whether the next packet, which is one with priority if any waits, may go.
    #[inline]
    fn may_send(&self, urgent: bool, now: Nanos) -> bool {
        if !Q::PRIORITY {
            self.part.may_send_either(now)
        } else if urgent {
            self.part.may_send_urgent(now)
        } else {
            self.part.may_send_elastic(now)
        }
    }

    fn is_empty(waiting: &Waiting) -> bool {
        waiting.urgent.packets == 0 && waiting.elastic.packets == 0
    }
}

impl<P: Packet, Q: ByFlow<P>> SharedFlows<P, Q> {
    /// A packet comes, of which the others are not told yet.
    #[inline]
    fn enter(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        // Who is active depends on what has happened elsewhere.
        self.follow(now);
        self.changed = true;
        let length = packet.wire_len();
        let treated = self.queues.enqueue(now, packet, dropped);
        if treated == Treated::Priority {
            self.part.came_with_priority(length);
        }
        treated
    }

    /// The next packet, of which the others are not told yet.
    #[inline]
    fn next(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let waiting = self.waiting();
        if Self::is_empty(&waiting) {
            return None;
        }
        if !self.link.is_paced() {
            self.changed = true;
            return self.queues.dequeue(now, dropped);
        }
        let urgent = waiting.urgent.packets > 0;
        if !(urgent && Q::PRIORITY) && now < self.held_until {
            return None;
        }
        self.follow(now);
        if !self.may_send(urgent, now) {
            self.held_until = self.part.until();
            return None;
        }
        self.changed = true;
        let packet = self.queues.dequeue(now, dropped)?;
        let was_urgent = self.waiting().urgent.packets < waiting.urgent.packets;
        let column = if was_urgent { URGENT } else { ELASTIC };
        self.part.sent_by_flow(column, packet.wire_len().0, waiting.weight, now);
        Some(packet)
    }
}

impl<P: Packet, Q: ByFlow<P>> Scheduler<P> for SharedFlows<P, Q> {
    tell_once_for_a_burst!();

    fn publish(&mut self) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        let Waiting { urgent, elastic, weight } = self.waiting();
        self.part.publish_flows(&self.link, [urgent.bytes, elastic.bytes], weight);
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        let waiting = self.waiting();
        if Self::is_empty(&waiting) {
            return None;
        }
        let sendable = !self.link.is_paced() || self.may_send(waiting.urgent.packets > 0, now);
        Some(if sendable { now } else { self.part.until().max(now) })
    }

    fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        self.queues.tick(now)
    }

    fn settle(&mut self, now: Nanos) {
        self.queues.settle(now);
    }

    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        let urgent = self.waiting().urgent.packets > 0;
        if self.link.is_paced() && !self.may_send(urgent, now) {
            return None;
        }
        self.queues.peek_len(now)
    }

    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.queues.set(now, change)
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.queues.set_rate(rate);
        self.queues.grants_take(SharedLink::grants_take(rate));
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        self.changed = true;
        self.queues.drain(into);
        self.publish();
    }

    fn meters(&self) -> Meters {
        let own = self.queues.meters();
        let together = self.link.together();
        // A link without a rate is not shared, but who may enter it is decided by the load of all.
        let paced = self.link.is_paced();
        let of_all = |own| if paced { together.fair_bytes } else { own };
        Meters {
            // What the discipline does not measure is not told of all, either.
            fair_bytes: own.fair_bytes.map(of_all),
            priority_bytes: own.priority_bytes.map(|_| together.priority_bytes),
            elastic_flows: own.elastic_flows.map(|_| together.elastic_flows),
            busy: paced.then_some(together.busy),
            ..own
        }
    }

    /// Without a look at what the others have.
    fn backlog(&self) -> Backlog {
        let Waiting { urgent, elastic, .. } = self.waiting();
        Backlog { packets: urgent.packets + elastic.packets, bytes: urgent.bytes + elastic.bytes }
    }

    fn busy_queues(&self) -> usize {
        self.queues.busy_queues()
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        self.queues.class_backlog(class)
    }

    fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
        self.queues.flow_backlog(flow, hash)
    }

    fn looks_up_flows(&self) -> bool {
        self.queues.looks_up_flows()
    }

    fn prefetch_bucket(&self, hash: u64) {
        self.queues.prefetch_bucket(hash);
    }

    fn prefetch(&self, hash: u64) {
        self.queues.prefetch(hash);
    }

    fn prefetch_place(&self, place: u32) {
        self.queues.prefetch_place(place);
    }

    fn last_place(&self) -> u32 {
        self.queues.last_place()
    }

    fn reads_acks(&self) -> bool {
        self.queues.reads_acks()
    }

    fn name(&self) -> &'static str {
        self.queues.name()
    }
}
