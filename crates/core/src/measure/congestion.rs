//! The LCT QoS metric: how congested a module is *for a class*, comparable between classes and
//! parameters.
//!
//! Source: the metric of the LCT group, Coimbra (Monteiro, Quadros, Boavida, SDNE'96; SPIE
//! 3529, 1998): congestion is told from QoS parameters, the limits of their normal variation and
//! their degradation thresholds. The formulas are not public; these are a reconstruction from the
//! abstracts.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | v, a measured parameter | `value` | the parameter's: ns, [`Loss`] |
//! | n, normal limit: no impact up to it | [`Thresholds::normal`] | the parameter's |
//! | d, degradation threshold: the service is useless there | [`Thresholds::degraded`] | the parameter's |
//! | DS = 1/(d − n), degradation slope | [`Thresholds::slope_of`] | index per relative change |
//! | CI = max(0, (v − n)·DS), congestion index | [`Index`] | 1 = at the degradation threshold |
//! | class index: max CI, or a weighted mean | [`ClassIndex::worst`], [`ClassIndex::mean`] | |
//! | g, smoothing: v ← v + g·(x − v) | [`Smoother`] | 2^-16 |
//!
//! d below n tells a parameter of which more is better (throughput): CI = max(0, (n − v)/(n − d)).
//!
//! **Several modules in a row**: their delays add and their losses combine as 1 − ∏(1 − l); the
//! index is then that of the whole ([`Measured::then`]). Indexes are never added: two modules that
//! are each at the normal limit congest together.
//!
//! **Numbers** are integers, so results are the same on every machine:
//!
//! ```text
//! Index  u32  [16 bits whole][16 bits fraction]   65536 = 1, at most 4 = 0x0004_0000
//! Loss   u32  [2 bits whole ][30 bits fraction]   2^30 = all packets lost
//! ```
//!
//! Everything takes constant time and allocates nothing. Not implemented: a scope beyond the values
//! that the caller composes.

use core::fmt;

use crate::settings::{Held, Kind, Value, shortest};
use crate::units::{Fraction, Nanos};
use crate::words;

/// A share of packets lost, 0 to 1, in units of 2^-30.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Loss(u32);

impl Loss {
    /// No packet.
    pub const NONE: Self = Self(0);
    /// Every packet.
    pub const ALL: Self = Self(1 << 30);
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `lost` of `all` packets; none of none. More than all counts as all.
    #[must_use]
    pub fn of(lost: u64, all: u64) -> Self {
        let share = (u128::from(lost) << 30).checked_div(u128::from(all)).unwrap_or(0);
        Self(share.min(1 << 30) as u32)
    }

    /// In units of 2^-30; values above 1 count as 1.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        if bits > 1 << 30 { Self::ALL } else { Self(bits) }
    }

    /// In units of 2^-30.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// What two modules in a row lose: 1 − (1 − a)(1 − b), rounded down.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        let (a, b) = (self.0 as u64, next.0 as u64);
        // Rounding what passes up rounds the loss down.
        let passes = (((1 << 30) - a) * ((1 << 30) - b)).div_ceil(1 << 30);
        Self(((1 << 30) - passes) as u32)
    }
}

impl From<f64> for Loss {
    /// The nearest share not above; values outside of 0 to 1 count as the nearer end.
    fn from(share: f64) -> Self {
        // A multiplication by a power of two is exact.
        Self((share.clamp(0.0, 1.0) * f64::from(1 << 30)) as u32)
    }
}

impl Held for Loss {
    const KIND: Kind = Kind::Number { min: 0.0, max: 1.0 };

    fn to_value(&self) -> Value {
        let exact = f64::from(self.0) / f64::from(Self::ALL.0);
        Value::Number(shortest(exact, |share| Self::from(share) == *self))
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Number(share) => Some(Self::from(*share)),
            _ => None,
        }
    }
}

/// A congestion index: 0 is normal, 1 is at the degradation threshold, capped at 4. In units of
/// 2^-16.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Index(u32);

impl Index {
    /// Within normal limits.
    pub const ZERO: Self = Self(0);
    /// At the degradation threshold.
    pub const ONE: Self = Self(1 << 16);
    /// The largest that is told: beyond it a class is lost anyway, and a controller must not be
    /// blinded by it.
    pub const CAP: Self = Self(4 << 16);

    /// In units of 2^-16; values above the cap count as the cap.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        if bits > Self::CAP.0 { Self::CAP } else { Self(bits) }
    }

    /// In units of 2^-16.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// As a number, exactly.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(1 << 16)
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.as_f64())
    }
}

/// The normal limit and the degradation threshold are the same: there is no slope between them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoSlope;

impl fmt::Display for NoSlope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the normal limit and the degradation threshold must differ")
    }
}

impl core::error::Error for NoSlope {}

/// What a class makes of one parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thresholds {
    normal: u64,
    degraded: u64,
}

impl Thresholds {
    /// From the normal limit and the degradation threshold, in the parameter's unit. `degraded`
    /// below `normal`: more is better.
    ///
    /// # Errors
    /// [`NoSlope`] if they are the same.
    pub const fn new(normal: u64, degraded: u64) -> Result<Self, NoSlope> {
        if normal == degraded { Err(NoSlope) } else { Ok(Self { normal, degraded }) }
    }

    /// The limit up to which there is no impact.
    #[must_use]
    pub const fn normal(self) -> u64 {
        self.normal
    }

    /// Where the service is useless.
    #[must_use]
    pub const fn degraded(self) -> u64 {
        self.degraded
    }

    /// The congestion index of a measured value. Never falls when the parameter gets worse.
    #[must_use]
    pub fn index(self, value: u64) -> Index {
        let excess = if self.degraded > self.normal {
            value.saturating_sub(self.normal)
        } else {
            self.normal.saturating_sub(value)
        };
        Index(self.scaled(excess).min(Index::CAP.0.into()) as u32)
    }

    /// `amount` times the degradation slope, in units of 2^-16 of the index: by how much the index
    /// changes when the parameter changes by `amount`. Saturates.
    #[must_use]
    pub fn slope_of(self, amount: u64) -> u64 {
        self.scaled(amount).min(u64::MAX.into()) as u64
    }

    fn scaled(self, amount: u64) -> u128 {
        (u128::from(amount) << 16) / u128::from(self.degraded.abs_diff(self.normal))
    }
}

/// What a class makes of delay and loss: its two pairs of limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sensitivity {
    /// Of the mean delay, in nanoseconds.
    pub delay: Thresholds,
    /// Of the share of packets lost, in units of 2^-30.
    pub loss: Thresholds,
}

impl Sensitivity {
    /// Speech: 5 to 50 ms, 1 to 10 %.
    pub const VOICE: Self = Self::preset(5, 50, (1, 100), (1, 10));
    /// Moving pictures: 10 to 100 ms, 0.5 to 5 %.
    pub const VIDEO: Self = Self::preset(10, 100, (1, 200), (1, 20));
    /// A person waits for each answer: 20 to 400 ms, 1 to 20 %.
    pub const INTERACTIVE: Self = Self::preset(20, 400, (1, 100), (1, 5));
    /// No user waits: 100 ms to 2 s, 2 to 50 %.
    pub const BULK: Self = Self::preset(100, 2_000, (1, 50), (1, 2));
    /// The presets, by the class names they are known by.
    pub const PRESETS: [(&'static str, Self); 4] = [
        ("voice", Self::VOICE),
        ("video", Self::VIDEO),
        ("interactive", Self::INTERACTIVE),
        ("bulk", Self::BULK),
    ];

    const fn preset(
        normal_ms: u64,
        degraded_ms: u64,
        normal: (u64, u64),
        degraded: (u64, u64),
    ) -> Self {
        const fn loss((of, all): (u64, u64)) -> u64 {
            (of << 30) / all
        }
        Self {
            delay: Thresholds { normal: normal_ms * 1_000_000, degraded: degraded_ms * 1_000_000 },
            loss: Thresholds { normal: loss(normal), degraded: loss(degraded) },
        }
    }

    /// The preset of a class name; [`BULK`](Self::BULK) for other names.
    #[must_use]
    pub fn by_name(name: &str) -> Self {
        Self::PRESETS
            .iter()
            .find(|(preset, _)| *preset == name)
            .map_or(Self::BULK, |(_, preset)| *preset)
    }

    /// The indexes of what was measured.
    #[must_use]
    pub fn index(&self, measured: Measured) -> ClassIndex {
        ClassIndex {
            delay: self.delay.index(measured.delay.0),
            loss: self.loss.index(measured.loss.bits().into()),
        }
    }
}

/// What a class met in a module.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Measured {
    /// Mean delay.
    pub delay: Nanos,
    /// Share of packets lost.
    pub loss: Loss,
}

impl Measured {
    /// What the class meets in this module and then the next.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        Self { delay: self.delay.saturating_add(next.delay), loss: self.loss.then(next.loss) }
    }
}

/// The congestion indexes of a class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClassIndex {
    /// For delay.
    pub delay: Index,
    /// For loss.
    pub loss: Index,
}

impl ClassIndex {
    /// The class index: that of its worst parameter.
    #[must_use]
    pub fn worst(self) -> Index {
        self.delay.max(self.loss)
    }

    /// The class index as a mean, delay weighted with `delay_weight` of 65536 (more counts as that)
    /// and loss with the rest.
    #[must_use]
    pub fn mean(self, delay_weight: u32) -> Index {
        let weight = u64::from(delay_weight.min(1 << 16));
        let sum = u64::from(self.delay.0) * weight + u64::from(self.loss.0) * ((1 << 16) - weight);
        Index((sum >> 16) as u32)
    }
}

words! {
    /// How a class index is made of a class's parameters.
    pub enum Aggregate {
        /// The larger of the two.
        #[default]
        Worst = "worst",
        /// Their mean, delay weighted with `delay_weight`.
        Mean = "mean",
    }
}

impl Aggregate {
    /// The class index.
    #[must_use]
    pub fn of(self, index: ClassIndex, delay_weight: Fraction) -> Index {
        match self {
            Self::Worst => index.worst(),
            Self::Mean => index.mean(delay_weight.0),
        }
    }
}

/// A moving average, exponentially weighted: v ← v + g·(x − v). The first value is taken as it is.
///
/// Kept with 16 bits of fraction, so that a small g does not stop short of the value by more than
/// 2^-16/g.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Smoother {
    /// In units of 2^-16 of the parameter's.
    value: Option<u128>,
}

impl Smoother {
    /// Takes in a value with weight `gain`, in units of 2^-16; above 1 counts as 1. Gives the
    /// average, rounded to nearest.
    pub fn take(&mut self, x: u64, gain: u32) -> u64 {
        let gain = u128::from(gain.min(1 << 16));
        let x = u128::from(x) << 16;
        // At most 2^80 times 2^16: no overflow.
        let next = self.value.map_or(x, |v| (v * ((1 << 16) - gain) + x * gain) >> 16);
        self.value = Some(next);
        self.value().unwrap_or_default()
    }

    /// The average; `None` before the first value.
    #[must_use]
    pub fn value(&self) -> Option<u64> {
        self.value.map(|v| u64::try_from((v + (1 << 15)) >> 16).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    #[test]
    fn the_index_is_0_at_the_normal_limit_and_1_at_the_threshold() {
        for (name, class) in Sensitivity::PRESETS {
            for limits in [class.delay, class.loss] {
                assert_eq!(limits.index(limits.normal()), Index::ZERO, "{name}");
                assert_eq!(limits.index(limits.degraded()), Index::ONE, "{name}");
                assert_eq!(limits.index(u64::MAX), Index::CAP, "{name}");
            }
        }
        assert_eq!(Sensitivity::by_name("voice").delay.index(27_500_000).as_f64(), 0.5);
        assert_eq!(Sensitivity::by_name("anything"), Sensitivity::BULK);
        assert_eq!(Thresholds::new(7, 7), Err(NoSlope));
    }

    #[test]
    fn of_throughput_more_is_better() {
        let rate = Thresholds::new(2_000_000, 500_000).unwrap();
        let index = |v| rate.index(v).as_f64();
        assert_eq!(
            [index(3_000_000), index(2_000_000), index(1_250_000), index(500_000)],
            [0.0, 0.0, 0.5, 1.0]
        );
    }

    #[test]
    fn modules_in_a_row_congest_together() {
        let class = Sensitivity::VIDEO;
        let one = Measured { delay: ms(10), loss: Loss::of(1, 200) };
        assert_eq!(class.index(one), ClassIndex::default());
        let two = one.then(one);
        assert_eq!(two.delay, ms(20));
        let both = class.index(two);
        assert!(both.delay > Index::ZERO && both.loss > Index::ZERO, "{both:?}");
        assert_eq!(Loss::of(1, 2).then(Loss::of(1, 2)), Loss::of(3, 4));
        assert_eq!(Loss::ALL.then(Loss::NONE), Loss::ALL);
    }

    #[test]
    fn the_class_index_is_the_worst_or_a_mean() {
        let index = ClassIndex { delay: Index::ONE, loss: Index::ZERO };
        assert_eq!(Aggregate::Worst.of(index, Fraction::ZERO), Index::ONE);
        assert_eq!(Aggregate::Mean.of(index, Fraction(1 << 14)).as_f64(), 0.25);
        assert_eq!(Aggregate::Mean.of(index, Fraction::MAX), Index::ONE);
    }

    #[test]
    fn smoothing_closes_in_on_a_step() {
        let mut smoother = Smoother::default();
        assert_eq!(smoother.value(), None);
        assert_eq!(smoother.take(1_000_000, 1 << 14), 1_000_000);
        assert_eq!(smoother.take(2_000_000, 1 << 14), 1_250_000);
        for _ in 0..200 {
            smoother.take(2_000_000, 1 << 14);
        }
        assert_eq!(smoother.value(), Some(2_000_000));
        assert_eq!(smoother.take(u64::MAX, u32::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_worse_value_never_has_a_smaller_index(
            normal in 0u64..1 << 40,
            width in 1u64..1 << 40,
            a in any::<u64>(),
            b in any::<u64>(),
        ) {
            let (low, high) = (a.min(b), a.max(b));
            let rising = Thresholds::new(normal, normal + width).unwrap();
            prop_assert!(rising.index(low) <= rising.index(high));
            let falling = Thresholds::new(normal + width, normal).unwrap();
            prop_assert!(falling.index(low) >= falling.index(high));
            prop_assert!(rising.index(high) <= Index::CAP);
        }

        #[test]
        fn composition_is_symmetric_and_never_better_than_either(
            a in any::<(u32, u64)>(), b in any::<(u32, u64)>(),
        ) {
            let of = |(loss, delay)| Measured { delay: Nanos(delay), loss: Loss::from_bits(loss) };
            let (a, b) = (of(a), of(b));
            prop_assert_eq!(a.then(b), b.then(a));
            prop_assert!(a.then(b).loss >= a.loss.max(b.loss) && a.then(b).loss <= Loss::ALL);
            prop_assert!(a.then(b).delay >= a.delay.max(b.delay));
            let class = Sensitivity::INTERACTIVE;
            prop_assert!(class.index(a.then(b)).worst() >= class.index(a).worst());
        }

        #[test]
        fn an_average_stays_between_what_it_had_and_what_came(
            values in prop::collection::vec(any::<u64>(), 1..50), gain in any::<u32>(),
        ) {
            let mut smoother = Smoother::default();
            for x in values {
                let before = smoother.value().unwrap_or(x);
                let after = smoother.take(x, gain);
                prop_assert!(after >= before.min(x).saturating_sub(1) && after <= before.max(x));
            }
        }
    }
}
