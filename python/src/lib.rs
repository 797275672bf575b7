//! The simulator of Evenkeel for Python: scenarios from files or dicts, seeds and sweeps on all
//! cores, results as Arrow tables.
//!
//! This is a thin skin: what runs is `evenkeel_sim` and `evenkeel_sweep`, what is written is what
//! the command writes, byte for byte. Types and texts for users stand in `evenkeel/_evenkeel.pyi`.
//!
//! Nothing panics across the border: a panic of a simulation becomes a `RuntimeError`.

mod error;
mod interrupt;
mod run;
mod scenario;
mod sweep;
mod table;

use pyo3::prelude::*;

/// The compiled half of the package `evenkeel`.
#[pymodule]
mod _evenkeel {
    #[pymodule_export]
    use super::run::{Expectation, Outcome, run, run_seeds};
    #[pymodule_export]
    use super::sweep::{SweepOutcome, merge, sweep};
    #[pymodule_export]
    use super::table::Table;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
