//! The thread that talks to etcd.

use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etcd_client::{ConnectOptions, GetOptions, PutOptions, WatchOptions};
use evenkeel_config::{MembershipSection, RouterConfig};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::{Keys, Merger, lock};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two attempts to reach etcd.
const PAUSE: Duration = Duration::from_secs(1);

/// Gives a configuration to the router.
type Send<E> = Box<dyn FnMut(&RouterConfig) -> Result<(), E> + std::marker::Send>;

/// Why a session with etcd is over.
#[derive(Debug, Error)]
enum SessionError {
    #[error("{what}: {source}")]
    Etcd { what: &'static str, source: etcd_client::Error },
    #[error("{what}: no answer within {} s", PATIENCE.as_secs())]
    NoAnswer { what: &'static str },
    #[error("the watch has ended{}{reason}", if reason.is_empty() { "" } else { ": " })]
    WatchEnded { reason: String },
    #[error("the lease is over")]
    LeaseOver,
    #[error("the thread that forwards does not answer, and the lease is not kept")]
    DoesNotForward,
}

/// Whether the thread that forwards answers.
type Lives = Box<dyn FnMut() -> bool + std::marker::Send>;

/// A running client; it ends when dropped, and gives its lease back if etcd is there.
#[derive(Debug)]
pub struct Client {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

struct Session<E> {
    section: MembershipSection,
    merger: Arc<Mutex<Merger>>,
    send: Send<E>,
    lives: Lives,
    report: fn(&str),
    /// What was reported last: the same is not said each second.
    said: String,
    stop: Arc<Notify>,
}

impl Client {
    /// Starts the thread. `send` gives a configuration to the router; `lives` says whether the
    /// thread that forwards answers: the lease is kept while it does; `report` is told what a
    /// person should know.
    ///
    /// # Errors
    /// The system gives no thread or no event queue.
    pub fn start<E: Display + 'static>(
        section: &MembershipSection,
        merger: Arc<Mutex<Merger>>,
        send: Send<E>,
        lives: Lives,
        report: fn(&str),
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = Arc::new(Notify::new());
        let mut session = Session {
            section: section.clone(),
            merger,
            send,
            lives,
            report,
            said: String::new(),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("membership".to_owned())
            .spawn(move || runtime.block_on(session.run()))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Kept for the thread if it is not waiting just now.
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that was said already.
            let _ = thread.join();
        }
    }
}

/// A request that is answered in time.
async fn within<T>(
    what: &'static str,
    request: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, SessionError> {
    match timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(|source| SessionError::Etcd { what, source }),
        Err(_late) => Err(SessionError::NoAnswer { what }),
    }
}

impl<E: Display> Session<E> {
    async fn run(&mut self) {
        let stop = Arc::clone(&self.stop);
        loop {
            let Err(error) = self.session().await else { return };
            let endpoints = self.section.endpoints.join(", ");
            self.say(format!("etcd at {endpoints}: {error}; the router goes on with what it has"));
            tokio::select! {
                () = stop.notified() => return,
                () = sleep(PAUSE) => {}
            }
        }
    }

    fn say(&mut self, text: String) {
        if text != self.said {
            (self.report)(&text);
            self.said = text;
        }
    }

    /// From connecting until something fails, or until it is to stop.
    async fn session(&mut self) -> Result<(), SessionError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(PATIENCE)
            .with_keep_alive(PATIENCE, PATIENCE);
        let connect = etcd_client::Client::connect(&self.section.endpoints, Some(options));
        let mut client = within("connecting", connect).await?;
        let lease_time = Duration::from_nanos(self.section.lease.0);
        let seconds = i64::try_from(lease_time.as_secs()).unwrap_or(i64::MAX);
        if !(self.lives)() {
            return Err(SessionError::DoesNotForward);
        }
        let lease = within("asking for a lease", client.lease_grant(seconds, None)).await?.id();
        let key = format!("{}/{}", self.section.prefix, lock(&self.merger).alive_key());
        let alive = client.put(key, "", Some(PutOptions::new().with_lease(lease)));
        within("saying that this router is alive", alive).await?;
        let (mut keeper, mut kept) =
            within("keeping the lease", client.lease_keep_alive(lease)).await?;
        let since = Instant::now();
        let revision = self.read(&mut client, false).await?;
        let all = format!("{}/", self.section.prefix);
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
        let mut watch = within("watching", client.watch(all, Some(options))).await?;
        let stop = Arc::clone(&self.stop);
        let mut trusted = false;
        let mut beat = interval(lease_time / 4);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.notified() => {
                    // Whether etcd hears it or not, the router stops.
                    let _ = within("giving the lease back", client.lease_revoke(lease)).await;
                    return Ok(());
                }
                news = watch.message() => {
                    let news = news
                        .map_err(|source| SessionError::Etcd { what: "watching", source })?
                        .ok_or(SessionError::WatchEnded { reason: String::new() })?;
                    if news.canceled() {
                        let reason = news.cancel_reason().to_owned();
                        return Err(SessionError::WatchEnded { reason });
                    }
                    if !news.events().is_empty() {
                        self.read(&mut client, trusted).await?;
                    }
                }
                _ = beat.tick() => {
                    // Who does not forward is not alive, whatever its process does.
                    if !(self.lives)() {
                        let _ = within("giving the lease back", client.lease_revoke(lease)).await;
                        return Err(SessionError::DoesNotForward);
                    }
                    within("keeping the lease", keeper.keep_alive()).await?;
                    let left = within("keeping the lease", kept.message()).await?.map_or(0,
                        |kept| kept.ttl());
                    if left <= 0 {
                        return Err(SessionError::LeaseOver);
                    }
                    if !trusted && since.elapsed() > lease_time {
                        trusted = true;
                        self.read(&mut client, trusted).await?;
                    }
                }
            }
        }
    }

    /// Reads all keys and hands on what they mean; the revision that they are of.
    async fn read(
        &mut self,
        client: &mut etcd_client::Client,
        leases: bool,
    ) -> Result<i64, SessionError> {
        let all = format!("{}/", self.section.prefix);
        let answer =
            within("reading", client.get(all.as_str(), Some(GetOptions::new().with_prefix())))
                .await?;
        let mut keys = Keys::new();
        for pair in answer.kvs() {
            let key = String::from_utf8_lossy(pair.key());
            let key = key.strip_prefix(&all).unwrap_or(&key).to_owned();
            keys.insert(key, String::from_utf8_lossy(pair.value()).into_owned());
        }
        let text = match lock(&self.merger).keys(keys, leases, &mut *self.send) {
            Ok(true) => {
                "etcd: other members, weights or states were handed to the router".to_owned()
            }
            Ok(false) => "etcd: nothing new for this router".to_owned(),
            Err(refused) => refused.to_string(),
        };
        self.say(text);
        Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision))
    }
}
