//! A tree of subscribers: caps, guarantees and weights at every level, and in each subscriber its
//! flows in turns.
//!
//! Sources: hierarchical max-min as [`tree_filling`](crate::reference::tree_filling) has it;
//! deficit round robin (Shreedhar, Varghese, 1995) with newcomers first (Kortebi, Oueslati,
//! Roberts, 2005); caps as virtual times (GCRA, ITU-T I.371); a timing wheel for those that wait
//! for theirs (Saeed et al., "Carousel", 2017).
//!
//! | meaning | field | unit |
//! |---|---|---|
//! | cap of a node | `Hot::cap`, `Hot::full_at` | time per byte; when its bucket is full |
//! | what it has had of its guarantee | `Sure::used_to` | when that is used up |
//! | weight | `Hot::weight` | thousandths |
//! | what it may send in this round | `Turn::deficit` | sixteenths of a byte on the wire |
//! | λ, the round of a node | `Turns::round` | – |
//!
//! ```text
//! link ─┬─ site ─┬─ subscriber ─┬─ flow
//!       │        └─ subscriber  └─ flow       each node: newcomers ▸ this round ▸ next round
//!       └─ unknown ─ flow                     and those of its children that lack of what is guaranteed
//! ```
//!
//! A packet is looked for from the link downwards: at each node a child that has not had what is
//! guaranteed, if there is one, else the child whose turn it is; in the subscriber the flow whose
//! turn it is. Then all nodes on its way are charged. Who may not send because of its cap stands in
//! no list, and is in the wheel until it may; a node of which nobody may send is in no list either.
//!
//! **Shares.** At each node, first guarantees: those who wait and have had less than theirs take
//! turns. In one a subscriber sends a quantum of its guarantee; a node lets all of those below have
//! one turn, or sends a quantum of its own guarantee if that is more, at most one of its cap. So
//! all of a tree have the same number of turns, and guarantees that do not fit are cut alike.
//! (Where a node had turns by the sum of what its busy children were guaranteed, it had 2 to 6 %
//! too much or too little: that sum changes with each packet of a child that asks for less.) The
//! rest goes by weight. So a child has x = g + w λ, at most its cap, over any time that is long
//! against a round.
//!
//! **Caps.** Over any time t a node sends at most cap × t + burst, where the burst is four of the
//! longest packets, or a millisecond of its cap if that is more. (With one, a cap could not be
//! reached: whoever is served late, because of turns of others, would lose that time for good. With
//! two, a node whose share is just above its cap had 97 % of that.)
//!
//! **Work conserving** up to caps: if there is a packet of which no node is at its cap, `dequeue`
//! gives one. A node is found to be below its cap again with the precision of the wheel, 16 us.
//!
//! **Who waits for whom.** A flow that comes anew, or comes back after a round of its subscriber,
//! goes before all other flows of that one; a subscriber that comes back after a round of its node
//! goes before its siblings, with a packet; and so on. At a level whose node is busy itself it
//! waits for the node's turn: at most the quanta of the node's busy siblings. A quantum is a packet
//! for the largest of siblings; smaller ones gather credit over rounds. (Where weights differ by
//! more than 24, it is so much that the smallest has 64 bytes.)
//!
//! **Queues.** A subscriber has room for `max_delay` at its cap, or that of the node above it that
//! has one; what is more, its longest flow loses (of some that are looked at). If the buffer of all
//! is full, the subscriber with the most bytes loses. An AQM keeps the flows short.
//!
//! Complexity: constant time for each level. A visit without a packet costs about as much as a
//! tenth of one, and there are up to 24 for each packet of who has the smallest weight. No
//! allocation per packet.
//!
//! Memory: some 350 bytes for each node, and the packets and flows of a buffer that all share. Of
//! many subscribers what the next packets need is read ahead (`tree/ahead.rs`).
//!
//! **Within a subscriber** flows share, or first its hosts, or classes by weight ([`Within`]).
//!
//! Not implemented: a shaper in front (`peek_len` tells nothing).

mod ahead;
mod change;
mod flow;
mod flows;
mod meters;
mod node;
mod plan;
mod serve;
mod turns;
mod wheel;
mod within;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::buffer::{DEFAULT_QUANTUM, PACKETS_RANGE, memory_of_flows};
use super::flow_list::FlowList;
use super::longest::Longest;
use super::slab::Slab;
use super::{
    Backlog, Discipline, DropSink, Meters, NodeAccount, Scheduler, Sharing, Treated, Wake,
};
use crate::aqm::blue::Coin;
use crate::aqm::elastic::ElasticAqm;
use crate::audit::Promise;
use crate::packet::{Class, FlowKey, Packet, Places};
use crate::settings;
use crate::settings::{Change, SettingError, Settings, in_range};
use crate::units::{BitRate, Bytes, Nanos};
use ahead::Soon;
use flow::Flow;
pub use meters::{DELAY_BUCKETS, NodeMeters, NodeState};
use node::{CAPPED, Cold, Hot, LEAF, READY, SHARED};
pub use plan::{
    CAP_RANGE, Kind, LINK, MOST_LEVELS, MOST_NODES, Plan, PlanError, PlanNode, UNKNOWN,
    WEIGHT_RANGE, WEIGHT_UNIT,
};
use turns::UNIT;
use wheel::Wheel;
use within::Groups;
pub use within::Within;

/// Valid quanta, in bytes.
pub const QUANTUM_RANGE: RangeInclusive<u64> = 256..=65_535;
/// Valid times that packets of a subscriber may wait.
pub const MAX_DELAY_RANGE: RangeInclusive<u64> = 1_000_000..=10_000_000_000;

settings! {
    /// A tree of subscribers, each with a plan. The tree itself stands in `[[tree]]`; a link that
    /// one names has this discipline, and the settings here are for that. See docs/subscribers.md.
    pub struct TreeConfig: "discipline = { kind = \"tree\", … }" {
        /// Bytes that a flow may send in its turn, and the largest of siblings in a round.
        fixed quantum: Bytes = DEFAULT_QUANTUM, in QUANTUM_RANGE;
        /// Most packets of all subscribers together. Then the one with the most bytes loses.
        fixed buffer: u32 = 16_384, in PACKETS_RANGE, counting "packets";
        /// Most that waits of a subscriber, as a time at its cap; 16 packets at least.
        live max_delay: Nanos = Nanos::from_millis(100), in MAX_DELAY_RANGE;
    }
    parts {
        /// What keeps the queue of each flow short.
        aqm: ElasticAqm,
    }
    plain {
        /// The tree.
        plan: Arc<Plan> = Arc::new(Plan::default());
        /// Who shares what a subscriber has.
        within: Within = Within::Flows;
        /// How many classes packets have.
        classes: u16 = 1;
        /// Seed of the hash by which flows are found.
        seed: u64 = 0;
    }
}

/// Flows that are remembered for each packet of the buffer.
const FLOWS_PER_PACKET: u32 = 2;

impl TreeConfig {
    /// Places for so many nodes, and for some that come later.
    fn places(&self) -> u32 {
        let nodes = self.plan.nodes().len() as u32;
        (nodes + nodes / 8 + 1_024).min(MOST_NODES)
    }

    /// Flows that it knows.
    fn flows(&self) -> u32 {
        self.buffer.saturating_mul(FLOWS_PER_PACKET)
    }

    /// Whether nothing but the tree itself differs.
    #[must_use]
    pub fn differs_by_plan(&self, other: &Self) -> bool {
        let same = Self { plan: Arc::clone(&other.plan), ..self.clone() };
        same == *other && self.plan != other.plan
    }
}

impl Discipline for TreeConfig {
    const NAME: &'static str = "tree";
    type Queues<P: Packet> = Tree<P>;
    /// Each subscriber's own.
    const MEASURES_FAIR_RATE: bool = true;

    fn memory(&self, packet: u64) -> u64 {
        let node = size_of::<Hot>() + size_of::<Cold>() + size_of::<NodeMeters>() + 2 * 10 + 8;
        let nodes = u64::from(self.places()) * node as u64;
        let flows = self.flows() + self.within.groups(self.flows());
        nodes + memory_of_flows(flows, self.buffer, packet)
    }

    fn build<P: Packet>(self) -> Result<Tree<P>, SettingError> {
        Tree::new(self)
    }

    /// It holds back who is at a cap.
    fn promise(&self) -> Promise {
        Promise::Nodes
    }

    fn for_classes(&mut self, classes: u16) {
        self.classes = classes;
    }

    fn seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        Some(("kind = \"tree\"", "the packets of a subscriber meet several workers"))
    }
}

/// The discipline.
#[derive(Clone, Debug)]
pub struct Tree<P> {
    config: TreeConfig,
    rate: Option<BitRate>,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    meters: Vec<NodeMeters>,
    /// Two entries for each node: its cap, and its guarantee.
    wheel: Wheel,
    /// Some node has a guarantee.
    assures: bool,
    /// All of them at once.
    assures_all: bool,
    /// With each packet, its flow.
    slab: Slab<P, u32>,
    flows: FlowList<Flow>,
    /// Whose these are within a subscriber, where hosts or classes share.
    groups: Option<Groups>,
    /// The subscribers by what waits.
    longest: Longest,
    backlog: Backlog,
    busy_flows: usize,
    coin: Coin,
    soon: Soon,
    /// The place of the flow of the packet that came last.
    last: u32,
}

impl<P: Packet> Tree<P> {
    /// The discipline with empty queues. Takes all its memory at once.
    ///
    /// # Errors
    /// A number is out of range, or the plan does not [hang together](Plan::check).
    pub fn new(config: TreeConfig) -> Result<Self, SettingError> {
        config.check()?;
        checked(&config.plan)?;
        let places = config.places();
        let mut tree = Self {
            rate: None,
            hot: alloc::vec![Hot::FREE; places as usize],
            cold: alloc::vec![Cold::FREE; places as usize],
            meters: alloc::vec![NodeMeters::default(); places as usize],
            wheel: Wheel::new(2 * places),
            assures: false,
            assures_all: true,
            slab: Slab::new(config.buffer),
            flows: FlowList::new(config.flows(), config.seed, Flow::NEW)?,
            groups: Groups::new(&config.within, config.flows(), config.seed, config.classes)?,
            longest: Longest::new(places),
            backlog: Backlog::default(),
            busy_flows: 0,
            coin: Coin::NEW,
            soon: Soon::EMPTY,
            last: Places::NOWHERE,
            config,
        };
        tree.plant(&Plan::default(), Nanos::ZERO);
        Ok(tree)
    }

    /// The configuration as it is now.
    #[must_use]
    pub const fn config(&self) -> &TreeConfig {
        &self.config
    }

    /// A node now; `None`: there is none at this place.
    #[must_use]
    pub fn node(&self, at: u32) -> Option<NodeState> {
        let kind = self.config.plan.nodes().get(at as usize)?.kind;
        if kind == Kind::Free {
            return None;
        }
        let cold = &self.cold[at as usize];
        Some(NodeState {
            meters: self.meters[at as usize],
            backlog_bytes: cold.bytes.into(),
            backlog_packets: cold.packets.into(),
            busy: cold.busy,
            capped: self.hot[at as usize].is(CAPPED),
        })
    }

    /// A place, if a subscriber is there; else that of those whom nobody knows.
    #[inline]
    fn known(&self, place: u32) -> u32 {
        if self.hot.get(place as usize).is_some_and(|hot| hot.is(LEAF)) { place } else { UNKNOWN }
    }

    fn quantum(&self) -> i32 {
        self.config.quantum.0 as i32 * UNIT
    }
}

/// Whether a plan hangs together.
fn checked(plan: &Plan) -> Result<(), SettingError> {
    plan.check().map_err(|(at, error)| SettingError::Contradiction {
        key: "tree",
        message: alloc::format!("node {at} of the tree: {error:?}"),
    })?;
    let nodes = plan.nodes().len() as u64;
    in_range("nodes", nodes, 2..=MOST_NODES.into(), "nodes").map(|_| ())
}

impl<P: Packet> Scheduler<P> for Tree<P> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        self.put(now, packet, dropped)
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.give(now, dropped)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        if self.cold[LINK as usize].ready > 0 {
            return Some(now);
        }
        if self.backlog.packets == 0 {
            return None;
        }
        self.wheel.next().map(|at| at.max(now))
    }

    /// Nothing: who is next depends on what is due then. A cap of the link's node is what a shaper
    /// would be.
    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        None
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.config.set_live(change, 1)?;
        self.measure_rooms();
        Ok(Wake::No)
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.rate = rate;
        self.measure_rooms();
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        self.empty(into);
    }

    fn meters(&self) -> Meters {
        Meters { backlog: self.backlog, ..Meters::default() }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn busy_queues(&self) -> usize {
        self.busy_flows
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        if class == Class(0) { self.backlog } else { Backlog::default() }
    }

    fn node_account(&self, place: u32) -> Option<NodeAccount> {
        let at = place as usize;
        let node = self.config.plan.nodes().get(at)?;
        let (hot, cold) = (self.hot.get(at)?, self.cold.get(at)?);
        if node.kind == Kind::Free || place == LINK {
            return None;
        }
        let above = &self.cold[node.parent as usize];
        // What is guaranteed to those below a node counts for it, too; and where guarantees are
        // cut, which is now and then, nobody's sum says by how much.
        let fits = node.guarantee.0 == 0 || self.assures_all;
        let is_plain = !self.assures || node.kind == Kind::Leaf && fits;
        Some(NodeAccount {
            parent: node.parent,
            cap: node.cap,
            guarantee: node.guarantee,
            weight: is_plain.then(|| above.weight(node).into()),
            round: Bytes(above.quantum_of(node).unsigned_abs().div_ceil(UNIT as u32).into()),
            sent: Bytes(self.meters[at].sent_bytes),
            may_go: hot.is(READY),
            pauses: cold.pauses,
        })
    }

    fn sharing(&self, subscriber: u32) -> Option<Sharing> {
        let leaf = self.known(subscriber);
        let nodes = self.config.plan.nodes();
        let mut at = leaf;
        while nodes[at as usize].cap.is_none() && at != LINK {
            at = nodes[at as usize].parent;
        }
        let rate = nodes[at as usize].cap.or(self.rate)?;
        Some(Sharing { rate, flows: self.cold[leaf as usize].shared(), whole: SHARED })
    }

    fn node_places(&self) -> u32 {
        self.config.plan.nodes().len() as u32
    }

    fn flow_backlog(&self, _flow: &FlowKey, _hash: u64) -> Bytes {
        Bytes::ZERO
    }

    fn looks_up_flows(&self) -> bool {
        true
    }

    fn prefetch_place(&self, place: u32) {
        self.flows.prefetch_place(place);
    }

    fn last_place(&self) -> u32 {
        self.last
    }

    fn name(&self) -> &'static str {
        TreeConfig::NAME
    }
}
