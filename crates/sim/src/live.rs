//! Live cluster scenarios in virtual time: the forwarders' engines at a modelled switch. There are
//! no balancers, flows or strangers; what they are expected to do is left to the lab.

use evenkeel_cluster::model::{ModelConfig, Outcome};
use evenkeel_core::{BitRate, Nanos};
use evenkeel_report::Report;
use evenkeel_world::audits;
use evenkeel_world::live::{LiveScenario, LiveStep, Measured, StepMeasured, report};

use crate::error::SimError;

/// Runs the steps of a live cluster scenario that have a cluster, each from the beginning.
///
/// # Errors
/// There is no such mechanism, or a step cannot be simulated.
pub fn run_live(
    scenario: &LiveScenario,
    seed: u64,
    time_scale: f64,
    without: Option<&str>,
) -> Result<Report, SimError> {
    let scenario = match without {
        None => scenario.clone(),
        Some(name) => scenario.without(name)?,
    };
    let mut measured = Measured { world: "sim", ..Measured::default() };
    let mut cycle_ms = None;
    for step in &scenario.steps {
        let time = Nanos((step.time.0 as f64 * time_scale) as u64);
        let Some(model) = model(&scenario, step, time, seed) else {
            measured.steps.push(unscheduled(&scenario, step, time));
            continue;
        };
        let invalid = |source| SimError::Cluster { part: format!("step {}", step.name), source };
        let warm_up =
            ModelConfig { duration: model.duration.saturating_sub(time), ..model.clone() };
        let (before, after) = (warm_up.run().map_err(invalid)?, model.run().map_err(invalid)?);
        let of = step_of(&scenario, &before, &after, cycle_ms);
        cycle_ms = of.number("cycle_ms");
        measured.steps.push(of);
    }
    measured
        .notes
        .push("In virtual time: the forwarders' engines at a modelled switch.".to_owned());
    Ok(report(&scenario, &measured, without))
}

/// What goes by before a step is measured, besides its `settle`: a cluster waits three times its
/// longest cycle before the first.
const WARM_UP: Nanos = Nanos::from_secs(5);

fn model(scenario: &LiveScenario, step: &LiveStep, time: Nanos, seed: u64) -> Option<ModelConfig> {
    let section = step.config.cluster.as_ref()?;
    let mut cluster = evenkeel_router::cluster_config(section);
    cluster.seed = seed;
    let timing = cluster.timing;
    let mut model = ModelConfig::paper(cluster);
    // Not the paper's machines.
    model.cluster.timing = timing;
    let forwarders = scenario.nodes[1];
    (model.per_packet, model.per_exchange, model.per_decision) =
        (Nanos(5_000), Nanos(10_000), Nanos(1_000));
    model.broadcast = Nanos::from_micros(100);
    model.loss = (step.loss * 4_294_967_296.0) as u32;
    model.sizes = vec![(u16::try_from(scenario.size.0).unwrap_or(u16::MAX), 1)];
    let absent = step.absent.clone().unwrap_or_default();
    let holds = |number: usize| {
        if absent.contains(&(number as u16)) { 0 } else { u8::MAX >> (8 - scenario.classes.len()) }
    };
    model.holds = (1..=forwarders).map(holds).collect();
    if step.offer < 1.0 {
        let bits =
            (scenario.size.0 + 14) as f64 * 8.0 * (forwarders * scenario.classes.len()) as f64;
        model.interval = Some(Nanos((bits / (scenario.rate.0 as f64 * step.offer) * 1e9) as u64));
    }
    let begin = WARM_UP + step.settle;
    model.stops = step.kill.iter().map(|number| (usize::from(*number) - 1, begin)).collect();
    (model.seed, model.duration, model.packets) = (seed, begin + time, None);
    Some(model)
}

/// What a longer simulation has beyond its own beginning.
fn step_of(
    scenario: &LiveScenario,
    before: &Outcome,
    after: &Outcome,
    cycle_before: Option<f64>,
) -> StepMeasured {
    let arrived = (0..scenario.nodes[2]).map(|link| {
        let of = |class| {
            let (before, after) = (before.sent(link, class), after.sent(link, class));
            (after.packets - before.packets, after.bytes - before.bytes)
        };
        (0..scenario.classes.len()).map(of).collect()
    });
    let time = after.time - before.time;
    let cycles =
        |outcome: &Outcome| outcome.nodes.iter().map(|node| node.cycles).max().unwrap_or(0);
    let cycle_ms = time.as_secs_f64() * 1e3 / (cycles(after) - cycles(before)).max(1) as f64;
    let missing = |outcome: &Outcome| outcome.nodes.iter().map(|node| node.missing).sum::<u64>();
    let silence = after.longest_pause.as_secs_f64() * 1e3;
    let mut numbers = vec![
        ("collisions", (after.collisions - before.collisions) as f64),
        ("silence_ms", silence),
        ("cycle_ms", cycle_ms),
        ("missing", (missing(after) - missing(before)) as f64),
    ];
    let audits =
        after.audits.iter().zip(&before.audits).zip(1..).map(|((after, before), number)| {
            audits::of_engine(&format!("f{number}"), &after.since(before))
        });
    let audits: Vec<_> = audits.collect();
    numbers.push(("unfair", audits.iter().map(|row| row.violations as f64).sum()));
    numbers.push(("judged", audits.iter().map(|row| row.judged).sum()));
    numbers.extend(cycle_before.map(|cycle_ms| ("silence_cycles", silence / cycle_ms)));
    StepMeasured { time, arrived: arrived.collect(), numbers, audits, not_judged: None }
}

/// Without a cluster the links carry what they can, each class as much.
fn unscheduled(scenario: &LiveScenario, step: &LiveStep, time: Nanos) -> StepMeasured {
    let size = scenario.size.0;
    let of = |rate: &BitRate| {
        let sent = (scenario.rate.0 as f64 * step.offer).min(rate.0 as f64);
        let packets = sent / ((size + 14) * 8) as f64 * time.as_secs_f64();
        let each = (packets / scenario.classes.len() as f64) as u64;
        vec![(each, each * size); scenario.classes.len()]
    };
    let arrived = scenario.rates.iter().map(of).collect();
    StepMeasured { time, arrived, ..StepMeasured::default() }
}
