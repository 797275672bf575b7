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
}
