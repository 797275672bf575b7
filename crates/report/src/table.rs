//! Aligned plain-text tables for the terminal.

use crate::judge::Judgement;
use crate::numbers::{GROUP, grouped, measured, micros};
use crate::run::Run;
use crate::stats::{DelayStats, StepStats};

/// Lines of text are kept within this width.
const LINE: usize = 118;

/// A table under construction: a header, then rows of as many cells.
///
/// Columns whose cells are all numbers (or empty) are aligned to the right, others to the left.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    /// An empty row is a rule.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column headings.
    #[must_use]
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty; cells beyond the header are left out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// A rule between groups of rows.
    pub fn rule(&mut self) {
        if self.rows.last().is_some_and(|row| !row.is_empty()) {
            self.rows.push(Vec::new());
        }
    }

    /// The table as text, each line ended.
    #[must_use]
    pub fn render(&self) -> String {
        let columns = self.header.len();
        let mut widths: Vec<usize> = self.header.iter().map(|cell| width(cell)).collect();
        let mut right = vec![true; columns];
        for row in self.rows.iter().filter(|row| !row.is_empty()) {
            for (column, cell) in row.iter().enumerate() {
                widths[column] = widths[column].max(width(cell));
                right[column] &= is_number(cell);
            }
        }
        let line = |cells: &[String]| {
            let mut text = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[column] - width(cell));
                let gap = if column > 0 { "  " } else { "" };
                text.push_str(gap);
                if right[column] {
                    text.push_str(&pad);
                    text.push_str(cell);
                } else {
                    text.push_str(cell);
                    text.push_str(&pad);
                }
            }
            let mut text = text.trim_end().to_owned();
            text.push('\n');
            text
        };
        let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
        let rule = format!("{}\n", "─".repeat(total));
        let mut text = line(&self.header);
        text.push_str(&rule);
        for (i, row) in self.rows.iter().enumerate() {
            if !row.is_empty() {
                text.push_str(&line(row));
            } else if i + 1 < self.rows.len() {
                text.push_str(&rule);
            }
        }
        text
    }
}

/// Columns on a terminal: every character that this crate prints is one column wide.
fn width(cell: &str) -> usize {
    cell.chars().count()
}

fn is_number(cell: &str) -> bool {
    cell.chars().all(|c| c.is_ascii_digit() || c == GROUP || " .,-+%–".contains(c))
}

fn delay_cells(delays: Option<DelayStats>) -> [String; 3] {
    delays.map_or_else(
        || ["–", "–", "–"].map(str::to_owned),
        |d| [d.mean_us, d.p50_us, d.p99_us].map(micros),
    )
}

/// Per-step numbers of a run: step, class, offered/s, sent/s, dropped/s, transit delay, end-to-end
/// delay, queue. Delays in milliseconds. Links appear as a column only where there are several.
#[must_use]
pub fn steps(run: &Run) -> String {
    let steps = run.step_stats();
    let several = several_links(&steps);
    let mut header = vec!["step"];
    if several {
        header.push("link");
    }
    header.extend([
        "class",
        "offered/s",
        "sent/s",
        "dropped/s",
        "transit ms",
        "p50",
        "p99",
        "queue",
    ]);
    let end_to_end = steps.iter().flat_map(|s| &s.classes).any(|c| c.end_to_end.is_some());
    if end_to_end {
        header.extend(["end-to-end ms", "p50", "p99"]);
    }
    let mut table = Table::new(header);
    for step in &steps {
        for (i, class) in step.classes.iter().enumerate() {
            let mut row = vec![if i == 0 { step.step.clone() } else { String::new() }];
            if several {
                row.push(format!("{}/{}", class.router, class.link));
            }
            row.push(class.class.clone());
            row.push(class.offered.map_or_else(|| "–".to_owned(), grouped));
            row.extend([grouped(class.sent), grouped(class.dropped)]);
            row.extend(delay_cells(class.transit));
            row.push(format!("{:.1}", class.qlen));
            if end_to_end {
                row.extend(delay_cells(class.end_to_end));
            }
            table.row(row);
        }
        table.rule();
    }
    table.render()
}

/// Whether classes were sampled on more than one link.
pub(crate) fn several_links(steps: &[StepStats]) -> bool {
    let mut links = steps.iter().flat_map(|s| &s.classes).map(|c| (&c.router, &c.link));
    let first = links.next();
    links.any(|link| Some(link) != first)
}

/// One table across runs, for one step: per run and class what was sent, dropped and how long it
/// took. What the demo prints. Runs without that step are left out. Delays in milliseconds.
#[must_use]
pub fn compare(runs: &[Run], step: &str) -> String {
    let mut table = Table::new([
        "discipline",
        "class",
        "offered/s",
        "sent/s",
        "dropped/s",
        "transit ms",
        "p50",
        "p99",
        "end-to-end ms",
        "p50",
        "p99",
    ]);
    for run in runs {
        for stats in run.step_stats().iter().filter(|s| s.step == step) {
            for (i, class) in stats.classes.iter().enumerate() {
                let mut row = vec![
                    if i == 0 { run.name.clone() } else { String::new() },
                    class.class.clone(),
                ];
                row.push(class.offered.map_or_else(|| "–".to_owned(), grouped));
                row.extend([grouped(class.sent), grouped(class.dropped)]);
                row.extend(delay_cells(class.transit));
                row.extend(delay_cells(class.end_to_end));
                table.row(row);
            }
        }
        table.rule();
    }
    table.render()
}

/// Expectations: verdict, name, claim, then the expression and the numbers measured on lines of
/// their own.
#[must_use]
pub fn judgements(judgements: &[Judgement]) -> String {
    let width = judgements.iter().map(|j| j.verdict.text().chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for judgement in judgements {
        let indent = " ".repeat(width + 2);
        let mut line = |first: &str, rest: &str| {
            text.push_str(format!("{first}{rest}").trim_end());
            text.push('\n');
        };
        let verdict = judgement.verdict.text();
        let run =
            if judgement.run.is_empty() { String::new() } else { format!(" [{}]", judgement.run) };
        line(
            &format!("{verdict:<width$}  "),
            &format!("{}{run}: {}", judgement.name, judgement.claim),
        );
        for part in judgement.expression.lines() {
            line(&indent, part.trim());
        }
        let numbers =
            judgement.measured.iter().map(|term| format!("{} = {}", term.text, measured(term)));
        for part in wrapped(numbers, LINE.saturating_sub(indent.len())) {
            line(&indent, &part);
        }
        if !judgement.note.is_empty() {
            line(&indent, &judgement.note);
        }
    }
    text
}

/// `items` separated by commas, in lines of at most `width` characters (one item at least).
fn wrapped(items: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.chars().count() + item.chars().count() + 3 <= width => {
                line.push_str(", ");
                line.push_str(&item);
            }
            Some(line) => {
                line.push(',');
                lines.push(item);
            }
            None => lines.push(item),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn numbers_stand_right_and_texts_left() {
        let mut table = Table::new(["class", "sent/s"]);
        table.row(["a".to_owned(), grouped(1000.0)]);
        table.row(["longer", "9"]);
        table.rule();
        table.row(["b"]);
        table.rule();
        assert_eq!(
            table.render(),
            "class   sent/s\n──────────────\na        1\u{a0}000\nlonger       \
             9\n──────────────\nb\n"
        );
    }

    #[test]
    fn long_lists_are_wrapped_between_items() {
        let items = ["aaaa", "bbbb", "cccc"].map(str::to_owned);
        assert_eq!(wrapped(items.clone().into_iter(), 11), ["aaaa, bbbb,", "cccc"]);
        assert_eq!(wrapped(items.into_iter(), 1), ["aaaa,", "bbbb,", "cccc"]);
        assert!(wrapped(std::iter::empty(), 10).is_empty());
    }

    #[test]
    fn a_step_shows_every_class_once() {
        let text = steps(&fixture::two_steps());
        assert_eq!(
            text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
            [
                "step",
                "class",
                "offered/s",
                "sent/s",
                "dropped/s",
                "transit",
                "ms",
                "p50",
                "p99",
                "queue"
            ]
        );
        let last = text.lines().last().unwrap();
        assert_eq!(
            last.split(' ').filter(|cell| !cell.is_empty()).collect::<Vec<_>>(),
            ["class3", "1\u{a0}200", "500", "700", "0.40", "0.40", "0.40", "20.0"]
        );
    }
}
