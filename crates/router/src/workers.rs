//! The worker threads of a router: starting them, asking them, handing over to new ones, and
//! stopping them.
//!
//! The first worker leads: it claims the interfaces, guards them, switches their offloads, and
//! follows the kernel's tables. The others get a view of those tables and open sockets of their
//! own after the leader has made the interfaces ready, and they stop before it does. The only
//! worker of a router is a leader without followers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_ports::Umem;
use evenkeel_ports::af_xdp::XdpCommon;
use evenkeel_ports::heartbeat::Heartbeat;
use evenkeel_ports::sys::{self, Notifier, lock};

use crate::command::{Command, Reply};
use crate::error::{CommandError, StartError, WorkerError};
use crate::handover::{HandoverPlan, PortTransition, ReloadPlan};
use crate::merge::{merged, merged_replies};
use crate::options::{Options, Seeded};
use crate::pipeline::{Buffers, WorkerShares};
use crate::prepare::{
    Handover, HandoverStep, Ready, Replacement, WorkerParams, WorkerRole, configure_thread,
    heartbeat_error, prepare, system,
};
use crate::snapshot::Snapshot;
use crate::worker::{DrainRequest, Message, Request, Worker, WorkerExit};

/// How a worker's thread ends.
type ThreadResult = Result<WorkerExit, WorkerError>;
/// The last counters of a router.
type LastSnapshot = Result<Snapshot, WorkerError>;

/// A way to reach a running worker.
#[derive(Debug)]
struct WorkerHandle {
    messages: Sender<Message>,
    control: Notifier,
    stop: Arc<AtomicBool>,
    /// The memory of its buffers.
    umem: Umem,
}

impl WorkerHandle {
    /// Hands over a command; the answer comes by what is returned.
    fn ask(&self, command: Command) -> Result<Receiver<Result<Reply, CommandError>>, CommandError> {
        let (reply, answer) = sync_channel(1);
        let message = Message::Command(Request { command, reply });
        self.messages.send(message).map_err(|_gone| CommandError::Stopped)?;
        self.control.notify();
        Ok(answer)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.control.notify();
    }
}

fn wait(
    answer: &Receiver<Result<Reply, CommandError>>,
    timeout: Duration,
) -> Result<Reply, CommandError> {
    match answer.recv_timeout(timeout) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(CommandError::NoAnswer),
        Err(RecvTimeoutError::Disconnected) => Err(CommandError::Stopped),
    }
}

/// The workers' threads, the leader's first, or what they ended with.
#[derive(Debug)]
enum Running {
    Threads(Vec<JoinHandle<ThreadResult>>),
    Ended(Box<LastSnapshot>),
}

impl Running {
    fn ended(error: WorkerError) -> Self {
        Self::Ended(Box::new(Err(error)))
    }
}

/// All workers of a router.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// Locked first.
    members: Mutex<Members>,
    running: Mutex<Running>,
}

/// How to reach the workers, and what they were made for.
#[derive(Debug)]
struct Members {
    /// The leader's first; empty: the router has ended.
    handles: Vec<WorkerHandle>,
    config: Seeded,
    options: Options,
    /// By port, what the workers' AF_XDP ports have in common.
    xdp_common: Arc<[XdpCommon]>,
    /// By port, the fanout group of the workers' packet sockets.
    fanout_groups: Arc<[u8]>,
    heart: Arc<Heartbeat>,
}

/// A worker that does not forward yet.
struct StartingWorker {
    thread: JoinHandle<ThreadResult>,
    ready: Receiver<Result<Umem, StartError>>,
    messages: Sender<Message>,
    control: Notifier,
    stop: Arc<AtomicBool>,
    /// `None`: it takes over from no other.
    steps: Option<Sender<HandoverStep>>,
}

/// What all workers that are spawned together are given.
struct SpawnContext<'a> {
    config: &'a Seeded,
    options: &'a Options,
    guarded: Arc<[AtomicBool]>,
    xdp_common: Arc<[XdpCommon]>,
    fanout_groups: Arc<[u8]>,
    heart: Arc<Heartbeat>,
}

impl SpawnContext<'_> {
    /// Starts a worker's thread. `plan`: by what handover it takes over, and the buffers it gets.
    fn spawn(
        &self,
        shares: Option<WorkerShares>,
        role: WorkerRole,
        plan: Option<(&HandoverPlan, Option<Umem>)>,
    ) -> Result<StartingWorker, StartError> {
        let control = Notifier::new().map_err(system("making a notifier"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (messages, received) = channel();
        let (ready_sender, ready) = sync_channel(1);
        let number = shares.as_ref().map_or(0, WorkerShares::worker);
        let (replacement, steps) = plan
            .map(|(plan, umem)| {
                let (sender, steps) = channel();
                let transitions = Arc::clone(&plan.transitions);
                (Replacement { transitions, umem, steps }, sender)
            })
            .unzip();
        let params = WorkerParams {
            control: control.clone(),
            stop: Arc::clone(&stop),
            messages: received,
            shares,
            guarded: Arc::clone(&self.guarded),
            xdp_common: Arc::clone(&self.xdp_common),
            fanout_groups: Arc::clone(&self.fanout_groups),
            heart: Arc::clone(&self.heart),
            role,
            replacement,
        };
        let (config, options) = (self.config.clone(), self.options.clone());
        // The thread that enters the namespace opens everything and forwards: no other is moved.
        let run = move || {
            let ready = Ready::new(ready_sender);
            match prepare(config, &options, params, &ready) {
                Ok(mut worker) => {
                    ready.send(Ok(worker.pipeline.pool_mut().umem()));
                    Ok(worker.run()?)
                }
                Err(error) => {
                    ready.send(Err(error));
                    Err(WorkerError::Aborted)
                }
            }
        };
        let thread = spawn_thread(number, run)?;
        Ok(StartingWorker { thread, ready, messages, control, stop, steps })
    }
}

fn spawn_thread(
    number: usize,
    run: impl FnOnce() -> ThreadResult + Send + 'static,
) -> Result<JoinHandle<ThreadResult>, StartError> {
    let name = if number == 0 { "worker".to_owned() } else { format!("worker-{number}") };
    std::thread::Builder::new().name(name).spawn(run).map_err(system("starting a thread"))
}

fn join(thread: JoinHandle<ThreadResult>) -> ThreadResult {
    thread.join().unwrap_or(Err(WorkerError::Panicked))
}

impl StartingWorker {
    /// Waits until it has done the last step it was given.
    fn wait_ready(&self) -> Result<Umem, StartError> {
        self.ready.recv().unwrap_or_else(|_ended| {
            let source = io::Error::other("its thread panicked");
            Err(StartError::System { what: "starting the worker".into(), source })
        })
    }

    /// Has it do a step of the handover, and waits until that is done.
    fn step(&self, step: HandoverStep) -> Result<Umem, StartError> {
        if let Some(steps) = &self.steps {
            // If its thread has ended, `wait_ready` gives the reason.
            let _ = steps.send(step);
        }
        self.wait_ready()
    }

    fn into_handle(self, umem: Umem) -> (WorkerHandle, JoinHandle<ThreadResult>) {
        let Self { thread, messages, control, stop, .. } = self;
        (WorkerHandle { messages, control, stop, umem }, thread)
    }

    /// Ends it before it forwards.
    fn abort(self) {
        let Self { thread, ready, steps, .. } = self;
        drop((steps, ready));
        // Its error has been reported, or nobody needs it.
        let _ = thread.join();
    }
}

/// Ends workers that do not forward yet, the leader last: the others use its mirror.
fn abort_all(workers: Vec<StartingWorker>) {
    workers.into_iter().rev().for_each(StartingWorker::abort);
}

fn not_possible(error: StartError) -> CommandError {
    CommandError::NotPossible(Box::new(error))
}

/// Roles for so many workers, the leader's first.
fn roles(workers: usize) -> Result<Vec<WorkerRole>, StartError> {
    let (mut followers, mut roles) = (Vec::new(), Vec::new());
    for _ in 1..workers {
        let ready = Notifier::new().map_err(system("making a notifier"))?;
        let (sender, receiver) = channel();
        followers.push((ready, sender));
        roles.push(WorkerRole::Follower(receiver));
    }
    roles.insert(0, WorkerRole::Leader(followers));
    Ok(roles)
}

/// By worker, its shares of the links; `None` for the only one.
fn by_worker(shares: Vec<WorkerShares>) -> Vec<Option<WorkerShares>> {
    if shares.is_empty() { vec![None] } else { shares.into_iter().map(Some).collect() }
}

/// By port, whether the leader guards the interface: not yet.
fn not_guarded(ports: usize) -> Arc<[AtomicBool]> {
    (0..ports).map(|_| AtomicBool::new(false)).collect()
}

impl WorkerPool {
    /// Starts all workers and returns when they forward. `shares`: see
    /// [`WorkerShares::for_workers`].
    pub(crate) fn start(
        config: Seeded,
        options: Options,
        shares: Vec<WorkerShares>,
    ) -> Result<Self, StartError> {
        let ports = config.config.ports.len();
        let xdp_common: Arc<[XdpCommon]> = (0..ports).map(|_| XdpCommon::default()).collect();
        let fanout_groups: Arc<[u8]> = vec![0; ports].into();
        let heart = Heartbeat::new(config.config.router.heartbeat).map_err(heartbeat_error)?;
        let context = SpawnContext {
            config: &config,
            options: &options,
            guarded: not_guarded(ports),
            xdp_common: Arc::clone(&xdp_common),
            fanout_groups: Arc::clone(&fanout_groups),
            heart: Arc::clone(&heart),
        };
        // On an error those that were started before are stopped when this is dropped.
        let pool = Self {
            members: Mutex::new(Members {
                handles: Vec::new(),
                config: config.clone(),
                options: options.clone(),
                xdp_common,
                fanout_groups,
                heart,
            }),
            running: Mutex::new(Running::Threads(Vec::new())),
        };
        let shares = by_worker(shares);
        let roles = roles(shares.len())?;
        for (shares, role) in shares.into_iter().zip(roles) {
            let worker = context.spawn(shares, role, None)?;
            match worker.wait_ready() {
                Ok(umem) => pool.add(worker, umem),
                Err(error) => {
                    worker.abort();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }

    fn add(&self, worker: StartingWorker, umem: Umem) {
        let (handle, thread) = worker.into_handle(umem);
        lock(&self.members).handles.push(handle);
        if let Running::Threads(threads) = &mut *lock(&self.running) {
            threads.push(thread);
        }
    }

    /// Has all workers carry out a command, one command at a time.
    pub(crate) fn send(&self, command: Command, timeout: Duration) -> Result<Reply, CommandError> {
        let mut members = lock(&self.members);
        if members.handles.is_empty() {
            return Err(CommandError::Stopped);
        }
        if let Command::Reload(config) = command {
            return match ReloadPlan::between(&members.config.config, &config)? {
                ReloadPlan::InPlace => {
                    let reply = members.change(&Command::Reload(config.clone()), timeout)?;
                    members.config = members.config.followed_by(*config);
                    Ok(reply)
                }
                ReloadPlan::Handover(plan) => self.hand_over(&mut members, *config, &plan),
            };
        }
        if let [worker] = &*members.handles {
            let answer = worker.ask(command)?;
            drop(members);
            return wait(&answer, timeout);
        }
        match command {
            Command::Explain { .. } | Command::Flows { .. } => {
                let replies = members.ask_all(&command, timeout)?;
                Ok(merged_replies(replies, &command))
            }
            Command::Show => {
                let replies = members.ask_all(&command, timeout)?.into_iter();
                let snapshots = replies.filter_map(|reply| match reply {
                    Reply::Snapshot(snapshot) => Some(*snapshot),
                    Reply::Done | Reply::Text(_) | Reply::Flows(_) => None,
                });
                Ok(Reply::Snapshot(Box::new(merged(snapshots.collect()))))
            }
            change => members.change(&change, timeout),
        }
    }

    /// Replaces the workers by new ones for another configuration. On an error the present ones
    /// go on.
    fn hand_over(
        &self,
        members: &mut Members,
        config: RouterConfig,
        plan: &HandoverPlan,
    ) -> Result<Reply, CommandError> {
        members.check_handover(&config, plan)?;
        let shares = by_worker(WorkerShares::for_workers(&config)?);
        let config = members.config.followed_by(config);
        let (xdp_common, fanout_groups) =
            (plan.xdp_common(&members.xdp_common), plan.fanout_groups(&members.fanout_groups));
        let context = SpawnContext {
            config: &config,
            options: &members.options,
            guarded: not_guarded(config.config.ports.len()),
            xdp_common: Arc::clone(&xdp_common),
            fanout_groups: Arc::clone(&fanout_groups),
            heart: Arc::clone(&members.heart),
        };
        let new = members.spawn_replacements(&context, shares, plan).map_err(not_possible)?;

        // From here on until the new workers run, no worker forwards.
        let mut running = lock(&self.running);
        let Running::Threads(threads) = &mut *running else {
            abort_all(new);
            return Err(CommandError::Stopped);
        };
        let cut = members.drain(plan);
        let drained = match join_drained(threads) {
            Ok(drained) => drained,
            Err(error) => {
                // There is nothing to take over, and the router ends as it would have.
                *running = Running::ended(error);
                members.handles.clear();
                abort_all(new);
                return Err(CommandError::Stopped);
            }
        };
        if plan.transitions.contains(&PortTransition::Reopened)
            && let Some(error) =
                new.iter().find_map(|worker| worker.step(HandoverStep::OpenPorts).err())
        {
            abort_all(new);
            match members.resume(drained) {
                Ok(resumed) => *threads = resumed,
                Err(refused) => {
                    members.handles.clear();
                    *running = Running::ended(refused.into());
                }
            }
            return Err(not_possible(error));
        }
        let (handles, result) = start_replacements(new, drained, cut, plan.buffers, threads);
        members.handles = handles;
        members.config = config;
        (members.xdp_common, members.fanout_groups) = (xdp_common, fanout_groups);
        result.map(|()| Reply::Done).map_err(not_possible)
    }

    /// Whether all workers are running.
    pub(crate) fn is_running(&self) -> bool {
        match &*lock(&self.running) {
            Running::Threads(threads) => !threads.iter().any(JoinHandle::is_finished),
            Running::Ended(_) => false,
        }
    }

    /// When the worker that has been silent longest gave its last sign of life.
    pub(crate) fn oldest_beat(&self) -> Nanos {
        let members = lock(&self.members);
        members.heart.oldest(members.handles.len())
    }

    /// Stops all workers, the leader last: its guards keep the kernel from forwarding until no
    /// other worker does.
    pub(crate) fn stop(&self) -> LastSnapshot {
        let members = lock(&self.members);
        let mut running = lock(&self.running);
        let threads = match std::mem::replace(&mut *running, Running::ended(WorkerError::Running)) {
            Running::Threads(threads) => threads,
            Running::Ended(last) => {
                *running = Running::Ended(last.clone());
                return *last;
            }
        };
        let mut threads = threads.into_iter();
        let leader = threads.next();
        members.handles.iter().skip(1).for_each(WorkerHandle::stop);
        let followers: Vec<LastSnapshot> = threads.map(last_of).collect();
        members.handles.iter().take(1).for_each(WorkerHandle::stop);
        let all = leader.map(last_of).into_iter().chain(followers);
        let last = all.collect::<Result<Vec<_>, _>>().map(merged);
        *running = Running::Ended(Box::new(last.clone()));
        last
    }
}

/// The last counters of a worker that was stopped.
fn last_of(thread: JoinHandle<ThreadResult>) -> LastSnapshot {
    match join(thread)? {
        WorkerExit::Stopped(snapshot) => Ok(*snapshot),
        WorkerExit::Drained(_) => Err(WorkerError::Drained),
    }
}

/// The workers that were asked to drain, once they have; an error if one had ended before.
fn join_drained(threads: &mut Vec<JoinHandle<ThreadResult>>) -> Result<Vec<Worker>, WorkerError> {
    let mut drained = Vec::with_capacity(threads.len());
    let mut broken = None;
    for thread in threads.drain(..) {
        match join(thread) {
            Ok(WorkerExit::Drained(worker)) => drained.push(*worker),
            Ok(WorkerExit::Stopped(_)) => broken = Some(WorkerError::Stopped),
            Err(error) => broken = Some(error),
        }
    }
    broken.map_or(Ok(drained), Err)
}

/// Has the new workers take over from the drained ones, which are dealt out to them in turn.
fn start_replacements(
    new: Vec<StartingWorker>,
    drained: Vec<Worker>,
    cut: Nanos,
    buffers: Buffers,
    threads: &mut Vec<JoinHandle<ThreadResult>>,
) -> (Vec<WorkerHandle>, Result<(), StartError>) {
    let mut dealt: Vec<Vec<Worker>> = new.iter().map(|_| Vec::new()).collect();
    let count = dealt.len();
    for (number, worker) in drained.into_iter().enumerate() {
        dealt[number % count].push(worker);
    }
    let mut handles = Vec::with_capacity(count);
    let mut result = Ok(());
    for (worker, from) in new.into_iter().zip(dealt) {
        match worker.step(HandoverStep::TakeOver(Handover { workers: from, cut, buffers })) {
            Ok(umem) => {
                let (handle, thread) = worker.into_handle(umem);
                handles.push(handle);
                threads.push(thread);
            }
            // Its thread has panicked: whoever looks is told that the router has ended.
            Err(error) => {
                threads.push(worker.thread);
                result = Err(error);
            }
        }
    }
    (handles, result)
}

impl Members {
    /// Has all workers answer a question.
    fn ask_all(&self, command: &Command, timeout: Duration) -> Result<Vec<Reply>, CommandError> {
        let asked: Vec<_> = self.handles.iter().map(|worker| worker.ask(command.clone())).collect();
        asked.into_iter().map(|answer| wait(&answer?, timeout)).collect()
    }

    /// Has all workers carry out a change that the leader may refuse.
    fn change(&self, command: &Command, timeout: Duration) -> Result<Reply, CommandError> {
        let (leader, followers) = self.handles.split_first().ok_or(CommandError::Stopped)?;
        let reply = wait(&leader.ask(command.clone())?, timeout)?;
        let asked: Vec<_> = followers.iter().map(|worker| worker.ask(command.clone())).collect();
        for answer in asked {
            wait(&answer?, timeout)?;
        }
        Ok(reply)
    }

    /// Refuses a handover that cannot work, before anything is opened for it.
    fn check_handover(
        &self,
        config: &RouterConfig,
        plan: &HandoverPlan,
    ) -> Result<(), CommandError> {
        self.options.disciplines.check(config)?;
        let captures = &self.options.captures;
        if let Some(name) = plan.captured(|port| captures.contains_key(port), config) {
            let why = "the port's frames are being written to a file";
            return Err(CommandError::NeedsRestart { what: format!("port {name}"), why });
        }
        Ok(())
    }

    /// Starts the new workers up to where they need what the present ones have. On an error none
    /// of them is left.
    fn spawn_replacements(
        &self,
        context: &SpawnContext<'_>,
        shares: Vec<Option<WorkerShares>>,
        plan: &HandoverPlan,
    ) -> Result<Vec<StartingWorker>, StartError> {
        let roles = roles(shares.len())?;
        let mut new = Vec::with_capacity(shares.len());
        for (number, (shares, role)) in shares.into_iter().zip(roles).enumerate() {
            let kept = plan.buffers == Buffers::Kept;
            let umem = kept.then(|| self.handles[number].umem.clone());
            let ready = context.spawn(shares, role, Some((plan, umem))).and_then(|worker| {
                let ready = worker.wait_ready();
                new.push(worker);
                ready
            });
            if let Err(error) = ready {
                abort_all(new);
                return Err(error);
            }
        }
        Ok(new)
    }

    /// Has all workers drain their ports and end. Gives the instant up to which they read.
    fn drain(&self, plan: &HandoverPlan) -> Nanos {
        let ask = |worker: &WorkerHandle| {
            let (stopped, has_stopped) = sync_channel(1);
            let (cut_sender, cut) = channel();
            let request = DrainRequest { drains: Arc::clone(&plan.drains), stopped, cut };
            // A worker that has ended already is found out when it is joined.
            let _ = worker.messages.send(Message::Drain(request));
            worker.control.notify();
            (has_stopped, cut_sender)
        };
        let asked: Vec<_> = self.handles.iter().map(ask).collect();
        for (has_stopped, _) in &asked {
            let _ = has_stopped.recv();
        }
        let cut = sys::monotonic_now();
        for (_, cut_sender) in asked {
            let _ = cut_sender.send(cut);
        }
        cut
    }

    /// Drained workers go on after all.
    fn resume(&self, drained: Vec<Worker>) -> Result<Vec<JoinHandle<ThreadResult>>, StartError> {
        let resumed = drained.into_iter().enumerate().map(|(number, mut worker)| {
            let (config, options) = (self.config.config.clone(), self.options.clone());
            spawn_thread(number, move || {
                configure_thread(&config, &options, number)?;
                worker.resume();
                Ok(worker.run()?)
            })
        });
        resumed.collect()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.stop();
    }
}
