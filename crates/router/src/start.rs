//! Starting and stopping a router.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use thiserror::Error;

use crate::command::{Command, CommandError, Reply};
use crate::snapshot::Snapshot;

/// What the environment decides rather than the configuration file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the state needed after a crash is kept (offloads to restore). Made if missing.
    pub runtime_dir: PathBuf,
    /// Network namespace (a name under `/run/netns`) for the ports and the mirror; the caller's if `None`.
    pub netns: Option<String>,
    /// CPU to pin the worker to.
    pub cpu: Option<usize>,
    /// How long [`Handle::send`] waits for the worker.
    pub reply_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            runtime_dir: PathBuf::from("/run/evenkeel"),
            netns: None,
            cpu: None,
            reply_timeout: Duration::from_secs(5),
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
    /// The process may not do what a router must.
    #[error("{what} needs {privilege}: run as root or give the process that capability")]
    NoPrivilege {
        /// What was tried.
        what: String,
        /// The capability that is missing.
        privilege: &'static str,
    },
    /// The kernel lacks something.
    #[error("the kernel does not offer {what}: {source}")]
    NoKernelSupport {
        /// What it lacks.
        what: String,
        /// What it said.
        source: std::io::Error,
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
        source: std::io::Error,
    },
}

impl StartError {
    /// The exit code a command should end with: 2 for bad input, 3 for missing privilege or kernel feature.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::MissingInterface { .. } | Self::Config(_) => 2,
            Self::NoPrivilege { .. } | Self::NoKernelSupport { .. } => 3,
            Self::System { .. } => 1,
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
    pub fn start(config: RouterConfig, options: Options) -> Result<Handle, StartError> {
        let _ = (config, options);
        Err(StartError::Config(String::new()))
    }
}

/// A running router. Dropping it stops the router.
///
/// Can be shared between threads: every method takes `&self`.
#[derive(Debug)]
pub struct Handle {
    _private: (),
}

impl Handle {
    /// Has the worker carry out a command between two bursts and waits for its answer.
    pub fn send(&self, command: Command) -> Result<Reply, CommandError> {
        let _ = command;
        Err(CommandError::Stopped)
    }

    /// Every counter, at one instant.
    pub fn snapshot(&self) -> Result<Snapshot, CommandError> {
        match self.send(Command::Show)? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            Reply::Done => Err(CommandError::Stopped),
        }
    }

    /// Whether the worker is still running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        false
    }

    /// Stops receiving, hands what is queued to its drop counters, restores the interfaces; returns the last counters.
    /// Later calls return the same.
    pub fn stop(&self) -> Result<Snapshot, StopError> {
        Err(StopError::Worker(String::new()))
    }
}
