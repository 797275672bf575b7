//! Finished tasks on disk: one file each, which appears at once or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::SweepError;
use crate::axis::Axis;
use crate::chart::ChartSpec;
use crate::spec::{Sweep, Task, fnv};
use crate::tables::MapSpec;

const FORMAT: &str = "evenkeel-sweep-task";
const VERSION: u32 = 2;
/// The folder of the tasks' files in a folder of results.
pub(crate) const TASKS: &str = "tasks";
/// The file that says what the sweep is.
pub(crate) const MANIFEST: &str = "sweep.json";

/// Result of a task.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct TaskResult {
    format: String,
    version: u32,
    pub(crate) index: usize,
    pub(crate) seed: u64,
    pub(crate) values: Vec<toml::Value>,
    /// In the order of the sweep's measures.
    pub(crate) measures: Vec<Option<f64>>,
    pub(crate) rows: Vec<Row>,
}

/// Means of one class on one link in one step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) step: String,
    pub(crate) router: String,
    pub(crate) link: String,
    pub(crate) class: String,
    pub(crate) offered: Option<f64>,
    pub(crate) sent: f64,
    pub(crate) dropped: f64,
    pub(crate) qlen: f64,
    pub(crate) goodput: Option<f64>,
    pub(crate) delay: Option<[f64; 4]>,
    pub(crate) calls: Option<[f64; 3]>,
}

/// Description of a sweep: written beside the tasks, so that they can be put together without the
/// sweep's file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) notes: String,
    pub(crate) axes: Vec<Axis>,
    pub(crate) seeds: Vec<u64>,
    pub(crate) measures: Vec<(String, String)>,
    pub(crate) map: Option<MapSpec>,
    pub(crate) charts: Vec<ChartSpec>,
    /// Names of the tasks' files, in the order of the tasks.
    pub(crate) tasks: Vec<String>,
}

impl TaskResult {
    pub(crate) fn new(task: &Task, measures: Vec<Option<f64>>, rows: Vec<Row>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            index: task.index,
            seed: task.seed,
            values: task.values.clone(),
            measures,
            rows,
        }
    }
}

impl Manifest {
    pub(crate) fn of(sweep: &Sweep, tasks: &[Task]) -> Self {
        Self {
            format: "evenkeel-sweep".to_owned(),
            version: VERSION,
            name: sweep.name.clone(),
            title: sweep.title.clone(),
            notes: sweep.notes.clone(),
            axes: sweep.axes.clone(),
            seeds: sweep.seeds.clone(),
            measures: sweep.measures.clone(),
            map: sweep.map.clone(),
            charts: sweep.charts.clone(),
            tasks: tasks.iter().map(file_name).collect(),
        }
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), SweepError> {
        write(&folder.join(MANIFEST), self)
    }

    pub(crate) fn read(folder: &Path) -> Result<Self, SweepError> {
        let path = folder.join(MANIFEST);
        let fail = |what: String| SweepError::Read { path: path.clone(), what };
        let text = fs::read(&path).map_err(|error| fail(error.to_string()))?;
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))?;
        if manifest.format != "evenkeel-sweep" || manifest.version != VERSION {
            return Err(fail(format!(
                "{} version {}; this program reads version {VERSION}",
                manifest.format, manifest.version
            )));
        }
        Ok(manifest)
    }

    /// Stands for everything that two parts of one sweep share.
    pub(crate) fn identity(&self) -> u64 {
        fnv(&self.tasks.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// Begins with the number, so that folders list in order; ends with what stands for its content, so
/// that a changed sweep takes nothing over.
pub(crate) fn file_name(task: &Task) -> String {
    format!("{:06}-{:016x}.json", task.index, task.hash)
}

/// Reads a finished task; `None` if it is not there or not whole.
pub(crate) fn read(path: &Path) -> Option<TaskResult> {
    let result: TaskResult = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (result.format == FORMAT && result.version == VERSION).then_some(result)
}

/// Writes a file so that it is there wholly or not at all, also if the machine stops or the disk is
/// full.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), SweepError> {
    let mut bytes = serde_json::to_vec(content).expect("plain data can be written as JSON");
    bytes.push(b'\n');
    write_bytes(path, &bytes)
}

/// As [`write`].
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    let unfinished: PathBuf = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = || -> std::io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&unfinished, path)
    };
    written().map_err(|source| {
        // What is left of it is of no use, and may be what fills the disk.
        drop(fs::remove_file(&unfinished));
        SweepError::Write { path: path.to_owned(), source }
    })
}
