//! `evenkeel sim` and the demo in the simulator: exit codes, files, the same bytes for the same
//! seed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn evenkeel(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(arguments).output();
    output.expect("the command was built with this test")
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

fn simulate(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let file = scenario("demo/lct.toml");
    let (file, folder) = (file.to_str().expect("a name"), folder.to_str().expect("a name"));
    let mut arguments = vec!["sim", file, "--time-scale", "0.25", "--out", folder];
    arguments.extend(more);
    let output = evenkeel(&arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let read = |out: &Path| {
        ["samples.csv", "calls.csv", "summary.json"]
            .map(|file| std::fs::read(out.join(file)).expect("it was written"))
    };
    let run = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let (code, text) = simulate(&out, more);
        assert_eq!(code, Some(0), "{text}");
        out
    };
    let first = read(&run("a", &[]));
    assert_eq!(first, read(&run("b", &["--seed", "1"])), "the scenario's seed is 1");
    let second = read(&run("c", &["--seed", "2"]));
    assert_ne!(first[0], second[0]);
    let both = run("d", &["--seeds", "2"]);
    assert_eq!(first[0], read(&both.join("seed-1"))[0]);
    assert_eq!(second[0], read(&both.join("seed-2"))[0]);
    assert!(both.join("index.html").is_file());
}

#[test]
fn a_mechanism_switched_off_fails_what_it_must() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, text) = simulate(folder.path(), &["--all-without", "--quiet"]);
    assert_eq!((code, text.as_str()), (Some(0), ""), "all went as expected");
    let (code, text) = simulate(folder.path(), &["--without", "nothing"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("no [[without]] named \"nothing\"; there are: X_DELAY"), "{text}");
    let (code, text) = simulate(folder.path(), &["--seeds", "0"]);
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn the_demo_says_that_it_is_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = evenkeel(&["demo", "--sim", "--out", folder.path().to_str().expect("a name")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("All of it is simulated, in virtual time"), "{text}");
    assert!(text.contains("it was the ring"), "{text}");
    assert!(folder.path().join("report.html").is_file());
}

#[test]
fn a_live_cluster_runs_in_virtual_time_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let file = scenario("stsdr/live.toml");
    let file = file.to_str().expect("a name");
    let first = evenkeel(&["sim", file, "--json", "--out", &out("first")]);
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!(first.stdout, evenkeel(&["sim", file, "--json", "--out", &out("second")]).stdout);
    // Equal weights give other shares; old states used without a word give two forwarders one link.
    let without = evenkeel(&["sim", file, "--all-without", "--out", &out("without")]);
    let said = String::from_utf8_lossy(&without.stdout);
    assert_eq!(without.status.code(), Some(0), "{said}");
    assert!(said.contains("shares:") && said.contains("no-collisions:"), "{said}");
    let demo = evenkeel(&["demo", "cluster", "--sim", "--out", &out("demo")]);
    let said = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success() && said.contains("carries at least 95 %"), "{said}");
    assert!(folder.path().join("demo/report.html").is_file());
}

/// An evening at a small ISP: without plans calls are lost, with them none is.
#[test]
fn the_evening_at_an_isp_is_shown_without_root() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().expect("a name");
    let output = evenkeel(&["demo", "isp", "--sim", "--quiet", "--out", out]);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    let row = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(name)).expect(&told);
        let cells = line[name.len()..].split_whitespace();
        cells.map(|cell| cell.parse::<f64>().expect(line)).collect::<Vec<_>>()
    };
    let (lost, waited) = (row("calls: packets lost, %"), row("calls: 99 of 100 waited, ms"));
    // North without and with the tree, then South, then East.
    assert!(lost[0] > 10.0 && lost[1] == 0.0 && lost[3] == 0.0, "{told}");
    assert!(waited[0] > 20.0 && waited[1] < 10.0 && waited[3] < 1.0, "{told}");
    let late = row("films: pieces too late, %");
    assert!(late[0] > 90.0 && late[1] < 50.0, "{told}");
    assert!(folder.path().join("subscribers.csv").exists());
}

/// What comes out of a wire is there for other programs, the same bytes for the same seed.
#[test]
fn a_wire_is_captured_in_virtual_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = scenario("latency/pdrr.toml");
    let run = |name: &str, wire: &str| {
        let out = folder.path().join(name);
        let [file, out] = [&file, &out].map(|path| path.to_str().expect("a name"));
        let short = ["sim", file, "--time-scale", "0.1", "--out", out, "--quiet"];
        evenkeel(&[&short[..], &["--capture", wire]].concat())
    };
    let captured = |name: &str| folder.path().join(name);
    let mut bytes = Vec::new();
    for (wire, file) in [("r1/home", "a/r1-home.pcapng"), ("home/r1", "b/home-r1.pcapng")] {
        let _claims_of_a_short_run_may_fail = run(&file[..1], wire);
        bytes.push(std::fs::read(captured(file)).expect("it was written"));
    }
    assert!(bytes[0] == bytes[1], "the same seed");

    let summary = std::fs::read_to_string(folder.path().join("a/flows.csv")).expect("flows");
    let mut capture =
        evenkeel_ports::pcap::Capture::open(&captured("a/r1-home.pcapng")).expect("a capture");
    let (mut frames, mut voice, mut last) = (0, 0, evenkeel_core::Nanos::ZERO);
    while let Some(frame) = capture.read().expect("a frame") {
        assert!(frame.stamp >= last, "in order of time");
        (frames, last) = (frames + 1, frame.stamp);
        // UDP of 200 bytes, to port 5002.
        voice += u32::from(frame.original == 214 && frame.bytes[23] == 17);
    }
    assert!(frames > 1_000 && voice > 0 && frames > voice, "{frames}, {voice}: {summary}");

    let refused = run("c", "r1/nowhere");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("no wire \"r1/nowhere\"; there are: far/r1, near/r1, r1/home"), "{said}");
    assert!(!folder.path().join("c").exists(), "nothing was written");
}
