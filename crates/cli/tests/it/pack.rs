//! `evenkeel pack`, `rerun` and margins as commands.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn evenkeel(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// A scenario that names published numbers beside it, and is as short as it can be.
fn scenario(folder: &Path) {
    fs::create_dir_all(folder.join("mine/published")).unwrap();
    fs::write(folder.join("mine/published/n.toml"), "[one]\nwait_us = 9000\n").unwrap();
    let text = "name = \"mine\"\ntitle = \"t\"\nduration = \"2s\"\nsettle = \"500ms\"\nsample = \
                \"100ms\"\npublished = \"n.toml#one\"\n\
                [[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
                [[router.config.link]]\nport = \"b\"\nrate = \"10Mbit/s\"\n\
                [[wire]]\nends = [\"a\", \"r\"]\n[[wire]]\nends = [\"r\", \"b\"]\n\
                [[traffic]]\nname = \"x\"\nfrom = \"a\"\nto = \"b\"\nkind = \"poisson\"\n\
                rate = \"5Mbit/s\"\nsize = \"1000B\"\n\
                [[expect]]\nname = \"short\"\nclaim = \"c\"\n\
                that = \"delay(default)@start < published.wait_us\"\n";
    fs::write(folder.join("mine/s.toml"), text).unwrap();
}

#[test]
fn a_packed_result_is_run_again_elsewhere_and_every_byte_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    scenario(folder.path());
    let run = ["sim", "mine/s.toml", "--seeds", "2", "--quiet", "--out", "out/mine"];
    let made = evenkeel(folder.path(), &run);
    assert!(made.status.success(), "{}", said(&made));
    let packed = evenkeel(folder.path(), &["pack", "out/mine", "-o", "x.tar"]);
    assert!(packed.status.success(), "{}", said(&packed));
    assert!(said(&packed).contains("id "), "{}", said(&packed));

    // Elsewhere nothing of it is there but the archive.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("x.tar"), elsewhere.path().join("x.tar")).unwrap();
    let again = evenkeel(elsewhere.path(), &["rerun", "x.tar", "--out", "again"]);
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert!(said(&again).contains("2 of 2 results are the same"), "{}", said(&again));
    assert!(elsewhere.path().join("again/inputs/published/n.toml").is_file());
    let twice = evenkeel(elsewhere.path(), &["rerun", "x.tar", "--out", "again"]);
    assert_eq!(twice.status.code(), Some(2), "{}", said(&twice));

    // A result that says something else than what comes out.
    let result = folder.path().join("out/mine/seed-1/result.json");
    let text = fs::read_to_string(&result).unwrap();
    fs::write(&result, text.replacen("\"short\"", "\"longer\"", 1)).unwrap();
    let packed = evenkeel(folder.path(), &["pack", "out/mine", "-o", "y.tar"]);
    assert!(packed.status.success(), "{}", said(&packed));
    let other = evenkeel(folder.path(), &["rerun", "y.tar", "--out", "other"]);
    assert_eq!(other.status.code(), Some(1), "{}", said(&other));
    assert!(said(&other).contains("1 of 2 results are the same"), "{}", said(&other));
    assert!(said(&other).contains("longer: is no longer claimed"), "{}", said(&other));
}

/// Scenarios of a cluster, of its model and of its routers, are results like any other.
#[test]
fn a_cluster_is_packed_and_run_again_too() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for file in ["stsdr/live.toml", "stsdr/t-br.toml"] {
        let folder = tempfile::tempdir().unwrap();
        let scenario = scenarios.join(file).display().to_string();
        let made = evenkeel(folder.path(), &["sim", &scenario, "--quiet", "--out", "one"]);
        assert!(made.status.success(), "{file}: {}", said(&made));
        let packed = evenkeel(folder.path(), &["pack", "one", "-o", "x.tar"]);
        assert!(packed.status.success(), "{file}: {}", said(&packed));
        let again = evenkeel(folder.path(), &["rerun", "x.tar", "--out", "again"]);
        assert_eq!(again.status.code(), Some(0), "{file}: {}", said(&again));
        assert!(said(&again).contains("1 of 1 results are the same"), "{}", said(&again));
    }
}

#[test]
fn what_cannot_be_packed_or_run_again_is_refused_with_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    scenario(folder.path());
    let made = evenkeel(folder.path(), &["sim", "mine/s.toml", "--quiet", "--out", "out/mine"]);
    assert!(made.status.success(), "{}", said(&made));
    let refused = |arguments: &[&str], why: &str| {
        let output = evenkeel(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    };
    fs::create_dir(folder.path().join("empty")).unwrap();
    refused(&["pack", "empty"], "provenance.json");
    assert!(evenkeel(folder.path(), &["pack", "out/mine", "-o", "x.tar"]).status.success());
    let bytes = fs::read(folder.path().join("x.tar")).unwrap();
    fs::write(folder.path().join("cut.tar"), &bytes[..bytes.len() / 2]).unwrap();
    refused(&["rerun", "cut.tar", "--out", "to"], "cut off");
    let mut altered = bytes;
    let at = altered.windows(10).position(|ten| ten == b"\"short\",\"c").unwrap_or(4_000);
    altered[at] ^= 1;
    fs::write(folder.path().join("altered.tar"), altered).unwrap();
    refused(&["rerun", "altered.tar", "--out", "to"], "altered");
    assert!(!folder.path().join("to").exists());
    fs::write(folder.path().join("mine/published/n.toml"), "[one]\nwait_us = 1\n").unwrap();
    refused(&["pack", "out/mine", "-o", "z.tar"], "was changed since the run");
}

#[test]
fn margins_say_how_near_claims_were_to_failing() {
    let folder = tempfile::tempdir().unwrap();
    scenario(folder.path());
    let check = |arguments: &[&str]| {
        evenkeel(folder.path(), &[&["scenario", "check", "mine/s.toml"], arguments].concat())
    };
    let told = check(&["--margins", "3"]);
    assert_eq!(told.status.code(), Some(0), "{}", said(&told));
    assert!(said(&told).contains("margins over 3 runs"), "{}", said(&told));
    assert!(said(&told).contains("delay(default)@start < published.wait_us"), "{}", said(&told));
    let run = ["sim", "mine/s.toml", "--seeds", "3", "--quiet", "--out", "out/mine"];
    assert!(evenkeel(folder.path(), &run).status.success());
    let read = check(&["--of", "out/mine"]);
    assert_eq!(said(&read), said(&told), "the same runs, read");
    fs::write(folder.path().join("mine/published/n.toml"), "[one]\nwait_us = 1\n").unwrap();
    assert_eq!(check(&["--margins", "2"]).status.code(), Some(1), "a claim that fails");
    assert_eq!(check(&["--margins", "0"]).status.code(), Some(2));
}
