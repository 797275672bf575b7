//! Queues of packets that know their length in bytes and do not allocate per packet.
//!
//! [`PacketQueue`] is one bounded queue with room for its limit. [`QueueSet`] is many queues in one
//! shared store, for disciplines that bound the sum rather than each queue: a store per queue would
//! need room for the whole sum in each.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::packet::Packet;
use crate::schedule::Backlog;
use crate::settings::SettingError;
use crate::units::Bytes;

/// Valid limits of one queue, in packets.
pub const LIMIT_RANGE: RangeInclusive<u32> = 1..=65_536;
/// The limit of FreeBSD's and ALTQ's interface queues, in packets: what the published measurements
/// start from.
pub const DEFAULT_LIMIT: u32 = 50;

/// Most packets that the limits of a discipline's queues may come to together: room for them is
/// made when the limits are told.
pub const MAX_HELD: u64 = 4_194_304;

/// Upper bound of the bytes of memory that so many packets take in queues, each of `packet` bytes:
/// with its links.
pub(crate) const fn memory_of(packets: u64, packet: u64) -> u64 {
    packets * (packet + 12)
}

/// Refuses limits that come to more than [`MAX_HELD`] packets.
pub(crate) fn check_held(limits: impl Iterator<Item = u32>) -> Result<(), SettingError> {
    let held: u64 = limits.map(u64::from).sum();
    if held <= MAX_HELD {
        return Ok(());
    }
    Err(SettingError::OutOfRange {
        key: "limit",
        value: format!("{held} packets in all queues"),
        valid: format!("up to {MAX_HELD} packets in all queues"),
    })
}

/// First in, first out, at most `limit` packets. All operations take constant time; none allocates,
/// except a raise of the limit.
#[derive(Clone, Debug)]
pub struct PacketQueue<P> {
    packets: VecDeque<P>,
    bytes: Bytes,
    limit: u32,
}

impl<P: Packet> PacketQueue<P> {
    /// An empty queue with room for `limit` packets, which should be in [`LIMIT_RANGE`].
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { packets: VecDeque::with_capacity(limit as usize), bytes: Bytes::ZERO, limit }
    }

    /// Appends `packet`.
    ///
    /// # Errors
    /// Gives `packet` back if the queue is at its limit.
    pub fn push(&mut self, packet: P) -> Result<(), P> {
        if self.packets.len() >= self.limit as usize {
            return Err(packet);
        }
        self.bytes += packet.ip_len();
        self.packets.push_back(packet);
        Ok(())
    }

    /// Takes the head.
    pub fn pop(&mut self) -> Option<P> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.ip_len();
        Some(packet)
    }

    /// The packet that `pop` would give.
    #[must_use]
    pub fn head(&self) -> Option<&P> {
        self.packets.front()
    }

    /// Packets queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether no packet is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Packets and bytes queued.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len() as u64, bytes: self.bytes }
    }

    /// Most packets it takes.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit. What is queued beyond a lowered limit stays queued; the queue refuses
    /// packets until it has fallen below. A raise allocates.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        // Without memory for all of it the queue grows as packets come: a limit aborts nothing.
        let _ = self.packets.try_reserve_exact((limit as usize).saturating_sub(self.packets.len()));
    }
}

/// No node.
const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<P> {
    packet: Option<P>,
    /// The next packet of the same queue, or the next free node.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    backlog: Backlog,
}

const EMPTY: List =
    List { head: NIL, tail: NIL, backlog: Backlog { packets: 0, bytes: Bytes::ZERO } };

/// Many queues in one store. The node freed last is used first, so a short backlog stays in the
/// cache however large the store is. All operations take constant time.
///
/// `push` does not allocate while no more packets are held than were [reserved](Self::reserve).
#[derive(Clone, Debug)]
pub struct QueueSet<P> {
    nodes: Vec<Node<P>>,
    free: u32,
    lists: Vec<List>,
    total: Backlog,
    busy: usize,
}

impl<P: Packet> QueueSet<P> {
    /// `queues` empty queues with room for `packets` packets in all of them together.
    #[must_use]
    pub fn new(queues: usize, packets: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(packets),
            free: NIL,
            lists: alloc::vec![EMPTY; queues],
            total: Backlog::default(),
            busy: 0,
        }
    }

    /// Makes room for `packets` packets in all queues together.
    pub fn reserve(&mut self, packets: usize) {
        // Without memory for all of it the store grows as packets come: a limit aborts nothing.
        let _ = self.nodes.try_reserve_exact(packets.saturating_sub(self.nodes.len()));
    }

    /// For how many packets there is room.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.nodes.capacity()
    }

    /// Appends `packet` to `queue`.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn push(&mut self, queue: usize, packet: P) {
        let length = packet.ip_len();
        let node = match self.nodes.get_mut(self.free as usize) {
            Some(node) => {
                node.packet = Some(packet);
                core::mem::replace(&mut self.free, core::mem::replace(&mut node.next, NIL))
            }
            None => {
                self.nodes.push(Node { packet: Some(packet), next: NIL });
                (self.nodes.len() - 1) as u32
            }
        };
        let list = &mut self.lists[queue];
        if list.head == NIL {
            list.head = node;
            self.busy += 1;
        } else {
            self.nodes[list.tail as usize].next = node;
        }
        list.tail = node;
        list.backlog.packets += 1;
        list.backlog.bytes += length;
        self.total.packets += 1;
        self.total.bytes += length;
    }

    /// Takes the head of `queue`.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn pop(&mut self, queue: usize) -> Option<P> {
        let list = &mut self.lists[queue];
        let index = list.head;
        let node = self.nodes.get_mut(index as usize)?;
        let packet = node.packet.take()?;
        list.head = core::mem::replace(&mut node.next, self.free);
        self.free = index;
        let length = packet.ip_len();
        list.backlog.packets -= 1;
        list.backlog.bytes -= length;
        self.total.packets -= 1;
        self.total.bytes -= length;
        if list.head == NIL {
            self.busy -= 1;
        }
        Some(packet)
    }

    /// The packet that `pop` would give.
    ///
    /// # Panics
    /// If there is no such queue.
    #[must_use]
    pub fn head(&self, queue: usize) -> Option<&P> {
        self.nodes.get(self.lists[queue].head as usize)?.packet.as_ref()
    }

    /// Whether `queue` has no packet.
    ///
    /// # Panics
    /// If there is no such queue.
    #[must_use]
    pub fn is_empty(&self, queue: usize) -> bool {
        self.lists[queue].head == NIL
    }

    /// Packets and bytes of `queue`.
    ///
    /// # Panics
    /// If there is no such queue.
    #[must_use]
    pub fn backlog(&self, queue: usize) -> Backlog {
        self.lists[queue].backlog
    }

    /// Packets and bytes of all queues.
    #[must_use]
    pub const fn total(&self) -> Backlog {
        self.total
    }

    /// How many queues have packets.
    #[must_use]
    pub const fn busy(&self) -> usize {
        self.busy
    }
}
