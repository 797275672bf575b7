//! `evenkeel sim`, and the demo without root: virtual time.

use std::path::{Path, PathBuf};

use evenkeel_report::{Judgement, Report, WriteError, table};
use evenkeel_router::Disciplines;
use evenkeel_scenario::{Scenario, World};
use evenkeel_sim::{SimError, SimOptions};
use evenkeel_world::demo::{self, Demo};

use crate::args::{DemoArgs, SimArgs};
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::lab::{file_name, print_summary};
use crate::out::print;

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::new(1, error)
    }
}

pub(crate) fn sim(args: &SimArgs, disciplines: &Disciplines) -> Outcome {
    let scenario = check::load_scenario(&args.file, disciplines)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&scenario.name)));
    if !args.all_without {
        return one(args, &scenario, args.without.clone(), &out, disciplines);
    }
    if scenario.ablations.is_empty() {
        eprintln!("evenkeel: {} has no [[without]]: nothing to run", args.file.display());
    }
    let mut worst = 0;
    for ablation in &scenario.ablations {
        if !args.quiet && !args.json {
            print(&format!("without: {}\n\n", ablation.name))?;
        }
        let folder = out.join(file_name(&ablation.name));
        worst = worst.max(one(args, &scenario, Some(ablation.name.clone()), &folder, disciplines)?);
    }
    Ok(worst)
}

/// The scenario, once per seed, into one report.
fn one(
    args: &SimArgs,
    scenario: &Scenario,
    without: Option<String>,
    folder: &Path,
    disciplines: &Disciplines,
) -> Outcome {
    let first = args.seed.unwrap_or(scenario.seed);
    let (mut runs, mut judgements, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    let mut varied = scenario.clone();
    if let Some(name) = &without {
        varied = varied.with_ablation(name).map_err(Failure::input)?;
    }
    if args.time_scale != 1.0 {
        varied = varied.scaled(args.time_scale).map_err(Failure::input)?;
    }
    for seed in (0..args.seeds).map(|n| first.wrapping_add(n)) {
        let options = SimOptions {
            seed: Some(seed),
            without: without.clone(),
            time_scale: args.time_scale,
            disciplines: disciplines.clone(),
        };
        let mut outcome = evenkeel_sim::run(scenario, &options)?;
        let named = |text: String| if args.seeds > 1 { format!("seed {seed}: {text}") } else { text };
        if args.seeds > 1 {
            let name = format!("{} seed {seed}", outcome.run.name).trim().to_owned();
            outcome.judgements.iter_mut().for_each(|judgement| judgement.run.clone_from(&name));
            outcome.run.name = name;
        }
        warnings.extend(outcome.warnings.drain(..).map(named));
        if !args.quiet && !args.json {
            print(&format!("{}\n", table::steps(&outcome.run)))?;
        }
        judgements.append(&mut outcome.judgements);
        runs.push(outcome.run);
    }
    varied.seed = first;
    let report = Report::of_scenario(&varied, runs, judgements.clone());
    let files = evenkeel_report::write_all(folder, &report)?;
    let bad: Vec<Judgement> = judgements.iter().filter(|j| j.verdict.is_bad()).cloned().collect();
    if args.json {
        print_summary(&files)?;
    } else if args.quiet {
        eprint!("{}", table::judgements(&bad));
    } else {
        print(&format!("{}\n", table::judgements(&judgements)))?;
        if let Some(page) = files.last() {
            print(&format!("report: {}\n", page.display()))?;
        }
    }
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    Ok(u8::from(!bad.is_empty()))
}

/// The demo in virtual time; `because` says why not on real packets.
pub(crate) fn demo(args: &DemoArgs, because: Option<&str>) -> Outcome {
    if let Some(because) = because {
        print(&format!("{because}\n"))?;
    }
    let scenarios = demo::scenarios()?;
    let mut demo = Demo::new(scenarios.clone(), World::Sim);
    if !args.quiet {
        print(&demo.introduction())?;
    }
    for (_, scenario) in &scenarios {
        let outcome = evenkeel_sim::run(scenario, &SimOptions::default())?;
        demo.measured(outcome.run, outcome.warnings);
    }
    let folder: &PathBuf = &args.out;
    Ok(demo.finish(folder, args.quiet)?.exit_code())
}
