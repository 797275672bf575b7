//! X and Y: who prefers whom in a round. Nothing is sorted; a list is asked for its first, and two
//! are compared.

use crate::config::{MAX_CLASSES, Proposer};
use crate::matching::{Matching, NONE, members, stable};
use crate::mix::{Role, tie};
use crate::types::earlier;

use super::Announced;

/// What the preferences of a round are made of.
pub(super) struct Round<'s> {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) links: usize,
    pub(super) classes: usize,
    pub(super) queues: &'s [Announced],
}

impl Round<'_> {
    /// The order among forwarders with equal tags.
    #[inline]
    fn link_tie(&self, link: usize, node: usize) -> u32 {
        tie(self.seed, Role::Link, link, node, 0)
    }

    /// Which of `tied`, a set that is not empty, comes first, and which of them next.
    #[inline]
    fn first_of(&self, link: usize, tied: u64) -> (usize, Option<usize>) {
        // Ties are drawn at random: a branch on who wins would be mispredicted half of the time.
        // Order and index fit one word.
        let key = |node: usize| u64::from(self.link_tie(link, node)) << 6 | node as u64;
        let first = tied.trailing_zeros() as usize;
        let mut rest = tied & tied.wrapping_sub(1);
        if rest == 0 {
            return (first, None);
        }
        let (mut least, mut next) = (key(first), u64::MAX);
        while rest != 0 {
            let key = key(rest.trailing_zeros() as usize);
            next = next.min(key.max(least));
            least = least.min(key);
            rest &= rest - 1;
        }
        ((least & 63) as usize, Some((next & 63) as usize))
    }
}

/// P_ij of all pairs, and what links think of them.
pub(super) trait Picks {
    /// The tag of P_ij, which must exist.
    fn tag(&self, node: usize, link: usize) -> u64;
    /// Its class.
    fn class(&self, round: u64, node: usize, link: usize) -> usize;
    /// The first of Y_j among `set`, which is not empty and in which all have a packet; and the
    /// next, if the same look tells it.
    fn first(&self, round: &Round<'_>, link: usize, set: u64) -> (usize, Option<usize>);
}

/// Rules A and C: each queue has its tag.
pub(super) struct Own<'s> {
    pub(super) nodes: usize,
    /// Tag of P_ij, by link and forwarder (j·M + i): what a link compares lies side by side.
    pub(super) picks: &'s [u64],
    /// The same: the classes that have this tag. See [`class_of`].
    pub(super) choices: &'s [u8],
}

impl Picks for Own<'_> {
    #[inline]
    fn tag(&self, node: usize, link: usize) -> u64 {
        self.picks[link * self.nodes + node]
    }

    #[inline]
    fn class(&self, round: u64, node: usize, link: usize) -> usize {
        class_of(self.choices[link * self.nodes + node], round, node, link)
    }

    #[inline]
    fn first(&self, round: &Round<'_>, link: usize, set: u64) -> (usize, Option<usize>) {
        let row = &self.picks[link * self.nodes..][..self.nodes];
        let (mut least, mut tied) = (u64::MAX, 0);
        for node in members(set) {
            let tag = row[node];
            tied = if tag < least { 0 } else { tied } | u64::from(tag <= least) << node;
            least = least.min(tag);
        }
        round.first_of(link, tied)
    }
}

/// Rule B: all forwarders share the tags of a link's classes, so that sets of forwarders do for
/// most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flows {
    /// By class; [`u64::MAX`] if nobody has a record.
    pub(super) tags: [u64; MAX_CLASSES],
    /// By class: forwarders that have a record.
    pub(super) holders: [u64; MAX_CLASSES],
    /// The smallest of the tags, the classes with it, and the forwarders that have one of them.
    pub(super) least: u64,
    /// Some tag is the least that its lag allows, not what its flow has had.
    pub(super) dragged: bool,
    best: u8,
    leading: u64,
}

impl Flows {
    pub(super) const NONE: Self = Self {
        tags: [u64::MAX; MAX_CLASSES],
        holders: [0; MAX_CLASSES],
        least: u64::MAX,
        dragged: false,
        best: 0,
        leading: 0,
    };

    /// Finds the smallest tag anew, after tags or holders have changed.
    #[inline]
    pub(super) fn rank(&mut self, classes: usize) {
        let (mut least, mut best, mut leading) = (u64::MAX, 0_u8, 0_u64);
        for class in 0..classes.min(MAX_CLASSES) {
            let (tag, holders) = (self.tags[class], self.holders[class]);
            if tag < least {
                (least, best, leading) = (tag, 1 << class, holders);
            } else if tag == least {
                best |= 1 << class;
                leading |= holders;
            }
        }
        (self.least, self.best, self.leading) = (least, best, leading);
    }

    /// Out of `set`, in which nobody has one of the best classes, those that have the next ones.
    #[cold]
    fn behind(&self, set: u64) -> u64 {
        let held =
            |classes: u8| members(classes.into()).fold(0, |all, class| all | self.holders[class]);
        let mut left = !self.best;
        while left != 0 {
            let (_, choices) = smallest(&self.tags, left);
            let nodes = held(choices) & set;
            if nodes != 0 {
                return nodes;
            }
            left &= !choices;
        }
        set
    }
}

/// [`Flows`] of all links.
pub(super) struct Shared<'s> {
    pub(super) links: usize,
    /// By forwarder and link (i·N + j): classes that have a record.
    pub(super) full: &'s [u8],
    /// By link.
    pub(super) flows: &'s [Flows],
}

impl Picks for Shared<'_> {
    #[inline]
    fn tag(&self, node: usize, link: usize) -> u64 {
        smallest(&self.flows[link].tags, self.full[node * self.links + link]).0
    }

    #[inline]
    fn class(&self, round: u64, node: usize, link: usize) -> usize {
        let full = self.full[node * self.links + link];
        let flows = &self.flows[link];
        // Nearly every forwarder has one of the classes that come first.
        let choices = match full & flows.best {
            0 => smallest(&flows.tags, full).1,
            choices => choices,
        };
        class_of(choices, round, node, link)
    }

    #[inline]
    fn first(&self, round: &Round<'_>, link: usize, set: u64) -> (usize, Option<usize>) {
        let flows = &self.flows[link];
        let tied = match flows.leading & set {
            0 => flows.behind(set),
            nodes => nodes,
        };
        round.first_of(link, tied)
    }
}

/// Z, from X and Y, into `matching`, in which nobody is matched yet. `nodes_of[j]` are the
/// forwarders with something for link j, `links_of[i]` the links for which forwarder i has
/// something.
#[inline]
pub(super) fn match_all<P: Picks>(
    round: &Round<'_>,
    picks: &P,
    proposer: Proposer,
    sets: (&[u64; 64], &[u64; 64]),
    left: &mut [u64; 64],
    matching: &mut Matching,
) {
    // X_i: by arrival.
    let stamp = |node: usize, link: usize| {
        let class = picks.class(round.seed, node, link);
        round.queues[(node * round.links + link) * round.classes + class].head.stamp
    };
    let node_likes = |node: usize, a: usize, b: usize| {
        let (x, y) = (stamp(node, a), stamp(node, b));
        let order = |link| (tie(round.seed, Role::Forwarder, node, link, 0), link);
        earlier(x, y) || x == y && order(a) < order(b)
    };
    // Y_j: by virtual finish time.
    let link_likes = |link: usize, a: usize, b: usize| {
        let (x, y) = (picks.tag(a, link), picks.tag(b, link));
        x < y || x == y && (round.link_tie(link, a), a) < (round.link_tie(link, b), b)
    };
    let (nodes_of, links_of) = sets;
    let Matching { of_link, of_node } = matching;
    match proposer {
        Proposer::Links => {
            left[..round.links].copy_from_slice(&nodes_of[..round.links]);
            // Who is turned down asks again, with a set that lacks the one it has asked.
            let mut next = [NONE; 64];
            let first = |link: usize, set: u64| match next[link] {
                NONE => {
                    let (first, then) = picks.first(round, link, set);
                    next[link] = then.map_or(NONE, |node| node as u8);
                    first
                }
                known => {
                    next[link] = NONE;
                    usize::from(known)
                }
            };
            stable(round.links, left, of_link, of_node, first, node_likes);
        }
        Proposer::Forwarders => {
            left[..round.nodes].copy_from_slice(&links_of[..round.nodes]);
            let first = |node: usize, set: u64| {
                let best = |best, link| if node_likes(node, link, best) { link } else { best };
                members(set).reduce(best).expect("only sets that are not empty are asked")
            };
            stable(round.nodes, left, of_node, of_link, first, link_likes);
        }
    }
}

/// The smallest tag among `classes`, and those that have it; of no classes, none.
fn smallest(tags: &[u64; MAX_CLASSES], classes: u8) -> (u64, u8) {
    let (mut least, mut set) = (u64::MAX, 0);
    for class in members(classes.into()) {
        let tag = tags[class];
        set = if tag < least { 0 } else { set } | u8::from(tag <= least) << class;
        least = least.min(tag);
    }
    (least, set)
}

/// The class of P_ij out of those with the smallest tag. Only asked for when it matters: most pairs
/// are never looked at in a round.
#[inline]
fn class_of(choices: u8, round: u64, node: usize, link: usize) -> usize {
    match choices & choices.wrapping_sub(1) {
        0 => choices.trailing_zeros() as usize,
        _ => class_of_several(choices, round, node, link),
    }
}

#[inline(never)]
fn class_of_several(choices: u8, round: u64, node: usize, link: usize) -> usize {
    let order = |class: &usize| tie(round, Role::Class, node, link, *class);
    members(choices.into()).min_by_key(order).unwrap_or(0)
}
