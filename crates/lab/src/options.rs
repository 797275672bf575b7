//! How a scenario is run, as opposed to what is run.

use std::path::PathBuf;

/// How a scenario is run, as opposed to what is run.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Times of steps, settling, sampling window and duration are multiplied by this, above 0.
    /// Rates, delays and rings are not.
    pub time_scale: f64,
    /// Name of the `[[without]]` entry to apply: a mechanism switched off, under which the
    /// expectations it names must fail.
    pub without: Option<String>,
    /// Where `samples.csv`, `calls.csv`, `summary.json` and `report.html` go. Made if missing.
    pub out_dir: PathBuf,
    /// The `evenkeel` command itself, which the routers are started with.
    pub binary: PathBuf,
    /// Whether to show a progress bar on standard error.
    pub progress: bool,
    /// Whether to leave out what is printed besides: notes, tables.
    pub quiet: bool,
    /// Whether TCP connections are looked at after each window.
    pub connections: bool,
    /// The wires whose frames are written to files, by their nodes: `"r1/r2"`.
    pub captures: Vec<String>,
}
