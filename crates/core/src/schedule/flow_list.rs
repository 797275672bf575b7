//! The flows a discipline knows: a [`FlowTable`] of bounded size whose entries are each in one of two lists, used or idle.
//!
//! A flow that is idle keeps its entry, and with it the count of its changes of class, until another one needs the room.

use alloc::vec::Vec;

use super::slab::NIL;
use super::{KnobError, buffer};
use crate::flow_table::{EntryId, FlowTable, PackedFlow};

/// How often a flow was found in the other class than before. The class of a flow is that of its last packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flips {
    elastic: Option<bool>,
    pub(super) count: u32,
}

impl Flips {
    pub(super) const NEW: Self = Self { elastic: None, count: 0 };

    /// A packet of the flow was treated; whether that was a change.
    pub(super) fn note(&mut self, elastic: bool) -> bool {
        let flipped = self.elastic.is_some_and(|before| before != elastic);
        self.elastic = Some(elastic);
        self.count = self.count.saturating_add(u32::from(flipped));
        flipped
    }
}

/// A list through [`Links`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    /// The first member.
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

/// Doubly linked lists of small numbers, each in at most one. Constant time.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// Previous and next.
    links: Vec<[u32; 2]>,
}

impl Links {
    pub(crate) fn new(members: u32) -> Self {
        Self { links: alloc::vec![[NIL; 2]; members as usize] }
    }

    pub(crate) fn push(&mut self, chain: &mut Chain, member: u32) {
        self.links[member as usize] = [chain.tail, NIL];
        match self.links.get_mut(chain.tail as usize) {
            Some(tail) => tail[1] = member,
            None => chain.head = member,
        }
        chain.tail = member;
    }

    /// Takes `member`, which is in it, out of `chain`.
    pub(crate) fn unlink(&mut self, chain: &mut Chain, member: u32) {
        let [prev, next] = self.links[member as usize];
        match self.links.get_mut(prev as usize) {
            Some(prev) => prev[1] = next,
            None => chain.head = next,
        }
        match self.links.get_mut(next as usize) {
            Some(next) => next[0] = prev,
            None => chain.tail = prev,
        }
    }

    pub(crate) fn pop(&mut self, chain: &mut Chain) -> Option<u32> {
        let head = chain.head()?;
        self.unlink(chain, head);
        Some(head)
    }

    /// Moves all of `from` behind `to`.
    pub(crate) fn append(&mut self, to: &mut Chain, from: &mut Chain) {
        let Some(head) = from.head() else { return };
        self.links[head as usize][0] = to.tail;
        match self.links.get_mut(to.tail as usize) {
            Some(tail) => tail[1] = head,
            None => to.head = head,
        }
        to.tail = from.tail;
        *from = Chain::EMPTY;
    }

    /// The members of a chain in order.
    pub(crate) fn iter(&self, chain: &Chain) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(chain.head(), |at| Some(self.links[*at as usize][1]).filter(|n| *n != NIL))
    }
}

/// Flows with a state `S` each. Those in use are in the chain `used`, all others of the table in the chain of idle ones.
#[derive(Clone, Debug)]
pub(super) struct FlowList<S> {
    table: FlowTable<S>,
    links: Links,
    pub(super) used: Chain,
    idle: Chain,
    len: u32,
    /// Flows in use carry this number: counting it up makes all idle.
    epoch: u64,
}

/// A member of the chain `used` that is no flow: one place beyond the last flow.
pub(super) type Member = u32;

impl<S: Copy> FlowList<S> {
    pub(super) fn new(flows: u32, seed: u64) -> Result<Self, KnobError> {
        buffer::check_flows(flows)?;
        Ok(Self {
            table: FlowTable::new(flows, seed)?,
            links: Links::new(flows + 1),
            used: Chain::EMPTY,
            idle: Chain::EMPTY,
            len: 0,
            epoch: 1,
        })
    }

    /// The member of the chain `used` that is no flow.
    pub(super) fn extra(&self) -> Member {
        self.table.capacity()
    }

    pub(super) fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// The number that flows in use carry in their state.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many flows are in use.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn find(&self, hash: u64, key: &PackedFlow) -> Option<EntryId> {
        self.table.find(hash, key)
    }

    /// A place for a flow that is not in the table, as an idle flow; that of the flow idle for longest if there is no other, which
    /// is told to `forget`. `None` if all are in use.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: PackedFlow,
        state: S,
        forget: impl FnOnce(EntryId),
    ) -> Option<EntryId> {
        if self.table.is_full() {
            let oldest = EntryId::from_link(self.links.pop(&mut self.idle)?);
            forget(oldest);
            self.table.remove(oldest);
        }
        let id = self.table.insert(hash, key, state).ok()?;
        self.links.push(&mut self.idle, id.link());
        Some(id)
    }

    pub(super) fn get(&self, id: EntryId) -> &S {
        self.table.value(id)
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> &mut S {
        self.table.value_mut(id)
    }

    /// An idle flow comes into use, behind the others. The caller notes the epoch in its state.
    pub(super) fn begin(&mut self, id: EntryId) {
        self.links.unlink(&mut self.idle, id.link());
        self.links.push(&mut self.used, id.link());
        self.len += 1;
    }

    /// A flow in use that is in no chain becomes idle.
    pub(super) fn end(&mut self, id: EntryId) {
        self.links.push(&mut self.idle, id.link());
        self.len -= 1;
    }

    /// Takes a member out of the chain of those in use; it stays in use.
    pub(super) fn unlink(&mut self, member: Member) {
        self.links.unlink(&mut self.used, member);
    }

    /// Takes the first member of the chain of those in use.
    pub(super) fn pop(&mut self) -> Option<Member> {
        self.links.pop(&mut self.used)
    }

    /// Puts a member behind the others in use.
    pub(super) fn push(&mut self, member: Member) {
        self.links.push(&mut self.used, member);
    }

    /// All flows become idle, those of the chain in its order. A flow in use that is in no chain was put back before.
    pub(super) fn end_all(&mut self) {
        self.links.append(&mut self.idle, &mut self.used);
        self.len = 0;
        self.epoch += 1;
    }

    /// Members in use, in the order of the chain.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.links.iter(&self.used)
    }
}
