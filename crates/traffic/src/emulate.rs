//! A wire that is slow, long, lossy and untidy: rate, queue, propagation delay, jitter, loss, reordering.
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
//! | jitter j | and up to j later, uniform; order is kept: a packet waits for the one before it |
//! | loss | this part of the packets, drawn independently, never arrives |
//! | reorder | this part of the packets, drawn independently, takes neither delay nor jitter, and so overtakes what is on its way |
//!
//! Integer arithmetic throughout. The element holds no packets: it tells when each arrives. Cost of a packet: constant, amortised; no
//! allocation after construction.

use core::fmt;
use std::collections::VecDeque;

use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::random::Dice;

/// Parts of a whole in [`EmulatorConfig::loss`] and [`EmulatorConfig::reorder`].
pub const WHOLE: u32 = 1_000_000_000;

/// What a wire does to packets. The default does nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EmulatorConfig {
    /// Bits per second, 1 kbit/s to 1 Tbit/s; `None`: no packet takes time or waits.
    pub rate: Option<BitRate>,
    /// Packets that may wait or be on the wire at once where there is a rate, 1 to 1 000 000; 0 stands for [`DEFAULT_QUEUE`].
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
            Self::Queue(queue) => write!(f, "a queue of {queue} packets is out of range: 1 to 1000000"),
            Self::Delay(delay) => write!(f, "a delay of {delay} is out of range: 0 to 1 hour"),
            Self::Fraction(parts) => write!(f, "{parts} parts of {WHOLE} are more than all"),
        }
    }
}

impl core::error::Error for EmulatorError {}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It arrives then.
    Arrives(Nanos),
    /// It is lost.
    Lost,
    /// The queue was full.
    Overflow,
}

/// What a wire has done.
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
    dice: Dice,
    /// When each packet that waits or is on the wire has left it; only with a rate.
    departures: VecDeque<Nanos>,
    /// When the wire is free, and by how many bit-nanoseconds that is later than exact.
    free: Nanos,
    owed: u64,
    /// The latest arrival of a packet that keeps its place.
    latest: Nanos,
    counters: EmulatorCounters,
}

/// Bit-nanoseconds in a byte.
const BYTE: u128 = 8_000_000_000;
const HOUR: Nanos = Nanos::from_secs(3600);

impl Emulator {
    /// A wire with nothing on it; its randomness depends on `seed` and `stream` only.
    ///
    /// # Errors
    /// A value outside of its range.
    pub fn new(config: EmulatorConfig, seed: u64, stream: u64) -> Result<Self, EmulatorError> {
        if let Some(rate) = config.rate.filter(|rate| !(1_000..=1_000_000_000_000).contains(&rate.0)) {
            return Err(EmulatorError::Rate(rate));
        }
        if config.queue > 1_000_000 {
            return Err(EmulatorError::Queue(config.queue));
        }
        if let Some(time) = [config.delay, config.jitter].into_iter().find(|time| *time > HOUR) {
            return Err(EmulatorError::Delay(time));
        }
        if let Some(parts) = [config.loss, config.reorder].into_iter().find(|parts| *parts > WHOLE) {
            return Err(EmulatorError::Fraction(parts));
        }
        let queue = if config.queue == 0 { DEFAULT_QUEUE } else { config.queue };
        let config = EmulatorConfig { queue, ..config };
        let departures = VecDeque::with_capacity(if config.rate.is_some() { queue as usize } else { 0 });
        Ok(Self {
            config,
            dice: Dice::new(seed, stream),
            departures,
            free: Nanos::ZERO,
            owed: 0,
            latest: Nanos::ZERO,
            counters: EmulatorCounters::default(),
        })
    }

    /// A packet that takes `wire_len` on the wire is sent at `now`, which is not before that of an earlier call.
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
            at = at.saturating_add(Nanos(self.dice.within(0..self.config.jitter.0.saturating_add(1))));
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
        // What the last packet was told too late is taken off this one.
        let (bits, owed, rate) = (u128::from(wire_len.0) * BYTE, u128::from(self.owed), u128::from(rate.0));
        let time = bits.saturating_sub(owed).div_ceil(rate);
        self.owed = (time * rate + owed - bits) as u64;
        self.free = self.free.saturating_add(Nanos(u64::try_from(time).unwrap_or(u64::MAX)));
        self.departures.push_back(self.free);
        Some(self.free)
    }
}
