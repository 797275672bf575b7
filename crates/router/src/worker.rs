//! The worker: one thread that drives the pipeline on real ports.
//!
//! It sleeps in epoll until a port, the clock or somebody who wants something wakes it, or, in mode `busy`, does not sleep, or, in mode
//! `adaptive`, sleeps when little comes ([`crate::idle`]). A round that
//! received something is followed by another at once, so under load no time goes into sleeping and waking.
//!
//! **Interfaces come and go.** A port whose interface vanishes, goes down or fails drops what it holds as `link_down`, and packets to it; the
//! others go on. Every change that netlink reports makes the port look at its interface again; a re-created interface gets a new
//! socket, its offloads off and its guard.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::guard::{Guard, GuardKind};
use evenkeel_ports::offload::Offloads;
use evenkeel_ports::sys::{self, Event, Notifier, Poller, Timer};
use evenkeel_ports::{Port, PortError, PortState};

use crate::claim::Claim;
use crate::command::{Command, CommandError, Reply};
use crate::idle::Idle;
use crate::mirror::MirrorEvent;
use crate::mirror::decode::KernelRouteKind;
use crate::pipeline::{LinkState, Pipeline};
use crate::snapshot::Snapshot;
use crate::succession::Farewell;
use crate::team::Following;

/// Sleeping and waking costs about this: a shorter wait is spent polling.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(8);
/// How long a port that could not take its frames is left alone.
const RETRY_SEND: Nanos = Nanos::from_micros(50);
/// How long a port whose descriptor has failed is left alone.
const RETRY_PORT: Nanos = Nanos::from_millis(100);
/// How long an interface that could not be taken into use is left alone.
const RETRY_USE: Nanos = Nanos::SECOND;
/// How long a worker leaves an interface alone that the first one has not made ready.
const RETRY_FOLLOW: Nanos = Nanos::from_millis(5);
/// How often a guard that checks for our life is told of it.
const BEAT: Nanos = Nanos::from_millis(100);
/// Batches of mirror events taken over between two rounds: some 0.1 ms.
const BATCHES_PER_ROUND: usize = 2;

const TOKEN_TIMER: u64 = u64::MAX;
const TOKEN_CONTROL: u64 = u64::MAX - 1;
const TOKEN_MIRROR: u64 = u64::MAX - 2;

/// A command and where its answer goes.
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) reply: SyncSender<Result<Reply, CommandError>>,
}

/// What is asked of a worker.
pub(crate) enum Asked {
    Command(Request),
    /// To end, and leave everything to others.
    Farewell(Parting),
}

/// How a worker leaves everything to others. First all of them stop reading: an instant is chosen then that none has read beyond.
pub(crate) struct Parting {
    pub(crate) farewells: Arc<[Farewell]>,
    pub(crate) stopped: SyncSender<()>,
    /// Frames from that instant on are the others'.
    pub(crate) cut: Receiver<Nanos>,
}

/// How a worker ended.
pub(crate) enum Ended {
    Stopped(Box<Snapshot>),
    /// With everything that it had.
    Left(Box<Worker>),
}

/// What a port has besides its frames.
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) interface: String,
    /// Held as long as the worker runs, also while the interface is gone.
    pub(crate) claim: Option<Claim>,
    /// The descriptor that the poller watches.
    pub(crate) watched: Option<i32>,
    pub(crate) guard: Option<Guard>,
    pub(crate) offloads: Option<Offloads>,
    /// Frames are received and sent.
    pub(crate) in_use: bool,
    /// What the mirror told of the interface last.
    pub(crate) link: Option<LinkState>,
    /// When to look at a port again whose descriptor has failed.
    pub(crate) retry: Option<Nanos>,
}

/// Everything the thread owns.
pub(crate) struct Worker {
    pub(crate) config: RouterConfig,
    pub(crate) pipeline: Pipeline,
    pub(crate) ports: Vec<Box<dyn Port>>,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) following: Following,
    /// What the others have to be told of the kernel's tables when they begin.
    pub(crate) known: Vec<MirrorEvent>,
    /// By port, whether the first worker has made the interface ready.
    pub(crate) guarded: Arc<[AtomicBool]>,
    pub(crate) poller: Poller,
    pub(crate) timer: Timer,
    pub(crate) commands: Receiver<Asked>,
    pub(crate) control: Notifier,
    pub(crate) mirror_ready: Notifier,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) report: Option<fn(&str)>,
    pub(crate) local: Vec<IpAddr>,
    /// Whether the kernel is to wake us when a frame comes.
    pub(crate) watches: bool,
}

impl Worker {
    /// Watches the clock, the control side and the mirror.
    pub(crate) fn watch_own(&self) -> io::Result<()> {
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
            // Nobody waits, and each frame that comes in would look for somebody to wake: that costs a quarter of the throughput.
            return Ok(());
        }
        if let Some(fd) = self.ports[at].fd() {
            self.poller.add(fd, at as u64)?;
            self.attachments[at].watched = Some(fd);
        }
        Ok(())
    }

    pub(crate) fn unwatch(&mut self, at: usize) {
        if let Some(fd) = self.attachments[at].watched.take() {
            // A descriptor that was closed has left the set by itself.
            let _ = self.poller.remove(fd);
        }
    }

    /// The others see what the first one sees.
    pub(crate) fn say(&self, text: &str) {
        if let Some(report) = self.report.filter(|_| self.following.leads()) {
            report(text);
        }
    }

    /// Forwards until it is told to stop, or that others do.
    pub(crate) fn run(mut self) -> io::Result<Ended> {
        let section = &self.config.router;
        let mut idle = Idle::new(section.mode, section.spin);
        let mut events = Vec::with_capacity(Poller::BATCH);
        let mut armed = None;
        let mut beat_due = Nanos::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            let now = sys::monotonic_now();
            let news = match self.take_over(now) {
                Ok(news) => news,
                Err(Parting { farewells, stopped, cut }) => {
                    // Whoever waits for that has made room for it.
                    let _ = stopped.try_send(());
                    if let Ok(cut) = cut.recv() {
                        self.say_farewell(&farewells, cut);
                    }
                    return Ok(Ended::Left(Box::new(self)));
                }
            };
            let round = self.pipeline.round(now, &mut self.ports);
            let view = self.following.view();
            self.pipeline.drain_requests(now, |request| view.ask(request));
            self.pipeline.drain_news(|text| self.report.iter().for_each(|report| report(text)));
            if now >= beat_due {
                self.attachments.iter().filter_map(|port| port.guard.as_ref()).for_each(Guard::beat);
                beat_due = now + BEAT;
            }
            if round.received > 0 {
                idle.found(now);
                if self.watches && !idle.wants_to_be_woken() {
                    self.watches = false;
                    (0..self.ports.len()).for_each(|at| self.unwatch(at));
                }
            }
            if news || round.received > 0 || round.more || idle.stays_awake(now) {
                continue;
            }
            let mut wake = self.pipeline.next_wake().unwrap_or(Nanos::MAX);
            if round.blocked {
                wake = wake.min(now + RETRY_SEND);
            }
            if self.beats() {
                wake = wake.min(beat_due);
            }
            wake = self.ports.iter().filter_map(|port| port.next_due()).fold(wake, Nanos::min);
            wake = self.attachments.iter().filter_map(|port| port.retry).fold(wake, Nanos::min);
            if wake <= sys::monotonic_now().saturating_add(SHORTEST_SLEEP) {
                continue;
            }
            idle.sleeps();
            if !self.watches {
                // What has come meanwhile wakes at once.
                self.watches = true;
                for at in 0..self.ports.len() {
                    self.watch(at)?;
                }
            }
            if armed != Some(wake) {
                if wake == Nanos::MAX {
                    self.timer.disarm()?;
                } else {
                    self.timer.arm(wake)?;
                }
                armed = Some(wake);
            }
            self.poller.wait(&mut events, None)?;
            self.woken(&events, &mut armed);
        }
        Ok(Ended::Stopped(Box::new(self.finish())))
    }

    /// Whether some guard must be told regularly that we live.
    fn beats(&self) -> bool {
        let filter =
            |port: &Attachment| port.guard.as_ref().is_some_and(|guard| guard.kind() == GuardKind::Filter);
        self.attachments.iter().any(filter)
    }

    fn woken(&mut self, events: &[Event], armed: &mut Option<Nanos>) {
        for event in events {
            match event.token {
                TOKEN_TIMER => {
                    self.timer.take();
                    *armed = None;
                }
                TOKEN_CONTROL => {
                    let _ = self.control.take();
                }
                TOKEN_MIRROR => {
                    let _ = self.mirror_ready.take();
                }
                port if event.closed => {
                    // It stays ready for as long as it is broken: look away, and again in a while.
                    let at = port as usize;
                    self.unwatch(at);
                    self.attachments[at].retry = Some(sys::monotonic_now() + RETRY_PORT);
                }
                _ => {}
            }
        }
    }

    /// Commands, news of the mirror, ports to look at again. True: there may be more. `Err`: others take over.
    fn take_over(&mut self, now: Nanos) -> Result<bool, Parting> {
        while let Ok(asked) = self.commands.try_recv() {
            let request = match asked {
                Asked::Command(request) => request,
                Asked::Farewell(parting) => return Err(parting),
            };
            let answer = self.execute(now, request.command);
            // Whoever asked may have given up waiting.
            let _ = request.reply.try_send(answer);
        }
        let mut local_changed = false;
        let mut batches = 0;
        while batches < BATCHES_PER_ROUND
            && let Some(batch) = self.following.view().poll()
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
            self.tell_guards();
        }
        for at in 0..self.attachments.len() {
            if self.attachments[at].retry.is_some_and(|due| due <= now) {
                self.look_again(now, at);
            }
        }
        Ok(batches == BATCHES_PER_ROUND)
    }

    pub(crate) fn tell_guards(&mut self) {
        let local = self.pipeline.host_addresses();
        // A withdrawn route may have been a copy of an address that stays.
        if local == self.local {
            return;
        }
        self.local = local;
        let mut refused = None;
        for (attachment, port) in self.attachments.iter_mut().zip(&mut self.ports) {
            let told = attachment.guard.as_mut().map_or(Ok(()), |guard| guard.set_local(&self.local));
            if let Err(error) = told.and_then(|()| port.set_local(&self.local)) {
                refused = Some(error);
            }
        }
        if let Some(error) = refused {
            self.say(&format!("the kernel may not receive packets for all of its addresses: {error}"));
        }
    }

    fn interface_changed(&mut self, now: Nanos, port: PortIndex, link: Option<LinkState>) {
        let at = port.index();
        self.attachments[at].link = link;
        if link.is_some() {
            self.look_again(now, at);
            return;
        }
        self.pipeline.set_link(now, port, None);
        let attachment = &mut self.attachments[at];
        let text =
            format!("port {}: interface {} is gone; the others go on", attachment.name, attachment.interface);
        attachment.guard = None;
        attachment.offloads = None;
        attachment.in_use = false;
        attachment.retry = None;
        self.say_guarded(at, false);
        self.unwatch(at);
        // The port itself notices that its interface is gone; what it says is what we know.
        let _ = self.ports[at].reopen();
        self.say(&text);
    }

    /// Looks at the interface of a port again, and takes it (back) into use. A port whose interface cannot be guarded is down for us: the
    /// kernel forwards what comes in there, and we must not do it too.
    pub(crate) fn look_again(&mut self, now: Nanos, at: usize) {
        self.attachments[at].retry = None;
        if !self.following.leads() && !self.guarded[at].load(Ordering::Acquire) {
            self.attachments[at].retry = Some(now + RETRY_FOLLOW);
            return;
        }
        let result = self.take_into_use(at);
        self.say_guarded(at, result.is_ok());
        let attachment = &mut self.attachments[at];
        let port = PortIndex(at as u16);
        let (text, link) = match result {
            Ok(was_out) => {
                let text =
                    format!("port {}: interface {} is in use again", attachment.name, attachment.interface);
                (was_out.then_some(text), attachment.link)
            }
            // The mirror will tell when it is back.
            Err(PortError::NoInterface(_)) => return,
            // The first worker is about to.
            Err(PortError::NotAttached(_)) => {
                attachment.retry = Some(now + RETRY_FOLLOW);
                return;
            }
            Err(error) => {
                attachment.retry = Some(now + RETRY_USE);
                let text = format!("port {}: {error}; trying again each {RETRY_USE}", attachment.name);
                (Some(text), attachment.link.map(|link| LinkState { up: false, ..link }))
            }
        };
        self.pipeline.set_link(now, port, link);
        if let Some(text) = text {
            self.say(&text);
        }
    }

    /// True if the port was out of use.
    fn take_into_use(&mut self, at: usize) -> Result<bool, PortError> {
        let attachment = &self.attachments[at];
        let was_out = !attachment.in_use;
        let renewed = self.ports[at].reopen()?;
        if renewed || attachment.watched.is_none() {
            let interface = attachment.interface.clone();
            self.watch(at)
                .map_err(|source| PortError::Io { what: format!("watching {interface}"), source })?;
        }
        let attachment = &mut self.attachments[at];
        if renewed || was_out {
            // The old ones belong to an interface that is no more.
            attachment.guard = None;
            attachment.offloads = None;
            attachment.in_use = false;
            if self.following.leads() {
                let offloads = offloads_of(&*self.ports[at], &attachment.interface, &self.runtime_dir)?;
                if let (Some(report), Some(warning)) = (self.report, offloads.warning()) {
                    report(warning);
                }
                attachment.offloads = Some(offloads);
                attachment.guard = guard_of(&*self.ports[at], &attachment.interface, &self.local)?;
            }
            attachment.in_use = true;
        }
        Ok(was_out)
    }

    /// The first worker tells the others whether they may use an interface.
    pub(crate) fn say_guarded(&self, at: usize, guarded: bool) {
        if self.following.leads() {
            self.guarded[at].store(guarded, Ordering::Release);
        }
    }

    fn execute(&mut self, now: Nanos, command: Command) -> Result<Reply, CommandError> {
        let pipeline = &mut self.pipeline;
        match command {
            Command::Show => return Ok(Reply::Snapshot(Box::new(self.snapshot(now)))),
            Command::Set { link, knob } => pipeline.set(now, &link, knob)?,
            Command::SetRate { link, rate } => pipeline.set_rate(now, &link, rate)?,
            Command::SetRing { link, ring } => pipeline.set_ring(now, &link, ring)?,
            Command::SetControl { link, on } => pipeline.set_control(now, &link, on)?,
            Command::FairDrop { key, value } => pipeline.set_fairdrop(&key, &value)?,
            Command::SetAdmission { link, change } => pipeline.set_admission(now, &link, &change)?,
            Command::SwapAdmission { link, admission } => {
                pipeline.swap_admission(now, &link, admission.map(|admission| *admission))?;
            }
            Command::Explain { link, flow } => {
                return pipeline.explain(now, link.as_deref(), &flow).map(Reply::Text);
            }
            Command::Flows { link, top } => {
                return pipeline.flows(now, link.as_deref(), top).map(Reply::Flows);
            }
            Command::Forwarder { id, state } => pipeline.set_forwarder(id, state)?,
            Command::SwapDiscipline { link, discipline } => pipeline.swap(now, &link, discipline)?,
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
                let kind = if guard.kind() == GuardKind::Link { "link" } else { "filter" };
                port.guard = kind.to_owned();
                port.guarded = guard.dropped();
            }
        }
        for (port, from) in snapshot.ports.iter_mut().zip(&self.ports) {
            port.io = from.io();
            if !from.kernel_has_copy() && from.state() != PortState::Gone {
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
            if let Some(Err(error)) = port.offloads.take().map(Offloads::restore) {
                failures.push(format!("port {}: its offloads are still off: {error}", port.name));
            }
        }
        failures.iter().for_each(|text| self.say(text));
        // Commands that came too late are answered, not left to time out.
        while let Ok(Asked::Command(request)) = self.commands.try_recv() {
            let _ = request.reply.try_send(Err(CommandError::Stopped));
        }
        last
    }
}

/// What must be switched off on the interface of a port.
pub(crate) fn offloads_of(
    port: &dyn Port,
    interface: &str,
    runtime_dir: &std::path::Path,
) -> Result<Offloads, PortError> {
    if port.kernel_has_copy() {
        Offloads::disable(interface, runtime_dir)
    } else {
        Offloads::disable_beside_xdp(interface, runtime_dir)
    }
}

/// What keeps the kernel from forwarding a second copy of what comes in by a port, where it gets one.
pub(crate) fn guard_of(
    port: &dyn Port,
    interface: &str,
    local: &[IpAddr],
) -> Result<Option<Guard>, PortError> {
    if !port.kernel_has_copy() {
        return Ok(None);
    }
    Guard::attach(interface, GuardKind::Auto, local).map(Some)
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
        | MirrorEvent::RefusedNeighbours(_) => false,
    }
}
