//! Answering requests: a thread per client, bounded, beside the worker.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_config::RouterConfig;
use evenkeel_router::{Command, CommandError, Reply};

/// What carries out commands: a router's handle, or a stand-in in tests.
pub trait Target: Send + Sync + 'static {
    /// Carries out a command and waits for the answer.
    ///
    /// # Errors
    /// Why it was not carried out; then nothing changed.
    fn send(&self, command: Command) -> Result<Reply, CommandError>;
}

impl Target for evenkeel_router::Handle {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        Self::send(self, command)
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another router listens there.
    #[error("another router already listens at {path}: stop it, or give this one its own socket", path = .0.display())]
    InUse(PathBuf),
    /// There is something there that is not a socket.
    #[error("{path} is not a socket: remove it, or choose another path", path = .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot listen at {path}: {source}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A running server. Dropping it stops it and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
}

impl Server {
    /// Listens at `path` (mode 0600; missing folders are made; a socket left by a killed router is replaced) and answers with `target`.
    /// `config` is what the router was started with: names of classes and links are looked up in it.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<T: Target>(path: &Path, config: &RouterConfig, target: Arc<T>) -> Result<Self, ServerError> {
        todo!()
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stops: no new clients, the present ones are hung up on, the socket is removed.
    pub fn stop(self) {}
}
