//! `evenkeel lab` and `evenkeel demo`: real packets between namespaces.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use evenkeel_lab::{DemoOptions, LabError, LabOptions};
use evenkeel_ports::sys;
use evenkeel_report::{judge, table};
use evenkeel_router::Disciplines;
use evenkeel_scenario::Scenario;

use crate::args::{DemoArgs, Shown, WorldArgs};
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::live;
use crate::out::print;

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

pub(crate) fn lab(args: &WorldArgs, disciplines: &Disciplines) -> Outcome {
    if live::is_live(&args.file) {
        return live::lab(args);
    }
    let scenario = check::load_scenario(&args.file, disciplines)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&scenario.name)));
    if !args.all_without {
        return one(args, &scenario, args.without.clone(), out);
    }
    if scenario.ablations.is_empty() {
        eprintln!("evenkeel: {} has no [[without]]: nothing to run", args.file.display());
    }
    let mut worst = 0;
    for ablation in &scenario.ablations {
        if !args.quiet && !args.json {
            print(&format!("without: {}\n\n", ablation.name))?;
        }
        worst = worst.max(one(
            args,
            &scenario,
            Some(ablation.name.clone()),
            out.join(file_name(&ablation.name)),
        )?);
    }
    Ok(worst)
}

fn one(args: &WorldArgs, scenario: &Scenario, without: Option<String>, out_dir: PathBuf) -> Outcome {
    let outcome = evenkeel_lab::run(
        scenario,
        &LabOptions {
            time_scale: args.time_scale,
            without,
            out_dir,
            binary: own_path()?,
            progress: progress(args.quiet),
            quiet: args.quiet || args.json,
        },
    )?;
    if args.json {
        print_summary(&outcome.files)?;
    } else if args.quiet {
        eprint!("{}", table::judgements(&judge::bad(&outcome.judgements)));
        for warning in &outcome.warnings {
            eprintln!("warning: {warning}");
        }
    }
    Ok(outcome.exit_code())
}

/// The summary that the run has written.
pub(crate) fn print_summary(files: &[PathBuf]) -> Outcome {
    let file = files.iter().find(|file| file.ends_with("summary.json"));
    file.map_or(Ok(0), |file| print(&check::read(file)?))
}

pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    if args.sim {
        return crate::sim::demo(args, None);
    }
    if !sys::is_root() {
        let because = "Real packets need root, for network namespaces (sudo evenkeel demo). Without it the same scenarios run in the simulator:\n";
        return crate::sim::demo(args, Some(because));
    }
    let show = match args.what {
        Shown::Disciplines => evenkeel_lab::demo,
        Shown::Fairdrop => evenkeel_lab::demo_fairdrop,
        Shown::Cluster => return live::demo(args),
    };
    let outcome = show(&DemoOptions {
        out_dir: args.out.clone(),
        binary: own_path()?,
        progress: progress(args.quiet),
        quiet: args.quiet,
    })?;
    Ok(outcome.exit_code())
}

pub(crate) fn own_path() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::new(1, format!("cannot find this program's own file: {error}")))
}

pub(crate) fn progress(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A name as a single part of a path.
pub(crate) fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect()
}
