//! Dynamic control of a link: what was measured in, changes of knobs out.
//!
//! The aim is that of the LCT router: the same *impact* of delay and loss on all classes, told by
//! their [congestion indexes](crate::measure::congestion). Two laws share the work, because each
//! has a knob of its own:
//!
//! - [`lct`] moves X_DELAY and with it the *rate* a class gets, until the class indexes meet;
//! - [`queue_limits`] moves the queue limits and with them the *delay* of a class that is short of
//!   rate, until its indexes for delay and loss meet.
//!
//! ```text
//!             ┌─ every interval ─────────────────────────────────────────────────────────────┐
//!  link ──▶ meters since last time ─▶ smoothed delay, loss, rate ─▶ indexes ─▶ both laws ─▶ knobs ──▶ link
//!             └─ every 1/16 of it: X_DELAY is moved about its value (dither, see `lct`) ─────┘
//! ```
//!
//! [`follow`] is another one, of a link's rate, for lines whose rate changes.
//!
//! [`Controller`] is a pure state machine: time and meters are arguments, the driver of the link
//! applies the knobs ([`Controller::run`] does both). A class without traffic is frozen: its state
//! stays, and it has no say.
//!
//! Cost: one pass over the classes per dither step; no allocation after construction.

mod config;
pub mod follow;
pub mod lct;
pub mod queue_limits;

use alloc::vec::Vec;
use core::fmt;

use crate::link::{Link, LinkSink};
use crate::measure::congestion::{ClassIndex, Loss, Measured, Smoother};
use crate::measure::{ClassMeter, Qostat};
use crate::packet::{Class, ETHERNET_WIRE_OVERHEAD, Packet};
use crate::reason::Reason;
use crate::schedule::Scheduler;
use crate::settings::{Change, SettingError, Settings as _};
use crate::units::{BitRate, Nanos};
pub use config::{ControlConfig, INTERVAL_RANGE, Preset, SensitivityConfig};
use lct::XDelayLaw;
use queue_limits::QueueLimitLaw;

/// A packet that takes longer on the wire counts as one that takes this long.
const LONGEST: Nanos = Nanos::SECOND;
/// Packets of a class in an interval from which on its share of loss has the whole weight of an
/// interval in the average. Of one packet it is nothing or all: on a slow link an average of such
/// shares is that of a few packets, beyond any limit as soon as one of them is lost.
const ENOUGH: u64 = 4;
/// Steps of dither in an interval.
pub const DITHER_STEPS: u32 = 16;

/// Why a controller cannot be as it was told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ControlError {
    /// A setting is out of its range, or two contradict each other.
    Setting(SettingError),
    /// There is no class.
    NoClass,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::NoClass => f.write_str("a controller needs at least one class"),
        }
    }
}

impl core::error::Error for ControlError {}

impl From<SettingError> for ControlError {
    fn from(error: SettingError) -> Self {
        Self::Setting(error)
    }
}

/// What was measured of a class in an interval.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observation {
    /// Whether it had traffic: packets came, went, or wait.
    pub active: bool,
    /// Packets the scheduler gave out.
    pub given: u64,
    /// Packets dropped because their queue was full.
    pub dropped: u64,
    /// Sum of the transit delays of those given out.
    pub delay_sum: Nanos,
    /// The time one of its packets takes on the wire, on average; zero if unknown.
    pub wire_time: Nanos,
}

/// A class as the laws see it, smoothed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// Whether it had traffic in the last interval.
    pub active: bool,
    /// Its mean delay and loss.
    pub measured: Measured,
    /// Its indexes for both.
    pub index: ClassIndex,
    /// Packets given out per second, in units of 2^-16.
    pub rate: u64,
    /// The time one of its packets takes on the wire.
    pub wire_time: Nanos,
}

#[derive(Clone, Debug, Default)]
struct ClassState {
    delay: Smoother,
    loss: Smoother,
    rate: Smoother,
    /// Counters at the end of the last interval: in, out, dropped, delay sum, bytes.
    before: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    came: u64,
    given: u64,
    dropped: u64,
    delay_sum: Nanos,
    bytes: u64,
}

impl From<&ClassMeter> for Counters {
    fn from(meter: &ClassMeter) -> Self {
        Self {
            came: meter.in_packets,
            given: meter.out_packets,
            // What the link lost because it was too slow. A link that goes down, or a queue that a
            // change of the configuration leaves no room for, says nothing about the shares.
            dropped: meter.dropped[Reason::QueueFull.index()],
            delay_sum: meter.delay_sum,
            bytes: meter.out_bytes.0,
        }
    }
}

/// The controller of one link.
#[derive(Clone, Debug)]
pub struct Controller {
    config: ControlConfig,
    states: Vec<ClassState>,
    seen: Vec<Seen>,
    observed: Vec<Observation>,
    x_delay: XDelayLaw,
    queue_limits: Option<QueueLimitLaw>,
    /// When the last interval ended.
    measured_at: Nanos,
    /// When something is to do next.
    due: Nanos,
    step: u32,
    enabled: bool,
    knobs: Vec<Change>,
}

impl Controller {
    /// A controller that starts at `now`, of a link whose classes have these X_DELAYs and queue
    /// limits, and these meters. More or fewer of them than classes do no harm: missing ones count
    /// as zero and as the smallest limit.
    ///
    /// # Errors
    /// [`ControlError`] if a value is out of its range.
    pub fn new(
        config: ControlConfig,
        now: Nanos,
        x_delay: &[Nanos],
        limits: &[u32],
        meters: &Qostat,
    ) -> Result<Self, ControlError> {
        let classes = config.classes.len();
        if classes == 0 {
            return Err(ControlError::NoClass);
        }
        config.check()?;
        let mut states = alloc::vec![ClassState::default(); classes];
        for (index, state) in states.iter_mut().enumerate() {
            state.before = meters.class(Class(index as u16)).into();
        }
        let law = config.queue_limits;
        let queue_limits = law.on.then(|| QueueLimitLaw::new(law, classes, limits));
        Ok(Self {
            x_delay: XDelayLaw::new(config.x_delay, classes, x_delay),
            queue_limits,
            states,
            seen: alloc::vec![Seen::default(); classes],
            observed: alloc::vec![Observation::default(); classes],
            measured_at: now,
            due: now.saturating_add(Nanos(config.interval.0 / u64::from(DITHER_STEPS))),
            step: 0,
            enabled: true,
            knobs: Vec::with_capacity(2 * classes),
            config,
        })
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &ControlConfig {
        &self.config
    }

    /// Whether it turns knobs; otherwise it only measures.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Lets it turn knobs, or only measure. Gives the knobs that are to be set: a controller that
    /// is switched off puts back what it found, and starts from there when it is switched on.
    pub fn enable(&mut self, on: bool) -> &[Change] {
        self.knobs.clear();
        self.enabled = on;
        if !on {
            self.x_delay.reset(&mut self.knobs);
            if let Some(law) = &mut self.queue_limits {
                law.reset(&mut self.knobs);
            }
        }
        &self.knobs
    }

    /// When [`run`](Self::run) has something to do.
    #[must_use]
    pub fn due(&self) -> Nanos {
        self.due
    }

    /// The classes as they were seen last.
    #[must_use]
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// The X_DELAY of a class that the law wants, without dither; zero for classes that do not
    /// exist.
    #[must_use]
    pub fn x_delay(&self, class: Class) -> Nanos {
        self.x_delay.value(class.index())
    }

    /// The queue limit of a class, if limits are controlled.
    #[must_use]
    pub fn limit(&self, class: Class) -> Option<u32> {
        self.queue_limits.as_ref()?.value(class.index())
    }

    /// Does what is due at `now` on `link`: reads its meters, applies the laws, sets its knobs.
    /// Nothing before it is due; a caller that comes late gets one interval as long as it was.
    ///
    /// # Errors
    /// The discipline of the link has no such knobs; the others were set.
    pub fn run<P: Packet, S: Scheduler<P>>(
        &mut self,
        now: Nanos,
        link: &mut Link<P, S>,
        sink: &mut impl LinkSink<P>,
    ) -> Result<(), SettingError> {
        if now < self.due {
            return Ok(());
        }
        if self.step + 1 >= DITHER_STEPS {
            // Everything that happened before `now` belongs to the interval.
            link.advance(now, sink);
            self.observe(now, link);
        }
        self.advance(now);
        let mut result = Ok(());
        for at in 0..self.knobs.len() {
            result = result.and(link.set(now, &self.knobs[at], sink));
        }
        result
    }

    fn observe<P: Packet, S: Scheduler<P>>(&mut self, now: Nanos, link: &Link<P, S>) {
        let rate = link.config().rate.unwrap_or(BitRate::ZERO);
        for (index, state) in self.states.iter_mut().enumerate() {
            let class = Class(index as u16);
            let meter = Counters::from(link.qostat().class(class));
            let before = core::mem::replace(&mut state.before, meter);
            let given = meter.given.saturating_sub(before.given);
            let came = meter.came.saturating_sub(before.came);
            let waits = link.scheduler().class_backlog(class).packets > 0;
            let bytes = meter.bytes.saturating_sub(before.bytes).checked_div(given);
            let wire_time = match bytes {
                Some(bytes) if rate > BitRate::ZERO => {
                    rate.time_for(crate::units::Bytes(bytes) + ETHERNET_WIRE_OVERHEAD)
                }
                _ => Nanos::ZERO,
            };
            self.observed[index] = Observation {
                active: came > 0 || given > 0 || waits,
                given,
                dropped: meter.dropped.saturating_sub(before.dropped),
                delay_sum: Nanos(meter.delay_sum.0.wrapping_sub(before.delay_sum.0)),
                wire_time,
            };
        }
        let elapsed = now.saturating_sub(self.measured_at);
        self.measured_at = now;
        let observed = core::mem::take(&mut self.observed);
        self.take(elapsed, &observed);
        self.observed = observed;
    }

    /// Takes in what was measured in an interval of length `elapsed`, one entry per class, and
    /// applies the laws. For those who drive something else than a [`Link`];
    /// [`advance`](Self::advance) then gives the knobs.
    pub fn take(&mut self, elapsed: Nanos, observed: &[Observation]) {
        let gain = self.config.smoothing.0;
        for (index, state) in self.states.iter_mut().enumerate() {
            let now = observed.get(index).copied().unwrap_or_default();
            let seen = &mut self.seen[index];
            seen.active = now.active;
            if !now.active {
                continue;
            }
            if let Some(mean) = now.delay_sum.0.checked_div(now.given) {
                seen.measured.delay = Nanos(state.delay.take(mean, gain));
            }
            let all = now.given.saturating_add(now.dropped);
            if all > 0 {
                // At most `gain`.
                let gain = (u64::from(gain) * all.min(ENOUGH) / ENOUGH) as u32;
                let loss = state.loss.take(Loss::of(now.dropped, all).bits().into(), gain);
                seen.measured.loss = Loss::from_bits(u32::try_from(loss).unwrap_or(u32::MAX));
            }
            let per_second =
                (u128::from(now.given) << 16) * 1_000_000_000 / u128::from(elapsed.0.max(1));
            seen.rate = state.rate.take(u64::try_from(per_second).unwrap_or(u64::MAX), gain);
            seen.index = self.config.classes[index].index(seen.measured);
            if now.wire_time > Nanos::ZERO {
                seen.wire_time = now.wire_time.min(LONGEST);
            }
        }
        if !self.enabled {
            return;
        }
        self.x_delay.step(&self.config, &self.seen);
        if let Some(law) = &mut self.queue_limits {
            law.step(&self.config, &self.seen);
        }
    }

    /// Goes on to the next step of dither, at `now`; gives the knobs that are to be set. While
    /// there is nothing to dither the next step is that of the next interval.
    pub fn advance(&mut self, now: Nanos) -> &[Change] {
        self.step = (self.step + 1) % DITHER_STEPS;
        self.knobs.clear();
        if self.enabled {
            self.x_delay.knobs(self.step, &mut self.knobs);
            if let Some(law) = &mut self.queue_limits {
                law.knobs(&mut self.knobs);
            }
        }
        let last = DITHER_STEPS - 1;
        let steps = if self.enabled && self.x_delay.is_in_use() { 1 } else { 1 + last - self.step };
        self.step += steps - 1;
        let wait = Nanos(self.config.interval.0 * u64::from(steps) / u64::from(DITHER_STEPS));
        self.due = self.due.saturating_add(wait);
        if self.due <= now {
            self.due = now.saturating_add(wait);
        }
        &self.knobs
    }
}
