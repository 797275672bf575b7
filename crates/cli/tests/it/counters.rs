//! Counters are declared once: everything that shows them shows all of them, and their reference is
//! up to date.

use std::fmt::Write as _;
use std::path::Path;

use evenkeel_control::watch::{self, Format, RowWriter};
use evenkeel_core::measure::{ClassCounters, Counter, CounterKind, Tally};
use evenkeel_report::fields::{self, Column};
use evenkeel_report::{Report, Run, Sample, StepMark, columns, csv, saved};
use evenkeel_router::snapshot::{ClassSnapshot, LinkSnapshot, Snapshot};
use evenkeel_router::window::between;
use evenkeel_scenario::{Metric, Metrics, Subject};

/// Each counter of a class has a value of its own: 100, 200, …, `times` over.
fn counts(times: u64) -> ClassCounters {
    let mut counts = ClassCounters::default();
    for (counter, value) in ClassCounters::COUNTERS.iter().zip(1..) {
        counts.set_value(counter.name, 100 * value * times);
    }
    counts
}

fn snapshot(time_s: u64, times: u64) -> Snapshot {
    let class =
        ClassSnapshot { name: "rest".into(), counts: counts(times), ..ClassSnapshot::default() };
    let link = LinkSnapshot { port: "wan".into(), classes: vec![class], ..LinkSnapshot::default() };
    let time_ns = time_s * 1_000_000_000;
    Snapshot { time_ns, uptime_ns: time_ns, links: vec![link], ..Snapshot::default() }
}

fn of_class(snapshot: &Snapshot) -> ClassCounters {
    snapshot.links[0].classes[0].counts
}

fn report() -> Report {
    let sample = |t_s: f64| Sample {
        t_s,
        window_s: 1.0,
        router: "r1".into(),
        link: "wan".into(),
        class: "rest".into(),
        counts: counts(1),
        ..Sample::default()
    };
    let steps = vec![StepMark { name: "start".into(), at_s: 0.0, changes: Vec::new() }];
    let samples = vec![sample(1.0), sample(2.0)];
    Report {
        runs: vec![Run { duration_s: 2.0, steps, samples, ..Run::default() }],
        ..Report::default()
    }
}

#[test]
fn every_counter_of_a_class_adds_up_and_has_a_difference() {
    assert!(ClassCounters::COUNTERS.len() >= 6);
    let mut all = snapshot(3, 2);
    all.add(&snapshot(3, 5));
    assert_eq!(of_class(&all), counts(7), "of two workers");
    let window = between(&snapshot(3, 2), &snapshot(4, 5));
    assert_eq!(of_class(&window.counted), counts(3), "of a window");
    let anew = between(&snapshot(3, 5), &snapshot(4, 2));
    assert_eq!(of_class(&anew.counted), counts(2), "of a link made anew");
    let older: Snapshot = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
    assert_eq!(older, all, "read back from the control socket");
}

#[test]
fn every_counter_of_a_class_is_told_everywhere() {
    let report = report();
    let json = serde_json::to_value(snapshot(3, 1)).unwrap();
    let mut file = Vec::new();
    csv::write_samples(&mut file, &report).unwrap();
    let file = String::from_utf8(file).unwrap();
    let lines: Vec<Vec<&str>> = file.lines().map(|line| line.split(',').collect()).collect();
    let parquet = columns::samples(&[&report]);
    let result: serde_json::Value = serde_json::from_slice(&saved::to_json(&report)).unwrap();
    let run = &report.runs[0];
    let stats = run.step_stats();
    let subject = Subject { router: "r1".into(), link: "wan".into(), class: Some("rest".into()) };
    let mut rows = Vec::new();
    let window = between(&snapshot(3, 0), &snapshot(4, 1));
    RowWriter::new(&mut rows, Format::Json).unwrap().write(1.0, &window, None).unwrap();
    let row: serde_json::Value = serde_json::from_slice(&rows).unwrap();
    let page = page();
    for (counter, value) in ClassCounters::COUNTERS.iter().zip((100_u64..).step_by(100)) {
        let name = counter.name;
        assert_eq!(json["links"][0]["classes"][0][name], value, "{name}: ctl show --json");
        assert!(page.contains(&format!("| `{name}` | {} | ", counter.unit)), "{name}: reference");
        if counter.column.is_empty() {
            continue;
        }
        let column = counter.column;
        let at = lines[0].iter().position(|known| *known == column).expect(column);
        assert_eq!(lines[1][at], value.to_string(), "{column}: samples.csv");
        let (_, values) = parquet.iter().find(|(known, _)| *known == column).expect(column);
        let twice = vec![Some(value as i64); 2];
        assert_eq!(*values, columns::Values::Whole(twice), "{column}: samples.parquet");
        assert_eq!(
            result["report"]["runs"][0]["samples"][0][column], value,
            "{column}: result.json"
        );
        let metric = Metric::all().find(|metric| metric.name() == column).expect(column);
        let measured = evenkeel_report::stats::Measured(&stats, run).value(metric, &subject, 0);
        assert_eq!(measured, Some(value as f64), "{column}: metric of expectations");
        assert!(
            page.contains(&format!("| `{column}` | {} | ", counter.unit)),
            "{column}: reference"
        );
        if counter.is_shown() {
            assert_eq!(row[column], value, "{column}: ctl watch");
        }
    }
}

#[test]
fn the_reference_of_counters_is_up_to_date_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference-counters.md");
    let generated = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel --test it reference",
        path.display()
    );
}

const INTRO: &str = "# Reference: counters and columns

<!-- Generated from the declarations of counters; a test compares. Update: UPDATE_DOCS=1 cargo \
test reference -->

Every counter of the router, and every column that is made of them. A *count* never goes back: it \
adds up over workers, and
what happened in a window is the difference of two readings. A *gauge* adds up over workers and is \
told as it is at the end of a
window; a *maximum* or *minimum* is that of all workers; a *state* is as it is.
";

fn page() -> String {
    let mut page = INTRO.to_owned();
    page += "\n## samples.csv, samples.parquet\n\nOne row per class, link and window. Empty: not \
             measured.\n";
    table(&mut page, &fields::samples());
    page += "\n## flows.csv, flows.parquet\n\nOne row per flow: a TCP connection, or what a source \
             sends by UDP.\n";
    table(&mut page, &fields::flows());
    page += "\n## subscribers.csv, subscribers.parquet\n\nOne row per subscriber or node of a \
             `[[tree]]`, link and step, settling left out.\n\n";
    table(&mut page, &fields::subscribers());
    page += "\n## connections.csv, connections.parquet\n\nWith `--connections`: one row per TCP \
             connection and window.\n";
    table(&mut page, &fields::connections());
    page += "\n## calls.csv\n\nOne row per link and window.\n";
    table(&mut page, &fields::calls());
    let columns: Vec<String> = watch::columns().iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(
        page,
        "\n## evenkeel ctl watch\n\nOne row per class and window: {}. They mean what they mean in \
         `samples.csv`.\n",
        columns.join(", ")
    );
    section(&mut page, "evenkeel ctl show --json", Snapshot::COUNTERS, &mut Vec::new());
    page
}

fn table<R>(page: &mut String, columns: &[Column<R>]) {
    *page += "\n| column | unit | what it is |\n|---|---|---|\n";
    for column in columns {
        let _ = writeln!(page, "| `{}` | {} | {} |", column.name, column.unit, column.help);
    }
}

/// A table of counters, then those of their parts, each kind once. Parts called `counts` stand in
/// JSON beside the others.
fn section(
    page: &mut String,
    heading: &str,
    counters: &[Counter],
    told: &mut Vec<&'static [Counter]>,
) {
    let _ =
        write!(page, "\n## {heading}\n\n| field | unit | what it is | kind |\n|---|---|---|---|\n");
    let mut parts = Vec::new();
    for counter in counters {
        let beside =
            if counter.name == "counts" { counter.parts } else { std::slice::from_ref(counter) };
        for Counter { name, unit, kind, help, parts: inside, .. } in beside {
            let kind = if *kind == CounterKind::Part && inside.is_empty() {
                CounterKind::Count
            } else {
                *kind
            };
            let _ = writeln!(page, "| `{name}` | {unit} | {help} | {} |", kind.name());
            if !inside.is_empty() && !told.contains(inside) {
                told.push(inside);
                parts.push((*name, *inside));
            }
        }
    }
    for (name, inside) in parts {
        let path = if counters == Snapshot::COUNTERS {
            name.to_owned()
        } else {
            format!("{heading}.{name}")
        };
        section(page, &path, inside, told);
    }
}
