//! What the next packets will need is read ahead: of many subscribers no cache holds it, and each
//! thing tells where the next one lies.
//!
//! Who goes after so many packets is guessed: as if all were as long as they are on average, and
//! nobody came, reached a cap, or lacked of what is guaranteed. A wrong guess is read in vain.

use super::node::LEAF;
use super::plan::{LINK, MOST_LEVELS};
use super::{Tree, UNKNOWN};
use crate::packet::Packet;
use crate::prefetch;

/// How many packets before its turn a subscriber is asked for, its flow, the first packet of that,
/// and what that stands for.
const AHEAD: [usize; 4] = [4, 3, 2, 1];
/// From so many nodes on it is worth its instructions.
const MANY: usize = 2_048;

/// The subscribers whose turn comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Soon {
    leaves: [u32; AHEAD[0]],
    at: usize,
    /// The mean length of packets, in sixteenths of a byte.
    length: u32,
}

impl Soon {
    pub(super) const EMPTY: Self = Self { leaves: [UNKNOWN; AHEAD[0]], at: 0, length: 0 };

    /// Who goes after so many packets.
    fn after(&self, packets: usize) -> u32 {
        self.leaves[(self.at + packets) % AHEAD[0]]
    }

    /// So long was one.
    fn length(&mut self, bytes: u64) {
        self.length = self.length - self.length / 16 + bytes as u32;
    }
}

impl<P: Packet> Tree<P> {
    /// A packet of so many bytes has gone: reads ahead for the next ones.
    #[inline]
    pub(super) fn read_ahead(&mut self, bytes: u64) {
        if self.config.plan.nodes().len() >= MANY {
            self.soon.length(bytes);
            self.read_of_many();
        }
    }

    #[inline(never)] // so that few subscribers do not pay for it
    fn read_of_many(&mut self) {
        let leaf = self.leaf_after(AHEAD[0] - 1).unwrap_or(UNKNOWN);
        self.soon.leaves[self.soon.at] = leaf;
        self.soon.at = (self.soon.at + 1) % AHEAD[0];
        let leaf = &self.hot[self.soon.after(AHEAD[1] - 1) as usize];
        if let Some(flow) = leaf.turns.first() {
            self.flows.prefetch_state(flow);
        }
        // Whose turn comes next with its siblings is asked here whether it has credit, when theirs
        // comes again.
        prefetch::element(&self.hot, leaf.turn.next() as usize);
        if let Some(head) = self.first_packet(self.soon.after(AHEAD[2] - 1)) {
            self.slab.prefetch(head);
        }
        if let Some(head) = self.first_packet(self.soon.after(AHEAD[3] - 1)) {
            self.slab.prefetch_packet(head);
        }
    }

    /// The subscriber whose turn comes after so many packets. Reads ahead what is kept of it, and
    /// of those above it.
    fn leaf_after(&self, mut packets: usize) -> Option<u32> {
        let length = self.soon.length / 16;
        let next = |member: u32| {
            let turn = &self.hot.get(member as usize)?.turn;
            Some((turn.next(), turn.packets(length)))
        };
        let mut at = LINK;
        for _ in 0..=MOST_LEVELS {
            let hot = self.hot.get(at as usize)?;
            if hot.is(LEAF) {
                return Some(at);
            }
            let after = hot.turns.ahead(packets, next);
            (at, packets) = after.or_else(|| Some((hot.turns.first()?, 0)))?;
            self.prefetch_node(at);
        }
        None
    }

    fn first_packet(&self, leaf: u32) -> Option<u32> {
        let flow = self.hot.get(leaf as usize)?.turns.first()?;
        Some(self.flows.guess(flow)?.fifo.head())
    }

    #[inline]
    fn prefetch_node(&self, node: u32) {
        prefetch::element(&self.hot, node as usize);
        prefetch::element(&self.cold, node as usize);
        prefetch::element(&self.meters, node as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Kind, Plan, PlanNode, TreeConfig};
    use super::*;
    use crate::packet::{Class, Descriptor, ETHERNET_WIRE_OVERHEAD, FlowKey};
    use crate::units::{Bytes, Nanos};
    use crate::{Reason, Scheduler};

    /// A packet for somebody, whose only flow it is of: its length.
    struct Mail(u32, Bytes);

    impl Packet for Mail {
        fn subscriber(&self) -> u32 {
            self.0
        }
        fn ip_len(&self) -> Bytes {
            self.1
        }
        fn wire_len(&self) -> Bytes {
            self.1 + ETHERNET_WIRE_OVERHEAD
        }
        fn class(&self) -> Class {
            Class(0)
        }
        fn flow(&self) -> FlowKey {
            Descriptor::new(Class(0), self.1, Nanos::ZERO).flow
        }
        fn flow_hash(&self) -> u64 {
            0
        }
        fn arrival(&self) -> Nanos {
            Nanos::ZERO
        }
    }

    /// Sites of sectors of people.
    fn town([sites, sectors, people]: [u32; 3], weight: fn(u32) -> u32) -> Plan {
        let mut plan = Plan::default();
        let mut at = UNKNOWN;
        let mut put = |kind, parent, weight| {
            at += 1;
            plan.put(at, PlanNode { kind, parent, weight, ..PlanNode::default() }).unwrap();
            at
        };
        for _ in 0..sites {
            let site = put(Kind::Inner, LINK, 1_000);
            for _ in 0..sectors {
                let sector = put(Kind::Inner, site, 1_000);
                (0..people).for_each(|person| {
                    put(Kind::Leaf, sector, weight(person));
                });
            }
        }
        plan
    }

    /// Of all packets, where everybody always has some, the part whose subscriber was told for
    /// them, and the part whose subscriber was told for one of the next.
    fn told(plan: Plan, length: impl Fn(u64) -> u64) -> [f64; 2] {
        let nodes = plan.nodes().to_vec();
        let leaves = (0..nodes.len() as u32).filter(|at| nodes[*at as usize].kind == Kind::Leaf);
        let config = TreeConfig { plan: Arc::new(plan), buffer: 30_000, ..TreeConfig::default() };
        let mut tree = Tree::new(config).unwrap();
        let mut number = 0;
        let mut arrive = |tree: &mut Tree<Mail>, to: u32| {
            number += 1;
            let packet = Mail(to, Bytes(length(number)));
            let mut lost = |_, reason: Reason| panic!("{reason}");
            let _ = tree.enqueue(Nanos::ZERO, packet, &mut lost);
        };
        for leaf in leaves.filter(|leaf| *leaf != UNKNOWN) {
            (0..3).for_each(|_| arrive(&mut tree, leaf));
        }
        let (mut right, mut near, all) = (0, 0, 40_000);
        for _ in 0..all {
            let soon = tree.soon;
            let gone = tree.dequeue(Nanos::ZERO, &mut |_, reason: Reason| panic!("{reason}"));
            let Mail(to, _) = gone.unwrap();
            right += u32::from(soon.after(0) == to);
            near += u32::from(soon.leaves.contains(&to));
            arrive(&mut tree, to);
        }
        [right, near].map(|count| f64::from(count) / f64::from(all))
    }

    #[test]
    fn who_is_next_is_told_before() {
        let alike = |_| 1_000;
        let plans = |person: u32| 1_000 + person % 4 * 500;
        for (sizes, weight, length, [right, near]) in [
            // Packets of one length.
            ([10, 10, 25], alike as fn(u32) -> u32, [1_000, 1_000], [0.99, 0.99]),
            ([10, 10, 25], plans, [1_000, 1_000], [0.99, 0.99]),
            // All on one node, few on each.
            ([1, 1, 2_500], alike, [1_000, 1_000], [0.99, 0.99]),
            ([1, 1_200, 1], alike, [1_000, 1_000], [0.99, 0.99]),
            ([3, 2, 400], plans, [1_000, 1_000], [0.99, 0.99]),
            // Of two, which cannot be known: a guess is better than none.
            ([10, 10, 25], alike, [1_462, 200], [0.25, 0.35]),
        ] {
            let told = told(town(sizes, weight), |number| length[(number * 7 / 3 % 2) as usize]);
            assert!(told[0] > right && told[1] > near, "{sizes:?} {length:?}: {told:?}");
        }
    }

    #[test]
    fn where_nobody_waits_nobody_is_told() {
        let plan = Arc::new(town([10, 10, 25], |_| 1_000));
        let mut tree: Tree<Mail> = Tree::new(TreeConfig { plan, ..TreeConfig::default() }).unwrap();
        assert_eq!(tree.leaf_after(0), None);
        tree.read_ahead(1_000);
        assert_eq!(tree.soon.after(AHEAD[0] - 1), UNKNOWN);
    }
}
