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
    keys: &[
        Key {
            name: "on",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether it drops. Off, it does nothing and costs nothing.",
        },
        Key {
            name: "cpu",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether flows share the worker's cycles. Refused packets are dropped with the reason `fairdrop_cpu`.",
        },
        Key {
            name: "bandwidth",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether flows share the bits of each link that has a rate. Reason: `fairdrop_bandwidth`.",
        },
        Key {
            name: "flows",
            kind: Kind::Integer {
                min: FlowTableConfig::MIN_FLOWS as u64,
                max: FlowTableConfig::MAX_FLOWS as u64,
                unit: "flows",
            },
            presence: Presence::Default("16384"),
            doc: "Flows that are remembered at once, 32 bytes each, for the worker and for each link with a rate. What finds no place \
                  shares one entry and is counted as `unplaced`.",
        },
        Key {
            name: "weight",
            kind: Kind::ByClass(&WEIGHT, "1"),
            presence: Presence::Default("1"),
            doc: "The share of each flow of a class in relation to other flows.",
        },
        Key {
            name: "groups",
            kind: Kind::Choice(&[
                ("none", "all flows share among each other"),
                ("class", "classes share by `group_weight`, flows within their class"),
            ]),
            presence: Presence::Default("\"none\""),
            doc: "Whether shares have two levels. With `class`, at most 64 classes.",
        },
        Key {
            name: "group_weight",
            kind: Kind::ByClass(&WEIGHT, "1"),
            presence: Presence::Default("1"),
            doc: "The share of a class as a whole, with `groups = \"class\"`.",
        },
        Key {
            name: "cost",
            kind: COST,
            presence: Presence::Default("2000"),
            doc: "Cycles that a packet is believed to take until it has been measured; learnt for every service from then on.",
        },
        Key {
            name: "rule",
            kind: Kind::Variants(RULES),
            presence: Presence::Default("{ kind = \"level\" }"),
            doc: "When a flow has used more than its share of the cycles.",
        },
        Key {
            name: "theta",
            kind: Kind::Number { min: 0.001, max: 1.0 },
            presence: Presence::Default("1.0"),
            doc: "The part of a link's rate that is shared out: less than 1 drops earlier and keeps the link's queue short.",
        },
        Key {
            name: "threshold",
            kind: Kind::Size { min: BandwidthConfig::MIN_THRESHOLD, max: Bytes(1_000_000_000) },
            presence: Presence::Default("\"2400B\""),
            doc: "What a flow may have waiting for a link, on the wire, before it is refused: at least one full packet.",
        },
        Key {
            name: "buffer",
            kind: Kind::Size { min: Bytes(0), max: Bytes(1_000_000_000) },
            presence: Presence::Default("\"393728B\""),
            doc: "What all flows together may have waiting for a link before any is refused.",
        },
    ],
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
    keys: &[
        Key {
            name: "burst",
            kind: Kind::Time { min: Nanos(100_000), max: Nanos(1_000_000_000) },
            presence: Presence::Default("\"5ms\""),
            doc: "How much of its rate a flow may save up while it is silent, as time.",
        },
        Key {
            name: "overhead",
            kind: Kind::Number { min: 0.0, max: 0.9 },
            presence: Presence::Default("0.25"),
            doc: "Largest part of the core that fetching and refusing may take so that flows below the level lose nothing at the ring.",
        },
    ],
};

/// `kind = "kappa"`.
pub static KAPPA: Section = Section {
    heading: "rule = { kind = \"kappa\", … }",
    doc: "As published at IFIP Networking 2018: kappa times what each backlogged flow was served since the last burst.",
    keys: &[Key {
        name: "kappa",
        kind: Kind::Number { min: 1.0, max: 10.0 },
        presence: Presence::Default("1.08"),
        doc: "Below 1, flows would be refused that are below their share.",
    }],
};

/// `kind = "fixed"`.
pub static FIXED: Section = Section {
    heading: "rule = { kind = \"fixed\", … }",
    doc: "As published later: a fixed threshold.",
    keys: &[Key {
        name: "cycles",
        kind: CYCLES,
        presence: Presence::Default("6000"),
        doc: "What a flow may have waiting in the shadow system before it is refused.",
    }],
};

/// `kind = "mimd-batch"`.
pub static MIMD_BATCH: Section = Section {
    heading: "rule = { kind = \"mimd-batch\", … }",
    doc: "The authors' simulators: a threshold that shrinks after each full burst and grows after each other.",
    keys: &[
        Key {
            name: "down",
            kind: DOWN,
            presence: Presence::Default("0.9"),
            doc: "Factor after a full burst.",
        },
        Key { name: "up", kind: UP, presence: Presence::Default("1.1"), doc: "Factor after any other." },
        Key { name: "min", kind: CYCLES, presence: Presence::Default("2000"), doc: "Smallest threshold." },
        Key { name: "max", kind: CYCLES, presence: Presence::Default("2000000"), doc: "Largest threshold." },
    ],
};

/// `kind = "mimd-ring"`.
pub static MIMD_RING: Section = Section {
    heading: "rule = { kind = \"mimd-ring\", … }",
    doc: "A threshold that shrinks while many frames wait in the receive ring and grows while few do.",
    keys: &[
        Key { name: "down", kind: DOWN, presence: Presence::Default("0.7"), doc: "Factor above `high`." },
        Key { name: "up", kind: UP, presence: Presence::Default("1.3"), doc: "Factor below `low`." },
        Key { name: "high", kind: FRAMES, presence: Presence::Default("512"), doc: "Many." },
        Key { name: "low", kind: FRAMES, presence: Presence::Default("256"), doc: "Few; at most `high`." },
        Key {
            name: "start",
            kind: CYCLES,
            presence: Presence::Default("6000"),
            doc: "Threshold to begin with.",
        },
    ],
};
