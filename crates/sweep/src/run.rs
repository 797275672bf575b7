//! Running the tasks of a sweep on all cores.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use evenkeel_report::stats::Measured;
use evenkeel_report::{ClassStats, StepStats};
use evenkeel_router::{Disciplines, lock};
use evenkeel_sim::{SimError, SimOptions};

use crate::spec::{Sweep, Task};
use crate::store::{self, Manifest, Row, TaskResult};
use crate::{GridError, SweepError};

/// A part of a sweep: every `of`-th task, beginning with the `number`-th; both from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shard {
    /// Which part.
    pub number: usize,
    /// How many parts there are.
    pub of: usize,
}

impl Shard {
    /// The whole sweep.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Reads `3/8`.
    ///
    /// # Errors
    /// It is not so written, or the part is not within 1 to the number of parts.
    pub fn parse(text: &str) -> Result<Self, ShardError> {
        let parts = text
            .split_once('/')
            .and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(ShardError(text.to_owned())),
        }
    }

    fn takes(self, index: usize) -> bool {
        index % self.of == self.number - 1
    }
}

/// A text that names no part of a sweep.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is no part such as \"3/8\": the third of eight, counted from 1")]
pub struct ShardError(pub String);

/// How a sweep is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Simulations at the same time; 0: as many as there are cores.
    pub jobs: usize,
    /// Which part.
    pub shard: Shard,
    /// Disciplines of the caller's own, which scenarios may name.
    pub disciplines: Disciplines,
    /// Once this is set from outside, no other task begins; those that run are finished.
    pub stop: Arc<AtomicBool>,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// Tasks of this part.
    pub tasks: usize,
    /// Tasks that were there already.
    pub kept: usize,
    /// Tasks that were run now.
    pub new: usize,
    /// Tasks that could not be simulated: which, and why.
    pub failed: Vec<String>,
}

/// Runs what is not yet there, into `folder`. `progress` is called with the number of tasks done
/// and of all, those found done first.
///
/// # Errors
/// The first file that could not be written. Nothing that was finished is lost.
pub fn run(
    sweep: &Sweep,
    folder: &Path,
    options: &RunOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Finished, SweepError> {
    let all: Vec<Task> =
        (0..sweep.tasks()).map(|index| sweep.task(index)).collect::<Result<_, _>>()?;
    let first = all.first().map(|task| sweep.scenario(task)).transpose()?;
    for router in first.iter().flat_map(|scenario| &scenario.routers) {
        // A discipline that this program does not know would fail every task.
        options.disciplines.check(&router.config).map_err(|source| SweepError::Discipline {
            sweep: sweep.name.clone(),
            router: router.name.clone(),
            source: Box::new(source),
        })?;
    }
    let tasks_folder = folder.join(store::TASKS);
    fs::create_dir_all(&tasks_folder)
        .map_err(|source| SweepError::Write { path: tasks_folder.clone(), source })?;
    Manifest::of(sweep, &all).write(folder)?;

    let mine: Vec<&Task> = all.iter().filter(|task| options.shard.takes(task.index)).collect();
    let path = |task: &Task| tasks_folder.join(store::file_name(task));
    let (done, open): (Vec<&Task>, Vec<&Task>) =
        mine.iter().copied().partition(|task| store::read(&path(task)).is_some());
    progress(done.len(), mine.len());

    let next = AtomicUsize::new(0);
    let finished = AtomicUsize::new(done.len());
    let broken = AtomicBool::new(false);
    let failures: Mutex<Failures> = Mutex::default();
    let work = || {
        while !(broken.load(Ordering::Relaxed) || options.stop.load(Ordering::Relaxed)) {
            let Some(task) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            match simulate(sweep, task, &options.disciplines) {
                Ok(result) => {
                    if let Err(error) = store::write(&path(task), &result) {
                        broken.store(true, Ordering::Relaxed);
                        lock(&failures).write.get_or_insert(error);
                        break;
                    }
                }
                Err(why) => lock(&failures)
                    .tasks
                    .push((task.index, format!("{}: {why}", sweep.words(task)))),
            }
            progress(finished.fetch_add(1, Ordering::Relaxed) + 1, mine.len());
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = if options.jobs == 0 { cores } else { options.jobs }.min(open.len());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let Failures { tasks: mut failed, write: error } =
        failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    failed.sort();
    Ok(Finished {
        tasks: mine.len(),
        kept: done.len(),
        new: finished.into_inner() - done.len() - failed.len(),
        failed: failed.into_iter().map(|(_, text)| text).collect(),
    })
}

/// The first error of any thread.
#[derive(Default)]
struct Failures {
    /// Tasks that could not be simulated: number, and which and why.
    tasks: Vec<(usize, String)>,
    /// The first file that could not be written.
    write: Option<SweepError>,
}

/// Why a task has no result.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    Grid(#[from] GridError),
    #[error(transparent)]
    Simulation(#[from] SimError),
}

fn simulate(
    sweep: &Sweep,
    task: &Task,
    disciplines: &Disciplines,
) -> Result<TaskResult, TaskError> {
    let scenario = sweep.scenario(task)?;
    let options = SimOptions { disciplines: disciplines.clone(), ..SimOptions::default() };
    let outcome = evenkeel_sim::run(&scenario, &options)?;
    let stats = outcome.run.step_stats();
    let measure = |(name, _): &(String, String)| {
        let expectation =
            scenario.expectations.iter().find(|expectation| expectation.name == *name)?;
        expectation.expr.sides(&Measured(&stats, &outcome.run)).first().copied().flatten()
    };
    let measures = sweep.measures.iter().map(measure).collect();
    let rows = stats.iter().flat_map(|step| step.classes.iter().map(|class| row(step, class)));
    Ok(TaskResult::new(task, measures, rows.collect()))
}

fn row(step: &StepStats, class: &ClassStats) -> Row {
    let link =
        step.links.iter().find(|link| link.router == class.router && link.link == class.link);
    Row {
        step: step.step.clone(),
        router: class.router.clone(),
        link: class.link.clone(),
        class: class.class.clone(),
        offered: class.offered,
        sent: class.sent,
        dropped: class.dropped,
        qlen: class.qlen,
        goodput: class.goodput,
        delay: class.transit.map(|d| [d.mean_us, d.p50_us, d.p99_us, d.max_us]),
        calls: link.map(|link| [link.none, link.one, link.many]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_the_tasks_out_without_rest_or_overlap() {
        for of in 1..=7 {
            for index in 0..50 {
                let takers =
                    (1..=of).filter(|number| Shard { number: *number, of }.takes(index)).count();
                assert_eq!(takers, 1);
            }
        }
    }

    #[test]
    fn parts_are_counted_from_one() {
        assert_eq!(Shard::parse("3/8"), Ok(Shard { number: 3, of: 8 }));
        for wrong in ["0/8", "9/8", "3", "a/b", "3/0", ""] {
            assert!(
                Shard::parse(wrong).unwrap_err().to_string().contains("counted from 1"),
                "{wrong}"
            );
        }
    }
}
