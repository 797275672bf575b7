//! A scenario with `[core]`: windows to samples, where packets went to notes, expectations judged.

use std::collections::BTreeMap;

use evenkeel_core::measure::ClassCounters;
use evenkeel_core::reference::{CoreBudget, CoreFlow};
use evenkeel_core::{Bytes, Nanos, Reason};
use evenkeel_report::run::{TopologyNode, Wire};
use evenkeel_report::{CoreSample, CycleSample, Parameter, Run, Sample, StepMark, Topology};
use evenkeel_scenario::core_model::{CORE, CoreModel, OUT};
use evenkeel_scenario::{Scenario, World};
use evenkeel_world::{audits, describe};

use super::{FlowCounts, PolledCore, kind_of};
use crate::error::SimError;
use crate::outcome::{FlowTotals, Outcome};

/// Lost at the ring: the port's counter, no router's reason.
const RING: &str = "ring_full";

/// Simulates a scenario with `[core]` to its end.
pub(crate) fn run(scenario: &Scenario, model: &CoreModel) -> Result<Outcome, SimError> {
    let mut core = PolledCore::new(model, scenario.seed)?;
    let mut run = Run {
        topology: topology(model),
        parameters: parameters(model),
        steps: scenario
            .steps
            .iter()
            .map(|step| StepMark {
                name: step.name.clone(),
                at_s: step.at.as_secs_f64(),
                changes: Vec::new(),
            })
            .collect(),
        ..describe::run(scenario, "sim")
    };
    let (mut end, mut begin) = (Nanos::ZERO, 0.0);
    let mut before = core.counts().to_vec();
    while end < scenario.duration {
        end = end.saturating_add(scenario.sample).min(scenario.duration);
        core.run_until(end);
        // A round that began is finished: windows end where it ended.
        let now = core.cycles()[0].0 as f64 / model.clock as f64;
        let counts: Vec<FlowCounts> =
            core.counts().iter().zip(&before).map(|(a, b)| a.since(b)).collect();
        run.samples.extend(rows(model, &counts, end.as_secs_f64(), now - begin, end));
        (begin, before) = (now, core.counts().to_vec());
    }
    run.notes.push(where_packets_went(model, &core));
    run.warnings = unexplained(&core);
    run.audits.extend(core.verdict().as_ref().map(audits::of_core));
    let judgements = evenkeel_report::judge::judge(scenario, &run, World::Sim);
    let flows = by_kind(model, core.counts());
    let totals =
        |(counts, kind): (&FlowCounts, &evenkeel_scenario::core_model::CoreFlows)| FlowTotals {
            name: kind.name.clone(),
            sent_packets: counts.offered,
            received_packets: counts.forwarded,
            received_bytes: counts.forwarded * kind.size.0,
            ..FlowTotals::default()
        };
    let packets = flows.iter().map(|counts| counts.offered).sum();
    Ok(Outcome {
        judgements,
        flows: flows.iter().zip(&model.flows).map(totals).collect(),
        events: packets,
        packets,
        simulated: scenario.duration,
        run,
    })
}

impl FlowCounts {
    fn since(&self, before: &Self) -> Self {
        Self {
            offered: self.offered - before.offered,
            lost_at_ring: self.lost_at_ring - before.lost_at_ring,
            refused_cpu: self.refused_cpu - before.refused_cpu,
            refused_link: self.refused_link - before.refused_link,
            lost_at_link: self.lost_at_link - before.lost_at_link,
            forwarded: self.forwarded - before.forwarded,
            cycles: self.cycles - before.cycles,
            waited: self.waited - before.waited,
        }
    }

    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.lost_at_ring += other.lost_at_ring;
        self.refused_cpu += other.refused_cpu;
        self.refused_link += other.refused_link;
        self.lost_at_link += other.lost_at_link;
        self.forwarded += other.forwarded;
        self.cycles += other.cycles;
        self.waited += other.waited;
    }

    fn dropped(&self) -> Vec<(String, u64)> {
        let all = [
            (RING, self.lost_at_ring),
            (Reason::FairdropCpu.name(), self.refused_cpu),
            (Reason::FairdropBandwidth.name(), self.refused_link),
            (Reason::QueueFull.name(), self.lost_at_link),
        ];
        all.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
    }
}

fn by_kind(model: &CoreModel, counts: &[FlowCounts]) -> Vec<FlowCounts> {
    let mut kinds = vec![FlowCounts::default(); model.flows.len()];
    for (number, counts) in counts.iter().enumerate() {
        kinds[kind_of(&model.flows, number)].add(counts);
    }
    kinds
}

/// The rows of a window, and what water filling gives of what arrived in it.
fn rows(
    model: &CoreModel,
    counts: &[FlowCounts],
    t_s: f64,
    window_s: f64,
    end: Nanos,
) -> Vec<Sample> {
    let cost = |number: usize| {
        let kind = &model.flows[kind_of(&model.flows, number)];
        let cost = kind.change.filter(|(at, _)| *at < end).map_or(kind.cost, |(_, then)| then);
        (cost as f64, f64::from(kind.weight))
    };
    let flows: Vec<CoreFlow> = counts
        .iter()
        .enumerate()
        .map(|(number, counts)| {
            let (cost, weight) = cost(number);
            CoreFlow { offered: counts.offered as f64 / window_s, cost, weight }
        })
        .collect();
    let budget = CoreBudget {
        cycles: model.clock as f64,
        poll: f64::from(model.poll) + f64::from(model.round) / f64::from(model.batch),
        refuse: f64::from(model.refuse),
    };
    let fair = budget.shares(&flows);
    let mut cores = vec![CoreSample::default(); model.flows.len()];
    for (number, (admitted, flow)) in fair.admitted.iter().zip(&flows).enumerate() {
        let core = &mut cores[kind_of(&model.flows, number)];
        core.fair_cycles += admitted * flow.cost * window_s;
        core.flows += 1;
        core.squares += (counts[number].cycles as f64).powi(2);
    }
    let row = |((counts, kind), core): ((&FlowCounts, _), CoreSample)| {
        let kind: &evenkeel_scenario::core_model::CoreFlows = kind;
        Sample {
            t_s,
            window_s,
            router: CORE.to_owned(),
            link: OUT.to_owned(),
            class: kind.name.clone(),
            offered: Some(counts.offered),
            counts: ClassCounters::of_sent(
                counts.forwarded,
                Bytes(counts.forwarded * (kind.size.0 - 18)),
            ),
            dropped: counts.dropped(),
            goodput_bytes: Some(counts.forwarded * (kind.size.0 - 18)),
            cycles: Some(CycleSample {
                spent: counts.cycles,
                passed: counts.forwarded + counts.lost_at_link,
                refused: counts.refused_cpu + counts.refused_link,
                refused_cycles: (counts.refused_cpu + counts.refused_link)
                    * u64::from(model.poll + model.refuse),
                hertz: model.clock,
            }),
            core: Some(core),
            ..Sample::default()
        }
    };
    by_kind(model, counts).iter().zip(&model.flows).zip(cores).map(row).collect()
}

fn topology(model: &CoreModel) -> Topology {
    let rule = model.rule.map_or("no dropper", |rule| rule.name());
    let sends = model.flows.iter().map(|kind| format!("{} x {}", kind.flows, kind.name)).collect();
    let node = |name: &str, router, labels| TopologyNode { name: name.to_owned(), router, labels };
    let wire = |a: &str, b: &str, label: String| Wire { ends: [a.to_owned(), b.to_owned()], label };
    let link =
        model.link.map_or(String::new(), |link| evenkeel_core::BitRate(link.rate.0).to_string());
    Topology {
        nodes: vec![
            node("sources", false, sends),
            node(CORE, true, vec![rule.to_owned()]),
            node(OUT, false, Vec::new()),
        ],
        wires: vec![wire("sources", CORE, format!("ring {}", model.ring)), wire(CORE, OUT, link)],
    }
}

fn parameters(model: &CoreModel) -> Vec<Parameter> {
    let of = |group: &str, name: &str, value: String| Parameter {
        group: group.to_owned(),
        name: name.to_owned(),
        value,
    };
    let mut all = vec![
        of("core", "clock", format!("{} MHz", model.clock / 1_000_000)),
        of("core", "burst, ring", format!("{}, {} packets", model.batch, model.ring)),
        of(
            "core",
            "polling",
            format!("{} cycles per packet, {} per burst", model.poll, model.round),
        ),
        of("core", "refusing", format!("{} cycles per packet", model.refuse)),
        of("core", "rule", model.rule.map_or("none".to_owned(), |rule| rule.to_string())),
    ];
    all.extend(model.flows.iter().map(|kind| {
        let value = format!(
            "{} flows, each {} packets/s of {}, {} cycles each, weight {}",
            kind.flows, kind.pps, kind.size, kind.cost, kind.weight
        );
        of("flows", &kind.name, value)
    }));
    all
}

/// Received, lost at the ring, refused, forwarded: the picture of the paper in a sentence.
fn where_packets_went(model: &CoreModel, core: &PolledCore) -> String {
    let mut all = FlowCounts::default();
    core.counts().iter().for_each(|counts| all.add(counts));
    let part = |n: u64| 100.0 * n as f64 / all.offered.max(1) as f64;
    let [cycles, idle, overhead] = core.cycles().map(|cycles| cycles.0 as f64);
    let of: BTreeMap<&str, u64> = [
        ("lost at the ring", all.lost_at_ring),
        ("refused for cycles", all.refused_cpu),
        ("refused for bandwidth", all.refused_link),
        ("lost at the link", all.lost_at_link),
        ("forwarded", all.forwarded),
    ]
    .into();
    let packets: Vec<String> =
        of.iter().map(|(what, n)| format!("{what} {:.1} %", part(*n))).collect();
    format!(
        "Of {} packets: {}. Of the core's cycles: {:.1} % processing, {:.1} % polling and refusing \
         ({:.2} Gcycle/s), {:.1} % idle.",
        all.offered,
        packets.join(", "),
        100.0 * all.cycles as f64 / cycles,
        100.0 * overhead / cycles,
        overhead / cycles * model.clock as f64 / 1e9,
        100.0 * idle / cycles,
    )
}

/// Packets that disappeared.
fn unexplained(core: &PolledCore) -> Vec<String> {
    let mut all = FlowCounts::default();
    core.counts().iter().for_each(|counts| all.add(counts));
    let gone: u64 = all.dropped().iter().map(|(_, n)| n).sum();
    let known = gone + all.forwarded + core.waiting();
    if known == all.offered {
        return Vec::new();
    }
    vec![format!("core: {} packets arrived, {known} are known of", all.offered)]
}
