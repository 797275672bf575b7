//! Printing to standard output, which may be a pipe that closes early.

use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// Prints `text` as it is. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// More lines than fit on any terminal without turning pages.
const LONG: usize = 24;

/// Prints `text`; on a terminal by pages, if it is long: with `PAGER`, or `less`, which ends by
/// itself where all of it fits.
pub(crate) fn paged(text: &str) -> Outcome {
    if text.lines().count() <= LONG || !io::stdout().is_terminal() {
        return print(text);
    }
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let mut command = Command::new("sh");
    command.args(["-c", pager.as_deref().unwrap_or("less")]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRSX");
    }
    let Ok(mut child) = command.spawn() else { return print(text) };
    // Whoever has seen enough closes it.
    let _ = child.stdin.take().map(|mut pages| pages.write_all(text.as_bytes()));
    match child.wait() {
        // The shell has found no such program: nothing was shown.
        Ok(status) if status.code() == Some(127) => print(text),
        Ok(_) => Ok(0),
        Err(error) => Err(Failure::new(1, format!("cannot wait for the pager: {error}"))),
    }
}

/// Prints a JSON value over several lines.
pub(crate) fn print_json(value: &Value) -> Outcome {
    print(&format!("{value:#}\n"))
}

/// 0 for what was written or is not wanted any more.
pub(crate) fn closed(written: io::Result<()>) -> Outcome {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(1, format!("cannot write: {error}")))
        }
        _ => Ok(0),
    }
}
