//! Samples as CSV (RFC 4180): the QoStat columns, one row per window, link and class.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::run::{Delays, Run};

/// Columns of `samples.csv`. Counts (`offered`, `sent`, `dropped`) are packets in the window, `qlen` packets at its end; an
/// empty cell means not measured.
pub const SAMPLE_COLUMNS: &[&str] = &[
    "run",
    "world",
    "t_s",
    "window_s",
    "step",
    "router",
    "link",
    "class",
    "mean_delay_us",
    "delay_p50_us",
    "delay_p99_us",
    "delay_max_us",
    "offered",
    "sent",
    "sent_bytes",
    "dropped",
    "dropped_by",
    "qlen",
    "e2e_mean_us",
    "e2e_p50_us",
    "e2e_p99_us",
    "goodput_bytes",
    "ci_delay",
    "ci_loss",
    "x_delay_us",
    "cycles",
    "passed",
    "refused",
    "fair_cycles",
    "flows",
    "accept_mean_us",
    "accept_max_us",
    "accepted",
    "waiting",
];

/// Columns of `calls.csv`.
pub const CALL_COLUMNS: &[&str] = &[
    "run",
    "world",
    "t_s",
    "window_s",
    "step",
    "router",
    "link",
    "none",
    "one",
    "many",
    "fair_rate_bps",
    "priority_load",
    "congested",
    "protected",
    "streaming",
    "refused",
];

/// Writes `samples.csv`. Several runs go into one file, told apart by the column `run`.
///
/// # Errors
/// Whatever `out` says.
pub fn write_samples(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    row(out, SAMPLE_COLUMNS)?;
    for run in runs {
        for sample in &run.samples {
            let [mean, p50, p99, max] = delay_cells(Some(&sample.transit));
            let [e2e_mean, e2e_p50, e2e_p99, _] = delay_cells(sample.end_to_end.as_ref());
            let [accept_mean, _, _, accept_max] = delay_cells(sample.acceptance.as_ref());
            let by: Vec<String> = sample.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
            row(
                out,
                &[
                    run.name.as_str(),
                    &run.world,
                    &format!("{:.3}", sample.t_s),
                    &format!("{:.6}", sample.window_s),
                    run.step_of_window(sample.t_s, sample.window_s),
                    &sample.router,
                    &sample.link,
                    &sample.class,
                    &mean,
                    &p50,
                    &p99,
                    &max,
                    &known(sample.offered),
                    &sample.sent.to_string(),
                    &sample.sent_bytes.to_string(),
                    &sample.dropped_total().to_string(),
                    &by.join(" "),
                    &sample.qlen.to_string(),
                    &e2e_mean,
                    &e2e_p50,
                    &e2e_p99,
                    &known(sample.goodput_bytes),
                    &decimals(sample.control.map(|control| control.ci_delay)),
                    &decimals(sample.control.map(|control| control.ci_loss)),
                    &decimals(sample.control.map(|control| control.x_delay_us)),
                    &known(sample.cycles.map(|cycles| cycles.spent)),
                    &known(sample.cycles.map(|cycles| cycles.passed)),
                    &known(sample.cycles.map(|cycles| cycles.refused)),
                    &known(sample.core.map(|core| core.fair_cycles.round() as u64)),
                    &known(sample.core.map(|core| core.flows.into())),
                    &accept_mean,
                    &accept_max,
                    &known(sample.acceptance.as_ref().map(|delays| delays.count)),
                    &known(sample.waiting),
                ],
            )?;
        }
    }
    Ok(())
}

/// Writes `calls.csv`: scheduler calls that found none, one or several queues with packets.
///
/// # Errors
/// Whatever `out` says.
pub fn write_calls(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    row(out, CALL_COLUMNS)?;
    for run in runs {
        for calls in &run.calls {
            let admission = calls.admission.as_ref();
            row(
                out,
                &[
                    run.name.as_str(),
                    &run.world,
                    &format!("{:.3}", calls.t_s),
                    &format!("{:.6}", calls.window_s),
                    run.step_of_window(calls.t_s, calls.window_s),
                    &calls.router,
                    &calls.link,
                    &calls.none.to_string(),
                    &calls.one.to_string(),
                    &calls.many.to_string(),
                    &decimals(admission.map(|a| a.fair_rate_bps)),
                    &decimals(admission.map(|a| a.priority_load)),
                    &known(admission.map(|a| u64::from(a.congested))),
                    &known(admission.map(|a| a.protected)),
                    &known(admission.map(|a| a.streaming)),
                    &known(admission.map(|a| a.refused)),
                ],
            )?;
        }
    }
    Ok(())
}

fn decimals(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.4}"))
}

/// Mean, median, 99 % and maximum in microseconds; empty where nothing was measured.
fn delay_cells(delays: Option<&Delays>) -> [String; 4] {
    match delays.and_then(Delays::stats) {
        Some(d) => [d.mean_us, d.p50_us, d.p99_us, d.max_us].map(|us| format!("{us:.1}")),
        None => Default::default(),
    }
}

fn known(value: Option<u64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

pub(crate) fn row(out: &mut impl Write, cells: &[&str]) -> io::Result<()> {
    for (i, cell) in cells.iter().enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        out.write_all(quoted(cell).as_bytes())?;
    }
    out.write_all(b"\n")
}

/// The cell as it must stand in the file: in quotes when it holds a separator.
fn quoted(cell: &str) -> Cow<'_, str> {
    if cell.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_row_has_every_column_and_texts_are_quoted() {
        let mut run = fixture::two_steps();
        run.name = "a, \"b\"".to_owned();
        let mut out = Vec::new();
        write_samples(&mut out, std::slice::from_ref(&run)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next().unwrap(), SAMPLE_COLUMNS.join(","));
        let first = lines.next().unwrap();
        assert_eq!(
            first,
            "\"a, \"\"b\"\"\",test,1.000,1.000000,start,r1,sink,class1,100.0,100.0,100.0,100.0,1200,1000,1428000,\
             200,queue_full=200,50,,,,,,,,,,,,,,,,"
        );
        assert_eq!(text.lines().count(), 1 + run.samples.len());
    }

    #[test]
    fn calls_name_the_step_of_their_window() {
        let mut out = Vec::new();
        write_calls(&mut out, &[fixture::two_steps()]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().nth(1).unwrap(), ",test,1.000,1.000000,start,r1,sink,10,20,70,,,,,,");
        assert!(text.lines().last().unwrap().contains(",x10,"));
    }
}
