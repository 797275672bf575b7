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

use evenkeel_ports::af_xdp::XdpCommon;
use evenkeel_ports::sys::Notifier;

use crate::command::{Command, CommandError, Reply};
use crate::merge::merged;
use crate::mirror::{Mirror, MirrorEvent, MirrorView};
use crate::pipeline::Place;
use crate::snapshot::Snapshot;
use crate::start::{Options, Seeded, StartError, prepare};
use crate::worker::Request;

/// What a worker's thread ends with.
type Outcome = Result<Snapshot, String>;

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
    pub(crate) commands: Receiver<Request>,
    pub(crate) place: Option<Place>,
    pub(crate) guarded: Arc<[AtomicBool]>,
    /// By port, what the workers' AF_XDP ports have in common.
    pub(crate) stations: Arc<[XdpCommon]>,
    pub(crate) role: Role,
}

/// Where a worker hears of the kernel's tables.
#[derive(Debug)]
pub(crate) enum Following {
    Lead(Mirror),
    Follow(MirrorView),
}

impl Following {
    pub(crate) fn view(&self) -> &MirrorView {
        match self {
            Self::Lead(mirror) => mirror.view(),
            Self::Follow(view) => view,
        }
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self, Self::Lead(_))
    }
}

/// How to reach a worker.
#[derive(Debug)]
struct Reach {
    commands: Sender<Request>,
    control: Notifier,
    stop: Arc<AtomicBool>,
}

impl Reach {
    /// Hands over a command; the answer comes by what is returned.
    fn ask(&self, command: Command) -> Result<Receiver<Result<Reply, CommandError>>, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.commands.send(Request { command, reply }).map_err(|_gone| CommandError::Stopped)?;
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
    Ended(Box<Outcome>),
}

/// All workers of a router.
#[derive(Debug)]
pub(crate) struct Team {
    reach: Mutex<Vec<Reach>>,
    running: Mutex<Running>,
    guarded: Arc<[AtomicBool]>,
    stations: Arc<[XdpCommon]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// Nobody, for a router with this many ports.
    pub(crate) fn new(ports: usize) -> Self {
        Self {
            reach: Mutex::new(Vec::new()),
            running: Mutex::new(Running::Threads(Vec::new())),
            guarded: (0..ports).map(|_| AtomicBool::new(false)).collect(),
            stations: (0..ports).map(|_| XdpCommon::default()).collect(),
        }
    }

    /// Starts a worker and returns when it forwards. On an error those that were started before are stopped when the team is dropped.
    pub(crate) fn hire(
        &mut self,
        config: &Seeded,
        options: &Options,
        place: Option<Place>,
        role: Role,
    ) -> Result<(), StartError> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |source| StartError::System { what, source }
        };
        let control = Notifier::new().map_err(system("making a notifier"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (commands, requests) = channel();
        let (ready, started) = sync_channel(1);
        let number = place.as_ref().map_or(0, Place::worker);
        let seat = Seat {
            control: control.clone(),
            stop: Arc::clone(&stop),
            commands: requests,
            place,
            guarded: Arc::clone(&self.guarded),
            stations: Arc::clone(&self.stations),
            role,
        };
        let (config, options) = (config.clone(), options.clone());
        // The thread that enters the namespace opens everything and drives it: no other thread is moved.
        let run = move || match prepare(config, &options, seat) {
            Ok(worker) => {
                tell(&ready, Ok(()));
                worker.run().map_err(|error| error.to_string())
            }
            Err(error) => {
                let text = error.to_string();
                tell(&ready, Err(error));
                Err(text)
            }
        };
        let name = if number == 0 { "worker".to_owned() } else { format!("worker-{number}") };
        let thread =
            std::thread::Builder::new().name(name).spawn(run).map_err(system("starting a thread"))?;
        let result = started.recv().unwrap_or_else(|_ended| {
            let source = io::Error::other("its thread panicked");
            Err(StartError::System { what: "starting the worker".into(), source })
        });
        if result.is_err() {
            // It has said why it ends.
            let _ = thread.join();
        } else {
            lock(&self.reach).push(Reach { commands, control, stop });
            if let Running::Threads(threads) = &mut *lock(&self.running) {
                threads.push(thread);
            }
        }
        result
    }

    /// Has all workers carry out a command, one command at a time.
    pub(crate) fn send(&self, command: Command, timeout: Duration) -> Result<Reply, CommandError> {
        let reach = lock(&self.reach);
        let first = reach.first().ok_or(CommandError::Stopped)?;
        if reach.len() == 1 || matches!(command, Command::Explain { .. } | Command::Flows { .. }) {
            let answer = first.ask(command)?;
            drop(reach);
            return wait(&answer, timeout);
        }
        if matches!(command, Command::Show) {
            let asked: Vec<_> = reach.iter().map(|worker| worker.ask(Command::Show)).collect();
            let mut snapshots = Vec::with_capacity(asked.len());
            for answer in asked {
                if let Reply::Snapshot(snapshot) = wait(&answer?, timeout)? {
                    snapshots.push(*snapshot);
                }
            }
            return Ok(Reply::Snapshot(Box::new(merged(snapshots))));
        }
        let reply = wait(&first.ask(command.clone())?, timeout)?;
        let asked: Vec<_> = reach[1..].iter().map(|worker| worker.ask(command.clone())).collect();
        for answer in asked {
            wait(&answer?, timeout)?;
        }
        Ok(reply)
    }

    /// Whether all workers are running.
    pub(crate) fn is_running(&self) -> bool {
        match &*lock(&self.running) {
            Running::Threads(threads) => !threads.iter().any(JoinHandle::is_finished),
            Running::Ended(_) => false,
        }
    }

    /// Stops all workers, the first one last: it holds the kernel back until nobody else forwards.
    pub(crate) fn stop(&self) -> Outcome {
        let mut running = lock(&self.running);
        let unknown = Running::Ended(Box::new(Err("it did not end".into())));
        let outcome = match std::mem::replace(&mut *running, unknown) {
            Running::Ended(outcome) => *outcome,
            Running::Threads(mut threads) => {
                let reach = lock(&self.reach);
                reach.iter().skip(1).for_each(Reach::stop);
                let join = |thread: JoinHandle<Outcome>| {
                    thread.join().unwrap_or_else(|_panic| Err("its thread panicked".into()))
                };
                let first = (!threads.is_empty()).then(|| threads.remove(0));
                let others: Vec<Outcome> = threads.into_iter().map(join).collect();
                reach.iter().take(1).for_each(Reach::stop);
                let all = first.map(join).into_iter().chain(others);
                all.collect::<Result<Vec<_>, _>>().map(merged)
            }
        };
        *running = Running::Ended(Box::new(outcome.clone()));
        outcome
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.stop();
    }
}

fn tell(ready: &SyncSender<Result<(), StartError>>, result: Result<(), StartError>) {
    // There is room for one, and the starter waits for it.
    let _ = ready.try_send(result);
}
