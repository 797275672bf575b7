//! `evenkeel man` and `evenkeel completions`: made from the declaration of the command line.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::{Failure, Outcome};
use crate::out::print;

/// Prints what completes the command line in a shell.
pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "evenkeel", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Writes a page for the command and one for each of its subcommands.
pub(crate) fn pages(folder: &Path) -> Outcome {
    let failed = |error| Failure::new(1, format!("cannot write to {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Args::command(), folder).map_err(failed)?;
    print(&format!("man pages written to {}; read one: man {0}/evenkeel.1\n", folder.display()))
}
