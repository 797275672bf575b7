//! The keys of a cluster scenario.

use evenkeel_cluster::{Missing, Proposer, Variant, Version, WeightRule};
use evenkeel_core::settings::schema::{Key, Kind, Section};
use evenkeel_core::{BitRate, Nanos};

const TIME: Kind = Kind::Time { min: Nanos::ZERO, max: Nanos::from_secs(10) };
static NUMBER: Kind = Kind::Integer { min: 0, max: 65_535, unit: "" };
static NAME: Kind = Kind::Name(30);

const fn integer(min: u64, max: u64, unit: &'static str) -> Kind {
    Kind::Integer { min, max, unit }
}

/// What a case, `[cluster]` and the `set` of a `[[without]]` can hold: the first of `set`, case and
/// `[cluster]` that has a key wins.
macro_rules! with_settings {
    ($($before:expr),*) => {
        &[
            $($before,)*
            Key::optional("forwarders", integer(1, 64, ""), "3", "Forwarders (M)."),
            Key::optional("links", integer(1, 64, ""), "3", "Outgoing links (N)."),
            Key::optional("weights", Kind::List(&NUMBER), "[1, 1, 1]", "Weights of the classes, 1 \
                                                            to 65535; one for each class (K)."),
            Key::optional("variant", Kind::Choice(Variant::WORDS), "\"s-ds\"", "How much is \
                                                            decided with one exchange."),
            Key::optional("l", integer(1, 1000, "packets"), "1", "Packets announced per queue, or \
                                                            sent per burst."),
            Key::optional("p", integer(0, 4095, "rounds"), "0", "Rounds beyond l."),
            Key::optional("rule", Kind::Choice(WeightRule::WORDS), "\"a\"", "What a virtual-time \
                                                            flow is."),
            Key::optional("proposer", Kind::Choice(Proposer::WORDS), "\"links\"",
                "Which side proposes in the matching."),
            Key::optional("second_pass", Kind::Switch, "false", "Match what the stable matching \
                                                            left idle."),
            Key::optional("round_bytes", integer(0, 1 << 20, "bytes"), "0", "Fill each round with \
                                                            so many bytes; 0: one packet each."),
            Key::optional("missing", Kind::Choice(Missing::WORDS), "\"abstain\"", "What a node \
                                                            does that missed a frame."),
            Key::optional("t_br", Kind::Time { min: Nanos(1_000), max: Nanos::from_secs(10) },
                "72us", "Bound on a broadcast."),
            Key::optional("broadcast", TIME, "20us", "Time that a broadcast takes."),
            Key::optional("loss", Kind::Number { min: 0.0, max: 0.99 }, "0", "Part of the frames \
                                                            that each receiver loses, each for \
                                                            itself."),
            Key::optional("frames", Kind::Choice(Version::WORDS), "\"v1\"", "Version of the \
                                                            frames."),
            Key::optional("mtu", integer(256, 9000, "bytes"), "1500", "Largest payload of a \
                                                            frame."),
            Key::optional("rate",
                Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) }, "1Gbit/s",
                    "Rate of each outgoing link."),
            Key::optional("per_packet", TIME, "2850ns", "Time of a packet in a window that does \
                                                         not overlap with the exchange (t_tx: \
                                                         fitted)."),
            Key::optional("decision", TIME, "1050ns", "Time of a decision in a window (t_s: \
                                                       measured by the paper)."),
            Key::optional("guard", TIME, "0s", "Time between rounds."),
            Key::optional("cpu_per_packet", TIME, "5376ns", "A forwarder's processor time per \
                                                            packet (186 kpps)."),
            Key::optional("cpu_per_exchange", TIME, "8500ns", "Its time per exchange (fitted)."),
            Key::optional("cpu_per_decision", TIME, "0s", "Its time per decided round; 0: another \
                                                           core decides."),
            Key::optional("sizes", Kind::List(&NUMBER), "[64]", "Lengths of packets, bytes."),
            Key::optional("often", Kind::List(&NUMBER), "all alike", "How often each of the sizes \
                                                            comes."),
            Key::optional("holds", Kind::List(&NUMBER), "all classes on all", "Classes that each \
                                                            forwarder has packets of: sums of 1, \
                                                            2, 4, … for the first, second, third … \
                                                            class."),
            Key::optional("interval", Kind::Time { min: Nanos(100), max: Nanos::from_secs(10) },
                "always backlogged", "Mean time between two packets of a queue."),
            Key::optional("duration",
                Kind::Time { min: Nanos::from_micros(100), max: Nanos::from_secs(3600) }, "1s",
                    "Virtual time that is simulated at most."),
            Key::optional("packets", integer(1, 1_000_000_000, "packets"), "for `duration`",
                "Ends when the first link has sent so many."),
        ]
    };
}

static SETTINGS: Section = Section {
    heading: "[cluster]",
    doc: "What all cases share. Anything left out is as in the paper.",
    own: with_settings!(),
    parts: &[],
};

static SET: Section = Section {
    heading: "set = { … }",
    doc: "Settings that override those of all cases.",
    own: with_settings!(),
    parts: &[],
};

static CASE: Section = Section {
    heading: "[[case]]",
    doc: "One simulation.",
    own: with_settings!(Key::required("name", NAME, "Its name. Unique.")),
    parts: &[],
};

static EXPECT: Section = Section {
    heading: "[[expect]]",
    doc: "A claim on one number of one case.",
    own: &[
        Key::required("name", NAME, "Its name. Unique."),
        Key::required("claim", Kind::Text, "The claim in words."),
        Key::required("case", NAME, "The case."),
        Key::required(
            "of",
            Kind::Choice(&[
                ("rate", "packets per second of one forwarder, on average"),
                ("packets", "packets of a class on a link"),
                ("bytes", "bytes of a class on a link"),
                ("share", "a class's part of the bytes on a link"),
                (
                    "deviation",
                    "largest difference between a class's bytes on a link and its weight's part, \
                     at any time",
                ),
                ("use", "part of the time that links are sending, on average"),
                ("collisions", "packets on a link that another forwarder used in the same round"),
                ("out_of_step", "times that a node's clocks were found to differ"),
            ]),
            "The number.",
        ),
        Key::defaulted("link", integer(1, 64, ""), "1", "Which link."),
        Key::defaulted("class", integer(1, 8, ""), "1", "Which class."),
        Key::defaulted(
            "is",
            Kind::Choice(&[
                ("near", "differs by at most `within`"),
                ("at-least", "is not below"),
                ("at-most", "is not above"),
            ]),
            "\"near\"",
            "How it must relate.",
        ),
        Key::optional(
            "published",
            Kind::Text,
            "`value`",
            "A path in the published entry, `kpps[0]`.",
        ),
        Key::optional(
            "value",
            Kind::Number { min: 0.0, max: 1e15 },
            "`published`",
            "What to compare with.",
        ),
        Key::defaulted(
            "times",
            Kind::Number { min: 0.0, max: 1e9 },
            "1",
            "Factor of what is compared with: units.",
        ),
        Key::optional(
            "within",
            Kind::Number { min: 0.0, max: 1e15 },
            "`within_percent`",
            "Largest difference.",
        ),
        Key::optional(
            "within_percent",
            Kind::Number { min: 0.0, max: 100.0 },
            "`within`",
            "Largest difference in percent.",
        ),
        Key::defaulted("note", Kind::Text, "\"\"", "What else to know."),
    ],
    parts: &[],
};

static WITHOUT: Section = Section {
    heading: "[[without]]",
    doc: "A mechanism switched off.",
    own: &[
        Key::required("name", Kind::Text, "Its name. Unique."),
        Key::required("set", Kind::Table(&SET), "What changes in all cases."),
        Key::required("fails", Kind::List(&NAME), "The expectations that must fail then."),
    ],
    parts: &[],
};

/// A cluster scenario.
pub(super) static FILE: Section = Section {
    heading: "cluster scenario",
    doc: "Forwarders behind one switch, simulated: cases and what must come out.",
    own: &[
        Key::required("name", Kind::Text, "Its name, path-like."),
        Key::required("title", Kind::Text, "One line for headings."),
        Key::defaulted("source", Kind::Text, "\"\"", "What it reproduces."),
        Key::defaulted("notes", Kind::Text, "\"\"", "What the reader must know."),
        Key::optional(
            "published",
            Kind::Text,
            "nothing published",
            "`\"file.toml#key\"`, as in a scenario.",
        ),
        Key::defaulted("seed", integer(0, i64::MAX as u64, ""), "1", "Seed."),
        Key::optional(
            "cluster",
            Kind::Table(&SETTINGS),
            "as in the paper",
            "What all cases share.",
        ),
        Key::required(
            "case",
            Kind::Tables { section: &CASE, min: 1, max: 100 },
            "The simulations.",
        ),
        Key::optional(
            "expect",
            Kind::Tables { section: &EXPECT, min: 0, max: 1000 },
            "nothing",
            "The claims.",
        ),
        Key::optional(
            "without",
            Kind::Tables { section: &WITHOUT, min: 0, max: 100 },
            "none",
            "Runs in which they must fail.",
        ),
    ],
    parts: &[],
};

/// Every table, in the order of the reference.
pub(super) static ALL: &[&Section] = &[&FILE, &SETTINGS, &CASE, &EXPECT, &WITHOUT, &SET];
