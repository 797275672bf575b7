//! A chart: the mean of a measure over seeds along one axis, a curve for each value of another,
//! beside published values.
//!
//! Intervals are 95 % after Student over the seeds, which are independent runs. They mean nothing
//! over runs that differ by more, so a sweep's further axes are looked at one value each.

mod draw;

use std::path::Path;

use evenkeel_report::confidence::Estimate;
use evenkeel_scenario::published_number;
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::read_settings;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::axis::{Axis, plain, value as value_of};
use crate::spec::{entries, not_pooled};
use crate::store::TaskResult;
use crate::tables::{ChartSection, MarkSection};

pub(crate) use draw::draw;

/// A chart, as the file asks for it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ChartSpec {
    /// Names its files.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// What the reader must know; may be empty.
    pub notes: String,
    /// The axis to the right.
    pub x: String,
    /// The axis with a curve for each value.
    pub curves: Option<String>,
    /// Those of its values that are drawn; empty: all.
    pub show: Vec<String>,
    /// The values of further axes at which it is drawn.
    #[serde(default)]
    pub at: Vec<(String, Value)>,
    /// Further axes whose values stand for chance.
    #[serde(default)]
    pub pooled: Vec<String>,
    /// The measure.
    pub value: String,
    /// What the vertical axis is called.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Where a logarithmic axis begins.
    pub low: Option<f64>,
    /// What was published.
    pub published: Vec<Mark>,
}

/// A published value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Mark {
    /// What it is called.
    pub label: String,
    /// The value of the axis `x` it was published for; a line over the whole width without.
    pub x: Option<Value>,
    /// The curve it was published for.
    pub curve: Option<String>,
    /// The value.
    pub value: f64,
    /// Half the width of its interval.
    pub half: Option<f64>,
}

/// One point of a curve.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// Which value of the axis `x`.
    pub(crate) place: usize,
    /// Each run's value.
    pub(crate) each: Vec<f64>,
    /// Their mean and its interval.
    pub(crate) mean: Estimate,
}

/// A curve: its name, and where it has results its points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

impl ChartSpec {
    /// Reads a `[[chart]]`; `folder` is that of the sweep's file, where published entries are
    /// looked for.
    pub(crate) fn read(
        reader: &mut Reader,
        table: &Fields,
        axes: &[Axis],
        measures: &[(String, String)],
        folder: &Path,
    ) -> Option<Self> {
        let (section, _sound) = read_settings::<ChartSection>(reader, table, &[]);
        let axis_names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        let measure_names: Vec<&str> = measures.iter().map(|(name, _)| name.as_str()).collect();
        let mut known = |key: &str, names: &[&str]| {
            let name = table.text(key)?;
            if !names.contains(&name) {
                let message = format!("no {name:?}; {}", suggest(name, names));
                reader.fail_at(table, key, message);
                return None;
            }
            Some(name.to_owned())
        };
        let (x, curves) = (known("x", &axis_names), known("curves", &axis_names));
        let value = known("value", &measure_names)?;
        let x = x?;
        let names_of = |name: &str| -> Vec<String> {
            let axis = axes.iter().find(|axis| axis.name == name);
            axis.into_iter().flat_map(|axis| axis.values.iter().map(plain)).collect()
        };
        let (xs, names) = (names_of(&x), curves.as_deref().map(names_of).unwrap_or_default());
        for (text, at) in table.texts("show") {
            if !names.iter().any(|name| name == text) {
                let valid: Vec<&str> = names.iter().map(String::as_str).collect();
                let message = format!("no curve {text:?}; {}", suggest(text, &valid));
                reader.fail(at, table.path_of("show"), message);
            }
        }
        let at = entries(reader, table, "at", |data| value_of(data).ok_or("a date is no value"));
        for (name, wanted) in &at {
            let words = names_of(name);
            if !words.contains(&plain(wanted)) {
                let message = if words.is_empty() {
                    suggest(name, &axis_names)
                } else {
                    format!("the axis has no such value; there are: {}", words.join(", "))
                };
                reader.fail_at(table, "at", format!("{name} = {}: {message}", plain(wanted)));
            }
        }
        for (name, place) in table.texts("pooled") {
            if !axis_names.contains(&name) {
                let message = format!("no {name:?}; {}", suggest(name, &axis_names));
                reader.fail(place, table.path_of("pooled"), message);
            }
        }
        let drawn = [Some(x.as_str()), curves.as_deref()].into_iter().flatten();
        let named: Vec<&str> = drawn
            .chain(at.iter().map(|(name, _)| name.as_str()))
            .chain(section.pooled.iter().map(String::as_str))
            .collect();
        let remedy = "give its value in `at`, or name it in `pooled` if it stands for chance";
        not_pooled(reader, table, "x", axes, &named, remedy);
        let published = table
            .tables("published")
            .filter_map(|mark| Mark::read(reader, mark, &xs, &names, folder))
            .collect();
        Some(Self {
            name: section.name,
            title: section.title,
            notes: section.notes,
            label: section.label.unwrap_or_else(|| value.clone()),
            x,
            curves,
            show: section.show,
            at,
            pooled: section.pooled,
            value,
            log: section.log,
            low: section.low,
            published,
        })
    }

    /// The curves of finished tasks.
    pub(crate) fn curves(
        &self,
        axes: &[Axis],
        measures: &[(String, String)],
        results: &[&TaskResult],
    ) -> Vec<Curve> {
        let axis = |name: &str| axes.iter().position(|axis| axis.name == name);
        let (Some(x), Some(measure)) =
            (axis(&self.x), measures.iter().position(|(name, _)| *name == self.value))
        else {
            return Vec::new();
        };
        let by = self.curves.as_deref().and_then(axis);
        let names: Vec<Option<&Value>> =
            by.map_or_else(|| vec![None], |by| axes[by].values.iter().map(Some).collect());
        let drawn = |name: &Option<&Value>| {
            self.show.is_empty() || name.is_some_and(|name| self.show.contains(&plain(name)))
        };
        let looked_at = |result: &&&TaskResult| {
            let is = |(name, value): &(String, Value)| {
                axis(name).is_none_or(|at| result.values.get(at) == Some(value))
            };
            self.at.iter().all(is)
        };
        let curve = |name: Option<&Value>| {
            let point = |place: usize| {
                let here = |result: &&&TaskResult| {
                    result.values.get(x) == axes[x].values.get(place)
                        && by.is_none_or(|by| result.values.get(by) == name)
                };
                let each: Vec<f64> = results
                    .iter()
                    .filter(looked_at)
                    .filter(here)
                    .filter_map(|result| result.measures.get(measure).copied().flatten())
                    .collect();
                Estimate::of(&each).map(|mean| Point { place, each, mean })
            };
            Curve {
                name: name.map(plain).unwrap_or_default(),
                points: (0..axes[x].values.len()).filter_map(point).collect(),
            }
        };
        names.into_iter().filter(drawn).map(curve).collect()
    }

    /// The table below the chart: heading first.
    pub(crate) fn rows(&self, axes: &[Axis], curves: &[Curve]) -> Vec<Vec<String>> {
        let label = |name: &str| {
            axes.iter().find(|axis| axis.name == name).map_or("", |axis| axis.label.as_str())
        };
        let Some(x) = axes.iter().find(|axis| axis.name == self.x) else { return Vec::new() };
        let chance: Vec<&str> = self.pooled.iter().map(|name| label(name)).collect();
        let runs = if chance.is_empty() {
            "runs: seeds".to_owned()
        } else {
            format!("runs: seeds and {}", chance.join(", "))
        };
        let by = self.curves.as_deref();
        let mut heading: Vec<String> = by.map(|by| label(by).to_owned()).into_iter().collect();
        heading.extend(
            [
                x.label.as_str(),
                "published",
                "here: mean and 95 % interval",
                "least to most of a run",
                runs.as_str(),
            ]
            .map(str::to_owned),
        );
        let mut rows = vec![heading];
        for curve in curves {
            for point in &curve.points {
                let here = &x.values[point.place];
                let matches = |mark: &&Mark| {
                    mark.x.as_ref().is_none_or(|x| x == here)
                        && (by.is_none() || mark.curve.as_ref() == Some(&curve.name))
                };
                let published: Vec<String> =
                    self.published.iter().filter(matches).map(Mark::words).collect();
                let least = point.each.iter().copied().fold(f64::INFINITY, f64::min);
                let most = point.each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let mut row: Vec<String> = by.map(|_| curve.name.clone()).into_iter().collect();
                row.extend([
                    plain(here),
                    if published.is_empty() { "–".to_owned() } else { published.join("; ") },
                    with_half(point.mean.mean, point.mean.half),
                    format!("{} to {}", digits(least), digits(most)),
                    point.mean.count.to_string(),
                ]);
                rows.push(row);
            }
        }
        rows
    }
}

impl Mark {
    fn read(
        reader: &mut Reader,
        table: &Fields,
        xs: &[String],
        curves: &[String],
        folder: &Path,
    ) -> Option<Self> {
        let (section, _sound) = read_settings::<MarkSection>(reader, table, &[]);
        let from = table.text("from")?;
        let mut number = |key: &str| match published_number(folder, from, table.text(key)?) {
            Ok(number) => Some(number * section.times),
            Err(error) => {
                reader.fail_at(table, key, error.to_string());
                None
            }
        };
        let (wanted, half) = (number("number"), number("half"));
        let x = table.foreign("x").map(|node| value_of(&node.data));
        if let Some(x) = &x
            && !x.as_ref().is_some_and(|x| xs.contains(&plain(x)))
        {
            let message = format!("no value of the axis; there are: {}", xs.join(", "));
            reader.fail_at(table, "x", message);
        }
        if let Some(curve) = section.curve.as_ref().filter(|curve| !curves.contains(curve)) {
            let message = format!("no curve {curve:?}; there are: {}", curves.join(", "));
            reader.fail_at(table, "curve", message);
        }
        Some(Self {
            label: section.label,
            x: x.flatten(),
            curve: section.curve,
            value: wanted?,
            half,
        })
    }

    fn words(&self) -> String {
        format!("{} ({})", with_half(self.value, self.half), self.label)
    }
}

/// `2.11 ± 0.21`: both with the decimals of the larger.
fn with_half(value: f64, half: Option<f64>) -> String {
    let Some(half) = half else { return digits(value) };
    let decimals = decimals(value.abs().max(half));
    format!("{} ± {}", short(value, decimals), short(half, decimals))
}

/// A number with as many decimals as say something.
fn digits(value: f64) -> String {
    short(value, decimals(value.abs()))
}

fn decimals(magnitude: f64) -> usize {
    match magnitude {
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.0995 || m == 0.0 => 2,
        _ => 4,
    }
}

/// Without zeros at the end.
fn short(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        assert_eq!(
            [0.0, 0.0012, 0.35, 1.25, 12.345, 2105.96].map(digits),
            ["0", "0.0012", "0.35", "1.25", "12.3", "2106"]
        );
        assert_eq!(with_half(3.89, Some(0.35)), "3.89 ± 0.35");
        assert_eq!(with_half(0.89, Some(0.0482)), "0.89 ± 0.05");
        assert_eq!(with_half(0.0, Some(0.0)), "0 ± 0");
    }
}
