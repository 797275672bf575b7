//! A wire that is slow, long, lossy and untidy: rate, queue, propagation delay, jitter, loss,
//! reordering.
//!
//! ```text
//!  send ─▶ loss ─▶ queue (bounded) ─▶ rate ─▶ delay + jitter ─▶ (some overtake) ─▶ arrival
//! ```
//!
//! | parameter | meaning |
//! |---|---|
//! | rate r | a packet of L bits takes L / r, after the one before it; fractions of a nanosecond are carried over, so the long-run rate is exact |
//! | queue | packets that may wait for or be on the wire at the rate; more are dropped |
//! | delay d | every packet arrives at least d after its last bit left |
//! | jitter j | and up to j later, uniform; order is kept: a packet waits for the one before it, so where packets are closer than j they are later on average |
//! | loss | this part of the packets, drawn independently, never arrives |
//! | reorder | this part of the packets, drawn independently, takes neither delay nor jitter, and so overtakes what is on its way |
//!
//! Integer arithmetic throughout. The element holds no packets: it tells when each arrives. Cost of
//! a packet: constant, amortised. Memory: 8 bytes for each that waits at once.

use core::fmt;
use std::collections::VecDeque;

use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::random::Dice;

/// Parts of a whole in [`EmulatorConfig::loss`] and [`EmulatorConfig::reorder`].
pub const WHOLE: u32 = 1_000_000_000;

/// Effects of a wire on packets. The default has none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EmulatorConfig {
    /// Bits per second, 1 kbit/s to 1 Tbit/s; `None`: no packet takes time or waits.
    pub rate: Option<BitRate>,
    /// Packets that may wait or be on the wire at once where there is a rate, 1 to 1 000 000; 0
    /// stands for [`DEFAULT_QUEUE`].
    pub queue: u32,
    /// Propagation delay, up to an hour.
    pub delay: Nanos,
    /// Up to this much more, up to an hour.
    pub jitter: Nanos,
    /// Parts of [`WHOLE`] that are lost, 0 to [`WHOLE`].
    pub loss: u32,
    /// Parts of [`WHOLE`] that overtake, 0 to [`WHOLE`].
    pub reorder: u32,
}

/// Packets of the queue unless configured.
pub const DEFAULT_QUEUE: u32 = 1000;

/// Why there is no such wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EmulatorError {
    /// The rate is not within 1 kbit/s to 1 Tbit/s.
    Rate(BitRate),
    /// The queue is above 1 000 000 packets.
    Queue(u32),
    /// Delay or jitter is above an hour.
    Delay(Nanos),
    /// Loss or reordering is above [`WHOLE`].
    Fraction(u32),
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "rate {rate} is out of range: 1 kbit/s to 1 Tbit/s"),
            Self::Queue(queue) => {
                write!(f, "a queue of {queue} packets is out of range: 1 to 1000000")
            }
            Self::Delay(delay) => write!(f, "a delay of {delay} is out of range: 0 to 1 hour"),
            Self::Fraction(parts) => write!(f, "{parts} parts of {WHOLE} are more than all"),
        }
    }
}

impl core::error::Error for EmulatorError {}

/// Fate of a packet on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It arrives then.
    Arrives(Nanos),
    /// It is lost.
    Lost,
    /// The queue was full.
    Overflow,
}

/// Counters of a wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EmulatorCounters {
    /// Packets sent into it.
    pub sent: u64,
    /// Packets that arrive or have arrived.
    pub carried: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets that met a full queue.
    pub overflowed: u64,
    /// Packets that took no delay (among `carried`).
    pub overtaking: u64,
}

/// One direction of a wire.
#[derive(Clone, Debug)]
pub struct Emulator {
    config: EmulatorConfig,
    /// Elsewhere: most wires need none, and what every packet needs lies closer together.
    dice: Box<Dice>,
    /// When each packet that waits or is on the wire has left it; only with a rate.
    departures: VecDeque<Nanos>,
    /// When the wire is free, and by how many bit-nanoseconds that is later than exact.
    free: Nanos,
    owed: u64,
    /// The last number of bit-nanoseconds that was divided by the rate, and what came out: packets
    /// are mostly as long as the one before.
    divided: (u64, u64),
    /// The latest arrival of a packet that keeps its place.
    latest: Nanos,
    counters: EmulatorCounters,
}

/// Bit-nanoseconds in a byte.
const BYTE: u64 = 8_000_000_000;
const HOUR: Nanos = Nanos::from_secs(3600);

impl Emulator {
    /// A wire with nothing on it; its randomness depends on `seed` and `stream` only.
    ///
    /// # Errors
    /// A value outside of its range.
    pub fn new(config: EmulatorConfig, seed: u64, stream: u64) -> Result<Self, EmulatorError> {
        if let Some(rate) =
            config.rate.filter(|rate| !(1_000..=1_000_000_000_000).contains(&rate.0))
        {
            return Err(EmulatorError::Rate(rate));
        }
        if config.queue > 1_000_000 {
            return Err(EmulatorError::Queue(config.queue));
        }
        if let Some(time) = [config.delay, config.jitter].into_iter().find(|time| *time > HOUR) {
            return Err(EmulatorError::Delay(time));
        }
        if let Some(parts) = [config.loss, config.reorder].into_iter().find(|parts| *parts > WHOLE)
        {
            return Err(EmulatorError::Fraction(parts));
        }
        let queue = if config.queue == 0 { DEFAULT_QUEUE } else { config.queue };
        let config = EmulatorConfig { queue, ..config };
        Ok(Self {
            config,
            dice: Box::new(Dice::new(seed, stream)),
            // Most wires are far from having as many packets as their queue takes.
            departures: VecDeque::new(),
            free: Nanos::ZERO,
            owed: 0,
            divided: (0, 0),
            latest: Nanos::ZERO,
            counters: EmulatorCounters::default(),
        })
    }

    /// A packet that takes `wire_len` on the wire is sent at `now`, which is not before that of an
    /// earlier call.
    pub fn send(&mut self, now: Nanos, wire_len: Bytes) -> Fate {
        self.counters.sent += 1;
        if self.happens(self.config.loss) {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        let Some(left) = self.pass(now, wire_len) else {
            self.counters.overflowed += 1;
            return Fate::Overflow;
        };
        self.counters.carried += 1;
        if self.happens(self.config.reorder) {
            self.counters.overtaking += 1;
            return Fate::Arrives(left);
        }
        let mut at = left.saturating_add(self.config.delay);
        if self.config.jitter > Nanos::ZERO {
            at = at
                .saturating_add(Nanos(self.dice.within(0..self.config.jitter.0.saturating_add(1))));
        }
        self.latest = self.latest.max(at);
        Fate::Arrives(self.latest)
    }

    /// What it was made from; the queue's length filled in.
    #[must_use]
    pub const fn config(&self) -> &EmulatorConfig {
        &self.config
    }

    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> &EmulatorCounters {
        &self.counters
    }

    fn happens(&mut self, parts: u32) -> bool {
        parts > 0 && self.dice.within(0..u64::from(WHOLE)) < u64::from(parts)
    }

    /// When the last bit leaves; `None` if the queue is full.
    fn pass(&mut self, now: Nanos, wire_len: Bytes) -> Option<Nanos> {
        let Some(rate) = self.config.rate else { return Some(now) };
        while self.departures.front().is_some_and(|left| *left <= now) {
            self.departures.pop_front();
        }
        if self.departures.len() >= self.config.queue as usize {
            return None;
        }
        if now > self.free {
            self.free = now;
            self.owed = 0;
        }
        // What the last packet was told too late is taken off this one. Frames are shorter than
        // 2^31 bytes, and what is owed is below the rate.
        let bits = wire_len.0.saturating_mul(BYTE);
        let rest = bits.saturating_sub(self.owed);
        if rest != self.divided.0 {
            self.divided = (rest, rest.div_ceil(rate.0));
        }
        let time = self.divided.1;
        self.owed = (time * rate.0 + self.owed).saturating_sub(bits);
        self.free = self.free.saturating_add(Nanos(time));
        self.departures.push_back(self.free);
        Some(self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(config: EmulatorConfig) -> Emulator {
        Emulator::new(config, 5, 3).unwrap()
    }

    fn arrival(fate: Fate) -> u64 {
        match fate {
            Fate::Arrives(at) => at.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_happens_on_a_perfect_wire() {
        let mut wire = wire(EmulatorConfig::default());
        assert_eq!(wire.send(Nanos(17), Bytes(1500)), Fate::Arrives(Nanos(17)));
    }

    #[test]
    fn the_rate_is_exact_and_the_queue_bounded() {
        // 64 bytes at 3 Gbit/s: 170.666... ns.
        let rate = Some(BitRate(3_000_000_000));
        let mut wire =
            wire(EmulatorConfig { rate, queue: 3_000, delay: Nanos(1_000), ..Default::default() });
        for n in 1..=3_000u64 {
            assert_eq!(arrival(wire.send(Nanos::ZERO, Bytes(64))), 1_000 + (n * 512).div_ceil(3));
        }
        assert_eq!(wire.send(Nanos(170), Bytes(64)), Fate::Overflow);
        // At 171 ns the first has left.
        assert_eq!(arrival(wire.send(Nanos(171), Bytes(64))), 1_000 + (3_001u64 * 512).div_ceil(3));
        // After a pause nothing is owed.
        assert_eq!(arrival(wire.send(Nanos(1_000_000), Bytes(64))), 1_001_171);
        let counters = wire.counters();
        assert_eq!((counters.sent, counters.carried, counters.overflowed), (3_003, 3_002, 1));
    }

    #[test]
    fn jitter_keeps_order_and_reordering_does_not() {
        let (delay, jitter) = (Nanos::from_millis(5), Nanos::from_millis(2));
        let mut tidy = wire(EmulatorConfig { delay, jitter, ..Default::default() });
        let times: Vec<_> =
            (0..2_000).map(|n| arrival(tidy.send(Nanos(n * 100_000), Bytes(100)))).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        let late: Vec<_> = times.iter().zip(0..).map(|(at, n)| at - n * 100_000).collect();
        assert!(late.iter().all(|late| (5_000_000..=7_000_000).contains(late)));
        // Packets far apart do not wait for each other: all of the range.
        let mut sparse = wire(EmulatorConfig { delay, jitter, ..Default::default() });
        let far: Vec<_> = (0..2_000u64)
            .map(|n| arrival(sparse.send(Nanos(n * 10_000_000), Bytes(100))) - n * 10_000_000)
            .collect();
        assert!(far.iter().all(|late| (5_000_000..=7_000_000).contains(late)));
        let mean = far.iter().sum::<u64>() / 2_000;
        // Standard deviation of the mean: 13 us.
        assert!((5_948_000..=6_052_000).contains(&mean), "{mean}");

        let mut untidy = wire(EmulatorConfig { delay, reorder: WHOLE / 10, ..Default::default() });
        let times: Vec<_> =
            (0..2_000).map(|n| arrival(untidy.send(Nanos(n * 100_000), Bytes(100)))).collect();
        let at_once = times.iter().zip(0..).filter(|(at, n)| **at == n * 100_000).count();
        // 200 expected, standard deviation 13.4.
        assert!((146..=254).contains(&at_once), "{at_once}");
        assert_eq!(untidy.counters().overtaking, at_once as u64);
        assert!(times.windows(2).any(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn losses_are_as_many_as_told_and_follow_from_the_seed() {
        let config = EmulatorConfig { loss: WHOLE / 100, ..Default::default() };
        let fates = |seed| {
            let mut wire = Emulator::new(config, seed, 3).unwrap();
            (0..100_000).map(|n| wire.send(Nanos(n), Bytes(100)) == Fate::Lost).collect::<Vec<_>>()
        };
        let lost = fates(1).iter().filter(|lost| **lost).count();
        // 1000 expected, standard deviation 31.5.
        assert!((870..=1_130).contains(&lost), "{lost}");
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        let mut hole = wire(EmulatorConfig { loss: WHOLE, ..Default::default() });
        assert_eq!(hole.send(Nanos(1), Bytes(1)), Fate::Lost);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let refused = |config| Emulator::new(config, 0, 0).unwrap_err().to_string();
        let config = EmulatorConfig::default();
        assert!(refused(EmulatorConfig { rate: Some(BitRate(1)), ..config }).contains("1 kbit/s"));
        assert!(refused(EmulatorConfig { queue: 1_000_001, ..config }).contains("1000000"));
        assert!(refused(EmulatorConfig { delay: HOUR + Nanos(1), ..config }).contains("1 hour"));
        assert!(refused(EmulatorConfig { loss: WHOLE + 1, ..config }).contains("more than all"));
    }
}
