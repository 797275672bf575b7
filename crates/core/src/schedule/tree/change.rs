//! Another plan, while packets wait: who stays keeps queues, meters and tokens.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::node::{ASSURED_LISTED, CAPPED, Children, Cold, Hot, LEAF, LISTED, READY, USED, fine};
use super::plan::{Kind, LINK, Plan, PlanNode, UNKNOWN};
use super::{NodeMeters, Tree, checked};
use crate::packet::Packet;
use crate::schedule::slab::NIL;
use crate::schedule::{DropSink, Scheduler as _};
use crate::settings::SettingError;
use crate::units::{BitRate, Nanos};

/// The time at which a subscriber without a cap, on a link without a rate, is measured.
const FAST: u64 = 1_000_000_000;
/// Packets that a subscriber has room for however slow it is.
const LEAST_ROOM: u64 = 16 * 1_538;

impl<P: Packet> Tree<P> {
    /// Whether a plan fits into the memory that there is.
    #[must_use]
    pub fn has_room(&self, plan: &Plan) -> bool {
        plan.nodes().len() <= self.hot.len()
    }

    /// How many nodes there is room for.
    #[must_use]
    pub fn places(&self) -> usize {
        self.hot.len()
    }

    /// Takes another plan. What waits of subscribers that are no more belongs to
    /// [`UNKNOWN`] from now on. Takes the time of a look at each node, and more for those that
    /// differ.
    ///
    /// # Errors
    /// The plan does not hang together, or there is [no room](Self::has_room); nothing changed.
    pub fn replant(
        &mut self,
        now: Nanos,
        plan: Arc<Plan>,
        dropped: &mut dyn DropSink<P>,
    ) -> Result<(), SettingError> {
        checked(&plan)?;
        if !self.has_room(&plan) {
            let message = alloc::format!("{} places are too few", self.hot.len());
            return Err(SettingError::Contradiction { key: "tree", message });
        }
        let former = core::mem::replace(&mut self.config.plan, plan);
        let moved = self.plant(&former, now);
        for packet in moved {
            let _ = self.enqueue(now, packet, dropped);
        }
        Ok(())
    }

    /// Makes the nodes as the plan says, where that is another than `former`. Gives what waits in
    /// subscribers that are no more, or hang elsewhere.
    pub(super) fn plant(&mut self, former: &Plan, now: Nanos) -> Vec<P> {
        let plan = Arc::clone(&self.config.plan);
        let free = PlanNode::default();
        let count = plan.nodes().len().max(former.nodes().len());
        // Whatever else is said of a free place, which nobody has checked, does not count.
        let used = |node: &PlanNode| node.kind != Kind::Free;
        let of =
            |plan: &Plan, at: usize| plan.nodes().get(at).copied().filter(used).unwrap_or(free);
        let differs = |at: &usize| {
            let is = of(&plan, *at);
            is != of(former, *at) || used(&is) != self.hot[*at].is(USED)
        };
        let different: Vec<usize> = (0..count).filter(differs).collect();
        let mut moved = Vec::new();
        // Everyone who goes, goes first: places may be given to others.
        let mut anew = Vec::new();
        for at in &different {
            let (was, is) = (of(former, *at), of(&plan, *at));
            let stays = was.kind == is.kind && was.parent == is.parent && self.hot[*at].is(USED);
            if !stays {
                anew.push(*at);
                if self.hot[*at].is(USED) {
                    self.uproot(*at as u32, &mut moved);
                }
            }
        }
        for at in &anew {
            self.root(*at, of(&plan, *at), of(former, *at).kind == of(&plan, *at).kind);
        }
        for at in &different {
            self.amend(*at as u32, &of(&plan, *at), now);
        }
        if !different.is_empty() {
            self.measure(&plan);
        }
        // Nodes whose packets stay, and whose parents have changed, take turns again.
        for at in &different {
            self.activate(*at as u32, fine(now));
        }
        moved
    }

    /// Takes a node out of all lists; its packets go to `moved`.
    fn uproot(&mut self, at: u32, moved: &mut Vec<P>) {
        self.empty_leaf_of(at, moved);
        let parent = self.hot[at as usize].parent();
        self.fade(at);
        if self.hot[at as usize].is(LISTED) {
            let mut turns = self.hot[parent as usize].turns;
            let cold = &self.cold[parent as usize];
            turns.remove(&mut Children { hot: &mut self.hot, cold }, at);
            self.hot[parent as usize].turns = turns;
        }
        if self.hot[at as usize].is(ASSURED_LISTED) {
            self.unlink_assured(parent, at);
        }
        self.wheel.remove(2 * at);
        self.wheel.remove(2 * at + 1);
        self.longest.forget(at, &mut self.cold[at as usize].place);
    }

    /// All packets of the subscribers below a node that goes: they go one by one, each as itself.
    fn empty_leaf_of(&mut self, at: u32, moved: &mut Vec<P>) {
        if self.hot[at as usize].is(LEAF) {
            self.empty_leaf(at, &mut |packet| moved.push(packet));
            return;
        }
        // A node that is moved takes all below it out of its lists first.
        if self.cold[at as usize].busy == 0 {
            return;
        }
        let below = (0..self.hot.len() as u32).filter(|leaf| self.hangs_below(*leaf, at));
        let leaves: Vec<u32> = below.collect();
        for leaf in leaves {
            self.empty_leaf(leaf, &mut |packet| moved.push(packet));
        }
    }

    fn hangs_below(&self, leaf: u32, node: u32) -> bool {
        let hot = &self.hot[leaf as usize];
        if !hot.is(LEAF) || self.cold[leaf as usize].busy == 0 {
            return false;
        }
        let mut up = hot.parent();
        while up != node && up != LINK {
            up = self.hot[up as usize].parent();
        }
        up == node
    }

    fn unlink_assured(&mut self, parent: u32, at: u32) {
        let (mut before, mut here) = (NIL, self.cold[parent as usize].sure.first);
        while here != NIL && here != at {
            (before, here) = (here, self.cold[here as usize].sure.next);
        }
        let next = self.cold[at as usize].sure.next;
        if before == NIL {
            self.cold[parent as usize].sure.first = next;
        } else {
            self.cold[before as usize].sure.next = next;
        }
        let sure = &mut self.cold[parent as usize].sure;
        if sure.last == at {
            sure.last = before;
        }
        sure.had_turn(at);
        self.hot[at as usize].set(ASSURED_LISTED, false);
    }

    /// Puts a node in its place, of which nothing is known; one that only hangs elsewhere keeps its
    /// tokens and its meters.
    fn root(&mut self, at: usize, node: PlanNode, moves: bool) {
        let former = self.hot[at];
        self.hot[at] = Hot::FREE;
        // A node that is moved keeps its children.
        if moves && node.kind == Kind::Inner {
            self.hot[at].turns = former.turns;
        } else {
            self.cold[at] = Cold::FREE;
        }
        if moves {
            self.hot[at].full_at = former.full_at;
        } else {
            self.meters[at] = NodeMeters::default();
        }
        self.hot[at].set_parent(node.parent);
        self.hot[at].set(USED, node.kind != Kind::Free);
        self.hot[at].set(LEAF, node.kind == Kind::Leaf);
    }

    /// Gives a node the rates and the weight of its plan.
    fn amend(&mut self, at: u32, node: &PlanNode, now: Nanos) {
        let slower = self.hot[at as usize].cap;
        self.hot[at as usize].plan(node);
        self.cold[at as usize].plan(node);
        // What it waits for is another instant now.
        if slower != self.hot[at as usize].cap {
            self.hot[at as usize].forgive(fine(now));
            if self.hot[at as usize].is(CAPPED) {
                self.wheel.remove(2 * at);
                self.hot[at as usize].set(CAPPED, false);
            }
            if self.hot[at as usize].is(READY) && self.hot[at as usize].may_go_at() > fine(now) {
                self.fade(at);
            }
        }
        self.wheel.remove(2 * at + 1);
    }

    /// What depends on siblings and on those above.
    fn measure(&mut self, plan: &Plan) {
        let quantum = self.config.quantum;
        for (cold, brood) in self.cold.iter_mut().zip(plan.broods()) {
            cold.scale(&brood, quantum);
        }
        self.assures = plan.nodes().iter().any(|node| node.guarantee.0 > 0);
        self.measure_rooms();
    }

    /// What may wait of each subscriber, and whether the rate has room for what is guaranteed.
    pub(super) fn measure_rooms(&mut self) {
        let plan = Arc::clone(&self.config.plan);
        self.assures_all = !self.assures || plan.guarantees_fit(self.rate);
        let nodes = plan.nodes();
        for (at, node) in nodes.iter().enumerate() {
            if node.kind != Kind::Leaf {
                continue;
            }
            let mut cap = node.cap;
            let mut up = node.parent;
            while up != LINK {
                let above = nodes[up as usize].cap;
                cap = cap.into_iter().chain(above).min();
                up = nodes[up as usize].parent;
            }
            let rate = cap.into_iter().chain(self.rate).min().unwrap_or(BitRate(FAST));
            let bytes = u128::from(rate.0) * u128::from(self.config.max_delay.0) / 8_000_000_000;
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST_ROOM);
            let cold = &mut self.cold[at];
            cold.room = u32::try_from(bytes).unwrap_or(u32::MAX);
            cold.set_packets_time(crate::aqm::elastic::packets_at(Some(rate)));
        }
    }

    /// Of a subscriber that is no more nothing is left.
    #[must_use]
    pub fn is_subscriber(&self, at: u32) -> bool {
        at == UNKNOWN || self.hot.get(at as usize).is_some_and(|hot| hot.is(LEAF))
    }
}
