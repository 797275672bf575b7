//! The arguments of `evenkeel new`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use clap::{Args as ClapArgs, Subcommand};
use evenkeel_core::{BitRate, Nanos};
use evenkeel_scenario::Topology;

use crate::argument::{one_way, rate};

/// What to write.
#[derive(Debug, Subcommand)]
pub(crate) enum NewCommand {
    /// Write a scenario with claims that hold, and one that must fail without fair queues:
    /// `evenkeel new scenario mine.toml --topology parking-lot --size 3`.
    Scenario(NewScenarioArgs),
    /// Write a sweep over the first slow link of a scenario: disciplines and rates, three seeds.
    Sweep(NewSweepArgs),
    /// Write a program with a discipline of one's own, strict priority to begin with, and a
    /// scenario that uses it: docs/write-a-discipline.md explains it line by line.
    Discipline(NewDisciplineArgs),
}

/// Arguments of `new scenario`.
#[derive(ClapArgs, Debug)]
pub(crate) struct NewScenarioArgs {
    /// The file; the scenario has its name.
    pub(crate) file: PathBuf,
    /// How nodes are joined.
    #[arg(long, value_parser = PossibleValuesParser::new(topologies()).map(|name| topology(&name)),
        default_value = Topology::Dumbbell.name())]
    pub(crate) topology: Topology,
    /// How large: pairs of hosts of a dumbbell (1 to 40), links of a parking lot, access routers
    /// of a tree (2 to 16), leaves of a leaf-spine (3 to 16).
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) size: u8,
    /// Rate of the slow links, 1Mbit/s to 100Mbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "10Mbit/s")]
    pub(crate) rate: BitRate,
    /// Delay of the long wires, one way, 0s to 100ms.
    #[arg(long, value_name = "TIME", value_parser = one_way, default_value = "10ms")]
    pub(crate) delay: Nanos,
    /// Write although the file is there; what was in it stays in FILE~.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `new sweep`.
#[derive(ClapArgs, Debug)]
pub(crate) struct NewSweepArgs {
    /// The file; the sweep has its name.
    pub(crate) file: PathBuf,
    /// The scenario that is swept.
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: PathBuf,
    /// Write although the file is there; what was in it stays in FILE~.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `new discipline`.
#[derive(ClapArgs, Debug)]
pub(crate) struct NewDisciplineArgs {
    /// The folder; the program has its name.
    pub(crate) folder: PathBuf,
    /// The folder with the sources of Evenkeel, which the program is built with.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) source: PathBuf,
}

fn topologies() -> impl Iterator<Item = PossibleValue> {
    Topology::WORDS.iter().map(|(name, meaning)| PossibleValue::new(*name).help(*meaning))
}

/// Of a name that clap has let through.
fn topology(name: &str) -> Topology {
    Topology::from_name(name).unwrap_or_default()
}
