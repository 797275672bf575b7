//! The worker: one thread that drives the pipeline on real ports.
//!
//! It sleeps in epoll until a port, the clock, the mirror or a message wakes it. In mode `busy` it
//! does not sleep, in mode `adaptive` it sleeps when little comes ([`crate::idle`]). A round that
//! received something is followed by another at once, so under load no time goes into sleeping
//! and waking.
//!
//! **Interfaces come and go.** A port whose interface vanishes, goes down or fails drops what it
//! holds as `link_down`, and packets to it; the others go on. On every change that netlink reports
//! the port looks at its interface again. A re-created interface gets a new socket, its offloads
//! off and its guard.

mod pass_on;
mod ports;

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use evenkeel_config::{Attach, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_ports::heartbeat::Beater;
use evenkeel_ports::sys::{self, Event, Notifier, Poller, Timer};
use evenkeel_ports::{Port, PortState};

use crate::attachment::{Attachment, Guarded};
use crate::command::{Command, Reply};
use crate::error::CommandError;
use crate::handover::PortDrain;
use crate::idle::Idle;
use crate::mirror::decode::KernelRouteKind;
use crate::mirror::{Mirror, MirrorEvent, MirrorView};
use crate::pipeline::{Blueprint, LinkState, Parts, Pipeline, Round};
use crate::snapshot::Snapshot;

/// Sleeping and waking costs about this: a shorter wait is spent polling.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(8);
/// How long a port that could not take its frames is left alone.
const RETRY_SEND: Nanos = Nanos::from_micros(50);
/// How long a port whose descriptor has failed is left alone.
const RETRY_PORT: Nanos = Nanos::from_millis(100);
/// Signs of life that a worker gives while it may be silent once: it sleeps no longer than that.
const BEATS: u64 = 4;
/// Batches of mirror events applied between two rounds: some 0.1 ms.
const BATCHES_PER_ROUND: usize = 2;

const TOKEN_TIMER: u64 = u64::MAX;
const TOKEN_CONTROL: u64 = u64::MAX - 1;
const TOKEN_MIRROR: u64 = u64::MAX - 2;

/// A command and where its answer goes.
pub(crate) struct Request {
    pub(crate) command: Command,
    /// What was built for it.
    pub(crate) parts: Parts,
    pub(crate) reply: SyncSender<Answer>,
}

/// What a worker says to a command.
pub(crate) struct Answer {
    pub(crate) result: Result<Reply, CommandError>,
    /// What is in use no more: whoever asked frees it.
    pub(crate) _retired: Parts,
}

/// What the pool sends to a worker.
pub(crate) enum Message {
    Command(Box<Request>),
    /// What tables for a change are to be built from.
    Blueprint(SyncSender<Blueprint>),
    /// Drain the ports and end: new workers take over.
    Drain(DrainRequest),
}

/// How a worker drains. All workers stop reading first; then the pool chooses an instant that none
/// has read beyond.
pub(crate) struct DrainRequest {
    /// By port.
    pub(crate) drains: Arc<[PortDrain]>,
    pub(crate) stopped: SyncSender<()>,
    /// Frames that come from this instant on are for the new workers.
    pub(crate) cut: Receiver<Nanos>,
}

pub(crate) use pass_on::PassedPort;

/// How a worker ended.
pub(crate) enum WorkerExit {
    Stopped(Box<Snapshot>),
    /// With everything that the new workers take over.
    Drained(Box<Worker>),
}

/// Where a worker learns of the kernel's tables.
pub(crate) enum MirrorAccess {
    /// The leader runs the mirror.
    Leader(Mirror),
    Follower(MirrorView),
}

impl MirrorAccess {
    pub(crate) fn view(&self) -> &MirrorView {
        match self {
            Self::Leader(mirror) => mirror.view(),
            Self::Follower(view) => view,
        }
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self, Self::Leader(_))
    }
}

/// Everything the thread owns.
pub(crate) struct Worker {
    pub(crate) config: RouterConfig,
    pub(crate) pipeline: Pipeline,
    pub(crate) ports: Vec<Box<dyn Port>>,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) mirror: MirrorAccess,
    /// What the leader tells of the interfaces.
    pub(crate) guarded: Arc<Guarded>,
    /// How often the leader had taken an interface into use when this worker last looked at its
    /// own sockets there.
    pub(crate) taken: u32,
    /// Tells the programs at the interfaces that this worker lives.
    pub(crate) beater: Beater,
    pub(crate) poller: Poller,
    pub(crate) timer: Timer,
    pub(crate) messages: Receiver<Message>,
    pub(crate) control: Notifier,
    pub(crate) mirror_ready: Notifier,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) report: Option<fn(&str)>,
    /// The addresses that guards let through to the kernel.
    pub(crate) local: Vec<IpAddr>,
    /// Whether the kernel wakes the thread when a frame comes.
    pub(crate) watches: bool,
}

/// What a worker keeps from round to round about its sleep.
struct Rest {
    idle: Idle,
    events: Vec<Event>,
    /// What the timer is set to.
    armed: Option<Nanos>,
    /// When to wake for the next sign of life.
    beat_due: Nanos,
}

impl Worker {
    /// Watches the clock, the pool and the mirror.
    pub(crate) fn watch_own(&self) -> io::Result<()> {
        self.pipeline.set_waker(&self.control);
        self.poller.add(self.timer.fd(), TOKEN_TIMER)?;
        self.poller.add(self.control.fd(), TOKEN_CONTROL)?;
        self.poller.add(self.mirror_ready.fd(), TOKEN_MIRROR)
    }

    /// Watches the descriptors of the ports.
    pub(crate) fn watch_ports(&mut self) -> io::Result<()> {
        for at in 0..self.ports.len() {
            self.watch(at)?;
        }
        Ok(())
    }

    fn watch(&mut self, at: usize) -> io::Result<()> {
        self.unwatch(at);
        if !self.watches {
            // The thread does not sleep. If the kernel looked for somebody to wake at each frame,
            // that would cost a quarter of the throughput.
            return Ok(());
        }
        if let Some(fd) = self.ports[at].fd() {
            self.poller.add(fd, at as u64)?;
            self.attachments[at].watched = true;
        }
        Ok(())
    }

    fn unwatch(&mut self, at: usize) {
        let watched = std::mem::take(&mut self.attachments[at].watched);
        if let Some(fd) = self.ports[at].fd().filter(|_| watched) {
            // A descriptor that was closed has left the set by itself.
            let _ = self.poller.remove(fd);
        }
    }

    /// Tells the user what happened to a port: the leader does, the others see the same.
    pub(crate) fn report(&self, text: &str) {
        if let Some(report) = self.report.filter(|_| self.mirror.leads()) {
            report(text);
        }
    }

    /// Forwards until it is told to stop, or to drain.
    pub(crate) fn run(mut self) -> io::Result<WorkerExit> {
        let section = &self.config.router;
        let mut rest = Rest {
            idle: Idle::new(section.mode, section.spin),
            events: Vec::with_capacity(Poller::BATCH),
            armed: None,
            beat_due: Nanos::ZERO,
        };
        // What came while the ports were opened, too slowly perhaps for the heartbeat, the kernel
        // has forwarded.
        if let Some(span) = self.beater.beat(sys::monotonic_now()) {
            self.ports.iter_mut().for_each(|port| port.passed_by(span.clone()));
        }
        while !self.stop.load(Ordering::Relaxed) {
            let now = sys::monotonic_now();
            if let Some(span) = self.beater.beat(now) {
                self.passed_by(&span);
            }
            let more_events = match self.receive_messages(now) {
                Ok(()) => self.follow_mirror(now)?,
                Err(request) => return Ok(self.drain(&request)),
            };
            let round = self.pipeline.round(now, &mut self.ports);
            let view = self.mirror.view();
            self.pipeline.drain_requests(now, |request| view.ask(request));
            self.pipeline.drain_news(|text| self.report.iter().for_each(|report| report(text)));
            if now >= rest.beat_due {
                rest.beat_due = now + Nanos(self.beater.heart().limit().0 / BEATS);
            }
            if round.received > 0 {
                rest.idle.found(now);
                if self.watches && !rest.idle.wants_to_be_woken() {
                    self.watches = false;
                    (0..self.ports.len()).for_each(|at| self.unwatch(at));
                }
            }
            let busy = more_events || round.received > 0 || round.more;
            if !busy && !rest.idle.stays_awake(now) {
                self.sleep(now, &round, &mut rest)?;
            }
        }
        Ok(WorkerExit::Stopped(Box::new(self.finish())))
    }

    /// Sleeps until there is something to do, unless that is so soon that polling is cheaper.
    fn sleep(&mut self, now: Nanos, round: &Round, rest: &mut Rest) -> io::Result<()> {
        let wake = self.next_wake(now, round, rest.beat_due);
        if wake <= sys::monotonic_now().saturating_add(SHORTEST_SLEEP) {
            return Ok(());
        }
        rest.idle.sleeps();
        if !self.watches {
            // A frame that has come meanwhile wakes at once.
            self.watches = true;
            self.watch_ports()?;
        }
        if rest.armed != Some(wake) {
            if wake == Nanos::MAX {
                self.timer.disarm()?;
            } else {
                self.timer.arm(wake)?;
            }
            rest.armed = Some(wake);
        }
        if self.pipeline.may_sleep() {
            self.poller.wait(&mut rest.events, None)?;
            self.pipeline.is_awake();
            self.handle_wakeups(rest);
        }
        Ok(())
    }

    /// When there is something to do although no frame and no message comes.
    fn next_wake(&self, now: Nanos, round: &Round, beat_due: Nanos) -> Nanos {
        let mut wake = self.pipeline.next_wake().unwrap_or(Nanos::MAX);
        if round.blocked {
            wake = wake.min(now + RETRY_SEND);
        }
        wake = wake.min(beat_due);
        wake = self.ports.iter().filter_map(|port| port.next_due()).fold(wake, Nanos::min);
        self.attachments.iter().filter_map(|port| port.retry).fold(wake, Nanos::min)
    }

    /// The kernel has forwarded meanwhile: what came then is not forwarded again.
    #[cold]
    fn passed_by(&mut self, span: &Range<Nanos>) {
        self.ports.iter_mut().for_each(|port| port.passed_by(span.clone()));
        if span.end == Nanos::MAX {
            self.report("a worker gives no sign of life: the kernel forwards");
            return;
        }
        self.report(&format!(
            "a worker gave no sign of life: the kernel forwarded for {}",
            span.end.saturating_sub(span.start)
        ));
    }

    fn handle_wakeups(&mut self, rest: &mut Rest) {
        for event in &rest.events {
            match event.token {
                TOKEN_TIMER => {
                    self.timer.take();
                    rest.armed = None;
                }
                TOKEN_CONTROL => {
                    let _ = self.control.take();
                }
                TOKEN_MIRROR => {
                    let _ = self.mirror_ready.take();
                }
                port if event.closed => {
                    // It stays ready for as long as it is broken: do not watch it for a while.
                    let at = port as usize;
                    self.unwatch(at);
                    self.attachments[at].retry = Some(sys::monotonic_now() + RETRY_PORT);
                }
                _ => {}
            }
        }
    }

    /// Carries out the commands that have come. `Err`: new workers take over.
    fn receive_messages(&mut self, now: Nanos) -> Result<(), DrainRequest> {
        while let Ok(message) = self.messages.try_recv() {
            let request = match message {
                Message::Command(request) => *request,
                Message::Blueprint(reply) => {
                    let _ = reply.try_send(self.pipeline.blueprint());
                    continue;
                }
                Message::Drain(request) => return Err(request),
            };
            let Request { command, parts, reply } = request;
            self.pipeline.lend(parts);
            let result = self.execute(now, command);
            // Whoever asked may have given up waiting.
            let _ = reply.try_send(Answer { result, _retired: self.pipeline.take_parts() });
        }
        Ok(())
    }

    /// Applies what the mirror has read, and looks again at ports that are due for that. True:
    /// the mirror may have more.
    ///
    /// # Errors
    /// The mirror has ended. Who forwards by routes that grow old does harm for ever; the kernel
    /// takes over from a router that ends, and its supervisor starts another.
    fn follow_mirror(&mut self, now: Nanos) -> io::Result<bool> {
        let mut local_changed = false;
        let mut batches = 0;
        while batches < BATCHES_PER_ROUND
            && let Some(batch) = self.mirror.view().poll()?
        {
            batches += 1;
            for event in batch {
                local_changed |= concerns_host(&event);
                match event {
                    MirrorEvent::Link { port, link } => {
                        self.interface_changed(now, port, link.map(LinkState::from));
                    }
                    event => self.pipeline.apply(now, event),
                }
            }
        }
        if local_changed {
            self.update_guards();
        }
        let taken = self.guarded.taken();
        if taken != self.taken && !self.mirror.leads() {
            self.attachments.iter_mut().for_each(|attachment| attachment.retry = Some(now));
        }
        self.taken = taken;
        for at in 0..self.attachments.len() {
            if self.attachments[at].retry.is_some_and(|due| due <= now) {
                self.recheck_port(now, at);
            }
        }
        Ok(batches == BATCHES_PER_ROUND)
    }

    /// Drains the ports and ends.
    fn drain(mut self, request: &DrainRequest) -> WorkerExit {
        // The pool waits for this and has made room for it.
        let _ = request.stopped.try_send(());
        if let Ok(cut) = request.cut.recv() {
            self.drain_ports(&request.drains, cut);
        }
        WorkerExit::Drained(Box::new(self))
    }

    fn execute(&mut self, now: Nanos, command: Command) -> Result<Reply, CommandError> {
        let pipeline = &mut self.pipeline;
        match command {
            Command::Show => return Ok(Reply::Snapshot(Box::new(self.snapshot(now)))),
            Command::Change(change) => pipeline.change(now, &change)?,
            Command::Explain { link, flow } => {
                return pipeline.explain(now, link.as_deref(), &flow).map(Reply::Text);
            }
            Command::Flows { link, top } => {
                return pipeline.flows(now, link.as_deref(), top).map(Reply::Flows);
            }
            Command::Nodes(query) => return pipeline.nodes(now, &query).map(Reply::Nodes),
            Command::Busiest { top } => return Ok(Reply::Busiest(pipeline.busiest(now, top))),
            Command::Watch(watch) => pipeline.watch(now, &watch)?,
            Command::Sightings { id } => {
                return pipeline.sightings(now, id).map(Reply::Sightings);
            }
            Command::Unwatch => pipeline.unwatch(),
            // What it cannot do has been done otherwise.
            Command::Reload(config) => {
                pipeline.reload(now, &config)?;
                self.config = *config;
            }
        }
        Ok(Reply::Done)
    }

    /// What the pipeline counted, and what the guards did, which the pipeline does not know.
    fn snapshot(&mut self, now: Nanos) -> Snapshot {
        let mut snapshot = self.pipeline.snapshot(now, &mut self.ports);
        for (port, attachment) in snapshot.ports.iter_mut().zip(&self.attachments) {
            if let Some(guard) = &attachment.guard {
                let (kind, kept) = guard.told();
                (port.guard, port.guarded) = (kind.to_owned(), kept);
            }
        }
        let ports = self.ports.iter().zip(&self.attachments);
        for (port, (from, attachment)) in snapshot.ports.iter_mut().zip(ports) {
            port.io = from.io();
            let routes = attachment.attach == Attach::Route;
            if routes && !from.kernel_has_copy() && from.state() != PortState::Gone {
                "xdp".clone_into(&mut port.guard);
            }
        }
        snapshot
    }

    /// Nothing more is received; what is held is dropped and counted; interfaces are as before.
    fn finish(mut self) -> Snapshot {
        let now = sys::monotonic_now();
        self.pipeline.stop(now);
        let last = self.snapshot(now);
        let mut failures = Vec::new();
        for port in &mut self.attachments {
            port.guard = None;
            if let Err(error) = port.tuned.restore() {
                failures.push(format!("port {}: its offloads are still off: {error}", port.name));
            }
        }
        failures.iter().for_each(|text| self.report(text));
        // Commands that came too late are answered, not left to time out.
        while let Ok(Message::Command(request)) = self.messages.try_recv() {
            let result = Err(CommandError::Stopped);
            let _ = request.reply.try_send(Answer { result, _retired: request.parts });
        }
        last
    }
}

/// Whether an event may change the set of addresses that the kernel receives itself.
fn concerns_host(event: &MirrorEvent) -> bool {
    match event {
        MirrorEvent::Local { .. } => true,
        // One that is gone may have been the host's.
        MirrorEvent::Route { prefix, route, .. } => {
            let host = |kind| matches!(kind, KernelRouteKind::Local | KernelRouteKind::Broadcast);
            prefix.is_host() && route.as_ref().is_none_or(|route| host(route.kind))
        }
        MirrorEvent::Link { .. }
        | MirrorEvent::Neighbour { .. }
        | MirrorEvent::Rules(_)
        | MirrorEvent::NotFollowed(_)
        | MirrorEvent::RefusedNeighbours(_)
        | MirrorEvent::Translation { .. }
        | MirrorEvent::NoTranslations
        | MirrorEvent::Faults(_) => false,
    }
}
