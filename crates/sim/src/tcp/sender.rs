//! The end that sends data.
//!
//! Recovery as RFC 6675 has it: at the first sign of a loss the window is reduced once, and until
//! all that was in flight then has arrived, segments go out as `pipe` falls below the window: lost
//! ones first, then new ones, then doubtful ones. Until then a selective acknowledgement lets a new
//! segment out (limited transmit, RFC 3042, falls out of counting the pipe).

use evenkeel_core::Nanos;

use super::alarm::Alarm;
use super::congestion::{Congestion, Window};
use super::rtt::RttEstimator;
use super::scoreboard::Scoreboard;
use super::segment::{Codepoint, Flags, STAMP, Segment};

/// What the sending end does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SenderConfig {
    /// Largest segment, options not counted; the other end may ask for less.
    pub mss: u16,
    /// Congestion control.
    pub congestion: Congestion,
    /// Payload to send; `None`: without end.
    pub bytes: Option<u64>,
    /// By how much a retransmission time-out is longer than the round-trip time at least: G of
    /// RFC 6298.
    pub rto_margin: Nanos,
    /// Initial sequence number.
    pub isn: u32,
    /// What new data is sent with once ECN is agreed upon; not asked for with
    /// [`Codepoint::NotEct`].
    pub ecn: Codepoint,
}

impl Default for SenderConfig {
    /// 1460 bytes, CUBIC, without end, 200 ms as in Linux; no ECN.
    fn default() -> Self {
        Self {
            mss: 1460,
            congestion: Congestion::Cubic { fast_convergence: true },
            bytes: None,
            rto_margin: Nanos::from_millis(200),
            isn: 0,
            ecn: Codepoint::NotEct,
        }
    }
}

/// What a sender has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SenderCounts {
    /// Segments with payload, those sent again included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Times the window was reduced, once per window of data at most: loss events (RFC 5348, 5.2).
    pub reductions: u64,
    /// Those of them because of marks.
    pub marked: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Closed,
    /// The SYN is to be sent, or has been.
    Opening {
        sent: bool,
    },
    /// Nothing is known to be missing.
    Open,
    /// Making good what was lost before `until` (a segment's number).
    Recovery {
        until: u64,
    },
    /// The same after a time-out.
    Timeout {
        until: u64,
    },
}

/// The sending end of a connection, without a clock and without addresses.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    phase: Phase,
    /// Payload of a full segment.
    payload: u64,
    board: Scoreboard,
    window: Window,
    rtt: RttEstimator,
    peer_isn: u32,
    peer_shift: u8,
    /// Bytes acknowledged, and one after the last that the other end takes.
    una: u64,
    limit: u64,
    echo: u32,
    /// The retransmission timer.
    timer: Alarm,
    /// Whether the window was what ended the last burst.
    held_back: bool,
    /// An acknowledgement without payload is owed: the third of the handshake.
    answer: bool,
    /// On entering recovery the first lost segment goes out whatever the pipe is (RFC 6675,
    /// 5, 4.3).
    at_once: bool,
    total: u64,
    counts: SenderCounts,
    ecn: Ecn,
}

/// What a sender knows of marks.
#[derive(Clone, Copy, Debug, Default)]
struct Ecn {
    agreed: bool,
    /// Marks told of until this segment's number is acknowledged are of the same window of data.
    until: u64,
    /// The next new data says that the window was reduced.
    say: bool,
    /// A round trip ends when this one is acknowledged.
    round: u64,
}

impl Sender {
    /// Not yet connected: see [`open`](Self::open).
    #[must_use]
    pub fn new(config: SenderConfig) -> Self {
        let payload = u32::from(config.mss).saturating_sub(STAMP as u32).max(1);
        Self {
            config,
            phase: Phase::Closed,
            payload: u64::from(payload),
            board: Scoreboard::default(),
            window: Window::new(config.congestion, payload),
            rtt: RttEstimator::new(config.rto_margin),
            peer_isn: 0,
            peer_shift: 0,
            una: 0,
            limit: 0,
            echo: 0,
            timer: Alarm::default(),
            held_back: false,
            answer: false,
            at_once: false,
            total: config.bytes.unwrap_or(u64::MAX),
            counts: SenderCounts::default(),
            ecn: Ecn::default(),
        }
    }

    /// Begins: then call [`transmit`](Self::transmit).
    pub fn open(&mut self) {
        if self.phase == Phase::Closed {
            self.phase = Phase::Opening { sent: false };
        }
    }

    /// Nothing new is sent from now on.
    pub fn stop(&mut self) {
        self.total = self.total.min(self.board.end().saturating_mul(self.payload));
    }

    /// Whether everything has been sent and acknowledged.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !matches!(self.phase, Phase::Closed) && self.una >= self.total
    }

    /// Bytes acknowledged.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.una
    }

    /// What it has done.
    #[must_use]
    pub const fn counts(&self) -> SenderCounts {
        self.counts
    }

    /// The congestion window in bytes.
    #[must_use]
    pub const fn cwnd(&self) -> u64 {
        self.window.bytes()
    }

    /// Smoothed round-trip time; `None` before it was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Nanos> {
        Some(self.rtt.smoothed()).filter(|rtt| *rtt > Nanos::ZERO)
    }

    /// How long all round trips that were measured took together, and how many they are.
    #[must_use]
    pub const fn round_trips(&self) -> (Nanos, u64) {
        self.rtt.all()
    }

    /// Whether the other end has answered.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Closed | Phase::Opening { .. })
    }

    /// Takes a segment of the receiver.
    pub fn receive(&mut self, now: Nanos, segment: &Segment) {
        if !segment.flags.has(Flags::ACK) {
            return;
        }
        if segment.flags.has(Flags::SYN) {
            self.opened(now, segment);
            return;
        }
        if matches!(self.phase, Phase::Closed | Phase::Opening { .. }) {
            return;
        }
        self.echo = segment.stamp.0;
        let ahead = segment.ack.wrapping_sub(self.wire(self.una)) as i32;
        let Ok(acked) = u64::try_from(ahead) else { return };
        let end = self.offset(self.board.end());
        if self.una + acked > end {
            return;
        }
        self.limit =
            self.limit.max(self.una + acked + (u64::from(segment.window) << self.peer_shift));
        if acked > 0 {
            self.rtt.sample(elapsed(now, segment.stamp.1));
            self.una += acked;
            // The last segment may be short: it is acknowledged with its last byte.
            self.board.advance(self.una.div_ceil(self.payload));
            self.timer.clear();
            if self.board.flight() > 0 {
                self.timer.set(now.saturating_add(self.rtt.timeout()));
            }
        }
        let base = self.una;
        let blocks = segment.sack.map(|block| {
            let (left, right) = block?;
            let number = |at: u32| {
                let ahead = u64::from(at.wrapping_sub(self.wire(base)));
                (ahead < 1 << 31).then_some(base + ahead)
            };
            Some((number(left)?.div_ceil(self.payload), number(right)?.div_ceil(self.payload)))
        });
        self.board.sack(blocks);
        let reduced = self.ecn.agreed && self.mind_marks(acked, segment.flags.has(Flags::ECE));
        self.judge(now, acked, reduced);
    }

    /// What marks mean for the window. Whether it was reduced for them and is not to grow.
    fn mind_marks(&mut self, acked: u64, marked: bool) -> bool {
        let round = self.una >= self.offset(self.ecn.round);
        self.window.told(acked, marked, round);
        if round {
            self.ecn.round = self.board.end();
        }
        // What has told the other end of the reduction must have come there, too.
        let again = self.una <= self.offset(self.ecn.until);
        if marked && !again {
            self.ecn.until = self.board.end();
            self.ecn.say = true;
            // While what is lost is made good the window has been reduced already.
            if self.phase == Phase::Open {
                let flight = self.board.flight() * self.payload + acked;
                self.window.marked(flight.min(self.window.bytes()));
                self.counts.reductions += 1;
                self.counts.marked += 1;
            }
        }
        marked || (again && !self.window.grows_between_marks())
    }

    /// What an acknowledgement means for the window.
    fn judge(&mut self, now: Nanos, acked: u64, reduced: bool) {
        match self.phase {
            Phase::Recovery { until } | Phase::Timeout { until }
                if self.una >= self.offset(until) =>
            {
                self.phase = Phase::Open;
            }
            Phase::Recovery { .. } => return,
            Phase::Timeout { .. } => {
                // Slow start while what was lost is sent again.
                self.window.acknowledged(now, acked, self.rtt.smoothed());
                return;
            }
            _ => {}
        }
        if self.board.has_losses() {
            // Segments that limited transmit let out do not count (RFC 5681, 3.2).
            let flight = (self.board.flight() * self.payload).min(self.window.bytes());
            self.window.lost(flight);
            self.counts.reductions += 1;
            self.phase = Phase::Recovery { until: self.board.end() };
            self.at_once = true;
        } else if acked > 0 && self.held_back && !reduced {
            self.window.acknowledged(now, acked, self.rtt.smoothed());
        }
    }

    fn opened(&mut self, now: Nanos, segment: &Segment) {
        self.answer = true;
        self.echo = segment.stamp.0;
        if !matches!(self.phase, Phase::Opening { sent: true }) || segment.ack != self.wire(0) {
            return;
        }
        self.peer_isn = segment.seq;
        self.ecn.agreed = self.config.ecn != Codepoint::NotEct && segment.flags.has(Flags::ECE);
        if let Some((mss, shift)) = segment.opening {
            let payload = u32::from(mss.min(self.config.mss)).saturating_sub(STAMP as u32).max(1);
            self.payload = u64::from(payload);
            self.window = Window::new(self.config.congestion, payload);
            self.peer_shift = shift;
        }
        self.rtt.sample(elapsed(now, segment.stamp.1));
        self.limit = u64::from(segment.window);
        self.phase = Phase::Open;
        self.timer.clear();
    }

    /// What is to be sent now: call until `None`, after each [`receive`](Self::receive) and when
    /// [`next_wake`](Self::next_wake) is due.
    pub fn transmit(&mut self, now: Nanos) -> Option<Segment> {
        if self.timer.runs_off(now) {
            self.time_out();
        }
        match self.phase {
            Phase::Closed | Phase::Opening { sent: true } => None,
            Phase::Opening { sent: false } => {
                self.phase = Phase::Opening { sent: true };
                self.timer.set(now.saturating_add(self.rtt.timeout()));
                let ask = self.config.ecn != Codepoint::NotEct;
                let ecn = if ask { Flags::ECE.and(Flags::CWR) } else { Flags::default() };
                Some(Segment {
                    seq: self.config.isn,
                    flags: Flags::SYN.and(ecn),
                    window: u16::MAX,
                    stamp: (stamp(now), 0),
                    opening: Some((self.config.mss, 0)),
                    ..Segment::default()
                })
            }
            Phase::Open | Phase::Recovery { .. } | Phase::Timeout { .. } => {
                let new = self.board.end();
                match self.next_segment() {
                    Some(number) => Some(self.data(now, number, number == new)),
                    None => core::mem::take(&mut self.answer)
                        .then(|| self.header(now, self.board.end())),
                }
            }
        }
    }

    /// NextSeg(): the number of the segment to be sent now.
    fn next_segment(&mut self) -> Option<u64> {
        let room = (self.board.pipe() + 1) * self.payload <= self.window.bytes();
        if (core::mem::take(&mut self.at_once) || room)
            && let Some(number) = self.board.resend_lost()
        {
            self.counts.retransmitted += 1;
            return Some(number);
        }
        self.held_back = !room;
        if !room {
            return None;
        }
        let next = self.board.end();
        let left = self.offset(next);
        if left < self.total && (left + self.payload).min(self.total) <= self.limit {
            self.board.push();
            return Some(next);
        }
        if matches!(self.phase, Phase::Recovery { .. }) {
            let number = self.board.resend_doubtful()?;
            self.counts.retransmitted += 1;
            return Some(number);
        }
        None
    }

    fn data(&mut self, now: Nanos, number: u64, new: bool) -> Segment {
        self.answer = false;
        self.counts.segments += 1;
        if !self.timer.is_set() {
            self.timer.set(now.saturating_add(self.rtt.timeout()));
        }
        let left = self.offset(number);
        let payload = (self.total - left).min(self.payload);
        let mut segment = self.header(now, number);
        segment.payload = payload as u32;
        if left + payload == self.total {
            segment.flags = segment.flags.and(Flags::PSH);
        }
        // Not what is sent again (RFC 3168, 6.1.5).
        if self.ecn.agreed && new {
            segment.ecn = self.config.ecn;
            if core::mem::take(&mut self.ecn.say) {
                segment.flags = segment.flags.and(Flags::CWR);
            }
        }
        segment
    }

    fn header(&self, now: Nanos, number: u64) -> Segment {
        Segment {
            seq: self.wire(self.offset(number)),
            ack: self.peer_isn.wrapping_add(1),
            flags: Flags::ACK,
            window: u16::MAX,
            stamp: (stamp(now), self.echo),
            ..Segment::default()
        }
    }

    fn time_out(&mut self) {
        self.counts.timeouts += 1;
        let first = !self.rtt.is_backed_off();
        self.rtt.back_off();
        if let Phase::Opening { sent } = &mut self.phase {
            *sent = false;
            return;
        }
        let flight = (self.board.flight() * self.payload).min(self.window.bytes());
        self.window.timed_out(flight, first);
        self.counts.reductions += u64::from(first);
        self.board.lose_all();
        self.phase = Phase::Timeout { until: self.board.end() };
    }

    /// When [`transmit`](Self::transmit) is to be called although nothing arrives.
    #[must_use]
    pub const fn next_wake(&self) -> Option<Nanos> {
        self.timer.call()
    }

    /// First byte of a segment; the end of data for the one after the last.
    fn offset(&self, number: u64) -> u64 {
        number.saturating_mul(self.payload).min(self.total)
    }

    fn wire(&self, offset: u64) -> u32 {
        self.config.isn.wrapping_add(1).wrapping_add(offset as u32)
    }
}

/// The time stamp clock: microseconds.
fn stamp(now: Nanos) -> u32 {
    (now.0 / 1_000) as u32
}

/// Since a time stamp was taken, which was less than an hour ago.
fn elapsed(now: Nanos, then: u32) -> Nanos {
    Nanos::from_micros(u64::from(stamp(now).wrapping_sub(then)))
}
