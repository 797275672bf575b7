//! The law of the queue limits: a class that is short of rate trades loss for delay at its own
//! exchange rate.
//!
//! Source: the dynamic dropper that the LCT papers announce and do not describe; a reconstruction.
//! Its total is shared: no class grows beyond what the others leave, and a class in greater need
//! takes from the one in least.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | Q, queue limit | [`QueueLimitLaw::value`] | packets |
//! | Qmin, Qmax | [`QueueLimitConfig::min`], [`max`](QueueLimitConfig::max) | packets |
//! | Ltot, what all limits together may be | the sum of the limits at the start | packets |
//! | b = CI(delay) − CI(loss), the imbalance | `imbalance` | 2^-16 |
//! | a = DS(delay)·v, by how much b changes when ln Q changes by 1 | `slope` | 2^-16 |
//! | κ, gain: half that of [`super::lct`] | `SLOWER` | |
//! | ρ, largest relative change per interval | `MOST` | 1/16 |
//!
//! **Law.** ln Q ← ln Q − min(ρ, κ·|b|/a)·sign(b), not at all while |b| is less than what a change
//! by one packet makes (a/Q, the hysteresis: a limit is whole packets and must not hop between
//! two). Classes without impact go back to the limit they had, by one packet per interval.
//!
//! **Stability.** Of a class whose queue is full the delay is v = Q/μ, and its loss depends on μ
//! alone: so b rises monotonically with Q, with slope a in ln Q, and the loop is δ⁺ = (1 − κ)·δ: no
//! oscillation for 0 < κ ≤ 1, whatever the class. What the average and the queue itself delay (w,
//! v) lowers the bound; κ is divided as in [`super::lct`]. Of a class whose queue is not full, a
//! greater Q lowers loss and a smaller one lowers delay: b still rises with Q, so the sign of the
//! law is right everywhere and |b| does not grow.
//!
//! Bound: Qmin ≤ Q ≤ Qmax; the sum never exceeds Ltot. No class's need brings another below its
//! limit of the start. Not implemented: dropping at the head.

use alloc::vec::Vec;

use super::lct::patience;
use super::{ControlConfig, Seen};
use crate::measure::congestion::Index;
use crate::packet::Class;
use crate::queue::LIMIT_RANGE;
use crate::settings;
use crate::settings::{Change, SettingError};

/// The largest relative change per interval, in units of 2^-16: 1/16.
const MOST: u64 = 1 << 12;
/// Its gain is κ of X_DELAY over this: a limit that grows hides loss until the queue is full.
const SLOWER: u64 = 2;
/// Receiver and giver must differ by this much, in units of 2^-16 of the index for loss: a quarter.
const WORTH_IT: u32 = 1 << 14;

settings! {
    /// How far limits may move.
    #[derive(Copy)]
    pub struct QueueLimitConfig: "control = { kind = \"lct\", … }" {
        /// Whether it turns the queue limits too. Their sum never exceeds what it was.
        reload on as limits: bool = true;
        /// Smallest queue limit of a class.
        reload min as limit_min: u32 = 2, in LIMIT_RANGE, counting "packets";
        /// Largest queue limit of a class.
        reload max as limit_max: u32 = 1_000, in LIMIT_RANGE, counting "packets";
    }
    check Self::bounds
}

impl QueueLimitConfig {
    fn bounds(&self) -> Result<(), SettingError> {
        if self.min <= self.max {
            return Ok(());
        }
        Err(SettingError::Contradiction {
            key: "limit_min",
            message: "limit_min is above limit_max".into(),
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    /// In units of 2^-16 packets: small steps add up.
    exact: u64,
    /// What it was at the start, and returns to.
    home: u32,
    /// What was told last.
    told: u32,
}

impl Limit {
    fn whole(self) -> u32 {
        // Rounded down, so that the sum of whole limits does not exceed the total either.
        (self.exact >> 16) as u32
    }
}

/// The law's state.
#[derive(Clone, Debug)]
pub struct QueueLimitLaw {
    config: QueueLimitConfig,
    limits: Vec<Limit>,
    total: u64,
}

impl QueueLimitLaw {
    /// From the limits that the classes have; missing ones count as the smallest.
    #[must_use]
    pub fn new(config: QueueLimitConfig, classes: usize, now: &[u32]) -> Self {
        let limits: Vec<_> = (0..classes)
            .map(|class| {
                let told = now.get(class).copied().unwrap_or(config.min);
                let home = told.clamp(config.min, config.max);
                Limit { exact: u64::from(home) << 16, home, told }
            })
            .collect();
        let total = limits.iter().map(|limit| u64::from(limit.home)).sum();
        Self { config, limits, total }
    }

    /// The limit of a class.
    #[must_use]
    pub fn value(&self, class: usize) -> Option<u32> {
        self.limits.get(class).map(|limit| limit.whole())
    }

    /// What all limits together may be, in packets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// One interval.
    pub(super) fn step(&mut self, config: &ControlConfig, seen: &[Seen]) {
        for (class, now) in seen.iter().enumerate().filter(|(_, now)| now.active) {
            let limit = self.limits[class];
            if now.index.worst() == Index::ZERO {
                self.go_home(class);
                continue;
            }
            let slope = config.classes[class].delay.slope_of(now.measured.delay.0).max(1);
            let (delay, loss) = (now.index.delay.bits(), now.index.loss.bits());
            let imbalance = u64::from(delay.abs_diff(loss));
            if imbalance <= slope / u64::from(limit.whole().max(1)) {
                continue;
            }
            let gain = u64::from(config.x_delay.gain.0) / SLOWER;
            let share =
                patience(gain * imbalance / slope, now.measured.delay, config.interval).min(MOST);
            let change = ((limit.exact >> 8) * share) >> 8;
            if delay > loss {
                let least = u64::from(self.config.min) << 16;
                self.limits[class].exact = limit.exact.saturating_sub(change).max(least);
            } else {
                let most = u64::from(self.config.max) << 16;
                let wanted = change.min(most - limit.exact.min(most));
                let granted = self.grant(class, wanted, seen);
                self.limits[class].exact += granted;
            }
        }
    }

    /// One packet towards the limit of the start.
    fn go_home(&mut self, class: usize) {
        let limit = self.limits[class];
        let home = u64::from(limit.home) << 16;
        let one = (1 << 16).min(limit.exact.abs_diff(home));
        if limit.exact > home {
            self.limits[class].exact -= one;
        } else {
            self.limits[class].exact += one.min(self.free());
        }
    }

    fn free(&self) -> u64 {
        let used: u64 = self.limits.iter().map(|limit| limit.exact).sum();
        (self.total << 16).saturating_sub(used)
    }

    /// Room for `class`: what is free, else what the class that loses least can spare.
    fn grant(&mut self, class: usize, wanted: u64, seen: &[Seen]) -> u64 {
        let free = self.free();
        if free >= wanted {
            return wanted;
        }
        let loss =
            |class: usize| if seen[class].active { seen[class].index.loss.bits() } else { 0 };
        let spare = |class: usize| {
            let limit = &self.limits[class];
            limit.exact.saturating_sub(u64::from(limit.home) << 16)
        };
        let donor = (0..self.limits.len())
            .filter(|other| *other != class && spare(*other) > 0)
            .min_by_key(|other| loss(*other));
        let Some(donor) = donor.filter(|donor| loss(*donor) + WORTH_IT < loss(class)) else {
            return free;
        };
        let given = spare(donor).min(wanted - free);
        self.limits[donor].exact -= given;
        free + given
    }

    /// As at the start; the knobs that put it back.
    pub(super) fn reset(&mut self, out: &mut Vec<Change>) {
        self.limits.iter_mut().for_each(|limit| limit.exact = u64::from(limit.home) << 16);
        self.knobs(out);
    }

    /// The knobs whose value has changed.
    pub(super) fn knobs(&mut self, out: &mut Vec<Change>) {
        for (class, limit) in self.limits.iter_mut().enumerate() {
            let now = limit.whole();
            if now != limit.told {
                limit.told = now;
                out.push(Change::of("limit", Class(class as u16), now));
            }
        }
    }
}
