//! Starting and stopping a router.

use std::path::Path;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_ports::sys;

use crate::command::{Command, Reply};
use crate::error::{CommandError, StartError, StopError};
use crate::memory::Footprint;
use crate::options::{Options, with_seed};
use crate::passing::Predecessor;
use crate::pipeline::WorkerShares;
use crate::snapshot::Snapshot;
use crate::workers::WorkerPool;

/// A router that can be started.
#[derive(Debug)]
pub struct Router;

impl Router {
    /// Opens the ports, mirrors the kernel's tables and starts the worker. Returns once packets are
    /// forwarded.
    ///
    /// # Errors
    /// [`StartError`]; whatever had been changed was put back.
    pub fn start(config: RouterConfig, options: Options) -> Result<Handle, StartError> {
        Self::begin(config, options, None)
    }

    /// The same, and takes over from a router of another process: nothing is lost, and nothing
    /// passes unshaped. That process ends once [`Handle::release_predecessor`] is called.
    ///
    /// # Errors
    /// As [`Router::start`]; and [`StartError::NotTakenOver`]: the running router goes on.
    pub fn take_over(
        config: RouterConfig,
        options: Options,
        predecessor: Predecessor,
    ) -> Result<Handle, StartError> {
        predecessor.check(&config)?;
        if !options.captures.is_empty() {
            let why = "frames are to be written to a file from the start".to_owned();
            return Err(StartError::NotTakenOver(why));
        }
        Self::begin(config, options, Some(predecessor))
    }

    fn begin(
        config: RouterConfig,
        options: Options,
        predecessor: Option<Predecessor>,
    ) -> Result<Handle, StartError> {
        Footprint::of(&config).reserve()?;
        let shares = WorkerShares::for_workers(&config)?;
        if let (Some(cpu), workers @ 2..) = (options.cpu, shares.len()) {
            return Err(StartError::OneCpu { cpu, workers });
        }
        let config = with_seed(config);
        let timeout = options.reply_timeout;
        let pool = WorkerPool::start(config, options, shares, predecessor)?;
        Ok(Handle { pool, timeout })
    }
}

/// A running router. Dropping it stops the router.
///
/// Can be shared between threads: every method takes `&self`.
#[derive(Debug)]
pub struct Handle {
    pool: WorkerPool,
    timeout: Duration,
}

impl Handle {
    /// Has every worker carry out a command between two bursts, and waits for their answers.
    ///
    /// Whether it can be carried out depends on the configuration alone, which all workers share:
    /// the first worker is asked first, and if it refuses, none has changed anything. For a
    /// [`Command::Reload`] that changes ports, classes, workers or buffers, new workers take over
    /// from the present ones; if they cannot have what they need, the present ones go on.
    ///
    /// # Errors
    /// The router refuses the command, has stopped, or did not answer within
    /// [`Options::reply_timeout`].
    pub fn send(&self, command: Command) -> Result<Reply, CommandError> {
        self.pool.send(command, self.timeout)
    }

    /// Every counter, at one instant.
    ///
    /// # Errors
    /// The router has stopped or does not answer.
    pub fn snapshot(&self) -> Result<Snapshot, CommandError> {
        match self.send(Command::Show)? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            _ => Err(CommandError::Stopped),
        }
    }

    /// Whether all workers are still running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.pool.is_running()
    }

    /// For how long the worker that has been silent longest has given no sign of life.
    #[must_use]
    pub fn silence(&self) -> Nanos {
        sys::monotonic_now().saturating_sub(self.pool.oldest_beat())
    }

    /// Passes everything on to the process that listens at `place`, which forwards from then on:
    /// this router has stopped, and changed nothing at its interfaces.
    ///
    /// # Errors
    /// The other process does not take it, or something cannot be passed on; the router goes on.
    pub fn pass_on(&self, place: &Path) -> Result<(), CommandError> {
        self.pool.pass_on(place)
    }

    /// Whether another process goes on with what this router had.
    #[must_use]
    pub fn has_passed_on(&self) -> bool {
        self.pool.has_passed_on()
    }

    /// Waits until that process allows this one to end.
    pub fn await_successor(&self, at_most: Duration) {
        self.pool.await_successor(at_most);
    }

    /// The process that this router took over from may end.
    pub fn release_predecessor(&self) {
        self.pool.release_predecessor();
    }

    /// Stops receiving, drops and counts what is queued, restores the interfaces, and returns the
    /// last counters. Later calls return the same.
    ///
    /// # Errors
    /// A worker had ended with an error, or panicked.
    pub fn stop(&self) -> Result<Snapshot, StopError> {
        self.pool.stop().map_err(StopError::Worker)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.stop();
    }
}
