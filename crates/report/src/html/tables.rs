//! Parameters, steps, numbers per step and expectations as HTML tables.

use evenkeel_scenario::{Fold, Statistic, SubscriberMetric};

use super::chart::SERIES;
use super::text::escape;
use crate::bootstrap::Interval;
use crate::flow_stats::flow_stats;
use crate::judge::{Judgement, Verdict};
use crate::numbers::{grouped, measured, micros, plain};
use crate::run::{Parameter, Run};
use crate::stats::DelayStats;
use crate::subscribers::neighbourhoods;
use crate::table::several_links;

/// Parameters in groups, each a small table.
pub(super) fn parameters(parameters: &[Parameter]) -> String {
    let mut groups: Vec<(&str, String)> = Vec::new();
    for p in parameters {
        let row = format!(
            "<tr><td class=\"key\">{}</td><td>{}</td></tr>",
            escape(&p.name),
            escape(&p.value)
        );
        match groups.last_mut() {
            Some((group, rows)) if *group == p.group => rows.push_str(&row),
            _ => groups.push((&p.group, row)),
        }
    }
    let mut html = String::from("<div class=\"params\">");
    for (group, rows) in groups {
        html += &format!("<div><h3>{}</h3><table>{rows}</table></div>", escape(group));
    }
    html + "</div>"
}

/// Parameters of several runs side by side; what is the same for all stands once.
pub(super) fn parameters_of(runs: &[Run]) -> String {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for p in runs.iter().flat_map(|run| &run.parameters) {
        let key = (p.group.as_str(), p.name.as_str());
        if !keys.contains(&key) {
            // Beside its group, so that groups stay together.
            let at = keys
                .iter()
                .rposition(|(group, _)| *group == p.group)
                .map_or(keys.len(), |at| at + 1);
            keys.insert(at, key);
        }
    }
    let heads: String = runs.iter().map(|run| format!("<th>{}</th>", escape(&run.name))).collect();
    let mut html = format!(
        "<div class=\"scroll\"><table class=\"wide \
         matrix\"><thead><tr><th></th>{heads}</tr></thead>"
    );
    let mut group = None;
    for (of, name) in keys {
        if group != Some(of) {
            html += if group.is_some() { "</tbody><tbody>" } else { "<tbody>" };
            html += &format!("<tr><th colspan=\"{}\">{}</th></tr>", runs.len() + 1, escape(of));
            group = Some(of);
        }
        let values: Vec<&str> = runs
            .iter()
            .map(|run| {
                let found = run.parameters.iter().find(|p| p.group == of && p.name == name);
                found.map_or("–", |p| p.value.as_str())
            })
            .collect();
        html += &format!("<tr><td class=\"key\">{}</td>", escape(name));
        if values.iter().all(|value| *value == values[0]) {
            html += &format!("<td colspan=\"{}\">{}</td>", runs.len(), escape(values[0]));
        } else {
            html += &values
                .iter()
                .map(|value| format!("<td>{}</td>", escape(value)))
                .collect::<String>();
        }
        html += "</tr>";
    }
    html + if group.is_some() { "</tbody></table></div>" } else { "</table></div>" }
}

/// The steps: number, time, name, what changed.
pub(super) fn steps(run: &Run) -> String {
    let mut rows = String::new();
    for (i, step) in run.steps.iter().enumerate() {
        let changes = if step.changes.is_empty() {
            "as configured".to_owned()
        } else {
            step.changes.join("; ")
        };
        rows += &format!(
            "<tr><td class=\"n\">{}</td><td class=\"n\">{} s</td><td \
             class=\"stepname\">{}</td><td>{}</td></tr>",
            i + 1,
            plain(step.at_s),
            escape(&step.name),
            escape(&changes)
        );
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr><th class=\"n\">#</th><th \
         class=\"n\">at</th><th>step</th><th>change</th></tr></thead><tbody>{rows}</tbody></table>\
         </div>"
    )
}

fn delay_cells(delays: Option<DelayStats>) -> String {
    match delays {
        Some(d) => [d.mean_us, d.p50_us, d.p99_us]
            .map(|us| format!("<td class=\"n\">{}</td>", micros(us)))
            .concat(),
        None => "<td class=\"n\">–</td>".repeat(3),
    }
}

/// Numbers per step and class; with several runs the run is a column.
pub(super) fn numbers(runs: &[Run], classes: &[&str]) -> String {
    let stats: Vec<_> = runs.iter().map(|run| (run, run.step_stats())).collect();
    let links = stats.iter().any(|(_, steps)| several_links(steps));
    let end_to_end =
        stats.iter().flat_map(|(_, s)| s).flat_map(|s| &s.classes).any(|c| c.end_to_end.is_some());
    let mut heads = Vec::new();
    if runs.len() > 1 {
        heads.push("run");
    }
    heads.push("step");
    if links {
        heads.push("link");
    }
    heads.push("class");
    let lead: String = heads.iter().map(|h| format!("<th rowspan=\"2\">{h}</th>")).collect();
    let quantity = ["offered", "sent", "dropped"]
        .map(|q| format!("<th class=\"n\" rowspan=\"2\">{q}<br>/s</th>"))
        .concat();
    let triple = "<th class=\"n\">mean</th><th class=\"n\">p50</th><th class=\"n\">p99</th>";
    let (e2e_head, e2e_triple) = if end_to_end {
        ("<th class=\"span\" colspan=\"3\">end-to-end delay, ms</th>", triple)
    } else {
        ("", "")
    };
    let mut html = format!(
        "<div class=\"scroll\"><table class=\"wide\"><thead><tr>{lead}{quantity}<th class=\"n\" \
         rowspan=\"2\">queue<br>packets</th><th class=\"span\" colspan=\"3\">transit delay, \
         ms</th>{e2e_head}</tr><tr>{triple}{e2e_triple}</tr></thead>"
    );
    for (run, steps) in &stats {
        let mut first_of_run = true;
        for step in steps.iter().filter(|s| !s.classes.is_empty()) {
            html += "<tbody>";
            for (i, class) in step.classes.iter().enumerate() {
                html += "<tr>";
                if runs.len() > 1 {
                    let name = if std::mem::take(&mut first_of_run) { &run.name } else { "" };
                    html += &format!("<td class=\"stepname\">{}</td>", escape(name));
                }
                let name = if i == 0 { step.step.as_str() } else { "" };
                html += &format!("<td class=\"stepname\">{}</td>", escape(name));
                if links {
                    html += &format!("<td>{}/{}</td>", escape(&class.router), escape(&class.link));
                }
                let colour = classes.iter().position(|c| *c == class.class).unwrap_or(0) % SERIES;
                html += &format!(
                    "<td style=\"white-space:nowrap\"><i class=\"swatch\" \
                     style=\"background:var(--s{colour})\"></i>{}</td>",
                    escape(&class.class)
                );
                let offered = class.offered.map_or_else(|| "–".to_owned(), grouped);
                html += &[
                    offered,
                    grouped(class.sent),
                    grouped(class.dropped),
                    format!("{:.1}", class.qlen),
                ]
                .map(|cell| format!("<td class=\"n\">{cell}</td>"))
                .concat();
                html += &delay_cells(class.transit);
                if end_to_end {
                    html += &delay_cells(class.end_to_end);
                }
                html += "</tr>";
            }
            html += "</tbody>";
        }
    }
    html + "</table></div>"
}

/// Shares of scheduler calls per step.
pub(super) fn calls(runs: &[Run]) -> String {
    let mut rows = String::new();
    for run in runs {
        let mut first_of_run = true;
        for step in run.step_stats() {
            for link in &step.links {
                rows += "<tr>";
                if runs.len() > 1 {
                    let name = if std::mem::take(&mut first_of_run) { &run.name } else { "" };
                    rows += &format!("<td class=\"stepname\">{}</td>", escape(name));
                }
                rows += &format!(
                    "<td class=\"stepname\">{}</td><td>{}/{}</td><td class=\"n\">{}</td>",
                    escape(&step.step),
                    escape(&link.router),
                    escape(&link.link),
                    grouped(link.calls)
                );
                for share in [link.none, link.one, link.many] {
                    rows += &format!("<td class=\"n\">{:.1} %</td>", share * 100.0);
                }
                rows += "</tr>";
            }
        }
    }
    let run = if runs.len() > 1 { "<th>run</th>" } else { "" };
    format!(
        "<div class=\"scroll\"><table><thead><tr>{run}<th>step</th><th>link</th><th \
         class=\"n\">calls/s</th><th class=\"n\">none</th><th class=\"n\">one</th><th \
         class=\"n\">several</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// The flows of a run by their traffic; nothing where nobody followed them.
pub(super) fn flows(run: &Run) -> String {
    let all = flow_stats(run);
    if all.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for stats in &all {
        let (asked, done) = stats.done;
        let done = if asked == 0 { "–".to_owned() } else { format!("{done} of {asked}") };
        let mut cells = vec![stats.flows.to_string(), done];
        cells.extend(stats.fct_s.map(|fct| with_ends(fct, |seconds| micros(seconds * 1e6))));
        cells.push(with_ends(stats.goodput_bps, |bps| format!("{:.3}", bps / 1e6)));
        let cells: String =
            cells.iter().map(|cell| format!("<td class=\"n\">{cell}</td>")).collect();
        rows += &format!("<tr><td>{}</td>{cells}</tr>", escape(&stats.traffic));
    }
    let of = if run.name.is_empty() { String::new() } else { format!(" of {}", escape(&run.name)) };
    format!(
        "<section>\n<h2>Flows{of}</h2>\n<p>Completion times in ms, goodput of a flow in Mbit/s; \
         95 % intervals by bootstrap over the flows of this run.</p>\n<div \
         class=\"scroll\"><table><thead><tr><th>traffic</th><th class=\"n\">flows</th><th \
         class=\"n\">done</th><th class=\"n\">median</th><th class=\"n\">95 %</th><th \
         class=\"n\">99 %</th><th class=\"n\">goodput</th></tr></thead>\
         <tbody>{rows}</tbody></table></div>\n</section>\n"
    )
}

/// The subscribers of a run by step, link and node; nothing where nobody counted them.
pub(super) fn subscribers(run: &Run) -> String {
    let all = neighbourhoods(run);
    if all.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for one in &all {
        let quantile = |percent, metric| one.of(Statistic::Quantile(percent), metric);
        let worst = |metric| one.of(Statistic::Fold(Fold::Worst), metric);
        let text = |value: Option<f64>, text: fn(f64) -> String| value.map_or("–".to_owned(), text);
        let mbit = |bps: f64| format!("{:.2}", bps / 1e6);
        let part = |part: f64| format!("{:.2} %", part * 100.0);
        let cells = [
            one.rows.len().to_string(),
            one.rows.iter().filter(|row| row.greedy).count().to_string(),
            text(worst(SubscriberMetric::Rate), mbit),
            text(quantile(50, SubscriberMetric::Rate), mbit),
            text(quantile(99, SubscriberMetric::Rate), mbit),
            text(quantile(99, SubscriberMetric::ShareError), part),
            text(quantile(99, SubscriberMetric::Loss), part),
            text(quantile(50, SubscriberMetric::WaitP99), micros),
            text(quantile(99, SubscriberMetric::WaitP99), micros),
        ];
        let cells: String =
            cells.iter().map(|cell| format!("<td class=\"n\">{cell}</td>")).collect();
        rows += &format!(
            "<tr><td>{}</td><td>{}/{}</td><td>{}</td>{cells}</tr>",
            escape(one.step),
            escape(one.place.0),
            escape(one.place.1),
            escape(one.node)
        );
    }
    let of = if run.name.is_empty() { String::new() } else { format!(" of {}", escape(&run.name)) };
    format!(
        "<section>\n<h2>Subscribers{of}</h2>\n<p>Those of whom something was sent, by the node \
         that they are behind. Rates in Mbit/s on the wire: the least, the median and the 99th of \
         100. Off share: how far from what hierarchical max-min gives, at the 99th. Waits in ms: \
         what 99 of 100 packets of a subscriber do not exceed, at the median one and at the 99th \
         of 100; in steps of a factor of two.</p>\n<div \
         class=\"scroll\"><table><thead><tr><th>step</th><th>link</th><th>node</th><th \
         class=\"n\">subscribers</th><th class=\"n\">greedy</th><th class=\"n\">least</th><th \
         class=\"n\">median</th><th class=\"n\">99 %</th><th class=\"n\">off share</th><th \
         class=\"n\">lost</th><th class=\"n\">wait, median</th><th class=\"n\">wait, 99 \
         %</th></tr></thead><tbody>{rows}</tbody></table></div>\n</section>\n"
    )
}

/// `12.3 (11.8 to 14.1)`; what flows that were not done decide has no number.
fn with_ends(interval: Option<Interval>, text: impl Fn(f64) -> String) -> String {
    let text = |value: f64| if value.is_finite() { text(value) } else { "not done".to_owned() };
    interval.map_or("–".to_owned(), |Interval { value, ends }| match ends {
        Some([low, high]) => {
            let ends = format!("({} to {})", text(low), text(high));
            format!("{} <span class=\"ci\">{ends}</span>", text(value))
        }
        None => text(value),
    })
}

/// A verdict with a sign, so that colour is not needed to read it.
pub(super) fn badge(verdict: Verdict) -> String {
    let (class, sign) = match verdict {
        Verdict::Holds | Verdict::FailsWithout | Verdict::UnmeasuredWithout => ("good", "✓"),
        Verdict::Fails | Verdict::HoldsWithout => ("bad", "✗"),
        Verdict::Undecided => ("bad", "?"),
        Verdict::NotReproduced | Verdict::ReproducedAfterAll => ("open", "○"),
        Verdict::NotJudged | Verdict::OtherWorld => ("mute", "–"),
    };
    let text = verdict.text();
    let text = text.replacen(", ", ",<br>", 1);
    format!("<span class=\"badge {class}\">{sign} {text}</span>")
}

/// Claim, expression, measured numbers, verdict.
pub(super) fn expectations(judgements: &[Judgement]) -> String {
    let mut rows = String::new();
    for judgement in judgements {
        let run = if judgement.run.is_empty() {
            String::new()
        } else {
            format!(" <span class=\"badge mute\">{}</span>", escape(&judgement.run))
        };
        let note = if judgement.note.is_empty() {
            String::new()
        } else {
            format!("<div class=\"note\">{}</div>", escape(&judgement.note))
        };
        let numbers: String = judgement
            .measured
            .iter()
            .map(|term| {
                format!(
                    "<li><code>{}</code><span>{}</span></li>",
                    escape(&term.text),
                    escape(&measured(term))
                )
            })
            .collect();
        rows += &format!(
            "<tr><td>{}</td><td><div class=\"claimtext\">{}{run}</div><code>{}</code>{note}</td>\
             <td><ul>{numbers}</ul></td></tr>",
            badge(judgement.verdict),
            escape(&judgement.claim),
            escape(&judgement.expression)
        );
    }
    format!(
        "<div class=\"scroll\"><table class=\"wide expect\"><thead><tr><th>verdict</th><th>claim \
         and expression</th><th>measured</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}
