//! CoDel: tells a queue that stands to become short, by dropping at its head.
//!
//! Source: RFC 8289, "Controlled Delay Active Queue Management", section 5.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | TARGET | `AqmConfig::target` | time |
//! | INTERVAL | `AqmConfig::interval` | time |
//! | `first_above_time` | `Codel::first_above` | ticks, 0: the last packet was below the target |
//! | `drop_next` | `Codel::drop_next` | ticks |
//! | `count`, `lastcount` | `Codel::count`, `Codel::last_count` | drops and marks |
//! | `dropping` | `Codel::dropping` | – |
//! | `maxpacket` | `LONGEST_PACKET` | bytes |
//!
//! A queue whose packets have all waited longer than the target for an interval stands: it holds
//! more than a burst that goes away by itself. Then a packet is dropped at its head, and another
//! one an interval / sqrt(count) later, until one has waited less than the target. So TCP, whose
//! rate falls with the square root of its losses, slows down evenly.
//!
//! A packet whose sender listens to marks (ECN) is marked instead, goes, and counts as dropped: so
//! Linux does, RFC 8289 says no more than that it may be.
//!
//! Complexity: constant time per packet; a division and a square root per drop. 16 bytes a queue.
//!
//! Bound: a queue that is below the target once in every interval loses nothing.
//!
//! Differences: times are counted in ticks of 1.024 us and compared modulo 2^32, as Linux does.
//! What lies further ahead than an interval is of an earlier turn of that clock (73 minutes), and
//! counts as due. `count` stops at 65,535: then 256 packets go in an interval.

use core::ops::RangeInclusive;

pub mod blue;
pub mod elastic;

use crate::packet::{Ecn, Packet};
use crate::settings;
use crate::units::{Bytes, Nanos};
use blue::Blue;

/// Valid targets.
pub const TARGET_RANGE: RangeInclusive<u64> = 10_000..=1_000_000_000;
/// Valid intervals.
pub const INTERVAL_RANGE: RangeInclusive<u64> = 100_000..=10_000_000_000;

settings! {
    /// When a queue is told that it stands, and how.
    #[derive(Copy, Eq)]
    pub struct AqmConfig: "" {
        /// The wait of a packet that a queue may keep up: some twentieth of a round trip.
        live target: Nanos = Nanos::from_millis(5), in TARGET_RANGE;
        /// The time in which one packet must have waited less: a long round trip. An interval that
        /// is shorter than two targets counts as two targets.
        live interval: Nanos = Nanos::from_millis(100), in INTERVAL_RANGE;
        /// Marks packets whose senders say that they listen (ECN, RFC 3168) instead of dropping
        /// them.
        live ecn: bool = true;
    }
}

impl AqmConfig {
    /// Target and interval for a queue that needs so long for a packet and a half: no target is
    /// below that.
    #[must_use]
    #[inline]
    pub fn at_least(&self, packets: Nanos) -> Times {
        let target = self.target.max(packets);
        let interval = self.interval.max(Nanos(target.0.saturating_mul(2)));
        Times { target, interval: length(interval), ecn: self.ecn }
    }
}

/// What a queue is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    target: Nanos,
    /// In ticks.
    interval: u32,
    ecn: bool,
}

/// What a queue may hold behind its head without standing: an IP packet of 1500 bytes as it is on
/// the wire.
pub const LONGEST_PACKET: Bytes = Bytes(1_538);

/// 2^10 ns.
const TICK: u32 = 10;
/// So long after it stopped dropping, in intervals, a queue goes on where it was.
const MEMORY: i64 = 16;

/// An instant in ticks, modulo 2^32.
const fn ticks(time: Nanos) -> u32 {
    (time.0 >> TICK) as u32
}

/// A length of time in ticks, at least one.
fn length(time: Nanos) -> u32 {
    u32::try_from(time.0 >> TICK).unwrap_or(u32::MAX / 4).max(1)
}

/// Interval / sqrt(count), in ticks, at least one.
fn spacing(interval: u32, count: u16) -> u32 {
    // The root of count * 2^16, which is 2^8 times that of count.
    let root = (u64::from(count.max(1)) << 16).isqrt();
    ((u64::from(interval) << 8) / root).max(1) as u32
}

/// A packet that was taken from the head of its queue.
#[derive(Debug)]
pub struct Taken<P> {
    /// It.
    pub packet: P,
    /// Bytes that still wait behind it.
    pub left: Bytes,
}

/// What becomes of a packet at the head of its queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It goes.
    Send,
    /// It goes, marked.
    Mark,
    /// It is dropped; the one behind it is judged next, in the same round.
    Drop,
}

/// Where the search for the next packet of a queue is: begun anew for each that is sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Round {
    /// Nothing was dropped yet.
    #[default]
    Begun,
    /// The queue was found to stand, and the packet before was dropped for it.
    Entered,
    /// It stood before, and the packet before was dropped because it was due.
    Due,
}

/// What is remembered of a queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Codel {
    first_above: u32,
    drop_next: u32,
    count: u16,
    last_count: u16,
    dropping: bool,
    /// What BLUE keeps with it.
    pub(crate) blue: Blue,
}

const _: () = assert!(size_of::<Codel>() <= 16);

impl Codel {
    /// Of a queue that never stood.
    pub const NEW: Self = Self {
        first_above: 0,
        drop_next: 0,
        count: 0,
        last_count: 0,
        dropping: false,
        blue: Blue::NEW,
    };

    /// The packet to be sent at `now`. `take` takes the one at the head of the queue, `dropped` is
    /// told those that go instead. A queue with no more than [`LONGEST_PACKET`] behind its head
    /// does not stand.
    pub fn dequeue<P: Packet>(
        &mut self,
        times: &Times,
        now: Nanos,
        mut take: impl FnMut() -> Option<Taken<P>>,
        mut dropped: impl FnMut(P),
    ) -> Option<P> {
        let mut round = Round::default();
        while let Some(Taken { mut packet, left }) = take() {
            let wait = now.saturating_sub(packet.arrival());
            match self.judge(&mut round, times, now, wait, left, packet.ecn()) {
                Verdict::Send => return Some(packet),
                Verdict::Mark => {
                    packet.mark();
                    return Some(packet);
                }
                Verdict::Drop => dropped(packet),
            }
        }
        self.emptied();
        None
    }

    /// What becomes of a packet that has waited for `wait`, with `left` bytes behind it. `round` is
    /// of the search for one packet to be sent.
    #[inline]
    pub fn judge(
        &mut self,
        round: &mut Round,
        times: &Times,
        now: Nanos,
        wait: Nanos,
        left: Bytes,
        ecn: Ecn,
    ) -> Verdict {
        let (at, interval) = (ticks(now), times.interval);
        let below = wait < times.target || left <= LONGEST_PACKET;
        let stands = self.stands(below, at, interval);
        match *round {
            Round::Entered => return Verdict::Send,
            Round::Due => {
                self.dropping = stands;
                if stands {
                    self.drop_next = self.drop_next.wrapping_add(spacing(interval, self.count));
                }
            }
            Round::Begun if self.dropping => self.dropping = stands,
            Round::Begun if stands => {
                self.enter(at, interval);
                *round = Round::Entered;
                return self.told(times, ecn);
            }
            Round::Begun => return Verdict::Send,
        }
        if !self.dropping || !is_due(self.drop_next, at, interval) {
            return Verdict::Send;
        }
        self.count = self.count.saturating_add(1);
        *round = Round::Due;
        let told = self.told(times, ecn);
        if told == Verdict::Mark {
            // The one behind it is judged in the next round.
            self.drop_next = self.drop_next.wrapping_add(spacing(interval, self.count));
        }
        told
    }

    /// How a sender is told.
    fn told(&self, times: &Times, ecn: Ecn) -> Verdict {
        if times.ecn && ecn.listens() { Verdict::Mark } else { Verdict::Drop }
    }

    /// The queue stands from now on.
    fn enter(&mut self, at: u32, interval: u32) {
        self.dropping = true;
        // If it stood until a short while ago, what it took then is where to begin.
        let needed = self.count.saturating_sub(self.last_count);
        let since = at.wrapping_sub(self.drop_next) as i32;
        let lately = i64::from(since) < i64::from(interval) * MEMORY;
        self.count = if needed > 1 && lately { needed } else { 1 };
        self.drop_next = at.wrapping_add(spacing(interval, self.count));
        self.last_count = self.count;
    }

    /// The queue ran empty: what it began to see is forgotten, what it took to make it short is
    /// not.
    #[inline]
    pub fn emptied(&mut self) {
        (self.first_above, self.dropping) = (0, false);
    }

    /// Whether the queue has stood for an interval, with a packet that has waited for less than the
    /// target or not.
    #[inline]
    fn stands(&mut self, below: bool, at: u32, interval: u32) -> bool {
        if below {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            // 0 has a meaning of its own.
            self.first_above = at.wrapping_add(interval).max(1);
            return false;
        }
        is_due(self.first_above, at, interval)
    }
}

/// Whether `due`, which was said to be at most an interval ahead, has come.
fn is_due(due: u32, at: u32, interval: u32) -> bool {
    let ahead = due.wrapping_sub(at);
    ahead == 0 || ahead > interval
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The pseudo-code of RFC 8289, 5.3 to 5.5, word by word, in nanoseconds that never wrap. Only
    /// its root is ours.
    #[derive(Default)]
    struct Literal {
        first_above_time: u64,
        drop_next: u64,
        count: u32,
        lastcount: u32,
        dropping: bool,
    }

    struct Given {
        packet: Option<(u64, u32)>,
        ok_to_drop: bool,
    }

    /// Arrival in nanoseconds, and number.
    type Waiting = VecDeque<(u64, u32)>;

    const LENGTH: u64 = LONGEST_PACKET.0;

    impl Literal {
        fn dodequeue(&mut self, config: &AqmConfig, now: u64, queue: &mut Waiting) -> Given {
            let packet = queue.pop_front();
            let mut ok_to_drop = false;
            match packet {
                None => self.first_above_time = 0,
                Some((arrival, _)) => {
                    let sojourn_time = now - arrival;
                    let bytes = queue.len() as u64 * LENGTH;
                    if sojourn_time < config.target.0 || bytes <= LENGTH {
                        self.first_above_time = 0;
                    } else if self.first_above_time == 0 {
                        self.first_above_time = now + config.interval.0;
                    } else if now >= self.first_above_time {
                        ok_to_drop = true;
                    }
                }
            }
            Given { packet, ok_to_drop }
        }

        fn deque(
            &mut self,
            config: &AqmConfig,
            now: u64,
            queue: &mut Waiting,
            dropped: &mut Vec<u32>,
        ) -> Option<(u64, u32)> {
            let interval = config.interval;
            let root = |count: u32| u64::from(spacing(length(interval), count as u16)) << TICK;
            let control_law = |t: u64, count: u32| t + root(count);
            let mut r = self.dodequeue(config, now, queue);
            if self.dropping {
                if !r.ok_to_drop {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    dropped.extend(r.packet.map(|packet| packet.1));
                    self.count += 1;
                    r = self.dodequeue(config, now, queue);
                    if !r.ok_to_drop {
                        self.dropping = false;
                    } else {
                        self.drop_next = control_law(self.drop_next, self.count);
                    }
                }
            } else if r.ok_to_drop {
                dropped.extend(r.packet.map(|packet| packet.1));
                r = self.dodequeue(config, now, queue);
                self.dropping = true;
                let delta = i64::from(self.count) - i64::from(self.lastcount);
                self.count = 1;
                if delta > 1 && now < self.drop_next + 16 * interval.0 {
                    self.count = delta as u32;
                }
                self.drop_next = control_law(now, self.count);
                self.lastcount = self.count;
            }
            r.packet
        }
    }

    fn ours(
        codel: &mut Codel,
        config: &AqmConfig,
        now: Nanos,
        queue: &mut Waiting,
        dropped: &mut Vec<u32>,
    ) -> Option<(u64, u32)> {
        let (mut round, times) = (Round::default(), config.at_least(Nanos::ZERO));
        while let Some(packet) = queue.pop_front() {
            let left = Bytes(queue.len() as u64 * LENGTH);
            let wait = now.saturating_sub(Nanos(packet.0));
            match codel.judge(&mut round, &times, now, wait, left, Ecn::NotCapable) {
                Verdict::Drop => dropped.push(packet.1),
                Verdict::Send => return Some(packet),
                Verdict::Mark => panic!("nobody listens"),
            }
        }
        codel.emptied();
        None
    }

    /// Phases of loads from nothing to three times the rate, also while the clock of ticks goes
    /// round: packet by packet as the RFC. All times are whole ticks.
    #[test]
    fn it_drops_what_the_rfc_drops() {
        const SERVICE: u64 = 1_200 << TICK;
        let config = AqmConfig {
            target: Nanos(5_000 << TICK),
            interval: Nanos(100_000 << TICK),
            ..AqmConfig::default()
        };
        for start in [1 << TICK, (1 << 42) - (1 << 34), (5 << 42) - (1 << 36)] {
            let (mut literal, mut codel) = (Literal::default(), Codel::NEW);
            let (mut one, mut other) = (Waiting::new(), Waiting::new());
            let (mut lost, mut lost_here) = (Vec::new(), Vec::new());
            let (mut state, mut number, mut load) = (7u64, 0, 0);
            for step in 0..60_000u64 {
                let now = start + step * SERVICE;
                if step % 700 == 0 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                    load = (state >> 60) % 4;
                }
                let burst = if step % 5 == 0 { [0, 4, 6, 15][load as usize] } else { 0 };
                for _ in 0..burst {
                    if one.len() < 2_000 {
                        one.push_back((now, number));
                        other.push_back((now, number));
                        number += 1;
                    }
                }
                let sent = literal.deque(&config, now, &mut one, &mut lost);
                let here = ours(&mut codel, &config, Nanos(now), &mut other, &mut lost_here);
                assert_eq!(sent, here, "{step}");
                assert_eq!(literal.dropping, codel.dropping, "{step}");
            }
            assert!(lost.len() > 500, "{}", lost.len());
            assert_eq!(lost, lost_here);
        }
    }

    #[test]
    fn a_burst_that_goes_away_within_an_interval_loses_nothing() {
        let (config, mut codel) = (AqmConfig::default(), Codel::NEW);
        let mut dropped = Vec::new();
        for burst in 0..200u64 {
            let begin = burst * 120_000_000;
            // 80 packets of 1.2 ms each: the last one waits for 96 ms.
            let mut queue: Waiting = (0..80).map(|n| (begin, n)).collect();
            for n in 0..100 {
                let now = Nanos(begin + n * 1_200_000);
                ours(&mut codel, &config, now, &mut queue, &mut dropped);
            }
        }
        assert_eq!(dropped, [0u32; 0]);
    }

    /// A queue that was dropping when it ran empty, and is used again when the clock of ticks has
    /// gone round, waits for its interval and then drops: neither at once nor an hour later.
    #[test]
    fn an_old_queue_is_as_a_new_one() {
        let config = AqmConfig::default();
        for idle in [60u64, 1_800, 2_200, 3_000, 4_300, 4_398, 4_400, 9_000] {
            let mut codel = Codel::NEW;
            let mut stand = |begin: u64, seconds: u64| {
                let mut queue: Waiting = (0..100_000).map(|n| (begin, n)).collect();
                let mut dropped = Vec::new();
                let first = (0..seconds * 1_000).find(|ms| {
                    let now = Nanos(begin + ms * 1_000_000);
                    ours(&mut codel, &config, now, &mut queue, &mut dropped);
                    !dropped.is_empty()
                });
                // It runs empty.
                queue.truncate(1);
                ours(&mut codel, &config, Nanos(begin + 1), &mut queue, &mut dropped);
                ours(&mut codel, &config, Nanos(begin + 2), &mut queue, &mut dropped);
                first
            };
            assert_eq!(stand(1_000_000_000, 2), Some(105));
            assert_eq!(stand((2 + idle) * 1_000_000_000, 2), Some(105), "after {idle} s");
        }
    }

    /// A sender that listens is told as often as one that does not, and loses nothing.
    #[test]
    fn who_listens_is_marked_where_others_are_dropped() {
        let times = AqmConfig::default().at_least(Nanos::ZERO);
        let told = |ecn: Ecn, ecn_on: bool| {
            let (mut codel, mut marked, mut dropped) = (Codel::NEW, 0, 0);
            let times = Times { ecn: ecn_on, ..times };
            for ms in 0..2_000 {
                let (mut round, wait) = (Round::default(), Nanos::from_millis(20));
                let now = Nanos::from_millis(1_000 + ms);
                loop {
                    match codel.judge(&mut round, &times, now, wait, Bytes(90_000), ecn) {
                        Verdict::Drop => dropped += 1,
                        Verdict::Mark => break marked += 1,
                        Verdict::Send => break,
                    }
                }
            }
            (marked, dropped)
        };
        let (none, drops) = told(Ecn::NotCapable, true);
        let (marks, lost) = told(Ecn::Classic, true);
        assert_eq!((none, lost), (0, 0));
        assert!(drops > 80 && marks > 80 && marks <= drops, "{marks} of {drops}");
        assert_eq!(told(Ecn::Classic, false), (0, drops));
    }

    #[test]
    fn drops_come_closer_with_the_root_of_their_number() {
        let interval = length(Nanos::from_millis(100));
        for count in 1..=u16::MAX {
            let exact = f64::from(interval) / f64::from(count).sqrt();
            assert!((f64::from(spacing(interval, count)) - exact).abs() <= 1.0 + exact / 256.0);
        }
        assert_eq!(spacing(1, u16::MAX), 1);
    }
}
