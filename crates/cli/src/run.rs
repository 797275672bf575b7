//! `evenkeel run`: a router until it is told to stop.
//!
//! Nothing here writes by itself: a reader of our output that has stopped must not stop us (`log`).
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_control::{Client, ClientError, Request, Server, ServerError};
use evenkeel_core::Nanos;
use evenkeel_ports::sys::{self, Keeper, Poller, Signal, Signals};
use evenkeel_router::{Disciplines, Handle, Options, Predecessor, Router, Snapshot, StartError};
use evenkeel_settings::key_line;
use sd_notify::NotifyState;

use crate::args::{RunArgs, StartArgs};
use crate::check;
use crate::confine;
use crate::failure::{Failure, Outcome};
use crate::log::{self, Log};
use crate::membership::{self, Merged};
use crate::privileges::{self, Keeps};

/// How often the worker is looked after.
const LOOK: Nanos = Nanos::from_millis(500);
/// Workers that were silent for longer are hung: systemd's watchdog is not fed.
const HUNG: Nanos = Nanos::from_secs(2);

pub(crate) fn run(args: &RunArgs, disciplines: Disciplines) -> Outcome {
    let config = check::load(&args.file, &disciplines)?;
    membership::built(&args.file, &config)?;
    secret(&args.file, &config)?;
    let file = Some(args.file.as_path());
    let (args, takes_over) = (&args.start, args.take_over);
    start(Start { config: &config, file, args, confirm: None, takes_over, disciplines })
}

/// What is to be started.
pub(crate) struct Start<'a> {
    pub(crate) config: &'a RouterConfig,
    /// Where it comes from, if from a file.
    pub(crate) file: Option<&'a Path>,
    pub(crate) args: &'a StartArgs,
    /// It ends after this time, if nobody confirms that it may go on.
    pub(crate) confirm: Option<Duration>,
    /// It takes over from the router that runs.
    pub(crate) takes_over: bool,
    pub(crate) disciplines: Disciplines,
}

/// Forwards until it is told to stop.
pub(crate) fn start(start: Start<'_>) -> Outcome {
    let system = |what: &'static str| move |error| Failure::new(1, format!("{what}: {error}"));
    // Before the first thread: all of them inherit the block, so that signals arrive here only.
    let signals = Signals::block().map_err(system("watching for signals"))?;
    sys::give_back_large_blocks();
    privileges::give_up(&Keeps {
        namespace: start.args.netns.is_some(),
        realtime: start.config.realtime() == Some(true),
        group: start.config.router.monitor_group.is_some(),
    })?;
    let unconfined = confine::files(&own_folders(&start));
    // Before the first thread, too. Without it the kernel takes over a little later from a router
    // that was killed.
    let keeper = Keeper::start();
    let log = Log::start().map_err(system("starting the thread of the log"))?;
    if let Err(error) = &keeper {
        tracing::warn!(
            "if this process is killed, nothing is forwarded while its memory is unmapped, because \
             no process keeps it: {error}"
        );
    }
    unconfined.unwrap_or_else(|why| tracing::warn!("{why}"));
    let result = forward(start, &signals, &log);
    if let Err(failure) = &result {
        log.err.print(format!("{}\n", failure.text));
    }
    log.flush();
    result.map_err(|failure| Failure { text: String::new(), ..failure })
}

/// Starts the router, and stops it when it is asked to.
fn forward(start: Start<'_>, signals: &Signals, log: &Log) -> Outcome {
    let Start { config, file, args, confirm, takes_over, disciplines } = start;
    let system = |what: &'static str| move |error| Failure::new(1, format!("{what}: {error}"));
    // The configuration stays as the file has it: a reload compares the two.
    let socket = args.socket.as_deref().unwrap_or_else(|| Path::new(&config.router.control));
    let mut shown = config.clone();
    shown.router.control = socket.display().to_string();
    log.out.print(check::meaning(&shown) + &file.map(check::of_old).unwrap_or_default());

    let options = Options {
        runtime_dir: runtime_dir(args),
        state_dir: state_dir(args),
        netns: args.netns.clone(),
        cpu: args.cpu,
        report: Some(|text| tracing::warn!("{text}")),
        refuses_bypass: true,
        disciplines,
        captures: args.capture.iter().cloned().collect(),
        ..Options::default()
    };
    let started = if takes_over {
        predecessor(&options.runtime_dir, socket)
            .and_then(|former| Router::take_over(config.clone(), options, former))
    } else {
        Router::start(config.clone(), options)
    };
    let handle = started.map_err(|error| not_started(file, args.netns.as_deref(), &error))?;
    let handle = Arc::new(handle);
    let merged = Merged::new(&handle, config);
    let refused = |error: ServerError| Failure::new(error.exit_code(), error);
    let absolute = file.map(check::absolute);
    let begin = || Server::start(socket, config, absolute.as_deref(), Arc::clone(&merged));
    let mut server = free(takes_over, begin).map_err(refused)?;
    let monitor = config.router.monitor.as_deref().map(Path::new);
    if let Some(path) = monitor {
        let group = config.router.monitor_group.as_deref();
        free(takes_over, || server.monitor(path, group)).map_err(refused)?;
    }
    log.out.print(begun(&handle, config, server.path(), monitor));
    let mut unconfirmed = confirm.map(|within| Unconfirmed {
        within,
        end: Instant::now() + within,
        confirmed: server.unconfirmed(),
    });
    let asked = {
        let _client =
            merged.start(config).map_err(system("starting the thread of [membership]"))?;
        confine::calls().unwrap_or_else(|why| tracing::warn!("{why}"));
        tell_systemd(NotifyState::Ready);
        handle.release_predecessor();
        wait(signals, &handle, file, socket, log, &mut unconfirmed)
    };
    let passed_on = handle.has_passed_on();
    if !passed_on {
        tell_systemd(NotifyState::Stopping);
    }
    server.stop();
    handle.await_successor(SUCCESSOR);
    let last = handle.stop().map_err(|error| Failure::new(1, error))?;
    asked?;
    let unsaid = match log::lost() {
        0 => String::new(),
        lost => format!(", {lost} lines of the log could not be written"),
    };
    let how = if passed_on { "another process goes on" } else { "stopped" };
    log.out.print(format!("{how}: {}{unsaid}\n", totals(&last)));
    if let Some(file) = file.filter(|_| config.cluster.is_some() || config.balancer.is_some()) {
        log.out.print(format!(
            "its ports stay closed for what the kernel forwards; `evenkeel cluster leave {}` opens \
             them\n",
            file.display()
        ));
    }
    Ok(0)
}

/// What a router says when it forwards.
fn begun(handle: &Handle, config: &RouterConfig, socket: &Path, monitor: Option<&Path>) -> String {
    let mut text = String::new();
    if let Ok(snapshot) = handle.snapshot() {
        let drawn = if config.router.seed.is_none() { ", drawn at this start" } else { "" };
        let _ = write!(text, "\nseed {}{drawn}\n{}", snapshot.seed, guards(&snapshot));
    }
    let asked_at =
        monitor.map_or_else(String::new, |path| format!("; monitoring socket {}", path.display()));
    text + &format!(
        "\nforwarding; control socket {}{asked_at}; stop with Ctrl-C or SIGTERM\n",
        socket.display()
    )
}

/// How long a router that has passed everything on waits for the other process to need it no more.
const SUCCESSOR: Duration = Duration::from_secs(30);
/// How long its sockets may take to be free.
const FREE: Duration = Duration::from_secs(5);

/// The router at a control socket, asked to pass on what it has.
fn predecessor(folder: &Path, socket: &Path) -> Result<Predecessor, StartError> {
    let socket = socket.to_owned();
    Predecessor::meet(folder, move |place| {
        let place = place.display().to_string();
        let asked =
            Client::connect(&socket).and_then(|mut client| client.send(&Request::PassOn { place }));
        asked.map(drop).map_err(|error| error.to_string())
    })
}

/// Tries again while the router that was taken over from still has its socket.
fn free<T>(
    takes_over: bool,
    mut begin: impl FnMut() -> Result<T, ServerError>,
) -> Result<T, ServerError> {
    let since = Instant::now();
    loop {
        match begin() {
            Err(ServerError::InUse(_)) if takes_over && since.elapsed() < FREE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Where a router makes files while it runs.
fn own_folders(start: &Start<'_>) -> Vec<PathBuf> {
    let Start { config, args, .. } = start;
    let socket = args.socket.as_deref().unwrap_or_else(|| Path::new(&config.router.control));
    let mut folders = vec![runtime_dir(args), Options::default().runtime_dir];
    folders.extend(state_dir(args));
    folders.push(confine::folder_of(socket));
    folders.extend(config.router.monitor.iter().map(|path| confine::folder_of(Path::new(path))));
    folders.extend(args.capture.iter().map(|(_, file)| confine::folder_of(file)));
    folders
}

fn runtime_dir(args: &StartArgs) -> PathBuf {
    let from_environment = || std::env::var_os("EVENKEEL_RUNTIME_DIR").map(PathBuf::from);
    args.runtime_dir
        .clone()
        .or_else(from_environment)
        .unwrap_or_else(|| Options::default().runtime_dir)
}

/// A folder that is given for one router, beside others perhaps, is for all of its files.
fn state_dir(args: &StartArgs) -> Option<PathBuf> {
    let from_environment = || std::env::var_os("EVENKEEL_STATE_DIR").map(PathBuf::from);
    let usual = || args.runtime_dir.is_none().then(|| PathBuf::from("/var/lib/evenkeel"));
    args.state_dir.clone().or_else(from_environment).or_else(usual)
}

/// A file that others can read gives its keys away.
fn secret(file: &Path, config: &RouterConfig) -> Result<(), Failure> {
    let mode = std::fs::metadata(file).map_or(0, |known| known.permissions().mode());
    if !check::has_key(config) || mode & 0o007 == 0 {
        return Ok(());
    }
    let file = file.display();
    Err(Failure::input(format!(
        "{file}: it holds the key of an ESP tunnel, and everybody may read it: chmod o= {file}"
    )))
}

/// Names the line of the interface that is missing or cannot do it, and which there are if it is
/// missing.
fn not_started(file: Option<&Path>, netns: Option<&str>, error: &StartError) -> Failure {
    let known = known_interfaces(netns, error);
    let Some(file) = file else {
        return Failure::new(error.exit_code(), format!("evenkeel: {error}{known}"));
    };
    let Some((port, key)) = error.port() else {
        return Failure::new(error.exit_code(), format!("{}: {error}", file.display()));
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = key_line(&text, "port", Some(port), key);
    let place = line.map_or_else(String::new, |line| format!("{line}:"));
    Failure {
        text: format!("{}:{place} port.{key}: {error}{known}", file.display()),
        code: error.exit_code(),
    }
}

/// Which interfaces there are, in words, for an error that says that one is missing.
fn known_interfaces(netns: Option<&str>, error: &StartError) -> String {
    if !matches!(error, StartError::MissingInterface { .. }) {
        return String::new();
    }
    // The folder shows those of the namespace that it was mounted in.
    if let Some(netns) = netns {
        return format!("; looked for in the network namespace {netns}");
    }
    let known = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut known: Vec<String> =
        known.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    known.sort();
    if known.is_empty() { String::new() } else { format!("; there are: {}", known.join(", ")) }
}

/// Returns when a signal says so, or when the worker has ended by itself.
fn wait(
    signals: &Signals,
    handle: &Handle,
    file: Option<&Path>,
    socket: &Path,
    log: &Log,
    unconfirmed: &mut Option<Unconfirmed>,
) -> Result<(), Failure> {
    let system = |error| Failure::new(1, format!("waiting for signals: {error}"));
    let poller = Poller::new().map_err(system)?;
    poller.add(signals.fd(), 0).map_err(system)?;
    let mut events = Vec::new();
    while handle.is_running() {
        poller.wait(&mut events, Some(LOOK)).map_err(system)?;
        if handle.silence() < HUNG {
            tell_systemd(NotifyState::Watchdog);
        }
        if let Some(waits) = unconfirmed {
            if waits.confirmed.try_recv().is_ok() {
                log.out.print("confirmed\n".to_owned());
                *unconfirmed = None;
            } else if Instant::now() >= waits.end {
                let text = format!(
                    "nobody confirmed within {:?} (`evenkeel ctl confirm`): the interfaces are as \
                     they were",
                    waits.within
                );
                return Err(Failure::new(1, text));
            }
        }
        while let Some(signal) = signals.take() {
            match signal {
                Signal::Terminate | Signal::Interrupt => return Ok(()),
                Signal::HangUp => match file.map(|file| (file, reload(file, socket))) {
                    Some((file, Ok(()))) => {
                        log.out.print(format!("{} was read again\n", file.display()));
                    }
                    Some((file, Err(error))) => {
                        let file = file.display();
                        tracing::error!("{error}\n{file} was read again: nothing was changed");
                    }
                    None => tracing::error!("there is no file to be read again"),
                },
            }
        }
    }
    Ok(())
}

/// A start that waits for its confirmation.
struct Unconfirmed {
    within: Duration,
    end: Instant,
    confirmed: Receiver<()>,
}

/// Says how the router is, if a service manager has started it and wants to know.
fn tell_systemd(state: NotifyState<'_>) {
    // A manager that does not listen does not matter to packets.
    let _ = sd_notify::notify(&[state]);
}

/// Goes through the control socket, as `evenkeel ctl reload` does: one way for both.
fn reload(file: &Path, socket: &Path) -> Result<(), ReloadError> {
    let name = || check::absolute(file).display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|source| ReloadError::Unreadable { file: name(), source })?;
    if let Ok(config) = RouterConfig::parse(&text, &name()) {
        secret(file, &config).map_err(|failure| ReloadError::Public(failure.text))?;
    }
    Client::connect(socket)?.send(&Request::Reload {
        text,
        file: name(),
        confirm_ms: None,
        yes: false,
    })?;
    Ok(())
}

/// Why a file was not read again.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error("{file}: {source}")]
    Unreadable { file: String, source: std::io::Error },
    #[error("{0}")]
    Public(String),
    #[error(transparent)]
    Refused(#[from] ClientError),
}

/// The guard that keeps the kernel from forwarding the same packets, port by port.
fn guards(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for port in &snapshot.ports {
        let guard = match port.guard.as_str() {
            "inline" | "bridge" => "TCX programs, removed by the kernel with this process",
            "link" => "TCX program, removed by the kernel with this process",
            "xdp" => "none needed: it does not see what comes here",
            "filter" => "tc filter, inert one second after this process ends",
            _ if port.interface.starts_with("eku-") => {
                "none needed: the kernel is at the other end"
            }
            _ => "none: the port is down",
        };
        let state = if port.up { "up" } else { "down" };
        let _ = writeln!(
            text,
            "port {}: {} {}, {state}, {}; guard against a second copy by the kernel: {guard}",
            port.name, port.interface, port.mac, port.io
        );
    }
    text
}

/// The router's totals since its start, in a line.
fn totals(last: &Snapshot) -> String {
    let sum = |of: fn(&evenkeel_router::snapshot::PortSnapshot) -> u64| {
        last.ports.iter().map(of).sum::<u64>()
    };
    let classes = || last.links.iter().flat_map(|link| &link.classes);
    let sent: u64 = classes().map(|class| class.sent_packets).sum();
    let dropped: u64 = classes().flat_map(|class| class.dropped.values()).sum();
    format!(
        "{} packets received, {} left to the kernel, {sent} sent, {dropped} dropped on links",
        sum(|port| port.rx_packets),
        sum(|port| port.to_host)
    )
}
