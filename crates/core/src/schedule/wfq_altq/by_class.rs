//! What several workers share of WFQ/ALTQ: its queues, one of each class, are served as they are
//! granted, and the ring has no part in it.

use super::WfqAltq;
use crate::packet::Packet;
use crate::schedule::DropSink;
use crate::schedule::shared::ByClass;
use crate::units::{Bytes, Nanos};

impl<P: Packet> ByClass<P> for WfqAltq<P> {
    fn queues(&self) -> u16 {
        self.slots.len() as u16
    }

    fn weight(&self, queue: u16) -> u32 {
        self.config.weight.get(usize::from(queue)).0
    }

    fn is_empty(&self, queue: usize) -> bool {
        self.queues.is_empty(queue)
    }

    fn head_len(&self, queue: usize) -> Option<Bytes> {
        self.queues.head(queue).map(Packet::ip_len)
    }

    fn grants_take(&mut self, time: Nanos) {
        self.standing.grants_take(time);
    }

    fn take(&mut self, now: Nanos, queue: usize, dropped: &mut dyn DropSink<P>) -> Option<P> {
        self.next_of(now, queue, dropped)
    }
}
