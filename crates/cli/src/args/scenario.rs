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
