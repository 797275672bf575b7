//! Per-step statistics of a run, and the metrics that expectations name.
//!
//! A window counts for a step when it lies wholly after the step's settling time and before the next step. Means are
//! formed over packets (sum of delays over count), quantiles over the merged distributions: never means of means.

use evenkeel_core::measure::Histogram;

use crate::run::{CallsSample, Delays, Run, Sample};

/// Windows and steps are compared with this tolerance, seconds: a sampler's clock is never exact.
const SLACK_S: f64 = 0.02;

/// The numbers of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepStats {
    /// The step's name.
    pub step: String,
    /// Begin of what was counted (after settling), seconds.
    pub from_s: f64,
    /// End of what was counted, seconds.
    pub to_s: f64,
    /// One row per router, link and class, in the order in which they first appear.
    pub classes: Vec<ClassStats>,
    /// One row per router and link.
    pub links: Vec<LinkStats>,
}

/// What one class got on one link during one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassStats {
    /// The router.
    pub router: String,
    /// The link.
    pub link: String,
    /// The class.
    pub class: String,
    /// Seconds of samples behind the numbers.
    pub seconds: f64,
    /// Packets per second that its sources offered.
    pub offered: Option<f64>,
    /// Packets per second that left the wire.
    pub sent: f64,
    /// Bits per second that left the wire (IP length).
    pub sent_bits: f64,
    /// Packets per second dropped on the link.
    pub dropped: f64,
    /// The same by reason.
    pub dropped_by: Vec<(String, f64)>,
    /// Mean queue length at the ends of the windows, packets.
    pub qlen: f64,
    /// Bits per second received by the sink.
    pub goodput: Option<f64>,
    /// Transit delay; `None` if no packet left the queue.
    pub transit: Option<DelayStats>,
    /// Delay between hosts; `None` if not measured.
    pub end_to_end: Option<DelayStats>,
}

/// Delays in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayStats {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99 % of the packets took at most this.
    pub p99_us: f64,
    /// Largest.
    pub max_us: f64,
    /// Packets behind these numbers.
    pub count: u64,
}

/// Scheduler calls on one link during one step, as fractions of all calls, and how many there were per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// The router.
    pub router: String,
    /// The link.
    pub link: String,
    /// Fraction of calls that found no queue with packets.
    pub none: f64,
    /// Fraction that found one.
    pub one: f64,
    /// Fraction that found several.
    pub many: f64,
    /// Calls per second.
    pub calls: f64,
}

impl Delays {
    /// Mean and quantiles; `None` if nothing was measured.
    #[must_use]
    pub fn stats(&self) -> Option<DelayStats> {
        todo!()
    }

    /// Adds the packets of `other`.
    pub fn merge(&mut self, other: &Self) {
        todo!()
    }
}

impl Run {
    /// The step in force at `t_s`; empty if the run has none.
    #[must_use]
    pub fn step_at(&self, t_s: f64) -> &str {
        todo!()
    }

    /// Statistics of every step, in order of time. A step shorter than its settling time has no rows.
    #[must_use]
    pub fn step_stats(&self) -> Vec<StepStats> {
        todo!()
    }

    /// Value of a metric as expectations name it: see [`METRICS`]. `subject` is a class, or a link for the `calls_*`; `None`
    /// when there is no such step, subject or metric, or nothing was measured.
    ///
    /// A class that crosses several links is read on the link that handled most of its packets.
    #[must_use]
    pub fn metric(&self, name: &str, subject: &str, step: &str) -> Option<f64> {
        todo!()
    }
}

/// The metrics that expectations can name, with their units.
pub const METRICS: &[(&str, &str)] = &[
    ("sent", "packets/s"),
    ("dropped", "packets/s"),
    ("offered", "packets/s"),
    ("delay", "us"),
    ("delay_p50", "us"),
    ("delay_p99", "us"),
    ("e2e", "us"),
    ("e2e_p50", "us"),
    ("e2e_p99", "us"),
    ("qlen", "packets"),
    ("goodput", "bit/s"),
    ("calls_none", "of calls"),
    ("calls_one", "of calls"),
    ("calls_many", "of calls"),
];
