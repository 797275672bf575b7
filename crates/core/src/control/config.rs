//! What a [`Controller`](super::Controller) is told.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::lct::XDelayConfig;
use super::queue_limits::QueueLimitConfig;
use crate::measure::congestion::{Aggregate, ClassIndex, Index, Loss, Sensitivity, Thresholds};
use crate::settings::PerClass;
use crate::units::{Fraction, Nanos};
use crate::{settings, words};

settings! {
    /// What the laws of a link's control have in common, and each of them.
    pub struct ControlConfig: "control = { kind = \"lct\", … }" {
        /// How often it measures and turns.
        reload interval: Nanos = Nanos::from_millis(25), in INTERVAL_RANGE;
        /// Weight of a new value in the moving averages of delay and loss.
        reload smoothing: Fraction = Fraction(1 << 14), between 0.015625..=1.0;
        /// How the index of a class is made of those for delay and loss.
        reload aggregate: Aggregate = Aggregate::Worst;
        /// Weight of delay with `aggregate = "mean"`; loss has the rest.
        reload delay_weight: Fraction = Fraction(1 << 15), between 0.0..=1.0;
    }
    parts {
        /// The law of X_DELAY.
        x_delay: XDelayConfig,
        /// The law of the queue limits.
        queue_limits: QueueLimitConfig,
        /// From when to when a class feels delay and loss.
        sensitivity: SensitivityConfig,
    }
    plain {
        /// What each class makes of delay and loss; their number is the number of classes.
        classes: Vec<Sensitivity> = Vec::new();
    }
}

impl ControlConfig {
    /// The defaults, for these classes.
    #[must_use]
    pub fn new(classes: Vec<Sensitivity>) -> Self {
        Self { classes, ..Self::default() }
    }

    /// The index of a class, made of those for delay and loss.
    #[must_use]
    pub fn index_of(&self, index: ClassIndex) -> Index {
        self.aggregate.of(index, self.delay_weight)
    }
}

settings! {
    /// From when to when each class feels delay and loss.
    pub struct SensitivityConfig: "control = { kind = \"lct\", … }" {
        /// Where the limits of a class come from that the keys below do not give. `voice`: delay 5
        /// to 50 ms, loss 1 to 10 %; `video`: 10 to 100 ms, 0.5 to 5 %; `interactive`: 20 to 400
        /// ms, 1 to 20 %; `bulk`: 100 ms to 2 s, 2 to 50 %; `by-name`: those of the class's name,
        /// `bulk` for other names.
        reload preset: PerClass<Preset> = PerClass::all(Preset::ByName);
        /// Mean delay up to which the class feels nothing. 0: as the preset says.
        reload delay_normal: PerClass<Nanos> = PerClass::all(Nanos::ZERO), in LIMIT_OF_DELAY;
        /// Mean delay at which the service is useless. 0: as the preset says.
        reload delay_degraded: PerClass<Nanos> = PerClass::all(Nanos::ZERO), in LIMIT_OF_DELAY;
        /// Share of packets lost up to which the class feels nothing. 0: as the preset says.
        reload loss_normal: PerClass<Loss> = PerClass::all(Loss::ZERO);
        /// Share of packets lost at which the service is useless. 0: as the preset says.
        reload loss_degraded: PerClass<Loss> = PerClass::all(Loss::ZERO);
    }
}

/// Valid control intervals, in nanoseconds: 10 ms to 60 s.
pub const INTERVAL_RANGE: RangeInclusive<u64> = 10_000_000..=60_000_000_000;
/// Valid limits of delay, in nanoseconds.
const LIMIT_OF_DELAY: RangeInclusive<u64> = 0..=60_000_000_000;

impl SensitivityConfig {
    /// What a class makes of delay and loss, by its index and name.
    ///
    /// # Errors
    /// The names of two limits of which the first must be below the second, and is not.
    pub fn of(&self, class: usize, name: &str) -> Result<Sensitivity, [&'static str; 2]> {
        let preset = self.preset.get(class).sensitivity(name);
        let limits = |keys, [normal, degraded]: [u64; 2], preset: Thresholds| {
            let normal = if normal == 0 { preset.normal() } else { normal };
            let degraded = if degraded == 0 { preset.degraded() } else { degraded };
            // More of either is worse.
            if normal > degraded {
                return Err(keys);
            }
            Thresholds::new(normal, degraded).map_err(|_equal| keys)
        };
        let delay = [&self.delay_normal, &self.delay_degraded].map(|limit| limit.get(class).0);
        let loss =
            [&self.loss_normal, &self.loss_degraded].map(|limit| limit.get(class).bits().into());
        Ok(Sensitivity {
            delay: limits(["delay_normal", "delay_degraded"], delay, preset.delay)?,
            loss: limits(["loss_normal", "loss_degraded"], loss, preset.loss)?,
        })
    }
}

words! {
    /// Limits of delay and loss by what is sent.
    pub enum Preset {
        /// That of the class's name, `bulk` for other names.
        #[default]
        ByName = "by-name",
        /// Delay 5 to 50 ms, loss 1 to 10 %.
        Voice = "voice",
        /// Delay 10 to 100 ms, loss 0.5 to 5 %.
        Video = "video",
        /// Delay 20 to 400 ms, loss 1 to 20 %.
        Interactive = "interactive",
        /// Delay 100 ms to 2 s, loss 2 to 50 %.
        Bulk = "bulk",
    }
}

impl Preset {
    /// The limits; `class` is the name of the class.
    #[must_use]
    pub fn sensitivity(self, class: &str) -> Sensitivity {
        match self {
            Self::ByName => Sensitivity::by_name(class),
            Self::Voice => Sensitivity::VOICE,
            Self::Video => Sensitivity::VIDEO,
            Self::Interactive => Sensitivity::INTERACTIVE,
            Self::Bulk => Sensitivity::BULK,
        }
    }
}
