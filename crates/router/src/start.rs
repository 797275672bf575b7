//! Starting and stopping a router.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use evenkeel_config::{Io, Mode, PortConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort, XdpPart};
use evenkeel_ports::sys::{self, Notifier, Poller, Timer};
use evenkeel_ports::wrap::{PcapTap, PcapTapOptions};
use evenkeel_ports::{Port, PortError};
use thiserror::Error;

use crate::claim::Claim;
use crate::clock::TscClock;
use crate::command::{Command, CommandError, Reply};
use crate::mirror::{Mirror, MirrorEvent};
use crate::own::Disciplines;
use crate::pipeline::{BURST, LinkState, Pipeline, Place};
use crate::snapshot::Snapshot;
use crate::team::{Briefing, Following, Role, Seat, Team};
use crate::worker::{Attachment, Worker, guard_of, offloads_of};

/// In mode `busy` one in so many frames has a stamp of the kernel's.
const BUSY_STAMPS: u32 = 8;

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
    #[error("the kernel does not offer {what}: {source}")]
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
        let config = with_seed(&config);
        let timeout = options.reply_timeout;
        let mut team = Team::new(config.config.ports.len());
        let (mut leaders, mut briefed) = (Vec::new(), Vec::new());
        for _ in places.iter().skip(1) {
            let ready = Notifier::new()
                .map_err(|source| StartError::System { what: "making a notifier".to_owned(), source })?;
            let (sender, receiver) = channel();
            leaders.push((ready, sender));
            briefed.push(receiver);
        }
        let mut places = places.into_iter();
        team.hire(&config, &options, places.next(), Role::Lead(leaders))?;
        for (place, briefing) in places.zip(briefed) {
            team.hire(&config, &options, Some(place), Role::Follow(briefing))?;
        }
        Ok(Handle { team, timeout })
    }
}

/// Everything up to the first round, in the thread that will do the rounds.
pub(crate) fn prepare(config: Seeded, options: &Options, seat: Seat) -> Result<Worker, StartError> {
    let Seat { control, stop, commands, place, guarded, stations, role } = seat;
    let Seeded { config, seeded } = config;
    let number = place.as_ref().map_or(0, Place::worker);
    if let Some(name) = &options.netns {
        sys::enter_netns(name).map_err(|source| {
            denied(format!("entering network namespace {name}"), "CAP_SYS_ADMIN", source)
        })?;
    }
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| StartError::System { what, source }
    };
    sys::set_timer_slack(Nanos(1)).map_err(system("setting the timer slack"))?;
    let listed = config.router.cpus.get(number).or(config.router.cpu.as_ref());
    if let Some(cpu) = options.cpu.or(listed.copied().map(usize::from)) {
        sys::pin_to_cpu(cpu).map_err(system(&format!("pinning the worker to CPU {cpu}")))?;
    }
    if let Some(name) =
        options.captures.keys().find(|name| config.ports.iter().all(|port| port.name != **name))
    {
        return Err(StartError::Config(format!("there is no port {name:?} to capture on")));
    }
    let now = sys::monotonic_now();
    let mut pipeline = Pipeline::for_worker(&seeded, now, options.disciplines.clone(), place)
        .map_err(|error| StartError::Config(error.to_string()))?;
    pipeline.pool_mut().prefault();
    // FairDrop can be switched on, and services can be added, while the router runs.
    let clock = Box::new(TscClock::calibrate(options.report));
    let first_iv = now.0.saturating_add_signed(sys::realtime_minus_monotonic());
    pipeline.set_surroundings(clock, first_iv).map_err(|error| StartError::Config(error.to_string()))?;
    pipeline.set_max_catch_up(Some(config.router.max_catch_up));

    let leads = matches!(role, Role::Lead(_));
    let mut claims: Vec<Option<Claim>> = Vec::with_capacity(config.ports.len());
    let (following, known, mirror_ready, others) = match role {
        Role::Lead(others) => {
            // Before anything is changed on an interface: it may be another router's.
            for port in &config.ports {
                let claim = Claim::on(&port.interface).map_err(|source| taken(port, source))?;
                claims.push(Some(claim));
            }
            let ready = Notifier::new().map_err(system("making a notifier"))?;
            let interfaces = config.ports.iter().map(|port| port.interface.clone()).collect();
            let notifiers: Vec<_> = others.iter().map(|(ready, _)| ready.clone()).collect();
            let (mirror, known, views) = Mirror::start_for(interfaces, ready.clone(), &notifiers)
                .map_err(|source| denied("reading the kernel's routes".into(), "CAP_NET_ADMIN", source))?;
            let others: Vec<_> = others.into_iter().zip(views).collect();
            (Following::Lead(mirror), known, ready, others)
        }
        Role::Follow(briefing) => {
            claims.extend(config.ports.iter().map(|_| None));
            let Briefing { view, ready, known } = briefing
                .recv()
                .map_err(|_gone| StartError::Config("the first worker has not started".to_owned()))?;
            (Following::Follow(view), known, ready, Vec::new())
        }
    };
    let mut links = vec![None; config.ports.len()];
    for event in &known {
        if let MirrorEvent::Link { port, link } = event {
            links[port.index()] = link.map(LinkState::from);
        }
        pipeline.apply(now, event.clone());
    }
    let local = pipeline.host_addresses();

    let mut ports: Vec<Box<dyn Port>> = Vec::with_capacity(config.ports.len());
    let mut attachments = Vec::with_capacity(config.ports.len());
    for (((port, claim), link), station) in config.ports.iter().zip(claims).zip(links).zip(&*stations) {
        let error = |error| port_error(&port.name, error);
        let workers = u32::from(config.router.workers);
        let part = (workers > 1).then(|| XdpPart { worker: number as u32, workers, common: station.clone() });
        let opened = open_port(port, &config, &mut pipeline, &local, part, options)?;
        let (mut offloads, mut guard) = (None, None);
        if leads {
            let off = offloads_of(&*opened, &port.interface, &options.runtime_dir).map_err(error)?;
            if let (Some(report), Some(warning)) = (options.report, off.warning()) {
                report(warning);
            }
            offloads = Some(off);
            guard = guard_of(&*opened, &port.interface, &local).map_err(error)?;
        }
        ports.push(match options.captures.get(&port.name) {
            Some(file) => {
                let file = capture_of(file, number);
                Box::new(PcapTap::create(opened, &file, PcapTapOptions::default()).map_err(error)?)
            }
            None => opened,
        });
        attachments.push(Attachment {
            name: port.name.clone(),
            interface: port.interface.clone(),
            _claim: claim,
            watched: None,
            guard,
            offloads,
            in_use: true,
            link,
            retry: None,
        });
    }
    let ring = ports.iter().filter_map(|port| port.rx_ring()).max().unwrap_or(0);
    pipeline.set_ring_frames(ring).map_err(|error| StartError::Config(error.to_string()))?;
    if leads {
        discard_earlier(&mut pipeline, &mut ports);
        guarded.iter().for_each(|guarded| guarded.store(true, Ordering::Release));
        for ((ready, briefing), view) in others {
            // A worker that has ended already has said why.
            let _ = briefing.send(Briefing { view, ready, known: known.clone() });
        }
    }

    let mut worker = Worker {
        pipeline,
        ports,
        attachments,
        following,
        guarded,
        poller: Poller::new().map_err(system("making a poller"))?,
        timer: Timer::new().map_err(system("making a timer"))?,
        commands,
        control,
        mirror_ready,
        stop,
        runtime_dir: options.runtime_dir.clone(),
        report: options.report,
        local,
        config,
    };
    worker.watch_all().map_err(system("watching the ports"))?;
    Ok(worker)
}

/// A configuration as it is written, and with the seed that all workers use.
#[derive(Clone)]
pub(crate) struct Seeded {
    pub(crate) config: RouterConfig,
    seeded: RouterConfig,
}

/// A router that is given no seed gets one that nobody outside can know.
fn with_seed(config: &RouterConfig) -> Seeded {
    let mut seeded = config.clone();
    // The standard library seeds its hash tables from the system's source of randomness. A bit less, as the configuration's integers have:
    // whoever wants to see the same choices again can write it there.
    seeded.router.seed = config.router.seed.or_else(|| Some(RandomState::new().build_hasher().finish() >> 1));
    Seeded { config: config.clone(), seeded }
}

/// Each worker writes a file of its own: `x.pcapng`, `x.pcapng.1`, ...
fn capture_of(file: &std::path::Path, worker: usize) -> PathBuf {
    if worker == 0 {
        return file.to_owned();
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{worker}"));
    name.into()
}

/// The port as the configuration wants it: past the kernel's stack, or beside it.
fn open_port(
    port: &PortConfig,
    config: &RouterConfig,
    pipeline: &mut Pipeline,
    local: &[IpAddr],
    part: Option<XdpPart>,
    options: &Options,
) -> Result<Box<dyn Port>, StartError> {
    let pool = pipeline.pool_mut();
    let fanout = part.is_some();
    let io = config.io_of(port);
    // All workers do as the first one does: a queue without a socket is the kernel's.
    let follows = part.as_ref().is_some_and(|part| part.worker > 0);
    let falls_back = io == Io::Auto && !follows;
    let xdp = match &part {
        Some(part) if follows => part.common.is_attached(),
        _ => io != Io::AfPacket,
    };
    if xdp {
        // Half of the buffers wait for frames, the others hold them.
        let buffers = (pool.free() + pool.in_use()) / 2 / config.ports.len().max(1);
        // Who asks all the time needs few stamps to know when a frame has come.
        let stamp_every = if config.router.mode == Mode::Busy { BUSY_STAMPS } else { 1 };
        let xdp_options = AfXdpOptions { buffers: Some(buffers), stamp_every, ..AfXdpOptions::default() };
        let opened = match part {
            Some(part) => AfXdpPort::open_part(&port.interface, xdp_options, pool, local, part),
            None => AfXdpPort::open(&port.interface, xdp_options, pool, local),
        };
        match opened {
            Ok(opened) => return Ok(Box::new(opened)),
            Err(error) if falls_back && !matches!(error, PortError::NoInterface(_)) => {
                if let Some(report) = options.report {
                    report(&format!("port {}: packet sockets instead of AF_XDP: {error}", port.name));
                }
            }
            Err(error) => return Err(port_error(&port.name, error)),
        }
    }
    // What fits a buffer, and no more: slots are powers of two, and a slot twice as long as need be doubles the memory that frames pass through.
    let longest = pool.max_frame() as u32;
    let port_options =
        AfPacketOptions { max_frame: longest.min(65_000), fanout, ..AfPacketOptions::default() };
    let opened = AfPacketPort::open(&port.interface, port_options);
    opened.map(|opened| Box::new(opened) as Box<dyn Port>).map_err(|error| port_error(&port.name, error))
}

/// What came before the guards were there the kernel has forwarded, where it saw it.
fn discard_earlier(pipeline: &mut Pipeline, ports: &mut [Box<dyn Port>]) {
    let guarded = sys::monotonic_now();
    let mut frames = Vec::with_capacity(BURST);
    for port in ports.iter_mut().filter(|port| port.kernel_has_copy()) {
        loop {
            port.rx_burst(pipeline.pool_mut(), sys::monotonic_now(), &mut frames, BURST);
            let last = frames.last().map(|frame| frame.arrival);
            for received in frames.drain(..) {
                pipeline.pool_mut().release(received.frame);
            }
            if last.is_none_or(|arrival| arrival >= guarded) {
                break;
            }
        }
    }
}

fn port_error(port: &str, error: PortError) -> StartError {
    match error {
        PortError::NoInterface(interface) => {
            StartError::MissingInterface { port: port.to_owned(), interface }
        }
        PortError::Privilege { what } => {
            StartError::NoPrivilege { what, privilege: "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF" }
        }
        PortError::Unsupported { what, source } => StartError::NoKernelSupport { what, source },
        PortError::XdpTaken(_)
        | PortError::QueueTaken { .. }
        | PortError::LockedMemory { .. }
        | PortError::MtuTooLong { .. }
        | PortError::QueueCount { .. }
        | PortError::FewQueues { .. }
        | PortError::NotAttached(_) => StartError::NoXdp { port: port.to_owned(), source: error },
        PortError::Io { what, source } => StartError::System { what: format!("port {port}: {what}"), source },
        error if error.is_missing_privilege_or_feature() => {
            StartError::NoKernelSupport { what: format!("port {port}"), source: io::Error::other(error) }
        }
        error => StartError::Config(format!("port {port}: {error}")),
    }
}

fn taken(port: &PortConfig, source: io::Error) -> StartError {
    if source.kind() == io::ErrorKind::AddrInUse {
        return StartError::Taken { port: port.name.clone(), interface: port.interface.clone() };
    }
    StartError::System { what: format!("claiming interface {}", port.interface), source }
}

fn denied(what: String, privilege: &'static str, source: io::Error) -> StartError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        StartError::NoPrivilege { what, privilege }
    } else {
        StartError::System { what, source }
    }
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
    /// alone, which all workers share: the first one is asked first, and when it refuses nobody has changed anything.
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
