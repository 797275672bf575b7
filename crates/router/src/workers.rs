//! The worker threads of a router: starting them, asking them, handing over to new ones, and
//! stopping them.
//!
//! The first worker leads: it claims the interfaces, guards them, switches their offloads, and
//! follows the kernel's tables. The others get a view of those tables and open sockets of their
//! own after the leader has made the interfaces ready, and they stop before it does. The only
//! worker of a router is a leader without followers.

mod change;
mod pass_on;
mod replace;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::Umem;
use evenkeel_ports::af_xdp::XdpCommon;
use evenkeel_ports::heartbeat::Heartbeat;
use evenkeel_ports::sys::{Notifier, lock};

use crate::attachment::Guarded;
use crate::command::{Command, Reply};
use crate::error::{CommandError, StartError, WorkerError};
use crate::handover::{HandoverPlan, ReloadPlan};
use crate::merge::{merged, merged_replies};
use crate::options::{Options, Seeded};
use crate::passing::Predecessor;
use crate::pipeline::{Parts, Tunnels, WorkerShares};
use crate::prepare::{
    HandoverStep, Ready, Replacement, WorkerBuffers, WorkerParams, WorkerRole, heartbeat_error,
    prepare, system, tunnels_of,
};
use crate::snapshot::Snapshot;
use crate::worker::{Answer, Message, Request, WorkerExit};

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
    fn ask(&self, command: Command) -> Result<Receiver<Answer>, CommandError> {
        self.ask_with(command, Parts::default())
    }

    /// The same with what was built for the command.
    fn ask_with(&self, command: Command, parts: Parts) -> Result<Receiver<Answer>, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.send(Message::Command(Box::new(Request { command, parts, reply })))?;
        Ok(answer)
    }

    fn send(&self, message: Message) -> Result<(), CommandError> {
        self.messages.send(message).map_err(|_gone| CommandError::Stopped)?;
        self.control.notify();
        Ok(())
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.control.notify();
    }
}

fn wait(answer: &Receiver<Answer>, timeout: Duration) -> Result<Reply, CommandError> {
    told(answer, timeout)?.result
}

/// What a worker says, if it does in time.
fn told<T>(answer: &Receiver<T>, timeout: Duration) -> Result<T, CommandError> {
    answer.recv_timeout(timeout).map_err(|error| match error {
        RecvTimeoutError::Timeout => CommandError::NoAnswer,
        RecvTimeoutError::Disconnected => CommandError::Stopped,
    })
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
    /// Asked while a change that takes long has the members locked.
    heart: Arc<Heartbeat>,
    /// How many workers there are, for the same reason.
    count: AtomicUsize,
    /// The process that goes on with what the workers had.
    successor: Mutex<Option<UnixStream>>,
    /// The process that they took over from, which waits for its end.
    predecessor: Mutex<Option<Predecessor>>,
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
    tunnels: Arc<Tunnels>,
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
    guarded: Arc<Guarded>,
    xdp_common: Arc<[XdpCommon]>,
    fanout_groups: Arc<[u8]>,
    heart: Arc<Heartbeat>,
    tunnels: Arc<Tunnels>,
}

impl SpawnContext<'_> {
    /// Starts a worker's thread. `plan`: by what handover it takes over, and the buffers it gets.
    fn spawn(
        &self,
        shares: Option<WorkerShares>,
        role: WorkerRole,
        plan: Option<(&HandoverPlan, WorkerBuffers)>,
    ) -> Result<StartingWorker, StartError> {
        let control = Notifier::new().map_err(system("making a notifier"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (messages, received) = channel();
        let (ready_sender, ready) = sync_channel(1);
        let number = shares.as_ref().map_or(0, WorkerShares::worker);
        let (replacement, steps) = plan
            .map(|(plan, buffers)| {
                let (sender, steps) = channel();
                let transitions = Arc::clone(&plan.transitions);
                (Replacement { transitions, buffers, steps }, sender)
            })
            .unzip();
        let params = WorkerParams {
            control: control.clone(),
            stop: Arc::clone(&stop),
            messages: received,
            shares,
            tunnels: Arc::clone(&self.tunnels),
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

impl SpawnContext<'_> {
    /// Starts workers that take over up to where they need what others have, each with the buffers
    /// that `of` gives it. On an error none of them is left.
    fn spawn_all(
        &self,
        workers: impl Iterator<Item = (Option<WorkerShares>, WorkerRole)>,
        plan: &HandoverPlan,
        mut of: impl FnMut(usize) -> WorkerBuffers,
    ) -> Result<Vec<StartingWorker>, StartError> {
        let mut new = Vec::new();
        for (number, (shares, role)) in workers.enumerate() {
            let ready = self.spawn(shares, role, Some((plan, of(number)))).and_then(|worker| {
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

impl WorkerPool {
    /// Starts all workers and returns when they forward. `shares`: see
    /// [`WorkerShares::for_workers`]. `predecessor`: the router that they take over from.
    pub(crate) fn start(
        config: Seeded,
        options: Options,
        shares: Vec<WorkerShares>,
        predecessor: Option<Predecessor>,
    ) -> Result<Self, StartError> {
        let ports = config.config.ports.len();
        let xdp_common: Arc<[XdpCommon]> = (0..ports).map(|_| XdpCommon::default()).collect();
        let fanout_groups: Arc<[u8]> = vec![0; ports].into();
        let heart = Heartbeat::new(config.config.router.heartbeat).map_err(heartbeat_error)?;
        let tunnels = tunnels_of(&config.config, &options)?;
        let context = SpawnContext {
            config: &config,
            options: &options,
            guarded: Arc::new(Guarded::none(ports)),
            xdp_common: Arc::clone(&xdp_common),
            fanout_groups: Arc::clone(&fanout_groups),
            heart: Arc::clone(&heart),
            tunnels: Arc::clone(&tunnels),
        };
        // On an error those that were started before are stopped when this is dropped.
        let pool = Self {
            members: Mutex::new(Members {
                handles: Vec::new(),
                config: config.clone(),
                options: options.clone(),
                xdp_common,
                fanout_groups,
                heart: Arc::clone(&heart),
                tunnels,
            }),
            running: Mutex::new(Running::Threads(Vec::new())),
            heart,
            count: AtomicUsize::new(0),
            successor: Mutex::default(),
            predecessor: Mutex::default(),
        };
        let shares = by_worker(shares);
        let roles = roles(shares.len())?;
        if let Some(mut predecessor) = predecessor {
            let plan = HandoverPlan::of_passed(ports);
            let new = context.spawn_all(shares.into_iter().zip(roles), &plan, |number| {
                WorkerBuffers::Passed(predecessor.memory(number))
            })?;
            pool.take_over(new, predecessor)?;
            return Ok(pool);
        }
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
        self.count.fetch_add(1, Ordering::Relaxed);
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
        if let Command::Reload(mut config) = command {
            config.keep_places(&members.config.config);
            let plan = ReloadPlan::between(&members.config.config, &config, &members.options)?;
            return match plan {
                ReloadPlan::InPlace => {
                    let reply = members.change(&Command::Reload(config.clone()), timeout)?;
                    members.config = members.config.followed_by(*config);
                    Ok(reply)
                }
                ReloadPlan::Handover(plan) => self.hand_over(&mut members, *config, &plan),
            };
        }
        if matches!(command, Command::Change(_)) {
            return members.change(&command, timeout);
        }
        // Trees of subscribers are the first worker's, whether there are others or not.
        let first = matches!(command, Command::Nodes(_)) || members.handles.len() == 1;
        if let Some(worker) = members.handles.first().filter(|_| first) {
            let answer = worker.ask(command)?;
            drop(members);
            return wait(&answer, timeout);
        }
        match command {
            Command::Explain { .. }
            | Command::Flows { .. }
            | Command::Busiest { .. }
            | Command::Watch(_)
            | Command::Sightings { .. }
            | Command::Unwatch => {
                let replies = members.ask_all(&command, timeout)?;
                Ok(merged_replies(replies, &command))
            }
            Command::Show => {
                let replies = members.ask_all(&command, timeout)?.into_iter();
                let snapshots = replies.filter_map(|reply| match reply {
                    Reply::Snapshot(snapshot) => Some(*snapshot),
                    _ => None,
                });
                Ok(Reply::Snapshot(Box::new(merged(snapshots.collect()))))
            }
            change => members.change(&change, timeout),
        }
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
        self.heart.oldest(self.count.load(Ordering::Relaxed))
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

impl Members {
    /// Has all workers answer a question.
    fn ask_all(&self, command: &Command, timeout: Duration) -> Result<Vec<Reply>, CommandError> {
        let asked: Vec<_> = self.handles.iter().map(|worker| worker.ask(command.clone())).collect();
        asked.into_iter().map(|answer| wait(&answer?, timeout)).collect()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.stop();
    }
}
