//! `evenkeel history`: what a file of `evenkeel serve --history` tells.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args as ClapArgs, ValueEnum};
use evenkeel_control::rates::{Rates, RouterRates};
use evenkeel_core::settings::quantity::parse_time;
use evenkeel_history::{History, HistoryError, Step, rfc3339};
use serde_json::json;

use crate::argument::ArgumentError;
use crate::failure::{Failure, Outcome};
use crate::out::{closed, print};

/// Arguments of `history`.
#[derive(ClapArgs, Debug)]
pub(crate) struct HistoryArgs {
    /// The file: NAME.history in the folder of `evenkeel serve --history`.
    file: PathBuf,
    /// From so long ago (90s, 24h, 30d) [default: as far as it reaches].
    #[arg(long, value_name = "TIME", value_parser = ago)]
    since: Option<Duration>,
    /// Up to so long ago [default: now].
    #[arg(long, value_name = "TIME", value_parser = ago)]
    until: Option<Duration>,
    /// Which windows.
    #[arg(long, value_name = "STEP", default_value = "minutes")]
    step: Steps,
    /// Only this link.
    #[arg(long)]
    link: Option<String>,
    /// What happened (changes and alarms) instead of what passed.
    #[arg(long)]
    events: bool,
    /// Print a JSON object in each line.
    #[arg(long)]
    json: bool,
}

/// Which windows are told.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Steps {
    /// As they were read, usually each second.
    Seconds,
    /// Of a minute each.
    Minutes,
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        Self::input(error)
    }
}

pub(crate) fn history(args: &HistoryArgs) -> Outcome {
    let history = History::read_only(&args.file)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = |ago: Duration| u64::try_from(now.saturating_sub(ago).as_millis()).unwrap_or(0);
    let from_ms = args.since.map_or(0, before);
    let to_ms = args.until.map_or(u64::MAX, before);
    let failed = |source| HistoryError::Io { path: args.file.clone(), source };
    if args.events {
        let events = history.events(from_ms, to_ms).map_err(failed)?;
        let line = |of: &evenkeel_history::Happened| match args.json {
            true => format!("{}\n", json!(of)),
            false => format!("{} {:7} {}\n", rfc3339(of.time_ms), of.kind, of.text),
        };
        return print(&events.iter().map(line).collect::<String>());
    }
    let step = match args.step {
        Steps::Seconds => Step::Seconds,
        Steps::Minutes => Step::Minutes,
    };
    let windows = history.windows(step, from_ms, to_ms).map_err(failed)?;
    if let Some(link) = &args.link {
        has(&windows, link)?;
    }
    if windows.is_empty() {
        return Err(Failure::input(nothing(&history, step)));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let write = |out: &mut dyn io::Write| -> io::Result<()> {
        if !args.json {
            out.write_all(HEADER.as_bytes())?;
        }
        for window in &windows {
            out.write_all(told(window, args.link.as_deref(), args.json).as_bytes())?;
        }
        out.flush()
    };
    closed(write(&mut out))
}

const HEADER: &str = "time,link,class,sent_bps,offered_bps,sent_pps,dropped_pps,marked_pps,\
                      queued_packets,p50_us,p99_us,limit_bps\n";

/// A window as rows: each link, whose class is empty, and its classes.
fn told(window: &RouterRates, link: Option<&str>, json: bool) -> String {
    let mut text = String::new();
    let wanted = |name: &str| link.is_none_or(|link| link == name);
    if json {
        let mut window = window.clone();
        window.links.retain(|of| wanted(&of.link));
        return format!("{}\n", json!(window));
    }
    let time = rfc3339(window.time_ms);
    for of in window.links.iter().filter(|of| wanted(&of.link)) {
        let limit = of.limit_bps.map_or_else(String::new, |limit| limit.to_string());
        let mut row = |class: &str, rates: &Rates| {
            let us = |us: Option<f64>| us.map_or_else(String::new, |us| us.to_string());
            let Rates { sent_bps, offered_bps, sent_pps, dropped_pps, marked_pps, .. } = rates;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{time},{},{class},{sent_bps},{offered_bps},{sent_pps},{dropped_pps},{marked_pps},\
                 {},{},{},{limit}",
                of.link,
                rates.queued_packets,
                us(rates.p50_us),
                us(rates.p99_us)
            );
        };
        row("", &of.all);
        of.classes.iter().for_each(|class| row(&class.class, &class.rates));
    }
    text
}

/// Why there is nothing, and where there is something.
fn nothing(history: &History, step: Step) -> String {
    let file = history.path().display();
    match history.reach(step) {
        Some((from, to)) => format!(
            "{file}: nothing of this time; it reaches from {} to {}",
            rfc3339(from),
            rfc3339(to)
        ),
        None => format!("{file}: no such windows yet"),
    }
}

fn has(windows: &[RouterRates], link: &str) -> Result<(), Failure> {
    let Some(last) = windows.last() else { return Ok(()) };
    if windows.iter().any(|window| window.links.iter().any(|of| of.link == link)) {
        return Ok(());
    }
    let known: Vec<&str> = last.links.iter().map(|of| of.link.as_str()).collect();
    Err(Failure::input(format!("no link {link:?}: links are {}", known.join(", "))))
}

/// How long ago: a time of router.toml, or hours and days.
fn ago(text: &str) -> Result<Duration, ArgumentError> {
    for (unit, seconds) in [("h", 3_600), ("d", 86_400)] {
        if let Some(Ok(count)) = text.strip_suffix(unit).map(str::parse::<u32>) {
            return Ok(Duration::from_secs(u64::from(count) * seconds));
        }
    }
    Ok(Duration::from_nanos(parse_time(text)?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_days_and_of_files() {
        let seconds = |text: &str| ago(text).unwrap().as_secs();
        assert_eq!([seconds("90s"), seconds("24h"), seconds("30d")], [90, 86_400, 2_592_000]);
        assert!(ago("yesterday").is_err());
    }
}
