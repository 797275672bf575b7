//! What is known of a flow: one line of the cache.

use super::turns::{Members, Turn};
use super::within::Groups;
use crate::aqm::Codel;
use crate::flow_table::EntryId;
use crate::schedule::flow_list::FlowList;
use crate::schedule::slab::Queue;
use crate::units::Nanos;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// Packets that wait.
    pub(super) fifo: Queue,
    /// What keeps them few.
    pub(super) aqm: Codel,
    pub(super) turn: Turn,
    /// Whose it is.
    pub(super) leaf: u32,
    /// When it ran empty, in 2^14 ns.
    emptied: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    pub(super) const NEW: Self =
        Self { fifo: Queue::EMPTY, aqm: Codel::NEW, turn: Turn::NEW, leaf: 0, emptied: 0 };

    /// A flow of a subscriber.
    pub(super) fn of(leaf: u32) -> Self {
        Self { leaf, ..Self::NEW }
    }

    pub(super) fn empties(&mut self, now: Nanos) {
        self.emptied = (now.0 >> 14) as u32;
    }

    /// For how long it has been empty.
    pub(super) fn idle(&self, now: Nanos) -> Nanos {
        Nanos(u64::from(((now.0 >> 14) as u32).wrapping_sub(self.emptied)) << 14)
    }
}

/// The flows of a subscriber, all alike but for what their groups get.
pub(super) struct Flows<'a> {
    pub(super) flows: &'a mut FlowList<Flow>,
    pub(super) groups: &'a mut Option<Groups>,
    pub(super) quantum: i32,
}

impl Members for Flows<'_> {
    #[inline]
    fn turn(&mut self, member: u32) -> &mut Turn {
        &mut self.flows.get_mut(EntryId::from_link(member)).turn
    }

    #[inline]
    fn quantum(&self, member: u32) -> i32 {
        let of_group = |groups: &Groups| groups.quantum(EntryId::from_link(member), self.quantum);
        self.groups.as_ref().map_or(self.quantum, of_group)
    }

    #[inline]
    fn is_ready(&self, member: u32) -> bool {
        !self.flows.get(EntryId::from_link(member)).fifo.is_empty()
    }

    #[inline]
    fn left(&mut self, member: u32) {
        let id = EntryId::from_link(member);
        self.flows.end(id);
        if let Some(groups) = &mut self.groups {
            groups.end(id);
        }
    }
}
