//! What is held against the bounds of the disciplines: who always waits is not behind.

use evenkeel_core::audit::Promise;
use evenkeel_core::{Nanos, Packet as _};

use crate::common::TestPacket;

/// Flows, or classes.
pub(super) const FLOWS: usize = 3;

/// Looks at every packet that is sent.
pub(super) trait Judge: Clone {
    /// `packet` of flow `of` was sent, and whose packets waited just before; panics if that breaks
    /// a promise.
    fn sent(&mut self, now: Nanos, of: usize, packet: &TestPacket, waited: [bool; FLOWS]);
}

/// Who only keeps the contract of all disciplines.
impl Judge for () {
    fn sent(&mut self, _: Nanos, _: usize, _: &TestPacket, _: [bool; FLOWS]) {}
}

/// The least and most that a sum was since its beginning, and the sum.
#[derive(Clone, Copy, Default)]
struct Range {
    low: i128,
    high: i128,
    now: i128,
}

impl Range {
    /// Adds; the largest rise and the largest fall of the sum over any time that ends now.
    fn add(&mut self, change: i128) -> (i128, i128) {
        self.now += change;
        let moved = (self.now - self.low, self.high - self.now);
        self.low = self.low.min(self.now);
        self.high = self.high.max(self.now);
        moved
    }
}

/// Two flows that both wait are sent the same, within `bound` over any time.
#[derive(Clone)]
pub(super) struct Equal {
    bound: i128,
    pairs: [[Range; FLOWS]; FLOWS],
}

impl Equal {
    pub(super) fn within(bound: u64) -> Self {
        Self { bound: bound.into(), pairs: Default::default() }
    }

    /// As `promise` has it, with packets of at most `longest` bytes on the wire.
    pub(super) fn as_promised(promise: &Promise, longest: u64) -> Self {
        let Promise::Flows { spread, .. } = promise else { panic!("{promise:?}") };
        Self::within(spread.0 + 2 * longest)
    }
}

impl Judge for Equal {
    fn sent(&mut self, _: Nanos, of: usize, packet: &TestPacket, waited: [bool; FLOWS]) {
        for one in 0..FLOWS {
            for other in one + 1..FLOWS {
                let pair = &mut self.pairs[one][other];
                if !(waited[one] && waited[other]) {
                    *pair = Range::default();
                    continue;
                }
                let sign = i128::from(of == one) - i128::from(of == other);
                let (rise, fall) = pair.add(sign * i128::from(packet.wire_len().0));
                let most = rise.max(fall);
                assert!(most <= self.bound, "{one} and {other} differ by {most}: {}", self.bound);
            }
        }
    }
}

/// A class that waits is not behind its part of what is sent, by weight, by more than the bound,
/// over any time.
#[derive(Clone)]
pub(super) struct ByWeight {
    weights: [i128; FLOWS],
    /// Times the sum of all weights.
    bound: i128,
    behind: [Range; FLOWS],
}

impl ByWeight {
    /// As `promise` has it, with packets of at most `longest` bytes in its unit.
    pub(super) fn as_promised(promise: &Promise, longest: u64) -> Self {
        let Promise::Shares { weights, bytes, packets, .. } = promise else {
            panic!("{promise:?}")
        };
        let weights: Vec<i128> = weights.iter().map(|weight| *weight as i128).collect();
        let weights: [i128; FLOWS] = weights.try_into().expect("a weight for each");
        let bound = i128::from(bytes + packets * longest) * weights.iter().sum::<i128>();
        Self { weights, bound, behind: Default::default() }
    }
}

impl Judge for ByWeight {
    fn sent(&mut self, _: Nanos, of: usize, packet: &TestPacket, waited: [bool; FLOWS]) {
        let all: i128 = self.weights.iter().sum();
        let length = i128::from(packet.wire_len().0);
        for (class, behind) in self.behind.iter_mut().enumerate() {
            if !waited[class] {
                *behind = Range::default();
                continue;
            }
            let own = if class == of { length * all } else { 0 };
            let (lag, _ahead) = behind.add(length * self.weights[class] - own);
            let (lag, bound) = (lag / all, self.bound / all);
            assert!(lag <= bound, "class {class} is {lag} bytes behind: {bound}");
        }
    }
}

/// Between two packets of a class lies the class's time, whoever else waits.
#[derive(Clone)]
pub(super) struct Apart {
    by: [Nanos; FLOWS],
    last: [Option<Nanos>; FLOWS],
}

impl Apart {
    pub(super) fn by(by: [Nanos; FLOWS]) -> Self {
        Self { by, last: [None; FLOWS] }
    }
}

impl Judge for Apart {
    fn sent(&mut self, now: Nanos, of: usize, _: &TestPacket, _: [bool; FLOWS]) {
        let due = self.last[of].map_or(Nanos::ZERO, |last| last + self.by[of]);
        assert!(now >= due, "class {of} at {now:?} and not before {due:?}");
        self.last[of] = Some(now);
    }
}

/// The level of each; who waits at a higher one goes first.
#[derive(Clone)]
pub(super) struct Levels(pub(super) [u32; FLOWS]);

impl Judge for Levels {
    fn sent(&mut self, _: Nanos, of: usize, _: &TestPacket, waited: [bool; FLOWS]) {
        let highest = (0..FLOWS).filter(|flow| waited[*flow]).map(|flow| self.0[flow]).max();
        assert_eq!(Some(self.0[of]), highest, "flow {of} went before a higher one");
    }
}
