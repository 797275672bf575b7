//! What the routers' audits found, as a table: told and delivered.

use super::text::escape;
use crate::numbers::plain;
use crate::run::{AuditRow, Run};

/// The section, empty where nothing was audited.
pub(super) fn section(runs: &[Run]) -> String {
    if runs.iter().all(|run| run.audits.is_empty()) {
        return String::new();
    }
    let named = runs.len() > 1;
    let rows: String = runs
        .iter()
        .flat_map(|run| run.audits.iter().map(move |one| row(run, one, named)))
        .collect();
    let head = if named { "<th>run</th>" } else { "" };
    format!(
        "<section>\n<h2>Audit</h2>\n<p>What the routers were told, held against what they \
         delivered while they ran. The last column is the promise that came nearest to its bound, \
         and how much of it was used.</p>\n<div class=\"scroll\"><table><thead><tr>{head}\
         <th>audited</th><th class=\"n\">judged</th><th class=\"n\">violations</th><th>because \
         of</th><th>nearest</th></tr></thead><tbody>{rows}</tbody></table></div>\n{}</section>\n",
        last_words(runs, named)
    )
}

/// The last violation of each.
fn last_words(runs: &[Run], named: bool) -> String {
    let audits = runs.iter().flat_map(|run| run.audits.iter().map(move |audit| (run, audit)));
    let item = |(run, audit): (&Run, &AuditRow)| {
        let last = audit.last.as_ref()?;
        let of = if named { format!("{}, ", run.name) } else { String::new() };
        let text = format!("{of}{}/{}, the last one: {last}", audit.router, audit.of);
        Some(format!("<li>{}</li>", escape(&text)))
    };
    let items: String = audits.filter_map(item).collect();
    if items.is_empty() { items } else { format!("<ul>{items}</ul>\n") }
}

fn row(run: &Run, audit: &AuditRow, named: bool) -> String {
    let run = if named { format!("<td>{}</td>", escape(&run.name)) } else { String::new() };
    let causes: Vec<String> =
        audit.by_cause.iter().map(|(cause, times)| format!("{cause} {times}")).collect();
    let nearest = audit.nearest.as_ref().map_or_else(
        || "–".to_owned(),
        |(promise, part)| format!("{}: {:.0} %", escape(promise), part * 100.0),
    );
    format!(
        "<tr>{run}<td>{}/{}</td><td class=\"n\">{} {}</td><td \
         class=\"n\">{}</td><td>{}</td><td>{nearest}</td></tr>",
        escape(&audit.router),
        escape(&audit.of),
        plain(audit.judged.round()),
        audit.unit,
        audit.violations,
        escape(&causes.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn what_was_broken_stands_there_with_its_cause() {
        let html = section(&[fixture::two_steps()]);
        assert!(html.contains("<td>r1/sink</td>") && html.contains("ring 3"), "{html}");
        assert!(html.contains("class class3: 130 %") && html.contains("a smaller ring"), "{html}");
        assert!(!html.contains("<th>run</th>"), "{html}");
        assert_eq!(section(&[Run::default()]), "");
    }
}
