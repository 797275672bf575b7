//! Answering requests: a thread per client, bounded, beside the worker.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use evenkeel_config::{
    Change, ChangeError, ForwarderState, RouterConfig, parse_change, parse_fairdrop,
};
use evenkeel_core::packet::FlowKeyError;
use evenkeel_router::{Command, CommandError, Reply, lock};
use evenkeel_settings::{Diagnostics, key_line};
use thiserror::Error;

use crate::confirm::{self, Applied, ConfirmError, names};
use crate::protocol::{Answer, MAX_LINE, Request};

/// Clients served at the same time; further ones are told so and hung up on.
pub const MAX_CLIENTS: usize = 32;
/// A client that has asked nothing for so long gives its place to another that comes.
pub const IDLE: Duration = Duration::from_secs(10);
/// How long a client may take to read its answer.
const WRITE: Duration = Duration::from_secs(5);

/// What carries out commands: a router's handle, or a stand-in in tests.
pub trait Target: Send + Sync + 'static {
    /// Carries out a command and waits for the answer.
    ///
    /// # Errors
    /// Why it was not carried out; then nothing changed.
    fn send(&self, command: Command) -> Result<Reply, CommandError>;

    /// A change that was not confirmed in time was undone, or could not be.
    fn undone(&self, _result: Result<(), CommandError>) {}
}

impl Target for evenkeel_router::Handle {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        Self::send(self, command)
    }
}

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
}

impl ServerError {
    /// The exit code a command should end with: 3 where permission is missing, else 2.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 3,
            Self::Io { .. } | Self::InUse(_) | Self::NotASocket(_) => 2,
        }
    }
}

/// A running server. Dropping it stops it and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// Device and inode of the socket: only our own is removed.
    identity: (u64, u64),
    shared: Arc<Shared>,
    socket: Arc<UnixListener>,
    listener: Option<JoinHandle<()>>,
}

/// What the listening thread, the clients' threads and the owner share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    stopping: AtomicBool,
    /// Class names in the order of the running configuration.
    pub(crate) classes: Mutex<Vec<String>>,
    pub(crate) applied: Mutex<Applied>,
    clients: Mutex<BTreeMap<u64, Connected>>,
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

impl Shared {
    /// What reads names of classes.
    fn with_classes<T>(&self, read: impl FnOnce(&[&str]) -> T) -> T {
        let classes = lock(&self.classes);
        let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
        read(&classes)
    }

    /// A change of a link in the words of [`parse_change`].
    fn link_change(
        &self,
        link: &str,
        knob: &str,
        class: Option<&str>,
        value: &str,
    ) -> Result<Command, ChangeError> {
        let change = self.with_classes(|classes| parse_change(knob, class, value, classes))?;
        Ok(Command::Change(change.on(link)))
    }
}

impl Server {
    /// Listens at `path` (mode 0600; missing folders are made; a socket left by a killed router is
    /// replaced) and answers with `target`. `config` is what the router was started with: names of
    /// classes are looked up in it.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<T: Target>(
        path: &Path,
        config: &RouterConfig,
        target: Arc<T>,
    ) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        remove_stale(path)?;
        let socket = Arc::new(UnixListener::bind(path).map_err(failed)?);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        let shared = Arc::new(Shared { applied: Applied::started_as(config), ..Shared::default() });
        *lock(&shared.classes) = names(config);
        let target: Arc<dyn Target> = target;
        let listener = thread::Builder::new()
            .name("control".to_owned())
            .spawn({
                let (shared, socket) = (Arc::clone(&shared), Arc::clone(&socket));
                move || listen(&socket, &shared, &target)
            })
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            shared,
            socket,
            listener: Some(listener),
        })
    }

    /// The start itself waits for its confirmation, as a change would: until then files are
    /// refused. What comes is the confirmation.
    #[must_use]
    pub fn unconfirmed(&self) -> Receiver<()> {
        confirm::start(&self.shared)
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stops: no new clients, the present ones are hung up on once their current request is
    /// answered, the socket is removed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        lock(&self.shared.applied).forget();
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
        for client in lock(&self.shared.clients).values() {
            let _ = client.stream.shutdown(Shutdown::Read);
        }
        // Wakes the listening thread out of `accept`, also where there is no descriptor left for a
        // connection to it.
        let woken = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).is_ok();
        if let Some(listener) = self.listener.take()
            && woken
        {
            let _ = listener.join();
        }
    }
}

/// Removes a socket without a listener.
fn remove_stale(path: &Path) -> Result<(), ServerError> {
    let failed = |source| ServerError::Io { path: path.to_owned(), source };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ServerError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ServerError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn listen(socket: &UnixListener, shared: &Arc<Shared>, target: &Arc<dyn Target>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for id in 0u64.. {
        let accepted = socket.accept();
        if shared.stopping.load(Ordering::SeqCst) {
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
        if !make_room(shared) {
            let text = format!(
                "{MAX_CLIENTS} clients are connected, more are not served: try again later"
            );
            let _ = answer(&mut &stream, &Answer::Error(text));
            continue;
        }
        let Ok(copy) = stream.try_clone() else { continue };
        lock(&shared.clients).insert(id, Connected { stream: copy, asked: Instant::now() });
        let (shared_too, target) = (Arc::clone(shared), Arc::clone(target));
        let spawned = thread::Builder::new().name(format!("control-{id}")).spawn(move || {
            // Ends when the client hangs up, breaks off, or the server stops.
            let _ = serve(id, &stream, &shared_too, &target);
            lock(&shared_too.clients).remove(&id);
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(_) => drop(lock(&shared.clients).remove(&id)),
        }
    }
    for client in lock(&shared.clients).values() {
        let _ = client.stream.shutdown(Shutdown::Read);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Whether there is a place for another client. Where all are taken, the one that has asked nothing
/// for longest loses its own: forgotten connections do not keep an operator out.
fn make_room(shared: &Shared) -> bool {
    let mut clients = lock(&shared.clients);
    if clients.len() < MAX_CLIENTS {
        return true;
    }
    let oldest = clients.iter().min_by_key(|(_, client)| client.asked).map(|(id, _)| *id);
    let Some(id) = oldest.filter(|id| clients[id].asked.elapsed() >= IDLE) else { return false };
    clients.remove(&id).iter().for_each(Connected::hang_up);
    true
}

fn serve(
    id: u64,
    stream: &UnixStream,
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (&mut reader).take(MAX_LINE + 1).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        if length as u64 > MAX_LINE {
            // What follows cannot be told apart from the rest of this line: hang up.
            return answer(
                &mut &*stream,
                &Answer::Error(format!("a request is longer than {MAX_LINE} bytes")),
            );
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some(client) = lock(&shared.clients).get_mut(&id) {
            client.asked = Instant::now();
        }
        let reply = serde_json::from_slice(&line)
            .map_err(RequestError::from)
            .and_then(|request| carry_out(request, shared, target));
        let reply = reply.unwrap_or_else(|error| Answer::Error(error.to_string()));
        answer(&mut &*stream, &reply)?;
        if shared.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
    }
}

fn answer(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Why a request was not carried out: a text for the client. Nothing changed.
#[derive(Debug, Error)]
enum RequestError {
    #[error("not a request: {0}")]
    NotARequest(#[from] serde_json::Error),
    #[error("{0}")]
    Flow(#[from] FlowKeyError),
    #[error("{0}")]
    Config(#[from] Diagnostics),
    /// With the place in the file that the router was to become.
    #[error("{place}: {source}")]
    Reload { place: String, source: CommandError },
    #[error("{0}")]
    Confirm(#[from] ConfirmError),
    #[error("{0}")]
    Change(#[from] ChangeError),
    #[error("{0:?} is not `active`, `draining` or `out`")]
    ForwarderState(String),
    #[error("{0}")]
    Router(#[from] CommandError),
}

/// Turns a request into a command of the router.
fn carry_out(
    request: Request,
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
) -> Result<Answer, RequestError> {
    let command = match request {
        Request::Show => Command::Show,
        Request::Explain { flow, link } => Command::Explain { link, flow: flow.parse()? },
        Request::Flows { top, link } => Command::Flows { link, top },
        Request::Reload { text, file, confirm_ms } => {
            let config = RouterConfig::parse(&text, &file)?;
            let within = confirm_ms.map(Duration::from_millis);
            confirm::reload(shared, target, config, within).map_err(|error| match error {
                ConfirmError::Router(source) => {
                    RequestError::Reload { place: place_of(&source, &text, &file), source }
                }
                other => other.into(),
            })?;
            return Ok(Answer::Ok(None));
        }
        Request::Confirm => {
            confirm::confirm(shared)?;
            return Ok(Answer::Ok(None));
        }
        Request::Fairdrop { key, value } => Command::Change(Change::FairDrop(
            shared.with_classes(|classes| parse_fairdrop(&key, &value, classes))?,
        )),
        Request::Balancer { forwarder: id, state } => {
            let wanted = ForwarderState::from_name(&state);
            let state = wanted.ok_or(RequestError::ForwarderState(state))?;
            Command::Change(Change::Forwarder { id, state })
        }
        Request::Set { link, knob, class, value } => {
            let value = if knob == "discipline" { discipline_table(&value) } else { value };
            shared.link_change(&link, &knob, class.as_deref(), &value)?
        }
        Request::Rate { link, value } => shared.link_change(&link, "rate", None, &value)?,
        Request::Ring { link, slots, refill } => {
            let value = format!("{{ slots = {slots}, refill = {refill:?} }}");
            shared.link_change(&link, "ring", None, &value)?
        }
        Request::Discipline { link, value } => {
            shared.link_change(&link, "discipline", None, &discipline_table(&value))?
        }
    };
    Ok(match target.send(command)? {
        Reply::Done => Answer::Ok(None),
        Reply::Snapshot(snapshot) => Answer::Ok(Some(snapshot)),
        Reply::Text(text) => Answer::Text(text),
        Reply::Flows(flows) => Answer::Flows(flows),
    })
}

/// A discipline's table; a bare kind becomes a table with its defaults.
fn discipline_table(value: &str) -> String {
    let value = value.trim();
    if value.contains(['{', '=']) { value.to_owned() } else { format!("{{ kind = {value:?} }}") }
}

/// The place in a file of what a router refuses to become; the file if that is not known.
fn place_of(error: &CommandError, text: &str, file: &str) -> String {
    let line = match error {
        CommandError::NeedsRestart { what, .. } => {
            let (table, key) = what.split_once('.').unwrap_or((what, ""));
            key_line(text, table, None, key)
        }
        CommandError::NotPossible(error) => {
            error.port().and_then(|(port, key)| key_line(text, "port", Some(port), key))
        }
        _ => None,
    };
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}
