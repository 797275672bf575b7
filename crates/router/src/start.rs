//! Starting and stopping a router.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_ports::PortError;
use thiserror::Error;

use crate::command::{Command, CommandError, Reply};
use crate::own::Disciplines;
use crate::pipeline::Place;
use crate::snapshot::Snapshot;
use crate::team::Team;

/// What the environment decides rather than the configuration file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the state needed after a crash is kept (offloads to restore). Made if missing.
    pub runtime_dir: PathBuf,
    /// Network namespace (a name under `/run/netns`) for the ports and the mirror; the caller's if `None`.
    pub netns: Option<String>,
    /// CPU to pin the only worker to.
    pub cpu: Option<usize>,
    /// How long [`Handle::send`] waits for the worker.
    pub reply_timeout: Duration,
    /// Told, from the worker's thread, what happens to ports while the router runs: an interface that vanished or is back.
    pub report: Option<fn(&str)>,
    /// The disciplines of `kind = "own"`.
    pub disciplines: Disciplines,
    /// Ports (by name) whose frames, received and sent, are also written to a pcapng file. It costs a copy per frame.
    pub captures: BTreeMap<String, PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            runtime_dir: PathBuf::from("/run/evenkeel"),
            netns: None,
            cpu: None,
            reply_timeout: Duration::from_secs(5),
            report: None,
            disciplines: Disciplines::default(),
            captures: BTreeMap::new(),
        }
    }
}

/// Why a router did not start. Whatever had been changed was put back.
#[derive(Debug, Error)]
pub enum StartError {
    /// An interface of the configuration is not there.
    #[error("port {port}: there is no interface {interface:?}: create it or correct `interface`")]
    MissingInterface {
        /// The port's name.
        port: String,
        /// The interface that was looked for.
        interface: String,
    },
    /// Another router forwards from an interface of the configuration.
    #[error(
        "port {port}: another evenkeel forwards from interface {interface} already: stop it first, or change it through its control socket"
    )]
    Taken {
        /// The port's name.
        port: String,
        /// The interface.
        interface: String,
    },
    /// The process may not do what a router must.
    #[error("{what} needs {privilege}: run as root or give the process that capability")]
    NoPrivilege {
        /// What was tried.
        what: String,
        /// The capability that is missing.
        privilege: &'static str,
    },
    /// The kernel lacks something.
    #[error(
        "the kernel does not offer {what}: {source}; Linux 5.5 or newer does (CONFIG_PACKET, CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_ACT, CONFIG_NET_CLS_BPF)"
    )]
    NoKernelSupport {
        /// What it lacks.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// An interface cannot be used the way the configuration wants.
    #[error("port {port}: {source} (io = \"auto\" falls back to packet sockets)")]
    NoXdp {
        /// The port's name.
        port: String,
        /// Why not.
        source: PortError,
    },
    /// The configuration is inconsistent in a way its parser could not see.
    #[error("{0}")]
    Config(String),
    /// Anything else the system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl StartError {
    /// The port that cannot be used, and the key of its table that says what of it.
    #[must_use]
    pub fn port(&self) -> Option<(&str, &'static str)> {
        match self {
            Self::MissingInterface { port, .. } | Self::NoXdp { port, .. } | Self::Taken { port, .. } => {
                Some((port, "interface"))
            }
            _ => None,
        }
    }

    /// The exit code a command should end with: 2 for bad input, 3 for missing privilege or kernel feature.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::MissingInterface { .. } | Self::Config(_) => 2,
            Self::NoPrivilege { .. } | Self::NoKernelSupport { .. } | Self::NoXdp { .. } => 3,
            Self::Taken { .. } | Self::System { .. } => 1,
        }
    }
}

/// What went wrong while stopping.
#[derive(Debug, Error)]
pub enum StopError {
    /// The worker ended with an error before or while it was told to stop.
    #[error("the worker ended with an error: {0}")]
    Worker(String),
}

/// A router that can be started.
#[derive(Debug)]
pub struct Router;

impl Router {
    /// Opens the ports, mirrors the kernel's tables and starts the worker. Returns once packets are forwarded.
    ///
    /// # Errors
    /// [`StartError`]; whatever had been changed was put back.
    pub fn start(config: RouterConfig, options: Options) -> Result<Handle, StartError> {
        let places = Place::all(&config).map_err(|error| StartError::Config(error.to_string()))?;
        if let (Some(cpu), 2..) = (options.cpu, places.len()) {
            let text = format!("CPU {cpu} for {} workers: list theirs as `cpus` in [router]", places.len());
            return Err(StartError::Config(text));
        }
        let config = with_seed(config);
        let timeout = options.reply_timeout;
        let team = Team::start(config, options, places)?;
        Ok(Handle { team, timeout })
    }
}

/// A configuration as it is written, and with the seed that all workers use.
#[derive(Clone, Debug)]
pub(crate) struct Seeded {
    pub(crate) config: RouterConfig,
    pub(crate) seeded: RouterConfig,
}

impl Seeded {
    /// What follows a running configuration keeps its seed.
    pub(crate) fn followed_by(&self, config: RouterConfig) -> Self {
        let mut seeded = config.clone();
        seeded.router.seed = self.seeded.router.seed;
        Self { config, seeded }
    }
}

/// A router that is given no seed gets one that nobody outside can know.
fn with_seed(config: RouterConfig) -> Seeded {
    let mut seeded = config.clone();
    // The standard library seeds its hash tables from the system's source of randomness. A bit less, as the configuration's integers have:
    // whoever wants to see the same choices again can write it there.
    seeded.router.seed = config.router.seed.or_else(|| Some(RandomState::new().build_hasher().finish() >> 1));
    Seeded { config, seeded }
}

/// A running router. Dropping it stops the router.
///
/// Can be shared between threads: every method takes `&self`.
#[derive(Debug)]
pub struct Handle {
    team: Team,
    timeout: Duration,
}

impl Handle {
    /// Has every worker carry out a command between two bursts and waits for their answers. Whether it can be carried out is decided by the configuration
    /// alone, which all workers share: the first one is asked first, and when it refuses nobody has changed anything. A [`Command::Reload`] that changes ports,
    /// classes, workers or buffers has other workers take the place of the present ones; what they cannot have is refused, and the present ones go on.
    ///
    /// # Errors
    /// The router refuses the command, has stopped, or did not answer within [`Options::reply_timeout`].
    pub fn send(&self, command: Command) -> Result<Reply, CommandError> {
        self.team.send(command, self.timeout)
    }

    /// Every counter, at one instant.
    ///
    /// # Errors
    /// The router has stopped or does not answer.
    pub fn snapshot(&self) -> Result<Snapshot, CommandError> {
        match self.send(Command::Show)? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            Reply::Done | Reply::Text(_) | Reply::Flows(_) => Err(CommandError::Stopped),
        }
    }

    /// Whether all workers are still running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.team.is_running()
    }

    /// Stops receiving, hands what is queued to its drop counters, restores the interfaces; returns the last counters.
    /// Later calls return the same.
    ///
    /// # Errors
    /// A worker had ended with an error, or panicked.
    pub fn stop(&self) -> Result<Snapshot, StopError> {
        self.team.stop().map_err(StopError::Worker)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.stop();
    }
}
