//! QoStat: reads every counter each interval and writes one row per class and window.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_router::Snapshot;
use serde::Serialize;

use crate::client::{Client, ClientError};
use crate::window::{Window, between};

/// How rows are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Json,
}

/// Columns of a row. `t` is seconds since the start, at the end of the window; `sent` and `dropped` are packets in it, `qlen` packets at
/// its end; delays are empty when no packet left the queue, `ci_*` and `x_delay_us` on links without control. `calls_*` belong to the link: every class of it shows the same.
const COLUMNS: &str = "t,link,class,mean_delay_us,p50_us,p99_us,sent,dropped,qlen,calls_none,calls_one,calls_many,ci_delay,ci_loss,x_delay_us";

/// A row as JSON.
#[derive(Serialize)]
struct Row<'a> {
    t: f64,
    link: &'a str,
    class: &'a str,
    mean_delay_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    sent: u64,
    dropped: u64,
    qlen: u64,
    calls_none: u64,
    calls_one: u64,
    calls_many: u64,
    ci_delay: Option<f64>,
    ci_loss: Option<f64>,
    x_delay_us: Option<f64>,
}

/// Writes windows as rows.
#[derive(Debug)]
pub struct RowWriter<W> {
    out: W,
    format: Format,
}

impl<W: Write> RowWriter<W> {
    /// A writer; writes the header line at once where the format has one.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn new(mut out: W, format: Format) -> io::Result<Self> {
        if format == Format::Csv {
            writeln!(out, "{COLUMNS}")?;
            out.flush()?;
        }
        Ok(Self { out, format })
    }

    /// Writes the rows of one window that ended `t_s` seconds after the start, of `link` alone if given. Flushes.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write(&mut self, t_s: f64, window: &Window, link: Option<&str>) -> io::Result<()> {
        for of in window.links.iter().filter(|of| link.is_none_or(|link| link == of.port)) {
            for class in &of.classes {
                let tenth = |us: f64| (us * 10.0).round() / 10.0;
                let thousandth = |index: f64| (index * 1e3).round() / 1e3;
                let row = Row {
                    t: (t_s * 1e3).round() / 1e3,
                    link: &of.port,
                    class: &class.name,
                    mean_delay_us: class.delay.mean_us().map(tenth),
                    p50_us: class.delay.quantile_us(0.5).map(tenth),
                    p99_us: class.delay.quantile_us(0.99).map(tenth),
                    sent: class.sent,
                    dropped: class.dropped_total(),
                    qlen: class.queued,
                    calls_none: of.calls[0],
                    calls_one: of.calls[1],
                    calls_many: of.calls[2],
                    ci_delay: class.control.map(|control| thousandth(control.ci_delay)),
                    ci_loss: class.control.map(|control| thousandth(control.ci_loss)),
                    x_delay_us: class.control.map(|control| tenth(control.x_delay_ns as f64 / 1e3)),
                };
                self.row(&row)?;
            }
        }
        self.out.flush()
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        if self.format == Format::Json {
            serde_json::to_writer(&mut self.out, row)?;
            return writeln!(self.out);
        }
        let index = |index: Option<f64>| index.map_or_else(String::new, |index| format!("{index:.3}"));
        let known = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{us:.1}"));
        writeln!(
            self.out,
            "{:.3},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.t,
            row.link,
            row.class,
            known(row.mean_delay_us),
            known(row.p50_us),
            known(row.p99_us),
            row.sent,
            row.dropped,
            row.qlen,
            row.calls_none,
            row.calls_one,
            row.calls_many,
            index(row.ci_delay),
            index(row.ci_loss),
            known(row.x_delay_us)
        )
    }
}

/// Why watching ended before it should.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The router no longer answers.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no such link.
    #[error("no link {link:?}: links are {known}")]
    NoSuchLink {
        /// The link asked for.
        link: String,
        /// The links there are.
        known: String,
    },
    /// The rows could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Reads the counters every `interval` and writes the rows of each window, `windows` times or until something fails. Intervals are
/// kept from the start, so that rows do not drift.
///
/// # Errors
/// See [`WatchError`]; a closed output is one of them.
pub fn watch<W: Write>(
    client: &mut Client,
    out: &mut RowWriter<W>,
    interval: Duration,
    windows: Option<u64>,
    link: Option<&str>,
) -> Result<(), WatchError> {
    let start = Instant::now();
    let first = client.show()?;
    check_link(&first, link)?;
    let mut before = first.clone();
    let mut due = start;
    for _ in 0..windows.unwrap_or(u64::MAX) {
        due += interval;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = client.show()?;
        let t_s = now.time_ns.saturating_sub(first.time_ns) as f64 / 1e9;
        out.write(t_s, &between(&before, &now), link)?;
        before = now;
    }
    Ok(())
}

fn check_link(snapshot: &Snapshot, link: Option<&str>) -> Result<(), WatchError> {
    match link {
        Some(link) if snapshot.link(link).is_none() => Err(WatchError::NoSuchLink {
            link: link.to_owned(),
            known: snapshot.links.iter().map(|l| l.port.as_str()).collect::<Vec<_>>().join(", "),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::tests::snapshot;

    fn rows(format: Format, link: Option<&str>) -> String {
        let mut out = Vec::new();
        let mut writer = RowWriter::new(&mut out, format).unwrap();
        let idle = between(&snapshot(9, 9, &[]), &snapshot(10, 10, &[]));
        let busy = between(&snapshot(10, 10, &[]), &snapshot(11, 11, &[100; 8]));
        writer.write(1.0, &idle, link).unwrap();
        writer.write(2.0, &busy, link).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_has_a_header_and_a_row_per_class_and_window() {
        assert_eq!(
            rows(Format::Csv, None),
            format!(
                "{COLUMNS}\n1.000,wan,bulk,,,,0,0,1,0,0,0,,,\n2.000,wan,bulk,100.0,100.0,100.0,8,2,1,8,16,24,,,\n"
            )
        );
    }

    #[test]
    fn json_lines_are_objects_with_nulls() {
        let text = rows(Format::Json, Some("wan"));
        let values: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(values.len(), 2);
        assert_eq!(values[0]["mean_delay_us"], serde_json::Value::Null);
        assert_eq!(values[1]["mean_delay_us"], 100.0);
        assert_eq!(values[1]["dropped"], 2);
        let mut keys: Vec<&str> = values[1].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns: Vec<&str> = COLUMNS.split(',').collect();
        keys.sort_unstable();
        columns.sort_unstable();
        assert_eq!(keys, columns);
    }

    #[test]
    fn other_links_are_left_out() {
        assert_eq!(rows(Format::Csv, Some("lan")), format!("{COLUMNS}\n"));
    }
}
