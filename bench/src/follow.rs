//! Rates that follow their lines, on 200 links: what a link costs in each of its intervals, with as
//! many round trips as are looked at. Round trips themselves are found in packets that pass, and
//! cost what they cost however many links there are.

use std::hint::black_box;

use evenkeel_core::control::follow::{Did, Follow, FollowConfig, SAMPLES, Way};
use evenkeel_core::measure::round_trips::RoundTrip;
use evenkeel_core::{BitRate, Bytes, Nanos};

/// Links of one router.
const LINKS: u64 = 200;
/// What is sent between two packets that come back.
const BETWEEN: u64 = 12_000;

/// The laws, each in a random walk of its own.
pub(crate) struct Lines {
    laws: Vec<Follow>,
    did: Vec<Did>,
    state: u64,
    now: Nanos,
    steps: u64,
}

impl Lines {
    pub(crate) fn new() -> Self {
        let rate = BitRate::from_mbps;
        let config = FollowConfig { min: rate(2), max: rate(100), ..FollowConfig::default() };
        let law = |_| Follow::new(config, Way::Out, true, Nanos::ZERO, rate(40), Did::default());
        let laws = (0..LINKS).map(|at| law(at).expect("the configuration is in range")).collect();
        let did = vec![Did::default(); LINKS as usize];
        Self { laws, did, state: 1, now: Nanos::ZERO, steps: 0 }
    }

    /// So many intervals of links, one link after the other.
    pub(crate) fn run(&mut self, intervals: u64) {
        for number in 0..intervals {
            let link = (number % LINKS) as usize;
            let law = &mut self.laws[link];
            if link == 0 {
                self.now += law.config().interval;
            }
            let did = &mut self.did[link];
            let apart = Nanos(law.config().interval.0 / SAMPLES as u64);
            for trip in 0..SAMPLES as u64 {
                self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                // Mostly below the limit; now and then a queue.
                let above = Nanos(self.state >> 38 & 0x1ff_ffff);
                did.left += Bytes(BETWEEN);
                let sent = self.now.saturating_sub(Nanos(apart.0 * (SAMPLES as u64 - trip)));
                let rtt = Nanos::from_millis(20) + above;
                let (host, above) = (trip % 4, Some(above));
                let bytes = did.left.0;
                law.came_back(&RoundTrip { host, sent, rtt, above, bytes, late: false });
            }
            did.offered = did.left;
            self.steps += u64::from(black_box(law.run(self.now, *did)).is_some());
        }
        assert!(intervals < 10 * LINKS || self.steps > 0, "no rate ever changed");
    }
}
