//! PFQ as it is published, taken literally: one list sorted by stamp and a pointer to its last
//! priority packet, everything found by looking at all of it.
//!
//! Source: as [`crate::schedule::pfq`], which serves stamps in an order that is this one to within
//! a grain. What is ours: a dropped packet is taken out of its flow's tags.
//!
//! Complexity: the time of looking at all that waits, for each packet. Allocates.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::schedule::buffer::Victim;
use crate::units::Bytes;

/// What is known of a listed flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListedFlow {
    /// ft, in bytes of virtual time.
    pub finish: u64,
    /// Bytes that came since it was listed and counted against its quantum.
    pub offered: u64,
    /// Bytes of it that wait.
    pub backlog: u64,
}

/// The push-in-first-out list. Flows are told apart by their hashes.
#[derive(Clone, Debug)]
pub struct ExactPfq<P> {
    quantum: Bytes,
    victim: Victim,
    /// Stamps and packets.
    list: Vec<(u64, P)>,
    /// How many packets stand up to and with the pointer.
    pointer: usize,
    virtual_time: u64,
    flows: BTreeMap<u64, ListedFlow>,
}

impl<P: Packet> ExactPfq<P> {
    /// An empty one, for flows that may put in `quantum` bytes with priority.
    #[must_use]
    pub const fn new(quantum: Bytes, victim: Victim) -> Self {
        Self {
            quantum,
            victim,
            list: Vec::new(),
            pointer: 0,
            virtual_time: 0,
            flows: BTreeMap::new(),
        }
    }

    /// What waits, with its stamps, in the order of service.
    #[must_use]
    pub fn list(&self) -> &[(u64, P)] {
        &self.list
    }

    /// How many packets of [`list`](Self::list) have priority: the first ones.
    #[must_use]
    pub const fn priority_packets(&self) -> usize {
        self.pointer
    }

    /// vt, in bytes.
    #[must_use]
    pub const fn virtual_time(&self) -> u64 {
        self.virtual_time
    }

    /// The listed flows by their hashes.
    #[must_use]
    pub const fn flows(&self) -> &BTreeMap<u64, ListedFlow> {
        &self.flows
    }

    /// Takes a packet in; a flow that is not listed gets on the list if it `may_list`. Whether the
    /// packet has priority.
    pub fn enqueue(&mut self, packet: P, may_list: bool) -> bool {
        let (hash, length) = (packet.flow_hash(), packet.wire_len().0);
        let stamp = match self.flows.get_mut(&hash) {
            Some(flow) => {
                let stamp = (flow.offered >= self.quantum.0).then_some(flow.finish);
                flow.offered += if stamp.is_none() { length } else { 0 };
                flow.finish += length;
                flow.backlog += length;
                stamp
            }
            None => {
                if may_list {
                    let finish = self.virtual_time + length;
                    let flow = ListedFlow { finish, offered: length, backlog: length };
                    self.flows.insert(hash, flow);
                }
                None
            }
        };
        let at = match stamp {
            None => self.pointer,
            Some(stamp) => {
                let behind = &self.list[self.pointer..];
                let after = behind.iter().position(|(other, _)| *other > stamp);
                self.pointer + after.unwrap_or(behind.len())
            }
        };
        self.list.insert(at, (stamp.unwrap_or(self.virtual_time), packet));
        self.pointer += usize::from(stamp.is_none());
        stamp.is_none()
    }

    /// Drops a packet of the flow with this hash. What the flow has behind it, and what it will
    /// send, gets the stamps it would have had without it. `None`: nothing of it waits, or it is
    /// not listed.
    pub fn shed(&mut self, hash: u64) -> Option<P> {
        let flow = self.flows.get_mut(&hash)?;
        let mut of_flow = (0..self.list.len()).filter(|at| self.list[*at].1.flow_hash() == hash);
        let at = match self.victim {
            Victim::Head => of_flow.next(),
            Victim::Tail => of_flow.next_back(),
        }?;
        let (_, gone) = self.list.remove(at);
        let length = gone.wire_len().0;
        self.pointer -= usize::from(at < self.pointer);
        let behind = at.max(self.pointer);
        for (stamp, _) in self.list[behind..].iter_mut().filter(|(_, p)| p.flow_hash() == hash) {
            *stamp -= length;
        }
        self.list[self.pointer..].sort_by_key(|(stamp, _)| *stamp);
        flow.backlog -= length;
        flow.finish -= length;
        if flow.finish <= self.virtual_time && flow.backlog == 0 {
            self.flows.remove(&hash);
        }
        Some(gone)
    }

    /// Takes a flow off the list of which nothing waits.
    pub fn unlist(&mut self, hash: u64) {
        self.flows.remove(&hash);
    }

    /// The next packet.
    pub fn dequeue(&mut self) -> Option<P> {
        self.dequeue_at(0)
    }

    /// The packet at this place of [`list`](Self::list), as if it were the next: virtual time is
    /// its stamp, if that is later, and who stays behind is served late.
    pub fn dequeue_at(&mut self, at: usize) -> Option<P> {
        if at >= self.list.len() {
            return None;
        }
        let (stamp, packet) = self.list.remove(at);
        self.pointer -= usize::from(at < self.pointer);
        self.virtual_time = self.virtual_time.max(stamp);
        if let Some(flow) = self.flows.get_mut(&packet.flow_hash()) {
            flow.backlog = flow.backlog.saturating_sub(packet.wire_len().0);
        }
        let now = self.virtual_time;
        self.flows.retain(|_, flow| flow.finish > now || flow.backlog > 0);
        if self.list.is_empty() {
            self.flows.clear();
        }
        Some(packet)
    }
}
