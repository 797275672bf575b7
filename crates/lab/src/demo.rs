//! The testbed of the LCT papers, the same load through several disciplines, in under a minute.

use std::path::PathBuf;

use crate::LabError;

/// How the demo is run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Where the report goes. Made if missing.
    pub out_dir: PathBuf,
    /// The `evenkeel` command itself, which the routers are started with.
    pub binary: PathBuf,
    /// Whether to show a progress bar on standard error.
    pub progress: bool,
    /// Whether to print nothing but the table.
    pub quiet: bool,
}

/// What came out of the demo.
#[derive(Clone, Debug)]
pub struct DemoOutcome {
    /// One run per discipline.
    pub runs: Vec<evenkeel_report::Run>,
    /// Whether every expectation of the built-in scenarios held.
    pub passed: bool,
    /// The report page.
    pub report: PathBuf,
}

impl DemoOutcome {
    /// 0 if every expectation held, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.passed)
    }
}

/// Runs the demo and prints its table on standard output.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn demo(options: &DemoOptions) -> Result<DemoOutcome, LabError> {
    let _ = options;
    Err(LabError::NotRoot)
}
