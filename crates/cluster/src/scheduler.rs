//! Phases 2 and 3: who sends what on which link, for a whole window of rounds.
//!
//! Source: the paper's Algorithm 1; specs of selection and lists (5), matching (6), variants (8). Symbols: P_ij → `pick` (class, tag, stamp of
//! forwarder i's packet for link j), X_i → order of `pick[i][·].stamp`, Y_j → order of `pick[·][j].tag`, Z → [`Window`].
//!
//! The same on every node: what decides are the announced records, the clocks, and the shared seed. A round costs a matching
//! (see `matching.rs`) and, for each matched link, a selection: with rules A and C over K classes of the forwarder that sends, with rule B, where
//! forwarders share tags, over K classes, and a look at a set for each of M forwarders. Ties cost a hash for each that is tied, when it is asked
//! for. Nothing allocates.
//!
//! A round lasts as long as the longest packet in it. With sizes mixed, links idle while they wait for it (55 % use with 64, 576 and 1500 bytes). With
//! `round_bytes`, each pair goes on sending what weighted fair queueing selects for its link until the round's time is used up: as all lengths are
//! announced, all nodes know what that is, and class shares stay as exact as before.
//!
//! Threads of one machine use this without an engine: [`announce`](Scheduler::announce) for all, then [`decide`](Scheduler::decide).

use evenkeel_core::Nanos;

use crate::clocks::Clocks;
use crate::config::{ClusterConfig, ConfigError, LAZY_PACKET, Missing, Proposer, WeightRule};
use crate::matching::{Matching, NONE, augment, members, stable};
use crate::mix::{Role, mix64, tie};
use crate::types::{Grant, Record, earlier};

/// A grant and whose it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Granted {
    /// Index of the forwarder.
    pub node: usize,
    /// What it may send; `at` counts from the begin of the window.
    pub grant: Grant,
}

/// What was decided for a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window<'s> {
    /// Who sends what, in order of time.
    pub grants: &'s [Granted],
    /// Rounds in it.
    pub rounds: u32,
    /// How long they take.
    pub length: Nanos,
    /// All that decided was known. If not, other nodes may have decided otherwise: nothing of this may be sent.
    pub exact: bool,
}

/// One queue as announced.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    /// Records that were announced.
    count: u16,
    /// Records that windows have used since.
    used: u16,
}

/// Clocks, what was announced, and how it is decided.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: ClusterConfig,
    nodes: usize,
    links: usize,
    classes: usize,
    depth: usize,
    /// Nanoseconds per byte, in 2^-20.
    per_byte: u64,
    pub(crate) clocks: Clocks,
    records: Vec<Record>,
    queues: Vec<Announced>,
    /// Forwarders whose records are of this cycle.
    fresh: u64,
    /// By forwarder and link (i·N + j): the classes that have a record left.
    full: Vec<u8>,
    /// The same: the classes of which l records were announced. There may be more of them.
    deep: Vec<u8>,
    /// Virtual finish time of the record at the head of each queue. With rule B, by link and class: virtual start times.
    tags: Vec<u64>,
    /// Tag of P_ij, by link and forwarder (j·M + i): what a link compares lies side by side.
    picks: Vec<u64>,
    /// The same: the classes that have this tag. See [`class_of`].
    choices: Vec<u8>,
    links_of: [u64; 64],
    nodes_of: [u64; 64],
    /// By link: m_jk, a byte for each class.
    spread: Vec<u64>,
    matching: Matching,
    granted: Vec<Granted>,
    round: u64,
    stop: bool,
    exact: bool,
}

impl Scheduler {
    /// All queues empty, all clocks at zero. Allocates here and never later.
    ///
    /// # Errors
    /// The configuration is [not valid](ClusterConfig::validate).
    pub fn new(config: &ClusterConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let queues = config.nodes() * config.queues();
        let pairs = config.nodes() * config.links;
        let per_round = config.nodes().min(config.links);
        let most = match config.round_bytes {
            0 => config.rounds() as usize * per_round,
            _ => queues * config.depth(),
        };
        Ok(Self {
            nodes: config.nodes(),
            links: config.links,
            classes: config.classes(),
            depth: config.depth(),
            per_byte: ((8_000_000_000_u128 << 20).div_ceil(config.timing.rate.0.into())) as u64,
            clocks: Clocks::new(config),
            records: vec![Record::default(); queues * config.depth()],
            queues: vec![Announced::default(); queues],
            fresh: 0,
            full: vec![0; pairs],
            deep: vec![0; pairs],
            tags: vec![0; queues],
            picks: vec![0; pairs],
            choices: vec![0; pairs],
            links_of: [0; 64],
            nodes_of: [0; 64],
            spread: vec![u64::from_ne_bytes([1; 8]); config.links],
            matching: Matching::default(),
            granted: Vec::with_capacity(most),
            round: 0,
            stop: false,
            exact: true,
            config: config.clone(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// What waits at the head of a queue of forwarder `node` (an index): up to l records; more are left out, and so are all from the first
    /// of length 0 on.
    pub fn announce(&mut self, node: usize, link: usize, class: usize, heads: &[Record]) {
        let queue = (node * self.links + link) * self.classes + class;
        let count = heads.iter().take(self.depth).take_while(|record| record.length > 0).count();
        let begin = queue * self.depth;
        self.records[begin..begin + count].copy_from_slice(&heads[..count]);
        self.queues[queue] = Announced { count: count as u16, used: 0 };
        let (pair, bit) = (node * self.links + link, 1 << class);
        self.full[pair] = self.full[pair] & !bit | if count > 0 { bit } else { 0 };
        self.deep[pair] = self.deep[pair] & !bit | if count == self.depth { bit } else { 0 };
        self.fresh |= 1 << node;
    }

    /// Decides a window: the members in `present` (by index) take part, all others count as empty. Those present that announced nothing
    /// since the last window are treated as [`Missing`] says.
    pub fn decide(&mut self, cycle: u64, present: u64) -> Window<'_> {
        let seed = mix64(self.config.seed ^ mix64(cycle));
        self.round = seed;
        self.begin(present);
        // Pipelined, all rounds are decided while the window before is sent: see `ClusterConfig::lead`.
        let decision = if self.config.is_pipelined() { Nanos::ZERO } else { self.config.timing.decision };
        let mut at = Nanos::ZERO;
        let mut round = 0;
        while round < self.config.rounds() && self.exact && !self.stop {
            self.round = seed.wrapping_add(u64::from(round) << 1 | 1);
            self.match_all();
            let begin = at + decision;
            let Some(length) = self.send(cycle, round, begin) else { break };
            at = begin + length + self.config.timing.guard;
            round += 1;
        }
        self.end();
        Window { grants: &self.granted, rounds: round, length: at, exact: self.exact }
    }

    /// A hash of all clocks and tags: equal on nodes that decided alike.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.clocks.checksum()
    }

    /// V_j: the virtual finish time of the last packet sent on a link, in 2^-20 bytes per weight.
    #[must_use]
    pub fn clock(&self, link: usize) -> u64 {
        self.clocks.clock[link]
    }

    /// Forgets what a forwarder announced.
    pub(crate) fn forget(&mut self, node: usize) {
        let per_node = self.links * self.classes;
        for queue in &mut self.queues[node * per_node..(node + 1) * per_node] {
            *queue = Announced::default();
        }
        let pairs = node * self.links..(node + 1) * self.links;
        self.full[pairs.clone()].fill(0);
        self.deep[pairs].fill(0);
        self.fresh &= !(1 << node);
    }

    /// Works out what is known of every queue, its tag, and all selections.
    fn begin(&mut self, present: u64) {
        self.exact = true;
        self.stop = false;
        self.granted.clear();
        let all = u64::MAX >> (64 - self.nodes);
        let late = present & all & !self.fresh;
        for node in members(all & !present) {
            self.forget(node);
        }
        for node in members(late) {
            self.reuse(node);
        }
        self.clocks.open();
        if self.config.rule == WeightRule::PerClass {
            for link in 0..self.links {
                // Flows, not queues: backlogged if any forwarder's part of it was.
                let backlogged = self.clocks.backlogged[link..].iter().step_by(self.links);
                let backlogged = backlogged.fold(0, |all, classes| all | classes);
                self.retag_link(link, backlogged);
            }
        } else {
            self.count_spread();
            for node in 0..self.nodes {
                for link in 0..self.links {
                    self.retag(node, link, self.clocks.backlogged[node * self.links + link]);
                }
            }
        }
    }

    /// A forwarder that was not heard: what of its last announcement still counts.
    fn reuse(&mut self, node: usize) {
        let per_node = self.links * self.classes;
        let sent = self.clocks.senders() >> node & 1 == 1;
        let queues = &mut self.queues[node * per_node..(node + 1) * per_node];
        match self.config.missing {
            Missing::Stale => {
                for (index, queue) in queues.iter_mut().enumerate() {
                    queue.used = 0;
                    let (pair, class) = (node * self.links + index / self.classes, index % self.classes);
                    self.full[pair] |= u8::from(queue.count > 0) << class;
                }
            }
            Missing::Abstain if sent => self.exact = false,
            // A queue that was empty may have packets by now.
            Missing::Abstain | Missing::Next => {
                self.exact &= queues.iter().all(|queue| queue.used < queue.count);
            }
        }
    }

    /// m_jk, or 1 where the rule does not divide.
    fn count_spread(&mut self) {
        if self.config.rule != WeightRule::Divided {
            return;
        }
        self.spread.fill(0);
        for classes in self.full.chunks(self.links) {
            for (spread, classes) in self.spread.iter_mut().zip(classes) {
                // At most 64 forwarders: no byte runs over.
                *spread += LANES[usize::from(*classes)];
            }
        }
    }

    /// With rule B: the tags of a link's flows, and its selection on all forwarders. `continues`: flows that were backlogged before.
    fn retag_link(&mut self, link: usize, continues: u8) {
        let first = link * self.classes;
        let tags = &mut self.tags[first..first + self.classes];
        for (class, tag) in tags.iter_mut().enumerate() {
            *tag = self.clocks.start(first + class, link, class, continues >> class & 1 == 1);
        }
        let column = self.full[link..].iter().step_by(self.links);
        let (some, common) = smallest(tags, column.clone().fold(0, |all, classes| all | classes));
        let mut nodes = 0;
        let row = link * self.nodes..(link + 1) * self.nodes;
        let out = self.picks[row.clone()].iter_mut().zip(&mut self.choices[row]);
        for ((node, full), (pick, choices)) in column.enumerate().zip(out) {
            // Nearly every forwarder has one of the classes that come first.
            (*pick, *choices) = match full & common {
                0 => smallest(tags, *full),
                choices => (some, choices),
            };
            nodes |= u64::from(*full != 0) << node;
        }
        let changed = nodes ^ self.nodes_of[link];
        for node in members(changed) {
            self.links_of[node] ^= 1 << link;
        }
        self.nodes_of[link] = nodes;
    }

    /// With rules A and C: tags of the queues of a forwarder for a link, and P_ij, the class with the smallest one. `continues`: classes
    /// that were backlogged before.
    #[inline]
    fn retag(&mut self, node: usize, link: usize, continues: u8) {
        let pair = node * self.links + link;
        let first = pair * self.classes;
        let (mut best, mut choices) = (u64::MAX, 0);
        for class in members(self.full[pair].into()) {
            let queue = first + class;
            let used = usize::from(self.queues[queue].used);
            let length = self.records[queue * self.depth + used].length;
            let spread = (self.spread[link] >> (8 * class)) as u8;
            let start = self.clocks.start(queue, link, class, continues >> class & 1 == 1);
            let tag = start + self.clocks.increment(class, length, spread.into());
            self.tags[queue] = tag;
            if tag < best {
                (best, choices) = (tag, 0);
            }
            choices |= u8::from(tag == best) << class;
        }
        let at = link * self.nodes + node;
        (self.picks[at], self.choices[at]) = (best, choices);
        let some = u64::from(choices != 0);
        self.links_of[node] = self.links_of[node] & !(1 << link) | some << link;
        self.nodes_of[link] = self.nodes_of[link] & !(1 << node) | some << node;
    }

    /// X, Y and Z.
    fn match_all(&mut self) {
        let Self { picks, choices, queues, records, matching, nodes_of, links_of, .. } = self;
        let (nodes, links, classes, depth, round) =
            (self.nodes, self.links, self.classes, self.depth, self.round);
        // X_i: by arrival.
        let stamp = |node: usize, link: usize| {
            let class = class_of(choices[link * nodes + node], round, node, link);
            let queue = (node * links + link) * classes + class;
            records[queue * depth + usize::from(queues[queue].used)].stamp
        };
        let node_likes = |node: usize, a: usize, b: usize| {
            let (x, y) = (stamp(node, a), stamp(node, b));
            let order = |link| (tie(round, Role::Forwarder, node, link, 0), link);
            earlier(x, y) || x == y && order(a) < order(b)
        };
        // Y_j: by virtual finish time.
        let link_tie = |link: usize, node: usize| tie(round, Role::Link, link, node, 0);
        let link_likes = |link: usize, a: usize, b: usize| {
            let (x, y) = (picks[link * nodes + a], picks[link * nodes + b]);
            x < y || x == y && (link_tie(link, a), a) < (link_tie(link, b), b)
        };
        *matching = Matching::default();
        let Matching { of_link, of_node } = matching;
        let mut left = [0; 64];
        match self.config.proposer {
            Proposer::Links => {
                left[..links].copy_from_slice(&nodes_of[..links]);
                let first = |link: usize, set: u64| {
                    let row = &picks[link * nodes..][..nodes];
                    let (mut best, mut least, mut order) = (0, u64::MAX, None);
                    for node in members(set) {
                        let tag = row[node];
                        if tag < least {
                            (best, least, order) = (node, tag, None);
                        } else if tag == least {
                            let (mine, other) =
                                (link_tie(link, node), order.unwrap_or_else(|| link_tie(link, best)));
                            order = Some(mine.min(other));
                            best = if mine < other { node } else { best };
                        }
                    }
                    best
                };
                stable(links, &mut left, of_link, of_node, first, node_likes);
            }
            Proposer::Forwarders => {
                left[..nodes].copy_from_slice(&links_of[..nodes]);
                let first = |node: usize, set: u64| {
                    let best = |best, link| if node_likes(node, link, best) { link } else { best };
                    members(set).reduce(best).expect("only sets that are not empty are asked")
                };
                stable(nodes, &mut left, of_node, of_link, first, link_likes);
            }
        }
        if self.config.second_pass {
            augment(matching, nodes_of, links);
        }
    }

    /// The matched pairs send; how long the round takes. `None` if there are none.
    fn send(&mut self, cycle: u64, round: u32, begin: Nanos) -> Option<Nanos> {
        let mut length = None;
        for link in 0..self.links {
            let node = self.matching.of_link[link];
            if node != NONE {
                let class = self.chosen(node.into(), link);
                length = length.max(Some(self.slot(self.head_length(node.into(), link, class))));
            }
        }
        let mut length = length?;
        if self.config.round_bytes > 0 {
            let bytes = u64::from(self.config.round_bytes);
            length = length.max(Nanos((bytes * self.per_byte) >> 20));
        }
        for link in 0..self.links {
            let node = self.matching.of_link[link];
            if node == NONE {
                continue;
            }
            let node = usize::from(node);
            let mut sent = Nanos::ZERO;
            loop {
                let class = self.chosen(node, link);
                let bytes = self.head_length(node, link, class);
                let slot = self.slot(bytes);
                if sent + slot > length {
                    break;
                }
                self.take(node, link, class, bytes);
                let grant = Grant { cycle, round, link, class, bytes: bytes.into(), at: begin + sent };
                self.granted.push(Granted { node, grant });
                sent += slot;
                let more = self.nodes_of[link] >> node & 1 == 1;
                if self.config.round_bytes == 0 || !more || self.stop || !self.exact {
                    break;
                }
            }
        }
        Some(length)
    }

    /// The class of P_ij, which must exist.
    #[inline]
    fn chosen(&self, node: usize, link: usize) -> usize {
        class_of(self.choices[link * self.nodes + node], self.round, node, link)
    }

    fn head_length(&self, node: usize, link: usize, class: usize) -> u16 {
        let queue = (node * self.links + link) * self.classes + class;
        self.records[queue * self.depth + usize::from(self.queues[queue].used)].length
    }

    /// How long a record's bytes take.
    #[inline]
    fn slot(&self, length: u16) -> Nanos {
        let timing = &self.config.timing;
        // How many packets a burst has is not announced: at most this many.
        let packets = match self.config.burst() {
            Some(burst) => u32::from(length).div_ceil(LAZY_PACKET).min(burst / LAZY_PACKET),
            None => 1,
        };
        let bytes = u64::from(length) + u64::from(timing.overhead) * u64::from(packets);
        let wire = Nanos((bytes * self.per_byte).div_ceil(1 << 20));
        wire.max(timing.per_packet * u64::from(packets))
    }

    /// The record at the head of a queue, of `bytes`, is used: clocks and tags advance, the selections that it concerns are made again.
    #[inline]
    fn take(&mut self, node: usize, link: usize, class: usize, bytes: u16) {
        let per_class = self.config.rule == WeightRule::PerClass;
        let pair = node * self.links + link;
        let queue = pair * self.classes + class;
        // Where the tag is kept: the first forwarder's queue stands for the flow.
        let flow = if per_class { link * self.classes + class } else { queue };
        let more = if per_class { self.clocks.increment(class, bytes, 1) } else { 0 };
        let tag = self.tags[flow] + more;
        self.queues[queue].used += 1;
        let set_back = self.clocks.charge(node, queue, flow, link, tag);
        let Announced { count, used } = self.queues[queue];
        if used == count {
            self.full[pair] &= !(1 << class);
            if self.fresh >> node & 1 == 0 {
                // Others may have heard more of this queue.
                self.exact &= self.config.missing == Missing::Stale;
            } else if usize::from(count) == self.depth {
                // Nobody knows what comes next in it.
                self.stop = true;
            }
        }
        if per_class {
            self.retag_link(link, u8::MAX);
        } else if set_back {
            (0..self.nodes).for_each(|node| self.retag(node, link, u8::MAX));
        } else {
            self.retag(node, link, u8::MAX);
        }
    }

    /// What the next window must know of this one.
    fn end(&mut self) {
        for ((full, deep), backlogged) in self.full.iter().zip(&self.deep).zip(&mut self.clocks.backlogged) {
            *backlogged = full | deep;
        }
        self.fresh = 0;
    }
}

/// A set of classes as a byte for each: 1 if it is in the set.
const LANES: [u64; 256] = {
    let mut lanes = [0; 256];
    let mut set = 0;
    while set < 256 {
        let mut class = 0;
        while class < 8 {
            lanes[set] |= ((set as u64 >> class) & 1) << (8 * class);
            class += 1;
        }
        set += 1;
    }
    lanes
};

/// The smallest tag among `classes`, and those that have it; of no classes, none.
#[inline]
fn smallest(tags: &[u64], classes: u8) -> (u64, u8) {
    let (mut least, mut set) = (u64::MAX, 0);
    for class in members(classes.into()) {
        let tag = tags[class];
        set = if tag < least { 0 } else { set } | u8::from(tag <= least) << class;
        least = least.min(tag);
    }
    (least, set)
}

/// The class of P_ij out of those with the smallest tag. Only asked for when it matters: most pairs are never looked at in a round.
#[inline]
fn class_of(choices: u8, round: u64, node: usize, link: usize) -> usize {
    let first = choices.trailing_zeros() as usize;
    if choices & choices.wrapping_sub(1) == 0 {
        return first;
    }
    let order = |class: &usize| tie(round, Role::Class, node, link, *class);
    members(choices.into()).min_by_key(order).unwrap_or(first)
}
