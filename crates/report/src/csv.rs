//! Samples as CSV (RFC 4180): the QoStat columns, one row per window, link and class.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::fields::{self, Column, Row};
use crate::html::Report;

/// Writes `samples.csv`. Several runs go into one file, told apart by the column `run`.
///
/// # Errors
/// Whatever `out` says.
pub fn write_samples(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write(out, &fields::samples(), Row::of(report))
}

/// Writes `flows.csv`: a row per flow.
///
/// # Errors
/// Whatever `out` says.
pub fn write_flows(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write(out, &fields::flows(), report.flows())
}

/// Writes `connections.csv`: a row per TCP connection and window.
///
/// # Errors
/// Whatever `out` says.
pub fn write_connections(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write(out, &fields::connections(), report.connections())
}

/// Writes `subscribers.csv`: a row per subscriber, link and step.
///
/// # Errors
/// Whatever `out` says.
pub fn write_subscribers(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write(out, &fields::subscribers(), report.subscribers())
}

/// Writes `calls.csv`: scheduler calls that found none, one or several queues with packets.
///
/// # Errors
/// Whatever `out` says.
pub fn write_calls(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let rows = report.runs.iter().flat_map(|run| run.calls.iter().map(move |calls| (run, calls)));
    write(out, &fields::calls(), rows)
}

fn write<R>(
    out: &mut impl Write,
    columns: &[Column<R>],
    rows: impl Iterator<Item = R>,
) -> io::Result<()> {
    row(out, &columns.iter().map(|column| column.name).collect::<Vec<_>>())?;
    for of in rows {
        let cells: Vec<String> = columns.iter().map(|column| column.text(&of)).collect();
        row(out, &cells.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
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
        let samples = run.samples.len();
        write_samples(&mut out, &Report { runs: vec![run], ..Report::default() }).unwrap();
        let text = String::from_utf8(out).unwrap();
        // Counters that are declared later stand between these; nothing else changes.
        let known: Vec<&str> =
            "scenario,without,seed,time_scale,run,world,t_s,window_s,step,router,link,class,\
             mean_delay_us,delay_p50_us,\
             delay_p99_us,delay_max_us,offered,sent,sent_bytes,dropped,dropped_by,qlen,e2e_mean_us,\
             e2e_p50_us,e2e_p99_us,goodput_bytes,ci_delay,ci_loss,x_delay_us,cycles,passed,refused,\
             fair_cycles,flows,accept_mean_us,accept_max_us,accepted,waiting"
                .split(',')
                .collect();
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let named = header.iter().copied().filter(|name| known.contains(name));
        assert_eq!(named.collect::<Vec<_>>(), known);
        let rest =
            lines.next().unwrap().strip_prefix(",,,0.0000,\"a, \"\"b\"\"\",").unwrap().split(',');
        let cells = header[5..].iter().zip(rest).filter(|(name, _)| known.contains(name));
        let cells: Vec<&str> = cells.map(|(_, cell)| cell).collect();
        assert_eq!(
            cells.join(","),
            "test,1.000,1.000000,start,r1,sink,class1,100.0,100.0,100.0,100.0,1200,1000,1428000,\
             200,\
             queue_full=200,50,,,,,,,,,,,,,,,,"
        );
        assert_eq!(text.lines().count(), 1 + samples);
    }

    #[test]
    fn calls_name_the_step_of_their_window() {
        let mut out = Vec::new();
        let report = Report { runs: vec![fixture::two_steps()], ..Report::default() };
        write_calls(&mut out, &report).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text.lines().nth(1).unwrap(),
            ",test,1.000,1.000000,start,r1,sink,10,20,70,,,,,,"
        );
        assert!(text.lines().last().unwrap().contains(",x10,"));
    }
}
