//! Wires, addresses and routes: all follow from the order of the wires in the file.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_config::{Change, LinkChange};
use evenkeel_core::{BitRate, Nanos};
use evenkeel_settings::read::suggest;

use crate::model::{Scenario, Step, Traffic};
use crate::subscribers::Subscribers;

/// A `[[wire]]`: an Ethernet link between two nodes with its own subnets.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// Both ends, in the order of the file.
    pub ends: [End; 2],
    /// Length of the IPv4 prefix.
    pub prefix4: u8,
    /// Length of the IPv6 prefix: 64.
    pub prefix6: u8,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// What it does to packets.
    pub quality: Quality,
    /// Where it stands: `file:line`, for messages.
    pub place: String,
    /// Whether it is down: no route uses it.
    pub down: bool,
}

/// What a wire does to packets, in each direction. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quality {
    /// Bits per second; `None`: packets take no time.
    pub rate: Option<BitRate>,
    /// Packets that may wait for it, if there is a rate.
    pub queue: u32,
    /// Propagation delay.
    pub delay: Nanos,
    /// Up to this much more, uniform; order is kept.
    pub jitter: Nanos,
    /// Part of the packets that is lost, in thousand-millionths.
    pub loss: u32,
    /// Part of the packets that overtake, in thousand-millionths.
    pub reorder: u32,
}

impl Quality {
    /// Whether it does anything.
    #[must_use]
    pub fn is_perfect(&self) -> bool {
        let Self { rate, queue: _, delay, jitter, loss, reorder } = self;
        rate.is_none()
            && *delay == Nanos::ZERO
            && *jitter == Nanos::ZERO
            && (*loss, *reorder) == (0, 0)
    }
}

/// One end of a wire.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The node.
    pub node: String,
    /// The network interface in the node, named after the node at the other end; for routers also
    /// the port's name.
    pub interface: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// An interface of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The wire: an index into [`Scenario::wires`].
    pub wire: usize,
    /// The node at the other end.
    pub peer: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Length of the IPv4 prefix.
    pub prefix4: u8,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// Length of the IPv6 prefix.
    pub prefix6: u8,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

/// A route that a node needs besides those to its own subnets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// Network address of the destination.
    pub destination: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// The next hop.
    pub via: IpAddr,
    /// The interface that leads there.
    pub interface: String,
    /// Other loop-free next hops and their interfaces, which the first is preferred to: where the
    /// router pins flows to paths.
    pub others: Vec<(IpAddr, String)>,
}

/// The weight of a route's first next hop where it has others, which have 1.
pub const FIRST_WEIGHT: u16 = 2;

impl Wire {
    /// The end at a node, and the end at the other.
    #[must_use]
    pub fn from_node(&self, node: &str) -> Option<(&End, &End)> {
        let [a, b] = &self.ends;
        if a.node == node {
            Some((a, b))
        } else if b.node == node {
            Some((b, a))
        } else {
            None
        }
    }

    /// The network addresses of its subnets.
    #[must_use]
    pub fn subnets(&self) -> (Ipv4Addr, Ipv6Addr) {
        let mask4 = u32::MAX.checked_shl(u32::from(32 - self.prefix4.min(32))).unwrap_or(0);
        let mask6 = u128::MAX.checked_shl(u32::from(128 - self.prefix6.min(128))).unwrap_or(0);
        let end = &self.ends[0];
        (
            Ipv4Addr::from_bits(end.v4.to_bits() & mask4),
            Ipv6Addr::from_bits(end.v6.to_bits() & mask6),
        )
    }
}

impl Scenario {
    /// The number of the wire between two nodes, `"r1/r2"`, in either order.
    ///
    /// # Errors
    /// There is none; says which there are.
    pub fn wire(&self, name: &str) -> Result<usize, String> {
        let (a, b) = name.split_once('/').unwrap_or((name, ""));
        let ends = |wire: &Wire| wire.ends.each_ref().map(|end| end.node.clone());
        let is_meant = |wire: &Wire| {
            let [first, second] = ends(wire);
            (first == a && second == b) || (first == b && second == a)
        };
        self.wires.iter().position(is_meant).ok_or_else(|| {
            let known: Vec<_> = self.wires.iter().map(|wire| ends(wire).join("/")).collect();
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            format!("no wire {name:?}; {}", suggest(name, &known))
        })
    }

    /// The interfaces of a node, in the order of the wires.
    #[must_use]
    pub fn interfaces(&self, node: &str) -> Vec<Interface> {
        let ends = self.wires.iter().enumerate().filter_map(|(index, wire)| {
            let (near, far) = wire.from_node(node)?;
            Some(Interface {
                name: near.interface.clone(),
                wire: index,
                peer: far.node.clone(),
                v4: near.v4,
                prefix4: wire.prefix4,
                v6: near.v6,
                prefix6: wire.prefix6,
                mtu: wire.mtu,
            })
        });
        ends.collect()
    }

    /// The routes a node needs to reach every subnet that is not its own: shortest paths through
    /// routers, the first wire of the file among equals.
    #[must_use]
    pub fn routes(&self, node: &str) -> Vec<Route> {
        let reached = self.reach(node);
        let mut routes = Vec::new();
        for wire in self.wires.iter().filter(|wire| !wire.down) {
            if wire.from_node(node).is_some() {
                continue;
            }
            let Some(reach) = self.nearer_end(&reached, wire) else { continue };
            let Some((near, far)) =
                self.wires.get(reach.first_wire).and_then(|wire| wire.from_node(node))
            else {
                continue;
            };
            let (v4, v6) = wire.subnets();
            let (interface, others) = (near.interface.clone(), self.other_ways(node, wire, &reach));
            let others4 = others.iter().map(|(near, far)| (far.v4.into(), near.interface.clone()));
            let others6 = others.iter().map(|(near, far)| (far.v6.into(), near.interface.clone()));
            let v4_route = Route {
                destination: v4.into(),
                prefix: wire.prefix4,
                via: far.v4.into(),
                interface: interface.clone(),
                others: others4.collect(),
            };
            let v6_route = Route {
                destination: v6.into(),
                prefix: wire.prefix6,
                via: far.v6.into(),
                interface,
                others: others6.collect(),
            };
            routes.extend([v4_route, v6_route]);
        }
        routes.extend(self.subscribers.iter().flat_map(|group| self.routes_to(node, group)));
        routes
    }

    /// The routes of a node to the addresses of people behind a host: as to that, by it.
    fn routes_to(&self, node: &str, group: &Subscribers) -> Vec<Route> {
        let ways = || {
            let ((host, _), networks) = (group.host.as_ref()?, group.networks()?);
            let path = self.path_between(node, host)?;
            let next = path.get(1)?;
            let joins = |wire: &Wire| {
                let (near, far) = wire.from_node(node).filter(|(_, far)| far.node == *next)?;
                Some((near.interface.clone(), [far.v4.into(), far.v6.into()]))
            };
            let (interface, via) = self.wires.iter().find_map(joins)?;
            let routes = networks.iter().zip(via).map(|(network, via)| Route {
                destination: network.address(),
                prefix: network.len(),
                via,
                interface: interface.clone(),
                others: Vec::new(),
            });
            Some(routes.collect())
        };
        ways().unwrap_or_default()
    }

    /// Where a router pins flows to paths: the other neighbours that lead to `wire` and not back
    /// (RFC 5286, inequality 1, all wires of equal length), by near and far end; `best` is the way
    /// without.
    fn other_ways(&self, node: &str, wire: &Wire, best: &Reach) -> Vec<(&End, &End)> {
        let pins = |end: &End| {
            let router = self.router(node);
            let port = router
                .and_then(|r| r.config.ports.iter().find(|port| port.interface == end.interface));
            let link = router
                .zip(port)
                .and_then(|(r, port)| r.config.links.iter().find(|l| l.port == port.name));
            link.and_then(|link| link.admission.as_ref())
                .is_some_and(|admission| admission.pinning.on)
        };
        let first = self.wires.get(best.first_wire).and_then(|wire| wire.from_node(node));
        if !first.is_some_and(|(near, _)| pins(near)) {
            return Vec::new();
        }
        let all =
            self.wires.iter().enumerate().filter(|(at, way)| *at != best.first_wire && !way.down);
        let ways = all.filter_map(|(_, way)| way.from_node(node));
        ways.filter(|(near, far)| {
            let reached = self.reach(&far.node);
            let ends = wire.ends.iter().filter(|end| self.is_router(&end.node));
            let distance = ends
                .filter_map(|end| match end.node == far.node {
                    true => Some(0),
                    false => reached.get(end.node.as_str()).map(|reach| reach.distance),
                })
                .min();
            self.is_router(&far.node)
                && pins(near)
                && distance.is_some_and(|distance| distance < 1 + best.distance)
        })
        .collect()
    }

    /// The same scenario as it is laid out during the step with this index: wires that are down
    /// then carry no routes.
    #[must_use]
    pub fn during(&self, step: usize) -> Self {
        let mut then = self.clone();
        for step in self.steps.iter().take(step + 1) {
            for (wires, down) in [(&step.down, true), (&step.up, false)] {
                for wire in wires {
                    if let Some(wire) = then.wires.get_mut(*wire) {
                        wire.down = down;
                    }
                }
            }
        }
        then
    }

    /// Whether wires go down or come up.
    #[must_use]
    pub fn layout_changes(&self) -> bool {
        self.steps.iter().any(Step::changes_layout)
    }

    /// Whether it is worth measuring how long flows wait: a link has or gets an admission, or flows
    /// must find another way.
    #[must_use]
    pub fn measures_acceptance(&self) -> bool {
        let mut links = self.routers.iter().flat_map(|router| &router.config.links);
        let mut changes = self.steps.iter().flat_map(|step| &step.set);
        self.layout_changes()
            || links.any(|link| link.admission.is_some())
            || changes.any(|set| {
                matches!(set.change, Change::Link(_, LinkChange::WholeAdmission(Some(_))))
            })
    }

    /// The paths from one host to another in the order of the steps in which they are used; each
    /// once. Where a router pins flows to paths, also those by its other next hops.
    #[must_use]
    pub fn paths_between(&self, from: &str, to: &str) -> Vec<Vec<String>> {
        let mut paths: Vec<Vec<String>> = Vec::new();
        let changed = self.steps.iter().enumerate().filter(|(_, step)| step.changes_layout());
        let changed = changed.map(|(index, _)| Cow::Owned(self.during(index)));
        for layout in std::iter::once(Cow::Borrowed(self)).chain(changed) {
            let Some(usual) = layout.path_between(from, to) else { continue };
            let others = layout.other_paths(&usual, to);
            for path in std::iter::once(usual).chain(others) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// The paths that leave the usual one at a router that pins flows to paths.
    fn other_paths(&self, usual: &[String], to: &str) -> Vec<Vec<String>> {
        let Some(target) = self.wires.iter().find(|wire| wire.from_node(to).is_some()) else {
            return Vec::new();
        };
        let mut paths = Vec::new();
        for (at, node) in usual.iter().enumerate().filter(|(_, node)| self.is_router(node)) {
            let Some(best) = self.nearest(node, target) else { continue };
            for (_, far) in self.other_ways(node, target, &best) {
                let rest = self.path_between(&far.node, to);
                paths.extend(
                    rest.map(|rest| usual[..=at].iter().cloned().chain(rest).collect::<Vec<_>>()),
                );
            }
        }
        paths
    }

    /// The address of a host that traffic is sent to: that of its first wire.
    #[must_use]
    pub fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr> {
        let end = self.wires.iter().find_map(|wire| wire.from_node(host)).map(|(end, _)| end)?;
        Some(if ipv6 { end.v6.into() } else { end.v4.into() })
    }

    /// Source and destination of flow number `flow` of a `[[traffic]]`; `None` if its hosts have no
    /// addresses.
    #[must_use]
    pub fn ends(&self, traffic: &Traffic, flow: u64) -> Option<(IpAddr, IpAddr)> {
        let address = |host: &str| self.address(host, traffic.ipv6);
        let hosts = (address(&traffic.from)?, address(&traffic.to)?);
        Some(traffic.party.as_ref().map_or(hosts, |party| party.ends(flow, hosts)))
    }

    /// The nodes that packets from one host to another pass, both included, when they are sent to
    /// the address that [`Scenario::address`] gives and follow [`Scenario::routes`]; `None` if no
    /// path leads there.
    #[must_use]
    pub fn path_between(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let target = self.wires.iter().position(|wire| wire.from_node(to).is_some())?;
        let mut path = vec![from.to_owned()];
        let mut here = from;
        while here != to {
            let next = match self.wires.get(target)?.from_node(here) {
                Some(_) => to,
                None => self.next_hop(here, target)?,
            };
            path.push(next.to_owned());
            here = next;
            if path.len() > self.hosts.len() + self.routers.len() {
                return None;
            }
        }
        Some(path)
    }

    fn next_hop(&self, from: &str, wire: usize) -> Option<&str> {
        let reach = self.nearest(from, self.wires.get(wire)?)?;
        let (_, far) = self.wires.get(reach.first_wire)?.from_node(from)?;
        Some(&far.node)
    }

    /// How a node reaches a wire.
    fn nearest(&self, from: &str, wire: &Wire) -> Option<Reach> {
        self.nearer_end(&self.reach(from), wire)
    }

    /// The nearer end; hosts do not forward, so only a router leads onto a wire.
    fn nearer_end(&self, reached: &BTreeMap<&str, Reach>, wire: &Wire) -> Option<Reach> {
        let ends = wire.ends.iter().filter(|end| self.is_router(&end.node));
        ends.filter_map(|end| reached.get(end.node.as_str()))
            .min_by_key(|reach| reach.distance)
            .copied()
    }

    fn is_router(&self, node: &str) -> bool {
        self.routers.iter().any(|router| router.name == node)
    }

    /// How far every node is that can be reached through routers, and over which wire the way
    /// begins.
    fn reach(&self, from: &str) -> BTreeMap<&str, Reach> {
        let mut reached: BTreeMap<&str, Reach> = BTreeMap::new();
        let mut waiting = VecDeque::from([(from, None)]);
        while let Some((node, here)) = waiting.pop_front() {
            for (index, wire) in self.wires.iter().enumerate().filter(|(_, wire)| !wire.down) {
                let Some((_, far)) = wire.from_node(node) else { continue };
                let known = far.node == from || reached.contains_key(far.node.as_str());
                if known {
                    continue;
                }
                let reach = match here {
                    None => Reach { distance: 1, first_wire: index },
                    Some(Reach { distance, first_wire }) => {
                        Reach { distance: distance + 1, first_wire }
                    }
                };
                reached.insert(&far.node, reach);
                if self.is_router(&far.node) {
                    waiting.push_back((&far.node, Some(reach)));
                }
            }
        }
        reached
    }
}

/// How a node is reached.
#[derive(Clone, Copy, Debug)]
struct Reach {
    distance: usize,
    first_wire: usize,
}
