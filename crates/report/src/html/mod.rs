//! The report page: one HTML file with inline CSS and SVG, readable without scripts and printable.
//!
//! Nothing is loaded from anywhere. Colours are those of Okabe and Ito (made for colour-blind
//! readers; lighter on dark screens), lines carry markers of different shapes, verdicts carry
//! signs: nothing is said by colour alone.

mod admission;
mod audits;
mod beside;
mod chart;
mod compare;
mod connections;
mod curves;
pub(crate) mod download;
mod figures;
mod index;
mod measurements;
mod panels;
mod sankey;
mod tables;
mod text;
mod topology;

use evenkeel_scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::judge::{self, Judgement};
use crate::numbers::plain;
use crate::run::{ConnectionRow, FlowRow, Run, StepMark, SubscriberRow, Topology};
use crate::slug::slug;
pub use beside::beside;
pub use compare::{comparison, thumbnail};
pub use curves::{Curve, Plot, curves_page};
use figures::Figures;
pub use index::{IndexEntry, index};
use text::{escape, paragraphs};

/// Everything the page shows.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// `lct/fig4`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Where the claim was published; empty if nowhere.
    pub source: String,
    /// The published claim in its own words, if there is one.
    pub published_claim: String,
    /// The scenario's notes, or the sentences that say what the reader sees. Paragraphs are
    /// separated by an empty line.
    pub notes: String,
    /// Random seed, if the scenario has one.
    pub seed: Option<u64>,
    /// Factor by which times were shortened; 1 when they were not.
    pub time_scale: f64,
    /// The mechanism that was switched off, if one was.
    #[serde(default)]
    pub without: Option<String>,
    /// The runs: one, or several to be shown side by side with shared axes.
    pub runs: Vec<Run>,
    /// Judged expectations of all runs.
    pub judgements: Vec<Judgement>,
}

impl Report {
    /// A report on runs of a scenario, its head taken from the scenario.
    #[must_use]
    pub fn of_scenario(scenario: &Scenario, runs: Vec<Run>, judgements: Vec<Judgement>) -> Self {
        Self {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            source: scenario.source.clone(),
            published_claim: scenario
                .published
                .as_ref()
                .and_then(|p| p.claim.clone())
                .unwrap_or_default(),
            notes: scenario.notes.clone(),
            seed: Some(scenario.seed),
            time_scale: scenario.time_scale,
            without: scenario.without.clone(),
            runs,
            judgements,
        }
    }

    /// Every flow that was followed, in its run.
    pub fn flows(&self) -> impl Iterator<Item = (&Self, &Run, &FlowRow)> {
        self.runs.iter().flat_map(move |run| run.flows.iter().map(move |flow| (self, run, flow)))
    }

    /// Every TCP connection and window that was asked for, in its run.
    pub fn connections(&self) -> impl Iterator<Item = (&Self, &Run, &ConnectionRow)> {
        let runs = self.runs.iter();
        runs.flat_map(move |run| run.connections.iter().map(move |row| (self, run, row)))
    }

    /// Its subscribers, run by run.
    pub fn subscribers(&self) -> impl Iterator<Item = (&Self, &Run, &SubscriberRow)> {
        let runs = self.runs.iter();
        runs.flat_map(move |run| run.subscribers.iter().map(move |row| (self, run, row)))
    }

    /// Whether any verdict fails the run.
    #[must_use]
    pub fn failed(&self) -> bool {
        !judge::bad(&self.judgements).is_empty()
    }

    /// The page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut figures = Figures::named(&slug(&self.name));
        let mut body = self.head();
        body += &self.setup(&mut figures);
        body += &measurements::section(&self.runs, &mut figures);
        body += &self.runs.iter().map(tables::flows).collect::<String>();
        body += &connections::section(&self.runs, &mut figures);
        body += &self.runs.iter().map(tables::subscribers).collect::<String>();
        body += &audits::section(&self.runs);
        body += &self.expectations();
        body += &format!(
            "<footer>Evenkeel {} · rows behind every figure: samples.csv, samples.parquet, \
             calls.csv; numbers for programs: summary.json; the whole result: \
             result.json</footer>\n",
            env!("CARGO_PKG_VERSION")
        );
        page(&escape(&self.title), &body)
    }

    fn head(&self) -> String {
        let mut html = String::from("<header>\n");
        let kicker: Vec<&str> =
            ["Evenkeel", &self.name].into_iter().filter(|s| !s.is_empty()).collect();
        html += &format!("<p class=\"kicker\">{}</p>\n", escape(&kicker.join(" · ")));
        html += &format!("<h1>{}</h1>\n", escape(&self.title));
        if !self.source.is_empty() {
            html += &format!("<p class=\"source\">{}</p>\n", escape(&self.source));
        }
        if !self.published_claim.is_empty() {
            html += &format!(
                "<p class=\"claim\"><b>Published claim:</b> {}</p>\n",
                escape(&self.published_claim)
            );
        }
        html += &warnings(&self.runs);
        html += &format!("<div class=\"notes\">{}</div>", paragraphs(&self.notes));
        if !self.judgements.is_empty() {
            let (class, sign) = if self.failed() { ("bad", "✗") } else { ("good", "✓") };
            html += &format!(
                "<p><a class=\"badge {class}\" href=\"#expectations\">{sign} {}</a></p>\n",
                self.verdict_sentence()
            );
        }
        html += &format!("<ul class=\"meta\">{}</ul>\n</header>\n", self.meta());
        html
    }

    /// The topology of all runs; what they differ in is left to the table of parameters.
    fn topology(&self) -> Option<Topology> {
        let (first, rest) = self.runs.split_first()?;
        let mut topology = first.topology.clone();
        for other in rest.iter().map(|run| &run.topology) {
            for node in &mut topology.nodes {
                let same = other.nodes.iter().find(|n| n.name == node.name);
                node.labels.retain(|label| same.is_none_or(|same| same.labels.contains(label)));
            }
            for wire in &mut topology.wires {
                if let Some(same) = other.wires.iter().find(|w| w.ends == wire.ends) {
                    let parts = wire
                        .label
                        .split(", ")
                        .filter(|part| same.label.split(", ").any(|p| p == *part));
                    wire.label = parts.collect::<Vec<_>>().join(", ");
                }
            }
        }
        (!topology.nodes.is_empty()).then_some(topology)
    }

    fn meta(&self) -> String {
        let mut items = Vec::new();
        if let Some(run) = self.runs.first() {
            items.push(("world", run.world.clone()));
            items.push(("duration", format!("{} s", plain(run.duration_s))));
            items.push(("sampling window", format!("{} s", plain(run.sample_s))));
            items.push(("settling", format!("{} s after each step", plain(run.settle_s))));
        }
        if self.runs.len() > 1 {
            items.push(("runs", self.runs.len().to_string()));
        }
        if (self.time_scale - 1.0).abs() > 1e-9 && self.time_scale > 0.0 {
            items.push(("times scaled by", plain(self.time_scale)));
        }
        if let Some(seed) = self.seed {
            items.push(("seed", seed.to_string()));
        }
        items
            .iter()
            .map(|(name, value)| format!("<li>{name} <b>{}</b></li>", escape(value)))
            .collect()
    }

    fn expectations(&self) -> String {
        if self.judgements.is_empty() {
            return String::new();
        }
        format!(
            "<section>\n<h2 id=\"expectations\">Expectations</h2>\n<p>{}</p>\n{}\n</section>\n",
            self.verdict_sentence(),
            tables::expectations(&self.judgements)
        )
    }

    fn verdict_sentence(&self) -> String {
        let all = self.judgements.len();
        match judge::bad(&self.judgements).len() {
            0 if all == 1 => "The expectation came out as it should.".to_owned(),
            0 => format!("All {all} expectations came out as they should."),
            bad => format!("{bad} of {all} expectations did not come out as they should."),
        }
    }

    fn setup(&self, figures: &mut Figures) -> String {
        let mut html = String::from("<section>\n<h2>Setup</h2>\n");
        if let Some(topology) = self.topology() {
            let caption =
                "Topology: senders left, receivers right. Wires without a rate are not paced.";
            let drawing = topology::draw(&topology);
            let picture = download::picture(&drawing, 1, &[]);
            html += &format!("<figure>{drawing}{}</figure>\n", figures.saved(caption, &picture));
        }
        match self.runs.as_slice() {
            [run] => html += &tables::parameters(&run.parameters),
            runs => html += &tables::parameters_of(runs),
        }
        let mut shown: Vec<&[StepMark]> = Vec::new();
        for run in self.runs.iter().filter(|run| run.steps.len() > 1) {
            if !shown.contains(&run.steps.as_slice()) {
                shown.push(&run.steps);
                let of = if self.runs.len() > 1 {
                    format!(" of {}", escape(&run.name))
                } else {
                    String::new()
                };
                html += &format!("<h3>Steps{of}</h3>\n{}", tables::steps(run));
            }
        }
        for run in self.runs.iter().filter(|run| !run.notes.is_empty()) {
            let of = if self.runs.len() > 1 {
                format!("<b>{}:</b> ", escape(&run.name))
            } else {
                String::new()
            };
            html += &format!("<p class=\"remark\">{of}{}</p>\n", escape(&run.notes.join(" ")));
        }
        html + "</section>\n"
    }
}

/// What makes numbers of the runs doubtful, where it cannot be overlooked; empty if nothing does.
pub(crate) fn warnings(runs: &[Run]) -> String {
    let each = runs.iter().flat_map(|run| {
        let of = if run.name.is_empty() { String::new() } else { format!("{}: ", run.name) };
        run.warnings.iter().map(move |text| format!("<li>{}</li>", escape(&format!("{of}{text}"))))
    });
    let items: String = each.collect();
    if items.is_empty() {
        return items;
    }
    format!(
        "<div class=\"warning\" role=\"alert\"><b>These numbers are doubtful:</b>\
         <ul>{items}</ul></div>\n"
    )
}

/// A whole page; `title` and `body` are markup.
fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} – \
         Evenkeel</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        include_str!("style.css")
    )
}

/// A page that shows one drawing, with a link that saves it as `name`, and below it a table, its
/// heading first, if there is one. `svg` is a whole SVG, all else plain text.
#[must_use]
pub fn figure_page(
    title: &str,
    notes: &str,
    name: &str,
    svg: &str,
    rows: &[Vec<String>],
) -> String {
    let line = |cell: &str, row: &[String]| -> String {
        let cells: String =
            row.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect();
        format!("<tr>{cells}</tr>")
    };
    let table = rows.split_first().map_or_else(String::new, |(heading, rows)| {
        let rows: String = rows.iter().map(|row| line("td", row) + "\n").collect();
        format!(
            "<section>\n<h2>In numbers</h2>\n<div \
             class=\"scroll\"><table><thead>{}</thead><tbody>{rows}</tbody></table></div>\
             \n</section>\n",
            line("th", heading)
        )
    });
    let body = format!(
        "<header>\n<p class=\"kicker\">Evenkeel</p>\n<h1>{}</h1>\n</header>\n<figure>{svg}\
         <figcaption>{}</figcaption></figure>\n<div \
         class=\"notes\">{}</div>\n{table}<footer>Evenkeel {}</footer>\n",
        escape(title),
        download::link(&slug(name), svg),
        paragraphs(notes),
        env!("CARGO_PKG_VERSION")
    );
    page(&escape(title), &body)
}

/// Text so that it means itself in HTML and SVG.
#[must_use]
pub fn escaped(text: &str) -> String {
    escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::judge::Verdict;

    fn report() -> Report {
        Report {
            title: "T".to_owned(),
            time_scale: 1.0,
            runs: vec![fixture::two_steps()],
            ..Report::default()
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let page = report().to_html();
        for forbidden in ["http://", "https://", "src=", "@import", "url(", "<link"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn names_cannot_become_markup() {
        let mut report = report();
        let evil = "<script>alert(1)</script>\"'&";
        report.title = evil.to_owned();
        report.notes = evil.to_owned();
        let run = &mut report.runs[0];
        run.steps[1].name = evil.to_owned();
        run.steps[1].changes = vec![evil.to_owned()];
        run.notes.push(evil.to_owned());
        for sample in &mut run.samples {
            sample.class = evil.to_owned();
            sample.link = evil.to_owned();
        }
        report.judgements.push(Judgement {
            run: evil.to_owned(),
            name: evil.to_owned(),
            claim: evil.to_owned(),
            expression: evil.to_owned(),
            measured: vec![],
            published: vec![],
            verdict: Verdict::Fails,
            note: evil.to_owned(),
        });
        let page = report.to_html();
        assert!(!page.contains("<script"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
    }

    #[test]
    fn one_run_has_four_panels_and_one_of_calls_per_link() {
        let page = report().to_html();
        for title in ["Mean transit delay", "Sent", "Dropped", "Queue length"] {
            assert_eq!(
                page.matches(&format!("<text class=\"title\" x=\"0\" y=\"13\">{title} ")).count(),
                1
            );
        }
        assert_eq!(page.matches("class=\"stepline\"").count(), 5);
        assert_eq!(page.matches("Scheduler calls <tspan").count(), 1);
    }

    #[test]
    fn links_with_control_have_panels_of_it() {
        let mut report = report();
        let title = "<text class=\"title\" x=\"0\" y=\"13\">Congestion index for loss ";
        assert_eq!(report.to_html().matches(title).count(), 0, "there is no control");
        for sample in &mut report.runs[0].samples {
            let late = f64::from(u8::from(sample.t_s > 4.0));
            sample.control = Some(crate::run::ControlSample {
                ci_delay: 0.25,
                ci_loss: 1.5 * late,
                x_delay_us: 300.0,
            });
        }
        let page = report.to_html();
        assert_eq!(page.matches(title).count(), 1);
        assert!(
            page.contains("class3: 1.50") && page.contains("class1: 0.25"),
            "windows tell the values"
        );
        assert!(
            page.contains("class1: 0.30 ms") || page.contains("class1: 0.300 ms"),
            "and the X_DELAY"
        );
        // A run without stands in the other figures only.
        let mut without = fixture::two_steps();
        without.name = "without".to_owned();
        report.runs.push(without);
        assert_eq!(report.to_html().matches(title).count(), 1);
    }

    #[test]
    fn several_runs_share_the_axes_of_a_row() {
        let mut report = report();
        let mut slow = fixture::two_steps();
        slow.name = "slow".to_owned();
        for sample in &mut slow.samples {
            sample.sent_packets /= 10;
        }
        report.runs.push(slow);
        let page = report.to_html();
        let ticks = |svg: &str| -> Vec<String> {
            svg.split("text-anchor=\"end\">")
                .skip(1)
                .map(|s| s.split('<').next().unwrap().to_owned())
                .collect()
        };
        let sent: Vec<Vec<String>> =
            page.split("<svg").filter(|svg| svg.contains(">Sent <tspan")).map(ticks).collect();
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0], sent[1]);
    }

    #[test]
    fn an_empty_run_makes_a_page() {
        let report = Report { runs: vec![Run::default()], ..Report::default() };
        assert!(report.to_html().ends_with("</html>\n"));
        assert!(Report::default().to_html().ends_with("</html>\n"));
    }
}
