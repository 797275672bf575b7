//! `evenkeel sim`, `report` and `sweep` as commands: files, exit codes, messages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use evenkeel_netns::testing::available;

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
    assert!(
        fs::read_to_string(site.join("index.html"))
            .unwrap()
            .contains("href=\"wfq-altq-fig3.html\"")
    );

    let empty = evenkeel(&["report", &site.display().to_string()]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(text(&empty.stderr).contains("holds no result.json"));
}

/// Own runs beside each other: with the mechanism, without it, and on real packets where that is
/// possible; what does not fit is told.
#[test]
fn own_runs_stand_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let file = scenario("wfq-altq/fig3.toml");
    let run = |args: &[&str]| {
        let all = [&[args[0], &file, "--time-scale", "0.04", "--quiet"], &args[1..]].concat();
        let output = evenkeel(&all);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    };
    run(&["sim", "--seeds", "3", "--out", &at("wfq")]);
    let mut folders = vec![at("wfq"), at("one")];
    run(&["sim", "--out", &at("one")]);
    if available("a comparison with a lab") {
        run(&["lab", "--repeat", "2", "--out", &at("lab")]);
        for seed in ["seed-1", "seed-2"] {
            assert!(folder.path().join("lab").join(seed).join("flows.csv").is_file());
        }
        folders.push(at("lab"));
    }
    let out = at("page");
    let mut args: Vec<&str> = vec!["compare", "--out", &out, "--title", "Ours <and> theirs"];
    args.extend(folders.iter().map(String::as_str));
    let compared = evenkeel(&args);
    assert_eq!(compared.status.code(), Some(0), "{}", text(&compared.stderr));
    let page = fs::read_to_string(Path::new(&out).join("index.html")).unwrap();
    assert!(page.contains("<h1>Ours &lt;and&gt; theirs</h1>") && page.contains("3 of 3 as"));
    assert!(page.contains("95 % confidence") && page.contains("Transit delay by percentile"));
    assert_eq!(page.contains("<b>lab</b>, 2 runs"), folders.len() == 3);
    assert!(page.len() < 1_000_000, "{}", page.len());
    let samples = fs::read_to_string(Path::new(&out).join("samples.csv")).unwrap();
    assert!(samples.lines().any(|line| line.contains(",one,sim,")), "the label is a column");

    let missing = evenkeel(&["compare", &at("nowhere"), "--out", &out]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
}

/// A sweep of half a second per run, over these queue limits.
fn sweep_of(limits: &str) -> String {
    format!(
        "name = \"a/b\"\ntitle = \"T\"\nscenario = {:?}\nseeds = [1]\nduration = \"500ms\"\n\
         [fixed]\nstep = []\nsettle = \"0s\"\nsample = \"100ms\"\n\
         \"traffic[from-h1].stop\" = \"500ms\"\n\"traffic[from-h3].stop\" = \"500ms\"\n\
         [[vary]]\nname = \"limit\"\nset = \
         \"router[r1].config.link[sink].discipline.limit\"\nvalues = {limits}\n",
        scenario("wfq-altq/fig3.toml")
    )
}

/// On a file system of its own that only this script sees: runs the sweep until the disk is full,
/// looks at what is there, makes room, and runs it again. Arguments: the command, sweep.toml, the
/// folder to mount over, and where copies go.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=64k none "$3" || exit 99
"$1" sweep "$2" --out "$3/results" --jobs 2 --quiet; echo "first $?"
cp -r "$3/results" "$4/first"
mount -o remount,size=8m "$3"
"$1" sweep "$2" --out "$3/results" --jobs 2; echo "second $?"
cp -r "$3/results" "$4/second"
"#;

#[test]
fn a_full_disk_costs_a_sweep_the_runs_in_flight_and_no_more() {
    if !available("a_full_disk_costs_a_sweep_the_runs_in_flight_and_no_more") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("sweep.toml"), sweep_of(&format!("{:?}", (10..40).collect::<Vec<_>>())))
        .unwrap();
    fs::create_dir(path("disk")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", FULL_DISK, "sh", env!("CARGO_BIN_EXE_evenkeel")]);
    let output =
        command.args([path("sweep.toml"), path("disk"), folder.path().into()]).output().unwrap();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("first 1\n") && said.contains("second 0\n"), "{said}{complained}");
    assert!(
        complained.contains("cannot write") && complained.contains("No space left"),
        "{complained}"
    );

    let tasks = |of: &str| -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(path(of).join("tasks"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    };
    let (first, second) = (tasks("first"), tasks("second"));
    assert_eq!(second.len(), 30, "all are there in the end");
    assert!(!first.is_empty() && first.len() < 30, "{} before the disk was full", first.len());
    // Nothing half written is left, and nothing that was there is run again.
    for file in &first {
        let name = file.file_name().unwrap();
        assert_eq!(
            fs::read(file).unwrap(),
            fs::read(path("second/tasks").join(name)).unwrap(),
            "{name:?}"
        );
    }
    assert!(
        said.contains(&format!("{} there before, {} new, 0 failed", first.len(), 30 - first.len())),
        "{said}"
    );
    // 64 KiB are 16 pages. The folders take none, the sweep's own file one, each run in flight one
    // besides its own.
    assert!(first.len() >= 12, "{} of at most 15", first.len());
}

#[test]
fn a_divided_sweep_is_merged_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.toml");
    let sweep = sweep_of("[10, 200]");
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
