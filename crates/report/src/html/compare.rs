//! The page on one scenario in several worlds and seeds.

pub(super) mod results;

use super::admission::{ACCEPTANCE, METERS, has_admission, is_waited_for, metered};
use super::chart::{Canvas, Mark, Overlay, SERIES, Scale, TIME, marker};
use super::download::{self, LegendEntry};
use super::panels::{CONTROL, QUANTITIES, Quantity, calls_shares, grid, is_controlled};
use super::text::{escape, paragraphs};
use super::{Figures, page, tables, topology};
use crate::compare::{Comparison, Curve, WorldResults};
use crate::confidence::Estimate;
use crate::judge::PublishedValue;
use crate::numbers::plain;
use crate::run::Run;

/// The page of a comparison. `data` names files beside it that hold all samples.
#[must_use]
pub fn comparison(comparison: &Comparison, data: &[String]) -> String {
    let Some(head) = comparison.head() else { return String::new() };
    let mut figures = Figures::named(&comparison.slug());
    let mut html = String::from("<header>\n");
    html += &format!(
        "<p class=\"kicker\"><a href=\"index.html\">Evenkeel</a> · {}</p>\n",
        escape(&comparison.name)
    );
    html += &format!("<h1>{}</h1>\n", escape(&head.title));
    if let Some(without) = &comparison.without {
        html += &format!(
            "<p class=\"claim\"><b>Without its mechanism:</b> {}. The expectations shown must fail \
             here.</p>\n",
            escape(without)
        );
    }
    if !head.source.is_empty() {
        html += &format!("<p class=\"source\">{}</p>\n", escape(&head.source));
    }
    if !head.published_claim.is_empty() {
        html += &format!(
            "<p class=\"claim\"><b>Published claim:</b> {}</p>\n",
            escape(&head.published_claim)
        );
    }
    html += &format!("<div class=\"notes\">{}</div>\n<ul class=\"meta\">", paragraphs(&head.notes));
    for world in &comparison.worlds {
        let n = world.results.len();
        let failed = world.failed();
        let (class, sign) = if failed == 0 { ("good", "✓") } else { ("bad", "✗") };
        let seeds = if n == 1 { "1 run".to_owned() } else { format!("{n} seeds") };
        let held = if failed == 0 {
            "as expected".to_owned()
        } else {
            format!("{failed} of {n} not as expected")
        };
        html += &format!(
            "<li><b>{}</b>, {seeds}: <a class=\"badge {class}\" href=\"#expectations\">{sign} \
             {held}</a></li>",
            escape(&world.label)
        );
    }
    html += "</ul>\n</header>\n";
    html += &results::published_table(comparison);
    html += &measurements(comparison, &mut figures);
    html += &results::expectations(comparison);
    html += &results::numbers(comparison);
    html += &setup(comparison, &mut figures);
    let data = data
        .iter()
        .map(|name| format!("<a href=\"{0}\">{0}</a>", escape(name)))
        .collect::<Vec<_>>()
        .join(", ");
    let data =
        if data.is_empty() { data } else { format!(" · every sample behind this page: {data}") };
    html += &format!("<footer>Evenkeel {}{data}</footer>\n", env!("CARGO_PKG_VERSION"));
    page(&escape(&head.title), &html)
}

/// How the curves of a world are drawn, by its place.
const STYLES: [&str; 3] = ["", " dashed", " dotted"];

pub(super) fn line_mark(index: usize, world: usize) -> String {
    let series = index % SERIES;
    let dot = if world == 0 { String::new() } else { marker(index, 15.0, 6.0) };
    let band = if world == 0 {
        format!("<rect class=\"area a{series}\" x=\"1\" y=\"1\" width=\"28\" height=\"10\"/>")
    } else {
        String::new()
    };
    format!("{band}<path class=\"line l{series}{}\" d=\"M1 6H29\"/>{dot}", STYLES[world.min(2)])
}

/// Every class in every world, and what published numbers look like.
fn legend(comparison: &Comparison, names: &[String], published: bool) -> Vec<LegendEntry> {
    let mut entries = Vec::new();
    for (world, results) in comparison.worlds.iter().enumerate() {
        for (index, name) in names.iter().enumerate() {
            let text = format!("{}, {}", escape(name), escape(&results.label));
            entries.push(LegendEntry { mark: line_mark(index, world), text });
        }
    }
    if published {
        let mark = "<path class=\"published\" d=\"M1 6H29\"/>".to_owned();
        entries.push(LegendEntry { mark, text: "published".to_owned() });
    }
    entries
}

/// One panel: for each series and world a curve.
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) text: fn(f64) -> String,
    pub(super) log_from: Option<f64>,
    pub(super) names: &'a [String],
    /// By series, then by world.
    pub(super) curves: Vec<Vec<Curve>>,
    pub(super) marks: Vec<Mark>,
}

impl Panel<'_> {
    pub(super) fn draw(
        &self,
        comparison: &Comparison,
        width: f64,
        height: f64,
        named_axis: bool,
    ) -> String {
        let all = || self.curves.iter().flatten().flatten().filter_map(|(_, estimate)| *estimate);
        let values: Vec<f64> = all()
            .map(|e| if self.log_from.is_some() { e.mean } else { e.mean + e.half.unwrap_or(0.0) })
            .chain(self.marks.iter().map(|mark| mark.value))
            .collect();
        let scale = match (self.unit, self.log_from) {
            ("%", _) => Scale::linear(100.0),
            (_, Some(floor)) => Scale::for_span(values.iter().copied(), floor),
            (_, None) => Scale::linear(values.iter().copied().fold(0.0, f64::max)),
        };
        let steps = comparison.steps();
        let last = self.curves.iter().flatten().flatten().map(|(t_s, _)| *t_s).fold(0.0, f64::max);
        let (duration_s, settle_s) = times(comparison);
        let axis = named_axis.then_some(TIME);
        let canvas = Canvas {
            width,
            height,
            duration_s: duration_s.max(last),
            settle_s,
            steps: &steps,
            axis,
        };
        let mut overlays = Vec::new();
        for (index, worlds) in self.curves.iter().enumerate() {
            for (world, curve) in worlds.iter().enumerate() {
                overlays.push(Overlay {
                    index,
                    style: STYLES[world.min(2)],
                    markers: world > 0,
                    // Where series are runs there is nothing more to say.
                    hover: match worlds.as_slice() {
                        [_] => self.names[index].clone(),
                        _ => format!("{}, {}", self.names[index], comparison.worlds[world].label),
                    },
                    points: curve
                        .iter()
                        .map(|(t_s, e)| (*t_s, e.map(|e| (e.mean, e.half.unwrap_or(0.0)))))
                        .collect(),
                });
            }
        }
        canvas.overlays(self.title, self.unit, &scale, &overlays, &self.marks, self.text)
    }
}

/// A small figure for an index: what each class sent on the first link. Empty if nothing was sent.
#[must_use]
pub fn thumbnail(comparison: &Comparison) -> String {
    let names = comparison.classes();
    let links = comparison.links();
    let Some((router, link)) = links.first() else { return String::new() };
    let [_, sent, ..] = &QUANTITIES;
    let curves =
        names.iter().map(|class| curves_of(comparison, sent, router, link, class)).collect();
    let panel = Panel {
        title: sent.title,
        unit: sent.unit,
        text: sent.text,
        log_from: None,
        names: &names,
        curves,
        marks: Vec::new(),
    };
    // What serves pointing at windows would lie over the link.
    download::without_hits(&panel.draw(comparison, 330.0, 170.0, false))
}

/// Duration and settling time, unscaled.
fn times(comparison: &Comparison) -> (f64, f64) {
    let first = comparison.worlds.first().and_then(|world| Some((world, world.runs().next()?)));
    first.map_or((0.0, 0.0), |(world, run)| {
        (world.unscaled(run.duration_s), world.unscaled(run.settle_s))
    })
}

/// Where a published number stands in a panel.
fn mark(
    comparison: &Comparison,
    value: &PublishedValue,
    index: usize,
    factor: f64,
) -> Option<Mark> {
    let place = value.place.as_ref()?;
    let steps = comparison.steps();
    let from_s = steps.get(place.step)?.at_s;
    let to_s = steps.get(place.step + 1).map_or(times(comparison).0, |next| next.at_s);
    let value = value.published * factor;
    Some(Mark { from_s, to_s, value, index })
}

/// A figure with a panel for each quantity on one link, what was published among them.
fn figure_of(
    comparison: &Comparison,
    quantities: &[Quantity],
    (router, link): (&str, &str),
    caption: &str,
    figures: &mut Figures,
) -> String {
    let names = comparison.classes();
    let published = comparison.published();
    let mut panels = grid(2);
    let mut marked = false;
    for (at, quantity) in quantities.iter().enumerate() {
        let marks: Vec<Mark> = published
            .iter()
            .filter_map(|value| {
                let place = value.place.as_ref()?;
                let (metric, factor) = quantity.shows?;
                let here =
                    place.metric == metric.name() && place.router == router && place.link == link;
                let class = place.class.as_ref().filter(|_| here)?;
                let index = names.iter().position(|name| name == class)?;
                mark(comparison, value, index, factor)
            })
            .collect();
        marked |= !marks.is_empty();
        let curves = names
            .iter()
            .map(|class| curves_of(comparison, quantity, router, link, class))
            .collect();
        let panel = Panel {
            title: quantity.title,
            unit: quantity.unit,
            text: quantity.text,
            log_from: quantity.log_from,
            names: &names,
            curves,
            marks,
        };
        panels += &panel.draw(comparison, 532.0, 254.0, at + 2 >= quantities.len());
    }
    panels += "</div>";
    let entries = legend(comparison, &names, marked);
    figures.figure(&panels, &entries, 2, caption)
}

/// What bands are, if there are any.
pub(super) fn band_remark(comparison: &Comparison) -> &'static str {
    if comparison.worlds.iter().any(|world| world.results.len() > 1) {
        " Bands are 95 % confidence intervals of the mean over seeds (Student); where none is seen \
         it is narrower than the line."
    } else {
        ""
    }
}

fn measurements(comparison: &Comparison, figures: &mut Figures) -> String {
    let published = comparison.published();
    let mut html = String::from("<section>\n<h2>Figures</h2>\n");
    let band = band_remark(comparison);
    let scaled = if comparison.worlds.iter().any(|world| (world.time_scale - 1.0).abs() > 1e-9) {
        " Runs with scaled times are stretched to the scenario’s time axis."
    } else {
        ""
    };
    for (router, link) in comparison.links() {
        let place = format!("link <b>{}</b> of router <b>{}</b>", escape(&link), escape(&router));
        let on = (router.as_str(), link.as_str());
        let text = format!(
            "QoStat on {place}, each point one sampling window. Transit delay runs from arrival in \
             the router to leaving the queue.{band}{scaled}"
        );
        html += &figure_of(comparison, &QUANTITIES, on, &text, figures);
        if comparison.worlds.iter().flat_map(WorldResults::runs).any(|run| is_controlled(run, on)) {
            let text = format!(
                "Dynamic control on {place}: how congested the link is for each class (0: as it \
                 should be, 1: at its degradation threshold), and the X_DELAY that the control \
                 makes of it.{band}{scaled}"
            );
            html += &figure_of(comparison, &CONTROL, on, &text, figures);
        }
        if comparison.worlds.iter().flat_map(WorldResults::runs).any(|run| has_admission(run, on)) {
            html += &admission(comparison, on, &place, &format!("{band}{scaled}"), figures);
        }
        html += &calls_of(comparison, on, &place, scaled, &published, figures);
    }
    html + "</section>\n"
}

/// The scheduler calls of a link, by how many queues had packets; empty if none were counted.
fn calls_of(
    comparison: &Comparison,
    (router, link): (&str, &str),
    place: &str,
    scaled: &str,
    published: &[&PublishedValue],
    figures: &mut Figures,
) -> String {
    let calls: Vec<Vec<Curve>> = (0..3)
        .map(|kind| {
            let rows = |run: &Run| calls_shares(run, (router, link), kind);
            comparison.worlds.iter().map(|world| world.curve(rows)).collect()
        })
        .collect();
    if calls.iter().flatten().all(Vec::is_empty) {
        return String::new();
    }
    let mut marks = Vec::new();
    for (index, metric) in ["calls_none", "calls_one", "calls_many"].into_iter().enumerate() {
        let here = published.iter().filter(|value| {
            let place = value.place.as_ref();
            place.is_some_and(|p| p.metric == metric && p.router == router && p.link == link)
        });
        marks.extend(here.filter_map(|value| mark(comparison, value, index, 100.0)));
    }
    let kinds = ["no queue", "one queue", "several queues"].map(str::to_owned);
    let entries = legend(comparison, &kinds, !marks.is_empty());
    let panel = Panel {
        title: "Scheduler calls",
        unit: "%",
        text: |percent| format!("{percent:.1} %"),
        log_from: None,
        names: &kinds,
        curves: calls,
        marks,
    };
    let caption = format!(
        "Scheduler calls on {place}, by how many queues had packets when the scheduler was called: \
         only a call that finds several can differentiate.{scaled}"
    );
    figures.figure(&panel.draw(comparison, 1084.0, 230.0, true), &entries, 1, &caption)
}

/// What the admission of a link saw; how long flows waited for it, window by window and step by
/// step.
fn admission(
    comparison: &Comparison,
    on: (&str, &str),
    place: &str,
    remarks: &str,
    figures: &mut Figures,
) -> String {
    let mut panels = grid(2);
    let names = ["all flows".to_owned()];
    for meter in &METERS {
        let curve = |world: &WorldResults| world.curve(|run| metered(run, on, meter));
        let panel = Panel {
            title: meter.title,
            unit: meter.unit,
            text: meter.text,
            log_from: None,
            names: &names,
            curves: vec![comparison.worlds.iter().map(curve).collect()],
            marks: Vec::new(),
        };
        panels += &panel.draw(comparison, 532.0, 254.0, true);
    }
    panels += "</div>";
    let caption = format!("What the admission of {place} holds against its thresholds.{remarks}");
    let mut html = figures.figure(&panels, &[], 2, &caption);
    if !comparison.worlds.iter().flat_map(WorldResults::runs).any(|run| is_waited_for(run, on)) {
        return html;
    }
    let names = comparison.classes();
    let curves = |class: &String| -> Vec<Curve> {
        comparison.worlds.iter().map(|world| waits_by_step(world, on, class)).collect()
    };
    let panel = Panel {
        title: "Acceptance delay, mean of each step",
        unit: "s",
        text: |seconds| format!("{seconds:.3} s"),
        log_from: None,
        names: &names,
        curves: names.iter().map(curves).collect(),
        marks: Vec::new(),
    };
    let panel = panel.draw(comparison, 1084.0, 254.0, true);
    let entries = legend(comparison, &names, false);
    let caption = format!(
        "How long flows waited to pass {place}, from the first packet to the first that got \
         through, over all flows of a class in a step.{remarks}"
    );
    html += &figures.figure(&panel, &entries, 1, &caption);
    // Flows are let in at instants: curves of their delays would be single points.
    let caption = format!("Flows that want to pass {place} and wait.{remarks}");
    html + &figure_of(comparison, &ACCEPTANCE[1..], on, &caption, figures)
}

/// The mean acceptance delay of a class in each step, s: a level from the step's begin to its end,
/// over all seeds.
fn waits_by_step(world: &WorldResults, (router, link): (&str, &str), class: &str) -> Curve {
    let steps = world.steps();
    let each: Vec<_> = world.runs().map(Run::step_stats).collect();
    let end = world.runs().map(|run| world.unscaled(run.duration_s)).fold(0.0, f64::max);
    let ends = steps.iter().skip(1).map(|step| step.at_s).chain([end]);
    let mut curve = Curve::new();
    for ((at, step), until) in steps.iter().enumerate().zip(ends) {
        let means: Vec<f64> = each
            .iter()
            .filter_map(|stats| stats.get(at))
            .flat_map(|step| &step.classes)
            .filter(|row| row.router == router && row.link == link && row.class == class)
            .filter_map(|row| Some(row.acceptance?.mean_us / 1e6))
            .collect();
        let estimate = Estimate::of(&means);
        // Levels of neighbouring steps are not joined.
        curve.extend([(step.at_s, None), (step.at_s, estimate), (until, estimate)]);
    }
    curve
}

pub(super) fn curves_of(
    comparison: &Comparison,
    quantity: &Quantity,
    router: &str,
    link: &str,
    class: &str,
) -> Vec<Curve> {
    let rows = |run: &Run| {
        let here =
            run.samples.iter().filter(|s| s.router == router && s.link == link && s.class == class);
        here.map(|s| (s.t_s, s.window_s, (quantity.value)(s))).collect::<Vec<_>>()
    };
    comparison.worlds.iter().map(|world| world.curve(rows)).collect()
}

fn setup(comparison: &Comparison, figures: &mut Figures) -> String {
    let Some(run) = comparison.worlds.first().and_then(|world| world.runs().next()) else {
        return String::new();
    };
    let mut html = String::from("<section>\n<h2>Setup</h2>\n");
    let drawing = topology::draw(&run.topology);
    if !drawing.is_empty() {
        let caption =
            "Topology: senders left, receivers right. Wires without a rate are not paced.";
        html += &format!(
            "<figure>{drawing}{}</figure>\n",
            figures.saved(caption, &download::picture(&drawing, 1, &[]))
        );
    }
    html += &tables::parameters(&run.parameters);
    if run.steps.len() > 1 {
        let unscaled = Run { steps: comparison.steps(), ..Run::default() };
        html += &format!("<h3>Steps</h3>\n{}", tables::steps(&unscaled));
    }
    for world in &comparison.worlds {
        let (Some(run), n) = (world.runs().next(), world.results.len()) else { continue };
        let seeds: Vec<String> = world
            .results
            .iter()
            .filter_map(|report| report.seed)
            .map(|seed| seed.to_string())
            .collect();
        let notes = if n == 1 { run.notes.join(" ") } else { String::new() };
        html += &format!(
            "<p class=\"remark\"><b>{}:</b> {} s in windows of {} s, {} s left out after each \
             step; seed{} {}. {}</p>\n",
            escape(&world.label),
            plain(run.duration_s),
            plain(run.sample_s),
            plain(run.settle_s),
            if n == 1 { "" } else { "s" },
            escape(&seeds.join(", ")),
            escape(&notes)
        );
    }
    html + "</section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::group;
    use crate::fixture;
    use crate::html::Report;
    use crate::judge::Verdict;
    use crate::judge::{FigurePlace, Judgement};
    use evenkeel_scenario::Term;

    fn result(world: &str, seed: u64, sent: u64) -> Report {
        let mut run = fixture::two_steps();
        run.world = world.to_owned();
        for sample in &mut run.samples {
            sample.sent_packets += sent;
        }
        let value = run.step_stats()[1].classes[1].sent;
        let judgement = Judgement {
            run: String::new(),
            name: "e".to_owned(),
            claim: "The <claim>".to_owned(),
            expression: "sent(class3)@x10 ~ published.n within 5%".to_owned(),
            measured: vec![Term {
                text: "sent(class3)@x10".to_owned(),
                value: Some(value),
                unit: "packets/s",
            }],
            published: vec![PublishedValue {
                quantity: "sent(class3)@x10".to_owned(),
                unit: "packets/s".to_owned(),
                published: 505.0,
                measured: Some(value),
                place: Some(FigurePlace {
                    metric: "sent".to_owned(),
                    router: "r1".to_owned(),
                    link: "sink".to_owned(),
                    class: Some("class3".to_owned()),
                    step: 1,
                }),
            }],
            verdict: if seed == 2 { Verdict::Fails } else { Verdict::Holds },
            note: String::new(),
        };
        Report {
            name: "x".to_owned(),
            title: "T".to_owned(),
            time_scale: 1.0,
            seed: Some(seed),
            runs: vec![run],
            judgements: vec![judgement],
            ..Report::default()
        }
    }

    #[test]
    fn published_simulation_and_lab_stand_in_one_figure() {
        let (comparisons, _) =
            group(vec![result("sim", 1, 0), result("sim", 2, 20), result("lab", 1, 7)]);
        let page = comparison(&comparisons[0], &["x.csv".to_owned()]);
        // Mean 510, half width 12.706 * 10.
        assert!(page.contains("510 packets/s <span class=\"ci\">± 127 packets/s</span>"), "{page}");
        assert!(page.contains("<b>505 packets/s</b>") && page.contains("507 packets/s"));
        assert!(page.contains("class=\"area a1\"") && page.contains("class=\"line l1 dashed\""));
        assert_eq!(page.matches("class=\"published\"").count(), 2, "legend and panel");
        assert!(page.contains("1 of 2 not as expected") && page.contains("1 of 2 seeds"));
        assert!(page.contains("The &lt;claim&gt;") && page.contains("download=\"x-1.svg\""));
        for forbidden in ["http://", "https://", "<script", "@import", "<link"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
