//! One scenario, from the first namespace to the written report.

use std::path::PathBuf;

use evenkeel_report::Judgement;
use evenkeel_scenario::Scenario;

use crate::{LabError, LabOptions};

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The samples, as they went into the report.
    pub run: evenkeel_report::Run,
    /// The expectations, judged.
    pub judgements: Vec<Judgement>,
    /// Things the user should know: a source that fell behind its schedule, packets lost by the lab itself.
    pub warnings: Vec<String>,
    /// Files written, the report page last.
    pub files: Vec<PathBuf>,
}

impl Outcome {
    /// Whether all went as expected; in a run without a mechanism: whether what had to fail failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.judgements.iter().any(|judgement| judgement.verdict.is_bad())
    }

    /// 0 if [`passed`](Self::passed), else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.passed())
    }
}

/// Runs `scenario` on real packets and writes its results.
///
/// # Errors
/// Missing root, kernel features or programs ([`LabError::exit_code`] 3), values that a router refuses (2), failures on the way
/// (1). Everything is torn down before it returns.
pub fn run(scenario: &Scenario, options: &LabOptions) -> Result<Outcome, LabError> {
    let _ = (scenario, options);
    Err(LabError::NotRoot)
}
