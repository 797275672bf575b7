//! The metrics of expectations, each said once.

use evenkeel_core::measure::{ClassCounters, Counter, Tally};
use evenkeel_core::settings::Trimmed;

/// Where a metric is measured.
#[derive(Clone, Copy, Eq, PartialEq)]
#[expect(non_camel_case_types, reason = "the words of the table")]
enum From {
    /// On a class of a link.
    class,
    /// On a class, by hosts, from stamps in packets, which only the project's own sources write.
    stamps,
    /// On a class, by the dynamic control of its link.
    control,
    /// On a class, by its router, which measures cycles.
    cycles,
    /// On flows of a polled core alone.
    core,
    /// On the scheduler calls of a link.
    calls,
    /// On a link, by its admission.
    admission,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $variant:ident: $from:ident $name:literal, $unit:literal;)+) => {
        /// What is measured.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Metric {
            $(#[doc = concat!($($doc,)+ ".")] $variant,)+
            /// A counter of a class that no other metric is made from, per second.
            Counter(&'static Counter),
        }

        impl Metric {
            const NAMED: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in expectations.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Counter(counter) => counter.column,
                }
            }

            /// What it is, in words.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => const { Trimmed(concat!($($doc),+)).text() },)+
                    Self::Counter(counter) => counter.help,
                }
            }

            /// The unit; empty for fractions.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$variant => $unit,)+
                    Self::Counter(counter) => counter.rate,
                }
            }

            const fn from(self) -> From {
                match self {
                    $(Self::$variant => From::$from,)+
                    Self::Counter(_) => From::class,
                }
            }
        }
    };
}

metrics! {
    /// packets that left the wire
    Sent: class "sent", "packets/s";
    /// packets dropped on the link
    Dropped: class "dropped", "packets/s";
    /// packets that the sources of the class sent
    Offered: class "offered", "packets/s";
    /// mean transit delay: arrival in the router to leaving the queue
    Delay: class "delay", "us";
    /// median of the transit delay
    DelayP50: class "delay_p50", "us";
    /// 99 % of packets had a transit delay of at most this
    DelayP99: class "delay_p99", "us";
    /// mean delay from sending to receiving host
    E2e: stamps "e2e", "us";
    /// median of the delay from host to host
    E2eP50: stamps "e2e_p50", "us";
    /// 99 % of packets had a delay from host to host of at most this
    E2eP99: stamps "e2e_p99", "us";
    /// queue length on the average of time
    Qlen: class "qlen", "packets";
    /// IP packets that the receiving hosts got
    Goodput: class "goodput", "bit/s";
    /// scheduler calls that found every queue empty
    CallsNone: calls "calls_none", "";
    /// scheduler calls that found packets in one queue
    CallsOne: calls "calls_one", "";
    /// scheduler calls that found packets in several queues
    CallsMany: calls "calls_many", "";
    /// mean congestion index for delay, on a link with control: 0 normal, 1 at the degradation
    /// threshold
    CiDelay: control "ci_delay", "";
    /// mean congestion index for loss, on a link with control
    CiLoss: control "ci_loss", "";
    /// mean X_DELAY that the control of the link gives the class
    XDelay: control "x_delay", "us";
    /// cycles that the router spent on packets it forwarded, with their parts of fetching and
    /// sending
    Cycles: cycles "cycles", "cycles/s";
    /// cycles that the router spent on each packet it forwarded
    CyclesEach: cycles "cycles_each", "cycles";
    /// packets refused before any link, by FairDrop or by a service
    Refused: cycles "refused", "packets/s";
    /// mean time from the first packet of a flow to the first that got through, both as they were
    /// sent; after a step with `down` or `up`, of every flow anew: its switchover time
    Accept: class "accept", "us";
    /// the longest of these times
    AcceptMax: class "accept_max", "us";
    /// flows that got through for the first time, or anew after a failure
    Accepted: class "accepted", "flows/s";
    /// flows of which nothing had got through, at the ends of the sampling windows
    Waiting: class "waiting", "flows";
    /// mean fair rate, on a link with admission
    FairRate: admission "fair_rate", "bit/s";
    /// the fair rate that 19 of 20 sampling windows were above, on a link with admission
    FairRateP5: admission "fair_rate_p5", "bit/s";
    /// mean priority load, on a link with admission: a part of its rate
    PriorityLoad: admission "priority_load", "";
    /// sampling windows at whose ends the admission took the link for congested
    Congested: admission "congested", "";
    /// flows on the link's list of protected flows
    Protected: admission "protected", "flows";
    /// protected flows that are streaming
    Streaming: admission "streaming", "flows";
    /// packets that the admission of the link refused
    TurnedAway: admission "turned_away", "packets/s";
    /// what exact max-min water filling gives the class of a `[core]`, of what arrived, at the same
    /// costs of polling and refusing
    FairCycles: core "fair_cycles", "cycles/s";
}

impl Metric {
    /// Every metric: those above, then the counters of classes that are no metric yet.
    pub fn all() -> impl Iterator<Item = Self> {
        let is_free = |of: &&Counter| {
            !of.column.is_empty() && Self::NAMED.iter().all(|metric| metric.name() != of.column)
        };
        let counters = ClassCounters::COUNTERS.iter().filter(is_free).map(Self::Counter);
        Self::NAMED.iter().copied().chain(counters)
    }

    /// Whether it is measured on a link as a whole, not by class.
    #[must_use]
    pub fn is_of_link(self) -> bool {
        matches!(self.from(), From::calls | From::admission)
    }

    /// Whether the dynamic control of a link measures it.
    #[must_use]
    pub fn needs_control(self) -> bool {
        self.from() == From::control
    }

    /// Whether it comes from the cycles that a router measures.
    #[must_use]
    pub fn needs_cycles(self) -> bool {
        self.from() == From::cycles
    }

    /// Whether a polled core alone measures it.
    #[must_use]
    pub fn needs_core(self) -> bool {
        self.from() == From::core
    }

    /// Whether hosts measure it from stamps in the packets, which only the project's own sources
    /// write.
    #[must_use]
    pub fn needs_stamps(self) -> bool {
        self.from() == From::stamps
    }
}
