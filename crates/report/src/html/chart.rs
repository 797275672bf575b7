//! One panel: axes with ticks and units, steps marked, a line per class; and stacked shares.

use std::fmt::Write as _;

use super::text::escape;
use crate::numbers::{linear_ticks, log_ticks, tick_label};
use crate::run::StepMark;

/// Room around the plotting area, in SVG units (pixels at full width).
const LEFT: f64 = 52.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 26.0;
/// More of it, for the names of steps.
const STEP_NAMES: f64 = 14.0;
const BOTTOM: f64 = 34.0;
/// Estimated advance of a character of a step's name; names that do not fit are replaced by
/// numbers.
const STEP_CHAR: f64 = 5.7;
/// About this many markers per line: enough to tell lines apart in black and white.
const MARKERS: usize = 10;
/// What most panels have to the right.
pub(super) const TIME: &str = "time, s";
/// Distinct colours and markers; further classes begin again.
pub(super) const SERIES: usize = 8;

/// The vertical axis. Panels that are compared share one.
#[derive(Clone, Debug)]
pub(super) enum Scale {
    /// From zero to the last tick.
    Linear(Vec<f64>),
    /// From the first tick to the last, all powers of ten.
    Log(Vec<f64>),
}

impl Scale {
    /// Linear from zero.
    pub(super) fn linear(max: f64) -> Self {
        Self::Linear(linear_ticks(max, 5))
    }

    /// Logarithmic where the positive values span more than a factor of 25, else linear. The axis
    /// does not go below the power of ten at or under `floor`; smaller values are drawn at its end.
    pub(super) fn for_span(values: impl Iterator<Item = f64> + Clone, floor: f64) -> Self {
        let positive = || values.clone().filter(|v| *v > 0.0);
        let low = positive().fold(f64::INFINITY, f64::min).max(floor);
        let high = positive().fold(0.0, f64::max);
        if high > 25.0 * low { Self::Log(log_ticks(low, high)) } else { Self::linear(high) }
    }

    /// Whether `value` is drawn at the end of the axis because it lies below.
    pub(super) fn cuts(&self, value: f64) -> bool {
        matches!(self, Self::Log(ticks) if value < ticks[0])
    }

    fn ticks(&self) -> &[f64] {
        match self {
            Self::Linear(ticks) | Self::Log(ticks) => ticks,
        }
    }

    /// Where `value` lies, 0 at the bottom and 1 at the top.
    fn place(&self, value: f64) -> f64 {
        let ticks = self.ticks();
        let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
        match self {
            Self::Linear(_) => (value - first) / (last - first),
            Self::Log(_) => {
                (value.max(first).log10() - first.log10()) / (last.log10() - first.log10())
            }
        }
    }
}

/// Points of one class.
pub(super) struct Line {
    /// Which colour and marker.
    pub(super) index: usize,
    /// Time in seconds and value; `None` breaks the line.
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// A curve with a band around it, one of several worlds'.
pub(super) struct Overlay<'a> {
    /// Which colour and marker.
    pub(super) index: usize,
    /// Further classes of CSS for the line.
    pub(super) style: &'a str,
    /// Whether it carries markers.
    pub(super) markers: bool,
    /// Its name, for pointing at it.
    pub(super) hover: String,
    /// Time in seconds; value and half the width of its band; `None` breaks the line.
    pub(super) points: Vec<(f64, Option<(f64, f64)>)>,
}

/// A published value that holds for a time.
pub(super) struct Mark {
    /// Begin, seconds.
    pub(super) from_s: f64,
    /// End, seconds.
    pub(super) to_s: f64,
    /// The value.
    pub(super) value: f64,
    /// The series it was published for.
    pub(super) index: usize,
}

/// A window that shows its numbers when pointed at.
pub(super) struct Hover {
    /// Begin, seconds.
    pub(super) from_s: f64,
    /// End, seconds.
    pub(super) to_s: f64,
    /// Lines of text.
    pub(super) text: String,
}

/// What a panel is drawn on.
pub(super) struct Canvas<'a> {
    /// Size of the whole panel.
    pub(super) width: f64,
    /// Size of the whole panel.
    pub(super) height: f64,
    /// End of the time axis.
    pub(super) duration_s: f64,
    /// Left out after each step.
    pub(super) settle_s: f64,
    /// The steps.
    pub(super) steps: &'a [StepMark],
    /// The name of the horizontal axis, if it is shown: in the lowest row of a grid.
    pub(super) axis: Option<&'a str>,
}

impl Canvas<'_> {
    fn x(&self, t_s: f64) -> f64 {
        LEFT + (t_s / self.duration_s.max(1e-9)).clamp(0.0, 1.0) * (self.width - LEFT - RIGHT)
    }

    /// Upper edge of the plotting area.
    fn top(&self) -> f64 {
        if self.steps.len() > 1 { TOP + STEP_NAMES } else { TOP }
    }

    /// Height of the plotting area.
    fn tall(&self) -> f64 {
        self.height - self.top() - BOTTOM
    }

    fn y(&self, place: f64) -> f64 {
        self.top() + (1.0 - place.clamp(0.0, 1.0)) * self.tall()
    }

    /// Where each step begins and ends.
    fn spans(&self) -> impl Iterator<Item = (usize, &StepMark, f64, f64)> {
        let ends = self.steps.iter().skip(1).map(|s| s.at_s).chain([self.duration_s]);
        self.steps
            .iter()
            .zip(ends)
            .enumerate()
            .map(|(i, (step, end))| (i, step, self.x(step.at_s), self.x(end)))
    }

    fn open(&self, title: &str, unit: &str) -> String {
        let (w, h) = (self.width, self.height);
        let (title, unit) = (escape(title), escape(unit));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"{title}, {unit}, over time\">"
        );
        let _ = write!(
            svg,
            "<text class=\"title\" x=\"0\" y=\"13\">{title} <tspan \
             class=\"unit\">{unit}</tspan></text>"
        );
        svg
    }

    /// Alternating bands, settling times, and the steps' names where they fit, else their numbers.
    fn steps_behind(&self, svg: &mut String) {
        let (top, height) = (self.top(), self.tall());
        let fits = self
            .spans()
            .all(|(_, s, from, to)| s.name.chars().count() as f64 * STEP_CHAR + 6.0 <= to - from);
        for (i, step, from, to) in self.spans() {
            if i % 2 == 1 {
                let _ = write!(
                    svg,
                    "<rect class=\"band\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" \
                     height=\"{height:.1}\"/>",
                    to - from
                );
            }
            if self.settle_s > 0.0 {
                let settled = self.x(step.at_s + self.settle_s).min(to);
                let _ = write!(
                    svg,
                    "<rect class=\"settle\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" \
                     height=\"{height:.1}\"/>",
                    settled - from
                );
            }
            if self.steps.len() > 1 {
                let label =
                    if fits { escape(&step.name).into_owned() } else { (i + 1).to_string() };
                let _ = write!(
                    svg,
                    "<text class=\"step\" x=\"{:.1}\" y=\"{:.1}\">{label}<title>{}</title></text>",
                    from + 3.0,
                    top - 5.0,
                    escape(&format!("{}: {}", step.name, step.changes.join(", ")))
                );
            }
        }
    }

    /// Step lines, axes, ticks.
    fn axes(&self, svg: &mut String, scale: &Scale, label: impl Fn(f64) -> String) {
        let (bottom, left, right) = (self.y(0.0), LEFT, self.width - RIGHT);
        for (i, step, from, _) in self.spans() {
            if i > 0 {
                let _ = write!(
                    svg,
                    "<line class=\"stepline\" x1=\"{from:.1}\" x2=\"{from:.1}\" y1=\"{:.1}\" \
                     y2=\"{bottom:.1}\"><title>{}</title></line>",
                    self.top() - STEP_NAMES,
                    escape(&step.name)
                );
            }
        }
        for &tick in scale.ticks() {
            let y = self.y(scale.place(tick));
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 7.0,
                y + 3.8,
                label(tick)
            );
        }
        for tick in time_ticks(self.duration_s, self.width) {
            let x = self.x(tick);
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" \
                 y2=\"{:.1}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                tick_label(tick)
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom:.1}\" \
             y2=\"{bottom:.1}\"/>"
        );
        if let Some(axis) = self.axis {
            let _ = write!(
                svg,
                "<text class=\"unit\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                bottom + 31.0,
                escape(axis)
            );
        }
    }

    fn gridlines(&self, svg: &mut String, scale: &Scale) {
        for &tick in &scale.ticks()[1..] {
            let y = self.y(scale.place(tick));
            let _ = write!(
                svg,
                "<line class=\"gridline\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                self.width - RIGHT
            );
        }
    }

    fn hovers(&self, svg: &mut String, hovers: &[Hover]) {
        let (top, height) = (self.top(), self.tall());
        for hover in hovers {
            let (from, to) = (self.x(hover.from_s), self.x(hover.to_s));
            let _ = write!(
                svg,
                "<rect class=\"hit\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" \
                 height=\"{height:.1}\"><title>{}</title></rect>",
                to - from,
                escape(&hover.text)
            );
        }
    }

    /// A panel of lines.
    pub(super) fn lines(
        &self,
        title: &str,
        unit: &str,
        scale: &Scale,
        lines: &[Line],
        hovers: &[Hover],
    ) -> String {
        let mut svg = self.open(title, unit);
        self.steps_behind(&mut svg);
        self.gridlines(&mut svg, scale);
        self.axes(&mut svg, scale, tick_label);
        for line in lines {
            self.line(&mut svg, scale, line);
        }
        self.hovers(&mut svg, hovers);
        svg + "</svg>"
    }

    /// Curves of several worlds over one another, published values as bars.
    pub(super) fn overlays(
        &self,
        title: &str,
        unit: &str,
        scale: &Scale,
        overlays: &[Overlay<'_>],
        marks: &[Mark],
        text: fn(f64) -> String,
    ) -> String {
        let mut svg = self.open(title, unit);
        self.steps_behind(&mut svg);
        self.gridlines(&mut svg, scale);
        self.axes(&mut svg, scale, tick_label);
        for overlay in overlays {
            self.area(&mut svg, scale, overlay);
        }
        for mark in marks {
            let (from, to, y) =
                (self.x(mark.from_s), self.x(mark.to_s), self.y(scale.place(mark.value)));
            let _ = write!(
                svg,
                "<path class=\"published\" d=\"M{from:.1} {y:.1}H{to:.1}\"><title>published: \
                 {}</title></path><circle class=\"dot f{}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\"/>",
                escape(&text(mark.value)),
                mark.index % SERIES,
                to - 5.0
            );
        }
        for overlay in overlays {
            let points: Vec<(f64, Option<f64>)> = overlay
                .points
                .iter()
                .map(|(t_s, value)| (*t_s, value.map(|(mean, _)| mean)))
                .collect();
            let path = self.path(scale, &points);
            let _ = write!(
                svg,
                "<path class=\"line l{}{}\" d=\"{path}\"/>",
                overlay.index % SERIES,
                overlay.style
            );
            if overlay.markers {
                self.markers(&mut svg, scale, overlay.index, &points);
            }
        }
        self.hovers(&mut svg, &overlay_hovers(overlays, text));
        svg + "</svg>"
    }

    /// The band of a curve, in pieces where the curve has gaps.
    fn area(&self, svg: &mut String, scale: &Scale, overlay: &Overlay<'_>) {
        for piece in overlay.points.split(|(_, value)| value.is_none()) {
            let known = || {
                piece.iter().filter_map(|(t_s, value)| value.map(|(mean, half)| (*t_s, mean, half)))
            };
            if known().all(|(.., half)| half <= 0.0) {
                continue;
            }
            let above = known().map(|(t_s, mean, half)| (t_s, mean + half));
            let below: Vec<_> =
                known().map(|(t_s, mean, half)| (t_s, (mean - half).max(0.0))).collect();
            let mut path = String::new();
            for (t_s, value) in above.chain(below.into_iter().rev()) {
                let command = if path.is_empty() { 'M' } else { 'L' };
                let _ =
                    write!(path, "{command}{:.1} {:.1}", self.x(t_s), self.y(scale.place(value)));
            }
            let _ = write!(svg, "<path class=\"area a{}\" d=\"{path}Z\"/>", overlay.index % SERIES);
        }
    }

    fn path(&self, scale: &Scale, points: &[(f64, Option<f64>)]) -> String {
        let mut path = String::new();
        let mut drawing = false;
        for &(t_s, value) in points {
            match value {
                Some(value) => {
                    let command = if drawing { 'L' } else { 'M' };
                    let _ = write!(
                        path,
                        "{command}{:.1} {:.1}",
                        self.x(t_s),
                        self.y(scale.place(value))
                    );
                    drawing = true;
                }
                None => drawing = false,
            }
        }
        path
    }

    fn line(&self, svg: &mut String, scale: &Scale, line: &Line) {
        let path = self.path(scale, &line.points);
        let _ = write!(svg, "<path class=\"line l{}\" d=\"{path}\"/>", line.index % SERIES);
        self.markers(svg, scale, line.index, &line.points);
    }

    fn markers(
        &self,
        svg: &mut String,
        scale: &Scale,
        index: usize,
        points: &[(f64, Option<f64>)],
    ) {
        // Markers of different lines stand at different windows, so that lines which coincide can
        // both be seen.
        let every = points.len().div_ceil(MARKERS).max(1);
        let first = (index * every).div_ceil(3) % every;
        for &(t_s, value) in points.iter().skip(first).step_by(every) {
            if let Some(value) = value {
                svg.push_str(&marker(index, self.x(t_s), self.y(scale.place(value))));
            }
        }
    }

    /// A panel of shares that sum to one: per window the fractions for `classes` of CSS, from the
    /// bottom.
    pub(super) fn shares(
        &self,
        title: &str,
        unit: &str,
        windows: &[(f64, f64, [f64; 3])],
        hovers: &[Hover],
    ) -> String {
        const CLASSES: [&str; 3] = ["many", "one", "none"];
        let scale = Scale::Linear(vec![0.0, 0.25, 0.5, 0.75, 1.0]);
        let mut svg = self.open(title, unit);
        self.steps_behind(&mut svg);
        for (from_s, to_s, [none, one, many]) in windows {
            let (from, to) = (self.x(*from_s), self.x(*to_s));
            let mut below = 0.0;
            for (class, share) in CLASSES.iter().zip([many, one, none]) {
                let (low, high) = (self.y(below), self.y(below + share));
                below += share;
                let _ = write!(
                    svg,
                    "<rect class=\"{class}\" x=\"{from:.2}\" y=\"{high:.1}\" width=\"{:.2}\" \
                     height=\"{:.1}\"/>",
                    // A little over the next one: no seam between them.
                    to - from + 0.4,
                    low - high
                );
            }
        }
        self.axes(&mut svg, &scale, |tick| format!("{:.0} %", tick * 100.0));
        self.hovers(&mut svg, hovers);
        svg + "</svg>"
    }
}

/// For each window of the longest curve, the values of all curves near it.
fn overlay_hovers(overlays: &[Overlay<'_>], text: fn(f64) -> String) -> Vec<Hover> {
    let Some(longest) = overlays.iter().max_by_key(|overlay| overlay.points.len()) else {
        return Vec::new();
    };
    let window_s = match longest.points.as_slice() {
        [(first, _), .., (last, _)] => (last - first) / (longest.points.len() - 1) as f64,
        _ => return Vec::new(),
    };
    let near = |overlay: &Overlay<'_>, t_s: f64| {
        let after = overlay.points.partition_point(|(other, _)| *other < t_s - window_s * 0.51);
        overlay
            .points
            .get(after)
            .filter(|(other, _)| *other <= t_s + window_s * 0.51)
            .and_then(|(_, value)| *value)
    };
    let hover = |(t_s, _): &(f64, Option<(f64, f64)>)| {
        let mut lines = format!("{:.1}–{:.1} s", t_s - window_s / 2.0, t_s + window_s / 2.0);
        for overlay in overlays {
            if let Some((mean, half)) = near(overlay, *t_s) {
                let half = if half > 0.0 { format!(" ± {}", text(half)) } else { String::new() };
                let _ = write!(lines, "\n{}: {}{half}", overlay.hover, text(mean));
            }
        }
        Hover { from_s: t_s - window_s / 2.0, to_s: t_s + window_s / 2.0, text: lines }
    };
    longest.points.iter().map(hover).collect()
}

/// The marker of a series: shapes differ, so that colour is not needed to tell them apart.
pub(super) fn marker(index: usize, x: f64, y: f64) -> String {
    let series = index % SERIES;
    let shape = match index % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\""),
        1 => {
            format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6.2\" height=\"6.2\"", x - 3.1, y - 3.1)
        }
        2 => format!("<path d=\"M{x:.1} {:.1}l4 7h-8z\"", y - 4.4),
        _ => format!("<path d=\"M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z\"", y - 4.2),
    };
    format!("{shape} class=\"mark f{series}\"/>")
}

/// Ticks of the time axis: multiples of round numbers of seconds (25 s among them, the papers'
/// step), none beyond the end.
fn time_ticks(duration_s: f64, width: f64) -> Vec<f64> {
    let most = (width / 62.0).max(2.0);
    let step = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0,
    ]
    .into_iter()
    .find(|step| duration_s / step <= most)
    .unwrap_or(duration_s);
    (0..=(duration_s / step + 1e-9) as usize)
        .map(|i| (i as f64 * step * 10.0).round() / 10.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_gets_a_log_axis_only_where_the_span_needs_it() {
        let scale = |values: &[f64]| Scale::for_span(values.iter().copied(), 0.001);
        assert!(matches!(scale(&[8.0, 9.0, 12.0]), Scale::Linear(_)));
        assert!(matches!(scale(&[0.1, 9.0, 0.0]), Scale::Log(_)));
        assert!(matches!(scale(&[]), Scale::Linear(_)));
        let cut = scale(&[0.0001, 9.0]);
        assert_eq!(cut.ticks()[0], 0.001);
        assert!(cut.cuts(0.0001) && !cut.cuts(0.001));
    }

    #[test]
    fn values_lie_between_bottom_and_top() {
        let log = Scale::Log(vec![0.1, 1.0, 10.0]);
        assert!((log.place(1.0) - 0.5).abs() < 1e-9);
        assert_eq!(log.place(0.0), 0.0);
        let linear = Scale::linear(8_700.0);
        assert!((linear.place(5_000.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn time_ticks_follow_the_steps_of_the_papers() {
        assert_eq!(time_ticks(125.0, 520.0), [0.0, 25.0, 50.0, 75.0, 100.0, 125.0]);
        assert_eq!(time_ticks(12.5, 520.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    }

    #[test]
    fn a_value_that_was_not_measured_breaks_the_line() {
        let steps = [StepMark { name: "start".into(), at_s: 0.0, changes: vec![] }];
        let canvas = Canvas {
            width: 500.0,
            height: 200.0,
            duration_s: 4.0,
            settle_s: 0.0,
            steps: &steps,
            axis: Some(TIME),
        };
        let line = Line {
            index: 0,
            points: vec![
                (0.0, Some(1.0)),
                (1.0, Some(1.0)),
                (2.0, None),
                (3.0, Some(1.0)),
                (4.0, Some(1.0)),
            ],
        };
        let svg = canvas.lines("a", "b", &Scale::linear(1.0), &[line], &[]);
        let path = svg.split("class=\"line l0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2);
        assert_eq!(path.matches('L').count(), 2);
    }
}
