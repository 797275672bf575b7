//! Asking a router in another process.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_router::snapshot::{BusyFlow, FlowSnapshot, NodeSnapshot};
use evenkeel_router::watch::Sightings;
use evenkeel_router::{NodeQuery, Snapshot};

use crate::protocol::{Answer, Changes, JournalLine, PROTOCOL, Request, Running, Version};

/// How long an answer may take: more than the router itself waits for its worker.
const ANSWER: Duration = Duration::from_secs(30);
/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// A connection to a router's control socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No router listens there.
    #[error("no router listens at {path}: {source}", path = path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or no answer came in time.
    #[error("the router at {path} did not answer: {source}", path = path.display())]
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
    /// The router is of another version.
    #[error("the router at {path} speaks {theirs}, this program {ours}: use programs of one \
             version", path = path.display())]
    OtherVersion {
        /// The socket.
        path: PathBuf,
        /// The router's version, in words.
        theirs: String,
        /// This program's.
        ours: Version,
    },
}

impl ClientError {
    /// The exit code a command should end with: 2 for a refused value, 3 for a socket that this
    /// user may not open, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 2,
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 3,
            Self::Connect { .. }
            | Self::Io { .. }
            | Self::Garbled { .. }
            | Self::OtherVersion { .. } => 1,
        }
    }
}

impl Client {
    /// Connects; gives up on an answer after 30 s: with a million routes workers take seconds to
    /// take the place of others.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let open = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.set_write_timeout(Some(ANSWER))?;
            Ok(stream)
        };
        let stream =
            open().map_err(|source| ClientError::Connect { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Connects, trying again until `patience` is over: for a router that is just being started.
    ///
    /// # Errors
    /// The last [`ClientError::Connect`].
    pub fn connect_within(path: &Path, patience: Duration) -> Result<Self, ClientError> {
        let end = Instant::now() + patience;
        loop {
            match Self::connect(path) {
                Err(_) if Instant::now() + RETRY < end => thread::sleep(RETRY),
                outcome => return outcome,
            }
        }
    }

    /// The router's version, if this program understands it.
    ///
    /// # Errors
    /// [`ClientError::OtherVersion`] if it does not; any other [`ClientError`].
    pub fn version(&mut self) -> Result<Version, ClientError> {
        let path = self.path.clone();
        let other =
            |theirs| ClientError::OtherVersion { path: path.clone(), theirs, ours: Version::own() };
        match self.ask(&Request::Version) {
            Ok(Answer::Version(version)) if version.protocol == PROTOCOL => Ok(version),
            Ok(Answer::Version(version)) => Err(other(version.to_string())),
            // Routers that know no versions say that they do not know the request.
            Err(ClientError::Refused(text)) if text.contains("unknown variant `version`") => {
                Err(other("an older control protocol, which tells no version".to_owned()))
            }
            Ok(_) => Err(self.garbled("no version in it")),
            Err(error) => Err(error),
        }
    }

    /// Every counter.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn show(&mut self) -> Result<Snapshot, ClientError> {
        match self.ask(&Request::Show)? {
            Answer::Ok(Some(snapshot)) => Ok(*snapshot),
            _ => Err(self.garbled("no counters in it")),
        }
    }

    /// What happened to a flow at every link with admission, or only at `link`: sentences, one a
    /// line.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn explain(&mut self, flow: &str, link: Option<&str>) -> Result<String, ClientError> {
        match self
            .ask(&Request::Explain { flow: flow.to_owned(), link: link.map(str::to_owned) })?
        {
            Answer::Text(text) => Ok(text),
            _ => Err(self.garbled("no sentences in it")),
        }
    }

    /// The protected flows of every link with admission, or only of `link`, busiest first, at most
    /// `top`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn flows(
        &mut self,
        top: usize,
        link: Option<&str>,
    ) -> Result<Vec<FlowSnapshot>, ClientError> {
        match self.ask(&Request::Flows { top, link: link.map(str::to_owned) })? {
            Answer::Flows(flows) => Ok(flows),
            _ => Err(self.garbled("no flows in it")),
        }
    }

    /// What is known of subscribers and nodes of trees.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn nodes(&mut self, query: NodeQuery) -> Result<Vec<NodeSnapshot>, ClientError> {
        match self.ask(&Request::Nodes { query })? {
            Answer::Nodes(nodes) => Ok(nodes),
            _ => Err(self.garbled("no nodes in it")),
        }
    }

    /// The list of a tree as CSV; without a name, of the only one.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn subscribers(&mut self, tree: Option<&str>) -> Result<String, ClientError> {
        match self.ask(&Request::Subscribers { tree: tree.map(str::to_owned) })? {
            Answer::Text(text) => Ok(text),
            _ => Err(self.garbled("no list in it")),
        }
    }

    /// Changes a knob. `class` for knobs of a class.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the valid range when the router does not take it.
    pub fn set(
        &mut self,
        link: &str,
        knob: &str,
        class: Option<&str>,
        value: &str,
    ) -> Result<(), ClientError> {
        self.send(&Request::Set {
            link: link.to_owned(),
            knob: knob.to_owned(),
            class: class.map(str::to_owned),
            value: value.to_owned(),
        })
    }

    /// Sends a request whose answer says no more than that it is done.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        self.ask(request).map(drop)
    }

    /// Sends a request that changes the router, or asks what would change; says what.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn change(&mut self, request: &Request) -> Result<Changes, ClientError> {
        match self.ask(request)? {
            Answer::Changes(changes) => Ok(changes),
            _ => Err(self.garbled("no changes in it")),
        }
    }

    /// The flows that send most by each link, from a sample, busiest first.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn busiest(&mut self, top: usize) -> Result<Vec<BusyFlow>, ClientError> {
        match self.ask(&Request::Busiest { top })? {
            Answer::Busiest(flows) => Ok(flows),
            _ => Err(self.garbled("no flows in it")),
        }
    }

    /// What was seen of the packets that are [watched](Request::Watch) since this was asked last.
    ///
    /// # Errors
    /// Any [`ClientError`]; refused: another has taken over, or nobody asked for too long.
    pub fn sightings(&mut self, id: u64) -> Result<Sightings, ClientError> {
        match self.ask(&Request::Sightings { id })? {
            Answer::Sightings(seen) => Ok(seen),
            _ => Err(self.garbled("no sightings in it")),
        }
    }

    /// The lines of its log after a number: what it was that changed, and who changed it.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn journal(&mut self, after: u64) -> Result<Vec<JournalLine>, ClientError> {
        match self.ask(&Request::Journal { after })? {
            Answer::Journal(lines) => Ok(lines),
            _ => Err(self.garbled("no journal in it")),
        }
    }

    /// The configuration that runs.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn running(&mut self) -> Result<Running, ClientError> {
        match self.ask(&Request::Running)? {
            Answer::Running(running) => Ok(*running),
            _ => Err(self.garbled("no configuration in it")),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let mut line = serde_json::to_string(request).expect("a request is plain data");
        line.push('\n');
        let mut reply = String::new();
        let mut talk = |stream: &mut BufReader<UnixStream>| {
            stream.get_mut().write_all(line.as_bytes())?;
            match stream.read_line(&mut reply)? {
                0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
                _ => Ok(()),
            }
        };
        talk(&mut self.stream)
            .map_err(|source| ClientError::Io { path: self.path.clone(), source })?;
        match serde_json::from_str(&reply) {
            Ok(Answer::Error(text)) => Err(ClientError::Refused(text)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.garbled(&error.to_string())),
        }
    }

    fn garbled(&self, text: &str) -> ClientError {
        ClientError::Garbled { path: self.path.clone(), text: text.to_owned() }
    }
}
