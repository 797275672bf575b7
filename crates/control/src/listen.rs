//! A Unix socket and those who are connected to it: a thread per client, bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use evenkeel_router::lock;
use nix::unistd::{Gid, Group, Uid, User};
use thiserror::Error;

use crate::protocol::Answer;

/// Clients served at the same time, of each socket; further ones are told so and hung up on.
pub const MAX_CLIENTS: usize = 32;
/// A client that has asked nothing for so long gives its place to another that comes.
pub const IDLE: Duration = Duration::from_secs(10);
/// How long a client may take to read its answer.
const WRITE: Duration = Duration::from_secs(5);

/// Why the server did not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Another router listens there.
    #[error("another router already listens at {path}: stop it, or give this one its own \
             socket", path = .0.display())]
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
    /// There is no such group.
    #[error(
        "there is no group {0:?}: make it (groupadd --system {0}), or name another as \
             monitor_group"
    )]
    NoSuchGroup(String),
    /// The socket may not be given to the group.
    #[error("cannot give {path} to the group {group}: {source}; the router's user must be in it \
             (SupplementaryGroups= of its unit) or be root", path = path.display())]
    Group {
        /// The socket.
        path: PathBuf,
        /// The group.
        group: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ServerError {
    /// The exit code a command should end with: 3 where permission is missing, else 2.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Io { source, .. } | Self::Group { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                3
            }
            Self::Io { .. }
            | Self::Group { .. }
            | Self::NoSuchGroup(_)
            | Self::InUse(_)
            | Self::NotASocket(_) => 2,
        }
    }
}

/// What answers a line of a client.
pub(crate) type Answering = dyn Fn(&[u8], &Peer) -> Answer + Send + Sync;

/// Who is at the other end of a socket, as the kernel says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Peer {
    /// The user and the process, as they were when it connected.
    pub id: Option<(u32, i32)>,
}

impl Peer {
    fn of(stream: &UnixStream) -> Self {
        let known = rustix::net::sockopt::socket_peercred(stream).ok();
        Self { id: known.map(|peer| (peer.uid.as_raw(), peer.pid.as_raw_nonzero().get())) }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((uid, pid)) = self.id else { return f.write_str("somebody") };
        let named = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = named.map_or_else(|| "a user without a name".to_owned(), |user| user.name);
        write!(f, "{name} (uid {uid}, process {pid})")
    }
}

/// What a socket is like.
pub(crate) struct Kind<'a> {
    /// Who may connect.
    pub(crate) mode: u32,
    /// The group that it is given to; the process's own otherwise.
    pub(crate) group: Option<&'a str>,
    /// Longest request, bytes.
    pub(crate) longest: u64,
    /// Names its threads.
    pub(crate) name: &'static str,
}

/// A socket that is listened at. Dropping it hangs up on all clients, once their current requests
/// are answered, and removes the socket.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    /// Device and inode of the socket: only our own is removed.
    identity: (u64, u64),
    clients: Arc<Clients>,
    socket: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
}

/// What the listening thread, the clients' threads and the owner share.
#[derive(Debug, Default)]
struct Clients {
    stopping: AtomicBool,
    connected: Mutex<BTreeMap<u64, Connected>>,
}

/// A client, and when it asked last.
#[derive(Debug)]
struct Connected {
    stream: UnixStream,
    asked: Instant,
}

impl Connected {
    fn hang_up(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Listener {
    /// Listens at `path`; missing folders are made, a socket left by a killed router is replaced.
    pub(crate) fn start(
        path: &Path,
        kind: &Kind<'_>,
        answering: Arc<Answering>,
    ) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let group = kind.group.map(group_of).transpose()?;
        remove_stale(path)?;
        let socket = Arc::new(UnixListener::bind(path).map_err(failed)?);
        // First to the group, then open for it: in between it is nobody's but the owner's.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        if let (Some(group), Some(name)) = (group, kind.group) {
            std::os::unix::fs::chown(path, None, Some(group.as_raw())).map_err(|source| {
                let _ = fs::remove_file(path);
                ServerError::Group { path: path.to_owned(), group: name.to_owned(), source }
            })?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(kind.mode)).map_err(failed)?;
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        let clients = Arc::<Clients>::default();
        let (name, longest) = (kind.name, kind.longest);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn({
                let (clients, socket) = (Arc::clone(&clients), Arc::clone(&socket));
                move || listen(name, longest, &socket, &clients, &answering)
            })
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            clients,
            socket,
            thread: Some(thread),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.clients.stopping.store(true, Ordering::SeqCst);
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
        for client in lock(&self.clients.connected).values() {
            let _ = client.stream.shutdown(Shutdown::Read);
        }
        // Wakes the listening thread out of `accept`, also where there is no descriptor left for a
        // connection to it.
        let woken = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

/// The group with this name, or this number.
fn group_of(name: &str) -> Result<Gid, ServerError> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    let known = Group::from_name(name).ok().flatten();
    known.map(|group| group.gid).ok_or_else(|| ServerError::NoSuchGroup(name.to_owned()))
}

/// Removes a socket without a listener.
fn remove_stale(path: &Path) -> Result<(), ServerError> {
    // Whoever listens there may take it away at any moment: a router that another one takes over
    // from does.
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| ServerError::Io { path: path.to_owned(), source }),
    };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return gone(Err(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ServerError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ServerError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            gone(fs::remove_file(path))
        }
        Err(error) => gone(Err(error)),
    }
}

fn listen(
    name: &str,
    longest: u64,
    socket: &UnixListener,
    clients: &Arc<Clients>,
    answering: &Arc<Answering>,
) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for id in 0u64.. {
        let accepted = socket.accept();
        if clients.stopping.load(Ordering::SeqCst) {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors or memory: let others finish instead of spinning.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if stream.set_write_timeout(Some(WRITE)).is_err() {
            continue;
        }
        if !make_room(clients) {
            let text = format!(
                "{MAX_CLIENTS} clients are connected, more are not served: try again later"
            );
            let _ = answer(&mut &stream, &Answer::Error(text));
            continue;
        }
        let Ok(copy) = stream.try_clone() else { continue };
        let connected = Connected { stream: copy, asked: Instant::now() };
        lock(&clients.connected).insert(id, connected);
        let (clients_too, answering) = (Arc::clone(clients), Arc::clone(answering));
        let spawned = thread::Builder::new().name(format!("{name}-{id}")).spawn(move || {
            // Ends when the client hangs up, breaks off, or the server stops.
            let _ = serve(id, longest, &stream, &clients_too, &*answering);
            lock(&clients_too.connected).remove(&id);
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(_) => drop(lock(&clients.connected).remove(&id)),
        }
    }
    for client in lock(&clients.connected).values() {
        let _ = client.stream.shutdown(Shutdown::Read);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Whether there is a place for another client. Where all are taken, the one that has asked nothing
/// for longest loses its own: forgotten connections do not keep an operator out.
fn make_room(clients: &Clients) -> bool {
    let mut connected = lock(&clients.connected);
    if connected.len() < MAX_CLIENTS {
        return true;
    }
    let oldest = connected.iter().min_by_key(|(_, client)| client.asked).map(|(id, _)| *id);
    let Some(id) = oldest.filter(|id| connected[id].asked.elapsed() >= IDLE) else { return false };
    connected.remove(&id).iter().for_each(Connected::hang_up);
    true
}

fn serve(
    id: u64,
    longest: u64,
    stream: &UnixStream,
    clients: &Clients,
    answering: &Answering,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    let peer = Peer::of(stream);
    loop {
        line.clear();
        let length = (&mut reader).take(longest + 1).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        if length as u64 > longest {
            // What follows cannot be told apart from the rest of this line: hang up.
            let text = format!("a request is longer than {longest} bytes");
            return answer(&mut &*stream, &Answer::Error(text));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some(client) = lock(&clients.connected).get_mut(&id) {
            client.asked = Instant::now();
        }
        answer(&mut &*stream, &answering(&line, &peer))?;
        if clients.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
    }
}

fn answer(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    out.write_all(&line)
}
