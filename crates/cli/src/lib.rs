//! The `evenkeel` command as a library: for programs that bring disciplines of their own along.
//!
//! [`main`] is the whole command: `run`, `lab`, `scenario` and the rest. A program that calls it
//! with [`Disciplines`] of its own is an `evenkeel` that knows them, in every command: see
//! `docs/write-a-discipline.md`.
//!
//! Exit codes: 0 done, 1 an expectation failed or something broke, 2 bad input, 3 missing privilege
//! or kernel feature, 130 interrupted.
#![forbid(unsafe_code)]

mod admission;
mod args;
mod argument;
mod audit;
mod bench;
mod changes;
mod check;
mod cluster;
mod confine;
mod ctl;
mod cycles;
mod doctor;
mod failure;
mod history;
mod init;
mod isp;
mod lab;
mod live;
mod log;
mod manual;
mod margins;
mod membership;
mod new;
mod out;
mod pack;
mod privileges;
mod provenance;
mod reference;
mod renew;
mod report;
mod run;
mod runs;
mod scenario;
mod serve;
mod shape;
mod sim;
mod since;
mod subscribers;
mod sweep;
mod top;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

pub use evenkeel_core as core;
pub use evenkeel_router::{Boxed, Build, Disciplines, OwnError, Setup};

use args::{Args, Command};

/// Does what the command line says.
#[must_use]
pub fn main(disciplines: Disciplines) -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Run(args) => run::run(&args, disciplines),
        Command::Renew(args) => renew::renew(&args),
        Command::Shape(args) => shape::shape(&args, disciplines),
        Command::Init(args) => init::init(&args),
        Command::Check(args) => check::check(&args, &disciplines),
        Command::Doctor(args) => doctor::doctor(&args, &disciplines),
        Command::Serve(args) => serve::serve(&args),
        Command::Top(args) => top::top(&args),
        Command::History(args) => history::history(&args),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Audit(args) => audit::audit(&args),
        Command::Cluster { what: args::ClusterCommand::Leave { file, netns } } => {
            cluster::leave(&file, netns.as_deref(), &disciplines)
        }
        Command::Explain(args) => match &args.what {
            args::Explained::Flow { flow, link } => {
                ctl::explain(&args.socket, flow, link.as_deref(), args.json)
            }
            args::Explained::Subscriber { name } => {
                subscribers::explain(&args.socket, name, args.json)
            }
        },
        Command::Sim(args) => sim::sim(&args, &disciplines),
        Command::Lab(args) => lab::lab(&args, &disciplines),
        Command::Demo(args) => lab::demo(&args),
        Command::Scenario(args) => scenario::scenario(&args, &disciplines),
        Command::New { what } => new::new(&what, &disciplines),
        Command::Report(args) => report::report(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Rerun(args) => pack::rerun(&args, &disciplines),
        Command::Compare(args) => report::compare(&args),
        Command::Bench(args) => bench::bench(&args, &disciplines),
        Command::Sweep(args) => sweep::sweep(&args, &disciplines),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
        Command::Reference { format, json_schema } => reference::reference(format, json_schema),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.text.is_empty() {
                // Nobody may be there to read it; the exit code says it too.
                let _ = writeln!(std::io::stderr(), "{}", failure.text);
            }
            ExitCode::from(failure.code)
        }
    }
}
