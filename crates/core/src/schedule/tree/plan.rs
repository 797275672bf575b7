//! A tree as it is to be: who hangs on whom, with which caps, guarantees and weights.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::units::BitRate;

/// Valid caps and guarantees, in bit/s.
pub const CAP_RANGE: RangeInclusive<u64> = 8_000..=1_000_000_000_000;
/// Most nodes of a tree, the link and `unknown` among them.
pub const MOST_NODES: u32 = 1 << 23;
/// Most levels between the link and a subscriber, both left out.
pub const MOST_LEVELS: usize = 14;
/// The link itself.
pub const LINK: u32 = 0;
/// The subscriber that all packets belong to that no other one claims.
pub const UNKNOWN: u32 = 1;
/// Weights are counted in thousandths.
pub const WEIGHT_UNIT: u32 = 1_000;
/// Valid weights, in thousandths.
pub const WEIGHT_RANGE: RangeInclusive<u32> = 1..=2_000_000_000;

/// What a place in the plan is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Kind {
    /// Nobody's.
    #[default]
    Free,
    /// A site, an access point, a VLAN: others hang on it.
    Inner,
    /// A subscriber: flows hang on it.
    Leaf,
}

/// A node as it is to be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PlanNode {
    /// What it is.
    pub kind: Kind,
    /// The place of the node that it hangs on; [`LINK`]: on the link.
    pub parent: u32,
    /// The most that it may send; `None`: as much as its parent.
    pub cap: Option<BitRate>,
    /// What it gets before others share.
    pub guarantee: BitRate,
    /// Its part of what is shared, in thousandths; 0: its cap in Mbit/s, or as the smallest of its
    /// siblings.
    pub weight: u32,
}

impl PlanNode {
    /// The weight that it states, or that its cap comes to; `None`: neither.
    #[must_use]
    pub fn stated_weight(&self) -> Option<u32> {
        let by_cap = || {
            let thousandths = self.cap?.0 / (1_000_000 / u64::from(WEIGHT_UNIT));
            Some(u32::try_from(thousandths).unwrap_or(u32::MAX))
        };
        let stated = (self.weight > 0).then_some(self.weight).or_else(by_cap)?;
        Some(stated.clamp(*WEIGHT_RANGE.start(), *WEIGHT_RANGE.end()))
    }
}

/// What the children of a node come to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Brood {
    pub(super) smallest: u32,
    pub(super) largest: u32,
}

/// A whole tree: nodes by their places, which they keep from one plan to the next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    nodes: Vec<PlanNode>,
}

impl Default for Plan {
    /// Nobody but `unknown`, without a cap.
    fn default() -> Self {
        let link = PlanNode { kind: Kind::Inner, ..PlanNode::default() };
        let unknown = PlanNode { kind: Kind::Leaf, ..PlanNode::default() };
        Self { nodes: alloc::vec![link, unknown] }
    }
}

/// Why a node cannot be as it is to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanError {
    /// Its parent is no node that others can hang on.
    Parent,
    /// It hangs on itself, or is further than [`MOST_LEVELS`] from the link.
    Levels,
    /// A rate or a weight is out of its range.
    Range,
    /// There are [`MOST_NODES`] already.
    Full,
    /// Whom no line names is to be a subscriber: what belongs to nobody would wait for ever.
    Unknown,
}

impl Plan {
    /// The nodes, by place: the link and `unknown` are the first two.
    #[must_use]
    pub fn nodes(&self) -> &[PlanNode] {
        &self.nodes
    }

    /// Puts a node in its place, in whatever order: see [`check`](Self::check).
    ///
    /// # Errors
    /// The place is the link's, or there are too many.
    pub fn put(&mut self, at: u32, node: PlanNode) -> Result<(), PlanError> {
        if at == LINK || at >= MOST_NODES {
            return Err(PlanError::Full);
        }
        if at as usize >= self.nodes.len() {
            self.nodes.resize(at as usize + 1, PlanNode::default());
        }
        self.nodes[at as usize] = node;
        Ok(())
    }

    /// Whether all hang together. The first that does not, and why.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn check(&self) -> Result<(), (u32, PlanError)> {
        if self.nodes[UNKNOWN as usize].kind != Kind::Leaf {
            return Err((UNKNOWN, PlanError::Unknown));
        }
        let rate = |rate: BitRate| CAP_RANGE.contains(&rate.0);
        for (at, node) in (0u32..).zip(&self.nodes).skip(1) {
            if node.kind == Kind::Free {
                continue;
            }
            let weight = node.weight == 0 || WEIGHT_RANGE.contains(&node.weight);
            let guarantee = node.guarantee == BitRate::ZERO || rate(node.guarantee);
            if !weight || !guarantee || !node.cap.is_none_or(rate) {
                return Err((at, PlanError::Range));
            }
            if self.nodes.get(node.parent as usize).is_none_or(|up| up.kind != Kind::Inner) {
                return Err((at, PlanError::Parent));
            }
            let mut levels = 0;
            let mut up = node.parent;
            while up != LINK {
                levels += 1;
                if levels > MOST_LEVELS {
                    return Err((at, PlanError::Levels));
                }
                // A node further up may hang on nothing, which its own turn would tell.
                let Some(node) = self.nodes.get(up as usize) else {
                    return Err((at, PlanError::Parent));
                };
                up = node.parent;
            }
        }
        Ok(())
    }

    /// Whether all that is guaranteed fits at once into the caps above it, and into `rate`. What
    /// is guaranteed to a node and to those below it counts twice.
    pub(super) fn guarantees_fit(&self, rate: Option<BitRate>) -> bool {
        let mut sums = alloc::vec![0u64; self.nodes.len()];
        let assured = |node: &&PlanNode| node.kind != Kind::Free && node.guarantee.0 > 0;
        for node in self.nodes.iter().skip(1).filter(assured) {
            let mut up = node.parent as usize;
            loop {
                sums[up] = sums[up].saturating_add(node.guarantee.0);
                if up == LINK as usize {
                    break;
                }
                up = self.nodes[up].parent as usize;
            }
        }
        let fits = |(sum, most): (&u64, Option<BitRate>)| most.is_none_or(|most| *sum <= most.0);
        let caps = self.nodes.iter().enumerate();
        let caps = caps.map(|(at, node)| if at == LINK as usize { rate } else { node.cap });
        sums.iter().zip(caps).all(fits)
    }

    /// By place, what the children come to.
    pub(super) fn broods(&self) -> Vec<Brood> {
        let mut broods = alloc::vec![Brood::default(); self.nodes.len()];
        for node in self.nodes.iter().skip(1).filter(|node| node.kind != Kind::Free) {
            let Some(weight) = node.stated_weight() else { continue };
            let brood = &mut broods[node.parent as usize];
            brood.largest = brood.largest.max(weight);
            if brood.smallest == 0 || weight < brood.smallest {
                brood.smallest = weight;
            }
        }
        broods
    }
}
