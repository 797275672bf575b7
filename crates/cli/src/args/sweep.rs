//! Arguments of `evenkeel sweep`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use evenkeel_sweep::Shard;

/// Arguments of `sweep`.
#[derive(ClapArgs, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SweepArgs {
    /// The sweep.toml.
    #[arg(required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Run only this part: 3/8 is the third of eight.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub(crate) shard: Option<Shard>,
    /// Simulations at the same time [default: as many as there are cores].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) jobs: usize,
    /// Folder for the results [default: out/NAME]. What is there already is not run again.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Say what would run, and run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print nothing but errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Option<SweepCommand>,
}

/// What else to do with sweeps.
#[derive(Debug, Subcommand)]
pub(crate) enum SweepCommand {
    /// Put the results of one or several folders together: tables as CSV and Parquet, and the map
    /// if the sweep has one.
    Merge {
        /// The folders.
        #[arg(required = true, value_name = "DIR")]
        folders: Vec<PathBuf>,
        /// Folder for the tables [default: the first folder].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}
