//! `[membership]`: what etcd says is laid over the file, whichever of both is new.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use evenkeel_config::RouterConfig;
use evenkeel_control::{Changes, JournalLine, Peer, Target};
use evenkeel_membership::{MergeError, Merger, lock};
use evenkeel_router::{Command, CommandError, Handle, Reply};

use crate::failure::Failure;

/// Refuses a file that asks for what this build does not have.
pub(crate) fn built(file: &Path, config: &RouterConfig) -> Result<(), Failure> {
    if config.membership.is_none() || evenkeel_membership::BUILT_IN {
        return Ok(());
    }
    let text = "[membership]: this evenkeel was built without etcd: build it with --features etcd \
                (Debian packages protobuf-compiler and \
                libprotobuf-dev), or take the section out: members and weights are then the file's";
    Err(Failure::new(3, format!("{}: {text}", file.display())))
}

/// The router, behind what merges.
pub(crate) struct Merged {
    handle: Arc<Handle>,
    merger: Arc<Mutex<Merger>>,
}

impl Merged {
    pub(crate) fn new(handle: &Arc<Handle>, config: &RouterConfig) -> Arc<Self> {
        Arc::new(Self { handle: Arc::clone(handle), merger: Merger::shared(config) })
    }

    /// Follows etcd, if the file says so, until what this returns is dropped.
    #[cfg(feature = "etcd")]
    pub(crate) fn start(
        &self,
        config: &RouterConfig,
    ) -> io::Result<Option<evenkeel_membership::Client>> {
        let Some(section) = &config.membership else { return Ok(None) };
        let handle = Arc::clone(&self.handle);
        let send = move |config: &RouterConfig| {
            let reload = Command::Reload(Box::new(config.clone()));
            handle.send(reload).map(drop)
        };
        let handle = Arc::clone(&self.handle);
        let lives = move || handle.snapshot().is_ok();
        let report = |text: &str| tracing::warn!("{text}");
        evenkeel_membership::Client::start(
            section,
            Arc::clone(&self.merger),
            Box::new(send),
            Box::new(lives),
            report,
        )
        .map(Some)
    }

    /// Nothing to follow: [`built`] has seen to that.
    #[cfg(not(feature = "etcd"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in the build with etcd")]
    pub(crate) fn start(
        &self,
        _config: &RouterConfig,
    ) -> io::Result<Option<std::convert::Infallible>> {
        Ok(None)
    }
}

impl Merged {
    /// The router's answer; what its program knows besides is added.
    fn ask(&self, command: Command) -> Result<Reply, CommandError> {
        let mut reply = self.handle.send(command)?;
        if let Reply::Snapshot(snapshot) = &mut reply {
            snapshot.log_lost = crate::log::lost();
        }
        Ok(reply)
    }
}

impl Target for Merged {
    fn pass_on(&self, place: &Path) -> Result<(), CommandError> {
        self.handle.pass_on(place)
    }

    fn changed(&self, changes: &Changes) {
        tracing::info!("{}", crate::changes::told(changes));
    }

    fn confirmed(&self, peer: &Peer) {
        tracing::info!("the change that waited was confirmed, by {peer}");
    }

    fn refused(&self, peer: &Peer, why: &str) {
        tracing::warn!("refused, and nothing changed: {why}; asked by {peer}");
    }

    fn journal(&self, after: u64) -> Option<Vec<JournalLine>> {
        Some(crate::log::journal(after))
    }

    fn undone(&self, result: Result<(), CommandError>) {
        match result {
            Ok(()) => tracing::warn!("nobody confirmed the change: it was undone"),
            Err(error) => {
                tracing::error!(
                    "nobody confirmed the change, and it cannot be undone yet, which is tried each \
                     second: {error}"
                );
            }
        }
    }

    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        let config = match command {
            Command::Reload(config) => config,
            // Under the lock: what etcd says meanwhile comes after it, and keeps it.
            Command::Change(change) => {
                let mut merger = lock(&self.merger);
                let reply = self.ask(Command::Change(change.clone()))?;
                merger.changed(&change);
                return Ok(reply);
            }
            command => return self.ask(command),
        };
        let mut apply = |merged: &RouterConfig| {
            self.handle.send(Command::Reload(Box::new(merged.clone()))).map(drop)
        };
        match lock(&self.merger).rebase(&config, &mut apply) {
            Ok(()) => Ok(Reply::Done),
            Err(MergeError::Apply(error)) => Err(error),
            Err(MergeError::Overlay(error)) => Err(error.into()),
            Err(MergeError::Fixed(what)) => Err(CommandError::NeedsRestart {
                what,
                why: "the client of etcd was started for it",
            }),
        }
    }
}
