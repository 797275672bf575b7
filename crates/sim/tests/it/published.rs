//! Every published scenario in virtual time: what it claims holds, and fails where its mechanism is
//! switched off. Table 1 runs at full length, the others at a third of theirs; `scripts/figures.sh`
//! runs all of them at full length.

use std::path::{Path, PathBuf};

use evenkeel_scenario::Scenario;
use evenkeel_sim::{Outcome, SimOptions};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(folder);
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    files
}

fn judged(scenario: &Scenario, options: &SimOptions) -> Outcome {
    let outcome = evenkeel_sim::run(scenario, options).expect("it can be simulated");
    let what = options.without.as_deref().unwrap_or("as it is");
    let bad: Vec<_> =
        outcome.judgements.iter().filter(|judgement| judgement.verdict.is_bad()).collect();
    println!("{} {what}: {} events, {} packets", scenario.name, outcome.events, outcome.packets);
    for judgement in bad {
        println!("   {}: {:?} {:?}", judgement.name, judgement.verdict, judgement.measured);
    }
    assert_eq!(outcome.run.warnings, Vec::<String>::new(), "{} {what}", scenario.name);
    outcome
}

fn holds(folder: &str) {
    let mut failed = Vec::new();
    for file in files(folder) {
        let scenario = Scenario::load(&file).expect("it is valid");
        let names = scenario.ablations.iter().map(|ablation| Some(ablation.name.clone()));
        for without in std::iter::once(None).chain(names) {
            // The steps of a control law take the time they take.
            let mut links = scenario.routers.iter().flat_map(|router| &router.config.links);
            let full = links.any(|link| link.control.is_some())
                || scenario.name == "wfq-altq/table1" && without.is_none();
            let time_scale = if full { 1.0 } else { 0.3 };
            let options =
                SimOptions { without: without.clone(), time_scale, ..SimOptions::default() };
            if !judged(&scenario, &options).passed() {
                failed.push((scenario.name.clone(), without));
            }
        }
    }
    assert_eq!(failed, [], "these did not go as expected");
}

#[test]
fn lct() {
    holds("lct");
}

/// The shorter ones of the cross-protect router's, at full length: their times are those of flows
/// and intervals.
#[test]
fn cross_protect() {
    let mut failed = Vec::new();
    for file in files("cross-protect").into_iter().chain(files("cross-protect-lab")) {
        let scenario = Scenario::load(&file).expect("it is valid");
        let short = [
            "cross-protect/switchover",
            "cross-protect/fig5",
            "cross-protect/burst",
            "cross-protect/control-ports",
            "cross-protect/second-link",
            "cross-protect/emergency-thresholds",
            "cross-protect/small-packets",
            "cross-protect-lab/pinning",
        ];
        if !short.contains(&scenario.name.as_str()) {
            continue;
        }
        let names = scenario.ablations.iter().map(|ablation| Some(ablation.name.clone()));
        for without in std::iter::once(None).chain(names) {
            let options = SimOptions { without: without.clone(), ..SimOptions::default() };
            if !judged(&scenario, &options).passed() {
                failed.push((scenario.name.clone(), without));
            }
        }
    }
    assert_eq!(failed, [], "these did not go as expected");
}

#[test]
fn wfq_altq() {
    holds("wfq-altq");
}

#[test]
fn demo() {
    holds("demo");
}
