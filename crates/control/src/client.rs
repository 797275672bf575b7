//! Asking a router in another process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_router::Snapshot;

use crate::protocol::Request;

/// A connection to a router's control socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
}

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No router listens there.
    #[error("no router listens at {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or no answer came in time.
    #[error("the router at {path} did not answer: {source}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The router refused; nothing changed. The text has the valid range.
    #[error("{0}")]
    Refused(String),
    /// The answer was not understood: another version, or no router.
    #[error("the answer of {path} was not understood: {text}", path = path.display())]
    Garbled {
        /// The socket.
        path: PathBuf,
        /// What was wrong.
        text: String,
    },
}

impl Client {
    /// Connects; gives up on an answer after 10 s.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        todo!()
    }

    /// Connects, trying again until `patience` is over: for a router that is just being started.
    ///
    /// # Errors
    /// The last [`ClientError::Connect`].
    pub fn connect_within(path: &Path, patience: Duration) -> Result<Self, ClientError> {
        todo!()
    }

    /// Every counter.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn show(&mut self) -> Result<Snapshot, ClientError> {
        todo!()
    }

    /// Changes a knob. `class` for knobs of a class.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the valid range when the router does not take it.
    pub fn set(&mut self, link: &str, knob: &str, class: Option<&str>, value: &str) -> Result<(), ClientError> {
        self.send(&Request::Set {
            link: link.to_owned(),
            knob: knob.to_owned(),
            class: class.map(str::to_owned),
            value: value.to_owned(),
        })
    }

    /// Sends a request that is answered by "done".
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        todo!()
    }
}
