//! Sizes of flows: fixed, Pareto, lognormal, bit for bit the same everywhere.
//!
//! | distribution | drawn as | mean |
//! |---|---|---|
//! | Pareto, shape α | m exp(E / α), E exponential: the inverse of its distribution function | m α / (α − 1) |
//! | lognormal, shape σ | m exp(σ N), N normal | m exp(σ² / 2) |
//!
//! The scale m follows from the mean asked for. E is exact ([`Dice::exponential`]). |N| is drawn by
//! rejection from E, accepted if a second exponential exceeds (E − 1)² / 2 (H. Kahn, "Applications
//! of Monte Carlo", RAND RM-1237, 1956): exact, too. exp is 2^x in fixed point: the whole part is a
//! shift, each bit of the fraction a multiplication by a constant 2^(2^-k) that is found by integer
//! square roots. Relative error below 2^-30.

use evenkeel_core::Bytes;

use crate::random::{Dice, ONE};

/// How long flows are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed,
    /// Pareto: few flows carry most bytes.
    Pareto {
        /// Shape α in thousandths, 1 001 to 100 000. Up to 2 the variance is infinite; near 1 the
        /// mean of any sample is far below that of the distribution.
        shape_milli: u32,
    },
    /// Lognormal.
    Lognormal {
        /// Shape σ, the standard deviation of the logarithm, in thousandths, 0 to 4 000.
        shape_milli: u32,
    },
}

impl Sizes {
    /// Whether the shape lies in its range.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        match self {
            Self::Fixed => true,
            Self::Pareto { shape_milli } => shape_milli > 1_000 && shape_milli <= 100_000,
            Self::Lognormal { shape_milli } => shape_milli <= 4_000,
        }
    }

    /// A size, of distributions with this mean: at least one byte, at most 2^48.
    pub fn draw(self, mean: Bytes, dice: &mut Dice) -> Bytes {
        let size = match self {
            Self::Fixed => return mean,
            Self::Pareto { shape_milli } => {
                let shape = i128::from(shape_milli);
                let exponent = i128::from(dice.exponential()) * 1_000 / shape;
                // Two factors of at most 2^48 and 2^64.
                let scale = u128::from(mean.0) * (u128::from(shape_milli) - 1_000)
                    / u128::from(shape_milli);
                scale * u128::from(exp(exponent))
            }
            Self::Lognormal { shape_milli } => {
                let shape = i128::from(shape_milli);
                let exponent =
                    normal(dice) * shape / 1_000 - i128::from(ONE) * shape * shape / 2_000_000;
                u128::from(mean.0) * u128::from(exp(exponent))
            }
        };
        Bytes(u64::try_from(size >> 32).unwrap_or(u64::MAX).clamp(1, MOST))
    }
}

/// The largest flow.
const MOST: u64 = 1 << 48;

/// A normal variate, mean 0 and variance 1, in units of 2^-32.
fn normal(dice: &mut Dice) -> i128 {
    loop {
        let (x, y) = (i128::from(dice.exponential()), i128::from(dice.exponential()));
        let off = x - i128::from(ONE);
        if 2 * (y << 32) > off * off {
            return if dice.fraction() >> 63 == 0 { x } else { -x };
        }
    }
}

/// log2(e) in units of 2^-62.
const LOG2_E: i128 = 0x5c55_1d94_ae0b_f85d;
/// Bits of the fraction that count.
const BITS: usize = 32;
/// 2^(2^-k) for k from 1, in units of 2^-63.
const ROOTS: [u64; BITS] = {
    let mut roots = [0; BITS];
    let mut root: u128 = 2 << 63;
    let mut k = 0;
    while k < BITS {
        root = (root << 63).isqrt();
        roots[k] = root as u64;
        k += 1;
    }
    roots
};

/// e^x: argument and result in units of 2^-32; `u64::MAX` if that is too small for it.
fn exp(x: i128) -> u64 {
    // Far beyond what the result can hold, either way.
    let x = x.clamp(-(64 << 32), 64 << 32);
    let log2 = (x * LOG2_E) >> 62;
    let (whole, fraction) = ((log2 >> 32) as i32, log2 as u32);
    let mut product: u128 = 1 << 63;
    for (k, root) in ROOTS.iter().enumerate() {
        if fraction >> (31 - k) & 1 == 1 {
            product = (product * u128::from(*root)) >> 63;
        }
    }
    match 31 - whole {
        shift @ 0..=127 => u64::try_from(product >> shift).unwrap_or(u64::MAX),
        128.. => 0,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_function_is_right_to_nine_digits() {
        for (x, expected) in [
            (0.0, 1.0),
            (1.0, std::f64::consts::E),
            (-1.0, 0.367_879_441_171_442_3),
            (std::f64::consts::LN_2, 2.0),
            (10.0, 22_026.465_794_806_718),
            (-3.5, 0.030_197_383_422_318_5),
            (0.123_456, 1.131_400_221_5),
        ] {
            let one = ONE as f64;
            let got = exp((x * one) as i128) as f64 / one;
            let error = (got / expected - 1.0).abs();
            assert!(error < 2e-8, "e^{x} = {got}, not {expected}");
        }
        assert_eq!(exp(i128::MAX), u64::MAX);
        assert_eq!(exp(i128::MIN), 0);
    }

    fn mean_of(sizes: Sizes, n: u64) -> f64 {
        let mut dice = Dice::new(11, 4);
        let sum: u128 = (0..n).map(|_| u128::from(sizes.draw(Bytes(100_000), &mut dice).0)).sum();
        sum as f64 / n as f64
    }

    #[test]
    fn means_are_those_asked_for() {
        assert_eq!(Sizes::Fixed.draw(Bytes(7), &mut Dice::new(1, 1)), Bytes(7));
        let pareto = mean_of(Sizes::Pareto { shape_milli: 3_000 }, 200_000);
        assert!((pareto / 1e5 - 1.0).abs() < 0.01, "{pareto}");
        let lognormal = mean_of(Sizes::Lognormal { shape_milli: 1_000 }, 200_000);
        assert!((lognormal / 1e5 - 1.0).abs() < 0.02, "{lognormal}");
    }

    #[test]
    fn tails_are_those_of_the_distributions() {
        const N: usize = 100_000;
        let mut dice = Dice::new(5, 0);
        let mean = Bytes(30_000);
        // Scale 10 000 at shape 1.5: P(X > 10 m) = 10^-1.5 = 0.0316.
        let pareto = Sizes::Pareto { shape_milli: 1_500 };
        let beyond = (0..N).filter(|_| pareto.draw(mean, &mut dice).0 > 100_000).count();
        assert!((beyond as f64 / N as f64 - 0.0316).abs() < 0.0025, "{beyond}");
        // Half of all lognormal sizes are below the median, mean e^-(σ²/2) = 0.1353 mean at σ = 2.
        let lognormal = Sizes::Lognormal { shape_milli: 2_000 };
        let below = (0..N).filter(|_| lognormal.draw(mean, &mut dice).0 < 4_060).count();
        assert!((below as f64 / N as f64 - 0.5).abs() < 0.007, "{below}");
        // P(N > 2) = 0.02275: at median e^4.
        let above = (0..N).filter(|_| lognormal.draw(mean, &mut dice).0 > 221_673).count();
        assert!((above as f64 / N as f64 - 0.02275).abs() < 0.0025, "{above}");
    }
}
