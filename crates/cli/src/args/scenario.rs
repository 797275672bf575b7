//! Arguments of `evenkeel scenario`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

/// Arguments of `scenario`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ScenarioArgs {
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: ScenarioCommand,
}

/// What to look at.
#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioCommand {
    /// Check scenario files.
    Check {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Run each with so many seeds in the simulator and say how near its claims are to failing,
        /// set against how much that varies.
        #[arg(long, value_name = "SEEDS", value_parser = clap::value_parser!(u64).range(1..=1000))]
        margins: Option<u64>,
        /// Read the runs from these folders instead, of `evenkeel lab --repeat` or `evenkeel sim
        /// --seeds`.
        #[arg(long, value_name = "DIR", conflicts_with = "margins")]
        of: Vec<PathBuf>,
    },
    /// List the scenarios below a folder.
    List {
        /// The folder.
        #[arg(default_value = "scenarios")]
        folder: PathBuf,
    },
    /// Say what a scenario runs and expects.
    Show {
        /// The file.
        file: PathBuf,
    },
}
