//! The keys of `[core]`.

use evenkeel_core::settings::schema::{Key, Kind, Section};
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
    Key::defaulted(name, Kind::Integer { min: 0, max, unit }, default, doc)
}

/// `[core]`.
pub(super) static CORE: Section = Section {
    heading: "[core]",
    doc: "A core that fetches bursts from the ring of a port, judges every packet (FairDrop) and \
          processes what it admits. All costs are in cycles.",
    own: &[
        Key::defaulted(
            "clock",
            Kind::Integer { min: 1_000_000, max: 100_000_000_000, unit: "Hz" },
            "2600000000",
            "Cycles per second.",
        ),
        Key::defaulted(
            "batch",
            Kind::Integer { min: 1, max: 65_535, unit: "packets" },
            "256",
            "Most packets of a burst.",
        ),
        Key::defaulted(
            "ring",
            Kind::Integer { min: 1, max: 1 << 24, unit: "packets" },
            "2048",
            "Packets that the ring holds, at least a burst; what comes on top is lost.",
        ),
        count("poll", 1_000_000, "cycles", "26", "For each packet fetched and judged."),
        count("refuse", 1_000_000, "cycles", "0", "For each packet refused, besides."),
        count("round", 1_000_000_000, "cycles", "0", "For each burst, besides."),
        Key::defaulted(
            "rule",
            Kind::Choice(&[
                (
                    "level",
                    "FairDrop, our default: every flow may use the same rate of cycles by weight",
                ),
                (
                    "kappa",
                    "FairDrop as in IFIP Networking 2018: threshold kappa x credit / backlogged \
                     flows",
                ),
                (
                    "fixed",
                    "FairDrop, the journal version: a fixed threshold, charged at the next poll",
                ),
                (
                    "mimd-batch",
                    "FairDrop, authors' simulators: threshold steered by whether bursts are full",
                ),
                ("mimd-ring", "FairDrop, branch adth: threshold steered by the ring's occupancy"),
                ("none", "no dropper: what does not fit into the ring is lost there"),
            ]),
            "\"level\"",
            "What decides which packets are processed.",
        ),
        Key::defaulted("kappa", Kind::Number { min: 1.0, max: 10.0 }, "1.08", "Of rule `kappa`."),
        Key::defaulted(
            "threshold",
            Kind::Integer { min: 1, max: CYCLES, unit: "cycles" },
            "6000",
            "Of rule `fixed`; where `mimd-ring` begins; the largest of `mimd-batch`.",
        ),
        Key::defaulted(
            "burst",
            Kind::Time { min: Nanos(100_000), max: Nanos::SECOND },
            "\"3ms\"",
            "Of rule `level`: how much of its rate a flow may save up.",
        ),
        Key::optional(
            "link",
            Kind::Table(&LINK),
            "the link is never the bottleneck",
            "The outgoing link.",
        ),
        Key::required("flow", Kind::Tables { section: &FLOW, min: 1, max: 64 }, "Who sends."),
    ],
    parts: &[],
};

/// `[core.link]`.
pub(super) static LINK: Section = Section {
    heading: "[core.link]",
    doc: "The link behind the core: a FIFO of bytes and a wire.",
    own: &[
        Key::required(
            "rate",
            Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) },
            "Bits per second on the wire, preamble and gap included.",
        ),
        Key::defaulted(
            "buffer",
            Kind::Size { min: Bytes(1_538), max: Bytes(1_000_000_000) },
            "\"1MiB\"",
            "Bytes that may wait; what does not fit is lost.",
        ),
        Key::defaulted(
            "fairdrop",
            Kind::Switch,
            "true",
            "Whether FairDrop shares its bits, too: a packet must be within its flow's share of \
             both.",
        ),
    ],
    parts: &[],
};

/// `[[core.flow]]`.
pub(super) static FLOW: Section = Section {
    heading: "[[core.flow]]",
    doc: "Flows alike, measured as one class.",
    own: &[
        Key::required("name", Kind::Name(31), "Its name. Unique."),
        Key::defaulted(
            "flows",
            Kind::Integer { min: 1, max: 100_000, unit: "flows" },
            "1",
            "How many they are.",
        ),
        Key::required(
            "pps",
            Kind::Integer { min: 1, max: 100_000_000, unit: "packets/s" },
            "Packets per second of each.",
        ),
        Key::defaulted(
            "size",
            Kind::Size { min: Bytes(64), max: Bytes(9_216) },
            "\"64B\"",
            "Length of its frames, check sequence included.",
        ),
        Key::required(
            "cost",
            Kind::Integer { min: 1, max: CYCLES, unit: "cycles" },
            "Cycles of a packet, besides polling. Flows with the same cost take the same class of \
             processing.",
        ),
        Key::defaulted(
            "weight",
            Kind::Integer { min: 1, max: 1_000, unit: "" },
            "1",
            "Of each flow.",
        ),
        Key::defaulted(
            "spacing",
            Kind::Choice(&[("even", "constant"), ("poisson", "exponential")]),
            "\"even\"",
            "Time between packets.",
        ),
        Key::optional(
            "changes",
            Kind::Time { min: Nanos::ZERO, max: LONGEST },
            "never",
            "When its packets begin to cost `cost_then`.",
        ),
        Key::optional(
            "cost_then",
            Kind::Integer { min: 1, max: CYCLES, unit: "cycles" },
            "as before",
            "Cycles of a packet from `changes` on.",
        ),
        Key::defaulted("start", MOMENT, "\"0s\"", "First packet not before."),
        Key::optional("stop", MOMENT, "the end", "Last packet before."),
    ],
    parts: &[],
};
