//! Phases 2 and 3: who sends what on which link, for a whole window of rounds.
//!
//! Source: the paper's Algorithm 1; specs of selection and lists (5), matching (6), variants (8). Symbols: P_ij → `pick` (class, tag, stamp of
//! forwarder i's packet for link j), X_i → order of `pick[i][·].stamp`, Y_j → order of `pick[·][j].tag`, Z → [`Window`].
//!
//! The same on every node: what decides are the announced records, the clocks, and the shared seed. A round costs a matching
//! (see `matching.rs`) and one selection over K classes for each forwarder that was matched; nothing allocates.
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

/// P_ij.
#[derive(Clone, Copy, Debug, Default)]
struct Pick {
    tag: u64,
    stamp: u32,
    class: u8,
}

/// One queue as announced.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    /// Records that were announced.
    count: u16,
    /// Records that windows have used since.
    used: u16,
    /// Virtual finish time of the record at the head; with rule B, virtual start time.
    tag: u64,
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
    picks: Vec<Pick>,
    links_of: [u64; 64],
    nodes_of: [u64; 64],
    spread: Vec<u32>,
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
            picks: vec![Pick::default(); pairs],
            links_of: [0; 64],
            nodes_of: [0; 64],
            spread: vec![1; config.queues()],
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
        self.queues[queue] = Announced { count: count as u16, used: 0, tag: 0 };
        self.fresh |= 1 << node;
    }

    /// Decides a window: the members in `present` (by index) take part, all others count as empty. Those present that announced nothing
    /// since the last window are treated as [`Missing`] says.
    pub fn decide(&mut self, cycle: u64, present: u64) -> Window<'_> {
        let seed = mix64(self.config.seed ^ mix64(cycle));
        self.round = seed;
        self.begin(present);
        let mut at = Nanos::ZERO;
        let mut round = 0;
        while round < self.config.rounds() && self.exact && !self.stop {
            self.round = seed.wrapping_add(u64::from(round) << 1 | 1);
            self.match_all();
            let begin = at + self.config.timing.decision;
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
        self.count_spread();
        for node in 0..self.nodes {
            for link in 0..self.links {
                for class in 0..self.classes {
                    let queue = (node * self.links + link) * self.classes + class;
                    self.retag(node, link, class, self.continues(queue));
                }
                self.select(node, link);
            }
        }
    }

    /// Whether the flow of a queue was backlogged at the end of the last window: with rule B, any forwarder's.
    fn continues(&self, queue: usize) -> bool {
        let per_node = self.links * self.classes;
        match self.config.rule {
            WeightRule::PerClass => self.clocks.backlogged[queue % per_node..]
                .iter()
                .step_by(per_node)
                .any(|backlogged| *backlogged),
            _ => self.clocks.backlogged[queue],
        }
    }

    /// A forwarder that was not heard: what of its last announcement still counts.
    fn reuse(&mut self, node: usize) {
        let per_node = self.links * self.classes;
        let sent = self.clocks.senders() >> node & 1 == 1;
        let queues = &mut self.queues[node * per_node..(node + 1) * per_node];
        match self.config.missing {
            Missing::Stale => queues.iter_mut().for_each(|queue| queue.used = 0),
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
        let per_node = self.spread.len();
        for queues in self.queues.chunks(per_node) {
            for (spread, queue) in self.spread.iter_mut().zip(queues) {
                *spread += u32::from(queue.used < queue.count);
            }
        }
    }

    /// P_ij: the class with the smallest tag.
    #[inline]
    fn select(&mut self, node: usize, link: usize) {
        let pair = node * self.links + link;
        let first = pair * self.classes;
        let mut best: Option<(u64, usize)> = None;
        for class in 0..self.classes {
            let queue = self.queues[first + class];
            if queue.used >= queue.count {
                continue;
            }
            let wins = best.is_none_or(|(tag, other)| {
                let order = |class| tie(self.round, Role::Class, node, link, class);
                queue.tag < tag || queue.tag == tag && order(class) < order(other)
            });
            if wins {
                best = Some((queue.tag, class));
            }
        }
        let Some((tag, class)) = best else {
            self.links_of[node] &= !(1 << link);
            self.nodes_of[link] &= !(1 << node);
            return;
        };
        let used = usize::from(self.queues[first + class].used);
        let stamp = self.records[(first + class) * self.depth + used].stamp;
        self.picks[pair] = Pick { tag, stamp, class: class as u8 };
        self.links_of[node] |= 1 << link;
        self.nodes_of[link] |= 1 << node;
    }

    /// X, Y and Z.
    fn match_all(&mut self) {
        let (picks, links, round) = (&self.picks, self.links, self.round);
        // Y_j: by virtual finish time. X_i: by arrival.
        let link_likes = |link: usize, a: usize, b: usize| {
            let (x, y) = (picks[a * links + link].tag, picks[b * links + link].tag);
            let order = |node| (tie(round, Role::Link, link, node, 0), node);
            x < y || x == y && order(a) < order(b)
        };
        let node_likes = |node: usize, a: usize, b: usize| {
            let (x, y) = (picks[node * links + a].stamp, picks[node * links + b].stamp);
            let order = |link| (tie(round, Role::Forwarder, node, link, 0), link);
            earlier(x, y) || x == y && order(a) < order(b)
        };
        let first = |set: u64, likes: &dyn Fn(usize, usize) -> bool| {
            let mut all = members(set);
            let first = all.next().expect("only sets that are not empty are asked");
            all.fold(first, |best, other| if likes(other, best) { other } else { best })
        };
        self.matching = Matching::default();
        let Matching { of_link, of_node } = &mut self.matching;
        match self.config.proposer {
            Proposer::Links => {
                let mut left = self.nodes_of;
                let first = |link: usize, set: u64| first(set, &|a, b| link_likes(link, a, b));
                stable(self.links, &mut left, of_link, of_node, first, node_likes);
            }
            Proposer::Forwarders => {
                let mut left = self.links_of;
                let first = |node: usize, set: u64| first(set, &|a, b| node_likes(node, a, b));
                stable(self.nodes, &mut left, of_node, of_link, first, link_likes);
            }
        }
        if self.config.second_pass {
            augment(&mut self.matching, &self.nodes_of, self.links);
        }
    }

    /// The matched pairs send; how long the round takes. `None` if there are none.
    fn send(&mut self, cycle: u64, round: u32, begin: Nanos) -> Option<Nanos> {
        let mut length = None;
        for link in 0..self.links {
            let node = self.matching.of_link[link];
            if node != NONE {
                let pick = self.picks[usize::from(node) * self.links + link];
                length = length.max(Some(self.slot(self.head_length(node.into(), link, pick.class))));
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
                let class = self.picks[node * self.links + link].class;
                let bytes = self.head_length(node, link, class);
                let slot = self.slot(bytes);
                if sent + slot > length {
                    break;
                }
                self.take(node, link, class.into());
                let grant =
                    Grant { cycle, round, link, class: class.into(), bytes: bytes.into(), at: begin + sent };
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

    fn head_length(&self, node: usize, link: usize, class: u8) -> u16 {
        let queue = (node * self.links + link) * self.classes + usize::from(class);
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

    /// One record is used: clocks and tags advance, the selections that it concerns are made again.
    #[inline]
    fn take(&mut self, node: usize, link: usize, class: usize) {
        let queue = (node * self.links + link) * self.classes + class;
        let mut tag = self.queues[queue].tag;
        if self.config.rule == WeightRule::PerClass {
            tag += self.clocks.increment(class, self.head_length(node, link, class as u8), 1);
        }
        self.queues[queue].used += 1;
        let set_back = self.clocks.charge(node, queue, link, tag);
        let Announced { count, used, .. } = self.queues[queue];
        if used == count {
            if self.fresh >> node & 1 == 0 {
                // Others may have heard more of this queue.
                self.exact &= self.config.missing == Missing::Stale;
            } else if usize::from(count) == self.depth {
                // Nobody knows what comes next in it.
                self.stop = true;
            }
        }
        if set_back || self.config.rule == WeightRule::PerClass {
            // Tags of other queues changed with this one.
            for node in 0..self.nodes {
                for class in 0..self.classes {
                    self.retag(node, link, class, true);
                }
                self.select(node, link);
            }
        } else {
            self.retag(node, link, class, true);
            self.select(node, link);
        }
    }

    #[inline]
    fn retag(&mut self, node: usize, link: usize, class: usize, continues: bool) {
        let queue = (node * self.links + link) * self.classes + class;
        let Announced { count, used, .. } = self.queues[queue];
        if used >= count {
            return;
        }
        let start = self.clocks.start(queue, link, class, continues);
        self.queues[queue].tag = match self.config.rule {
            // Finish times would differ by the lengths at the heads, and forwarders with short packets would go first for ever.
            WeightRule::PerClass => start,
            WeightRule::PerQueue | WeightRule::Divided => {
                let length = self.records[queue * self.depth + usize::from(used)].length;
                start + self.clocks.increment(class, length, self.spread[link * self.classes + class])
            }
        };
    }

    /// What the next window must know of this one.
    fn end(&mut self) {
        for (queue, backlogged) in self.queues.iter().zip(&mut self.clocks.backlogged) {
            *backlogged = queue.used < queue.count || usize::from(queue.count) == self.depth;
        }
        self.fresh = 0;
    }
}
