//! The keys of a live cluster scenario.

use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Kind, Section};
use evenkeel_core::{BitRate, Bytes, Nanos, settings, words};

const NAME: Kind = Kind::Name(30);
const NODE: Kind = Kind::Integer { min: 1, max: 64, unit: "" };
const CLUSTER: Kind = Kind::Foreign("keys of `[cluster]` of a `router.toml`");
/// The longest step, in nanoseconds.
const LONGEST: u64 = 3_600 * Nanos::SECOND.0;

settings! {
    /// One Ethernet switch, and everything at it: balancers 1, 2, …, forwarders 1, 2, …, next hops
    /// and the links to them, a source for each balancer.
    pub(super) struct SwitchSection: "[switch]" {
        /// Balancers.
        stated balancers: u16 = 2, in 1..=4;
        /// Forwarders.
        stated forwarders: u16 = 3, in 1..=8;
        /// Next hops: each is the end of one outgoing link.
        stated next_hops: u16 = 3, in 1..=8;
        /// What the switch sends to each next hop, Ethernet headers included (14 bytes a packet).
        stated rate: BitRate = BitRate(100_000), in 100_000..=1_000_000_000, is required;
        /// The same for each next hop, where they differ.
        stated rates: Vec<BitRate> = Vec::new(), absent "`rate` for each";
        /// Length of each IP packet of the traffic.
        stated size: Bytes = Bytes(1_000), in 60..=1_500;
        /// Flows of each source, class and next hop.
        stated flows: u16 = 20, in 1..=10_000;
    }
}

settings! {
    /// A class of traffic. Its packets are told from others' by their destination port. Weights:
    /// `weight` of `[cluster]`.
    pub(super) struct ClassSection: "[[class]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
    }
}

settings! {
    /// A part of the run. Traffic begins, `settle` goes by, then comes what the step does, then
    /// `for`; then the queues are emptied.
    pub(super) struct StepSection: "[[step]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// How long is measured.
        stated time as for: Nanos = Nanos::SECOND, in 10_000_000..=LONGEST, is required;
        /// How long traffic runs before.
        stated settle: Nanos = Nanos::from_millis(500), in 0..=LONGEST;
        /// Load of each link in parts of what it carries, every class the same.
        stated offer: f64 = 1.0, between 0.01..=10.0, is required;
        /// Settings that override those of the file's `[cluster]`: all forwarders are started anew.
        stated cluster: Option<String> = None, written CLUSTER, absent "those of the step before";
        /// `false`: the forwarders have no `[cluster]`; what is too much is dropped by the switch.
        stated wfq: bool = true;
        /// Part of the exchange frames that each forwarder does not get.
        stated loss: f64 = 0.0, between 0.0..=0.9;
        /// Whether a stranger at the switch sends forged and replayed exchange frames, one of each
        /// per 2 ms.
        stated intruder: bool = false;
        /// Forwarders that do not run and get nothing, from the beginning of this step.
        stated absent: Vec<u16> = Vec::new(), written Kind::List(&NODE), absent "none";
        /// A forwarder that is started, then gets new flows.
        stated add: Option<u16> = None, written NODE, absent "none";
        /// A forwarder that gets no new flows from then on.
        stated drain: Option<u16> = None, written NODE, absent "none";
        /// A forwarder whose process is killed (SIGKILL). The balancers notice it by themselves.
        stated kill: Option<u16> = None, written NODE, absent "none";
        /// Whether as many flows as there are begin anew when the step has done what it does.
        stated new_flows: bool = false;
    }
}

words! {
    /// What an expectation can be of.
    pub enum Quantity {
        /// largest relative difference of a class's part of the bytes of a link from its weight's
        /// part, over links and classes, %
        #[default]
        ShareError = "share_error",
        /// bytes that reached the next hops, in parts of what the links carry
        Throughput = "throughput",
        /// that, in parts of the step `to`
        RelativeThroughput = "relative_throughput",
        /// packets that a forwarder sent on a link which another had used in the same cycle, as
        /// captured at the switch
        Collisions = "collisions",
        /// cycles whose packets were captured: what `collisions` was counted over
        Cycles = "cycles",
        /// longest time without a packet on any link, ms
        SilenceMs = "silence_ms",
        /// that, in cycles: the longest before the step did what it does; in the simulator the mean
        /// of the step before
        SilenceCycles = "silence_cycles",
        /// nodes that opened cycles
        Masters = "masters",
        /// established flows that went to another forwarder, except those of a killed one
        Moved = "moved",
        /// packets sent that did not arrive
        Lost = "lost",
        /// of these, packets that the switch had not last seen on their way to the killed forwarder
        LostElsewhere = "lost_elsewhere",
        /// part of the new flows that went to the forwarder that was added or drained
        NewFlowsThere = "new_flows_there",
        /// forged and replayed frames that were sent
        Injected = "injected",
        /// forged and replayed frames that the forwarders counted, in parts of what was sent to
        /// them
        Refused = "refused",
        /// times that a forwarder became master
        Takeovers = "takeovers",
        /// exchange frames that did not come to a forwarder
        Missing = "missing",
        /// times that the audit of a forwarder found a class of a link behind its share
        Unfair = "unfair",
        /// windows that audits judged
        Judged = "judged",
    }
}

words! {
    /// How a number must relate to what it is compared with.
    pub enum Relation {
        /// is not below
        #[default]
        AtLeast = "at-least",
        /// is not above
        AtMost = "at-most",
    }
}

settings! {
    /// A claim on one number of one step.
    pub(super) struct ExpectSection: "[[expect]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// The claim in words.
        stated claim: String = String::new(), is required;
        /// The step.
        stated step: String = String::new(), written NAME, is required;
        /// The number. In the simulator there are `share_error`, `throughput`,
        /// `relative_throughput`, `collisions`, `silence_ms` and `silence_cycles`.
        stated of: Quantity = Quantity::ShareError, is required;
        /// The step to compare with.
        stated to: Option<String> = None, written NAME, absent "needed for `relative_throughput`";
        /// How it must relate.
        stated is: Relation = Relation::AtLeast, is required;
        /// What to compare with.
        stated value: f64 = 0.0, between 0.0..=1e12, is required;
        /// What else to know.
        stated note: String = String::new();
    }
}

settings! {
    /// A mechanism switched off.
    pub(super) struct WithoutSection: "[[without]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// Settings that override those of all steps.
        stated cluster: Option<String> = None, written CLUSTER, is required;
        /// The expectations that must fail then. Only their steps are run.
        stated fails: Vec<String> = Vec::new(), written Kind::List(&NAME), is required;
    }
}

settings! {
    /// Balancers and forwarders behind one switch, each a process and a namespace of its own.
    pub(super) struct FileSection: "live cluster scenario" {
        /// Its name, path-like.
        stated name: String = String::new(), is required;
        /// One line for headings.
        stated title: String = String::new(), is required;
        /// What it reproduces.
        stated source: String = String::new();
        /// What the reader must know.
        stated notes: String = String::new();
        /// Seed of the simulation.
        stated seed: u64 = 1;
        /// The switch and what is at it.
        stated switch: SwitchSection = SwitchSection::default(), is required;
        /// The classes; the first gets what is not of another.
        stated classes as class: Vec<ClassSection> = Vec::new(), in 1..=8, is required;
        /// `[cluster]` of the forwarders as in a `router.toml`, without `node`, `members`, `port`
        /// and `link`, which follow from `[switch]`.
        stated cluster: Option<String> = None, written CLUSTER, is required;
        /// The parts of the run, one after the other.
        stated steps as step: Vec<StepSection> = Vec::new(), in 1..=100, is required;
        /// The claims.
        stated expectations as expect: Vec<ExpectSection> = Vec::new(), in 0..=1_000,
            absent "nothing";
        /// Runs in which they must fail.
        stated without: Vec<WithoutSection> = Vec::new(), in 0..=20, absent "none";
    }
}

/// Every table, in the order of the reference.
pub(super) static ALL: &[&Section] = &[
    FileSection::SECTION,
    SwitchSection::SECTION,
    ClassSection::SECTION,
    StepSection::SECTION,
    ExpectSection::SECTION,
    WithoutSection::SECTION,
];
