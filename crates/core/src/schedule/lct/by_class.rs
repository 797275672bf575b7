//! What several workers share of LCT-UC: from when on each class may be served. Each has its own
//! queues, and its own place in the round.

use super::{Lct, LctConfig};
use crate::packet::Packet;
use crate::schedule::DropSink;
use crate::schedule::shared::{ByClass, Common, Order};
use crate::units::{Bytes, Nanos};

/// Packets that the mean length of a class's packets remembers.
const REMEMBERED: i64 = 8;

impl<P: Packet> Lct<P> {
    /// From when on a class may be served. One without a delay always may.
    fn due(&self, k: usize) -> Nanos {
        match &self.common {
            Some(_) if self.x[k] == Nanos::ZERO => Nanos::ZERO,
            Some(common) => common.link.due(k),
            None => self.dt[k],
        }
    }

    /// Takes over what other workers have done.
    pub(super) fn look_at_others(&mut self) {
        if self.common.is_some() {
            (0..self.dt.len()).for_each(|k| self.dt[k] = self.due(k));
        }
    }

    /// Whether it is this worker that sends a packet of a class now.
    pub(super) fn claims(&self, now: Nanos, k: usize) -> bool {
        match &self.common {
            Some(common) if self.x[k] > Nanos::ZERO => {
                let claimed = common.link.claim(k, now, now.saturating_add(self.x[k]));
                if claimed {
                    common.link.tell_turn(common.worker, k, now);
                }
                claimed
            }
            _ => true,
        }
    }

    /// Empty classes that were visited past their time, of which no worker has a packet.
    pub(super) fn rearm_common(&self, common: &Common, now: Nanos, k: usize) {
        let (link, x) = (&common.link, self.x[k]);
        let is_passed = x > Nanos::ZERO && self.queues[k].is_empty() && now >= link.due(k);
        if is_passed && !link.waits_elsewhere(common.worker, k) {
            link.claim(k, now, now.saturating_add(x));
        }
    }

    /// A packet of so many bytes on the wire came to class `k`.
    pub(super) fn tell_came(&mut self, k: usize, length: Bytes) {
        let Some(common) = &self.common else { return };
        let length = u32::try_from(length.0).unwrap_or(u32::MAX);
        let (mean, first) = (&mut self.lengths[k], self.queues[k].len() == 1);
        let before = *mean;
        let differs = i64::from(length) - i64::from(before);
        let moved = if before == 0 { differs } else { differs / REMEMBERED };
        *mean = (i64::from(before) + moved) as u32;
        if first || *mean != before {
            common.link.tell_length(common.worker, k, Some(*mean));
        }
    }

    /// Nothing waits in class `k` any more.
    pub(super) fn tell_empty(&self, k: usize) {
        if let Some(common) = &self.common {
            common.link.tell_length(common.worker, k, None);
        }
    }
}

impl<P: Packet> ByClass<P> for Lct<P> {
    const ORDER: Order = Order::Held;

    fn queues(&self) -> u16 {
        self.classes()
    }

    fn is_empty(&self, queue: usize) -> bool {
        self.queues[queue].is_empty()
    }

    fn head_len(&self, queue: usize) -> Option<Bytes> {
        self.queues[queue].head().map(Packet::ip_len)
    }

    /// Every class is due, as in a discipline that has just begun.
    fn join(&mut self, common: Common) {
        for k in 0..self.queues.len() {
            common.link.hasten(k, Nanos::ZERO);
            common.link.tell_length(common.worker, k, None);
        }
        self.lengths = alloc::vec![0; self.queues.len()];
        self.common = Some(common);
    }

    /// Half a window is enough for a worker to come whose turn is before.
    fn grants_take(&mut self, time: Nanos) {
        self.grace = Nanos(time.0 / 4);
    }

    fn is_delayed(&self, queue: usize) -> bool {
        self.x[queue] > Nanos::ZERO
    }

    fn held_until(&self, now: Nanos, queue: usize) -> Option<Nanos> {
        let due = match &self.common {
            Some(Common { link, worker }) if self.x[queue] > Nanos::ZERO => {
                link.due_for(*worker, queue, self.grace)
            }
            _ => self.due(queue),
        };
        (due > now).then(|| due.round_up_to(self.config.timer_tick))
    }

    fn due_by(&self, now: Nanos, then: Nanos, queue: usize, waiting: u64) -> u64 {
        let (x, begin) = (self.x[queue].max(Nanos(1)), self.due(queue).max(now));
        if begin > then {
            return 0;
        }
        let packets = 1 + (then - begin).0 / x.0;
        let head = self.queues[queue].head().map_or(0, |packet| packet.wire_len().0);
        packets.saturating_mul(head).min(waiting)
    }

    fn take(&mut self, now: Nanos, queue: usize, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        if !self.claims(now, queue) {
            return None;
        }
        let packet = self.pop(queue)?;
        self.serve_next(now, queue);
        Some(packet)
    }
}

impl LctConfig {
    /// Whether several workers can share a link with it: of a class that may go before its time
    /// when no other is due, a worker does not know whether any is.
    pub(super) fn is_shareable(&self) -> bool {
        self.module2 && self.multi_backlog.holds(true)
    }
}
