//! A chart as SVG.

use std::fmt::Write as _;

use evenkeel_report::html::escaped;
use evenkeel_report::numbers::{linear_ticks, log_ticks, tick_label};
use toml::Value;

use super::{ChartSpec, Curve, Mark};
use crate::axis::{Axis, number, plain};

/// Size of the drawing, in pixels at full width, and what is left around the plotting area.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 52.0;
/// A line of the legend.
const LEGEND: f64 = 19.0;
/// Between curves at one value of x, so that their intervals do not cover each other.
const DODGE: f64 = 16.0;
/// How far left of its mean a run's dot stands, and right of it what was published.
const BESIDE: f64 = 7.0;
/// Both are so many times as far where x has names: there is room.
const ROOMY: f64 = 3.0;
/// Half the width of the ends of an interval.
const CAP: f64 = 4.5;
/// Colours of curves, told apart by people who see few; shapes differ too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#b0578d", "#c78500", "#555b66"];

/// A drawing stands in pages that have styles of their own, and other drawings: every rule is of
/// this one alone.
const STYLE: &str = "\
.chart text { font-family: Helvetica, Arial, \"Liberation Sans\", sans-serif; font-size: 12px; \
font-weight: 400; fill: #444444; } \
.chart .heading { fill: #1b1d21; } \
.chart .rung { stroke: #e4e6ea; stroke-width: 1; } .chart .axis { stroke: #8a8f98; stroke-width: \
1; fill: none; } \
.chart .curve { fill: none; stroke-width: 2; stroke-linejoin: round; } .chart .interval { \
stroke-width: 1.4; fill: none; } \
.chart .seed { fill-opacity: .3; } .chart .paper { stroke-width: 1.6; fill: #ffffff; } \
.chart .bound { stroke: #1b1d21; stroke-width: 1.3; stroke-dasharray: 6 4; fill: none; }";

/// The vertical axis.
struct Height {
    ticks: Vec<f64>,
    log: bool,
    top: f64,
}

impl Height {
    fn of(spec: &ChartSpec, curves: &[Curve], top: f64) -> Self {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let ends = points().flat_map(|point| {
            let half = point.mean.half.unwrap_or(0.0);
            point.each.iter().copied().chain([point.mean.mean + half])
        });
        let published = spec.published.iter().map(|mark| mark.value + mark.half.unwrap_or(0.0));
        let values: Vec<f64> = ends.chain(published).collect();
        let high = values.iter().copied().fold(0.0, f64::max);
        let ticks = if spec.log && high > 0.0 {
            let least = values.iter().copied().filter(|value| *value > 0.0).fold(high, f64::min);
            log_ticks(spec.low.unwrap_or(least).min(high), high)
        } else {
            linear_ticks(high, 6)
        };
        Self { ticks, log: spec.log && high > 0.0, top }
    }

    /// Where a value is drawn; what is below the axis at its foot.
    fn y(&self, value: f64) -> f64 {
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        let value = value.max(first);
        let place = if self.log {
            (value / first).log10() / (last / first).log10()
        } else {
            (value - first) / (last - first)
        };
        HEIGHT - BOTTOM - place.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - self.top)
    }
}

/// The horizontal axis.
struct Across<'a> {
    values: &'a [Value],
    /// Their numbers, if all are.
    numbers: Option<Vec<f64>>,
}

impl<'a> Across<'a> {
    fn of(axis: &'a Axis) -> Self {
        let numbers: Option<Vec<f64>> = axis.values.iter().map(number).collect();
        Self { values: &axis.values, numbers: numbers.filter(|numbers| numbers.len() > 1) }
    }

    fn x(&self, place: usize) -> f64 {
        let wide = WIDTH - LEFT - RIGHT;
        match &self.numbers {
            Some(numbers) => {
                let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                // Half a step of room at either end.
                let margin = (high - low) / (2 * numbers.len()) as f64;
                LEFT + (numbers[place] - low + margin) / (high - low + 2.0 * margin) * wide
            }
            None => LEFT + (place as f64 + 0.5) / self.values.len() as f64 * wide,
        }
    }
}

/// The chart as SVG. Points without results are left out.
pub(crate) fn draw(axes: &[Axis], spec: &ChartSpec, curves: &[Curve]) -> String {
    let Some(axis) = axes.iter().find(|axis| axis.name == spec.x) else { return String::new() };
    let (marks, bounds): (Vec<&Mark>, Vec<&Mark>) =
        spec.published.iter().partition(|mark| mark.x.is_some());
    let named = curves.iter().filter(|curve| !curve.name.is_empty()).count();
    let lines = named.div_ceil(2) + marks.len().min(1) + bounds.len();
    let top = 34.0 + lines as f64 * LEGEND;
    let (height, across) = (Height::of(spec, curves, top), Across::of(axis));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} \
         {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" \
         aria-label=\"{}\">\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#ffffff\"/>\n",
        escaped(&spec.title)
    );
    frame(&mut svg, axis, &height, &across);
    let _ = write!(
        svg,
        "<text class=\"heading\" x=\"6\" y=\"17\">{}</text><text x=\"{}\" y=\"17\" \
         text-anchor=\"end\">dots: runs · bars: 95 % intervals of the means</text>",
        escaped(&spec.label),
        WIDTH - RIGHT
    );
    for mark in &bounds {
        let y = height.y(mark.value);
        let _ = write!(svg, "<path class=\"bound\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT);
    }
    let room = if across.numbers.is_some() { 1.0 } else { ROOMY };
    let shift_of = |index: usize| (index as f64 - (curves.len() - 1) as f64 / 2.0) * DODGE * room;
    for (index, curve) in curves.iter().enumerate() {
        let shift = shift_of(index);
        draw_curve(
            &mut svg,
            index,
            curve,
            &|place| across.x(place) + shift,
            &height,
            across.numbers.is_some(),
        );
    }
    for mark in &marks {
        let Some(place) =
            mark.x.as_ref().and_then(|x| axis.values.iter().position(|value| value == x))
        else {
            continue;
        };
        let beside = curves.iter().position(|curve| Some(&curve.name) == mark.curve.as_ref());
        let shift = beside.map_or(0.0, shift_of) + BESIDE * room.sqrt();
        let colour = beside.map_or("#1b1d21", |index| COLOURS[index % COLOURS.len()]);
        published(&mut svg, mark, across.x(place) + shift, &height, colour);
    }
    legend(&mut svg, curves, &marks, &bounds);
    svg + "\n</svg>\n"
}

fn frame(svg: &mut String, axis: &Axis, height: &Height, across: &Across) {
    let foot = HEIGHT - BOTTOM;
    for tick in &height.ticks {
        let y = height.y(*tick);
        let _ = write!(
            svg,
            "<path class=\"rung\" d=\"M{LEFT} {y:.1}H{}\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            tick_label(*tick)
        );
    }
    for (place, value) in across.values.iter().enumerate() {
        let x = across.x(place);
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{x:.1} {foot}v5\"/><text x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>",
            foot + 19.0,
            escaped(&plain(value))
        );
    }
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{LEFT} {}V{foot}H{}\"/><text class=\"heading\" x=\"{}\" \
         y=\"{}\" text-anchor=\"middle\">{}</text>",
        height.top,
        WIDTH - RIGHT,
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 12.0,
        escaped(&axis.label)
    );
}

/// Runs as dots, intervals, means, and a line through the means where x is a number.
fn draw_curve(
    svg: &mut String,
    index: usize,
    curve: &Curve,
    x: &dyn Fn(usize) -> f64,
    height: &Height,
    joined: bool,
) {
    let colour = COLOURS[index % COLOURS.len()];
    let mut path = String::new();
    for point in &curve.points {
        let (at, y) = (x(point.place), height.y(point.mean.mean));
        for value in &point.each {
            let _ = write!(
                svg,
                "<circle class=\"seed\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\" fill=\"{colour}\"/>",
                at - BESIDE,
                height.y(*value)
            );
        }
        if let Some(half) = point.mean.half {
            interval(svg, at, [point.mean.mean - half, point.mean.mean + half], height, colour);
        }
        let _ = write!(path, "{}{at:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
    }
    if joined {
        let _ = write!(svg, "<path class=\"curve\" stroke=\"{colour}\" d=\"{path}\"/>");
    }
    for point in &curve.points {
        svg.push_str(&marker(index, x(point.place), height.y(point.mean.mean)));
    }
    svg.push('\n');
}

fn interval(svg: &mut String, at: f64, ends: [f64; 2], height: &Height, colour: &str) {
    let [low, high] = ends.map(|end| height.y(end));
    let _ = write!(
        svg,
        "<path class=\"interval\" stroke=\"{colour}\" d=\"M{at:.1} {low:.1}V{high:.1}M{left:.1} \
         {low:.1}h{wide}M{left:.1} {high:.1}h{wide}\"/>",
        left = at - CAP,
        wide = 2.0 * CAP
    );
}

/// The shape of a curve's means.
fn marker(index: usize, x: f64, y: f64) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    match index % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>"),
        1 => format!("<path d=\"M{:.1} {:.1}h8v8h-8z\" fill=\"{colour}\"/>", x - 4.0, y - 4.0),
        2 => format!("<path d=\"M{x:.1} {:.1}l5.2 9h-10.4z\" fill=\"{colour}\"/>", y - 5.5),
        _ => format!(
            "<path d=\"M{x:.1} {:.1}l5.5 5.5-5.5 5.5-5.5-5.5z\" fill=\"{colour}\"/>",
            y - 5.5
        ),
    }
}

/// An open diamond in its curve's colour, with its interval.
fn published(svg: &mut String, mark: &Mark, x: f64, height: &Height, colour: &str) {
    if let Some(half) = mark.half {
        interval(svg, x, [mark.value - half, mark.value + half], height, colour);
    }
    svg.push_str(&diamond(x, height.y(mark.value), colour));
}

fn diamond(x: f64, y: f64, colour: &str) -> String {
    format!("<path class=\"paper\" stroke=\"{colour}\" d=\"M{x:.1} {:.1}l5 5-5 5-5-5z\"/>", y - 5.0)
}

/// Curves in two columns, then what was published.
fn legend(svg: &mut String, curves: &[Curve], marks: &[&Mark], bounds: &[&Mark]) {
    let mut y = 36.0;
    let column = (WIDTH - LEFT) / 2.0;
    let named: Vec<(usize, &Curve)> =
        curves.iter().enumerate().filter(|(_, curve)| !curve.name.is_empty()).collect();
    for pair in named.chunks(2) {
        for (at, (index, curve)) in pair.iter().enumerate() {
            let x = LEFT + at as f64 * column;
            let colour = COLOURS[index % COLOURS.len()];
            let _ = write!(
                svg,
                "<path class=\"curve\" stroke=\"{colour}\" d=\"M{x} {y}h26\"/>{}<text x=\"{}\" \
                 y=\"{}\">{}</text>",
                marker(*index, x + 13.0, y),
                x + 34.0,
                y + 4.0,
                escaped(&curve.name)
            );
        }
        y += LEGEND;
    }
    if let Some(mark) = marks.first() {
        // Several are told apart by their curves' colours, and named in the table.
        let words = if marks.len() == 1 {
            format!("published: {}", mark.label)
        } else {
            "published".to_owned()
        };
        let _ = write!(
            svg,
            "{}<text x=\"{}\" y=\"{}\">{}</text>",
            diamond(LEFT + 13.0, y, "#1b1d21"),
            LEFT + 34.0,
            y + 4.0,
            escaped(&words)
        );
        y += LEGEND;
    }
    for mark in bounds {
        let _ = write!(
            svg,
            "<path class=\"bound\" d=\"M{LEFT} {y}h26\"/><text x=\"{}\" y=\"{}\">published: \
             {}</text>",
            LEFT + 34.0,
            y + 4.0,
            escaped(&mark.label)
        );
        y += LEGEND;
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_report::confidence::Estimate;

    use super::*;
    use crate::chart::Point;

    fn spec(log: bool, low: Option<f64>) -> ChartSpec {
        let mark = |x, value| Mark { label: "<p>".to_owned(), x, curve: None, value, half: None };
        ChartSpec {
            name: "c".to_owned(),
            title: "T".to_owned(),
            notes: String::new(),
            x: "n".to_owned(),
            curves: None,
            show: Vec::new(),
            at: Vec::new(),
            pooled: Vec::new(),
            value: "v".to_owned(),
            label: "seconds".to_owned(),
            log,
            low,
            published: vec![mark(Some(Value::Integer(30)), 3.0), mark(None, 2.0)],
        }
    }

    fn curve(values: &[(usize, &[f64])]) -> Curve {
        let point = |(place, each): &(usize, &[f64])| Point {
            place: *place,
            each: each.to_vec(),
            mean: Estimate::of(each).unwrap(),
        };
        Curve { name: "a & b".to_owned(), points: values.iter().map(point).collect() }
    }

    fn axis(values: Vec<Value>) -> Axis {
        Axis { name: "n".to_owned(), label: "N".to_owned(), set: vec![], values, put: vec![] }
    }

    #[test]
    fn every_mean_has_its_interval_and_its_runs() {
        let axes = [axis(vec![Value::Integer(10), Value::Integer(30)])];
        let svg = draw(&axes, &spec(false, None), &[curve(&[(0, &[1.0, 2.0, 3.0]), (1, &[4.0])])]);
        assert_eq!(svg.matches("class=\"seed\"").count(), 4);
        assert_eq!(svg.matches("class=\"interval\"").count(), 1, "a single run has no interval");
        assert_eq!(
            svg.matches("class=\"paper\"").count(),
            2,
            "a point, and its line of the legend"
        );
        assert_eq!(svg.matches("class=\"bound\"").count(), 2);
        assert!(
            svg.contains("a &amp; b")
                && svg.contains("published: &lt;p&gt;")
                && !svg.contains("NaN")
        );
    }

    #[test]
    fn heights_are_where_the_axis_says_and_nothing_leaves_the_frame() {
        let spec_log = spec(true, Some(0.1));
        let curves = [curve(&[(0, &[0.0, 0.0]), (1, &[90.0, 110.0])])];
        let height = Height::of(&spec_log, &curves, 50.0);
        assert_eq!(height.ticks, log_ticks(0.1, 230.0));
        let foot = HEIGHT - BOTTOM;
        assert_eq!((height.y(0.0), height.y(0.1), height.y(1000.0)), (foot, foot, 50.0));
        let quarter = foot - (foot - 50.0) / 4.0;
        assert!((height.y(1.0) - quarter).abs() < 1e-9);
    }

    #[test]
    fn names_stand_side_by_side_and_numbers_at_their_places() {
        let names = axis(["a", "b"].map(|name| Value::String(name.to_owned())).to_vec());
        let wide = WIDTH - LEFT - RIGHT;
        assert_eq!(Across::of(&names).x(1), LEFT + 0.75 * wide);
        let numbers = axis([10, 20, 50].map(Value::Integer).to_vec());
        let across = Across::of(&numbers);
        let step = across.x(1) - across.x(0);
        assert!((across.x(2) - across.x(1) - 3.0 * step).abs() < 1e-9);
    }
}
