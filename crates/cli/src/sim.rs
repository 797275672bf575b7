//! `evenkeel sim`, and the demo without root: virtual time.

use std::path::Path;

use evenkeel_report::site::Title;
use evenkeel_report::{WriteError, judge, table};
use evenkeel_router::Disciplines;
use evenkeel_scenario::{Scenario, World};
use evenkeel_sim::cluster::{ClusterScenario, run_cluster};
use evenkeel_sim::{SimError, SimOptions};
use evenkeel_world::capture::Captures;
use evenkeel_world::demo::Demo;
use evenkeel_world::fairdrop_demo;

use crate::args::{DemoArgs, Shown, SimArgs};
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::live;
use crate::out::print;
use crate::provenance;
use crate::runs::{file_name, print_summary};

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

/// A cluster scenario: its cases, once per seed and mechanism switched off.
fn cluster(args: &SimArgs) -> Outcome {
    if args.world.time_scale != 1.0 {
        return Err(Failure::input(
            "--time-scale does not apply to a cluster scenario: set `duration` or `packets` of its \
             cases",
        ));
    }
    live::no_capture(&args.world)?;
    let scenario = ClusterScenario::load(&args.world.file)?;
    let out =
        args.world.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&scenario.name)));
    provenance::of(&out, &args.world.file, || cases(args, &scenario, &out))
}

fn cases(args: &SimArgs, scenario: &ClusterScenario, out: &Path) -> Outcome {
    let names = scenario.ablations.iter().map(|(name, _, _)| Some(name.as_str()));
    let runs: Vec<Option<&str>> =
        if args.world.all_without { names.collect() } else { vec![args.world.without.as_deref()] };
    let mut failed = false;
    for without in runs {
        let mut reports = Vec::new();
        let mut all = out.to_owned();
        all.extend(without.map(file_name));
        for seed in (0..args.seeds).map(|n| args.seed.unwrap_or(scenario.seed).wrapping_add(n)) {
            let report = run_cluster(scenario, seed, without)?;
            let bad = judge::bad(&report.judgements);
            failed |= !bad.is_empty();
            let mut folder = all.clone();
            if args.seeds > 1 {
                folder.push(format!("seed-{seed}"));
            }
            let files = evenkeel_report::write_all(&folder, &report)?;
            if args.world.json {
                print_summary(&files)?;
            } else if args.world.quiet {
                eprint!("{}", table::judgements(&bad));
            } else {
                print(&format!("{}\n", table::steps(&report.runs[0])))?;
                print(&format!("{}\n", table::judgements(&report.judgements)))?;
                print(&format!("results: {}\n", folder.display()))?;
            }
            reports.push(report);
        }
        if args.seeds > 1 {
            let page = evenkeel_report::site::write(&all, reports, &[], &Title::default())?;
            if !args.world.quiet && !args.world.json {
                print(&format!("report: {}\n", page.display()))?;
            }
        }
    }
    Ok(u8::from(failed))
}

/// Whether a file holds a cluster scenario. A file that cannot be read is left to who reports that.
pub(crate) fn is_cluster(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| ClusterScenario::is_meant(&text))
}

pub(crate) fn sim(args: &SimArgs, disciplines: &Disciplines) -> Outcome {
    if is_cluster(&args.world.file) {
        return cluster(args);
    }
    if live::is_live(&args.world.file) {
        return live::sim(args);
    }
    let scenario = check::load_scenario(&args.world.file, disciplines)?;
    let out =
        args.world.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&scenario.name)));
    provenance::of(&out, &args.world.file, || all(args, &scenario, &out, disciplines))
}

fn all(args: &SimArgs, scenario: &Scenario, out: &Path, disciplines: &Disciplines) -> Outcome {
    if !args.world.all_without {
        return one(args, scenario, args.world.without.clone(), out, disciplines);
    }
    if scenario.ablations.is_empty() {
        eprintln!("evenkeel: {} has no [[without]]: nothing to run", args.world.file.display());
    }
    let mut worst = 0;
    for ablation in &scenario.ablations {
        if !args.world.quiet && !args.world.json {
            print(&format!("without: {}\n\n", ablation.name))?;
        }
        let folder = out.join(file_name(&ablation.name));
        worst = worst.max(one(args, scenario, Some(ablation.name.clone()), &folder, disciplines)?);
    }
    Ok(worst)
}

/// The scenario, once per seed: one seed gives a page on its run, several a page on all of them,
/// their runs in folders of their own.
fn one(
    args: &SimArgs,
    scenario: &Scenario,
    without: Option<String>,
    folder: &Path,
    disciplines: &Disciplines,
) -> Outcome {
    let first = args.seed.unwrap_or(scenario.seed);
    let several = args.seeds > 1;
    let (mut reports, mut files, mut failed) = (Vec::new(), Vec::new(), false);
    for seed in (0..args.seeds).map(|n| first.wrapping_add(n)) {
        let below = if several { folder.join(format!("seed-{seed}")) } else { folder.to_owned() };
        let options = SimOptions {
            seed: Some(seed),
            without: without.clone(),
            time_scale: args.world.time_scale,
            disciplines: disciplines.clone(),
            connections: args.world.connections,
            captures: Captures { wires: args.world.capture.clone(), folder: below.clone() },
        };
        let report = evenkeel_sim::report(scenario, &options)?;
        let [run] = report.runs.as_slice() else { unreachable!("a simulation is one run") };
        let of = if several { format!("seed {seed}: ") } else { String::new() };
        for warning in &run.warnings {
            eprintln!("warning: {of}{warning}");
        }
        let bad = judge::bad(&report.judgements);
        // What does not add up is a mistake of this program: never what anybody expected.
        failed |= !bad.is_empty() || !run.warnings.is_empty();
        if args.world.quiet && !args.world.json {
            eprint!("{}", table::judgements(&bad));
        } else if !args.world.json {
            if several {
                print(&format!("seed {seed}\n"))?;
            }
            print(&format!("{}\n", table::steps(run)))?;
            print(&format!("{}\n", table::judgements(&report.judgements)))?;
            for note in &run.notes {
                print(&format!("{note}\n"))?;
            }
        }
        files = evenkeel_report::write_all(&below, &report)?;
        if args.world.json {
            print_summary(&files)?;
        }
        reports.push(report);
    }
    let page = match files.last() {
        Some(page) if !several => page.clone(),
        _ => evenkeel_report::site::write(folder, reports, &[], &Title::default())?,
    };
    if !args.world.quiet && !args.world.json {
        print(&format!("report: {}\n", page.display()))?;
    }
    Ok(u8::from(failed))
}

/// The demo in virtual time; `because` says why not on real packets.
pub(crate) fn demo(args: &DemoArgs, because: Option<&str>) -> Outcome {
    if let Some(because) = because {
        print(&format!("{because}\n"))?;
    }
    let mut demo = match args.what {
        Shown::Fairdrop => fairdrop_demo::demo(World::Sim)?,
        Shown::Disciplines => Demo::disciplines(World::Sim)?,
        Shown::Cluster => return live::demo_sim(args),
        Shown::Isp => return crate::isp::demo(args),
    };
    if !args.quiet {
        print(&demo.introduction())?;
    }
    for (_, scenario) in demo.scenarios().clone() {
        let outcome = evenkeel_sim::run(&scenario, &SimOptions::default())?;
        demo.measured(outcome.run);
    }
    Ok(demo.finish(&args.out, args.quiet)?.exit_code())
}
