//! Disciplines that decide which packet goes next. One discipline, one file.

use alloc::boxed::Box;
use core::fmt;
use core::ops::RangeInclusive;

use crate::packet::{Class, FlowKey, Packet};
use crate::reason::Reason;
use crate::units::{Bytes, Nanos, Weight};
use buffer::{BufferLimit, Victim};

pub mod afan;
pub mod buffer;
pub mod fifo;
pub(crate) mod flow_list;
pub mod lct;
mod longest;
pub mod pdrr;
pub mod pfq;
pub mod shared;
pub mod shared_flows;
mod slab;
mod tournament;
pub mod wfq_altq;

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

/// Whether a change made something sendable that was not: then the transmit side must be started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "packets that a change released wait for the next arrival unless the transmit side is started"]
pub enum Wake {
    /// Nothing new can be sent.
    No,
    /// Call `dequeue` again now.
    Now,
}

/// Which packet goes when several classes wait and none is due (LCT-UC, contradiction C4 of the
/// specification). docs/lct.md sets each rule against each sentence of the paper.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MultiBacklog {
    /// With module 2 none, as under [`Hold`](Self::Hold); without it the next in the ring, as under
    /// [`RoundRobin`](Self::RoundRobin). So module 2 alone decides whether the discipline is work
    /// conserving, and `X_DELAY` is the least time between two packets of a class.
    #[default]
    HoldWithModule2,
    /// The next in ring order: position 3 of the paper's figure 1 as it is drawn.
    RoundRobin,
    /// The one with the smallest `X_DELAY`; the first in ring order among equals.
    MinX,
    /// None, with module 2 or without: wait for the earliest `DEQUEUE_TIME`.
    Hold,
    /// The one with the earliest `DEQUEUE_TIME`.
    EarliestDue,
}

impl MultiBacklog {
    /// Every rule.
    pub const ALL: [Self; 5] =
        [Self::HoldWithModule2, Self::RoundRobin, Self::MinX, Self::Hold, Self::EarliestDue];

    /// Whether classes that wait together are held until one is due.
    #[must_use]
    pub const fn holds(self, module2: bool) -> bool {
        matches!((self, module2), (Self::Hold, _) | (Self::HoldWithModule2, true))
    }
}

/// A parameter that can be changed while packets flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Knob {
    /// Share of a class (WFQ).
    Weight(Class, Weight),
    /// Interval between packets of a class (LCT-UC).
    XDelay(Class, Nanos),
    /// Most packets a class may have queued; of every class when `None`.
    QueueLimit(Option<Class>, u32),
    /// LCT-UC's module 2: classes with `X_DELAY` above zero may not use idle capacity.
    Module2(bool),
    /// LCT-UC's rule for several waiting classes of which none is due.
    MultiBacklog(MultiBacklog),
    /// LCT-UC: empty queues found past their time are given a new one.
    RearmEmpty(bool),
    /// Most bytes that all queues together may hold (WFQ dropping from the longest queue).
    HighWater(Bytes),
    /// Bytes per round and with priority (PFQ's MTU, PDRR's and AFAN's Q).
    Quantum(Bytes),
    /// Most that all queues together hold (PFQ, PDRR).
    Buffer(BufferLimit),
    /// Which packet of the longest flow goes when the buffer is full (PFQ, PDRR).
    Victim(Victim),
    /// How long an empty flow stays active (PDRR).
    AflLinger(Nanos),
    /// Bound of the priority queue for long packets of flows that start (PFQ, PDRR, AFAN); `None`: no bound.
    StartLimit(Option<Bytes>),
    /// The controller of approximate fair dropping, all of it (AFAN).
    Afd(afan::Afd),
    /// Window over which elastic flows are counted (AFAN).
    Window(Nanos),
}

impl Knob {
    /// The knob's name, as in configuration files and the control protocol.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Weight(..) => "weight",
            Self::XDelay(..) => "x_delay",
            Self::QueueLimit(..) => "limit",
            Self::Module2(_) => "module2",
            Self::MultiBacklog(_) => "multi_backlog",
            Self::RearmEmpty(_) => "rearm_empty",
            Self::HighWater(_) => "high_water",
            Self::Quantum(_) => "quantum",
            Self::Buffer(_) => "buffer",
            Self::Victim(_) => "victim",
            Self::AflLinger(_) => "afl_linger",
            Self::StartLimit(_) => "start_limit",
            Self::Afd(_) => "afd",
            Self::Window(_) => "window",
        }
    }
}

/// Why a knob was not changed. Nothing changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KnobError {
    /// This discipline has no such knob.
    NoSuchKnob {
        /// The knob's name, as in the control protocol.
        knob: &'static str,
        /// The discipline's name.
        discipline: &'static str,
    },
    /// There is no such class.
    NoSuchClass {
        /// The class asked for.
        class: Class,
        /// How many classes there are.
        classes: u16,
    },
    /// The value lies outside of the valid range.
    OutOfRange {
        /// The knob's name, as in the control protocol.
        knob: &'static str,
        /// The value asked for, in `unit`.
        value: u64,
        /// The smallest valid value.
        min: u64,
        /// The largest valid value.
        max: u64,
        /// The unit of all three.
        unit: &'static str,
    },
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchKnob { knob, discipline } => {
                write!(f, "{discipline} has no {knob}")
            }
            Self::NoSuchClass { class, classes } => {
                write!(f, "no class {class}: classes are 0 to {}", classes.saturating_sub(1))
            }
            Self::OutOfRange { knob, value, min, max, unit } => {
                write!(f, "{knob} {value} {unit} is out of range: {min} to {max} {unit}")
            }
        }
    }
}

impl core::error::Error for KnobError {}

/// Refuses a `value` outside of `range`.
pub(crate) fn in_range(
    knob: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
    unit: &'static str,
) -> Result<(), KnobError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(KnobError::OutOfRange { knob, value, min: *range.start(), max: *range.end(), unit })
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
struct Waiting {
    /// With priority: it goes first.
    urgent: Backlog,
    /// The rest.
    elastic: Backlog,
    /// How many flows the rest is of.
    flows: u32,
}

/// What admission and views read of a discipline. Fields that a discipline does not have are `None`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Meters {
    /// All that waits.
    pub backlog: Backlog,
    /// Bytes on the wire that were taken in with priority since the start. Never falls.
    pub priority_bytes: Option<Bytes>,
    /// Virtual time, in the discipline's own unit.
    pub virtual_time: Option<u64>,
    /// Bytes on the wire that a fictitious flow that always has packets to send would have been sent
    /// since the start: what the fair rate is measured by. Never falls.
    pub fair_bytes: Option<Bytes>,
    /// Flows that the discipline keeps state of at present.
    pub flows: Option<u32>,
    /// How often a flow changed between streaming (priority) and elastic since the start.
    pub class_flips: Option<u64>,
    /// For how long the link was busy, where several workers share it: the wire of one of them does not tell. The other counts of bytes are of all
    /// workers then.
    pub busy: Option<Nanos>,
}

/// A discipline: takes packets in and says which goes next.
///
/// Contract: times given are monotonic (`now` never before that of an earlier call). Every packet given to `enqueue`
/// comes back exactly once: from `dequeue`, through `dropped`, or through `drain`. No call allocates, except `drain`
/// and changes of configuration.
pub trait Scheduler<P: Packet> {
    /// Takes the packet in and says how it was treated. Whatever is dropped for it, it or another, goes to `dropped`
    /// with the reason. When another packet was dropped for it the answer is still `Queued`.
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated;

    /// Lets a packet pass in which nothing has to be decided: nothing waits, and `enqueue` followed by `dequeue` at the same instant would give
    /// this very packet. Does the accounts that the discipline keeps of all its packets, and says how it was treated; what it keeps of single flows only
    /// while something waits, it need not touch. `None`: nothing changed, use the two calls. Disciplines without such a way keep this default.
    fn bypass(&mut self, _now: Nanos, _packet: &P) -> Option<Treated> {
        None
    }

    /// Whether [`bypass`](Self::bypass) is worth a try: nothing waits. State of flows need not be fetched then.
    fn bypasses(&self) -> bool {
        false
    }

    /// The next packet to send at `now`; `None` if empty or if all that waits is held. May drop.
    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P>;

    /// When to call `dequeue` again although nothing arrives. `None`: only an arrival or a change can make something
    /// sendable. Never earlier than `now`. It is valid until the next call that takes `&mut self`.
    fn next_wake(&self, now: Nanos) -> Option<Nanos>;

    /// Periodic work; returns when it is due next. Disciplines without any keep this default.
    fn tick(&mut self, _now: Nanos) -> Option<Nanos> {
        None
    }

    /// IP length of what `dequeue` would give at `now`, for shapers and hierarchies above; `None` where it would give
    /// none.
    fn peek_len(&self, now: Nanos) -> Option<Bytes>;

    /// Changes a knob; says whether the transmit side must be started.
    fn set(&mut self, now: Nanos, knob: Knob) -> Result<Wake, KnobError>;

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

    /// What waits of `class`, where the discipline queues by class; else the whole backlog for class 0.
    fn class_backlog(&self, class: Class) -> Backlog;

    /// Bytes that wait of a flow whose hash is `hash`; zero where the discipline keeps no queue per flow.
    fn flow_backlog(&self, _flow: &FlowKey, _hash: u64) -> Bytes {
        Bytes::ZERO
    }

    /// Reads ahead where the search for the flow of this hash begins: the first of two steps. Neither changes anything, and neither has to be
    /// called. With many flows a burst costs least if `prefetch_bucket` is called for all its packets, then [`prefetch`](Self::prefetch) for all,
    /// and then `enqueue`: in each step all packets wait for memory together, and each finds there what the one before asked for. What `dequeue`
    /// will read, disciplines read ahead themselves: they know who is next.
    fn prefetch_bucket(&self, _hash: u64) {}

    /// Reads ahead what `enqueue` of a packet of this flow hash will read: the second step, and the one to call where there is only one.
    fn prefetch(&self, _hash: u64) {}

    /// The discipline's name in configuration files.
    fn name(&self) -> &'static str;
}

/// The built-in disciplines without a virtual call per packet, and a boxed arm that lets a user's own in.
pub enum AnyScheduler<P: Packet> {
    /// First in, first out.
    Fifo(fifo::Fifo<P>),
    /// Weighted fair queueing as ALTQ has it.
    WfqAltq(wfq_altq::WfqAltq<P>),
    /// LCT-UC.
    Lct(lct::Lct<P>),
    /// Priority fair queueing.
    Pfq(pfq::Pfq<P>),
    /// Priority deficit round robin.
    Pdrr(pdrr::Pdrr<P>),
    /// Approximate flow-aware networking.
    Afan(afan::Afan<P>),
    /// One worker's part of a link that several share by classes.
    Shared(shared::Shared<P>),
    /// One worker's part of a link that several share by flows.
    SharedFlows(Box<shared_flows::SharedFlows<P>>),
    /// Somebody's own.
    Boxed(Box<dyn Scheduler<P> + Send>),
}

macro_rules! delegate {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Self::Fifo($inner) => $call,
            Self::WfqAltq($inner) => $call,
            Self::Lct($inner) => $call,
            Self::Pfq($inner) => $call,
            Self::Pdrr($inner) => $call,
            Self::Afan($inner) => $call,
            Self::Shared($inner) => $call,
            Self::SharedFlows($inner) => $call,
            Self::Boxed($inner) => $call,
        }
    };
}

impl<P: Packet> Scheduler<P> for AnyScheduler<P> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        delegate!(self, s => s.enqueue(now, packet, dropped))
    }
    fn bypass(&mut self, now: Nanos, packet: &P) -> Option<Treated> {
        delegate!(self, s => s.bypass(now, packet))
    }
    fn bypasses(&self) -> bool {
        delegate!(self, s => s.bypasses())
    }
    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        delegate!(self, s => s.dequeue(now, dropped))
    }
    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        delegate!(self, s => s.next_wake(now))
    }
    fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        delegate!(self, s => s.tick(now))
    }
    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        delegate!(self, s => s.peek_len(now))
    }
    fn set(&mut self, now: Nanos, knob: Knob) -> Result<Wake, KnobError> {
        delegate!(self, s => s.set(now, knob))
    }
    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        delegate!(self, s => s.drain(into));
    }
    fn meters(&self) -> Meters {
        delegate!(self, s => s.meters())
    }
    fn backlog(&self) -> Backlog {
        delegate!(self, s => s.backlog())
    }
    fn busy_queues(&self) -> usize {
        delegate!(self, s => s.busy_queues())
    }
    fn class_backlog(&self, class: Class) -> Backlog {
        delegate!(self, s => s.class_backlog(class))
    }
    fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
        delegate!(self, s => s.flow_backlog(flow, hash))
    }
    fn prefetch(&self, hash: u64) {
        delegate!(self, s => s.prefetch(hash));
    }
    fn prefetch_bucket(&self, hash: u64) {
        delegate!(self, s => s.prefetch_bucket(hash));
    }
    fn name(&self) -> &'static str {
        delegate!(self, s => s.name())
    }
}
