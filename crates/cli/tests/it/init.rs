//! `evenkeel init`, `completions` and `man`: what a newcomer has before anything else.

use std::fs;
use std::process::{Command, Output, Stdio};

fn evenkeel(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

const RATES: [&str; 4] = ["--down", "100Mbit/s", "--up", "20Mbit/s"];

#[test]
fn check_accepts_what_init_writes_for_each_kind_of_machine() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [
        &["--gateway", "--wan", "eth0"][..],
        &["--bridge", "--wan", "eth0", "--lan", "eth1"],
        &["--isp", "--wan", "eth0", "--lan", "eth1", "--overhead", "pppoe-ptm"],
        &["--lab", "--wan", "eth0", "--lan", "eth1"],
    ] {
        let file = folder.path().join(format!("{}.toml", kind[0])).display().to_string();
        let arguments = [&["init", &file], kind, &RATES].concat();
        let written = evenkeel(&arguments);
        assert!(written.status.success(), "{}", said(&written));
        assert!(said(&written).contains(&format!("next:  evenkeel check {file}\n")));
        let checked = evenkeel(&["check", &file]);
        assert!(checked.status.success(), "{}", said(&checked));
        assert!(said(&checked).contains("95Mbit/s"), "{}", said(&checked));
        assert!(!said(&checked).contains("advice"), "{}", said(&checked));
    }
}

/// A file of version 0.1 is read without a word, and means something else.
#[test]
fn a_file_of_0_1_is_told_what_has_changed_and_written_as_it_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.toml"), folder.path().join("new.toml"));
    let text = "[[port]]\nname = \"wan\"\ninterface = \"ek-no\"\n\n\
                [[link]]\nport = \"wan\"\nrate = \"20Mbit/s\"\n";
    fs::write(&old, text).unwrap();
    let (old_name, new_name) = (old.display().to_string(), new.display().to_string());
    let remedy = format!("`evenkeel init --from {old_name} NEW`");
    let checked = evenkeel(&["check", &old_name]);
    assert!(checked.status.success() && said(&checked).contains(&remedy), "{}", said(&checked));
    let socket = folder.path().join("socket").display().to_string();
    let run = evenkeel(&["run", &old_name, "--socket", &socket]);
    assert!(!run.status.success() && said(&run).contains(&remedy), "{}", said(&run));
    let written = evenkeel(&["init", "--from", &old_name, &new_name]);
    assert!(written.status.success(), "{}", said(&written));
    for wanted in ["link wan: discipline was", "[router] io was", "`bypass`"] {
        assert!(said(&written).contains(wanted), "{}", said(&written));
    }
    let checked = evenkeel(&["check", &new_name]);
    let told = said(&checked);
    assert!(checked.status.success() && !told.contains("--from"), "{told}");
    assert!(told.contains("    fifo\n") && told.contains("af-packet"), "{told}");
    assert_eq!(fs::read_to_string(&old).unwrap(), text, "the old file is left as it is");
    let faulty = folder.path().join("faulty.toml");
    fs::write(&faulty, text.replace("rate", "rte")).unwrap();
    let refused = evenkeel(&["init", "--from", &faulty.display().to_string(), &new_name]);
    assert_eq!(refused.status.code(), Some(2));
    let refused =
        evenkeel(&["init", "--force", "--from", &faulty.display().to_string(), &new_name]);
    assert!(said(&refused).contains("faulty.toml:"), "{}", said(&refused));
}

#[test]
fn a_file_that_is_there_is_not_overwritten_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    fs::write(&file, "# mine\n").unwrap();
    let path = file.display().to_string();
    let arguments = [&["init", &path, "--gateway", "--wan", "eth0"], &RATES[..]].concat();
    let refused = evenkeel(&arguments);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("--force"), "{}", said(&refused));
    assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\n");
    let forced = evenkeel(&[&arguments[..], &["--force"]].concat());
    assert!(forced.status.success(), "{}", said(&forced));
    assert_eq!(fs::read_to_string(format!("{path}~")).unwrap(), "# mine\n");
    assert!(fs::read_to_string(&file).unwrap().contains("attach = \"inline\""));
}

#[test]
fn what_init_cannot_use_is_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml").display().to_string();
    let elsewhere = folder.path().join("none/router.toml").display().to_string();
    for (arguments, code, wanted) in [
        (&["--gateway", "--isp", "--wan", "eth0"][..], 2, "--gateway"),
        (&["--isp", "--wan", "eth0"], 2, "--lan"),
        (&["--gateway"], 2, "--wan"),
        (&["--gateway", "--wan", "a-name-of-sixteen"], 2, "interface"),
        (&["--isp", "--wan", "eth0", "--lan", "eth0"], 2, "interface"),
    ] {
        let output = evenkeel(&[&["init", &file], arguments, &RATES].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{arguments:?}: {}", said(&output));
    }
    let output = evenkeel(&["init", &file, "--gateway", "--wan", "eth0", "--down", "100"]);
    assert!(output.status.code() == Some(2) && said(&output).contains("--down"));
    let output = evenkeel(&[&["init", &elsewhere, "--gateway", "--wan", "e"], &RATES[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("none/router.toml"), "{}", said(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn completions_and_man_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = evenkeel(&["completions", shell]);
        assert!(output.status.success());
        for word in ["running", "init", "--confirm"] {
            let word = if shell == "fish" { word.trim_start_matches('-') } else { word };
            assert!(said(&output).contains(word), "{shell}: {word}");
        }
    }
    let unknown = evenkeel(&["completions", "cmd"]);
    assert!(unknown.status.code() == Some(2) && said(&unknown).contains("bash"));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    let output = evenkeel(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("evenkeel.1").contains("evenkeel\\-ctl(1)"), "{}", page("evenkeel.1"));
    assert!(page("evenkeel-ctl-save.1").contains("FILE"));
    assert!(page("evenkeel-init.1").contains("\\-\\-gateway"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = evenkeel(&["man", file.to_str().unwrap()]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("file"));
}
