//! What a `router.toml` says, with types: every default filled in, every name resolved.

use std::path::PathBuf;

use evenkeel_core::admit::{AdmissionConfig, FlowsConfig};
use evenkeel_core::class_map::{ClassMap, Rule};
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::SettingError;
use evenkeel_core::{Bytes, Nanos};

use crate::cluster::{BalancerSection, ClusterSection};
use crate::control::LinkControl;
use crate::membership::MembershipSection;
use crate::service::ServiceConfig;
use evenkeel_core::schedule::DisciplineConfig;

/// A whole `router.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// What concerns the router as a whole.
    pub router: RouterSection,
    /// What the admissions of all links share.
    pub flows: FlowsConfig,
    /// The ports, in the order of the file; at least one, names unique.
    pub ports: Vec<PortConfig>,
    /// The services, in the order of the file, names unique.
    pub services: Vec<ServiceConfig>,
    /// The classes, in the order of the file: the index is the core's `Class`. At least one; the
    /// first is the default.
    pub classes: Vec<ClassConfig>,
    /// One outgoing link for every port, in the order of the ports. A port without a `[[link]]` has
    /// a FIFO without a rate.
    pub links: Vec<LinkConfig>,
    /// `[fairdrop]`; `None`: the file has none.
    pub fairdrop: Option<FairDropConfig>,
    /// `[cluster]`: this router is a forwarder of a cluster.
    pub cluster: Option<ClusterSection>,
    /// `[balancer]`: this router is a balancer.
    pub balancer: Option<BalancerSection>,
    /// `[membership]`: parts of these come from etcd.
    pub membership: Option<MembershipSection>,
}

/// `[router]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterSection {
    /// The router's name in counters, logs and the control protocol.
    pub name: String,
    /// How the worker waits for packets.
    pub mode: Mode,
    /// In mode `adaptive`, how long the worker waits awake for the next frame.
    pub spin: Nanos,
    /// How frames are exchanged with the kernel by ports that do not say it themselves.
    pub io: Io,
    /// The Unix socket of the control protocol.
    pub control: PathBuf,
    /// Frame buffers, for all ports together.
    pub buffers: u32,
    /// Length of one buffer: the longest frame that can be received.
    pub buffer_size: Bytes,
    /// What happens to a packet whose route leads back to the port it came from.
    pub hairpin: Hairpin,
    /// ICMP errors the router sends at most, per port and second.
    pub icmp_per_second: u32,
    /// Packets that wait for one unresolved neighbour at most.
    pub neighbour_wait: u32,
    /// How much of a pause of its worker a paced link makes good at once.
    pub max_catch_up: Nanos,
    /// After how long without a sign of life from any worker the kernel forwards.
    pub heartbeat: Nanos,
    /// How many threads forward: 1 to 64.
    pub workers: u16,
    /// The CPU that the only worker runs on; `None`: whichever the kernel chooses.
    pub cpu: Option<u16>,
    /// The CPUs that the workers run on, one for each; empty: whichever the kernel chooses.
    pub cpus: Vec<u16>,
    /// Whether cycles are measured also without `[fairdrop]`.
    pub cycles: bool,
    /// Seed of the flow hash and of the tables of flows; `None`: another one at each start.
    pub seed: Option<u64>,
}

/// How the worker waits for packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// It sleeps until a port or a timer is ready.
    Event,
    /// It asks the ports all the time: one CPU at full load, no wake-up delay.
    Busy,
    /// As `Busy` while frames come so often that one is worth being waited for, else as `Event`.
    Adaptive,
}

impl Mode {
    /// The name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Busy => "busy",
            Self::Adaptive => "adaptive",
        }
    }
}

/// How frames are exchanged with the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Io {
    /// Packet sockets.
    AfPacket,
    /// AF_XDP, or no start.
    AfXdp,
    /// AF_XDP, or packet sockets where it cannot be had.
    Auto,
}

impl Io {
    /// The name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af-packet",
            Self::AfXdp => "af-xdp",
            Self::Auto => "auto",
        }
    }

    /// What a name in a configuration file stands for.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::AfPacket, Self::AfXdp, Self::Auto].into_iter().find(|io| io.name() == name)
    }
}

/// What happens to a packet whose route leads back to the port it came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hairpin {
    /// It is forwarded, as RFC 1812 wants it.
    Forward,
    /// It is dropped with the reason `same_port`.
    Drop,
}

/// A `[[port]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PortConfig {
    /// Its name in this file, in counters and in commands.
    pub name: String,
    /// The network interface.
    pub interface: String,
    /// How its frames are exchanged with the kernel; `None`: as [`RouterSection::io`] says.
    pub io: Option<Io>,
}

/// A `[[class]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassConfig {
    /// Its name.
    pub name: String,
    /// A packet that any of these fits falls into this class, unless an earlier class in the file
    /// took it. Empty: only the default class gets packets without a rule.
    pub rules: Vec<Rule>,
    /// What its packets are sent through: an index into the services.
    pub service: Option<u16>,
}

/// A `[[link]]`: the outgoing side of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The port's name.
    pub port: String,
    /// Wire, transmit ring and shaper.
    pub core: evenkeel_core::link::LinkConfig,
    /// The discipline and its knobs.
    pub discipline: DisciplineConfig,
    /// What turns the knobs while it runs; `None`: only commands do.
    pub control: Option<LinkControl>,
    /// Who may enter; `None`: everybody.
    pub admission: Option<AdmissionConfig>,
}

impl RouterConfig {
    /// How a port's frames are exchanged with the kernel.
    #[must_use]
    pub fn io_of(&self, port: &PortConfig) -> Io {
        let io = port.io.unwrap_or(self.router.io);
        let exchange =
            self.cluster.as_ref().and_then(|cluster| self.ports.get(usize::from(cluster.port)));
        // AF_XDP leaves broadcasts, and so the exchange frames, to the kernel.
        if io == Io::Auto && exchange.is_some_and(|exchange| exchange.name == port.name) {
            return Io::AfPacket;
        }
        io
    }

    /// The names of the classes, in order of their index.
    #[must_use]
    pub fn class_names(&self) -> Vec<&str> {
        self.classes.iter().map(|class| class.name.as_str()).collect()
    }

    /// The link of the port with this name.
    #[must_use]
    pub fn link(&self, port: &str) -> Option<&LinkConfig> {
        self.links.iter().find(|link| link.port == port)
    }

    /// The link of the port with this name, to change it.
    pub fn link_mut(&mut self, port: &str) -> Option<&mut LinkConfig> {
        self.links.iter_mut().find(|link| link.port == port)
    }

    /// The admission of the link of the port with this name, complete for it; `None` if it has
    /// none.
    ///
    /// # Errors
    /// What contradicts what; not for what came out of this crate's parser.
    pub fn admission(&self, port: &str) -> Result<Option<AdmissionConfig>, SettingError> {
        let Some((link, admission)) =
            self.link(port).and_then(|link| Some((link, link.admission.as_ref()?)))
        else {
            return Ok(None);
        };
        let second =
            admission.second_link.port.as_ref().and_then(|port| self.link(&port.0)?.core.rate);
        admission.on_link(link.core.rate, second, &self.flows).map(Some)
    }

    /// The rules of all classes in the order of the file: the first that fits decides; none:
    /// class 0.
    #[must_use]
    pub fn class_map(&self) -> ClassMap {
        let rules: Vec<Rule> =
            self.classes.iter().flat_map(|class| class.rules.iter().cloned()).collect();
        // The parser has checked what `ClassMap::new` checks.
        ClassMap::new(&rules).unwrap_or_default()
    }

    /// How many classes there are.
    #[must_use]
    pub fn class_count(&self) -> u16 {
        u16::try_from(self.classes.len()).expect("the parser admits far fewer classes than 65536")
    }
}
