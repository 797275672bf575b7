//! Seeded random numbers without floating point.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | U, uniform on [0, 1) | 64-bit fraction, value / 2^64 | – |
//! | E, exponential with mean 1 | `u64`, 32 bits before and 32 after the point | – |
//!
//! Exponential variates come from von Neumann's comparison method (J. von Neumann, "Various
//! techniques used in connection with random digits", 1951, the last section): it only compares
//! uniform numbers, so no logarithm is taken and nothing depends on a platform's mathematical
//! library. Let u1 > u2 > ... > un be the longest falling run at the head of a series of uniforms;
//! if n is odd, the answer is u1 plus the number of tries that failed before; else the try has
//! failed. On average 4.3 uniforms per variate.

use core::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Fixed point: one, in the format of [`Dice::exponential`].
pub const ONE: u64 = 1 << 32;

/// A stream of random numbers that depends on its seed and stream number only.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The numbers of `seed` on `stream`. Streams of one seed are independent: give each source its
    /// own.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// A uniform fraction, in units of 2^-64.
    pub fn fraction(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A whole number of `range`, uniform within 2^-64 of `range`'s length; `range.start` if it is
    /// empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        let length = range.end.saturating_sub(range.start);
        range.start + ((u128::from(self.fraction()) * u128::from(length)) >> 64) as u64
    }

    /// An exponential variate with mean [`ONE`]: 32 bits before and 32 after the point.
    pub fn exponential(&mut self) -> u64 {
        let mut whole = 0;
        loop {
            let first = self.fraction();
            let mut last = first;
            let mut odd = true;
            loop {
                let next = self.fraction();
                if next >= last {
                    break;
                }
                last = next;
                odd = !odd;
            }
            if odd {
                return whole + (first >> 32);
            }
            // A variate of 2^32 means has a probability of e^-4294967296.
            whole += ONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_streams_are_all_that_matters() {
        let draw = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            (0..64).map(|_| dice.exponential()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn exponential_variates_have_mean_variance_and_tail() {
        const N: u64 = 400_000;
        let mut dice = Dice::new(7, 0);
        let (mut sum, mut squares, mut beyond_one, mut beyond_five) = (0u128, 0u128, 0u64, 0u64);
        for _ in 0..N {
            let e = dice.exponential();
            sum += u128::from(e);
            squares += (u128::from(e) * u128::from(e)) >> 32;
            beyond_one += u64::from(e >= ONE);
            beyond_five += u64::from(e >= 5 * ONE);
        }
        let n = N as f64;
        let (mean, second) = (sum as f64 / n / ONE as f64, squares as f64 / n / ONE as f64);
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
        assert!((second - 2.0).abs() < 0.05, "second moment {second}");
        // P(E >= 1) = e^-1 = 0.36788, P(E >= 5) = 0.0067379: four standard deviations.
        assert!((beyond_one as f64 / n - 0.367_88).abs() < 0.0031, "{beyond_one}");
        assert!((beyond_five as f64 / n - 0.006_738).abs() < 0.00052, "{beyond_five}");
    }

    #[test]
    fn ranges_are_reached_and_not_left() {
        let mut dice = Dice::new(3, 0);
        let mut seen = [0u32; 5];
        for _ in 0..1_000 {
            seen[dice.within(10..15) as usize - 10] += 1;
        }
        assert!(seen.iter().all(|&n| n > 150), "{seen:?}");
        assert_eq!(dice.within(4..4), 4);
    }
}
