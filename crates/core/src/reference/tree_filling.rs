//! Hierarchical max-min: what each node of a tree of caps, guarantees and weights should get.
//!
//! Source: first principles, from max-min by weight at each node (Bertsekas and Gallager, "Data
//! Networks", 6.5.2). The oracle that trees of subscribers are held against; not for the packet
//! path.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | c, the most a node may get | `TreeNode::cap` | any rate |
//! | g, what it gets before others share | `TreeNode::guarantee` | the same |
//! | w, its part of the rest | `TreeNode::weight` | – |
//! | d, what it asks for | `TreeNode::demand` | the same rate |
//!
//! What a node gets is divided among its children: first their guarantees, all cut by the same
//! part if they do not fit; then the rest by weight among those that still want more. So a child
//! gets x = g + w λ, a sum: guarantees are not taken out of shares.
//!
//! A guarantee counts as far as it is asked for: who asks for less than is guaranteed does not
//! wait. That of a node is the larger of its own and the sum of what its children have of theirs,
//! so a guarantee below holds through every node above that has room for it. All that holds of
//! guarantees that are cut to a part p too, of which the leaf has min(p g, d), and a node above
//! min(p c, d, max(p g, the sum of what its children have)): whoever asks for less than its part
//! leaves the rest to all who are cut, not to its neighbours.
//!
//! Cost: n log n for each level; where guarantees are cut, 64 looks at all below.

use alloc::vec;
use alloc::vec::Vec;

use super::max_min;

/// A node of a tree, or who stands at its end. Rates are all of one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeNode {
    /// The place of its parent, which stands before it; `None`: it hangs on the link.
    pub parent: Option<usize>,
    /// The most it may get; `None`: as much as its parent.
    pub cap: Option<f64>,
    /// What it gets first.
    pub guarantee: f64,
    /// Its part of what is shared; `None`: its cap in millions, if stated, else as the sibling with
    /// the smallest weight, else 1.
    pub weight: Option<f64>,
    /// What it asks for; of a node with children, nothing is read.
    pub demand: f64,
}

impl TreeNode {
    /// A node without limits that asks for nothing, on the link.
    pub const PLAIN: Self =
        Self { parent: None, cap: None, guarantee: 0.0, weight: None, demand: 0.0 };

    /// The weight that it states, or that its cap comes to.
    fn stated_weight(&self) -> Option<f64> {
        self.weight.or(self.cap.map(|cap| cap / 1e6))
    }
}

/// What is known of a node before anything is given.
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    /// What the nodes below ask for, at most the cap.
    demand: f64,
    /// What of that is guaranteed.
    assured: f64,
}

/// A tree that is filled.
struct Tree<'a> {
    nodes: &'a [TreeNode],
    /// By node, those below it; the last are those on the link.
    children: Vec<Vec<usize>>,
    wants: Vec<Wants>,
}

/// What each node gets of a link of `capacity`, in their order.
///
/// ```
/// use evenkeel_core::reference::{TreeNode, tree_filling};
/// let greedy = TreeNode { weight: Some(1.0), demand: 1e9, ..TreeNode::PLAIN };
/// let assured = TreeNode { guarantee: 50.0, ..greedy };
/// assert_eq!(tree_filling(100.0, &[assured, greedy]), [75.0, 25.0]);
/// ```
///
/// # Panics
/// If a node stands before its parent.
#[must_use]
pub fn tree_filling(capacity: f64, nodes: &[TreeNode]) -> Vec<f64> {
    let root = nodes.len();
    let mut children = vec![Vec::new(); nodes.len() + 1];
    for (at, node) in nodes.iter().enumerate() {
        assert!(node.parent.is_none_or(|parent| parent < at), "parents come first");
        children[node.parent.unwrap_or(root)].push(at);
    }
    let mut tree = Tree { nodes, children, wants: vec![Wants::default(); nodes.len()] };
    for at in (0..nodes.len()).rev() {
        tree.wants[at].demand = tree.demand(at);
        tree.wants[at].assured = tree.assured(at, 1.0);
    }
    let mut got = vec![0.0; nodes.len()];
    tree.fill(capacity, root, &mut got);
    for at in 0..nodes.len() {
        tree.fill(got[at], at, &mut got);
    }
    got
}

impl Tree<'_> {
    fn demand(&self, at: usize) -> f64 {
        let below = self.children[at].iter().map(|child| self.wants[*child].demand).sum();
        let is_leaf = self.children[at].is_empty();
        let demand: f64 = if is_leaf { self.nodes[at].demand } else { below };
        demand.min(self.nodes[at].cap.unwrap_or(f64::INFINITY)).max(0.0)
    }

    /// What a node has if all guarantees are cut to `part`.
    fn assured(&self, at: usize, part: f64) -> f64 {
        let node = &self.nodes[at];
        let below = self.children[at].iter().map(|child| self.assured(*child, part)).sum();
        let most = part * node.cap.unwrap_or(f64::INFINITY);
        (part * node.guarantee).max(below).min(most).min(self.wants[at].demand)
    }

    fn fill(&self, service: f64, at: usize, got: &mut [f64]) {
        let children = &self.children[at];
        let all = |part| children.iter().map(|child| self.assured(*child, part)).sum::<f64>();
        let mut part = 1.0;
        if children.iter().map(|child| self.wants[*child].assured).sum::<f64>() > service {
            let (mut fits, mut over) = (0.0, 1.0);
            for _ in 0..64 {
                part = f64::midpoint(fits, over);
                *(if all(part) > service { &mut over } else { &mut fits }) = part;
            }
            part = fits;
        }
        let mut left = service;
        for child in children {
            got[*child] = self.assured(*child, part);
            left -= got[*child];
        }
        let more: Vec<(f64, f64)> = children
            .iter()
            .zip(weights(children, self.nodes))
            .map(|(child, weight)| (self.wants[*child].demand - got[*child], weight))
            .collect();
        for (child, share) in children.iter().zip(max_min(left.max(0.0), &more)) {
            got[*child] += share;
        }
    }
}

/// The weights of siblings.
fn weights(children: &[usize], nodes: &[TreeNode]) -> Vec<f64> {
    let stated = children.iter().filter_map(|child| nodes[*child].stated_weight());
    let smallest = stated.fold(f64::INFINITY, f64::min);
    let default = if smallest.is_finite() { smallest } else { 1.0 };
    children.iter().map(|child| nodes[*child].stated_weight().unwrap_or(default)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: TreeNode = TreeNode { demand: 1e12, weight: Some(1.0), ..TreeNode::PLAIN };

    fn close(got: &[f64], wanted: &[f64]) {
        assert_eq!(got.len(), wanted.len());
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() < 1e-6 * wanted.max(1.0), "{got} is not {wanted}");
        }
    }

    fn assured(guarantee: f64) -> TreeNode {
        TreeNode { guarantee, ..GREEDY }
    }

    #[test]
    fn a_guarantee_and_a_share_are_added_up() {
        close(&tree_filling(100.0, &[assured(50.0), GREEDY]), &[75.0, 25.0]);
        // Where the larger of both counted it were 50 and 50.
        let heavy = TreeNode { weight: Some(3.0), ..GREEDY };
        close(&tree_filling(100.0, &[assured(20.0), heavy]), &[40.0, 60.0]);
    }

    #[test]
    fn guarantees_that_do_not_fit_are_scaled_together() {
        // 60 + 90 of 100: two thirds of each, nothing for others.
        close(&tree_filling(100.0, &[assured(60.0), assured(90.0), GREEDY]), &[40.0, 60.0, 0.0]);
        // Who asks for less than its part leaves the rest to the others.
        let small = TreeNode { demand: 10.0, ..assured(60.0) };
        close(&tree_filling(100.0, &[small, assured(90.0), GREEDY]), &[10.0, 90.0, 0.0]);
        let smaller = TreeNode { demand: 6.0, ..assured(60.0) };
        close(&tree_filling(100.0, &[smaller, assured(90.0), GREEDY]), &[6.0, 92.0, 2.0]);
    }

    #[test]
    fn nobody_gets_more_than_cap_and_demand() {
        let capped = TreeNode { cap: Some(10.0), ..GREEDY };
        let modest = TreeNode { demand: 5.0, ..GREEDY };
        close(&tree_filling(100.0, &[capped, modest, GREEDY]), &[10.0, 5.0, 85.0]);
        // A guarantee does not lift a cap, and nobody is given what nobody asks for.
        let both = TreeNode { guarantee: 50.0, ..capped };
        close(&tree_filling(100.0, &[both, modest]), &[10.0, 5.0]);
    }

    #[test]
    fn weights_are_those_of_stated_caps() {
        let plan = |mbps: f64| TreeNode { cap: Some(mbps * 1e6), demand: 1e12, ..TreeNode::PLAIN };
        let unstated = TreeNode { demand: 1e12, ..TreeNode::PLAIN };
        // 30, 10, and one that has what the smallest has; all below their caps.
        let got = tree_filling(10e6, &[plan(30.0), plan(10.0), unstated]);
        close(&got, &[6e6, 2e6, 2e6]);
        // A weight stands before a cap.
        let light = TreeNode { weight: Some(10.0), ..plan(30.0) };
        close(&tree_filling(9e6, &[light, plan(10.0), unstated]), &[3e6, 3e6, 3e6]);
        // Nobody states anything: all are alike.
        close(&tree_filling(9.0, &[unstated, unstated, unstated]), &[3.0, 3.0, 3.0]);
    }

    #[test]
    fn the_tree_of_a_small_network() {
        // A site of 60 with two sectors of 50 and 20; in each a subscriber; one more on the link.
        let node = |parent: Option<usize>, cap: f64, weight: f64| TreeNode {
            parent,
            cap: Some(cap),
            weight: Some(weight),
            ..TreeNode::PLAIN
        };
        let person = |parent: usize, weight: f64, demand: f64| TreeNode {
            parent: Some(parent),
            weight: Some(weight),
            demand,
            ..TreeNode::PLAIN
        };
        let nodes = [
            node(None, 60.0, 3.0),
            node(Some(0), 50.0, 1.0),
            node(Some(0), 20.0, 1.0),
            person(1, 1.0, 100.0),
            person(1, 3.0, 100.0),
            person(2, 1.0, 15.0),
            TreeNode { weight: Some(1.0), demand: 100.0, ..TreeNode::PLAIN },
        ];
        // Of 100 the site may have 75, and is capped at 60; the small sector asks for 15.
        close(&tree_filling(100.0, &nodes), &[60.0, 45.0, 15.0, 11.25, 33.75, 15.0, 40.0]);
        // Of 36 it has 27: 13.5 for each sector.
        let got = tree_filling(36.0, &nodes);
        close(&got, &[27.0, 13.5, 13.5, 3.375, 10.125, 13.5, 9.0]);
    }

    #[test]
    fn a_guarantee_below_holds_through_the_nodes_above() {
        let child =
            |guarantee: f64, demand: f64| TreeNode { parent: Some(0), guarantee, demand, ..GREEDY };
        let site = TreeNode { weight: Some(1.0), ..TreeNode::PLAIN };
        // The site has 40 + 30 by its child's guarantee, which takes 40 + 15 of that.
        let nodes = [site, child(40.0, 1e9), child(0.0, 1e9), GREEDY];
        close(&tree_filling(100.0, &nodes), &[70.0, 55.0, 15.0, 30.0]);
        // A child that asks for 4 of its 40 lifts the site by 4.
        let nodes = [site, child(40.0, 4.0), child(0.0, 1e9), GREEDY];
        close(&tree_filling(100.0, &nodes), &[52.0, 4.0, 48.0, 48.0]);
        // One that asks for nothing lifts it by nothing, and its own guarantee counts once.
        let own = TreeNode { guarantee: 20.0, ..site };
        let nodes = [own, child(40.0, 0.0), child(0.0, 1e9), GREEDY];
        close(&tree_filling(100.0, &nodes), &[60.0, 0.0, 60.0, 40.0]);
        // What the cap above does not let through is not guaranteed.
        let capped = TreeNode { cap: Some(30.0), ..site };
        let nodes = [capped, child(40.0, 1e9), child(0.0, 1e9), GREEDY];
        close(&tree_filling(100.0, &nodes), &[30.0, 30.0, 0.0, 70.0]);
    }

    #[test]
    fn guarantees_that_do_not_fit_are_cut_alike_wherever_they_are() {
        let site = TreeNode { weight: Some(1.0), ..TreeNode::PLAIN };
        let child =
            |guarantee: f64, demand: f64| TreeNode { parent: Some(0), guarantee, demand, ..GREEDY };
        // 40 and 20 behind a site and 60 beside it, of 90: three quarters of each.
        let nodes = [site, child(40.0, 1e9), child(20.0, 1e9), assured(60.0)];
        close(&tree_filling(90.0, &nodes), &[45.0, 30.0, 15.0, 45.0]);
        // The first asks for 10: the 80 that are left are all that the others are guaranteed. Of
        // 50 they have half of that, and the site is not asked for its part by its neighbour.
        let nodes = [site, child(40.0, 10.0), child(20.0, 1e9), assured(60.0)];
        close(&tree_filling(90.0, &nodes), &[30.0, 10.0, 20.0, 60.0]);
        close(&tree_filling(50.0, &nodes), &[20.0, 10.0, 10.0, 30.0]);
        // A guarantee of the site itself is cut too, and so is its cap.
        let own = TreeNode { guarantee: 90.0, ..site };
        let nodes = [own, child(40.0, 1e9), child(20.0, 1e9), assured(60.0)];
        close(&tree_filling(75.0, &nodes), &[45.0, 30.0, 15.0, 30.0]);
        let capped = TreeNode { cap: Some(30.0), ..site };
        let nodes = [capped, child(40.0, 1e9), child(20.0, 1e9), assured(60.0)];
        close(&tree_filling(45.0, &nodes), &[15.0, 10.0, 5.0, 30.0]);
    }

    #[test]
    fn what_is_given_is_all_there_is_or_all_that_is_asked_for() {
        let greedy = [GREEDY; 7];
        assert!((tree_filling(10.0, &greedy).iter().sum::<f64>() - 10.0).abs() < 1e-9);
        let modest = [TreeNode { demand: 1.0, ..GREEDY }; 7];
        close(&tree_filling(10.0, &modest), &[1.0; 7]);
        assert_eq!(tree_filling(10.0, &[]), []);
    }
}
