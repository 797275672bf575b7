//! Answering requests, beside the workers: all of them at the control socket, those that change
//! nothing at a second one, for monitoring.

use std::fmt;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_config::{
    Change, ChangeError, ForwarderState, RouterConfig, parse_change, parse_fairdrop, parse_filter,
};
use evenkeel_core::packet::FlowKeyError;
use evenkeel_router::watch::Watch;
use evenkeel_router::{Command, CommandError, Reply, lock};
use evenkeel_settings::{Diagnostics, key_line};
use thiserror::Error;

use crate::confirm::{self, Applied, ConfirmError, names};
pub use crate::listen::{IDLE, MAX_CLIENTS, ServerError};
use crate::listen::{Kind, Listener, Peer};
use crate::protocol::{Answer, Changes, JournalLine, MAX_LINE, Request, Version};

/// Longest request at the monitoring socket, bytes.
const MAX_QUESTION: u64 = 4_096;
/// Between two questions that the monitoring socket asks the workers, however many clients ask:
/// each costs a worker's time.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);
/// Flows told at most at the monitoring socket.
const MAX_FLOWS: usize = 1_000;

/// What carries out commands: a router's handle, or a stand-in in tests.
pub trait Target: Send + Sync + 'static {
    /// Carries out a command and waits for the answer.
    ///
    /// # Errors
    /// Why it was not carried out; then nothing changed.
    fn send(&self, command: Command) -> Result<Reply, CommandError>;

    /// Passes everything on to the process that listens at `place`.
    ///
    /// # Errors
    /// Why it goes on itself.
    fn pass_on(&self, _place: &Path) -> Result<(), CommandError> {
        Err(CommandError::NotPassedOn("it has nothing to pass on".to_owned()))
    }

    /// Something was changed.
    fn changed(&self, _changes: &Changes) {}

    /// The change that waited stays.
    fn confirmed(&self, _peer: &Peer) {}

    /// Somebody asked for a change that was refused.
    fn refused(&self, _peer: &Peer, _why: &str) {}

    /// The lines of the log after a number, the oldest first; `None`: none is kept.
    fn journal(&self, _after: u64) -> Option<Vec<JournalLine>> {
        None
    }

    /// A change that was not confirmed in time was undone, or could not be.
    fn undone(&self, _result: Result<(), CommandError>) {}
}

impl Target for evenkeel_router::Handle {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        Self::send(self, command)
    }
}

/// A running server. Dropping it stops it and removes its sockets.
pub struct Server {
    shared: Arc<Shared>,
    target: Arc<dyn Target>,
    control: Listener,
    monitor: Option<Listener>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("control", &self.control)
            .field("monitor", &self.monitor)
            .finish_non_exhaustive()
    }
}

/// What the clients' threads and the owner share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Class names in the order of the running configuration.
    pub(crate) classes: Mutex<Vec<String>>,
    pub(crate) applied: Mutex<Applied>,
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
    ) -> Result<Change, ChangeError> {
        let change = self.with_classes(|classes| parse_change(knob, class, value, classes))?;
        Ok(change.on(link))
    }
}

impl Server {
    /// Listens at `path` (mode 0600; missing folders are made; a socket left by a killed router is
    /// replaced) and answers with `target`. `config` is what the router was started with, `file`
    /// where that comes from, if from a file: an absolute path.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<T: Target>(
        path: &Path,
        config: &RouterConfig,
        file: Option<&Path>,
        target: Arc<T>,
    ) -> Result<Self, ServerError> {
        let file = file.map(|file| file.display().to_string());
        let applied = Applied::started_as(config, file.as_deref());
        let shared = Arc::new(Shared { applied, ..Shared::default() });
        *lock(&shared.classes) = names(config);
        let target: Arc<dyn Target> = target;
        let kind = Kind { mode: 0o600, group: None, longest: MAX_LINE, name: "control" };
        let control = Listener::start(path, &kind, {
            let (shared, target) = (Arc::clone(&shared), Arc::clone(&target));
            Arc::new(move |line, peer| {
                answer(line, |request| {
                    let asks = request.is_question();
                    let done = carry_out(request, peer, &shared, &target);
                    if let Err(why) = done.as_ref().map_err(ToString::to_string)
                        && !asks
                    {
                        target.refused(peer, &why);
                    }
                    done
                })
            })
        })?;
        Ok(Self { shared, target, control, monitor: None })
    }

    /// Listens at `path` too, for those who may ask and change nothing: every request that is not
    /// a [question](Request::is_question) is refused. Who may connect is the group that is named,
    /// by name or number (mode 0660: a client needs the right to write to a socket); the process's
    /// own if none is. It has clients of its own: however many are connected there, the control
    /// socket is free. Questions that the workers must answer are asked one after the other, at
    /// most 50 in a second.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn monitor(&mut self, path: &Path, group: Option<&str>) -> Result<(), ServerError> {
        let kind = Kind { mode: 0o660, group, longest: MAX_QUESTION, name: "monitor" };
        let (shared, target) = (Arc::clone(&self.shared), Arc::clone(&self.target));
        let turn = Mutex::new(Instant::now());
        let listener = Listener::start(
            path,
            &kind,
            Arc::new(move |line, peer| {
                answer(line, |request| carry_out(question(request, &turn)?, peer, &shared, &target))
            }),
        )?;
        self.monitor = Some(listener);
        Ok(())
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
        self.control.path()
    }

    /// Stops: no new clients, the present ones are hung up on once their current request is
    /// answered, the sockets are removed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        lock(&self.shared.applied).forget();
    }
}

/// The answer to a line.
fn answer(line: &[u8], of: impl FnOnce(Request) -> Result<Answer, RequestError>) -> Answer {
    let request = serde_json::from_slice(line).map_err(RequestError::from);
    request.and_then(of).unwrap_or_else(|error| Answer::Error(error.to_string()))
}

/// The request, if it asks and changes nothing. Waits for its turn where workers must answer it.
fn question(mut request: Request, turn: &Mutex<Instant>) -> Result<Request, RequestError> {
    if !request.is_question() {
        return Err(RequestError::NoQuestion);
    }
    if let Request::Flows { top, .. } | Request::Busiest { top } = &mut request {
        *top = MAX_FLOWS.min(*top);
    }
    if !matches!(request, Request::Version | Request::Journal { .. }) {
        let mut next = lock(turn);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        *next = Instant::now() + BETWEEN_QUESTIONS;
    }
    Ok(request)
}

/// Why a request was not carried out: a text for the client. Nothing changed.
#[derive(Debug, Error)]
enum RequestError {
    #[error("not a request: {0}")]
    NotARequest(#[from] serde_json::Error),
    #[error(
        "it would change the router, and here it can only be asked (show, flows, busiest, explain, \
             journal, version): use its control socket"
    )]
    NoQuestion,
    #[error("{0}: whoever is not in it any more has no plan; if that is meant, say so with --yes")]
    Shrinks(String),
    #[error("there is no such [[tree]], or there are several: name one")]
    NoTree,
    #[error("this router keeps no journal")]
    NoJournal,
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
    peer: &Peer,
    shared: &Arc<Shared>,
    target: &Arc<dyn Target>,
) -> Result<Answer, RequestError> {
    let change = match request {
        Request::Version => return Ok(Answer::Version(Version::own())),
        Request::Show => return asked(Command::Show, target),
        Request::Journal { after } => return journal(after, target),
        Request::Explain { flow, link } => {
            return asked(Command::Explain { link, flow: flow.parse()? }, target);
        }
        Request::Busiest { top } => return asked(Command::Busiest { top }, target),
        Request::Watch { id, filter, port, drops, snap } => {
            let rules = parse_filter(&filter)?;
            let watch = Watch { id, filter: rules, port, drops, snap };
            return watched(watch, &filter, peer, target);
        }
        Request::Sightings { id } => return asked(Command::Sightings { id }, target),
        Request::Unwatch => return asked(Command::Unwatch, target),
        Request::Flows { top, link } => return asked(Command::Flows { link, top }, target),
        Request::Running => {
            return Ok(Answer::Running(Box::new(lock(&shared.applied).running())));
        }
        Request::Diff { text, file } => {
            let config = RouterConfig::parse(&text, &file)?;
            return Ok(Answer::Changes(lock(&shared.applied).diff(file, &config)));
        }
        Request::Reload { text, file, confirm_ms, yes } => {
            let config = RouterConfig::parse(&text, &file)?;
            if let Some(shrunk) = lock(&shared.applied).shrinks(&config).filter(|_| !yes) {
                return Err(RequestError::Shrinks(shrunk));
            }
            let within = confirm_ms.map(Duration::from_millis);
            let done = confirm::reload(shared, target, peer, file.clone(), config, within);
            return done.map(Answer::Changes).map_err(|error| match error {
                ConfirmError::Router(source) => {
                    RequestError::Reload { place: place_of(&source, &text, &file), source }
                }
                other => other.into(),
            });
        }
        Request::Nodes { query } => return asked(Command::Nodes(query), target),
        Request::Subscriber { change, for_ms } => {
            let done = confirm::subscriber(shared, target, &change, peer, for_ms)?;
            return Ok(Answer::Changes(done));
        }
        Request::Subscribers { tree } => {
            let list = lock(&shared.applied).list(tree.as_deref());
            return list.map(Answer::Text).ok_or(RequestError::NoTree);
        }
        Request::PassOn { place } => return passed_on(&place, shared, target),
        Request::Confirm => {
            return Ok(Answer::Changes(confirm::confirm(shared, &**target, peer)?));
        }
        Request::Fairdrop { key, value } => {
            Change::FairDrop(shared.with_classes(|classes| parse_fairdrop(&key, &value, classes))?)
        }
        Request::Balancer { forwarder: id, state } => {
            let wanted = ForwarderState::from_name(&state);
            let state = wanted.ok_or(RequestError::ForwarderState(state))?;
            Change::Forwarder { id, state }
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
    Ok(Answer::Changes(confirm::change(shared, &**target, peer, &change)?))
}

fn journal(after: u64, target: &Arc<dyn Target>) -> Result<Answer, RequestError> {
    target.journal(after).map(Answer::Journal).ok_or(RequestError::NoJournal)
}

/// Another process goes on with everything, unless a change waits here for its confirmation.
fn passed_on(
    place: &str,
    shared: &Shared,
    target: &Arc<dyn Target>,
) -> Result<Answer, RequestError> {
    lock(&shared.applied).refuse_while_waiting()?;
    target.pass_on(Path::new(place))?;
    Ok(Answer::Ok(None))
}

/// Has packets watched, which are others' affair: the log says who does.
fn watched(
    watch: Watch,
    filter: &str,
    peer: &Peer,
    target: &Arc<dyn Target>,
) -> Result<Answer, RequestError> {
    let answer = asked(Command::Watch(watch), target)?;
    let changes =
        vec![format!("packets are watched: {}", if filter.is_empty() { "all" } else { filter })];
    target.changed(&Changes { changes, by: Some(peer.to_string()), ..Changes::default() });
    Ok(answer)
}

/// The router's answer to what changes nothing.
fn asked(command: Command, target: &Arc<dyn Target>) -> Result<Answer, RequestError> {
    Ok(match target.send(command)? {
        Reply::Done => Answer::Ok(None),
        Reply::Snapshot(snapshot) => Answer::Ok(Some(snapshot)),
        Reply::Text(text) => Answer::Text(text),
        Reply::Flows(flows) => Answer::Flows(flows),
        Reply::Nodes(nodes) => Answer::Nodes(nodes),
        Reply::Busiest(flows) => Answer::Busiest(flows),
        Reply::Sightings(seen) => Answer::Sightings(seen),
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
