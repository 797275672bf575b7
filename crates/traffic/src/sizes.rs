//! Sizes of flows: fixed, Pareto, lognormal, bit for bit the same everywhere.
//!
//! | distribution | drawn as | mean |
//! |---|---|---|
//! | Pareto, shape α | m exp(E / α), E exponential: the inverse of its distribution function | m α / (α − 1) |
//! | lognormal, shape σ | m exp(σ N), N normal | m exp(σ² / 2) |
//!
//! The scale m follows from the mean asked for. E and N: [`Dice::exponential`] and `variates`.

use evenkeel_core::Bytes;

use crate::random::{Dice, ONE};
use crate::variates::{exp, normal};

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

#[cfg(test)]
mod tests {
    use super::*;

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
