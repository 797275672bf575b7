//! Scenarios and sweeps as Python gives them: a path, a text, a dict.

use std::path::{Path, PathBuf};

use evenkeel_report::Report;
use evenkeel_scenario::Scenario;
use evenkeel_sim::cluster::{ClusterScenario, run_cluster};
use evenkeel_sim::{SimError, SimOptions};
use evenkeel_world::live::LiveScenario;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};

use crate::error;

/// What a dict is called where errors name a file.
pub(crate) const OF_DICT: &str = "<dict>";
/// And a text.
pub(crate) const OF_TEXT: &str = "<text>";

/// What was given.
pub(crate) enum Given {
    File(PathBuf),
    /// And what errors call it. Files that it names are looked for from the working folder.
    Text(String, &'static str),
}

impl Given {
    /// A dict, a text of several lines, or a path.
    pub(crate) fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(dict) = given.cast::<PyDict>() {
            return Ok(Self::Text(table(dict, "")?.to_string(), OF_DICT));
        }
        if let Ok(text) = given.cast::<PyString>() {
            let text = text.to_str()?;
            if text.contains('\n') {
                return Ok(Self::Text(text.to_owned(), OF_TEXT));
            }
        }
        given.extract::<PathBuf>().map(Self::File).map_err(|_other| {
            PyTypeError::new_err("a scenario is a path, a text in TOML of several lines, or a dict")
        })
    }
}

/// A scenario of one of the three kinds.
pub(crate) enum Loaded {
    /// Hosts, routers and wires, or a core.
    Network(Box<Scenario>),
    /// Cases of the model of a cluster.
    Cluster(ClusterScenario),
    /// Routers of a cluster at their switch.
    Live(LiveScenario),
}

impl Loaded {
    /// What was given.
    pub(crate) fn of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (text, name, folder) = match Given::of(given)? {
            Given::Text(text, name) => (text, name.to_owned(), PathBuf::new()),
            Given::File(path) => {
                // Whatever cannot be read, loading says.
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let is_plain = !ClusterScenario::is_meant(&text) && !LiveScenario::is_meant(&text);
                if is_plain {
                    return Scenario::load(&path)
                        .map(|scenario| Self::Network(Box::new(scenario)))
                        .map_err(|errors| error::of_diagnostics(py, errors, true));
                }
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                (text, path.display().to_string(), folder)
            }
        };
        let read = if ClusterScenario::is_meant(&text) {
            ClusterScenario::parse(&text, &name, &folder).map(Self::Cluster)
        } else if LiveScenario::is_meant(&text) {
            LiveScenario::parse(&text, &name).map(Self::Live)
        } else {
            Scenario::parse(&text, &name, &folder).map(|one| Self::Network(Box::new(one)))
        };
        read.map_err(|errors| error::of_diagnostics(py, errors, name != OF_DICT))
    }

    /// Its own.
    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Network(scenario) => scenario.seed,
            Self::Cluster(scenario) => scenario.seed,
            Self::Live(scenario) => scenario.seed,
        }
    }

    /// Simulates it.
    pub(crate) fn report(&self, options: &SimOptions) -> Result<Report, SimError> {
        let (seed, without) = (options.seed.unwrap_or(self.seed()), options.without.as_deref());
        match self {
            Self::Network(scenario) => evenkeel_sim::report(scenario, options),
            Self::Cluster(scenario) => run_cluster(scenario, seed, without),
            Self::Live(scenario) => {
                evenkeel_sim::run_live(scenario, seed, options.time_scale, without)
            }
        }
    }
}

fn table(dict: &Bound<'_, PyDict>, path: &str) -> PyResult<Table> {
    let mut table = Table::new();
    for (key, entry) in dict {
        let key: String = key.extract().map_err(|_other| {
            PyTypeError::new_err(format!("{OF_DICT}: {path}: a key is no text"))
        })?;
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let value = value(&entry, &below)?;
        table.insert(key, value);
    }
    Ok(table)
}

fn value(of: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
    // Of Python True is a number, too.
    if let Ok(switch) = of.cast::<PyBool>() {
        return Ok(Value::Boolean(switch.is_true()));
    }
    if of.cast::<PyInt>().is_ok() {
        let number = of.extract().map_err(|_other| {
            PyValueError::new_err(format!("{OF_DICT}: {path}: beyond 64 bits"))
        })?;
        return Ok(Value::Integer(number));
    }
    if let Ok(number) = of.cast::<PyFloat>() {
        return Ok(Value::Float(number.extract()?));
    }
    if let Ok(text) = of.cast::<PyString>() {
        return Ok(Value::String(text.to_str()?.to_owned()));
    }
    if let Ok(dict) = of.cast::<PyDict>() {
        return table(dict, path).map(Value::Table);
    }
    if of.cast::<PyList>().is_ok() || of.cast::<PyTuple>().is_ok() {
        let entries = of.try_iter()?.enumerate();
        let entry = |(n, entry): (usize, PyResult<Bound<'_, PyAny>>)| {
            value(&entry?, &format!("{path}[{n}]"))
        };
        return entries.map(entry).collect::<PyResult<_>>().map(Value::Array);
    }
    if let Ok(file) = of.extract::<PathBuf>() {
        return Ok(Value::String(file.display().to_string()));
    }
    let kind = of.get_type().name()?.to_string();
    let valid = "valid: text, number, switch, path, list, dict";
    Err(PyTypeError::new_err(format!("{OF_DICT}: {path}: {kind} cannot stand there; {valid}")))
}
