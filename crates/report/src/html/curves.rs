//! Curves of one quantity over another: panels as of a run, with an axis of their own.

use super::chart::{Canvas, Line, Scale};
use super::download::{LegendEntry, picture};
use super::figure_page;
use super::panels::legend;

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 300.0;

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name. Curves of the same name have the same colour in all plots of a page.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// One panel. Both axes begin at zero.
#[derive(Clone, Debug)]
pub struct Plot<'a> {
    /// What is drawn.
    pub title: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// The name and unit of the horizontal axis.
    pub axis: &'a str,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A page with plots below each other; `notes` is plain text, `name` the file that the drawing is
/// saved as.
#[must_use]
pub fn curves_page(title: &str, notes: &str, name: &str, plots: &[Plot<'_>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for curve in plots.iter().flat_map(|plot| &plot.curves) {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    let panels: String = plots.iter().map(|plot| panel(plot, &names)).collect();
    let entries: Vec<LegendEntry> = legend(&names);
    figure_page(title, notes, name, &picture(&panels, 1, &entries), &[])
}

fn panel(plot: &Plot<'_>, names: &[&str]) -> String {
    let points = || plot.curves.iter().flat_map(|curve| &curve.points);
    let right = points().map(|point| point.0).fold(0.0, f64::max);
    let scale = Scale::linear(points().map(|point| point.1).fold(0.0, f64::max));
    let lines: Vec<Line> = plot
        .curves
        .iter()
        .map(|curve| Line {
            index: names.iter().position(|name| *name == curve.name).unwrap_or(0),
            points: curve.points.iter().map(|(x, y)| (*x, Some(*y))).collect(),
        })
        .collect();
    let canvas = Canvas {
        width: WIDTH,
        height: HEIGHT,
        duration_s: if right > 0.0 { right } else { 1.0 },
        settle_s: 0.0,
        steps: &[],
        axis: Some(plot.axis),
    };
    canvas.lines(plot.title, plot.unit, &scale, &lines, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_of_a_name_look_alike_and_axes_are_named() {
        let curve =
            |name: &str| Curve { name: name.to_owned(), points: vec![(0.0, 1.0), (10.0, 2.0)] };
        let plots = [
            Plot {
                title: "A",
                unit: "kpps",
                axis: "offered",
                curves: vec![curve("x"), curve("y")],
            },
            Plot { title: "B", unit: "us", axis: "load", curves: vec![curve("y")] },
        ];
        let page = curves_page("T", "two\nlines", "file", &plots);
        // Each once more in the legend.
        assert_eq!(page.matches("class=\"line l0\"").count(), 1 + 1);
        assert_eq!(page.matches("class=\"line l1\"").count(), 2 + 1);
        assert!(page.contains(">offered</text>") && page.contains(">load</text>"));
        assert!(!page.contains("time, s"));
    }
}
