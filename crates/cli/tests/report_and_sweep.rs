//! `evenkeel sim`, `report` and `sweep` as commands: files, exit codes, messages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn evenkeel(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(args).output().unwrap()
}

fn scenario(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn seeds_become_one_page_and_saved_results_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let site = folder.path().join("site");
    let simulated = evenkeel(&[
        "sim",
        &scenario("wfq-altq/fig3.toml"),
        "--seeds",
        "2",
        "--time-scale",
        "0.04",
        "--out",
        &data,
        "--quiet",
    ]);
    assert_eq!(simulated.status.code(), Some(0), "{}", text(&simulated.stderr));
    assert!(Path::new(&data).join("seed-2/result.json").is_file());
    let reported = evenkeel(&["report", &data, "--out", &site.display().to_string()]);
    assert_eq!(reported.status.code(), Some(0), "{}", text(&reported.stderr));
    let page = fs::read_to_string(site.join("wfq-altq-fig3.html")).unwrap();
    assert!(page.contains("2 seeds") && page.contains("class=\"area a0\""));
    assert!(fs::read_to_string(site.join("index.html")).unwrap().contains("href=\"wfq-altq-fig3.html\""));

    let empty = evenkeel(&["report", &site.display().to_string()]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(text(&empty.stderr).contains("holds no result.json"));
}

#[test]
fn a_divided_sweep_is_merged_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.toml");
    let sweep = format!(
        "name = \"a/b\"\ntitle = \"T\"\nscenario = {:?}\nseeds = [1]\nduration = \"500ms\"\n\
         [fixed]\nstep = []\nsettle = \"0s\"\nsample = \"100ms\"\n\
         \"traffic[from-h1].stop\" = \"500ms\"\n\"traffic[from-h3].stop\" = \"500ms\"\n\
         [[vary]]\nname = \"limit\"\nset = \"router[r1].config.link[sink].discipline.limit\"\nvalues = [10, 200]\n",
        scenario("wfq-altq/fig3.toml")
    );
    fs::write(&file, &sweep).unwrap();
    let file = file.display().to_string();
    let part = |n: usize| -> PathBuf { folder.path().join(format!("part{n}")) };
    let run = |n: usize| {
        let shard = format!("{n}/2");
        evenkeel(&["sweep", &file, "--shard", &shard, "--out", &part(n).display().to_string()])
    };
    let first = run(1);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let merge = |parts: &[usize]| {
        let parts: Vec<String> = parts.iter().map(|n| part(*n).display().to_string()).collect();
        let mut args = vec!["sweep", "merge"];
        args.extend(parts.iter().map(String::as_str));
        evenkeel(&args)
    };
    let incomplete = merge(&[1]);
    assert_eq!(incomplete.status.code(), Some(1));
    assert!(
        text(&incomplete.stderr).contains("1 of 2 runs are missing (numbers 1)"),
        "{}",
        text(&incomplete.stderr)
    );
    assert_eq!(run(2).status.code(), Some(0));
    assert_eq!(merge(&[1, 2]).status.code(), Some(0));
    assert!(part(1).join("results.parquet").is_file());

    fs::write(&file, sweep.replace("[10, 200]", "[0]")).unwrap();
    let refused = evenkeel(&["sweep", &file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("with limit 0"), "{}", text(&refused.stderr));
    assert_eq!(evenkeel(&["sweep", &file, "--shard", "3/2"]).status.code(), Some(2));
}

#[test]
fn schemas_are_printed() {
    for format in ["router", "scenario", "sweep"] {
        let printed = evenkeel(&["reference", format, "--json-schema"]);
        let schema: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
        assert_eq!(schema["title"], format!("{format}.toml"));
    }
}
