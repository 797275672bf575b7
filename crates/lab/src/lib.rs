//! Scenarios on real packets between network namespaces.
//!
//! [`run`] makes one namespace per node, joins them with veth pairs, starts one `evenkeel run` process per router, drives
//! real UDP sources and sinks through them, treats packets on wires that ask for it, applies the timed steps over the control socket, samples the routers' counters, and
//! writes the results. [`run_live`] does so for a whole cluster at one switch. [`demo`] runs the scenarios that are built in, side by side.
//!
//! Nothing is left behind: namespaces and processes go when the run ends, fails, panics or is interrupted, and what a killed lab
//! left is swept away by the next one. Needs root.
#![forbid(unsafe_code)]

mod checks;
mod demo;
mod error;
#[cfg(test)]
#[path = "../../world/src/fixture.rs"]
mod fixture;
mod flow;
mod limits;
mod live;
mod plan;
mod progress;
pub mod qualify;
mod router_process;
mod router_toml;
mod run;
mod schedule;
mod shell;
mod stopping;
mod tools;
mod wire;
mod world;

use std::path::PathBuf;

use evenkeel_world::{describe, payload, sampling};

pub use demo::{DemoOptions, DemoOutcome, demo, demo_fairdrop};
pub use error::LabError;
pub use live::run_live;
pub use run::{Outcome, run};

/// How a scenario is run, as opposed to what is run.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Times of steps, settling, sampling window and duration are multiplied by this, above 0. Rates, delays and rings are not.
    pub time_scale: f64,
    /// Name of the `[[without]]` entry to apply: a mechanism switched off, under which the expectations it names must fail.
    pub without: Option<String>,
    /// Where `samples.csv`, `calls.csv`, `summary.json` and `report.html` go. Made if missing.
    pub out_dir: PathBuf,
    /// The `evenkeel` command itself, which the routers are started with.
    pub binary: PathBuf,
    /// Whether to show a progress bar on standard error.
    pub progress: bool,
    /// Whether to leave out what is printed besides: notes, tables.
    pub quiet: bool,
}
