//! QoStat: the meters of an outgoing link, per class and per scheduler call.
//!
//! The quantities are those of the QoStat tool of the LCT group (Coimbra): per class the packets
//! sent and dropped, the queue and the transit delay, from the packet's arrival in the router to
//! its leaving the output queue; per interface how many scheduler calls found none, one or several
//! queues with packets ("How Unfair can Weighted Fair Queuing be?", Table 1).
//!
//! Identity, per class and at every instant between two calls to the link: `in_packets =
//! sent_packets + queued + in the ring + sum of dropped`. `out_packets` counts what the scheduler
//! gave, before the ring. The same holds for segments, of which a super-frame is many.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::{Histogram, Tally};
use crate::packet::{Class, Packet};
use crate::reason::Reason;
use crate::units::{Bytes, Nanos};

crate::counters! {
    /// What is counted of a class of an outgoing link. A line more here is a counter more in
    /// snapshots, samples, metrics and their reference; see [`counters`](crate::measure::counters).
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct ClassCounters {
        /// Packets given to the link, those dropped at once included.
        count in_packets: u64, "packets";
        /// IP bytes of `in_packets`.
        count in_bytes: Bytes, "bytes";
        /// Packets that the scheduler gave to the transmit ring.
        count out_packets: u64, "packets";
        /// IP bytes of `out_packets`.
        count out_bytes: Bytes, "bytes";
        /// Packets whose last bit left the wire.
        count sent_packets: u64, "packets", as "sent";
        /// IP bytes of `sent_packets`.
        count sent_bytes: Bytes, "bytes", as "sent_bytes";
        /// Packets of `out_packets` that were marked here instead of dropped (ECN).
        count marked_packets: u64, "packets", as "marked";
        /// What `in_packets` are on the wire: of a super-frame its segments.
        count in_segments: u64, "segments";
        /// What `sent_packets` are on the wire.
        count sent_segments: u64, "segments";
        /// What the packets dropped would have been.
        count dropped_segments: u64, "segments";
    }
}

impl ClassCounters {
    /// Where only what left is known.
    #[must_use]
    pub fn of_sent(packets: u64, bytes: Bytes) -> Self {
        Self { sent_packets: packets, sent_bytes: bytes, ..Self::default() }
    }
}

/// What happened to the packets of one class since the start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClassMeter {
    /// Packets and bytes.
    pub counts: ClassCounters,
    /// Packets dropped, by [`Reason::index`].
    pub dropped: [u64; Reason::COUNT],
    /// Sum of the transit delays of `out_packets`. Wraps around, so differences stay right.
    pub delay_sum: Nanos,
    /// The longest transit delay.
    pub delay_max: Nanos,
    /// Transit delays of `out_packets`.
    pub delay: Histogram,
}

impl Default for ClassMeter {
    fn default() -> Self {
        Self {
            counts: ClassCounters::default(),
            dropped: [0; Reason::COUNT],
            delay_sum: Nanos::ZERO,
            delay_max: Nanos::ZERO,
            delay: Histogram::new(),
        }
    }
}

/// The counts are read like fields of the meter.
impl Deref for ClassMeter {
    type Target = ClassCounters;

    fn deref(&self) -> &ClassCounters {
        &self.counts
    }
}

impl DerefMut for ClassMeter {
    fn deref_mut(&mut self) -> &mut ClassCounters {
        &mut self.counts
    }
}

impl ClassMeter {
    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The scheduler gave a packet that had been in the router for `delay`.
    #[inline]
    fn gave(&mut self, length: Bytes, delay: Nanos) {
        self.out_packets += 1;
        self.out_bytes += length;
        self.delay_sum = Nanos(self.delay_sum.0.wrapping_add(delay.0));
        self.delay_max = self.delay_max.max(delay);
        self.delay.record(delay);
    }

    /// Mean transit delay; `None` if nothing was given out.
    #[must_use]
    pub fn delay_mean(&self) -> Option<Nanos> {
        self.delay_sum.0.checked_div(self.out_packets).map(Nanos)
    }

    /// Counts what `other` has counted too: of packets that this meter has not seen.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.dropped.add(&other.dropped);
        self.delay_sum.add(&other.delay_sum);
        self.delay_max = self.delay_max.max(other.delay_max);
        self.delay.merge(&other.delay);
    }

    /// What happened after `earlier`, an older copy of the same meter. The longest delay of the
    /// window is known to the bucket of the histogram only.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let delay = self.delay.since(&earlier.delay);
        let longest = delay.buckets().last().map_or(Nanos::ZERO, |(i, _)| Histogram::bounds(i).1);
        Self {
            counts: self.counts.since(&earlier.counts),
            dropped: self.dropped.since(&earlier.dropped),
            delay_sum: self.delay_sum.since(&earlier.delay_sum),
            delay_max: self.delay_max.min(longest),
            delay,
        }
    }
}

/// All meters of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Qostat {
    classes: Vec<ClassMeter>,
    /// Scheduler calls that found no, one, several queues with packets; calls that gave nothing
    /// included.
    pub calls: [u64; 3],
}

impl Qostat {
    /// Meters for `classes` classes, at least one. About 3.7 KB each.
    #[must_use]
    pub fn new(classes: u16) -> Self {
        Self { classes: vec![ClassMeter::default(); usize::from(classes.max(1))], calls: [0; 3] }
    }

    /// The meters, by class.
    #[must_use]
    pub fn classes(&self) -> &[ClassMeter] {
        &self.classes
    }

    /// The meter of a class; that of class 0 for classes that do not exist, because their packets
    /// are counted there.
    #[must_use]
    pub fn class(&self, class: Class) -> &ClassMeter {
        self.classes.get(class.index()).unwrap_or(&self.classes[0])
    }

    /// Counts what `other` has counted too; `place` says where each of its classes belongs here.
    pub(crate) fn merge(&mut self, other: &Self, place: impl Fn(Class) -> Class) {
        for (at, theirs) in other.classes.iter().enumerate() {
            self.meter(place(Class(at as u16))).merge(theirs);
        }
        self.calls.add(&other.calls);
    }

    /// What happened after `earlier`, an older copy of the same meters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let classes =
            self.classes.iter().zip(&earlier.classes).map(|(now, then)| now.since(then)).collect();
        Self { classes, calls: self.calls.since(&earlier.calls) }
    }

    /// A packet was given to the link.
    pub(crate) fn came<P: Packet>(&mut self, packet: &P) {
        let meter = self.meter(packet.class());
        meter.in_packets += 1;
        meter.in_bytes += packet.ip_len();
        meter.in_segments += u64::from(packet.segments());
    }

    /// The scheduler is about to be called with `busy` queues that have packets.
    pub(crate) fn called(&mut self, busy: usize) {
        self.calls[busy.min(2)] += 1;
    }

    /// The scheduler gave a packet.
    pub(crate) fn given<P: Packet>(&mut self, at: Nanos, packet: &P) {
        let (length, delay) = (packet.ip_len(), at.saturating_sub(packet.arrival()));
        let meter = self.meter(packet.class());
        meter.gave(length, delay);
        meter.marked_packets += u64::from(packet.is_marked());
    }

    /// A packet was given to the link, found its queue alone with packets, and left at once.
    #[inline]
    pub(crate) fn passed<P: Packet>(&mut self, at: Nanos, packet: &P) {
        self.called(1);
        let (length, delay) = (packet.ip_len(), at.saturating_sub(packet.arrival()));
        let meter = self.meter(packet.class());
        meter.in_packets += 1;
        meter.in_bytes += length;
        meter.sent_packets += 1;
        meter.sent_bytes += length;
        meter.in_segments += u64::from(packet.segments());
        meter.sent_segments += u64::from(packet.segments());
        meter.gave(length, delay);
    }

    /// A packet left the wire.
    pub(crate) fn sent<P: Packet>(&mut self, packet: &P) {
        let meter = self.meter(packet.class());
        meter.sent_packets += 1;
        meter.sent_bytes += packet.ip_len();
        meter.sent_segments += u64::from(packet.segments());
    }

    /// A packet was dropped.
    pub(crate) fn lost<P: Packet>(&mut self, packet: &P, reason: Reason) {
        let meter = self.meter(packet.class());
        meter.dropped[reason.index()] += 1;
        meter.dropped_segments += u64::from(packet.segments());
    }

    fn meter(&mut self, class: Class) -> &mut ClassMeter {
        let index = if class.index() < self.classes.len() { class.index() } else { 0 };
        &mut self.classes[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_difference_of_two_copies() {
        let mut now = Qostat::new(2);
        now.classes[1].delay_sum = Nanos(u64::MAX - 5);
        now.classes[1].delay_max = Nanos::from_millis(70);
        let then = now.clone();
        now.called(0);
        now.called(7);
        let meter = &mut now.classes[1];
        meter.out_packets += 1;
        meter.delay_sum = Nanos(meter.delay_sum.0.wrapping_add(2_000_000));
        meter.delay.record(Nanos::from_millis(2));
        meter.dropped[Reason::QueueFull.index()] += 4;
        let window = now.since(&then);
        assert_eq!(window.calls, [1, 0, 1]);
        assert_eq!(window.class(Class(1)).delay_mean(), Some(Nanos::from_millis(2)));
        assert_eq!(window.class(Class(1)).dropped_packets(), 4);
        // The 70 ms were before the window.
        assert!(window.class(Class(1)).delay_max < Nanos(2_200_000));
        assert_eq!(window.class(Class(0)), &ClassMeter::default());
        assert_eq!(window.class(Class(9)), window.class(Class(0)));
    }
}
