//! Arguments of what runs a router.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::argument::capture;

/// Arguments of `run`.
#[derive(ClapArgs, Debug)]
pub(crate) struct RunArgs {
    /// The router.toml.
    pub(crate) file: PathBuf,
    /// Take over from the router that runs, for an upgrade: its sockets, its programs and the
    /// packets that wait go over, nothing is lost, and it ends. If that cannot be, it goes on.
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// Arguments of `renew`.
#[derive(ClapArgs, Debug)]
pub(crate) struct RenewArgs {
    /// The router.toml.
    pub(crate) file: PathBuf,
    /// The process of the running router.
    #[arg(long, value_name = "N")]
    pub(crate) pid: u32,
}

/// How and where a router is started.
#[derive(ClapArgs, Debug)]
pub(crate) struct StartArgs {
    /// Control socket, instead of the one in the file.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Network namespace (a name under /run/netns) of the ports.
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// CPU to pin the worker to.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Folder for what must survive a crash; also EVENKEEL_RUNTIME_DIR [default: /run/evenkeel].
    #[arg(long, value_name = "PATH")]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Folder for what must survive a reboot; also EVENKEEL_STATE_DIR [default: that of
    /// --runtime-dir if given, else /var/lib/evenkeel].
    #[arg(long, value_name = "PATH")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Write the frames of a port, received and sent, to a pcapng file too; can be repeated.
    #[arg(long, value_name = "PORT=FILE", value_parser = capture)]
    pub(crate) capture: Vec<(String, PathBuf)>,
}
