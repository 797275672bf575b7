//! BLUE: how likely a flow that does not answer loses a packet. See [`super::elastic`].

use crate::units::Nanos;

/// 2^20 ns: what BLUE's clock counts, which goes round after 68 s.
const TICK: u32 = 20;
/// p falls that much slower than it grows.
const SLOWER: u64 = 16;

/// The probability that a flow which does not answer loses a packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Blue {
    /// When p was last changed, in ticks modulo 2^16: bytes, so that it fits a gap.
    at: [u8; 2],
    /// p in 1/256.
    probability: u8,
}

impl Blue {
    pub(crate) const NEW: Self = Self { at: [0; 2], probability: 0 };

    #[inline]
    pub(super) fn drops(self, random: u32) -> bool {
        self.probability > 0 && random >> 24 < u32::from(self.probability)
    }

    /// Ticks since p was changed.
    fn since(self, now: Nanos) -> u16 {
        ((now.0 >> TICK) as u16).wrapping_sub(u16::from_ne_bytes(self.at))
    }

    fn set(&mut self, now: Nanos, probability: u8) {
        self.at = ((now.0 >> TICK) as u16).to_ne_bytes();
        self.probability = probability;
    }

    pub(super) fn overflowed(&mut self, now: Nanos, target: Nanos) {
        if self.probability == 0 || u64::from(self.since(now)) > target.0 >> TICK {
            self.set(now, self.probability.saturating_add(1));
        }
    }

    /// p falls by 1/256 for each 16 targets that have passed.
    #[inline]
    pub(super) fn forget(&mut self, now: Nanos, target: Nanos) {
        if self.probability > 0 {
            let passed = u64::from(self.since(now)) / ((target.0 >> TICK).max(1) * SLOWER);
            if passed > 0 {
                let less = u8::try_from(passed).unwrap_or(u8::MAX);
                self.set(now, self.probability.saturating_sub(less));
            }
        }
    }

    /// The flow was away for `idle`: beyond half a turn of the clock all is forgotten.
    #[inline]
    pub(crate) fn rested(&mut self, idle: Nanos) {
        if idle.0 >> (TICK + 15) > 0 {
            self.probability = 0;
        }
    }
}

/// Random numbers for who loses: xorshift, which is enough for a coin.
#[derive(Clone, Debug)]
pub struct Coin(u32);

impl Coin {
    /// Any.
    pub const NEW: Self = Self(0x9e37_79b9);

    /// The next.
    #[inline]
    pub fn flip(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_millis(5);

    #[test]
    fn who_does_not_answer_loses_more_and_more_and_it_is_forgotten() {
        let mut blue = Blue::NEW;
        for ms in 0..600 {
            blue.overflowed(Nanos::from_millis(ms), TARGET);
        }
        // Once within a target.
        assert!((95..=125).contains(&blue.probability), "{blue:?}");
        let mut coin = Coin::NEW;
        let dropped = (0..10_000).filter(|_| blue.drops(coin.flip())).count();
        let expected = 10_000 * usize::from(blue.probability) / 256;
        assert!(dropped.abs_diff(expected) < 400, "{dropped} {expected}");
        let before = blue.probability;
        // 2 s without an overflow.
        blue.forget(Nanos::from_millis(2_600), TARGET);
        assert!((20..=35).contains(&(before - blue.probability)), "{blue:?}");
        blue.rested(Nanos::from_secs(30));
        assert!(blue.probability > 0);
        blue.rested(Nanos::from_secs(40));
        assert_eq!(blue.probability, 0);
    }
}
