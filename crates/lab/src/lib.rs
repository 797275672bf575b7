//! Scenarios on real packets between network namespaces.
//!
//! [`run`] makes one namespace per node, joins them with veth pairs, starts one `evenkeel run`
//! process per router, drives real UDP sources and sinks through them, treats packets on wires that
//! ask for it, applies the timed steps over the control socket, samples the routers' counters, and
//! writes the results. [`run_live`] does so for a whole cluster at one switch. [`demo`] runs the
//! scenarios that are built in, side by side.
//!
//! Nothing is left behind: namespaces and processes go when the run ends, fails, panics or is
//! interrupted, and what a killed lab left is swept away by the next one. Needs root.
#![forbid(unsafe_code)]

mod capture;
mod checks;
mod connections;
mod demo;
mod error;
#[cfg(test)]
#[path = "../../world/src/fixture.rs"]
mod fixture;
mod flow;
mod kernel;
mod limits;
mod listeners;
mod live;
mod node;
mod options;
mod plan;
mod progress;
pub mod qualify;
mod router_process;
#[cfg(test)]
mod router_toml;
mod run;
mod schedule;
mod shell;
mod stopping;
mod tools;
mod wire;
mod world;

pub use demo::{DemoOptions, DemoOutcome, demo, demo_fairdrop};
pub use error::LabError;
pub use live::run_live;
pub use options::LabOptions;
pub use run::{Outcome, run};
