//! A change that undoes itself unless it is confirmed: for one that may cut off its own operator.

use std::fmt::Display;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_config::subscribers::{SubscriberChange, SubscriberChangeError};
use evenkeel_config::{Change, RouterConfig, diff};
use evenkeel_router::{Command, CommandError, lock};
use thiserror::Error;

use crate::listen::Peer;
use crate::protocol::{Changes, Running};
use crate::server::{Shared, Target};

/// How long a change may wait for its confirmation: longer is another change.
pub(crate) const LONGEST: Duration = Duration::from_secs(3_600);

/// Between two attempts to undo a change.
const RETRY: Duration = Duration::from_secs(1);

/// What the router is made as, and the change that waits, if one does.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    now: Option<State>,
    /// The file that the router was started with.
    start_file: Option<String>,
    waiting: Option<Waiting>,
    /// A change that nobody confirmed cannot be undone yet.
    undoing: bool,
    /// Files so far: what is to be undone is not undone any more after another.
    files: u64,
}

/// What the router is made as.
#[derive(Clone, Debug)]
struct State {
    /// The name of the file, if it comes from one.
    file: Option<String>,
    /// As the file says.
    said: RouterConfig,
    /// With what was changed since.
    running: RouterConfig,
}

/// A change that waits to be confirmed.
#[derive(Debug)]
struct Waiting {
    confirm: Sender<()>,
    file: Option<String>,
    /// `None`: whoever started the router watches the time.
    until: Option<Instant>,
}

impl Waiting {
    fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

impl Applied {
    pub(crate) fn started_as(config: &RouterConfig, file: Option<&str>) -> Mutex<Self> {
        let file = file.map(str::to_owned);
        let state = State { file: file.clone(), said: config.clone(), running: config.clone() };
        Mutex::new(Self { now: Some(state), start_file: file, ..Self::default() })
    }

    /// Gives up what waits, without undoing it: the router stops.
    pub(crate) fn forget(&mut self) {
        self.waiting = None;
        self.files += 1;
    }

    /// The configuration that runs, and where it comes from.
    pub(crate) fn running(&self) -> Running {
        let left = self.waiting.as_ref().and_then(Waiting::left).map(millis);
        let start_file = self.start_file.clone();
        let Some(State { file, said, running }) = &self.now else { return Running::default() };
        Running {
            text: running.short_text(),
            file: file.clone(),
            start_file,
            live: diff(said, running),
            undone_in_ms: left,
        }
    }

    /// What a reload of `config` would change.
    pub(crate) fn diff(&self, file: String, config: &RouterConfig) -> Changes {
        let Some(now) = &self.now else { return Changes::default() };
        Changes {
            changes: diff(&now.running, config),
            instead_of: now.file.clone().filter(|known| *known != file),
            file: Some(file),
            ..Changes::default()
        }
    }

    /// The list of a tree as CSV; without a name, of the only one.
    pub(crate) fn list(&self, tree: Option<&str>) -> Option<String> {
        let trees = &self.now.as_ref()?.running.trees;
        let found = match tree {
            Some(name) => trees.iter().find(|own| own.section.name == name),
            None if trees.len() == 1 => trees.first(),
            None => None,
        };
        found.map(|tree| tree.list.csv())
    }

    /// A list that has become shorter by more than a tenth, in words.
    pub(crate) fn shrinks(&self, config: &RouterConfig) -> Option<String> {
        let running = &self.now.as_ref()?.running.trees;
        config.trees.iter().find_map(|tree| {
            let name = &tree.section.name;
            let known = running.iter().find(|own| own.section.name == *name)?;
            let (was, is) = (known.list.subscribers(), tree.list.subscribers());
            (is * 10 < was * 9).then(|| {
                format!("the list of tree {name} has {is} subscribers, where it had {was}")
            })
        })
    }

    /// Nothing changes while something waits to be confirmed: the undoing would take it along.
    pub(crate) fn refuse_while_waiting(&self) -> Result<(), ConfirmError> {
        let left = |waiting: &Waiting| {
            waiting.left().map_or_else(String::new, |left| format!(" ({} s left)", left.as_secs()))
        };
        self.waiting.as_ref().map_or(Ok(()), |waiting| Err(ConfirmError::Waits(left(waiting))))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What is there since the start waits for its confirmation.
pub(crate) fn start(shared: &Shared) -> Receiver<()> {
    let (confirm, confirmed) = channel();
    lock(&shared.applied).waiting = Some(Waiting { confirm, file: None, until: None });
    confirmed
}

/// Makes the router as `config`, which `file` says; if `within` is given, as it was before when
/// that time is over without a confirmation, what was changed beside files included.
pub(crate) fn reload(
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
    peer: &Peer,
    file: String,
    config: RouterConfig,
    within: Option<Duration>,
) -> Result<Changes, ConfirmError> {
    // Before the lock: to look a name up may take its time.
    let by = Some(peer.to_string());
    let mut applied = lock(&shared.applied);
    applied.refuse_while_waiting()?;
    if within.is_some_and(|within| within > LONGEST || within.is_zero()) {
        return Err(ConfirmError::TooLong);
    }
    let mut changes = applied.diff(file.clone(), &config);
    target.send(Command::Reload(Box::new(config.clone())))?;
    *lock(&shared.classes) = names(&config);
    let state = State { file: Some(file.clone()), running: config.clone(), said: config };
    let before = applied.now.replace(state);
    applied.files += 1;
    applied.undoing = false;
    changes.undone_in_ms = within.map(millis);
    changes.by = by;
    target.changed(&changes);
    if let (Some(within), Some(before)) = (within, before) {
        let (confirm, confirmed) = channel();
        let (shared, target) = (Arc::clone(shared), Arc::clone(target));
        thread::Builder::new()
            .name("confirm".to_owned())
            .spawn(move || wait(&confirmed, within, &shared, &*target, before))
            .map_err(ConfirmError::Unwatched)?;
        let until = Instant::now().checked_add(within);
        applied.waiting = Some(Waiting { confirm, file: Some(file), until });
    }
    Ok(changes)
}

/// Changes something beside files.
pub(crate) fn change(
    shared: &Shared,
    target: &dyn Target,
    peer: &Peer,
    change: &Change,
) -> Result<Changes, ConfirmError> {
    let by = Some(peer.to_string());
    let mut applied = lock(&shared.applied);
    applied.refuse_while_waiting()?;
    if applied.undoing {
        return Err(ConfirmError::Undoing);
    }
    target.send(Command::Change(change.clone()))?;
    let mut changes = Changes { by, ..Changes::default() };
    if let Some(now) = &mut applied.now {
        match now.running.changed(change) {
            Ok(running) => {
                changes.changes = diff(&now.running, &running);
                now.running = running;
            }
            // The router knows more than its files say: forwarders from etcd.
            Err(why) => changes.changes.push(format!("done, and in no file ({why})")),
        }
    }
    if !changes.changes.is_empty() {
        target.changed(&changes);
    }
    Ok(changes)
}

/// Changes a subscriber; what it was before comes back after `for_ms`, unless it was changed again.
pub(crate) fn subscriber(
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
    change: &SubscriberChange,
    by: &dyn Display,
    for_ms: Option<u64>,
) -> Result<Changes, ConfirmError> {
    let by = Some(by.to_string());
    let mut applied = lock(&shared.applied);
    applied.refuse_while_waiting()?;
    if applied.undoing {
        return Err(ConfirmError::Undoing);
    }
    let Some(now) = &mut applied.now else { return Err(CommandError::Stopped.into()) };
    let config = now.running.with_subscriber(change)?;
    let changed = diff(&now.running, &config);
    let mut changes = Changes { changes: changed, by, ..Changes::default() };
    target.send(Command::Reload(Box::new(config.clone())))?;
    let before = std::mem::replace(&mut now.running, config);
    let within = for_ms.map(Duration::from_millis);
    if let (Some(within), SubscriberChange::Set { name, fields }) = (within, change) {
        let back = before.fields_of(name, fields);
        let stays = now.running.fields_of(name, fields);
        let (shared, target, name) = (Arc::clone(shared), Arc::clone(target), name.clone());
        thread::Builder::new()
            .name("boost".to_owned())
            .spawn(move || {
                thread::sleep(within);
                end_boost(&shared, &target, name, &stays, back);
            })
            .map_err(ConfirmError::Unwatched)?;
        changes.changes.push(format!("until {} s are over", within.as_secs()));
    }
    target.changed(&changes);
    Ok(changes)
}

/// What was set for a while becomes what it was, if it still is what it was set to.
fn end_boost(
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
    name: String,
    set: &[(String, String)],
    fields: Vec<(String, String)>,
) {
    loop {
        let running = lock(&shared.applied).now.as_ref().map(|now| now.running.clone());
        let Some(running) = running.filter(|running| running.fields_of(&name, set) == set) else {
            return;
        };
        drop(running);
        let change = SubscriberChange::Set { name: name.clone(), fields: fields.clone() };
        match subscriber(shared, target, &change, &"the end of a boost", None) {
            // Something waits to be confirmed: after that.
            Err(ConfirmError::Waits(_) | ConfirmError::Undoing) => thread::sleep(RETRY),
            _ => return,
        }
    }
}

fn wait(
    confirmed: &Receiver<()>,
    within: Duration,
    shared: &Shared,
    target: &dyn Target,
    before: State,
) {
    if confirmed.recv_timeout(within) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let mut applied = lock(&shared.applied);
    // Between the time and the lock a confirmation may have come.
    if confirmed.try_recv().is_ok() || applied.waiting.take().is_none() {
        return;
    }
    let files = applied.files;
    let mut told = false;
    loop {
        match target.send(Command::Reload(Box::new(before.running.clone()))) {
            Ok(_) => {
                *lock(&shared.classes) = names(&before.running);
                applied.now = Some(before);
                applied.files += 1;
                applied.undoing = false;
                return target.undone(Ok(()));
            }
            Err(error) if !told => target.undone(Err(error)),
            Err(_) => {}
        }
        told = true;
        applied.undoing = true;
        // What it needs is missing, an interface perhaps. It is undone as soon as it can be, unless
        // somebody reloads another file meanwhile.
        drop(applied);
        thread::sleep(RETRY);
        applied = lock(&shared.applied);
        if applied.files != files {
            return;
        }
    }
}

/// Keeps the change that waits; says which, and how much time was left.
pub(crate) fn confirm(
    shared: &Shared,
    target: &dyn Target,
    peer: &Peer,
) -> Result<Changes, ConfirmError> {
    let waiting = lock(&shared.applied).waiting.take().ok_or(ConfirmError::NothingWaits)?;
    // The waiting thread has at most just been told that the time is over, and finds that nothing
    // waits any more.
    let _ = waiting.confirm.send(());
    let undone_in_ms = waiting.left().map(millis);
    let by = Some(peer.to_string());
    target.confirmed(peer);
    Ok(Changes { file: waiting.file, undone_in_ms, by, ..Changes::default() })
}

/// Why a change was not made, or not confirmed.
#[derive(Debug, Error)]
pub(crate) enum ConfirmError {
    #[error("{0}")]
    Router(#[from] CommandError),
    #[error("{0}")]
    Subscriber(#[from] SubscriberChangeError),
    #[error("a change waits to be confirmed (`evenkeel ctl confirm`) or undone{0}: wait for that")]
    Waits(String),
    #[error(
        "a change that nobody confirmed cannot be undone yet, which is tried each second: wait for \
         that, or reload a file"
    )]
    Undoing,
    #[error("a change waits for its confirmation 1 ms to {} s", LONGEST.as_secs())]
    TooLong,
    #[error("it is in force, but will not be undone by itself: {0}")]
    Unwatched(io::Error),
    #[error("no change waits to be confirmed: it is confirmed, undone, or was made without a time")]
    NothingWaits,
}

pub(crate) fn names(config: &RouterConfig) -> Vec<String> {
    config.class_names().into_iter().map(str::to_owned).collect()
}
