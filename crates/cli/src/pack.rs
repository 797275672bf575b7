//! `evenkeel pack` and `rerun`: a result as one file, from which another machine runs it again and
//! compares.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use evenkeel_report::again::{Again, again};
use evenkeel_report::archive::{self, ArchiveError, Told};
use evenkeel_router::Disciplines;
use serde::Deserialize;

use crate::args::{Args, Command, PackArgs, RerunArgs, WorldArgs};
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::provenance::{self, Input};
use crate::{lab, sim};

/// Where results and inputs are in an archive.
const RESULTS: &str = "results";
const INPUTS: &str = "inputs";

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        Self::input(error)
    }
}

/// What is read of `provenance.json`.
#[derive(Deserialize)]
struct Provenance {
    program: String,
    commit: String,
    command: Vec<String>,
    inputs: Vec<Input>,
}

pub(crate) fn pack(args: &PackArgs) -> Outcome {
    let folder = &args.folder;
    let provenance = read(folder)?;
    command_of(&provenance.command)?;
    let (scenario, mut files) = packed_inputs(folder, &provenance.inputs)?;
    let results = files_below(folder)
        .map_err(|error| Failure::input(format!("{}: {error}", folder.display())))?;
    for file in results {
        let name = file.strip_prefix(folder).unwrap_or(&file);
        files.push((format!("{RESULTS}/{}", name.display()), file));
    }
    let out = args.out.clone().unwrap_or_else(|| {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        PathBuf::from(name.unwrap_or_else(|| "results".to_owned())).with_extension("tar")
    });
    let Provenance { program, commit, command, .. } = provenance;
    let results = RESULTS.to_owned();
    let told = Told { program, commit, command, scenario, results };
    let count = files.len();
    let id = archive::pack(&out, &files, told)?;
    print(&format!("{}: {count} files, id {id}\n", out.display()))
}

/// What a folder of results says of how they came about.
fn read(folder: &Path) -> Result<Provenance, Failure> {
    let path = folder.join(provenance::FILE);
    let text = fs::read_to_string(&path).map_err(|error| {
        Failure::input(format!(
            "{}: {error}; give a folder that `evenkeel sim --out` or `evenkeel lab --out` has \
             written",
            path.display()
        ))
    })?;
    serde_json::from_str(&text).map_err(|error| {
        let what = "cut off, or of an older version of this program: run the scenario again";
        Failure::input(format!("{}: {what} ({error})", path.display()))
    })
}

/// The scenario's name in the archive, and what to pack of all that the run was made of: as it was
/// then.
fn packed_inputs(
    folder: &Path,
    inputs: &[Input],
) -> Result<(String, Vec<(String, PathBuf)>), Failure> {
    let Some(scenario) = inputs.first() else {
        return Err(Failure::input(format!("{}: names no scenario", folder.display())));
    };
    let mut root = scenario.path.parent().unwrap_or(Path::new("/"));
    while !inputs.iter().all(|input| input.path.starts_with(root)) {
        root = root.parent().unwrap_or(Path::new("/"));
    }
    let mut files = Vec::new();
    for input in inputs {
        // The scenario itself was copied; what it names was not.
        let at =
            if input == scenario { folder.join(provenance::SCENARIO) } else { input.path.clone() };
        let said = |what: String| Failure::input(format!("{}: {what}", at.display()));
        let (sum, _) = archive::digest(&at).map_err(|error| said(error.to_string()))?;
        if sum != input.sha256 {
            return Err(said("was changed since the run: run the scenario again".to_owned()));
        }
        let name = input.path.strip_prefix(root).unwrap_or(&input.path);
        files.push((format!("{INPUTS}/{}", name.display()), at));
    }
    Ok((files[0].0.clone(), files))
}

/// All files below a folder, in order of their paths.
fn files_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The command that a result was made by, read as a command line.
fn command_of(command: &[String]) -> Result<Command, Failure> {
    let known = Args::try_parse_from(command).ok().map(|args| args.command);
    match known {
        Some(known @ (Command::Sim(_) | Command::Lab(_))) => Ok(known),
        _ => Err(Failure::input(format!(
            "the results were made by `{}`, which this program does not know to run again",
            command.join(" ")
        ))),
    }
}

pub(crate) fn rerun(args: &RerunArgs, disciplines: &Disciplines) -> Outcome {
    let manifest = archive::unpack(&args.archive, &args.out)?;
    let mut command = command_of(&manifest.command)?;
    let now = args.out.join("again");
    let world = |world: &mut WorldArgs| {
        world.file = args.out.join(&manifest.scenario);
        world.out = Some(now.clone());
        (world.quiet, world.json) = (true, false);
    };
    // Whether claims hold is compared, with them that failed then.
    let (made, virtual_time) = match &mut command {
        Command::Sim(sim) => {
            world(&mut sim.world);
            (sim::sim(sim, disciplines), true)
        }
        Command::Lab(lab) => {
            world(&mut lab.world);
            (lab::lab(lab, disciplines), false)
        }
        _ => unreachable!("command_of gives these two"),
    };
    made?;
    let found = again(&args.out.join(&manifest.results), &now)?;
    let same_program = manifest.commit == env!("EVENKEEL_COMMIT");
    print(&told(&manifest, &found, same_program))?;
    // The simulator owes the same bytes to the same program; else claims have to hold as they did.
    let good = found.is_identical() || found.changed.is_empty() && !(virtual_time && same_program);
    Ok(u8::from(!good))
}

fn told(manifest: &Told, found: &Again, same_program: bool) -> String {
    let Again { results, identical, alike, changed, .. } = found;
    let mut text = format!("{}\n", manifest.command.join(" "));
    if !same_program {
        text += &format!(
            "made by {} ({}), run again by {} ({})\n",
            manifest.program,
            manifest.commit,
            env!("CARGO_PKG_VERSION"),
            env!("EVENKEEL_COMMIT")
        );
    }
    text += &format!("{identical} of {results} results are the same, byte for byte\n");
    if found.is_identical() {
        return text;
    }
    text += &format!("{alike} claims were judged as they were then, {} otherwise\n", changed.len());
    for change in changed {
        text += &format!("  {change}\n");
    }
    text + "\n" + &found.table()
}
