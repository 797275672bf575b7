//! Whose a packet is, and what is counted of subscribers.
//!
//! One look-up per packet, by the longest prefix: of the destination on the link towards the
//! subscribers, of the source on the one away from them. What matches nobody is `unknown`.

use std::sync::Arc;

use evenkeel_config::subscribers::{Role, SubscriberTree, name_of};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::schedule::tree::{LINK, NodeState, UNKNOWN};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_net::prefix_map::PrefixMap;

use super::Pipeline;
use super::packet::QueuedPacket;
use crate::command::NodeQuery;
use crate::error::CommandError;
use crate::snapshot::NodeSnapshot;

/// Subscribers by prefix.
pub(crate) type Directory = PrefixMap<u32>;

/// Nodes that are told at once: each costs the worker time.
const MOST_TOLD: usize = 1_024;

/// Who is behind a link.
#[derive(Clone)]
pub(super) struct Behind {
    directory: Arc<Directory>,
    /// The link leads towards them.
    down: bool,
}

impl Behind {
    /// The place of the subscriber whose packet it is.
    #[inline]
    pub(super) fn place_of(&self, flow: &PackedFlow) -> u32 {
        let flow = flow.unpack();
        let address = if self.down { flow.destination } else { flow.source };
        self.directory.longest(address).copied().unwrap_or(UNKNOWN)
    }
}

/// The directory of a tree.
pub(super) fn directory_of(tree: &SubscriberTree) -> Directory {
    let mut directory = Directory::default();
    for (entry, place) in tree.list.entries.iter().zip(tree.places()) {
        for prefix in &entry.prefixes {
            directory.insert(*prefix, *place);
        }
    }
    directory
}

/// Whether two trees have the same directory, at a glance.
fn is_same(one: &SubscriberTree, other: &SubscriberTree) -> bool {
    std::ptr::eq(one.places(), other.places()) && Arc::ptr_eq(&one.list, &other.list)
}

/// Trees with their directories, as they were built beside.
#[derive(Clone, Default)]
pub(crate) struct Directories(Vec<(SubscriberTree, Arc<Directory>)>);

impl Directories {
    /// Those of `trees`: of `present` where they are the same, else built.
    pub(super) fn of(trees: &[SubscriberTree], present: &Self) -> Self {
        let build = |tree: &SubscriberTree| {
            let known = present.0.iter().find(|(known, _)| is_same(known, tree));
            let directory = known.map_or_else(
                || Arc::new(directory_of(tree)),
                |(_, directory)| Arc::clone(directory),
            );
            (tree.clone(), directory)
        };
        Self(trees.iter().map(build).collect())
    }

    /// Whether these are what [`of`](Self::of) would give.
    pub(super) fn are_of(&self, trees: &[SubscriberTree]) -> bool {
        self.0.len() == trees.len()
            && self.0.iter().zip(trees).all(|((known, _), tree)| is_same(known, tree))
    }

    /// Who is behind the link of a port.
    fn behind(&self, port: &str) -> Option<Behind> {
        self.0.iter().find_map(|(tree, directory)| {
            let (_, down) = tree.plan_of(port)?;
            Some(Behind { directory: Arc::clone(directory), down })
        })
    }
}

impl Pipeline {
    /// Packets belong to those of these directories from now on.
    pub(super) fn put_directories(&mut self, directories: Directories) {
        for slot in &mut self.ports {
            slot.behind = directories.behind(&slot.name);
        }
        let former = std::mem::replace(&mut self.settings.directories, directories);
        self.parts.retire(former);
    }

    /// What is known of nodes, on the links of their trees.
    ///
    /// # Errors
    /// Nobody has the name asked for.
    pub fn nodes(&self, query: &NodeQuery) -> Result<Vec<NodeSnapshot>, CommandError> {
        let mut told = Vec::new();
        for (tree, _) in &self.settings.directories.0 {
            let places: Vec<u32> = match query {
                NodeQuery::Name(name) => {
                    tree.place(name).map(|place| tree.way_up(place)).unwrap_or_default()
                }
                NodeQuery::Inner => {
                    let entries = tree.list.entries.iter().zip(tree.places());
                    let inner = entries.filter(|(entry, _)| entry.role == Role::Node);
                    let inner = inner.map(|(_, place)| *place).take(MOST_TOLD);
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
