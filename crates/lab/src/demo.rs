//! The demo on real packets.

use std::path::PathBuf;

use evenkeel_scenario::World;
use evenkeel_settings::Diagnostics;
use evenkeel_world::demo::Demo;
use evenkeel_world::fairdrop_demo;

pub use evenkeel_world::demo::DemoOutcome;

use crate::LabError;
use crate::progress::Progress;
use crate::run::{Asked, measure, require, write_error};

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

/// Runs the demo and prints its table on standard output.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn demo(options: &DemoOptions) -> Result<DemoOutcome, LabError> {
    play(Demo::disciplines(World::Lab), options)
}

/// Runs the demonstration of FairDrop and prints its tables on standard output.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn demo_fairdrop(options: &DemoOptions) -> Result<DemoOutcome, LabError> {
    play(fairdrop_demo::demo(World::Lab), options)
}

fn play(demo: Result<Demo, Diagnostics>, options: &DemoOptions) -> Result<DemoOutcome, LabError> {
    let mut demo = demo.map_err(|errors| LabError::BadInput(errors.to_string()))?;
    let scenarios = demo.scenarios().clone();
    scenarios.iter().try_for_each(|(_, scenario)| require(scenario))?;
    if !options.quiet {
        print!("{}", demo.introduction());
    }
    let lengths: Vec<_> = scenarios.iter().map(|(name, s)| (*name, s.duration)).collect();
    let progress = Progress::new(options.progress, &lengths);
    for (_, scenario) in &scenarios {
        let measured = measure(scenario, &options.binary, &progress, &Asked::default())?;
        progress.next(scenario.duration);
        demo.measured(measured);
    }
    progress.finish();
    demo.finish(&options.out_dir, options.quiet).map_err(write_error)
}
