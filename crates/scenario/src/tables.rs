//! The keys of a scenario: name, type, range, default, meaning. Everything else follows from these tables.

mod core;

use evenkeel_config::tables::NAME;
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};
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
    doc: "One experiment: who is wired to whom, who sends what, what changes when, what must come out.",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "Its name, path-like: letters, digits, `-`, `_`, `.` and `/`.",
        },
        Key { name: "title", kind: Kind::Text, presence: Presence::Required, doc: "One line for headings." },
        Key {
            name: "source",
            kind: Kind::Text,
            presence: Presence::Default("\"\""),
            doc: "What it reproduces: paper and figure.",
        },
        Key {
            name: "notes",
            kind: Kind::Text,
            presence: Presence::Default("\"\""),
            doc: "What the reader of the results must know.",
        },
        Key {
            name: "published",
            kind: Kind::Text,
            presence: Presence::Optional("nothing published"),
            doc: "`\"file.toml#key\"`: published numbers, looked for in a folder `published/` beside or above the scenario. \
                  Expectations use them as `published.…`.",
        },
        Key {
            name: "seed",
            kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            presence: Presence::Default("1"),
            doc: "Seed of everything random.",
        },
        Key {
            name: "sample",
            kind: Kind::Time { min: SHORTEST_SAMPLE, max: Nanos::from_secs(3600) },
            presence: Presence::Default("\"1s\""),
            doc: "Sampling window.",
        },
        Key {
            name: "settle",
            kind: MOMENT,
            presence: Presence::Default("\"0s\""),
            doc: "Left out at the head of each step when its numbers are formed.",
        },
        Key {
            name: "duration",
            kind: Kind::Time { min: Nanos::from_millis(100), max: LONGEST },
            presence: Presence::Required,
            doc: "How long it runs.",
        },
        Key {
            name: "host",
            kind: Kind::Tables { section: &HOST, min: 1, max: 200 },
            presence: Presence::Optional("only with `[core]`"),
            doc: "The hosts.",
        },
        Key {
            name: "router",
            kind: Kind::Tables { section: &ROUTER, min: 1, max: 50 },
            presence: Presence::Optional("only with `[core]`"),
            doc: "The routers.",
        },
        Key {
            name: "wire",
            kind: Kind::Tables { section: &WIRE, min: 1, max: 200 },
            presence: Presence::Optional("only with `[core]`"),
            doc: "The wires between them.",
        },
        Key {
            name: "traffic",
            kind: Kind::Tables { section: &TRAFFIC, min: 1, max: 1000 },
            presence: Presence::Optional("only with `[core]`"),
            doc: "The flows.",
        },
        Key {
            name: "core",
            kind: Kind::Table(&core::CORE),
            presence: Presence::Optional("a network of hosts, routers and wires"),
            doc: "One core that polls a ring of packets, in virtual time, in place of `[[host]]`, `[[router]]`, `[[wire]]` and `[[traffic]]`. \
                  Expectations speak of its `[[core.flow]]` as classes; `cycles` and `fair_cycles` are measured besides packets.",
        },
        Key {
            name: "step",
            kind: Kind::Tables { section: &STEP, min: 0, max: 1000 },
            presence: Presence::Optional("one step, `start`, at 0"),
            doc: "Timed changes, in order of time. A step `start` at 0 is there in any case.",
        },
        Key {
            name: "expect",
            kind: Kind::Tables { section: &EXPECT, min: 0, max: 1000 },
            presence: Presence::Optional("nothing is expected"),
            doc: "The claims.",
        },
        Key {
            name: "without",
            kind: Kind::Tables { section: &WITHOUT, min: 0, max: 100 },
            presence: Presence::Optional("none"),
            doc: "Second runs with a mechanism switched off, in which the named expectations must fail: \
                  an expectation that cannot fail says nothing.",
        },
    ],
};

/// `[[host]]`.
pub static HOST: Section = Section {
    heading: "[[host]]",
    doc: "An end system.",
    keys: &[Key {
        name: "name",
        kind: NODE,
        presence: Presence::Required,
        doc: "Its name. Unique among hosts and routers.",
    }],
};

/// What stands under `config` of a router.
pub(crate) const ROUTER_CONFIG: &str = "what router.toml holds, without [[port]]";

/// `[[router]]`.
pub static ROUTER: Section = Section {
    heading: "[[router]]",
    doc: "A router. Its ports are made from the wires: one for each, named after the node at the other end.",
    keys: &[
        Key {
            name: "name",
            kind: NODE,
            presence: Presence::Required,
            doc: "Its name. Unique among hosts and routers.",
        },
        Key {
            name: "config",
            kind: Kind::Foreign(ROUTER_CONFIG),
            presence: Presence::Optional("every default"),
            doc: "What `router.toml` holds, without `[[port]]`. Name the links' ports after the nodes at the other end.",
        },
        Key {
            name: "file",
            kind: Kind::Path,
            presence: Presence::Optional("none"),
            doc: "A `router.toml` instead of `config`, relative to the scenario. Its `[[port]]` are left out.",
        },
    ],
};

static NODE_KIND: Kind = NODE;

/// `[[wire]]`.
pub static WIRE: Section = Section {
    heading: "[[wire]]",
    doc: "An Ethernet link between two nodes. The n-th wire has 10.n.0.0/24 and fd00:n::/64 (n in hexadecimal there); hosts have .1 and ::1, \
          routers .254 and ::fe; of two nodes of a kind the second has .2 or .253. A wire with a rate, delay, jitter, loss or reordering treats IP packets \
          so in both worlds; on real packets ARP and neighbour discovery pass untouched, and at most 16384 packets may be on their way.",
    keys: &[
        Key {
            name: "ends",
            kind: Kind::List(&NODE_KIND),
            presence: Presence::Required,
            doc: "The two nodes. Two nodes have one wire between them at most.",
        },
        Key {
            name: "subnet",
            kind: Kind::Prefix,
            presence: Presence::Optional("10.n.0.0/24"),
            doc: "Its IPv4 subnet, /8 to /29.",
        },
        Key {
            name: "mtu",
            kind: Kind::Integer { min: 1280, max: 9000, unit: "bytes" },
            presence: Presence::Default("1500"),
            doc: "Largest IP packet.",
        },
        Key {
            name: "rate",
            kind: Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) },
            presence: Presence::Optional("packets take no time"),
            doc: "Bits per second of each direction, on the wire (with Ethernet header, padding, check sequence, preamble and gap).",
        },
        Key {
            name: "queue",
            kind: Kind::Integer { min: 1, max: 1_000_000, unit: "packets" },
            presence: Presence::Default("1000"),
            doc: "Packets that may wait for a wire with a `rate`, the one on it included; more are lost.",
        },
        Key {
            name: "delay",
            kind: Kind::Time { min: Nanos::ZERO, max: Nanos::from_secs(60) },
            presence: Presence::Default("\"0s\""),
            doc: "Propagation delay of each direction.",
        },
        Key {
            name: "jitter",
            kind: Kind::Time { min: Nanos::ZERO, max: Nanos::from_secs(60) },
            presence: Presence::Default("\"0s\""),
            doc: "Each packet arrives up to this much later, uniform; order is kept.",
        },
        Key {
            name: "loss",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            presence: Presence::Default("0"),
            doc: "Part of the packets that is lost, each independently.",
        },
        Key {
            name: "reorder",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            presence: Presence::Default("0"),
            doc: "Part of the packets that take neither `delay` nor `jitter`, and so overtake those on their way.",
        },
    ],
};

/// `[[traffic]]`.
pub static TRAFFIC: Section = Section {
    heading: "[[traffic]]",
    doc: "A flow from one host to another.",
    keys: &[
        Key { name: "name", kind: NAME, presence: Presence::Required, doc: "Its name. Unique." },
        Key { name: "from", kind: NODE, presence: Presence::Required, doc: "The host that sends." },
        Key { name: "to", kind: NODE, presence: Presence::Required, doc: "The host that receives." },
        Key {
            name: "kind",
            kind: Kind::Choice(&[
                ("cbr", "constant bit rate"),
                ("poisson", "exponential spacing"),
                ("on-off", "constant rate in exponential on-times, nothing in exponential off-times"),
                ("greedy", "constant bit rate that keeps the wire of the sending host busy"),
                ("flows", "flows that come and go, exponential gaps between their beginnings"),
                ("replay", "the packets of a capture file, with their lengths and gaps"),
                (
                    "tcp",
                    "a TCP connection that sends what its congestion control lets it; iperf3 on real packets",
                ),
                (
                    "tcp-flows",
                    "TCP connections that come and go, exponential gaps between their beginnings; in virtual time only",
                ),
            ]),
            presence: Presence::Default("\"cbr\""),
            doc: "When packets come.",
        },
        Key {
            name: "tool",
            kind: Kind::Choice(&[
                ("evenkeel", "the project's own source"),
                ("iperf3", "iperf3, on real packets only"),
                ("d-itg", "D-ITG, on real packets only"),
            ]),
            presence: Presence::Default("\"evenkeel\""),
            doc: "What makes the packets. Only the project's own measure delays from host to host.",
        },
        Key {
            name: "rate",
            kind: Kind::Rate { min: BitRate(1_000), max: BitRate(100_000_000_000) },
            presence: Presence::Optional(
                "needed; for `greedy` that of the host's wire; `tcp` and `replay` have none",
            ),
            doc: "Bits of IP packets per second; while on, for `on-off`; of all together, for `flows`. Of payload that all connections \
                  together are asked to carry, for `tcp-flows`.",
        },
        Key {
            name: "size",
            kind: Kind::Size { min: Bytes(72), max: Bytes(9_000) },
            presence: Presence::Default("\"1428B\""),
            doc: "Length of each IP packet, headers included; at most the MTU of every wire on the way. With `tcp`: of a full segment.",
        },
        Key {
            name: "congestion",
            kind: Kind::Choice(&[("cubic", "RFC 9438"), ("reno", "RFC 5681, with the recovery of RFC 6675")]),
            presence: Presence::Default("\"cubic\""),
            doc: "Congestion control of `tcp` and `tcp-flows`.",
        },
        Key {
            name: "bytes",
            kind: Kind::Size { min: Bytes(1), max: Bytes(1 << 50) },
            presence: Presence::Optional("until it stops"),
            doc: "What `tcp` sends: payload, each byte counted once.",
        },
        Key {
            name: "jitter",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            presence: Presence::Default("0.1"),
            doc: "Random part of the spacing of constant-rate packets. Without any, flows of one rate fall into step and a \
                  full queue always drops the same one's packets.",
        },
        Key {
            name: "mean_on",
            kind: Kind::Time { min: Nanos::from_micros(100), max: LONGEST },
            presence: Presence::Default("\"500ms\""),
            doc: "Mean on-time of `on-off`.",
        },
        Key {
            name: "mean_off",
            kind: Kind::Time { min: Nanos::from_micros(100), max: LONGEST },
            presence: Presence::Default("\"500ms\""),
            doc: "Mean off-time of `on-off`.",
        },
        Key {
            name: "flow_size",
            kind: Kind::Size { min: Bytes(72), max: Bytes(1 << 40) },
            presence: Presence::Default("\"50000B\""),
            doc: "Mean size of `flows`, in bytes of IP packets; of `tcp-flows`, in bytes of payload.",
        },
        Key {
            name: "distribution",
            kind: Kind::Choice(&[
                ("fixed", "all alike"),
                ("pareto", "Pareto: few flows carry most bytes"),
                ("lognormal", "lognormal"),
            ]),
            presence: Presence::Default("\"fixed\""),
            doc: "How the sizes of `flows` and `tcp-flows` are distributed.",
        },
        Key {
            name: "shape",
            kind: Kind::Number { min: 0.0, max: 100.0 },
            presence: Presence::Optional("1.2 for `pareto`, 1 for `lognormal`"),
            doc: "Shape of `distribution`: of `pareto` above 1 (up to 2 its variance is infinite), of `lognormal` at most 4.",
        },
        Key {
            name: "peak",
            kind: Kind::Rate { min: BitRate(1_000), max: BitRate(100_000_000_000) },
            presence: Presence::Default("\"10Mbit/s\""),
            doc: "Rate of each of the `flows` while it is sent.",
        },
        Key {
            name: "file",
            kind: Kind::Path,
            presence: Presence::Optional("needed for `replay`, otherwise none"),
            doc: "Capture file (pcap, Ethernet) of `replay`, relative to the scenario. Times and IP lengths are taken from it; packets below 72 bytes get 72.",
        },
        Key {
            name: "flows",
            kind: Kind::Integer { min: 1, max: 1_000_000, unit: "flows" },
            presence: Presence::Default("1"),
            doc: "So many flows alike, each with the same rate and its own ports: source ports count up from `source_port`, after 64512 of \
                  them the destination port does. On real packets at most 64512, of iperf3 128.",
        },
        Key {
            name: "class",
            kind: NAME,
            presence: Presence::Optional("what the class rules give"),
            doc: "The class it is meant to fall into at every router on its way: an error if the class rules say otherwise.",
        },
        Key { name: "start", kind: MOMENT, presence: Presence::Default("\"0s\""), doc: "No packet before." },
        Key {
            name: "stop",
            kind: MOMENT,
            presence: Presence::Optional("the end of the run"),
            doc: "No packet at or after; of `tcp-flows` no connection begins at or after it, and those that have begun are finished.",
        },
        Key {
            name: "ipv6",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "IPv6 instead of IPv4.",
        },
        Key {
            name: "dscp",
            kind: Kind::Integer { min: 0, max: 63, unit: "" },
            presence: Presence::Default("0"),
            doc: "DSCP of its packets.",
        },
        Key {
            name: "port",
            kind: Kind::Integer { min: 1024, max: 65_535, unit: "" },
            presence: Presence::Optional("5001 for the first flow, 5002 for the second, …"),
            doc: "Destination port. Unique among the flows to a host.",
        },
        Key {
            name: "source_port",
            kind: Kind::Integer { min: 1024, max: 65_535, unit: "" },
            presence: Presence::Optional("40001 for the first flow, 40002 for the second, …"),
            doc: "Source port.",
        },
        Key {
            name: "tcp",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "TCP instead of UDP, with `tool = \"iperf3\"` only; `rate` is then an upper limit.",
        },
    ],
};

static WIRE_ENDS: Kind = Kind::Text;

/// `[[step]]`.
pub static STEP: Section = Section {
    heading: "[[step]]",
    doc: "What changes at a time. A step lasts until the next one, or to the end of the run.",
    keys: &[
        Key { name: "name", kind: NAME, presence: Presence::Required, doc: "Its name. Unique." },
        Key {
            name: "at",
            kind: MOMENT,
            presence: Presence::Required,
            doc: "When: after the step before, before the end.",
        },
        Key {
            name: "down",
            kind: Kind::List(&WIRE_ENDS),
            presence: Presence::Optional("none"),
            doc: "Wires that go down, by their nodes: `\"r1/r2\"`. Their interfaces go down, and every router has the routes that are \
                  left, as a routing protocol would give it; then come the changes of `set`.",
        },
        Key {
            name: "up",
            kind: Kind::List(&WIRE_ENDS),
            presence: Presence::Optional("none"),
            doc: "Wires that come up again.",
        },
        Key {
            name: "set",
            kind: Kind::Tables { section: &SET, min: 0, max: 1000 },
            presence: Presence::Optional("nothing changes; its numbers are formed apart"),
            doc: "What changes, in order.",
        },
    ],
};

/// An entry of `set` of a step.
pub static SET: Section = Section {
    heading: "set = [{ … }]",
    doc: "One change of one link of one router.",
    keys: &[SET_ROUTER, SET_LINK, SET_KNOB, SET_CLASS, SET_VALUE],
};

/// An entry of `set` of an ablation.
pub static OVERRIDE: Section = Section {
    heading: "set = [{ … }] of [[without]]",
    doc: "One override.",
    keys: &[
        SET_ROUTER,
        SET_LINK,
        SET_KNOB,
        SET_CLASS,
        SET_VALUE,
        Key {
            name: "at",
            kind: NAME,
            presence: Presence::Default("\"always\""),
            doc: "The step in which it is set in place of what the step sets; `\"always\"`: from the start, and no step changes the same \
                  knob of the same class.",
        },
    ],
};

const SET_ROUTER: Key =
    Key { name: "router", kind: NODE, presence: Presence::Optional("the only router"), doc: "The router." };
const SET_LINK: Key = Key {
    name: "link",
    kind: NODE,
    presence: Presence::Required,
    doc: "The link: the node at its other end; or `fairdrop`, whose knobs are the keys of `[fairdrop]`.",
};
const SET_KNOB: Key = Key {
    name: "knob",
    kind: Kind::Text,
    presence: Presence::Required,
    doc: "`weight`, `x_delay`, `limit`, `module2`, `multi_backlog`, `rearm_empty`, `high_water`, `rate`, `ring` or `discipline`.",
};
const SET_CLASS: Key = Key {
    name: "class",
    kind: NAME,
    presence: Presence::Optional("the whole link"),
    doc: "The class; needed for `weight` and `x_delay`, possible for `limit`.",
};
const SET_VALUE: Key = Key {
    name: "value",
    kind: Kind::Foreign("the value, as in `router.toml`"),
    presence: Presence::Required,
    doc: "The value, as in `router.toml`; an inline table for `ring` and `discipline`, `\"unpaced\"` for no rate.",
};

static WORLD: Kind = Kind::Choice(&[("lab", "real packets"), ("sim", "virtual time")]);

/// `[[expect]]`.
pub static EXPECT: Section = Section {
    heading: "[[expect]]",
    doc: "A claim, judged after the run.",
    keys: &[
        Key { name: "name", kind: NAME, presence: Presence::Required, doc: "Its name. Unique." },
        Key { name: "claim", kind: Kind::Text, presence: Presence::Required, doc: "The claim in words." },
        Key {
            name: "that",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "The claim in numbers: see Expressions.",
        },
        Key {
            name: "worlds",
            kind: Kind::List(&WORLD),
            presence: Presence::Default("[\"lab\", \"sim\"]"),
            doc: "The worlds it is meant for.",
        },
        Key {
            name: "reproduced",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "`false`: a published claim that is known not to be reproduced. It is judged and reported, and fails nothing. Needs `note`.",
        },
        Key {
            name: "note",
            kind: Kind::Text,
            presence: Presence::Default("\"\""),
            doc: "Whatever else the reader must know.",
        },
    ],
};

static EXPECT_NAME: Kind = NAME;

/// `[[without]]`.
pub static WITHOUT: Section = Section {
    heading: "[[without]]",
    doc: "A mechanism switched off.",
    keys: &[
        Key { name: "name", kind: Kind::Text, presence: Presence::Required, doc: "Its name. Unique." },
        Key {
            name: "set",
            kind: Kind::Tables { section: &OVERRIDE, min: 1, max: 100 },
            presence: Presence::Required,
            doc: "The overrides.",
        },
        Key {
            name: "fails",
            kind: Kind::List(&EXPECT_NAME),
            presence: Presence::Required,
            doc: "The expectations that must fail then.",
        },
    ],
};

/// Every table of a scenario, in the order of the reference.
pub static ALL: &[&Section] =
    &[&SCENARIO, &HOST, &ROUTER, &WIRE, &TRAFFIC, &STEP, &SET, &EXPECT, &WITHOUT, &OVERRIDE];
