//! The worker's cycles: the time-stamp counter where it can be trusted.

use evenkeel_core::{Cycles, Nanos};
use evenkeel_ports::sys::involuntary_switches;
use evenkeel_ports::tsc::{Source, Tsc};

use crate::pipeline::cycles::CycleClock;

/// How long the counter is compared with the clock: gives some 10 parts per million.
const CALIBRATION: Nanos = Nanos::from_millis(20);

/// A calibrated counter as the pipeline's clock, and how often the thread had been stopped for
/// others when it was last asked.
#[derive(Debug)]
pub(crate) struct TscClock(Tsc, u64);

impl TscClock {
    /// Calibrates the counter; a machine without one that can be trusted gets the clock, and
    /// `report` is told so.
    pub(crate) fn calibrate(report: Option<fn(&str)>) -> Self {
        let clock = Self(Tsc::calibrate(CALIBRATION), 0);
        if let (Some(report), Source::Clock(_)) = (report, clock.0.source()) {
            report(&format!("cycles are counted by the {}", clock.source()));
        }
        clock
    }
}

impl CycleClock for TscClock {
    fn now(&mut self) -> Cycles {
        self.0.now()
    }

    fn spend(&mut self, cycles: Cycles) {
        let start = self.0.now();
        while self.0.now().0.saturating_sub(start.0) < cycles.0 {
            std::hint::spin_loop();
        }
    }

    fn hertz(&self) -> u64 {
        self.0.hertz()
    }

    fn was_switched_out(&mut self) -> bool {
        let now = involuntary_switches();
        std::mem::replace(&mut self.1, now) != now
    }

    fn source(&self) -> String {
        match self.0.source() {
            Source::Counter => "time-stamp counter".to_owned(),
            Source::Clock(reason) => format!("clock, one cycle per nanosecond: {reason}"),
        }
    }
}
