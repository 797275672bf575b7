//! A change that undoes itself unless it is confirmed: for one that may cut off its own operator.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_router::{Command, CommandError, lock};
use thiserror::Error;

use crate::server::{Shared, Target};

/// How long a change may wait for its confirmation: longer is another change.
pub(crate) const LONGEST: Duration = Duration::from_secs(3_600);

/// Between two attempts to undo a change.
const RETRY: Duration = Duration::from_secs(1);

/// The file that the router was made as last, and the change that waits, if one does.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    config: Option<RouterConfig>,
    waiting: Option<Sender<()>>,
    /// Changes so far: what is to be undone is not undone any more after another.
    changes: u64,
}

impl Applied {
    pub(crate) fn started_as(config: &RouterConfig) -> Mutex<Self> {
        Mutex::new(Self { config: Some(config.clone()), waiting: None, changes: 0 })
    }

    /// Gives up what waits, without undoing it: the router stops.
    pub(crate) fn forget(&mut self) {
        self.waiting = None;
        self.changes += 1;
    }
}

/// What is there since the start waits for its confirmation.
pub(crate) fn start(shared: &Shared) -> Receiver<()> {
    let (confirm, confirmed) = channel();
    lock(&shared.applied).waiting = Some(confirm);
    confirmed
}

/// Makes the router as `config` says; if `within` is given, as it was before when that time is over
/// without a confirmation. Commands beside files (knobs, rates) are not remembered.
pub(crate) fn reload(
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
    config: RouterConfig,
    within: Option<Duration>,
) -> Result<(), ConfirmError> {
    let mut applied = lock(&shared.applied);
    if applied.waiting.is_some() {
        return Err(ConfirmError::Waits);
    }
    if within.is_some_and(|within| within > LONGEST || within.is_zero()) {
        return Err(ConfirmError::TooLong);
    }
    target.send(Command::Reload(Box::new(config.clone())))?;
    *lock(&shared.classes) = names(&config);
    let before = applied.config.replace(config);
    applied.changes += 1;
    if let (Some(within), Some(before)) = (within, before) {
        let (confirm, confirmed) = channel();
        let (shared, target) = (Arc::clone(shared), Arc::clone(target));
        thread::Builder::new()
            .name("confirm".to_owned())
            .spawn(move || wait(&confirmed, within, &shared, &*target, before))
            .map_err(ConfirmError::Unwatched)?;
        applied.waiting = Some(confirm);
    }
    Ok(())
}

fn wait(
    confirmed: &Receiver<()>,
    within: Duration,
    shared: &Shared,
    target: &dyn Target,
    before: RouterConfig,
) {
    if confirmed.recv_timeout(within) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let mut applied = lock(&shared.applied);
    // Between the time and the lock a confirmation may have come.
    if confirmed.try_recv().is_ok() || applied.waiting.take().is_none() {
        return;
    }
    let changes = applied.changes;
    let mut told = false;
    loop {
        match target.send(Command::Reload(Box::new(before.clone()))) {
            Ok(_) => {
                *lock(&shared.classes) = names(&before);
                applied.config = Some(before);
                applied.changes += 1;
                return target.undone(Ok(()));
            }
            Err(error) if !told => target.undone(Err(error)),
            Err(_) => {}
        }
        told = true;
        // What it needs is missing, an interface perhaps. It is undone as soon as it can be, unless
        // somebody changes something else meanwhile.
        drop(applied);
        thread::sleep(RETRY);
        applied = lock(&shared.applied);
        if applied.changes != changes {
            return;
        }
    }
}

/// Keeps the change that waits.
pub(crate) fn confirm(shared: &Shared) -> Result<(), ConfirmError> {
    let waiting = lock(&shared.applied).waiting.take().ok_or(ConfirmError::NothingWaits)?;
    // The waiting thread has at most just been told that the time is over, and finds that nothing
    // waits any more.
    let _ = waiting.send(());
    Ok(())
}

/// Why a file was not applied, or not confirmed.
#[derive(Debug, Error)]
pub(crate) enum ConfirmError {
    #[error("{0}")]
    Router(#[from] CommandError),
    #[error("a change waits to be confirmed (`evenkeel ctl confirm`) or undone: wait for that")]
    Waits,
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
