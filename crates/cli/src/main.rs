//! The `evenkeel` command: arguments and printing. What it does is done by the crates below.
//!
//! Exit codes: 0 done, 1 an expectation failed or something broke, 2 bad input, 3 missing privilege or kernel feature,
//! 130 interrupted.
#![forbid(unsafe_code)]

mod args;
mod check;
mod ctl;
mod failure;
mod lab;
mod out;
mod reference;
mod run;
mod scenario;
mod sim;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Lab(args) => lab::lab(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Demo(args) => lab::demo(&args),
        Command::Scenario(args) => scenario::scenario(&args),
        Command::Reference { format } => reference::reference(format),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.text.is_empty() {
                eprintln!("{}", failure.text);
            }
            ExitCode::from(failure.code)
        }
    }
}
