//! The short way of packets of which nothing has to be decided, and what is fetched for the others.

use super::{Link, Start};
use crate::measure::Run;
use crate::packet::Packet;
use crate::schedule::{Scheduler, Treated};
use crate::units::{Bytes, Nanos};

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// The short way of a link without a rate on which nothing waits and nothing is due: `packet`
    /// leaves at once, and the caller gives it to the port, which has `room` for so many frames;
    /// the meters are as by the long way. `None`: it has to [queue](Self::queue), and nothing has
    /// changed.
    #[inline(always)] // in a run of packets most of it is known
    pub fn pass(&mut self, now: Nanos, packet: &impl Packet, room: usize) -> Option<Treated> {
        let now = now.max(self.clock);
        if !self.is_idle() || self.ticks_by(now) || room == 0 {
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

    /// As [`pass`](Self::pass), for packets one after the other between which nothing else happens
    /// on the link: what is asked of it is asked for the first, and the meters know of the others
    /// when the run is [counted](Self::count). That is to be done before anything else.
    #[inline(always)] // in a run of packets most of it is known
    pub fn pass_on(
        &mut self,
        run: &mut Run,
        now: Nanos,
        packet: &impl Packet,
        room: usize,
    ) -> Option<Treated> {
        let at = now.max(self.clock);
        if !run.takes(at, packet) || room < 2 {
            self.count(run);
            let treated = self.pass(now, packet, room)?;
            // After the last one that there is room for the link stands still.
            if room > 1 {
                run.begin();
            }
            return Some(treated);
        }
        let treated = if self.ticks_by(at) { None } else { self.scheduler.bypass(at, packet) };
        if treated.is_some() {
            self.clock = at;
            run.add(packet);
        } else {
            self.count(run);
        }
        treated
    }

    /// As [`pass_on`](Self::pass_on) of all packets of a run at once, where the discipline [need
    /// not be told](Scheduler::bypasses_untold). They are in the order in which they arrived, up to
    /// `last`, and the caller's port has room for more than these. Nothing leaves before `floor`.
    /// False: nothing has changed.
    #[inline]
    pub fn pass_all<Q: Packet>(
        &mut self,
        floor: Nanos,
        packets: impl Iterator<Item = Q> + Clone,
        last: Nanos,
    ) -> bool {
        let is_late = |first: Q| first.arrival() < floor.max(self.clock);
        if !self.is_idle()
            || self.ticks_by(last)
            || !self.scheduler.bypasses_untold()
            || packets.clone().next().is_none_or(is_late)
        {
            return false;
        }
        debug_assert!(packets.clone().map(|packet| packet.arrival()).is_sorted());
        let mut run = Run::default();
        run.begin();
        for packet in packets {
            if !Run::takes_kind(&packet) {
                return false;
            }
            run.add(&packet);
        }
        self.clock = last;
        self.count(&mut run);
        true
    }

    /// Up to which length on the line packets may pass one after the other that arrive from `first`
    /// to `last`, and how all of them are treated. `None`: something has to be decided of each.
    #[inline]
    pub fn passes_up_to(&self, first: Nanos, last: Nanos) -> Option<(Bytes, Treated)> {
        if !self.is_idle() || self.ticks_by(last) || first < self.clock {
            return None;
        }
        self.scheduler.bypasses_up_to()
    }

    /// Packets that [may](Self::passes_up_to), and whose kind [runs take](Run::takes_kind), have
    /// passed, the last one at `last`.
    #[inline]
    pub fn passed<Q: Packet>(&mut self, packets: impl Iterator<Item = Q>, last: Nanos) {
        let (mut run, mut bytes) = (Run::default(), Bytes::ZERO);
        run.begin();
        for packet in packets {
            run.add(&packet);
            bytes += packet.wire_len();
        }
        self.scheduler.bypassed(bytes);
        self.clock = last;
        self.count(&mut run);
    }

    /// Tells the meters of a run of packets that [passed](Self::pass_on), and ends it.
    #[inline]
    pub fn count(&mut self, run: &mut Run) {
        let qostat = &mut self.qostat;
        run.end(|class, packets, bytes| qostat.passed_in_run(class, packets, bytes));
    }

    /// Whether the discipline has periodic work to do up to `now`, or may have.
    #[inline]
    pub(super) fn ticks_by(&self, now: Nanos) -> bool {
        self.tick.is_none_or(|tick| tick <= now)
    }

    /// Whether nothing waits that could not go at once.
    #[inline]
    fn is_idle(&self) -> bool {
        self.is_straight
            && matches!(self.start, Start::Idle { wake: Nanos::MAX })
            && self.ring.len() == 0
            && self.waiting.is_empty()
    }

    /// Whether no packet that comes now [passes](Self::pass): all have to [queue](Self::queue).
    #[inline]
    pub fn passes_none(&self) -> bool {
        !(self.is_idle() && self.scheduler.bypasses())
    }

    /// Whether the discipline will look for the flows of packets that come now: it does, and they
    /// do not all [pass](Self::pass).
    #[inline]
    pub fn looks_up_flows(&self) -> bool {
        self.scheduler.looks_up_flows() && self.passes_none()
    }
}
