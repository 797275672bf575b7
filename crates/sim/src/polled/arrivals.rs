//! When packets arrive at the ring: all flows in one order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_core::Nanos;
use evenkeel_scenario::core_model::CoreFlows;
use evenkeel_traffic::random::Dice;

/// Instants are cycles with this many bits of fraction: gaps of 174.7 cycles stay exact enough.
const FRACTION: u32 = 8;

#[derive(Debug)]
struct Sender {
    /// Cycles between packets, times 2^FRACTION.
    gap: u64,
    stop: u64,
    poisson: bool,
    /// Packets that come at once.
    train: u16,
}

#[derive(Debug)]
pub(super) struct Arrivals {
    next: BinaryHeap<Reverse<(u64, u32)>>,
    senders: Vec<Sender>,
    dice: Dice,
}

impl Arrivals {
    pub(super) fn new(flows: &[CoreFlows], clock: u64, seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0);
        let at = |time: Nanos| {
            (u128::from(time.0) * (u128::from(clock) << FRACTION) / 1_000_000_000) as u64
        };
        let (mut next, mut senders) = (BinaryHeap::new(), Vec::new());
        for kind in flows {
            for _ in 0..kind.flows {
                let train = kind.train.max(1);
                let gap = (((clock << FRACTION) * u64::from(train)) as f64 / kind.pps) as u64;
                let gap = gap.max(1);
                next.push(Reverse((at(kind.start) + dice.within(0..gap), senders.len() as u32)));
                let stop = at(kind.stop);
                senders.push(Sender { gap, stop, poisson: kind.poisson, train });
            }
        }
        Self { next, senders, dice }
    }

    /// Cycles until which nothing arrives.
    pub(super) fn next(&self) -> Option<u64> {
        self.next.peek().map(|Reverse((at, _))| at.div_ceil(1 << FRACTION))
    }

    /// Every packet up to `now`, cycles, in order: its flow and when it came.
    pub(super) fn until(&mut self, now: u64, mut arrive: impl FnMut(u32, u64)) {
        let now = now << FRACTION;
        while let Some(mut first) = self.next.peek_mut() {
            let Reverse((at, flow)) = *first;
            if at > now {
                return;
            }
            let sender = &self.senders[flow as usize];
            let gap = match sender.poisson {
                true => {
                    ((u128::from(sender.gap) * u128::from(self.dice.exponential())) >> 32) as u64
                }
                false => sender.gap,
            };
            let train = sender.train;
            // The heap is put in order when `first` is let go.
            *first = Reverse((at + gap, flow));
            if at + gap >= sender.stop {
                std::collections::binary_heap::PeekMut::pop(first);
            }
            if at < sender.stop {
                (0..train).for_each(|_| arrive(flow, at >> FRACTION));
            }
        }
    }
}
