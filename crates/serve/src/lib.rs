//! What routers count, over HTTP: Prometheus metrics, JSON, an event stream and a live page.
//!
//! A process of its own. It reads control sockets, best those for monitoring (`[router] monitor`),
//! and can change nothing: unless it was given a token, it sends no request that is not a question.
//! Nothing of this crate runs in a router's process; nothing asynchronous is below a router's
//! crates (scripts/test.sh).
//!
//! - `watch`: a thread per router reads its counters each interval, and finds it again after it was
//!   restarted.
//! - `state`: what was read last, the windows of the last hour, and what was seen to change.
//! - `past`: files of what was, from seconds to a month (crate `history`).
//! - `alarms`, `hook`: what should be known without looking, and a command that is told.
//! - `metrics`: the counters of all routers as OpenMetrics, named by their declarations.
//! - `list`, `lists`: flows and subscribers, page by page, read once for all who look.
//! - `changes`, `token`: the few changes that who shows the token may ask for.
//! - `http`, `served`, `accept`: the routes, and the bounds for slow, many and hostile clients.
#![forbid(unsafe_code)]

mod accept;
mod alarms;
mod changes;
mod hook;
mod http;
mod list;
mod lists;
mod mark;
mod metrics;
mod options;
mod past;
mod served;
mod state;
mod token;
mod watch;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

pub use accept::{HEADERS_WITHIN, MAX_CONNECTIONS, MAX_STREAMS};
pub use hook::Hook;
use options::check_names;
pub use options::{HISTORY, LISTEN, Options, ServeError, Watched};
use state::State;
pub use token::{Token, TokenError};

/// A server that runs. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and watches the routers, whether or not they are there yet.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(options: Options) -> Result<Self, ServeError> {
        check_names(&options.routers)?;
        let failed = |source| ServeError::Listen { address: options.listen, source };
        let socket = TcpListener::bind(options.listen).map_err(failed)?;
        // std's queue has 128 places: in a flood the kernel drops who comes then, for a second.
        rustix::net::listen(&socket, accept::WAITING).map_err(|error| failed(error.into()))?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let state = Arc::new(State::new(&options)?);
        for at in 0..options.routers.len() {
            let state = Arc::clone(&state);
            thread::Builder::new()
                .name(format!("watch-{at}"))
                .spawn(move || watch::watch(&state, at))?;
        }
        // One thread does: answers are short, and the routers' sockets are read elsewhere.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let routes = http::routes(Arc::clone(&state), options.hosts, options.token);
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    never = accept::accept(socket, routes) => match never {},
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { address, state, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when it has ended, which it does not by itself.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
