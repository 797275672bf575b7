//! Tables of a comparison: what was published beside what was measured, the expectations with the
//! numbers behind them, and the means of each step.

use crate::compare::Comparison;
use crate::confidence::Estimate;
use crate::html::chart::SERIES;
use crate::html::tables::badge;
use crate::html::text::escape;
use crate::judge::Verdict;
use crate::numbers::{fraction, grouped, micros, plain};
use crate::run::Run;

/// `4 275 ± 12`.
fn estimate(value: Option<Estimate>, text: impl Fn(f64) -> String) -> String {
    match value {
        None => "–".to_owned(),
        Some(Estimate { mean, half: None, .. }) => text(mean),
        Some(Estimate { mean, half: Some(half), .. }) => {
            format!("{} <span class=\"ci\">± {}</span>", text(mean), text(half))
        }
    }
}

/// A number with its unit as the expectations have it.
fn number(unit: &str, value: f64) -> String {
    match unit {
        "us" => format!("{} ms", micros(value)),
        "" => fraction(value),
        unit => format!("{} {unit}", grouped(value)),
    }
}

pub(super) fn published_table(comparison: &Comparison) -> String {
    let published = comparison.published();
    if published.is_empty() {
        return String::new();
    }
    let heads: String = comparison
        .worlds
        .iter()
        .map(|world| format!("<th class=\"n\">{}</th>", escape(&world.label)))
        .collect();
    let mut rows = String::new();
    for value in published {
        let unit = value.unit.as_str();
        // Shares of calls were published as shares of a table: percent reads better.
        let share = value.place.as_ref().is_some_and(|place| place.metric.starts_with("calls_"));
        let text = |v: f64| if share { format!("{:.1} %", v * 100.0) } else { number(unit, v) };
        rows += &format!(
            "<tr><td><code>{}</code></td><td class=\"n\"><b>{}</b></td>",
            escape(&value.quantity),
            text(value.published)
        );
        for world in &comparison.worlds {
            rows += &format!(
                "<td class=\"n\">{}</td>",
                estimate(world.published(&value.quantity), text)
            );
        }
        rows += "</tr>";
    }
    format!(
        "<section>\n<h2>Published and measured</h2>\n<div \
         class=\"scroll\"><table><thead><tr><th>quantity</th><th \
         class=\"n\">published</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>\
         \n</section>\n"
    )
}

/// The verdict of several seeds: the worst, and how many share it.
fn verdicts(verdicts: &[Verdict]) -> String {
    let Some(worst) = verdicts.iter().find(|v| v.is_bad()).or(verdicts.first()) else {
        return "<span class=\"badge mute\">–</span>".to_owned();
    };
    let same = verdicts.iter().filter(|v| *v == worst).count();
    let of = if verdicts.len() > 1 {
        format!("<div class=\"note\">{same} of {} seeds</div>", verdicts.len())
    } else {
        String::new()
    };
    badge(*worst) + &of
}

pub(in crate::html) fn expectations(comparison: &Comparison) -> String {
    let Some(head) = comparison.head() else { return String::new() };
    if head.judgements.is_empty() {
        return String::new();
    }
    let heads: String = comparison
        .worlds
        .iter()
        .map(|world| format!("<th>{}</th>", escape(&world.label)))
        .collect();
    let mut rows = String::new();
    for judgement in &head.judgements {
        let note = if judgement.note.is_empty() {
            String::new()
        } else {
            format!("<div class=\"note\">{}</div>", escape(&judgement.note))
        };
        rows += &format!(
            "<tbody><tr><td><div class=\"claimtext\">{}</div><code>{}</code>{note}</td>",
            escape(&judgement.claim),
            escape(&judgement.expression)
        );
        let mut terms: Vec<(&str, &str, Option<f64>)> = Vec::new();
        for world in &comparison.worlds {
            let judged = world.judgements(&judgement.name);
            let all: Vec<Verdict> = judged.iter().map(|j| j.verdict).collect();
            rows += &format!("<td>{}</td>", verdicts(&all));
            for term in judged.iter().flat_map(|j| &j.measured) {
                if !terms.iter().any(|(text, ..)| *text == term.text) {
                    terms.push((&term.text, term.unit, term.value));
                }
            }
        }
        rows += "</tr>";
        for (text, unit, value) in terms {
            rows += &format!("<tr class=\"term\"><td><code>{}</code></td>", escape(text));
            if text.starts_with("published.") {
                let value = value.map_or_else(String::new, plain);
                rows += &format!("<td colspan=\"{}\">{value}</td></tr>", comparison.worlds.len());
                continue;
            }
            for world in &comparison.worlds {
                let value = estimate(world.term(&judgement.name, text), |v| number(unit, v));
                rows += &format!("<td>{value}</td>");
            }
            rows += "</tr>";
        }
        rows += "</tbody>";
    }
    format!(
        "<section>\n<h2 id=\"expectations\">Expectations</h2>\n<div class=\"scroll\"><table \
         class=\"wide expect worlds\"><thead><tr><th>claim, expression, numbers behind \
         it</th>{heads}</tr></thead>{rows}</table></div>\n</section>\n"
    )
}

/// Means per step, class and world.
pub(in crate::html) fn numbers(comparison: &Comparison) -> String {
    let names = comparison.classes();
    let mut html = String::from(
        "<section>\n<h2>Numbers per step</h2>\n<div class=\"scroll\"><table \
         class=\"wide\"><thead><tr><th>step</th><th>class</th><th>run</th><th \
         class=\"n\">sent/s</th><th class=\"n\">dropped/s</th><th class=\"n\">queue, \
         packets</th><th class=\"n\">mean delay, ms</th><th class=\"n\">p99, ms</th></tr></thead>",
    );
    let stats: Vec<Vec<_>> =
        comparison.worlds.iter().map(|world| world.runs().map(Run::step_stats).collect()).collect();
    let several = comparison.links().len() > 1;
    for (router, link) in comparison.links() {
        for (index, step) in comparison.steps().iter().enumerate() {
            html += "<tbody>";
            let mut first_of_step = true;
            for (colour, class) in names.iter().enumerate() {
                let mut first_of_class = true;
                let mut simulated = Row::default();
                for (world, runs) in comparison.worlds.iter().zip(&stats) {
                    let rows: Vec<_> = runs
                        .iter()
                        .filter_map(|steps: &Vec<crate::StepStats>| steps.get(index))
                        .flat_map(|step| &step.classes)
                        .filter(|c| c.router == router && c.link == link && c.class == *class)
                        .collect();
                    if rows.is_empty() {
                        continue;
                    }
                    let of = |value: fn(&crate::ClassStats) -> Option<f64>| {
                        Estimate::of(&rows.iter().filter_map(|row| value(row)).collect::<Vec<_>>())
                    };
                    let place = if several { format!(" {router}/{link}") } else { String::new() };
                    let step_cell = if std::mem::take(&mut first_of_step) {
                        format!("{}{place}", step.name)
                    } else {
                        String::new()
                    };
                    let class_cell = if std::mem::take(&mut first_of_class) {
                        format!(
                            "<i class=\"swatch\" style=\"background:var(--s{})\"></i>{}",
                            colour % SERIES,
                            escape(class)
                        )
                    } else {
                        String::new()
                    };
                    html += &format!(
                        "<tr><td class=\"stepname\">{}</td><td>{class_cell}</td><td>{}</td>",
                        escape(&step_cell),
                        escape(&world.label)
                    );
                    let row = [
                        of(|c| Some(c.sent)),
                        of(|c| Some(c.dropped)),
                        of(|c| Some(c.qlen)),
                        of(|c| c.transit.map(|d| d.mean_us)),
                        of(|c| c.transit.map(|d| d.p99_us)),
                    ];
                    let beside = (world.world == "lab").then_some(&simulated);
                    html += &format!("{}</tr>", cells(&row, beside));
                    if world.world == "sim" {
                        simulated = row;
                    }
                }
            }
            html += "</tbody>";
        }
    }
    let world = |name: &str| comparison.worlds.iter().any(|world| world.world == name);
    let legend = if world("sim") && world("lab") { DIFFERS } else { "" };
    html + "</table></div>\n" + legend + "</section>\n"
}

/// Sent, dropped, queue, mean delay, 99th percentile.
type Row = [Option<Estimate>; 5];

/// Below these nothing is marked: packets/s, packets/s, packets, us, us.
const FLOORS: [f64; 5] = [1.0, 1.0, 0.5, 100.0, 100.0];

const DIFFERS: &str = "<p class=\"remark\">≠: real packets differ from the simulation. Their \
                       intervals are apart, and the means by more than 5 %; of single runs, the \
                       means by more than a quarter. Below a packet per second, half a packet in \
                       the queue and 0.1 ms nothing is marked.</p>\n";

/// The cells of a row, marked where they differ from those of the simulation `beside` them.
fn cells(row: &Row, beside: Option<&Row>) -> String {
    let texts: [fn(f64) -> String; 5] =
        [grouped, grouped, |packets| format!("{packets:.1}"), micros, micros];
    let cell = |at: usize| {
        let apart = beside.is_some_and(|beside| differ(beside[at], row[at], FLOORS[at]));
        let mark = if apart { "<b class=\"differs\">≠</b> " } else { "" };
        format!("<td class=\"n\">{mark}{}</td>", estimate(row[at], texts[at]))
    };
    (0..row.len()).map(cell).collect()
}

/// Whether two estimates of one quantity are too far apart for chance, and by more than `floor`.
fn differ(a: Option<Estimate>, b: Option<Estimate>, floor: f64) -> bool {
    let Some((a, b)) = a.zip(b) else { return false };
    let (gap, larger) = ((a.mean - b.mean).abs(), a.mean.abs().max(b.mean.abs()));
    let apart = match a.half.zip(b.half) {
        Some((first, second)) => gap > first + second && gap > 0.05 * larger,
        None => gap > 0.25 * larger,
    };
    apart && gap > floor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chance_does_not_explain_is_marked() {
        let of = |values: &[f64]| Estimate::of(values);
        // A second hop: nothing in the simulator, 7 ms on real packets.
        assert!(differ(of(&[0.0]), of(&[7_000.0]), 100.0));
        assert!(!differ(of(&[0.0]), of(&[7.0]), 100.0), "microseconds");
        assert!(!differ(of(&[800.0]), of(&[950.0]), 100.0), "single runs, 16 %");
        let (low, high) = (of(&[100.0, 101.0, 102.0]), of(&[120.0, 121.0, 122.0]));
        assert!(differ(low, high, 1.0) && !differ(low, low, 1.0));
        assert!(!differ(low, of(&[60.0, 121.0, 180.0]), 1.0), "its interval is wide");
        assert!(!differ(None, high, 1.0));
        let row = |mean: f64| [of(&[mean]); 5];
        assert_eq!(cells(&row(5_000.0), Some(&row(1_000.0))).matches('≠').count(), 5);
        assert_eq!(cells(&row(5_000.0), None).matches('≠').count(), 0);
    }
}
