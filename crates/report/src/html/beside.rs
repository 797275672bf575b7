//! The page on runs that are put beside each other: colours are runs, and every class has panels of
//! its own, whose axes all runs share. A run alone is a comparison of one.

use evenkeel_core::measure::Tally;

use super::chart::{Canvas, Overlay, Scale};
use super::compare::{Panel, band_remark, curves_of, line_mark, results};
use super::download::LegendEntry;
use super::panels::{QUANTITIES, grid};
use super::text::escape;
use super::{Figures, page, tables, warnings};
use crate::compare::{Comparison, Curve, WorldResults};
use crate::confidence::Estimate;
use crate::numbers::micros;
use crate::run::{Delays, Run};

/// Percentiles that a distribution is drawn through.
const PERCENTILES: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 98.0, 99.0,
    99.5, 99.9,
];

/// The page on `comparison`, whose worlds are the runs ([`crate::compare::beside`]), under a
/// heading. `data` names files beside it that hold all samples.
#[must_use]
pub fn beside(comparison: &Comparison, data: &[String]) -> String {
    let mut figures = Figures::named(&comparison.slug());
    let labels: Vec<String> = comparison.worlds.iter().map(|world| world.label.clone()).collect();
    let mut html = format!(
        "<header>\n<p class=\"kicker\">Evenkeel · comparison</p>\n<h1>{}</h1>\n",
        escape(&comparison.name)
    );
    let runs: Vec<Run> = comparison.worlds.iter().flat_map(WorldResults::runs).cloned().collect();
    html += &warnings(&runs);
    html += "<ul class=\"meta\">";
    for (index, world) in comparison.worlds.iter().enumerate() {
        let (n, failed) = (world.results.len(), world.failed());
        let runs = if n == 1 { "1 run".to_owned() } else { format!("{n} runs") };
        let (class, sign) = if failed == 0 { ("good", "✓") } else { ("bad", "✗") };
        html += &format!(
            "<li><i class=\"swatch\" style=\"background:var(--s{})\"></i><b>{}</b>, {runs} \
             <a class=\"badge {class}\" href=\"#expectations\">{sign} {} of {n} as \
             expected</a></li>",
            index % super::chart::SERIES,
            escape(&world.label),
            n - failed
        );
    }
    html += "</ul>\n</header>\n<section>\n<h2>Figures</h2>\n";
    let legend: Vec<LegendEntry> = labels
        .iter()
        .enumerate()
        .map(|(run, label)| LegendEntry {
            mark: line_mark(run, 0),
            text: escape(label).into_owned(),
        })
        .collect();
    for (router, link) in comparison.links() {
        for class in comparison.classes() {
            let on = (router.as_str(), link.as_str(), class.as_str());
            html += &of_class(comparison, on, &labels, &legend, &mut figures);
        }
    }
    html += "</section>\n";
    html += &results::expectations(comparison);
    html += &results::numbers(comparison);
    let firsts: Vec<Run> = comparison
        .worlds
        .iter()
        .filter_map(|world| Some(Run { name: world.label.clone(), ..world.runs().next()?.clone() }))
        .collect();
    html += &format!("<section>\n<h2>Setup</h2>\n{}", tables::parameters_of(&firsts));
    for run in &firsts {
        html += &format!(
            "<p class=\"remark\"><b>{}:</b> {}, {} s in windows of {} s, {} s left out after each \
             step.</p>\n",
            escape(&run.name),
            escape(&run.world),
            run.duration_s,
            run.sample_s,
            run.settle_s
        );
    }
    let data: Vec<String> =
        data.iter().map(|name| format!("<a href=\"{0}\">{0}</a>", escape(name))).collect();
    html += &format!(
        "</section>\n<footer>Evenkeel {} · every sample behind this page: {}</footer>\n",
        env!("CARGO_PKG_VERSION"),
        data.join(", ")
    );
    page(&escape(&comparison.name), &html)
}

/// What a class got on a link, over time and as a distribution of its delays; empty where it sent
/// nothing.
fn of_class(
    comparison: &Comparison,
    (router, link, class): (&str, &str, &str),
    labels: &[String],
    legend: &[LegendEntry],
    figures: &mut Figures,
) -> String {
    let is_here = |run: &Run| run.samples.iter().any(|s| s.is_of(router, link, class));
    if !comparison.worlds.iter().flat_map(WorldResults::runs).any(is_here) {
        return String::new();
    }
    let mut panels = grid(2);
    for quantity in &QUANTITIES {
        // One curve for each run, none of which is of another world.
        let curves = curves_of(comparison, quantity, router, link, class);
        let panel = Panel {
            title: quantity.title,
            unit: quantity.unit,
            text: quantity.text,
            log_from: quantity.log_from,
            names: labels,
            curves: curves.into_iter().map(|curve| vec![curve]).collect(),
            marks: Vec::new(),
        };
        panels += &panel.draw(comparison, 532.0, 254.0, true);
    }
    panels += "</div>";
    let place = format!(
        "Class <b>{}</b> on link <b>{}</b> of router <b>{}</b>",
        escape(class),
        escape(link),
        escape(router)
    );
    let band = band_remark(comparison);
    let caption = format!("{place}, each point one sampling window.{band}");
    let mut html = figures.figure(&panels, legend, 2, &caption);
    let delays = |world: &WorldResults| distribution(world, (router, link, class));
    let curves: Vec<Curve> = comparison.worlds.iter().map(delays).collect();
    if curves.iter().any(|curve| !curve.is_empty()) {
        let caption = format!(
            "{place}: distribution of the transit delay, settling times left out: the \
             CDF with its axes exchanged. At 90 %, nine packets of ten took at most so long.{band}"
        );
        html += &figures.figure(&quantiles(&curves, labels), legend, 1, &caption);
    }
    html
}

/// The delays of a class by percentile, ms: the estimate over the runs of each.
fn distribution(world: &WorldResults, (router, link, class): (&str, &str, &str)) -> Curve {
    let of_run = |run: &Run| {
        let mut all: Option<Delays> = None;
        for sample in run.samples.iter().filter(|s| s.is_of(router, link, class)) {
            let begin = run.steps.iter().rev().find(|step| step.at_s < sample.t_s);
            if begin.is_some_and(|step| sample.t_s - sample.window_s < step.at_s + run.settle_s) {
                continue;
            }
            match &mut all {
                Some(all) => all.add(&sample.transit),
                None => all = Some(sample.transit.clone()),
            }
        }
        all.filter(|delays| delays.count > 0)
    };
    let each: Vec<Delays> = world.runs().filter_map(of_run).collect();
    if each.is_empty() {
        return Curve::new();
    }
    let at = |percent: f64| {
        let values: Vec<f64> =
            each.iter().map(|delays| delays.quantile_us(percent / 100.0) / 1e3).collect();
        (percent, Estimate::of(&values))
    };
    PERCENTILES.into_iter().map(at).collect()
}

fn quantiles(curves: &[Curve], labels: &[String]) -> String {
    let values =
        || curves.iter().flatten().filter_map(|(_, estimate)| Some(estimate.as_ref()?.mean));
    let scale = Scale::for_span(values(), 0.001);
    let overlays: Vec<Overlay<'_>> = curves
        .iter()
        .enumerate()
        .map(|(index, curve)| Overlay {
            index,
            style: "",
            markers: true,
            hover: labels[index].clone(),
            points: curve
                .iter()
                .map(|(percent, e)| (*percent, e.map(|e| (e.mean, e.half.unwrap_or(0.0)))))
                .collect(),
        })
        .collect();
    let canvas = Canvas {
        width: 1084.0,
        height: 280.0,
        duration_s: 100.0,
        settle_s: 0.0,
        steps: &[],
        axis: Some("packets, %"),
    };
    let text = |ms: f64| format!("{} ms", micros(ms * 1e3));
    canvas.overlays("Transit delay by percentile", "ms", &scale, &overlays, &[], text)
}
