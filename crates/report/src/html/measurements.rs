//! What was measured: the figures of each link, and the numbers per step.

use super::download::{self, LegendEntry};
use super::figures::Figures;
use super::text::escape;
use super::{admission, panels, sankey, tables};
use crate::run::Run;

/// The section of a page about these runs.
pub(super) fn section(runs: &[Run], figures: &mut Figures) -> String {
    let classes = panels::classes(runs);
    let mut html = String::from("<section>\n<h2>Measurements</h2>\n");
    if let Some((drawing, columns)) = sankey::draw(runs) {
        let caption = "Where packets went, step by step: those that were sent to the router, and \
                       of them those that its receive ring had no room for, those that it refused, \
                       and those that it forwarded. Flows whose packets take many cycles are red.";
        let picture = download::picture(&drawing, columns, &[]);
        html += &format!("<figure>{drawing}{}</figure>\n", figures.saved(caption, &picture));
    }
    let links = panels::links(runs);
    let idle: Vec<_> = links.iter().copied().filter(|on| panels::is_idle(runs, *on)).collect();
    // If nothing waits anywhere, that is what is to be seen.
    let left_out: &[_] = if idle.len() < links.len() { &idle } else { &[] };
    for (router, link) in links.into_iter().filter(|on| !left_out.contains(on)) {
        let link = LinkFigures {
            runs,
            on: (router, link),
            place: format!("link <b>{}</b> of router <b>{}</b>", escape(link), escape(router)),
            several: if runs.len() > 1 { " All runs share the axes of a row." } else { "" },
            legend: panels::legend(&classes),
            classes: &classes,
        };
        html += &link.windows(figures);
        html += &link.cores(figures);
        html += &link.control(figures);
        html += &link.admission(figures);
        html += &link.cycles(figures);
        html += &link.calls(figures);
    }
    if !left_out.is_empty() {
        let named = left_out.iter().map(|(router, link)| format!("{link} of {router}"));
        html += &format!(
            "<p class=\"remark\">Without figures, because nothing waited there and nothing was \
             lost: {}. Their numbers are in the tables and in samples.csv.</p>\n",
            escape(&named.collect::<Vec<_>>().join(", "))
        );
    }
    html += "<h3>Numbers per step</h3>\n";
    html += &tables::numbers(runs, &classes);
    if runs.iter().any(|run| !run.calls.is_empty()) {
        html += "<h3>Scheduler calls per step</h3>\n";
        html += &tables::calls(runs);
    }
    html + "</section>\n"
}

/// The figures of one link; each is empty if no run has what it shows.
struct LinkFigures<'a> {
    runs: &'a [Run],
    /// Router and link.
    on: (&'a str, &'a str),
    /// The same in markup.
    place: String,
    /// What captions say if there are several runs.
    several: &'static str,
    classes: &'a [&'a str],
    legend: Vec<LegendEntry>,
}

impl LinkFigures<'_> {
    /// The panels of some quantities, and whether delays were cut at the lower end.
    fn panels(&self, quantities: &[panels::Quantity]) -> (String, bool) {
        panels::panels(self.runs, quantities, self.on, self.classes)
    }

    /// How many panels stand side by side if only runs that `have` something are shown; `None`: no
    /// run has it.
    fn columns(&self, have: fn(&Run, (&str, &str)) -> bool) -> Option<usize> {
        match self.runs.iter().filter(|run| have(run, self.on)).count() {
            0 => None,
            runs => Some(runs.max(2)),
        }
    }

    /// QoStat: rates, delays, drops and queues, window by window.
    fn windows(&self, figures: &mut Figures) -> String {
        let Self { runs, place, several, .. } = self;
        let marks = if runs.iter().any(|run| run.steps.len() > 1) {
            " Dotted lines mark the steps, by name or by number in the table of steps; windows on \
             darker ground (settling) do not count in a step’s numbers."
        } else {
            " Windows on darker ground (settling) do not count."
        };
        let delay = match runs.iter().all(panels::is_core) {
            true => "",
            false => " Transit delay runs from arrival in the router to leaving the queue.",
        };
        let (panels, cut) = self.panels(panels::quantities(runs));
        let cut = if cut { " Delays below 1 us are drawn at 1 us." } else { "" };
        let caption = format!(
            "QoStat on {place}: each point is one sampling window.{delay}{marks}{several}{cut}"
        );
        let columns = if runs.len() == 1 { 2 } else { runs.len() };
        figures.figure(&panels, &self.legend, columns, &caption)
    }

    /// A polled core against exact water filling.
    fn cores(&self, figures: &mut Figures) -> String {
        if !self.runs.iter().any(panels::is_core) {
            return String::new();
        }
        let caption = "What exact max-min water filling would give to each class, of the same \
                       arrivals, and what each has of that.";
        let columns = if self.runs.len() == 1 { 2 } else { self.runs.len() };
        figures.figure(&self.panels(&panels::CORE).0, &self.legend, columns, caption)
    }

    fn control(&self, figures: &mut Figures) -> String {
        let Some(columns) = self.columns(panels::is_controlled) else { return String::new() };
        let Self { place, several, .. } = self;
        let caption = format!(
            "Dynamic control on {place}: how congested the link is for each class (0: as it should \
             be, 1: at its degradation threshold), and the X_DELAY that the control makes of \
             it.{several}"
        );
        figures.figure(&self.panels(&panels::CONTROL).0, &self.legend, columns, &caption)
    }

    /// What the admission of the link saw, and how long flows waited for it.
    fn admission(&self, figures: &mut Figures) -> String {
        let Some(columns) = self.columns(admission::has_admission) else { return String::new() };
        let Self { place, several, .. } = self;
        let caption = format!(
            "What the admission of {place} holds against its thresholds: the rate that one more \
             greedy flow would get, and what goes first.{several}"
        );
        let meters = admission::meters(self.runs, self.on);
        let mut html = figures.figure(&meters, &[], columns, &caption);
        if self.columns(admission::is_waited_for).is_some() {
            let caption = format!(
                "Flows that want to pass {place}: how long those let in in a window had waited \
                 since their first packet, and how many wait still.{several}"
            );
            let (waits, _) = self.panels(&admission::ACCEPTANCE);
            html += &figures.figure(&waits, &self.legend, columns, &caption);
        }
        html
    }

    /// Of the whole router.
    fn cycles(&self, figures: &mut Figures) -> String {
        let Some(columns) = self.columns(panels::has_cycles) else { return String::new() };
        let caption = format!(
            "Cycles of router <b>{}</b> by class, with their parts of fetching and sending; what \
             FairDrop or a service refused before any link.{}",
            escape(self.on.0),
            self.several
        );
        figures.figure(&self.panels(&panels::CYCLES).0, &self.legend, columns, &caption)
    }

    fn calls(&self, figures: &mut Figures) -> String {
        let (router, link) = self.on;
        let told = |run: &Run| run.calls.iter().any(|c| c.router == router && c.link == link);
        if !self.runs.iter().any(told) {
            return String::new();
        }
        let caption = format!(
            "Scheduler calls on {}, by how many queues had packets when the scheduler was called: \
             only a call that finds several can differentiate.",
            self.place
        );
        let calls = panels::calls(self.runs, self.on);
        figures.figure(&calls, &panels::calls_legend(), self.runs.len(), &caption)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::run::Sample;

    /// A link at which nothing happens, beside the one of the fixture.
    fn with_idle_link(queue_us: u64) -> Run {
        let mut run = fixture::two_steps();
        let of = |sample: &Sample| Sample {
            link: "back".to_owned(),
            dropped: Vec::new(),
            qlen: 0,
            queue_us: Some(queue_us),
            ..sample.clone()
        };
        let idle: Vec<Sample> = run.samples.iter().map(of).collect();
        run.samples.extend(idle);
        run
    }

    #[test]
    fn links_at_which_nothing_waits_are_named_and_not_drawn() {
        let page = |run: Run| section(&[run], &mut Figures::named("x"));
        let drawn =
            |html: &str, link: &str| html.contains(&format!("QoStat on link <b>{link}</b>"));
        let html = page(with_idle_link(49_999));
        assert!(drawn(&html, "sink") && !drawn(&html, "back"));
        assert!(html.contains("Without figures") && html.contains("back of r1"), "{html}");
        // A twentieth of a packet on average.
        let html = page(with_idle_link(50_000));
        assert!(drawn(&html, "sink") && drawn(&html, "back") && !html.contains("Without figures"));
        // Where that is all there is, it is shown.
        let mut run = with_idle_link(0);
        run.samples.retain(|sample| sample.link == "back");
        run.calls.clear();
        assert!(drawn(&page(run), "back"));
    }
}
