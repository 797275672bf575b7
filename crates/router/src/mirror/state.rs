//! The mirror's copy of the kernel's tables, and what of it has been told to the worker: pure, no socket.
//!
//! Two things are kept apart: what the kernel says (by interface index, every table), and what was published (by port,
//! one route per prefix). Facts and whole dumps change the first, and the difference to the second is sent. So a dump that repeats what is known costs
//! the worker nothing. Routes are many: they are compared while they are read.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_net::{MacAddr, PortIndex, Prefix};

use super::decode::{Fact, IfIndex, KernelAddress, KernelLink, KernelNeighbourState, KernelRouteKind};
use super::routes::Routes;

/// A next hop of a mirrored route.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MirroredNextHop {
    /// The port to leave by; `None` if the interface is not a port of this router.
    pub port: Option<PortIndex>,
    /// The next router; `None` for directly connected destinations.
    pub gateway: Option<IpAddr>,
    /// Its share among several, 1 to 256.
    pub weight: u16,
}

/// The route the kernel would use for a prefix: local table before main, then the smallest metric.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MirroredRoute {
    /// What happens to packets.
    pub kind: KernelRouteKind,
    /// Smaller wins; kept for views.
    pub metric: u32,
    /// Where to. Empty unless `kind` is unicast.
    pub next_hops: Arc<[MirroredNextHop]>,
}

/// The state of a port's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MirroredLink {
    /// The kernel's index: another one means that the interface was re-created.
    pub index: IfIndex,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Longest IP packet, bytes.
    pub mtu: u32,
    /// Up and with carrier.
    pub up: bool,
}

/// A difference between what the worker knows and what the kernel has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MirrorEvent {
    /// The interface of a port changed; `None`: it is gone.
    Link {
        /// The port.
        port: PortIndex,
        /// Its interface now.
        link: Option<MirroredLink>,
    },
    /// An address of this machine came or went.
    Local {
        /// The address.
        address: IpAddr,
        /// Length of the prefix of its network.
        prefix_len: u8,
        /// The port whose interface has it; `None` for other interfaces, as the loopback.
        port: Option<PortIndex>,
        /// Whether it is there now.
        present: bool,
    },
    /// The route of a prefix changed; `None`: there is none any more.
    Route {
        /// The destinations.
        prefix: Prefix,
        /// Their route now.
        route: Option<MirroredRoute>,
    },
    /// A neighbour changed; `None`: the kernel has forgotten it.
    Neighbour {
        /// The port it is behind.
        port: PortIndex,
        /// Its address.
        address: IpAddr,
        /// What is known of it.
        state: Option<KernelNeighbourState>,
    },
}

/// How soon the tables have to be read again after a fact.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Resync {
    /// Not because of this.
    No,
    /// When things have calmed down: events may have been lost in the burst.
    Later,
    /// Soon: the kernel changes routes without saying so when links and addresses change.
    Soon,
    /// At once: messages were lost.
    Now,
}

/// What the kernel has besides routes.
#[derive(Debug, Default)]
pub struct Tables {
    links: HashMap<IfIndex, KernelLink>,
    addresses: BTreeSet<KernelAddress>,
    neighbours: HashMap<(IfIndex, IpAddr), KernelNeighbourState>,
}

impl Tables {
    /// Takes a fact of a dump in.
    pub fn add(&mut self, fact: Fact) {
        match fact {
            Fact::Link(link) => {
                self.links.insert(link.index, link);
            }
            Fact::Address(address) => {
                self.addresses.insert(address);
            }
            Fact::Neighbour(neighbour) => {
                self.neighbours.insert((neighbour.index, neighbour.address), neighbour.state);
            }
            _ => {}
        }
    }
}

/// The interfaces of the ports as published.
#[derive(Debug)]
pub(super) struct Ports(Vec<Option<MirroredLink>>);

impl Ports {
    pub(super) fn port_of(&self, index: IfIndex) -> Option<PortIndex> {
        let place = self.0.iter().position(|link| link.is_some_and(|link| link.index == index))?;
        Some(PortIndex(place as u16))
    }
}

/// What the kernel has and what the worker knows of it.
#[derive(Debug)]
pub struct KernelCopy {
    interfaces: Vec<String>,
    tables: Tables,
    routes: Routes,
    ports: Ports,
    published: Published,
}

/// An address of this machine: address, prefix length, port.
type OwnAddress = (IpAddr, u8, Option<PortIndex>);

#[derive(Debug, Default)]
struct Published {
    local: BTreeSet<OwnAddress>,
    neighbours: HashMap<(PortIndex, IpAddr), KernelNeighbourState>,
}

impl KernelCopy {
    /// A copy that knows nothing yet, for ports on `interfaces` (in the order of the ports).
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        let ports = Ports(vec![None; interfaces.len()]);
        Self {
            interfaces,
            tables: Tables::default(),
            routes: Routes::default(),
            ports,
            published: Published::default(),
        }
    }

    /// The interface index of a port now.
    #[must_use]
    pub fn index_of(&self, port: PortIndex) -> Option<IfIndex> {
        self.ports.0.get(port.index()).copied().flatten().map(|link| link.index)
    }

    /// Takes over links, addresses and neighbours as they have been read, and publishes the differences.
    pub fn replace(&mut self, tables: Tables, events: &mut Vec<MirrorEvent>) {
        let disabled: Vec<IfIndex> = self
            .tables
            .links
            .values()
            .filter(|link| link.enabled && !tables.links.get(&link.index).is_some_and(|link| link.enabled))
            .map(|link| link.index)
            .collect();
        self.tables = tables;
        self.publish_links(events);
        self.publish_local(events);
        for index in disabled {
            self.routes.forget_interface(index, &self.ports, events);
        }
        let known: Vec<(IfIndex, IpAddr)> = self.tables.neighbours.keys().copied().collect();
        for (index, address) in known {
            self.publish_neighbour(index, address, events);
        }
        let gone: Vec<(PortIndex, IpAddr)> = self
            .published
            .neighbours
            .keys()
            .copied()
            .filter(|&(port, address)| {
                self.index_of(port)
                    .is_none_or(|index| !self.tables.neighbours.contains_key(&(index, address)))
            })
            .collect();
        for (port, address) in gone {
            self.published.neighbours.remove(&(port, address));
            events.push(MirrorEvent::Neighbour { port, address, state: None });
        }
    }

    /// All routes are about to be read.
    pub fn begin_routes(&mut self) {
        self.routes.begin_dump();
    }

    /// A fact of the reading of all routes. Events may come between them.
    pub fn dumped_route(&mut self, fact: Fact, events: &mut Vec<MirrorEvent>) {
        if let Fact::Route { route, .. } = fact {
            self.routes.dumped(route, &self.ports, events);
        }
    }

    /// All routes have been read. If the reading was not `complete`, what it did not have stays.
    pub fn end_routes(&mut self, complete: bool, events: &mut Vec<MirrorEvent>) {
        self.routes.end_dump(complete, &self.ports, events);
    }

    /// Takes one fact in, publishes what follows from it alone, and says how soon to read everything again.
    pub fn apply(&mut self, fact: Fact, events: &mut Vec<MirrorEvent>) -> Resync {
        match fact {
            Fact::Link(link) => {
                if self.tables.links.get(&link.index) == Some(&link) {
                    return Resync::No;
                }
                let (index, enabled) = (link.index, link.enabled);
                let before = self.tables.links.insert(index, link);
                self.publish_links(events);
                if !enabled && before.is_some_and(|before| before.enabled) {
                    self.routes.forget_interface(index, &self.ports, events);
                }
                Resync::Soon
            }
            Fact::LinkGone(index) => {
                self.tables.links.remove(&index);
                self.publish_links(events);
                self.routes.forget_interface(index, &self.ports, events);
                Resync::Soon
            }
            Fact::Address(address) => {
                if !self.tables.addresses.insert(address) {
                    return Resync::No;
                }
                self.publish_local(events);
                Resync::Soon
            }
            Fact::AddressGone(address) => {
                self.tables.addresses.remove(&address);
                self.publish_local(events);
                Resync::Soon
            }
            Fact::Route { route, replace } => {
                self.routes.add(route, replace, &self.ports, events);
                Resync::Later
            }
            Fact::RouteGone(route) => {
                self.routes.remove(route, &self.ports, events);
                Resync::Later
            }
            Fact::Neighbour(neighbour) => {
                self.tables.neighbours.insert((neighbour.index, neighbour.address), neighbour.state);
                self.publish_neighbour(neighbour.index, neighbour.address, events);
                Resync::No
            }
            Fact::NeighbourGone(index, address) => {
                self.tables.neighbours.remove(&(index, address));
                self.publish_neighbour(index, address, events);
                Resync::No
            }
            Fact::Overrun => Resync::Now,
            Fact::Done | Fact::Answer(_) | Fact::Interrupted => Resync::No,
        }
    }

    fn publish_links(&mut self, events: &mut Vec<MirrorEvent>) {
        for (place, interface) in self.interfaces.iter().enumerate() {
            let link = self
                .tables
                .links
                .values()
                .find(|link| link.name == *interface)
                .map(|link| MirroredLink { index: link.index, mac: link.mac, mtu: link.mtu, up: link.up });
            let known = &mut self.ports.0[place];
            if *known != link {
                let index = |link: &Option<MirroredLink>| link.map(|link| link.index);
                self.routes.remapped |= index(known) != index(&link);
                *known = link;
                events.push(MirrorEvent::Link { port: PortIndex(place as u16), link });
            }
        }
    }

    fn publish_local(&mut self, events: &mut Vec<MirrorEvent>) {
        let own = |address: &KernelAddress| {
            (address.address, address.prefix_len, self.ports.port_of(address.index))
        };
        let local: BTreeSet<OwnAddress> = self.tables.addresses.iter().map(own).collect();
        // Withdrawn first: an address that moves from one port to another is known afterwards.
        for &(address, prefix_len, port) in self.published.local.difference(&local) {
            events.push(MirrorEvent::Local { address, prefix_len, port, present: false });
        }
        for &(address, prefix_len, port) in local.difference(&self.published.local) {
            events.push(MirrorEvent::Local { address, prefix_len, port, present: true });
        }
        self.published.local = local;
    }

    fn publish_neighbour(&mut self, index: IfIndex, address: IpAddr, events: &mut Vec<MirrorEvent>) {
        let Some(port) = self.ports.port_of(index) else { return };
        let state = self.tables.neighbours.get(&(index, address)).copied();
        let key = (port, address);
        if self.published.neighbours.get(&key).copied() == state {
            return;
        }
        match state {
            Some(state) => self.published.neighbours.insert(key, state),
            None => self.published.neighbours.remove(&key),
        };
        events.push(MirrorEvent::Neighbour { port, address, state });
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::{KernelNeighbour, KernelNextHop, KernelRoute, LOCAL_TABLE, MAIN_TABLE};
    use super::*;

    fn link(index: IfIndex, name: &str) -> Fact {
        Fact::Link(KernelLink {
            index,
            name: name.into(),
            mac: MacAddr([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            up: true,
            enabled: true,
        })
    }

    /// Everything is read again.
    fn read_again(copy: &mut KernelCopy, facts: Vec<Fact>, events: &mut Vec<MirrorEvent>) {
        let mut tables = Tables::default();
        let (routes, others): (Vec<_>, Vec<_>) =
            facts.into_iter().partition(|fact| matches!(fact, Fact::Route { .. }));
        others.into_iter().for_each(|fact| tables.add(fact));
        copy.replace(tables, events);
        copy.begin_routes();
        routes.into_iter().for_each(|fact| copy.dumped_route(fact, events));
        copy.end_routes(true, events);
    }

    fn route(prefix: &str, table: u32, metric: u32, hops: &[(IfIndex, Option<&str>)]) -> KernelRoute {
        KernelRoute {
            prefix: prefix.parse().unwrap(),
            table,
            metric,
            kind: if hops.is_empty() { KernelRouteKind::Local } else { KernelRouteKind::Unicast },
            next_hops: hops
                .iter()
                .map(|(index, gateway)| KernelNextHop {
                    index: *index,
                    gateway: gateway.map(|text| text.parse().unwrap()),
                    weight: 1,
                })
                .collect(),
        }
    }

    fn add(route: KernelRoute) -> Fact {
        Fact::Route { route, replace: false }
    }

    /// Two ports, eth1 with index 11 and eth2 with index 12; what has been published so far is dropped.
    fn two_ports() -> KernelCopy {
        let mut copy = KernelCopy::new(vec!["eth1".into(), "eth2".into()]);
        let mut events = Vec::new();
        read_again(&mut copy, vec![link(11, "eth1"), link(12, "eth2"), link(1, "lo")], &mut events);
        assert_eq!(events.len(), 2, "one event per port, none for lo: {events:?}");
        copy
    }

    fn ports_of(event: &MirrorEvent) -> Vec<Option<PortIndex>> {
        match event {
            MirrorEvent::Route { route: Some(route), .. } => {
                route.next_hops.iter().map(|hop| hop.port).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn metric_and_table_decide_and_the_second_best_comes_back() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let far = route("10.0.0.0/8", MAIN_TABLE, 100, &[(11, None)]);
        let near = route("10.0.0.0/8", MAIN_TABLE, 10, &[(12, None)]);
        let own = route("10.0.0.0/8", LOCAL_TABLE, 1000, &[]);
        assert_eq!(copy.apply(add(far), &mut events), Resync::Later);
        let _ = copy.apply(add(near.clone()), &mut events);
        let _ = copy.apply(add(own.clone()), &mut events);
        assert_eq!(ports_of(&events[0]), [Some(PortIndex(0))]);
        assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
        assert_eq!(ports_of(&events[2]), []);
        events.clear();
        let _ = copy.apply(Fact::RouteGone(near), &mut events);
        assert_eq!(events, vec![], "the local route hides the others");
        let _ = copy.apply(Fact::RouteGone(own), &mut events);
        assert_eq!(ports_of(&events[0]), [Some(PortIndex(0))]);
    }

    #[test]
    fn a_dump_that_repeats_what_is_known_publishes_nothing() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let facts = || {
            vec![
                link(11, "eth1"),
                link(12, "eth2"),
                Fact::Address(KernelAddress {
                    index: 11,
                    address: "10.0.0.1".parse().unwrap(),
                    prefix_len: 24,
                }),
                add(route("10.0.0.0/24", MAIN_TABLE, 0, &[(11, None)])),
                Fact::Neighbour(KernelNeighbour {
                    index: 11,
                    address: "10.0.0.9".parse().unwrap(),
                    state: KernelNeighbourState::Reachable(MacAddr([2; 6])),
                }),
            ]
        };
        for fact in facts() {
            let _ = copy.apply(fact, &mut events);
        }
        assert_eq!(events.len(), 3, "{events:?}");
        events.clear();
        read_again(&mut copy, facts(), &mut events);
        assert_eq!(events, vec![]);
    }

    #[test]
    fn what_a_dump_no_longer_has_is_withdrawn() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let _ = copy.apply(add(route("10.1.0.0/16", MAIN_TABLE, 0, &[(12, Some("10.0.0.2"))])), &mut events);
        let address: IpAddr = "10.0.0.2".parse().unwrap();
        let neighbour = KernelNeighbour { index: 12, address, state: KernelNeighbourState::Incomplete };
        let _ = copy.apply(Fact::Neighbour(neighbour), &mut events);
        events.clear();
        // eth2 went down: no message says that its routes and neighbours are gone.
        read_again(&mut copy, vec![link(11, "eth1"), link(12, "eth2")], &mut events);
        assert_eq!(
            events,
            vec![
                MirrorEvent::Neighbour { port: PortIndex(1), address, state: None },
                MirrorEvent::Route { prefix: "10.1.0.0/16".parse().unwrap(), route: None },
            ]
        );
    }

    #[test]
    fn a_recreated_interface_is_the_same_port() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        assert_eq!(copy.apply(Fact::LinkGone(12), &mut events), Resync::Soon);
        assert_eq!(events, vec![MirrorEvent::Link { port: PortIndex(1), link: None }]);
        events.clear();
        let _ = copy.apply(link(40, "eth2"), &mut events);
        let _ = copy.apply(add(route("10.1.0.0/16", MAIN_TABLE, 0, &[(40, None)])), &mut events);
        assert!(
            matches!(&events[0], MirrorEvent::Link { port: PortIndex(1), link: Some(link) } if link.index == 40)
        );
        assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
    }

    #[test]
    fn one_next_hop_of_several_can_go() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let both = route("2001:db8::/32", MAIN_TABLE, 1024, &[(11, Some("fe80::1")), (12, Some("fe80::2"))]);
        let _ = copy.apply(add(both), &mut events);
        let first = route("2001:db8::/32", MAIN_TABLE, 1024, &[(11, Some("fe80::1"))]);
        let second = route("2001:db8::/32", MAIN_TABLE, 1024, &[(12, Some("fe80::2"))]);
        let _ = copy.apply(Fact::RouteGone(first), &mut events);
        assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
        let _ = copy.apply(Fact::RouteGone(second), &mut events);
        assert_eq!(events[2], MirrorEvent::Route { prefix: "2001:db8::/32".parse().unwrap(), route: None });
    }

    #[test]
    fn replace_takes_the_old_one_away() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let _ = copy.apply(add(route("0.0.0.0/0", MAIN_TABLE, 0, &[(11, Some("10.0.0.2"))])), &mut events);
        let new = route("0.0.0.0/0", MAIN_TABLE, 0, &[(12, Some("10.0.1.2"))]);
        let _ = copy.apply(Fact::Route { route: new.clone(), replace: true }, &mut events);
        assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
        let _ = copy.apply(Fact::RouteGone(new), &mut events);
        assert!(
            matches!(&events[2], MirrorEvent::Route { route: None, .. }),
            "the replaced one is not behind it"
        );
    }

    #[test]
    fn next_hops_beyond_other_interfaces_have_no_port() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let _ = copy.apply(add(route("192.0.2.0/24", MAIN_TABLE, 0, &[(99, None)])), &mut events);
        assert_eq!(ports_of(&events[0]), [None]);
    }

    #[test]
    fn lost_messages_ask_for_a_dump_at_once() {
        assert_eq!(two_ports().apply(Fact::Overrun, &mut Vec::new()), Resync::Now);
    }

    #[test]
    fn what_happens_during_a_dump_stands_and_what_the_dump_lacks_goes() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let via = |prefix: &str, index| route(prefix, MAIN_TABLE, 0, &[(index, Some("10.0.0.2"))]);
        for prefix in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"] {
            let _ = copy.apply(add(via(prefix, 11)), &mut events);
        }
        events.clear();
        copy.begin_routes();
        // Lost without a word: 10.1/16 leads elsewhere, 10.5/16 is new, 10.4/16 is gone.
        copy.dumped_route(add(via("10.1.0.0/16", 12)), &mut events);
        copy.dumped_route(add(via("10.2.0.0/16", 11)), &mut events);
        assert_eq!(events.len(), 1, "told while the dump is read: {events:?}");
        // Meanwhile 10.2/16 and 10.3/16 change; the dump has the one as it was, and the other not at all.
        let _ = copy.apply(Fact::RouteGone(via("10.2.0.0/16", 11)), &mut events);
        let _ = copy.apply(Fact::Route { route: via("10.3.0.0/16", 12), replace: true }, &mut events);
        copy.dumped_route(add(via("10.2.0.0/16", 11)), &mut events);
        copy.dumped_route(add(via("10.5.0.0/16", 11)), &mut events);
        copy.end_routes(true, &mut events);
        let told: Vec<(String, Vec<Option<PortIndex>>)> = events
            .iter()
            .map(|event| match event {
                MirrorEvent::Route { prefix, route } => {
                    let hops = route.iter().flat_map(|route| route.next_hops.iter()).map(|hop| hop.port);
                    (prefix.to_string(), hops.collect())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let (first, second) = (vec![Some(PortIndex(0))], vec![Some(PortIndex(1))]);
        let expected = [
            ("10.1.0.0/16", second.clone()),
            ("10.2.0.0/16", vec![]),
            ("10.3.0.0/16", second),
            ("10.5.0.0/16", first),
            ("10.4.0.0/16", vec![]),
        ];
        assert_eq!(told, expected.map(|(prefix, hops)| (prefix.to_owned(), hops)));
        // One that was interrupted takes nothing away.
        events.clear();
        copy.begin_routes();
        copy.end_routes(false, &mut events);
        assert_eq!(events, vec![]);
    }

    #[test]
    fn an_interface_that_is_taken_down_takes_its_next_hops_along_and_one_without_carrier_does_not() {
        let mut copy = two_ports();
        let mut events = Vec::new();
        let both = route("10.1.0.0/16", MAIN_TABLE, 0, &[(11, None), (12, None)]);
        let one = route("10.2.0.0/16", MAIN_TABLE, 0, &[(12, None)]);
        for route in [both, one, route("10.9.0.0/16", LOCAL_TABLE, 0, &[])] {
            let _ = copy.apply(add(route), &mut events);
        }
        let mut without = |enabled| {
            let Fact::Link(mut link) = link(12, "eth2") else { unreachable!() };
            (link.up, link.enabled) = (false, enabled);
            events.clear();
            let _ = copy.apply(Fact::Link(link), &mut events);
            events.iter().filter(|event| matches!(event, MirrorEvent::Route { .. })).cloned().collect()
        };
        let told: Vec<MirrorEvent> = without(true);
        assert_eq!(told, vec![], "no carrier");
        let told: Vec<MirrorEvent> = without(false);
        assert_eq!(ports_of(&told[0]), [Some(PortIndex(0))]);
        assert_eq!(told[1], MirrorEvent::Route { prefix: "10.2.0.0/16".parse().unwrap(), route: None });
        assert_eq!(told.len(), 2, "{told:?}");
    }
}
