//! Intervals of skewed numbers by bootstrap (B. Efron, "Bootstrap methods: another look at the
//! jackknife", Ann. Statist. 7, 1979): what the numbers would have come to, had others of their
//! kind been met.
//!
//! Student's intervals reach below zero where few flows took long, and have no say on percentiles.
//! Here a statistic is looked at over samples drawn with replacement from those that there are; its
//! 2.5 % and 97.5 % points over all of these samples are the ends of the interval. Of a percentile
//! these points are known without drawing any: a sample's r-th smallest number is at most the k-th
//! smallest that there is exactly if r or more of n draws fell among the first k, and that is
//! binomial. Of a mean they are drawn, from a fixed seed: the same numbers give the same interval.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Samples that are drawn for the interval of a mean.
const SAMPLES: usize = 2_000;
/// Of more numbers than that the mean is normally distributed for all purposes.
const MOST_DRAWN: usize = 5_000;
/// The ends of the interval, as parts of all samples.
const ENDS: [f64; 2] = [0.025, 0.975];

/// A number and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The number, of what was measured.
    pub value: f64,
    /// The lower and the upper end, the upper one infinite where flows that were not done may
    /// decide it; `None` of a single value, which says nothing of others.
    pub ends: Option<[f64; 2]>,
}

/// The percentile of nearest rank, as expectations form it; `part` is 0.99 for the 99th. `None` of
/// no values. Infinite ones are above all others.
#[must_use]
pub fn percentile(values: &[f64], part: f64) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let rank = ((part * n as f64).ceil() as usize).clamp(1, n.max(1));
    let value = *sorted.get(rank - 1)?;
    let end = |of: f64| {
        // How many of the smallest numbers a sample's percentile is among with that probability.
        let (mut below, mut enough) = (0, n);
        while enough - below > 1 {
            let middle = below.midpoint(enough);
            if at_least(n, middle as f64 / n as f64, rank) >= of {
                enough = middle;
            } else {
                below = middle;
            }
        }
        sorted[enough - 1]
    };
    Some(Interval { value, ends: (n > 1).then(|| ENDS.map(end)) })
}

/// The probability of `rank` or more successes in `n` trials of probability `p`.
fn at_least(n: usize, p: f64, rank: usize) -> f64 {
    if p >= 1.0 {
        return 1.0;
    }
    if p <= 0.0 {
        return if rank == 0 { 1.0 } else { 0.0 };
    }
    // From the likeliest number on, which is taken for 1, in both directions until nothing comes
    // any more.
    let likeliest = (((n + 1) as f64 * p) as usize).min(n);
    let odds = p / (1.0 - p);
    let (mut all, mut enough) = (0.0, 0.0);
    let mut add = |k: usize, weight: f64| {
        all += weight;
        if k >= rank {
            enough += weight;
        }
    };
    let mut weight = 1.0;
    for k in likeliest..=n {
        add(k, weight);
        weight *= (n - k) as f64 / (k + 1) as f64 * odds;
        if weight < f64::EPSILON {
            break;
        }
    }
    weight = 1.0;
    for k in (1..=likeliest).rev() {
        weight *= k as f64 / (n - k + 1) as f64 / odds;
        if weight < f64::EPSILON {
            break;
        }
        add(k - 1, weight);
    }
    enough / all
}

/// The mean. `None` of no values, or if one is infinite.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Interval> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    if values.len() == 1 {
        return Some(Interval { value, ends: None });
    }
    if values.len() > MOST_DRAWN {
        let squares: f64 = values.iter().map(|each| (each - value) * (each - value)).sum();
        let half = 1.96 * (squares / (n - 1.0) / n).sqrt();
        return Some(Interval { value, ends: Some([value - half, value + half]) });
    }
    let mut dice = ChaCha8Rng::seed_from_u64(values.len() as u64);
    let mut draw = || {
        let at = (u128::from(dice.next_u64()) * values.len() as u128) >> 64;
        values[at as usize]
    };
    let mut means: Vec<f64> =
        (0..SAMPLES).map(|_| (0..values.len()).map(|_| draw()).sum::<f64>() / n).collect();
    means.sort_by(f64::total_cmp);
    let end = |part: f64| means[((part * SAMPLES as f64) as usize).min(SAMPLES - 1)];
    Some(Interval { value, ends: Some(ENDS.map(end)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_tails_are_those_of_the_tables() {
        // 3 or more heads of 5: one half; 9 or more of 10 at 0.7: 0.1493.
        assert!((at_least(5, 0.5, 3) - 0.5).abs() < 1e-12);
        assert!((at_least(10, 0.7, 9) - 0.149_308).abs() < 1e-6);
        assert!((at_least(100_000, 0.01, 1_000) - 0.5).abs() < 0.01);
        assert_eq!(
            (at_least(5, 0.0, 1), at_least(5, 1.0, 5), at_least(3, 0.4, 0)),
            (0.0, 1.0, 1.0)
        );
    }

    #[test]
    fn the_interval_of_a_percentile_is_that_of_drawn_samples() {
        // Skewed: squares. Drawn a hundred thousand times, the median of such samples has these
        // points.
        let values: Vec<f64> = (1..=40).map(|n| f64::from(n * n)).collect();
        let found = percentile(&values, 0.5).unwrap();
        let mut dice = ChaCha8Rng::seed_from_u64(1);
        let mut medians: Vec<f64> = (0..20_000)
            .map(|_| {
                let mut drawn: Vec<f64> =
                    (0..40).map(|_| values[(dice.next_u64() % 40) as usize]).collect();
                drawn.sort_by(f64::total_cmp);
                drawn[19]
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        assert_eq!(found.value, 400.0);
        let [low, high] = found.ends.unwrap();
        for (end, drawn) in [(low, medians[500]), (high, medians[19_500])] {
            assert!((end.sqrt() - drawn.sqrt()).abs() <= 1.0, "{end} {drawn}");
        }
    }

    #[test]
    fn what_was_never_done_is_the_upper_end_and_one_value_has_no_interval() {
        let mut values = vec![1.0; 95];
        values.extend([f64::INFINITY; 5]);
        let found = percentile(&values, 0.9).unwrap();
        assert_eq!((found.value, found.ends.unwrap()[0]), (1.0, 1.0));
        assert!(percentile(&values, 0.95).unwrap().ends.unwrap()[1].is_infinite());
        let alone = Some(Interval { value: 3.0, ends: None });
        assert_eq!((percentile(&[3.0], 0.99), mean(&[3.0])), (alone, alone));
        assert_eq!((percentile(&[], 0.5), mean(&[]), mean(&[f64::INFINITY])), (None, None, None));
    }

    #[test]
    fn the_interval_of_a_skewed_mean_stays_above_zero_and_covers_it_as_often_as_it_says() {
        let found = mean(&[0.1, 0.1, 0.2, 0.2, 5.0]).unwrap();
        let [low, high] = found.ends.unwrap();
        assert!(low > 0.0 && low < found.value && found.value < high);
        assert_eq!(found, mean(&[0.1, 0.1, 0.2, 0.2, 5.0]).unwrap(), "from a fixed seed");
        // 300 samples of 60 squares of uniform numbers, whose mean is 1/3.
        let mut dice = ChaCha8Rng::seed_from_u64(7);
        let covered = (0..300).filter(|_| {
            let one = |dice: &mut ChaCha8Rng| (dice.next_u64() as f64 / u64::MAX as f64).powi(2);
            let values: Vec<f64> = (0..60).map(|_| one(&mut dice)).collect();
            let [low, high] = mean(&values).unwrap().ends.unwrap();
            low <= 1.0 / 3.0 && 1.0 / 3.0 <= high
        });
        let covered = covered.count();
        assert!((270..=296).contains(&covered), "{covered} of 300");
    }
}
