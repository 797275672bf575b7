//! Tasks' files of one or several folders put together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_report::columns::{Columns, Values};
use evenkeel_report::html::figure_page;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::axis::{Axis, number, plain};
use crate::store::{self, Manifest, Row, TaskResult};
use crate::{SweepError, chart, map};

/// The drawings of a sweep, for pages over several.
const DRAWINGS: &str = "drawings.json";

/// Result of a merge.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Files written.
    pub files: Vec<PathBuf>,
    /// Tasks of the sweep.
    pub tasks: usize,
    /// Numbers of those that are not there, from 0.
    pub missing: Vec<usize>,
    /// What `results.csv` holds, unrounded.
    pub results: Columns,
    /// What `measures.csv` holds, unrounded.
    pub measures: Columns,
}

/// Puts the results in `folders` together: `results.csv`/`.parquet` (a row for each task, step,
/// link and class), `measures.csv`/`.parquet` (a row for each task) and, if the sweep has them,
/// `map.svg` and `map.html`, `chart-NAME.svg` and `chart-NAME.html`, into `out`. Tasks that are
/// there twice count once.
///
/// # Errors
/// A folder is no sweep's, the folders are of different sweeps, or a file cannot be written.
pub fn merge(folders: &[PathBuf], out: &Path) -> Result<Merged, SweepError> {
    let mut manifest: Option<Manifest> = None;
    let mut found: BTreeMap<usize, TaskResult> = BTreeMap::new();
    for folder in folders {
        let this = Manifest::read(folder)?;
        if let Some(first) = manifest.as_ref().filter(|first| first.identity() != this.identity()) {
            let what = |sweep: &Manifest| (sweep.name.clone(), sweep.tasks.len());
            return Err(SweepError::DifferentSweeps {
                folders: [folders[0].clone(), folder.clone()],
                sweeps: [what(first), what(&this)],
            });
        }
        for (index, name) in this.tasks.iter().enumerate() {
            if !found.contains_key(&index)
                && let Some(result) = store::read(&folder.join(store::TASKS).join(name))
            {
                found.insert(index, result);
            }
        }
        manifest = Some(this);
    }
    let Some(manifest) = manifest else {
        return Err(SweepError::NoFolder);
    };
    fs::create_dir_all(out).map_err(|source| SweepError::Write { path: out.to_owned(), source })?;
    let results: Vec<&TaskResult> = found.values().collect();
    let mut files = Vec::new();
    let mut put = |name: &str, bytes: &[u8]| {
        let path = out.join(name);
        store::write_bytes(&path, bytes)?;
        files.push(path);
        Ok::<_, SweepError>(())
    };
    let (rows, measures) = (rows(&manifest, &results), measures(&manifest, &results));
    for (name, table) in [("results", &rows), ("measures", &measures)] {
        let mut csv = Vec::new();
        table.write_csv(&mut csv).expect("writing to memory does not fail");
        put(&format!("{name}.csv"), &csv)?;
        put(&format!("{name}.parquet"), &table.to_parquet())?;
    }
    let drawn = draw(&manifest, &results);
    for (file, Drawn { title, notes, svg, rows, .. }) in &drawn {
        put(&format!("{file}.svg"), svg.as_bytes())?;
        put(&format!("{file}.html"), figure_page(title, notes, file, svg, rows).as_bytes())?;
    }
    if !drawn.is_empty() {
        let drawn: Vec<&Drawn> = drawn.iter().map(|(_, drawn)| drawn).collect();
        store::write(&out.join(DRAWINGS), &drawn)?;
    }
    let missing = (0..manifest.tasks.len()).filter(|index| !found.contains_key(index)).collect();
    Ok(Merged { files, tasks: manifest.tasks.len(), missing, results: rows, measures })
}

/// A map or a chart that was drawn.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Drawn {
    /// The sweep's name, followed by the chart's.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What the reader must know.
    pub notes: String,
    /// The drawing.
    pub svg: String,
    /// The table below it, its heading first; may be empty.
    pub rows: Vec<Vec<String>>,
}

/// The drawings of a sweep: what each's files are called, and the drawing.
fn draw(manifest: &Manifest, results: &[&TaskResult]) -> Vec<(String, Drawn)> {
    let Manifest { name, title, notes, axes, measures, .. } = manifest;
    let map = manifest.map.iter().map(|spec| {
        let svg = map::draw(axes, measures, spec, results);
        let (name, title, notes) = (name.clone(), title.clone(), notes.clone());
        ("map".to_owned(), Drawn { name, title, notes, svg, rows: Vec::new() })
    });
    let charts = manifest.charts.iter().map(|spec| {
        let curves = spec.curves(axes, measures, results);
        let both: Vec<&str> =
            [spec.notes.trim(), notes.trim()].into_iter().filter(|text| !text.is_empty()).collect();
        let drawn = Drawn {
            name: format!("{name}-{}", spec.name),
            title: spec.title.clone(),
            notes: both.join("\n\n"),
            svg: chart::draw(axes, spec, &curves),
            rows: spec.rows(axes, &curves),
        };
        (format!("chart-{}", spec.name), drawn)
    });
    map.chain(charts).collect()
}

/// The maps and charts of merged sweeps in or below `folder`, in order of their paths.
///
/// # Errors
/// A folder or a sweep in it cannot be read.
pub fn drawings(folder: &Path) -> Result<Vec<Drawn>, SweepError> {
    let unreadable = |path: &Path, what: String| SweepError::Read { path: path.to_owned(), what };
    let mut drawings = Vec::new();
    let file = folder.join(DRAWINGS);
    if let (true, Ok(text)) = (folder.join(store::MANIFEST).is_file(), fs::read(&file)) {
        let drawn: Vec<Drawn> =
            serde_json::from_slice(&text).map_err(|error| unreadable(&file, error.to_string()))?;
        drawings.extend(drawn);
    }
    let mut below = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error.to_string()))? {
        let entry = entry.map_err(|error| unreadable(folder, error.to_string()))?;
        let kind = entry.file_type().map_err(|error| unreadable(folder, error.to_string()))?;
        if kind.is_dir() && entry.file_name() != store::TASKS {
            below.push(entry.path());
        }
    }
    below.sort();
    for folder in below {
        drawings.extend(self::drawings(&folder)?);
    }
    Ok(drawings)
}

/// The columns that say which task a row is of. `each` gives the task of every row.
fn key(axes: &[Axis], each: &[&TaskResult]) -> Columns {
    let mut table = Columns::default();
    table.count("task", each.iter().map(|result| Some(result.index as u64)));
    for (at, axis) in axes.iter().enumerate() {
        table.push(axis.name.as_str(), column(each.iter().map(|result| result.values.get(at))));
    }
    table.count("seed", each.iter().map(|result| Some(result.seed)));
    table
}

/// Whole numbers, numbers, or texts, as the values are.
fn column<'v>(values: impl Iterator<Item = Option<&'v Value>>) -> Values {
    let values: Vec<Option<&Value>> = values.collect();
    let known = || values.iter().flatten();
    if known().all(|value| value.is_integer()) {
        return Values::Whole(
            values.iter().map(|value| value.and_then(Value::as_integer)).collect(),
        );
    }
    if known().all(|value| value.is_integer() || value.is_float()) {
        return Values::Number(values.iter().map(|value| value.and_then(number)).collect());
    }
    Values::Text(values.iter().map(|value| value.map(plain)).collect())
}

fn rows(manifest: &Manifest, results: &[&TaskResult]) -> Columns {
    let rows: Vec<(&TaskResult, &Row)> = results
        .iter()
        .flat_map(|result| result.rows.iter().map(move |row| (*result, row)))
        .collect();
    let tasks: Vec<&TaskResult> = rows.iter().map(|(result, _)| *result).collect();
    let mut table = key(&manifest.axes, &tasks);
    let each = || rows.iter().map(|(_, row)| *row);
    table.text("step", each().map(|row| row.step.as_str()));
    table.text("router", each().map(|row| row.router.as_str()));
    table.text("link", each().map(|row| row.link.as_str()));
    table.text("class", each().map(|row| row.class.as_str()));
    table.number("offered_per_s", each().map(|row| row.offered));
    table.number("sent_per_s", each().map(|row| Some(row.sent)));
    table.number("dropped_per_s", each().map(|row| Some(row.dropped)));
    table.number("qlen", each().map(|row| Some(row.qlen)));
    table.number("goodput_bit_per_s", each().map(|row| row.goodput));
    for (at, name) in
        ["delay_mean_us", "delay_p50_us", "delay_p99_us", "delay_max_us"].into_iter().enumerate()
    {
        table.number(name, each().map(|row| row.delay.map(|delay| delay[at])));
    }
    for (at, name) in ["calls_none", "calls_one", "calls_many"].into_iter().enumerate() {
        table.number(name, each().map(|row| row.calls.map(|calls| calls[at])));
    }
    table
}

fn measures(manifest: &Manifest, results: &[&TaskResult]) -> Columns {
    let mut table = key(&manifest.axes, results);
    for (at, (name, _)) in manifest.measures.iter().enumerate() {
        table.number(name, results.iter().map(|result| result.measures.get(at).copied().flatten()));
    }
    table
}
