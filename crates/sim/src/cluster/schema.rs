//! The keys of a cluster scenario.

use evenkeel_cluster::{Missing, Proposer, Variant, Version, WeightRule};
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Kind, Section};
use evenkeel_core::{BitRate, Nanos, settings, words};

const NAME: Kind = Kind::Name(30);
/// Times of a few packets or exchanges, in nanoseconds.
const SHORT: std::ops::RangeInclusive<u64> = 0..=10_000_000_000;

settings! {
    /// What all cases share. Anything left out is as in the paper.
    pub(super) struct CaseConfig: "[cluster]" {
        /// Forwarders (M).
        stated forwarders: Option<u16> = None, in 1..=64, absent "3";
        /// Outgoing links (N).
        stated links: Option<u16> = None, in 1..=64, absent "3";
        /// Weights of the classes, 1 to 65535; one for each class (K).
        stated weights: Vec<u16> = Vec::new(), absent "[1, 1, 1]";
        /// How much is decided with one exchange.
        stated variant: Option<Variant> = None, absent "\"s-ds\"";
        /// Packets announced per queue, or sent per burst.
        stated l: Option<u16> = None, in 1..=1_000, counting "packets", absent "1";
        /// Rounds beyond l.
        stated p: Option<u16> = None, in 0..=4_095, counting "rounds", absent "0";
        /// What a virtual-time flow is.
        stated rule: Option<WeightRule> = None, absent "\"a\"";
        /// Which side proposes in the matching.
        stated proposer: Option<Proposer> = None, absent "\"links\"";
        /// Match what the stable matching left idle.
        stated second_pass: Option<bool> = None, absent "false";
        /// Fill each round with so many bytes; 0: one packet each.
        stated round_bytes: Option<u32> = None, in 0..=1 << 20, counting "bytes", absent "0";
        /// What a node does that missed a frame.
        stated missing: Option<Missing> = None, absent "\"abstain\"";
        /// Bound on a broadcast.
        stated t_br: Option<Nanos> = None, in 1_000..=*SHORT.end(), absent "72us";
        /// Time that a broadcast takes.
        stated broadcast: Option<Nanos> = None, in SHORT, absent "20us";
        /// Part of the frames that each receiver loses, each for itself.
        stated loss: Option<f64> = None, between 0.0..=0.99, absent "0";
        /// Version of the frames.
        stated frames: Option<Version> = None, absent "\"v1\"";
        /// Largest payload of a frame.
        stated mtu: Option<u16> = None, in 256..=9_000, counting "bytes", absent "1500";
        /// Rate of each outgoing link.
        stated rate: Option<BitRate> = None, in 1_000..=1_000_000_000_000_u64, absent "1Gbit/s";
        /// The rates of the outgoing links, one for each, if they differ.
        stated link_rates: Vec<BitRate> = Vec::new(), absent "`rate` for each";
        /// What a forwarder can send in a round over all links that it serves.
        stated forwarder_rate: Option<BitRate> = None, in 1_000..=1_000_000_000_000_u64,
            absent "one link at a time";
        /// Time of a packet in a window that does not overlap with the exchange (t_tx: fitted).
        stated per_packet: Option<Nanos> = None, in SHORT, absent "2850ns";
        /// Time of a decision in a window (t_s: measured by the paper).
        stated decision: Option<Nanos> = None, in SHORT, absent "1050ns";
        /// Time between rounds.
        stated guard: Option<Nanos> = None, in SHORT, absent "0s";
        /// A forwarder's processor time per packet (186 kpps).
        stated cpu_per_packet: Option<Nanos> = None, in SHORT, absent "5376ns";
        /// Its time per exchange (fitted).
        stated cpu_per_exchange: Option<Nanos> = None, in SHORT, absent "8500ns";
        /// Its time per decided round; 0: another core decides.
        stated cpu_per_decision: Option<Nanos> = None, in SHORT, absent "0s";
        /// Lengths of packets, bytes.
        stated sizes: Vec<u16> = Vec::new(), absent "[64]";
        /// How often each of the sizes comes.
        stated often: Vec<u16> = Vec::new(), absent "all alike";
        /// Classes that each forwarder has packets of: sums of 1, 2, 4, … for the first, second,
        /// third … class.
        stated holds: Vec<u16> = Vec::new(), absent "all classes on all";
        /// Mean time between two packets of a queue.
        stated interval: Option<Nanos> = None, in 100..=*SHORT.end(), absent "always backlogged";
        /// Virtual time that is simulated at most.
        stated duration: Option<Nanos> = None, in 100_000..=3_600_000_000_000_u64, absent "1s";
        /// Ends when the first link has sent so many.
        stated packets: Option<u64> = None, in 1..=1_000_000_000, counting "packets",
            absent "for `duration`";
    }
}

settings! {
    /// Settings that override those of all cases.
    pub(super) struct OverrideConfig: "set = { … }" {}
    parts {
        /// Whatever a case can hold.
        settings: CaseConfig,
    }
}

settings! {
    /// One simulation.
    pub(super) struct CaseSection: "[[case]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
    }
    parts {
        /// What differs from `[cluster]`.
        settings: CaseConfig,
    }
}

words! {
    /// What an expectation can be of.
    pub enum Quantity {
        /// packets per second of one forwarder, on average
        #[default]
        Rate = "rate",
        /// packets of a class on a link
        Packets = "packets",
        /// bytes of a class on a link
        Bytes = "bytes",
        /// a class's part of the bytes on a link
        Share = "share",
        /// largest difference between a class's bytes on a link and its weight's part, at any time
        Deviation = "deviation",
        /// part of the time that links are sending, on average
        Use = "use",
        /// packets on a link that another forwarder used in the same round
        Collisions = "collisions",
        /// times that a node's clocks were found to differ
        OutOfStep = "out_of_step",
    }
}

words! {
    /// How a number must relate to what it is compared with.
    pub(super) enum Relation {
        /// differs by at most `within`
        #[default]
        Near = "near",
        /// is not below
        AtLeast = "at-least",
        /// is not above
        AtMost = "at-most",
    }
}

settings! {
    /// A claim on one number of one case.
    pub(super) struct ExpectSection: "[[expect]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// The claim in words.
        stated claim: String = String::new(), is required;
        /// The case.
        stated case: String = String::new(), written NAME, is required;
        /// The number.
        stated of: Quantity = Quantity::Rate, is required;
        /// Which link.
        stated link: u16 = 1, in 1..=64;
        /// Which class.
        stated class: u16 = 1, in 1..=8;
        /// How it must relate.
        stated is: Relation = Relation::Near;
        /// A path in the published entry, `kpps[0]`.
        stated published: Option<String> = None, absent "`value`";
        /// What to compare with.
        stated value: Option<f64> = None, between 0.0..=1e15, absent "`published`";
        /// Factor of what is compared with: units.
        stated times: f64 = 1.0, between 0.0..=1e9;
        /// Largest difference.
        stated within: Option<f64> = None, between 0.0..=1e15, absent "`within_percent`";
        /// Largest difference in percent.
        stated within_percent: Option<f64> = None, between 0.0..=100.0, absent "`within`";
        /// What else to know.
        stated note: String = String::new();
    }
}

settings! {
    /// A mechanism switched off.
    pub(super) struct WithoutSection: "[[without]]" {
        /// Its name. Unique.
        stated name: String = String::new(), is required;
        /// What changes in all cases.
        stated set: OverrideConfig = OverrideConfig::default(), is required;
        /// The expectations that must fail then.
        stated fails: Vec<String> = Vec::new(), written Kind::List(&NAME), is required;
    }
}

settings! {
    /// Forwarders behind one switch, simulated: cases and what must come out.
    pub(super) struct FileSection: "cluster scenario" {
        /// Its name, path-like.
        stated name: String = String::new(), is required;
        /// One line for headings.
        stated title: String = String::new(), is required;
        /// What it reproduces.
        stated source: String = String::new();
        /// What the reader must know.
        stated notes: String = String::new();
        /// `"file.toml#key"`, as in a scenario.
        stated published: Option<String> = None, absent "nothing published";
        /// Seed.
        stated seed: u64 = 1;
        /// What all cases share.
        stated cluster: Option<CaseConfig> = None, absent "as in the paper";
        /// The simulations.
        stated cases as case: Vec<CaseSection> = Vec::new(), in 1..=100, is required;
        /// The claims.
        stated expectations as expect: Vec<ExpectSection> = Vec::new(), in 0..=1_000,
            absent "nothing";
        /// Runs in which they must fail.
        stated without: Vec<WithoutSection> = Vec::new(), in 0..=100, absent "none";
    }
}

/// Every table, in the order of the reference.
pub(super) static ALL: &[&Section] = &[
    FileSection::SECTION,
    CaseConfig::SECTION,
    CaseSection::SECTION,
    ExpectSection::SECTION,
    WithoutSection::SECTION,
    OverrideConfig::SECTION,
];
