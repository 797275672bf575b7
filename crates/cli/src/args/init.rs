//! The arguments of `evenkeel init`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use evenkeel_core::BitRate;
use evenkeel_core::link::FramingConfig;

use crate::argument::{overhead, rate};

/// Arguments of `init`.
#[derive(ClapArgs, Debug)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The interface towards the line.
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) wan: Option<String>,
    /// The interface towards the others: customers, a router, a host. Not for --gateway.
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) lan: Option<String>,
    /// Rate of the line down, as it is sold: 100Mbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) down: Option<BitRate>,
    /// Rate of the line up, as it is sold: 20Mbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) up: Option<BitRate>,
    /// What the line adds to each packet: ethernet, docsis (cable), ptm or pppoe-ptm (VDSL),
    /// adsl-pppoa or adsl-pppoe, or bytes.
    #[arg(long, value_name = "LINE", value_parser = overhead, default_value = "ethernet")]
    pub(crate) overhead: FramingConfig,
    /// Write what a router.toml of version 0.1 meant, and tell what has changed since.
    #[arg(long, value_name = "OLD", conflicts_with_all = ["wan", "lan", "down", "up", "gateway",
        "bridge", "isp", "lab"])]
    pub(crate) from: Option<PathBuf>,
    /// Write although the file is there; what was in it stays in FILE~.
    #[arg(long)]
    pub(crate) force: bool,
    /// The file [default: /etc/evenkeel/router.toml where that folder is, else router.toml].
    pub(crate) file: Option<PathBuf>,
}

/// What the machine is.
#[derive(ClapArgs, Debug)]
#[group(multiple = false)]
pub(crate) struct PlaceArgs {
    /// It routes already, perhaps with a firewall and translation: only its line gets fair queues.
    #[arg(long)]
    gateway: bool,
    /// It stands between a router and the line, and routes nothing.
    #[arg(long)]
    bridge: bool,
    /// It routes between customers and the line: each customer's address gets the same.
    #[arg(long)]
    isp: bool,
    /// Two ports and three classes, to try disciplines with.
    #[arg(long)]
    lab: bool,
}

impl PlaceArgs {
    /// The one that was said.
    pub(crate) fn chosen(&self) -> Option<Place> {
        let all = [self.gateway, self.bridge, self.isp, self.lab];
        all.iter().zip(Place::ALL).find(|(said, _)| **said).map(|(_, place)| place)
    }
}

/// What a machine is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// It routes already.
    Gateway,
    /// It passes frames on.
    Bridge,
    /// It routes between customers and the line.
    Isp,
    /// To try things with.
    Lab,
}

impl Place {
    const ALL: [Self; 4] = [Self::Gateway, Self::Bridge, Self::Isp, Self::Lab];
    /// Their names, in the same order.
    pub(crate) const NAMES: [&'static str; 4] = ["gateway", "bridge", "isp", "lab"];

    /// The one of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().zip(Self::ALL).find(|(known, _)| **known == name).map(|(_, one)| one)
    }
}
