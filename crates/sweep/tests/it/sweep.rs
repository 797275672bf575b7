//! Whole sweeps: run, interrupted, divided, merged.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_router::Disciplines;
use evenkeel_sweep::{RunOptions, Shard, Sweep, SweepError, merge, run};
use tempfile::TempDir;

const SCENARIO: &str = r#"
name = "test/two"
title = "Two classes on one link"
duration = "1s"
sample = "100ms"
settle = "200ms"

[[host]]
name = "h1"

[[host]]
name = "h3"

[[host]]
name = "sink"

[[wire]]
ends = ["h1", "r1"]
subnet = "10.0.1.0/24"

[[wire]]
ends = ["h3", "r1"]
subnet = "10.0.3.0/24"

[[wire]]
ends = ["r1", "sink"]
subnet = "10.0.9.0/24"

[[router]]
name = "r1"

[[router.config.class]]
name = "class1"

[[router.config.class]]
name = "class3"
match = [{ source = "10.0.3.0/24" }]

[[router.config.link]]
port = "sink"
rate = "5Mbit/s"
ring = { slots = 8, refill = "whole" }
discipline = { kind = "wfq-altq", limit = 20, weight = { class1 = 100, class3 = 100 } }

[[traffic]]
name = "a"
from = "h1"
to = "sink"
kind = "poisson"
rate = "5Mbit/s"
size = "1000B"

[[traffic]]
name = "b"
from = "h3"
to = "sink"
kind = "poisson"
rate = "5Mbit/s"
size = "1000B"

[[expect]]
name = "left-out"
claim = "A sweep does not judge."
that = "sent(class1)@start > 1e9"
"#;

const SWEEP: &str = r#"
name = "test/sweep"
title = "A small sweep"
scenario = "two.toml"
seeds = [1, 2]

[[vary]]
name = "weight"
set = "router[r1].config.link[sink].discipline.weight.class3"
values = [100, 300]

[[vary]]
name = "rate"
set = ["traffic[a].rate", "traffic[b].rate"]
values = ["4Mbit/s", "8Mbit/s"]

[measure]
ratio = "sent(class3)@start / sent(class1)@start"
wanted = "{weight} / 100"

[map]
x = "weight"
y = "rate"
value = "ratio"
"#;

fn files(sweep: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("two.toml"), SCENARIO).unwrap();
    let file = folder.path().join("sweep.toml");
    fs::write(&file, sweep).unwrap();
    (folder, file)
}

fn options(shard: &str) -> RunOptions {
    RunOptions {
        jobs: 2,
        shard: Shard::parse(shard).unwrap(),
        disciplines: Default::default(),
        stop: Default::default(),
    }
}

fn table(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_sweep_measures_every_point_with_every_seed() {
    let (folder, file) = files(SWEEP);
    let sweep = Sweep::load(&file).unwrap();
    assert_eq!(sweep.tasks(), 8);
    let out = folder.path().join("out");
    let finished = run(&sweep, &out, &options("1/1"), &|_, _| {}).unwrap();
    assert_eq!((finished.tasks, finished.kept, finished.failed.len()), (8, 0, 0));
    let merged = merge(std::slice::from_ref(&out), &out).unwrap();
    assert_eq!((merged.tasks, merged.missing.len(), merged.files.len()), (8, 0, 6));

    let measures = table(&out.join("measures.csv"));
    assert_eq!(measures[0], ["task", "weight", "rate", "seed", "ratio", "wanted"]);
    assert_eq!(measures.len(), 9);
    for row in &measures[1..] {
        let (ratio, wanted): (f64, f64) = (row[4].parse().unwrap(), row[5].parse().unwrap());
        // Both classes offer 8 Mbit/s to a link of 5 Mbit/s: the weights decide. 4 and 4 fit less
        // tightly.
        if row[2] == "8Mbit/s" {
            assert!((ratio / wanted - 1.0).abs() < 0.1, "{row:?}");
        }
    }
    // Seeds differ, all else equal: sources are random.
    assert_eq!(measures[1][..3].last(), measures[2][..3].last());
    assert_ne!(measures[1][4], measures[2][4]);
    assert_eq!(table(&out.join("results.csv")).len(), 1 + 8 * 2);
    assert!(fs::read(out.join("results.parquet")).unwrap().starts_with(b"PAR1"));
    let maps = evenkeel_sweep::drawings(folder.path()).unwrap();
    assert_eq!(maps.iter().map(|map| map.title.as_str()).collect::<Vec<_>>(), ["A small sweep"]);
    assert_eq!(maps[0].svg.matches("class=\"cell").count(), 4);
}

#[test]
fn an_interrupted_sweep_goes_on_where_it_stopped() {
    let (folder, file) = files(SWEEP);
    let sweep = Sweep::load(&file).unwrap();
    let out = folder.path().join("out");
    run(&sweep, &out, &options("1/1"), &|_, _| {}).unwrap();
    merge(std::slice::from_ref(&out), &out).unwrap();
    let whole = fs::read(out.join("results.csv")).unwrap();

    // One task is lost, one was cut off by a full disk, one left a file unfinished: three are run
    // again, to the same bytes.
    let mut tasks: Vec<PathBuf> =
        fs::read_dir(out.join("tasks")).unwrap().map(|entry| entry.unwrap().path()).collect();
    tasks.sort();
    fs::remove_file(&tasks[1]).unwrap();
    let text = fs::read(&tasks[4]).unwrap();
    fs::write(&tasks[4], &text[..text.len() / 2]).unwrap();
    fs::rename(&tasks[6], tasks[6].with_extension("1.tmp")).unwrap();
    let missing = merge(std::slice::from_ref(&out), &folder.path().join("part")).unwrap().missing;
    assert_eq!(missing, [1, 4, 6]);
    let finished = run(&sweep, &out, &options("1/1"), &|_, _| {}).unwrap();
    assert_eq!((finished.tasks, finished.kept), (8, 5));
    merge(std::slice::from_ref(&out), &out).unwrap();
    assert_eq!(fs::read(out.join("results.csv")).unwrap(), whole);
}

#[test]
fn parts_run_apart_make_the_same_whole() {
    let (folder, file) = files(SWEEP);
    let sweep = Sweep::load(&file).unwrap();
    let at = |name: &str| folder.path().join(name);
    run(&sweep, &at("whole"), &options("1/1"), &|_, _| {}).unwrap();
    for (shard, name) in [("1/3", "a"), ("2/3", "b"), ("3/3", "c")] {
        run(&sweep, &at(name), &options(shard), &|_, _| {}).unwrap();
    }
    merge(&[at("whole")], &at("one")).unwrap();
    merge(&[at("c"), at("a"), at("b"), at("a")], &at("parts")).unwrap();
    for name in ["results.csv", "results.parquet", "measures.csv", "map.svg"] {
        assert_eq!(
            fs::read(at("one").join(name)).unwrap(),
            fs::read(at("parts").join(name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(merge(&[at("a"), at("c")], &at("two")).unwrap().missing, [1, 4, 7]);
}

#[test]
fn a_changed_sweep_takes_nothing_over_and_is_not_mixed() {
    let (folder, file) = files(SWEEP);
    let out = folder.path().join("out");
    run(&Sweep::load(&file).unwrap(), &out, &options("1/1"), &|_, _| {}).unwrap();
    fs::write(&file, SWEEP.replace("values = [100, 300]", "values = [100, 200]")).unwrap();
    let changed = Sweep::load(&file).unwrap();
    let other = folder.path().join("other");
    run(&changed, &other, &options("1/1"), &|_, _| {}).unwrap();
    let error = merge(&[out.clone(), other], &out).unwrap_err();
    assert!(matches!(&error, SweepError::DifferentSweeps { .. }), "{error}");
    // What did not change is kept: weight 100, which the sweep has as before.
    let finished = run(&changed, &out, &options("1/1"), &|_, _| {}).unwrap();
    assert_eq!((finished.tasks, finished.kept), (8, 4));
}

#[test]
fn a_folder_that_cannot_be_written_stops_the_sweep() {
    let (folder, file) = files(SWEEP);
    let sweep = Sweep::load(&file).unwrap();
    let blocked = folder.path().join("blocked");
    fs::write(&blocked, "a file").unwrap();
    let error = run(&sweep, &blocked, &options("1/1"), &|_, _| {}).unwrap_err();
    assert!(matches!(error, SweepError::Write { .. }) && error.exit_code() == 1);
}

#[test]
fn mistakes_are_told_with_their_line_before_anything_runs() {
    let refused = |from: &str, to: &str| {
        assert!(SWEEP.contains(from));
        let (_folder, file) = files(&SWEEP.replace(from, to));
        Sweep::load(&file).unwrap_err().to_string()
    };
    let error = refused("link[sink].discipline", "link[snk].discipline");
    assert!(
        error.contains("sweep.toml:") && error.contains("there is no \"snk\"; there are: sink"),
        "{error}"
    );
    let error = refused("values = [100, 300]", "values = [100, 0]");
    assert!(
        error.contains("with weight 0, rate 4Mbit/s, seed 1") && error.contains("weight"),
        "{error}"
    );
    let error = refused("{weight} / 100", "{wieght} / 100");
    assert!(error.contains("no axis \"wieght\"; did you mean \"weight\"?"), "{error}");
    let error = refused("x = \"weight\"", "x = \"wait\"");
    assert!(error.contains(": map.x: no \"wait\""), "{error}");
    let error = refused("seeds = [1, 2]", "seeds = []");
    assert!(error.contains("sweep.toml:5: seeds: the list is empty"), "{error}");
    let error = refused("two.toml", "three.toml");
    assert!(error.contains("sweep.toml:4: scenario:"), "{error}");
    let error = refused("values = [100, 300]", "values = 3");
    assert!(error.contains("vary.values: expected a list"), "{error}");
}

/// Runs at 4 and at 8 Mbit/s are no sample of one thing: their mean, with an interval, would say
/// that they are.
#[test]
fn a_chart_pools_no_axis_that_it_does_not_name() {
    let chart = |more: &str| {
        let chart = "\n[[chart]]\nname = \"c\"\ntitle = \"T\"\nx = \"weight\"\nvalue = \"ratio\"\n";
        let (folder, file) = files(&format!("{SWEEP}{chart}{more}\n"));
        let sweep = Sweep::load(&file).map_err(|errors| errors.to_string())?;
        let out = folder.path().join("out");
        run(&sweep, &out, &options("1/1"), &|_, _| {}).unwrap();
        merge(std::slice::from_ref(&out), &out).unwrap();
        Ok::<_, String>(fs::read_to_string(out.join("chart-c.html")).unwrap())
    };
    let error = chart("").unwrap_err();
    assert!(error.contains("chart.x: would pool the 2 values of the axis \"rate\""), "{error}");
    let error = chart("at = { rate = \"9Mbit/s\" }").unwrap_err();
    assert!(error.contains("there are: 4Mbit/s, 8Mbit/s"), "{error}");
    let runs = |page: &str| page.matches("<td>2</td>").count();
    assert_eq!(runs(&chart("at = { rate = \"8Mbit/s\" }").unwrap()), 2, "two seeds a point");
    let page = chart("pooled = [\"rate\"]").unwrap();
    assert!(page.contains("runs: seeds and rate") && page.contains("<td>4</td>"), "said aloud");
    let (_folder, file) = files(&SWEEP.replace("y = \"rate\"", "y = \"weight\""));
    let error = Sweep::load(&file).unwrap_err().to_string();
    assert!(error.contains("map.x: would pool"), "{error}");
}

#[test]
fn the_reference_and_the_schema_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, generated) in [
        ("reference-sweep.md", evenkeel_sweep::tables::reference_markdown()),
        ("schema/sweep.schema.json", evenkeel_sweep::tables::schema()),
    ] {
        let path = docs.join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == generated,
            "{name} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-sweep reference"
        );
    }
}

#[test]
fn the_sweeps_that_are_shipped_are_valid() {
    let maps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/maps");
    let sweep = Sweep::load(&maps.join("differentiation.toml")).unwrap();
    assert_eq!(sweep.tasks(), 3 * 8 * 12 * 3);
}

#[test]
fn disciplines_of_the_callers_own_are_swept_and_unknown_ones_refused_before_anything_runs() {
    let (folder, file) = files(
        "name = \"own\"\ntitle = \"T\"\nscenario = \"two.toml\"\n[[vary]]\nname = \"limit\"\n\
         set = \"router[r1].config.link[sink].discipline.settings.limit\"\nvalues = [5, 50]\n\
         [measure]\ndelay = \"delay(class1)@start\"\n",
    );
    let built_in = "{ kind = \"wfq-altq\", limit = 20, weight = { class1 = 100, class3 = 100 } }";
    let own = "{ kind = \"own\", name = \"short\", settings = { limit = 9 } }";
    fs::write(folder.path().join("two.toml"), SCENARIO.replace(built_in, own)).unwrap();
    let sweep = Sweep::load(&file).unwrap();
    let out = folder.path().join("out");
    let error = run(&sweep, &out, &options("1/1"), &|_, _| {}).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("short") && !out.exists(), "{error}");

    #[derive(serde::Deserialize)]
    struct Settings {
        limit: u32,
    }
    let known = Disciplines::default().with("short", |setup| {
        let Settings { limit } = setup.settings()?;
        let fifo = Fifo::new(FifoConfig::packets(limit));
        Ok(Box::new(fifo?))
    });
    let options = RunOptions { disciplines: known, ..options("1/1") };
    assert!(run(&sweep, &out, &options, &|_, _| {}).unwrap().failed.is_empty());
    merge(std::slice::from_ref(&out), &out).unwrap();
    let delays: Vec<f64> =
        table(&out.join("measures.csv"))[1..].iter().map(|row| row[3].parse().unwrap()).collect();
    assert!(
        delays[0] > 0.0 && delays[1] > 2.0 * delays[0],
        "a longer queue is waited in longer: {delays:?}"
    );
}
