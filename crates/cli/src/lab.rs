//! `evenkeel lab` and `evenkeel demo`: real packets between namespaces.

use std::path::{Path, PathBuf};

use evenkeel_lab::{DemoOptions, LabError, LabOptions};
use evenkeel_ports::sys;
use evenkeel_report::site::{self, Title};
use evenkeel_report::{Report, judge, saved, table};
use evenkeel_router::Disciplines;
use evenkeel_scenario::Scenario;

use crate::args::{DemoArgs, LabArgs, Shown, WorldArgs};
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::live;
use crate::out::print;
use crate::provenance;
use crate::runs::{file_name, own_path, print_summary, progress};

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

pub(crate) fn lab(args: &LabArgs, disciplines: &Disciplines) -> Outcome {
    let LabArgs { world: args, repeat } = args;
    if live::is_live(&args.file) {
        if *repeat > 1 {
            let why = "--repeat does not apply to a live cluster: its cases are runs of their own";
            return Err(Failure::input(why));
        }
        return live::lab(args);
    }
    let scenario = check::load_scenario(&args.file, disciplines)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&scenario.name)));
    provenance::of(&out, &args.file, || all(args, *repeat, &scenario, &out))
}

fn all(args: &WorldArgs, repeat: u64, scenario: &Scenario, out: &Path) -> Outcome {
    if !args.all_without {
        return several(args, repeat, scenario, args.without.clone(), out);
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
        worst = worst.max(several(args, repeat, scenario, Some(ablation.name.clone()), &folder)?);
    }
    Ok(worst)
}

/// The scenario, so many times: once gives a page on its run, several times a page on all of them,
/// their runs in folders of their own, as those of seeds in virtual time.
fn several(
    args: &WorldArgs,
    repeat: u64,
    scenario: &Scenario,
    without: Option<String>,
    out: &Path,
) -> Outcome {
    if repeat == 1 {
        return one(args, scenario, without, out.to_owned()).map(|(code, _)| code);
    }
    let (mut worst, mut reports) = (0, Vec::new());
    for number in 0..repeat {
        let seed = scenario.seed.wrapping_add(number);
        if !args.quiet && !args.json {
            print(&format!("run {} of {repeat}, seed {seed}\n", number + 1))?;
        }
        let varied = Scenario { seed, ..scenario.clone() };
        let folder = out.join(format!("seed-{seed}"));
        let (code, report) = one(args, &varied, without.clone(), folder)?;
        worst = worst.max(code);
        reports.push(report);
    }
    let page = site::write(out, reports, &[], &Title::default())?;
    if !args.quiet && !args.json {
        print(&format!("report on all: {}\n", page.display()))?;
    }
    Ok(worst)
}

fn one(
    args: &WorldArgs,
    scenario: &Scenario,
    without: Option<String>,
    out_dir: PathBuf,
) -> Result<(u8, Report), Failure> {
    let outcome = evenkeel_lab::run(
        scenario,
        &LabOptions {
            time_scale: args.time_scale,
            without,
            out_dir: out_dir.clone(),
            binary: own_path()?,
            progress: progress(args.quiet),
            quiet: args.quiet || args.json,
            connections: args.connections,
            captures: args.capture.clone(),
        },
    )?;
    if args.json {
        print_summary(&outcome.files)?;
    } else if args.quiet {
        eprint!("{}", table::judgements(&judge::bad(&outcome.judgements)));
        for warning in &outcome.run.warnings {
            eprintln!("warning: {warning}");
        }
    }
    Ok((outcome.exit_code(), saved::load(&out_dir.join(saved::FILE))?))
}

pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    if args.sim {
        return crate::sim::demo(args, None);
    }
    if !sys::is_root() && args.what != Shown::Isp {
        let because = "Real packets need root, for network namespaces (sudo evenkeel demo). \
                       Without it the same scenarios run in the simulator:\n";
        return crate::sim::demo(args, Some(because));
    }
    let show = match args.what {
        Shown::Disciplines => evenkeel_lab::demo,
        Shown::Fairdrop => evenkeel_lab::demo_fairdrop,
        Shown::Cluster => return live::demo(args),
        Shown::Isp => return crate::isp::demo(args),
    };
    let outcome = show(&DemoOptions {
        out_dir: args.out.clone(),
        binary: own_path()?,
        progress: progress(args.quiet),
        quiet: args.quiet,
    })?;
    Ok(outcome.exit_code())
}
