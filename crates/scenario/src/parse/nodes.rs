//! Hosts, routers, wires: names, addresses, configurations.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use evenkeel_config::parse::{Unique, read_file};
use evenkeel_config::subscribers::GivenList;
use evenkeel_config::{LinkConfig, PortConfig, PortSource, RouterConfig, router_from_table};
use evenkeel_core::Prefix;
use evenkeel_core::link::LinkConfig as Link;
use evenkeel_settings::diagnostic::Span;
use evenkeel_settings::read::{Fields, Reader, parse_toml, suggest};
use evenkeel_settings::read_settings;
use evenkeel_settings::tree::{Data, Table};

use crate::model::{Host, Router, Scenario, linux_of};
use crate::tables::WireSection;
use crate::topology::{End, Quality, Wire};

/// Names of interfaces that every namespace has, and of files that lists of interfaces have.
const RESERVED: &[&str] = &["lo", "all", "default"];

pub(super) fn read(reader: &mut Reader, file: &Fields, folder: &Path, scenario: &mut Scenario) {
    let mut names = Unique::new("node");
    for fields in file.tables("host").chain(file.tables("router")) {
        names.check(reader, fields, "name");
        if let Some(name) = fields.text("name").filter(|name| RESERVED.contains(name)) {
            reader.fail_at(fields, "name", format!("{name:?} cannot name a node"));
        }
    }
    let hosts: Vec<_> = file.tables("host").filter_map(|fields| fields.text("name")).collect();
    let routers: Vec<_> = file.tables("router").filter_map(|fields| fields.text("name")).collect();
    scenario.hosts = hosts.iter().map(|name| Host { name: (*name).to_owned() }).collect();
    wires(reader, file, &hosts, &routers, scenario);
    for fields in file.tables("host").chain(file.tables("router")) {
        let Some(name) = fields.text("name") else { continue };
        if !scenario.wires.iter().any(|wire| wire.from_node(name).is_some()) {
            reader.fail(&fields.at, fields.path.clone(), format!("no [[wire]] leads to {name:?}"));
        }
    }
    let lists = super::subscribers::read(reader, file, scenario);
    for fields in file.tables("router") {
        let Some(name) = fields.text("name") else { continue };
        if let Some(config) = config(reader, fields, folder, (name, &lists), scenario) {
            scenario.routers.push(Router { name: name.to_owned(), config });
        }
    }
}

fn wires(
    reader: &mut Reader,
    file: &Fields,
    hosts: &[&str],
    routers: &[&str],
    scenario: &mut Scenario,
) {
    let known: Vec<_> = hosts.iter().chain(routers).copied().collect();
    let mut pairs = HashSet::new();
    let mut subnets: Vec<(Prefix, Span)> = Vec::new();
    for (index, fields) in file.tables("wire").enumerate() {
        let ends: Vec<_> = fields.texts("ends").map(|(name, at)| (name, at.clone())).collect();
        let mut good = true;
        for (name, at) in &ends {
            if !known.contains(name) {
                good = false;
                reader.fail(
                    at,
                    fields.path_of("ends"),
                    format!("no host or router {name:?}; {}", suggest(name, &known)),
                );
            }
        }
        let [(a, _), (b, _)] = ends.as_slice() else {
            if good && fields.given("ends") {
                let message = format!("a wire has two ends, not {}", ends.len());
                reader.fail_at(fields, "ends", message);
            }
            continue;
        };
        if a == b {
            reader.fail_at(fields, "ends", "both ends are the same node");
            continue;
        }
        if !pairs.insert((*a.min(b), *a.max(b))) {
            let message = format!(
                "{a:?} and {b:?} have a wire already: ports are named after the node at the other \
                 end"
            );
            reader.fail_at(fields, "ends", message);
            continue;
        }
        let number = index + 1;
        let subnet = subnet(reader, fields, number);
        let overlaps = subnets
            .iter()
            .any(|(other, _)| subnet.contains(other.address()) || other.contains(subnet.address()));
        if overlaps {
            let message =
                format!("address clash: {subnet} overlaps with the subnet of an earlier wire");
            reader.fail_at(fields, "subnet", message);
        }
        subnets.push((subnet, fields.span("subnet")));
        if good {
            let (section, _sound) = read_settings::<WireSection>(reader, fields, &[]);
            let is_router = [a, b].map(|name| routers.contains(name));
            let quality = quality(&section);
            let place = reader.place(&fields.at);
            scenario.wires.push(Wire {
                quality,
                place,
                ..wire(number, subnet, [a, b], is_router, section.mtu)
            });
        }
    }
}

/// The given subnet, or that of the wire with this number.
fn subnet(reader: &mut Reader, fields: &Fields, number: usize) -> Prefix {
    let network = IpAddr::V4(Ipv4Addr::new(10, u8::try_from(number).unwrap_or(u8::MAX), 0, 0));
    let own = Prefix::new(network, 24).unwrap_or_else(|| Prefix::host(network));
    match fields.prefix("subnet") {
        None => own,
        Some(given) if given.address().is_ipv4() && (8..=29).contains(&given.len()) => given,
        Some(given) => {
            let message = format!("{given} cannot be a wire's subnet; valid: IPv4, /8 to /29");
            reader.fail_at(fields, "subnet", message);
            own
        }
    }
}

/// Addresses: hosts count up from .1, routers down from .254 (the last but one of the subnet).
fn wire(number: usize, subnet: Prefix, nodes: [&str; 2], is_router: [bool; 2], mtu: u16) -> Wire {
    let IpAddr::V4(network) = subnet.address() else { unreachable!("`subnet` returns IPv4 only") };
    let last = (u32::MAX >> subnet.len()) - 1;
    let places = match is_router {
        [false, false] => [(1, 1), (2, 2)],
        [false, true] => [(1, 1), (last, 0xfe)],
        [true, false] => [(last, 0xfe), (1, 1)],
        [true, true] => [(last, 0xfe), (last - 1, 0xfd)],
    };
    let end = |index: usize| {
        let (v4, v6) = places[index];
        End {
            node: nodes[index].to_owned(),
            interface: nodes[1 - index].to_owned(),
            v4: Ipv4Addr::from_bits(network.to_bits() | v4),
            v6: Ipv6Addr::new(0xfd00, number as u16, 0, 0, 0, 0, 0, v6),
        }
    };
    Wire {
        ends: [end(0), end(1)],
        prefix4: subnet.len(),
        prefix6: 64,
        mtu,
        quality: Quality::default(),
        place: String::new(),
        down: false,
    }
}

/// What the wire does to packets.
fn quality(section: &WireSection) -> Quality {
    let part = |part: f64| (part * 1e9).round() as u32;
    let WireSection { rate, queue, delay, jitter, loss, reorder, .. } = *section;
    Quality { rate, queue, delay, jitter, loss: part(loss), reorder: part(reorder) }
}

fn config(
    reader: &mut Reader,
    fields: &Fields,
    folder: &Path,
    (name, lists): (&str, &[GivenList]),
    scenario: &Scenario,
) -> Option<RouterConfig> {
    let ports: Vec<_> = scenario
        .interfaces(name)
        .into_iter()
        .map(|interface| PortConfig {
            name: interface.name.clone(),
            interface: interface.name,
            ..PortConfig::default()
        })
        .collect();
    let ports = PortSource::Given { ports: &ports, lists };
    let empty = Table::default();
    let path = fields.path_of("config");
    let mut config = match (fields.foreign("config"), fields.text("file")) {
        (Some(_), Some(_)) => {
            reader.fail_at(fields, "file", "only one of `config` and `file` is possible");
            None
        }
        (Some(node), None) => match &node.data {
            Data::Table(table) => router_from_table(reader, table, node.at.clone(), &path, ports),
            other => {
                let message = format!("expected a table [router.config], found {}", other.found());
                reader.fail(&node.at, path.clone(), message);
                None
            }
        },
        (None, Some(file)) => from_file(reader, fields, &folder.join(file), ports),
        (None, None) => router_from_table(reader, &empty, fields.at.clone(), &path, ports),
    }?;
    name.clone_into(&mut config.router.name);
    kernel_only(reader, &fields.at, &path, &config);
    let longest =
        scenario.interfaces(name).iter().map(|interface| interface.mtu).max().unwrap_or(0);
    let needed = u64::from(longest) + 256;
    if config.router.buffer_size.0 < needed {
        let message = format!(
            "router.buffer_size is too small for the MTU of its wires, {longest}; at least \
             {needed}B"
        );
        reader.fail(&fields.at, path, message);
    }
    Some(config)
}

/// Where a link has a queueing discipline of Linux the kernel forwards: what only our router does
/// would be left out.
fn kernel_only(reader: &mut Reader, at: &Span, path: &str, config: &RouterConfig) {
    let linux = |link: &&LinkConfig| linux_of(&link.discipline).is_some();
    let Some(kernel) = config.links.iter().find(linux) else { return };
    let told = |link: &LinkConfig| {
        let alone = link.also.is_empty() && link.admission.is_none() && link.control.is_none();
        !alone || link.core != Link::default()
    };
    let settings = [
        (config.fairdrop.is_some(), "fairdrop".to_owned()),
        (config.cluster.is_some(), "cluster".to_owned()),
        (config.balancer.is_some(), "balancer".to_owned()),
        (!config.trees.is_empty(), "tree".to_owned()),
        (!config.services.is_empty(), "service".to_owned()),
    ];
    let links = config.links.iter().map(|link| {
        (told(link), format!("rate, ring, admission or the like of link {:?}", link.port))
    });
    for (_, what) in settings.into_iter().chain(links).filter(|(given, _)| *given) {
        let message = format!(
            "{what}: link {:?} has a queueing discipline of Linux, so the kernel of this router \
             forwards and knows nothing of it; say the rate in `command`",
            kernel.port
        );
        reader.fail(at, path.to_owned(), message);
    }
}

fn from_file(
    reader: &mut Reader,
    fields: &Fields,
    path: &Path,
    ports: PortSource<'_>,
) -> Option<RouterConfig> {
    let text = match read_file(path) {
        Ok(text) => text,
        Err(errors) => {
            let message = errors
                .0
                .into_iter()
                .map(|error| format!("{}: {}", error.file, error.message))
                .collect::<String>();
            reader.fail_at(fields, "file", message);
            return None;
        }
    };
    let (mut table, mut inner) = parse_toml(&text, &path.display().to_string());
    table.entries.retain(|entry| entry.name != "port");
    let config = router_from_table(&mut inner, &table, 0..0, "", ports);
    inner.finish(config).map_err(|errors| reader.adopt(errors)).ok()
}
