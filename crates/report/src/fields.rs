//! The columns of `samples.csv`, `samples.parquet` and `calls.csv`, each said once.

use evenkeel_core::measure::{Counter, Tally};

use crate::counted;
use crate::html::Report;
use crate::run::{AdmissionSample, CallsSample, Delays, Run, Sample};
use crate::stats::DelayStats;

/// Where a column stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum In {
    /// In the file for people and spreadsheets.
    Csv,
    /// In the file for programs, unrounded.
    Parquet,
    /// In both.
    Both,
}

/// How a row's value is read; `None`: not measured.
pub(crate) enum Value<R> {
    Text(fn(&R) -> Option<String>),
    Whole(fn(&R) -> Option<u64>),
    /// With so many decimals where it is rounded.
    Number(usize, fn(&R) -> Option<f64>),
    Counter(&'static Counter, fn(&R, &str) -> Option<u64>),
}

/// A column of a table of rows `R`.
pub struct Column<R> {
    /// Its name.
    pub name: &'static str,
    /// The unit of its values; empty for texts and parts.
    pub unit: &'static str,
    /// What they are.
    pub help: &'static str,
    /// In which files it stands.
    pub place: In,
    pub(crate) value: Value<R>,
}

impl<R> Column<R> {
    /// The value of a row as CSV has it.
    pub(crate) fn text(&self, row: &R) -> String {
        match self.value {
            Value::Text(of) => of(row).unwrap_or_default(),
            Value::Whole(of) => of(row).map_or_else(String::new, |n| n.to_string()),
            Value::Number(0, of) => of(row).map_or_else(String::new, |n| n.round().to_string()),
            Value::Number(decimals, of) => {
                of(row).map_or_else(String::new, |n| format!("{n:.decimals$}"))
            }
            Value::Counter(counter, of) => {
                of(row, counter.name).map_or_else(String::new, |n| n.to_string())
            }
        }
    }
}

/// A window of a class on a link, and what stands around it.
pub struct Row<'r> {
    report: &'r Report,
    run: &'r Run,
    sample: &'r Sample,
    transit: Option<DelayStats>,
    end_to_end: Option<DelayStats>,
    acceptance: Option<DelayStats>,
    calls: Option<&'r CallsSample>,
}

impl<'r> Row<'r> {
    /// The rows of a report, in order.
    pub(crate) fn of(report: &'r Report) -> impl Iterator<Item = Self> {
        let of_run = move |run: &'r Run| {
            run.samples.iter().map(move |sample| Self {
                report,
                run,
                sample,
                transit: sample.transit.stats(),
                end_to_end: sample.end_to_end.as_ref().and_then(Delays::stats),
                acceptance: sample.acceptance.as_ref().and_then(Delays::stats),
                calls: calls_of(run, sample),
            })
        };
        report.runs.iter().flat_map(of_run)
    }

    fn admission(&self) -> Option<&AdmissionSample> {
        self.calls?.admission.as_ref()
    }
}

/// The scheduler calls of a sample's window. Rows of a run come in order of time, in its calls as
/// in its samples.
fn calls_of<'r>(run: &'r Run, sample: &Sample) -> Option<&'r CallsSample> {
    let from = run.calls.partition_point(|c| c.t_s < sample.t_s);
    let mut window = run.calls[from..].iter().take_while(|c| c.t_s == sample.t_s);
    window.find(|c| c.router == sample.router && c.link == sample.link)
}

/// Makes a list of columns: `place name: value, unit, help;`.
macro_rules! columns {
    ($(
        $place:ident $name:ident: $kind:ident $(($decimals:literal))? |$row:pat_param| $value:expr,
            $unit:literal, $help:literal;
    )+) => {
        vec![$(Column {
            name: stringify!($name),
            unit: $unit,
            help: $help,
            place: In::$place,
            value: Value::$kind($($decimals,)? |$row| $value),
        },)+]
    };
}

/// The columns of samples: a row per class, link and window. Counters of classes stand behind what
/// was offered.
#[must_use]
pub fn samples<'r>() -> Vec<Column<Row<'r>>> {
    let mut columns = identity();
    columns.extend(delays_and_offer());
    columns.extend(counted::told().map(|counter| Column {
        name: counter.column,
        unit: counter.unit,
        help: counter.help,
        place: In::Both,
        value: Value::Counter(counter, |row: &Row<'r>, name| row.sample.counts.value(name)),
    }));
    columns.extend(link());
    columns.extend(router());
    columns.extend(hosts_and_calls());
    columns
}

fn identity<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        Parquet scenario: Text |r| Some(r.report.name.clone()), "", "the scenario";
        Parquet without: Text |r| r.report.without.clone(), "", "the mechanism switched off";
        Parquet seed: Whole |r| r.report.seed, "", "the seed of the run";
        Parquet time_scale: Number(4) |r| Some(r.report.time_scale), "",
            "factor on all times of the scenario";
        Both run: Text |r| Some(r.run.name.clone()), "", "the run, where there are several";
        Both world: Text |r| Some(r.run.world.clone()), "", "`sim` or `lab`";
        Both t_s: Number(3) |r| Some(r.sample.t_s), "s", "end of the window";
        Both window_s: Number(6) |r| Some(r.sample.window_s), "s", "its length";
        Both step: Text |r| Some(r.run.step_of_window(r.sample.t_s, r.sample.window_s).to_owned()),
            "",
            "the step that it lies in for the most part";
        Both router: Text |r| Some(r.sample.router.clone()), "", "the router";
        Both link: Text |r| Some(r.sample.link.clone()), "", "the link: its port's name";
        Both class: Text |r| Some(r.sample.class.clone()), "", "the class";
    }
}

fn delays_and_offer<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        Both mean_delay_us: Number(1) |r| r.transit.map(|d| d.mean_us), "us",
            "mean transit delay: arrival in the router to leaving the queue";
        Both delay_p50_us: Number(1) |r| r.transit.map(|d| d.p50_us), "us", "its median";
        Both delay_p99_us: Number(1) |r| r.transit.map(|d| d.p99_us), "us", "its 99 % quantile";
        Both delay_max_us: Number(1) |r| r.transit.map(|d| d.max_us), "us", "its maximum";
        Both offered: Whole |r| r.sample.offered, "packets",
            "packets that the sources of the class sent";
    }
}

fn link<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        Both dropped: Whole |r| Some(r.sample.dropped_total()), "packets",
            "packets dropped on the link";
        Csv dropped_by: Text |r| Some(by_reason(r.sample)), "packets",
            "the same by reason: `reason=packets`";
        Both qlen: Whole |r| Some(r.sample.qlen), "packets",
            "packets queued at the end of the window";
        Both e2e_mean_us: Number(1) |r| r.end_to_end.map(|d| d.mean_us), "us",
            "mean delay from host to host";
        Both e2e_p50_us: Number(1) |r| r.end_to_end.map(|d| d.p50_us), "us", "its median";
        Both e2e_p99_us: Number(1) |r| r.end_to_end.map(|d| d.p99_us), "us", "its 99 % quantile";
        Parquet e2e_max_us: Number(1) |r| r.end_to_end.map(|d| d.max_us), "us", "its maximum";
        Both goodput_bytes: Whole |r| r.sample.goodput_bytes, "bytes",
            "IP bytes that the receiving hosts got";
    }
}

fn router<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        Both ci_delay: Number(4) |r| r.sample.control.map(|c| c.ci_delay), "",
            "congestion index for delay: 1 at the degradation threshold";
        Both ci_loss: Number(4) |r| r.sample.control.map(|c| c.ci_loss), "",
            "congestion index for loss";
        Both x_delay_us: Number(4) |r| r.sample.control.map(|c| c.x_delay_us), "us",
            "X_DELAY that the control gives";
        Both cycles: Whole |r| r.sample.cycles.map(|c| c.spent), "cycles",
            "cycles of packets handed to a link";
        Both passed: Whole |r| r.sample.cycles.map(|c| c.passed), "packets", "how many those were";
        Both refused: Whole |r| r.sample.cycles.map(|c| c.refused), "packets",
            "packets refused by FairDrop or by a service";
        Both fair_cycles: Number(0) |r| r.sample.core.map(|core| core.fair_cycles), "cycles",
            "what max-min water filling gives the class on a polled core";
        Both flows: Whole |r| r.sample.core.map(|core| core.flows.into()), "flows",
            "flows of the class there";
    }
}

fn hosts_and_calls<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        Both accept_mean_us: Number(1) |r| r.acceptance.map(|d| d.mean_us), "us",
            "mean time that flows waited until their first packet got through";
        Parquet accept_p50_us: Number(1) |r| r.acceptance.map(|d| d.p50_us), "us", "its median";
        Parquet accept_p99_us: Number(1) |r| r.acceptance.map(|d| d.p99_us), "us",
            "its 99 % quantile";
        Both accept_max_us: Number(1) |r| r.acceptance.map(|d| d.max_us), "us", "its maximum";
        Both accepted: Whole |r| r.sample.acceptance.as_ref().map(|d| d.count), "flows",
            "flows that got through for the first time";
        Both waiting: Whole |r| r.sample.waiting, "flows",
            "flows that wait at the end of the window";
        Parquet calls_none: Whole |r| r.calls.map(|c| c.none), "calls",
            "scheduler calls of the link that found every queue empty";
        Parquet calls_one: Whole |r| r.calls.map(|c| c.one), "calls",
            "those that found packets in one queue";
        Parquet calls_many: Whole |r| r.calls.map(|c| c.many), "calls",
            "those that found packets in several";
        Parquet fair_rate_bps: Number(4) |r| r.admission().map(|a| a.fair_rate_bps), "bit/s",
            "fair rate of the link's admission";
        Parquet priority_load: Number(4) |r| r.admission().map(|a| a.priority_load), "",
            "its priority load, a part of the link's rate";
        Parquet congested: Whole |r| r.admission().map(|a| a.congested.into()), "",
            "1 where it took the link for congested";
        Parquet protected: Whole |r| r.admission().map(|a| a.protected), "flows",
            "flows on its list";
        Parquet turned_away: Whole |r| r.admission().map(|a| a.refused), "packets",
            "packets that it refused";
    }
}

fn by_reason(sample: &Sample) -> String {
    let by: Vec<String> =
        sample.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
    by.join(" ")
}

/// A window of a link in its run.
pub type CallsRow<'r> = (&'r Run, &'r CallsSample);

/// The columns of scheduler calls: a row per link and window.
#[must_use]
pub fn calls<'r>() -> Vec<Column<CallsRow<'r>>> {
    columns! {
        Csv run: Text |(run, _)| Some(run.name.clone()), "", "the run, where there are several";
        Csv world: Text |(run, _)| Some(run.world.clone()), "", "`sim` or `lab`";
        Csv t_s: Number(3) |(_, c)| Some(c.t_s), "s", "end of the window";
        Csv window_s: Number(6) |(_, c)| Some(c.window_s), "s", "its length";
        Csv step: Text |(run, c)| Some(run.step_of_window(c.t_s, c.window_s).to_owned()), "",
            "the step that it lies in for the most part";
        Csv router: Text |(_, c)| Some(c.router.clone()), "", "the router";
        Csv link: Text |(_, c)| Some(c.link.clone()), "", "the link: its port's name";
        Csv none: Whole |(_, c)| Some(c.none), "calls",
            "scheduler calls that found every queue empty";
        Csv one: Whole |(_, c)| Some(c.one), "calls", "those that found packets in one queue";
        Csv many: Whole |(_, c)| Some(c.many), "calls", "those that found packets in several";
        Csv fair_rate_bps: Number(4) |(_, c)| c.admission.as_ref().map(|a| a.fair_rate_bps),
            "bit/s",
            "fair rate of the link's admission";
        Csv priority_load: Number(4) |(_, c)| c.admission.as_ref().map(|a| a.priority_load), "",
            "its priority load, a part of the link's rate";
        Csv congested: Whole |(_, c)| c.admission.as_ref().map(|a| a.congested.into()), "",
            "1 where it took the link for congested";
        Csv protected: Whole |(_, c)| c.admission.as_ref().map(|a| a.protected), "flows",
            "flows on its list";
        Csv streaming: Whole |(_, c)| c.admission.as_ref().map(|a| a.streaming), "flows",
            "the streaming among them";
        Csv refused: Whole |(_, c)| c.admission.as_ref().map(|a| a.refused), "packets",
            "packets that it refused";
    }
}
