//! The demonstration of FairDrop: two heavy flows and eighteen light ones on one core, first
//! without and then with it.
//!
//! On real packets both halves are steps of one scenario each: the paper's ratio of costs by
//! burning cycles, and real encryption.

use evenkeel_report::Run;
use evenkeel_report::cycles::{Account, accounts, table};
use evenkeel_scenario::{Scenario, World};
use evenkeel_settings::Diagnostics;

use crate::demo::{BuiltIn, Demo, Show, built_in};

/// For real packets.
const LAB: [BuiltIn; 2] = [
    built_in!("the paper's ratio", "scenarios/fairdrop/lab-paper.toml"),
    built_in!("real encryption", "scenarios/fairdrop/lab-encryption.toml"),
];

/// For virtual time.
const SIM: [BuiltIn; 2] = [
    built_in!("classical", "scenarios/fairdrop/classical.toml"),
    built_in!("FairDrop", "scenarios/fairdrop/demo.toml"),
];

/// Without FairDrop and with it.
const SHOW: Show = Show {
    name: "demo-fairdrop",
    title: "Two heavy flows on one core, without and with FairDrop",
    introduction,
    table: |runs| {
        runs.iter()
            .map(|run| format!("{}\n{}", run.name, table(run)))
            .collect::<Vec<_>>()
            .join("\n")
    },
    seen: |_, runs| runs.iter().filter_map(sentence).collect(),
};

/// The demo in a world, of which nothing was measured.
///
/// # Errors
/// What is wrong with a built-in scenario: a mistake in this program.
pub fn demo(world: World) -> Result<Demo, Diagnostics> {
    Demo::new(SHOW, if world == World::Lab { &LAB } else { &SIM }, world)
}

/// What is done, in words.
fn introduction(scenarios: &[(&str, Scenario)], world: World) -> String {
    let mut text = match world {
        World::Lab => {
            "20 flows through one worker of a router. Each host is a network namespace of this \
             machine; the packets are real.\n"
        }
        World::Sim => {
            "20 flows through one polled core, in virtual time, with the rates and costs that were \
             published.\n"
        }
    }
    .to_owned();
    for (name, scenario) in scenarios {
        text += &format!("  {name}: {}\n", scenario.title);
    }
    text + "\n"
}

/// What the reader sees of a run whose two steps are without and with FairDrop, from its numbers.
fn sentence(run: &Run) -> Option<String> {
    let accounts = accounts(run);
    let [before, after] = accounts.as_slice() else { return None };
    let light = |account: &Account| account.kinds.iter().find(|kind| !kind.dear).cloned();
    let heavy = |account: &Account| account.kinds.iter().find(|kind| kind.dear).cloned();
    let (light, heavy) = ((light(before)?, light(after)?), (heavy(before)?, heavy(after)?));
    let share = |account: &Account, cycles: f64| {
        cycles / account.kinds.iter().map(|kind| kind.cycles).sum::<f64>().max(1e-9) * 100.0
    };
    let jain = after.jain.map_or_else(String::new, |jain| {
        format!("; Jain's index of the cycles of all flows that want more is {jain:.3}")
    });
    Some(format!(
        "{}: a heavy packet costs {:.1} times a light one. Without FairDrop the {} flows take \
         {:.0} % of the cycles, with it {:.0} %{jain}. \
         Light flows get {:.2} times as much through.",
        run.name,
        heavy.1.each() / light.1.each().max(1e-9),
        heavy.0.name(),
        share(before, heavy.0.cycles),
        share(after, heavy.1.cycles),
        light.1.passed / light.0.passed.max(1e-9)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_report::{CycleSample, Sample, StepMark};

    #[test]
    fn the_built_in_scenarios_are_checked_and_short() {
        for world in [World::Lab, World::Sim] {
            let demo = demo(world).expect("they are checked");
            let scenarios = demo.scenarios();
            let seconds: f64 =
                scenarios.iter().map(|(_, scenario)| scenario.duration.as_secs_f64()).sum();
            assert!(seconds <= 30.0, "{seconds} s");
            assert!(scenarios.iter().all(|(_, scenario)| !scenario.expectations.is_empty()));
        }
    }

    #[test]
    fn the_sentence_follows_the_numbers() {
        let sample = |t_s: f64, class: &str, passed: u64, each: u64| Sample {
            t_s,
            window_s: 1.0,
            class: class.into(),
            offered: Some(1_000),
            cycles: Some(CycleSample {
                spent: passed * each,
                passed,
                hertz: 1_000,
                ..CycleSample::default()
            }),
            ..Sample::default()
        };
        let mark = |name: &str, at_s| StepMark { name: name.into(), at_s, changes: Vec::new() };
        let run = Run {
            name: "test".into(),
            sample_s: 1.0,
            duration_s: 2.0,
            steps: vec![mark("classical", 0.0), mark("fair", 1.0)],
            samples: vec![
                sample(1.0, "light", 100, 10),
                sample(1.0, "heavy", 100, 100),
                sample(2.0, "light", 200, 10),
                sample(2.0, "heavy", 20, 100),
            ],
            ..Run::default()
        };
        let said = sentence(&run).expect("two steps");
        assert!(
            said.contains("costs 10.0 times")
                && said.contains("take 91 % of the cycles, with it 50 %"),
            "{said}"
        );
        assert!(said.contains("is 1.000") && said.contains("2.00 times as much"), "{said}");
    }
}
