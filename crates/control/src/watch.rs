//! QoStat: reads every counter each interval and writes one row per class and window.

use std::fmt;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_core::measure::{ClassCounters, Tally};
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{ClassSnapshot, LinkSnapshot};
use evenkeel_router::window::{Window, between};
use serde::{Serialize, Serializer};

use crate::client::{Client, ClientError};

/// How rows are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Json,
}

/// A value of a row.
enum Cell<'a> {
    Text(&'a str),
    Whole(u64),
    /// Rounded to so many decimals.
    Number(Option<f64>, usize),
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Whole(whole) => whole.serialize(serializer),
            Self::Number(number, _) => number.serialize(serializer),
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Whole(whole) => write!(f, "{whole}"),
            Self::Number(Some(number), decimals) => write!(f, "{number:.decimals$}"),
            Self::Number(None, _) => Ok(()),
        }
    }
}

/// A row's columns and values. `t` is seconds since the start, at the end of the window; `dropped`
/// is packets in it, `qlen` packets at its end; delays are empty when no packet left the queue,
/// `ci_*` and `x_delay_us` on links without control. `calls_*` belong to the link: every class of
/// it shows the same.
fn row<'a>(
    t_s: f64,
    link: &'a LinkSnapshot,
    class: &'a ClassSnapshot,
) -> Vec<(&'static str, Cell<'a>)> {
    let number = |value: Option<f64>, decimals: usize| {
        let scale = 10_f64.powi(decimals as i32);
        Cell::Number(value.map(|value| (value * scale).round() / scale), decimals)
    };
    let mut row = vec![
        ("t", number(Some(t_s), 3)),
        ("link", Cell::Text(&link.port)),
        ("class", Cell::Text(&class.name)),
        ("mean_delay_us", number(class.delay_mean_us(), 1)),
        ("p50_us", number(class.delay_quantile_us(0.5), 1)),
        ("p99_us", number(class.delay_quantile_us(0.99), 1)),
    ];
    let shown = ClassCounters::COUNTERS.iter().filter(|counter| counter.is_shown());
    row.extend(shown.filter_map(|of| Some((of.column, Cell::Whole(class.counts.value(of.name)?)))));
    let [none, one, many] = link.calls;
    let control = class.control.as_ref();
    row.extend([
        ("dropped", Cell::Whole(class.dropped_total())),
        ("qlen", Cell::Whole(class.queued_packets)),
        ("calls_none", Cell::Whole(none)),
        ("calls_one", Cell::Whole(one)),
        ("calls_many", Cell::Whole(many)),
        ("ci_delay", number(control.map(|control| control.ci_delay), 3)),
        ("ci_loss", number(control.map(|control| control.ci_loss), 3)),
        ("x_delay_us", number(control.map(|control| control.x_delay_ns as f64 / 1e3), 1)),
    ]);
    row
}

/// Names of the columns, in order.
#[must_use]
pub fn columns() -> Vec<&'static str> {
    row(0.0, &LinkSnapshot::default(), &ClassSnapshot::default())
        .into_iter()
        .map(|(name, _)| name)
        .collect()
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
            writeln!(out, "{}", columns().join(","))?;
            out.flush()?;
        }
        Ok(Self { out, format })
    }

    /// Writes the rows of one window that ended `t_s` seconds after the start, of `link` alone if
    /// given. Flushes.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write(&mut self, t_s: f64, window: &Window, link: Option<&str>) -> io::Result<()> {
        for of in window.counted.links.iter().filter(|of| link.is_none_or(|link| link == of.port)) {
            for class in &of.classes {
                let row = row(t_s, of, class);
                if self.format == Format::Json {
                    serde_json::Serializer::new(&mut self.out).collect_map(row)?;
                    writeln!(self.out)?;
                } else {
                    let cells: Vec<String> = row.iter().map(|(_, cell)| cell.to_string()).collect();
                    writeln!(self.out, "{}", cells.join(","))?;
                }
            }
        }
        self.out.flush()
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

/// Reads the counters every `interval` and writes the rows of each window, `windows` times or until
/// something fails. Intervals are kept from the start, so that rows do not drift.
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
    use evenkeel_core::Bytes;

    /// `packets` of 100 us each have left one class called `bulk` on the link `wan`; one drop per 4
    /// packets.
    fn snapshot(time_s: u64, packets: u64) -> Snapshot {
        let time_ns = time_s * 1_000_000_000;
        let class = ClassSnapshot {
            name: "bulk".to_owned(),
            counts: ClassCounters {
                in_packets: packets + packets / 4 + 1,
                out_packets: packets,
                sent_packets: packets,
                sent_bytes: Bytes(packets * 1428),
                ..ClassCounters::default()
            },
            dropped: [("queue_full".to_owned(), packets / 4)].into(),
            queued_packets: 1,
            delay_sum_ns: packets * 100_000,
            delay_max_ns: 100_000,
            delay_buckets: vec![(98_304, packets)],
            ..ClassSnapshot::default()
        };
        let link = LinkSnapshot {
            port: "wan".to_owned(),
            calls: [packets, 2 * packets, 3 * packets],
            classes: vec![class],
            ..LinkSnapshot::default()
        };
        Snapshot { time_ns, uptime_ns: time_ns, links: vec![link], ..Snapshot::default() }
    }

    fn rows(format: Format, link: Option<&str>) -> String {
        let mut out = Vec::new();
        let mut writer = RowWriter::new(&mut out, format).unwrap();
        let idle = between(&snapshot(9, 0), &snapshot(10, 0));
        let busy = between(&snapshot(10, 0), &snapshot(11, 8));
        writer.write(1.0, &idle, link).unwrap();
        writer.write(2.0, &busy, link).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_has_a_header_and_a_row_per_class_and_window() {
        let text = rows(Format::Csv, None);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines[0], columns());
        // Counters that are declared later stand behind `sent`.
        let sent = lines[0].iter().position(|name| *name == "sent").unwrap();
        let dropped = lines[0].iter().position(|name| *name == "dropped").unwrap();
        let known =
            |line: &[&str]| format!("{},{}", line[..=sent].join(","), line[dropped..].join(","));
        assert_eq!(known(&lines[1]), "1.000,wan,bulk,,,,0,0,1,0,0,0,,,");
        assert_eq!(known(&lines[2]), "2.000,wan,bulk,100.0,100.0,100.0,8,2,1,8,16,24,,,");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn json_lines_are_objects_with_nulls() {
        let text = rows(Format::Json, Some("wan"));
        let values: Vec<serde_json::Value> =
            text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(values.len(), 2);
        assert_eq!(values[0]["mean_delay_us"], serde_json::Value::Null);
        assert_eq!(values[1]["mean_delay_us"], 100.0);
        assert_eq!(values[1]["dropped"], 2);
        let mut keys: Vec<&str> =
            values[1].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = columns();
        keys.sort_unstable();
        columns.sort_unstable();
        assert_eq!(keys, columns);
    }

    #[test]
    fn other_links_are_left_out() {
        assert_eq!(rows(Format::Csv, Some("lan")), format!("{}\n", columns().join(",")));
    }
}
