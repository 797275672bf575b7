//! `evenkeel bench live`: what this machine, or a box, can forward.

use std::path::Path;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_lab::qualify::{self, Options, Subject, parse_mac};
use evenkeel_router::Disciplines;

use crate::args::{BenchArgs, BenchCommand, LiveArgs};
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::runs::own_path;

pub(crate) fn bench(args: &BenchArgs, disciplines: &Disciplines) -> Outcome {
    let BenchCommand::Live(args) = &args.what;
    let subject = subject(args, disciplines)?;
    let options = Options {
        binary: own_path()?,
        frames: args.frame.clone(),
        trial: Nanos(args.trial.as_nanos() as u64),
        precision: args.precision / 100.0,
        budget: Duration::from_secs(args.budget),
    };
    let found = qualify::run(&subject, &options)?;
    print(&found.text())?;
    if let Some(file) = &args.json {
        write(file, &format!("{:#}\n", found.json()))?;
    }
    if let Some(file) = &args.html {
        write(file, &found.html())?;
    }
    Ok(0)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::new(1, format!("cannot write {}: {error}", file.display())))
}

fn subject(args: &LiveArgs, disciplines: &Disciplines) -> Result<Subject, Failure> {
    if let (Some(tx), Some(rx), Some(mac)) = (&args.send, &args.receive, &args.mac) {
        let mac = parse_mac(mac).ok_or_else(|| {
            Failure::input(format!("--mac {mac}: expected six bytes as 02:00:00:00:00:99"))
        })?;
        return Ok(Subject::Box {
            tx: tx.clone(),
            rx: rx.clone(),
            mac,
            source: args.source,
            destination: args.destination,
        });
    }
    let config = match &args.config {
        Some(file) => check::load(file, disciplines)?,
        None => RouterConfig::parse(&router_toml(args), "--discipline or --rate")?,
    };
    Ok(Subject::Bed(Box::new(config)))
}

/// The configuration that the options ask for, as a file would say it.
fn router_toml(args: &LiveArgs) -> String {
    let mut link = String::new();
    if let Some(rate) = &args.rate {
        link += &format!("rate = {rate:?}\n");
    }
    if let Some(discipline) = &args.discipline {
        let table = discipline.trim_start().starts_with('{');
        link += &if table {
            format!("discipline = {discipline}\n")
        } else {
            format!("discipline = {{ kind = {discipline:?} }}\n")
        };
    }
    if !link.is_empty() {
        link.insert_str(0, "[[link]]\nport = \"out\"\n");
    }
    format!(
        "{link}[router]\nmode = \"busy\"\nio = \"{}\"\n[[port]]\nname = \"in\"\ninterface = \
         \"in\"\n[[port]]\nname = \"out\"\ninterface = \"out\"\n",
        args.io
    )
}
