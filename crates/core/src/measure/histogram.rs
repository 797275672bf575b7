//! A histogram of durations in fixed memory: log-linear buckets.
//!
//! Each power of two from 1024 ns to 2^36 ns (68.7 s) is cut into 16 buckets of equal width; one
//! bucket before takes everything shorter, one behind everything longer. A bucket is at most 1/16
//! of its lower bound wide and is told by its middle, so that a quantile is wrong by at most 1/32
//! (3.1 %) within the range. 418 counters, 3.3 KB.

use core::fmt;

use crate::units::Nanos;

/// The range starts at 2^10 ns.
const FIRST_OCTAVE: u32 = 10;
/// The range ends before 2^36 ns.
const END_OCTAVE: u32 = 36;
/// log2 of the number of buckets in an octave.
const SUB_BITS: u32 = 4;
const SUBS: usize = 1 << SUB_BITS;
/// All octaves, the bucket before them and the one behind.
const BUCKETS: usize = (END_OCTAVE - FIRST_OCTAVE) as usize * SUBS + 2;

/// A log-linear histogram of durations.
///
/// ```
/// use evenkeel_core::measure::Histogram;
/// use evenkeel_core::Nanos;
///
/// let mut delays = Histogram::new();
/// for ms in 1..=100 {
///     delays.record(Nanos::from_millis(ms));
/// }
/// let p50 = delays.quantile(0.5).unwrap();
/// assert!(p50.0.abs_diff(50_000_000) <= 50_000_000 / 32);
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
}

/// A bucket that no histogram has: the counts come from another version or are damaged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadBucket {
    /// The index that was given; valid are those below [`Histogram::BUCKETS`].
    pub index: usize,
}

impl fmt::Display for BadBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "histogram bucket {} does not exist: buckets are 0 to {}",
            self.index,
            BUCKETS - 1
        )
    }
}

impl core::error::Error for BadBucket {}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets().map(|(i, n)| (Self::bounds(i).0, n))).finish()
    }
}

impl Histogram {
    /// How many buckets there are.
    pub const BUCKETS: usize = BUCKETS;

    /// An empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; BUCKETS] }
    }

    /// Counts one duration. Constant time, no allocation; a count that is full stays full.
    #[inline]
    pub fn record(&mut self, duration: Nanos) {
        self.record_many(duration, 1);
    }

    /// Counts `n` durations at once: with the lower bound of a bucket, rebuilds that bucket.
    #[inline]
    pub fn record_many(&mut self, duration: Nanos, n: u64) {
        let count = &mut self.counts[Self::index_of(duration)];
        *count = count.saturating_add(n);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The duration that a share `q` (0 to 1, else clamped) of those counted does not exceed, at
    /// the middle of its bucket; `None` if nothing was counted. Durations beyond the range are told
    /// as 2^36 ns.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let exact = q.clamp(0.0, 1.0) * count as f64;
        let below = exact as u64;
        let rank = if (below as f64) < exact { below.saturating_add(1) } else { below };
        let rank = rank.clamp(1, count);
        let mut seen = 0u64;
        self.buckets().find_map(|(index, n)| {
            seen = seen.saturating_add(n);
            (seen >= rank).then(|| Self::middle(index))
        })
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// What was counted after `earlier`, an older copy of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        for (mine, theirs) in difference.counts.iter_mut().zip(&earlier.counts) {
            *mine = mine.saturating_sub(*theirs);
        }
        difference
    }

    /// The buckets that are not empty, as (index, count), shortest durations first: what a snapshot
    /// carries.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|(_, n)| *n > 0)
    }

    /// Builds a histogram from (index, count) pairs, as [`buckets`](Self::buckets) gives them.
    ///
    /// # Errors
    /// [`BadBucket`] if an index is not below [`Histogram::BUCKETS`].
    pub fn from_buckets(
        buckets: impl IntoIterator<Item = (usize, u64)>,
    ) -> Result<Self, BadBucket> {
        let mut built = Self::new();
        for (index, n) in buckets {
            let count = built.counts.get_mut(index).ok_or(BadBucket { index })?;
            *count = count.saturating_add(n);
        }
        Ok(built)
    }

    /// The bounds of a bucket, lower inclusive, upper exclusive. Indices beyond the last count as
    /// the last.
    #[must_use]
    pub fn bounds(index: usize) -> (Nanos, Nanos) {
        if index == 0 {
            return (Nanos::ZERO, Nanos(1 << FIRST_OCTAVE));
        }
        if index >= BUCKETS - 1 {
            return (Nanos(1 << END_OCTAVE), Nanos::MAX);
        }
        let octave = FIRST_OCTAVE as usize + (index - 1) / SUBS;
        let sub = ((index - 1) % SUBS) as u64;
        let width = 1u64 << (octave - SUB_BITS as usize);
        let lower = (1u64 << octave) + sub * width;
        (Nanos(lower), Nanos(lower + width))
    }

    fn middle(index: usize) -> Nanos {
        let (lower, upper) = Self::bounds(index);
        if upper == Nanos::MAX { lower } else { Nanos(lower.0 + (upper.0 - lower.0) / 2) }
    }

    #[inline]
    fn index_of(duration: Nanos) -> usize {
        let zeros = (duration.0 | 1).leading_zeros();
        let octave = 63 - zeros;
        if octave < FIRST_OCTAVE {
            0
        } else if octave >= END_OCTAVE {
            BUCKETS - 1
        } else {
            // The highest bit and those behind it, which counts as an octave more.
            let steps = ((duration.0 << zeros) >> (63 - SUB_BITS)) as usize;
            octave as usize * SUBS + steps - (FIRST_OCTAVE as usize * SUBS + SUBS - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_range_and_hold_their_bounds() {
        let mut expected = Nanos::ZERO;
        for index in 0..Histogram::BUCKETS {
            let (lower, upper) = Histogram::bounds(index);
            assert_eq!(lower, expected);
            assert_eq!(Histogram::index_of(lower), index);
            assert_eq!(Histogram::index_of(Nanos(upper.0 - 1)), index);
            expected = upper;
        }
        assert_eq!(expected, Nanos::MAX);
        assert_eq!(Histogram::index_of(Nanos::MAX), Histogram::BUCKETS - 1);
    }

    #[test]
    fn an_empty_one_has_no_quantile() {
        assert_eq!(Histogram::new().quantile(0.5), None);
        assert_eq!(Histogram::new().count(), 0);
    }

    #[test]
    fn durations_beyond_the_range_saturate() {
        let mut h = Histogram::new();
        h.record(Nanos::from_secs(100_000));
        assert_eq!(h.quantile(1.0), Some(Nanos(1 << 36)));
        assert!(Nanos(1 << 36) > Nanos::from_secs(60));
    }

    #[test]
    fn a_count_that_is_full_stays_full() {
        let mut h = Histogram::from_buckets([(5, u64::MAX), (6, 3)]).unwrap();
        h.record(Histogram::bounds(5).0);
        assert_eq!(h.count(), u64::MAX);
        assert!(h.quantile(0.99).is_some());
    }

    #[test]
    fn damaged_counts_are_refused() {
        assert_eq!(
            Histogram::from_buckets([(Histogram::BUCKETS, 1)]),
            Err(BadBucket { index: Histogram::BUCKETS })
        );
    }

    proptest! {
        #[test]
        fn quantiles_are_within_three_percent(
            mut values in prop::collection::vec(1_024u64..(1 << 36), 1..200),
            q in 0.0f64..=1.0,
        ) {
            let mut h = Histogram::new();
            for v in &values {
                h.record(Nanos(*v));
            }
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let told = h.quantile(q).unwrap().0;
            prop_assert!(told.abs_diff(exact) <= exact / 32 + 1, "{told} for {exact}");
        }

        #[test]
        fn since_undoes_merge_and_buckets_rebuild(
            a in prop::collection::vec(any::<u64>(), 0..50),
            b in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let of = |values: &[u64]| {
                let mut h = Histogram::new();
                values.iter().for_each(|v| h.record(Nanos(*v)));
                h
            };
            let (a, b) = (of(&a), of(&b));
            let mut both = a.clone();
            both.merge(&b);
            prop_assert_eq!(both.count(), a.count() + b.count());
            prop_assert_eq!(&both.since(&a), &b);
            prop_assert_eq!(Histogram::from_buckets(both.buckets()).unwrap(), both);
        }
    }
}
