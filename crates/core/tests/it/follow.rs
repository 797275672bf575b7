//! A rate that follows its line: the law on a line of packets whose rate changes, and on nonsense.

use std::collections::VecDeque;

use evenkeel_core::control::follow::{Did, Follow, FollowConfig, Way, Why};
use evenkeel_core::measure::round_trips::RoundTrip;
use evenkeel_core::{BitRate, Bytes, Nanos};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const PACKET: u64 = 1_538;

fn config() -> FollowConfig {
    FollowConfig {
        min: BitRate::from_mbps(2),
        max: BitRate::from_mbps(50),
        ..FollowConfig::default()
    }
}

/// A line behind a link that always has something to send, 30 ms there and back.
struct Line {
    law: Follow,
    /// Whether somebody tells what comes back.
    told: bool,
    /// Of the time, what the link sends in, in percent.
    load: u64,
    now: Nanos,
    free: Nanos,
    sent: u64,
    idle: Nanos,
    under_way: VecDeque<(Nanos, RoundTrip)>,
    dice: u64,
}

impl Line {
    fn new(on: bool, rate: BitRate) -> Self {
        let law = Follow::new(config(), Way::Out, on, Nanos::ZERO, rate, Did::default()).unwrap();
        Self {
            law,
            told: true,
            load: 100,
            now: Nanos::ZERO,
            free: Nanos::ZERO,
            sent: 0,
            idle: Nanos::ZERO,
            under_way: VecDeque::new(),
            dice: 1,
        }
    }

    /// Up to 4 ms, at random.
    fn jitter(&mut self) -> Nanos {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Nanos((self.dice >> 33) % (4 * MS))
    }

    /// The line carries so much for so many seconds. By second: the longest wait, and the mean rate
    /// of the link.
    fn carries(&mut self, mbps: u64, seconds: u64) -> Vec<(Nanos, u64)> {
        let line = BitRate::from_mbps(mbps);
        let mut told = Vec::new();
        for _ in 0..seconds {
            let (end, before) = (self.now + Nanos::SECOND, self.sent);
            let mut longest = Nanos::ZERO;
            while self.now < end {
                let wait = self.free.saturating_sub(self.now);
                longest = longest.max(wait);
                self.free = self.free.max(self.now) + line.time_for(Bytes(PACKET));
                let above = wait + self.jitter();
                let back = self.now + above + Nanos(30 * MS);
                let rtt = back - self.now;
                let trip = RoundTrip {
                    host: self.sent / PACKET % 2,
                    sent: self.now,
                    rtt,
                    above: Some(above),
                    bytes: self.sent,
                    late: false,
                };
                self.under_way.push_back((back, trip));
                self.sent += PACKET;
                let own = self.law.rate().time_for(Bytes(PACKET));
                let pause = Nanos(own.0 * 100 / self.load - own.0);
                self.now = self.now + own + pause;
                self.idle += pause;
                while let Some((back, trip)) = self.under_way.front()
                    && *back <= self.now
                {
                    if self.told {
                        self.law.came_back(trip);
                    }
                    self.under_way.pop_front();
                }
                let (offered, left) = (Bytes(self.sent), Bytes(self.sent));
                let did = Did { idle: self.idle, offered, left, line_idle: self.idle };
                let _ = self.law.run(self.now, did);
            }
            told.push((longest, (self.sent - before) * 8));
        }
        told
    }
}

/// From the third second on packets wait for 30 ms at most, jitter left out, and 85 % are used.
fn holds(seconds: &[(Nanos, u64)], mbps: u64) {
    for (second, (wait, bits)) in seconds.iter().enumerate().skip(3) {
        assert!(wait.0 <= 30 * MS, "{mbps} Mbit/s, second {second}: {wait} in {seconds:?}");
        assert!(*bits >= mbps * 850_000, "{mbps} Mbit/s, second {second}: {bits} in {seconds:?}");
    }
}

#[test]
fn the_rate_is_the_lines_within_three_seconds() {
    let mut line = Line::new(true, BitRate::from_mbps(20));
    for mbps in [20, 8, 30, 30, 10, 40, 20] {
        holds(&line.carries(mbps, 12), mbps);
    }
    assert!(line.law.count() > 20);
    let last = line.law.steps().last().unwrap();
    assert!(last.at + Nanos::from_secs(5) > line.now && last.from != last.to, "{last:?}");
}

#[test]
fn nobody_comes_back_and_the_rate_stays() {
    let mut line = Line::new(true, BitRate::from_mbps(20));
    let _ = line.carries(20, 10);
    line.told = false;
    let _ = line.carries(20, 1);
    let before = line.law.rate();
    let _ = line.carries(4, 10);
    assert_eq!(line.law.rate(), before);
    assert!(line.law.silent() > 80);
}

#[test]
fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    let mut line = Line::new(false, BitRate::from_mbps(20));
    let _ = line.carries(8, 5);
    assert_eq!(line.law.rate(), BitRate::from_mbps(20));
    let step = line.law.steps().next().unwrap();
    assert!(matches!(step.why, Why::Waits { .. }) && step.to < BitRate::from_mbps(10), "{step:?}");
    assert!(step.why.to_string().contains("Mbit/s"));
}

/// Who sends a third of the rate has filled no line, and needs no more.
#[test]
fn a_link_with_little_to_send_changes_nothing() {
    let mut line = Line::new(true, BitRate::from_mbps(20));
    line.load = 33;
    let _ = line.carries(30, 10);
    assert_eq!((line.law.count(), line.law.rate()), (0, BitRate::from_mbps(20)));
}

/// Packets come in over a line that carries 12 Mbit/s, by a link of 40: it is never half busy. What
/// waits is the line's if those of two hosts wait, and the other direction has little to do.
#[test]
fn a_line_below_half_of_what_comes_in_is_followed_if_it_is_the_line() {
    let steps = |hosts: u64, line_load: u64, intervals: u64| {
        let rate = BitRate::from_mbps(40);
        let mut law =
            Follow::new(config(), Way::In, true, Nanos::ZERO, rate, Did::default()).unwrap();
        for interval in 1..=intervals {
            let now = Nanos(interval * 100 * MS);
            for host in 0..4 {
                let above = Nanos(if host % hosts == 0 || hosts < 3 { 60 } else { 1 } * MS);
                let (sent, rtt) = (now.saturating_sub(Nanos(90 * MS)), above + Nanos(30 * MS));
                let host = host % hosts;
                law.came_back(&RoundTrip {
                    host,
                    sent,
                    rtt,
                    above: Some(above),
                    bytes: 0,
                    late: false,
                });
            }
            let idle = |load: u64| Nanos(now.0 * (100 - load) / 100);
            let offered = Bytes(12_000_000 / 8 / 10 * interval);
            let (idle, line_idle) = (idle(30), idle(line_load));
            let _ = law.run(now, Did { idle, offered, left: Bytes(0), line_idle });
        }
        law.steps().copied().collect::<Vec<_>>()
    };
    let told = steps(2, 10, 4);
    assert!(matches!(told[0].why, Why::Waits { .. }), "{told:?}");
    assert_eq!(told[0].at, Nanos(300 * MS), "after three intervals");
    assert!(told[0].to < BitRate::from_mbps(12), "{told:?}");
    assert_eq!(steps(2, 10, 2), [], "not at once");
    assert_eq!(steps(1, 10, 50), [], "one host alone: it may be the host");
    assert_eq!(steps(2, 60, 50), [], "what goes out waits");
    assert_eq!(steps(3, 10, 50), [], "packets of others do not wait");
}

/// An answer that may have waited for a second packet is no queue; one that waited longer is.
#[test]
fn answers_that_may_be_late_count_for_what_cannot_be_lateness() {
    let rates = |above: u64| {
        let rate = BitRate::from_mbps(20);
        let mut law =
            Follow::new(config(), Way::Out, true, Nanos::ZERO, rate, Did::default()).unwrap();
        for interval in 1..=10 {
            let now = Nanos(interval * 100 * MS);
            let (above, rtt) = (Some(Nanos(above * MS)), Nanos((above + 30) * MS));
            let sent = now.saturating_sub(rtt);
            law.came_back(&RoundTrip { host: 1, sent, rtt, above, bytes: 0, late: true });
            let _ = law.run(now, Did { left: Bytes(interval * 250_000), ..Did::default() });
        }
        law.rate()
    };
    assert!(rates(40) > BitRate::from_mbps(20));
    assert!(rates(120) < BitRate::from_mbps(20));
}

#[test]
fn bounds_are_kept_and_must_not_cross() {
    let mut line = Line::new(true, BitRate::from_mbps(20));
    let _ = line.carries(1, 10);
    assert_eq!(line.law.rate(), BitRate::from_mbps(2), "min, though the line carries less");
    let _ = line.carries(100, 20);
    assert_eq!(line.law.rate(), BitRate::from_mbps(50));
    let crossed = FollowConfig { min: BitRate::from_mbps(60), ..config() };
    let refused = Follow::new(crossed, Way::In, true, Nanos::ZERO, crossed.min, Did::default());
    assert!(refused.unwrap_err().to_string().contains("min is above max"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes back, whenever, from whatever clock: the rate stays within its bounds.
    #[test]
    fn nonsense_keeps_the_bounds(
        steps in prop::collection::vec((any::<[u64; 4]>(), 0u8..4), 1..200),
        way in prop_oneof![Just(Way::Out), Just(Way::In)],
    ) {
        let rate = BitRate::from_mbps(5);
        let mut law =
            Follow::new(config(), way, true, Nanos::ZERO, rate, Did::default()).unwrap();
        for (numbers, shift) in steps {
            let [a, b, c, d] = numbers.map(|number| number >> (u32::from(shift) * 16));
            let (sent, rtt, above) = (Nanos(a), Nanos(b), Some(Nanos(c)));
            law.came_back(&RoundTrip { host: a % 3, sent, rtt, above, bytes: d, late: b % 3 == 0 });
            let (idle, offered, left) = (Nanos(b), Bytes(a), Bytes(c));
            let _ = law.run(Nanos(d), Did { idle, offered, left, line_idle: Nanos(a) });
            prop_assert!((2_000_000..=50_000_000).contains(&law.rate().0));
        }
    }
}
