//! A heat map of a measure over two axes, a panel for each value of a third.

use std::fmt::Write as _;

use evenkeel_report::html::escaped;
use toml::Value;

use crate::axis::{Axis, number, plain};
use crate::store::TaskResult;
use crate::tables::MapSpec;

/// Size of a cell.
const CELL: (f64, f64) = (38.0, 22.0);
/// Room left of a panel's cells, for the values of y.
const LEFT: f64 = 42.0;
/// Between panels.
const GAP: f64 = 22.0;
/// Room above and below the cells.
const TOP: f64 = 78.0;
const BOTTOM: f64 = 44.0;
/// From the light to the dark end: red, green, blue.
const STOPS: [[f64; 3]; 4] =
    [[247.0, 247.0, 242.0], [171.0, 212.0, 214.0], [58.0, 138.0, 177.0], [13.0, 59.0, 102.0]];
/// Steps of the bar that explains the colours.
const BAR: usize = 60;

/// The map as SVG. Points without results stay empty.
pub(crate) fn draw(
    axes: &[Axis],
    measures: &[(String, String)],
    spec: &MapSpec,
    results: &[&TaskResult],
) -> String {
    let axis = |name: &str| axes.iter().position(|axis| axis.name == name);
    let (Some(x), Some(y)) = (axis(&spec.x), axis(&spec.y)) else { return String::new() };
    let panels = spec.panels.as_deref().and_then(axis);
    let measure = |name: &str| measures.iter().position(|(known, _)| known == name);
    let Some(value) = measure(&spec.value) else { return String::new() };
    let line = spec.line.as_deref().and_then(measure);

    let panel_values: Vec<Option<&Value>> =
        panels.map_or_else(|| vec![None], |at| axes[at].values.iter().map(Some).collect());
    let (columns, rows) = (axes[x].values.len(), axes[y].values.len());
    let (wide, tall) = (columns as f64 * CELL.0, rows as f64 * CELL.1);
    let width = LEFT
        + 14.0
        + panel_values.len() as f64 * (wide + GAP)
        + (panel_values.len() - 1) as f64 * LEFT;
    let height = TOP + tall + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"map\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#ffffff\"/>\n",
        escaped(label(spec))
    );
    legend(&mut svg, spec, line.is_some());
    let mean = |measure: usize, here: &dyn Fn(&TaskResult) -> bool| {
        let values: Vec<f64> = results
            .iter()
            .filter(|result| here(result))
            .filter_map(|result| result.measures.get(measure).copied().flatten())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    for (number_of_panel, panel) in panel_values.iter().enumerate() {
        let left = LEFT + 14.0 + number_of_panel as f64 * (wide + GAP + LEFT);
        let here = |result: &TaskResult, of_x: usize, of_y: Option<usize>| {
            result.values.get(x) == axes[x].values.get(of_x)
                && of_y.is_none_or(|of_y| result.values.get(y) == axes[y].values.get(of_y))
                && panels.is_none_or(|at| result.values.get(at) == *panel)
        };
        if let (Some(at), Some(value)) = (panels, panel) {
            let _ = write!(
                svg,
                "<text class=\"panel\" x=\"{left}\" y=\"{:.0}\">{} {}</text>",
                TOP - 8.0,
                escaped(&axes[at].label),
                escaped(&plain(value))
            );
        }
        for of_x in 0..columns {
            for of_y in 0..rows {
                let at = (left + of_x as f64 * CELL.0, TOP + (rows - 1 - of_y) as f64 * CELL.1);
                let value = mean(value, &|result| here(result, of_x, Some(of_y)));
                cell(&mut svg, at, value, spec);
            }
        }
        ticks(&mut svg, left, &axes[x], &axes[y], number_of_panel == 0);
        if let Some(line) = line {
            let heights: Vec<Option<f64>> =
                (0..columns).map(|of_x| mean(line, &|result| here(result, of_x, None))).collect();
            rule(&mut svg, left, &heights, &axes[y]);
        }
    }
    svg + "\n</svg>\n"
}

/// Every rule is of this drawing alone: pages and other drawings have their own.
const STYLE: &str = "\
.map text { font-family: Helvetica, Arial, \"Liberation Sans\", sans-serif; font-size: 11px; fill: \
#444444; } \
.map .panel { font-size: 12.5px; font-weight: 650; fill: #1b1d21; } \
.map .cell { font-size: 10px; text-anchor: middle; } .map .dark { fill: #ffffff; } .map .light { \
fill: #1b1d21; } \
.map .rule { fill: none; stroke: #c23b00; stroke-width: 2.6; stroke-linejoin: round; } \
.map .halo { fill: none; stroke: #ffffff; stroke-width: 5; stroke-linejoin: round; stroke-opacity: \
.8; }";

/// Where a value lies between the ends of the colours, 0 to 1.
/// What the drawing calls the measure.
fn label(spec: &MapSpec) -> &str {
    spec.label.as_deref().unwrap_or(&spec.value)
}

fn place(value: f64, spec: &MapSpec) -> f64 {
    ((value - spec.low) / (spec.high - spec.low)).clamp(0.0, 1.0)
}

fn colour(place: f64) -> String {
    let scaled = place * (STOPS.len() - 1) as f64;
    let below = (scaled as usize).min(STOPS.len() - 2);
    let part = scaled - below as f64;
    let [red, green, blue] = [0, 1, 2]
        .map(|i| (STOPS[below][i] + (STOPS[below + 1][i] - STOPS[below][i]) * part + 0.5) as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn cell(svg: &mut String, (x, y): (f64, f64), value: Option<f64>, spec: &MapSpec) {
    let (w, h) = CELL;
    let Some(value) = value else {
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"none\" \
             stroke=\"#d6d9de\"/>"
        );
        return;
    };
    let place = place(value, spec);
    let text = format!("{value:.2}");
    // Minus zero is zero.
    let text = if text == "-0.00" { "0.00" } else { &text };
    let class = if place > 0.55 { "dark" } else { "light" };
    let _ = write!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{}\"/><text class=\"cell \
         {class}\" x=\"{}\" y=\"{}\">{text}</text>",
        colour(place),
        x + w / 2.0,
        y + h / 2.0 + 3.5
    );
}

fn ticks(svg: &mut String, left: f64, x: &Axis, y: &Axis, first: bool) {
    let rows = y.values.len();
    let bottom = TOP + rows as f64 * CELL.1;
    for (at, value) in x.values.iter().enumerate() {
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + (at as f64 + 0.5) * CELL.0,
            bottom + 15.0,
            escaped(&plain(value))
        );
    }
    for (at, value) in y.values.iter().enumerate() {
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            TOP + (rows - 1 - at) as f64 * CELL.1 + CELL.1 / 2.0 + 4.0,
            escaped(&plain(value))
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        left + x.values.len() as f64 * CELL.0 / 2.0,
        bottom + 33.0,
        escaped(&x.label)
    );
    if first {
        let middle = TOP + rows as f64 * CELL.1 / 2.0;
        let _ = write!(
            svg,
            "<text transform=\"translate(12 {middle}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            escaped(&y.label)
        );
    }
}

/// The line runs below the first cell of each column whose y is at least the height there: all
/// cells above it obey the rule.
fn rule(svg: &mut String, left: f64, heights: &[Option<f64>], y: &Axis) {
    let rows = y.values.len();
    let mut path = String::new();
    for (column, height) in heights.iter().enumerate() {
        let Some(height) = height else { continue };
        let below = y.values.iter().filter_map(number).filter(|value| value < height).count();
        let at = TOP + (rows - below) as f64 * CELL.1;
        let from = left + column as f64 * CELL.0;
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{from} {at}L{} {at}", from + CELL.0);
    }
    let _ = write!(svg, "<path class=\"halo\" d=\"{path}\"/><path class=\"rule\" d=\"{path}\"/>");
}

fn legend(svg: &mut String, spec: &MapSpec, line: bool) {
    let _ = write!(svg, "<text class=\"panel\" x=\"4\" y=\"17\">{}</text>", escaped(label(spec)));
    let (left, wide) = (4.0, 180.0);
    for step in 0..BAR {
        let part = step as f64 / (BAR - 1) as f64;
        let w = wide / BAR as f64;
        let _ = write!(
            svg,
            "<rect x=\"{:.2}\" y=\"26\" width=\"{:.2}\" height=\"10\" fill=\"{}\"/>",
            left + step as f64 * w,
            w + 0.3,
            colour(part)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"50\">{}</text><text x=\"{}\" y=\"50\" \
         text-anchor=\"end\">{}</text>",
        spec.low,
        left + wide,
        spec.high
    );
    if line && !spec.line_label.is_empty() {
        let from = left + wide + 34.0;
        let _ = write!(
            svg,
            "<path class=\"rule\" d=\"M{from} 31H{}\"/><text x=\"{}\" y=\"35\">{}</text>",
            from + 34.0,
            from + 42.0,
            escaped(&spec.line_label)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_from_light_to_dark_and_stop_at_the_ends() {
        assert_eq!((colour(0.0).as_str(), colour(1.0).as_str()), ("#f7f7f2", "#0d3b66"));
        let spec = MapSpec { low: 1.0, high: 3.0, ..MapSpec::default() };
        assert_eq!([0.0, 1.0, 2.0, 9.0].map(|value| place(value, &spec)), [0.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn the_line_runs_below_the_first_cell_that_obeys_the_rule() {
        let y = Axis {
            name: "q".to_owned(),
            label: "Q".to_owned(),
            set: vec![],
            values: [10, 20, 40].map(Value::Integer).to_vec(),
            put: vec![],
        };
        let mut svg = String::new();
        rule(&mut svg, 0.0, &[Some(5.0), Some(20.0), Some(21.0), Some(99.0)], &y);
        let levels: Vec<f64> =
            [0, 1, 2, 3].map(|below| TOP + f64::from(3 - below) * CELL.1).to_vec();
        let w = CELL.0;
        let expected = format!(
            "M0 {a}L{w} {a}L{w} {b}L{} {b}L{} {c}L{} {c}L{} {d}L{} {d}",
            2.0 * w,
            2.0 * w,
            3.0 * w,
            3.0 * w,
            4.0 * w,
            a = levels[0],
            b = levels[1],
            c = levels[2],
            d = levels[3]
        );
        assert!(svg.contains(&format!("class=\"rule\" d=\"{expected}\"")), "{svg}");
    }
}
