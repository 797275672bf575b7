//! What a router is started with.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_config::{Io, PortConfig, RouterConfig};
use evenkeel_ports::{sys, virtual_driver};

use crate::own::Disciplines;

/// What the environment decides rather than the configuration file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the state needed after a crash is kept (offloads to restore). Made if missing.
    pub runtime_dir: PathBuf,
    /// Network namespace (a name under `/run/netns`) for the ports and the mirror; the caller's if
    /// `None`.
    pub netns: Option<String>,
    /// Where things are kept that must outlive the machine's next start; `None`: in
    /// [`runtime_dir`](Self::runtime_dir).
    pub state_dir: Option<PathBuf>,
    /// CPU to pin the only worker to.
    pub cpu: Option<usize>,
    /// How long [`Handle::send`](crate::Handle::send) waits for the worker.
    pub reply_timeout: Duration,
    /// Told, from the worker's thread, what happens to ports while the router runs: an interface
    /// that vanished or is back.
    pub report: Option<fn(&str)>,
    /// The disciplines of `kind = "own"`.
    pub disciplines: Disciplines,
    /// Whether a router does not start that would forward past what the kernel does with packets
    /// (`bypass` in `[router]`). Not in namespaces that were made for it.
    pub refuses_bypass: bool,
    /// Whether `io = "auto"` tries AF_XDP at virtual interfaces, too, as at a NIC: for tests, which
    /// have none.
    pub takes_virtual_for_nics: bool,
    /// Ports (by name) whose frames, received and sent, are also written to a pcapng file. It costs
    /// a copy per frame.
    pub captures: BTreeMap<String, PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            runtime_dir: PathBuf::from("/run/evenkeel"),
            netns: None,
            state_dir: None,
            cpu: None,
            reply_timeout: Duration::from_secs(5),
            report: None,
            disciplines: Disciplines::default(),
            refuses_bypass: false,
            takes_virtual_for_nics: false,
            captures: BTreeMap::new(),
        }
    }
}

impl Options {
    /// How the frames of a port are exchanged, of ports whose interface decides it as far as that
    /// does not depend on what the kernel can do. In the network namespace of the calling thread.
    pub(crate) fn io_here(&self, config: &RouterConfig, port: &PortConfig) -> Io {
        match config.io_of(port) {
            Io::Auto if self.virtual_driver(port).is_some() => Io::AfPacket,
            io => io,
        }
    }

    /// The same, in the network namespace of the ports.
    pub(crate) fn io_of(&self, config: &RouterConfig, port: &PortConfig) -> Io {
        match &self.netns {
            Some(name) => {
                let there = sys::in_netns(name, || self.io_here(config, port));
                there.unwrap_or_else(|_gone| config.io_of(port))
            }
            None => self.io_here(config, port),
        }
    }

    /// The driver of an interface behind which there is no hardware: packet sockets carry
    /// super-frames there, which AF_XDP would have to cut.
    pub(crate) fn virtual_driver(&self, port: &PortConfig) -> Option<String> {
        let asked = !self.takes_virtual_for_nics;
        asked.then(|| virtual_driver(&port.interface).ok().flatten()).flatten()
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.state_dir.as_deref().unwrap_or(&self.runtime_dir)
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
pub(crate) fn with_seed(config: RouterConfig) -> Seeded {
    let mut seeded = config.clone();
    // The standard library seeds its hash tables from the system's source of randomness. A bit
    // less, as the configuration's integers have: whoever wants to see the same choices again can
    // write it there.
    seeded.router.seed =
        config.router.seed.or_else(|| Some(RandomState::new().build_hasher().finish() >> 1));
    Seeded { config, seeded }
}
