//! Phases 2 and 3: who sends what on which link, for a whole window of rounds.
//!
//! Source: the paper's Algorithm 1; specs of selection and lists (5), matching (6), variants (8).
//! Symbols: P_ij → `pick` (class, tag, stamp of forwarder i's packet for link j), X_i → order of
//! `pick[i][·].stamp`, Y_j → order of `pick[·][j].tag`, Z → [`Window`].
//!
//! The same on every node: what decides are the announced records, the clocks, and the shared seed.
//! A round costs a matching (see `matching.rs`) and, for each matched link, a selection over K
//! classes: with rules A and C those of the forwarder that sends, with rule B, where forwarders
//! share tags, those of the link, whoever has them being a set in a word. Ties cost a hash for each
//! that is tied, when it is asked for. Nothing allocates.
//!
//! A round lasts as long as the longest packet in it. With sizes mixed, links idle while they wait
//! for it (55 % use with 64, 576 and 1500 bytes). With `round_bytes`, each pair goes on sending
//! what weighted fair queueing selects for its link until the round's time is used up: as all
//! lengths are announced, all nodes know what that is, and class shares stay as exact as before.
//!
//! Links of different rates fill their rounds in this way too: a fast one would wait for what a
//! slow one sends. And a forwarder whose rate is that of several links may serve them in one round:
//! see `several.rs`.
//!
//! A window ends when a queue has used up what was announced of it, and there may be more: its
//! class would get less than its share. With rule B others may have packets of that class; then
//! the queue takes no part in the rest of the window, as long as no link is idle for that.
//!
//! Threads of one machine use this without an engine: [`announce`](Scheduler::announce) for all,
//! then [`decide`](Scheduler::decide).

mod lists;
#[cfg(test)]
mod literal;
mod several;
mod views;

use evenkeel_core::{BitRate, Nanos};

use crate::clocks::Clocks;
use crate::config::{ClusterConfig, ConfigError, LAZY_PACKET, Missing, WeightRule};
use crate::matching::{Matching, augment, members};
use crate::mix::mix64;
use crate::types::{Grant, Record};
use lists::{Flows, Own, Picks as _, Round, Shared};
use several::Several;

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
    /// All that decided was known. If not, other nodes may have decided otherwise: nothing of this
    /// may be sent.
    pub exact: bool,
}

/// One queue as announced.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    /// Records that were announced.
    count: u16,
    /// Records that windows have used since.
    used: u16,
    /// The record at its head, if it has one.
    head: Record,
}

/// Clocks, what was announced, and how it is decided.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: ClusterConfig,
    nodes: usize,
    links: usize,
    classes: usize,
    depth: usize,
    /// Rule B.
    per_class: bool,
    /// Nanoseconds per byte of each link, in 2^-20.
    per_byte: Vec<u64>,
    /// Those of the slowest.
    slowest: u64,
    /// Pairs go on sending until their round is over.
    fills: bool,
    /// Forwarders may serve several links in one round.
    several: Option<Several>,
    pub(crate) clocks: Clocks,
    records: Vec<Record>,
    queues: Vec<Announced>,
    /// Forwarders whose records are of this cycle.
    fresh: u64,
    /// By forwarder and link (i·N + j): the classes that have a record left.
    full: Vec<u8>,
    /// The same: the classes of which l records were announced. There may be more of them.
    deep: Vec<u8>,
    /// By link and class (j·K + k): m_jk as it was when the window began; 1 where the rule does not
    /// divide.
    spread: Vec<u8>,
    /// Virtual finish time of the record at the head of each queue, with rules A and C.
    tags: Vec<u64>,
    /// See [`Own`].
    picks: Vec<u64>,
    choices: Vec<u8>,
    /// By link: who has records of which class; with rule B, the virtual start times of classes.
    flows: Vec<Flows>,
    /// The smallest lag of a class.
    lag: u64,
    links_of: [u64; 64],
    nodes_of: [u64; 64],
    left: [u64; 64],
    matching: Matching,
    granted: Vec<Granted>,
    round: u64,
    stop: bool,
    /// A queue of which nobody knows what comes next takes no part any more: others have its class.
    cut: bool,
    exact: bool,
    /// See [`forgot`](Self::forgot).
    forgot: u64,
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
        let per_round = config.links.min(config.nodes() * config.links_at_once());
        let most = match config.fills_rounds() {
            false => config.rounds() as usize * per_round,
            true => queues * config.depth(),
        };
        let clocks = Clocks::new(config);
        let per_byte = |rate: BitRate| (8_000_000_000_u128 << 20).div_ceil(rate.0.into()) as u64;
        Ok(Self {
            nodes: config.nodes(),
            links: config.links,
            classes: config.classes(),
            depth: config.depth(),
            per_class: config.rule == WeightRule::PerClass,
            per_byte: config.link_rates().map(per_byte).collect(),
            slowest: per_byte(config.slowest()),
            fills: config.fills_rounds(),
            several: (config.links_at_once() > 1).then(|| Several::new(config)),
            records: vec![Record::default(); queues * config.depth()],
            queues: vec![Announced::default(); queues],
            fresh: 0,
            full: vec![0; pairs],
            deep: vec![0; pairs],
            spread: vec![1; config.queues()],
            tags: vec![0; queues],
            picks: vec![0; pairs],
            choices: vec![0; pairs],
            flows: vec![Flows::NONE; config.links],
            lag: clocks.smallest_lag(),
            clocks,
            links_of: [0; 64],
            nodes_of: [0; 64],
            left: [0; 64],
            matching: Matching::default(),
            granted: Vec::with_capacity(most),
            round: 0,
            stop: false,
            cut: false,
            exact: true,
            forgot: 0,
            config: config.clone(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// What waits at the head of a queue of forwarder `node` (an index): up to l records; more are
    /// left out, and so are all from the first of length 0 on.
    pub fn announce(&mut self, node: usize, link: usize, class: usize, heads: &[Record]) {
        let queue = (node * self.links + link) * self.classes + class;
        let count = heads.iter().take(self.depth).take_while(|record| record.length > 0).count();
        let begin = queue * self.depth;
        self.records[begin..begin + count].copy_from_slice(&heads[..count]);
        self.queues[queue] = Announced {
            count: count as u16,
            used: 0,
            head: heads.first().copied().unwrap_or_default(),
        };
        self.holds(node, link, class, count > 0);
        let (pair, bit) = (node * self.links + link, 1 << class);
        self.deep[pair] = self.deep[pair] & !bit | if count == self.depth { bit } else { 0 };
        self.fresh |= 1 << node;
    }

    /// A queue has a record left, or none: in all the sets that say so.
    #[inline]
    fn holds(&mut self, node: usize, link: usize, class: usize, has: bool) {
        let put = |set: u64, bit: usize, has: bool| set & !(1 << bit) | u64::from(has) << bit;
        let full = &mut self.full[node * self.links + link];
        *full = *full & !(1 << class) | u8::from(has) << class;
        let some = *full != 0;
        let flows = &mut self.flows[link];
        flows.holders[class] = put(flows.holders[class], node, has);
        if flows.holders[class] == 0 {
            flows.tags[class] = u64::MAX;
        }
        self.nodes_of[link] = put(self.nodes_of[link], node, some);
        self.links_of[node] = put(self.links_of[node], link, some);
    }

    /// Decides a window: the members in `present` (by index) take part, all others count as empty.
    /// Those present that announced nothing since the last window are treated as [`Missing`] says.
    pub fn decide(&mut self, cycle: u64, present: u64) -> Window<'_> {
        let seed = mix64(self.config.seed ^ mix64(cycle));
        self.round = seed;
        self.begin(present);
        // Pipelined, all rounds are decided while the window before is sent: see
        // `ClusterConfig::lead`.
        let decision =
            if self.config.is_pipelined() { Nanos::ZERO } else { self.config.timing.decision };
        let mut at = Nanos::ZERO;
        let (mut round, mut most) = (0, 0);
        while round < self.config.rounds() && self.exact && !self.stop {
            self.round = seed.wrapping_add(u64::from(round) << 1 | 1);
            self.match_all();
            let pairs = self.matching.pairs(self.links);
            if self.cut && pairs < most {
                // A link would stay idle for want of knowledge, not of packets.
                (0..self.links).for_each(|link| _ = self.matching.part(link));
                break;
            }
            most = most.max(pairs);
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
        for link in 0..self.links {
            for class in members(self.full[node * self.links + link].into()) {
                self.holds(node, link, class, false);
            }
        }
        self.deep[node * self.links..(node + 1) * self.links].fill(0);
        self.fresh &= !(1 << node);
    }

    /// Works out what is known of every queue, its tag, and all selections.
    fn begin(&mut self, present: u64) {
        self.exact = true;
        (self.stop, self.cut, self.forgot) = (false, false, 0);
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
        if self.per_class {
            // Flows, not queues: backlogged if any forwarder's part of it was.
            let mut backlogged = [0_u8; 64];
            for pairs in self.clocks.backlogged.chunks_exact(self.links) {
                for (all, classes) in backlogged.iter_mut().zip(pairs) {
                    *all |= classes;
                }
            }
            for (link, continues) in backlogged.iter().enumerate().take(self.links) {
                let flow = link * self.classes;
                for class in 0..self.classes {
                    if self.flows[link].holders[class] != 0 && continues >> class & 1 == 0 {
                        self.clocks.wake(flow + class, link);
                    }
                }
                self.restart(link);
            }
            return;
        }
        if self.config.rule == WeightRule::Divided {
            for (spread, flows) in self.spread.chunks_exact_mut(self.classes).zip(&self.flows) {
                for (spread, holders) in spread.iter_mut().zip(flows.holders) {
                    *spread = holders.count_ones() as u8;
                }
            }
        }
        for node in 0..self.nodes {
            for link in 0..self.links {
                let pair = node * self.links + link;
                for class in members((self.full[pair] & !self.clocks.backlogged[pair]).into()) {
                    self.clocks.wake(pair * self.classes + class, link);
                }
                self.retag(node, link);
            }
        }
    }

    /// A forwarder that was not heard: what of its last announcement still counts.
    fn reuse(&mut self, node: usize) {
        let per_node = self.links * self.classes;
        let sent = self.clocks.senders() >> node & 1 == 1;
        let queues = node * per_node..(node + 1) * per_node;
        match self.config.missing {
            Missing::Stale => {
                for queue in queues {
                    self.queues[queue].used = 0;
                    self.queues[queue].head = self.records[queue * self.depth];
                    let (link, class) = (queue / self.classes % self.links, queue % self.classes);
                    self.holds(node, link, class, self.queues[queue].count > 0);
                }
            }
            Missing::Abstain if sent => self.exact = false,
            // A queue that was empty may have packets by now.
            Missing::Abstain | Missing::Next => {
                self.exact &= self.queues[queues].iter().all(|queue| queue.used < queue.count);
            }
        }
    }

    /// With rule B: a packet of class `served` was sent on a link.
    #[inline]
    fn retag_link(&mut self, link: usize, served: usize, set_back: bool) {
        let clock = self.clocks.clock[link];
        let flows = &mut self.flows[link];
        if flows.holders[served] != 0 {
            flows.tags[served] = clock;
        }
        flows.rank(self.classes);
        // Others start later only if they lag too much, and earlier again when the clock goes back,
        // as it does after a long packet.
        if set_back || flows.dragged || flows.least < clock.saturating_sub(self.lag) {
            self.restart(link);
        }
    }

    /// With rule B: the virtual start times of a link's flows.
    fn restart(&mut self, link: usize) {
        let flows = &mut self.flows[link];
        flows.dragged = false;
        for class in 0..self.classes {
            if flows.holders[class] != 0 {
                let flow = link * self.classes + class;
                let start = self.clocks.start(flow, link, class);
                flows.dragged |= start > self.clocks.finish[flow];
                flows.tags[class] = start;
            }
        }
        self.forgot |= u64::from(flows.dragged) << link;
        flows.rank(self.classes);
    }

    /// With rules A and C: tags of the queues of a forwarder for a link, and P_ij, the class with
    /// the smallest one.
    #[inline]
    fn retag(&mut self, node: usize, link: usize) {
        let pair = node * self.links + link;
        let first = pair * self.classes;
        let (mut best, mut choices) = (u64::MAX, 0);
        for class in members(self.full[pair].into()) {
            let queue = first + class;
            let length = self.queues[queue].head.length;
            let spread = self.spread[link * self.classes + class];
            let start = self.clocks.start(queue, link, class);
            self.forgot |= u64::from(start > self.clocks.finish[queue]) << link;
            let tag = start + self.clocks.increment(class, length, spread.into());
            self.tags[queue] = tag;
            if tag < best {
                (best, choices) = (tag, 0);
            }
            choices |= u8::from(tag == best) << class;
        }
        let at = link * self.nodes + node;
        (self.picks[at], self.choices[at]) = (best, choices);
    }

    /// X, Y and Z.
    fn match_all(&mut self) {
        let round = Round {
            seed: self.round,
            nodes: self.nodes,
            links: self.links,
            classes: self.classes,
            queues: &self.queues,
        };
        let sets = (&self.nodes_of, &self.links_of);
        let (left, matching, proposer) = (&mut self.left, &mut self.matching, self.config.proposer);
        let of_link = &mut matching.of_link;
        if self.per_class {
            let picks = Shared { links: self.links, full: &self.full, flows: &self.flows };
            match &mut self.several {
                None => lists::match_all(&round, &picks, proposer, sets, left, matching),
                Some(several) => several.match_all(&round, &picks, proposer, sets, left, of_link),
            }
        } else {
            let picks = Own { nodes: self.nodes, picks: &self.picks, choices: &self.choices };
            match &mut self.several {
                None => lists::match_all(&round, &picks, proposer, sets, left, matching),
                Some(several) => several.match_all(&round, &picks, proposer, sets, left, of_link),
            }
        }
        if !self.config.second_pass {
            return;
        }
        if let Some(several) = &mut self.several {
            several.augment(&mut self.matching.of_link, &self.nodes_of);
        } else {
            augment(&mut self.matching, &self.nodes_of, self.links);
        }
    }

    /// The matched pairs send; how long the round takes. `None` if there are none.
    #[inline]
    fn send(&mut self, cycle: u64, round: u32, begin: Nanos) -> Option<Nanos> {
        if self.fills {
            return self.send_many(cycle, round, begin);
        }
        let mut longest = (0, 0);
        for link in 0..self.links {
            let Some(node) = self.matching.part(link) else { continue };
            let (class, Record { length: bytes, packets, .. }) = self.first_of(node, link);
            self.take(node, link, class, bytes);
            let grant = Grant { cycle, round, link, class, bytes: bytes.into(), at: begin };
            self.granted.push(Granted { node, grant });
            let (bytes, packets) = self.cost(bytes, packets);
            longest = (bytes.max(longest.0), (packets * self.at_once(node)).max(longest.1));
        }
        // All links have one rate here.
        (longest.0 > 0).then(|| self.time(self.slowest, longest))
    }

    /// How many links a forwarder serves in this round; its processor does for all of them.
    #[inline]
    fn at_once(&self, node: usize) -> u64 {
        self.several.as_ref().map_or(1, |several| several.at_once(node))
    }

    /// The same with `round_bytes`, or with links of different rates: a pair goes on until the
    /// longest first packet, or so many bytes on the slowest link, are over.
    fn send_many(&mut self, cycle: u64, round: u32, begin: Nanos) -> Option<Nanos> {
        let first = |link: usize| {
            let slot = |node| self.slot(node, link, self.first_of(node, link).1);
            self.matching.node_of(link).map(slot)
        };
        let longest = (0..self.links).filter_map(first).max()?;
        let bytes = self.config.round_bytes.0;
        let length = longest.max(Nanos((bytes * self.slowest) >> 20));
        for link in 0..self.links {
            let slowest = self.per_byte[link] == self.slowest;
            let Some(node) = self.matching.part(link) else { continue };
            let (mut sent, mut end) = (Nanos::ZERO, length);
            loop {
                let (class, record) = self.first_of(node, link);
                let (bytes, slot) = (record.length, self.slot(node, link, record));
                // Times are rounded up: without this three of four packets would go at four times
                // the rate.
                end += if slowest { Nanos::ZERO } else { Nanos(1) };
                if sent + slot > end {
                    break;
                }
                self.take(node, link, class, bytes);
                let grant =
                    Grant { cycle, round, link, class, bytes: bytes.into(), at: begin + sent };
                self.granted.push(Granted { node, grant });
                sent += slot;
                let more = self.nodes_of[link] >> node & 1 == 1;
                if !more || self.stop || !self.exact {
                    break;
                }
            }
        }
        Some(length)
    }

    /// Class and record of P_ij, which must exist.
    #[inline(always)]
    fn first_of(&self, node: usize, link: usize) -> (usize, Record) {
        let class = if self.per_class {
            let picks = Shared { links: self.links, full: &self.full, flows: &self.flows };
            picks.class(self.round, node, link)
        } else {
            Own { nodes: self.nodes, picks: &self.picks, choices: &self.choices }
                .class(self.round, node, link)
        };
        (class, self.queues[(node * self.links + link) * self.classes + class].head)
    }

    /// The bytes that a record takes on the wire, and its packets.
    #[inline]
    fn cost(&self, length: u16, packets: u8) -> (u64, u64) {
        // How many packets a burst has is not announced: at most this many.
        let packets = match self.config.burst() {
            Some(burst) => u32::from(length).div_ceil(LAZY_PACKET).min(burst / LAZY_PACKET).into(),
            None => u64::from(packets.max(1)),
        };
        (u64::from(length) + u64::from(self.config.timing.overhead) * packets, packets)
    }

    /// How long so many bytes and packets take.
    #[inline]
    fn time(&self, per_byte: u64, (bytes, packets): (u64, u64)) -> Nanos {
        let wire = Nanos((bytes * per_byte).div_ceil(1 << 20));
        wire.max(self.config.timing.per_packet * packets)
    }

    #[inline]
    fn slot(&self, node: usize, link: usize, record: Record) -> Nanos {
        let (bytes, packets) = self.cost(record.length, record.packets);
        self.time(self.per_byte[link], (bytes, packets * self.at_once(node)))
    }

    /// The record at the head of a queue, of `bytes`, is used: clocks and tags advance, the
    /// selections that it concerns are made again.
    #[inline(always)]
    fn take(&mut self, node: usize, link: usize, class: usize, bytes: u16) {
        let pair = node * self.links + link;
        let queue = pair * self.classes + class;
        // Where the tag is kept: the first forwarder's queue stands for the flow.
        let (flow, tag) = match self.per_class {
            true => {
                let start = self.flows[link].tags[class];
                (link * self.classes + class, start + self.clocks.increment(class, bytes, 1))
            }
            false => (queue, self.tags[queue]),
        };
        let set_back = self.clocks.charge(node, queue, flow, link, tag);
        let announced = &mut self.queues[queue];
        announced.used += 1;
        let (count, used) = (announced.count, announced.used);
        if used < count {
            announced.head = self.records[queue * self.depth + usize::from(used)];
        } else {
            self.holds(node, link, class, false);
            if self.fresh >> node & 1 == 0 {
                // Others may have heard more of this queue.
                self.exact &= self.config.missing == Missing::Stale;
            } else if usize::from(count) == self.depth {
                // Nobody knows what comes next in it. With rule B the class has its share of the
                // link as long as somebody has packets of it.
                // A pair that goes on would send another class before it.
                let single = self.per_class && !self.fills;
                let others = single && self.flows[link].holders[class] != 0;
                self.cut |= others;
                self.stop |= !others;
            }
        }
        if self.per_class {
            self.retag_link(link, class, set_back);
        } else if set_back {
            (0..self.nodes).for_each(|node| self.retag(node, link));
        } else {
            self.retag(node, link);
        }
    }

    /// What the next window must know of this one.
    fn end(&mut self) {
        for ((full, deep), backlogged) in
            self.full.iter().zip(&self.deep).zip(&mut self.clocks.backlogged)
        {
            *backlogged = full | deep;
        }
        self.fresh = 0;
    }
}
