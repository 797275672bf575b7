//! Normal and extreme variates, exponential function and logarithm in fixed point, bit for bit the
//! same everywhere: values in units of 2^-32.
//!
//! | symbol | here |
//! |---|---|
//! | N, normal | magnitude by rejection from E, exponential: accepted if a second exponential exceeds (E − 1)² / 2 (H. Kahn, "Applications of Monte Carlo", RAND RM-1237, 1956): exact |
//! | largest extreme value (Gumbel, Fisher-Tippett I), location 0, scale 1 | −ln E |
//! | e^x | 2^x': the whole part is a shift, each bit of the fraction a multiplication by a constant 2^(2^-k) that is found by integer square roots; relative error below 2^-30 |
//! | ln x | log2 bit by bit: each squaring of the mantissa gives one; error below 2^-30 |

use crate::random::{Dice, ONE};

/// A normal variate, mean 0 and variance 1, in units of 2^-32.
pub(crate) fn normal(dice: &mut Dice) -> i128 {
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
pub(crate) fn exp(x: i128) -> u64 {
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

/// ln(2) in units of 2^-62.
const LN_2: i128 = 0x2c5c_85fd_f473_de6b;

/// ln(x): argument and result in units of 2^-32; of 0 that of the smallest above.
pub(crate) fn ln(x: u64) -> i128 {
    let x = x.max(1);
    let whole = i128::from(x.ilog2()) - 32;
    // The mantissa, 1 to 2, in units of 2^-63.
    let mut mantissa = u128::from(x) << x.leading_zeros();
    let mut log2 = whole << BITS;
    for bit in (0..BITS).rev() {
        mantissa = (mantissa * mantissa) >> 63;
        if mantissa >> 64 > 0 {
            mantissa >>= 1;
            log2 |= 1 << bit;
        }
    }
    (log2 * LN_2) >> 62
}

/// A variate of the largest extreme value, location 0, scale 1, in units of 2^-32. Its mean is
/// Euler's constant, 0.5772.
pub(crate) fn extreme(dice: &mut Dice) -> i128 {
    -ln(dice.exponential())
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

    #[test]
    fn the_logarithm_is_right_to_nine_digits() {
        let one = ONE as f64;
        for x in [1.0 / one, 1e-6, 0.3, 0.999_999, 1.0, 1.5, 2.0, 40.0, 4e9] {
            let x = (x * one) as u64;
            let (exact, got) = (f64::ln(x as f64 / one), ln(x) as f64 / one);
            assert!((got - exact).abs() < 1e-9, "ln {x} = {got}, not {exact}");
        }
        assert_eq!(ln(0), ln(1));
    }

    #[test]
    fn extreme_variates_have_mean_and_quantiles_of_their_distribution() {
        const N: usize = 100_000;
        let mut dice = Dice::new(7, 1);
        let mut drawn: Vec<_> = (0..N).map(|_| extreme(&mut dice) as f64 / ONE as f64).collect();
        let mean = drawn.iter().sum::<f64>() / N as f64;
        // Standard deviation of the mean: 1.283 / 316.
        assert!((mean - 0.577_216).abs() < 0.013, "{mean}");
        drawn.sort_by(f64::total_cmp);
        for part in [0.01, 0.5, 0.99] {
            let exact = -f64::ln(-f64::ln(part));
            let got = drawn[(part * N as f64) as usize];
            assert!((got - exact).abs() < 0.15, "{part}: {got}, not {exact}");
        }
    }
}
