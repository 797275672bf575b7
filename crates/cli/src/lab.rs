//! `evenkeel lab` and `evenkeel demo`: real packets between namespaces.

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
use crate::provenance;
use crate::runs::{file_name, own_path, print_summary, progress};

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
    provenance::of(&out, &args.file, || all(args, &scenario, &out))
}

fn all(args: &WorldArgs, scenario: &Scenario, out: &Path) -> Outcome {
    if !args.all_without {
        return one(args, scenario, args.without.clone(), out.to_owned());
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
            scenario,
            Some(ablation.name.clone()),
            out.join(file_name(&ablation.name)),
        )?);
    }
    Ok(worst)
}

fn one(
    args: &WorldArgs,
    scenario: &Scenario,
    without: Option<String>,
    out_dir: PathBuf,
) -> Outcome {
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
        for warning in &outcome.run.warnings {
            eprintln!("warning: {warning}");
        }
    }
    Ok(outcome.exit_code())
}

pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    if args.what == Shown::Isp {
        return crate::isp::demo(args);
    }
    if args.sim {
        return crate::sim::demo(args, None);
    }
    if !sys::is_root() {
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
