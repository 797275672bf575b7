//! What a worker needs before its first round, made ready in the thread that will do the rounds.
//!
//! A worker that starts opens everything. One that takes the place of others while the router runs (see `succession.rs`) opens what they do not have, says that
//! it could, and waits until they have handed over.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use evenkeel_config::{Io, Mode, PortConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort, XdpPart};
use evenkeel_ports::sys::{self, Notifier, Poller, Timer};
use evenkeel_ports::wrap::{PcapTap, PcapTapOptions};
use evenkeel_ports::{FramePool, Port, PortError, RxFrame, Umem};

use crate::claim::Claim;
use crate::clock::TscClock;
use crate::mirror::{Mirror, MirrorEvent};
use crate::pipeline::{BURST, LinkState, Pipeline, Place};
use crate::start::{Options, Seeded, StartError};
use crate::succession::{Fate, Heir, HeirOrder};
use crate::team::{Briefing, Following, Ready, Role, Seat};
use crate::worker::{Attachment, Worker, guard_of, offloads_of};

/// In mode `busy` one in so many frames has a stamp of the kernel's.
const BUSY_STAMPS: u32 = 8;

/// A worker in the making.
pub(crate) struct Draft<'a> {
    pub(crate) worker: Worker,
    options: &'a Options,
    number: usize,
    /// By port, what became of its interface lately.
    pub(crate) links: Vec<Option<LinkState>>,
    claims: Vec<Option<Claim>>,
    /// By port, opened so far.
    pub(crate) opened: Vec<Option<Box<dyn Port>>>,
    /// By port.
    pub(crate) attachments: Vec<Option<Attachment>>,
    part: Vec<Option<XdpPart>>,
    groups: std::sync::Arc<[u8]>,
    /// The buffers that ports are opened with, if they are not the draft's own.
    umem: Option<Umem>,
}

/// The thread of a worker as the configuration wants it.
pub(crate) fn settle_thread(
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
    let listed = config.router.cpus.get(number).or(config.router.cpu.as_ref());
    if let Some(cpu) = options.cpu.or(listed.copied().map(usize::from)) {
        sys::pin_to_cpu(cpu).map_err(system(&format!("pinning the worker to CPU {cpu}")))?;
    }
    Ok(())
}

/// Everything up to the first round. `ready` is told of each step that somebody waits for, except for the last.
pub(crate) fn prepare(
    config: Seeded,
    options: &Options,
    mut seat: Seat,
    ready: &Ready,
) -> Result<Worker, StartError> {
    let heir = seat.heir.take();
    let mut draft = Draft::new(config, options, seat, heir.as_ref())?;
    let Some(Heir { fates, orders, .. }) = heir else {
        for at in 0..draft.opened.len() {
            draft.open(at, None)?;
        }
        return draft.begin();
    };
    for (at, fate) in fates.iter().enumerate() {
        if matches!(fate, Fate::New | Fate::Beside) {
            draft.open(at, Some(*fate))?;
        }
    }
    draft.brief();
    let gone = || StartError::Config("what was to be changed was given up".to_owned());
    ready.tell(Ok(draft.worker.pipeline.pool_mut().umem()));
    loop {
        match orders.recv().map_err(|_gone| gone())? {
            HeirOrder::Open => {
                for (at, fate) in fates.iter().enumerate() {
                    if *fate == Fate::Anew {
                        draft.open(at, Some(*fate))?;
                    }
                }
                ready.tell(Ok(draft.worker.pipeline.pool_mut().umem()));
            }
            HeirOrder::Inherit(estate) => return Ok(draft.inherit(&fates, estate)),
        }
    }
}

impl<'a> Draft<'a> {
    /// Everything but the ports.
    fn new(
        config: Seeded,
        options: &'a Options,
        seat: Seat,
        heir: Option<&Heir>,
    ) -> Result<Self, StartError> {
        let Seat { control, stop, commands, place, guarded, stations, groups, role, .. } = seat;
        let Seeded { config, seeded } = config;
        let number = place.as_ref().map_or(0, Place::worker);
        settle_thread(&config, options, number)?;
        if let Some(name) =
            options.captures.keys().find(|name| config.ports.iter().all(|port| port.name != **name))
        {
            return Err(StartError::Config(format!("there is no port {name:?} to capture on")));
        }
        let now = sys::monotonic_now();
        let mut pipeline = Pipeline::for_worker(&seeded, now, options.disciplines.clone(), place)
            .map_err(|error| StartError::Config(error.to_string()))?;
        let umem = heir.and_then(|heir| heir.umem.clone());
        if umem.is_none() {
            pipeline.pool_mut().prefault();
        }
        // FairDrop can be switched on, and services can be added, while the router runs.
        let clock = Box::new(TscClock::calibrate(options.report));
        let first_iv = now.0.saturating_add_signed(sys::realtime_minus_monotonic());
        pipeline.set_surroundings(clock, first_iv).map_err(|error| StartError::Config(error.to_string()))?;
        pipeline.set_max_catch_up(Some(config.router.max_catch_up));

        let mut claims: Vec<Option<Claim>> = config.ports.iter().map(|_| None).collect();
        let (following, known, mirror_ready) = match role {
            Role::Lead(others) => {
                // Before anything is changed on an interface: it may be another router's.
                for (at, port) in config.ports.iter().enumerate() {
                    if heir.is_none_or(|heir| heir.fates[at] == Fate::New) {
                        claims[at] = Some(Claim::on(&port.interface).map_err(|source| taken(port, source))?);
                    }
                }
                let ready = Notifier::new().map_err(system("making a notifier"))?;
                let interfaces = config.ports.iter().map(|port| port.interface.clone()).collect();
                let notifiers: Vec<_> = others.iter().map(|(ready, _)| ready.clone()).collect();
                let (mirror, known, views) = Mirror::start_for(interfaces, ready.clone(), &notifiers)
                    .map_err(|source| {
                        denied("reading the kernel's routes".into(), "CAP_NET_ADMIN", source)
                    })?;
                let others: Vec<_> = others.into_iter().zip(views).collect();
                (Following::Lead(mirror, others), known, ready)
            }
            Role::Follow(briefing) => {
                let Briefing { view, ready, known } = briefing
                    .recv()
                    .map_err(|_gone| StartError::Config("the first worker has not started".to_owned()))?;
                (Following::Follow(view), known, ready)
            }
        };
        let mut links = vec![None; config.ports.len()];
        for event in &known {
            if let MirrorEvent::Link { port, link } = event {
                links[port.index()] = link.map(LinkState::from);
            }
            pipeline.apply(now, event.clone());
        }
        let workers = u32::from(config.router.workers);
        let part = |station: &evenkeel_ports::af_xdp::XdpCommon| {
            (workers > 1).then(|| XdpPart { worker: number as u32, workers, common: station.clone() })
        };
        let part = stations.iter().map(part).collect();
        let count = config.ports.len();
        let local = pipeline.host_addresses();
        let worker = Worker {
            pipeline,
            ports: Vec::with_capacity(count),
            attachments: Vec::with_capacity(count),
            known: if following.leads() { known } else { Vec::new() },
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
            watches: config.router.mode != Mode::Busy,
            config,
        };
        worker.watch_own().map_err(system("watching for commands"))?;
        Ok(Self {
            worker,
            options,
            number,
            links,
            claims,
            opened: (0..count).map(|_| None).collect(),
            attachments: (0..count).map(|_| None).collect(),
            part,
            groups,
            umem,
        })
    }

    /// Opens a port; the first worker makes its interface ready too. `fate`: how it takes the place of another; `None`: it does not.
    fn open(&mut self, at: usize, fate: Option<Fate>) -> Result<(), StartError> {
        let port = self.worker.config.ports[at].clone();
        let error = |error| port_error(&port.name, error);
        let opened = self.open_device(at, &port)?;
        let (mut offloads, mut guard) = (None, None);
        // What takes the place of another has its guard and its offloads, or gets them when that is gone.
        if self.worker.following.leads() && matches!(fate, None | Some(Fate::New)) {
            let off = offloads_of(&*opened, &port.interface, &self.options.runtime_dir).map_err(error)?;
            if let (Some(report), Some(warning)) = (self.options.report, off.warning()) {
                report(warning);
            }
            offloads = Some(off);
            guard = guard_of(&*opened, &port.interface, &self.worker.local).map_err(error)?;
            if fate.is_some() {
                // It can be guarded. Until somebody receives, the kernel forwards.
                guard = None;
            }
        }
        self.opened[at] = Some(match self.options.captures.get(&port.name) {
            Some(file) => {
                let file = capture_of(file, self.number);
                Box::new(PcapTap::create(opened, &file, PcapTapOptions::default()).map_err(error)?)
            }
            None => opened,
        });
        self.attachments[at] = Some(Attachment {
            name: port.name.clone(),
            interface: port.interface,
            claim: self.claims[at].take(),
            watched: None,
            guard,
            offloads,
            in_use: true,
            link: self.links[at],
            retry: None,
        });
        Ok(())
    }

    /// The port as the configuration wants it: past the kernel's stack, or beside it.
    fn open_device(&mut self, at: usize, port: &PortConfig) -> Result<Box<dyn Port>, StartError> {
        let Self { worker, options, umem, .. } = self;
        let Worker { pipeline, config, local, .. } = worker;
        let pool = pipeline.pool_mut();
        let part = self.part[at].clone();
        let fanout = part.is_some().then(|| self.groups[at]);
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
            let buffers = pool.buffers() / 2 / config.ports.len().max(1);
            // Who asks all the time needs few stamps to know when a frame has come.
            let stamp_every = if config.router.mode == Mode::Busy { BUSY_STAMPS } else { 1 };
            let xdp_options = AfXdpOptions { buffers: Some(buffers), stamp_every, ..AfXdpOptions::default() };
            let opened = match (umem, part) {
                (Some(umem), part) => {
                    AfXdpPort::open_beside(&port.interface, xdp_options, umem.clone(), local, part)
                }
                (None, Some(part)) => AfXdpPort::open_part(&port.interface, xdp_options, pool, local, part),
                (None, None) => AfXdpPort::open(&port.interface, xdp_options, pool, local),
            };
            match opened {
                Ok(opened) => return Ok(Box::new(opened)),
                Err(error) if falls_back && !error.is_of_the_interface() => {
                    if let Some(report) = options.report {
                        report(&format!("port {}: packet sockets instead of AF_XDP: {error}", port.name));
                    }
                }
                Err(error) => return Err(xdp_error(&port.name, error)),
            }
        }
        // What fits a buffer, and no more: slots are powers of two, and a slot twice as long as need be doubles the memory that frames pass through.
        let longest = pool.max_frame() as u32;
        let port_options =
            AfPacketOptions { max_frame: longest.min(65_000), fanout, ..AfPacketOptions::default() };
        let opened = AfPacketPort::open(&port.interface, port_options);
        opened.map(|opened| Box::new(opened) as Box<dyn Port>).map_err(|error| port_error(&port.name, error))
    }

    /// The first worker tells the others that the interfaces are ready.
    fn brief(&mut self) {
        let known = std::mem::take(&mut self.worker.known);
        if let Following::Lead(_, others) = &mut self.worker.following {
            for ((ready, briefing), view) in others.drain(..) {
                // A worker that has ended already has said why.
                let _ = briefing.send(Briefing { view, ready, known: known.clone() });
            }
        }
    }

    /// All ports are open: the first round can come.
    fn begin(mut self) -> Result<Worker, StartError> {
        self.worker.ports.extend(self.opened.drain(..).flatten());
        self.worker.attachments.extend(self.attachments.drain(..).flatten());
        self.set_ring().map_err(|error| StartError::Config(error.to_string()))?;
        if self.worker.following.leads() {
            let guarded = sys::monotonic_now();
            let Worker { pipeline, ports, .. } = &mut self.worker;
            for (at, port) in ports.iter_mut().enumerate().filter(|(_, port)| port.kernel_has_copy()) {
                let frames = discard_until(pipeline.pool_mut(), &mut **port, guarded);
                pipeline.receive_last(sys::monotonic_now(), at, frames.into_iter());
            }
            self.worker.guarded.iter().for_each(|guarded| guarded.store(true, Ordering::Release));
            self.brief();
        }
        self.worker.watch_ports().map_err(system("watching the ports"))?;
        Ok(self.worker)
    }

    /// FairDrop must know how much can wait.
    pub(crate) fn set_ring(&mut self) -> Result<(), crate::CommandError> {
        let ring = self.worker.ports.iter().filter_map(|port| port.rx_ring()).max().unwrap_or(0);
        self.worker.pipeline.set_ring_frames(ring)
    }
}

/// Lets what came before `until` fall: somebody else has forwarded it. Gives what came later and has been read with it.
pub(crate) fn discard_until(pool: &mut FramePool, port: &mut dyn Port, until: Nanos) -> Vec<RxFrame> {
    let mut frames: Vec<RxFrame> = Vec::with_capacity(BURST);
    loop {
        port.rx_burst(pool, sys::monotonic_now(), &mut frames, BURST);
        let none = frames.is_empty();
        let earlier = frames.partition_point(|frame| frame.arrival < until);
        frames.drain(..earlier).for_each(|received| pool.release(received.frame));
        if none || !frames.is_empty() {
            return frames;
        }
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

/// What keeps a port from AF_XDP. Where neither the interface nor a privilege is what is missing, packet sockets would do.
fn xdp_error(port: &str, error: PortError) -> StartError {
    if error.is_of_the_interface()
        || matches!(error, PortError::Privilege { .. } | PortError::OutOfRange { .. })
    {
        return port_error(port, error);
    }
    StartError::NoXdp { port: port.to_owned(), source: error }
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
