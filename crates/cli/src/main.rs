//! The `evenkeel` command, with the disciplines that are built in.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    evenkeel::main(evenkeel::Disciplines::default())
}
