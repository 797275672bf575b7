//! The columns of samples, scheduler calls and flows, in CSV and Parquet alike, each said once.

use evenkeel_core::measure::{Counter, Tally};

use crate::counted;
use crate::html::Report;
use crate::run::{
    AdmissionSample, CallsSample, ConnectionRow, Delays, FlowRow, Run, Sample, SubscriberRow,
};
use crate::stats::DelayStats;

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

/// Makes a list of columns: `name: value, unit, help;`.
macro_rules! columns {
    ($(
        $name:ident: $kind:ident $(($decimals:literal))? |$row:pat_param| $value:expr,
            $unit:literal, $help:literal;
    )+) => {
        vec![$(Column {
            name: stringify!($name),
            unit: $unit,
            help: $help,
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
        value: Value::Counter(counter, |row: &Row<'r>, name| row.sample.counts.value(name)),
    }));
    columns.extend(link());
    columns.extend(router());
    columns.extend(hosts_and_calls());
    columns
}

fn identity<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        scenario: Text |r| Some(r.report.name.clone()), "", "the scenario";
        without: Text |r| r.report.without.clone(), "", "the mechanism switched off";
        seed: Whole |r| r.report.seed, "", "the seed of the run";
        time_scale: Number(4) |r| Some(r.report.time_scale), "",
            "factor on all times of the scenario";
        run: Text |r| Some(r.run.name.clone()), "", "the run, where there are several";
        world: Text |r| Some(r.run.world.clone()), "", "`sim` or `lab`";
        t_s: Number(3) |r| Some(r.sample.t_s), "s", "end of the window";
        window_s: Number(6) |r| Some(r.sample.window_s), "s", "its length";
        step: Text |r| Some(r.run.step_of_window(r.sample.t_s, r.sample.window_s).to_owned()),
            "",
            "the step that it lies in for the most part";
        router: Text |r| Some(r.sample.router.clone()), "", "the router";
        link: Text |r| Some(r.sample.link.clone()), "", "the link: its port's name";
        class: Text |r| Some(r.sample.class.clone()), "", "the class";
    }
}

fn delays_and_offer<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        mean_delay_us: Number(1) |r| r.transit.map(|d| d.mean_us), "us",
            "mean transit delay: arrival in the router to leaving the queue";
        delay_p50_us: Number(1) |r| r.transit.map(|d| d.p50_us), "us", "its median";
        delay_p99_us: Number(1) |r| r.transit.map(|d| d.p99_us), "us", "its 99 % quantile";
        delay_max_us: Number(1) |r| r.transit.map(|d| d.max_us), "us", "its maximum";
        offered: Whole |r| r.sample.offered, "packets",
            "packets that the sources of the class sent";
    }
}

fn link<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        dropped: Whole |r| Some(r.sample.dropped_total()), "packets",
            "packets dropped on the link";
        dropped_by: Text |r| Some(by_reason(r.sample)), "packets",
            "the same by reason: `reason=packets`";
        qlen: Whole |r| Some(r.sample.qlen), "packets",
            "packets queued at the end of the window";
        qlen_mean: Number(3) |r| r.sample.queue_mean(), "packets",
            "packets queued, on the average of time over the window";
        qlen_most: Whole |r| r.sample.queue_most, "packets",
            "the most packets queued at once, from the start of the run to the end of the window";
        e2e_mean_us: Number(1) |r| r.end_to_end.map(|d| d.mean_us), "us",
            "mean delay from host to host";
        e2e_p50_us: Number(1) |r| r.end_to_end.map(|d| d.p50_us), "us", "its median";
        e2e_p99_us: Number(1) |r| r.end_to_end.map(|d| d.p99_us), "us", "its 99 % quantile";
        e2e_max_us: Number(1) |r| r.end_to_end.map(|d| d.max_us), "us", "its maximum";
        goodput_bytes: Whole |r| r.sample.goodput_bytes, "bytes",
            "IP bytes that the receiving hosts got";
    }
}

fn router<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        ci_delay: Number(4) |r| r.sample.control.map(|c| c.ci_delay), "",
            "congestion index for delay: 1 at the degradation threshold";
        ci_loss: Number(4) |r| r.sample.control.map(|c| c.ci_loss), "",
            "congestion index for loss";
        x_delay_us: Number(4) |r| r.sample.control.map(|c| c.x_delay_us), "us",
            "X_DELAY that the control gives";
        cycles: Whole |r| r.sample.cycles.map(|c| c.spent), "cycles",
            "cycles of packets handed to a link";
        passed: Whole |r| r.sample.cycles.map(|c| c.passed), "packets", "how many those were";
        refused: Whole |r| r.sample.cycles.map(|c| c.refused), "packets",
            "packets refused by FairDrop or by a service";
        fair_cycles: Number(0) |r| r.sample.core.map(|core| core.fair_cycles), "cycles",
            "what max-min water filling gives the class on a polled core";
        flows: Whole |r| r.sample.core.map(|core| core.flows.into()), "flows",
            "flows of the class there";
    }
}

fn hosts_and_calls<'r>() -> Vec<Column<Row<'r>>> {
    columns! {
        accept_mean_us: Number(1) |r| r.acceptance.map(|d| d.mean_us), "us",
            "mean time that flows waited until their first packet got through";
        accept_p50_us: Number(1) |r| r.acceptance.map(|d| d.p50_us), "us", "its median";
        accept_p99_us: Number(1) |r| r.acceptance.map(|d| d.p99_us), "us",
            "its 99 % quantile";
        accept_max_us: Number(1) |r| r.acceptance.map(|d| d.max_us), "us", "its maximum";
        accepted: Whole |r| r.sample.acceptance.as_ref().map(|d| d.count), "flows",
            "flows that got through for the first time";
        waiting: Whole |r| r.sample.waiting, "flows",
            "flows that wait at the end of the window";
        calls_none: Whole |r| r.calls.map(|c| c.none), "calls",
            "scheduler calls of the link that found every queue empty";
        calls_one: Whole |r| r.calls.map(|c| c.one), "calls",
            "those that found packets in one queue";
        calls_many: Whole |r| r.calls.map(|c| c.many), "calls",
            "those that found packets in several";
        fair_rate_bps: Number(4) |r| r.admission().map(|a| a.fair_rate_bps), "bit/s",
            "fair rate of the link's admission";
        priority_load: Number(4) |r| r.admission().map(|a| a.priority_load), "",
            "its priority load, a part of the link's rate";
        congested: Whole |r| r.admission().map(|a| a.congested.into()), "",
            "1 where it took the link for congested";
        protected: Whole |r| r.admission().map(|a| a.protected), "flows",
            "flows on its list";
        turned_away: Whole |r| r.admission().map(|a| a.refused), "packets",
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
        run: Text |(run, _)| Some(run.name.clone()), "", "the run, where there are several";
        world: Text |(run, _)| Some(run.world.clone()), "", "`sim` or `lab`";
        t_s: Number(3) |(_, c)| Some(c.t_s), "s", "end of the window";
        window_s: Number(6) |(_, c)| Some(c.window_s), "s", "its length";
        step: Text |(run, c)| Some(run.step_of_window(c.t_s, c.window_s).to_owned()), "",
            "the step that it lies in for the most part";
        router: Text |(_, c)| Some(c.router.clone()), "", "the router";
        link: Text |(_, c)| Some(c.link.clone()), "", "the link: its port's name";
        none: Whole |(_, c)| Some(c.none), "calls",
            "scheduler calls that found every queue empty";
        one: Whole |(_, c)| Some(c.one), "calls", "those that found packets in one queue";
        many: Whole |(_, c)| Some(c.many), "calls", "those that found packets in several";
        fair_rate_bps: Number(4) |(_, c)| c.admission.as_ref().map(|a| a.fair_rate_bps),
            "bit/s",
            "fair rate of the link's admission";
        priority_load: Number(4) |(_, c)| c.admission.as_ref().map(|a| a.priority_load), "",
            "its priority load, a part of the link's rate";
        congested: Whole |(_, c)| c.admission.as_ref().map(|a| a.congested.into()), "",
            "1 where it took the link for congested";
        protected: Whole |(_, c)| c.admission.as_ref().map(|a| a.protected), "flows",
            "flows on its list";
        streaming: Whole |(_, c)| c.admission.as_ref().map(|a| a.streaming), "flows",
            "the streaming among them";
        refused: Whole |(_, c)| c.admission.as_ref().map(|a| a.refused), "packets",
            "packets that it refused";
    }
}

/// A subscriber in its run.
pub type SubscriberOf<'r> = (&'r Report, &'r Run, &'r SubscriberRow);

/// The columns of subscribers: a row per subscriber or node, link and step.
#[must_use]
pub fn subscribers<'r>() -> Vec<Column<SubscriberOf<'r>>> {
    columns! {
        scenario: Text |(report, ..)| Some(report.name.clone()), "", "the scenario";
        without: Text |(report, ..)| report.without.clone(), "", "the mechanism switched off";
        seed: Whole |(report, ..)| report.seed, "", "the seed of the run";
        run: Text |(_, run, _)| Some(run.name.clone()), "", "the run, where there are several";
        world: Text |(_, run, _)| Some(run.world.clone()), "", "`sim` or `lab`";
        step: Text |(.., s)| Some(s.step.clone()), "", "the step";
        from_s: Number(6) |(.., s)| Some(s.from_s), "s", "when counting began";
        until_s: Number(6) |(.., s)| Some(s.until_s), "s", "when it ended";
        router: Text |(.., s)| Some(s.router.clone()), "", "the router";
        link: Text |(.., s)| Some(s.link.clone()), "", "the link";
        name: Text |(.., s)| Some(s.name.clone()), "", "its name in the list";
        parent: Text |(.., s)| Some(s.parent.clone()), "", "what it is behind";
        subscriber: Whole |(.., s)| Some(s.subscriber.into()), "",
            "1: a subscriber; 0: a node that others are behind";
        cap_bps: Whole |(.., s)| s.cap_bps, "bit/s", "the most it may have, on the wire";
        rate_bps: Number(1) |(.., s)| Some(s.rate_bps), "bit/s", "what it had, on the wire";
        share_bps: Number(1) |(.., s)| s.share_bps, "bit/s",
            "what it should have had, by hierarchical max-min";
        greedy: Whole |(.., s)| Some(s.greedy.into()), "",
            "1: something of it waited at nine of ten window ends";
        sent_packets: Whole |(.., s)| Some(s.sent_packets), "packets", "packets sent";
        dropped: Whole |(.., s)| Some(s.dropped), "packets", "packets dropped";
        marked: Whole |(.., s)| Some(s.marked), "packets", "packets marked";
        wait_p50_us: Number(1) |(.., s)| s.wait_p50_us, "us",
            "half of its packets waited no longer, in steps of a factor of two";
        wait_p99_us: Number(1) |(.., s)| s.wait_p99_us, "us", "99 of 100 of them";
    }
}

/// A flow in its run.
pub type FlowOf<'r> = (&'r Report, &'r Run, &'r FlowRow);

/// The columns of flows: a row per flow, in order of their beginning.
#[must_use]
pub fn flows<'r>() -> Vec<Column<FlowOf<'r>>> {
    columns! {
        scenario: Text |(report, ..)| Some(report.name.clone()), "", "the scenario";
        without: Text |(report, ..)| report.without.clone(), "", "the mechanism switched off";
        seed: Whole |(report, ..)| report.seed, "", "the seed of the run";
        run: Text |(_, run, _)| Some(run.name.clone()), "", "the run, where there are several";
        world: Text |(_, run, _)| Some(run.world.clone()), "", "`sim` or `lab`";
        traffic: Text |(.., f)| Some(f.traffic.clone()), "", "the `[[traffic]]` that it belongs to";
        flow: Whole |(.., f)| Some(f.flow), "", "its number among those of its traffic, from 0";
        transport: Text |(.., f)| Some(f.transport.clone()), "", "`tcp` or `udp`";
        source: Text |(.., f)| Some(f.source.clone()), "", "address and port that it comes from";
        destination: Text |(.., f)| Some(f.destination.clone()), "",
            "address and port that it goes to";
        start_s: Number(6) |(.., f)| Some(f.start_s), "s", "its beginning";
        end_s: Number(6) |(.., f)| f.end_s, "s",
            "when all that it had to carry was acknowledged; empty: not within the run, or it was \
             asked for no end";
        fct_s: Number(6) |(.., f)| f.completion_s(), "s", "flow completion time: end less start";
        asked_bytes: Whole |(.., f)| f.asked_bytes, "bytes",
            "payload that it had to carry; empty: as much as fits";
        delivered_bytes: Whole |(.., f)| Some(f.delivered_bytes), "bytes",
            "payload delivered, each byte once";
        goodput_bps: Number(1) |(.., f)| f.goodput_bps(), "bit/s",
            "delivered payload over its time (RFC 2647)";
        sent_packets: Whole |(.., f)| f.sent_packets, "packets",
            "packets with payload sent, those sent again included";
        lost_packets: Whole |(.., f)| Some(f.lost_packets), "packets",
            "with UDP: packets that had not arrived at the end; with TCP: segments sent again";
        timeouts: Whole |(.., f)| f.timeouts, "", "retransmission time-outs";
        rtt_us: Number(1) |(.., f)| f.rtt_us, "us",
            "mean round-trip time that its sender measured, with TCP";
    }
}

/// A TCP connection at the end of a window, in its run.
pub type ConnectionOf<'r> = (&'r Report, &'r Run, &'r ConnectionRow);

/// The columns of TCP connections: a row per connection and window, window by window.
#[must_use]
pub fn connections<'r>() -> Vec<Column<ConnectionOf<'r>>> {
    columns! {
        scenario: Text |(report, ..)| Some(report.name.clone()), "", "the scenario";
        without: Text |(report, ..)| report.without.clone(), "", "the mechanism switched off";
        seed: Whole |(report, ..)| report.seed, "", "the seed of the run";
        run: Text |(_, run, _)| Some(run.name.clone()), "", "the run, where there are several";
        world: Text |(_, run, _)| Some(run.world.clone()), "", "`sim` or `lab`";
        traffic: Text |(.., c)| Some(c.traffic.clone()), "", "the `[[traffic]]` that it belongs to";
        flow: Whole |(.., c)| Some(c.flow), "",
            "its number among those of its traffic, as in `flows.csv`";
        t_s: Number(3) |(.., c)| Some(c.t_s), "s", "when: the end of a window";
        cwnd_bytes: Whole |(.., c)| Some(c.cwnd_bytes), "bytes", "congestion window";
        rtt_us: Number(1) |(.., c)| c.rtt_us, "us",
            "smoothed round-trip time (RFC 6298); empty: not measured yet";
        retransmitted: Whole |(.., c)| Some(c.retransmitted), "segments",
            "segments sent again since its beginning";
    }
}
