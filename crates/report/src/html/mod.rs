//! The report page: one HTML file with inline CSS and SVG, readable without scripts and printable.

use crate::judge::Judgement;
use crate::run::Run;

/// Everything the page shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// `lct/fig4`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Where the claim was published; empty if nowhere.
    pub source: String,
    /// The published claim in its own words, if there is one.
    pub published_claim: String,
    /// The scenario's notes, or the sentences that say what the reader sees. Paragraphs are separated by an empty line.
    pub notes: String,
    /// Random seed, if the scenario has one.
    pub seed: Option<u64>,
    /// Factor by which times were shortened; 1 when they were not.
    pub time_scale: f64,
    /// The runs: one, or several to be shown side by side with shared axes.
    pub runs: Vec<Run>,
    /// Judged expectations of all runs.
    pub judgements: Vec<Judgement>,
}

impl Report {
    /// A report on one run of a scenario, its head taken from the scenario.
    #[must_use]
    pub fn of_scenario(scenario: &evenkeel_scenario::Scenario, runs: Vec<Run>, judgements: Vec<Judgement>) -> Self {
        todo!()
    }

    /// Whether any verdict fails the run.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.judgements.iter().any(|j| j.verdict.is_bad())
    }

    /// The page.
    #[must_use]
    pub fn to_html(&self) -> String {
        todo!()
    }
}
