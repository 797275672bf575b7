//! Queues that make their packets when they are looked at.
//!
//! Packet n of a queue arrives at n intervals and a random part of one; sizes are drawn
//! independently. A saturated queue shows packets however early they would have come, so that their
//! stamps still tell the order in which a forwarder got them.

use std::collections::VecDeque;

use evenkeel_core::Nanos;

use crate::mix::mix64;
use crate::types::{Record, stamp};

/// Spacing of the stamps of saturated queues.
const SATURATED: Nanos = Nanos::from_micros(48);

/// A generator: SplitMix64 in counter mode.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    seed: u64,
    count: u64,
}

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self { seed: mix64(seed ^ mix64(stream)), count: 0 }
    }

    /// The next 32 random bits.
    pub(crate) fn next(&mut self) -> u32 {
        self.count = self.count.wrapping_add(1);
        mix64(self.seed.wrapping_add(self.count)) as u32
    }
}

/// One queue of one forwarder.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    random: Random,
    interval: Option<Nanos>,
    made: u64,
    waiting: VecDeque<(Nanos, Record)>,
}

impl Source {
    pub(crate) fn new(seed: u64, queue: u64, interval: Option<Nanos>) -> Self {
        Self { random: Random::new(seed, queue), interval, made: 0, waiting: VecDeque::new() }
    }

    /// The first packets that are there at `now`.
    pub(crate) fn heads(&mut self, now: Nanos, sizes: &[(u16, u32)], out: &mut [Record]) -> usize {
        let mut count = 0;
        while count < out.len() {
            if self.waiting.len() <= count {
                self.make(sizes);
            }
            let (arrival, record) = self.waiting[count];
            if self.interval.is_some() && arrival > now {
                break;
            }
            out[count] = record;
            count += 1;
        }
        count
    }

    fn make(&mut self, sizes: &[(u16, u32)]) {
        let interval = self.interval.unwrap_or(SATURATED);
        let jitter = ((u128::from(interval.0) * u128::from(self.random.next())) >> 32) as u64;
        let arrival = Nanos(self.made * interval.0 + jitter);
        let all: u64 = sizes.iter().map(|(_, often)| u64::from(*often)).sum();
        let mut drawn = (u64::from(self.random.next()) * all) >> 32;
        let mut length = 0;
        for &(size, often) in sizes {
            length = size;
            if drawn < u64::from(often) {
                break;
            }
            drawn -= u64::from(often);
        }
        self.made += 1;
        self.waiting.push_back((arrival, Record::of_packet(stamp(arrival), length)));
    }

    /// Takes the first packet.
    pub(crate) fn take(&mut self) -> Option<Record> {
        self.waiting.pop_front().map(|(_, record)| record)
    }
}
