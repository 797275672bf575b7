//! Stable matching of forwarders and links, and what is added to it.
//!
//! Source: Gale and Shapley 1962, by deferred acceptance with incomplete lists (spec 6).
//! Preferences are not sorted into lists: a proposer looks for the best of those that it has not
//! asked yet, which costs less than sorting because few are ever asked.
//!
//! Complexity: O(M·N) words in all but the worst case, which is O(M·N·min(M, N)). A stable matching
//! is maximal, not always maximum: [`augment`] finds the rest along augmenting paths, which keep
//! everyone matched that was, though with other partners.

/// Nobody.
pub(crate) const NONE: u8 = u8::MAX;

/// Up to 64 on each side.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Matching {
    /// Forwarder of each link.
    pub(crate) of_link: [u8; 64],
    /// Link of each forwarder.
    pub(crate) of_node: [u8; 64],
}

impl Default for Matching {
    fn default() -> Self {
        Self { of_link: [NONE; 64], of_node: [NONE; 64] }
    }
}

impl Matching {
    /// The forwarder of a link.
    #[inline]
    pub(crate) fn node_of(&self, link: usize) -> Option<usize> {
        let node = self.of_link[link];
        (node != NONE).then(|| usize::from(node))
    }

    /// How many pairs there are.
    #[inline]
    pub(crate) fn pairs(&self, links: usize) -> usize {
        self.of_link[..links].iter().filter(|node| **node != NONE).count()
    }

    /// The forwarder of a link; they are matched no more.
    #[inline]
    pub(crate) fn part(&mut self, link: usize) -> Option<usize> {
        let node = self.node_of(link)?;
        self.of_link[link] = NONE;
        self.of_node[node] = NONE;
        Some(node)
    }
}

/// Indices of the members of a set, ascending.
#[inline]
pub(crate) fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        next
    })
}

/// Matches. `acceptable[p]` are those whom proposer `p` may ask; `first(p, set)` is the one it
/// likes best in a set that is not empty; `better(r, a, b)`: receiver `r` prefers proposer `a` to
/// `b`. Returns the receivers' and proposers' partners.
#[inline]
pub(crate) fn stable(
    proposers: usize,
    acceptable: &mut [u64; 64],
    receiver_of: &mut [u8; 64],
    proposer_of: &mut [u8; 64],
    mut first: impl FnMut(usize, u64) -> usize,
    better: impl Fn(usize, usize, usize) -> bool,
) {
    let mut free = if proposers == 64 { u64::MAX } else { (1 << proposers) - 1 };
    while free != 0 {
        let proposer = free.trailing_zeros() as usize;
        let left = acceptable[proposer];
        if left == 0 {
            free &= !(1 << proposer);
            continue;
        }
        let receiver = first(proposer, left);
        acceptable[proposer] &= !(1 << receiver);
        let holds = proposer_of[receiver];
        if holds == NONE {
            free &= !(1 << proposer);
        } else if better(receiver, proposer, holds.into()) {
            free = free & !(1 << proposer) | 1 << holds;
            receiver_of[usize::from(holds)] = NONE;
        } else {
            continue;
        }
        proposer_of[receiver] = proposer as u8;
        receiver_of[proposer] = receiver as u8;
    }
}

/// Enlarges a matching to a maximum one. `nodes_of[j]` are the forwarders with something for link
/// `j`.
///
/// Breadth first from each idle link, in index order: the same path on every node.
pub(crate) fn augment(matching: &mut Matching, nodes_of: &[u64; 64], links: usize) {
    for start in (0..links).filter(|link| nodes_of[*link] != 0) {
        if matching.of_link[start] != NONE {
            continue;
        }
        let mut from = [NONE; 64]; // the link from which a forwarder was reached
        let (mut seen, mut queue) = (0_u64, [0_u8; 64]);
        let (mut head, mut tail) = (0, 1);
        queue[0] = start as u8;
        let idle = 'search: loop {
            if head == tail {
                break None;
            }
            let link = usize::from(queue[head]);
            head += 1;
            for node in members(nodes_of[link] & !seen) {
                seen |= 1 << node;
                from[node] = link as u8;
                match matching.of_node[node] {
                    NONE => break 'search Some(node),
                    next => {
                        queue[tail] = next;
                        tail += 1;
                    }
                }
            }
        };
        let mut end = idle;
        while let Some(node) = end {
            let link = from[node];
            let was = matching.of_link[usize::from(link)];
            matching.of_link[usize::from(link)] = node as u8;
            matching.of_node[node] = link;
            end = (usize::from(link) != start).then_some(was.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mix::mix64;

    /// Preference of `a` for `b`: smaller is better.
    fn rank(seed: u64, side: u64, a: usize, b: usize) -> u64 {
        mix64(seed ^ side << 60 ^ (a as u64) << 32 ^ b as u64)
    }

    fn run(seed: u64, nodes: usize, links: usize, pairs: &[u64; 64]) -> Matching {
        let mut matching = Matching::default();
        let mut left = *pairs;
        let first = |link: usize, set: u64| {
            members(set).min_by_key(|node| rank(seed, 1, link, *node)).unwrap()
        };
        let better =
            |node: usize, a: usize, b: usize| rank(seed, 2, node, a) < rank(seed, 2, node, b);
        let Matching { of_link, of_node } = &mut matching;
        stable(links, &mut left, of_link, of_node, first, better);
        assert!(of_node[nodes..].iter().all(|link| *link == NONE));
        matching
    }

    fn size(matching: &Matching) -> usize {
        matching.of_link.iter().filter(|node| **node != NONE).count()
    }

    /// The largest matching, by trying everything.
    fn largest(pairs: &[u64; 64], link: usize, links: usize, used: u64) -> usize {
        if link == links {
            return 0;
        }
        let without = largest(pairs, link + 1, links, used);
        members(pairs[link] & !used)
            .map(|node| 1 + largest(pairs, link + 1, links, used | 1 << node))
            .fold(without, usize::max)
    }

    proptest! {
        #[test]
        fn no_pair_would_rather_have_each_other(seed: u64, nodes in 1_usize..12,
            links in 1_usize..12) {
            let mut pairs = [0; 64];
            for (link, set) in pairs.iter_mut().enumerate().take(links) {
                *set = mix64(seed ^ link as u64) & ((1 << nodes) - 1);
            }
            let matching = run(seed, nodes, links, &pairs);
            for (link, set) in pairs.iter().enumerate().take(links) {
                for node in members(*set) {
                    let link_would = match matching.of_link[link] {
                        NONE => true,
                        has => rank(seed, 1, link, node) < rank(seed, 1, link, has.into()),
                    };
                    let node_would = match matching.of_node[node] {
                        NONE => true,
                        has => rank(seed, 2, node, link) < rank(seed, 2, node, has.into()),
                    };
                    prop_assert!(!(link_would && node_would), "{link} and {node} block");
                }
            }
        }

        #[test]
        fn the_second_pass_finds_a_maximum_and_leaves_nobody_out(seed: u64, nodes in 1_usize..7,
            links in 1_usize..7) {
            let mut pairs = [0; 64];
            for (link, set) in pairs.iter_mut().enumerate().take(links) {
                *set = mix64(seed ^ link as u64) & mix64(!seed ^ link as u64) & ((1 << nodes) - 1);
            }
            let before = run(seed, nodes, links, &pairs);
            let mut after = before.clone();
            augment(&mut after, &pairs, links);
            prop_assert_eq!(size(&after), largest(&pairs, 0, links, 0));
            for node in 0..nodes {
                prop_assert!(before.of_node[node] == NONE || after.of_node[node] != NONE);
            }
            for (link, node) in after.of_link.iter().enumerate()
                .filter(|(_, node)| **node != NONE) {
                prop_assert!(pairs[link] >> node & 1 == 1);
                prop_assert_eq!(usize::from(after.of_node[usize::from(*node)]), link);
            }
        }
    }
}
