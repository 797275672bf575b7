//! From what a world has measured to a report.

use evenkeel_core::measure::ClassCounters;
use evenkeel_core::{Bytes, Nanos};
use evenkeel_report::{AuditRow, Judgement, Parameter, Report, Run, Sample, StepMark, Verdict};
use evenkeel_scenario::Term;

use super::tables::{Quantity, Relation};
use super::{LiveClaim, LiveScenario};

/// What a world has measured of all steps.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// `lab` or `sim`.
    pub world: &'static str,
    /// By step.
    pub steps: Vec<StepMeasured>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// What a world has measured of one step.
#[derive(Clone, Debug, Default)]
pub struct StepMeasured {
    /// How long was measured.
    pub time: Nanos,
    /// Packets and their IP bytes that reached the next hops in that time, by link, then class.
    pub arrived: Vec<Vec<(u64, u64)>>,
    /// Other numbers, by the name of what an expectation can be of. What this world cannot see is
    /// not there.
    pub numbers: Vec<(&'static str, f64)>,
    /// What the forwarders' audits found in that time.
    pub audits: Vec<AuditRow>,
    /// Why a claim that does not hold says nothing of the routers: others had the processors, or
    /// the capture has holes.
    pub not_judged: Option<String>,
}

impl StepMeasured {
    /// A number that the world has seen.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn bytes(&self) -> f64 {
        self.arrived.iter().flatten().map(|(_, bytes)| *bytes as f64).sum()
    }

    /// The largest relative difference of a class's part of a link's bytes from its weight's,
    /// percent.
    fn share_error(&self, weights: &[u16]) -> f64 {
        let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut worst = 0.0_f64;
        for link in &self.arrived {
            let bytes: f64 = link.iter().map(|(_, bytes)| *bytes as f64).sum();
            for ((_, of_class), weight) in link.iter().zip(weights) {
                let part = *of_class as f64 / bytes.max(1.0);
                worst = worst.max((part / (f64::from(*weight) / all) - 1.0).abs() * 100.0);
            }
        }
        worst
    }
}

/// A number of a step; `None` if this world does not see it.
fn number(scenario: &LiveScenario, measured: &Measured, claim: &LiveClaim) -> Option<f64> {
    let (step, of) = (scenario.steps.get(claim.step)?, measured.steps.get(claim.step)?);
    match claim.of {
        Quantity::ShareError => Some(of.share_error(&step.weights)),
        Quantity::Throughput => Some(throughput(scenario, of)),
        Quantity::RelativeThroughput => {
            let to = throughput(scenario, measured.steps.get(claim.to?)?);
            (to > 0.0).then(|| throughput(scenario, of) / to)
        }
        other => of.number(other.name()),
    }
}

/// Bytes that arrived, in parts of what the links carry: a packet takes 14 bytes more than its IP
/// length there.
fn throughput(scenario: &LiveScenario, of: &StepMeasured) -> f64 {
    let per_second = of.bytes() * 8.0 / of.time.as_secs_f64().max(1e-9);
    let size = scenario.size.0 as f64;
    let all: u64 = scenario.rates.iter().map(|rate| rate.0).sum();
    let most = all as f64 * size / (size + 14.0);
    per_second / most
}

/// Judges every claim that the world can judge. `without`: they must fail.
#[must_use]
pub fn judge(scenario: &LiveScenario, measured: &Measured, without: bool) -> Vec<Judgement> {
    let judged = scenario.expectations.iter().filter_map(|claim| {
        let seen = number(scenario, measured, claim);
        // What a world never sees is left to the other one; the simulator has no strangers.
        if measured.world == "sim" && (seen.is_none() || scenario.steps[claim.step].intruder) {
            return None;
        }
        let holds = seen.is_some_and(|seen| match claim.is {
            Relation::AtLeast => seen >= claim.value,
            Relation::AtMost => seen <= claim.value,
        });
        let mut verdict = Verdict::of(Some(holds), true, without);
        let mut note = claim.note.clone();
        let steps = [Some(claim.step), claim.to].into_iter().flatten();
        let why = steps.filter_map(|step| measured.steps.get(step)?.not_judged.as_ref()).next();
        if let (Verdict::Fails, Some(_), Some(why)) = (verdict, seen, why) {
            verdict = Verdict::NotJudged;
            note = format!("not judged: {why}");
        }
        let place = &scenario.steps[claim.step].name;
        let of = claim.of.name();
        let quantity = match claim.to {
            Some(to) => format!("{of}@{place} to {}", scenario.steps[to].name),
            None => format!("{of}@{place}"),
        };
        let sign = match claim.is {
            Relation::AtLeast => ">=",
            Relation::AtMost => "<=",
        };
        Some(Judgement {
            run: String::new(),
            name: claim.name.clone(),
            claim: claim.claim.clone(),
            expression: format!("{quantity} {sign} {}", claim.value),
            measured: vec![Term { text: quantity, value: seen, unit: "" }],
            published: Vec::new(),
            verdict,
            note,
        })
    });
    judged.collect()
}

/// The whole result, judged.
#[must_use]
pub fn report(scenario: &LiveScenario, measured: &Measured, without: Option<&str>) -> Report {
    let mut run =
        Run { world: measured.world.to_owned(), notes: measured.notes.clone(), ..Run::default() };
    let mut begin = 0.0;
    for (step, of) in scenario.steps.iter().zip(&measured.steps) {
        let changes = if step.told.is_empty() { Vec::new() } else { vec![step.told.clone()] };
        run.steps.push(StepMark { name: step.name.clone(), at_s: begin, changes });
        let mut tell = |name: &str, value: String| {
            run.parameters.push(Parameter {
                group: step.name.clone(),
                name: name.to_owned(),
                value,
            });
        };
        tell("offered", format!("{} of what the links carry", step.offer));
        tell("throughput", format!("{:.4}", throughput(scenario, of)));
        if step.config.cluster.is_some() && step.offer > 1.0 {
            tell("share error", format!("{:.3} %", of.share_error(&step.weights)));
        }
        for (name, value) in &of.numbers {
            tell(&name.replace('_', " "), format!("{}", (value * 1000.0).round() / 1000.0));
        }
        let names = of.audits.iter().map(|row| {
            let audited = format!("{}, {}", row.of, step.name);
            AuditRow { of: audited, ..row.clone() }
        });
        run.audits.extend(names);
        let window_s = of.time.as_secs_f64();
        begin += window_s;
        for (link, classes) in of.arrived.iter().enumerate() {
            for ((packets, bytes), class) in classes.iter().zip(&scenario.classes) {
                run.samples.push(Sample {
                    t_s: begin,
                    window_s,
                    router: "cluster".to_owned(),
                    link: format!("ol{}", link + 1),
                    class: class.clone(),
                    counts: ClassCounters::of_sent(*packets, Bytes(*bytes)),
                    ..Sample::default()
                });
            }
        }
        run.sample_s = window_s;
    }
    run.duration_s = begin;
    Report {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        notes: scenario.notes.clone(),
        seed: Some(scenario.seed),
        time_scale: 1.0,
        without: without.map(str::to_owned),
        judgements: judge(scenario, measured, without.is_some()),
        runs: vec![run],
        ..Report::default()
    }
}
