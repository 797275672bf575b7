//! Live cluster scenarios: `lab`, `sim` and `demo cluster`.

use std::path::{Path, PathBuf};

use evenkeel_lab::LabOptions;
use evenkeel_report::{Report, Verdict, judge, table};
use evenkeel_sim::run_live as simulate;
use evenkeel_world::live::LiveScenario;

use crate::args::{DemoArgs, SimArgs, WorldArgs};
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::provenance;
use crate::runs::{file_name, own_path, print_summary, progress};

/// The scenario of the demo, built in.
const DEMO: &str = include_str!("../../../scenarios/stsdr/live.toml");

/// Whether a file holds a live cluster scenario. A file that cannot be read is left to who reports
/// that.
pub(crate) fn is_live(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| LiveScenario::is_meant(&text))
}

/// Frames of a cluster meet at its switch, and nobody speaks TCP there.
pub(crate) fn no_capture(args: &WorldArgs) -> Result<(), Failure> {
    if args.capture.is_empty() && !args.connections {
        return Ok(());
    }
    Err(Failure::input(
        "--capture and --connections do not apply to a cluster scenario: it has no wires, no TCP",
    ))
}

/// Once, or once for each mechanism that can be switched off.
fn each(
    args: &WorldArgs,
    run: impl Fn(&LiveScenario, Option<&str>, &Path) -> Result<Report, Failure>,
) -> Outcome {
    no_capture(args)?;
    let scenario = LiveScenario::load(&args.file)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&scenario.name)));
    let names = scenario.ablations.iter().map(|(name, _, _)| Some(name.as_str()));
    let runs: Vec<Option<&str>> =
        if args.all_without { names.collect() } else { vec![args.without.as_deref()] };
    provenance::of(&out, &args.file, || {
        let mut failed = false;
        for without in runs {
            let mut folder = out.clone();
            folder.extend(without.map(file_name).filter(|_| args.all_without));
            let report = run(&scenario, without, &folder)?;
            failed |= told(&report, &folder, args.quiet, args.json)?;
        }
        Ok(u8::from(failed))
    })
}

/// Writes and prints a report; whether something is not as expected.
fn told(report: &Report, folder: &Path, quiet: bool, json: bool) -> Result<bool, Failure> {
    let files = evenkeel_report::write_all(folder, report)?;
    let bad = judge::bad(&report.judgements);
    if json {
        print_summary(&files)?;
    } else if quiet {
        eprint!("{}", table::judgements(&bad));
    } else {
        print(&format!("{}\n", table::steps(&report.runs[0])))?;
        print(&format!("{}\n", table::judgements(&report.judgements)))?;
        for note in &report.runs[0].notes {
            print(&format!("{note}\n"))?;
        }
        if let Some(page) = files.last() {
            print(&format!("report: {}\n", page.display()))?;
        }
    }
    Ok(!bad.is_empty())
}

fn options(
    without: Option<&str>,
    folder: &Path,
    time_scale: f64,
    quiet: bool,
) -> Result<LabOptions, Failure> {
    Ok(LabOptions {
        time_scale,
        without: without.map(str::to_owned),
        out_dir: folder.to_owned(),
        binary: own_path()?,
        progress: progress(quiet),
        quiet,
        connections: false,
        captures: Vec::new(),
    })
}

pub(crate) fn lab(args: &WorldArgs) -> Outcome {
    each(args, |scenario, without, folder| {
        Ok(evenkeel_lab::run_live(
            scenario,
            &options(without, folder, args.time_scale, args.quiet)?,
        )?)
    })
}

pub(crate) fn sim(args: &SimArgs) -> Outcome {
    if args.seeds > 1 {
        return Err(Failure::input(
            "--seeds does not apply to a live cluster scenario: give --seed",
        ));
    }
    each(&args.world, |scenario, without, _| {
        Ok(simulate(scenario, args.seed.unwrap_or(scenario.seed), args.world.time_scale, without)?)
    })
}

/// What the demo shows, in the order of the scenario.
fn show(scenario: &LiveScenario, report: &Report, args: &DemoArgs) -> Outcome {
    let mut rows = table::Table::new(["", "claimed", "measured"]);
    for one in &report.judgements {
        let measured = one.measured.first().and_then(|term| term.value);
        let sign = one.expression.split_whitespace().rev().take(2).collect::<Vec<_>>();
        rows.row([
            match one.verdict {
                Verdict::Holds => "yes",
                Verdict::NotJudged => "-",
                _ => "NO",
            }
            .to_owned(),
            one.claim.clone(),
            format!(
                "{} ({} {})",
                measured.map_or("nothing".to_owned(), |value| ((value * 1000.0).round() / 1000.0)
                    .to_string()),
                sign.get(1).unwrap_or(&""),
                sign.first().unwrap_or(&"")
            ),
        ]);
    }
    let files = evenkeel_report::write_all(&args.out, report)?;
    if !args.quiet {
        print(&format!("{}\n", scenario.title))?;
    }
    print(&rows.render())?;
    if let Some(page) = files.last().filter(|_| !args.quiet) {
        for note in &report.runs[0].notes {
            print(&format!("\n{note}"))?;
        }
        print(&format!("\n\nReport: {}\n", page.display()))?;
    }
    Ok(u8::from(report.judgements.iter().any(|one| one.verdict.is_bad())))
}

fn built_in() -> Result<LiveScenario, Failure> {
    Ok(LiveScenario::parse(DEMO, "scenarios/stsdr/live.toml")?)
}

/// The demo on real packets.
pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    let scenario = built_in()?;
    if !args.quiet {
        print(&format!(
            "{}\nEach balancer, forwarder and next hop is a namespace of this machine; the packets \
             are real. About 50 s.\n\n",
            scenario.notes.trim()
        ))?;
    }
    let folder: &PathBuf = &args.out;
    let report = evenkeel_lab::run_live(&scenario, &options(None, folder, 1.0, args.quiet)?)?;
    show(&scenario, &report, args)
}

/// The demo in virtual time: what can be seen there.
pub(crate) fn demo_sim(args: &DemoArgs) -> Outcome {
    let scenario = built_in()?;
    let report = simulate(&scenario, scenario.seed, 1.0, None)?;
    show(&scenario, &report, args)
}
