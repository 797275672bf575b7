//! Arguments of `evenkeel doctor`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Arguments of `doctor`.
#[derive(ClapArgs, Debug)]
pub(crate) struct DoctorArgs {
    /// The interfaces [default: those of the router.toml; without one, all that are up].
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,
    /// The router.toml that is to run here [default: /etc/evenkeel/router.toml if it can be read].
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Network namespace (a name under /run/netns) of the interfaces.
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// Only what is not as it should be.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
