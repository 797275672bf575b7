//! Per-step statistics of a run, and the metrics that expectations name.
//!
//! A window counts for a step when it lies wholly after the step's settling time and before the
//! next step. Means are formed over packets (sum of delays over count), quantiles over the merged
//! distributions: never means of means.

use evenkeel_core::Nanos;
use evenkeel_core::measure::{Histogram, Tally};
use evenkeel_scenario::{FlowSet, Metric, Metrics, Subject, SubscriberSet};

use crate::counted;
use crate::run::{
    AdmissionSample, CallsSample, ControlSample, CoreSample, Delays, FlowRow, Run, Sample,
    StepMark, SubscriberRow,
};

/// A window may overlap the neighbouring step by this fraction of its length: a sampler's clock is
/// never exact.
const SLACK: f64 = 0.05;

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

/// The service of one class on one link during one step.
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
    /// Every counter that samples hold, per second, in the order of their declaration.
    pub counted: Vec<f64>,
    /// Packets per second dropped on the link.
    pub dropped: f64,
    /// The same by reason.
    pub dropped_by: Vec<(String, f64)>,
    /// Queue length on the average of time, packets; at the ends of the windows where an old result
    /// has no more.
    pub qlen: f64,
    /// Bits per second received by the sink.
    pub goodput: Option<f64>,
    /// Transit delay; `None` if no packet left the queue.
    pub transit: Option<DelayStats>,
    /// Delay between hosts; `None` if not measured.
    pub end_to_end: Option<DelayStats>,
    /// Means over the windows of what the link's dynamic control saw; `None` on links without.
    pub control: Option<ControlSample>,
    /// What it took of its router's cycles; `None` where they are not measured.
    pub cycles: Option<CycleStats>,
    /// Waiting time of flows whose first packet got through; `None` if none did, or if it was not
    /// measured.
    pub acceptance: Option<DelayStats>,
    /// Such flows per second; `None` if that was not measured.
    pub accepted: Option<f64>,
    /// Flows that waited at the ends of the windows, on average; `None` if that was not measured.
    pub waiting: Option<f64>,
    /// Per second: what water filling would have given it on a polled core; `None` elsewhere. The
    /// squares are those of rates, and not too small: what a flow gets in a step lies at or below
    /// the root of the mean square of its windows.
    pub core: Option<CoreSample>,
}

/// Cycles and packets per second of one class, of the whole router.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CycleStats {
    /// Cycles per second of packets that were handed to a link.
    pub spent: f64,
    /// How many those were, packets per second.
    pub passed: f64,
    /// Packets per second refused before any link, by FairDrop or by a service.
    pub refused: f64,
    /// Cycles per second that refusing them took.
    pub refused_cycles: f64,
    /// Cycles that the router has in a second.
    pub hertz: f64,
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

/// Scheduler calls on one link during one step, as fractions of all calls, and how many there were
/// per second.
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
    /// What its admission saw, on average over the windows; `None` on links without.
    pub admission: Option<AdmissionStats>,
}

/// What the admission of a link saw during one step: means over its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdmissionStats {
    /// Fair rate, bit/s.
    pub fair_rate: f64,
    /// In 19 of 20 windows it was above, bit/s.
    pub fair_rate_p5: f64,
    /// Priority load, a part of the link's rate.
    pub priority_load: f64,
    /// Part of the windows at whose ends the link was taken for congested.
    pub congested: f64,
    /// Flows on the list of protected flows.
    pub protected: f64,
    /// Those of them that are streaming.
    pub streaming: f64,
    /// Packets refused per second.
    pub refused: f64,
}

impl AdmissionStats {
    /// The mean over windows; `None` if no window tells.
    fn of(windows: &[&CallsSample]) -> Option<Self> {
        let told: Vec<_> = windows
            .iter()
            .filter_map(|row| Some((row.admission.as_ref()?, row.window_s)))
            .collect();
        if told.is_empty() {
            return None;
        }
        let mean = |value: fn(&AdmissionSample) -> f64| {
            told.iter().map(|(row, _)| value(row)).sum::<f64>() / told.len() as f64
        };
        let mut rates: Vec<_> = told.iter().map(|(row, _)| row.fair_rate_bps).collect();
        rates.sort_by(f64::total_cmp);
        let p5 = rates[rates.len() / 20];
        let seconds: f64 = told.iter().map(|(_, window_s)| window_s).sum();
        let refused: f64 = told.iter().map(|(row, _)| row.refused as f64).sum();
        Some(Self {
            fair_rate: mean(|row| row.fair_rate_bps),
            fair_rate_p5: p5,
            priority_load: mean(|row| row.priority_load),
            congested: mean(|row| f64::from(u8::from(row.congested))),
            protected: mean(|row| row.protected as f64),
            streaming: mean(|row| row.streaming as f64),
            refused: if seconds > 0.0 { refused / seconds } else { 0.0 },
        })
    }
}

impl Delays {
    /// Mean and quantiles; `None` if nothing was measured. Quantiles are never above the largest
    /// delay.
    #[must_use]
    pub fn stats(&self) -> Option<DelayStats> {
        if self.count == 0 {
            return None;
        }
        let histogram = self.histogram();
        let quantile_us = |q| self.bounded_us(histogram.quantile(q));
        Some(DelayStats {
            mean_us: self.sum_ns as f64 / self.count as f64 / 1e3,
            p50_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            max_us: self.max_ns as f64 / 1e3,
            count: self.count,
        })
    }

    /// A part `q` of the packets, 0 to 1, took at most this, microseconds.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> f64 {
        self.bounded_us(self.histogram().quantile(q))
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        for &(lowest, packets) in &self.buckets {
            histogram.record_many(Nanos(lowest), packets);
        }
        histogram
    }

    fn bounded_us(&self, delay: Option<Nanos>) -> f64 {
        delay.map_or(self.max_ns, |delay| delay.0.min(self.max_ns)) as f64 / 1e3
    }
}

impl Sample {
    /// Whether it is of this class on this link of this router.
    #[must_use]
    pub fn is_of(&self, router: &str, link: &str, class: &str) -> bool {
        self.router == router && self.link == link && self.class == class
    }

    /// Drops of all reasons.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().map(|(_, packets)| packets).sum()
    }

    /// Packets queued on the average of time over the window; `None` where nobody added up.
    #[must_use]
    pub fn queue_mean(&self) -> Option<f64> {
        (self.window_s > 0.0).then_some(self.queue_us? as f64 / (self.window_s * 1e6))
    }

    /// `count` of this window as a rate per second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        if self.window_s > 0.0 { count as f64 / self.window_s } else { 0.0 }
    }
}

/// The windows of a step together.
struct ClassSum {
    windows: u32,
    /// In how many of them the link had control.
    controlled: u32,
    sum: Sample,
}

impl ClassSum {
    fn of(sample: &Sample) -> Self {
        Self { windows: 1, controlled: sample.control.is_some().into(), sum: sample.clone() }
    }

    fn add(&mut self, sample: &Sample) {
        self.windows += 1;
        self.controlled += u32::from(sample.control.is_some());
        self.sum.add(sample);
    }

    fn finish(self) -> ClassStats {
        let Self { windows, controlled, mut sum } = self;
        let (seconds, windows, controlled) =
            (sum.window_s, f64::from(windows), f64::from(controlled));
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        sum.dropped.sort_unstable();
        ClassStats {
            seconds,
            offered: sum.offered.map(rate),
            sent: rate(sum.sent_packets),
            sent_bits: rate(sum.sent_bytes.0) * 8.0,
            counted: counted::told()
                .map(|of| rate(sum.counts.value(of.name).unwrap_or(0)))
                .collect(),
            dropped: rate(sum.dropped_total()),
            dropped_by: sum.dropped.iter().map(|(reason, n)| (reason.clone(), rate(*n))).collect(),
            qlen: sum.queue_mean().unwrap_or(sum.qlen as f64 / windows),
            goodput: sum.goodput_bytes.map(|bytes| rate(bytes) * 8.0),
            transit: sum.transit.stats(),
            end_to_end: sum.end_to_end.as_ref().and_then(Delays::stats),
            acceptance: sum.acceptance.as_ref().and_then(Delays::stats),
            accepted: sum.acceptance.as_ref().map(|delays| rate(delays.count)),
            waiting: sum.waiting.map(|waiting| waiting as f64 / windows),
            control: sum.control.map(|sum| ControlSample {
                ci_delay: sum.ci_delay / controlled,
                ci_loss: sum.ci_loss / controlled,
                x_delay_us: sum.x_delay_us / controlled,
            }),
            cycles: sum.cycles.map(|sum| CycleStats {
                spent: rate(sum.spent),
                passed: rate(sum.passed),
                refused: rate(sum.refused),
                refused_cycles: rate(sum.refused_cycles),
                hertz: sum.hertz as f64,
            }),
            core: sum.core.filter(|_| seconds > 0.0).map(|sum| CoreSample {
                fair_cycles: sum.fair_cycles / seconds,
                flows: sum.flows,
                squares: sum.squares * windows / (seconds * seconds),
            }),
            router: sum.router,
            link: sum.link,
            class: sum.class,
        }
    }
}

impl Run {
    /// The step in force at `t_s`; empty if the run has none.
    #[must_use]
    pub fn step_at(&self, t_s: f64) -> &str {
        self.steps.iter().rev().find(|step| step.at_s <= t_s).map_or("", |step| &step.name)
    }

    /// The step that a window lies in for the most part.
    #[must_use]
    pub fn step_of_window(&self, t_s: f64, window_s: f64) -> &str {
        self.step_at(t_s - window_s / 2.0)
    }

    /// Whether a window counts for the step that lasts `from_s` (settled) `..to_s`.
    fn counts(t_s: f64, window_s: f64, from_s: f64, to_s: f64) -> bool {
        t_s - window_s >= from_s - SLACK * window_s && t_s <= to_s + SLACK * window_s
    }

    /// Statistics of every step, in order of time. A step shorter than its settling time has no
    /// rows.
    #[must_use]
    pub fn step_stats(&self) -> Vec<StepStats> {
        let end_of_run = self.samples.iter().map(|s| s.t_s).fold(self.duration_s, f64::max);
        let ends = self.steps.iter().skip(1).map(|step| step.at_s).chain([end_of_run]);
        self.steps.iter().zip(ends).map(|(step, to_s)| self.stats_between(step, to_s)).collect()
    }

    fn stats_between(&self, step: &StepMark, to_s: f64) -> StepStats {
        let from_s = (step.at_s + self.settle_s).min(to_s);
        let mut classes: Vec<ClassSum> = Vec::new();
        for sample in self.samples.iter().filter(|s| Self::counts(s.t_s, s.window_s, from_s, to_s))
        {
            match classes.iter_mut().find(|class| class.sum.is_same(sample)) {
                Some(class) => class.add(sample),
                None => classes.push(ClassSum::of(sample)),
            }
        }
        let mut links: Vec<Vec<&CallsSample>> = Vec::new();
        for row in self.calls.iter().filter(|c| Self::counts(c.t_s, c.window_s, from_s, to_s)) {
            match links.iter_mut().find(|rows| rows[0].is_same(row)) {
                Some(rows) => rows.push(row),
                None => links.push(vec![row]),
            }
        }
        StepStats {
            step: step.name.clone(),
            from_s,
            to_s,
            classes: classes.into_iter().map(ClassSum::finish).collect(),
            links: links.iter().filter_map(|rows| LinkStats::of(rows)).collect(),
        }
    }
}

impl LinkStats {
    /// From the windows of one link in a step; `None` if there are none.
    fn of(windows: &[&CallsSample]) -> Option<Self> {
        let (first, rest) = windows.split_first()?;
        let mut sum = CallsSample::clone(first);
        rest.iter().for_each(|window| sum.add(window));
        let total = (sum.none + sum.one + sum.many) as f64;
        let fraction = |calls: u64| if total > 0.0 { calls as f64 / total } else { 0.0 };
        Some(Self {
            none: fraction(sum.none),
            one: fraction(sum.one),
            many: fraction(sum.many),
            calls: if sum.window_s > 0.0 { total / sum.window_s } else { 0.0 },
            admission: AdmissionStats::of(windows),
            router: sum.router,
            link: sum.link,
        })
    }
}

/// What was measured, as expectations read it: step statistics, and the run whose flows they are.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a>(pub &'a [StepStats], pub &'a Run);

impl Metrics for Measured<'_> {
    fn value(&self, metric: Metric, subject: &Subject, step: usize) -> Option<f64> {
        let step = self.0.get(step)?;
        let link = step.links.iter().find(|l| l.router == subject.router && l.link == subject.link);
        let calls = |fraction: fn(&LinkStats) -> f64| link.filter(|l| l.calls > 0.0).map(fraction);
        let admission = |value: fn(&AdmissionStats) -> f64| link?.admission.as_ref().map(value);
        let class = step.classes.iter().find(|c| {
            c.router == subject.router
                && c.link == subject.link
                && Some(&c.class) == subject.class.as_ref()
        });
        let transit = class.and_then(|c| c.transit);
        let end_to_end = class.and_then(|c| c.end_to_end);
        let cycles = class.and_then(|c| c.cycles);
        match metric {
            Metric::Sent => class.map(|c| c.sent),
            Metric::Counter(counter) => {
                let at = counted::told().position(|known| known == counter)?;
                class.and_then(|c| c.counted.get(at).copied())
            }
            Metric::Dropped => class.map(|c| c.dropped),
            Metric::Offered => class.and_then(|c| c.offered),
            Metric::Qlen => class.map(|c| c.qlen),
            Metric::Goodput => class.and_then(|c| c.goodput),
            Metric::Delay => transit.map(|d| d.mean_us),
            Metric::DelayP50 => transit.map(|d| d.p50_us),
            Metric::DelayP99 => transit.map(|d| d.p99_us),
            Metric::E2e => end_to_end.map(|d| d.mean_us),
            Metric::E2eP50 => end_to_end.map(|d| d.p50_us),
            Metric::E2eP99 => end_to_end.map(|d| d.p99_us),
            Metric::Accept => class.and_then(|c| c.acceptance).map(|d| d.mean_us),
            Metric::AcceptMax => class.and_then(|c| c.acceptance).map(|d| d.max_us),
            Metric::Accepted => class.and_then(|c| c.accepted),
            Metric::Waiting => class.and_then(|c| c.waiting),
            Metric::FairRate => admission(|a| a.fair_rate),
            Metric::FairRateP5 => admission(|a| a.fair_rate_p5),
            Metric::PriorityLoad => admission(|a| a.priority_load),
            Metric::Congested => admission(|a| a.congested),
            Metric::Protected => admission(|a| a.protected),
            Metric::Streaming => admission(|a| a.streaming),
            Metric::TurnedAway => admission(|a| a.refused),
            Metric::CallsNone => calls(|l| l.none),
            Metric::CallsOne => calls(|l| l.one),
            Metric::CallsMany => calls(|l| l.many),
            Metric::CiDelay => class.and_then(|c| c.control).map(|c| c.ci_delay),
            Metric::CiLoss => class.and_then(|c| c.control).map(|c| c.ci_loss),
            Metric::XDelay => class.and_then(|c| c.control).map(|c| c.x_delay_us),
            Metric::Cycles => cycles.map(|c| c.spent),
            Metric::CyclesEach => cycles.filter(|c| c.passed > 0.0).map(|c| c.spent / c.passed),
            Metric::Refused => cycles.map(|c| c.refused),
            Metric::FairCycles => class.and_then(|c| c.core).map(|c| c.fair_cycles),
        }
    }

    fn subscribers(&self, set: &SubscriberSet) -> Option<Vec<f64>> {
        let Self(_, run) = *self;
        let step = &run.steps.get(set.step)?.name;
        let of_set = |row: &&SubscriberRow| {
            row.router == set.router && row.link == set.link && row.step == *step
        };
        let here = || run.subscribers.iter().filter(of_set);
        let named = |subscriber| {
            let meant = here().filter(move |row| row.subscriber == subscriber);
            meant.filter(|row| set.means(&row.name, row.subscriber)).collect::<Vec<_>>()
        };
        let people = named(true);
        let meant = if people.is_empty() { named(false) } else { people };
        // Where nobody was counted nothing is known.
        here().next()?;
        Some(meant.iter().filter_map(|row| row.value(set.metric)).collect())
    }

    fn flows(&self, set: &FlowSet) -> Option<Vec<f64>> {
        let Self(_, run) = *self;
        let of_set = run.flows.iter().filter(|flow| set.traffic.contains(&flow.traffic));
        // Those of which nobody knows it have no part in it; if that is all of them, it is unknown.
        of_set.clone().find_map(|flow| flow.value(set.metric))?;
        let during = |flow: &&FlowRow| match set.step {
            None => true,
            Some(step) => {
                let begins = |step: usize| run.steps.get(step).map(|mark| mark.at_s);
                begins(step).is_some_and(|at| flow.start_s >= at)
                    && begins(step + 1).is_none_or(|at| flow.start_s < at)
            }
        };
        Some(of_set.filter(during).filter_map(|flow| flow.value(set.metric)).collect())
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::FlowMetric;

    use super::*;
    use crate::fixture;

    fn class3(steps: &[StepStats], step: usize) -> &ClassStats {
        steps[step].classes.iter().find(|c| c.class == "class3").unwrap()
    }

    #[test]
    fn settling_windows_are_left_out() {
        let mut run = fixture::two_steps();
        // The first window of the second step still shows the old numbers: it must not count.
        for sample in run.samples.iter_mut().filter(|s| s.t_s == 5.0) {
            sample.sent_packets = 1_000_000;
        }
        let steps = run.step_stats();
        assert_eq!((steps[1].from_s, steps[1].to_s), (5.0, 8.0));
        let class = class3(&steps, 1);
        assert_eq!((class.seconds, class.sent, class.dropped), (3.0, 500.0, 700.0));
        assert_eq!(class.dropped_by, [("queue_full".to_owned(), 700.0)]);
        assert_eq!(class.qlen, 20.0);
        assert_eq!(class.offered, Some(1200.0));
        assert_eq!(class.end_to_end, None);
        let delay = class.transit.unwrap();
        assert_eq!(
            (delay.mean_us, delay.p50_us, delay.max_us, delay.count),
            (400.0, 400.0, 400.0, 1500)
        );
    }

    #[test]
    fn means_are_over_packets_not_over_windows() {
        let mut run = fixture::two_steps();
        run.samples.retain(|s| s.class == "class3" && (s.t_s == 6.0 || s.t_s == 7.0));
        run.samples[0].transit = fixture::delays(1, 900);
        run.samples[1].transit = fixture::delays(99, 100);
        let steps = run.step_stats();
        let delay = class3(&steps, 1).transit.unwrap();
        assert_eq!(delay.mean_us, 108.0);
        assert!((delay.p50_us - 100.0).abs() < 3.2);
        assert_eq!(delay.max_us, 900.0);
    }

    #[test]
    fn a_window_that_ends_a_little_late_still_counts() {
        let mut run = fixture::two_steps();
        for sample in &mut run.samples {
            sample.t_s += 0.01;
        }
        assert_eq!(class3(&run.step_stats(), 0).seconds, 3.0);
        // Half a window over the step's end belongs to neither.
        for sample in &mut run.samples {
            sample.t_s += 0.5;
        }
        assert_eq!(class3(&run.step_stats(), 0).seconds, 2.0);
    }

    #[test]
    fn a_step_shorter_than_its_settling_time_has_no_numbers() {
        let mut run = fixture::two_steps();
        run.settle_s = 10.0;
        let steps = run.step_stats();
        assert_eq!(steps.len(), 2);
        assert!(steps.iter().all(|s| s.classes.is_empty()));
    }

    #[test]
    fn metrics_are_read_by_router_link_class_and_step() {
        let run = fixture::two_steps();
        let stats = run.step_stats();
        let steps = Measured(&stats, &run);
        let subject = |class: Option<&str>, link: &str| Subject {
            router: "r1".to_owned(),
            link: link.to_owned(),
            class: class.map(str::to_owned),
        };
        assert_eq!(steps.value(Metric::Sent, &subject(Some("class3"), "sink"), 1), Some(500.0));
        assert_eq!(steps.value(Metric::Delay, &subject(Some("class3"), "sink"), 0), Some(100.0));
        assert_eq!(steps.value(Metric::CallsMany, &subject(None, "sink"), 0), Some(0.7));
        assert_eq!(steps.value(Metric::Sent, &subject(Some("class3"), "other"), 1), None);
        assert_eq!(steps.value(Metric::Sent, &subject(Some("class9"), "sink"), 1), None);
        assert_eq!(steps.value(Metric::E2e, &subject(Some("class3"), "sink"), 1), None);
        assert_eq!(steps.value(Metric::Sent, &subject(Some("class3"), "sink"), 2), None);
    }

    #[test]
    fn flows_are_those_that_began_in_the_step_and_the_undone_are_the_slowest() {
        let flow = |traffic: &str, start_s: f64, end_s: Option<f64>| FlowRow {
            traffic: traffic.to_owned(),
            start_s,
            end_s,
            until_s: end_s.unwrap_or(10.0),
            asked_bytes: Some(1_000),
            delivered_bytes: 1_000,
            ..FlowRow::default()
        };
        let mut run = fixture::two_steps();
        let second = run.steps[1].at_s;
        run.flows = vec![
            flow("web", 0.0, Some(0.5)),
            flow("web", second, Some(second + 0.25)),
            flow("web", second + 1.0, None),
            flow("other", 0.0, Some(1.0)),
        ];
        let stats = run.step_stats();
        let of = |metric, step, traffic: &[&str]| {
            let traffic = traffic.iter().map(|name| (*name).to_owned()).collect();
            Measured(&stats, &run).flows(&FlowSet { metric, traffic, step })
        };
        let fct = FlowMetric::Fct;
        assert_eq!(of(fct, None, &["web"]), Some(vec![5e5, 2.5e5, f64::INFINITY]));
        assert_eq!(of(fct, Some(0), &["web", "other"]), Some(vec![5e5, 1e6]));
        assert_eq!(of(fct, Some(1), &["web"]), Some(vec![2.5e5, f64::INFINITY]));
        assert_eq!(of(fct, Some(1), &["other"]), Some(vec![]), "followed, but none began");
        assert_eq!(of(fct, None, &["none"]), None, "nobody followed them");
        assert_eq!(of(FlowMetric::Timeouts, None, &["web"]), None, "nobody told");
        assert_eq!(of(FlowMetric::Goodput, None, &["other"]), Some(vec![8_000.0]));
    }

    #[test]
    fn merging_adds_equal_buckets() {
        let mut a = fixture::delays(3, 100);
        a.add(&fixture::delays(2, 100));
        a.add(&fixture::delays(1, 50));
        assert_eq!(a.buckets, [(50_000, 1), (100_000, 5)]);
        assert_eq!((a.count, a.max_ns, a.sum_ns), (6, 100_000, 550_000));
    }
}
