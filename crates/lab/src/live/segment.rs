//! The switch and its stations, as namespaces: a bridge that learns nothing, because all addresses
//! are known.
//!
//! ```text
//!  source 1 ─┐                                    ┌─ next hop 1
//!  source 2 ─┼── bridge ── balancers, forwarders ─┼─ next hop 2      what goes to a next hop is paced by tbf: the outgoing link
//!  stranger ─┘                                    └─ next hop 3
//! ```
//!
//! Broadcasts go to forwarders and to the stranger only: the internal VLAN of the exchange frames,
//! on a kernel without VLAN devices.

use evenkeel_netns::ShellError;
use evenkeel_world::live::{LiveScenario, PORT, next_hop};

use crate::LabError;
use crate::plan::{NodePlan, Plan};
use crate::shell;
use crate::world::World;

/// The namespace of the bridge.
pub(super) const SWITCH: &str = "switch";
/// The namespace of the stranger.
pub(super) const STRANGER: &str = "x";

/// What a station is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Station {
    Balancer = 1,
    Forwarder = 2,
    NextHop = 3,
    Source = 4,
    Stranger = 5,
}

/// The Ethernet address of a station, counted from 1.
pub(super) fn mac(kind: Station, number: usize) -> [u8; 6] {
    [2, 0, 0, 0, kind as u8, number as u8]
}

fn mac_text(kind: Station, number: usize) -> String {
    format!("02:00:00:00:{:02x}:{number:02x}", kind as u8)
}

/// The namespace of a station, also the bridge's port to it.
pub(super) fn name(kind: Station, number: usize) -> String {
    match kind {
        Station::Balancer => format!("b{number}"),
        Station::Forwarder => format!("f{number}"),
        Station::NextHop => format!("n{number}"),
        Station::Source => format!("s{number}"),
        Station::Stranger => STRANGER.to_owned(),
    }
}

/// The address of a station.
pub(super) fn address(kind: Station, number: usize) -> String {
    match kind {
        Station::Balancer => format!("10.7.0.{number}"),
        Station::Forwarder => format!("10.7.0.{}", 10 + number),
        Station::NextHop => next_hop(number),
        Station::Source => format!("10.7.0.{}", 40 + number),
        Station::Stranger => "10.7.0.99".to_owned(),
    }
}

/// The network behind a next hop, and the host in it that is sent to.
pub(super) fn behind(link: usize) -> (String, String) {
    (format!("10.{}.0.0/16", 100 + link), format!("10.{}.0.1", 100 + link))
}

const SETTINGS: [(&str, &str); 4] = [
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

fn stations(scenario: &LiveScenario) -> Vec<(Station, usize)> {
    let [balancers, forwarders, hops] = scenario.nodes;
    let of = |kind, count| (1..=count).map(move |number| (kind, number));
    let all = of(Station::Balancer, balancers).chain(of(Station::Forwarder, forwarders));
    all.chain(of(Station::NextHop, hops))
        .chain(of(Station::Source, balancers))
        .chain(of(Station::Stranger, 1))
        .collect()
}

fn station(scenario: &LiveScenario, kind: Station, number: usize) -> NodePlan {
    let interface = PORT.1;
    let mut settings = SETTINGS.to_vec();
    let mut batch = vec!["link set dev lo up".to_owned()];
    batch.push(format!("addr add {}/24 dev {interface}", address(kind, number)));
    batch.push(format!("link set dev {interface} up"));
    let mut offloads = Vec::new();
    let known = |kind, number| {
        let (to, mac) = (address(kind, number), mac_text(kind, number));
        format!("neigh replace {to} lladdr {mac} dev {interface} nud permanent")
    };
    match kind {
        Station::Forwarder => {
            // The kernel would go on forwarding when the process dies: the ports fail closed.
            settings.push(("ipv4/ip_forward", "1"));
            for link in 1..=scenario.nodes[2] {
                batch.push(known(Station::NextHop, link));
                batch.push(format!(
                    "route add {} via {} dev {interface}",
                    behind(link).0,
                    next_hop(link)
                ));
            }
        }
        Station::Source => {
            batch.push(known(Station::Balancer, number));
            batch.push(format!(
                "route add default via {} dev {interface}",
                address(Station::Balancer, number)
            ));
            offloads.push(interface.to_owned());
        }
        Station::Balancer | Station::NextHop | Station::Stranger => {}
    }
    NodePlan { node: name(kind, number), settings, batch, offloads }
}

/// Makes the switch and all stations.
///
/// # Errors
/// What the kernel refuses.
pub(super) fn build(scenario: &LiveScenario, world: &mut World) -> Result<(), LabError> {
    let stations = stations(scenario);
    let mut bridge = vec![
        "link set dev lo up".to_owned(),
        "link add name bridge0 type bridge mcast_snooping 0".to_owned(),
        "link set dev bridge0 up".to_owned(),
    ];
    let switch = world.namespace(SWITCH);
    let mut wires = Vec::new();
    for (kind, number) in &stations {
        let (port, mac) = (name(*kind, *number), mac_text(*kind, *number));
        let namespace = world.namespace(&port);
        wires.push(format!(
            "link add name {} address {mac} mtu 1500 netns {namespace} type veth peer name {port} \
             mtu 1500 netns {switch}",
            PORT.1
        ));
        let hears = matches!(kind, Station::Forwarder | Station::Balancer | Station::Stranger);
        let heard = if hears { "on" } else { "off" };
        bridge.push(format!("link set dev {port} master bridge0"));
        bridge.push(format!(
            "link set dev {port} type bridge_slave learning off flood off mcast_flood off \
             bcast_flood {heard}"
        ));
        bridge.push(format!("link set dev {port} up"));
    }
    let mut nodes = vec![NodePlan {
        node: SWITCH.to_owned(),
        settings: SETTINGS.to_vec(),
        batch: bridge,
        offloads: Vec::new(),
    }];
    nodes.extend(stations.iter().map(|(kind, number)| station(scenario, *kind, *number)));
    world.build(&Plan { nodes, wires, pings: Vec::new() })?;
    for (kind, number) in stations.iter().filter(|(kind, _)| *kind != Station::Stranger) {
        let (port, mac) = (name(*kind, *number), mac_text(*kind, *number));
        tried(
            "tell the bridge who is where",
            &["bridge", "-n", &switch, "fdb", "add", &mac, "dev", &port, "master", "static"],
        )?;
    }
    for (link, rate) in (1..).zip(&scenario.rates) {
        let rate = format!("{}bit", rate.0);
        let port = name(Station::NextHop, link);
        tried(
            "pace a port of the switch (tbf)",
            &[
                "tc", "-n", &switch, "qdisc", "add", "dev", &port, "root", "tbf", "rate", &rate,
                "burst", "3100", "limit", "150000",
            ],
        )?;
    }
    Ok(())
}

/// Runs a command that only a missing feature of the kernel makes fail.
fn tried(what: &str, words: &[&str]) -> Result<(), LabError> {
    let failed =
        |error: ShellError| LabError::Kernel { what: what.to_owned(), said: error.to_string() };
    evenkeel_netns::shell::output(words).map(drop).map_err(failed)
}

/// Finds out whether the programs are there.
///
/// # Errors
/// [`LabError::MissingTools`].
pub(super) fn require() -> Result<(), LabError> {
    let own = [
        ("bridge", "what the switch knows", "iproute2"),
        ("tc", "the rate of outgoing links", "iproute2"),
    ];
    shell::require(own.into_iter().chain(shell::ALWAYS))
}
