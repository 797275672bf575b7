//! `evenkeel sweep`: grids of parameters.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_router::Disciplines;
use evenkeel_sweep::{Merged, RunOptions, Shard, Sweep, SweepError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{SweepArgs, SweepCommand};
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::runs::file_name;

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// Missing tasks named at most.
const NAMED: usize = 10;

pub(crate) fn sweep(args: &SweepArgs, disciplines: &Disciplines) -> Outcome {
    match (&args.command, &args.file) {
        (Some(SweepCommand::Merge { folders, out }), _) => {
            merge(folders, out.as_ref().unwrap_or(&folders[0]))
        }
        (None, Some(file)) => run(args, file, disciplines),
        (None, None) => Err(Failure::input("which sweep.toml?")),
    }
}

fn run(args: &SweepArgs, file: &Path, disciplines: &Disciplines) -> Outcome {
    let sweep = Sweep::load(file)?;
    let out: PathBuf =
        args.out.clone().unwrap_or_else(|| Path::new("out").join(file_name(&sweep.name)));
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    if args.dry_run {
        return print(&plan(&sweep, &out));
    }
    let visible = !args.quiet && std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(
        Some(sweep.tasks() as u64),
        if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
    );
    let style =
        ProgressStyle::with_template("{bar:32} {pos}/{len} runs, {elapsed} so far, {eta} to go");
    bar.set_style(style.expect("the template is valid"));
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let options = RunOptions {
        jobs: args.jobs,
        shard,
        disciplines: disciplines.clone(),
        stop: Arc::default(),
    };
    let finished = evenkeel_sweep::run(&sweep, &out, &options, &progress)?;
    bar.finish_and_clear();
    for failure in &finished.failed {
        eprintln!("evenkeel: {failure}");
    }
    if !args.quiet {
        print(&format!(
            "{} of {} runs in {}: {} there before, {} new, {} failed\n",
            finished.kept + finished.new,
            finished.tasks,
            out.display(),
            finished.kept,
            finished.new,
            finished.failed.len()
        ))?;
    }
    let failed = u8::from(!finished.failed.is_empty());
    if shard != Shard::WHOLE {
        let hint = format!("put the parts together: evenkeel sweep merge {}\n", out.display());
        if !args.quiet {
            print(&hint)?;
        }
        return Ok(failed);
    }
    let merged = evenkeel_sweep::merge(std::slice::from_ref(&out), &out)?;
    if !args.quiet {
        print(&files(&merged))?;
    }
    Ok(failed)
}

fn plan(sweep: &Sweep, out: &Path) -> String {
    let mut text = format!("{}: {}\n", sweep.name, sweep.title);
    for axis in &sweep.axes {
        let values: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
        text += &format!("  {}: {} ({})\n", axis.name, values.join(", "), axis.set.join(", "));
    }
    let seeds: Vec<String> = sweep.seeds.iter().map(ToString::to_string).collect();
    text + &format!(
        "  seeds: {}\n{} runs into {}\n",
        seeds.join(", "),
        sweep.tasks(),
        out.display()
    )
}

fn merge(folders: &[PathBuf], out: &Path) -> Outcome {
    let merged = evenkeel_sweep::merge(folders, out)?;
    print(&files(&merged))?;
    if merged.missing.is_empty() {
        return Ok(0);
    }
    let named: Vec<String> = merged.missing.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if merged.missing.len() > NAMED { ", …" } else { "" };
    Err(Failure::new(
        1,
        format!(
            "{} of {} runs are missing (numbers {}{more}): run their parts, then merge again",
            merged.missing.len(),
            merged.tasks,
            named.join(", ")
        ),
    ))
}

fn files(merged: &Merged) -> String {
    merged.files.iter().map(|file| format!("{}\n", file.display())).collect()
}
