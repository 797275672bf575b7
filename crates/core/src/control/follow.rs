//! A rate that follows the line: one whose rate nobody knows (LTE, satellites, cable at eight in
//! the evening) is shaped a little below what it carries now, so that packets wait here, where
//! flows are fair and queues short, and not in a modem.
//!
//! Source: cake-autorate (L. Mattsson and others) for the aim and the signal, a round trip that
//! takes longer than it did; the law is ours.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | d, what waited on the line | the lower quartile of [`RoundTrip::above`] in an interval | time |
//! | q, what waits there now | `Follow::waiting` | time |
//! | d_max | `FollowConfig::delay` | time |
//! | r, the link's rate | [`Follow::rate`] | bit/s |
//! | L, what the line carries while packets wait on it | `Follow::carries` | bit/s |
//! | u, the part of the time in which the link sent | 1 − idle time / time | – |
//! | S, s: bytes that have left by the line, and before the last packet that came back | [`Did::left`], [`RoundTrip::bytes`] | bytes |
//!
//! ```text
//!  q > d_max and u > 1/2    ─▶ r = L (1 − q / 300 ms), 3 to 90 % below L: so that what waits is gone
//!                              in 300 ms, until q < d_max / 2, and then r = 0.98 L
//!  q > d_max / 2            ─▶ r = 0.99 L if that is less, else r stays
//!  u > 3/4 and q < d_max / 2 ─▶ r grows: by 12 % up to 0.95 L, by 2 % about L, and above faster and
//!                              faster, up to 12 %; all the less the more waits
//!  nothing came back        ─▶ r stays
//! ```
//!
//! A line that has fallen below half of r is not kept busy by a link that sends on what comes from
//! it: there u says nothing. Then packets must have waited for [`PATIENCE`] intervals, those of two
//! hosts at least, while the line's other direction, which would be in their round trips as well,
//! was less than half used. Of one host alone it may be the host.
//!
//! **What the line carries is measured, not searched for.** Of two packets that came back, the
//! bytes that left between them, by the time between their arrivals at the far end, are the rate of
//! a line on which packets wait: one look after the line got slower says how slow it is. For
//! traffic that comes by the line it is what arrives.
//!
//! **What waits now is not what waited.** A packet that comes back tells of a queue that it met a
//! round trip ago. What has left since and cannot have passed yet waits: q = (S − s) / L less the
//! round trip of an empty line. So a queue is not answered twice.
//!
//! An interval that saw nobody, or a link that has little to send, changes nothing: what waits then
//! is not ours.
//!
//! Complexity: constant time per trip, a sort of at most [`SAMPLES`] per interval. No allocation
//! after construction; integers only.

use core::fmt;
use core::ops::RangeInclusive;

use crate::link::LinkConfig;
use crate::measure::round_trips::RoundTrip;
use crate::settings;
use crate::settings::{SettingError, Settings as _};
use crate::units::{BitRate, Bytes, Nanos};

/// Trips of an interval that are looked at; of more, the first ones.
pub const SAMPLES: usize = 32;
/// Steps that are remembered.
pub const STEPS: usize = 8;

/// Valid rates.
const RATES: RangeInclusive<u64> = LinkConfig::MIN_RATE.0..=LinkConfig::MAX_RATE.0;
/// Valid waits on the line, in nanoseconds.
const DELAYS: RangeInclusive<u64> = 1_000_000..=1_000_000_000;
/// Valid intervals, in nanoseconds.
const INTERVALS: RangeInclusive<u64> = 20_000_000..=5_000_000_000;

settings! {
    /// Lets the link's rate follow that of a line which changes, by the round trips of what passes:
    /// TCP's time stamps, and echoes of ICMP. See docs/short-queues.md.
    #[derive(Copy, Eq)]
    pub struct FollowConfig: "control = { kind = \"latency\", … }" {
        /// The slowest rate: what the line always carries.
        reload min: BitRate = LinkConfig::MIN_RATE, in RATES, is required;
        /// The fastest rate.
        reload max: BitRate = LinkConfig::MAX_RATE, in RATES, is required;
        /// What may wait on the line, beyond the shortest round trip of the last minute or two.
        reload delay: Nanos = Nanos::from_millis(15), in DELAYS;
        /// How often the rate may change.
        reload interval: Nanos = Nanos::from_millis(100), in INTERVALS;
    }
    check Self::bounds
}

impl FollowConfig {
    fn bounds(&self) -> Result<(), SettingError> {
        if self.min <= self.max {
            return Ok(());
        }
        Err(SettingError::Contradiction { key: "min", message: "min is above max".into() })
    }
}

/// 1, of which loads and growth are parts.
const ONE: u64 = 1 << 16;
/// From this load on, what waits on the line may be ours.
const USED: u64 = ONE / 2;
/// So many intervals in a row packets must wait on a line that a link seems to leave half empty.
pub const PATIENCE: u32 = 3;
/// Hosts of an interval that are told apart.
const HOSTS: usize = 4;
/// From this load on a faster rate would be used.
const BUSY: u64 = ONE * 3 / 4;
/// What waits on the line shall be gone after this.
const DRAIN: Nanos = Nanos::from_millis(300);
/// Growth in an interval, where the line has carried as much before.
const FAST: u64 = ONE * 12 / 100;
/// Growth about what the line has carried.
const CAREFUL: u64 = ONE * 2 / 100;
/// Two packets this far apart say what the line carries.
const APART: Nanos = Nanos::from_millis(30);
/// And not so far apart, if there are nearer ones.
const TOGETHER: Nanos = Nanos::from_millis(80);
/// What was measured longer ago than this says nothing of the line now.
const STALE: Nanos = Nanos::from_millis(300);
/// Of packets that came back one is remembered in so much time.
const SPACING: Nanos = Nanos::from_millis(20);
/// Packets that came back of which the time is remembered.
const MARKS: usize = 5;
/// So long receivers wait for a second packet before they answer one (Linux; others up to 200 ms).
const SECOND_PACKET: Nanos = Nanos::from_millis(40);
/// Cuts where nothing says what the line carries.
const BLIND: u64 = ONE * 85 / 100;

/// Why the rate was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// Packets wait on the line.
    Waits {
        /// How long.
        above: Nanos,
        /// What it carried.
        carried: BitRate,
    },
    /// They no longer do.
    Drained {
        /// How long some still do.
        above: Nanos,
    },
    /// The line carries less than the rate.
    Slower {
        /// How much.
        carried: BitRate,
    },
    /// The link has more to send, and the line may carry it.
    Room {
        /// How long packets wait on the line.
        above: Nanos,
        /// What the link used of its rate, in percent.
        load: u8,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: &Nanos| time.0 as f64 / 1e6;
        match self {
            Self::Waits { above, carried } => write!(
                f,
                "packets wait {:.0} ms on the line, which carries {:.2} Mbit/s",
                ms(above),
                carried.0 as f64 / 1e6
            ),
            Self::Drained { above } => {
                write!(f, "what waited on the line is gone ({:.0} ms)", ms(above))
            }
            Self::Slower { carried } => {
                write!(f, "the line carries {:.2} Mbit/s", carried.0 as f64 / 1e6)
            }
            Self::Room { above, load } => write!(
                f,
                "{load} % of the rate is used, and packets wait {:.0} ms on the line",
                ms(above)
            ),
        }
    }
}

/// A change of the rate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// When.
    pub at: Nanos,
    /// From this rate.
    pub from: BitRate,
    /// To this one.
    pub to: BitRate,
    /// For this reason.
    pub why: Why,
}

/// Which way the packets of the link go over the line whose round trips are told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// The link sends into it.
    Out,
    /// The link sends on what comes from it.
    In,
}

/// What the link did since the start of time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Did {
    /// How long its wire was idle.
    pub idle: Nanos,
    /// Bytes on the wire of all that it was given, dropped ones included.
    pub offered: Bytes,
    /// Bytes on the wire of all that left by the line, as [`RoundTrip::bytes`] counts them.
    pub left: Bytes,
    /// How long the link that sends into the line was idle: with [`Way::Out`] `idle` again.
    pub line_idle: Nanos,
}

/// A packet that came back: when the line had passed it on, up to a constant, and the bytes before
/// it.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at: Nanos,
    bytes: u64,
}

/// The law of one link.
#[derive(Clone, Debug)]
pub struct Follow {
    config: FollowConfig,
    way: Way,
    /// Whether it changes the rate; otherwise it says what it would do.
    on: bool,
    rate: BitRate,
    due: Nanos,
    /// The interval: its beginning, what the link had done by then, what came back.
    since: Nanos,
    did: Did,
    above: [Nanos; SAMPLES],
    seen: usize,
    /// The shortest of those whose answers may have waited, as far as they cannot.
    late: Option<Nanos>,
    /// Hosts whose packets came back, and the shortest wait of each; intervals in a row in which
    /// those of several waited while nobody sent much the other way.
    hosts: [(u64, Nanos); HOSTS],
    heard: usize,
    pressed: u32,
    /// Packets that came back, some time apart, the oldest first, and the last of all.
    marks: [Passed; MARKS],
    marked: usize,
    last: Option<(Passed, Nanos)>,
    /// L, as it was measured last while packets waited.
    carries: Option<BitRate>,
    draining: bool,
    growth: u64,
    steps: [Option<Step>; STEPS],
    count: u64,
    silent: u64,
    waits: Option<Nanos>,
}

impl Follow {
    /// The law of a link of this rate, from `now` on; a rate outside of the bounds counts as the
    /// nearer of them. `on`: it changes the rate; otherwise it only says what it would do.
    ///
    /// # Errors
    /// A setting is out of its range, or they contradict each other.
    pub fn new(
        config: FollowConfig,
        way: Way,
        on: bool,
        now: Nanos,
        rate: BitRate,
        did: Did,
    ) -> Result<Self, SettingError> {
        config.check()?;
        Ok(Self {
            config,
            way,
            on,
            rate: rate.clamp(config.min, config.max),
            due: now.saturating_add(config.interval),
            since: now,
            did,
            above: [Nanos::ZERO; SAMPLES],
            seen: 0,
            late: None,
            hosts: [(0, Nanos::ZERO); HOSTS],
            heard: 0,
            pressed: 0,
            marks: [Passed { at: Nanos::ZERO, bytes: 0 }; MARKS],
            marked: 0,
            last: None,
            carries: None,
            draining: false,
            growth: FAST,
            steps: [None; STEPS],
            count: 0,
            silent: 0,
            waits: None,
        })
    }

    /// What it was told.
    #[must_use]
    pub const fn config(&self) -> &FollowConfig {
        &self.config
    }

    /// Whether it changes the rate.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// The rate that the link should have.
    #[must_use]
    pub const fn rate(&self) -> BitRate {
        self.rate
    }

    /// When [`run`](Self::run) has something to do.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.due
    }

    /// How many steps there were, or would have been.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Intervals in which the link was busy and nothing came back.
    #[must_use]
    pub const fn silent(&self) -> u64 {
        self.silent
    }

    /// How long packets waited on the line in the last interval in which some came back.
    #[must_use]
    pub const fn waits(&self) -> Option<Nanos> {
        self.waits
    }

    /// The latest steps, the oldest first.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let (newer, older) = self.steps.split_at((self.count % STEPS as u64) as usize);
        older.iter().chain(newer).flatten()
    }

    /// Somebody else has changed the rate of the link: it goes on from there.
    pub fn set_rate(&mut self, rate: BitRate) {
        self.rate = rate.clamp(self.config.min, self.config.max);
        (self.carries, self.draining) = (None, false);
        (self.seen, self.late, self.marked, self.last) = (0, None, 0, None);
        (self.heard, self.pressed) = (0, 0);
    }

    /// A packet went over the line and back.
    pub fn came_back(&mut self, trip: &RoundTrip) {
        // What waits is what is above the distance.
        let Some(above) = trip.above else { return };
        if trip.late {
            let above = above.saturating_sub(SECOND_PACKET);
            self.late = Some(self.late.map_or(above, |least| least.min(above)));
            return;
        }
        match self.hosts[..self.heard].iter_mut().find(|host| host.0 == trip.host) {
            Some((_, shortest)) => *shortest = above.min(*shortest),
            None if self.heard < HOSTS => {
                self.hosts[self.heard] = (trip.host, above);
                self.heard += 1;
            }
            None => {}
        }
        if self.seen < SAMPLES {
            self.above[self.seen] = above;
            self.seen += 1;
        }
        let passed = Passed { at: trip.sent.saturating_add(above), bytes: trip.bytes };
        if self.last.is_some_and(|(last, _)| last.bytes > passed.bytes || last.at > passed.at) {
            return;
        }
        self.last = Some((passed, trip.rtt.saturating_sub(above)));
        let newest = self.marks[..self.marked].last();
        if newest.is_some_and(|newest| newest.at.saturating_add(SPACING) > passed.at) {
            return;
        }
        let far = |marks: &[Passed]| {
            marks.first().is_some_and(|old| old.at.saturating_add(TOGETHER) < passed.at)
        };
        while self.marked == MARKS || self.marked > 2 && far(&self.marks[..self.marked]) {
            self.marks.rotate_left(1);
            self.marked -= 1;
        }
        self.marks[self.marked] = passed;
        self.marked += 1;
    }

    /// What is due at `now`, by what the link has done: the step that is to be made, if any. One
    /// that is not on says what it would do, and stays.
    pub fn run(&mut self, now: Nanos, did: Did) -> Option<Step> {
        if now < self.due {
            return None;
        }
        let elapsed = now.saturating_sub(self.since).max(Nanos(1));
        let load = load_of(did.idle.saturating_sub(self.did.idle), elapsed);
        let line_load = load_of(did.line_idle.saturating_sub(self.did.line_idle), elapsed);
        let offered = did.offered.saturating_sub(self.did.offered);
        (self.since, self.did, self.due) = (now, did, now.saturating_add(self.config.interval));
        self.presses(line_load);
        let above = self.quartile();
        let carried = self.carried(elapsed, offered);
        self.waits = above.or(self.waits);
        let Some(above) = above else {
            self.silent += u64::from(load > BUSY);
            return None;
        };
        let (to, why) = self.law(above, load, carried)?;
        let to = to.clamp(self.config.min, self.config.max);
        let step = Step { at: now, from: self.rate, to, why };
        if to == self.rate {
            return None;
        }
        if self.on {
            self.rate = to;
        }
        self.steps[(self.count % STEPS as u64) as usize] = Some(step);
        self.count += 1;
        Some(step)
    }

    fn law(&mut self, above: Nanos, load: u64, carried: Option<BitRate>) -> Option<(BitRate, Why)> {
        let (most, half) = (self.config.delay, Nanos(self.config.delay.0 / 2));
        let waits = match carried.filter(|_| above.0 > most.0 / 3) {
            Some(now) => {
                // While it drains both are of a line on which packets wait.
                let before = self.carries.filter(|_| self.draining);
                let line = before.map_or(now, |before| BitRate(before.0 / 2 + now.0 / 2));
                self.carries = Some(line);
                self.waiting(above, line)
            }
            None => above,
        };
        if waits > most || self.draining && waits > half {
            if load < USED && !self.draining && self.pressed < PATIENCE {
                return None;
            }
            let blind = || part(self.rate, BLIND);
            let line = carried.and(self.carries).unwrap_or_else(blind);
            // What left so far was no faster than the rate.
            let line = if self.draining { line } else { line.min(self.rate) };
            (self.draining, self.growth, self.carries) = (true, CAREFUL, Some(line));
            let cut = (waits.0.min(DRAIN.0) * ONE / DRAIN.0).clamp(ONE * 3 / 100, ONE * 9 / 10);
            return Some((part(line, ONE - cut), Why::Waits { above: waits, carried: line }));
        }
        if core::mem::take(&mut self.draining) {
            let line = self.carries.unwrap_or(self.rate);
            return Some((part(line, ONE * 98 / 100), Why::Drained { above: waits }));
        }
        if waits > half {
            let carried = carried.filter(|line| *line < part(self.rate, ONE * 98 / 100))?;
            (self.carries, self.growth) = (Some(carried), CAREFUL);
            return Some((part(carried, ONE * 99 / 100), Why::Slower { carried }));
        }
        if load < BUSY {
            return None;
        }
        self.growth = match self.carries {
            Some(line) if self.rate < part(line, ONE * 95 / 100) => FAST,
            Some(line) if self.rate < part(line, ONE * 103 / 100) => CAREFUL,
            _ => (self.growth * 3 / 2).min(FAST),
        };
        let growth = self.growth * (most.0 - waits.0) / most.0;
        let load = (load * 100 / ONE) as u8;
        Some((part(self.rate, ONE + growth), Why::Room { above: waits, load }))
    }

    /// What waits on the line now, if it carries so much: what has left since the last packet that
    /// came back, less what passes in a round trip without a queue. At most twice what waited.
    fn waiting(&self, above: Nanos, line: BitRate) -> Nanos {
        let (Way::Out, Some((last, base))) = (self.way, self.last) else { return above };
        let since = self.did.left.saturating_sub(Bytes(last.bytes));
        let twice = Nanos(above.0.saturating_mul(2));
        line.max(LinkConfig::MIN_RATE).time_for(since).saturating_sub(base).min(twice)
    }

    /// Whether packets of several hosts wait on the line, though nobody sends much into it.
    fn presses(&mut self, line_load: u64) {
        let hosts = &self.hosts[..core::mem::take(&mut self.heard)];
        let all = hosts.len() > 1 && hosts.iter().all(|(_, above)| *above > self.config.delay);
        let presses = self.way == Way::In && all && line_load < USED;
        self.pressed = if presses { self.pressed.saturating_add(1) } else { 0 };
    }

    /// The lower quartile of what packets waited on the line; of a few the shortest: senders that
    /// are slow to answer are not taken for a queue. Where all may have waited for a second packet,
    /// what is left of the shortest. The next interval begins.
    fn quartile(&mut self) -> Option<Nanos> {
        let late = self.late.take();
        let seen = core::mem::take(&mut self.seen);
        let above = &mut self.above[..seen];
        above.sort_unstable();
        above.get(seen / 4).copied().or(late)
    }

    /// What the line carried, if packets waited on it; `None`: nobody can tell.
    fn carried(&mut self, elapsed: Nanos, offered: Bytes) -> Option<BitRate> {
        if self.way == Way::In {
            return Some(rate_of(offered.0, elapsed));
        }
        let (first, (last, _)) = (self.marks[..self.marked].first()?, self.last?);
        let time = last.at.saturating_sub(first.at);
        let bytes = last.bytes.saturating_sub(first.bytes);
        if time > STALE {
            self.marked = 0;
        }
        (time >= APART).then(|| rate_of(bytes, time))
    }
}

/// The part of the time in which a link sent.
fn load_of(idle: Nanos, elapsed: Nanos) -> u64 {
    ONE - (u128::from(idle.min(elapsed).0) * u128::from(ONE) / u128::from(elapsed.0)) as u64
}

/// So much of a rate.
fn part(rate: BitRate, of_one: u64) -> BitRate {
    BitRate((u128::from(rate.0) * u128::from(of_one) / u128::from(ONE)) as u64)
}

fn rate_of(bytes: u64, time: Nanos) -> BitRate {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    BitRate(u64::try_from(bits / u128::from(time.0.max(1))).unwrap_or(u64::MAX))
}
