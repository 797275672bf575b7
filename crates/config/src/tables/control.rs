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
    doc: "Turns `x_delay` and the queue limits of LCT-UC so that the congestion indexes of all \
          classes meet: the same impact of delay and \
          loss on all. An index is 0 up to the normal limit and 1 at the degradation threshold. \
          Needs `discipline = { kind = \"lct\" }`. \
          See docs/lct-control.md.",
    own: &[
        Key::defaulted(
            "on",
            Kind::Switch,
            "true",
            "Whether it turns knobs; otherwise it only measures the indexes. Changes live: \
             `evenkeel ctl set wan control off` \
                  puts the knobs back.",
        ),
        Key::defaulted(
            "interval",
            time(&control::INTERVAL_RANGE),
            "\"25ms\"",
            "How often it measures and turns.",
        ),
        Key::defaulted(
            "gain",
            Kind::Number { min: 0.001, max: 1.0 },
            "0.25",
            "Which part of a difference an interval takes away. Stable over the whole range; \
             beyond 0.072 with `smoothing` 0.25 a \
                  deviation swings while it decays.",
        ),
        Key::defaulted(
            "smoothing",
            Kind::Number { min: 0.015625, max: 1.0 },
            "0.25",
            "Weight of a new value in the moving averages of delay and loss.",
        ),
        Key::defaulted(
            "hysteresis",
            Kind::Number { min: 0.0, max: 1.0 },
            "0.02",
            "Differences between indexes that are not worth acting on.",
        ),
        Key::defaulted(
            "step",
            Kind::Number { min: 0.015625, max: 1.0 },
            "0.125",
            "Largest relative change of a class's rate in an interval.",
        ),
        Key::defaulted(
            "x_min",
            Kind::Time { min: Nanos(1), max: Nanos(*lct::X_DELAY_RANGE.end()) },
            "\"10us\"",
            "Smallest `x_delay` above zero.",
        ),
        Key::optional(
            "x_max",
            Kind::Time { min: Nanos(1), max: Nanos(*lct::X_DELAY_RANGE.end()) },
            "16 times what the longest packets take on the link, at least 20 ms",
            "Largest `x_delay`: a class that has packets gets at least one through in this time, \
             whatever its index.",
        ),
        Key::defaulted(
            "limits",
            Kind::Switch,
            "true",
            "Whether it turns the queue limits too. Their sum never exceeds what it was.",
        ),
        Key::defaulted("limit_min", LIMIT, "2", "Smallest queue limit of a class."),
        Key::defaulted("limit_max", LIMIT, "1000", "Largest queue limit of a class."),
        Key::defaulted(
            "aggregate",
            Kind::Choice(&[
                ("worst", "the larger of the two"),
                ("mean", "their mean, delay weighted with `delay_weight`"),
            ]),
            "\"worst\"",
            "How the index of a class is made of those for delay and loss.",
        ),
        Key::defaulted(
            "delay_weight",
            Kind::Number { min: 0.0, max: 1.0 },
            "0.5",
            "Weight of delay with `aggregate = \"mean\"`; loss has the rest.",
        ),
        Key::defaulted(
            "preset",
            Kind::ByClass(&PRESET, Presence::Default("\"by-name\"")),
            "\"by-name\"",
            "Where the limits of a class come from that the keys below do not give. `voice`: delay \
             5 to 50 ms, loss 1 to 10 %; \
                  `video`: 10 to 100 ms, 0.5 to 5 %; `interactive`: 20 to 400 ms, 1 to 20 %; \
                  `bulk`: 100 ms to 2 s, 2 to 50 %; \
                  `by-name`: those of the class's name, `bulk` for other names.",
        ),
        Key::defaulted(
            "delay_normal",
            Kind::ByClass(&LIMIT_OF_DELAY, Presence::Default("\"0s\"")),
            "\"0s\"",
            "Mean delay up to which the class feels nothing. 0: as the preset says.",
        ),
        Key::defaulted(
            "delay_degraded",
            Kind::ByClass(&LIMIT_OF_DELAY, Presence::Default("\"0s\"")),
            "\"0s\"",
            "Mean delay at which the service is useless. 0: as the preset says.",
        ),
        Key::defaulted(
            "loss_normal",
            Kind::ByClass(&LIMIT_OF_LOSS, Presence::Default("0")),
            "0",
            "Share of packets lost up to which the class feels nothing. 0: as the preset says.",
        ),
        Key::defaulted(
            "loss_degraded",
            Kind::ByClass(&LIMIT_OF_LOSS, Presence::Default("0")),
            "0",
            "Share of packets lost at which the service is useless. 0: as the preset says.",
        ),
    ],
    parts: &[],
};
