//! The thread that talks to etcd.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, ConnectOptions, GetOptions, Identity, PutOptions, TlsOptions, WatchOptions,
};
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
    #[error("{what}: {}", chain(source))]
    Etcd { what: &'static str, source: etcd_client::Error },
    #[error("membership.{key}: {path}: {source}")]
    File { key: &'static str, path: String, source: std::io::Error },
    #[error("membership.{key}: {path}: holds a secret, and others may read it: chmod o= {path}")]
    Readable { key: &'static str, path: String },
    #[error("membership.{key}: {path}: {what}")]
    NotPem { key: &'static str, path: String, what: &'static str },
    #[error("{what}: no answer within {} s", PATIENCE.as_secs())]
    NoAnswer { what: &'static str },
    #[error("the watch has ended{}{reason}", if reason.is_empty() { "" } else { ": " })]
    WatchEnded { reason: String },
    #[error("the lease is over")]
    LeaseOver,
    #[error("the thread that forwards does not answer, and the lease is not kept")]
    DoesNotForward,
}

/// An error with its causes: which certificate is wrong stands in the last one.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        // Some say their cause themselves.
        if !text.contains(&why) {
            text += &format!(": {why}");
        }
        cause = error.source();
    }
    text
}

/// What a file says; `secret`: nobody else may know.
fn file(key: &'static str, path: &str, secret: bool) -> Result<String, SessionError> {
    let failed = |source| SessionError::File { key, path: path.to_owned(), source };
    if secret && std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o007 != 0 {
        return Err(SessionError::Readable { key, path: path.to_owned() });
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// The same, of a file in PEM.
fn pem(
    key: &'static str,
    path: &str,
    secret: bool,
    what: &'static str,
) -> Result<String, SessionError> {
    let text = file(key, path, secret)?;
    if !text.contains("-----BEGIN ") {
        return Err(SessionError::NotPem { key, path: path.to_owned(), what });
    }
    Ok(text)
}

/// How to connect: whom to believe, and what to show.
fn options(section: &MembershipSection) -> Result<ConnectOptions, SessionError> {
    let mut options =
        ConnectOptions::new().with_connect_timeout(PATIENCE).with_keep_alive(PATIENCE, PATIENCE);
    if let Some(ca) = &section.ca {
        let ca = pem("ca", ca, false, "holds no certificate (-----BEGIN CERTIFICATE-----)")?;
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if let (Some(cert), Some(key)) = (&section.cert, &section.key) {
            let what = "holds no certificate (-----BEGIN CERTIFICATE-----)";
            let cert = pem("cert", cert, false, what)?;
            let key = pem("key", key, true, "holds no private key (-----BEGIN PRIVATE KEY-----)")?;
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        options = options.with_tls(tls);
    }
    if let (Some(user), Some(path)) = (&section.user, &section.password_file) {
        let text = file("password_file", path, true)?;
        let password = text.lines().next().unwrap_or_default();
        options = options.with_user(user, password).with_auto_token_refresh(true);
    }
    Ok(options)
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
            // An etcd that misses a certificate hangs up without a word.
            let connecting = matches!(&error, SessionError::Etcd { what: "connecting", .. });
            let unnamed = self.section.ca.is_some() && self.section.cert.is_none();
            let hint = if connecting && unnamed {
                " (if etcd asks its clients for certificates, `cert` and `key` name this router's)"
            } else {
                ""
            };
            self.say(format!(
                "etcd at {endpoints}: {error}{hint}; the router goes on with what it has"
            ));
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
        let options = options(&self.section)?;
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
