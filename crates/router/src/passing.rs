//! A router goes on in another process, of a newer program perhaps: nothing is lost, and nothing
//! passes unshaped.
//!
//! ```text
//! new process: ask ─▶ listen ─▶ tables, pipelines, buffers ─▶ go ─ ─ ─ ─ ─ ─ ─ ▶ taken ─▶ forward ─▶ bye
//! old process:         connect, say what it is ─▶ (forwards on)   stop, pass on ─┘       forget ─▶ wait for bye, end
//!                                                                 └── nobody forwards ──────┘
//! ```
//!
//! While nobody forwards, what comes in waits in the rings of the sockets, which are the same
//! before and after: sockets, links of programs and claims go over as descriptors, packets as
//! bytes ([`Parcel`]). Programs are replaced in their links, so that each frame meets the old one
//! or the new one. Until the new process has said that it has taken everything the old one can go
//! on, and does if it hears nothing.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_ports::PortError;
use evenkeel_ports::parcel::Parcel;

use crate::error::StartError;

/// Another number where parcels are made otherwise than before.
const FORMAT: u64 = 1;
/// How long the running router may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the new process may take to build its tables.
pub(crate) const BUILDING: Duration = Duration::from_secs(120);
/// How long the new process may take to say that it has what it needs. Beyond, the kernel
/// forwards: whoever waits longer for a router that is not there makes it worse.
pub(crate) const TAKING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// What a running router is, as far as another one must be the same to take over from it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Likeness {
    workers: u64,
    /// Name, interface and way of attachment of each port, in order.
    ports: Vec<[String; 3]>,
}

impl Likeness {
    pub(crate) fn of(config: &RouterConfig) -> Self {
        let port = |port: &evenkeel_config::PortConfig| {
            let attach = format!("{:?} {}", port.attach(), port.own_traffic);
            [port.name.clone(), port.interface.clone(), attach]
        };
        Self {
            workers: config.router.workers.into(),
            ports: config.ports.iter().map(port).collect(),
        }
    }

    pub(crate) fn ports(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn put(&self) -> Parcel {
        let mut parcel = Parcel::default();
        parcel.put(FORMAT);
        parcel.put(self.workers);
        parcel.put(self.ports.len() as u64);
        let words = self.ports.iter().flatten();
        words.for_each(|word| parcel.put_bytes(word.as_bytes()));
        parcel
    }

    fn take(parcel: &mut Parcel) -> Result<Self, PortError> {
        if parcel.take()? != FORMAT {
            return Err(PortError::NotPassed("the versions pass on other things"));
        }
        let workers = parcel.take()?;
        let ports = (0..parcel.take()?)
            .map(|_| Ok([parcel.take_text()?, parcel.take_text()?, parcel.take_text()?]))
            .collect::<Result<_, PortError>>()?;
        Ok(Self { workers, ports })
    }
}

/// A running router that waits for this process to take over from it.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    is: Likeness,
    /// By worker, the memory of its buffers.
    memory: Vec<Parcel>,
}

impl Predecessor {
    /// Has a running router come to a socket in `folder`: `ask` is given the path, asks the router
    /// at its control socket, and returns when that has answered.
    ///
    /// # Errors
    /// What `ask` says, or the router does not come.
    pub fn meet(
        folder: &Path,
        ask: impl FnOnce(&Path) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, StartError> {
        let failed = |source: io::Error| StartError::System {
            what: format!("meeting the running router in {}", folder.display()),
            source,
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let place = Place(folder.join(format!("pass-on-{}", std::process::id())));
        let _ = std::fs::remove_file(&place.0);
        let listener = UnixListener::bind(&place.0).map_err(failed)?;
        std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o600))
            .map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (answer, answered) = sync_channel(1);
        let path = place.0.clone();
        std::thread::Builder::new()
            .name("ask".to_owned())
            .spawn(move || drop(answer.send(ask(&path))))
            .map_err(failed)?;
        let stream = accept(&listener, &answered)?;
        stream.set_nonblocking(false).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut parcel = Parcel::receive(&stream).map_err(failed)?;
        let is = Likeness::take(&mut parcel).map_err(not_taken)?;
        let memory = (0..is.workers).map(|_| Parcel::receive(&stream));
        let memory = memory.collect::<Result<_, _>>().map_err(failed)?;
        Ok(Self { stream, is, memory })
    }

    /// The memory of a worker's buffers.
    pub(crate) fn memory(&mut self, worker: usize) -> Parcel {
        self.memory.get_mut(worker).map(std::mem::take).unwrap_or_default()
    }

    /// Whether this configuration can take over from it.
    pub(crate) fn check(&self, config: &RouterConfig) -> Result<(), StartError> {
        if config.cluster.is_some() || config.balancer.is_some() {
            let why = "the members of its cluster must learn that it is another one";
            return Err(StartError::NotTakenOver(why.to_owned()));
        }
        if self.is == Likeness::of(config) {
            return Ok(());
        }
        Err(StartError::NotTakenOver("the file has other ports or workers".to_owned()))
    }

    /// It stops, and gives what each of its workers had.
    pub(crate) fn go(&self, workers: usize) -> Result<Vec<Parcel>, StartError> {
        Parcel::default().send(&self.stream).map_err(lost)?;
        (0..workers).map(|_| Parcel::receive(&self.stream).map_err(lost)).collect()
    }

    /// From here on it does not go on.
    pub(crate) fn taken(&self) -> Result<(), StartError> {
        Parcel::default().send(&self.stream).map_err(lost)
    }
}

/// The file of a socket, removed when dropped.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn accept(
    listener: &UnixListener,
    answered: &Receiver<Result<(), String>>,
) -> Result<UnixStream, StartError> {
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(lost(error)),
        }
        match answered.try_recv() {
            Ok(Err(why)) => return Err(StartError::NotTakenOver(why)),
            Ok(Ok(())) | Err(TryRecvError::Disconnected) => {
                return Err(StartError::NotTakenOver("it has not come".to_owned()));
            }
            Err(TryRecvError::Empty) if begin.elapsed() > PATIENCE => {
                return Err(StartError::NotTakenOver("it does not answer".to_owned()));
            }
            Err(TryRecvError::Empty) => std::thread::sleep(LOOK),
        }
    }
}

pub(crate) fn lost(error: io::Error) -> StartError {
    StartError::NotTakenOver(format!("the running router has broken off: {error}"))
}

pub(crate) fn not_taken(error: PortError) -> StartError {
    StartError::NotTakenOver(error.to_string())
}
