//! The four QoStat panels, those of the dynamic control, the panels of scheduler calls, and their
//! legends.

use evenkeel_scenario::Metric;

use super::chart::{Canvas, Hover, Line, SERIES, Scale, TIME, marker};
use super::download::LegendEntry;
use super::text::escape;
use crate::numbers::{grouped, micros};
use crate::run::{Run, Sample};

/// A panel: what it shows and how a window's number is formed.
pub(super) struct Quantity {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// The metric of expectations that it shows, and the factor from its unit to the panel's.
    pub(super) shows: Option<(Metric, f64)>,
    pub(super) value: fn(&Sample) -> Option<f64>,
    pub(super) text: fn(f64) -> String,
    /// A wide span of values gets a logarithmic axis that begins here.
    pub(super) log_from: Option<f64>,
}

/// Shorter delays are not told apart: the meters do not, either.
const LEAST_DELAY_MS: f64 = 0.001;

/// QoStat's panels in the order of the papers.
pub(super) const QUANTITIES: [Quantity; 4] = [
    Quantity {
        title: "Mean transit delay",
        unit: "ms",
        shows: Some((Metric::Delay, 1e-3)),
        value: |s| {
            (s.transit.count > 0).then(|| s.transit.sum_ns as f64 / s.transit.count as f64 / 1e6)
        },
        text: |ms| format!("{} ms", micros(ms * 1e3)),
        log_from: Some(LEAST_DELAY_MS),
    },
    Quantity {
        title: "Sent",
        unit: "packets/s",
        shows: Some((Metric::Sent, 1.0)),
        value: |s| Some(s.per_second(s.sent_packets)),
        text: grouped,
        log_from: None,
    },
    Quantity {
        title: "Dropped",
        unit: "packets/s",
        shows: Some((Metric::Dropped, 1.0)),
        value: |s| Some(s.per_second(s.dropped_total())),
        text: grouped,
        log_from: None,
    },
    Quantity {
        title: "Queue length",
        unit: "packets, mean",
        shows: Some((Metric::Qlen, 1.0)),
        value: |s| Some(s.queue_mean().unwrap_or(s.qlen as f64)),
        text: grouped,
        log_from: None,
    },
];

/// What the dynamic control of a link sees and gives.
pub(super) const CONTROL: [Quantity; 3] = [
    Quantity {
        title: "Congestion index for delay",
        unit: "1 = threshold",
        shows: Some((Metric::CiDelay, 1.0)),
        value: |s| s.control.map(|control| control.ci_delay),
        text: index,
        log_from: None,
    },
    Quantity {
        title: "Congestion index for loss",
        unit: "1 = threshold",
        shows: Some((Metric::CiLoss, 1.0)),
        value: |s| s.control.map(|control| control.ci_loss),
        text: index,
        log_from: None,
    },
    Quantity {
        title: "X_DELAY given by the control",
        unit: "ms",
        shows: Some((Metric::XDelay, 1e-3)),
        value: |s| s.control.map(|control| control.x_delay_us / 1e3),
        text: |ms| format!("{} ms", micros(ms * 1e3)),
        log_from: Some(LEAST_DELAY_MS),
    },
];

/// Where the cycles of a router went.
pub(super) const CYCLES: [Quantity; 4] = [
    Quantity {
        title: "Cycles",
        unit: "million/s",
        shows: Some((Metric::Cycles, 1e-6)),
        value: |s| s.cycles.filter(|_| s.window_s > 0.0).map(|c| c.spent as f64 / s.window_s / 1e6),
        text: |millions| format!("{millions:.1} million/s"),
        log_from: None,
    },
    Quantity {
        title: "Cycles per packet",
        unit: "cycles",
        shows: Some((Metric::CyclesEach, 1.0)),
        value: |s| s.cycles.filter(|c| c.passed > 0).map(|c| c.spent as f64 / c.passed as f64),
        text: grouped,
        log_from: Some(1.0),
    },
    Quantity {
        title: "Forwarded",
        unit: "packets/s",
        shows: None,
        value: |s| s.cycles.map(|c| s.per_second(c.passed)),
        text: grouped,
        log_from: None,
    },
    Quantity {
        title: "Refused before any link",
        unit: "packets/s",
        shows: Some((Metric::Refused, 1.0)),
        value: |s| s.cycles.map(|c| s.per_second(c.refused)),
        text: grouped,
        log_from: None,
    },
];

/// Whether the cycles of a link's router were measured in a run.
pub(super) fn has_cycles(run: &Run, (router, link): (&str, &str)) -> bool {
    run.samples.iter().any(|s| s.router == router && s.link == link && s.cycles.is_some())
}

fn index(value: f64) -> String {
    format!("{value:.2}")
}

/// What a polled core should have given to each class, and what it gave.
pub(super) const CORE: [Quantity; 2] = [
    Quantity {
        title: "Max-min share of the cycles",
        unit: "million/s",
        shows: Some((Metric::FairCycles, 1e-6)),
        value: |s| s.core.map(|core| core.fair_cycles / s.window_s / 1e6),
        text: |millions| format!("{millions:.1} million/s"),
        log_from: None,
    },
    Quantity {
        title: "Cycles, in max-min shares",
        unit: "1 = as much as is fair",
        shows: None,
        value: |s| {
            let fair = s.core?.fair_cycles;
            s.cycles.filter(|_| fair > 0.0).map(|cycles| cycles.spent as f64 / fair)
        },
        text: index,
        log_from: None,
    },
];

/// QoStat's panels as far as a polled core has them: nothing is known of delays there, and nothing
/// waits at its link.
pub(super) fn quantities(runs: &[Run]) -> &'static [Quantity] {
    if runs.iter().all(is_core) { &QUANTITIES[1..3] } else { &QUANTITIES }
}

/// Whether a run is of a polled core.
pub(super) fn is_core(run: &Run) -> bool {
    run.samples.iter().any(|sample| sample.core.is_some())
}

/// Whether a run has control on a link.
pub(super) fn is_controlled(run: &Run, (router, link): (&str, &str)) -> bool {
    run.samples.iter().any(|s| s.router == router && s.link == link && s.control.is_some())
}

/// The links of all runs, in the order in which they first appear.
pub(super) fn links(runs: &[Run]) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    for sample in runs.iter().flat_map(|run| &run.samples) {
        let link = (sample.router.as_str(), sample.link.as_str());
        if !links.contains(&link) {
            links.push(link);
        }
    }
    links
}

/// Of a window of a class on a link nothing needs to be drawn below this many waiting packets, on
/// average.
const NOTICEABLE: f64 = 0.05;

/// Whether figures of a link would show lines at zero in all runs: nothing waited there, nothing
/// was lost, and nothing is steered or admitted there.
pub(super) fn is_idle(runs: &[Run], (router, link): (&str, &str)) -> bool {
    let sample_is_idle = |sample: &Sample| {
        let waited = match sample.queue_us {
            Some(queue) => queue as f64 / (sample.window_s * 1e6),
            None => sample.qlen as f64,
        };
        let watched = sample.control.is_some() || sample.cycles.is_some() || sample.core.is_some();
        waited < NOTICEABLE && sample.dropped.is_empty() && !watched
    };
    runs.iter().all(|run| {
        let samples = run.samples.iter().filter(|s| s.router == router && s.link == link);
        let mut calls = run.calls.iter().filter(|c| c.router == router && c.link == link);
        samples.into_iter().all(sample_is_idle) && calls.all(|calls| calls.admission.is_none())
    })
}

/// The classes of all runs, in the order in which they first appear: what colours follow.
pub(super) fn classes(runs: &[Run]) -> Vec<&str> {
    let mut classes = Vec::new();
    for sample in runs.iter().flat_map(|run| &run.samples) {
        if !classes.contains(&sample.class.as_str()) {
            classes.push(sample.class.as_str());
        }
    }
    classes
}

/// Colour and marker of each class.
pub(super) fn legend(classes: &[&str]) -> Vec<LegendEntry> {
    let mark = |index: usize| {
        format!(
            "<path class=\"line l{}\" d=\"M1 6H29\"/>{}",
            index % SERIES,
            marker(index, 15.0, 6.0)
        )
    };
    let entry = |(index, class): (usize, &&str)| LegendEntry {
        mark: mark(index),
        text: escape(class).into_owned(),
    };
    classes.iter().enumerate().map(entry).collect()
}

/// The legend of the calls panels.
pub(super) fn calls_legend() -> Vec<LegendEntry> {
    let entry = |class: &str, text: &str| LegendEntry {
        mark: format!("<rect class=\"{class}\" x=\"8\" width=\"14\" height=\"12\" rx=\"2\"/>"),
        text: text.to_owned(),
    };
    vec![
        entry("none", "no queue has packets"),
        entry("one", "one queue"),
        entry("many", "several queues"),
    ]
}

/// A legend on the page.
pub(super) fn legend_html(entries: &[LegendEntry]) -> String {
    let mut html = String::from("<div class=\"legend\">");
    for entry in entries {
        html += &format!(
            "<span><svg width=\"30\" height=\"12\" style=\"width:30px\" viewBox=\"0 0 30 12\" \
             aria-hidden=\"true\">{}</svg>{}</span>",
            entry.mark, entry.text
        );
    }
    html + "</div>"
}

/// The panels of `quantities` on one link: two by two for one run, else a row per quantity with a
/// column per run and shared axes. Also tells whether some delays were too short for their axis.
pub(super) fn panels(
    runs: &[Run],
    quantities: &[Quantity],
    (router, link): (&str, &str),
    classes: &[&str],
) -> (String, bool) {
    let measured = |run: &&Run| {
        let mut here = run.samples.iter().filter(|s| s.router == router && s.link == link);
        here.any(|sample| quantities.iter().any(|quantity| (quantity.value)(sample).is_some()))
    };
    let runs: Vec<&Run> = runs.iter().filter(measured).collect();
    let columns = if runs.len() == 1 { 2 } else { runs.len() };
    let mut html = grid(columns);
    if runs.len() > 1 {
        for run in &runs {
            html += &format!("<h3 style=\"margin:0 0 -4px\">{}</h3>", escape(&run.name));
        }
    }
    // What nobody measured here has no panel.
    let told = |quantity: &&Quantity| {
        let here = |s: &&Sample| s.router == router && s.link == link;
        let mut samples = runs.iter().flat_map(|run| &run.samples).filter(here);
        samples.any(|sample| (quantity.value)(sample).is_some())
    };
    let quantities: Vec<&Quantity> = quantities.iter().filter(told).collect();
    let mut cut = false;
    for (place, quantity) in quantities.iter().enumerate() {
        let lowest = place + columns.div_ceil(runs.len().max(1)) >= quantities.len();
        let of_link = |run: &'_ Run| -> Vec<Sample> {
            run.samples.iter().filter(|s| s.router == router && s.link == link).cloned().collect()
        };
        let values: Vec<f64> =
            runs.iter().flat_map(|run| of_link(run)).filter_map(|s| (quantity.value)(&s)).collect();
        let scale = match quantity.log_from {
            Some(floor) => Scale::for_span(values.iter().copied(), floor),
            None => Scale::linear(values.iter().copied().fold(0.0, f64::max)),
        };
        cut |= values.iter().any(|value| scale.cuts(*value));
        for run in &runs {
            let canvas = Canvas { axis: lowest.then_some(TIME), ..canvas(run, columns) };
            html += &panel(run, &of_link(run), quantity, &scale, classes, &canvas);
        }
    }
    (html + "</div>", cut)
}

fn panel(
    run: &Run,
    samples: &[Sample],
    quantity: &Quantity,
    scale: &Scale,
    classes: &[&str],
    canvas: &Canvas<'_>,
) -> String {
    // Steps of one window each are experiments of their own: levels, which nothing joins.
    let apart = run.steps.len() > 1 && windows(samples) <= run.steps.len();
    let points = |s: &Sample| {
        let value = (quantity.value)(s);
        let (from, to) = (s.t_s - s.window_s, s.t_s);
        let middle = (from + to) / 2.0;
        if apart { vec![(from, value), (to, value), (to, None)] } else { vec![(middle, value)] }
    };
    let line = |(index, class): (usize, &&str)| Line {
        index,
        points: samples.iter().filter(|s| s.class == *class).flat_map(points).collect(),
    };
    let lines = classes.iter().enumerate().map(line);
    let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
    canvas.lines(quantity.title, quantity.unit, scale, &lines, &hovers(run, samples, quantity))
}

/// How many windows there are.
fn windows(samples: &[Sample]) -> usize {
    let mut ends: Vec<f64> = samples.iter().map(|sample| sample.t_s).collect();
    ends.dedup();
    ends.len()
}

/// One per window: the values of all classes.
fn hovers(run: &Run, samples: &[Sample], quantity: &Quantity) -> Vec<Hover> {
    let mut hovers: Vec<Hover> = Vec::new();
    for sample in samples {
        let value = (quantity.value)(sample).map_or_else(|| "–".to_owned(), quantity.text);
        let line = format!("\n{}: {value}", sample.class);
        match hovers.last_mut() {
            Some(hover) if hover.to_s == sample.t_s => hover.text += &line,
            _ => hovers.push(Hover {
                from_s: sample.t_s - sample.window_s,
                to_s: sample.t_s,
                text: format!(
                    "{:.1}–{:.1} s, step {}{line}",
                    sample.t_s - sample.window_s,
                    sample.t_s,
                    run.step_of_window(sample.t_s, sample.window_s)
                ),
            }),
        }
    }
    hovers
}

/// Shares of scheduler calls over time for one link, a column per run.
pub(super) fn calls(runs: &[Run], (router, link): (&str, &str)) -> String {
    let runs: Vec<&Run> = runs
        .iter()
        .filter(|run| run.calls.iter().any(|c| c.router == router && c.link == link))
        .collect();
    let columns = runs.len();
    let mut html = grid(columns);
    for run in runs.iter().copied() {
        let mut windows = Vec::new();
        let mut hovers = Vec::new();
        for row in run.calls.iter().filter(|c| c.router == router && c.link == link) {
            let total = row.none + row.one + row.many;
            if total == 0 {
                continue;
            }
            let shares = [row.none, row.one, row.many].map(|calls| calls as f64 / total as f64);
            let (from_s, to_s) = (row.t_s - row.window_s, row.t_s);
            windows.push((from_s, to_s, shares));
            hovers.push(Hover {
                from_s,
                to_s,
                text: format!(
                    "{from_s:.1}–{to_s:.1} s, {} calls\nno queue: {:.1} %\none: {:.1} %\nseveral: \
                     {:.1} %",
                    grouped(total as f64),
                    shares[0] * 100.0,
                    shares[1] * 100.0,
                    shares[2] * 100.0
                ),
            });
        }
        let title = if run.name.is_empty() { "Scheduler calls" } else { &run.name };
        html += &canvas(run, columns).shares(title, "% of calls", &windows, &hovers);
    }
    html + "</div>"
}

pub(super) fn grid(columns: usize) -> String {
    if columns == 2 {
        return "<div class=\"grid two\">".to_owned();
    }
    format!("<div class=\"grid\" style=\"grid-template-columns:repeat({columns},minmax(0,1fr))\">")
}

/// The windows of a link with the percentage of calls that found no (0), one (1) or several (2)
/// queues with packets.
pub(super) fn calls_shares(
    run: &Run,
    (router, link): (&str, &str),
    kind: usize,
) -> Vec<(f64, f64, Option<f64>)> {
    let here = run.calls.iter().filter(|c| c.router == router && c.link == link);
    here.map(|row| {
        let total = row.none + row.one + row.many;
        let calls = [row.none, row.one, row.many][kind];
        (row.t_s, row.window_s, (total > 0).then(|| calls as f64 / total as f64 * 100.0))
    })
    .collect()
}

/// The drawing area of a panel of a run, one of so many columns.
pub(super) fn canvas(run: &Run, columns: usize) -> Canvas<'_> {
    let columns = columns.max(1);
    let width = (1084.0 - 20.0 * (columns as f64 - 1.0)) / columns as f64;
    let last = run.samples.iter().map(|s| s.t_s).fold(run.duration_s, f64::max);
    Canvas {
        width: width.round(),
        height: match columns {
            1 => 190.0,
            2 => 254.0,
            _ => 212.0,
        },
        duration_s: last,
        settle_s: run.settle_s,
        steps: &run.steps,
        axis: Some(TIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn drawn(run: &Run) -> String {
        let runs = std::slice::from_ref(run);
        panels(runs, &QUANTITIES, ("r1", "sink"), &classes(runs)).0
    }

    #[test]
    fn steps_of_one_window_are_levels_and_what_nobody_measured_has_no_panel() {
        let mut run = fixture::two_steps();
        // Each line is one piece.
        let sent = |html: &str| {
            let (_, sent) = html.split_once(">Sent").expect("it has a panel");
            let (_, path) = sent.split_once("class=\"line l0\" d=\"").expect("a line");
            path.split_once('"').expect("it ends").0.matches('M').count()
        };
        assert_eq!(sent(&drawn(&run)), 1);
        run.samples.retain(|sample| [1.0, 5.0].contains(&sample.t_s));
        assert_eq!(sent(&drawn(&run)), 2, "one for each step");
        assert!(drawn(&run).contains("Mean transit delay"));
        for sample in &mut run.samples {
            sample.transit.count = 0;
        }
        assert!(!drawn(&run).contains("Mean transit delay"));
    }
}
