//! Which packet goes next, and what it costs whom.

use super::Tree;
use super::node::{ASSURED_LISTED, CAPPED, Children, LEAF, LISTED, READY, coarse, fine};
use super::plan::{LINK, MOST_LEVELS};
use super::turns::UNIT;
use crate::aqm::elastic::{Now, Pace};
use crate::aqm::{Round, Verdict};
use crate::flow_table::EntryId;
use crate::packet::Packet;
use crate::reason::Reason;
use crate::schedule::DropSink;
use crate::schedule::slab::{NIL, Unlinked};
use crate::units::{Bytes, Nanos};

/// The nodes from below the link to a subscriber, each with whether it is served because it lacks
/// of what is guaranteed.
struct Way {
    nodes: [(u32, bool); MOST_LEVELS + 1],
    len: usize,
}

/// Who is served because of a guarantee.
enum Picked {
    Child(u32),
    Nobody,
    /// All have had a turn: that of their parent is over.
    TurnOver,
}

impl<P: Packet> Tree<P> {
    /// The packet that goes next.
    #[inline]
    pub(super) fn give(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.wake(now);
        loop {
            if self.cold[LINK as usize].ready == 0 {
                return None;
            }
            let way = self.find(fine(now))?;
            let leaf = way.nodes[way.len - 1].0;
            if let Some(packet) = self.serve(leaf, now, dropped) {
                let bytes = packet.wire_len().0;
                self.charge(&way, fine(now), bytes);
                self.read_ahead(bytes);
                return Some(packet);
            }
        }
    }

    /// Looks at those whose time has come.
    fn wake(&mut self, now: Nanos) {
        while let Some(entry) = self.wheel.pop(now) {
            let node = entry / 2;
            if entry % 2 == 0 {
                self.hot[node as usize].set(CAPPED, false);
                self.activate(node, fine(now));
            } else {
                self.assure(node, fine(now));
            }
        }
    }

    /// From the link downwards to the subscriber whose turn it is.
    fn find(&mut self, now: u64) -> Option<Way> {
        let mut way = Way { nodes: [(LINK, false); MOST_LEVELS + 1], len: 0 };
        let mut at = LINK;
        while !self.hot[at as usize].is(LEAF) {
            let assured = match self.pick_assured(at, now) {
                Picked::Child(child) => Some(child),
                Picked::Nobody => None,
                Picked::TurnOver => {
                    way.len = way.len.checked_sub(1)?;
                    at = if way.len == 0 { LINK } else { way.nodes[way.len - 1].0 };
                    continue;
                }
            };
            let child = assured.or_else(|| self.pick(at))?;
            *way.nodes.get_mut(way.len)? = (child, assured.is_some());
            way.len += 1;
            at = child;
        }
        (way.len > 0).then_some(way)
    }

    /// The child whose turn it is.
    #[inline]
    fn pick(&mut self, at: u32) -> Option<u32> {
        let mut turns = self.hot[at as usize].turns;
        let cold = &self.cold[at as usize];
        let picked = turns.pick(&mut Children { hot: &mut self.hot, cold });
        self.hot[at as usize].turns = turns;
        picked
    }

    /// Whether a node lacks of what is guaranteed to it, or to one below.
    #[inline]
    fn lacks(&self, node: u32, now: u64) -> bool {
        let sure = &self.cold[node as usize].sure;
        sure.first != NIL || sure.is_due(now)
    }

    /// The child that is served because it lacks of what is guaranteed.
    #[inline]
    fn pick_assured(&mut self, at: u32, now: u64) -> Picked {
        if !self.assures {
            return Picked::Nobody;
        }
        loop {
            let first = self.cold[at as usize].sure.first;
            if first == NIL {
                return Picked::Nobody;
            }
            if !self.hot[first as usize].is(READY) || !self.lacks(first, now) {
                self.pop_assured(at, first, now);
                continue;
            }
            if self.cold[first as usize].sure.is_turn() {
                return Picked::Child(first);
            }
            self.rotate_assured(at, first);
            let sure = &self.cold[at as usize].sure;
            if at != LINK && self.hot[at as usize].is(ASSURED_LISTED) && !sure.is_turn() {
                return Picked::TurnOver;
            }
        }
    }

    /// The first of those that lack of what is guaranteed begins another turn, behind the others.
    fn rotate_assured(&mut self, at: u32, first: u32) {
        let is_leaf = self.hot[first as usize].is(LEAF);
        let sure = &mut self.cold[first as usize].sure;
        sure.begin_turn(is_leaf);
        let next = sure.next;
        if next != NIL {
            sure.next = NIL;
            let parent = &mut self.cold[at as usize].sure;
            let last = core::mem::replace(&mut parent.last, first);
            parent.first = next;
            self.cold[last as usize].sure.next = first;
        }
        self.cold[at as usize].sure.had_turn(first);
    }

    /// The first of those that lack of what is guaranteed does not any more, or may not send. While
    /// it waits for a cap it keeps what is left of its turn: where guarantees are cut, a node that
    /// is near its cap would lose its part of those turns.
    fn pop_assured(&mut self, at: u32, first: u32, now: u64) {
        self.cold[at as usize].sure.first = self.cold[first as usize].sure.next;
        self.hot[first as usize].set(ASSURED_LISTED, false);
        let is_ready = self.hot[first as usize].is(READY);
        let cold = &mut self.cold[first as usize];
        if is_ready || cold.busy == 0 {
            cold.sure.end_turn();
        }
        self.cold[at as usize].sure.had_turn(first);
        if is_ready {
            self.await_guarantee(first, now);
        }
    }

    /// A node that has had what is guaranteed is looked at when that is over.
    fn await_guarantee(&mut self, node: u32, now: u64) {
        let sure = &self.cold[node as usize].sure;
        if !sure.pace.is_none() && sure.used_to() > now && !self.wheel.contains(2 * node + 1) {
            self.wheel.insert(2 * node + 1, coarse(sure.used_to()));
        }
    }

    /// A node that is ready may lack of what is guaranteed; then so do those above.
    fn assure(&mut self, mut node: u32, now: u64) {
        while self.assures && node != LINK {
            let hot = &self.hot[node as usize];
            if !hot.is(READY) || hot.is(ASSURED_LISTED) {
                return;
            }
            let parent = hot.parent();
            if !self.lacks(node, now) {
                return self.await_guarantee(node, now);
            }
            self.hot[node as usize].set(ASSURED_LISTED, true);
            self.cold[node as usize].sure.next = NIL;
            let sure = &mut self.cold[parent as usize].sure;
            let last = core::mem::replace(&mut sure.last, node);
            if sure.first == NIL {
                (sure.first, sure.end) = (node, node);
            } else {
                self.cold[last as usize].sure.next = node;
            }
            node = parent;
        }
    }

    /// Something in a node, or below it, can go: the node takes turns, or waits for its cap.
    pub(super) fn activate(&mut self, mut node: u32, now: u64) {
        while node != LINK {
            let cold = &self.cold[node as usize];
            let hot = &mut self.hot[node as usize];
            let some = if hot.is(LEAF) { cold.busy } else { cold.ready };
            if some == 0 {
                return;
            }
            if hot.is(READY) {
                return self.assure(node, now);
            }
            let at = hot.may_go_at();
            if at > now {
                return self.wait_for_cap(node, at);
            }
            hot.set(READY, true);
            let parent = hot.parent();
            if !hot.is(LISTED) {
                hot.set(LISTED, true);
                let mut turns = self.hot[parent as usize].turns;
                let cold = &self.cold[parent as usize];
                let _ = turns.enter(&mut Children { hot: &mut self.hot, cold }, node);
                self.hot[parent as usize].turns = turns;
            }
            self.cold[parent as usize].ready += 1;
            self.assure(node, now);
            if self.cold[parent as usize].ready > 1 {
                return;
            }
            node = parent;
        }
    }

    fn wait_for_cap(&mut self, node: u32, at: u64) {
        if !self.hot[node as usize].is(CAPPED) {
            self.hot[node as usize].set(CAPPED, true);
            self.wheel.insert(2 * node, coarse(at));
        }
        let own_cap = &mut self.meters[node as usize].own_cap;
        *own_cap = own_cap.wrapping_add(1);
    }

    fn pause(&mut self, node: u32) {
        self.hot[node as usize].set(READY, false);
        let pauses = &mut self.cold[node as usize].pauses;
        *pauses = pauses.wrapping_add(1);
    }

    /// Nothing of a node can go any more, although it was not its turn: it stays in the lists until
    /// it is found there.
    pub(super) fn fade(&mut self, mut node: u32) {
        while node != LINK && self.hot[node as usize].is(READY) {
            self.pause(node);
            node = self.hot[node as usize].parent();
            let ready = &mut self.cold[node as usize].ready;
            *ready -= 1;
            if *ready > 0 {
                return;
            }
        }
    }

    /// A packet goes: who pays, and whose turn is over.
    #[inline]
    fn charge(&mut self, way: &Way, now: u64, bytes: u64) {
        let spent = bytes as i32 * UNIT;
        for level in (0..way.len).rev() {
            let (node, assured) = way.nodes[level];
            let parent = if level > 0 { way.nodes[level - 1].0 } else { LINK };
            self.meters[node as usize].sent(bytes);
            let hot = &mut self.hot[node as usize];
            hot.charge(now, bytes);
            let some = if hot.is(LEAF) {
                self.cold[node as usize].busy
            } else {
                self.cold[node as usize].ready
            };
            let at = hot.may_go_at();
            let stays = some > 0 && at <= now;
            if !stays {
                self.pause(node);
                self.cold[parent as usize].ready -= 1;
            }
            if assured {
                let sure = &mut self.cold[node as usize].sure;
                sure.pay(spent);
                sure.charge(now, bytes);
                if !stays || !self.lacks(node, now) {
                    self.pop_assured(parent, node, now);
                }
            } else {
                self.hot[node as usize].turn.deficit -= spent;
                let over = stays && self.hot[node as usize].turn.deficit <= 0;
                let meter = &mut self.meters[node as usize].turns_over;
                *meter = meter.wrapping_add(u32::from(over));
                let mut turns = self.hot[parent as usize].turns;
                let cold = &self.cold[parent as usize];
                let mut children = Children { hot: &mut self.hot, cold };
                if stays {
                    turns.sent(&mut children, node);
                } else {
                    turns.leave(&mut children, node);
                }
                self.hot[parent as usize].turns = turns;
            }
            if some > 0 && at > now {
                self.wait_for_cap(node, at);
            }
        }
        let link = &mut self.meters[LINK as usize];
        link.sent(bytes);
    }

    /// The packet of a subscriber that goes next; `None`: the AQM dropped all of the flow whose
    /// turn it was.
    fn serve(&mut self, leaf: u32, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let mut turns = self.hot[leaf as usize].turns;
        let picked = turns.pick(&mut self.members());
        self.hot[leaf as usize].turns = turns;
        let Some(picked) = picked else {
            // Not met with: a subscriber that takes turns has a flow that waits.
            self.fade(leaf);
            return None;
        };
        self.cold[leaf as usize].shares();
        let given = self.take(picked, leaf, now, dropped);
        let sent = given.as_ref().map_or(0, |packet| packet.wire_len().0);
        let id = EntryId::from_link(picked);
        let flow = self.flows.get_mut(id);
        flow.turn.deficit -= sent as i32 * UNIT;
        let is_empty = flow.fifo.is_empty();
        let mut turns = self.hot[leaf as usize].turns;
        if is_empty {
            self.flow_ends(id, leaf);
            turns.leave(&mut self.members(), picked);
            self.hot[leaf as usize].turns = turns;
            if given.is_none() && self.cold[leaf as usize].busy == 0 {
                self.fade(leaf);
            }
        } else {
            turns.sent(&mut self.members(), picked);
            self.hot[leaf as usize].turns = turns;
        }
        given
    }

    /// The first packet of a flow that the AQM lets go.
    fn take(
        &mut self,
        picked: u32,
        leaf: u32,
        now: Nanos,
        dropped: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let judge = self.config.aqm.is_on().then(|| {
            let packets = Nanos(self.cold[leaf as usize].packets_time());
            let pace = Pace { packets, grants: Nanos::ZERO };
            let queues = self.queues(EntryId::from_link(picked), leaf);
            Now::new(&self.config.aqm, pace, queues, now)
        });
        let cold = &mut self.cold[leaf as usize];
        let meters = &mut self.meters[leaf as usize];
        let flow = self.flows.get_mut(EntryId::from_link(picked));
        let mut round = Round::default();
        let mut given = None;
        while let Some(Unlinked { at, length, .. }) = self.slab.unlink(&mut flow.fifo) {
            self.backlog.packets -= 1;
            self.backlog.bytes -= length;
            cold.packets -= 1;
            cold.bytes -= length.0 as u32;
            let Some(mut packet) = self.slab.release(at) else { break };
            if let Some(judge) = &judge {
                let found = (packet.arrival(), flow.fifo.bytes, packet.ecn());
                let (verdict, blue) =
                    judge.judge(&mut flow.aqm, &mut round, found, self.coin.flip());
                if verdict == Verdict::Drop {
                    // Nobody pays for what was not sent.
                    let reason = if blue { Reason::Unresponsive } else { Reason::StandingQueue };
                    meters.standing = meters.standing.wrapping_add(1);
                    dropped.dropped(packet, reason);
                    continue;
                }
                if verdict == Verdict::Mark {
                    packet.mark();
                    meters.marked = meters.marked.wrapping_add(1);
                }
            }
            meters.waited(now.saturating_sub(packet.arrival()));
            given = Some(packet);
            break;
        }
        if flow.fifo.is_empty() {
            flow.empties(now);
            if let Some(judge) = &judge {
                judge.emptied(&mut flow.aqm);
            }
        }
        given
    }

    /// The subscriber that a packet belongs to, of those there are.
    #[inline]
    pub(super) fn leaf_of(&self, packet: &P) -> u32 {
        self.known(packet.subscriber())
    }

    /// Takes bytes and a packet from what is counted of a subscriber.
    pub(super) fn uncount(&mut self, leaf: u32, length: Bytes) {
        let cold = &mut self.cold[leaf as usize];
        cold.packets -= 1;
        cold.bytes -= length.0 as u32;
        self.backlog.packets -= 1;
        self.backlog.bytes -= length;
    }
}
