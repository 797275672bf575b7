//! Aligned plain-text tables for the terminal.

use crate::html::Report;
use crate::judge::Judgement;
use crate::run::Run;

/// A table under construction: a header, then rows of as many cells.
///
/// Columns whose cells are all numbers (or empty) are aligned to the right, others to the left.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column headings.
    #[must_use]
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty; cells beyond the header are an error of the caller and are left out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// A rule between groups of rows.
    pub fn rule(&mut self) {
        self.rows.push(Vec::new());
    }

    /// The table as text, each line ended.
    #[must_use]
    pub fn render(&self) -> String {
        todo!()
    }
}

/// Per-step numbers of a run: step, class, offered/s, sent/s, dropped/s, transit delay (mean, p50, p99), end-to-end delay, queue.
#[must_use]
pub fn steps(run: &Run) -> String {
    todo!()
}

/// One table across runs, for one step: class, then sent/s, dropped/s and delays per run. What the demo prints.
#[must_use]
pub fn compare(runs: &[Run], step: &str) -> String {
    todo!()
}

/// Expectations: verdict, name, expression, measured numbers.
#[must_use]
pub fn judgements(judgements: &[Judgement]) -> String {
    todo!()
}
