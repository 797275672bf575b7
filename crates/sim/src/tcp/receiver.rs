//! The end that receives data and acknowledges it.

use evenkeel_core::Nanos;

use super::alarm::Alarm;
use super::segment::{Codepoint, Flags, SACK_BLOCKS, STAMP, Segment};

/// What the receiving end offers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiverConfig {
    /// Largest segment, options not counted, as it is told to the other end.
    pub mss: u16,
    /// Bytes it takes ahead of what is missing, up to 1 GiB. Nothing is stored: this bounds the
    /// sender's window only.
    pub buffer: u32,
    /// How long a single segment waits for a second before it is acknowledged, RFC 5681: 500 ms at
    /// most. `None`: each is acknowledged at once.
    pub delayed_ack: Option<Nanos>,
    /// Initial sequence number.
    pub isn: u32,
    /// How marks are told.
    pub echo: EcnEcho,
}

/// How a receiver tells the sender of packets that came marked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EcnEcho {
    /// Not at all: ECN is not agreed upon.
    #[default]
    No,
    /// In each acknowledgement until the sender says that it has reduced its window (RFC 3168,
    /// 6.1.3).
    UntilReduced,
    /// Each mark for itself: an acknowledgement is of marked segments or of others (RFC 8257, 3.2).
    Each,
}

impl Default for ReceiverConfig {
    /// 1460 bytes, 6 MiB and 40 ms, as in Linux; no ECN.
    fn default() -> Self {
        Self {
            mss: 1460,
            buffer: 6 << 20,
            delayed_ack: Some(Nanos::from_millis(40)),
            isn: 0,
            echo: EcnEcho::No,
        }
    }
}

/// Data beyond a gap, in offsets from the first byte of the connection.
#[derive(Clone, Copy, Debug)]
struct Island {
    left: u64,
    right: u64,
    /// When something was last added, in segments received: newest are told first (RFC 2018, 4).
    touched: u64,
}

/// The receiving end of a connection, without a clock and without addresses.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    shift: u8,
    /// The sender's initial sequence number; `None` before its SYN.
    peer_isn: Option<u32>,
    opened: bool,
    /// Bytes received without a gap.
    next: u64,
    islands: Vec<Island>,
    received: u64,
    /// Time stamp to be echoed (RFC 7323, 4.3), and how far the last acknowledgement went.
    echo: u32,
    acknowledged: u64,
    /// Acknowledgements owed now, and when one is owed.
    owed: u32,
    due: Alarm,
    /// Bytes of full segments not yet acknowledged.
    waiting: u32,
    /// Both ends want ECN, and what acknowledgements say of it.
    ecn: bool,
    marked: bool,
    /// An acknowledgement of what came before the marks changed.
    before: Option<Segment>,
}

impl Receiver {
    /// Listens.
    #[must_use]
    pub fn new(config: ReceiverConfig) -> Self {
        let buffer = config.buffer.clamp(u32::from(config.mss), 1 << 30);
        let shift = (32 - (buffer >> 16).leading_zeros()) as u8;
        Self {
            config: ReceiverConfig { buffer, ..config },
            shift,
            peer_isn: None,
            opened: false,
            next: 0,
            islands: Vec::new(),
            received: 0,
            echo: 0,
            acknowledged: 0,
            owed: 0,
            due: Alarm::default(),
            waiting: 0,
            ecn: false,
            marked: false,
            before: None,
        }
    }

    /// Bytes received without a gap.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.next
    }

    /// Takes a segment of the sender.
    pub fn receive(&mut self, now: Nanos, segment: &Segment) {
        if segment.flags.has(Flags::SYN) {
            self.peer_isn = Some(segment.seq);
            self.echo = segment.stamp.0;
            self.opened = false;
            self.owed = 1;
            self.ecn =
                self.config.echo != EcnEcho::No && segment.flags.has(Flags::ECE.and(Flags::CWR));
            return;
        }
        let Some(isn) = self.peer_isn else { return };
        if !segment.flags.has(Flags::ACK) || segment.ack == self.config.isn {
            return;
        }
        self.opened = true;
        // The offset nearest to what is expected.
        let expected = (isn.wrapping_add(1)).wrapping_add(self.next as u32);
        let left = self.next as i64 + i64::from(segment.seq.wrapping_sub(expected) as i32);
        let Ok(left) = u64::try_from(left) else { return };
        if left <= self.acknowledged {
            self.echo = segment.stamp.0;
        }
        if segment.payload == 0 {
            return;
        }
        self.received += 1;
        if self.ecn {
            self.note_mark(now, segment);
        }
        let right = left + u64::from(segment.payload);
        if right <= self.next || right > self.next + u64::from(self.config.buffer) {
            self.owed += 1;
        } else if left > self.next {
            self.insert(left, right);
            self.owed += 1;
        } else {
            let gap = !self.islands.is_empty();
            self.next = right;
            self.islands.retain(|island| {
                if island.left <= self.next {
                    self.next = self.next.max(island.right);
                }
                island.left > self.next
            });
            self.waiting += segment.payload;
            let two = self.waiting >= 2 * (u32::from(self.config.mss) - STAMP as u32);
            match self.config.delayed_ack {
                // With its last bytes a sender closes: the FIN, which nobody else needs here, is
                // acknowledged at once.
                Some(delay) if !gap && !two && !segment.flags.has(Flags::PSH) => {
                    if !self.due.is_set() {
                        self.due.set(now.saturating_add(delay));
                    }
                }
                _ => self.owed = self.owed.max(1),
            }
        }
    }

    /// What acknowledgements say of marks from this segment on.
    fn note_mark(&mut self, now: Nanos, segment: &Segment) {
        let is_marked = segment.ecn == Codepoint::Ce;
        match self.config.echo {
            EcnEcho::No => {}
            EcnEcho::UntilReduced => {
                self.marked = is_marked || (self.marked && !segment.flags.has(Flags::CWR));
            }
            EcnEcho::Each => {
                if is_marked != self.marked && self.waiting > 0 {
                    self.before = self.acknowledgement(now);
                }
                self.marked = is_marked;
            }
        }
    }

    /// Joins new data beyond a gap with what it touches.
    fn insert(&mut self, left: u64, right: u64) {
        let from = self.islands.partition_point(|island| island.right < left);
        let to = from + self.islands[from..].partition_point(|island| island.left <= right);
        let mut joined = Island { left, right, touched: self.received };
        for island in &self.islands[from..to] {
            joined.left = joined.left.min(island.left);
            joined.right = joined.right.max(island.right);
        }
        self.islands.splice(from..to, [joined]);
    }

    /// What is to be sent now: call until `None`, after each [`receive`](Self::receive) and when
    /// [`next_wake`](Self::next_wake) is due.
    pub fn transmit(&mut self, now: Nanos) -> Option<Segment> {
        if self.due.runs_off(now) {
            self.owed = self.owed.max(1);
        }
        if let Some(before) = self.before.take() {
            return Some(before);
        }
        self.owed = self.owed.checked_sub(1)?;
        self.acknowledgement(now)
    }

    /// Of all that has come.
    fn acknowledgement(&mut self, now: Nanos) -> Option<Segment> {
        let isn = self.peer_isn?;
        self.due.clear();
        self.waiting = 0;
        self.acknowledged = self.next;
        let first = isn.wrapping_add(1);
        let mut segment = Segment {
            seq: self.config.isn.wrapping_add(1),
            ack: first.wrapping_add(self.next as u32),
            flags: Flags::ACK,
            window: (self.config.buffer >> self.shift).min(0xffff) as u16,
            stamp: ((now.0 / 1_000) as u32, self.echo),
            ..Segment::default()
        };
        if !self.opened {
            segment.seq = self.config.isn;
            segment.flags = Flags::ACK.and(Flags::SYN);
            segment.window = self.config.buffer.min(0xffff) as u16;
            segment.opening = Some((self.config.mss, self.shift));
            if self.ecn {
                segment.flags = segment.flags.and(Flags::ECE);
            }
        } else if self.marked {
            segment.flags = segment.flags.and(Flags::ECE);
        }
        self.newest(|slot, island| {
            segment.sack[slot] = Some((
                first.wrapping_add(island.left as u32),
                first.wrapping_add(island.right as u32),
            ));
        });
        Some(segment)
    }

    /// The islands touched last, newest first.
    fn newest(&self, mut tell: impl FnMut(usize, &Island)) {
        let mut below = u64::MAX;
        for slot in 0..SACK_BLOCKS {
            let island =
                self.islands.iter().filter(|i| i.touched < below).max_by_key(|i| i.touched);
            let Some(island) = island else { return };
            below = island.touched;
            tell(slot, island);
        }
    }

    /// When [`transmit`](Self::transmit) is to be called although nothing arrives.
    #[must_use]
    pub const fn next_wake(&self) -> Option<Nanos> {
        self.due.call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(seq: u32, payload: u32, stamp: u32) -> Segment {
        Segment { seq, ack: 1, flags: Flags::ACK, payload, stamp: (stamp, 0), ..Segment::default() }
    }

    /// A connection whose first byte has sequence number 0: the SYN had the one before.
    fn opened() -> Receiver {
        echoing(EcnEcho::No)
    }

    fn echoing(echo: EcnEcho) -> Receiver {
        let mut receiver =
            Receiver::new(ReceiverConfig { mss: 1_012, echo, ..ReceiverConfig::default() });
        let syn = Segment {
            seq: u32::MAX,
            flags: Flags::SYN.and(Flags::ECE).and(Flags::CWR),
            opening: Some((1_012, 7)),
            ..data(0, 0, 0)
        };
        receiver.receive(Nanos::ZERO, &syn);
        let answer = receiver.transmit(Nanos::ZERO).expect("a SYN is answered");
        assert!(answer.flags.has(Flags::SYN) && answer.flags.has(Flags::ACK));
        assert_eq!(answer.flags.has(Flags::ECE), echo != EcnEcho::No);
        assert_eq!((answer.ack, answer.opening), (0, Some((1_012, 7))));
        assert_eq!(receiver.transmit(Nanos::ZERO), None);
        receiver
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_single_one_after_a_while() {
        let mut receiver = opened();
        receiver.receive(Nanos(1), &data(0, 1_000, 5));
        assert_eq!(receiver.transmit(Nanos(1)), None);
        receiver.receive(Nanos(2), &data(1_000, 1_000, 6));
        let ack = receiver.transmit(Nanos(2)).expect("two segments");
        assert_eq!(
            (ack.ack, ack.stamp.1),
            (2_000, 5),
            "the echo is that of the first segment not yet acknowledged"
        );
        receiver.receive(Nanos(3), &data(2_000, 1_000, 7));
        let call = receiver.next_wake().expect("the first segment asked for it");
        assert_eq!(receiver.transmit(call), None);
        let due = receiver.next_wake().expect("it owes one");
        assert_eq!(due, Nanos(3) + Nanos::from_millis(40));
        assert_eq!(receiver.transmit(due).expect("it is due").ack, 3_000);
        assert_eq!(receiver.transmit(Nanos::SECOND), None);
        assert_eq!(receiver.next_wake(), None);
        // The last bytes of all do not wait.
        let last = Segment { flags: Flags::ACK.and(Flags::PSH), ..data(3_000, 50, 8) };
        receiver.receive(Nanos::SECOND, &last);
        assert_eq!(receiver.transmit(Nanos::SECOND).expect("at once").ack, 3_050);
    }

    /// What each segment of a thousand bytes, marked or not, is answered with.
    fn answers(receiver: &mut Receiver, seq: u32, marked: bool, flags: Flags) -> Vec<(u32, bool)> {
        let ecn = if marked { Codepoint::Ce } else { Codepoint::Ect0 };
        let segment = data(seq, 1_000, 5);
        let flags = segment.flags.and(flags);
        receiver.receive(Nanos(1), &Segment { ecn, flags, ..segment });
        let acks = core::iter::from_fn(|| receiver.transmit(Nanos(1)));
        acks.map(|ack| (ack.ack, ack.flags.has(Flags::ECE))).collect()
    }

    #[test]
    fn marks_are_told_until_the_sender_says_that_it_has_given_way() {
        let mut receiver = echoing(EcnEcho::UntilReduced);
        let none = Flags::default();
        assert_eq!(answers(&mut receiver, 0, true, none), []);
        assert_eq!(answers(&mut receiver, 1_000, false, none), [(2_000, true)]);
        answers(&mut receiver, 2_000, false, none);
        assert_eq!(answers(&mut receiver, 3_000, false, none), [(4_000, true)], "still");
        answers(&mut receiver, 4_000, false, Flags::CWR);
        assert_eq!(answers(&mut receiver, 5_000, false, none), [(6_000, false)]);
        answers(&mut receiver, 6_000, false, none);
        let again = answers(&mut receiver, 7_000, true, Flags::CWR);
        assert_eq!(again, [(8_000, true)], "a mark beside the answer to the last one is new");
    }

    #[test]
    fn each_mark_is_told_for_itself() {
        let mut receiver = echoing(EcnEcho::Each);
        let none = Flags::default();
        assert_eq!(answers(&mut receiver, 0, false, none), []);
        let change = answers(&mut receiver, 1_000, true, none);
        assert_eq!(change, [(1_000, false)], "what came before the mark is acknowledged without");
        assert_eq!(answers(&mut receiver, 2_000, true, none), [(3_000, true)]);
        assert_eq!(answers(&mut receiver, 3_000, false, none), []);
        assert_eq!(answers(&mut receiver, 4_000, false, none), [(5_000, false)]);
    }

    #[test]
    fn gaps_are_told_newest_first_and_at_once() {
        let mut receiver = opened();
        let mut after = |seq: u32| {
            receiver.receive(Nanos(1), &data(seq, 1_000, 5));
            receiver.transmit(Nanos(1)).map(|ack| (ack.ack, ack.sack))
        };
        assert_eq!(after(2_000), Some((0, [Some((2_000, 3_000)), None, None])));
        assert_eq!(after(4_000), Some((0, [Some((4_000, 5_000)), Some((2_000, 3_000)), None])));
        assert_eq!(after(1_000), Some((0, [Some((1_000, 3_000)), Some((4_000, 5_000)), None])));
        assert_eq!(
            after(0),
            Some((3_000, [Some((4_000, 5_000)), None, None])),
            "a gap filled is told at once"
        );
        assert_eq!(after(3_000), Some((5_000, [None; 3])));
        assert_eq!(after(3_000), Some((5_000, [None; 3])), "a repetition is told at once");
        assert_eq!(receiver.delivered(), 5_000);
    }
}
