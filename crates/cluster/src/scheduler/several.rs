//! Forwarders that serve several links in one round.
//!
//! A forwarder whose rate is that of several links holds as many of them as fit: Gale and Shapley's
//! college admissions, a college's places being its rate. Links of one rate are places of one size:
//! the outcome is stable, whoever asks first. With links of several rates no stable outcome need
//! exist. The free proposer of the lowest index asks next; a forwarder that is asked for more than
//! its rate gives up those of its links that it likes least until the rest fits. All nodes come to
//! the same outcome because all ask in this order.
//!
//! Complexity: each pair is asked at most once; a forwarder looks at the links that it holds.

use crate::config::{ClusterConfig, Proposer};
use crate::matching::{NONE, members};
use crate::mix::{Role, tie};
use crate::types::earlier;

use super::lists::{Picks, Round};

/// Who holds which links.
#[derive(Clone, Debug)]
pub(super) struct Several {
    /// Of each link, bit/s.
    rates: Vec<u64>,
    /// Of a forwarder.
    room: u64,
    /// By forwarder: the links that it holds, and their rates together.
    held: [u64; 64],
    used: [u64; 64],
}

impl Several {
    pub(super) fn new(config: &ClusterConfig) -> Self {
        Self {
            rates: config.link_rates().map(|rate| rate.0).collect(),
            room: config.forwarder_rate.map_or(0, |rate| rate.0),
            held: [0; 64],
            used: [0; 64],
        }
    }

    /// How many links a forwarder serves.
    #[inline]
    pub(super) fn at_once(&self, node: usize) -> u64 {
        self.held[node].count_ones().into()
    }

    fn fits(&self, node: usize, link: usize) -> bool {
        self.used[node] + self.rates[link] <= self.room
    }

    fn hold(&mut self, of_link: &mut [u8; 64], node: usize, link: usize) {
        of_link[link] = node as u8;
        self.held[node] |= 1 << link;
        self.used[node] += self.rates[link];
    }

    fn give_up(&mut self, of_link: &mut [u8; 64], node: usize, link: usize) {
        of_link[link] = NONE;
        self.held[node] &= !(1 << link);
        self.used[node] -= self.rates[link];
    }

    /// Z, from X and Y, as [`lists::match_all`](super::lists::match_all) but with several links to
    /// a forwarder. Nobody is matched yet.
    pub(super) fn match_all<P: Picks>(
        &mut self,
        round: &Round<'_>,
        picks: &P,
        proposer: Proposer,
        (nodes_of, links_of): (&[u64; 64], &[u64; 64]),
        left: &mut [u64; 64],
        of_link: &mut [u8; 64],
    ) {
        (self.held, self.used) = ([0; 64], [0; 64]);
        let stamp = |node: usize, link: usize| {
            let class = picks.class(round.seed, node, link);
            round.queues[(node * round.links + link) * round.classes + class].head.stamp
        };
        let node_likes = |node: usize, a: usize, b: usize| {
            let (x, y) = (stamp(node, a), stamp(node, b));
            let order = |link| (tie(round.seed, Role::Forwarder, node, link, 0), link);
            earlier(x, y) || x == y && order(a) < order(b)
        };
        let link_likes = |link: usize, a: usize, b: usize| {
            let order = |node| (picks.tag(node, link), tie(round.seed, Role::Link, link, node, 0));
            (order(a), a) < (order(b), b)
        };
        match proposer {
            Proposer::Links => {
                left[..round.links].copy_from_slice(&nodes_of[..round.links]);
                let first = |link: usize, set: u64| picks.first(round, link, set).0;
                self.links_ask(round.links, left, of_link, first, node_likes);
            }
            Proposer::Forwarders => {
                left[..round.nodes].copy_from_slice(&links_of[..round.nodes]);
                self.forwarders_ask(round.nodes, left, of_link, node_likes, link_likes);
            }
        }
    }

    fn links_ask(
        &mut self,
        links: usize,
        left: &mut [u64; 64],
        of_link: &mut [u8; 64],
        first: impl Fn(usize, u64) -> usize,
        node_likes: impl Fn(usize, usize, usize) -> bool,
    ) {
        let mut free = u64::MAX >> (64 - links);
        while free != 0 {
            let link = free.trailing_zeros() as usize;
            free &= !(1 << link);
            if left[link] == 0 {
                continue;
            }
            let node = first(link, left[link]);
            left[link] &= !(1 << node);
            self.hold(of_link, node, link);
            while self.used[node] > self.room {
                let worse = |worst, link| if node_likes(node, worst, link) { link } else { worst };
                let Some(worst) = members(self.held[node]).reduce(worse) else { break };
                self.give_up(of_link, node, worst);
                free |= 1 << worst;
            }
        }
    }

    fn forwarders_ask(
        &mut self,
        nodes: usize,
        left: &mut [u64; 64],
        of_link: &mut [u8; 64],
        node_likes: impl Fn(usize, usize, usize) -> bool,
        link_likes: impl Fn(usize, usize, usize) -> bool,
    ) {
        let mut free = u64::MAX >> (64 - nodes);
        while free != 0 {
            let node = free.trailing_zeros() as usize;
            let best = |best, link| if node_likes(node, link, best) { link } else { best };
            let fitting = members(left[node]).filter(|link| self.fits(node, *link));
            let Some(link) = fitting.reduce(best) else {
                // Until it is given up by a link.
                free &= !(1 << node);
                continue;
            };
            left[node] &= !(1 << link);
            let holds = of_link[link];
            if holds != NONE {
                if !link_likes(link, node, holds.into()) {
                    continue;
                }
                self.give_up(of_link, holds.into(), link);
                free |= 1 << holds;
            }
            self.hold(of_link, node, link);
        }
    }

    /// Enlarges the matching along augmenting paths; all links that were served still are. With
    /// links of one rate it is a maximum then.
    ///
    /// Breadth first from each idle link, in index order. A forwarder is looked at once for each
    /// start, so that it is on a path at most once, and what it gives and takes there is what was
    /// checked.
    pub(super) fn augment(&mut self, of_link: &mut [u8; 64], nodes_of: &[u64; 64]) {
        for start in 0..self.rates.len() {
            if of_link[start] != NONE || nodes_of[start] == 0 {
                continue;
            }
            // The link that would take the place of this one at its forwarder.
            let mut after = [NONE; 64];
            let (mut seen, mut queue) = (0_u64, [0_u8; 64]);
            let (mut head, mut tail) = (0, 1);
            queue[0] = start as u8;
            let mut end = None;
            while head < tail && end.is_none() {
                let link = usize::from(queue[head]);
                head += 1;
                for node in members(nodes_of[link] & !seen) {
                    seen |= 1 << node;
                    if self.fits(node, link) {
                        end = Some((node, link));
                        break;
                    }
                    for gives in members(self.held[node]) {
                        let rest = self.used[node] - self.rates[gives];
                        if rest + self.rates[link] <= self.room {
                            after[gives] = link as u8;
                            queue[tail] = gives as u8;
                            tail += 1;
                        }
                    }
                }
            }
            while let Some((node, link)) = end {
                let was = of_link[link];
                if was != NONE {
                    self.give_up(of_link, was.into(), link);
                }
                self.hold(of_link, node, link);
                end = (was != NONE).then(|| (usize::from(was), usize::from(after[link])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::BitRate;
    use proptest::prelude::*;

    use super::*;
    use crate::mix::mix64;

    /// Preference of `a` for `b`: smaller is better.
    fn rank(seed: u64, side: u64, a: usize, b: usize) -> u64 {
        mix64(seed ^ side << 60 ^ (a as u64) << 32 ^ b as u64)
    }

    struct Case {
        seed: u64,
        nodes: usize,
        links: usize,
        /// By link.
        nodes_of: [u64; 64],
        several: Several,
        of_link: [u8; 64],
    }

    fn case(seed: u64, nodes: usize, rates: &[u64], room: u64) -> Case {
        let mut config = ClusterConfig::new(nodes as u16, rates.len(), &[1]);
        config.rates = rates.iter().map(|rate| BitRate::from_mbps(*rate)).collect();
        config.forwarder_rate = Some(BitRate::from_mbps(room));
        let mut nodes_of = [0; 64];
        for (link, set) in nodes_of.iter_mut().enumerate().take(rates.len()) {
            *set = mix64(seed ^ link as u64) & ((1 << nodes) - 1);
        }
        let (links, several) = (rates.len(), Several::new(&config));
        Case { seed, nodes, links, nodes_of, several, of_link: [NONE; 64] }
    }

    impl Case {
        fn node_likes(&self) -> impl Fn(usize, usize, usize) -> bool + use<> {
            let seed = self.seed;
            move |node, a, b| rank(seed, 2, node, a) < rank(seed, 2, node, b)
        }

        fn link_likes(&self) -> impl Fn(usize, usize, usize) -> bool + use<> {
            let seed = self.seed;
            move |link, a, b| rank(seed, 1, link, a) < rank(seed, 1, link, b)
        }

        fn run(&mut self, proposer: Proposer) {
            let (node_likes, link_likes) = (self.node_likes(), self.link_likes());
            let seed = self.seed;
            let mut left = [0; 64];
            if proposer == Proposer::Links {
                left = self.nodes_of;
                let first = |link: usize, set: u64| {
                    members(set).min_by_key(|node| rank(seed, 1, link, *node)).unwrap()
                };
                self.several.links_ask(self.links, &mut left, &mut self.of_link, first, node_likes);
                return;
            }
            for link in 0..self.links {
                members(self.nodes_of[link]).for_each(|node| left[node] |= 1 << link);
            }
            let of_link = &mut self.of_link;
            self.several.forwarders_ask(self.nodes, &mut left, of_link, node_likes, link_likes);
        }

        fn served(&self) -> usize {
            self.of_link.iter().filter(|node| **node != NONE).count()
        }

        /// What the forwarders hold is what the links say, and no more than they can carry.
        fn holds_together(&self) {
            for node in 0..self.nodes {
                let held: Vec<usize> = members(self.several.held[node]).collect();
                assert!(held.iter().all(|link| usize::from(self.of_link[*link]) == node));
                assert!(held.iter().all(|link| self.nodes_of[*link] >> node & 1 == 1));
                let used: u64 = held.iter().map(|link| self.several.rates[*link]).sum();
                assert_eq!(used, self.several.used[node]);
                assert!(used <= self.several.room);
            }
            let held: u32 = self.several.held.iter().map(|held| held.count_ones()).sum();
            assert_eq!(held as usize, self.served());
        }
    }

    /// The most links that can be served, by trying everything.
    fn largest(case: &Case, link: usize, left: &mut [u64]) -> usize {
        if link == case.links {
            return 0;
        }
        let mut most = largest(case, link + 1, left);
        for node in members(case.nodes_of[link]) {
            if left[node] > 0 {
                left[node] -= 1;
                most = most.max(1 + largest(case, link + 1, left));
                left[node] += 1;
            }
        }
        most
    }

    proptest! {
        /// With links of one rate: as college admissions must be.
        #[test]
        fn no_pair_would_rather_have_each_other_and_the_second_pass_finds_a_maximum(
            seed: u64, nodes in 1_usize..5, links in 1_usize..7, places in 2_u64..4,
            forwarders: bool,
        ) {
            let proposer = if forwarders { Proposer::Forwarders } else { Proposer::Links };
            let mut case = case(seed, nodes, &vec![10; links], places * 10 + 9);
            case.run(proposer);
            case.holds_together();
            let (node_likes, link_likes) = (case.node_likes(), case.link_likes());
            for link in 0..links {
                let has = case.of_link[link];
                for node in members(case.nodes_of[link]).filter(|node| *node != has.into()) {
                    let link_would = has == NONE || link_likes(link, node, has.into());
                    let mut held = members(case.several.held[node]);
                    let node_would = case.several.at_once(node) < places
                        || held.any(|other| node_likes(node, link, other));
                    prop_assert!(!(link_would && node_would), "{link} and {node} block");
                }
            }
            let before = case.of_link;
            case.several.augment(&mut case.of_link, &case.nodes_of);
            case.holds_together();
            prop_assert!((0..links).all(|j| before[j] == NONE || case.of_link[j] != NONE));
            let most = largest(&case, 0, &mut vec![places; nodes]);
            prop_assert_eq!(case.served(), most);
        }

        /// With links of several rates: nobody carries more than it can, and no link is idle that
        /// a forwarder has room for.
        #[test]
        fn nobody_carries_too_much_and_no_room_stays_unused(
            seed: u64, nodes in 1_usize..8, rates in prop::collection::vec(1_u64..8, 1..9),
            room in 8_u64..20, forwarders: bool,
        ) {
            let proposer = if forwarders { Proposer::Forwarders } else { Proposer::Links };
            let mut case = case(seed, nodes, &rates, room);
            case.run(proposer);
            case.holds_together();
            let before = case.of_link;
            case.several.augment(&mut case.of_link, &case.nodes_of);
            case.holds_together();
            for (link, before) in before.iter().enumerate().take(rates.len()) {
                prop_assert!(*before == NONE || case.of_link[link] != NONE);
                if case.of_link[link] == NONE {
                    let mut nodes = members(case.nodes_of[link]);
                    prop_assert!(nodes.all(|node| !case.several.fits(node, link)));
                }
            }
        }
    }
}
