//! What WFQ/ALTQ drops where there is one limit over all queues, and whose.

use super::{DropRule, SHORTEST_PACKET, WfqAltq};
use crate::packet::Packet;
use crate::reason::Reason;
use crate::schedule::{DropSink, Treated};
use crate::units::Bytes;

/// Packets that fit under `high_water`, and the one that arrives when it is reached.
pub(super) fn store_for(high_water: Bytes) -> usize {
    (high_water.0 / SHORTEST_PACKET) as usize + 1
}

impl<P: Packet> WfqAltq<P> {
    /// Notes that the backlog or the weight of `queue` changed.
    pub(super) fn weigh(&mut self, queue: usize) {
        if self.config.drop == DropRule::Longest {
            let backlog = self.queues.backlog(queue);
            self.loads[queue] = if backlog.packets == 0 {
                0
            } else {
                let by_weight = backlog.bytes.0 * 100 / u64::from(self.slots[queue].weight.0);
                u32::try_from(by_weight).unwrap_or(u32::MAX - 1) + 1
            };
        }
    }

    /// The queue with the most bytes by weight; the first from the pointer among equals.
    fn longest(&self) -> Option<usize> {
        let most = self.loads.iter().copied().max().filter(|most| *most > 0)?;
        let mut at = self.loads.iter().enumerate().filter(|(_, load)| **load == most);
        let (first, _) = at.next()?;
        if at.next().is_none() {
            return Some(first);
        }
        self.ring().map(usize::from).find(|q| self.loads[*q] == most)
    }

    /// Drops from the longest queue until the limit over all queues is kept. Whether the last
    /// packet of `arrived` went.
    pub(super) fn shed(&mut self, arrived: usize, dropped: &mut dyn DropSink<P>) -> Treated {
        let high_water = self.config.high_water;
        let mut treated = Treated::Queued;
        while self.queues.total().bytes > high_water
            || self.queues.total().packets as usize >= store_for(high_water)
        {
            let Some(queue) = self.longest() else { break };
            let Some(packet) = self.pop(queue) else { break };
            if queue == arrived && self.queues.is_empty(queue) {
                treated = Treated::Dropped(Reason::LongestQueue);
            }
            dropped.dropped(packet, Reason::LongestQueue);
        }
        treated
    }
}
