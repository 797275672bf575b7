//! The keys of a scenario: name, type, range, default, meaning. Everything else follows from these
//! declarations.

pub(crate) mod core;
pub(crate) mod subscribers;

use evenkeel_config::tables::NAME;
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Kind, Section};
use evenkeel_core::{BitRate, Bytes, Nanos, Prefix, settings, words};

use self::core::{CoreSection, FlowSection};
use self::subscribers::{PlanSection, SubscribersSection};
use crate::core_model::CoreLink;
use crate::model::{Congestion, Ecn, Tool, World};

/// The name of a node: it names network interfaces.
const NODE: Kind = Kind::Name(15);
const SECOND: u64 = Nanos::SECOND.0;
/// The longest run, in nanoseconds.
const LONGEST: u64 = 24 * 3_600 * SECOND;
/// The shortest sampling window.
pub(crate) const SHORTEST_SAMPLE: Nanos = Nanos::from_millis(10);
/// Most flows of a `[[traffic]]`.
pub(crate) const MOST_FLOWS: u64 = 1_000_000;
/// Rates of flows, in bits per second.
const FLOW_RATE: std::ops::RangeInclusive<u64> = 1_000..=100_000_000_000;

settings! {
    /// One experiment: who is wired to whom, who sends what, what changes when, what must come out.
    pub struct ScenarioSection: "scenario.toml" {
        /// Its name, path-like: letters, digits, `-`, `_`, `.` and `/`.
        stated name: String = String::new(), is required;
        /// One line for headings.
        stated title: String = String::new(), is required;
        /// What it reproduces: paper and figure.
        stated source: String = String::new();
        /// What the reader of the results must know.
        stated notes: String = String::new();
        /// `"file.toml#key"`: published numbers, looked for in a folder `published/` beside or
        /// above the scenario. Expectations use them as `published.…`.
        stated published: Option<String> = None, absent "nothing published";
        /// Seed of everything random.
        stated seed: u64 = 1;
        /// Sampling window.
        stated sample: Nanos = Nanos::SECOND, in SHORTEST_SAMPLE.0..=3_600 * SECOND;
        /// Left out at the head of each step when its numbers are formed.
        stated settle: Nanos = Nanos::ZERO, in 0..=LONGEST;
        /// How long it runs.
        stated duration: Nanos = Nanos::MAX, in 100_000_000..=LONGEST, is required;
        /// The hosts.
        stated hosts as host: Vec<HostSection> = Vec::new(), in 1..=200,
            absent "only with `[core]`";
        /// The routers.
        stated routers as router: Vec<RouterNode> = Vec::new(), in 1..=50,
            absent "only with `[core]`";
        /// The wires between them.
        stated wires as wire: Vec<WireSection> = Vec::new(), in 1..=200,
            absent "only with `[core]`";
        /// People behind hosts, whom trees of routers can name.
        stated subscribers: Vec<SubscribersSection> = Vec::new(), in 0..=1_000, absent "none";
        /// The flows.
        stated traffic: Vec<TrafficSection> = Vec::new(), in 1..=1_000,
            absent "only with `[core]`";
        /// One core that polls a ring of packets, in virtual time, in place of `[[host]]`,
        /// `[[router]]`, `[[wire]]` and `[[traffic]]`. Expectations speak of its `[[core.flow]]` as
        /// classes; `cycles` and `fair_cycles` are measured besides packets.
        stated core: Option<CoreSection> = None, absent "a network of hosts, routers and wires";
        /// Timed changes, in order of time. A step `start` at 0 is there in any case.
        stated steps as step: Vec<StepSection> = Vec::new(), in 0..=1_000,
            absent "one step, `start`, at 0";
        /// The claims.
        stated expectations as expect: Vec<ExpectSection> = Vec::new(), in 0..=1_000,
            absent "nothing is expected";
        /// Second runs with a mechanism switched off, in which the named expectations must fail: an
        /// expectation that cannot fail says nothing.
        stated without: Vec<WithoutSection> = Vec::new(), in 0..=100, absent "none";
    }
}

settings! {
    /// An end system.
    pub struct HostSection: "[[host]]" {
        /// Its name. Unique among hosts and routers.
        stated name: String = String::new(), written NODE, is required;
    }
}

/// What stands under `config` of a router.
pub(crate) const ROUTER_CONFIG: &str = "what router.toml holds, without [[port]]";

settings! {
    /// A router. Its ports are made from the wires: one for each, named after the node at the other
    /// end.
    pub struct RouterNode: "[[router]]" {
        /// Its name. Unique among hosts and routers.
        stated name: String = String::new(), written NODE, is required;
        /// What `router.toml` holds, without `[[port]]`. Name the links' ports after the nodes at
        /// the other end.
        stated config: Option<String> = None, written Kind::Foreign(ROUTER_CONFIG),
            absent "every default";
        /// A `router.toml` instead of `config`, relative to the scenario. Its `[[port]]` are left
        /// out.
        stated file: Option<String> = None, written Kind::Path, absent "none";
    }
}

settings! {
    /// An Ethernet link between two nodes. The n-th wire has 10.n.0.0/24 and fd00:n::/64 (n in
    /// hexadecimal there); hosts have .1 and ::1, routers .254 and ::fe; of two nodes of a kind the
    /// second has .2 or .253. A wire with a rate, delay, jitter, loss or reordering treats IP
    /// packets so in both worlds; on real packets ARP and neighbour discovery pass untouched, and
    /// at most 16384 packets may be on their way.
    pub struct WireSection: "[[wire]]" {
        /// The two nodes. Two nodes have one wire between them at most.
        stated ends: Vec<String> = Vec::new(), written Kind::List(&NODE), is required;
        /// Its IPv4 subnet, /8 to /29.
        stated subnet: Option<Prefix> = None, absent "10.n.0.0/24";
        /// Largest IP packet.
        stated mtu: u16 = 1_500, in 1_280..=9_000, counting "bytes";
        /// Bits per second of each direction, on the wire (with Ethernet header, padding, check
        /// sequence, preamble and gap).
        stated rate: Option<BitRate> = None, in 1_000..=1_000_000_000_000_u64,
            absent "packets take no time";
        /// Packets that may wait for a wire with a `rate`, the one on it included; more are lost.
        stated queue: u32 = 1_000, in 1..=1_000_000, counting "packets";
        /// Propagation delay of each direction.
        stated delay: Nanos = Nanos::ZERO, in 0..=60 * SECOND;
        /// Each packet arrives up to this much later, uniform; order is kept.
        stated jitter: Nanos = Nanos::ZERO, in 0..=60 * SECOND;
        /// Part of the packets that is lost, each independently.
        stated loss: f64 = 0.0, between 0.0..=1.0;
        /// Part of the packets that take neither `delay` nor `jitter`, and so overtake those on
        /// their way.
        stated reorder: f64 = 0.0, between 0.0..=1.0;
    }
}

settings! {
    /// A flow from one host to another.
    pub struct TrafficSection: "[[traffic]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// The host that sends.
        stated from: String = String::new(), written NODE, is required;
        /// The host that receives.
        stated to: String = String::new(), written NODE, is required;
        /// When packets come.
        stated kind: Pattern = Pattern::Cbr;
        /// What makes the packets. Only the project's own measure delays from host to host.
        stated tool: Tool = Tool::Evenkeel;
        /// Bits of IP packets per second; while on, for `on-off`; of all together, for `flows`. Of
        /// payload that all connections together are asked to carry, for `tcp-flows`.
        stated rate: Option<BitRate> = None, in FLOW_RATE,
            absent "needed; for `greedy` that of the host's wire; `tcp`, `replay`, `call`, `game`, \
                    `web` and `update` have none";
        /// Length of each IP packet, headers included; at most the MTU of every wire on the way.
        /// With `tcp`, `web` and `update`: of a full segment. Of `call`, `game` and `video`: the
        /// longest.
        stated size: Bytes = Bytes(1_428), in 72..=9_000;
        /// Congestion control of the kinds that are TCP.
        stated congestion: Congestion = Congestion::Cubic,
            with kind ["tcp", "tcp-flows", "web", "update"];
        /// Whether their packets are marked instead of dropped. In virtual time only.
        stated ecn: Ecn = Ecn::None, with kind ["tcp", "tcp-flows", "web", "update"];
        /// What `tcp` sends: payload, each byte counted once.
        stated bytes: Option<Bytes> = None, in 1..=1_u64 << 50, absent "until it stops",
            with kind ["tcp"];
        /// Random part of the spacing of constant-rate packets. Without any, flows of one rate fall
        /// into step and a full queue always drops the same one's packets.
        stated jitter: f64 = 0.1, between 0.0..=1.0, with kind ["cbr"];
        /// Mean on-time of `on-off`.
        stated mean_on: Nanos = Nanos::from_millis(500), in 100_000..=LONGEST,
            with kind ["on-off"];
        /// Mean off-time of `on-off`.
        stated mean_off: Nanos = Nanos::from_millis(500), in 100_000..=LONGEST,
            with kind ["on-off"];
        /// Mean size of `flows`, in bytes of IP packets; of `tcp-flows`, in bytes of payload.
        stated flow_size: Bytes = Bytes(50_000), in 72..=1_u64 << 40,
            with kind ["flows", "tcp-flows"];
        /// How the sizes of `flows` and `tcp-flows` are distributed.
        stated distribution: Distribution = Distribution::Fixed, with kind ["flows", "tcp-flows"];
        /// Shape of `distribution`: of `pareto` above 1 (up to 2 its variance is infinite), of
        /// `lognormal` at most 4.
        stated shape: Option<f64> = None, between 0.0..=100.0,
            absent "1.2 for `pareto`, 1 for `lognormal`",
            with distribution ["pareto", "lognormal"];
        /// Rate of each of the `flows` while it is sent.
        stated peak: BitRate = BitRate::from_mbps(10), in FLOW_RATE, with kind ["flows"];
        /// Which way a `game` goes: what the server tells a player, or the other way.
        stated direction: Direction = Direction::Down, with kind ["game"];
        /// Frames per second of `video`.
        stated frame_rate: u32 = 60, in 1..=120, with kind ["video"];
        /// How many people there are in `web` and computers in `update`, each on its own.
        stated users: u32 = 10, in 1..=MOST_FLOWS, with kind ["web", "update"];
        /// Capture file (pcap or pcapng) of `replay`, relative to the scenario: of Ethernet, the
        /// cooked form of Linux or IP packets, also cut behind the headers. Times, lengths that
        /// the IP headers say, and flows are taken from it: each gets ports of its own. Packets
        /// below 72 bytes get 72; what is left out is told.
        stated file: Option<String> = None, written Kind::Path,
            absent "needed for `replay`, otherwise none", with kind ["replay"];
        /// So many flows alike, each with the same rate and its own ports: source ports count up
        /// from `source_port`, after 64512 of them the destination port does. On real packets at
        /// most 64512, of iperf3 128.
        stated flows: u32 = 1, in 1..=MOST_FLOWS, counting "flows";
        /// People behind `from` or `to`, or one of them: the flows are theirs, `flows` of each.
        /// Those of a kind of which many come and go are theirs in turn.
        stated subscribers: Option<String> = None, written NAME, absent "the host itself";
        /// How many of the `subscribers` take part: chosen by chance, the same at each run.
        stated part: f64 = 1.0, between 0.0..=1.0;
        /// The class it is meant to fall into at every router on its way: an error if the class
        /// rules say otherwise.
        stated class: Option<String> = None, written NAME, absent "what the class rules give";
        /// No packet before.
        stated start: Nanos = Nanos::ZERO, in 0..=LONGEST;
        /// No packet at or after; of `tcp-flows`, `web` and `update` no connection begins at or
        /// after it, and those that have begun are finished.
        stated stop: Option<Nanos> = None, in 0..=LONGEST, absent "the end of the run";
        /// IPv6 instead of IPv4.
        stated ipv6: bool = false;
        /// DSCP of its packets.
        stated dscp: u8 = 0, in 0..=63;
        /// Destination port. Unique among the flows to a host.
        stated port: Option<u16> = None, in 1_024..=65_535_u64,
            absent "5001 for the first flow, 5002 for the second, …";
        /// Source port.
        stated source_port: Option<u16> = None, in 1_024..=65_535_u64,
            absent "40001 for the first flow, 40002 for the second, …";
        /// TCP instead of UDP, with `tool = "iperf3"` only; `rate` is then an upper limit.
        stated tcp: bool = false;
    }
}

words! {
    /// When the packets of a flow come.
    pub enum Pattern {
        /// Constant bit rate.
        #[default]
        Cbr = "cbr",
        /// Exponential spacing.
        Poisson = "poisson",
        /// Constant rate in exponential on-times, nothing in exponential off-times.
        OnOff = "on-off",
        /// Constant bit rate that keeps the wire of the sending host busy.
        Greedy = "greedy",
        /// Flows that come and go, exponential gaps between their beginnings.
        Flows = "flows",
        /// The packets of a capture file, with their lengths and gaps.
        Replay = "replay",
        /// A TCP connection that sends what its congestion control lets it; iperf3 on real packets.
        Tcp = "tcp",
        /// TCP connections that come and go, exponential gaps between their beginnings.
        TcpFlows = "tcp-flows",
        /// One direction of a telephone call: speech and silence as NGMN's model has them.
        Call = "call",
        /// One direction of a shooter, as measured by Färber and taken up by NGMN.
        Game = "game",
        /// Moving pictures, frame by frame, at `rate`: 3GPP TR 38.838.
        Video = "video",
        /// People who read pages, each object in a TCP connection of its own: NGMN's model.
        Web = "web",
        /// Computers that fetch files of 2 MB by TCP: NGMN's model.
        Update = "update",
    }
}

words! {
    /// Which way the packets of a game go.
    pub enum Direction {
        /// From the server to a player: 23 kbit/s.
        #[default]
        Down = "down",
        /// From a player to the server: 15 kbit/s.
        Up = "up",
    }
}

words! {
    /// How the sizes of flows are distributed.
    pub enum Distribution {
        /// All alike.
        #[default]
        Fixed = "fixed",
        /// Pareto: few flows carry most bytes.
        Pareto = "pareto",
        /// Lognormal.
        Lognormal = "lognormal",
    }
}

settings! {
    /// What changes at a time. A step lasts until the next one, or to the end of the run.
    pub struct StepSection: "[[step]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// When: after the step before, before the end.
        stated at: Nanos = Nanos::ZERO, in 0..=LONGEST, is required;
        /// Wires that go down, by their nodes: `"r1/r2"`. Their interfaces go down, and every
        /// router has the routes that are left, as a routing protocol would give it; then come the
        /// changes of `set`.
        stated down: Vec<String> = Vec::new(), absent "none";
        /// Wires that come up again.
        stated up: Vec<String> = Vec::new(), absent "none";
        /// What changes, in order.
        stated set: Vec<SetSection> = Vec::new(), in 0..=1_000,
            absent "nothing changes; its numbers are formed apart";
    }
}

settings! {
    /// One change of one link of one router.
    pub struct SetSection: "set = [{ … }]" {
        /// The router.
        stated router: Option<String> = None, written NODE, absent "the only router";
        /// The link: the node at its other end; or `fairdrop`, whose knobs are the keys of
        /// `[fairdrop]`.
        stated link: String = String::new(), written NODE, is required;
        /// What changes: a setting that changes live, `discipline`, `control`, `admission` or a key
        /// of it (see *What changes while a router runs* in the reference of router.toml).
        stated knob: String = String::new(), is required;
        /// The class; needed for `weight` and `x_delay`, possible for `limit`.
        stated class: Option<String> = None, written NAME, absent "the whole link";
        /// The value, as in `router.toml`; an inline table for `ring` and `discipline`, `"unpaced"`
        /// for no rate.
        stated value: Option<String> = None,
            written Kind::Foreign("the value, as in `router.toml`"), is required;
    }
}

settings! {
    /// One override.
    pub struct OverrideSection: "set = [{ … }] of [[without]]" {
        /// The step in which it is set in place of what the step sets; `"always"`: from the start,
        /// and no step changes the same knob of the same class.
        stated at: String = "always".to_owned(), written NAME;
    }
    parts {
        /// What is set.
        set: SetSection,
    }
}

settings! {
    /// A claim, judged after the run.
    pub struct ExpectSection: "[[expect]]" {
        /// Its name. Unique.
        stated name: String = String::new(), written NAME, is required;
        /// The claim in words.
        stated claim: String = String::new(), is required;
        /// The claim in numbers: see Expressions.
        stated that: String = String::new(), is required;
        /// The worlds it is meant for.
        stated worlds: Vec<World> = World::ALL.to_vec();
        /// `false`: a published claim that is known not to be reproduced. It is judged and
        /// reported, and fails nothing. Needs `note`.
        stated reproduced: bool = true;
        /// Whatever else the reader must know.
        stated note: String = String::new();
    }
}

settings! {
    /// A mechanism switched off.
    pub struct WithoutSection: "[[without]]" {
        /// Its name. Unique.
        stated name: String = String::new(), is required;
        /// The overrides.
        stated set: Vec<OverrideSection> = Vec::new(), in 1..=100, is required;
        /// The expectations that must fail then.
        stated fails: Vec<String> = Vec::new(), written Kind::List(&NAME), is required;
        /// Expectations that must fail then or cannot be measured any more: who switches admission
        /// off has no fair rate.
        stated unmeasured: Vec<String> = Vec::new(), written Kind::List(&NAME), absent "none";
    }
}

/// Every table of a scenario, in the order of the reference.
pub static ALL: &[&Section] = &[
    ScenarioSection::SECTION,
    HostSection::SECTION,
    RouterNode::SECTION,
    WireSection::SECTION,
    SubscribersSection::SECTION,
    PlanSection::SECTION,
    TrafficSection::SECTION,
    StepSection::SECTION,
    SetSection::SECTION,
    ExpectSection::SECTION,
    WithoutSection::SECTION,
    OverrideSection::SECTION,
    CoreSection::SECTION,
    CoreLink::SECTION,
    FlowSection::SECTION,
];
