//! The mirror's copy of the kernel's tables, and what of it has been told to the worker: pure, no
//! socket.
//!
//! Two things are kept apart: what the kernel says (by interface index, every table), and what was
//! published (by port, one route per prefix). Facts and whole dumps change the first, and the
//! difference to the second is sent. So a dump that repeats what is known costs the worker nothing.
//! Routes are many: they are compared while they are read.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use evenkeel_core::FlowKey;
use evenkeel_net::policy::{DEFAULT_TABLE, TableId};
use evenkeel_net::{MacAddr, PortIndex, Prefix};

use super::decode::{
    Fact, IfIndex, KernelAddress, KernelLink, KernelNeighbour, KernelNeighbourState,
    KernelRouteKind, NotFollowed,
};
use super::faults::MirrorFaults;
use super::names::TableNames;
use super::refused::RefusedNeighbours;
use super::routes::Routes;
use super::rules::{KernelRule, MirroredRules, PortPlace, compile};

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

/// The route that the kernel would use for a prefix of a table: of several the one with the
/// smallest metric.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MirroredRoute {
    /// What happens to packets.
    pub kind: KernelRouteKind,
    /// Smaller wins; kept for views.
    pub metric: u32,
    /// The longest IP packet in transit that it takes, bytes; `None`: as long as the port takes.
    pub mtu: Option<u32>,
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
        /// In which table. As long as there are no [rules](MirrorEvent::Rules), all that matters is
        /// in the table main.
        table: TableId,
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
    /// The rules changed, or the names of tables.
    Rules(Arc<MirroredRules>),
    /// The kernel does something with packets in transit that is not followed here; told once of
    /// each.
    NotFollowed(NotFollowed),
    /// The kernel has refused requests for neighbours: how many in all since the mirror was
    /// started.
    RefusedNeighbours(RefusedNeighbours),
    /// The host behind a translated connection (NAT); `None`: the connection is gone.
    Translation {
        /// The connection as its packets come in at the outer interface.
        flow: FlowKey,
        /// Its host.
        inside: Option<Ipv4Addr>,
    },
    /// Translated connections are told anew, all of them: some were missed.
    NoTranslations,
    /// Something went wrong with following: all of it since the mirror was started.
    Faults(MirrorFaults),
}

/// How soon the tables have to be read again after a fact.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Resync {
    /// Not because of this.
    No,
    /// When things have calmed down: events may have been lost in the burst.
    Later,
    /// The rules, and nothing else: which one is gone is not said.
    Rules,
    /// Soon: the kernel changes routes without saying so when links and addresses change.
    Soon,
    /// At once: messages were lost.
    Now,
}

/// What the kernel has few of.
#[derive(Debug, Default)]
pub struct Tables {
    links: HashMap<IfIndex, KernelLink>,
    addresses: BTreeSet<KernelAddress>,
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
            _ => {}
        }
    }
}

/// The kernel's neighbours. A dump is taken in one by one, as that of routes is.
#[derive(Debug, Default)]
struct Neighbours {
    /// With the number of the last dump that had it, or before the end of which an event told of
    /// it.
    known: HashMap<(IfIndex, IpAddr), (KernelNeighbourState, u64)>,
    /// The number of the dump that is being read, or comes next.
    dump: u64,
    /// What events have told to be gone since it began.
    gone: HashSet<(IfIndex, IpAddr)>,
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
    neighbours: Neighbours,
    routes: Routes,
    /// `None`: not read yet.
    rules: Option<Vec<KernelRule>>,
    names: TableNames,
    ports: Ports,
    published: Published,
}

/// An address of this machine: address, prefix length, port.
type OwnAddress = (IpAddr, u8, Option<PortIndex>);

#[derive(Debug, Default)]
struct Published {
    local: BTreeSet<OwnAddress>,
    neighbours: HashMap<(PortIndex, IpAddr), KernelNeighbourState>,
    rules: MirroredRules,
    not_followed: BTreeSet<NotFollowed>,
}

impl KernelCopy {
    /// A copy that knows nothing yet, for ports on `interfaces` (in the order of the ports).
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        let ports = Ports(vec![None; interfaces.len()]);
        Self {
            interfaces,
            tables: Tables::default(),
            neighbours: Neighbours::default(),
            routes: Routes::default(),
            rules: None,
            names: TableNames::default(),
            ports,
            published: Published::default(),
        }
    }

    /// The interface index of a port now.
    #[must_use]
    pub fn index_of(&self, port: PortIndex) -> Option<IfIndex> {
        self.ports.0.get(port.index()).copied().flatten().map(|link| link.index)
    }

    /// Takes over links and addresses as they have been read, and publishes the differences.
    pub fn replace(&mut self, tables: Tables, events: &mut Vec<MirrorEvent>) {
        let disabled: Vec<IfIndex> = self
            .tables
            .links
            .values()
            .filter(|link| {
                link.enabled && !tables.links.get(&link.index).is_some_and(|link| link.enabled)
            })
            .map(|link| link.index)
            .collect();
        self.tables = tables;
        self.links_changed(events);
        self.publish_local(events);
        for index in disabled {
            self.routes.forget_interface(index, &self.ports, events);
        }
    }

    /// Takes over all rules as they have been read, and the names of tables.
    pub fn replace_rules(
        &mut self,
        rules: Vec<KernelRule>,
        names: TableNames,
        events: &mut Vec<MirrorEvent>,
    ) {
        for what in rules.iter().flat_map(KernelRule::not_followed) {
            self.not_followed(what, events);
        }
        self.rules = Some(rules);
        self.names = names;
        self.publish_rules(events);
    }

    /// All neighbours are about to be read.
    pub fn begin_neighbours(&mut self) {
        self.neighbours.dump += 1;
        self.neighbours.gone.clear();
    }

    /// A fact of the reading of all neighbours. Events may come between them.
    pub fn dumped_neighbour(&mut self, fact: Fact, events: &mut Vec<MirrorEvent>) {
        let Fact::Neighbour(KernelNeighbour { index, address, state }) = fact else { return };
        let key = (index, address);
        let Neighbours { known, dump, gone } = &mut self.neighbours;
        let told_by_an_event = known.get(&key).is_some_and(|(_, seen)| *seen == *dump);
        if !told_by_an_event && !gone.contains(&key) {
            known.insert(key, (state, *dump));
            self.publish_neighbour(index, address, events);
        }
    }

    /// All neighbours have been read. If the reading was not `complete`, what it did not have
    /// stays. O(n).
    pub fn end_neighbours(&mut self, complete: bool, events: &mut Vec<MirrorEvent>) {
        let Neighbours { known, dump, gone } = &mut self.neighbours;
        gone.clear();
        if !complete {
            return;
        }
        let mut lost = Vec::new();
        known.retain(|key, (_, seen)| {
            let stays = *seen >= *dump;
            if !stays {
                lost.push(*key);
            }
            stays
        });
        *dump += 1;
        for (index, address) in lost {
            self.publish_neighbour(index, address, events);
        }
    }

    /// All routes are about to be read.
    pub fn begin_routes(&mut self) {
        self.routes.begin_dump();
    }

    /// A fact of the reading of all routes. Events may come between them.
    pub fn dumped_route(&mut self, fact: Fact, events: &mut Vec<MirrorEvent>) {
        match fact {
            Fact::Route { route, .. } => {
                let concerns = self.concerns_rules(route.table);
                self.routes.dumped(route, &self.ports, events);
                self.rules_follow(concerns, events);
            }
            Fact::NotFollowed(what) => self.not_followed(what, events),
            _ => {}
        }
    }

    /// All routes have been read. If the reading was not `complete`, what it did not have stays.
    pub fn end_routes(&mut self, complete: bool, events: &mut Vec<MirrorEvent>) {
        let concerns = self.concerns_rules(DEFAULT_TABLE);
        self.routes.end_dump(complete, &self.ports, events);
        self.rules_follow(concerns, events);
    }

    /// Whether the table is `default`, by which the rules are told from none as long as it is
    /// empty: and if so, whether it is.
    fn concerns_rules(&self, table: TableId) -> Option<bool> {
        (table == DEFAULT_TABLE).then(|| self.routes.is_empty(table))
    }

    fn rules_follow(&mut self, before: Option<bool>, events: &mut Vec<MirrorEvent>) {
        if before.is_some_and(|before| before != self.routes.is_empty(DEFAULT_TABLE)) {
            self.publish_rules(events);
        }
    }

    fn not_followed(&mut self, what: NotFollowed, events: &mut Vec<MirrorEvent>) {
        if self.published.not_followed.insert(what) {
            events.push(MirrorEvent::NotFollowed(what));
        }
    }

    /// Where rules look for the ports.
    fn places(&self) -> Vec<PortPlace> {
        let place = |(at, interface): (usize, &String)| {
            let domain = || {
                let link = self.tables.links.get(&self.ports.0[at]?.index)?;
                let master = self.tables.links.get(&link.master?)?;
                Some((master.name.clone(), master.vrf_table?))
            };
            PortPlace { port: PortIndex(at as u16), interface: interface.clone(), domain: domain() }
        };
        self.interfaces.iter().enumerate().map(place).collect()
    }

    fn publish_rules(&mut self, events: &mut Vec<MirrorEvent>) {
        let Some(rules) = &self.rules else { return };
        let told = MirroredRules {
            rules: compile(rules, &self.places(), self.routes.is_empty(DEFAULT_TABLE)),
            words: rules.iter().map(|rule| rule.words(&self.names)).collect(),
            names: self.names.all().clone(),
        };
        if told == self.published.rules {
            return;
        }
        self.published.rules = told.clone();
        let merged = told.rules.is_none();
        let tell = |events: &mut Vec<MirrorEvent>| events.push(MirrorEvent::Rules(Arc::new(told)));
        if merged == self.routes.is_merged() {
            tell(events);
        } else {
            self.routes.set_merged(merged, &self.ports, events, tell);
        }
    }

    /// Takes one fact in, publishes what follows from it alone, and says how soon to read
    /// everything again.
    pub fn apply(&mut self, fact: Fact, events: &mut Vec<MirrorEvent>) -> Resync {
        match fact {
            Fact::Link(link) => {
                if self.tables.links.get(&link.index) == Some(&link) {
                    return Resync::No;
                }
                let (index, enabled) = (link.index, link.enabled);
                let before = self.tables.links.insert(index, link);
                self.links_changed(events);
                if !enabled && before.is_some_and(|before| before.enabled) {
                    self.routes.forget_interface(index, &self.ports, events);
                }
                Resync::Soon
            }
            Fact::LinkGone(index) => {
                self.tables.links.remove(&index);
                self.links_changed(events);
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
                let concerns = self.concerns_rules(route.table);
                self.routes.add(route, replace, &self.ports, events);
                self.rules_follow(concerns, events);
                Resync::Later
            }
            Fact::RouteGone(route) => {
                let concerns = self.concerns_rules(route.table);
                self.routes.remove(route, &self.ports, events);
                self.rules_follow(concerns, events);
                Resync::Later
            }
            Fact::Rule(_) | Fact::RuleGone => Resync::Rules,
            Fact::NotFollowed(what) => {
                self.not_followed(what, events);
                Resync::No
            }
            Fact::Neighbour(KernelNeighbour { index, address, state }) => {
                self.neighbours.known.insert((index, address), (state, self.neighbours.dump));
                self.publish_neighbour(index, address, events);
                Resync::No
            }
            Fact::NeighbourGone(index, address) => {
                self.neighbours.known.remove(&(index, address));
                self.neighbours.gone.insert((index, address));
                self.publish_neighbour(index, address, events);
                Resync::No
            }
            Fact::Overrun => Resync::Now,
            Fact::Done | Fact::Answer(_) | Fact::Interrupted => Resync::No,
        }
    }

    fn publish_links(&mut self, events: &mut Vec<MirrorEvent>) {
        for (place, interface) in self.interfaces.iter().enumerate() {
            let link =
                self.tables.links.values().find(|link| link.name == *interface).map(|link| {
                    MirroredLink { index: link.index, mac: link.mac, mtu: link.mtu, up: link.up }
                });
            let known = &mut self.ports.0[place];
            if *known != link {
                let index = |link: &Option<MirroredLink>| link.map(|link| link.index);
                let port = PortIndex(place as u16);
                if index(known) != index(&link) {
                    self.routes.remapped = true;
                    // Those of the interface that the port had before. They are told anew when all
                    // are read again, soon.
                    self.published.neighbours.retain(|&(of, address), _| {
                        if of == port {
                            events.push(MirrorEvent::Neighbour { port, address, state: None });
                        }
                        of != port
                    });
                }
                *known = link;
                events.push(MirrorEvent::Link { port, link });
            }
        }
    }

    fn links_changed(&mut self, events: &mut Vec<MirrorEvent>) {
        self.publish_links(events);
        // Rules name interfaces, and domains are links.
        self.publish_rules(events);
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

    fn publish_neighbour(
        &mut self,
        index: IfIndex,
        address: IpAddr,
        events: &mut Vec<MirrorEvent>,
    ) {
        let Some(port) = self.ports.port_of(index) else { return };
        let state = self.neighbours.known.get(&(index, address)).map(|(state, _)| *state);
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
mod tests;
