//! Grids of parameters.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use evenkeel_router::Disciplines;
use evenkeel_sweep::{Finished, Merged, RunOptions, Shard, Sweep};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::interrupt::interruptible;
use crate::scenario::{Given, OF_DICT};
use crate::table::{Meanings, Table};

/// What is there of a sweep.
#[pyclass(frozen, module = "evenkeel", name = "SweepResult")]
pub(crate) struct SweepOutcome {
    merged: Merged,
    finished: Finished,
    folder: PathBuf,
}

#[pymethods]
impl SweepOutcome {
    /// Runs of the whole sweep.
    #[getter]
    fn tasks(&self) -> usize {
        self.merged.tasks
    }

    /// Numbers of those that are not there.
    #[getter]
    fn missing(&self) -> Vec<usize> {
        self.merged.missing.clone()
    }

    /// Runs that were there before, and those that were made now.
    #[getter]
    fn kept(&self) -> usize {
        self.finished.kept
    }

    #[getter(new)]
    fn made_now(&self) -> usize {
        self.finished.new
    }

    /// Those that could not be simulated: which and why.
    #[getter]
    fn failed(&self) -> Vec<String> {
        self.finished.failed.clone()
    }

    #[getter]
    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    #[getter]
    fn files(&self) -> Vec<PathBuf> {
        self.merged.files.clone()
    }

    #[getter]
    fn measures(&self) -> PyResult<Table> {
        Table::new(&self.merged.measures, &Meanings::new())
    }

    #[getter]
    fn results(&self) -> PyResult<Table> {
        Table::new(&self.merged.results, &Meanings::new())
    }

    fn __repr__(&self) -> String {
        let Merged { tasks, missing, .. } = &self.merged;
        let there = tasks - missing.len();
        format!("<evenkeel.SweepResult {}: {there} of {tasks} runs>", self.folder.display())
    }
}

/// Runs a sweep, or a part of it.
#[pyfunction]
#[pyo3(signature = (sweep, out, *, jobs = 0, shard = None))]
pub(crate) fn sweep(
    py: Python<'_>,
    sweep: &Bound<'_, PyAny>,
    out: PathBuf,
    jobs: usize,
    shard: Option<&str>,
) -> PyResult<SweepOutcome> {
    let shard = shard.map_or(Ok(Shard::WHOLE), Shard::parse);
    let shard = shard.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let loaded = match Given::of(sweep)? {
        Given::File(path) => Sweep::load(&path).map_err(|errors| (errors, true)),
        Given::Text(text, name) => Sweep::parse(&text, name, std::path::Path::new(""))
            .map_err(|errors| (errors, name != OF_DICT)),
    };
    let sweep = loaded.map_err(|(errors, in_file)| error::of_diagnostics(py, errors, in_file))?;
    let stop: Arc<AtomicBool> = Arc::default();
    let disciplines = Disciplines::default();
    let options = RunOptions { jobs, shard, disciplines, stop: Arc::clone(&stop) };
    let folder = out.clone();
    let work = move || {
        let finished = evenkeel_sweep::run(&sweep, &out, &options, &|_, _| ())?;
        let merged = evenkeel_sweep::merge(std::slice::from_ref(&out), &out)?;
        Ok((finished, merged))
    };
    let (finished, merged) =
        interruptible(py, &stop, work)?.map_err(|error| error::of_sweep(py, &error))?;
    Ok(SweepOutcome { merged, finished, folder })
}

/// Puts the parts of a sweep together.
#[pyfunction]
pub(crate) fn merge(py: Python<'_>, folders: Vec<PathBuf>, out: PathBuf) -> PyResult<SweepOutcome> {
    let merged =
        evenkeel_sweep::merge(&folders, &out).map_err(|error| error::of_sweep(py, &error))?;
    Ok(SweepOutcome { merged, finished: Finished::default(), folder: out })
}
