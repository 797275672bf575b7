//! Printing to standard output, which may be a pipe that closes early.

use std::io::{self, ErrorKind, Write};

use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// Prints `text` as it is. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
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
