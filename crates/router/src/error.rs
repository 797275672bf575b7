//! Why a router did not start, did not carry out a command, or ended.

use std::io;
use std::sync::Arc;

use evenkeel_cluster::ConfigError;
use evenkeel_cluster::balancer::TargetError;
use evenkeel_config::membership::OverlayError;
use evenkeel_config::workers::WorkersError;
use evenkeel_config::{BuildError, LinkChangeError};
use evenkeel_core::class_map::ClassMapError;
use evenkeel_core::settings::SettingError;
use evenkeel_net::icmp::LimitError;
use evenkeel_net::neighbour::WaitConfigError;
use evenkeel_net::service::esp::SaError;
use evenkeel_ports::PortError;
use thiserror::Error;

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
        "port {port}: another evenkeel forwards from interface {interface} already: stop it first, \
         or change it through its control socket"
    )]
    Taken {
        /// The port's name.
        port: String,
        /// The interface.
        interface: String,
    },
    /// The kernel does something with packets that would be forwarded past it.
    #[error(
        "packets between ports with attach = \"route\" do not pass what the kernel here does \
         with them:\n  {}\nleave that to the kernel with attach = \"inline\" (`evenkeel shape`), \
         or accept it with bypass = [{words}] under [router]",
        found.join("\n  ")
    )]
    Bypassed {
        /// What it does.
        found: Vec<String>,
        /// What accepts it, as the file has it.
        words: String,
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
        "the kernel does not offer {what}: {source}; Linux 5.5 or newer does (CONFIG_PACKET, \
         CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_ACT, CONFIG_NET_CLS_BPF)"
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
    /// One CPU was given for several workers.
    #[error("CPU {cpu} for {workers} workers: list theirs as `cpus` in [router]")]
    OneCpu {
        /// The CPU.
        cpu: usize,
        /// How many workers there are.
        workers: usize,
    },
    /// Frames of a port that does not exist were to be written to a file.
    #[error("there is no port {0:?} to capture on")]
    NoSuchCapture(String),
    /// A port refuses the configuration.
    #[error("port {port}: {source}")]
    Port {
        /// The port's name.
        port: String,
        /// What it refuses.
        source: PortError,
    },
    /// The configuration is inconsistent in a way its parser could not see.
    #[error("{0}")]
    Config(#[from] Box<CommandError>),
    /// The first worker did not start, which has told why.
    #[error("the first worker has not started")]
    NoLeader,
    /// The router that runs does not pass on what it has, and goes on.
    #[error(
        "the router that runs goes on, and was not taken over: {0}; without --take-over, stop it \
         first"
    )]
    NotTakenOver(String),
    /// Nobody waits for the new worker any more.
    #[error("what was to be changed was given up")]
    HandoverAborted,
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
            Self::MissingInterface { port, .. }
            | Self::NoXdp { port, .. }
            | Self::Taken { port, .. } => Some((port, "interface")),
            _ => None,
        }
    }

    /// The exit code a command should end with: 2 for bad input, 3 for missing privilege or kernel
    /// feature.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::MissingInterface { .. }
            | Self::Bypassed { .. }
            | Self::OneCpu { .. }
            | Self::NoSuchCapture(_)
            | Self::Port { .. }
            | Self::Config(_)
            | Self::NoLeader
            | Self::HandoverAborted => 2,
            Self::NoPrivilege { .. } | Self::NoKernelSupport { .. } | Self::NoXdp { .. } => 3,
            Self::Taken { .. } | Self::NotTakenOver(_) | Self::System { .. } => 1,
        }
    }
}

impl From<CommandError> for StartError {
    fn from(error: CommandError) -> Self {
        Self::Config(Box::new(error))
    }
}

/// Why a command was not carried out. Nothing changed.
#[derive(Debug, Error)]
pub enum CommandError {
    /// No port has this name.
    #[error("no link {name:?}: links are {}", known.join(", "))]
    NoSuchLink {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Nobody has this name.
    #[error("no subscriber or node {0:?}: names are those of the list of a [[tree]]")]
    NoSuchSubscriber(String),
    /// The packets of this port go through the link of another one.
    #[error("packets of port {port} go through link {link} (also = [{port:?}]): name that one")]
    LinkOfOther {
        /// The port asked for.
        port: String,
        /// The link that names it.
        link: String,
    },
    /// A value is out of its range, or something refuses it for what it is.
    #[error("{0}")]
    Setting(#[from] SettingError),
    /// A link refuses a change.
    #[error("{0}")]
    Link(LinkChangeError),
    /// The setting is turned by the link's dynamic control.
    #[error(
        "{key} of link {link} is turned by its control: switch it off first (set {link} control \
         off)"
    )]
    Controlled {
        /// The link.
        link: String,
        /// The setting.
        key: &'static str,
    },
    /// An admission needs a fair rate, which the discipline of its link does not measure.
    #[error(
        "link {link} has an admission, and discipline {discipline:?} measures no fair rate: use \
         pfq, pdrr or afan, or switch admission off first (set {link} admission off)"
    )]
    NoFairRate {
        /// The link.
        link: String,
        /// Its discipline.
        discipline: &'static str,
    },
    /// Nothing is seen for who asks.
    #[error(
        "nobody watches packets by this number any more: another watch took its place, nobody \
         asked for 5 s, or the router was made anew; begin again"
    )]
    NotWatching,
    /// A link that all workers share would be one worker's.
    #[error(
        "{0}; workers change that when they take over from others: write it into the file and \
         reload that (evenkeel ctl reload)"
    )]
    NeedsReload(String),
    /// Several workers cannot share it.
    #[error("{0}")]
    Workers(#[from] WorkersError),
    /// A setting of `[fairdrop]` is refused.
    #[error("fairdrop: {0}")]
    FairDrop(SettingError),
    /// A service cannot be set up.
    #[error("service {name}: {source}")]
    Service {
        /// Its name.
        name: String,
        /// What is wrong with it.
        source: ServiceError,
    },
    /// How many ICMP answers may be sent is refused.
    #[error("{0}")]
    IcmpRate(#[from] LimitError),
    /// How long packets wait for neighbours is refused.
    #[error("{0}")]
    NeighbourWait(#[from] WaitConfigError),
    /// The settings of a forwarder are refused.
    #[error("cluster: {0}")]
    Cluster(#[from] ConfigError),
    /// The router is no balancer.
    #[error("this router is no balancer: it has no [balancer]")]
    NoBalancer,
    /// The balancer has no such forwarder.
    #[error("no forwarder {id}: there are {}", listed(known))]
    NoSuchForwarder {
        /// The number asked for.
        id: u16,
        /// The numbers there are.
        known: Vec<u16>,
    },
    /// The balancer refuses its forwarders.
    #[error("balancer: {0}")]
    Balancer(#[from] TargetError),
    /// A discipline of the user's own is not known, or refuses its settings.
    #[error("{0}")]
    Discipline(BuildError),
    /// What etcd says does not fit.
    #[error("{0}")]
    Membership(#[from] OverlayError),
    /// The change cannot be made while the router runs.
    #[error("{what} cannot change while the router runs ({why}): restart it")]
    NeedsRestart {
        /// What differs: a key of the file, with its table.
        what: String,
        /// Why it must stay.
        why: &'static str,
    },
    /// What was wanted could not be had: a port that cannot be opened, say.
    #[error("{0}")]
    NotPossible(Box<StartError>),
    /// There is not so much memory.
    #[error(
        "it needs {needed} of memory, and {}: make tables and buffers smaller",
        available.as_ref().map_or_else(
            || "the process is not allowed so much".to_owned(),
            |available| format!("{available} are left")
        )
    )]
    Memory {
        /// What it takes at most.
        needed: String,
        /// What is left on the machine or in the process's control group; `None`: the process is
        /// refused more.
        available: Option<String>,
    },
    /// Another process cannot go on with what this router has.
    #[error("nothing was passed on, and the router goes on: {0}")]
    NotPassedOn(String),
    /// The worker did not answer in time: it is overloaded or hangs. The command may still be
    /// carried out.
    #[error("the router did not answer in time")]
    NoAnswer,
    /// The router has stopped or is stopping.
    #[error("the router has stopped")]
    Stopped,
}

fn listed(ids: &[u16]) -> String {
    ids.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

impl From<LinkChangeError> for CommandError {
    fn from(error: LinkChangeError) -> Self {
        match error {
            LinkChangeError::Setting(error) => Self::Setting(error),
            other => Self::Link(other),
        }
    }
}

/// Why a service cannot be set up.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The rules of an `acl`.
    #[error("{0}")]
    Acl(#[from] ClassMapError),
    /// The tunnel of an `esp`.
    #[error("{0}")]
    Esp(#[from] SaError),
}

impl CommandError {
    /// A setting differs that is fixed while the router runs; `what` is its key with its table.
    pub(crate) fn fixed(what: String) -> Self {
        Self::NeedsRestart { what, why: "it is fixed at the start" }
    }
}

impl From<BuildError> for CommandError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Setting(error) => Self::Setting(error),
            own @ BuildError::Own { .. } => Self::Discipline(own),
        }
    }
}

/// Why a worker's thread ended although nobody stopped the router.
#[derive(Clone, Debug, Error)]
pub enum WorkerError {
    /// It ended before it forwarded, and whoever started it was told why.
    #[error("it could not start")]
    Aborted,
    /// It could not go on after a handover that failed.
    #[error("{0}")]
    NotResumed(Arc<StartError>),
    /// The system refused what a worker needs while it runs.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// Its thread panicked.
    #[error("its thread panicked")]
    Panicked,
    /// It handed over to a new worker that did not take over.
    #[error("it was drained, and no worker took over")]
    Drained,
    /// It was stopped while others were to take over.
    #[error("it was stopped")]
    Stopped,
    /// It is still running.
    #[error("it did not end")]
    Running,
}

impl From<StartError> for WorkerError {
    fn from(error: StartError) -> Self {
        Self::NotResumed(Arc::new(error))
    }
}

impl From<io::Error> for WorkerError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// What went wrong while stopping.
#[derive(Debug, Error)]
pub enum StopError {
    /// The worker ended with an error before or while it was told to stop.
    #[error("the worker ended with an error: {0}")]
    Worker(#[from] WorkerError),
}
