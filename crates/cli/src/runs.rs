//! Common parts of the commands that run scenarios.

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::check;
use crate::failure::{Failure, Outcome};
use crate::out::print;

/// The summary that the run has written.
pub(crate) fn print_summary(files: &[PathBuf]) -> Outcome {
    let file = files.iter().find(|file| file.ends_with("summary.json"));
    file.map_or(Ok(0), |file| print(&check::read(file)?))
}

pub(crate) fn own_path() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::new(1, format!("cannot find this program's own file: {error}")))
}

pub(crate) fn progress(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A name as a single part of a path.
pub(crate) fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect()
}
