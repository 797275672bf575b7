//! The keys of `[core]`.

use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};
use evenkeel_core::{BitRate, Bytes, Nanos};

use super::{LONGEST, MOMENT};

const CYCLES: u64 = 1 << 32;

const fn count(
    name: &'static str,
    max: u64,
    unit: &'static str,
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key { name, kind: Kind::Integer { min: 0, max, unit }, presence: Presence::Default(default), doc }
}

/// `[core]`.
pub(super) static CORE: Section = Section {
    heading: "[core]",
    doc: "A core that fetches bursts from the ring of a port, judges every packet (FairDrop) and processes what it admits. All costs are in cycles.",
    keys: &[
        Key {
            name: "clock",
            kind: Kind::Integer { min: 1_000_000, max: 100_000_000_000, unit: "Hz" },
            presence: Presence::Default("2600000000"),
            doc: "Cycles per second.",
        },
        Key {
            name: "batch",
            kind: Kind::Integer { min: 1, max: 65_535, unit: "packets" },
            presence: Presence::Default("256"),
            doc: "Most packets of a burst.",
        },
        Key {
            name: "ring",
            kind: Kind::Integer { min: 1, max: 1 << 24, unit: "packets" },
            presence: Presence::Default("2048"),
            doc: "Packets that the ring holds, at least a burst; what comes on top is lost.",
        },
        count("poll", 1_000_000, "cycles", "26", "For each packet fetched and judged."),
        count("refuse", 1_000_000, "cycles", "0", "For each packet refused, besides."),
        count("round", 1_000_000_000, "cycles", "0", "For each burst, besides."),
        Key {
            name: "rule",
            kind: Kind::Choice(&[
                ("level", "FairDrop, our default: every flow may use the same rate of cycles by weight"),
                ("kappa", "FairDrop as in IFIP Networking 2018: threshold kappa x credit / backlogged flows"),
                ("fixed", "FairDrop, the journal version: a fixed threshold, charged at the next poll"),
                ("mimd-batch", "FairDrop, authors' simulators: threshold steered by whether bursts are full"),
                ("mimd-ring", "FairDrop, branch adth: threshold steered by the ring's occupancy"),
                ("none", "no dropper: what does not fit into the ring is lost there"),
            ]),
            presence: Presence::Default("\"level\""),
            doc: "What decides which packets are processed.",
        },
        Key {
            name: "kappa",
            kind: Kind::Number { min: 1.0, max: 10.0 },
            presence: Presence::Default("1.08"),
            doc: "Of rule `kappa`.",
        },
        Key {
            name: "threshold",
            kind: Kind::Integer { min: 1, max: CYCLES, unit: "cycles" },
            presence: Presence::Default("6000"),
            doc: "Of rule `fixed`; where `mimd-ring` begins; the largest of `mimd-batch`.",
        },
        Key {
            name: "burst",
            kind: Kind::Time { min: Nanos(100_000), max: Nanos::SECOND },
            presence: Presence::Default("\"3ms\""),
            doc: "Of rule `level`: how much of its rate a flow may save up.",
        },
        Key {
            name: "link",
            kind: Kind::Table(&LINK),
            presence: Presence::Optional("the link is never the bottleneck"),
            doc: "The outgoing link.",
        },
        Key {
            name: "flow",
            kind: Kind::Tables { section: &FLOW, min: 1, max: 64 },
            presence: Presence::Required,
            doc: "Who sends.",
        },
    ],
};

/// `[core.link]`.
pub(super) static LINK: Section = Section {
    heading: "[core.link]",
    doc: "The link behind the core: a FIFO of bytes and a wire.",
    keys: &[
        Key {
            name: "rate",
            kind: Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) },
            presence: Presence::Required,
            doc: "Bits per second on the wire, preamble and gap included.",
        },
        Key {
            name: "buffer",
            kind: Kind::Size { min: Bytes(1_538), max: Bytes(1_000_000_000) },
            presence: Presence::Default("\"1MiB\""),
            doc: "Bytes that may wait; what does not fit is lost.",
        },
        Key {
            name: "fairdrop",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether FairDrop shares its bits, too: a packet must be within its flow's share of both.",
        },
    ],
};

/// `[[core.flow]]`.
pub(super) static FLOW: Section = Section {
    heading: "[[core.flow]]",
    doc: "Flows alike, measured as one class.",
    keys: &[
        Key { name: "name", kind: Kind::Name(31), presence: Presence::Required, doc: "Its name. Unique." },
        Key {
            name: "flows",
            kind: Kind::Integer { min: 1, max: 100_000, unit: "flows" },
            presence: Presence::Default("1"),
            doc: "How many they are.",
        },
        Key {
            name: "pps",
            kind: Kind::Integer { min: 1, max: 100_000_000, unit: "packets/s" },
            presence: Presence::Required,
            doc: "Packets per second of each.",
        },
        Key {
            name: "size",
            kind: Kind::Size { min: Bytes(64), max: Bytes(9_216) },
            presence: Presence::Default("\"64B\""),
            doc: "Length of its frames, check sequence included.",
        },
        Key {
            name: "cost",
            kind: Kind::Integer { min: 1, max: CYCLES, unit: "cycles" },
            presence: Presence::Required,
            doc: "Cycles of a packet, besides polling. Flows with the same cost take the same class of processing.",
        },
        Key {
            name: "weight",
            kind: Kind::Integer { min: 1, max: 1_000, unit: "" },
            presence: Presence::Default("1"),
            doc: "Of each flow.",
        },
        Key {
            name: "spacing",
            kind: Kind::Choice(&[("even", "constant"), ("poisson", "exponential")]),
            presence: Presence::Default("\"even\""),
            doc: "Time between packets.",
        },
        Key {
            name: "changes",
            kind: Kind::Time { min: Nanos::ZERO, max: LONGEST },
            presence: Presence::Optional("never"),
            doc: "When its packets begin to cost `cost_then`.",
        },
        Key {
            name: "cost_then",
            kind: Kind::Integer { min: 1, max: CYCLES, unit: "cycles" },
            presence: Presence::Optional("as before"),
            doc: "Cycles of a packet from `changes` on.",
        },
        Key {
            name: "start",
            kind: MOMENT,
            presence: Presence::Default("\"0s\""),
            doc: "First packet not before.",
        },
        Key {
            name: "stop",
            kind: MOMENT,
            presence: Presence::Optional("the end"),
            doc: "Last packet before.",
        },
    ],
};
