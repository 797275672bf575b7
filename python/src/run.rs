//! Scenarios in virtual time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use evenkeel_report::columns::{self, Columns};
use evenkeel_report::{Report, fields, judge, summary};
use evenkeel_router::{Disciplines, lock};
use evenkeel_sim::{SimError, SimOptions};
use evenkeel_world::capture::Captures;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::interrupt::interruptible;
use crate::scenario::Loaded;
use crate::table::{Meanings, Table, meanings};

/// A claim, judged.
#[pyclass(frozen, get_all, module = "evenkeel")]
#[derive(Clone)]
pub(crate) struct Expectation {
    name: String,
    claim: String,
    expression: String,
    verdict: String,
    failed: bool,
    measured: Vec<(String, Option<f64>)>,
    note: String,
}

/// What came out of one run.
#[pyclass(frozen, module = "evenkeel", name = "Result")]
pub(crate) struct Outcome {
    report: Report,
}

impl Outcome {
    fn table(&self, of: fn(&[&Report]) -> Columns, meanings: &Meanings) -> PyResult<Table> {
        Table::new(&of(&[&self.report]), meanings)
    }
}

#[pymethods]
impl Outcome {
    #[getter]
    fn name(&self) -> &str {
        &self.report.name
    }

    #[getter]
    fn title(&self) -> &str {
        &self.report.title
    }

    #[getter]
    fn seed(&self) -> Option<u64> {
        self.report.seed
    }

    #[getter]
    fn without(&self) -> Option<&str> {
        self.report.without.as_deref()
    }

    #[getter]
    fn passed(&self) -> bool {
        !self.report.failed() && self.warnings().is_empty()
    }

    #[getter]
    fn expectations(&self) -> Vec<Expectation> {
        let of = |one: &judge::Judgement| Expectation {
            name: one.name.clone(),
            claim: one.claim.clone(),
            expression: one.expression.clone(),
            verdict: one.verdict.name().to_owned(),
            failed: one.verdict.is_bad(),
            measured: one.measured.iter().map(|term| (term.text.clone(), term.value)).collect(),
            note: one.note.clone(),
        };
        self.report.judgements.iter().map(of).collect()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.report.runs.iter().flat_map(|run| run.notes.clone()).collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.report.runs.iter().flat_map(|run| run.warnings.clone()).collect()
    }

    #[getter]
    fn samples(&self) -> PyResult<Table> {
        self.table(columns::samples, &meanings!(fields::samples()))
    }

    #[getter]
    fn flows(&self) -> PyResult<Table> {
        self.table(columns::flows, &meanings!(fields::flows()))
    }

    #[getter]
    fn connections(&self) -> PyResult<Table> {
        self.table(columns::connections, &meanings!(fields::connections()))
    }

    #[getter]
    fn subscribers(&self) -> PyResult<Table> {
        self.table(columns::subscribers, &meanings!(fields::subscribers()))
    }

    /// `summary.json`.
    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = summary::summary(&self.report).to_string();
        py.import("json")?.call_method1("loads", (text,))
    }

    /// The page.
    fn to_html(&self) -> String {
        self.report.to_html()
    }

    fn save(&self, folder: PathBuf) -> PyResult<Vec<PathBuf>> {
        evenkeel_report::write_all(&folder, &self.report).map_err(|error| error::of_writing(&error))
    }

    fn __repr__(&self) -> String {
        let all = self.report.judgements.len();
        let bad = judge::bad(&self.report.judgements).len();
        let seed = self.report.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        format!("<evenkeel.Result {}{seed}: {} of {all} claims held>", self.report.name, all - bad)
    }
}

/// How one is run, seeds apart.
#[derive(Clone)]
struct How {
    without: Option<String>,
    time_scale: f64,
    connections: bool,
    capture: Vec<String>,
    /// Where results go: of one run, or of a run of several.
    out: Option<PathBuf>,
}

impl How {
    fn check(&self, scenario: &Loaded) -> PyResult<()> {
        let of_network = matches!(scenario, Loaded::Network(_));
        if !of_network && (self.connections || !self.capture.is_empty()) {
            return Err(PyValueError::new_err(
                "connections and capture do not apply to a cluster: it has no wires and no TCP",
            ));
        }
        if matches!(scenario, Loaded::Cluster(_)) && self.time_scale != 1.0 {
            return Err(PyValueError::new_err(
                "time_scale does not apply to a cluster's cases: set their duration or packets",
            ));
        }
        if !(self.time_scale > 0.0 && self.time_scale.is_finite()) {
            return Err(PyValueError::new_err(format!(
                "time_scale {}: valid: above 0",
                self.time_scale
            )));
        }
        if !self.capture.is_empty() && self.out.is_none() {
            return Err(PyValueError::new_err("capture writes files: say out, a folder for them"));
        }
        Ok(())
    }

    /// Simulates, and writes the results if there is a folder for them.
    fn run(&self, scenario: &Loaded, seed: u64, folder: Option<PathBuf>) -> Result<Report, Why> {
        let captures =
            Captures { wires: self.capture.clone(), folder: folder.clone().unwrap_or_default() };
        let options = SimOptions {
            seed: Some(seed),
            without: self.without.clone(),
            time_scale: self.time_scale,
            disciplines: Disciplines::default(),
            connections: self.connections,
            captures,
        };
        let report = scenario.report(&options)?;
        if let Some(folder) = folder {
            evenkeel_report::write_all(&folder, &report)?;
        }
        Ok(report)
    }
}

/// Why there is no result.
enum Why {
    Simulation(Box<SimError>),
    Writing(evenkeel_report::WriteError),
}

impl From<SimError> for Why {
    fn from(error: SimError) -> Self {
        Self::Simulation(Box::new(error))
    }
}

impl From<evenkeel_report::WriteError> for Why {
    fn from(error: evenkeel_report::WriteError) -> Self {
        Self::Writing(error)
    }
}

impl Why {
    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Simulation(error) => error::of_simulation(py, error),
            Self::Writing(error) => error::of_writing(error),
        }
    }
}

/// Runs a scenario once.
#[pyfunction]
#[pyo3(signature = (scenario, *, seed = None, without = None, time_scale = 1.0,
    connections = false, capture = None, out = None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    seed: Option<u64>,
    without: Option<String>,
    time_scale: f64,
    connections: bool,
    capture: Option<Vec<String>>,
    out: Option<PathBuf>,
) -> PyResult<Outcome> {
    let scenario = Loaded::of(py, scenario)?;
    let capture = capture.unwrap_or_default();
    let how = How { without, time_scale, connections, capture, out };
    how.check(&scenario)?;
    let seed = seed.unwrap_or(scenario.seed());
    let work = move || how.run(&scenario, seed, how.out.clone());
    let report = interruptible(py, &AtomicBool::new(false), work)?;
    Ok(Outcome { report: report.map_err(|why| why.raise(py))? })
}

/// Runs a scenario with several seeds, on all cores.
#[pyfunction]
#[pyo3(signature = (scenario, seeds, *, jobs = 0, without = None, time_scale = 1.0,
    connections = false, capture = None, out = None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn run_seeds(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    seeds: &Bound<'_, PyAny>,
    jobs: usize,
    without: Option<String>,
    time_scale: f64,
    connections: bool,
    capture: Option<Vec<String>>,
    out: Option<PathBuf>,
) -> PyResult<Vec<Outcome>> {
    let scenario = Loaded::of(py, scenario)?;
    let capture = capture.unwrap_or_default();
    let how = How { without, time_scale, connections, capture, out };
    how.check(&scenario)?;
    let seeds: Vec<u64> = match seeds.extract::<u64>() {
        Ok(count) => (0..count).map(|n| scenario.seed().wrapping_add(n)).collect(),
        Err(_) => seeds.try_iter()?.map(|seed| seed?.extract()).collect::<PyResult<_>>()?,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let work = move || all(&how, &scenario, &seeds, jobs, &asked);
    let reports = interruptible(py, &stop, work)?;
    let outcome = |report: Result<Report, Why>| match report {
        Ok(report) => Ok(Outcome { report }),
        Err(why) => Err(why.raise(py)),
    };
    reports.into_iter().map(outcome).collect()
}

/// The runs of all seeds in their order, so many at the same time; the first that fails ends it.
fn all(
    how: &How,
    scenario: &Loaded,
    seeds: &[u64],
    jobs: usize,
    stop: &AtomicBool,
) -> Vec<Result<Report, Why>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if jobs == 0 { cores } else { jobs }.min(seeds.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(seed) = seeds.get(place) else { break };
            let folder = how.out.as_ref().map(|out| out.join(format!("seed-{seed}")));
            let report = how.run(scenario, *seed, folder);
            if report.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            lock(&done).push((place, report));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, report)| report).collect()
}
