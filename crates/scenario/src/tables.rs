//! The keys of a scenario: name, type, range, default, meaning. Everything else follows from these
//! tables.

mod core;

use evenkeel_config::tables::NAME;
use evenkeel_core::settings::schema::{Key, Kind, Section};
use evenkeel_core::{BitRate, Bytes, Nanos};

/// Most characters of a node's name: it names network interfaces.
const NODE_LENGTH: usize = 15;
/// The longest run.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);
/// The shortest sampling window.
pub(crate) const SHORTEST_SAMPLE: Nanos = Nanos::from_millis(10);

const NODE: Kind = Kind::Name(NODE_LENGTH);
const MOMENT: Kind = Kind::Time { min: Nanos::ZERO, max: LONGEST };

/// A whole scenario.
pub static SCENARIO: Section = Section {
    heading: "scenario.toml",
    doc: "One experiment: who is wired to whom, who sends what, what changes when, what must come \
          out.",
    own: &[
        Key::required(
            "name",
            Kind::Text,
            "Its name, path-like: letters, digits, `-`, `_`, `.` and `/`.",
        ),
        Key::required("title", Kind::Text, "One line for headings."),
        Key::defaulted("source", Kind::Text, "\"\"", "What it reproduces: paper and figure."),
        Key::defaulted("notes", Kind::Text, "\"\"", "What the reader of the results must know."),
        Key::optional(
            "published",
            Kind::Text,
            "nothing published",
            "`\"file.toml#key\"`: published numbers, looked for in a folder `published/` beside or \
             above the scenario. \
                  Expectations use them as `published.…`.",
        ),
        Key::defaulted(
            "seed",
            Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            "1",
            "Seed of everything random.",
        ),
        Key::defaulted(
            "sample",
            Kind::Time { min: SHORTEST_SAMPLE, max: Nanos::from_secs(3600) },
            "\"1s\"",
            "Sampling window.",
        ),
        Key::defaulted(
            "settle",
            MOMENT,
            "\"0s\"",
            "Left out at the head of each step when its numbers are formed.",
        ),
        Key::required(
            "duration",
            Kind::Time { min: Nanos::from_millis(100), max: LONGEST },
            "How long it runs.",
        ),
        Key::optional(
            "host",
            Kind::Tables { section: &HOST, min: 1, max: 200 },
            "only with `[core]`",
            "The hosts.",
        ),
        Key::optional(
            "router",
            Kind::Tables { section: &ROUTER, min: 1, max: 50 },
            "only with `[core]`",
            "The routers.",
        ),
        Key::optional(
            "wire",
            Kind::Tables { section: &WIRE, min: 1, max: 200 },
            "only with `[core]`",
            "The wires between them.",
        ),
        Key::optional(
            "traffic",
            Kind::Tables { section: &TRAFFIC, min: 1, max: 1000 },
            "only with `[core]`",
            "The flows.",
        ),
        Key::optional(
            "core",
            Kind::Table(&core::CORE),
            "a network of hosts, routers and wires",
            "One core that polls a ring of packets, in virtual time, in place of `[[host]]`, \
             `[[router]]`, `[[wire]]` and `[[traffic]]`. \
                  Expectations speak of its `[[core.flow]]` as classes; `cycles` and `fair_cycles` \
                  are measured besides packets.",
        ),
        Key::optional(
            "step",
            Kind::Tables { section: &STEP, min: 0, max: 1000 },
            "one step, `start`, at 0",
            "Timed changes, in order of time. A step `start` at 0 is there in any case.",
        ),
        Key::optional(
            "expect",
            Kind::Tables { section: &EXPECT, min: 0, max: 1000 },
            "nothing is expected",
            "The claims.",
        ),
        Key::optional(
            "without",
            Kind::Tables { section: &WITHOUT, min: 0, max: 100 },
            "none",
            "Second runs with a mechanism switched off, in which the named expectations must fail: \
                  an expectation that cannot fail says nothing.",
        ),
    ],
    parts: &[],
};

/// `[[host]]`.
pub static HOST: Section = Section {
    heading: "[[host]]",
    doc: "An end system.",
    own: &[Key::required("name", NODE, "Its name. Unique among hosts and routers.")],
    parts: &[],
};

/// What stands under `config` of a router.
pub(crate) const ROUTER_CONFIG: &str = "what router.toml holds, without [[port]]";

/// `[[router]]`.
pub static ROUTER: Section = Section {
    heading: "[[router]]",
    doc: "A router. Its ports are made from the wires: one for each, named after the node at the \
          other end.",
    own: &[
        Key::required("name", NODE, "Its name. Unique among hosts and routers."),
        Key::optional(
            "config",
            Kind::Foreign(ROUTER_CONFIG),
            "every default",
            "What `router.toml` holds, without `[[port]]`. Name the links' ports after the nodes \
             at the other end.",
        ),
        Key::optional(
            "file",
            Kind::Path,
            "none",
            "A `router.toml` instead of `config`, relative to the scenario. Its `[[port]]` are \
             left out.",
        ),
    ],
    parts: &[],
};

static NODE_KIND: Kind = NODE;

/// `[[wire]]`.
pub static WIRE: Section = Section {
    heading: "[[wire]]",
    doc: "An Ethernet link between two nodes. The n-th wire has 10.n.0.0/24 and fd00:n::/64 (n in \
          hexadecimal there); hosts have .1 and ::1, \
          routers .254 and ::fe; of two nodes of a kind the second has .2 or .253. A wire with a \
          rate, delay, jitter, loss or reordering treats IP packets \
          so in both worlds; on real packets ARP and neighbour discovery pass untouched, and at \
          most 16384 packets may be on their way.",
    own: &[
        Key::required(
            "ends",
            Kind::List(&NODE_KIND),
            "The two nodes. Two nodes have one wire between them at most.",
        ),
        Key::optional("subnet", Kind::Prefix, "10.n.0.0/24", "Its IPv4 subnet, /8 to /29."),
        Key::defaulted(
            "mtu",
            Kind::Integer { min: 1280, max: 9000, unit: "bytes" },
            "1500",
            "Largest IP packet.",
        ),
        Key::optional(
            "rate",
            Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) },
            "packets take no time",
            "Bits per second of each direction, on the wire (with Ethernet header, padding, check \
             sequence, preamble and gap).",
        ),
        Key::defaulted(
            "queue",
            Kind::Integer { min: 1, max: 1_000_000, unit: "packets" },
            "1000",
            "Packets that may wait for a wire with a `rate`, the one on it included; more are \
             lost.",
        ),
        Key::defaulted(
            "delay",
            Kind::Time { min: Nanos::ZERO, max: Nanos::from_secs(60) },
            "\"0s\"",
            "Propagation delay of each direction.",
        ),
        Key::defaulted(
            "jitter",
            Kind::Time { min: Nanos::ZERO, max: Nanos::from_secs(60) },
            "\"0s\"",
            "Each packet arrives up to this much later, uniform; order is kept.",
        ),
        Key::defaulted(
            "loss",
            Kind::Number { min: 0.0, max: 1.0 },
            "0",
            "Part of the packets that is lost, each independently.",
        ),
        Key::defaulted(
            "reorder",
            Kind::Number { min: 0.0, max: 1.0 },
            "0",
            "Part of the packets that take neither `delay` nor `jitter`, and so overtake those on \
             their way.",
        ),
    ],
    parts: &[],
};

/// `[[traffic]]`.
pub static TRAFFIC: Section = Section {
    heading: "[[traffic]]",
    doc: "A flow from one host to another.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required("from", NODE, "The host that sends."),
        Key::required("to", NODE, "The host that receives."),
        Key::defaulted(
            "kind",
            Kind::Choice(&[
                ("cbr", "constant bit rate"),
                ("poisson", "exponential spacing"),
                (
                    "on-off",
                    "constant rate in exponential on-times, nothing in exponential off-times",
                ),
                ("greedy", "constant bit rate that keeps the wire of the sending host busy"),
                ("flows", "flows that come and go, exponential gaps between their beginnings"),
                ("replay", "the packets of a capture file, with their lengths and gaps"),
                (
                    "tcp",
                    "a TCP connection that sends what its congestion control lets it; iperf3 on \
                     real packets",
                ),
                (
                    "tcp-flows",
                    "TCP connections that come and go, exponential gaps between their beginnings; \
                     in virtual time only",
                ),
            ]),
            "\"cbr\"",
            "When packets come.",
        ),
        Key::defaulted(
            "tool",
            Kind::Choice(&[
                ("evenkeel", "the project's own source"),
                ("iperf3", "iperf3, on real packets only"),
                ("d-itg", "D-ITG, on real packets only"),
            ]),
            "\"evenkeel\"",
            "What makes the packets. Only the project's own measure delays from host to host.",
        ),
        Key::optional(
            "rate",
            Kind::Rate { min: BitRate(1_000), max: BitRate(100_000_000_000) },
            "needed; for `greedy` that of the host's wire; `tcp` and `replay` have none",
            "Bits of IP packets per second; while on, for `on-off`; of all together, for `flows`. \
             Of payload that all connections \
                  together are asked to carry, for `tcp-flows`.",
        ),
        Key::defaulted(
            "size",
            Kind::Size { min: Bytes(72), max: Bytes(9_000) },
            "\"1428B\"",
            "Length of each IP packet, headers included; at most the MTU of every wire on the way. \
             With `tcp`: of a full segment.",
        ),
        Key::defaulted(
            "congestion",
            Kind::Choice(&[
                ("cubic", "RFC 9438"),
                ("reno", "RFC 5681, with the recovery of RFC 6675"),
            ]),
            "\"cubic\"",
            "Congestion control of `tcp` and `tcp-flows`.",
        ),
        Key::optional(
            "bytes",
            Kind::Size { min: Bytes(1), max: Bytes(1 << 50) },
            "until it stops",
            "What `tcp` sends: payload, each byte counted once.",
        ),
        Key::defaulted(
            "jitter",
            Kind::Number { min: 0.0, max: 1.0 },
            "0.1",
            "Random part of the spacing of constant-rate packets. Without any, flows of one rate \
             fall into step and a \
                  full queue always drops the same one's packets.",
        ),
        Key::defaulted(
            "mean_on",
            Kind::Time { min: Nanos::from_micros(100), max: LONGEST },
            "\"500ms\"",
            "Mean on-time of `on-off`.",
        ),
        Key::defaulted(
            "mean_off",
            Kind::Time { min: Nanos::from_micros(100), max: LONGEST },
            "\"500ms\"",
            "Mean off-time of `on-off`.",
        ),
        Key::defaulted(
            "flow_size",
            Kind::Size { min: Bytes(72), max: Bytes(1 << 40) },
            "\"50000B\"",
            "Mean size of `flows`, in bytes of IP packets; of `tcp-flows`, in bytes of payload.",
        ),
        Key::defaulted(
            "distribution",
            Kind::Choice(&[
                ("fixed", "all alike"),
                ("pareto", "Pareto: few flows carry most bytes"),
                ("lognormal", "lognormal"),
            ]),
            "\"fixed\"",
            "How the sizes of `flows` and `tcp-flows` are distributed.",
        ),
        Key::optional(
            "shape",
            Kind::Number { min: 0.0, max: 100.0 },
            "1.2 for `pareto`, 1 for `lognormal`",
            "Shape of `distribution`: of `pareto` above 1 (up to 2 its variance is infinite), of \
             `lognormal` at most 4.",
        ),
        Key::defaulted(
            "peak",
            Kind::Rate { min: BitRate(1_000), max: BitRate(100_000_000_000) },
            "\"10Mbit/s\"",
            "Rate of each of the `flows` while it is sent.",
        ),
        Key::optional(
            "file",
            Kind::Path,
            "needed for `replay`, otherwise none",
            "Capture file (pcap, Ethernet) of `replay`, relative to the scenario. Times and IP \
             lengths are taken from it; packets below 72 bytes get 72.",
        ),
        Key::defaulted(
            "flows",
            Kind::Integer { min: 1, max: 1_000_000, unit: "flows" },
            "1",
            "So many flows alike, each with the same rate and its own ports: source ports count up \
             from `source_port`, after 64512 of \
                  them the destination port does. On real packets at most 64512, of iperf3 128.",
        ),
        Key::optional(
            "class",
            NAME,
            "what the class rules give",
            "The class it is meant to fall into at every router on its way: an error if the class \
             rules say otherwise.",
        ),
        Key::defaulted("start", MOMENT, "\"0s\"", "No packet before."),
        Key::optional(
            "stop",
            MOMENT,
            "the end of the run",
            "No packet at or after; of `tcp-flows` no connection begins at or after it, and those \
             that have begun are finished.",
        ),
        Key::defaulted("ipv6", Kind::Switch, "false", "IPv6 instead of IPv4."),
        Key::defaulted(
            "dscp",
            Kind::Integer { min: 0, max: 63, unit: "" },
            "0",
            "DSCP of its packets.",
        ),
        Key::optional(
            "port",
            Kind::Integer { min: 1024, max: 65_535, unit: "" },
            "5001 for the first flow, 5002 for the second, …",
            "Destination port. Unique among the flows to a host.",
        ),
        Key::optional(
            "source_port",
            Kind::Integer { min: 1024, max: 65_535, unit: "" },
            "40001 for the first flow, 40002 for the second, …",
            "Source port.",
        ),
        Key::defaulted(
            "tcp",
            Kind::Switch,
            "false",
            "TCP instead of UDP, with `tool = \"iperf3\"` only; `rate` is then an upper limit.",
        ),
    ],
    parts: &[],
};

static WIRE_ENDS: Kind = Kind::Text;

/// `[[step]]`.
pub static STEP: Section = Section {
    heading: "[[step]]",
    doc: "What changes at a time. A step lasts until the next one, or to the end of the run.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required("at", MOMENT, "When: after the step before, before the end."),
        Key::optional(
            "down",
            Kind::List(&WIRE_ENDS),
            "none",
            "Wires that go down, by their nodes: `\"r1/r2\"`. Their interfaces go down, and every \
             router has the routes that are \
                  left, as a routing protocol would give it; then come the changes of `set`.",
        ),
        Key::optional("up", Kind::List(&WIRE_ENDS), "none", "Wires that come up again."),
        Key::optional(
            "set",
            Kind::Tables { section: &SET, min: 0, max: 1000 },
            "nothing changes; its numbers are formed apart",
            "What changes, in order.",
        ),
    ],
    parts: &[],
};

/// An entry of `set` of a step.
pub static SET: Section = Section {
    heading: "set = [{ … }]",
    doc: "One change of one link of one router.",
    own: &[SET_ROUTER, SET_LINK, SET_KNOB, SET_CLASS, SET_VALUE],
    parts: &[],
};

/// An entry of `set` of an ablation.
pub static OVERRIDE: Section = Section {
    heading: "set = [{ … }] of [[without]]",
    doc: "One override.",
    own: &[
        SET_ROUTER,
        SET_LINK,
        SET_KNOB,
        SET_CLASS,
        SET_VALUE,
        Key::defaulted(
            "at",
            NAME,
            "\"always\"",
            "The step in which it is set in place of what the step sets; `\"always\"`: from the \
             start, and no step changes the same \
                  knob of the same class.",
        ),
    ],
    parts: &[],
};

const SET_ROUTER: Key = Key::optional("router", NODE, "the only router", "The router.");
const SET_LINK: Key = Key::required(
    "link",
    NODE,
    "The link: the node at its other end; or `fairdrop`, whose knobs are the keys of `[fairdrop]`.",
);
const SET_KNOB: Key = Key::required(
    "knob",
    Kind::Text,
    "What changes: a setting that changes live, `discipline`, `control`, `admission` or a key of \
     it \
     (see *What changes while a router runs* in the reference of router.toml).",
);
const SET_CLASS: Key = Key::optional(
    "class",
    NAME,
    "the whole link",
    "The class; needed for `weight` and `x_delay`, possible for `limit`.",
);
const SET_VALUE: Key = Key::required(
    "value",
    Kind::Foreign("the value, as in `router.toml`"),
    "The value, as in `router.toml`; an inline table for `ring` and `discipline`, `\"unpaced\"` \
     for no rate.",
);

static WORLD: Kind = Kind::Choice(&[("lab", "real packets"), ("sim", "virtual time")]);

/// `[[expect]]`.
pub static EXPECT: Section = Section {
    heading: "[[expect]]",
    doc: "A claim, judged after the run.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required("claim", Kind::Text, "The claim in words."),
        Key::required("that", Kind::Text, "The claim in numbers: see Expressions."),
        Key::defaulted(
            "worlds",
            Kind::List(&WORLD),
            "[\"lab\", \"sim\"]",
            "The worlds it is meant for.",
        ),
        Key::defaulted(
            "reproduced",
            Kind::Switch,
            "true",
            "`false`: a published claim that is known not to be reproduced. It is judged and \
             reported, and fails nothing. Needs `note`.",
        ),
        Key::defaulted("note", Kind::Text, "\"\"", "Whatever else the reader must know."),
    ],
    parts: &[],
};

static EXPECT_NAME: Kind = NAME;

/// `[[without]]`.
pub static WITHOUT: Section = Section {
    heading: "[[without]]",
    doc: "A mechanism switched off.",
    own: &[
        Key::required("name", Kind::Text, "Its name. Unique."),
        Key::required(
            "set",
            Kind::Tables { section: &OVERRIDE, min: 1, max: 100 },
            "The overrides.",
        ),
        Key::required("fails", Kind::List(&EXPECT_NAME), "The expectations that must fail then."),
    ],
    parts: &[],
};

/// Every table of a scenario, in the order of the reference.
pub static ALL: &[&Section] =
    &[&SCENARIO, &HOST, &ROUTER, &WIRE, &TRAFFIC, &STEP, &SET, &EXPECT, &WITHOUT, &OVERRIDE];
