//! Makes a worker ready, in the thread that will do its rounds.
//!
//! A worker that starts opens everything. One that takes over from others while the router runs
//! (see `handover.rs`) opens what they do not have, says so, and waits until they have drained.

mod adopt;
mod bypass;
mod discard;
mod epoch;
mod ivs;
mod kernel_way;
mod open;
mod pipeline;
mod tables;
mod take_over;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use evenkeel_config::{Mode, PortConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::af_xdp::{XdpCommon, XdpPart};
use evenkeel_ports::heartbeat::{Beater, Heartbeat};
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::sys::{self, Notifier, Poller, Timer};
use evenkeel_ports::{Port, PortError, Umem};

use self::discard::discard_until;
use self::pipeline::build_pipeline;
pub(crate) use self::pipeline::tunnels_of;
use self::tables::MirrorStart;
use crate::attachment::{Attachment, Guarded, settle};
use crate::claim::Claim;
pub(crate) use bypass::reverse_path_of;

use crate::error::{CommandError, StartError};
use crate::handover::PortTransition;
use crate::mirror::{MirrorEvent, MirrorView};
use crate::options::{Options, Seeded};
use crate::pipeline::{Buffers, LinkState, Tunnels, WorkerShares};
use crate::worker::{Message, Worker};

/// What the leader gives a follower when the interfaces are ready.
pub(crate) struct MirrorFeed {
    view: MirrorView,
    ready: Notifier,
    /// All that the kernel's tables held when the view began.
    initial: Vec<MirrorEvent>,
}

/// How the leader reaches a follower: the notifier of its view, and where its feed goes.
type Follower = (Notifier, Sender<MirrorFeed>);

/// Whether a worker leads.
pub(crate) enum WorkerRole {
    Leader(Vec<Follower>),
    Follower(Receiver<MirrorFeed>),
}

/// What a worker is spawned with.
pub(crate) struct WorkerParams {
    pub(crate) control: Notifier,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) messages: Receiver<Message>,
    /// `None`: it is the only worker.
    pub(crate) shares: Option<WorkerShares>,
    pub(crate) tunnels: Arc<Tunnels>,
    /// By port, whether the leader guards the interface.
    pub(crate) guarded: Arc<Guarded>,
    pub(crate) heart: Arc<Heartbeat>,
    /// By port, what the workers' AF_XDP ports have in common.
    pub(crate) xdp_common: Arc<[XdpCommon]>,
    /// By port, the fanout group of the workers' packet sockets.
    pub(crate) fanout_groups: Arc<[u8]>,
    pub(crate) role: WorkerRole,
    /// `None`: it takes over from no other.
    pub(crate) replacement: Option<Replacement>,
}

/// What a worker needs to know to take over from others.
pub(crate) struct Replacement {
    /// By port of the new configuration.
    pub(crate) transitions: Arc<[PortTransition]>,
    pub(crate) buffers: WorkerBuffers,
    pub(crate) steps: Receiver<HandoverStep>,
}

/// Where the buffers of a worker are that takes over.
pub(crate) enum WorkerBuffers {
    /// In a pool of its own.
    Own,
    /// In the pool of a worker that it takes over from, with this memory.
    Kept(Umem),
    /// In the pool of a worker of another process, if the parcel has that.
    Passed(Parcel),
}

/// What a new worker is told to do, in this order.
pub(crate) enum HandoverStep {
    /// The old sockets are closed: open the ports that wait for that.
    OpenPorts,
    /// Take over from drained workers, and forward.
    TakeOver(Handover),
}

/// What a new worker takes over.
pub(crate) struct Handover {
    /// The drained workers, the one with the lowest number first.
    pub(crate) workers: Vec<Worker>,
    /// Frames that came before this instant have been forwarded by them.
    pub(crate) cut: Nanos,
    pub(crate) buffers: Buffers,
    /// What a worker of another process had, instead of `workers`.
    pub(crate) passed: Option<Parcel>,
}

/// Where a worker says that it is ready, and which memory its buffers are in; or why it cannot be.
pub(crate) struct Ready(SyncSender<Result<Umem, StartError>>);

impl Ready {
    pub(crate) fn new(sender: SyncSender<Result<Umem, StartError>>) -> Self {
        Self(sender)
    }

    pub(crate) fn send(&self, result: Result<Umem, StartError>) {
        // There is room for one, and the pool takes each before it asks for the next step.
        let _ = self.0.try_send(result);
    }
}

/// A worker whose ports are being opened.
struct WorkerBuilder<'a> {
    worker: Worker,
    options: &'a Options,
    number: usize,
    /// Followers that have no feed yet.
    followers: Vec<(Follower, MirrorView)>,
    /// What the followers get of the kernel's tables.
    initial: Vec<MirrorEvent>,
    /// By port, the last state of its interface.
    links: Vec<Option<LinkState>>,
    claims: Vec<Option<Claim>>,
    /// By port, opened so far.
    opened: Vec<Option<Box<dyn Port>>>,
    /// By port.
    attachments: Vec<Option<Attachment>>,
    xdp_parts: Vec<Option<XdpPart>>,
    fanout_groups: Arc<[u8]>,
    /// The buffers that ports are opened with, if they are not the worker's own.
    umem: Option<Umem>,
    /// Of the pool of another process, the buffers that the kernel has.
    lent: Vec<u32>,
}

/// Moves the calling thread to where the configuration wants worker `number`.
pub(crate) fn configure_thread(
    config: &RouterConfig,
    options: &Options,
    number: usize,
) -> Result<(), StartError> {
    if let Some(name) = &options.netns {
        sys::enter_netns(name).map_err(|source| {
            denied(format!("entering network namespace {name}"), "CAP_SYS_ADMIN", source)
        })?;
    }
    sys::set_timer_slack(Nanos(1)).map_err(system("setting the timer slack"))?;
    if let Some(cpu) = cpu_of(config, options, number) {
        sys::pin_to_cpu(cpu).map_err(system(&format!("pinning the worker to CPU {cpu}")))?;
    }
    Ok(())
}

/// The CPU that is a worker's own.
fn cpu_of(config: &RouterConfig, options: &Options, number: usize) -> Option<usize> {
    let listed = config.router.cpus.get(number).or(config.router.cpu.as_ref());
    options.cpu.or(listed.copied().map(usize::from))
}

/// The CPUs that are workers' own.
fn cpus_of_workers(config: &RouterConfig, options: &Options) -> Vec<usize> {
    let workers = 0..usize::from(config.router.workers);
    workers.filter_map(|number| cpu_of(config, options, number)).collect()
}

/// Does everything up to the first round. `ready` is told of each step that the pool waits for,
/// except for the last.
pub(crate) fn prepare(
    config: Seeded,
    options: &Options,
    mut params: WorkerParams,
    ready: &Ready,
) -> Result<Worker, StartError> {
    let mut replacement = params.replacement.take();
    let mut builder = WorkerBuilder::new(config, options, params, replacement.as_mut())?;
    let Some(Replacement { transitions, steps, .. }) = replacement else {
        builder.refuse_bypass()?;
        for at in 0..builder.opened.len() {
            builder.open(at, None)?;
        }
        return builder.start();
    };
    use PortTransition::{New, Overlapping, Passed, Reopened};
    if transitions.contains(&Passed) {
        builder.refuse_bypass()?;
    }
    builder.open_all(&transitions, &[New, Overlapping])?;
    builder.feed_followers();
    ready.send(Ok(builder.worker.pipeline.pool_mut().umem()));
    loop {
        match steps.recv().map_err(|_gone| StartError::HandoverAborted)? {
            HandoverStep::OpenPorts => {
                builder.open_all(&transitions, &[Reopened])?;
                ready.send(Ok(builder.worker.pipeline.pool_mut().umem()));
            }
            HandoverStep::TakeOver(handover) => {
                return Ok(builder.take_over(&transitions, handover));
            }
        }
    }
}

/// Claims the interfaces that no worker of this router has claimed before.
fn claim_interfaces(
    config: &RouterConfig,
    replacement: Option<&Replacement>,
) -> Result<Vec<Option<Claim>>, StartError> {
    let claim = |(at, port): (usize, &PortConfig)| {
        let is_new = |replacement: &Replacement| replacement.transitions[at] == PortTransition::New;
        if !replacement.is_none_or(is_new) {
            return Ok(None);
        }
        Claim::on(&port.interface).map(Some).map_err(|source| taken(port, source))
    };
    config.ports.iter().enumerate().map(claim).collect()
}

/// By port, the part of a worker in what the AF_XDP ports of several have in common.
fn xdp_parts(common: &[XdpCommon], number: usize, workers: u16) -> Vec<Option<XdpPart>> {
    let (worker, workers) = (number as u32, u32::from(workers));
    let part = |common: &XdpCommon| {
        (workers > 1).then(|| XdpPart { worker, workers, common: common.clone() })
    };
    common.iter().map(part).collect()
}

impl<'a> WorkerBuilder<'a> {
    /// Makes everything but the ports.
    fn new(
        config: Seeded,
        options: &'a Options,
        params: WorkerParams,
        mut replacement: Option<&mut Replacement>,
    ) -> Result<Self, StartError> {
        let WorkerParams { shares, tunnels, role, xdp_common, fanout_groups, .. } = params;
        let Seeded { config, seeded } = config;
        let number = shares.as_ref().map_or(0, WorkerShares::worker);
        configure_thread(&config, options, number)?;
        let has_port = |name: &str| config.ports.iter().any(|port| port.name == name);
        if let Some(name) = options.captures.keys().find(|name| !has_port(name)) {
            return Err(StartError::NoSuchCapture(name.clone()));
        }
        let now = sys::monotonic_now();
        let buffers = replacement.as_mut().map(|replacement| &mut replacement.buffers);
        let umem = match &buffers {
            Some(WorkerBuffers::Kept(umem)) => Some(umem.clone()),
            _ => None,
        };
        let mut pipeline = build_pipeline(&seeded, now, options, shares, buffers, tunnels)?;

        let mut claims: Vec<Option<Claim>> = config.ports.iter().map(|_| None).collect();
        let mirror = match role {
            WorkerRole::Leader(followers) => {
                // Before anything is changed on an interface: it may be another router's.
                claims = claim_interfaces(&config, replacement.as_deref())?;
                MirrorStart::leader(&config, &cpus_of_workers(&config, options), followers)?
            }
            WorkerRole::Follower(feed) => MirrorStart::follower(&feed)?,
        };
        let mut links = vec![None; config.ports.len()];
        for event in &mirror.initial {
            if let MirrorEvent::Link { port, link } = event {
                links[port.index()] = link.map(LinkState::from);
            }
            pipeline.apply(now, event.clone());
        }
        let xdp_parts = xdp_parts(&xdp_common, number, config.router.workers);
        let count = config.ports.len();
        let worker = Worker {
            local: pipeline.host_addresses(),
            beater: Beater::waiting(params.heart, number),
            pipeline,
            ports: Vec::with_capacity(count),
            attachments: Vec::with_capacity(count),
            mirror: mirror.access,
            taken: params.guarded.taken(),
            guarded: params.guarded,
            poller: Poller::new().map_err(system("making a poller"))?,
            timer: Timer::new().map_err(system("making a timer"))?,
            messages: params.messages,
            control: params.control,
            mirror_ready: mirror.ready,
            stop: params.stop,
            runtime_dir: options.runtime_dir.clone(),
            report: options.report,
            watches: config.router.mode != Mode::Busy,
            config,
        };
        worker.watch_own().map_err(system("watching for commands"))?;
        Ok(Self {
            worker,
            options,
            number,
            followers: mirror.followers,
            initial: mirror.initial,
            links,
            claims,
            opened: (0..count).map(|_| None).collect(),
            attachments: (0..count).map(|_| None).collect(),
            xdp_parts,
            fanout_groups,
            umem,
            lent: Vec::new(),
        })
    }

    /// Opens the ports with one of these transitions.
    fn open_all(
        &mut self,
        transitions: &[PortTransition],
        which: &[PortTransition],
    ) -> Result<(), StartError> {
        for (at, transition) in transitions.iter().enumerate() {
            if which.contains(transition) {
                self.open(at, Some(*transition))?;
            }
        }
        Ok(())
    }

    /// A worker that must be in time goes before ordinary threads, if it may; it says what it is.
    /// After the threads that it starts, which would inherit it.
    fn precede(&self) {
        let Some(wanted) = self.worker.config.realtime() else { return };
        let text = match wanted.then(|| sys::set_precedence(true)) {
            Some(Ok(())) => "realtime: the worker precedes ordinary threads (SCHED_RR)".to_owned(),
            Some(Err(error)) => format!(
                "realtime: the worker shares processors with ordinary threads, because SCHED_RR \
                 is refused ({error}): where they are busy it is late; give it CAP_SYS_NICE or \
                 LimitRTPRIO"
            ),
            None => {
                "realtime: the worker shares processors with ordinary threads (realtime = false)"
                    .to_owned()
            }
        };
        self.options.report.iter().for_each(|report| report(&text));
    }

    /// The leader gives the followers their view of the kernel's tables: the interfaces are ready.
    fn feed_followers(&mut self) {
        for ((ready, feed), view) in self.followers.drain(..) {
            // A follower that has ended already has told the pool why.
            let _ = feed.send(MirrorFeed { view, ready, initial: self.initial.clone() });
        }
    }

    /// All ports are open: the first round can come.
    fn start(mut self) -> Result<Worker, StartError> {
        self.worker.ports.extend(self.opened.drain(..).flatten());
        self.worker.attachments.extend(self.attachments.drain(..).flatten());
        self.set_ring()?;
        for at in 0..self.worker.config.ports.len() {
            let how = reverse_path_of(&self.worker.config, at);
            self.worker.pipeline.set_reverse_path(PortIndex(at as u16), how);
        }
        self.precede();
        // All ports could be opened: a start that fails leaves the interfaces as they were.
        if self.worker.mirror.leads() {
            let Worker { config, attachments, .. } = &self.worker;
            let ports = config.ports.iter().zip(attachments).enumerate();
            for (at, (port, _)) in ports.filter(|(_, (_, attachment))| attachment.in_use) {
                settle(config, at).map_err(|error| port_error(&port.name, error))?;
            }
        }
        if self.worker.mirror.leads() {
            // Until the first sign of life the kernel forwards what it sees; from then on we do.
            let now = sys::monotonic_now();
            let Worker { pipeline, ports, beater, .. } = &mut self.worker;
            let forwarded = beater.beat(now);
            let guarded = forwarded.as_ref().map_or(now, |span| span.end);
            for (at, port) in ports.iter_mut().enumerate() {
                forwarded.iter().for_each(|span| port.passed_by(span.clone()));
                if port.kernel_has_copy() {
                    let frames = discard_until(pipeline.pool_mut(), &mut **port, guarded);
                    pipeline.forward_received(sys::monotonic_now(), at, frames.into_iter());
                }
            }
            self.worker.guarded.set_all();
            self.feed_followers();
        }
        self.worker.watch_ports().map_err(system("watching the ports"))?;
        Ok(self.worker)
    }

    /// Tells FairDrop how many frames can wait in the ports' rings.
    fn set_ring(&mut self) -> Result<(), CommandError> {
        let ring = self.worker.ports.iter().filter_map(|port| port.rx_ring()).max().unwrap_or(0);
        self.worker.pipeline.set_ring_frames(ring)
    }
}

/// Each worker writes a file of its own: `x.pcapng`, `x.pcapng.1`, ...
fn capture_of(file: &Path, worker: usize) -> PathBuf {
    if worker == 0 {
        return file.to_owned();
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{worker}"));
    name.into()
}

pub(crate) fn system(what: &str) -> impl FnOnce(io::Error) -> StartError + use<> {
    let what = what.to_owned();
    move |source| StartError::System { what, source }
}

/// What keeps a port from AF_XDP. Where neither the interface nor a privilege is what is missing,
/// packet sockets would do.
fn xdp_error(port: &str, error: PortError) -> StartError {
    if error.is_of_the_interface()
        || matches!(error, PortError::Privilege { .. } | PortError::OutOfRange { .. })
    {
        return port_error(port, error);
    }
    StartError::NoXdp { port: port.to_owned(), source: error }
}

pub(crate) fn port_error(port: &str, error: PortError) -> StartError {
    match error {
        PortError::NoInterface(interface) => {
            StartError::MissingInterface { port: port.to_owned(), interface }
        }
        PortError::Privilege { what } => {
            StartError::NoPrivilege { what, privilege: "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF" }
        }
        PortError::Unsupported { what, source } => StartError::NoKernelSupport { what, source },
        PortError::Io { what, source } => {
            StartError::System { what: format!("port {port}: {what}"), source }
        }
        error if error.is_missing_privilege_or_feature() => StartError::NoKernelSupport {
            what: format!("port {port}"),
            source: io::Error::other(error),
        },
        source => StartError::Port { port: port.to_owned(), source },
    }
}

/// Without a heartbeat nobody would forward when the router hangs.
pub(crate) fn heartbeat_error(error: PortError) -> StartError {
    match error {
        PortError::Privilege { what } => StartError::NoPrivilege { what, privilege: "CAP_BPF" },
        PortError::Unsupported { what, source } => StartError::NoKernelSupport { what, source },
        error => {
            let what = "making a heartbeat".to_owned();
            StartError::System { what, source: io::Error::other(error) }
        }
    }
}

pub(crate) fn taken(port: &PortConfig, source: io::Error) -> StartError {
    if source.kind() == io::ErrorKind::AddrInUse {
        return StartError::Taken { port: port.name.clone(), interface: port.interface.clone() };
    }
    StartError::System { what: format!("claiming interface {}", port.interface), source }
}

pub(crate) fn denied(what: String, privilege: &'static str, source: io::Error) -> StartError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        StartError::NoPrivilege { what, privilege }
    } else {
        StartError::System { what, source }
    }
}
