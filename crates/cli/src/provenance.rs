//! Where results come from: `provenance.json` and a copy of the scenario beside them.
//!
//! What depends on the machine and the hour stands in that file alone, so that the same scenario
//! and seed give the same bytes in all the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_report::archive;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};

/// The file.
pub(crate) const FILE: &str = "provenance.json";
/// The scenario beside it.
pub(crate) const SCENARIO: &str = "scenario.toml";

/// Runs `run`, whose results go into `folder`, and says there how they came about.
pub(crate) fn of(folder: &Path, scenario: &Path, run: impl FnOnce() -> Outcome) -> Outcome {
    let (began, before) = (now(), Noise::read());
    // As it was when it was run: it may be edited meanwhile.
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |error| Failure::new(1, format!("{what}: {error}"))
    };
    let text = fs::read(scenario).map_err(failed(scenario))?;
    let inputs = inputs(scenario).map_err(failed(scenario))?;
    let outcome = run();
    // What could not be run at all left nothing to be told of.
    if folder.is_dir() {
        let told = told(began, &Noise::read().since(&before), &inputs);
        let path = folder.join(FILE);
        fs::write(&path, format!("{told:#}\n"))
            .and_then(|()| fs::write(folder.join(SCENARIO), text))
            .map_err(failed(&path))?;
    }
    outcome
}

/// A file that a run was made of.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Input {
    /// Where it was.
    pub(crate) path: PathBuf,
    pub(crate) sha256: String,
}

/// The scenario and what it names, as they are now.
fn inputs(scenario: &Path) -> std::io::Result<Vec<Input>> {
    let files = evenkeel_scenario::inputs(scenario)?;
    let digest = |path: PathBuf| Ok(Input { sha256: archive::digest(&path)?.0, path });
    files.into_iter().map(digest).collect()
}

fn told(began: u64, noise: &Noise, inputs: &[Input]) -> Value {
    let proc = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let of = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    json!({
        "program": format!("evenkeel {}", env!("CARGO_PKG_VERSION")),
        "commit": env!("EVENKEEL_COMMIT"),
        "command": std::env::args().collect::<Vec<_>>(),
        // The scenario first.
        "inputs": inputs,
        "began_unix_s": began,
        "took_s": now().saturating_sub(began),
        "machine": {
            "kernel": proc("/proc/sys/kernel/osrelease").trim(),
            "cpu": of(&proc("/proc/cpuinfo"), "model name"),
            "cpus": available_parallelism().map_or(1, usize::from),
            "memory": of(&proc("/proc/meminfo"), "MemTotal"),
        },
        // Of the time of all processors, while it ran.
        "noise": {
            "busy": noise.part(noise.busy),
            "taken_by_the_host": noise.part(noise.taken),
        },
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What the processors of the machine did, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    all: u64,
    /// Worked, for whomever.
    busy: u64,
    /// Wanted by this machine and given to others by its host.
    taken: u64,
}

impl Noise {
    fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).map_while(|tick| tick.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, taken] = ticks[..] else {
            return Self::default();
        };
        let busy = user + nice + system + irq + softirq;
        Self { all: busy + idle + iowait + taken, busy, taken }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            busy: self.busy.saturating_sub(before.busy),
            taken: self.taken.saturating_sub(before.taken),
        }
    }

    fn part(&self, ticks: u64) -> Option<f64> {
        (self.all > 0).then(|| (ticks as f64 / self.all as f64 * 1_000.0).round() / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processors_did_is_read_as_documented() {
        let before = Noise::parse("cpu  10 0 5 100 1 0 0 0 7 7\ncpu0 1 1 1 1");
        let after = Noise::parse("cpu  40 0 15 150 1 0 0 10 7 7\n");
        let noise = after.since(&before);
        assert_eq!((noise.part(noise.busy), noise.part(noise.taken)), (Some(0.4), Some(0.1)));
        let unknown = Noise::parse("");
        assert_eq!(unknown.part(unknown.busy), None);
    }
}
