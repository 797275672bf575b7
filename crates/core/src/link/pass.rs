//! The short way of packets of which nothing has to be decided, and what is fetched for the others.

use super::{Link, Start};
use crate::packet::Packet;
use crate::schedule::{Scheduler, Treated};
use crate::units::Nanos;

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// The short way of a link without a rate on which nothing waits and nothing is due: `packet`
    /// leaves at once, and the caller gives it to the port, which has `room` for so many frames;
    /// the meters are as by the long way. `None`: it has to [queue](Self::queue), and nothing has
    /// changed.
    #[inline(always)] // in a run of packets most of it is known
    pub fn pass(&mut self, now: Nanos, packet: &impl Packet, room: usize) -> Option<Treated> {
        let now = now.max(self.clock);
        if !self.is_idle() || self.tick.is_none_or(|tick| tick <= now) || room == 0 {
            return None;
        }
        let treated = self.scheduler.bypass(now, packet)?;
        self.clock = now;
        self.qostat.passed(now, packet);
        if room > 1 {
            // The call that the long way would have made once more, and that would have found
            // nothing.
            self.qostat.called(0);
        } else {
            self.start = Start::Blocked;
        }
        Some(treated)
    }

    /// Whether nothing waits that could not go at once.
    #[inline]
    fn is_idle(&self) -> bool {
        self.is_straight
            && matches!(self.start, Start::Idle { wake: Nanos::MAX })
            && self.ring.len() == 0
            && self.waiting.is_empty()
    }

    /// Whether the discipline is asked about packets that come now: they do not all
    /// [pass](Self::pass).
    #[inline]
    pub fn looks_up_flows(&self) -> bool {
        !(self.is_idle() && self.scheduler.bypasses())
    }

    /// Begins to read what finds the flow of this hash: for all packets of a burst, then
    /// [`prefetch`](Self::prefetch) for all, then the first [`enqueue`](Self::enqueue). False:
    /// packets pass the discipline by, nothing is read.
    #[inline]
    pub fn prefetch_bucket(&self, flow_hash: u64) -> bool {
        let stays = self.looks_up_flows();
        if stays {
            self.scheduler.prefetch_bucket(flow_hash);
        }
        stays
    }

    /// Begins to read what [`enqueue`](Self::enqueue) of a packet with this flow hash will read.
    #[inline]
    pub fn prefetch(&self, flow_hash: u64) {
        if self.looks_up_flows() {
            self.scheduler.prefetch(flow_hash);
        }
    }
}
