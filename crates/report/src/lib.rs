//! Samples to tables, figures, judged expectations and one self-contained HTML page.
//!
//! A world (the lab, the simulator) fills a [`Run`]; this crate forms per-step statistics from it
//! ([`stats`]), judges the scenario's expectations ([`judge`]), and writes CSV ([`csv`]), Parquet
//! ([`columns`]), `summary.json` ([`summary`]), terminal tables ([`table`]), the report page
//! ([`html`]) and the whole result ([`saved`]), from which pages on several worlds and seeds are
//! made. It does not know which world made the samples.
#![forbid(unsafe_code)]

pub mod again;
pub mod archive;
pub mod bootstrap;
pub mod columns;
pub mod compare;
pub mod confidence;
mod counted;
pub mod csv;
pub mod cycles;
pub mod fields;
#[cfg(test)]
mod fixture;
pub mod flow_stats;
pub mod html;
pub mod judge;
pub mod margins;
pub mod numbers;
pub mod run;
pub mod saved;
pub mod site;
mod slug;
pub mod stats;
pub mod subscribers;
pub mod summary;
pub mod table;

use std::path::{Path, PathBuf};
use std::{fs, io};

pub use html::Report;
pub use judge::{Judgement, PublishedValue, Verdict};
pub use run::{
    AdmissionSample, AuditRow, CallsSample, ConnectionRow, ControlSample, CoreSample, CycleSample,
    Delays, FlowRow, Parameter, Run, Sample, StepMark, SubscriberRow, Topology, WireTotals,
};
pub use stats::{AdmissionStats, ClassStats, LinkStats, StepStats};
pub use subscribers::{Neighbourhood, neighbourhoods};

/// A result file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}", path = path.display())]
pub struct WriteError {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Writes `result.json`, `samples.csv`, `samples.parquet`, `calls.csv`, `summary.json`,
/// `report.html`, and where flows were followed, subscribers counted or connections asked for
/// `flows.csv`, `subscribers.csv`, `connections.csv` and the same as Parquet, into `folder`, which
/// is made if it is missing. Returns the paths written, the page last.
///
/// # Errors
/// The file that could not be written, and why.
pub fn write_all(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, WriteError> {
    fs::create_dir_all(folder).map_err(|source| WriteError { path: folder.to_owned(), source })?;
    let mut samples = Vec::new();
    let (mut calls, mut flows, mut subscribers) = (Vec::new(), Vec::new(), Vec::new());
    let mut connections = Vec::new();
    csv::write_samples(&mut samples, report).expect("writing to memory does not fail");
    csv::write_calls(&mut calls, report).expect("writing to memory does not fail");
    csv::write_flows(&mut flows, report).expect("writing to memory does not fail");
    csv::write_subscribers(&mut subscribers, report).expect("writing to memory does not fail");
    csv::write_connections(&mut connections, report).expect("writing to memory does not fail");
    let mut summary = serde_json::to_vec_pretty(&summary::summary(report))
        .expect("a JSON value can always be written");
    summary.push(b'\n');
    let mut files = vec![
        (saved::FILE, saved::to_json(report)),
        ("samples.csv", samples),
        ("samples.parquet", columns::samples(&[report]).to_parquet()),
        ("calls.csv", calls),
        ("summary.json", summary),
    ];
    if report.flows().next().is_some() {
        files.push(("flows.csv", flows));
        files.push(("flows.parquet", columns::flows(&[report]).to_parquet()));
    }
    if report.subscribers().next().is_some() {
        files.push(("subscribers.csv", subscribers));
        files.push(("subscribers.parquet", columns::subscribers(&[report]).to_parquet()));
    }
    if report.connections().next().is_some() {
        files.push(("connections.csv", connections));
        files.push(("connections.parquet", columns::connections(&[report]).to_parquet()));
    }
    files.push(("report.html", report.to_html().into_bytes()));
    files
        .into_iter()
        .map(|(name, content)| {
            let path = folder.join(name);
            fs::write(&path, content)
                .map_err(|source| WriteError { path: path.clone(), source })?;
            Ok(path)
        })
        .collect()
}
