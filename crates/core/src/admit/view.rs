//! What an admission control says of itself: the view of a link, and what happened to one flow.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use super::per_user::Owner;
use crate::measure::Histogram;
use crate::packet::FlowKey;
use crate::reason::Reason;
use crate::units::{BitRate, Bytes, Nanos, Ppm};

/// Why a link is closed to new flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// FR < min_FR.
    FairRate,
    /// PL > max_PL.
    PriorityLoad,
    /// The list of protected flows is full.
    ListFull,
}

impl Cause {
    /// The reason of refusals because of it.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::FairRate => Reason::FairRateLow,
            Self::PriorityLoad => Reason::PriorityLoadHigh,
            Self::ListFull => Reason::FlowListFull,
        }
    }
}

/// By which rule a packet or flow passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Rule {
    /// What the router itself sends to keep the network running.
    Control,
    /// ECM: from or to an emergency prefix.
    Emergency,
    /// ECM: by the thresholds of emergency flows.
    EmergencyThreshold,
    /// The flow is protected.
    Protected,
    /// The link was open.
    Open,
    /// The link was opened by force (ECCM, or a clearing of the list).
    ForcedOpen,
    /// The flow is on the router's global list (GPFL).
    GlobalList,
    /// The flow had been cleared from the list and came back first.
    PriorityAccess,
    /// The link was closed, and the flow had a place of those kept for newcomers.
    Newcomer,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 9] = [
        Self::Control,
        Self::Emergency,
        Self::EmergencyThreshold,
        Self::Protected,
        Self::Open,
        Self::ForcedOpen,
        Self::GlobalList,
        Self::PriorityAccess,
        Self::Newcomer,
    ];

    /// The name used in views: `snake_case`, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Emergency => "emergency",
            Self::EmergencyThreshold => "emergency_threshold",
            Self::Protected => "protected",
            Self::Open => "open",
            Self::ForcedOpen => "forced_open",
            Self::GlobalList => "global_list",
            Self::PriorityAccess => "priority_access",
            Self::Newcomer => "newcomer",
        }
    }
}

/// Why a flow lost its protection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Removal {
    /// It was silent for longer than the flow time-out.
    Silent,
    /// It never proved itself (probation).
    OnePacket,
    /// ECCM: it entered while the link was opened by force and turned elastic.
    Eccm,
    /// It was cleared by the flushing family.
    Flushed,
    /// MFAN: it left for the second link.
    Diverted,
    /// The link was down for longer than the flow time-out.
    LinkDown,
}

impl Removal {
    /// Every removal.
    pub const ALL: [Self; 6] =
        [Self::Silent, Self::OnePacket, Self::Eccm, Self::Flushed, Self::Diverted, Self::LinkDown];

    /// The name used in views: `snake_case`, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::OnePacket => "one_packet",
            Self::Eccm => "eccm",
            Self::Flushed => "flushed",
            Self::Diverted => "diverted",
            Self::LinkDown => "link_down",
        }
    }
}

/// Something decided about a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// It was let in.
    Admitted(Rule),
    /// A packet was refused.
    Refused(Reason),
    /// It was taken off the list.
    Removed(Removal),
    /// It was sent to the second link.
    Diverted,
}

/// A decision with the value that decided and what it was held against.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Decision {
    /// What.
    pub event: Event,
    /// When first.
    pub first: Nanos,
    /// When last: equal decisions in a row are told once.
    pub last: Nanos,
    /// How often in a row.
    pub count: u32,
    /// What the value is.
    pub measure: Measure,
    /// The value.
    pub value: u64,
    /// The threshold.
    pub threshold: u64,
}

/// What a decision looked at, and its unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Measure {
    /// FR against min_FR, bit/s.
    FairRate,
    /// PL against max_PL, parts per million.
    PriorityLoad,
    /// Listed flows against the size of the list.
    Flows,
    /// Bytes of first packets against the budget so far.
    BudgetBytes,
    /// Flows of the user against N.
    UserFlows,
    /// A time against a time-out or end, ns.
    Time,
    /// Flows that are awaited first, against none.
    Awaited,
    /// Nothing was compared.
    Nothing,
}

impl fmt::Display for Decision {
    /// `refused 3 times from 1.2 s to 1.5 s: fair_rate_low (fair rate 400 kbit/s, threshold 500
    /// kbit/s)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Event::Admitted(_) => f.write_str("admitted")?,
            Event::Refused(_) => f.write_str("refused")?,
            Event::Removed(_) => f.write_str("removed from the list")?,
            Event::Diverted => f.write_str("sent to the second link")?,
        }
        if self.count > 1 {
            write!(f, " {} times from {} to {}", self.count, self.first, self.last)?;
        } else {
            write!(f, " at {}", self.first)?;
        }
        match self.event {
            Event::Admitted(rule) => write!(f, ": {}", rule.name())?,
            Event::Refused(reason) => write!(f, ": {reason}")?,
            Event::Removed(removal) => write!(f, ": {}", removal.name())?,
            Event::Diverted => {}
        }
        let (value, threshold) = (self.value, self.threshold);
        let share = |part: u64| Ppm(u32::try_from(part).unwrap_or(u32::MAX));
        match self.measure {
            Measure::FairRate => {
                write!(f, " (fair rate {}, threshold {})", BitRate(value), BitRate(threshold))
            }
            Measure::PriorityLoad => {
                write!(f, " (priority load {}, threshold {})", share(value), share(threshold))
            }
            Measure::Flows => write!(f, " ({value} flows listed, room for {threshold})"),
            Measure::BudgetBytes => {
                write!(
                    f,
                    " (first packets took {}, budget so far {})",
                    Bytes(value),
                    Bytes(threshold)
                )
            }
            Measure::UserFlows => {
                write!(f, " (user has {value} flows in this interval, {threshold} allowed)")
            }
            Measure::Time => write!(f, " ({} against {})", Nanos(value), Nanos(threshold)),
            Measure::Awaited => write!(f, " ({value} cleared flows are awaited)"),
            Measure::Nothing => Ok(()),
        }
    }
}

/// What is known of a protected flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProtectedFlow {
    /// When it was listed, to 17 ms.
    pub admitted: Nanos,
    /// When its last packet came, to 66 us.
    pub seen: Nanos,
    /// Whether a packet of it entered an elastic queue within the class window.
    pub elastic: bool,
    /// Whether it is on probation: it has not proved itself yet by coming again.
    pub probation: bool,
    /// Bytes in the present or last interval T_FR, in steps of 64.
    pub recent: Bytes,
    /// The next hop it is pinned to and the TTL of its first packet, where paths are pinned.
    pub pin: Option<Pin>,
}

/// The path of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pin {
    /// Which next hop of the link, as the caller numbers them.
    pub next_hop: u8,
    /// TTL of the first packet: packets with another one are routed afresh.
    pub ttl: u8,
}

/// Most decisions remembered per flow.
pub const DECISIONS: usize = 4;

/// What happened to a flow's packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Explanation {
    /// The flow.
    pub flow: FlowKey,
    /// Whether it is an emergency flow (ECM); those that bypass admission leave no other trace.
    pub emergency: bool,
    /// Its entry in the list, if it is protected.
    pub protected: Option<ProtectedFlow>,
    /// Whether it goes over the second link (MFAN).
    pub diverted: bool,
    /// Until when it is blocked (RBAEF).
    pub blocked_until: Option<Nanos>,
    /// When its first packet since it was last unknown came; `None` if that is not remembered any
    /// more.
    pub first_seen: Option<Nanos>,
    /// Since when it waits to be let in.
    pub waiting_since: Option<Nanos>,
    /// Packets refused since it was first seen.
    pub refused: u64,
    /// The last decisions about it, oldest first; at most [`DECISIONS`].
    pub decisions: Vec<Decision>,
}

/// A user and the flows it started in the present interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UserAdmissions {
    /// Who it is.
    pub user: Owner,
    /// Flows admitted since the last estimate of the fair rate.
    pub flows: u32,
}

crate::counters! {
    /// What an admission control counts, since its start.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct AdmissionCounts {
        /// Packets that were decided upon.
        count packets: u64, "packets";
        /// Packets sent to the second link.
        count diverted_packets: u64, "packets";
        /// Flows put on the list.
        count admissions: u64, "flows";
        /// Changes between streaming and elastic, of all flows.
        count class_flips: u64, "changes";
        /// Openings by ECCM.
        count openings: u64, "openings";
        /// Clearings of the list.
        count clearings: u64, "clearings";
        /// Waiting flows that were forgotten: their delays are told too short.
        count forgotten: u64, "flows";
    }
}

/// The counts are read like fields of the view.
impl Deref for AdmissionView {
    type Target = AdmissionCounts;

    fn deref(&self) -> &AdmissionCounts {
        &self.counts
    }
}

/// The state of an admission control.
#[derive(Clone, Debug)]
pub struct AdmissionView {
    /// FR as decisions see it.
    pub fair_rate: BitRate,
    /// min_FR.
    pub min_fair_rate: BitRate,
    /// PL.
    pub priority_load: Ppm,
    /// max_PL.
    pub max_priority_load: Ppm,
    /// Why new flows are refused; `None`: the link is open.
    pub congested: Option<Cause>,
    /// Until when FR is forced to min_FR (ECCM, clearing).
    pub forced_until: Option<Nanos>,
    /// Protected flows; the sum of the next two.
    pub protected: u32,
    /// Those sending below the fair rate.
    pub streaming: u32,
    /// The others.
    pub elastic: u32,
    /// Those on probation, which are among the streaming ones.
    pub probation: u32,
    /// Size of the list.
    pub capacity: u32,
    /// Flows on the second link.
    pub diverted: u32,
    /// What was counted.
    pub counts: AdmissionCounts,
    /// Packets that passed, by [`Rule`].
    pub passed: [u64; Rule::ALL.len()],
    /// Packets refused, by [`Reason::index`].
    pub refused: [u64; Reason::COUNT],
    /// Flows taken off the list, by [`Removal`].
    pub removed: [u64; Removal::ALL.len()],
    /// Subscribers share the link, and are each open or closed for itself.
    pub by_subscriber: bool,
    /// Whether a flood of one-packet flows is held down.
    pub flood: bool,
    /// Time from the first packet of a flow to its first packet that passed. Flows that the history
    /// table forgot in between start anew, so at more than `history` waiting flows long delays are
    /// told too short; [`AdmissionCounts::forgotten`] says how many.
    pub accept_delay: Histogram,
    /// Users that started flows in the present interval, busiest first; at most 32.
    pub users: Vec<UserAdmissions>,
    /// All memory of the tables, in bytes.
    pub memory: usize,
}
