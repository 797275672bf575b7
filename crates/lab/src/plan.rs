//! What a scenario needs of the kernel, as commands: pure, so that it can be read and tested without root.

use std::collections::BTreeSet;
use std::net::IpAddr;

use evenkeel_scenario::Scenario;

use crate::LabError;
use crate::payload;

/// Everything to do before a router starts, in this order: namespaces, `wires`, then node by node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Hosts first, then routers.
    pub(crate) nodes: Vec<NodePlan>,
    /// Lines for `ip -batch`: one veth pair each, made in the namespaces of its ends.
    pub(crate) wires: Vec<String>,
    /// Who must reach whom before anything is measured.
    pub(crate) pings: Vec<Ping>,
}

/// One namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodePlan {
    /// The node's name in the scenario.
    pub(crate) node: String,
    /// Kernel settings: path under `/proc/sys/net`, value. Set before any interface comes up.
    pub(crate) settings: Vec<(&'static str, &'static str)>,
    /// Lines for `ip -batch` inside the namespace: interfaces up, addresses, routes.
    pub(crate) batch: Vec<String>,
    /// Interfaces whose offloads are switched off: those of hosts. Routers see to their own.
    pub(crate) offloads: Vec<String>,
}

/// A wire or path to try, which also makes every node on it learn its neighbours' addresses.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ping {
    /// The node that asks.
    pub(crate) from: String,
    /// The address it asks.
    pub(crate) to: IpAddr,
}

/// Settings of every node: addresses usable at once, no rules of the machine's own namespace inherited that drop packets.
const EVERY_NODE: [(&str, &str); 6] = [
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// Settings of routers: the kernel is the control plane, and forwards whenever the router process does not.
const ROUTERS: [(&str, &str); 2] = [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

impl Plan {
    /// Plans the namespaces of `scenario`. `namespace` gives the name that a node's namespace has.
    ///
    /// # Errors
    /// [`LabError::BadInput`] for what the lab cannot run although the scenario is well-formed.
    pub(crate) fn new(scenario: &Scenario, namespace: impl Fn(&str) -> String) -> Result<Self, LabError> {
        let hosts = scenario.hosts.iter().map(|host| (host.name.as_str(), false));
        let routers = scenario.routers.iter().map(|router| (router.name.as_str(), true));
        let nodes = hosts.chain(routers).map(|(node, router)| node_plan(scenario, node, router)).collect();
        let wires = scenario
            .wires
            .iter()
            .map(|wire| {
                let [a, b] = &wire.ends;
                format!(
                    "link add name {} mtu {} netns {} type veth peer name {} mtu {} netns {}",
                    a.interface,
                    wire.mtu,
                    namespace(&a.node),
                    b.interface,
                    wire.mtu,
                    namespace(&b.node)
                )
            })
            .collect();
        let mut pings = BTreeSet::new();
        for traffic in &scenario.traffic {
            let to = scenario.address(&traffic.to, traffic.ipv6).ok_or_else(|| {
                LabError::BadInput(format!("traffic {}: {} has no wire", traffic.name, traffic.to))
            })?;
            let least = payload::headers(to) + payload::LENGTH as u64;
            if traffic.size.0 < least {
                return Err(LabError::BadInput(format!(
                    "traffic {}: size {} leaves no room for sequence number and time stamp: at least {least} B",
                    traffic.name, traffic.size
                )));
            }
            pings.insert(Ping { from: traffic.from.clone(), to });
        }
        Ok(Self { nodes, wires, pings: pings.into_iter().collect() })
    }
}

fn node_plan(scenario: &Scenario, node: &str, router: bool) -> NodePlan {
    let mut settings = EVERY_NODE.to_vec();
    if router {
        settings.extend(ROUTERS);
    }
    let mut batch = vec!["link set dev lo up".to_owned()];
    let interfaces = scenario.interfaces(node);
    for interface in &interfaces {
        let name = &interface.name;
        batch.push(format!("addr add {}/{} dev {name}", interface.v4, interface.prefix4));
        batch.push(format!("addr add {}/{} dev {name} nodad", interface.v6, interface.prefix6));
        batch.push(format!("link set dev {name} up"));
    }
    for route in scenario.routes(node) {
        batch.push(format!(
            "route add {}/{} via {} dev {}",
            route.destination, route.prefix, route.via, route.interface
        ));
    }
    let offloads =
        if router { Vec::new() } else { interfaces.into_iter().map(|interface| interface.name).collect() };
    NodePlan { node: node.to_owned(), settings, batch, offloads }
}
