//! Packets of many queues in one store, with room taken at construction: linked, so that any packet
//! can go.
//!
//! A node holds a packet, or the handle of one, with its links. With handles of 8 bytes two nodes
//! are a line of the cache, and a queue is served without a look at what a handle stands for.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::prefetch;
use crate::units::Bytes;

/// No node, no flow.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
#[repr(align(32))]
struct Node<P, M> {
    packet: Option<P>,
    /// The packet before; of the first one of a queue it is not valid.
    prev: u32,
    /// The next packet of the same queue, or the next free node; of the last one of a queue it is
    /// not valid.
    next: u32,
    /// The length of the next packet, see [`Queue::head_len`].
    next_len: u32,
    meta: M,
}

/// A queue in a [`Slab`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    head_len: u32,
    pub(super) packets: u32,
    pub(super) bytes: Bytes,
}

impl Queue {
    pub(super) const EMPTY: Self =
        Self { head: NIL, tail: NIL, head_len: 0, packets: 0, bytes: Bytes::ZERO };

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

    /// Bytes of the first packet as they are [`counted`]; 0 if there is none. Known without reading
    /// the packet.
    pub(super) const fn head_len(&self) -> u32 {
        self.head_len
    }
}

/// The first node of a queue, taken out of it.
pub(super) struct Unlinked<M> {
    /// The node.
    pub(super) at: u32,
    /// What the queue has counted for it.
    pub(super) length: Bytes,
    pub(super) meta: M,
}

/// What queues count for a packet: what it takes on the wire, and 2^32 - 1 for whatever is longer,
/// which no frame is. Capacity, fair rate and priority load are held against each other, so all
/// must be of one layer, and capacity is the wire's.
#[inline]
pub(super) fn counted(packet: &impl Packet) -> u32 {
    u32::try_from(packet.wire_len().0).unwrap_or(u32::MAX)
}

/// The store. `M` is what a discipline keeps with each packet. All operations take constant time;
/// `push` does not allocate while no more packets are held than were reserved.
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
        let more = (packets as usize).saturating_sub(self.nodes.len());
        self.nodes.reserve_exact(more);
    }

    /// Appends a packet to `queue`; gives its node.
    #[inline(always)] // or the packet is copied once more
    pub(super) fn push(&mut self, queue: &mut Queue, packet: P, meta: M) -> u32 {
        let len = counted(&packet);
        let Queue { head, tail, .. } = *queue;
        queue.packets += 1;
        queue.bytes += Bytes(len.into());
        let at = self.free;
        let at = match self.nodes.get_mut(at as usize) {
            Some(node) => {
                self.free = node.next;
                (node.prev, node.meta) = (tail, meta);
                // A free node holds none that would have to be dropped.
                core::mem::forget(node.packet.replace(packet));
                at
            }
            None => self.grow(packet, tail, meta),
        };
        // Without a branch, which could not be predicted: the only packet of a queue points at
        // itself, and is not followed.
        let first = head == NIL;
        let before = &mut self.nodes[if first { at } else { tail } as usize];
        (before.next, before.next_len) = (at, len);
        (queue.head, queue.head_len) = if first { (at, len) } else { (head, queue.head_len) };
        queue.tail = at;
        at
    }

    /// A node more, the last one.
    #[cold]
    fn grow(&mut self, packet: P, prev: u32, meta: M) -> u32 {
        self.nodes.push(Node { packet: Some(packet), prev, next: NIL, next_len: 0, meta });
        (self.nodes.len() - 1) as u32
    }

    /// Takes the packet of `node`, which is in `queue`.
    pub(super) fn take(&mut self, queue: &mut Queue, at: u32) -> Option<(P, M)> {
        if at == queue.head {
            return self.pop(queue);
        }
        let &Node { prev, next, next_len, meta, .. } = self.nodes.get(at as usize)?;
        let packet = self.release(at)?;
        if at == queue.tail {
            queue.tail = prev;
        } else {
            self.nodes[next as usize].prev = prev;
            let before = &mut self.nodes[prev as usize];
            (before.next, before.next_len) = (next, next_len);
        }
        queue.packets -= 1;
        queue.bytes -= Bytes(counted(&packet).into());
        Some((packet, meta))
    }

    /// Takes the first packet of `queue`.
    #[inline]
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(P, M)> {
        let Unlinked { at, meta, .. } = self.unlink(queue)?;
        Some((self.release(at)?, meta))
    }

    /// Takes the node of the first packet out of `queue`, not the packet out of the node.
    /// [`release`](Self::release) has to follow.
    #[inline(always)]
    pub(super) fn unlink(&mut self, queue: &mut Queue) -> Option<Unlinked<M>> {
        let (at, length) = (queue.head, Bytes(queue.head_len.into()));
        let node = self.nodes.get(at as usize)?;
        let last = at == queue.tail;
        queue.head = if last { NIL } else { node.next };
        queue.head_len = if last { 0 } else { node.next_len };
        queue.packets -= 1;
        queue.bytes -= length;
        Some(Unlinked { at, length, meta: node.meta })
    }

    /// Takes the packet out of a node that is in no queue; the node is free.
    #[inline(always)]
    pub(super) fn release(&mut self, at: u32) -> Option<P> {
        let node = self.nodes.get_mut(at as usize)?;
        node.next = core::mem::replace(&mut self.free, at);
        node.packet.take()
    }

    /// Reads ahead what [`take`](Self::take) of a node will read; `NIL` is as good as none.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        prefetch::element(&self.nodes, at as usize);
    }

    /// Reads ahead what the packet of a node stands for, and the node behind it, the node being
    /// there already; of the last one of a queue that is any.
    #[inline]
    pub(super) fn prefetch_packet(&self, at: u32) {
        if let Some(node) = self.nodes.get(at as usize) {
            if let Some(packet) = &node.packet {
                packet.read_ahead();
            }
            self.prefetch(node.next);
        }
    }

    /// The packet of a node.
    pub(super) fn packet(&self, at: u32) -> Option<&P> {
        self.nodes.get(at as usize)?.packet.as_ref()
    }

    /// The node before one that is not the first of its queue.
    pub(super) fn before(&self, at: u32) -> u32 {
        self.nodes[at as usize].prev
    }

    /// What is kept with the packet of a node, to change.
    pub(super) fn meta_mut(&mut self, at: u32) -> Option<&mut M> {
        self.nodes.get_mut(at as usize).map(|node| &mut node.meta)
    }
}
