//! The worker's cycles: the time-stamp counter where it can be trusted.

use evenkeel_core::{Cycles, Nanos};
use evenkeel_ports::sys::{thread_switches, thread_time};
use evenkeel_ports::tsc::{Source, Tsc};

use crate::pipeline::cycles::CycleClock;

/// How long the counter is compared with the clock: gives some 10 parts per million.
const CALIBRATION: Nanos = Nanos::from_millis(20);

/// Less than a second divided by this is no other thread that ran: an interrupt, or two clocks that
/// are not read at the same instant.
const SHORTEST_ABSENCE: u64 = 200_000;

/// A calibrated counter as the pipeline's clock.
#[derive(Debug)]
pub(crate) struct TscClock {
    counter: Tsc,
    /// Counter, time of the thread and its switches when it was last asked what others took.
    then: Cycles,
    ran: Nanos,
    switches: [u64; 2],
}

impl TscClock {
    /// Calibrates the counter; a machine without one that can be trusted gets the clock, and
    /// `report` is told so.
    pub(crate) fn calibrate(report: Option<fn(&str)>) -> Self {
        let counter = Tsc::calibrate(CALIBRATION);
        let clock = Self { counter, then: Cycles(0), ran: Nanos(0), switches: [0; 2] };
        if let (Some(report), Source::Clock(_)) = (report, clock.counter.source()) {
            report(&format!("cycles are counted by the {}", clock.source()));
        }
        clock
    }
}

impl CycleClock for TscClock {
    fn now(&mut self) -> Cycles {
        self.counter.now()
    }

    fn spend(&mut self, cycles: Cycles) {
        let start = self.counter.now();
        while self.counter.now().0.saturating_sub(start.0) < cycles.0 {
            std::hint::spin_loop();
        }
    }

    fn hertz(&self) -> u64 {
        self.counter.hertz()
    }

    fn taken(&mut self) -> Option<Cycles> {
        let (now, ran) = (self.counter.now(), thread_time());
        let all = now.0.saturating_sub(std::mem::replace(&mut self.then, now).0);
        let ours = ran.0.saturating_sub(std::mem::replace(&mut self.ran, ran).0);
        let ours = u128::from(ours) * u128::from(self.hertz()) / 1_000_000_000;
        let away = all.saturating_sub(u64::try_from(ours).unwrap_or(u64::MAX));
        if away < self.hertz() / SHORTEST_ABSENCE {
            return Some(Cycles(0));
        }
        let [waited, stopped] = thread_switches();
        let [waited_before, stopped_before] =
            std::mem::replace(&mut self.switches, [waited, stopped]);
        // While the thread slept nobody took anything from it; how long it did is not known.
        match (stopped > stopped_before, waited > waited_before) {
            (false, _) => Some(Cycles(0)),
            (true, false) => Some(Cycles(away)),
            (true, true) => None,
        }
    }

    fn source(&self) -> String {
        match self.counter.source() {
            Source::Counter => "time-stamp counter".to_owned(),
            Source::Clock(reason) => format!("clock, one cycle per nanosecond: {reason}"),
        }
    }
}
