//! The words of the cluster: who, which link, which class, what is said of a packet, what may be
//! sent.

use evenkeel_core::Nanos;
use evenkeel_core::settings::{Held, Kind, Value};

/// A forwarder's id, unique in the cluster. The lowest that is alive is master.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u16);

impl Held for NodeId {
    const KIND: Kind = u16::KIND;

    fn to_value(&self) -> Value {
        self.0.to_value()
    }

    fn from_value(value: &Value) -> Option<Self> {
        u16::from_value(value).map(Self)
    }
}

/// What the exchange says of a packet: when it came and how long it is (spec 3.2).
///
/// In lazy scheduling (L-DS) a record stands for a burst, and `length` is the burst's bytes; with
/// `train`, for packets that follow each other in their queue, and `packets` says how many.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Record {
    /// Arrival by the forwarder's own clock, microseconds, modulo 2^32 (71.6 minutes). Only
    /// compared within one forwarder, by signed difference: see [`earlier`].
    pub stamp: u32,
    /// Bytes that are charged for it; 0 means that there is no packet.
    pub length: u16,
    /// How many packets these are; 0 says one.
    pub packets: u8,
}

impl Record {
    /// One packet.
    #[inline]
    #[must_use]
    pub const fn of_packet(stamp: u32, length: u16) -> Self {
        Self { stamp, length, packets: 1 }
    }
}

/// Whether stamp `a` is before `b`: the sign of the 32-bit difference, so that stamps may wrap.
#[inline]
#[must_use]
pub const fn earlier(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The stamp of an arrival at `now`.
#[inline]
#[must_use]
pub const fn stamp(now: Nanos) -> u32 {
    (now.0 / 1_000) as u32
}

/// Leave to send from the head of one queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The cycle that gave it.
    pub cycle: u64,
    /// The round within the cycle's window.
    pub round: u32,
    /// Index of the outgoing link.
    pub link: usize,
    /// Index of the class.
    pub class: usize,
    /// Take packets from the head of this queue until they make up exactly so many bytes: the queue
    /// was asked for them by [`Forwarder::heads`], and nothing else may take from its head.
    pub bytes: u32,
    /// Send no earlier than this (the caller's clock); may be in the past.
    pub at: Nanos,
}

/// What a forwarder must be told about its cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// This node opens the cycles from now on.
    BecameMaster,
    /// Another node opens the cycles from now on.
    FollowsMaster(NodeId),
    /// Another node with a higher id claims to be master; it is not obeyed.
    SecondMaster(NodeId),
    /// The clocks of this node may differ from the others': it sends nothing until it has heard
    /// them.
    LostStep,
    /// The clocks of this node are the cluster's again.
    InStep,
    /// A member has been silent for too long: it counts as empty.
    MemberLost(NodeId),
    /// A member that was lost is heard again.
    MemberBack(NodeId),
    /// Another configuration is in force, from the cycle after this one on.
    Changed {
        /// Its hash.
        hash: u32,
        /// The last cycle of the one before.
        cycle: u64,
    },
    /// A node has shown that it started anew, with an epoch below its last one: its clock is
    /// behind.
    ClockBehind(NodeId),
    /// Frames of a silent node come that are recorded ones: it does not answer challenges, or they
    /// were used before.
    Recorded(NodeId),
    /// A node whose frames were taken for recorded ones has answered.
    Proved(NodeId),
    /// A node with another configuration: its frames are refused.
    OtherConfiguration {
        /// Who.
        node: NodeId,
        /// Its configuration's hash.
        theirs: u32,
        /// This node's.
        ours: u32,
    },
}

/// The forwarder around an engine: its queues, its port, its log.
///
/// All calls come from within a call of the engine; none may block.
pub trait Forwarder {
    /// Fills `out` with the packets at the head of the queue of `class` for `link`, in order;
    /// returns how many there were, at most `out.len()`. Packets already granted are no longer in
    /// the queue: [`grant`](Self::grant) takes them out at once.
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize;

    /// Moves packets from the head of a queue to the port, to be sent from [`Grant::at`] on.
    fn grant(&mut self, grant: Grant);

    /// A cycle is opened, at this time: this node is about to say what waits in it, and may be sent
    /// on its links by others as soon as they have heard that. What it was granted before and has
    /// not sent yet goes out first. Not asked where windows last through exchanges (P-DS).
    fn closes_window(&mut self, _now: Nanos) {}

    /// Sends a whole Ethernet frame (without check sequence) to all other nodes. `frame` is only
    /// lent.
    fn broadcast(&mut self, frame: &[u8]);

    /// Something that a person should hear of.
    fn event(&mut self, _event: Event) {}
}
