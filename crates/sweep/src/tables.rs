//! The keys of a `sweep.toml`.

use evenkeel_core::Nanos;
use evenkeel_core::settings;
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Kind, Section};
use serde::{Deserialize, Serialize};

/// The name of an axis, a measure or a chart.
const NAME: Kind = Kind::Name(40);
/// The longest run, in nanoseconds.
const LONGEST: u64 = 24 * 3_600 * Nanos::SECOND.0;
const VALUES: Kind = Kind::Foreign("a list of values as in the scenario");
const PUT: Kind = Kind::Foreign("a list of tables: paths in the scenario and their values");

settings! {
    /// A scenario over a grid of parameters and seeds. Expectations and `without` entries of the
    /// scenario are left out; what is measured is said here.
    pub(crate) struct SweepSection: "sweep.toml" {
        /// Its name, path-like.
        stated name: String = String::new(), is required;
        /// One line for headings.
        stated title: String = String::new(), is required;
        /// What the reader of the results must know.
        stated notes: String = String::new();
        /// The scenario to vary, relative to this file.
        stated scenario: String = String::new(), written Kind::Path, is required;
        /// The seeds each point is run with.
        stated seeds: Vec<u64> = vec![1];
        /// How long each run lasts.
        stated duration: Option<Nanos> = None, in 100_000_000..=LONGEST, absent "the scenario's";
        /// What differs from the scenario in every run: paths in quotes, as in `vary.set`, and
        /// values as in the scenario. `step = []` takes all steps away.
        stated fixed: Option<String> = None,
            written Kind::Foreign("a table: paths in the scenario and their values"),
            absent "nothing";
        /// The axes of the grid; the last varies fastest, seeds faster still.
        stated axes as vary: Vec<AxisSection> = Vec::new(), in 1..=10, is required;
        /// Numbers formed of each run: expressions as in a scenario's `that`, without a comparison;
        /// `{ring}` stands for the value of the axis `ring`.
        stated measures as measure: Option<String> = None,
            written Kind::Foreign("a table: names and expressions"),
            absent "nothing but the rows of every class";
        /// A heat map of a measure.
        stated map: Option<MapSpec> = None, absent "no map is drawn";
        /// Curves of a measure with 95 % intervals over seeds, and a table beside published values.
        stated charts as chart: Vec<ChartSection> = Vec::new(), in 0..=20,
            absent "no chart is drawn";
    }
}

settings! {
    /// An axis of the grid.
    pub(crate) struct AxisSection: "[[vary]]" {
        /// Its name: a column of the results, and in braces its value in expressions.
        stated name: String = String::new(), written NAME, is required;
        /// What figures call it.
        stated label: Option<String> = None, absent "its name";
        /// What it sets: a path of keys in the scenario, `[name]` choosing from a list by name, by
        /// port or by ends: `router[r1].config.link[sink].ring.slots`, `wire[r1/sink].delay`.
        /// Several paths get the same value.
        stated set: Vec<String> = Vec::new(), absent "nothing";
        /// Its values, as in the scenario; with `put`, or where only what is measured differs, any
        /// names or numbers.
        stated values: Option<String> = None, written VALUES, is required;
        /// What each value stands for: a table for each, of paths in quotes, as in `set`, and
        /// values as in the scenario.
        stated put: Option<String> = None, written PUT, absent "nothing";
    }
}

settings! {
    /// A heat map of the mean over seeds.
    #[derive(Deserialize, Serialize)]
    pub struct MapSpec: "[map]" {
        /// The axis that runs to the right.
        stated x: String = String::new(), written NAME, is required;
        /// The axis that runs up.
        stated y: String = String::new(), written NAME, is required;
        /// The axis with a panel for each value.
        stated panels: Option<String> = None, written NAME, absent "one panel";
        /// The measure that is drawn.
        stated value: String = String::new(), written NAME, is required;
        /// What the drawing calls it.
        stated label: Option<String> = None, absent "the measure's name";
        /// The value at the light end of the colours.
        stated low: f64 = 0.0, between -1e12..=1e12;
        /// The value at the dark end.
        stated high: f64 = 1.0, between -1e12..=1e12;
        /// A measure that gives, for each x, a height on the y axis: drawn as a line.
        stated line: Option<String> = None, written NAME, absent "no line";
        /// What the drawing calls the line.
        stated line_label: String = String::new();
    }
}

settings! {
    /// A curve of a measure for each value of an axis, with the mean over seeds, its 95 % interval
    /// after Student, and each seed as a dot.
    pub(crate) struct ChartSection: "[[chart]]" {
        /// Names the files: `chart-NAME.svg`, `chart-NAME.html`.
        stated name: String = String::new(), written NAME, is required;
        /// One line for headings.
        stated title: String = String::new(), is required;
        /// What the reader must know, besides the sweep's notes.
        stated notes: String = String::new();
        /// The axis that runs to the right: at its place if all its values are numbers, else side
        /// by side.
        stated x: String = String::new(), written NAME, is required;
        /// The axis with a curve for each value.
        stated curves: Option<String> = None, written NAME, absent "one curve";
        /// The values of `curves` that are drawn.
        stated show: Vec<String> = Vec::new(), absent "all of them";
        /// The value at which each further axis of several values is looked at: a chart shows no
        /// mean over an axis that it does not name.
        stated at: Option<String> = None,
            written Kind::Foreign("a table: further axes and their values"),
            absent "no further axis";
        /// Further axes whose values stand for chance, as seeds do: their runs are taken together,
        /// and the table says so.
        stated pooled: Vec<String> = Vec::new(), absent "none";
        /// The measure that is drawn.
        stated value: String = String::new(), written NAME, is required;
        /// What the vertical axis is called, with the unit.
        stated label: Option<String> = None, absent "the measure's name";
        /// Whether the vertical axis is logarithmic. What is 0 is drawn at its foot.
        stated log: bool = false;
        /// Where a logarithmic axis begins: the resolution of what is measured.
        stated low: Option<f64> = None, between 1e-12..=1e12, absent "the smallest value";
        /// Published values, drawn beside the curves and listed in the table.
        stated published: Vec<MarkSection> = Vec::new(), in 0..=20, absent "nothing";
    }
}

settings! {
    /// A published value: a point where it has an `x`, else a line over the whole width.
    pub(crate) struct MarkSection: "[[chart.published]]" {
        /// What it is called.
        stated label: String = String::new(), is required;
        /// The entry, as a scenario names it: `cross_protect.toml#fig4a`, in a folder `published/`
        /// beside or above this file.
        stated from: String = String::new(), is required;
        /// The number in the entry: `weights[1]`, `standard.mean`.
        stated number: String = String::new(), is required;
        /// The number in the entry that is half the width of its interval.
        stated half: Option<String> = None, absent "no interval";
        /// By what both are multiplied, for the unit of the measure.
        stated times: f64 = 1.0, between 1e-12..=1e12;
        /// The value of the axis `x` that it was published for.
        stated x: Option<String> = None, written Kind::Foreign("a value of the axis `x`"),
            absent "a line over the whole width";
        /// The value of `curves` that it was published for.
        stated curve: Option<String> = None, absent "none: it has no row of the table";
    }
}

/// Every table, in the order of a reference.
pub static ALL: &[&Section] = &[
    SweepSection::SECTION,
    AxisSection::SECTION,
    MapSpec::SECTION,
    ChartSection::SECTION,
    MarkSection::SECTION,
];

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
    evenkeel_settings::json_schema::document("sweep.toml", SweepSection::SECTION, &|_words| None)
}
