//! The keys of `[link.control]`: what turns a discipline's knobs by itself.

use evenkeel_core::Nanos;
use evenkeel_core::control;
use evenkeel_core::schedule::lct;

use super::{LIMIT, time};
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

static PRESET: Kind = Kind::Choice(&[
    ("by-name", "that of the class's name, `bulk` for other names"),
    ("voice", "delay 5 to 50 ms, loss 1 to 10 %"),
    ("video", "delay 10 to 100 ms, loss 0.5 to 5 %"),
    ("interactive", "delay 20 to 400 ms, loss 1 to 20 %"),
    ("bulk", "delay 100 ms to 2 s, loss 2 to 50 %"),
]);
static LIMIT_OF_DELAY: Kind = Kind::Time { min: Nanos(0), max: Nanos(60_000_000_000) };
static LIMIT_OF_LOSS: Kind = Kind::Number { min: 0.0, max: 1.0 };

/// `control = { kind = "lct" }`.
pub static LCT: Section = Section {
    heading: "control = { kind = \"lct\", … }",
    doc: "Turns `x_delay` and the queue limits of LCT-UC so that the congestion indexes of all classes meet: the same impact of delay and \
          loss on all. An index is 0 up to the normal limit and 1 at the degradation threshold. Needs `discipline = { kind = \"lct\" }`. \
          See docs/lct-control.md.",
    keys: &[
        Key {
            name: "on",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether it turns knobs; otherwise it only measures the indexes. Changes live: `evenkeel ctl set wan control off` \
                  puts the knobs back.",
        },
        Key {
            name: "interval",
            kind: time(&control::INTERVAL_RANGE),
            presence: Presence::Default("\"50ms\""),
            doc: "How often it measures and turns.",
        },
        Key {
            name: "gain",
            kind: Kind::Number { min: 0.001, max: 1.0 },
            presence: Presence::Default("0.25"),
            doc: "Which part of a difference an interval takes away. Stable over the whole range; beyond 0.072 with `smoothing` 0.25 a \
                  deviation swings while it decays.",
        },
        Key {
            name: "smoothing",
            kind: Kind::Number { min: 0.015625, max: 1.0 },
            presence: Presence::Default("0.25"),
            doc: "Weight of a new value in the moving averages of delay and loss.",
        },
        Key {
            name: "hysteresis",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            presence: Presence::Default("0.02"),
            doc: "Differences between indexes that are not worth acting on.",
        },
        Key {
            name: "step",
            kind: Kind::Number { min: 0.015625, max: 1.0 },
            presence: Presence::Default("0.125"),
            doc: "Largest relative change of a class's rate in an interval.",
        },
        Key {
            name: "x_min",
            kind: Kind::Time { min: Nanos(1), max: Nanos(*lct::X_DELAY_RANGE.end()) },
            presence: Presence::Default("\"10us\""),
            doc: "Smallest `x_delay` above zero.",
        },
        Key {
            name: "x_max",
            kind: Kind::Time { min: Nanos(1), max: Nanos(*lct::X_DELAY_RANGE.end()) },
            presence: Presence::Default("\"20ms\""),
            doc: "Largest `x_delay`: a class that has packets gets at least one through in this time, whatever its index.",
        },
        Key {
            name: "limits",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether it turns the queue limits too. Their sum never exceeds what it was.",
        },
        Key {
            name: "limit_min",
            kind: LIMIT,
            presence: Presence::Default("2"),
            doc: "Smallest queue limit of a class.",
        },
        Key {
            name: "limit_max",
            kind: LIMIT,
            presence: Presence::Default("1000"),
            doc: "Largest queue limit of a class.",
        },
        Key {
            name: "aggregate",
            kind: Kind::Choice(&[
                ("worst", "the larger of the two"),
                ("mean", "their mean, delay weighted with `delay_weight`"),
            ]),
            presence: Presence::Default("\"worst\""),
            doc: "How the index of a class is made of those for delay and loss.",
        },
        Key {
            name: "delay_weight",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            presence: Presence::Default("0.5"),
            doc: "Weight of delay with `aggregate = \"mean\"`; loss has the rest.",
        },
        Key {
            name: "preset",
            kind: Kind::ByClass(&PRESET, "\"by-name\""),
            presence: Presence::Default("\"by-name\""),
            doc: "Where the limits of a class come from that the keys below do not give. `voice`: delay 5 to 50 ms, loss 1 to 10 %; \
                  `video`: 10 to 100 ms, 0.5 to 5 %; `interactive`: 20 to 400 ms, 1 to 20 %; `bulk`: 100 ms to 2 s, 2 to 50 %; \
                  `by-name`: those of the class's name, `bulk` for other names.",
        },
        Key {
            name: "delay_normal",
            kind: Kind::ByClass(&LIMIT_OF_DELAY, "\"0s\""),
            presence: Presence::Default("\"0s\""),
            doc: "Mean delay up to which the class feels nothing. 0: as the preset says.",
        },
        Key {
            name: "delay_degraded",
            kind: Kind::ByClass(&LIMIT_OF_DELAY, "\"0s\""),
            presence: Presence::Default("\"0s\""),
            doc: "Mean delay at which the service is useless. 0: as the preset says.",
        },
        Key {
            name: "loss_normal",
            kind: Kind::ByClass(&LIMIT_OF_LOSS, "0"),
            presence: Presence::Default("0"),
            doc: "Share of packets lost up to which the class feels nothing. 0: as the preset says.",
        },
        Key {
            name: "loss_degraded",
            kind: Kind::ByClass(&LIMIT_OF_LOSS, "0"),
            presence: Presence::Default("0"),
            doc: "Share of packets lost at which the service is useless. 0: as the preset says.",
        },
    ],
};
