//! What a scenario needs of the kernel, as commands: pure, so that it can be read and tested
//! without root.

use std::collections::BTreeSet;
use std::net::IpAddr;

use evenkeel_scenario::{FIRST_WEIGHT, Interface, Route, Router, Scenario, Subscribers, Wire};
use evenkeel_world::payload;

use crate::LabError;
use crate::wire::ENDS;

/// Everything to do before a router starts, in this order: namespaces, `wires`, then node by node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Hosts first, then routers, then wires that do something to packets.
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
    /// Interfaces whose offloads are switched off: those of hosts, and of routers that are all
    /// kernel. Routers of ours see to their own.
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

/// Settings of every node: addresses usable at once, no rules of the machine's own namespace
/// inherited that drop packets.
const EVERY_NODE: [(&str, &str); 6] = [
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// Settings of the namespace of a wire: its kernel has nothing to say on it.
const WIRES: [(&str, &str); 2] =
    [("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")];

/// The name of the namespace of wire number `wire`. Names of nodes begin with a letter.
pub(crate) fn wire_node(wire: usize) -> String {
    format!("{wire}wire")
}

/// Settings of routers: the kernel is the control plane, and forwards whenever the router process
/// does not.
const ROUTERS: [(&str, &str); 2] = [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

impl Plan {
    /// Plans the namespaces of `scenario`. `namespace` gives the name that a node's namespace has.
    ///
    /// # Errors
    /// [`LabError::BadInput`] for what the lab cannot run although the scenario is well-formed.
    pub(crate) fn new(
        scenario: &Scenario,
        namespace: impl Fn(&str) -> String,
    ) -> Result<Self, LabError> {
        if scenario.core.is_some() {
            let message = "[core] is a model in virtual time: run it with `evenkeel sim`";
            return Err(LabError::BadInput(message.to_owned()));
        }
        let hosts = scenario.hosts.iter().map(|host| (host.name.as_str(), false));
        let routers = scenario.routers.iter().map(|router| (router.name.as_str(), true));
        let mut nodes: Vec<_> =
            hosts.chain(routers).map(|(node, router)| node_plan(scenario, node, router)).collect();
        let mut wires = Vec::new();
        for (number, wire) in scenario.wires.iter().enumerate() {
            let queues = queues(scenario, wire);
            let pair = |a: (&str, &str), b: (&str, &str)| {
                let (mtu, from, to) = (wire.mtu, namespace(a.0), namespace(b.0));
                format!(
                    "link add name {} mtu {mtu}{queues} netns {from} type veth peer name {} mtu \
                     {mtu}{queues} netns {to}",
                    a.1, b.1
                )
            };
            let [a, b] = [&wire.ends[0], &wire.ends[1]]
                .map(|end| (end.node.as_str(), end.interface.as_str()));
            if wire.quality.is_perfect() {
                wires.push(pair(a, b));
                continue;
            }
            let node = wire_node(number);
            wires.push(pair(a, (&node, ENDS[0])));
            wires.push(pair(b, (&node, ENDS[1])));
            let up =
                ["lo", ENDS[0], ENDS[1]].map(|interface| format!("link set dev {interface} up"));
            nodes.push(NodePlan {
                node,
                settings: WIRES.to_vec(),
                batch: up.into(),
                offloads: Vec::new(),
            });
        }
        let mut pings = BTreeSet::new();
        for traffic in &scenario.traffic {
            let to = scenario.address(&traffic.to, traffic.ipv6).ok_or_else(|| {
                LabError::BadInput(format!("traffic {}: {} has no wire", traffic.name, traffic.to))
            })?;
            let least = payload::headers(to) + payload::LENGTH as u64;
            if traffic.size.0 < least {
                let why = format!(
                    "size {} leaves no room for sequence number and time stamp: at least {least} B",
                    traffic.size
                );
                return Err(LabError::refused(&traffic.place, &traffic.name, &why));
            }
            pings.insert(Ping { from: traffic.from.clone(), to });
        }
        Ok(Self { nodes, wires, pings: pings.into_iter().collect() })
    }
}

/// What `ip` is told so that each worker of a router has a queue of its own on its wires.
fn queues(scenario: &Scenario, wire: &Wire) -> String {
    let routers = wire.ends.iter().filter_map(|end| scenario.router(&end.node));
    match routers.map(|router| router.config.router.workers).max().unwrap_or(1) {
        1 => String::new(),
        many => format!(" numrxqueues {many} numtxqueues {many}"),
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
        batch.push(route_line("add", &route));
    }
    let behind = |host: &Option<(String, u16)>| host.as_ref().is_some_and(|(host, _)| host == node);
    let people = scenario.subscribers.iter().filter(|group| behind(&group.host));
    for network in people.filter_map(Subscribers::networks).flatten() {
        // Every address of it is the host's.
        let (network, len) = (network.address(), network.len());
        batch.push(format!("route add local {network}/{len} dev lo"));
        settings.push(("ipv6/ip_nonlocal_bind", "1"));
    }
    // A router of ours sees to its own.
    let offloads = if router && !scenario.router(node).is_some_and(Router::is_kernel) {
        Vec::new()
    } else {
        interfaces.into_iter().map(|interface| interface.name).collect()
    };
    NodePlan { node: node.to_owned(), settings, batch, offloads }
}

/// A line for `ip -batch`.
fn route_line(word: &str, route: &Route) -> String {
    let Route { destination, prefix, via, interface, others } = route;
    if others.is_empty() {
        return format!("route {word} {destination}/{prefix} via {via} dev {interface}");
    }
    let hop = |via: &IpAddr, interface: &str, weight| {
        format!(" nexthop via {via} dev {interface} weight {weight}")
    };
    let others: String = others.iter().map(|(via, interface)| hop(via, interface, 1)).collect();
    format!("route {word} {destination}/{prefix}{}{others}", hop(via, interface, FIRST_WEIGHT))
}

/// What makes the kernel of a router know that wires went down or came up: lines for `ip -batch`.
/// Routes that are no more are deleted unless they went with their interface.
pub(crate) fn layout_change(before: &Scenario, then: &Scenario, node: &str) -> Vec<String> {
    let mut batch = Vec::new();
    let down = |layout: &Scenario, interface: &Interface| layout.wires[interface.wire].down;
    let interfaces = then.interfaces(node);
    for interface in
        interfaces.iter().filter(|interface| down(then, interface) != down(before, interface))
    {
        let name = &interface.name;
        if down(then, interface) {
            batch.push(format!("link set dev {name} down"));
        } else {
            batch.push(format!("link set dev {name} up"));
            // The kernel takes IPv6 addresses from an interface that goes down.
            batch.push(format!(
                "addr replace {}/{} dev {name} nodad",
                interface.v6, interface.prefix6
            ));
        }
    }
    let (old, new) = (before.routes(node), then.routes(node));
    let same = |a: &Route, b: &Route| (a.destination, a.prefix) == (b.destination, b.prefix);
    let is_down = |name: &str| {
        interfaces.iter().any(|interface| interface.name == name && down(then, interface))
    };
    let gone =
        old.iter().filter(|old| !is_down(&old.interface) && new.iter().all(|new| !same(old, new)));
    batch.extend(gone.map(|route| route_line("del", route)));
    batch.extend(
        new.iter().filter(|new| !old.contains(new)).map(|route| route_line("replace", route)),
    );
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn plan() -> Plan {
        Plan::new(&fixture::scenario(), |node| format!("x-{node}")).expect("it can be planned")
    }

    #[test]
    fn wires_are_made_inside_the_namespaces_of_their_ends() {
        // A node called `b` must not be read as an abbreviation of `broadcast`.
        assert_eq!(
            plan().wires,
            [
                "link add name r1 mtu 1500 netns x-b type veth peer name b mtu 1500 netns x-r1",
                "link add name r1 mtu 1400 netns x-h2 type veth peer name h2 mtu 1400 netns x-r1",
                "link add name r2 mtu 1500 netns x-r1 type veth peer name r1 mtu 1500 netns x-r2",
                "link add name sink mtu 1500 netns x-r2 type veth peer name r2 mtu 1500 netns \
                 x-sink",
            ]
        );
    }

    #[test]
    fn a_wire_that_does_something_has_a_namespace_between_its_ends() {
        let text = fixture::TEXT.replace("mtu = 1400\n", "mtu = 1400\ndelay = \"5ms\"\n");
        let plan = Plan::new(&fixture::parse(&text), |node| format!("x-{node}"))
            .expect("it can be planned");
        assert_eq!(
            plan.wires[1..3],
            [
                "link add name r1 mtu 1400 netns x-h2 type veth peer name end0 mtu 1400 netns \
                 x-1wire",
                "link add name h2 mtu 1400 netns x-r1 type veth peer name end1 mtu 1400 netns \
                 x-1wire",
            ]
        );
        assert_eq!(plan.wires.len(), 5, "the others are veth pairs and no more");
        let wire = plan.nodes.last().expect("it is the last");
        assert_eq!((wire.node.as_str(), wire.batch.len()), ("1wire", 3));
        assert_eq!(wire.settings, WIRES);
    }

    #[test]
    fn hosts_get_addresses_and_routes_and_no_offloads() {
        let plan = plan();
        let host = &plan.nodes[0];
        assert_eq!((host.node.as_str(), host.offloads.as_slice()), ("b", &["r1".to_owned()][..]));
        assert!(!host.settings.iter().any(|(path, _)| path.contains("forward")));
        assert_eq!(host.batch[0], "link set dev lo up");
        let addresses: Vec<_> = host.batch.iter().filter(|line| line.starts_with("addr")).collect();
        assert_eq!(addresses.len(), 2, "one IPv4, one IPv6: {addresses:?}");
        assert!(addresses.iter().all(|line| line.contains("dev r1")));
        // Three subnets that are not its own, in both families, all by r1.
        let routes: Vec<_> =
            host.batch.iter().filter(|line| line.starts_with("route add")).collect();
        assert_eq!(routes.len(), 6, "{routes:?}");
        assert!(routes.iter().all(|line| line.ends_with("dev r1") && line.contains(" via ")));
        let up =
            host.batch.iter().position(|line| line == "link set dev r1 up").expect("it comes up");
        let route =
            host.batch.iter().position(|line| line.starts_with("route")).expect("it has routes");
        assert!(up < route, "a route needs an interface that is up");
    }

    #[test]
    fn routers_forward_in_both_families_and_keep_their_offloads() {
        let plan = plan();
        let router = plan.nodes.iter().find(|node| node.node == "r1").expect("it is there");
        assert!(router.settings.contains(&("ipv4/ip_forward", "1")));
        assert!(router.settings.contains(&("ipv6/conf/all/forwarding", "1")));
        assert!(router.offloads.is_empty());
        assert_eq!(
            router.batch.iter().filter(|line| line.starts_with("link set")).count(),
            4,
            "lo and three ports"
        );
    }

    #[test]
    fn every_flow_is_tried_once_in_its_family() {
        let scenario = fixture::scenario();
        let to = |ipv6| scenario.address("sink", ipv6).expect("it has a wire");
        let ping = |from: &str, ipv6| Ping { from: from.into(), to: to(ipv6) };
        assert_eq!(plan().pings, [ping("b", false), ping("h2", false), ping("h2", true)]);
    }

    #[test]
    fn packets_without_room_for_a_stamp_are_refused_with_the_least_size() {
        let mut scenario = fixture::scenario();
        scenario.traffic[1].size = evenkeel_core::Bytes(71);
        let error = Plan::new(&scenario, str::to_owned).expect_err("71 bytes are too few for IPv6");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().ends_with("at least 72 B"), "{error}");
    }
}
