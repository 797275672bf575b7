//! Cluster scenarios: forwarders behind one switch, simulated by [`evenkeel_cluster::model`], with
//! the results of any other scenario.

mod file;
mod schema;

pub use file::{Claim, ClusterScenario};
pub use schema::Quantity;

use evenkeel_cluster::Variant;
use evenkeel_cluster::model::{ModelConfig, Outcome};
use evenkeel_core::measure::ClassCounters;
use evenkeel_core::{Bytes, Nanos};
use evenkeel_report::{
    Judgement, Parameter, PublishedValue, Report, Run, Sample, StepMark, Verdict,
};
use evenkeel_scenario::{ScenarioError, Term};

use crate::SimError;

/// Runs every case of a cluster scenario; `without` names the mechanism that is switched off.
///
/// # Errors
/// There is no such mechanism, or a case cannot be run.
pub fn run_cluster(
    scenario: &ClusterScenario,
    seed: u64,
    without: Option<&str>,
) -> Result<Report, SimError> {
    let ablation = match without {
        None => None,
        Some(name) => {
            let found = scenario.ablations.iter().find(|(known, _, _)| known == name);
            let known = scenario.ablations.iter().map(|(known, _, _)| known.as_str());
            let missing = || ScenarioError::no_such_ablation(name, known);
            Some(found.ok_or_else(missing)?)
        }
    };
    let mut run = Run { world: "sim".to_owned(), ..Run::default() };
    let mut outcomes = Vec::new();
    let mut begin = Nanos::ZERO;
    for (index, (name, case)) in scenario.cases.iter().enumerate() {
        let mut model = ablation.map_or(case, |(_, changed, _)| &changed[index]).clone();
        (model.seed, model.cluster.seed) = (seed, seed);
        let outcome = model
            .run()
            .map_err(|source| SimError::Cluster { part: format!("case {name}"), source })?;
        let changes = vec![describe(&model)];
        run.steps.push(StepMark { name: name.clone(), at_s: begin.as_secs_f64(), changes });
        run.parameters.extend(parameters(name, &model, &outcome));
        begin = begin.saturating_add(outcome.time);
        run.samples.extend(samples(&model, &outcome, begin));
        run.sample_s = outcome.time.as_secs_f64();
        outcomes.push((model, outcome));
    }
    run.duration_s = begin.as_secs_f64();
    let judged = scenario.expectations.iter().filter(|claim| match ablation {
        None => true,
        Some((_, _, fails)) => fails.contains(&claim.name),
    });
    let judgements =
        judged.map(|claim| judge(claim, scenario, &outcomes[claim.case], without.is_some()));
    Ok(Report {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        notes: scenario.notes.clone(),
        seed: Some(seed),
        time_scale: 1.0,
        without: without.map(str::to_owned),
        judgements: judgements.collect(),
        runs: vec![run],
        ..Report::default()
    })
}

/// The settings of a case in one line.
#[must_use]
pub fn describe(model: &ModelConfig) -> String {
    let cluster = &model.cluster;
    let announced = match cluster.variant {
        Variant::Single => String::new(),
        Variant::Lazy => format!(" with l {}", cluster.l),
        Variant::Multiple | Variant::Pipelined => {
            format!(" with l {} and p {}", cluster.l, cluster.p)
        }
    };
    let (variant, rule) = (cluster.variant.name(), cluster.rule.name());
    format!("{variant}{announced}, T_br {}, rule {rule}", cluster.t_br)
}

fn parameters(name: &str, model: &ModelConfig, outcome: &Outcome) -> Vec<Parameter> {
    let cluster = &model.cluster;
    let worst = outcome.links.iter().map(|link| link.worst_bytes).max().unwrap_or(0);
    let rows = [
        (
            "forwarders, links, classes",
            format!("{}, {}, {}", cluster.nodes(), cluster.links, cluster.classes()),
        ),
        ("settings", describe(model)),
        ("packets per second of a forwarder", format!("{:.0}", outcome.rate())),
        ("use of the links", format!("{:.1} %", outcome.link_use() * 100.0)),
        ("largest deviation of a class", format!("{worst} B")),
        ("collisions", outcome.collisions.to_string()),
        ("out of step", out_of_step(outcome).to_string()),
    ];
    let row = |(row, value): (&str, String)| Parameter {
        group: name.to_owned(),
        name: row.to_owned(),
        value,
    };
    rows.into_iter().map(row).collect()
}

fn out_of_step(outcome: &Outcome) -> u64 {
    outcome.nodes.iter().map(|node| node.out_of_step).sum()
}

/// One row per link and class: a case is one window.
fn samples(model: &ModelConfig, outcome: &Outcome, end: Nanos) -> Vec<Sample> {
    let classes = model.cluster.classes();
    let row = |link: usize, class: usize| {
        let sent = outcome.sent(link, class);
        Sample {
            t_s: end.as_secs_f64(),
            window_s: outcome.time.as_secs_f64(),
            router: "cluster".to_owned(),
            link: format!("ol{}", link + 1),
            class: format!("class{}", class + 1),
            counts: ClassCounters::of_sent(sent.packets, Bytes(sent.bytes)),
            ..Sample::default()
        }
    };
    (0..model.cluster.links)
        .flat_map(|link| (0..classes).map(move |class| row(link, class)))
        .collect()
}

fn measure(claim: &Claim, outcome: &Outcome) -> (f64, &'static str) {
    let sent = outcome.sent(claim.link, claim.class);
    let classes = outcome.queues.len() / outcome.links.len();
    let all: u64 = (0..classes).map(|class| outcome.sent(claim.link, class).bytes).sum();
    match claim.of {
        Quantity::Rate => (outcome.rate(), "packets/s"),
        Quantity::Packets => (sent.packets as f64, "packets"),
        Quantity::Bytes => (sent.bytes as f64, ""),
        Quantity::Share => (if all == 0 { 0.0 } else { sent.bytes as f64 / all as f64 }, ""),
        Quantity::Deviation => (outcome.links[claim.link].worst_bytes as f64, ""),
        Quantity::Use => (outcome.link_use(), ""),
        Quantity::Collisions => (outcome.collisions as f64, "packets"),
        Quantity::OutOfStep => (out_of_step(outcome) as f64, ""),
    }
}

fn judge(
    claim: &Claim,
    scenario: &ClusterScenario,
    case: &(ModelConfig, Outcome),
    without: bool,
) -> Judgement {
    let (value, unit) = measure(claim, &case.1);
    let (least, most) = claim.range;
    let holds = (least..=most).contains(&value);
    let of = claim.of.name();
    let quantity = match claim.of {
        Quantity::Rate | Quantity::Use | Quantity::Collisions | Quantity::OutOfStep => {
            of.to_owned()
        }
        Quantity::Deviation => format!("{of}(ol{})", claim.link + 1),
        Quantity::Packets | Quantity::Bytes | Quantity::Share => {
            format!("{of}(ol{}/class{})", claim.link + 1, claim.class + 1)
        }
    };
    let quantity = format!("{quantity}@{}", scenario.cases[claim.case].0);
    let published = claim.published.then(|| PublishedValue {
        quantity: quantity.clone(),
        unit: unit.to_owned(),
        published: claim.reference,
        measured: Some(value),
        place: None,
    });
    let expression = match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("{least} <= {quantity} <= {most}"),
        (true, false) => format!("{quantity} >= {least}"),
        _ => format!("{quantity} <= {most}"),
    };
    Judgement {
        run: String::new(),
        name: claim.name.clone(),
        claim: claim.claim.clone(),
        expression,
        measured: vec![Term { text: quantity, value: Some(value), unit }],
        published: published.into_iter().collect(),
        verdict: Verdict::of(Some(holds), true, without),
        note: claim.note.clone(),
    }
}
