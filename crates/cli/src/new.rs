//! `evenkeel new`: first scenarios, sweeps and disciplines.

use std::fs;
use std::path::Path;

use evenkeel_core::BitRate;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_router::Disciplines;
use evenkeel_scenario::{Scenario, Template, template};

use crate::args::{NewCommand, NewDisciplineArgs, NewScenarioArgs, NewSweepArgs};
use crate::check::{self, absolute};
use crate::ctl::save;
use crate::failure::{Failure, Outcome};
use crate::init::must_be_new;
use crate::out::print;

/// Below, a packet alone takes longer than a call of the templates may wait; above, windows of TCP
/// no longer fill a queue of a thousand packets, and what must fail without fair queues holds.
const RATES: [BitRate; 2] = [BitRate::from_mbps(1), BitRate::from_mbps(100)];

pub(crate) fn new(what: &NewCommand, disciplines: &Disciplines) -> Outcome {
    match what {
        NewCommand::Scenario(args) => scenario(args),
        NewCommand::Sweep(args) => sweep(args, disciplines),
        NewCommand::Discipline(args) => discipline(args),
    }
}

/// What the example of the guide is made of; its name and the place of the sources are put in.
const MANIFEST: &str = include_str!("../../../examples/own-discipline/Cargo.toml");
const PROGRAM: &str = include_str!("../../../examples/own-discipline/src/main.rs");
const SCENARIO: &str = include_str!("../../../examples/own-discipline/strict.toml");

fn discipline(args: &NewDisciplineArgs) -> Outcome {
    let name = name(&args.folder)?;
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(good) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let why = "a program's name has small letters, digits and `-`, a letter first";
        return Err(Failure::input(format!("{name:?}: {why}")));
    }
    let crates = absolute(&args.source).join("crates");
    let cli = crates.join("cli/Cargo.toml");
    if !cli.is_file() {
        let why = "is not there: say with --source where the sources of Evenkeel are";
        return Err(Failure::input(format!("{} {why}", cli.display())));
    }
    if args.folder.exists() {
        let why = "is there already: give the name of a new folder";
        return Err(Failure::input(format!("{} {why}", args.folder.display())));
    }
    let manifest = MANIFEST
        .replace("\"own-discipline\"", &format!("{name:?}"))
        .replace("\"../../crates/", &format!("\"{}/", crates.display().to_string().escape_debug()));
    let files =
        [("Cargo.toml", manifest.as_str()), ("src/main.rs", PROGRAM), ("strict.toml", SCENARIO)];
    for (file, text) in files {
        let path = args.folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&args.folder))
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| Failure::new(1, format!("{}: {error}", path.display())))?;
    }
    let folder = args.folder.display();
    print(&format!(
        "{folder} written\n\nnext:  cd {folder} && cargo run --release -- sim strict.toml\nthen:  \
         read docs/write-a-discipline.md, and change src/main.rs\n"
    ))
}

fn scenario(args: &NewScenarioArgs) -> Outcome {
    must_be_new(&args.file, args.force)?;
    let (least, most) = args.topology.sizes();
    if !(least..=most).contains(&args.size) {
        return Err(Failure::input(format!(
            "--size {}: a {} has {least} to {most} {}",
            args.size,
            args.topology.name(),
            args.topology.counts()
        )));
    }
    if !(RATES[0]..=RATES[1]).contains(&args.rate) {
        let [least, most] = RATES.map(rate_text);
        let rate = rate_text(args.rate);
        return Err(Failure::input(format!("--rate {rate}: {least} to {most}")));
    }
    let text = Template {
        name: name(&args.file)?,
        topology: args.topology,
        size: args.size,
        rate: args.rate,
        delay: args.delay,
    }
    .text();
    Scenario::parse(&text, "evenkeel new scenario", Path::new(""))?;
    let file = args.file.display();
    write(
        &args.file,
        &text,
        &format!(
            "next:  evenkeel sim {file} --seeds 5\nthen:  evenkeel new sweep sweep.toml --scenario \
             {file}\n"
        ),
    )
}

fn sweep(args: &NewSweepArgs, disciplines: &Disciplines) -> Outcome {
    must_be_new(&args.file, args.force)?;
    let swept = check::load_scenario(&args.scenario, disciplines)?;
    // A sweep looks for its scenario from its own folder.
    let beside = absolute(&args.file).parent() == absolute(&args.scenario).parent();
    let path = match args.scenario.file_name() {
        Some(name) if beside => name.display().to_string(),
        _ => absolute(&args.scenario).display().to_string(),
    };
    let text = template::sweep(&name(&args.file)?, &path, &swept)
        .map_err(|error| Failure::input(format!("{}: {error}", args.scenario.display())))?;
    let file = args.file.display();
    write(
        &args.file,
        &text,
        &format!("next:  evenkeel sweep {file} --dry-run\nthen:  evenkeel sweep {file}\n"),
    )
}

/// The name of what is written: that of its file.
fn name(file: &Path) -> Result<String, Failure> {
    let name = file.file_stem().and_then(|name| name.to_str());
    name.map(ToOwned::to_owned)
        .ok_or_else(|| Failure::input(format!("{}: no name of a file, in UTF-8", file.display())))
}

fn write(file: &Path, text: &str, next: &str) -> Outcome {
    let kept = save::write(&absolute(file), text, false)?;
    let mut told = format!("{} written\n", file.display());
    if let Some(kept) = kept {
        told += &format!("what was in it is in {}\n", kept.display());
    }
    print(&format!("{told}\n{next}"))
}
