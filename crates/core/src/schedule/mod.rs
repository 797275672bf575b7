//! Disciplines that decide which packet goes next. One discipline, one file.

use crate::audit::Promise;
use crate::packet::{Class, FlowKey, Packet, Places};
use crate::reason::Reason;
use crate::settings::{Change, SettingError, Settings};
use crate::units::{BitRate, Bytes, Nanos};

mod ack_filter;
pub mod afan;
pub mod any;
mod bitmap;
pub mod buffer;
mod calendar;
pub mod codel;
pub mod drr;
pub mod fifo;
mod flow_buckets;
pub(crate) mod flow_list;
pub mod fq_codel;
pub mod hosts;
pub mod lct;
mod longest;
pub mod pdrr;
pub mod pfq;
pub mod priority;
pub mod qfq;
pub mod shared;
pub mod shared_flows;
mod slab;
pub mod tree;
pub mod wfq_altq;

pub use any::{AnyScheduler, BuildError, DisciplineConfig, LinuxConfig, OwnConfig};

/// Takes what was dropped. Implementations count it and give its buffer back.
pub trait DropSink<P> {
    /// `packet` was dropped because of `reason`.
    fn dropped(&mut self, packet: P, reason: Reason);
}

impl<P, F: FnMut(P, Reason)> DropSink<P> for F {
    fn dropped(&mut self, packet: P, reason: Reason) {
        self(packet, reason);
    }
}

/// How an arriving packet was treated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Treated {
    /// It waits in the queue of its class or flow.
    Queued,
    /// It waits among those that go first.
    Priority,
    /// It was not taken in; it went to the drop sink.
    Dropped(Reason),
}

/// What the flows of a subscriber share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sharing {
    /// The most that there is for them: the subscriber's cap, or that of the first node above that
    /// has one.
    pub rate: BitRate,
    /// Flows that wait, on average over its last packets; 0 while none does. In parts of a flow.
    pub flows: u32,
    /// Parts of a flow.
    pub whole: u32,
}

/// Whether a change made something sendable that was not: then the transmit side must be started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "packets that a change released wait for the next arrival unless the transmit side is \
              started"]
pub enum Wake {
    /// Nothing new can be sent.
    No,
    /// Call `dequeue` again now.
    Now,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backlog {
    /// Packets.
    pub packets: u64,
    /// Their bytes: of IP packets, or, in the disciplines of flow-aware links, on the wire.
    pub bytes: Bytes,
}

/// What waits in a discipline by flows.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// With priority: it goes first.
    pub urgent: Backlog,
    /// The rest.
    pub elastic: Backlog,
    /// How many shares the rest is due, in 2^-16: one for each flow or, where hosts share, for each
    /// host; of a host with flows that wait at other workers, too, the part of those that are here.
    pub weight: u64,
}

impl Waiting {
    /// A whole share.
    pub const ONE: u64 = 1 << 16;

    /// The shares of so many flows.
    #[inline]
    #[must_use]
    pub const fn of_flows(flows: u32) -> u64 {
        flows as u64 * Self::ONE
    }
}

/// What admission and views read of a discipline. Fields that a discipline does not have are
/// `None`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Meters {
    /// All that waits.
    pub backlog: Backlog,
    /// Bytes on the wire that were taken in with priority since the start. Never falls.
    pub priority_bytes: Option<Bytes>,
    /// What of these waits here, bytes on the wire.
    pub priority_backlog: Option<Bytes>,
    /// Virtual time, in the discipline's own unit.
    pub virtual_time: Option<u64>,
    /// Bytes on the wire that a fictitious flow that always has packets to send would have been
    /// sent since the start: what the fair rate is measured by. Never falls.
    pub fair_bytes: Option<Bytes>,
    /// Flows that the discipline keeps state of at present.
    pub flows: Option<u32>,
    /// Elastic flows that wait at present.
    pub elastic_flows: Option<u32>,
    /// How often a flow changed between streaming (priority) and elastic since the start.
    pub class_flips: Option<u64>,
    /// For how long the link was busy, where several workers share it: the wire of one of them does
    /// not tell. The other counts of bytes are of all workers then.
    pub busy: Option<Nanos>,
}

/// A node of a tree: what it was told, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeAccount {
    /// The place of the node above it.
    pub parent: u32,
    /// What it may send; `None`: whatever its share is.
    pub cap: Option<BitRate>,
    /// What is guaranteed to it; zero: nothing.
    pub guarantee: BitRate,
    /// Its weight among its siblings, in any unit; `None`: it is not to be compared with them.
    pub weight: Option<f64>,
    /// What it may send in a round of its siblings, bytes on the wire.
    pub round: Bytes,
    /// What it has sent, bytes on the wire. Never falls.
    pub sent: Bytes,
    /// Whether something of it may go now.
    pub may_go: bool,
    /// How often nothing more of it could go, because nothing waited or a cap was reached; wraps.
    pub pauses: u32,
}

impl NodeAccount {
    /// Whether it was told the same.
    #[must_use]
    pub fn is_told_as(&self, other: &Self) -> bool {
        let Self { sent, may_go, pauses, .. } = *other;
        Self { sent, may_go, pauses, ..*self } == *other
    }
}

/// A discipline: takes packets in and says which goes next.
///
/// Contract: times given are monotonic (`now` never before that of an earlier call). Every packet
/// given to `enqueue` comes back exactly once: from `dequeue`, through `dropped`, or through
/// `drain`. No call allocates, except `drain` and changes of configuration.
pub trait Scheduler<P: Packet> {
    /// Takes the packet in and says how it was treated. Whatever is dropped for it, it or another,
    /// goes to `dropped` with the reason. When another packet was dropped for it the answer is
    /// still `Queued`.
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated;

    /// Lets a packet pass in which nothing has to be decided: nothing waits, and `enqueue` followed
    /// by `dequeue` at the same instant would give this very packet. Does the accounts that the
    /// discipline keeps of all its packets, and says how it was treated; what it keeps of single
    /// flows only while something waits, it need not touch. `None`: nothing changed, use the two
    /// calls. Disciplines without such a way keep this default, and so do those that say of which
    /// packets [all together](Self::bypasses_up_to).
    fn bypass(&mut self, _now: Nanos, packet: &dyn Packet) -> Option<Treated> {
        let (longest, treated) = self.bypasses_up_to()?;
        let length = packet.wire_len();
        (length <= longest).then(|| {
            self.bypassed(length);
            treated
        })
    }

    /// Whether [`bypass`](Self::bypass) is worth a try: nothing waits. State of flows need not be
    /// fetched then.
    fn bypasses(&self) -> bool {
        self.bypasses_up_to().is_some()
    }

    /// Up to which length on the line [`bypass`](Self::bypass) lets pass any packets now, one after
    /// the other, and how it treats all of them. So many may be [told of](Self::bypassed) together.
    fn bypasses_up_to(&self) -> Option<(Bytes, Treated)> {
        None
    }

    /// Packets of so many bytes on the line have passed.
    fn bypassed(&mut self, _bytes: Bytes) {}

    /// Whether [`bypass`](Self::bypass) would say [`Treated::Queued`] of any packets now, one after
    /// the other, and change nothing: they need not be told.
    fn bypasses_untold(&self) -> bool {
        false
    }

    /// The next packet to send at `now`; `None` if empty or if all that waits is held. May drop.
    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P>;

    /// [`dequeue`](Self::dequeue), with how many queues had packets before: where none has, it is
    /// not called. Several may follow each other, and other workers of the link need not hear of
    /// them before [`publish`](Self::publish), which the last one is followed by.
    #[inline(always)] // the two together are a few instructions more than one
    fn call(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> (usize, Option<P>) {
        match self.busy_queues() {
            0 => (0, None),
            busy => (busy, self.dequeue(now, dropped)),
        }
    }

    /// [`enqueue`](Self::enqueue), with where the flow of the packet is
    /// ([`last_place`](Self::last_place)). Followed by [`publish`](Self::publish) as
    /// [`call`](Self::call) is.
    #[inline(always)] // as above
    fn take_in(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> (Treated, u32) {
        let treated = self.enqueue(now, packet, dropped);
        (treated, self.last_place())
    }

    /// Tells the other workers of a link what calls of [`take_in`](Self::take_in) and
    /// [`call`](Self::call) have changed. All others tell them by themselves.
    fn publish(&mut self) {}

    /// When to call `dequeue` again although nothing arrives. `None`: only an arrival or a change
    /// can make something sendable. Never earlier than `now`. It is valid until the next call that
    /// takes `&mut self`.
    fn next_wake(&self, now: Nanos) -> Option<Nanos>;

    /// Periodic work; returns when it is due next. Disciplines without any keep this default.
    fn tick(&mut self, _now: Nanos) -> Option<Nanos> {
        None
    }

    /// Decides what `dequeue` would give at `now`, as far as that is due: a call before
    /// [`peek_len`](Self::peek_len) makes that constant time where it is not. Disciplines that know
    /// at any time keep this default.
    fn settle(&mut self, _now: Nanos) {}

    /// IP length of what `dequeue` would give at `now`, for shapers and hierarchies above; `None`
    /// where it would give none.
    fn peek_len(&self, now: Nanos) -> Option<Bytes>;

    /// Changes a setting; says whether the transmit side must be started.
    ///
    /// # Errors
    /// There is no such setting, or the value is not valid. Nothing changed.
    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError>;

    /// The rate of the link that it serves, which is that of all its workers together; `None`: as
    /// fast as the port takes frames. Told before the first packet and whenever it changes.
    /// Disciplines that do not count in time keep this default.
    fn set_rate(&mut self, _rate: Option<BitRate>) {}

    /// Hands everything over, per-flow order and arrival stamps kept: live swap of disciplines.
    fn drain(&mut self, into: &mut dyn FnMut(P));

    /// What admission and views read.
    fn meters(&self) -> Meters;

    /// All that waits, as [`meters`](Self::meters) says too: asked in every round of a router.
    fn backlog(&self) -> Backlog {
        self.meters().backlog
    }

    /// How many queues have packets. Constant time: the link counts it at every call (QoStat).
    fn busy_queues(&self) -> usize;

    /// What waits of `class`, where the discipline queues by class; else the whole backlog for
    /// class 0.
    fn class_backlog(&self, class: Class) -> Backlog;

    /// Bytes that wait of a flow whose hash is `hash`; zero where the discipline keeps no queue per
    /// flow.
    fn flow_backlog(&self, _flow: &FlowKey, _hash: u64) -> Bytes {
        Bytes::ZERO
    }

    /// The node of a tree at this place; places are below [`node_places`](Self::node_places).
    fn node_account(&self, _place: u32) -> Option<NodeAccount> {
        None
    }

    /// What the flows of a [subscriber](Packet::subscriber) share, where subscribers do.
    fn sharing(&self, _subscriber: u32) -> Option<Sharing> {
        None
    }

    /// How many places there are for nodes; none but in a tree.
    fn node_places(&self) -> u32 {
        0
    }

    /// Whether it asks packets what they [acknowledge](Packet::ack).
    fn reads_acks(&self) -> bool {
        false
    }

    /// Whether `enqueue` looks for the flow of a packet, so that reading ahead what it will read
    /// is of use. Disciplines that do not keep this default, and that of what follows.
    fn looks_up_flows(&self) -> bool {
        false
    }

    /// Reads ahead where the search for the flow of this hash begins: the first of two steps.
    /// Neither changes anything, and neither has to be called. With many flows a burst costs least
    /// if `prefetch_bucket` is called for all its packets, then [`prefetch`](Self::prefetch) for
    /// all, and then `enqueue`: in each step all packets wait for memory together, and each finds
    /// there what the one before asked for. What `dequeue` will read, disciplines read ahead
    /// themselves: they know who is next.
    fn prefetch_bucket(&self, _hash: u64) {}

    /// Reads ahead what `enqueue` of a packet of this flow hash will read: the second step, and the
    /// one to call where there is only one.
    fn prefetch(&self, _hash: u64) {}

    /// Reads ahead the flow that may be at a [place](Packet::places): instead of the two steps.
    fn prefetch_place(&self, _place: u32) {}

    /// [`prefetch_place`](Self::prefetch_place) of all of these.
    fn prefetch_places(&self, places: &[u32]) {
        places.iter().for_each(|place| self.prefetch_place(*place));
    }

    /// Where the flow of the packet is that was taken in last: for the [places](Packet::places) of
    /// the next packet of the flow. [`Places::NOWHERE`]: nobody has looked for it.
    fn last_place(&self) -> u32 {
        Places::NOWHERE
    }

    /// The discipline's name in configuration files.
    fn name(&self) -> &'static str;
}

/// The settings of a discipline, which say what it is made of. One implementation stands beside
/// each discipline; [`any`] lists them.
pub trait Discipline: Settings {
    /// The `kind` in configuration files.
    const NAME: &'static str;
    /// Whether it measures a fair rate, which admission needs.
    const MEASURES_FAIR_RATE: bool = false;
    /// What they make.
    type Queues<P: Packet>: Scheduler<P>;

    /// The discipline, empty. May take all its memory at once.
    ///
    /// # Errors
    /// A number is out of range.
    fn build<P: Packet>(self) -> Result<Self::Queues<P>, SettingError>;

    /// Upper bound of the bytes that it allocates, with packets of `packet` bytes in memory.
    fn memory(&self, packet: u64) -> u64;

    /// What it promises, for the audit of its link: with the bounds of its header.
    fn promise(&self) -> Promise {
        Promise::WorkConserving
    }

    /// How many classes packets have, where that matters.
    fn for_classes(&mut self, _classes: u16) {}

    /// A secret seed for its lists of flows, where there are any.
    fn seed(&mut self, _seed: u64) {}

    /// What keeps several workers from sharing a link with it, and why; `None`: nothing.
    fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}
