//! The workers of a router: one thread each, and what they share.
//!
//! The first one leads: it claims the interfaces, guards them, switches their offloads, and follows the kernel's tables. The others are handed a view of those
//! tables and open sockets of their own, after it has made the interfaces ready, and they stop before it does. A router with one worker is one that leads nobody.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_ports::Umem;
use evenkeel_ports::af_xdp::XdpCommon;
use evenkeel_ports::sys::{self, Notifier};

use crate::command::{Command, CommandError, Reply};
use crate::merge::{merged, merged_replies};
use crate::mirror::{Mirror, MirrorEvent, MirrorView};
use crate::pipeline::{Buffers, Place};
use crate::prepare::{prepare, settle_thread, system};
use crate::snapshot::Snapshot;
use crate::start::{Options, Seeded, StartError};
use crate::succession::{Estate, Fate, Heir, HeirOrder, Plan, Way};
use crate::worker::{Asked, Ended, Parting, Request, Worker};

/// What a worker's thread ends with.
type Outcome = Result<Ended, String>;
/// What a team ends with.
type Last = Result<Snapshot, String>;

/// What the first worker tells another when the interfaces are ready.
pub(crate) struct Briefing {
    pub(crate) view: MirrorView,
    pub(crate) ready: Notifier,
    /// All that the kernel's tables held when the view began.
    pub(crate) known: Vec<MirrorEvent>,
}

/// Whether a worker leads.
pub(crate) enum Role {
    /// With what the others wait for.
    Lead(Vec<(Notifier, Sender<Briefing>)>),
    Follow(Receiver<Briefing>),
}

/// What a worker is given.
pub(crate) struct Seat {
    pub(crate) control: Notifier,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) commands: Receiver<Asked>,
    pub(crate) place: Option<Place>,
    pub(crate) guarded: Arc<[AtomicBool]>,
    /// By port, what the workers' AF_XDP ports have in common.
    pub(crate) stations: Arc<[XdpCommon]>,
    /// By port, which group the workers' packet sockets are in.
    pub(crate) groups: Arc<[u8]>,
    pub(crate) role: Role,
    /// Of whom it takes the place.
    pub(crate) heir: Option<Heir>,
}

/// Where a worker in the making says that it is ready, or why it cannot be. It is given the memory of its buffers.
pub(crate) struct Ready(SyncSender<Result<Umem, StartError>>);

impl Ready {
    pub(crate) fn tell(&self, result: Result<Umem, StartError>) {
        // There is room for one, and whoever waits takes each before asking for the next.
        let _ = self.0.try_send(result);
    }
}

/// A worker that waits for the first one, and the view that it will have.
type Waiting = ((Notifier, Sender<Briefing>), MirrorView);

/// Where a worker hears of the kernel's tables.
pub(crate) enum Following {
    /// With those who have not been told yet how things are.
    Lead(Mirror, Vec<Waiting>),
    Follow(MirrorView),
}

impl Following {
    pub(crate) fn view(&self) -> &MirrorView {
        match self {
            Self::Lead(mirror, _) => mirror.view(),
            Self::Follow(view) => view,
        }
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self, Self::Lead(..))
    }
}

/// How to reach a worker.
#[derive(Debug)]
struct Reach {
    commands: Sender<Asked>,
    control: Notifier,
    stop: Arc<AtomicBool>,
    /// The memory of its buffers.
    umem: Umem,
}

impl Reach {
    /// Hands over a command; the answer comes by what is returned.
    fn ask(&self, command: Command) -> Result<Receiver<Result<Reply, CommandError>>, CommandError> {
        let (reply, answer) = sync_channel(1);
        let asked = Asked::Command(Request { command, reply });
        self.commands.send(asked).map_err(|_gone| CommandError::Stopped)?;
        self.control.notify();
        Ok(answer)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.control.notify();
    }
}

fn wait(answer: &Receiver<Result<Reply, CommandError>>, timeout: Duration) -> Result<Reply, CommandError> {
    match answer.recv_timeout(timeout) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(CommandError::NoAnswer),
        Err(RecvTimeoutError::Disconnected) => Err(CommandError::Stopped),
    }
}

/// The workers' threads, the first one first, or what they ended with.
#[derive(Debug)]
enum Running {
    Threads(Vec<JoinHandle<Outcome>>),
    Ended(Box<Last>),
}

/// All workers of a router.
#[derive(Debug)]
pub(crate) struct Team {
    crew: Mutex<Crew>,
    running: Mutex<Running>,
}

/// How to reach the workers, and what they were made for.
#[derive(Debug)]
struct Crew {
    reach: Vec<Reach>,
    config: Seeded,
    options: Options,
    stations: Arc<[XdpCommon]>,
    groups: Arc<[u8]>,
}

/// A worker in the making.
struct Recruit {
    thread: JoinHandle<Outcome>,
    said: Receiver<Result<Umem, StartError>>,
    commands: Sender<Asked>,
    control: Notifier,
    stop: Arc<AtomicBool>,
    /// `None`: it takes nobody's place.
    orders: Option<Sender<HeirOrder>>,
}

/// What all workers of a team are given.
struct Terms<'a> {
    config: &'a Seeded,
    options: &'a Options,
    guarded: Arc<[AtomicBool]>,
    stations: Arc<[XdpCommon]>,
    groups: Arc<[u8]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Terms<'_> {
    /// Starts a worker's thread.
    fn hire(
        &self,
        place: Option<Place>,
        role: Role,
        plan: Option<(&Plan, Option<Umem>)>,
    ) -> Result<Recruit, StartError> {
        let control = Notifier::new().map_err(system("making a notifier"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (commands, requests) = channel();
        let (ready, said) = sync_channel(1);
        let number = place.as_ref().map_or(0, Place::worker);
        let (heir, orders) = plan
            .map(|(plan, umem)| {
                let (orders, received) = channel();
                (Heir { fates: Arc::clone(&plan.fates), umem, orders: received }, orders)
            })
            .unzip();
        let seat = Seat {
            control: control.clone(),
            stop: Arc::clone(&stop),
            commands: requests,
            place,
            guarded: Arc::clone(&self.guarded),
            stations: Arc::clone(&self.stations),
            groups: Arc::clone(&self.groups),
            role,
            heir,
        };
        let (config, options) = (self.config.clone(), self.options.clone());
        // The thread that enters the namespace opens everything and drives it: no other thread is moved.
        let run = move || {
            let ready = Ready(ready);
            match prepare(config, &options, seat, &ready) {
                Ok(mut worker) => {
                    ready.tell(Ok(worker.pipeline.pool_mut().umem()));
                    worker.run().map_err(|error| error.to_string())
                }
                Err(error) => {
                    let text = error.to_string();
                    ready.tell(Err(error));
                    Err(text)
                }
            }
        };
        let thread = spawn(number, run)?;
        Ok(Recruit { thread, said, commands, control, stop, orders })
    }
}

fn spawn(
    number: usize,
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Result<JoinHandle<Outcome>, StartError> {
    let name = if number == 0 { "worker".to_owned() } else { format!("worker-{number}") };
    std::thread::Builder::new().name(name).spawn(run).map_err(system("starting a thread"))
}

impl Recruit {
    /// Waits until it has done what it was asked for last.
    fn said(&self) -> Result<Umem, StartError> {
        self.said.recv().unwrap_or_else(|_ended| {
            let source = io::Error::other("its thread panicked");
            Err(StartError::System { what: "starting the worker".into(), source })
        })
    }

    fn order(&self, order: HeirOrder) -> Result<Umem, StartError> {
        if let Some(orders) = &self.orders {
            // Whoever has ended has said why.
            let _ = orders.send(order);
        }
        self.said()
    }

    fn into_reach(self, umem: Umem) -> (Reach, JoinHandle<Outcome>) {
        let Self { thread, commands, control, stop, .. } = self;
        (Reach { commands, control, stop, umem }, thread)
    }

    /// Ends one that does not forward yet.
    fn dismiss(self) {
        let Self { thread, said, orders, .. } = self;
        drop((orders, said));
        // It has said why it ends, or is not needed.
        let _ = thread.join();
    }
}

/// Roles for so many workers, the first one's first.
fn roles(workers: usize) -> Result<Vec<Role>, StartError> {
    let (mut leads, mut follow) = (Vec::new(), Vec::new());
    for _ in 1..workers {
        let ready = Notifier::new().map_err(system("making a notifier"))?;
        let (sender, receiver) = channel();
        leads.push((ready, sender));
        follow.push(Role::Follow(receiver));
    }
    follow.insert(0, Role::Lead(leads));
    Ok(follow)
}

/// The place of each worker; `None` for the only one.
fn seats(places: Vec<Place>) -> Vec<Option<Place>> {
    if places.is_empty() { vec![None] } else { places.into_iter().map(Some).collect() }
}

impl Team {
    /// Starts all workers and returns when they forward. `places`: of several workers, see [`Place::all`].
    pub(crate) fn start(config: Seeded, options: Options, places: Vec<Place>) -> Result<Self, StartError> {
        let ports = config.config.ports.len();
        let stations: Arc<[XdpCommon]> = (0..ports).map(|_| XdpCommon::default()).collect();
        let groups: Arc<[u8]> = vec![0; ports].into();
        let terms = Terms {
            config: &config,
            options: &options,
            guarded: (0..ports).map(|_| AtomicBool::new(false)).collect(),
            stations: Arc::clone(&stations),
            groups: Arc::clone(&groups),
        };
        // On an error those that were started before are stopped when this is dropped.
        let team = Self {
            crew: Mutex::new(Crew {
                reach: Vec::new(),
                config: config.clone(),
                options: options.clone(),
                stations,
                groups,
            }),
            running: Mutex::new(Running::Threads(Vec::new())),
        };
        let seats = seats(places);
        for (place, role) in std::iter::zip(seats.iter(), roles(seats.len())?) {
            let recruit = terms.hire(place.clone(), role, None)?;
            match recruit.said() {
                Ok(umem) => team.enlist(recruit, umem),
                Err(error) => {
                    recruit.dismiss();
                    return Err(error);
                }
            }
        }
        Ok(team)
    }

    fn enlist(&self, recruit: Recruit, umem: Umem) {
        let (reach, thread) = recruit.into_reach(umem);
        lock(&self.crew).reach.push(reach);
        if let Running::Threads(threads) = &mut *lock(&self.running) {
            threads.push(thread);
        }
    }

    /// Has all workers carry out a command, one command at a time.
    pub(crate) fn send(&self, command: Command, timeout: Duration) -> Result<Reply, CommandError> {
        let mut crew = lock(&self.crew);
        if crew.reach.is_empty() {
            return Err(CommandError::Stopped);
        }
        if let Command::Reload(config) = command {
            return match Way::between(&crew.config.config, &config)? {
                Way::InPlace => {
                    let reply = crew.all(&Command::Reload(config.clone()), timeout)?;
                    crew.config = crew.config.followed_by(*config);
                    Ok(reply)
                }
                Way::Succession(plan) => self.succeed(&mut crew, *config, &plan),
            };
        }
        if crew.reach.len() == 1 {
            let answer = crew.reach[0].ask(command)?;
            drop(crew);
            return wait(&answer, timeout);
        }
        if matches!(command, Command::Explain { .. } | Command::Flows { .. }) {
            let asked: Vec<_> = crew.reach.iter().map(|worker| worker.ask(command.clone())).collect();
            let replies: Result<Vec<_>, _> =
                asked.into_iter().map(|answer| wait(&answer?, timeout)).collect();
            return Ok(merged_replies(replies?, &command));
        }
        if matches!(command, Command::Show) {
            let asked: Vec<_> = crew.reach.iter().map(|worker| worker.ask(Command::Show)).collect();
            let mut snapshots = Vec::with_capacity(asked.len());
            for answer in asked {
                if let Reply::Snapshot(snapshot) = wait(&answer?, timeout)? {
                    snapshots.push(*snapshot);
                }
            }
            return Ok(Reply::Snapshot(Box::new(merged(snapshots))));
        }
        crew.all(&command, timeout)
    }

    /// Has other workers take the place of the present ones, for another configuration. On an error the present ones go on.
    fn succeed(&self, crew: &mut Crew, config: RouterConfig, plan: &Plan) -> Result<Reply, CommandError> {
        let not_possible = |error: StartError| CommandError::NotPossible(Box::new(error));
        crew.options.disciplines.check(&config)?;
        if let Some(name) = plan.captured(&crew.options, &config) {
            let why = "the port's frames are being written to a file";
            return Err(CommandError::NeedsRestart { what: format!("port {name}"), why });
        }
        let places = seats(Place::all(&config)?);
        let ports = config.ports.len();
        let config = crew.config.followed_by(config);
        let terms = Terms {
            config: &config,
            options: &crew.options,
            guarded: (0..ports).map(|_| AtomicBool::new(false)).collect(),
            stations: plan.stations(&crew.stations),
            groups: plan.groups(&crew.groups),
        };
        let mut heirs: Vec<Recruit> = Vec::with_capacity(places.len());
        let dismissed = |heirs: Vec<Recruit>, error: StartError| {
            // The first one last: the others have what it leads to.
            heirs.into_iter().rev().for_each(Recruit::dismiss);
            not_possible(error)
        };
        let roles = roles(places.len()).map_err(not_possible)?;
        for (number, (place, role)) in std::iter::zip(places, roles).enumerate() {
            let kept = plan.buffers == Buffers::Kept;
            let umem = kept.then(|| crew.reach[number].umem.clone());
            let ready = terms.hire(place, role, Some((plan, umem))).and_then(|heir| {
                let said = heir.said();
                heirs.push(heir);
                said
            });
            if let Err(error) = ready {
                return Err(dismissed(heirs, error));
            }
        }

        // From here on until the heirs run nobody forwards.
        let mut running = lock(&self.running);
        let Running::Threads(threads) = &mut *running else {
            dismissed(heirs, StartError::Config(String::new()));
            return Err(CommandError::Stopped);
        };
        let cut = crew.part(plan);
        let mut left = Vec::with_capacity(threads.len());
        let mut broken = None;
        for thread in threads.drain(..) {
            match join(thread) {
                Ok(Ended::Left(worker)) => left.push(*worker),
                Ok(Ended::Stopped(_)) => broken = Some("it was stopped".to_owned()),
                Err(error) => broken = Some(error),
            }
        }
        if let Some(error) = broken {
            // A worker had ended before: there is nothing to take over from it, and the router ends as it would have.
            *running = Running::Ended(Box::new(Err(error)));
            crew.reach.clear();
            dismissed(heirs, StartError::Config(String::new()));
            return Err(CommandError::Stopped);
        }
        if plan.fates.contains(&Fate::Anew)
            && let Some(error) = heirs.iter().find_map(|heir| heir.order(HeirOrder::Open).err())
        {
            let error = dismissed(heirs, error);
            match crew.resume(left) {
                Ok(resumed) => *threads = resumed,
                Err(refused) => {
                    crew.reach.clear();
                    *running = Running::Ended(Box::new(Err(refused.to_string())));
                }
            }
            return Err(error);
        }
        let mut estates: Vec<Vec<Worker>> = heirs.iter().map(|_| Vec::new()).collect();
        let share = heirs.len();
        for (number, worker) in left.into_iter().enumerate() {
            estates[number % share].push(worker);
        }
        let (stations, groups) = (Arc::clone(&terms.stations), Arc::clone(&terms.groups));
        let mut reach = Vec::with_capacity(share);
        let mut failed = None;
        for (heir, workers) in heirs.into_iter().zip(estates) {
            match heir.order(HeirOrder::Inherit(Estate { workers, cut, buffers: plan.buffers })) {
                Ok(umem) => {
                    let (one, thread) = heir.into_reach(umem);
                    reach.push(one);
                    threads.push(thread);
                }
                // Its thread has panicked: the router is told to have ended.
                Err(error) => {
                    threads.push(heir.thread);
                    failed = Some(not_possible(error));
                }
            }
        }
        (crew.reach, crew.config, crew.stations, crew.groups) = (reach, config, stations, groups);
        failed.map_or(Ok(Reply::Done), Err)
    }

    /// Whether all workers are running.
    pub(crate) fn is_running(&self) -> bool {
        match &*lock(&self.running) {
            Running::Threads(threads) => !threads.iter().any(JoinHandle::is_finished),
            Running::Ended(_) => false,
        }
    }

    /// Stops all workers, the first one last: it holds the kernel back until nobody else forwards.
    pub(crate) fn stop(&self) -> Last {
        let crew = lock(&self.crew);
        let mut running = lock(&self.running);
        let unknown = Running::Ended(Box::new(Err("it did not end".into())));
        let outcome = match std::mem::replace(&mut *running, unknown) {
            Running::Ended(outcome) => *outcome,
            Running::Threads(mut threads) => {
                crew.reach.iter().skip(1).for_each(Reach::stop);
                let last = |thread: JoinHandle<Outcome>| match join(thread)? {
                    Ended::Stopped(snapshot) => Ok(*snapshot),
                    Ended::Left(_) => Err("it left, and nobody took its place".to_owned()),
                };
                let first = (!threads.is_empty()).then(|| threads.remove(0));
                let others: Vec<Last> = threads.into_iter().map(last).collect();
                crew.reach.iter().take(1).for_each(Reach::stop);
                let all = first.map(last).into_iter().chain(others);
                all.collect::<Result<Vec<_>, _>>().map(merged)
            }
        };
        *running = Running::Ended(Box::new(outcome.clone()));
        outcome
    }
}

impl Crew {
    /// Has all workers carry out a command that the first one may refuse.
    fn all(&self, command: &Command, timeout: Duration) -> Result<Reply, CommandError> {
        let (first, others) = self.reach.split_first().ok_or(CommandError::Stopped)?;
        let reply = wait(&first.ask(command.clone())?, timeout)?;
        let asked: Vec<_> = others.iter().map(|worker| worker.ask(command.clone())).collect();
        for answer in asked {
            wait(&answer?, timeout)?;
        }
        Ok(reply)
    }

    /// Has all workers leave. Gives the instant up to which they read.
    fn part(&self, plan: &Plan) -> Nanos {
        let told = self.reach.iter().map(|reach| {
            let (stopped, has_stopped) = sync_channel(1);
            let (tell, cut) = channel();
            let parting = Parting { farewells: Arc::clone(&plan.farewells), stopped, cut };
            // One that has ended by itself is found out when it is joined.
            let _ = reach.commands.send(Asked::Farewell(parting));
            reach.control.notify();
            (has_stopped, tell)
        });
        let told: Vec<_> = told.collect();
        for (has_stopped, _) in &told {
            let _ = has_stopped.recv();
        }
        let cut = sys::monotonic_now();
        for (_, tell) in told {
            let _ = tell.send(cut);
        }
        cut
    }

    /// Workers that said farewell go on after all.
    fn resume(&self, left: Vec<Worker>) -> Result<Vec<JoinHandle<Outcome>>, StartError> {
        let resumed = left.into_iter().enumerate().map(|(number, mut worker)| {
            let (config, options) = (self.config.config.clone(), self.options.clone());
            spawn(number, move || {
                settle_thread(&config, &options, number).map_err(|error| error.to_string())?;
                worker.go_on();
                worker.run().map_err(|error| error.to_string())
            })
        });
        resumed.collect()
    }
}

fn join(thread: JoinHandle<Outcome>) -> Outcome {
    thread.join().unwrap_or_else(|_panic| Err("its thread panicked".into()))
}

impl Drop for Team {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.stop();
    }
}
