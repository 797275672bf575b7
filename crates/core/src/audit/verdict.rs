//! What an audit has found.

use alloc::vec::Vec;

use crate::units::{Bytes, Nanos};

macro_rules! named {
    ($(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $variant:ident => $word:literal,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            /// All, in the order of [`index`](Self::index).
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in counters and files: stable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// A sentence for people.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc,)+),)+ }
            }

            /// Its place in an array of counters.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

named! {
    /// Which promise was broken.
    Breach {
        /// More left than rate and burst allow.
        OverRate => "over_rate",
        /// Less left than the rate allows, while something waited.
        UnderRate => "under_rate",
        /// A class, or a node of a tree, is behind its share.
        Share => "share",
        /// A class that waits was sent nothing.
        Starved => "starved",
        /// A class of a higher level, or packets of flows with priority, waited for others.
        Order => "order",
        /// Flows that always wait were not sent the same.
        Flows => "flows",
        /// A node of a tree was sent more than its cap and burst allow.
        OverCap => "over_cap",
        /// Packets came that neither left, nor wait, nor were dropped.
        Conservation => "conservation",
    }
}

named! {
    /// Why, as far as it is known.
    Cause {
        /// The worker came too late, and what it could have sent meanwhile is lost.
        WorkerLate => "worker_late",
        /// More came at once than the link sends in several steps: a burst of the kernel or of a
        /// neighbour.
        Burst => "burst",
        /// There are more flows than the discipline can tell apart.
        TableFull => "table_full",
        /// The configuration was changed a moment ago.
        Changed => "changed",
        /// The transmit ring takes more than the queues hold.
        Ring => "ring",
        /// Packets are lost at the receive ring, where all lose alike: too few are refused.
        ReceiveRing => "receive_ring",
        /// Nothing of these: the discipline itself.
        Discipline => "discipline",
        /// Nothing of these: the wire itself.
        Wire => "wire",
    }
}

/// One broken promise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Violation {
    /// When it was seen.
    pub at: Nanos,
    /// Which.
    pub breach: Breach,
    /// Why.
    pub cause: Cause,
    /// The class that is behind, if it is about one.
    pub class: Option<u16>,
    /// The place of the node, if it is about one.
    pub node: Option<u32>,
    /// By how much.
    pub lag: Bytes,
    /// How much was allowed.
    pub bound: Bytes,
    /// The class's part of what should have left, millionths.
    pub told_ppm: u32,
    /// And of what did.
    pub delivered_ppm: u32,
}

/// A lag and its bound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lag {
    /// At the last look, bytes; 0 if ahead.
    pub now: Bytes,
    /// The largest so far.
    pub worst: Bytes,
    /// What the discipline and the ring are allowed: its constant.
    pub bound: Bytes,
    /// What the audit cannot tell, because it looks once in a step: allowed on top of that.
    pub within: Bytes,
}

impl Lag {
    pub(super) fn look(&mut self, lag: f64, bound: u64, within: u64) {
        let lag = Bytes(lag.max(0.0) as u64);
        *self = Self {
            now: lag,
            worst: self.worst.max(lag),
            bound: Bytes(bound),
            within: Bytes(within),
        };
    }
}

/// What a class was told, and how far it is behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClassLag {
    /// Its part of the link while all classes of its level wait, millionths.
    pub told_ppm: u32,
    /// Its level: higher ones go first.
    pub level: u32,
    /// How far it is behind.
    pub lag: Lag,
}

/// What an audit has found since the start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// How often it has looked.
    pub looks: u64,
    /// For how long it has looked: pauses of more than some steps are left out for shares.
    pub watched: Nanos,
    /// Violations by [`Breach::index`]. Never falls.
    pub breaches: [u64; Breach::ALL.len()],
    /// The same by [`Cause::index`].
    pub causes: [u64; Cause::ALL.len()],
    /// The last one.
    pub last: Option<Violation>,
    /// By how much the whole link is behind its rate.
    pub rate: Lag,
    /// What left beyond rate and burst: now, worst, and the burst.
    pub excess: Lag,
    /// Of a tree: what the node that is nearest to its bound was sent beyond its cap.
    pub caps: Lag,
    /// Of a tree: how far the node that is nearest to its bound is behind a sibling.
    pub siblings: Lag,
    /// How many nodes are watched now.
    pub nodes: u32,
    /// How far each class is behind; empty where nothing is promised to classes.
    pub classes: Vec<ClassLag>,
    /// Of flows: the spread.
    pub flows: Lag,
    /// Of flows: how far packets with priority are behind going first. With what waits before it
    /// this bounds the delay of one.
    pub priority: Lag,
    /// How many flows were compared, at the last look.
    pub compared: u32,
    /// Of how many flows one was looked at.
    pub one_of: u64,
}

impl Verdict {
    /// All violations.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.breaches.iter().sum()
    }

    pub(super) fn note(&mut self, violation: Violation) {
        self.breaches[violation.breach.index()] += 1;
        self.causes[violation.cause.index()] += 1;
        self.last = Some(violation);
    }

    /// Counts what another audit of the same link had found before this one began.
    pub(crate) fn take_over(&mut self, earlier: &Self) {
        self.looks += earlier.looks;
        self.watched = self.watched.saturating_add(earlier.watched);
        for (mine, theirs) in self.breaches.iter_mut().zip(earlier.breaches) {
            *mine += theirs;
        }
        for (mine, theirs) in self.causes.iter_mut().zip(earlier.causes) {
            *mine += theirs;
        }
        self.last = self.last.or(earlier.last);
        self.rate.worst = self.rate.worst.max(earlier.rate.worst);
        self.excess.worst = self.excess.worst.max(earlier.excess.worst);
        self.caps.worst = self.caps.worst.max(earlier.caps.worst);
        self.siblings.worst = self.siblings.worst.max(earlier.siblings.worst);
        self.flows.worst = self.flows.worst.max(earlier.flows.worst);
        self.priority.worst = self.priority.worst.max(earlier.priority.worst);
    }
}
