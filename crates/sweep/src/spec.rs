//! A `sweep.toml` and its grid.

use std::path::Path;

use evenkeel_config::parse::read_file;
use evenkeel_core::settings::Settings as _;
use evenkeel_core::settings::quantity::time_text;
use evenkeel_scenario::Scenario;
use evenkeel_settings::read::{Fields, Reader, parse_toml, suggest};
use evenkeel_settings::tree::{Data, SpannedValue};
use evenkeel_settings::{Diagnostics, read_settings};
use toml::{Table, Value};

use crate::GridError;
use crate::axis::{Axis, plain, value};
use crate::chart::ChartSpec;
use crate::path;
use crate::tables::{AxisSection, MapSpec, SweepSection};

/// Most tasks of a sweep: beyond, a mistake is more likely than a wish.
const MOST_TASKS: usize = 1_000_000;

/// A sweep, read and checked.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Its name.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// What the reader must know; may be empty.
    pub notes: String,
    /// The axes; the last varies fastest.
    pub axes: Vec<Axis>,
    /// The seeds of each point.
    pub seeds: Vec<u64>,
    /// Names and expressions of what is measured.
    pub measures: Vec<(String, String)>,
    /// The map to draw.
    pub map: Option<MapSpec>,
    /// The charts to draw.
    pub charts: Vec<ChartSpec>,
    base: Table,
    fixed: Vec<(String, Value)>,
    folder: std::path::PathBuf,
    file: String,
}

/// One run: a point of the grid with a seed.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its number, from 0.
    pub index: usize,
    /// The value of each axis.
    pub values: Vec<Value>,
    /// The seed.
    pub seed: u64,
    /// The whole scenario, as text.
    pub(crate) text: String,
    /// Stands for everything the result depends on.
    pub(crate) hash: u64,
}

impl Sweep {
    /// Reads a file and checks every point of its grid.
    ///
    /// # Errors
    /// All that is wrong with it, or with the first point that makes no valid scenario.
    pub fn load(file: &Path) -> Result<Self, Diagnostics> {
        let text = read_file(file)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &file.display().to_string(), folder)
    }

    /// Checks a text and every point of its grid; `name` is what errors call the file, and what it
    /// names is looked for from `folder`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Self, Diagnostics> {
        let (table, mut reader) = parse_toml(text, name);
        let fields = reader.table(SweepSection::SECTION, &table, 0..0, "");
        let sweep = read(&mut reader, &fields, folder, name.to_owned());
        if let Some(sweep) = sweep.as_ref().filter(|_| reader.is_clean_in(&[])) {
            sweep.check(&mut reader, &fields);
        }
        reader.finish(sweep)
    }

    /// How many tasks there are.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.points() * self.seeds.len()
    }

    fn points(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// The task with this number.
    ///
    /// # Errors
    /// A path leads nowhere.
    pub fn task(&self, index: usize) -> Result<Task, GridError> {
        let seed = self.seeds[index % self.seeds.len()];
        let mut rest = index / self.seeds.len();
        let mut places = Vec::new();
        for axis in self.axes.iter().rev() {
            places.push(rest % axis.values.len());
            rest /= axis.values.len();
        }
        places.reverse();
        let values: Vec<Value> = self
            .axes
            .iter()
            .zip(&places)
            .map(|(axis, place)| axis.values[*place].clone())
            .collect();
        let mut table = self.base.clone();
        for key in ["expect", "without", "published"] {
            table.remove(key);
        }
        for (path, value) in &self.fixed {
            path::put(&mut table, path, value.clone())?;
        }
        for ((axis, value), place) in self.axes.iter().zip(&values).zip(&places) {
            for path in &axis.set {
                path::put(&mut table, path, value.clone())?;
            }
            for (path, value) in axis.put.get(*place).into_iter().flatten() {
                path::put(&mut table, path, value.clone())?;
            }
        }
        let seed_value = i64::try_from(seed).map_err(|_large| GridError::Seed(seed))?;
        table.insert("seed".to_owned(), Value::Integer(seed_value));
        let mut measures = Vec::new();
        for (name, expression) in &self.measures {
            let expression = self.with_values(expression, &values)?;
            let mut expect = Table::new();
            expect.insert("name".to_owned(), Value::String(name.clone()));
            expect.insert("claim".to_owned(), Value::String(name.clone()));
            expect.insert("that".to_owned(), Value::String(format!("{expression} >= 0")));
            measures.push(Value::Table(expect));
        }
        table.insert("expect".to_owned(), Value::Array(measures));
        let text = table.to_string();
        let hash = fnv(&[env!("CARGO_PKG_VERSION"), &text]);
        Ok(Task { index, values, seed, text, hash })
    }

    /// An expression with `{axis}` replaced by the axis' value.
    fn with_values(&self, expression: &str, values: &[Value]) -> Result<String, GridError> {
        let mut out = String::new();
        let mut rest = expression;
        while let Some((before, inside)) = rest.split_once('{') {
            let (name, after) =
                inside.split_once('}').ok_or_else(|| GridError::NoBrace(expression.to_owned()))?;
            let value = self.axes.iter().zip(values).find(|(axis, _)| axis.name == name);
            let Some((_, value)) = value else {
                let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
                let (expression, axis) = (expression.to_owned(), name.to_owned());
                return Err(GridError::NoAxis { expression, axis, known: suggest(name, &names) });
            };
            out.push_str(before);
            out.push_str(&plain(value));
            rest = after;
        }
        Ok(out + rest)
    }

    /// The scenario of a task.
    ///
    /// # Errors
    /// What is wrong with it, and at which point of the grid.
    pub fn scenario(&self, task: &Task) -> Result<Scenario, GridError> {
        Scenario::parse(&task.text, &self.file, &self.folder)
            .map_err(|errors| GridError::Point { point: self.words(task), errors })
    }

    /// `ring 4, limit 50, seed 1`.
    #[must_use]
    pub fn words(&self, task: &Task) -> String {
        let each = self.axes.iter().zip(&task.values);
        let mut words: Vec<String> =
            each.map(|(axis, value)| format!("{} {}", axis.name, plain(value))).collect();
        words.push(format!("seed {}", task.seed));
        words.join(", ")
    }

    /// Every point makes a valid scenario. Told is the first that does not.
    fn check(&self, reader: &mut Reader, fields: &Fields) {
        if self.tasks() > MOST_TASKS {
            let message = format!("{} tasks; valid: up to {MOST_TASKS}", self.tasks());
            return reader.fail(&fields.span("vary"), "vary", message);
        }
        for point in 0..self.points() {
            let made =
                self.task(point * self.seeds.len()).and_then(|task| self.scenario(&task).map(drop));
            if let Err(error) = made {
                return reader.fail(&fields.span("vary"), "vary", error.to_string());
            }
        }
    }
}

fn read(reader: &mut Reader, fields: &Fields, folder: &Path, name: String) -> Option<Sweep> {
    let (section, _sound) = read_settings::<SweepSection>(reader, fields, &[]);
    let scenario = folder.join(fields.text("scenario")?);
    let base = match read_file(&scenario).map(|text| text.parse::<Table>()) {
        Ok(Ok(table)) => table,
        Ok(Err(error)) => {
            let message = format!("{}: {}", scenario.display(), error.message());
            reader.fail_at(fields, "scenario", message);
            return None;
        }
        Err(errors) => {
            reader.fail_at(fields, "scenario", errors.to_string());
            return None;
        }
    };
    let axes: Vec<Axis> = fields.tables("vary").filter_map(|vary| axis(reader, vary)).collect();
    let mut fixed =
        entries(reader, fields, "fixed", |data| value(data).ok_or("a date is no value"));
    fixed.extend(section.duration.map(|d| ("duration".to_owned(), Value::String(time_text(d)))));
    let measures = entries(reader, fields, "measure", |data| {
        data.as_text().map(str::to_owned).ok_or("expected an expression in quotes")
    });
    if fields.list("seeds").is_empty() {
        // The reader has told why.
        return None;
    }
    let map = fields.table("map").and_then(|table| map(reader, table, &axes, &measures));
    let charts = fields
        .tables("chart")
        .filter_map(|table| ChartSpec::read(reader, table, &axes, &measures, folder))
        .collect();
    Some(Sweep {
        name: section.name,
        title: section.title,
        notes: section.notes,
        axes,
        seeds: section.seeds,
        measures,
        map,
        charts,
        base,
        fixed,
        // Files that the scenario names are beside it.
        folder: scenario.parent().unwrap_or(Path::new("")).to_owned(),
        file: name,
    })
}

fn axis(reader: &mut Reader, vary: &Fields) -> Option<Axis> {
    let (section, _sound) = read_settings::<AxisSection>(reader, vary, &[]);
    let node = vary.foreign("values")?;
    let values = match &node.data {
        Data::List(items) => items.iter().map(|item| value(&item.data)).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let Some(values) = values.filter(|values| !values.is_empty()) else {
        let message = "expected a list of one value or more, as in the scenario";
        reader.fail_at(vary, "values", message);
        return None;
    };
    let put = match vary.foreign("put") {
        Some(node) => puts(reader, vary, node, values.len())?,
        None => Vec::new(),
    };
    let name = vary.text("name")?.to_owned();
    let label = section.label.unwrap_or_else(|| name.clone());
    Some(Axis { label, name, set: section.set, values, put })
}

/// What each of so many values puts.
fn puts(
    reader: &mut Reader,
    vary: &Fields,
    node: &SpannedValue,
    values: usize,
) -> Option<Vec<Vec<(String, Value)>>> {
    let table = |item: &SpannedValue| match &item.data {
        Data::Table(table) => table
            .entries
            .iter()
            .map(|entry| Some((entry.name.clone(), value(&entry.value.data)?)))
            .collect(),
        _ => None,
    };
    let each: Option<Vec<_>> = match &node.data {
        Data::List(items) if items.len() == values => items.iter().map(table).collect(),
        _ => None,
    };
    if each.is_none() {
        let message = format!(
            "expected a list of {values} tables, one for each value: paths in quotes, and values"
        );
        reader.fail_at(vary, "put", message);
    }
    each
}

/// A mean over runs of different values of an axis, with an interval, would mean nothing: each axis
/// with several values is among those `named`, or the drawing is refused.
pub(crate) fn not_pooled(
    reader: &mut Reader,
    table: &Fields,
    key: &str,
    axes: &[Axis],
    named: &[&str],
    remedy: &str,
) {
    let pooled = |axis: &&Axis| axis.values.len() > 1 && !named.contains(&axis.name.as_str());
    for Axis { name, values, .. } in axes.iter().filter(pooled) {
        let count = values.len();
        let message = format!("would pool the {count} values of the axis {name:?}: {remedy}");
        reader.fail_at(table, key, message);
    }
}

/// The entries of a table that the sections do not know.
pub(crate) fn entries<T>(
    reader: &mut Reader,
    fields: &Fields,
    key: &str,
    read: impl Fn(&Data) -> Result<T, &'static str>,
) -> Vec<(String, T)> {
    let Some(node) = fields.foreign(key) else { return Vec::new() };
    let SpannedValue { data: Data::Table(table), .. } = node else {
        reader.fail(&node.at, key, "expected a table");
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in &table.entries {
        match read(&entry.value.data) {
            Ok(value) => found.push((entry.name.clone(), value)),
            Err(message) => reader.fail(&entry.at, format!("{key}.{}", entry.name), message),
        }
    }
    found
}

fn map(
    reader: &mut Reader,
    table: &Fields,
    axes: &[Axis],
    measures: &[(String, String)],
) -> Option<MapSpec> {
    let (section, sound) = read_settings::<MapSpec>(reader, table, &[]);
    let axis_names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
    let measure_names: Vec<&str> = measures.iter().map(|(name, _)| name.as_str()).collect();
    for (key, names) in [
        ("x", &axis_names),
        ("y", &axis_names),
        ("panels", &axis_names),
        ("value", &measure_names),
        ("line", &measure_names),
    ] {
        if let Some(name) = table.text(key).filter(|name| !names.contains(name)) {
            reader.fail_at(table, key, format!("no {name:?}; {}", suggest(name, names)));
        }
    }
    let named = [Some(section.x.as_str()), Some(section.y.as_str()), section.panels.as_deref()];
    let named: Vec<&str> = named.into_iter().flatten().collect();
    not_pooled(reader, table, "x", axes, &named, "name it as `x`, `y` or `panels`");
    let label = section.label.clone().or_else(|| Some(section.value.clone()));
    sound.then_some(MapSpec { label, ..section })
}

/// FNV-1a, 64 bits: tells whether something changed, no more.
pub(crate) fn fnv(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
