//! A scenario's expectations judged on runs with known numbers, and the files that come of it.

use std::path::Path;

use evenkeel_core::measure::ClassCounters;
use evenkeel_report::{
    CallsSample, Delays, Judgement, Report, Run, Sample, StepMark, Verdict, WriteError,
};
use evenkeel_scenario::{Scenario, World};

const SCENARIO: &str = r#"
name = "test/two-classes"
title = "Two classes <and> a step"
duration = "8s"
sample = "1s"
settle = "1s"

[[host]]
name = "h1"
[[host]]
name = "sink"
[[router]]
name = "r1"
[[router.config.class]]
name = "class1"
[[router.config.class]]
name = "class3"
match = [{ dscp = [46] }]
[[router.config.link]]
port = "sink"
rate = "100Mbit/s"
[router.config.link.discipline]
kind = "lct"

[[wire]]
ends = ["h1", "r1"]
[[wire]]
ends = ["r1", "sink"]
[[traffic]]
name = "a"
from = "h1"
to = "sink"
kind = "cbr"
rate = "10Mbit/s"
size = "1428B"
class = "class1"
[[traffic]]
name = "b"
from = "h1"
to = "sink"
kind = "cbr"
rate = "10Mbit/s"
size = "1428B"
class = "class3"
dscp = 46

[[step]]
name = "x10"
at = "4s"
set = [{ router = "r1", link = "sink", knob = "x_delay", class = "class3", value = "10us" }]

[[expect]]
name = "delay-grows"
claim = "class 3 waits longer"
that = "delay(class3)@x10 > 2 * delay(class3)@start"
[[expect]]
name = "calls"
claim = "most calls find several"
that = "calls_many(sink)@start > calls_one(sink)@start"
[[expect]]
name = "never"
claim = "nothing is dropped"
that = "dropped(class3)@x10 < 1"
reproduced = false
note = "the queue is short"
[[expect]]
name = "wrong"
claim = "class 1 sends less than class 3"
that = "sent(class1)@x10 < sent(class3)@x10"
[[expect]]
name = "unmeasured"
claim = "end to end"
that = "e2e(class3)@x10 > 0"
[[expect]]
name = "elsewhere"
claim = "in virtual time"
that = "sent(class1)@start > 0"
worlds = ["sim"]

[[without]]
name = "no X"
set = [{ router = "r1", link = "sink", knob = "x_delay", class = "class3", value = "0us", at = "always" }]
fails = ["delay-grows", "calls"]
"#;

fn scenario() -> Scenario {
    Scenario::parse(SCENARIO, "test.toml", Path::new("."))
        .unwrap_or_else(|errors| panic!("{errors}"))
}

/// Class 3 is served 400 us late in the second step, or `late_us` late.
fn run(late_us: u64) -> Run {
    let delays = |packets: u64, us: u64| Delays {
        count: packets,
        sum_ns: packets * us * 1_000,
        max_ns: us * 1_000,
        buckets: vec![(us * 1_000, packets)],
    };
    let mut run = Run {
        world: "lab".to_owned(),
        sample_s: 1.0,
        settle_s: 1.0,
        duration_s: 8.0,
        steps: [("start", 0.0), ("x10", 4.0)]
            .map(|(name, at_s)| StepMark { name: name.to_owned(), at_s, changes: vec![] })
            .to_vec(),
        ..Run::default()
    };
    for second in 1..=8 {
        for (class, sent) in [("class1", 900), ("class3", 500)] {
            let us = if class == "class3" && second > 4 { late_us } else { 100 };
            run.samples.push(Sample {
                t_s: f64::from(second),
                window_s: 1.0,
                router: "r1".to_owned(),
                link: "sink".to_owned(),
                class: class.to_owned(),
                counts: ClassCounters { sent_packets: sent, ..ClassCounters::default() },
                dropped: vec![("queue_full".to_owned(), 10)],
                transit: delays(sent, us),
                ..Sample::default()
            });
        }
        run.calls.push(CallsSample {
            t_s: f64::from(second),
            window_s: 1.0,
            router: "r1".to_owned(),
            link: "sink".to_owned(),
            none: 1,
            one: 2,
            many: 7,
            admission: None,
        });
    }
    run
}

fn verdicts(judgements: &[Judgement]) -> Vec<(&str, Verdict)> {
    judgements.iter().map(|j| (j.name.as_str(), j.verdict)).collect()
}

#[test]
fn every_kind_of_verdict_is_given_for_its_reason() {
    let judgements = evenkeel_report::judge::judge(&scenario(), &run(400), World::Lab);
    assert_eq!(
        verdicts(&judgements),
        [
            ("delay-grows", Verdict::Holds),
            ("calls", Verdict::Holds),
            ("never", Verdict::NotReproduced),
            ("wrong", Verdict::Fails),
            ("unmeasured", Verdict::Undecided),
            ("elsewhere", Verdict::OtherWorld),
        ]
    );
    let measured: Vec<(&str, Option<f64>)> =
        judgements[0].measured.iter().map(|term| (term.text.as_str(), term.value)).collect();
    assert_eq!(
        measured,
        [("delay(class3)@x10", Some(400.0)), ("delay(class3)@start", Some(100.0))]
    );
}

#[test]
fn without_the_mechanism_the_named_expectations_must_fail() {
    let without = scenario().with_ablation("no X").unwrap();
    let judgements = evenkeel_report::judge::judge(&without, &run(100), World::Lab);
    assert_eq!(
        verdicts(&judgements),
        [("delay-grows", Verdict::FailsWithout), ("calls", Verdict::HoldsWithout)]
    );
    assert!(Report { judgements, ..Report::default() }.failed());
}

#[test]
fn the_files_are_written_and_agree() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario();
    let run = run(400);
    let judgements = evenkeel_report::judge::judge(&scenario, &run, World::Lab);
    let report = Report::of_scenario(&scenario, vec![run], judgements);
    let files = evenkeel_report::write_all(&folder.path().join("a/b"), &report).unwrap();
    let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "result.json",
            "samples.csv",
            "samples.parquet",
            "calls.csv",
            "summary.json",
            "report.html"
        ]
    );
    let read = |i: usize| std::fs::read_to_string(&files[i]).unwrap();
    assert_eq!((read(1).lines().count(), read(3).lines().count()), (17, 9));
    let summary: serde_json::Value = serde_json::from_str(&read(4)).unwrap();
    assert_eq!(summary["passed"], false);
    assert_eq!(summary["expectations"][3]["verdict"], "fails");
    let page = read(5);
    assert!(
        page.contains("Two classes &lt;and&gt; a step")
            && page.contains("2 of 6 expectations did not")
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error: WriteError =
        evenkeel_report::write_all(&file.join("sub"), &Report::default()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot write {}", file.join("sub").display())));
}
