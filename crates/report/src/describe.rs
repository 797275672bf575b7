//! What a scenario will run, said for people: topology, parameters, steps.

use evenkeel_config::{DisciplineConfig, LinkConfig, RouterConfig, rate_text, size_text, time_text};
use evenkeel_core::Nanos;
use evenkeel_core::link::Refill;
use evenkeel_core::schedule::MultiBacklog;
use evenkeel_core::schedule::wfq_altq::{DropRule, QueueSelect};
use evenkeel_scenario::{Scenario, SetChange, Tool, Traffic, TrafficKind, World};

use crate::run::{Node, Parameter, Run, StepMark, Topology, Wire};

impl Run {
    /// A run of `scenario` before anything was measured: times, steps, topology and parameters as the scenario has them.
    #[must_use]
    pub fn of_scenario(scenario: &Scenario, world: World) -> Self {
        Self {
            name: scenario.without.as_ref().map_or_else(String::new, |name| format!("without: {name}")),
            world: match world {
                World::Lab => "lab",
                World::Sim => "sim",
            }
            .to_owned(),
            sample_s: scenario.sample.as_secs_f64(),
            settle_s: scenario.settle.as_secs_f64(),
            duration_s: scenario.duration.as_secs_f64(),
            steps: scenario
                .steps
                .iter()
                .map(|step| StepMark {
                    name: step.name.clone(),
                    at_s: step.at.as_secs_f64(),
                    changes: step.set.iter().map(|set| change_text(scenario, set)).collect(),
                })
                .collect(),
            topology: topology(scenario),
            parameters: parameters(scenario),
            ..Self::default()
        }
    }
}

/// `x_delay class3 10us`, with router and link in front where there are several.
fn change_text(scenario: &Scenario, set: &SetChange) -> String {
    let place =
        if scenario.routers.len() > 1 { format!("{}/{} ", set.router, set.link) } else { String::new() };
    let class = set.class.as_ref().map_or_else(String::new, |class| format!("{class} "));
    format!("{place}{} {class}{}", set.knob, set.value)
}

fn topology(scenario: &Scenario) -> Topology {
    let hosts = scenario.hosts.iter().map(|host| Node {
        name: host.name.clone(),
        router: false,
        labels: scenario
            .traffic
            .iter()
            .filter(|traffic| traffic.from == host.name)
            .map(|traffic| match &traffic.class {
                Some(class) => format!("{class}: {}", rate_text(traffic.rate)),
                None => format!("{}: {}", traffic.name, rate_text(traffic.rate)),
            })
            .collect(),
    });
    let routers = scenario.routers.iter().map(|router| Node {
        name: router.name.clone(),
        router: true,
        labels: shown_links(&router.config)
            .map(|link| format!("{}: {}", link.port, discipline_line(&link.discipline)))
            .collect(),
    });
    Topology {
        nodes: hosts.chain(routers).collect(),
        wires: scenario
            .wires
            .iter()
            .map(|wire| {
                let paced = wire.ends.iter().zip(wire.ends.iter().rev()).find_map(|(here, there)| {
                    let router = scenario.router(&here.node)?;
                    let link = router.config.link(&there.node)?;
                    link.rate.map(|rate| format!("{}, ring {}", rate_text(rate), link.ring.slots))
                });
                Wire {
                    ends: [wire.ends[0].node.clone(), wire.ends[1].node.clone()],
                    label: paced.unwrap_or_default(),
                }
            })
            .collect(),
    }
}

/// Links that the scenario says something about: paced ones, or with a discipline that treats classes differently.
fn shown_links(config: &RouterConfig) -> impl Iterator<Item = &LinkConfig> {
    config
        .links
        .iter()
        .filter(|link| link.rate.is_some() || !matches!(link.discipline, DisciplineConfig::Fifo(_)))
}

/// `LCT-UC, queue 50`.
fn discipline_line(discipline: &DisciplineConfig) -> String {
    match discipline {
        DisciplineConfig::Fifo(c) => format!("FIFO, queue {}", c.limit),
        DisciplineConfig::Lct(c) => format!("LCT-UC, queue {}", c.limit),
        DisciplineConfig::WfqAltq(c) => match c.drop {
            DropRule::TailPerQueue { limit } => format!("WFQ/ALTQ, queue {limit}"),
            DropRule::LongestHead { high_water } => format!("WFQ/ALTQ, {}", size_text(high_water)),
        },
    }
}

fn parameters(scenario: &Scenario) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for traffic in &scenario.traffic {
        add(&mut parameters, "offered", &traffic.name, traffic_line(traffic));
    }
    for router in &scenario.routers {
        for link in shown_links(&router.config) {
            let group = format!("link {}/{}", router.name, link.port);
            let mut say = |name: &str, value: String| add(&mut parameters, &group, name, value);
            say("discipline", discipline_line(&link.discipline));
            knobs(&router.config, &link.discipline, &mut say);
            say("rate", link.rate.map_or_else(|| "unpaced".to_owned(), rate_text));
            let refill = match link.ring.refill {
                Refill::AnySlot => "refilled when a slot is free",
                Refill::WholeRing => "refilled when all is sent",
            };
            say("transmit ring", format!("{} slots, {refill}", link.ring.slots));
            if link.dequeue_time > Nanos::ZERO {
                say("time of a dequeue", time_text(link.dequeue_time));
            }
            if let Some(shaper) = link.shaper {
                say("shaper", format!("{}, burst {}", rate_text(shaper.rate), size_text(shaper.burst)));
            }
        }
    }
    parameters
}

fn add(parameters: &mut Vec<Parameter>, group: &str, name: &str, value: String) {
    parameters.push(Parameter { group: group.to_owned(), name: name.to_owned(), value });
}

fn traffic_line(traffic: &Traffic) -> String {
    let kind = match traffic.kind {
        TrafficKind::Cbr => "constant",
        TrafficKind::Poisson => "Poisson",
        TrafficKind::OnOff { .. } => "on-off",
    };
    let tool = match traffic.tool {
        Tool::Evenkeel => "",
        Tool::Iperf3 => ", iperf3",
        Tool::DItg => ", D-ITG",
    };
    let protocol = if traffic.ipv6 { ", IPv6" } else { "" };
    format!("{} {kind}, {}{protocol}{tool}", rate_text(traffic.rate), size_text(traffic.size))
}

/// The knobs of a discipline, per class by name.
fn knobs(config: &RouterConfig, discipline: &DisciplineConfig, say: &mut impl FnMut(&str, String)) {
    let per_class = |values: Vec<String>| {
        let pairs = config.class_names().into_iter().zip(values);
        pairs.map(|(class, value)| format!("{class} {value}")).collect::<Vec<_>>().join(", ")
    };
    match discipline {
        DisciplineConfig::Fifo(_) => {}
        DisciplineConfig::WfqAltq(c) => {
            say("weights", per_class(c.weights.iter().map(ToString::to_string).collect()));
            if let QueueSelect::Hash(policy) = c.select {
                say("queue by", format!("hash ({policy:?}) into {}", c.queues));
            }
        }
        DisciplineConfig::Lct(c) => {
            say("X_DELAY", per_class(c.x_delay.iter().copied().map(time_text).collect()));
            say("module 2", if c.module2 { "on" } else { "off" }.to_owned());
            let policy = match c.policy {
                MultiBacklog::MinX => "the smallest X_DELAY goes",
                MultiBacklog::Hold => "all wait",
                MultiBacklog::EarliestDue => "the earliest due goes",
            };
            say("several wait, none due", policy.to_owned());
            if !c.rearm_empty {
                say("empty queues re-armed", "off".to_owned());
            }
            if c.timer_tick > Nanos::ZERO {
                say("timer tick", time_text(c.timer_tick));
            }
        }
    }
}
