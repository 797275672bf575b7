//! Live cluster scenarios: the one that is shipped, the reference, errors, judgements.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_cluster::{NodeId, Variant};
use evenkeel_core::Nanos;
use evenkeel_report::Verdict;
use evenkeel_world::live::{LiveScenario, Measured, StepMeasured, judge};

fn shipped() -> String {
    fs::read_to_string(root().join("scenarios/stsdr/live.toml")).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn error(text: &str) -> String {
    LiveScenario::parse(text, "live.toml").unwrap_err().to_string()
}

#[test]
fn the_reference_and_the_schema_are_up_to_date() {
    for (name, generated) in [
        ("reference-live.md", LiveScenario::reference_markdown()),
        ("schema/live.schema.json", LiveScenario::schema()),
    ] {
        let path = root().join("docs").join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == generated,
            "{name} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-world --test live"
        );
    }
}

#[test]
fn settings_of_a_step_override_those_of_the_file_and_last_until_others() {
    let scenario = LiveScenario::parse(&shipped(), "live.toml").unwrap_or_else(|e| panic!("{e}"));
    let step = |name: &str| scenario.steps.iter().find(|step| step.name == name).unwrap();
    assert!(step("off").config.cluster.is_none());
    let section = |name: &str| step(name).config.cluster.clone().unwrap();
    let variant = |name| {
        let config = section(name).config;
        (config.variant, config.l, config.p)
    };
    assert_eq!(variant("p-ds"), (Variant::Pipelined, 24, 12));
    assert_eq!(section("lossy"), section("p-ds"));
    assert_eq!(variant("l-ds"), (Variant::Lazy, 800, 0));
    assert_eq!(
        (section("l-ds").config.timing.overhead, section("p-ds").config.timing.overhead),
        (0, 14)
    );
    assert_eq!(section("kill"), section("p-ds"));
    assert_eq!((&step("p-ds").weights, &step("off").weights), (&vec![1, 3], &vec![1, 1]));
    assert_eq!(section("p-ds").config.members, [1, 2, 3].map(NodeId));
    assert_eq!(step("kill").forwarder(3).cluster.unwrap().node, 3);
    assert!(LiveScenario::is_meant(&shipped()));
    assert!(!LiveScenario::is_meant("[[case]]\nname = \"switch\""));
}

#[test]
fn without_a_mechanism_only_the_steps_that_must_fail_run() {
    let scenario = LiveScenario::parse(&shipped(), "live.toml").unwrap();
    let then = scenario.without("weights").unwrap();
    assert_eq!(then.steps.len(), 1);
    let weights = |of: &LiveScenario| {
        let cluster = of.steps[0].config.cluster.as_ref().unwrap();
        cluster.config.weights().collect::<Vec<_>>()
    };
    assert_eq!(weights(&then), [1, 1]);
    assert_eq!(then.steps[0].weights, [1, 3], "shares are held against what the file says");
    assert_eq!((then.expectations.len(), then.expectations[0].step), (1, 0));
    assert!(
        scenario.without("weight").unwrap_err().to_string().contains("weights"),
        "the nearest name is told"
    );
}

#[test]
fn errors_name_the_line_and_what_is_valid() {
    let text = shipped();
    for (from, to, told) in [
        ("variant = \"p-ds\"", "variant = \"q-ds\"", "variant"),
        ("t_br = \"2ms\"", "t_brr = \"2ms\"", "t_br"),
        ("limit = 250", "limit = 250\nnode = 3", "`node` follows from [switch]"),
        ("kill = 1", "kill = 4", "there are 3 forwarders"),
        ("of = \"cycles\"", "of = \"cycle\"", "cycles"),
        ("to = \"off\"", "", "needs a step to compare with"),
        ("step = \"lossy\"", "step = \"losy\"", "lossy"),
        (
            "step = \"s-ds\"\nof = \"collisions\"",
            "step = \"p-ds\"\nof = \"collisions\"",
            "valid with s-ds and l-ds",
        ),
        ("fails = [\"no-collisions\"]", "fails = [\"collision\"]", "no-collisions"),
        ("weight = { rest = 1, voice = 3 }", "weight = { rest = 1, voise = 3 }", "voice"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = error(&text.replacen(from, to, 1));
        assert!(error.contains(told) && error.starts_with("live.toml:"), "{to}: {error}");
    }
}

#[test]
fn claims_follow_the_numbers() {
    let scenario = LiveScenario::parse(&shipped(), "live.toml").unwrap();
    let step = |name: &str, [rest, voice]: [u64; 2], numbers: Vec<(&'static str, f64)>| {
        // One second of three links: 10 Mbit/s carry 1232 packets of 1014 bytes.
        let link = vec![(rest, rest * 1000), (voice, voice * 1000)];
        let arrived = vec![link; 3];
        let of = StepMeasured { time: Nanos::SECOND, arrived, numbers, ..StepMeasured::default() };
        (name.to_owned(), of)
    };
    let run = |of: &[(String, StepMeasured)]| {
        let steps = scenario.steps.iter().map(|step| {
            of.iter()
                .find(|(name, _)| *name == step.name)
                .map(|(_, of)| of.clone())
                .unwrap_or_default()
        });
        let measured = Measured { world: "lab", steps: steps.collect(), notes: Vec::new() };
        let judged = judge(&scenario, &measured, false);
        move |name: &str| {
            let one = judged.iter().find(|one| one.name == name).unwrap();
            (one.verdict == Verdict::Holds, one.measured[0].value)
        }
    };
    let good = run(&[
        step("off", [616, 616], vec![]),
        step("p-ds", [307, 921], vec![]),
        step("kill", [100, 100], vec![("silence_ms", 80.0), ("lost_elsewhere", 0.0)]),
    ]);
    assert!(
        good("shares").0
            && good("throughput").0
            && good("takeover-time").0
            && good("kill-loses-its-own").0
    );
    assert_eq!(good("takeover"), (false, None), "what was not measured does not hold");
    let bad = run(&[
        step("off", [616, 616], vec![]),
        step("p-ds", [311, 850], vec![]),
        step("kill", [100, 100], vec![("silence_ms", 501.0), ("lost_elsewhere", 1.0)]),
    ]);
    assert!(
        !bad("shares").0
            && !bad("throughput").0
            && !bad("takeover-time").0
            && !bad("kill-loses-its-own").0
    );
    // What others of the machine took part in says nothing against a router, and nothing for it.
    let judged = |not_judged: Option<&str>, voice, claim: &str| {
        let steps = scenario.steps.iter().map(|known| {
            let (_, of) = step(&known.name, [307, voice], vec![]);
            StepMeasured { not_judged: not_judged.map(str::to_owned), ..of }
        });
        let measured = Measured { world: "lab", steps: steps.collect(), notes: Vec::new() };
        let judged = judge(&scenario, &measured, false);
        judged.iter().find(|one| one.name == claim).unwrap().verdict
    };
    assert_eq!(judged(None, 850, "shares"), Verdict::Fails);
    assert_eq!(judged(Some("others wanted it"), 850, "shares"), Verdict::NotJudged);
    assert_eq!(judged(Some("others wanted it"), 921, "shares"), Verdict::Holds);
    let takeover = judged(Some("others wanted it"), 921, "takeover");
    assert_eq!(takeover, Verdict::Fails, "what was not measured does not hold");
    // 311 of 1161 is 7.15 % more than a quarter.
    assert!((bad("shares").1.unwrap() - 7.15).abs() < 0.01, "{:?}", bad("shares"));
}
