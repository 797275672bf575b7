//! Sweeps: a scenario over a grid of parameters and seeds, in the simulator.
//!
//! [`Sweep::load`] reads a `sweep.toml` and checks every point of its grid before anything runs.
//! [`run`] simulates the points on all cores, one single-threaded simulation per task; each
//! finished task is one file that appears at once or not at all, so that a sweep which was
//! interrupted, or whose disk was full, goes on where it stopped, and so that parts of it can run
//! on different machines ([`Shard`]). [`merge()`] puts the files of one or several folders together
//! into tables and, where the file asks for them, a map and charts.
#![forbid(unsafe_code)]

mod axis;
pub mod chart;
pub mod map;
mod merge;
mod path;
mod run;
mod spec;
mod store;
pub mod tables;

pub use axis::Axis;
pub use merge::{Drawn, Merged, drawings, merge};
pub use path::PathError;
pub use run::{Finished, RunOptions, Shard, ShardError, run};
pub use spec::{Sweep, Task};
pub use tables::MapSpec;

use std::path::PathBuf;

use evenkeel_config::BuildError;
use evenkeel_settings::Diagnostics;

/// Why a sweep could not be run or merged.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A file could not be written: the disk is full, or the folder is not ours. Everything
    /// finished before is kept.
    #[error("cannot write {path}: {source}; what was finished before is kept, run the same command \
             again to go on", path = path.display())]
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
    /// A point of the grid makes no scenario.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// A router has a discipline that this program does not know.
    #[error("{sweep}: router {router}: {source}")]
    Discipline {
        /// The sweep.
        sweep: String,
        /// The router.
        router: String,
        /// What is wrong with it.
        source: Box<BuildError>,
    },
    /// There is nothing to merge.
    #[error("no folder to merge")]
    NoFolder,
    /// Folders that do not belong together.
    #[error(
        "{} and {} are of different sweeps, or of versions of one: {} with {} tasks and {} with {}",
        folders[0].display(), folders[1].display(), sweeps[0].0, sweeps[0].1, sweeps[1].0,
            sweeps[1].1
    )]
    DifferentSweeps {
        /// The folders.
        folders: [PathBuf; 2],
        /// Name and number of tasks of the sweep in each.
        sweeps: [(String, usize); 2],
    },
}

/// Why a point of a grid makes no scenario.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// A value cannot be put where a path says.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A seed that a scenario cannot hold.
    #[error("seed {0} is too large; valid: up to 2^63 - 1")]
    Seed(u64),
    /// A measure's `{axis}` is not closed.
    #[error("{0:?}: `}}` is missing")]
    NoBrace(String),
    /// A measure names no axis.
    #[error("{expression:?}: no axis {axis:?}; {known}")]
    NoAxis {
        /// The measure.
        expression: String,
        /// The name.
        axis: String,
        /// Which axes there are.
        known: String,
    },
    /// The scenario of a point is wrong.
    #[error("with {point}: {}", keys_and_messages(errors))]
    Point {
        /// The point, in words.
        point: String,
        /// What is wrong there.
        errors: Diagnostics,
    },
}

/// Without file and line: those of a point's scenario are in no file.
fn keys_and_messages(errors: &Diagnostics) -> String {
    let each = errors.0.iter().map(|error| format!("{}: {}", error.key, error.message));
    each.collect::<Vec<_>>().join("; ")
}

impl SweepError {
    /// The exit code a command should end with: 1 if writing failed, 2 for bad input.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Write { .. } => 1,
            _ => 2,
        }
    }
}
