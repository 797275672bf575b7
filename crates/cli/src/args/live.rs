//! The arguments of `evenkeel bench live`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use evenkeel_core::settings::quantity::parse_time;

use crate::argument::ArgumentError;

/// Arguments of `bench live`.
#[derive(ClapArgs, Debug)]
pub(crate) struct LiveArgs {
    /// How the router exchanges frames with the kernel: af-xdp, af-packet, auto.
    #[arg(long, value_name = "IO", default_value = "auto",
        value_parser = ["af-xdp", "af-packet", "auto"], conflicts_with_all = ["config", "send"])]
    pub(crate) io: String,
    /// Lengths of frames, bytes, check sequence included.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64,512,1500")]
    pub(crate) frame: Vec<u16>,
    /// Discipline of the outgoing link: its kind, or its table as in router.toml.
    #[arg(long, value_name = "KIND", conflicts_with_all = ["config", "send"])]
    pub(crate) discipline: Option<String>,
    /// Rate of the outgoing link, as in router.toml [default: as fast as the port takes frames].
    #[arg(long, value_name = "RATE", conflicts_with_all = ["config", "send"])]
    pub(crate) rate: Option<String>,
    /// Run this router.toml instead, between veth pairs: packets enter at its first port and leave
    /// at its second.
    #[arg(long, value_name = "FILE", conflicts_with = "send")]
    pub(crate) config: Option<PathBuf>,
    /// Measure a box: the interface of this machine that its entrance is cabled to.
    #[arg(long = "in", value_name = "IF", requires = "receive", requires = "mac")]
    pub(crate) send: Option<String>,
    /// The interface that its exit is cabled to.
    #[arg(long = "out", value_name = "IF", requires = "send")]
    pub(crate) receive: Option<String>,
    /// Hardware address of the box's entrance.
    #[arg(long, value_name = "MAC", requires = "send")]
    pub(crate) mac: Option<String>,
    /// Source address of the packets to a box.
    #[arg(long, value_name = "ADDRESS", default_value = "198.18.0.2")]
    pub(crate) source: Ipv4Addr,
    /// Their destination; the box needs a route and a neighbour for it.
    #[arg(long, value_name = "ADDRESS", default_value = "198.19.0.2")]
    pub(crate) destination: Ipv4Addr,
    /// How long a trial sends, 50ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = trial)]
    pub(crate) trial: Duration,
    /// How exactly rates are looked for, percent, 0.1 to 20.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = precision)]
    pub(crate) precision: f64,
    /// Begin no trial after so many seconds.
    #[arg(long, value_name = "S", default_value_t = 80,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) budget: u64,
    /// Write the numbers, every trial among them, to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with drawings to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

fn trial(text: &str) -> Result<Duration, ArgumentError> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    let valid = (Duration::from_millis(50)..=Duration::from_secs(60)).contains(&time);
    ArgumentError::within(time, text, valid, "50ms to 60s")
}

fn precision(text: &str) -> Result<f64, ArgumentError> {
    let percent = text.parse()?;
    ArgumentError::within(percent, text, (0.1..=20.0).contains(&percent), "0.1 to 20")
}
