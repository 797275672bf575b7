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
        /// Packets that waited, added up over time: divided by the time of a window, in
        /// microseconds, it is the mean length of the queue.
        count queue_us: u64, "packets x us";
    }
}

impl ClassCounters {
    /// Where only what left is known.
    #[must_use]
    pub fn of_sent(packets: u64, bytes: Bytes) -> Self {
        Self { sent_packets: packets, sent_bytes: bytes, ..Self::default() }
    }
}

/// What waits of a class between its arrival at the link and the transmit ring, whether the
/// discipline queues by class or not, now and over time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueueMeter {
    /// Packets that wait.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: Bytes,
    /// The most packets that waited at once.
    pub most: u64,
    /// Sum of the instants of leaving less that of the instants of coming, in [ticks](Self::TICK).
    /// It wraps around; what waits, times now, added to it is the area below the queue's length.
    ticks: u64,
}

impl QueueMeter {
    /// log2 of a tick's nanoseconds: an area of a million packets fits for half a year.
    const TICK: u32 = 10;

    #[inline]
    fn enter(&mut self, at: Nanos, length: Bytes) {
        self.packets += 1;
        self.bytes += length;
        self.most = self.most.max(self.packets);
        self.ticks = self.ticks.wrapping_sub(at.0 >> Self::TICK);
    }

    #[inline]
    fn leave(&mut self, at: Nanos, length: Bytes) {
        self.packets -= 1;
        self.bytes = Bytes(self.bytes.0 - length.0);
        self.ticks = self.ticks.wrapping_add(at.0 >> Self::TICK);
    }

    /// The area below the queue's length until `at`, in packets times microseconds.
    fn area_us(&self, at: Nanos) -> u64 {
        let ticks = self.packets.wrapping_mul(at.0 >> Self::TICK).wrapping_add(self.ticks);
        ((u128::from(ticks) << Self::TICK) / 1_000) as u64
    }

    fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.most = self.most.max(other.most);
        self.ticks = self.ticks.wrapping_add(other.ticks);
    }
}

/// What happened to the packets of one class since the start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClassMeter {
    /// Packets and bytes. What is there of the queue is told by [`counts_at`](Self::counts_at).
    pub counts: ClassCounters,
    /// What waits.
    pub queue: QueueMeter,
    /// Packets dropped, by [`Reason::index`].
    pub dropped: [u64; Reason::COUNT],
    /// IP bytes of those that the scheduler had given already.
    lost_behind: Bytes,
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
            queue: QueueMeter::default(),
            dropped: [0; Reason::COUNT],
            lost_behind: Bytes::ZERO,
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
    /// All counts as they are at `at`.
    #[must_use]
    pub fn counts_at(&self, at: Nanos) -> ClassCounters {
        ClassCounters { queue_us: self.queue.area_us(at), ..self.counts }
    }

    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// IP bytes that wait and that are in the ring.
    #[must_use]
    pub fn held_bytes(&self) -> Bytes {
        let behind = self.out_bytes.0 - self.sent_bytes.0 - self.lost_behind.0;
        Bytes(self.queue.bytes.0 + behind)
    }

    /// The scheduler gave a packet that had been in the router for `delay`.
    #[inline]
    fn gave(&mut self, length: Bytes, delay: Nanos) {
        self.out_packets += 1;
        self.out_bytes += length;
        self.delayed(delay);
    }

    /// Packets were given to the link and left at once: by the long way they would have waited for
    /// no time.
    #[inline]
    fn passed(&mut self, packets: u64, bytes: Bytes, segments: u64) {
        self.in_packets += packets;
        self.in_bytes += bytes;
        self.in_segments += segments;
        self.out_packets += packets;
        self.out_bytes += bytes;
        self.sent_packets += packets;
        self.sent_bytes += bytes;
        self.sent_segments += segments;
        self.queue.most = self.queue.most.max(1);
    }

    /// A packet had been in the router for `delay`.
    #[inline]
    fn delayed(&mut self, delay: Nanos) {
        self.delay_sum = Nanos(self.delay_sum.0.wrapping_add(delay.0));
        self.delay_max = self.delay_max.max(delay);
        self.delay.record(delay);
    }

    /// A packet was dropped.
    #[inline]
    fn lost<P: Packet>(&mut self, packet: &P, reason: Reason) {
        self.dropped[reason.index()] += 1;
        self.dropped_segments += u64::from(packet.segments());
    }

    /// Mean transit delay; `None` if nothing was given out.
    #[must_use]
    pub fn delay_mean(&self) -> Option<Nanos> {
        self.delay_sum.0.checked_div(self.out_packets).map(Nanos)
    }

    /// Counts what `other` has counted too: of packets that this meter has not seen.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.queue.merge(&other.queue);
        self.dropped.add(&other.dropped);
        self.lost_behind += other.lost_behind;
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
            queue: self.queue,
            dropped: self.dropped.since(&earlier.dropped),
            lost_behind: self.lost_behind.since(&earlier.lost_behind),
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
    #[inline]
    pub(crate) fn came<P: Packet>(&mut self, at: Nanos, packet: &P) {
        let length = packet.ip_len();
        let meter = self.meter(packet.class());
        meter.queue.enter(at, length);
        meter.in_packets += 1;
        meter.in_bytes += length;
        meter.in_segments += u64::from(packet.segments());
    }

    /// The scheduler is about to be called with `busy` queues that have packets.
    #[inline]
    pub(crate) fn called(&mut self, busy: usize) {
        self.calls[busy.min(2)] += 1;
    }

    /// The scheduler gave a packet.
    #[inline]
    pub(crate) fn given<P: Packet>(&mut self, at: Nanos, packet: &P) {
        let (length, delay) = (packet.ip_len(), at.saturating_sub(packet.arrival()));
        let meter = self.meter(packet.class());
        meter.queue.leave(at, length);
        meter.gave(length, delay);
        meter.marked_packets += u64::from(packet.is_marked());
    }

    /// A packet was given to the link, found its queue alone with packets, and left at once.
    #[inline]
    pub(crate) fn passed<P: Packet>(&mut self, at: Nanos, packet: &P) {
        self.called(1);
        let (length, delay) = (packet.ip_len(), at.saturating_sub(packet.arrival()));
        let meter = self.meter(packet.class());
        meter.passed(1, length, packet.segments().into());
        meter.delayed(delay);
    }

    /// So many packets of a class, each one frame on the wire, were given to the link as one before
    /// them that had [passed](Self::passed), and left as soon as they came.
    pub(crate) fn passed_in_run(&mut self, class: Class, packets: u64, bytes: Bytes) {
        self.calls[0] += packets;
        self.calls[1] += packets;
        let meter = self.meter(class);
        meter.passed(packets, bytes, packets);
        meter.delay.record_many(Nanos::ZERO, packets);
    }

    /// A packet left the wire.
    #[inline]
    pub(crate) fn sent<P: Packet>(&mut self, packet: &P) {
        let meter = self.meter(packet.class());
        meter.sent_packets += 1;
        meter.sent_bytes += packet.ip_len();
        meter.sent_segments += u64::from(packet.segments());
    }

    /// A packet that waited was dropped.
    #[inline]
    pub(crate) fn lost<P: Packet>(&mut self, at: Nanos, packet: &P, reason: Reason) {
        let meter = self.meter(packet.class());
        meter.queue.leave(at, packet.ip_len());
        meter.lost(packet, reason);
    }

    /// A packet that the scheduler had given already was dropped: it lay in the ring.
    pub(crate) fn lost_behind<P: Packet>(&mut self, packet: &P, reason: Reason) {
        let meter = self.meter(packet.class());
        meter.lost_behind += packet.ip_len();
        meter.lost(packet, reason);
    }

    #[inline]
    fn meter(&mut self, class: Class) -> &mut ClassMeter {
        // Looked at once, and without a choice to wait for.
        let index = class.index();
        if index < self.classes.len() { &mut self.classes[index] } else { &mut self.classes[0] }
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

    /// Two packets wait from 1 ms and 2 ms on, one leaves at 4 ms: 1 ms of one, 2 ms of two, then
    /// one again; and as much whenever the router began to count.
    #[test]
    fn what_waits_is_added_up_over_time() {
        for start in [Nanos::ZERO, Nanos(u64::MAX / 1_000 * 999)] {
            let at = |ms| start + Nanos::from_millis(ms);
            let mut queue = QueueMeter::default();
            queue.enter(at(1), Bytes(100));
            queue.enter(at(2), Bytes(50));
            assert!(queue.area_us(at(3)).abs_diff(3_000) < 8, "{queue:?}");
            queue.leave(at(4), Bytes(100));
            assert!(queue.area_us(at(9)).abs_diff(10_000) < 8, "{queue:?}");
            assert_eq!((queue.packets, queue.bytes, queue.most), (1, Bytes(50), 2));
            queue.leave(at(9), Bytes(50));
            assert_eq!(queue.area_us(at(9)), queue.area_us(at(90)));
        }
    }
}
