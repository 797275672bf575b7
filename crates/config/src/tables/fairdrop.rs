//! The keys of `[fairdrop]`.

use evenkeel_core::drop::{BandwidthConfig, CpuConfig, FlowTableConfig};
use evenkeel_core::{Bytes, Nanos};

use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

static WEIGHT: Kind = Kind::Integer { min: 1, max: FlowTableConfig::MAX_WEIGHT as u64, unit: "" };
static COST: Kind = Kind::Integer { min: 1, max: CpuConfig::MAX_CYCLES.0, unit: "cycles" };
const CYCLES: Kind = COST;
const DOWN: Kind = Kind::Number { min: 0.001, max: 0.999 };
const UP: Kind = Kind::Number { min: 1.001, max: 10.0 };
const FRAMES: Kind = Kind::Integer { min: 1, max: 1 << 24, unit: "frames" };

/// `[fairdrop]`.
pub static FAIRDROP: Section = Section {
    heading: "[fairdrop]",
    doc: "Fair shares of the worker's cycles and of the links' bits for every flow, by dropping early what exceeds them. Without overload \
          nothing is dropped. Everything here changes live: `evenkeel ctl fairdrop KEY VALUE`. See docs/fairdrop-router.md.",
    own: &[
        Key::defaulted(
            "on",
            Kind::Switch,
            "true",
            "Whether it drops. Off, it does nothing and costs nothing.",
        ),
        Key::defaulted(
            "cpu",
            Kind::Switch,
            "true",
            "Whether flows share the worker's cycles. Refused packets are dropped with the reason `fairdrop_cpu`.",
        ),
        Key::defaulted(
            "bandwidth",
            Kind::Switch,
            "true",
            "Whether flows share the bits of each link that has a rate. Reason: `fairdrop_bandwidth`.",
        ),
        Key::defaulted(
            "flows",
            Kind::Integer {
                min: FlowTableConfig::MIN_FLOWS as u64,
                max: FlowTableConfig::MAX_FLOWS as u64,
                unit: "flows",
            },
            "16384",
            "Flows that are remembered at once, 32 bytes each, for the worker and for each link with a rate. What finds no place \
                  shares one entry and is counted as `unplaced`.",
        ),
        Key::defaulted(
            "weight",
            Kind::ByClass(&WEIGHT, Presence::Default("1")),
            "1",
            "The share of each flow of a class in relation to other flows.",
        ),
        Key::defaulted(
            "groups",
            Kind::Choice(&[
                ("none", "all flows share among each other"),
                ("class", "classes share by `group_weight`, flows within their class"),
            ]),
            "\"none\"",
            "Whether shares have two levels. With `class`, at most 64 classes.",
        ),
        Key::defaulted(
            "group_weight",
            Kind::ByClass(&WEIGHT, Presence::Default("1")),
            "1",
            "The share of a class as a whole, with `groups = \"class\"`.",
        ),
        Key::defaulted(
            "cost",
            COST,
            "2000",
            "Cycles that a packet is believed to take until it has been measured; learnt for every service from then on.",
        ),
        Key::defaulted(
            "rule",
            Kind::Variants(RULES),
            "{ kind = \"level\" }",
            "When a flow has used more than its share of the cycles.",
        ),
        Key::defaulted(
            "theta",
            Kind::Number { min: 0.001, max: 1.0 },
            "1.0",
            "The part of a link's rate that is shared out: less than 1 drops earlier and keeps the link's queue short.",
        ),
        Key::defaulted(
            "threshold",
            Kind::Size { min: BandwidthConfig::MIN_THRESHOLD, max: Bytes(1_000_000_000) },
            "\"2400B\"",
            "What a flow may have waiting for a link, on the wire, before it is refused: at least one full packet.",
        ),
        Key::defaulted(
            "buffer",
            Kind::Size { min: Bytes(0), max: Bytes(1_000_000_000) },
            "\"393728B\"",
            "What all flows together may have waiting for a link before any is refused.",
        ),
    ],
    parts: &[],
};

/// The rules by their `kind`.
pub static RULES: &[(&str, &Section)] = &[
    ("level", &LEVEL),
    ("kappa", &KAPPA),
    ("fixed", &FIXED),
    ("mimd-batch", &MIMD_BATCH),
    ("mimd-ring", &MIMD_RING),
];

/// `kind = "level"`.
pub static LEVEL: Section = Section {
    heading: "rule = { kind = \"level\", … }",
    doc: "The water level: each flow may use the same rate of cycles, which is lowered while the receive ring fills and raised while it empties.",
    own: &[
        Key::defaulted(
            "burst",
            Kind::Time { min: Nanos(100_000), max: Nanos(1_000_000_000) },
            "\"5ms\"",
            "How much of its rate a flow may save up while it is silent, as time.",
        ),
        Key::defaulted(
            "overhead",
            Kind::Number { min: 0.0, max: 0.9 },
            "0.25",
            "Largest part of the core that fetching and refusing may take so that flows below the level lose nothing at the ring.",
        ),
    ],
    parts: &[],
};

/// `kind = "kappa"`.
pub static KAPPA: Section = Section {
    heading: "rule = { kind = \"kappa\", … }",
    doc: "As published at IFIP Networking 2018: kappa times what each backlogged flow was served since the last burst.",
    own: &[Key::defaulted(
        "kappa",
        Kind::Number { min: 1.0, max: 10.0 },
        "1.08",
        "Below 1, flows would be refused that are below their share.",
    )],
    parts: &[],
};

/// `kind = "fixed"`.
pub static FIXED: Section = Section {
    heading: "rule = { kind = \"fixed\", … }",
    doc: "As published later: a fixed threshold.",
    own: &[Key::defaulted(
        "cycles",
        CYCLES,
        "6000",
        "What a flow may have waiting in the shadow system before it is refused.",
    )],
    parts: &[],
};

/// `kind = "mimd-batch"`.
pub static MIMD_BATCH: Section = Section {
    heading: "rule = { kind = \"mimd-batch\", … }",
    doc: "The authors' simulators: a threshold that shrinks after each full burst and grows after each other.",
    own: &[
        Key::defaulted("down", DOWN, "0.9", "Factor after a full burst."),
        Key::defaulted("up", UP, "1.1", "Factor after any other."),
        Key::defaulted("min", CYCLES, "2000", "Smallest threshold."),
        Key::defaulted("max", CYCLES, "2000000", "Largest threshold."),
    ],
    parts: &[],
};

/// `kind = "mimd-ring"`.
pub static MIMD_RING: Section = Section {
    heading: "rule = { kind = \"mimd-ring\", … }",
    doc: "A threshold that shrinks while many frames wait in the receive ring and grows while few do.",
    own: &[
        Key::defaulted("down", DOWN, "0.7", "Factor above `high`."),
        Key::defaulted("up", UP, "1.3", "Factor below `low`."),
        Key::defaulted("high", FRAMES, "512", "Many."),
        Key::defaulted("low", FRAMES, "256", "Few; at most `high`."),
        Key::defaulted("start", CYCLES, "6000", "Threshold to begin with."),
    ],
    parts: &[],
};
