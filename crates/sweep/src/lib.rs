//! Sweeps: a scenario over a grid of parameters and seeds, in the simulator.
//!
//! [`Sweep::load`] reads a `sweep.toml` and checks every point of its grid before anything runs. [`run`] simulates the points on all cores, one
//! single-threaded simulation per task; each finished task is one file that appears at once or not at all, so that a sweep which was interrupted, or
//! whose disk was full, goes on where it stopped, and so that parts of it can run on different machines ([`Shard`]). [`merge()`] puts the files of one
//! or several folders together into tables and, where the file asks for them, a map and charts.
#![forbid(unsafe_code)]

pub mod chart;
pub mod map;
mod merge;
mod path;
mod run;
mod spec;
mod store;
pub mod tables;

pub use merge::{Drawn, Merged, drawings, merge};
pub use run::{Finished, RunOptions, Shard, run};
pub use spec::{Axis, MapSpec, Sweep, Task};

use std::path::PathBuf;

/// Why a sweep could not be run or merged.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A file could not be written: the disk is full, or the folder is not ours. Everything finished before is kept.
    #[error("cannot write {path}: {source}; what was finished before is kept, run the same command again to go on", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder or file could not be read.
    #[error("cannot read {path}: {what}", path = path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What was asked for does not fit together.
    #[error("{0}")]
    BadInput(String),
}

impl SweepError {
    /// The exit code a command should end with: 1 if writing failed, 2 for bad input.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Write { .. } => 1,
            Self::Read { .. } | Self::BadInput(_) => 2,
        }
    }
}
