//! The keys of a `sweep.toml`.

use evenkeel_core::Nanos;
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

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
        Key {
            name: "chart",
            kind: Kind::Tables { section: &CHART, min: 0, max: 20 },
            presence: Presence::Optional("no chart is drawn"),
            doc: "Curves of a measure with 95 % intervals over seeds, and a table beside published values.",
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
            presence: Presence::Optional("nothing"),
            doc: "What it sets: a path of keys in the scenario, `[name]` choosing from a list by name or port: \
                  `router[r1].config.link[sink].ring.slots`, `traffic[from-h1].rate`. Several paths get the same value.",
        },
        Key {
            name: "values",
            kind: Kind::Foreign("a list of values as in the scenario"),
            presence: Presence::Required,
            doc: "Its values, as in the scenario; with `put`, or where only what is measured differs, any names or numbers.",
        },
        Key {
            name: "put",
            kind: Kind::Foreign("a list of tables: paths in the scenario and their values"),
            presence: Presence::Optional("nothing"),
            doc: "What each value stands for: a table for each, of paths in quotes, as in `set`, and values as in the scenario.",
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

/// `[[chart]]`.
pub static CHART: Section = Section {
    heading: "[[chart]]",
    doc: "A curve of a measure for each value of an axis, with the mean over seeds, its 95 % interval after Student, and each seed as a dot.",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Name(40),
            presence: Presence::Required,
            doc: "Names the files: `chart-NAME.svg`, `chart-NAME.html`.",
        },
        Key { name: "title", kind: Kind::Text, presence: Presence::Required, doc: "One line for headings." },
        Key {
            name: "notes",
            kind: Kind::Text,
            presence: Presence::Default("\"\""),
            doc: "What the reader must know, besides the sweep's notes.",
        },
        Key {
            name: "x",
            kind: Kind::Name(40),
            presence: Presence::Required,
            doc: "The axis that runs to the right: at its place if all its values are numbers, else side by side.",
        },
        Key {
            name: "curves",
            kind: Kind::Name(40),
            presence: Presence::Optional("one curve"),
            doc: "The axis with a curve for each value.",
        },
        Key {
            name: "show",
            kind: Kind::List(&Kind::Text),
            presence: Presence::Optional("all of them"),
            doc: "The values of `curves` that are drawn.",
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
            doc: "What the vertical axis is called, with the unit.",
        },
        Key {
            name: "log",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "Whether the vertical axis is logarithmic. What is 0 is drawn at its foot.",
        },
        Key {
            name: "low",
            kind: Kind::Number { min: 1e-12, max: 1e12 },
            presence: Presence::Optional("the smallest value"),
            doc: "Where a logarithmic axis begins: the resolution of what is measured.",
        },
        Key {
            name: "published",
            kind: Kind::Tables { section: &MARK, min: 0, max: 20 },
            presence: Presence::Optional("nothing"),
            doc: "Published values, drawn beside the curves and listed in the table.",
        },
    ],
};

/// `[[chart.published]]`.
pub static MARK: Section = Section {
    heading: "[[chart.published]]",
    doc: "A published value: a point where it has an `x`, else a line over the whole width.",
    keys: &[
        Key { name: "label", kind: Kind::Text, presence: Presence::Required, doc: "What it is called." },
        Key {
            name: "from",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "The entry, as a scenario names it: `cross_protect.toml#fig4a`, in a folder `published/` beside or above this file.",
        },
        Key {
            name: "number",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "The number in the entry: `weights[1]`, `standard.mean`.",
        },
        Key {
            name: "half",
            kind: Kind::Text,
            presence: Presence::Optional("no interval"),
            doc: "The number in the entry that is half the width of its interval.",
        },
        Key {
            name: "times",
            kind: Kind::Number { min: 1e-12, max: 1e12 },
            presence: Presence::Default("1"),
            doc: "By what both are multiplied, for the unit of the measure.",
        },
        Key {
            name: "x",
            kind: Kind::Foreign("a value of the axis `x`"),
            presence: Presence::Optional("a line over the whole width"),
            doc: "The value of the axis `x` that it was published for.",
        },
        Key {
            name: "curve",
            kind: Kind::Text,
            presence: Presence::Optional("none: it has no row of the table"),
            doc: "The value of `curves` that it was published for.",
        },
    ],
};

/// Every table, in the order of a reference.
pub static ALL: &[&Section] = &[&SWEEP, &VARY, &MAP, &CHART, &MARK];

/// The reference of sweeps as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let intro = "Every key that a `sweep.toml` can hold. Every point of the grid is checked before anything runs. How sweeps are run, on one machine and on many: \
                 [sweeps](sweeps.md).\n";
    evenkeel_settings::reference::markdown("Reference: sweep.toml", intro, ALL)
}

/// The JSON Schema (2020-12) of sweeps, as text.
#[must_use]
pub fn schema() -> String {
    evenkeel_settings::json_schema::document("sweep.toml", &SWEEP, &|_words| None)
}
