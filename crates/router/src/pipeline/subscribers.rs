//! Whose a packet is, and what is counted of subscribers.
//!
//! By what its frame says below the addresses, where the list has such keys: the session of PPPoE,
//! the VLANs, the station at the subscriber's end, in this order. Else by the longest prefix. On
//! the link towards the subscribers station and address are those of the destination, on the one
//! away from them those of the source; a routed frame is asked for them before it is made anew.
//! What matches nobody is `unknown`.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_config::RouterConfig;
use evenkeel_config::subscribers::{Entry, Role, SubscriberTree, name_of};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::measure::round_trips::RoundTrip;
use evenkeel_core::schedule::tree::{LINK, NodeState, UNKNOWN};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::{FlowKey, L2Key, Nanos};
use evenkeel_net::access::Access;
use evenkeel_net::hash::SeededState;
use evenkeel_net::prefix_map::PrefixMap;
use evenkeel_ports::Frame;

use super::Pipeline;
use super::distances::Distances;
use super::node_classes::NodeClasses;
use super::packet::QueuedPacket;
use super::port::PortSlot;
use crate::command::NodeQuery;
use crate::error::CommandError;
use crate::snapshot::{BranchSnapshot, NodeSnapshot, TreeSnapshot};

/// Subscribers by what their packets are found by.
#[derive(Default)]
pub(crate) struct Directory {
    prefixes: PrefixMap<u32>,
    l2: ByL2,
}

impl Directory {
    /// Whose a frame is, of the flow as it is there; `down`: it is on its way towards the
    /// subscribers.
    #[inline]
    fn find(
        &self,
        frame: &[u8],
        flow: impl FnOnce() -> FlowKey,
        down: bool,
    ) -> Result<u32, Stranger> {
        let access = (!self.l2.places.is_empty()).then(|| Access::of(frame)).flatten();
        if let Some(place) = access.as_ref().and_then(|access| self.l2.find(access, down)) {
            return Ok(place);
        }
        let flow = flow();
        let address = if down { flow.destination } else { flow.source };
        self.prefixes.longest(address).copied().ok_or_else(|| {
            let address = Some(address).filter(|address| !address.is_unspecified());
            Stranger { address, access }
        })
    }
}

/// Subscribers by keys of layer two.
struct ByL2 {
    places: HashMap<L2Key, u32, SeededState>,
    /// Which kinds of keys there are: nobody is looked for by others.
    sessions: bool,
    vlans: bool,
    stations: bool,
}

impl Default for ByL2 {
    fn default() -> Self {
        // Keys come from the list, and only questions from packets: no seed need be secret.
        let places = HashMap::with_hasher(SeededState::new(0));
        Self { places, sessions: false, vlans: false, stations: false }
    }
}

impl ByL2 {
    fn insert(&mut self, key: L2Key, place: u32) {
        *match key {
            L2Key::Session { .. } => &mut self.sessions,
            L2Key::Vlan { .. } => &mut self.vlans,
            L2Key::Station(_) => &mut self.stations,
        } = true;
        self.places.insert(key, place);
    }

    /// Whose a frame is; `down`: it is on its way towards the subscribers.
    fn find(&self, access: &Access, down: bool) -> Option<u32> {
        let station = if down { access.destination } else { access.source };
        let of = |key: L2Key| self.places.get(&key).copied();
        let session = || {
            let id = access.session.filter(|_| self.sessions)?;
            of(L2Key::Session { id, station: Some(station) })
                .or_else(|| of(L2Key::Session { id, station: None }))
        };
        let vlan = || {
            let [outer, inner] = access.vlans;
            if !self.vlans || outer == 0 {
                return None;
            }
            let pair = (inner != 0).then_some(L2Key::Vlan { outer, inner: Some(inner) });
            pair.and_then(of).or_else(|| of(L2Key::Vlan { outer, inner: None }))
        };
        let by_station = || self.stations.then(|| of(L2Key::Station(station))).flatten();
        session().or_else(vlan).or_else(by_station)
    }
}

/// A packet of nobody.
#[derive(Clone, Copy)]
struct Stranger {
    /// `None`: it was not of IP.
    address: Option<IpAddr>,
    /// What else it could have been found by.
    access: Option<Access>,
}

impl Stranger {
    /// What of it the list could name.
    fn said(&self, l2: &ByL2, down: bool) -> Option<String> {
        let mut words = Vec::new();
        words.extend(self.address.map(|address| address.to_string()));
        if let Some(access) = self.access {
            if l2.sessions {
                words.extend(access.session.map(|id| format!("session {id}")));
            }
            let tags = access.vlans.iter().filter(|vlan| l2.vlans && **vlan != 0);
            let tags: Vec<String> = tags.map(u16::to_string).collect();
            if !tags.is_empty() {
                words.push(format!("VLAN {}", tags.join(".")));
            }
            if l2.stations {
                let station = if down { access.destination } else { access.source };
                words.push(format!("station {station}"));
            }
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Nodes that are told at once: each costs the worker time.
const MOST_TOLD: usize = 1_024;

/// Nodes whose counters are told with those of their link.
const MOST_BRANCHES: usize = 256;

/// Who is behind a link.
#[derive(Clone)]
pub(super) struct Behind {
    known: Known,
    /// The link leads towards them.
    down: bool,
    /// The latest packet that was nobody's.
    stranger: Cell<Option<Stranger>>,
}

impl Behind {
    /// The place of the subscriber whose packet it is, as its frame leaves.
    #[inline]
    pub(super) fn place_of(&self, flow: &PackedFlow, frame: &[u8]) -> u32 {
        let found = self.known.directory.find(frame, || flow.unpack(), self.down);
        found.unwrap_or_else(|stranger| {
            self.stranger.set(Some(stranger));
            UNKNOWN
        })
    }

    /// The same as far as the frame of a packet says it before it is routed, which makes the frame
    /// anew: by the station that has sent it. [`UNKNOWN`]: it does not.
    #[inline]
    pub(super) fn place_before(&self, frame: &[u8]) -> u32 {
        let l2 = &self.known.directory.l2;
        if self.down || !l2.stations {
            return UNKNOWN;
        }
        let found = Access::of(frame).and_then(|access| l2.find(&access, self.down));
        found.unwrap_or(UNKNOWN)
    }

    /// A packet has gone over the link and back, in `frame`, of the flow as it is there.
    pub(super) fn came_back(&self, at: Nanos, trip: &RoundTrip, flow: &FlowKey, frame: &[u8]) {
        // On its way back what was the destination is the source.
        if let Ok(place) = self.known.directory.find(frame, || *flow, !self.down) {
            self.known.distances.came_back(place, self.down, at, trip);
        }
    }

    /// The name of whoever has a place.
    pub(super) fn name_of(&self, place: u32) -> &str {
        name_of(&self.known.tree, place)
    }
}

/// The directory of a tree.
pub(super) fn directory_of(tree: &SubscriberTree) -> Directory {
    let mut directory = Directory::default();
    for (entry, place) in tree.list.entries.iter().zip(tree.places()) {
        for prefix in &entry.prefixes {
            directory.prefixes.insert(*prefix, *place);
        }
        for key in &entry.l2 {
            directory.l2.insert(*key, *place);
        }
    }
    directory
}

/// Whether two trees have the same directory, at a glance.
fn is_same(one: &SubscriberTree, other: &SubscriberTree) -> bool {
    std::ptr::eq(one.places(), other.places()) && Arc::ptr_eq(&one.list, &other.list)
}

/// A tree, and what is built of it beside.
#[derive(Clone)]
struct Known {
    tree: SubscriberTree,
    directory: Arc<Directory>,
    /// The places of the nodes that subscribers are behind, in the order of the list.
    inner: Arc<[u32]>,
    distances: Arc<Distances>,
}

impl Known {
    /// `former`: of the same tree with another list.
    fn new(tree: &SubscriberTree, former: Option<&Self>) -> Self {
        let entries = || tree.list.entries.iter().zip(tree.places());
        let inner = entries().filter(|(entry, _)| entry.role == Role::Node);
        let places = tree.places().iter().max().map_or(0, |most| *most as usize + 1);
        let distances = Distances::new(places);
        if let Some(former) = former {
            let stays =
                |(entry, place): &(&Entry, &u32)| name_of(&former.tree, **place) == entry.name;
            entries().filter(stays).for_each(|(_, at)| distances.keep(*at, &former.distances));
        }
        Self {
            distances: Arc::new(distances),
            directory: Arc::new(directory_of(tree)),
            inner: inner.map(|(_, place)| *place).collect(),
            tree: tree.clone(),
        }
    }
}

/// Trees with their directories, as they were built beside.
#[derive(Clone, Default)]
pub(crate) struct Directories {
    trees: Vec<Known>,
    /// By class, the nodes that it names.
    named: Vec<Vec<String>>,
    classes: Option<NodeClasses>,
}

impl Directories {
    /// Those of a configuration: of `present` where they are the same, else built.
    pub(super) fn of(config: &RouterConfig, present: &Self) -> Self {
        let build = |tree: &SubscriberTree| {
            let known = present.trees.iter().find(|known| is_same(&known.tree, tree));
            let of = |known: &&Known| known.tree.section.name == tree.section.name;
            // The section may be another one.
            known.map_or_else(
                || Known::new(tree, present.trees.iter().find(of)),
                |known| Known { tree: tree.clone(), ..known.clone() },
            )
        };
        let trees = config.trees.iter().map(build).collect();
        let classes =
            if present.are_of(config) { present.classes.clone() } else { NodeClasses::of(config) };
        Self { trees, named: named(config), classes }
    }

    /// Whether these are what [`of`](Self::of) would give.
    pub(super) fn are_of(&self, config: &RouterConfig) -> bool {
        let of = config.classes.iter().map(|class| &class.nodes);
        self.trees.len() == config.trees.len()
            && self.trees.iter().zip(&config.trees).all(|(known, tree)| is_same(&known.tree, tree))
            && self.named.iter().eq(of)
    }

    /// Who is behind the link of a port.
    fn behind(&self, port: &str) -> Option<Behind> {
        self.trees.iter().find_map(|known| {
            let (_, down) = known.tree.plan_of(port)?;
            Some(Behind { known: known.clone(), down, stranger: Cell::new(None) })
        })
    }
}

/// By class, the nodes that it names.
fn named(config: &RouterConfig) -> Vec<Vec<String>> {
    config.classes.iter().map(|class| class.nodes.clone()).collect()
}

/// As [`Pipeline::subscriber_before`], for a frame on the way to the link of a port.
#[inline]
pub(super) fn whose_before(link: &PortSlot, frame: &[u8]) -> u32 {
    link.behind.as_ref().map_or(UNKNOWN, |behind| behind.place_before(frame))
}

impl Pipeline {
    /// Whose a packet is, as far as its frame says it before it is made anew for the link of a
    /// port.
    #[inline]
    pub(super) fn subscriber_before(&self, port: usize, frame: &Frame) -> u32 {
        let link = &self.ports[self.ports[port].link_at];
        // Most links have no tree, and then nobody looks at the frame.
        if link.behind.is_some() { whose_before(link, self.pool.bytes(frame)) } else { UNKNOWN }
    }

    /// By what FairDrop knows whose cycles a packet takes: by its flow, or by its subscriber. Where
    /// there are no subscribers it is the flow; all whom nobody knows are one.
    #[inline]
    pub(super) fn whose_cycles(
        &self,
        flow_hash: u64,
        flow: impl FnOnce() -> PackedFlow,
        frame: &Frame,
    ) -> u64 {
        match &self.fairdrop {
            Some(fairdrop) if fairdrop.is_by_subscriber() => {
                self.subscriber_of(&flow(), frame).unwrap_or(flow_hash)
            }
            _ => flow_hash,
        }
    }

    /// A hash of the subscriber who sent a packet, or will receive it: of whom a tree knows.
    #[inline(never)] // so that who asks for nothing does not pay for it
    fn subscriber_of(&self, flow: &PackedFlow, frame: &Frame) -> Option<u64> {
        let bytes = self.pool.bytes(frame);
        let mut whose = None;
        for slot in &self.ports {
            let Some(Behind { known, down, .. }) = slot.behind.as_deref() else { continue };
            let found = known.directory.find(bytes, || flow.unpack(), *down);
            whose = Some(found.unwrap_or(UNKNOWN));
            if found.is_ok() {
                break;
            }
        }
        // Places are small numbers, hashes are not.
        whose.map(|place| u64::from(place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Packets belong to those of these directories from now on.
    pub(super) fn put_directories(&mut self, directories: Directories) {
        for slot in &mut self.ports {
            slot.behind = directories.behind(&slot.name).map(Box::new);
        }
        let former = self.classifier.set_nodes(directories.classes.clone());
        self.parts.retire(former);
        let former = std::mem::replace(&mut self.settings.directories, directories);
        self.parts.retire(former);
        self.note_lines();
    }

    /// What is known at `now` of nodes, on the links of their trees.
    ///
    /// # Errors
    /// Nobody has the name asked for.
    pub fn nodes(&self, now: Nanos, query: &NodeQuery) -> Result<Vec<NodeSnapshot>, CommandError> {
        let mut told = Vec::new();
        for Known { tree, inner, distances, .. } in &self.settings.directories.trees {
            let places: Vec<u32> = match query {
                NodeQuery::Name(name) => {
                    tree.place(name).map(|place| tree.way_up(place)).unwrap_or_default()
                }
                NodeQuery::Inner => {
                    let inner = inner.iter().copied().take(MOST_TOLD);
                    [LINK, UNKNOWN].into_iter().chain(inner).collect()
                }
                NodeQuery::From(at) => {
                    tree.places().iter().skip(*at).take(MOST_TOLD).copied().collect()
                }
            };
            for (at, slot) in self.ports.iter().enumerate() {
                let Some((plan, down)) = tree.plan_of(&slot.name) else { continue };
                let AnyScheduler::Tree(queues) = slot.link.scheduler() else { continue };
                for place in &places {
                    let Some(state) = queues.node(*place) else { continue };
                    let node = plan.nodes()[*place as usize];
                    let rate = self.settings.links[at].core.rate;
                    told.push(NodeSnapshot {
                        tree: tree.section.name.clone(),
                        link: slot.name.clone(),
                        down,
                        name: name_of(tree, *place).to_owned(),
                        parent: name_of(tree, node.parent).to_owned(),
                        subscriber: node.kind == evenkeel_core::schedule::tree::Kind::Leaf,
                        cap_bps: node.cap.or(rate.filter(|_| *place == LINK)).map(|cap| cap.0),
                        guarantee_bps: node.guarantee.0,
                        rtt_us: distances.of(*place, down, now).map(|rtt| rtt.0 / 1_000),
                        found_by: match query {
                            NodeQuery::Name(_) => tree.found_by(*place),
                            NodeQuery::Inner | NodeQuery::From(_) => Vec::new(),
                        },
                        ..NodeSnapshot::from(state)
                    });
                }
            }
        }
        if told.is_empty()
            && let NodeQuery::Name(name) = query
        {
            return Err(CommandError::NoSuchSubscriber(name.clone()));
        }
        Ok(told)
    }

    /// Whether a link has a tree that another plan can be put into as it is.
    pub(super) fn replants(&self, at: usize, wanted: &DisciplineConfig) -> bool {
        let (DisciplineConfig::Tree(present), DisciplineConfig::Tree(wanted)) =
            (&self.settings.links[at].discipline, wanted)
        else {
            return false;
        };
        let AnyScheduler::Tree(queues) = self.ports[at].link.scheduler() else { return false };
        present.differs_by_plan(wanted) && queues.has_room(&wanted.plan)
    }

    /// Nodes that the tree of each link has room for.
    pub(super) fn places(&self) -> Vec<usize> {
        let of = |scheduler: &AnyScheduler<QueuedPacket>| match scheduler {
            AnyScheduler::Tree(queues) => queues.places(),
            _ => 0,
        };
        self.ports.iter().map(|slot| of(slot.link.scheduler())).collect()
    }
}

impl PortSlot {
    /// What is counted of subscribers on the link, but of each of them.
    pub(super) fn tree_view(&self) -> Option<TreeSnapshot> {
        let Behind { known, down, stranger } = self.behind.as_deref()?;
        let Known { tree, inner, directory, .. } = known;
        let AnyScheduler::Tree(queues) = self.link.scheduler() else { return None };
        let (plan, _) = tree.plan_of(&self.name)?;
        let unknown = queues.node(UNKNOWN)?.meters;
        let branch = |place: &u32| {
            let NodeState { meters, busy, .. } = queues.node(*place)?;
            let node = plan.nodes()[*place as usize];
            Some(BranchSnapshot {
                name: name_of(tree, *place).to_owned(),
                parent: name_of(tree, node.parent).to_owned(),
                cap_bps: node.cap.map(|cap| cap.0),
                sent_packets: meters.sent_packets,
                sent_bytes: meters.sent_bytes,
                own_cap: meters.own_cap.into(),
                busy: busy.into(),
            })
        };
        Some(TreeSnapshot {
            name: tree.section.name.clone(),
            subscribers: (tree.list.entries.len() - inner.len()) as u64,
            unknown_packets: unknown.sent_packets,
            unknown_bytes: unknown.sent_bytes,
            unknown_dropped: unknown.dropped(),
            last_unknown: stranger.get().and_then(|one| one.said(&directory.l2, *down)),
            nodes: inner.iter().take(MOST_BRANCHES).filter_map(branch).collect(),
        })
    }
}

impl From<NodeState> for NodeSnapshot {
    fn from(state: NodeState) -> Self {
        let NodeState { meters, backlog_bytes, backlog_packets, busy, capped } = state;
        Self {
            sent_packets: meters.sent_packets,
            sent_bytes: meters.sent_bytes,
            overflow: meters.overflow,
            standing: meters.standing.into(),
            marked: meters.marked.into(),
            own_cap: meters.own_cap.into(),
            turns_over: meters.turns_over.into(),
            delays: meters.delays.map(u64::from).to_vec(),
            backlog_bytes,
            backlog_packets,
            busy: busy.into(),
            capped,
            ..Self::default()
        }
    }
}
