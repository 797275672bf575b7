//! Flows: who to whom, and whether the class rules agree.

use std::collections::HashSet;
use std::path::Path;

use evenkeel_config::parse::Unique;
use evenkeel_core::packet::{ETHERNET_MIN_PAYLOAD, ETHERNET_WIRE_OVERHEAD};
use evenkeel_core::{BitRate, Bytes, FlowKey};
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::read_settings;

use crate::model::{Congestion, Ecn, FlowSizes, Scenario, Tool, Traffic, TrafficKind};
use crate::subscribers::Party;
use crate::tables::{Direction, Distribution, MOST_FLOWS, Pattern, TrafficSection};
use crate::topology::Wire;

/// Ports of flows whose file says none are these plus the flow's number, from 1.
const PORTS_AFTER: u16 = 5_000;
const SOURCE_PORTS_AFTER: u16 = 40_000;

pub(super) fn read(reader: &mut Reader, file: &Fields, folder: &Path, scenario: &mut Scenario) {
    let mut names = Unique::new("traffic");
    let mut ports = HashSet::new();
    for (number, fields) in (1..).zip(file.tables("traffic")) {
        names.check(reader, fields, "name");
        let Some(mut traffic) = traffic(reader, fields, folder, number, scenario) else { continue };
        if !ports.insert((traffic.to.clone(), traffic.port, traffic.ipv6)) {
            let message = format!("another flow to {:?} has port {}", traffic.to, traffic.port);
            reader.fail_at(fields, "port", message);
        }
        path(reader, fields, scenario, &mut traffic);
        scenario.traffic.push(traffic);
    }
}

fn traffic(
    reader: &mut Reader,
    fields: &Fields,
    folder: &Path,
    number: u16,
    scenario: &Scenario,
) -> Option<Traffic> {
    let known = check_ends(reader, fields, scenario);
    let (from, to) = (fields.text("from")?, fields.text("to")?);
    let (section, _sound) = read_settings::<TrafficSection>(reader, fields, &[]);
    let kind = kind(reader, fields, &section)?;
    let tool = tool(reader, fields, &section, kind);
    if kind == TrafficKind::Replay && !fields.given("file") {
        reader.fail_at(fields, "file", "this required key is missing: the capture file");
    }
    let is_one_flow =
        !kind.are_connections() && !matches!(kind, TrafficKind::Flows { .. } | TrafficKind::Replay);
    let party = super::subscribers::party(reader, fields, &section, number, scenario);
    if !fields.given("subscribers") && fields.given("part") {
        reader.fail_at(fields, "part", "only together with `subscribers`");
    }
    if party.is_some() && kind == TrafficKind::Replay {
        reader.fail_at(fields, "subscribers", "a recording is that of hosts");
    }
    let each = if is_one_flow { party.as_ref().map_or(1, Party::len) as u64 } else { 1 };
    let flows = u64::from(section.flows) * each;
    if flows > MOST_FLOWS {
        let message = format!("{flows} flows of all of them: at most {MOST_FLOWS}");
        reader.fail_at(fields, "flows", message);
    }
    if section.flows > 1 && !is_one_flow {
        reader.fail_at(fields, "flows", "only together with a kind that is one flow by itself");
    }
    let wire = match kind {
        TrafficKind::Greedy => wire_rate(scenario, from, to, section.size),
        _ => None,
    };
    let rate = rate(reader, fields, kind, section.rate, wire);
    let (start, stop) = (section.start, section.stop.unwrap_or(scenario.duration));
    if start >= stop || stop > scenario.duration {
        let message = "a flow starts before it stops, and stops before the end of the run";
        let key = if fields.given("stop") { "stop" } else { "start" };
        reader.fail_at(fields, key, message);
    }
    let traffic = Traffic {
        from: from.to_owned(),
        to: to.to_owned(),
        kind,
        tool,
        rate: rate?,
        size: section.size,
        jitter: section.jitter,
        start,
        stop,
        ipv6: section.ipv6,
        dscp: section.dscp,
        port: section.port.unwrap_or(PORTS_AFTER + number),
        source_port: section.source_port.unwrap_or(SOURCE_PORTS_AFTER + number),
        flows: flows as u32,
        party,
        recording: section.file.map(|file| folder.join(file)),
        tcp: section.tcp || kind.is_tcp(),
        place: reader.place(&fields.at),
        // A flow without a name is none; the key has been missed already.
        name: Some(section.name).filter(|name| !name.is_empty())?,
        class: section.class,
    };
    known.then_some(traffic)
}

/// Whether its ends are two hosts; the reader takes note of what they are instead.
fn check_ends(reader: &mut Reader, fields: &Fields, scenario: &Scenario) -> bool {
    let hosts: Vec<_> = scenario.hosts.iter().map(|host| host.name.as_str()).collect();
    let mut known = true;
    for key in ["from", "to"] {
        if let Some(name) = fields.text(key).filter(|name| !hosts.contains(name)) {
            known = false;
            let is_router = scenario.routers.iter().any(|router| router.name == name);
            let what = if is_router { "a router; traffic is between hosts:" } else { "no host;" };
            reader.fail_at(fields, key, format!("{name:?} is {what} {}", suggest(name, &hosts)));
        }
    }
    let ends = fields.text("from").zip(fields.text("to"));
    if known && ends.is_some_and(|(from, to)| from == to) {
        reader.fail_at(fields, "to", "a host does not send to itself through a router");
        return false;
    }
    known
}

fn kind(reader: &mut Reader, fields: &Fields, section: &TrafficSection) -> Option<TrafficKind> {
    let (congestion, mean_size) = (section.congestion, section.flow_size);
    let ecn = section.ecn;
    let refused = match (congestion, ecn) {
        (Congestion::Dctcp, Ecn::None) => Some("dctcp answers to marks: give it ecn"),
        (Congestion::Cubic | Congestion::Reno | Congestion::Bbr, Ecn::Ect1) => Some(
            "ECT(1) is for congestion = \"dctcp\", which answers as L4S asks for (RFC 9331, 4)",
        ),
        _ => None,
    };
    if let Some(why) = refused {
        reader.fail_at(fields, "ecn", why);
        return None;
    }
    Some(match section.kind {
        Pattern::Cbr => TrafficKind::Cbr,
        Pattern::Poisson => TrafficKind::Poisson,
        Pattern::OnOff => {
            TrafficKind::OnOff { mean_on: section.mean_on, mean_off: section.mean_off }
        }
        Pattern::Greedy => TrafficKind::Greedy,
        Pattern::Replay => TrafficKind::Replay,
        Pattern::Flows => {
            let sizes = sizes(reader, fields, section)?;
            TrafficKind::Flows { mean_size, sizes, peak: section.peak }
        }
        Pattern::Tcp => TrafficKind::Tcp { congestion, ecn, bytes: section.bytes },
        Pattern::TcpFlows => {
            let sizes = sizes(reader, fields, section)?;
            TrafficKind::TcpFlows { congestion, ecn, mean_size, sizes }
        }
        Pattern::Call => TrafficKind::Call,
        Pattern::Game => TrafficKind::Game { down: section.direction == Direction::Down },
        Pattern::Video => TrafficKind::Video { frame_rate: section.frame_rate },
        Pattern::Web | Pattern::Update => {
            let web = section.kind == Pattern::Web;
            TrafficKind::Users { web, users: section.users, congestion, ecn }
        }
    })
}

/// The tool that makes its packets: for one TCP connection always iperf3.
fn tool(reader: &mut Reader, fields: &Fields, section: &TrafficSection, kind: TrafficKind) -> Tool {
    let is_one = matches!(kind, TrafficKind::Tcp { .. });
    let tool = match section.tool {
        // Nothing of ours always has something to send.
        Tool::Evenkeel if is_one => Tool::Iperf3,
        tool => tool,
    };
    if is_one && fields.given("tool") && tool != Tool::Iperf3 {
        let message =
            "a flow of kind = \"tcp\" is made by iperf3 on real packets; leave `tool` out";
        reader.fail_at(fields, "tool", message);
    }
    if section.tcp && tool != Tool::Iperf3 {
        reader.fail_at(fields, "tcp", "only together with tool = \"iperf3\"");
    }
    tool
}

/// Its rate, as given or that of the `wire`; zero for kinds that have none. `None`: it is missing.
fn rate(
    reader: &mut Reader,
    fields: &Fields,
    kind: TrafficKind,
    given: Option<BitRate>,
    wire: Option<BitRate>,
) -> Option<BitRate> {
    let stated = fields.given("rate") || wire.is_some();
    let wrong = match kind {
        TrafficKind::Replay => stated.then_some("a recording has its own rate"),
        TrafficKind::Tcp { .. } => {
            stated.then_some("TCP has no rate of its own; leave it out, or limit the link")
        }
        _ if !kind.has_rate() => stated.then_some("its model has its own rate; leave it out"),
        // A misspelt key has been told.
        _ if stated || !reader.is_clean_in(&["traffic"]) => None,
        _ => Some("this required key is missing: a rate such as \"10Mbit/s\""),
    };
    if let Some(message) = wrong {
        reader.fail_at(fields, "rate", message);
    }
    if kind.has_rate() { given.or(wire) } else { Some(BitRate::ZERO) }
}

/// How the sizes of flows are distributed.
fn sizes(reader: &mut Reader, fields: &Fields, section: &TrafficSection) -> Option<FlowSizes> {
    let shape = section.shape;
    let (sizes, valid) = match section.distribution {
        Distribution::Pareto => (FlowSizes::Pareto(shape.unwrap_or(1.2)), 1.001..=100.0),
        Distribution::Lognormal => (FlowSizes::Lognormal(shape.unwrap_or(1.0)), 0.0..=4.0),
        Distribution::Fixed => return Some(FlowSizes::Fixed),
    };
    if let Some(shape) = shape.filter(|shape| !valid.contains(shape)) {
        let message =
            format!("{shape} is out of range; valid: {} to {}", valid.start(), valid.end());
        reader.fail_at(fields, "shape", message);
        return None;
    }
    Some(sizes)
}

/// The rate of IP packets of `size` that keeps the wire busy by which `from` sends to `to`; `None`
/// for a wire without a rate.
fn wire_rate(scenario: &Scenario, from: &str, to: &str, size: Bytes) -> Option<BitRate> {
    let path = scenario.path_between(from, to)?;
    let next = path.get(1)?;
    let joins = |wire: &&Wire| wire.from_node(from).is_some_and(|(_, far)| far.node == *next);
    let rate = scenario.wires.iter().find(joins)?.quality.rate?;
    let wire_len = size.0.max(ETHERNET_MIN_PAYLOAD.0) + ETHERNET_WIRE_OVERHEAD.0;
    Some(BitRate((u128::from(rate.0) * u128::from(size.0) / u128::from(wire_len)) as u64))
}

/// Follows the flow: there must be a way, its packets must fit the wires, and every router must
/// give it the same class.
fn path(reader: &mut Reader, fields: &Fields, scenario: &Scenario, traffic: &mut Traffic) {
    // A router whose configuration is wrong is missing here; its error has been told.
    if !reader.is_clean_in(&super::LAYOUT) {
        return;
    }
    let Some(path) = scenario.path_between(&traffic.from, &traffic.to) else {
        let message =
            format!("no path leads from {:?} to {:?} through routers", traffic.from, traffic.to);
        reader.fail_at(fields, "to", message);
        return;
    };
    for pair in path.windows(2) {
        let wire = scenario
            .wires
            .iter()
            .find(|wire| wire.from_node(&pair[0]).is_some_and(|(_, far)| far.node == pair[1]));
        if let Some(wire) = wire.filter(|wire| traffic.size.0 > u64::from(wire.mtu)) {
            let message = format!(
                "{} bytes do not fit the wire {}–{}: its MTU is {}",
                traffic.size.0, pair[0], pair[1], wire.mtu
            );
            reader.fail_at(fields, "size", message);
        }
    }
    let Some(flow) = flow_key(scenario, traffic) else { return };
    for router in path.iter().filter_map(|node| scenario.router(node)) {
        let classes = router.config.class_names();
        let given =
            classes.get(router.config.class_map().classify(&flow, traffic.dscp).index()).copied();
        match (&traffic.class, given) {
            (None, Some(given)) => traffic.class = Some(given.to_owned()),
            (Some(meant), given) if Some(meant.as_str()) != given => {
                let message = if classes.contains(&meant.as_str()) {
                    format!(
                        "the class rules of {:?} put this flow ({flow}, dscp {}) into {:?}, not \
                         {meant:?}",
                        router.name,
                        traffic.dscp,
                        given.unwrap_or_default()
                    )
                } else {
                    format!(
                        "router {:?} has no class {meant:?}; {}",
                        router.name,
                        suggest(meant, &classes)
                    )
                };
                reader.fail_at(fields, "class", message);
            }
            _ => {}
        }
    }
}

/// What the routers see of a flow; `None` if its hosts have no addresses.
fn flow_key(scenario: &Scenario, traffic: &Traffic) -> Option<FlowKey> {
    let (source, destination) = scenario.ends(traffic, 0)?;
    Some(FlowKey {
        source,
        destination,
        protocol: if traffic.tcp { 6 } else { 17 },
        source_port: traffic.source_port,
        destination_port: traffic.port,
        flow_label: 0,
    })
}
