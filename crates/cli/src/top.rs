//! `evenkeel top`: what a router does, on a terminal or as one table.

use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use evenkeel_core::settings::quantity::parse_time;
use evenkeel_top::{Reader, Recording, TopError, plain};

use crate::argument::ArgumentError;
use crate::failure::{Failure, Outcome};
use crate::out::print;

/// Arguments of `top`.
#[derive(ClapArgs, Debug)]
pub(crate) struct TopArgs {
    /// Socket of the router, best that for monitoring (`monitor` of router.toml).
    #[arg(long, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
    socket: PathBuf,
    /// Length of a window, 200ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one window as a table and end, as into a pipe.
    #[arg(long)]
    once: bool,
    /// Show this recording of `evenkeel serve --history` instead: left and right go through its
    /// windows, space plays them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "interval"])]
    history: Option<PathBuf>,
}

pub(crate) fn top(args: &TopArgs) -> Outcome {
    if let Some(file) = &args.history {
        let recording = Recording::open(file).map_err(Failure::input)?;
        if args.once || !stdout().is_terminal() {
            return print(&plain(recording.last(), None));
        }
        evenkeel_top::replay(recording).map_err(failed)?;
        return Ok(0);
    }
    if args.once || !stdout().is_terminal() {
        return tables(&args.socket, args.interval, Some(1), None);
    }
    evenkeel_top::top(&args.socket, args.interval).map_err(failed)?;
    Ok(0)
}

/// Prints so many windows as tables, or one after the other until nobody reads.
pub(crate) fn tables(
    socket: &Path,
    interval: Duration,
    windows: Option<u64>,
    link: Option<&str>,
) -> Outcome {
    let mut reader = Reader::open(socket)?;
    for window in 0..windows.unwrap_or(u64::MAX) {
        thread::sleep(interval);
        let rates = reader.window()?;
        if let Some(link) = link.filter(|link| rates.links.iter().all(|of| of.link != **link)) {
            let known: Vec<&str> = rates.links.iter().map(|of| of.link.as_str()).collect();
            return Err(Failure::input(format!(
                "no link {link:?}: links are {}",
                known.join(", ")
            )));
        }
        let gap = if window > 0 { "\n" } else { "" };
        print(&format!("{gap}{}", plain(&rates, link)))?;
    }
    Ok(0)
}

fn failed(error: TopError) -> Failure {
    match error {
        TopError::Client(error) => error.into(),
        TopError::Terminal(_) => Failure::new(1, error),
    }
}

fn interval(text: &str) -> Result<Duration, ArgumentError> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    let valid = (Duration::from_millis(200)..=Duration::from_secs(60)).contains(&time);
    ArgumentError::within(time, text, valid, "200ms to 60s")
}
