//! The algorithm of the specification, word by word: tags of all queues, sorted lists, Gale and
//! Shapley on lists. What [`Scheduler`] decides must be this.

use proptest::prelude::*;

use evenkeel_core::BitRate;

use super::Scheduler;
use crate::config::{ClusterConfig, Proposer, Variant, WeightRule};
use crate::mix::{Role, mix64, tie};
use crate::types::Record;

/// Records by [i][j][k].
type Queues = Vec<Vec<Vec<Vec<Record>>>>;

/// P_ij: class and tag.
type Pick = Option<(usize, u64)>;

/// What one pair does in one round.
type Sent = (u32, usize, usize, usize, u32);

struct Literal {
    config: ClusterConfig,
    /// F_ijk by [i][j][k]; with rule B, F_jk at i = 0.
    finish: Vec<Vec<Vec<u64>>>,
    /// V_j.
    clock: Vec<u64>,
    backlogged: Vec<Vec<Vec<bool>>>,
}

impl Literal {
    fn new(config: &ClusterConfig) -> Self {
        let (m, n, k) = (config.nodes(), config.links, config.classes());
        Self {
            config: config.clone(),
            finish: vec![vec![vec![0; k]; n]; m],
            clock: vec![0; n],
            backlogged: vec![vec![vec![false; k]; n]; m],
        }
    }

    /// Where F of a queue is.
    fn flow(&self, i: usize) -> usize {
        if self.config.rule == WeightRule::PerClass { 0 } else { i }
    }

    /// The virtual start and finish of a packet at the head of a queue.
    fn times(&self, i: usize, j: usize, c: usize, length: u16, spread: u64) -> (u64, u64) {
        let w = u64::from(self.config.weight.get(c));
        let lag = (self.config.max_lag.0 << 20) / w;
        let start = self.finish[self.flow(i)][j][c].max(self.clock[j].saturating_sub(lag));
        let divided = if self.config.rule == WeightRule::Divided { spread } else { 1 };
        (start, start + ((u64::from(length) * divided) << 20) / w)
    }

    /// Queues that were empty are owed nothing; m_jk.
    fn wake(&mut self, queues: &Queues) -> Vec<Vec<u64>> {
        let (m, n, k) = (self.config.nodes(), self.config.links, self.config.classes());
        let shared = self.config.rule == WeightRule::PerClass;
        let was = self.backlogged.clone();
        let mut spread = vec![vec![0_u64; k]; n];
        for j in 0..n {
            for c in 0..k {
                spread[j][c] = (0..m).filter(|i| !queues[*i][j][c].is_empty()).count() as u64;
                for i in 0..m {
                    let continues =
                        if shared { (0..m).any(|i| was[i][j][c]) } else { was[i][j][c] };
                    if !queues[i][j][c].is_empty() && !continues {
                        let flow = self.flow(i);
                        self.finish[flow][j][c] = self.finish[flow][j][c].max(self.clock[j]);
                    }
                }
            }
        }
        spread
    }

    /// P_ij: class and tag.
    fn picks(&self, round: u64, queues: &Queues, spread: &[Vec<u64>]) -> Vec<Vec<Pick>> {
        let (m, n, k) = (self.config.nodes(), self.config.links, self.config.classes());
        let shared = self.config.rule == WeightRule::PerClass;
        let mut p = vec![vec![None; n]; m];
        for i in 0..m {
            for j in 0..n {
                let backlogged = (0..k).filter(|c| !queues[i][j][*c].is_empty());
                let tag = |c: usize| {
                    let (start, finish) =
                        self.times(i, j, c, queues[i][j][c][0].length, spread[j][c]);
                    if shared { start } else { finish }
                };
                p[i][j] = backlogged
                    .map(|c| (tag(c), tie(round, Role::Class, i, j, c), c))
                    .min()
                    .map(|(tag, _, c)| (c, tag));
            }
        }
        p
    }

    /// Z, by links.
    fn pairs(&self, round: u64, queues: &Queues, p: &[Vec<Pick>]) -> Vec<(usize, usize)> {
        let (m, n) = (self.config.nodes(), self.config.links);
        let mut x: Vec<Vec<usize>> =
            (0..m).map(|i| (0..n).filter(|j| p[i][*j].is_some()).collect()).collect();
        for (i, list) in x.iter_mut().enumerate() {
            list.sort_by_key(|j| {
                let (c, _) = p[i][*j].unwrap();
                (queues[i][*j][c][0].stamp, tie(round, Role::Forwarder, i, *j, 0), *j)
            });
        }
        let mut y: Vec<Vec<usize>> =
            (0..n).map(|j| (0..m).filter(|i| p[*i][j].is_some()).collect()).collect();
        for (j, list) in y.iter_mut().enumerate() {
            list.sort_by_key(|i| (p[*i][j].unwrap().1, tie(round, Role::Link, j, *i, 0), *i));
        }
        let pairs: Vec<(usize, usize)> = match self.config.proposer {
            _ if self.config.forwarder_rate.is_some() => self.admissions(&x, &y),
            Proposer::Links => gale_shapley(&y, &x).into_iter().map(|(j, i)| (i, j)).collect(),
            Proposer::Forwarders => gale_shapley(&x, &y),
        };
        let mut pairs = pairs;
        pairs.sort_by_key(|(_, j)| *j);
        pairs
    }

    /// Z with forwarders that serve several links, whoever proposes: the free one of the lowest
    /// index is next.
    fn admissions(&self, x: &[Vec<usize>], y: &[Vec<usize>]) -> Vec<(usize, usize)> {
        let rate = |j: usize| self.config.rate_of(j).0;
        let room = self.config.forwarder_rate.unwrap().0;
        let place = |list: &[usize], who: usize| list.iter().position(|one| *one == who);
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        let used = |pairs: &[(usize, usize)], i: usize| -> u64 {
            pairs.iter().filter(|pair| pair.0 == i).map(|pair| rate(pair.1)).sum()
        };
        if self.config.proposer == Proposer::Links {
            let mut asked = vec![0; y.len()];
            loop {
                let is_free = |j: &usize| pairs.iter().all(|pair| pair.1 != *j);
                let free = (0..y.len()).filter(is_free).find(|j| asked[*j] < y[*j].len());
                let Some(j) = free else { break };
                let i = y[j][asked[j]];
                asked[j] += 1;
                pairs.push((i, j));
                while used(&pairs, i) > room {
                    let held = pairs.iter().filter(|pair| pair.0 == i).map(|pair| pair.1);
                    let worst = held.max_by_key(|j| place(&x[i], *j)).unwrap();
                    pairs.retain(|pair| *pair != (i, worst));
                }
            }
            return pairs;
        }
        let mut left = x.to_vec();
        loop {
            let next = |i: usize| {
                let fits = |j: &&usize| used(&pairs, i) + rate(**j) <= room;
                left[i].iter().find(fits).map(|j| (i, *j))
            };
            let Some((i, j)) = (0..x.len()).find_map(next) else { break };
            left[i].retain(|one| *one != j);
            match pairs.iter().find(|pair| pair.1 == j).copied() {
                Some((holds, _)) if place(&y[j], holds) < place(&y[j], i) => continue,
                Some(held) => pairs.retain(|pair| *pair != held),
                None => {}
            }
            pairs.push((i, j));
        }
        pairs
    }

    /// How long a packet takes of a forwarder that serves so many links.
    fn slot(&self, j: usize, length: u16, at_once: usize) -> u64 {
        let timing = &self.config.timing;
        let per_byte =
            (8_000_000_000_u128 << 20).div_ceil(u128::from(self.config.rate_of(j).0)) as u64;
        let bytes = u64::from(length) + u64::from(timing.overhead);
        (bytes * per_byte).div_ceil(1 << 20).max(timing.per_packet.0 * at_once as u64)
    }

    fn decide(&mut self, cycle: u64, mut queues: Queues) -> Vec<Sent> {
        let (m, n, k) = (self.config.nodes(), self.config.links, self.config.classes());
        let shared = self.config.rule == WeightRule::PerClass;
        let is_deep = |queue: &Vec<Record>| queue.len() == self.config.depth();
        let of_link = |of: &Vec<Vec<Record>>| -> Vec<bool> { of.iter().map(is_deep).collect() };
        let deep: Vec<Vec<Vec<bool>>> =
            queues.iter().map(|of| of.iter().map(of_link).collect()).collect();
        let spread = self.wake(&queues);
        let seed = mix64(self.config.seed ^ mix64(cycle));
        let (mut sent, mut cut, mut most) = (Vec::new(), false, 0);
        for r in 0..self.config.rounds() {
            let round = seed.wrapping_add(u64::from(r) << 1 | 1);
            let p = self.picks(round, &queues, &spread);
            let pairs = self.pairs(round, &queues, &p);
            if cut && pairs.len() < most {
                break;
            }
            most = most.max(pairs.len());
            let mut stop = pairs.is_empty();
            let fills = (0..n).any(|j| self.config.rate_of(j) != self.config.rate_of(0));
            let at_once = |i: usize| pairs.iter().filter(|pair| pair.0 == i).count();
            let first = |(i, j): &(usize, usize)| {
                self.slot(*j, queues[*i][*j][p[*i][*j].unwrap().0][0].length, at_once(*i))
            };
            let length = pairs.iter().map(first).max().unwrap_or(0);
            for (i, j) in pairs.iter().copied() {
                let slowest = self.config.rate_of(j) == self.config.slowest();
                let (mut time, mut known) = (0, true);
                while let Some((c, _)) = self.picks(round, &queues, &spread)[i][j] {
                    let next = queues[i][j][c][0].length;
                    // A nanosecond each, by which times were rounded up.
                    time += self.slot(j, next, at_once(i)) - u64::from(!slowest);
                    if time > length || !known {
                        break;
                    }
                    let w = u64::from(self.config.weight.get(c));
                    let (start, finish) = self.times(i, j, c, next, spread[j][c]);
                    let record = queues[i][j][c].remove(0);
                    let tag =
                        if shared { start + (u64::from(record.length) << 20) / w } else { finish };
                    let flow = self.flow(i);
                    self.finish[flow][j][c] = tag;
                    self.clock[j] = tag;
                    sent.push((r, i, j, c, u32::from(record.length)));
                    let used_up = queues[i][j][c].is_empty() && deep[i][j][c];
                    let others = shared && !fills && (0..m).any(|i| !queues[i][j][c].is_empty());
                    cut |= used_up && others;
                    stop |= used_up && !others;
                    known = fills && !used_up && !stop;
                }
            }
            if stop {
                break;
            }
        }
        for i in 0..m {
            for j in 0..n {
                for c in 0..k {
                    self.backlogged[i][j][c] = !queues[i][j][c].is_empty() || deep[i][j][c];
                }
            }
        }
        sent
    }
}

/// Deferred acceptance: (proposer, receiver) of all that are matched.
fn gale_shapley(proposers: &[Vec<usize>], receivers: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let rank =
        |receiver: usize, proposer: usize| receivers[receiver].iter().position(|p| *p == proposer);
    let mut next = vec![0; proposers.len()];
    let mut holds: Vec<Option<usize>> = vec![None; receivers.len()];
    let mut free: Vec<usize> = (0..proposers.len()).collect();
    while let Some(proposer) = free.pop() {
        let Some(receiver) = proposers[proposer].get(next[proposer]).copied() else { continue };
        next[proposer] += 1;
        match holds[receiver] {
            Some(held) if rank(receiver, held) < rank(receiver, proposer) => free.push(proposer),
            held => {
                free.extend(held);
                holds[receiver] = Some(proposer);
            }
        }
    }
    holds
        .iter()
        .enumerate()
        .filter_map(|(receiver, proposer)| Some(((*proposer)?, receiver)))
        .collect()
}

fn announce(scheduler: &mut Scheduler, queues: &[Vec<Vec<Vec<Record>>>]) {
    for (i, of) in queues.iter().enumerate() {
        for (j, of) in of.iter().enumerate() {
            for (c, queue) in of.iter().enumerate() {
                scheduler.announce(i, j, c, queue);
            }
        }
    }
}

proptest! {
    /// Few sizes, lengths and stamps: ties are everywhere.
    #[test]
    fn decisions_are_those_of_the_specification(
        seed: u64, nodes in 1_u16..6, links in 1_usize..6, classes in 1_usize..5, l in 1_u16..5,
            extra in 0_u16..6,
        rule in 0..3, forwarders_propose: bool, small_lag: bool, empty in 0_u64..4,
        rates in 0..3, at_once in 0_u64..4, per_packet in 0_u64..2,
    ) {
        let weights: Vec<u16> = (0..classes).map(|c| 1 + (mix64(seed ^ c as u64) % 3) as u16)
            .collect();
        let mut config = ClusterConfig::new(nodes, links, &weights);
        config.seed = seed;
        config.set_variant(Variant::Multiple, l, extra);
        config.second_pass = false;
        config.rule = [WeightRule::PerQueue, WeightRule::PerClass,
            WeightRule::Divided][rule as usize];
        config.proposer = if forwarders_propose { Proposer::Forwarders } else { Proposer::Links };
        // With rules A and C the bound on the lag, which is not in the specification, is only
        // looked at when a queue's own tag is due.
        let lag = if small_lag && config.rule == WeightRule::PerClass { 1 << 16 } else { 1 << 32 };
        config.max_lag = evenkeel_core::Bytes(lag);
        // One rate for all, rates that are places of two sizes, rates at random.
        config.rates = (0..links as u64).map(|j| match (rates, mix64(seed ^ j) % 3) {
            (0, _) => BitRate::from_mbps(1_000),
            (1, odd) => BitRate::from_mbps(1_000 << (odd & 1)),
            (_, odd) => BitRate::from_mbps(1_000 + odd * 700),
        }).collect();
        let fastest = config.link_rates().max().unwrap();
        config.forwarder_rate = (at_once > 0).then(|| BitRate(fastest.0 * at_once));
        config.timing.per_packet = evenkeel_core::Nanos(per_packet * 4_000);
        let mut scheduler = Scheduler::new(&config).unwrap();
        let mut literal = Literal::new(&config);
        let mut draw = seed;
        for cycle in 0..24 {
            let mut queues = vec![vec![vec![Vec::new(); classes]; links]; usize::from(nodes)];
            for queue in queues.iter_mut().flatten().flatten() {
                for _ in 0..l {
                    draw = mix64(draw);
                    if draw >> 40 & 7 < empty {
                        break;
                    }
                    let length = [64, 576, 40_000][(draw % 3) as usize];
                    queue.push(Record::of_packet((draw >> 8) as u32 & 3, length));
                }
            }
            announce(&mut scheduler, &queues);
            let window = scheduler.decide(cycle, u64::MAX);
            prop_assert!(window.exact);
            let sent: Vec<Sent> = window
                .grants
                .iter()
                .map(|of| (of.grant.round, of.node, of.grant.link, of.grant.class, of.grant.bytes))
                .collect();
            prop_assert_eq!(sent, literal.decide(cycle, queues), "cycle {}", cycle);
            let clocks: Vec<u64> = (0..links).map(|link| scheduler.clock(link)).collect();
            prop_assert_eq!(&clocks, &literal.clock);
        }
    }
}

/// A class without packets is owed nothing for the time in which it had none, in whatever round of
/// a window it is looked at.
#[test]
fn a_class_that_comes_back_shares_from_then_on() {
    for rule in [WeightRule::PerQueue, WeightRule::PerClass, WeightRule::Divided] {
        let mut config = ClusterConfig::new(1, 1, &[1, 1]);
        config.set_variant(Variant::Multiple, 20, 0);
        config.rule = rule;
        let mut scheduler = Scheduler::new(&config).unwrap();
        let full = vec![Record::of_packet(1, 1500); 20];
        for cycle in 0..30 {
            scheduler.announce(0, 0, 0, &full);
            scheduler.announce(0, 0, 1, &[]);
            scheduler.decide(cycle, 1);
        }
        scheduler.announce(0, 0, 0, &full);
        scheduler.announce(0, 0, 1, &full);
        let window = scheduler.decide(30, 1);
        let back = window.grants.iter().filter(|of| of.grant.class == 1).count();
        assert_eq!(window.grants.len(), 20);
        assert!((9..=11).contains(&back), "{rule:?}: {back} of 20");
    }
}
