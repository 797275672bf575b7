//! `evenkeel scenario check --margins`: how near the claims of scenarios are to failing.

use std::path::{Path, PathBuf};

use evenkeel_report::margins::{Margin, margins as margins_of, table};
use evenkeel_report::{Run, saved};
use evenkeel_router::Disciplines;
use evenkeel_scenario::{Scenario, World};
use evenkeel_sim::SimOptions;
use serde_json::{Value, json};

use crate::check;
use crate::failure::{Failure, Outcome};
use crate::live::is_live;
use crate::out::{print, print_json};
use crate::sim::is_cluster;

/// Of `seeds` simulated runs, or of the results in the folders `of` if there are any. 1 if a claim
/// fails in any run.
pub(crate) fn margins(
    files: &[PathBuf],
    seeds: u64,
    of: &[PathBuf],
    as_json: bool,
    disciplines: &Disciplines,
) -> Outcome {
    if files.len() > 1 && !of.is_empty() {
        return Err(Failure::input("--of goes with one scenario: the results are of one"));
    }
    let (mut values, mut failed) = (Vec::new(), false);
    for file in files {
        if is_live(file) || is_cluster(file) {
            let why = "margins are told of scenarios of a network; this one is of a cluster";
            return Err(Failure::input(format!("{}: {why}", file.display())));
        }
        let scenario = check::load_scenario(file, disciplines)?;
        let found = if of.is_empty() {
            let runs = simulated(&scenario, seeds, disciplines)?;
            margins_of(&scenario, &runs.iter().collect::<Vec<_>>(), World::Sim)
        } else {
            of_results(&scenario, of)?
        };
        failed |= found.iter().any(|margin| margin.least < 0.0);
        if as_json {
            let margins: Vec<Value> = found.iter().map(margin_json).collect();
            values.push(json!({ "file": file, "name": scenario.name, "margins": margins }));
        } else {
            print(&text(file, &found))?;
        }
    }
    if as_json {
        print_json(&Value::Array(values))?;
    }
    Ok(u8::from(failed))
}

fn simulated(
    scenario: &Scenario,
    seeds: u64,
    disciplines: &Disciplines,
) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for seed in (0..seeds).map(|n| scenario.seed.wrapping_add(n)) {
        let options = SimOptions {
            seed: Some(seed),
            disciplines: disciplines.clone(),
            ..SimOptions::default()
        };
        runs.push(evenkeel_sim::run(scenario, &options)?.run);
    }
    Ok(runs)
}

/// Of results that are there, all of one world.
fn of_results(scenario: &Scenario, folders: &[PathBuf]) -> Result<Vec<Margin>, Failure> {
    let reports = saved::load_all(folders)?;
    let mut runs = Vec::new();
    for report in &reports {
        if report.name != scenario.name {
            let (found, wanted) = (&report.name, &scenario.name);
            let why = format!("a result of {found:?} is no run of {wanted:?}");
            return Err(Failure::input(why));
        }
        // Runs without a mechanism are meant to fail.
        runs.extend(report.runs.iter().filter(|run| run.name.is_empty()));
    }
    let world = |name: &str| World::ALL.iter().copied().find(|world| world.name() == name);
    let worlds: Vec<&str> = runs.iter().map(|run| run.world.as_str()).collect();
    let Some(first) = worlds.first() else {
        return Err(Failure::input("the folders hold runs without a mechanism only"));
    };
    if worlds.iter().any(|world| world != first) {
        return Err(Failure::input("the results are of both worlds: give one of them"));
    }
    Ok(margins_of(scenario, &runs, world(first).unwrap_or_default()))
}

fn text(file: &Path, found: &[Margin]) -> String {
    let runs = found.iter().map(|margin| margin.runs.1).max().unwrap_or_default();
    let head = format!("{}: margins over {runs} runs\n", file.display());
    if found.is_empty() {
        return format!("{head}no claim is meant for this world\n");
    }
    format!("{head}{}\n", table(found))
}

fn margin_json(margin: &Margin) -> Value {
    json!({
        "claim": margin.claim,
        "comparison": margin.comparison,
        "value": margin.value,
        "bound": margin.bound,
        "margin": margin.margin,
        "least": margin.least,
        "spread": margin.spread,
        "margin_in_spreads": margin.spreads(),
        "measured": margin.runs.0,
        "runs": margin.runs.1,
    })
}
