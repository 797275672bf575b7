//! The keys of a live cluster scenario.

use evenkeel_core::settings::schema::{Key, Kind, Section};
use evenkeel_core::{BitRate, Bytes, Nanos};

const NAME: Kind = Kind::Name(30);
const STEP_TIME: Kind = Kind::Time { min: Nanos::ZERO, max: Nanos::from_secs(3_600) };
static STEP_NAME: Kind = NAME;
static NODE: Kind = integer(1, 64);

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: "" }
}

static SWITCH: Section = Section {
    heading: "[switch]",
    doc: "One Ethernet switch, and everything at it: balancers 1, 2, …, forwarders 1, 2, …, next \
          hops and the links to them, a source for each balancer.",
    own: &[
        Key::defaulted("balancers", integer(1, 4), "2", "Balancers."),
        Key::defaulted("forwarders", integer(1, 8), "3", "Forwarders."),
        Key::defaulted(
            "next_hops",
            integer(1, 8),
            "3",
            "Next hops: each is the end of one outgoing link.",
        ),
        Key::required(
            "rate",
            Kind::Rate { min: BitRate(100_000), max: BitRate(1_000_000_000) },
            "What the switch sends to each next hop, Ethernet headers included (14 bytes a \
             packet).",
        ),
        Key::defaulted(
            "size",
            Kind::Size { min: Bytes(60), max: Bytes(1_500) },
            "\"1000B\"",
            "Length of each IP packet of the traffic.",
        ),
        Key::defaulted(
            "flows",
            integer(1, 10_000),
            "20",
            "Flows of each source, class and next hop.",
        ),
    ],
    parts: &[],
};

static CLASS: Section = Section {
    heading: "[[class]]",
    doc: "A class of traffic. Its packets are told from others' by their destination port. \
          Weights: `weight` of `[cluster]`.",
    own: &[Key::required("name", NAME, "Its name. Unique.")],
    parts: &[],
};

static STEP: Section = Section {
    heading: "[[step]]",
    doc: "A part of the run. Traffic begins, `settle` goes by, then comes what the step does, then \
          `for`; then the queues are emptied.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required(
            "for",
            Kind::Time { min: Nanos::from_millis(10), max: Nanos::from_secs(3_600) },
            "How long is measured.",
        ),
        Key::defaulted("settle", STEP_TIME, "\"500ms\"", "How long traffic runs before."),
        Key::required(
            "offer",
            Kind::Number { min: 0.01, max: 10.0 },
            "Load of each link in parts of what it carries, every class the same.",
        ),
        Key::optional(
            "cluster",
            Kind::Foreign("keys of `[cluster]` of a `router.toml`"),
            "those of the step before",
            "Settings that override those of the file's `[cluster]`: all forwarders are started \
             anew.",
        ),
        Key::defaulted(
            "wfq",
            Kind::Switch,
            "true",
            "`false`: the forwarders have no `[cluster]`; what is too much is dropped by the \
             switch.",
        ),
        Key::defaulted(
            "loss",
            Kind::Number { min: 0.0, max: 0.9 },
            "0",
            "Part of the exchange frames that each forwarder does not get.",
        ),
        Key::defaulted(
            "intruder",
            Kind::Switch,
            "false",
            "Whether a stranger at the switch sends forged and replayed exchange frames, one of \
             each per 2 ms.",
        ),
        Key::optional(
            "absent",
            Kind::List(&NODE),
            "none",
            "Forwarders that do not run and get nothing, from the beginning of this step.",
        ),
        Key::optional("add", NODE, "none", "A forwarder that is started, then gets new flows."),
        Key::optional("drain", NODE, "none", "A forwarder that gets no new flows from then on."),
        Key::optional(
            "kill",
            NODE,
            "none",
            "A forwarder whose process is killed (SIGKILL). The balancers notice it by themselves.",
        ),
        Key::defaulted(
            "new_flows",
            Kind::Switch,
            "false",
            "Whether as many flows as there are begin anew when the step has done what it does.",
        ),
    ],
    parts: &[],
};

/// What an expectation can be of, and what that is.
pub(super) const MEASURES: &[(&str, &str)] = &[
    (
        "share_error",
        "largest relative difference of a class's part of the bytes of a link from its weight's \
         part, over links and classes, %",
    ),
    ("throughput", "bytes that reached the next hops, in parts of what the links carry"),
    ("relative_throughput", "that, in parts of the step `to`"),
    (
        "collisions",
        "packets that a forwarder sent on a link which another had used in the same cycle, as \
         captured at the switch",
    ),
    ("cycles", "cycles whose packets were captured: what `collisions` was counted over"),
    ("silence_ms", "longest time without a packet on any link, ms"),
    (
        "silence_cycles",
        "that, in cycles: the longest before the step did what it does; in the simulator the mean \
         of the step before",
    ),
    ("masters", "nodes that opened cycles"),
    ("moved", "established flows that went to another forwarder, except those of a killed one"),
    ("lost", "packets sent that did not arrive"),
    (
        "lost_elsewhere",
        "of these, packets that the switch had not last seen on their way to the killed forwarder",
    ),
    (
        "new_flows_there",
        "part of the new flows that went to the forwarder that was added or drained",
    ),
    ("injected", "forged and replayed frames that were sent"),
    (
        "refused",
        "forged and replayed frames that the forwarders counted, in parts of what was sent to them",
    ),
    ("takeovers", "times that a forwarder became master"),
    ("missing", "exchange frames that did not come to a forwarder"),
];

static EXPECT: Section = Section {
    heading: "[[expect]]",
    doc: "A claim on one number of one step.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required("claim", Kind::Text, "The claim in words."),
        Key::required("step", NAME, "The step."),
        Key::required(
            "of",
            Kind::Choice(MEASURES),
            "The number. In the simulator there are `share_error`, `throughput`, \
             `relative_throughput`, `collisions`, `silence_ms` and `silence_cycles`.",
        ),
        Key::optional("to", NAME, "needed for `relative_throughput`", "The step to compare with."),
        Key::required(
            "is",
            Kind::Choice(&[("at-least", "is not below"), ("at-most", "is not above")]),
            "How it must relate.",
        ),
        Key::required("value", Kind::Number { min: 0.0, max: 1e12 }, "What to compare with."),
        Key::defaulted("note", Kind::Text, "\"\"", "What else to know."),
    ],
    parts: &[],
};

static WITHOUT: Section = Section {
    heading: "[[without]]",
    doc: "A mechanism switched off.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required(
            "cluster",
            Kind::Foreign("keys of `[cluster]` of a `router.toml`"),
            "Settings that override those of all steps.",
        ),
        Key::required(
            "fails",
            Kind::List(&STEP_NAME),
            "The expectations that must fail then. Only their steps are run.",
        ),
    ],
    parts: &[],
};

/// A live cluster scenario.
pub(super) static FILE: Section = Section {
    heading: "live cluster scenario",
    doc: "Balancers and forwarders behind one switch, each a process and a namespace of its own.",
    own: &[
        Key::required("name", Kind::Text, "Its name, path-like."),
        Key::required("title", Kind::Text, "One line for headings."),
        Key::defaulted("source", Kind::Text, "\"\"", "What it reproduces."),
        Key::defaulted("notes", Kind::Text, "\"\"", "What the reader must know."),
        Key::defaulted(
            "seed",
            Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            "1",
            "Seed of the simulation.",
        ),
        Key::required("switch", Kind::Table(&SWITCH), "The switch and what is at it."),
        Key::required(
            "class",
            Kind::Tables { section: &CLASS, min: 1, max: 8 },
            "The classes; the first gets what is not of another.",
        ),
        Key::required(
            "cluster",
            Kind::Foreign("keys of `[cluster]` of a `router.toml`"),
            "`[cluster]` of the forwarders as in a `router.toml`, without `node`, `members`, \
             `port` and `link`, which follow from `[switch]`.",
        ),
        Key::required(
            "step",
            Kind::Tables { section: &STEP, min: 1, max: 100 },
            "The parts of the run, one after the other.",
        ),
        Key::optional(
            "expect",
            Kind::Tables { section: &EXPECT, min: 0, max: 1000 },
            "nothing",
            "The claims.",
        ),
        Key::optional(
            "without",
            Kind::Tables { section: &WITHOUT, min: 0, max: 20 },
            "none",
            "Runs in which they must fail.",
        ),
    ],
    parts: &[],
};

/// Every table, in the order of the reference.
pub(super) static ALL: &[&Section] = &[&FILE, &SWITCH, &CLASS, &STEP, &EXPECT, &WITHOUT];
