//! A scenario in words: parameters and topology for the report.

use std::collections::BTreeSet;

use evenkeel_config::{DisciplineConfig, LinkConfig, RouterConfig};
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::settings::{Settings, Value};
use evenkeel_report::run::{TopologyNode, Wire};
use evenkeel_report::{Parameter, Run, Topology};
use evenkeel_scenario::{
    Ecn, FlowSizes, Quality, Scenario, SetChange, Step, Tool, Traffic, TrafficKind,
};

use crate::arrived::packet_rate;
use crate::source::application;

/// A run of `world` (`lab`, `sim`) without samples: what is known before it starts.
pub fn run(scenario: &Scenario, world: &str) -> Run {
    Run {
        name: scenario.without.clone().unwrap_or_default(),
        world: world.into(),
        sample_s: scenario.sample.as_secs_f64(),
        settle_s: scenario.settle.as_secs_f64(),
        duration_s: scenario.duration.as_secs_f64(),
        topology: topology(scenario),
        parameters: parameters(scenario),
        ..Run::default()
    }
}

/// A change as the report shows it: `sink x_delay class3 = 10us`.
pub fn change(change: &SetChange) -> String {
    let SetChange { link, knob, class, value, .. } = change;
    match class {
        Some(class) => format!("{link} {knob} {class} = {value}"),
        None => format!("{link} {knob} = {value}"),
    }
}

/// The changes of a step in words.
pub fn changes(scenario: &Scenario, step: &Step) -> Vec<String> {
    let wires = |wires: &[usize], what: &str| -> Vec<String> {
        let named = wires.iter().filter_map(|wire| scenario.wires.get(*wire));
        named
            .map(|wire| format!("wire {}/{} {what}", wire.ends[0].node, wire.ends[1].node))
            .collect()
    };
    let mut all = wires(&step.down, "down");
    all.extend(wires(&step.up, "up"));
    all.extend(step.set.iter().map(change));
    all
}

/// The links that flows of the scenario leave by, as (router, its configuration, link).
pub fn used_links(scenario: &Scenario) -> Vec<(&str, &RouterConfig, &LinkConfig)> {
    let mut hops = BTreeSet::new();
    for traffic in &scenario.traffic {
        for path in scenario.paths_between(&traffic.from, &traffic.to) {
            hops.extend(path.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())));
        }
    }
    let mut used = Vec::new();
    for router in &scenario.routers {
        for interface in scenario.interfaces(&router.name) {
            let passes = hops.contains(&(router.name.clone(), interface.peer.clone()));
            if let Some(link) = router.config.link(&interface.name).filter(|_| passes) {
                used.push((router.name.as_str(), &router.config, link));
            }
        }
    }
    used
}

fn parameters(scenario: &Scenario) -> Vec<Parameter> {
    let traffic = scenario.traffic.iter().map(|traffic| Parameter {
        group: "traffic".into(),
        name: traffic.name.clone(),
        value: offered(traffic),
    });
    let links = used_links(scenario).into_iter().flat_map(|(router, config, link)| {
        link_parameters(config, link).into_iter().map(move |(name, value)| Parameter {
            group: format!("link {} of {router}", link.port),
            name: name.to_owned(),
            value,
        })
    });
    let wires =
        scenario.wires.iter().filter(|wire| !wire.quality.is_perfect()).map(|wire| Parameter {
            group: "wires".into(),
            name: format!("{} to {}, each way", wire.ends[0].node, wire.ends[1].node),
            value: quality(&wire.quality),
        });
    traffic.chain(links).chain(wires).collect()
}

/// What a wire does to packets: `10 Mbit/s, queue of 100 packets, delay 5 ms, 1 % lost`.
fn quality(quality: &Quality) -> String {
    let Quality { rate, queue, delay, jitter, loss, reorder } = *quality;
    let percent = |parts: u32| f64::from(parts) / 1e7;
    let told = [
        rate.map(|rate| format!("{rate}, queue of {queue} packets")),
        (delay.0 > 0).then(|| format!("delay {delay}")),
        (jitter.0 > 0).then(|| format!("up to {jitter} more")),
        (loss > 0).then(|| format!("{} % lost", percent(loss))),
        (reorder > 0).then(|| format!("{} % overtake", percent(reorder))),
    ];
    told.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Behind the name of a congestion control.
fn marks(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::None => "",
        Ecn::Ect0 => ", ECT(0)",
        Ecn::Ect1 => ", ECT(1)",
    }
}

/// What a flow offers: `h1 to sink, class1: 100 Mbit/s in packets of 1428 B (8754/s), constant
/// rate`.
pub fn offered(traffic: &Traffic) -> String {
    let Traffic { rate, size, .. } = traffic;
    let (mut from, mut to) = (traffic.from.clone(), traffic.to.clone());
    if let Some(party) = &traffic.party {
        *(if party.sends { &mut from } else { &mut to }) = party.told();
    }
    let class = traffic.class.as_ref().map(|class| format!(", {class}")).unwrap_or_default();
    let kind = match (traffic.tool, traffic.kind) {
        (_, TrafficKind::TcpFlows { congestion, ecn, mean_size, sizes }) => {
            return format!(
                "{from} to {to}{class}: TCP connections ({}{}) that come and go, {rate} of payload \
                 together, {mean_size} each on average ({}), full segments of {size}",
                congestion.name(),
                marks(ecn),
                distribution(sizes)
            );
        }
        (_, TrafficKind::Users { web, users, congestion, ecn }) => {
            let what = if web { "people who read pages" } else { "computers that fetch files" };
            return format!(
                "{from} to {to}{class}: {users} {what} (NGMN), TCP ({}{}), full segments of {size}",
                congestion.name(),
                marks(ecn)
            );
        }
        (_, TrafficKind::Tcp { congestion, ecn, bytes }) => {
            let amount = bytes.map(|bytes| format!(", {bytes}")).unwrap_or_default();
            let (congestion, marks) = (congestion.name(), marks(ecn));
            return format!(
                "{from} to {to}{class}: TCP ({congestion}{marks}){amount}, full segments of {size}"
            );
        }
        (Tool::Iperf3, _) if traffic.tcp => "iperf3, TCP".to_owned(),
        (Tool::Iperf3, _) => "iperf3, UDP".to_owned(),
        (Tool::DItg, _) => "D-ITG, UDP".to_owned(),
        (Tool::Evenkeel, TrafficKind::Cbr) if traffic.jitter > 0.0 => {
            format!("constant rate, spacing jitter {} %", traffic.jitter * 100.0)
        }
        (Tool::Evenkeel, TrafficKind::Cbr) => "constant rate".to_owned(),
        (Tool::Evenkeel, TrafficKind::Poisson) => "Poisson".to_owned(),
        (Tool::Evenkeel, TrafficKind::OnOff { mean_on, mean_off }) => {
            format!("on {mean_on}, off {mean_off} on average")
        }
        (Tool::Evenkeel, TrafficKind::Greedy) => "as much as its wire takes".to_owned(),
        (Tool::Evenkeel, TrafficKind::Flows { mean_size, sizes, peak }) => {
            let sizes = distribution(sizes);
            format!("flows of {mean_size} on average ({sizes}) that come and go, each at {peak}")
        }
        (Tool::Evenkeel, TrafficKind::Replay) => "a recording".to_owned(),
        (Tool::Evenkeel, TrafficKind::Call | TrafficKind::Game { .. }) => {
            let what = match traffic.kind {
                TrafficKind::Game { down: true } => "a game, server to player",
                TrafficKind::Game { down: false } => "a game, player to server",
                _ => "speech of a telephone call",
            };
            let mean = application(traffic).and_then(|(model, headers)| model.mean_rate(headers));
            let rate = mean.map(|rate| format!(", {rate} on average")).unwrap_or_default();
            return format!("{from} to {to}{class}: {what} (NGMN){rate}");
        }
        (Tool::Evenkeel, TrafficKind::Video { frame_rate }) => {
            return format!(
                "{from} to {to}{class}: {rate} of video, {frame_rate} frames per second, in \
                 packets of up to {size} (3GPP TR 38.838)"
            );
        }
    };
    let packets = packet_rate(*rate, *size);
    format!("{from} to {to}{class}: {rate} in packets of {size} ({packets:.0}/s), {kind}")
}

fn distribution(sizes: FlowSizes) -> String {
    match sizes {
        FlowSizes::Fixed => "all alike".to_owned(),
        FlowSizes::Pareto(shape) => format!("Pareto {shape}"),
        FlowSizes::Lognormal(shape) => format!("lognormal {shape}"),
    }
}

/// Names and values of what a link is told to be: what differs from the defaults of its wire, and
/// all of its discipline.
pub fn link_parameters(config: &RouterConfig, link: &LinkConfig) -> Vec<(&'static str, String)> {
    if let DisciplineConfig::Linux(linux) = &link.discipline {
        let lines: Vec<_> = linux.command.lines().map(str::trim).collect();
        return vec![("discipline", "linux".to_owned()), ("command", lines.join("; "))];
    }
    let classes = config.class_names();
    let rate = link.core.rate.map_or_else(|| "unpaced".to_owned(), |rate| rate.to_string());
    let mut all = vec![("rate", rate)];
    let unsaid = evenkeel_core::link::LinkConfig { rate: link.core.rate, ..Default::default() };
    let wire = link.core.entries().into_iter().filter(|(key, value)| {
        // Readers who know rings want to see it; others only if it is not as usual.
        key.name == "ring" || unsaid.get(key.name).as_ref() != Some(value)
    });
    all.extend(wire.map(|(key, value)| (key.name, in_words(&value, &classes))));
    all.push(("discipline", link.discipline.name().to_owned()));
    let settings = link.discipline.entries().into_iter();
    all.extend(settings.map(|(key, value)| (key.name, in_words(&value, &classes))));
    if let DisciplineConfig::Own(own) = &link.discipline {
        all.extend([("name", own.name.clone()), ("settings", own.settings.clone())]);
    }
    if let Some(admission) = &link.admission {
        let given = evenkeel_settings::changes(&AdmissionConfig::default(), admission, &[]);
        let given: Vec<_> =
            given.iter().map(|given| format!("{} {}", given.name, given.is)).collect();
        let text = if given.is_empty() {
            "all knobs at their defaults".to_owned()
        } else {
            given.join(", ")
        };
        all.push(("admission", text));
    }
    all
}

/// A value without quotes; `voice 10ms, bulk 0s` where classes have their own.
fn in_words(value: &Value, classes: &[&str]) -> String {
    match value {
        Value::PerClass { rest, own } if own.iter().all(|one| *one == **rest) => {
            rest.plain(classes)
        }
        Value::PerClass { .. } => {
            let of =
                |(at, class): (usize, &&str)| format!("{class} {}", value.of_class(at).plain(&[]));
            classes.iter().enumerate().map(of).collect::<Vec<_>>().join(", ")
        }
        Value::Table(entries) => {
            let of = |(key, value): &(&str, Value)| format!("{key} {}", value.plain(&[]));
            entries.iter().map(of).collect::<Vec<_>>().join(", ")
        }
        one => one.plain(classes),
    }
}

/// The kind of a discipline; of one of Linux with the root's: `linux htb`.
fn kind(discipline: &DisciplineConfig) -> String {
    let DisciplineConfig::Linux(linux) = discipline else { return discipline.name().to_owned() };
    let root = linux.command.split_whitespace().next().unwrap_or_default();
    format!("{} {root}", discipline.name())
}

/// The rate of a flow, or what it is where that has none: `TCP`, `a call`.
#[must_use]
pub fn pace(traffic: &Traffic) -> String {
    let told = match traffic.kind {
        TrafficKind::Tcp { .. } => "TCP",
        TrafficKind::Users { web: true, .. } => "pages",
        TrafficKind::Users { web: false, .. } => "files",
        TrafficKind::Call => "a call",
        TrafficKind::Game { .. } => "a game",
        TrafficKind::Replay => "a recording",
        _ => return traffic.rate.to_string(),
    };
    told.to_owned()
}

fn topology(scenario: &Scenario) -> Topology {
    let hosts = scenario.hosts.iter().map(|host| {
        let sent = scenario.traffic.iter().filter(|traffic| traffic.from == host.name);
        let labels = sent.map(|traffic| {
            let class = traffic.class.as_deref().unwrap_or(&traffic.name);
            format!("sends {class}, {}", pace(traffic))
        });
        TopologyNode { name: host.name.clone(), router: false, labels: labels.collect() }
    });
    let used = used_links(scenario);
    let routers = scenario.routers.iter().map(|router| {
        let own = used.iter().filter(|(name, ..)| *name == router.name);
        let labels =
            own.map(|(.., link)| format!("{} to {}", kind(&link.discipline), link.port)).collect();
        TopologyNode { name: router.name.clone(), router: true, labels }
    });
    let wires = scenario.wires.iter().map(|wire| {
        let [a, b] = &wire.ends;
        let label = used.iter().find_map(|(router, _, link)| {
            let ours = [(a, b), (b, a)]
                .iter()
                .any(|(end, _)| end.node == *router && end.interface == link.port);
            let rate = link.core.rate.filter(|_| ours)?;
            Some(format!("{rate}, ring {}", link.core.ring.slots))
        });
        Wire { ends: [a.node.clone(), b.node.clone()], label: label.unwrap_or_default() }
    });
    Topology { nodes: hosts.chain(routers).collect(), wires: wires.collect() }
}
