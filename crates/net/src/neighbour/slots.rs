//! The entries of the neighbour table, and the two orders in which unresolved ones fall due.

use core::net::IpAddr;

use evenkeel_core::Nanos;

use super::waiting::Line;
use super::{Known, NeighbourState};
use crate::PortIndex;

/// No slot.
const NONE: u32 = u32::MAX;

/// One neighbour.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) port: PortIndex,
    pub(super) address: IpAddr,
    pub(super) status: Status,
    /// Whether a packet used it since the last look at the marks.
    pub(super) used: bool,
    /// Whether its index stands in the list of those to ask for. Survives the slot's reuse: it is
    /// about the list.
    pub(super) in_asks: bool,
    pub(super) waiting: Line,
    previous: u32,
    next: u32,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Status {
    Free,
    Known(Known),
    /// Until when an answer is awaited.
    Incomplete(Nanos),
    /// Until when it is not asked for again.
    Failed(Nanos),
}

impl Status {
    pub(super) const fn state(self) -> Option<NeighbourState> {
        match self {
            Self::Free => None,
            Self::Known(Known { stale: false, .. }) => Some(NeighbourState::Reachable),
            Self::Known(Known { stale: true, .. }) => Some(NeighbourState::Stale),
            Self::Incomplete(_) => Some(NeighbourState::Incomplete),
            Self::Failed(_) => Some(NeighbourState::Failed),
        }
    }
}

/// Ends of a list of slots linked by `previous` and `next`, oldest first.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// All slots. Each of a status with a time is in the list of that status; since that status always
/// lasts equally long, the list is in the order in which they fall due. Every call but `reserve`
/// takes constant time.
pub(super) struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
    incomplete: List,
    failed: List,
    unresolved: u32,
}

impl Slots {
    pub(super) fn new(unresolved: u32) -> Self {
        let empty = List { head: NONE, tail: NONE };
        let mut slots = Self {
            all: Vec::new(),
            free: Vec::new(),
            incomplete: empty,
            failed: empty,
            unresolved: 0,
        };
        slots.reserve(unresolved);
        slots
    }

    /// Makes room for `more` slots, so that `add` does not allocate that many times.
    pub(super) fn reserve(&mut self, more: u32) {
        self.all.reserve(more as usize);
        let capacity = self.all.capacity();
        self.free.reserve(capacity - self.free.len());
    }

    pub(super) fn get(&self, at: u32) -> &Slot {
        &self.all[at as usize]
    }

    /// A slot that may not be there yet.
    #[inline]
    pub(super) fn find(&mut self, at: u32) -> Option<&mut Slot> {
        self.all.get_mut(at as usize)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.all[at as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.all)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.all.iter_mut()
    }

    pub(super) const fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// How many are incomplete or failed.
    pub(super) const fn unresolved(&self) -> u32 {
        self.unresolved
    }

    pub(super) const fn oldest_incomplete(&self) -> Option<u32> {
        if self.incomplete.head == NONE { None } else { Some(self.incomplete.head) }
    }

    pub(super) const fn oldest_failed(&self) -> Option<u32> {
        if self.failed.head == NONE { None } else { Some(self.failed.head) }
    }

    /// A slot for a neighbour, still free by status: give it one.
    pub(super) fn add(&mut self, port: PortIndex, address: IpAddr) -> u32 {
        match self.free.pop() {
            Some(at) => {
                let slot = &mut self.all[at as usize];
                slot.port = port;
                slot.address = address;
                slot.used = false;
                at
            }
            None => {
                self.all.push(Slot {
                    port,
                    address,
                    status: Status::Free,
                    used: false,
                    in_asks: false,
                    waiting: Line::EMPTY,
                    previous: NONE,
                    next: NONE,
                });
                self.all.len() as u32 - 1
            }
        }
    }

    /// Changes what a slot is used for; with `Status::Free` it may be used again.
    pub(super) fn set(&mut self, at: u32, status: Status) {
        self.unlink(at);
        self.all[at as usize].status = status;
        match status {
            Status::Free => self.free.push(at),
            Status::Known(_) => {}
            Status::Incomplete(_) | Status::Failed(_) => self.link(at),
        }
    }

    fn list(&mut self, status: Status) -> Option<&mut List> {
        match status {
            Status::Incomplete(_) => Some(&mut self.incomplete),
            Status::Failed(_) => Some(&mut self.failed),
            Status::Free | Status::Known(_) => None,
        }
    }

    fn link(&mut self, at: u32) {
        let status = self.get(at).status;
        let Some(list) = self.list(status) else {
            return;
        };
        let last = core::mem::replace(&mut list.tail, at);
        if last == NONE {
            list.head = at;
        } else {
            self.get_mut(last).next = at;
        }
        let slot = self.get_mut(at);
        slot.previous = last;
        slot.next = NONE;
        self.unresolved += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Slot { status, previous, next, .. } = *self.get(at);
        let Some(list) = self.list(status) else {
            return;
        };
        if previous == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = previous;
        }
        if previous != NONE {
            self.get_mut(previous).next = next;
        }
        if next != NONE {
            self.get_mut(next).previous = previous;
        }
        self.unresolved -= 1;
    }
}
