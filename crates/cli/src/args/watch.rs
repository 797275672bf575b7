//! The arguments of `evenkeel ctl trace` and `evenkeel ctl capture`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use evenkeel_core::settings::quantity::parse_time;

use crate::argument::ArgumentError;

/// Which packets are watched, and for how long.
#[derive(ClapArgs, Debug)]
pub(crate) struct WatchArgs {
    /// Only these packets, in either direction: a flow (10.0.0.1:5000->10.0.1.1:80/udp), or what a
    /// class matches: '{ source = "10.0.0.0/8" }, { destination_port = 443 }'.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Only those that come by this port, or leave by it.
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Only those that are dropped.
    #[arg(long)]
    pub(crate) drops: bool,
    /// End after so many packets.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) packets: Option<u64>,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) within: Option<Duration>,
}

/// Arguments of `ctl capture`.
#[derive(ClapArgs, Debug)]
pub(crate) struct CaptureArgs {
    /// The pcapng file, which is written here and not by the router; - is standard output, for
    /// `wireshark -k -i -`.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// Bytes of each frame, 14 to 9216.
    #[arg(long, value_name = "BYTES", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(14..=9_216))]
    pub(crate) snap: u32,
}

fn time(text: &str) -> Result<Duration, ArgumentError> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    let valid = (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time);
    ArgumentError::within(time, text, valid, "100ms to 86400s")
}
