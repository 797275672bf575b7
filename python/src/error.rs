//! What is wrong with a scenario or a sweep, as the exception that the package defines.

use evenkeel_report::WriteError;
use evenkeel_settings::Diagnostics;
use evenkeel_sim::SimError;
use evenkeel_sweep::SweepError;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

/// File, line (0: none), key, message.
type Row = (String, usize, String, String);

/// `ScenarioError` with a message and what it consists of.
fn scenario_error(py: Python<'_>, message: String, rows: Vec<Row>) -> PyErr {
    let made = py
        .import("evenkeel._errors")
        .and_then(|module| module.getattr("ScenarioError"))
        .and_then(|class| class.call1((message, rows)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Of a text that stands in no file the lines mean nothing.
pub(crate) fn of_diagnostics(py: Python<'_>, errors: Diagnostics, in_file: bool) -> PyErr {
    let mut errors = errors;
    if !in_file {
        errors.0.iter_mut().for_each(|error| error.line = 0);
    }
    let message = errors.to_string();
    let row =
        |error: evenkeel_settings::Diagnostic| (error.file, error.line, error.key, error.message);
    scenario_error(py, message, errors.0.into_iter().map(row).collect())
}

/// What the simulator says.
pub(crate) fn of_simulation(py: Python<'_>, error: &SimError) -> PyErr {
    match error.exit_code() {
        2 => scenario_error(py, error.to_string(), Vec::new()),
        _ => PyOSError::new_err(error.to_string()),
    }
}

/// What a sweep says.
pub(crate) fn of_sweep(py: Python<'_>, error: &SweepError) -> PyErr {
    match error {
        SweepError::Write { .. } | SweepError::Read { .. } => PyOSError::new_err(error.to_string()),
        _ => scenario_error(py, error.to_string(), Vec::new()),
    }
}

/// A result that could not be written.
pub(crate) fn of_writing(error: &WriteError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// A thread that ended with a panic: a mistake of this program.
pub(crate) fn of_panic() -> PyErr {
    PyRuntimeError::new_err(
        "the simulation ended with a panic, which is a mistake of Evenkeel: what it printed on \
         standard error says where",
    )
}
