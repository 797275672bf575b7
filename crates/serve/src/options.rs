//! What is served and where, and why it may not be.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_history::HistoryError;
use thiserror::Error;

use crate::hook::Hook;
use crate::token::Token;

/// Where it listens unless told.
pub const LISTEN: &str = "127.0.0.1:7717";
/// Windows that are remembered.
pub const HISTORY: Duration = Duration::from_secs(3_600);

/// A router that is watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Watched {
    /// What it is called here: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its control socket, or better that for monitoring.
    pub socket: PathBuf,
}

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The routers.
    pub routers: Vec<Watched>,
    /// The address; port 0: one that is free.
    pub listen: SocketAddr,
    /// How often counters are read.
    pub interval: Duration,
    /// Names of this machine that browsers may ask for. Addresses and `localhost` always are; any
    /// other name could be a stranger's page that leads its visitors' browsers here.
    pub hosts: Vec<String>,
    /// The folder in which each router has a file of its past, and how large each is; `None`: the
    /// last hour is remembered, in memory.
    pub history: Option<(PathBuf, u64)>,
    /// What is run for each alarm.
    pub hook: Option<Hook>,
    /// What who changes something must show; `None`: nobody can. The routers' sockets must be
    /// control sockets then.
    pub token: Option<Token>,
}

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Two routers have one name.
    #[error("two routers are called {0}: give each a name of its own, NAME=SOCKET")]
    Twice(String),
    /// A name cannot stand in a path.
    #[error("{0:?} cannot be a router's name: letters, digits, `-`, `_` and `.`, up to 64")]
    BadName(String),
    /// The past cannot be kept.
    #[error("the history: {0}")]
    History(#[from] HistoryError),
    /// No thread, no descriptor.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Each can stand in a path, and none stands there twice.
pub(crate) fn check_names(routers: &[Watched]) -> Result<(), ServeError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    for (at, Watched { name, .. }) in routers.iter().enumerate() {
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(ServeError::BadName(name.clone()));
        }
        if routers[..at].iter().any(|other| other.name == *name) {
            return Err(ServeError::Twice(name.clone()));
        }
    }
    Ok(())
}

/// Of a router that is not there.
#[cfg(test)]
pub(crate) fn edge() -> Options {
    Options {
        routers: vec![Watched { name: "edge".into(), socket: "/nowhere".into() }],
        listen: "127.0.0.1:0".parse().unwrap(),
        interval: Duration::from_secs(1),
        hosts: Vec::new(),
        history: None,
        hook: None,
        token: None,
    }
}
