//! Samples to tables, figures, judged expectations and one self-contained HTML page.
//!
//! A world (the lab, the simulator) fills a [`Run`]; this crate forms per-step statistics from it ([`stats`]), judges the
//! scenario's expectations ([`judge`]), and writes CSV ([`csv`]), `summary.json` ([`summary`]), terminal tables
//! ([`table`]) and the report page ([`html`]). It does not know which world made the samples.
#![forbid(unsafe_code)]

pub mod csv;
pub mod html;
pub mod judge;
pub mod run;
pub mod stats;
pub mod summary;
pub mod table;

use std::io;
use std::path::{Path, PathBuf};

pub use html::Report;
pub use judge::{Judgement, Verdict};
pub use run::{CallsSample, Delays, Parameter, Run, Sample, StepMark, Topology};
pub use stats::{ClassStats, LinkStats, StepStats};

/// A result file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}", path = path.display())]
pub struct WriteError {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Writes `samples.csv`, `calls.csv`, `summary.json` and `report.html` into `folder`, which is made if it is missing.
/// Returns the paths written, the page last.
///
/// # Errors
/// The file that could not be written, and why.
pub fn write_all(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, WriteError> {
    let make = |path: &Path| WriteError { path: path.to_owned(), source: io::Error::other("not made") };
    let _ = report;
    Err(make(folder))
}
