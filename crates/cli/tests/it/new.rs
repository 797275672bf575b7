//! `evenkeel new`: what it writes is checked, simulated and swept as it is.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn evenkeel(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = evenkeel(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// With and without fair queues: the exit code says that each claim holds, and that those which
/// must fail without them do.
#[test]
fn every_topology_keeps_its_claims_and_loses_them_without_fair_queues() {
    let folder = tempfile::tempdir().unwrap();
    for (topology, size) in
        [("dumbbell", "3"), ("parking-lot", "2"), ("tree", "2"), ("leaf-spine", "6")]
    {
        let file = format!("{topology}.toml");
        let told = done(
            folder.path(),
            &["new", "scenario", &file, "--topology", topology, "--size", size],
        );
        assert!(told.contains(&format!("next:  evenkeel sim {file} --seeds 5\n")), "{told}");
        let checked = done(folder.path(), &["scenario", "check", &file]);
        assert!(checked.contains(&format!("no errors ({topology})")), "{checked}");
        done(folder.path(), &["sim", &file, "--quiet", "--out", "with"]);
        done(folder.path(), &["sim", &file, "--all-without", "--quiet", "--out", topology]);
    }
}

/// Sizes at both ends, slow and fast.
#[test]
fn every_size_and_rate_that_is_let_in_is_a_scenario() {
    let folder = tempfile::tempdir().unwrap();
    for (topology, sizes) in [
        ("dumbbell", ["1", "40"]),
        ("parking-lot", ["2", "16"]),
        ("tree", ["2", "16"]),
        ("leaf-spine", ["3", "16"]),
    ] {
        for (size, rate, delay) in [(sizes[0], "1Mbit/s", "0s"), (sizes[1], "100Mbit/s", "100ms")] {
            let file = format!("{topology}-{size}.toml");
            let arguments = ["new", "scenario", &file, "--topology", topology, "--size", size];
            done(folder.path(), &[&arguments[..], &["--rate", rate, "--delay", delay]].concat());
            done(folder.path(), &["scenario", "check", &file]);
        }
    }
}

#[test]
fn a_sweep_of_a_new_scenario_is_one_wherever_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sweeps")).unwrap();
    done(folder.path(), &["new", "scenario", "mine.toml", "--size", "2"]);
    for file in ["sweep.toml", "sweeps/other.toml"] {
        done(folder.path(), &["new", "sweep", file, "--scenario", "mine.toml"]);
        let plan = done(folder.path(), &["sweep", file, "--dry-run"]);
        assert!(plan.contains("36"), "4 disciplines, 3 rates, 3 seeds: {plan}");
    }
}

#[test]
fn what_cannot_be_written_is_refused_with_what_can() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], wanted: &str| {
        let output = evenkeel(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{arguments:?}: {}", said(&output));
    };
    let new = ["new", "scenario", "mine.toml"];
    let with = |more: &[&'static str]| [&new[..], more].concat();
    refused(&with(&["--size", "41"]), "a dumbbell has 1 to 40 pairs of hosts");
    refused(&with(&["--size", "2", "--topology", "leaf-spine"]), "3 to 16 leaves");
    refused(&with(&["--topology", "ring"]), "parking-lot");
    refused(&with(&["--rate", "999kbit/s"]), "1Mbit/s to 100Mbit/s");
    refused(&with(&["--delay", "101ms"]), "0s to 100ms");
    assert!(!folder.path().join("mine.toml").exists(), "what is refused writes nothing");
    done(folder.path(), &new);
    refused(&new, "--force");
    let told = done(folder.path(), &with(&["--force", "--size", "1"]));
    assert!(told.contains("mine.toml~"), "{told}");
    refused(&["new", "sweep", "s.toml", "--scenario", "none.toml"], "none.toml");
    fs::write(folder.path().join("bad.toml"), "name = 1").unwrap();
    refused(&["new", "sweep", "s.toml", "--scenario", "bad.toml"], "bad.toml:1");
}

/// That it compiles and runs, the test of the example says, which it is a copy of.
#[test]
fn a_discipline_is_the_example_of_the_guide_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let source = root.display().to_string();
    let told = done(folder.path(), &["new", "discipline", "mine", "--source", &source]);
    assert!(told.contains("cd mine && cargo run --release -- sim strict.toml"), "{told}");
    let own = |file: &str| fs::read_to_string(folder.path().join("mine").join(file)).unwrap();
    let example =
        |file: &str| fs::read_to_string(root.join("examples/own-discipline").join(file)).unwrap();
    for file in ["src/main.rs", "strict.toml"] {
        assert_eq!(own(file), example(file));
    }
    let manifest = own("Cargo.toml");
    assert!(manifest.contains("name = \"mine\"") && !manifest.contains("own-discipline"));
    assert!(manifest.contains(&root.join("crates/cli").display().to_string()), "{manifest}");
    for (arguments, why) in [
        (&["new", "discipline", "mine", "--source", &source][..], "is there already"),
        (&["new", "discipline", "other"], "say with --source"),
        (&["new", "discipline", "Not good", "--source", &source], "small letters"),
    ] {
        let output = evenkeel(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
}
