//! What the harness must know of a discipline.

use std::fmt::Debug;

use evenkeel_core::{Bytes, Packet as _, Scheduler};

use crate::TestPacket;

/// A discipline and what the harness must know of it.
pub trait Subject: Scheduler<TestPacket> + Clone + Debug {
    /// The index of the queue that a packet joins: order is kept within it.
    fn queue_of(&self, packet: &TestPacket) -> usize;
    /// Whether it never holds a packet while the link asks.
    fn work_conserving(&self) -> bool;
    /// Whether there is a queue per class.
    fn by_class(&self) -> bool;
    /// Whether `queue_of` names what `busy_queues` counts. Else it only names what keeps its order.
    fn queues_are_counted(&self) -> bool {
        true
    }
    /// Whether it drops packets of queues that stand when it is asked for one.
    fn drops_at_the_head(&self) -> bool {
        false
    }
    /// The bytes that it counts of a packet.
    fn counted(&self, packet: &TestPacket) -> Bytes {
        packet.ip_len()
    }
}
