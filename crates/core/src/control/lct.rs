//! The law of X_DELAY: shares the rate so that the congestion indexes of all classes meet.
//!
//! Source: "An Effective Scheduler for IP Routers" plans to set X_DELAY from the measured impact,
//! the class in greatest need having X = 0; it gives no law. The obvious one, X ← X + G·(CI of the
//! neediest − CI), only ever raises X until another class is the neediest: a limit cycle. This one
//! is signed.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | X_c | `value`, [`XDelayLaw::value`] | nanoseconds |
//! | J_c, class index | [`Aggregate::of`](crate::measure::congestion::Aggregate::of) | 2^-16 |
//! | μ_c, rate at which the class is served; ln μ_c = −ln X_c where X holds it | [`Seen::rate`] | packets/s, 2^-16 |
//! | a_c = −∂J_c/∂ln μ_c: DS(delay)·v, or DS(loss)·(1 − l) if it has lost | `slope` | 2^-16 |
//! | J* = Σ(μ_c/a_c)·J_c / Σ(μ_c/a_c), where the indexes would meet | `target` | 2^-16 |
//! | κ, gain | [`XDelayConfig::gain`] | 2^-16 |
//! | h, hysteresis: a difference not worth acting on | [`XDelayConfig::hysteresis`] | 2^-16 of an index |
//! | σ, largest relative change per interval | [`XDelayConfig::most`] | 2^-16 |
//! | w, weight of the moving average | [`ControlConfig::smoothing`] | 2^-16 |
//! | leader: the class that has X = 0 | `leader` | – |
//! | bite: the X at which a class begins to feel it, 1/μ_c | `bite` | nanoseconds |
//!
//! **Law**, once per interval T, for every class with traffic but the leader:
//!
//! ```text
//! X_c ← X_c + s/μ_c,   s = clamp( κ·(J* − J_c) / a_c, −σ_c, +σ_c )
//! ```
//!
//! A class that is better off than J* gives way, one that is worse off gets more: the sign is that
//! of the difference. The leader takes the rate that the others leave. Nothing moves while the
//! indexes lie within h of each other. X of the leader, and of all when no class is congested, is
//! halved until it is zero. The lead passes on when the leader has no traffic, or when a class
//! whose X has been zero for as long as the averages remember is worse off by h and a tenth. σ_c is
//! σ, or less if the class is so sensitive that a rate lower by σ would raise its index for loss by
//! more than 1/4, or if σ of the packets that the link takes in an interval are less than one.
//!
//! **Anti-windup.** An X that a class does not feel is no rate. So a class that is to give way
//! starts just below its bite, not at zero, and an X below a quarter of it is zero. X ends at its
//! largest value; no sum is kept beside it. A class that is there and still better off than the
//! leader has no more to give: it has no part in J*.
//!
//! **Stability.** Let x_c = ln X_c deviate a little from a state in which all indexes are equal.
//! Then δJ_c = a_c·δx_c for all but the leader m, and what they give or take is the leader's:
//! δJ_m = −a_m·Σ(μ_c/μ_m)·δx_c. So the differences δJ_c − δJ_m = A·δx with A = diag(a_c) +
//! a_m·1·rᵀ, r_c = μ_c/μ_m. A is similar to diag(a) + a_m·√r·√rᵀ, which is symmetric and positive
//! definite: all modes are real and decay for small gain. By Sherman and Morrison's formula the law
//! is exactly δx⁺ = δx − κ·A⁻¹·(A·δx) = (1 − κ)·δx: one loop gain κ *for every mix of classes,
//! loads and limits*. That is what the division by a_c and the weights of J* are for. With the
//! moving average the loop of a mode is z² − (2 − w − κw)·z + (1 − w) = 0: stable for κ < 2(2 −
//! w)/w, which is 14 at w = 1/4, and |z| = √(1 − w) for κ between (1 ∓ √(1 − w))²/w, which is 0.072
//! and 14: a deviation falls by a factor of e in 7 intervals, whatever κ. The default κ = 1/4 has a
//! half period of 14 intervals, in which it falls to 14 %; and a_c may be wrong by a factor of 56
//! (κ = 1, the largest: 14). A delay is known when the packet has it behind it, v/T intervals late;
//! a loop with dead time D does not swing for κ < 1/(e·D), so κ is divided by 1 + v/T where delay
//! decides (`patience`). Where the model does not hold (a queue that just fills, a class that does
//! not feel its X) σ bounds what an interval can do.
//!
//! Measured: `tests/it/control.rs` sweeps loads and mixes on the real link; `docs/lct-control.md`
//! has the table.
//!
//! **Dither.** LCT-UC looks whether a class is due only when the wire takes a packet, so behind
//! packets of wire time τ an X of 1.1τ and one of 2τ give the same rate: a staircase, between whose
//! steps no fixed X can reach a share. X is moved over one step of it, uniformly (van der Corput's
//! sequence, 16 values per interval), which makes the mean rate a straight function of X. τ is that
//! of the longest packets.
//!
//! Bound: X is 0 or between [`XDelayConfig::min`] and its largest value ([`XDelayConfig::max`], or
//! 16 packet times of the link and at least 20 ms), dither included. Complexity: one pass over the
//! classes.
//!
//! Not implemented: module 2 and the rule for several waiting classes are left as they are. Where a
//! limit of X, or the cap of an index, is reached, the indexes come as near to each other as it
//! lets them.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{ControlConfig, DITHER_STEPS, Seen};
use crate::measure::congestion::Index;
use crate::packet::Class;
use crate::schedule::lct::X_DELAY_RANGE;
use crate::settings;
use crate::settings::{Change, SettingError};
use crate::units::{Fraction, Nanos};

settings! {
    /// How X_DELAY is moved.
    #[derive(Copy)]
    pub struct XDelayConfig: "control = { kind = \"lct\", … }" {
        /// Which part of a difference an interval takes away (κ). Stable over the whole range;
        /// beyond 0.072 with `smoothing` 0.25 a deviation swings while it decays.
        reload gain: Fraction = Fraction(1 << 14), between 0.001..=1.0;
        /// Differences between indexes that are not worth acting on (h).
        reload hysteresis: Fraction = Fraction(1_311), between 0.0..=1.0;
        /// Largest relative change of a class's rate in an interval (σ).
        reload most as step: Fraction = Fraction(1 << 13), between 0.015625..=1.0;
        /// Smallest `x_delay` above zero.
        reload min as x_min: Nanos = Nanos::from_micros(10), in X_RANGE;
        /// Largest `x_delay`: a class that has packets gets at least one through in this time,
        /// whatever its index.
        reload max as x_max: Option<Nanos> = None, in X_RANGE,
            absent "16 times what the longest packets take on the link, at least 20 ms";
    }
    check Self::bounds
}

/// Valid bounds of X, in nanoseconds.
const X_RANGE: RangeInclusive<u64> = 1..=*X_DELAY_RANGE.end();

impl XDelayConfig {
    /// The largest X behind packets that take so long on the wire, if none was told: 16 of them, at
    /// least 20 ms. So the class with the least need keeps a 16th of a slow link, where 20 ms would
    /// be less than its packets are apart anyway, and X would have no effect.
    #[must_use]
    pub fn max_for(packet: Nanos) -> Nanos {
        (packet * 16).max(Nanos::from_millis(20))
    }

    fn largest(&self, packet: Nanos) -> Nanos {
        self.max.unwrap_or_else(|| Self::max_for(packet)).min(Nanos(*X_DELAY_RANGE.end()))
    }

    fn bounds(&self) -> Result<(), SettingError> {
        if self.min <= self.largest(Nanos::ZERO) {
            return Ok(());
        }
        Err(SettingError::Contradiction { key: "x_min", message: "x_min is above x_max".into() })
    }
}

/// A class that loses less than this share, in units of 2^-30 (0.1 %), does not lack rate.
const LOSES: u32 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct XDelay {
    value: Nanos,
    /// What it was at the start.
    home: Nanos,
    /// What was told last, dither included.
    told: Nanos,
    /// For how many intervals with traffic it has been zero.
    idle: u32,
    /// For how many intervals with traffic the class has lost nothing.
    intact: u32,
}

/// The law's state.
#[derive(Clone, Debug)]
pub struct XDelayLaw {
    config: XDelayConfig,
    x: Vec<XDelay>,
    leader: Option<usize>,
    /// The width of a step of the staircase: the longest wire time of a class's packets.
    width: Nanos,
}

/// Divides `gain` by 1 + v/T: a loop must wait for what it does to show.
pub(super) fn patience(gain: u64, delay: Nanos, interval: Nanos) -> u64 {
    let t = u128::from(interval.0.max(1));
    (u128::from(gain) * t / (t + u128::from(delay.0))) as u64
}

impl XDelayLaw {
    /// From the X_DELAYs that the classes have; missing ones count as zero.
    #[must_use]
    pub fn new(config: XDelayConfig, classes: usize, now: &[Nanos]) -> Self {
        let max = config.largest(Nanos::ZERO);
        let x = (0..classes).map(|class| {
            let told = now.get(class).copied().unwrap_or(Nanos::ZERO);
            XDelay { value: told.min(max), home: told, told, idle: 0, intact: u32::MAX }
        });
        Self { config, x: x.collect(), leader: None, width: Nanos::ZERO }
    }

    /// X_DELAY of a class, without dither.
    #[must_use]
    pub fn value(&self, class: usize) -> Nanos {
        self.x.get(class).map_or(Nanos::ZERO, |x| x.value)
    }

    /// The class that has X = 0, or is on the way there.
    #[must_use]
    pub fn leader(&self) -> Option<Class> {
        self.leader.map(|leader| Class(leader as u16))
    }

    /// One interval.
    pub(super) fn step(&mut self, config: &ControlConfig, seen: &[Seen]) {
        let index = |class: usize| config.index_of(seen[class].index);
        let active = || (0..seen.len()).filter(|class| seen[*class].active);
        for class in active() {
            let x = &mut self.x[class];
            x.idle = if x.value == Nanos::ZERO { x.idle.saturating_add(1) } else { 0 };
            let loses = seen[class].measured.loss.bits() >= LOSES;
            x.intact = if loses { 0 } else { x.intact.saturating_add(1) };
        }
        let Some(worst) = active().map(index).max() else { return };
        self.lead(seen, settled(config), &index);
        let Some(leader) = self.leader else { return };
        self.width = active().map(|class| seen[class].wire_time).max().unwrap_or_default();
        if worst == Index::ZERO {
            active().for_each(|class| self.halve(class, &seen[class]));
            return;
        }
        let best = active().map(index).min().unwrap_or(worst);
        if worst.bits() - best.bits() <= self.config.hysteresis.0 {
            self.halve(leader, &seen[leader]);
            return;
        }
        let target = self.target(config, seen);
        for class in active() {
            if class == leader {
                self.halve(class, &seen[class]);
                continue;
            }
            let error = i64::from(target) - i64::from(index(class).bits());
            let (slope, lag) = self.slope(config, class, &seen[class]);
            let share = patience(self.config.gain.0.into(), lag, config.interval)
                * error.unsigned_abs()
                / slope;
            let share = share.min(self.most(config)).min(careful(config, class));
            self.turn(class, &seen[class], share, error > 0);
        }
    }

    /// σ, or less on a link so slow that σ of an interval's packets are not a whole one: then a
    /// step cannot show before the next.
    fn most(&self, config: &ControlConfig) -> u64 {
        let most = u64::from(self.config.most.0);
        let packets = most * config.interval.0 / self.width.0.max(1);
        (most * packets.min(1 << 16)) >> 16
    }

    /// Chooses the leader.
    fn lead(&mut self, seen: &[Seen], settled: u32, index: &impl Fn(usize) -> Index) {
        // The first of equals, so that ties do not pass the lead on.
        let neediest = |free: bool| {
            let candidates = (0..seen.len())
                .filter(|class| seen[*class].active && (!free || self.x[*class].idle > settled));
            candidates.max_by_key(|class| (index(*class), core::cmp::Reverse(*class)))
        };
        self.leader = match self.leader.filter(|leader| seen[*leader].active) {
            None => neediest(false),
            Some(leader) => {
                let bar =
                    index(leader).bits() + index(leader).bits() / 10 + self.config.hysteresis.0;
                neediest(true).filter(|class| index(*class).bits() > bar).or(Some(leader))
            }
        };
    }

    /// The X that a class begins to feel; at most the largest X there is.
    fn bite(seen: &Seen) -> Nanos {
        let spacing = (1_000_000_000u128 << 16).checked_div(seen.rate.into()).unwrap_or(0);
        Nanos(spacing.min(u128::from(*X_DELAY_RANGE.end())) as u64)
    }

    fn turn(&mut self, class: usize, seen: &Seen, share: u64, up: bool) {
        let max = self.config.largest(self.width);
        let x = &mut self.x[class].value;
        let bite = Self::bite(seen);
        if up {
            // A little below, so that noise in the measured rate is no step.
            let from = (*x)
                .max(Nanos(bite.0 / 2))
                .max(bite.saturating_sub(self.width * 2))
                .clamp(self.config.min, max);
            let more = (u128::from(from.max(bite).0) * u128::from(share)) >> 16;
            *x = Nanos(from.0.saturating_add(more as u64)).min(max);
        } else {
            let less = (u128::from(bite.max(*x).0) * u128::from(share)) >> 16;
            *x = Nanos(x.0.saturating_sub(less as u64));
            self.settle(class, bite);
        }
    }

    fn halve(&mut self, class: usize, seen: &Seen) {
        self.x[class].value = Nanos(self.x[class].value.0 / 2);
        self.settle(class, Self::bite(seen));
    }

    /// An X that the class does not feel is zero.
    fn settle(&mut self, class: usize, bite: Nanos) {
        let x = &mut self.x[class].value;
        if *x < self.config.min.max(Nanos(bite.0 / 4)) {
            *x = Nanos::ZERO;
        }
    }

    /// Whether any X is above zero.
    pub(super) fn is_in_use(&self) -> bool {
        self.x.iter().any(|x| x.value > Nanos::ZERO)
    }

    /// As at the start; the knobs that put it back.
    pub(super) fn reset(&mut self, out: &mut Vec<Change>) {
        self.leader = None;
        let max = self.config.largest(self.width);
        for (class, x) in self.x.iter_mut().enumerate() {
            if x.told != x.home {
                out.push(Change::of("x_delay", Class(class as u16), x.home));
            }
            *x = XDelay {
                value: x.home.min(max),
                home: x.home,
                told: x.home,
                idle: 0,
                intact: u32::MAX,
            };
        }
    }

    /// The knobs of a step of dither whose value has changed.
    pub(super) fn knobs(&mut self, step: u32, out: &mut Vec<Change>) {
        // 4 bits reversed: 0, 8, 4, 12, ... of 16, so that any few steps in a row cover the width.
        let max = self.config.largest(self.width);
        let place = u64::from(step.reverse_bits() >> (u32::BITS - DITHER_STEPS.ilog2()));
        for (class, x) in self.x.iter_mut().enumerate() {
            let steps = u64::from(DITHER_STEPS);
            let moved = x.value.saturating_add(Nanos(self.width.0 * place / steps));
            let now = if x.value == Nanos::ZERO {
                Nanos::ZERO
            } else {
                moved.saturating_sub(Nanos(self.width.0 / 2)).clamp(self.config.min, max)
            };
            if now != x.told {
                x.told = now;
                out.push(Change::of("x_delay", Class(class as u16), now));
            }
        }
    }
}

/// How many intervals the moving average takes to forget 95 %.
fn settled(config: &ControlConfig) -> u32 {
    3 * ((1 << 16) / config.smoothing.0.max(1))
}

/// The largest relative change of rate that raises the index for loss by no more than a quarter,
/// should the class begin to lose.
fn careful(config: &ControlConfig, class: usize) -> u64 {
    (1u64 << 30) / config.classes[class].loss.slope_of(1 << 30).max(1)
}

impl XDelayLaw {
    /// By how much the index of a class rises when the rate it gets falls by a factor of e, in
    /// units of 2^-16, and how long it takes to show: loss is known at once.
    fn slope(&self, config: &ControlConfig, class: usize, seen: &Seen) -> (u64, Nanos) {
        let sensitivity = &config.classes[class];
        let delay = seen.measured.delay;
        // At the normal limit at least: a class that is not congested yet will be when its delay
        // gets there.
        let of_delay = sensitivity.delay.slope_of(delay.0.max(sensitivity.delay.normal()));
        let passed = (1 << 30) - u64::from(seen.measured.loss.bits());
        // Few packets make an interval, so one without loss says little.
        let lost = self.x[class].intact < 4 * settled(config);
        let of_loss = if lost { sensitivity.loss.slope_of(passed) } else { 0 };
        let (slope, lag) =
            if of_loss > of_delay { (of_loss, Nanos::ZERO) } else { (of_delay, delay) };
        // Never so flat that a small difference asks for the largest step: a slope of 1/16.
        (slope.max(1 << 12), lag)
    }

    /// Where the indexes of the classes with traffic would meet if the rate were shared so.
    fn target(&self, config: &ControlConfig, seen: &[Seen]) -> u32 {
        let index = |class: usize| config.index_of(seen[class].index);
        let leads = self.leader.map_or(Index::ZERO, index);
        let max = self.config.largest(self.width);
        // A class at the largest X has no more to give.
        let spent = |class: usize| self.x[class].value >= max && index(class) < leads;
        let (mut sum, mut weights) = (0u128, 0u128);
        for (class, now) in
            seen.iter().enumerate().filter(|(class, now)| now.active && !spent(*class))
        {
            let weight =
                (u128::from(now.rate) << 16) / u128::from(self.slope(config, class, now).0) + 1;
            sum += weight * u128::from(index(class).bits());
            weights += weight;
        }
        sum.checked_div(weights).unwrap_or(0) as u32
    }
}
