//! Demonstrations, and the first of them: the testbed of the LCT papers, the same load through
//! several disciplines.
//!
//! A demo is a set of scenario files, built in; each can also be run by itself with `evenkeel lab`
//! and `evenkeel sim`. What both worlds show of it, and how, is here; what tells one demo from
//! another is `Show`. The [other](crate::fairdrop_demo) is of FairDrop.

use std::path::{Path, PathBuf};

use evenkeel_core::BitRate;
use evenkeel_core::packet::ETHERNET_WIRE_OVERHEAD;
use evenkeel_report::{ClassStats, Judgement, Report, Run, WriteError, judge, table};
use evenkeel_scenario::{Scenario, World};
use evenkeel_settings::Diagnostics;

use crate::describe;

/// A scenario file built in.
pub(crate) struct BuiltIn {
    /// Name of its column.
    pub(crate) name: &'static str,
    /// The file, for messages, and what it says.
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
}

/// The file of the repository as a [`BuiltIn`] of this name.
macro_rules! built_in {
    ($name:literal, $file:literal) => {
        $crate::demo::BuiltIn {
            name: $name,
            file: $file,
            text: include_str!(concat!("../../../", $file)),
        }
    };
}
pub(crate) use built_in;

/// In the order of the table.
const SCENARIOS: [BuiltIn; 4] = [
    built_in!("FIFO", "scenarios/demo/fifo.toml"),
    built_in!("WFQ/ALTQ, ring 128", "scenarios/demo/wfq-ring128.toml"),
    built_in!("WFQ/ALTQ, ring 4", "scenarios/demo/wfq-ring4.toml"),
    built_in!("LCT-UC, ring 128", "scenarios/demo/lct.toml"),
];

/// The step that the table shows: the only one.
const STEP: &str = "start";

/// Outcome of the demo.
#[derive(Clone, Debug)]
pub struct DemoOutcome {
    /// One run per discipline.
    pub runs: Vec<Run>,
    /// The expectations of the built-in scenarios, judged.
    pub judgements: Vec<Judgement>,
    /// The report page.
    pub report: PathBuf,
}

impl DemoOutcome {
    /// Whether every expectation held.
    #[must_use]
    pub fn passed(&self) -> bool {
        judge::bad(&self.judgements).is_empty()
    }

    /// 0 if every expectation held, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.passed())
    }
}

/// The demo's scenarios with the names of their columns.
pub type Scenarios = Vec<(&'static str, Scenario)>;

/// Scenarios with the names of their columns.
type Named<'a> = &'a [(&'static str, Scenario)];

/// The differences between demos.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    /// The report's name and title.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What is done, in words.
    pub(crate) introduction: fn(Named<'_>, World) -> String,
    /// The numbers, for the terminal.
    pub(crate) table: fn(&[Run]) -> String,
    /// What is to be seen in them.
    pub(crate) seen: fn(Named<'_>, &[Run]) -> Vec<String>,
}

/// Disciplines compared.
const DISCIPLINES: Show = Show {
    name: "demo",
    title: "The same load through FIFO, WFQ/ALTQ and LCT-UC",
    introduction,
    table: |runs| table::compare(runs, STEP),
    seen: |scenarios, runs| {
        let links = describe::used_links(&scenarios[0].1);
        sentences(runs, links.iter().find_map(|(.., link)| link.core.rate).unwrap_or(BitRate::ZERO))
    },
};

/// What was measured so far.
#[derive(Debug)]
pub struct Demo {
    show: Show,
    scenarios: Scenarios,
    world: World,
    runs: Vec<Run>,
    judgements: Vec<Judgement>,
}

impl Demo {
    /// The demo of disciplines in `world`, of which nothing was measured.
    ///
    /// # Errors
    /// What is wrong with a built-in scenario: a mistake in this program.
    pub fn disciplines(world: World) -> Result<Self, Diagnostics> {
        Self::new(DISCIPLINES, &SCENARIOS, world)
    }

    pub(crate) fn new(show: Show, built_in: &[BuiltIn], world: World) -> Result<Self, Diagnostics> {
        let parse = |BuiltIn { name, file, text }: &BuiltIn| {
            Scenario::parse(text, file, Path::new(".")).map(|scenario| (*name, scenario))
        };
        Ok(Self {
            show,
            scenarios: built_in.iter().map(parse).collect::<Result<_, _>>()?,
            world,
            runs: Vec::new(),
            judgements: Vec::new(),
        })
    }

    /// What is to be run.
    #[must_use]
    pub fn scenarios(&self) -> &Scenarios {
        &self.scenarios
    }

    /// What is done, in words.
    #[must_use]
    pub fn introduction(&self) -> String {
        (self.show.introduction)(&self.scenarios, self.world)
    }

    /// Takes in what came out of the next scenario.
    pub fn measured(&mut self, mut run: Run) {
        let Some((name, scenario)) = self.scenarios.get(self.runs.len()) else { return };
        run.name = (*name).to_owned();
        self.judgements.extend(judge::judge(scenario, &run, self.world));
        self.runs.push(run);
    }

    /// Prints the table on standard output, with what is to be seen in it unless `quiet`, and
    /// writes the report into `folder`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(self, folder: &Path, quiet: bool) -> Result<DemoOutcome, WriteError> {
        let Self { show, scenarios, runs, judgements, .. } = self;
        println!("{}", (show.table)(&runs));
        let seen = (show.seen)(&scenarios, &runs);
        let report = Report {
            name: show.name.into(),
            title: show.title.into(),
            source: scenarios[0].1.source.clone(),
            notes: seen.join("\n\n"),
            seed: Some(scenarios[0].1.seed),
            time_scale: 1.0,
            runs: runs.clone(),
            judgements: judgements.clone(),
            ..Report::default()
        };
        let files = evenkeel_report::write_all(folder, &report)?;
        let page = files.last().cloned().unwrap_or_else(|| folder.to_owned());
        if !quiet {
            for sentence in &seen {
                println!("{sentence}");
            }
            println!("\nReport: {}", page.display());
        }
        for run in &runs {
            for warning in &run.warnings {
                eprintln!("warning: {}: {warning}", run.name);
            }
        }
        eprint!("{}", table::judgements(&judge::bad(&judgements)));
        Ok(DemoOutcome { runs, judgements, report: page })
    }
}

/// What is offered, and what each discipline was told.
fn introduction(scenarios: &[(&str, Scenario)], world: World) -> String {
    let mut text = match world {
        World::Lab => {
            "Three hosts send to a sink through a router. Each is a network namespace of \
                       this machine; the packets are real.\n"
        }
        World::Sim => {
            "Three hosts send to a sink through a router. All of it is simulated, in \
                       virtual time; the router's code is that of the real one.\n"
        }
    }
    .to_owned();
    for traffic in &scenarios[0].1.traffic {
        text += &format!("  {}\n", describe::offered(traffic));
    }
    for (name, scenario) in scenarios {
        for (_, config, link) in describe::used_links(scenario) {
            let told = describe::link_parameters(config, link);
            let told: Vec<_> = told
                .iter()
                .filter(|(key, _)| !["discipline", "dequeue time"].contains(key))
                .map(|(key, value)| format!("{key}: {value}"))
                .collect();
            text += &format!("  {name}\n    {}\n", told.join("; "));
        }
    }
    text + "\n"
}

/// What the reader sees in the table, from its numbers.
fn sentences(runs: &[Run], rate: BitRate) -> Vec<String> {
    let class = |run: usize, class: &str| -> Option<ClassStats> {
        let steps = runs.get(run)?.step_stats();
        let step = steps.iter().find(|step| step.step == STEP)?;
        step.classes.iter().find(|stats| stats.class == class).cloned()
    };
    let ratio = |run| Some(class(run, "video")?.sent / class(run, "bulk")?.sent.max(1.0));
    let loss = |run, name| class(run, name).map(|stats| lost(&stats));
    let p50 = |run, name| Some(class(run, name)?.end_to_end?.p50_us / 1e3);
    let all = || -> Option<Vec<String>> {
        let mut said = vec![format!(
            "FIFO knows no classes: video and bulk get {}, and voice loses {} of its packets \
             although it sends so little.",
            shares(ratio(0)?),
            percent(loss(0, "voice")?)
        )];
        let (large, small) = (ratio(1)?, ratio(2)?);
        said.push(if alike(large) && !alike(small) {
            format!(
                "WFQ/ALTQ with weights of 10 to 1 and queues of 50 packets changes nothing for \
                 video ({}, {} lost): at each refill the transmit ring of 128 \
                 takes all that the queues hold. The same weights behind a ring of 4 give {} and \
                 {} lost: it was the ring.",
                shares(large),
                percent(loss(1, "video")?),
                shares(small),
                percent(loss(2, "video")?)
            )
        } else {
            format!(
                "WFQ/ALTQ with weights of 10 to 1 gives video and bulk {} behind a ring of 128 and \
                 {} behind a ring of 4.",
                shares(large),
                shares(small)
            )
        });
        said.push(format!(
            "LCT-UC behind the same ring of 128 gives {}: video loses {} and takes {:.1} ms from \
             host to host (WFQ/ALTQ there: {:.1} ms), because bulk may send only once per X_DELAY. \
             The price: the link is busy {} of the time.",
            shares(ratio(3)?),
            percent(loss(3, "video")?),
            p50(3, "video")?,
            p50(1, "video")?,
            percent(busy(runs.get(3)?, rate))
        ));
        Some(said)
    };
    all().unwrap_or_else(|| vec!["Too few samples to say what is to be seen.".to_owned()])
}

/// Part of the time for which the link was sending.
fn busy(run: &Run, rate: BitRate) -> f64 {
    let steps = run.step_stats();
    let classes = steps.iter().filter(|step| step.step == STEP).flat_map(|step| &step.classes);
    let overhead = ETHERNET_WIRE_OVERHEAD.0 as f64 * 8.0;
    classes.map(|class| class.sent_bits + class.sent * overhead).sum::<f64>()
        / (rate.0 as f64).max(1.0)
}

/// Part of the packets that reached the link and were dropped there.
fn lost(stats: &ClassStats) -> f64 {
    stats.dropped / (stats.sent + stats.dropped).max(1.0)
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn alike(ratio: f64) -> bool {
    (0.9..=1.1).contains(&ratio)
}

/// A ratio of two shares in words.
fn shares(ratio: f64) -> String {
    if alike(ratio) { "the same".to_owned() } else { format!("{ratio:.1} to 1") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Bytes;
    use evenkeel_core::measure::ClassCounters;
    use evenkeel_report::{Delays, Sample, StepMark};

    #[test]
    fn the_built_in_scenarios_offer_the_same_load_for_less_than_a_minute() {
        let demo = Demo::disciplines(World::Lab).expect("they are checked");
        let scenarios = demo.scenarios();
        let seconds: f64 =
            scenarios.iter().map(|(_, scenario)| scenario.duration.as_secs_f64()).sum();
        assert!(seconds <= 40.0, "{seconds} s of measuring leave no time for the rest of a minute");
        // All but where it stands.
        let offered = |scenario: &Scenario| {
            let (mut traffic, mut wires) = (scenario.traffic.clone(), scenario.wires.clone());
            traffic.iter_mut().for_each(|traffic| traffic.place.clear());
            wires.iter_mut().for_each(|wire| wire.place.clear());
            (traffic, wires)
        };
        for (name, scenario) in scenarios {
            assert_eq!(
                offered(scenario),
                offered(&scenarios[0].1),
                "{name}: the same load on the same wires"
            );
            assert!(!scenario.expectations.is_empty(), "{name}: what is shown is checked");
        }
        let text = demo.introduction();
        for told in [
            "60 Mbit/s",
            "weight: bulk 100, video 1000",
            "x_delay: bulk 400us",
            "slots 128",
            "slots 4",
        ] {
            assert!(text.contains(told), "{told} in:\n{text}");
        }
    }

    /// A run in which bulk, video and voice got so many packets per second of 5000, 5000 and 600.
    fn run(sent: [u64; 3], p50_us: u64) -> Run {
        let samples = ["bulk", "video", "voice"].iter().zip(sent).zip([5_000, 5_000, 600]).map(
            |((class, sent), offered)| {
                let delays = Delays {
                    count: sent,
                    sum_ns: sent * p50_us * 1_000,
                    max_ns: p50_us * 1_000,
                    buckets: vec![(p50_us * 1_000, sent)],
                };
                Sample {
                    t_s: 1.0,
                    window_s: 1.0,
                    router: "r1".into(),
                    link: "sink".into(),
                    class: (*class).into(),
                    offered: Some(offered),
                    counts: ClassCounters::of_sent(sent, Bytes(sent * 1_428)),
                    dropped: vec![("queue_full".into(), offered - sent)],
                    end_to_end: Some(delays.clone()),
                    transit: delays,
                    ..Sample::default()
                }
            },
        );
        let steps = vec![StepMark { name: STEP.into(), at_s: 0.0, changes: Vec::new() }];
        Run { sample_s: 1.0, duration_s: 1.0, steps, samples: samples.collect(), ..Run::default() }
    }

    #[test]
    fn the_sentences_follow_the_numbers() {
        let rate = BitRate::from_mbps(100);
        let runs = [
            run([4_000, 4_100, 450], 7_000),
            run([4_000, 4_000, 600], 11_000),
            run([3_000, 5_000, 600], 600),
            run([2_000, 5_000, 600], 200),
        ];
        let said = sentences(&runs, rate);
        assert!(said[0].contains("get the same, and voice loses 25 %"), "{}", said[0]);
        assert!(said[1].contains("changes nothing for video (the same, 20 % lost)"), "{}", said[1]);
        assert!(said[1].contains("ring of 4 give 1.7 to 1 and 0 % lost"), "{}", said[1]);
        assert!(
            said[2].contains("gives 2.5 to 1: video loses 0 % and takes 0.2 ms"),
            "{}",
            said[2]
        );
        // (2000 + 5000 + 600) packets of 1466 bytes on the wire.
        assert!(said[2].contains("busy 89 % of the time"), "{}", said[2]);
    }

    #[test]
    fn nothing_is_claimed_that_the_numbers_do_not_show() {
        let runs = [
            run([4_000, 4_100, 450], 7_000),
            run([2_000, 5_000, 600], 9_000),
            run([3_000, 5_000, 600], 600),
            run([2_000, 5_000, 600], 200),
        ];
        let said = sentences(&runs, BitRate::from_mbps(100));
        assert!(!said[1].contains("it was the ring"), "{}", said[1]);
        assert!(
            said[1].contains("2.5 to 1 behind a ring of 128 and 1.7 to 1 behind a ring of 4"),
            "{}",
            said[1]
        );
        assert_eq!(sentences(&[], BitRate::ZERO).len(), 1);
    }
}
