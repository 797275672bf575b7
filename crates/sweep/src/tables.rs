//! The keys of a `sweep.toml`.

use evenkeel_config::schema::{Key, Kind, Presence, Section};
use evenkeel_core::Nanos;

static SEED: Kind = Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" };

/// A whole sweep.
pub static SWEEP: Section = Section {
    heading: "sweep.toml",
    doc: "A scenario over a grid of parameters and seeds. Expectations and `without` entries of the scenario are left out; what is measured is said here.",
    keys: &[
        Key { name: "name", kind: Kind::Text, presence: Presence::Required, doc: "Its name, path-like." },
        Key { name: "title", kind: Kind::Text, presence: Presence::Required, doc: "One line for headings." },
        Key {
            name: "notes",
            kind: Kind::Text,
            presence: Presence::Default("\"\""),
            doc: "What the reader of the results must know.",
        },
        Key {
            name: "scenario",
            kind: Kind::Path,
            presence: Presence::Required,
            doc: "The scenario to vary, relative to this file.",
        },
        Key {
            name: "seeds",
            kind: Kind::List(&SEED),
            presence: Presence::Default("[1]"),
            doc: "The seeds each point is run with.",
        },
        Key {
            name: "duration",
            kind: Kind::Time { min: Nanos::from_millis(100), max: Nanos::from_secs(24 * 3600) },
            presence: Presence::Optional("the scenario's"),
            doc: "How long each run lasts.",
        },
        Key {
            name: "fixed",
            kind: Kind::Foreign("a table: paths in the scenario and their values"),
            presence: Presence::Optional("nothing"),
            doc: "What differs from the scenario in every run: paths in quotes, as in `vary.set`, and values as in the scenario. `step = []` takes all steps away.",
        },
        Key {
            name: "vary",
            kind: Kind::Tables { section: &VARY, min: 1, max: 10 },
            presence: Presence::Required,
            doc: "The axes of the grid; the last varies fastest, seeds faster still.",
        },
        Key {
            name: "measure",
            kind: Kind::Foreign("a table: names and expressions"),
            presence: Presence::Optional("nothing but the rows of every class"),
            doc: "Numbers formed of each run: expressions as in a scenario's `that`, without a comparison; `{ring}` stands for the value of the axis `ring`.",
        },
        Key {
            name: "map",
            kind: Kind::Table(&MAP),
            presence: Presence::Optional("no map is drawn"),
            doc: "A heat map of a measure.",
        },
    ],
};

/// `[[vary]]`.
pub static VARY: Section = Section {
    heading: "[[vary]]",
    doc: "An axis of the grid.",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Name(40),
            presence: Presence::Required,
            doc: "Its name: a column of the results, and in braces its value in expressions.",
        },
        Key {
            name: "label",
            kind: Kind::Text,
            presence: Presence::Optional("its name"),
            doc: "What figures call it.",
        },
        Key {
            name: "set",
            kind: Kind::List(&Kind::Text),
            presence: Presence::Required,
            doc: "What it sets: a path of keys in the scenario, `[name]` choosing from a list by name or port: \
                  `router[r1].config.link[sink].ring.slots`, `traffic[from-h1].rate`. Several paths get the same value.",
        },
        Key {
            name: "values",
            kind: Kind::Foreign("a list of values as in the scenario"),
            presence: Presence::Required,
            doc: "Its values, as in the scenario.",
        },
    ],
};

/// `[map]`.
pub static MAP: Section = Section {
    heading: "[map]",
    doc: "A heat map of the mean over seeds.",
    keys: &[
        Key {
            name: "x",
            kind: Kind::Name(40),
            presence: Presence::Required,
            doc: "The axis that runs to the right.",
        },
        Key { name: "y", kind: Kind::Name(40), presence: Presence::Required, doc: "The axis that runs up." },
        Key {
            name: "panels",
            kind: Kind::Name(40),
            presence: Presence::Optional("one panel"),
            doc: "The axis with a panel for each value.",
        },
        Key {
            name: "value",
            kind: Kind::Name(40),
            presence: Presence::Required,
            doc: "The measure that is drawn.",
        },
        Key {
            name: "label",
            kind: Kind::Text,
            presence: Presence::Optional("the measure's name"),
            doc: "What the drawing calls it.",
        },
        Key {
            name: "low",
            kind: Kind::Number { min: -1e12, max: 1e12 },
            presence: Presence::Default("0"),
            doc: "The value at the light end of the colours.",
        },
        Key {
            name: "high",
            kind: Kind::Number { min: -1e12, max: 1e12 },
            presence: Presence::Default("1"),
            doc: "The value at the dark end.",
        },
        Key {
            name: "line",
            kind: Kind::Name(40),
            presence: Presence::Optional("no line"),
            doc: "A measure that gives, for each x, a height on the y axis: drawn as a line.",
        },
        Key {
            name: "line_label",
            kind: Kind::Text,
            presence: Presence::Default("\"\""),
            doc: "What the drawing calls the line.",
        },
    ],
};

/// Every table, in the order of a reference.
pub static ALL: &[&Section] = &[&SWEEP, &VARY, &MAP];

/// The reference of sweeps as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let intro = "Every key that a `sweep.toml` can hold. Every point of the grid is checked before anything runs. How sweeps are run, on one machine and on many: \
                 [sweeps](sweeps.md).\n";
    evenkeel_config::reference::markdown("Reference: sweep.toml", intro, ALL)
}

/// The JSON Schema (2020-12) of sweeps, as text.
#[must_use]
pub fn schema() -> String {
    evenkeel_config::json_schema::document("sweep.toml", &SWEEP, &|_words| None)
}
