//! Packets of many queues in one store, with room taken at construction: doubly linked, so that any packet can go.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::units::Bytes;

/// No node, no flow.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<P, M> {
    packet: Option<P>,
    meta: M,
    prev: u32,
    /// The next packet of the same queue, or the next free node.
    next: u32,
}

/// A queue in a [`Slab`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    pub(super) packets: u32,
    pub(super) bytes: Bytes,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL, packets: 0, bytes: Bytes::ZERO };

    pub(super) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The node of the first packet.
    pub(super) const fn head(&self) -> u32 {
        self.head
    }

    /// The node of the last packet.
    pub(super) const fn tail(&self) -> u32 {
        self.tail
    }
}

/// The store. `M` is what a discipline keeps with each packet. All operations take constant time; `push` does not
/// allocate while no more packets are held than were reserved.
#[derive(Clone, Debug)]
pub(super) struct Slab<P, M> {
    nodes: Vec<Node<P, M>>,
    free: u32,
}

impl<P: Packet, M: Copy> Slab<P, M> {
    pub(super) fn new(packets: u32) -> Self {
        Self { nodes: Vec::with_capacity(packets as usize), free: NIL }
    }

    /// Makes room for `packets` packets in all.
    pub(super) fn reserve(&mut self, packets: u32) {
        self.nodes.reserve_exact((packets as usize).saturating_sub(self.nodes.len()));
    }

    /// Appends a packet to `queue`; gives its node.
    pub(super) fn push(&mut self, queue: &mut Queue, packet: P, meta: M) -> u32 {
        queue.packets += 1;
        queue.bytes += packet.ip_len();
        let node = Node { packet: Some(packet), meta, prev: queue.tail, next: NIL };
        let at = match self.nodes.get_mut(self.free as usize) {
            Some(free) => {
                let at = core::mem::replace(&mut self.free, free.next);
                *free = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        match self.nodes.get_mut(queue.tail as usize) {
            Some(tail) => tail.next = at,
            None => queue.head = at,
        }
        queue.tail = at;
        at
    }

    /// Takes the packet of `node`, which is in `queue`.
    pub(super) fn take(&mut self, queue: &mut Queue, at: u32) -> Option<(P, M)> {
        let node = self.nodes.get_mut(at as usize)?;
        let packet = node.packet.take()?;
        let (meta, prev, next) = (node.meta, node.prev, node.next);
        node.next = core::mem::replace(&mut self.free, at);
        match self.nodes.get_mut(prev as usize) {
            Some(prev) => prev.next = next,
            None => queue.head = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.prev = prev,
            None => queue.tail = prev,
        }
        queue.packets -= 1;
        queue.bytes -= packet.ip_len();
        Some((packet, meta))
    }

    /// Takes the first packet of `queue`.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(P, M)> {
        self.take(queue, queue.head)
    }

    /// The packet of a node.
    pub(super) fn packet(&self, at: u32) -> Option<&P> {
        self.nodes.get(at as usize)?.packet.as_ref()
    }

    /// What is kept with the packet of a node.
    pub(super) fn meta(&self, at: u32) -> Option<&M> {
        self.nodes.get(at as usize).map(|node| &node.meta)
    }

    /// What is kept with the packet of a node, to change.
    pub(super) fn meta_mut(&mut self, at: u32) -> Option<&mut M> {
        self.nodes.get_mut(at as usize).map(|node| &mut node.meta)
    }
}
