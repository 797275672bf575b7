//! The keys of a `sweep.toml`.

use evenkeel_core::Nanos;
use evenkeel_core::settings::schema::{Key, Kind, Section};

static SEED: Kind = Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" };

/// A whole sweep.
pub static SWEEP: Section = Section {
    heading: "sweep.toml",
    doc: "A scenario over a grid of parameters and seeds. Expectations and `without` entries of \
          the scenario are left out; what is measured is said here.",
    own: &[
        Key::required("name", Kind::Text, "Its name, path-like."),
        Key::required("title", Kind::Text, "One line for headings."),
        Key::defaulted("notes", Kind::Text, "\"\"", "What the reader of the results must know."),
        Key::required("scenario", Kind::Path, "The scenario to vary, relative to this file."),
        Key::defaulted("seeds", Kind::List(&SEED), "[1]", "The seeds each point is run with."),
        Key::optional(
            "duration",
            Kind::Time { min: Nanos::from_millis(100), max: Nanos::from_secs(24 * 3600) },
            "the scenario's",
            "How long each run lasts.",
        ),
        Key::optional(
            "fixed",
            Kind::Foreign("a table: paths in the scenario and their values"),
            "nothing",
            "What differs from the scenario in every run: paths in quotes, as in `vary.set`, and \
             values as in the scenario. `step = []` takes all steps away.",
        ),
        Key::required(
            "vary",
            Kind::Tables { section: &VARY, min: 1, max: 10 },
            "The axes of the grid; the last varies fastest, seeds faster still.",
        ),
        Key::optional(
            "measure",
            Kind::Foreign("a table: names and expressions"),
            "nothing but the rows of every class",
            "Numbers formed of each run: expressions as in a scenario's `that`, without a \
             comparison; `{ring}` stands for the value of the axis `ring`.",
        ),
        Key::optional("map", Kind::Table(&MAP), "no map is drawn", "A heat map of a measure."),
        Key::optional(
            "chart",
            Kind::Tables { section: &CHART, min: 0, max: 20 },
            "no chart is drawn",
            "Curves of a measure with 95 % intervals over seeds, and a table beside published \
             values.",
        ),
    ],
    parts: &[],
};

/// `[[vary]]`.
pub static VARY: Section = Section {
    heading: "[[vary]]",
    doc: "An axis of the grid.",
    own: &[
        Key::required(
            "name",
            Kind::Name(40),
            "Its name: a column of the results, and in braces its value in expressions.",
        ),
        Key::optional("label", Kind::Text, "its name", "What figures call it."),
        Key::optional(
            "set",
            Kind::List(&Kind::Text),
            "nothing",
            "What it sets: a path of keys in the scenario, `[name]` choosing from a list by name \
             or port: \
                  `router[r1].config.link[sink].ring.slots`, `traffic[from-h1].rate`. Several \
                  paths get the same value.",
        ),
        Key::required(
            "values",
            Kind::Foreign("a list of values as in the scenario"),
            "Its values, as in the scenario; with `put`, or where only what is measured differs, \
             any names or numbers.",
        ),
        Key::optional(
            "put",
            Kind::Foreign("a list of tables: paths in the scenario and their values"),
            "nothing",
            "What each value stands for: a table for each, of paths in quotes, as in `set`, and \
             values as in the scenario.",
        ),
    ],
    parts: &[],
};

/// `[map]`.
pub static MAP: Section = Section {
    heading: "[map]",
    doc: "A heat map of the mean over seeds.",
    own: &[
        Key::required("x", Kind::Name(40), "The axis that runs to the right."),
        Key::required("y", Kind::Name(40), "The axis that runs up."),
        Key::optional(
            "panels",
            Kind::Name(40),
            "one panel",
            "The axis with a panel for each value.",
        ),
        Key::required("value", Kind::Name(40), "The measure that is drawn."),
        Key::optional("label", Kind::Text, "the measure's name", "What the drawing calls it."),
        Key::defaulted(
            "low",
            Kind::Number { min: -1e12, max: 1e12 },
            "0",
            "The value at the light end of the colours.",
        ),
        Key::defaulted(
            "high",
            Kind::Number { min: -1e12, max: 1e12 },
            "1",
            "The value at the dark end.",
        ),
        Key::optional(
            "line",
            Kind::Name(40),
            "no line",
            "A measure that gives, for each x, a height on the y axis: drawn as a line.",
        ),
        Key::defaulted("line_label", Kind::Text, "\"\"", "What the drawing calls the line."),
    ],
    parts: &[],
};

/// `[[chart]]`.
pub static CHART: Section = Section {
    heading: "[[chart]]",
    doc: "A curve of a measure for each value of an axis, with the mean over seeds, its 95 % \
          interval after Student, and each seed as a dot.",
    own: &[
        Key::required(
            "name",
            Kind::Name(40),
            "Names the files: `chart-NAME.svg`, `chart-NAME.html`.",
        ),
        Key::required("title", Kind::Text, "One line for headings."),
        Key::defaulted(
            "notes",
            Kind::Text,
            "\"\"",
            "What the reader must know, besides the sweep's notes.",
        ),
        Key::required(
            "x",
            Kind::Name(40),
            "The axis that runs to the right: at its place if all its values are numbers, else \
             side by side.",
        ),
        Key::optional(
            "curves",
            Kind::Name(40),
            "one curve",
            "The axis with a curve for each value.",
        ),
        Key::optional(
            "show",
            Kind::List(&Kind::Text),
            "all of them",
            "The values of `curves` that are drawn.",
        ),
        Key::required("value", Kind::Name(40), "The measure that is drawn."),
        Key::optional(
            "label",
            Kind::Text,
            "the measure's name",
            "What the vertical axis is called, with the unit.",
        ),
        Key::defaulted(
            "log",
            Kind::Switch,
            "false",
            "Whether the vertical axis is logarithmic. What is 0 is drawn at its foot.",
        ),
        Key::optional(
            "low",
            Kind::Number { min: 1e-12, max: 1e12 },
            "the smallest value",
            "Where a logarithmic axis begins: the resolution of what is measured.",
        ),
        Key::optional(
            "published",
            Kind::Tables { section: &MARK, min: 0, max: 20 },
            "nothing",
            "Published values, drawn beside the curves and listed in the table.",
        ),
    ],
    parts: &[],
};

/// `[[chart.published]]`.
pub static MARK: Section = Section {
    heading: "[[chart.published]]",
    doc: "A published value: a point where it has an `x`, else a line over the whole width.",
    own: &[
        Key::required("label", Kind::Text, "What it is called."),
        Key::required(
            "from",
            Kind::Text,
            "The entry, as a scenario names it: `cross_protect.toml#fig4a`, in a folder \
             `published/` beside or above this file.",
        ),
        Key::required(
            "number",
            Kind::Text,
            "The number in the entry: `weights[1]`, `standard.mean`.",
        ),
        Key::optional(
            "half",
            Kind::Text,
            "no interval",
            "The number in the entry that is half the width of its interval.",
        ),
        Key::defaulted(
            "times",
            Kind::Number { min: 1e-12, max: 1e12 },
            "1",
            "By what both are multiplied, for the unit of the measure.",
        ),
        Key::optional(
            "x",
            Kind::Foreign("a value of the axis `x`"),
            "a line over the whole width",
            "The value of the axis `x` that it was published for.",
        ),
        Key::optional(
            "curve",
            Kind::Text,
            "none: it has no row of the table",
            "The value of `curves` that it was published for.",
        ),
    ],
    parts: &[],
};

/// Every table, in the order of a reference.
pub static ALL: &[&Section] = &[&SWEEP, &VARY, &MAP, &CHART, &MARK];

/// The reference of sweeps as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let intro = "Every key that a `sweep.toml` can hold. Every point of the grid is checked before \
                 anything runs. How sweeps are run, on one machine and on many: \
                 [sweeps](sweeps.md).\n";
    evenkeel_settings::reference::markdown("Reference: sweep.toml", intro, ALL)
}

/// The JSON Schema (2020-12) of sweeps, as text.
#[must_use]
pub fn schema() -> String {
    evenkeel_settings::json_schema::document("sweep.toml", &SWEEP, &|_words| None)
}
