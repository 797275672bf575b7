//! What was read of the routers: the last counters, the windows of the last hour, what changed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_control::Version;
use evenkeel_control::rates::RouterRates;
use evenkeel_router::Snapshot;
use evenkeel_router::window::between;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::options::{HISTORY, Watched};

/// Rows of classes that are remembered of a router, so that many classes cost history, not memory:
/// some 40 MB.
const MAX_ROWS: usize = 200_000;
/// Changes that are remembered of a router.
const MAX_MARKS: usize = 256;
/// Events that a slow reader of the stream may be behind; it misses what is older.
const BEHIND: usize = 64;

/// Everything that is served.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) routers: Vec<Router>,
    pub(crate) interval: Duration,
    events: broadcast::Sender<Arc<Event>>,
    stopping: AtomicBool,
}

/// What happened, as the stream tells it.
#[derive(Debug)]
pub(crate) struct Event {
    /// `window`, `mark` or `status`.
    pub(crate) kind: &'static str,
    /// JSON.
    pub(crate) text: String,
}

/// A router and what is known of it.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) watched: Watched,
    seen: RwLock<Seen>,
}

/// What is known of a router.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) windows: VecDeque<Arc<RouterRates>>,
    pub(crate) marks: VecDeque<Mark>,
    /// How often it was seen to have been started anew.
    pub(crate) restarts: u64,
    rows: usize,
}

/// How the router is, as far as can be seen from here.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum Status {
    /// It was not asked yet.
    #[default]
    Unknown,
    /// It answers.
    Answers {
        /// Its program.
        version: String,
    },
    /// It does not.
    Silent {
        /// Why, in words.
        error: String,
    },
}

/// Something that changed, seen from its counters.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mark {
    /// When, ms since 1970.
    pub(crate) time_ms: u64,
    /// What, in words.
    pub(crate) text: String,
}

/// What a router is called with what is said of it.
#[derive(Serialize)]
struct Named<'a, T: Serialize> {
    router: &'a str,
    #[serde(flatten)]
    of: &'a T,
}

impl State {
    pub(crate) fn new(routers: &[Watched], interval: Duration) -> Self {
        let router =
            |watched: &Watched| Router { watched: watched.clone(), seen: RwLock::default() };
        Self {
            routers: routers.iter().map(router).collect(),
            interval,
            events: broadcast::channel(BEHIND).0,
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    pub(crate) fn router(&self, name: &str) -> Option<&Router> {
        self.routers.iter().find(|router| router.watched.name == name)
    }

    fn tell<T: Serialize>(&self, kind: &'static str, router: &Router, of: &T) {
        let named = Named { router: &router.watched.name, of };
        let text = serde_json::to_string(&named).expect("windows and marks are plain data");
        // Nobody may be listening.
        let _ = self.events.send(Arc::new(Event { kind, text }));
    }

    /// The router at this place answers, or does not.
    pub(crate) fn is(&self, at: usize, status: Status) {
        let router = &self.routers[at];
        let mut seen = router.write();
        if seen.status != status {
            seen.status = status.clone();
            drop(seen);
            self.tell("status", router, &status);
        }
    }

    /// Its counters were read.
    pub(crate) fn read(&self, at: usize, snapshot: Snapshot, version: &Version) {
        self.is(at, Status::Answers { version: version.program.clone() });
        let router = &self.routers[at];
        let snapshot = Arc::new(snapshot);
        let before = router.read(|seen| seen.snapshot.clone());
        let time_ms = now_ms();
        let Some(before) = before else {
            router.write().snapshot = Some(snapshot);
            return;
        };
        let restarted = snapshot.uptime_ns < before.uptime_ns;
        let window = Arc::new(RouterRates::of(&between(&before, &snapshot), time_ms));
        let marks = changes(&before, &snapshot, time_ms);
        let keep = (HISTORY.as_millis() / self.interval.as_millis().max(1)) as usize;
        let mut seen = router.write();
        seen.restarts += u64::from(restarted);
        seen.snapshot = Some(snapshot);
        seen.remember(&window, keep);
        seen.marks.extend(marks.iter().cloned());
        let surplus = seen.marks.len().saturating_sub(MAX_MARKS);
        seen.marks.drain(..surplus);
        drop(seen);
        self.tell("window", router, &*window);
        for mark in &marks {
            self.tell("mark", router, mark);
        }
    }
}

impl Router {
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.seen.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Seen> {
        self.seen.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Seen {
    fn remember(&mut self, window: &Arc<RouterRates>, keep: usize) {
        self.rows += rows(window);
        self.windows.push_back(Arc::clone(window));
        while self.windows.len() > keep.max(1) || (self.rows > MAX_ROWS && self.windows.len() > 1) {
            let Some(oldest) = self.windows.pop_front() else { break };
            self.rows -= rows(&oldest);
        }
    }
}

fn rows(window: &RouterRates) -> usize {
    window.links.iter().map(|link| 1 + link.classes.len()).sum()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What changed between two readings, in words: what an operator looks for beside a curve that
/// jumps.
fn changes(before: &Snapshot, now: &Snapshot, time_ms: u64) -> Vec<Mark> {
    let mut texts = Vec::new();
    if now.uptime_ns < before.uptime_ns {
        texts.push(format!("router {} was started anew", now.router));
    }
    for port in &now.ports {
        match before.port(&port.name) {
            None => texts.push(format!("port {} is new", port.name)),
            Some(was) if was.up != port.up => {
                texts.push(format!(
                    "port {} is {}",
                    port.name,
                    if port.up { "up" } else { "down" }
                ));
            }
            Some(_) => {}
        }
    }
    for port in before.ports.iter().filter(|port| now.port(&port.name).is_none()) {
        texts.push(format!("port {} is gone", port.name));
    }
    for link in &now.links {
        let Some(was) = before.link(&link.port) else { continue };
        if was.rate_bps != link.rate_bps {
            let rate = |bps: Option<u64>| bps.map_or_else(|| "unpaced".to_owned(), megabits);
            let (was, is) = (rate(was.rate_bps), rate(link.rate_bps));
            texts.push(format!("link {}: rate {was} became {is}", link.port));
        }
        if was.discipline != link.discipline {
            let (was, is) = (&was.discipline, &link.discipline);
            texts.push(format!("link {}: discipline {was} became {is}", link.port));
        }
        if was.admission.is_some() != link.admission.is_some() {
            let is = if link.admission.is_some() { "on" } else { "off" };
            texts.push(format!("link {}: admission is {is}", link.port));
        }
    }
    texts.into_iter().map(|text| Mark { time_ms, text }).collect()
}

fn megabits(bps: u64) -> String {
    format!("{} Mbit/s", bps as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_control::rates::{ClassRates, LinkRates};
    use evenkeel_router::snapshot::{LinkSnapshot, PortSnapshot};

    fn snapshot(uptime_s: u64, up: bool, rate_bps: Option<u64>) -> Snapshot {
        let port = PortSnapshot { name: "wan".into(), up, ..PortSnapshot::default() };
        let link = LinkSnapshot { port: "wan".into(), rate_bps, ..LinkSnapshot::default() };
        let uptime_ns = uptime_s * 1_000_000_000;
        Snapshot {
            time_ns: 1_000_000_000_000 + uptime_ns,
            uptime_ns,
            ports: vec![port],
            links: vec![link],
            ..Snapshot::default()
        }
    }

    fn state() -> State {
        let watched = Watched { name: "edge".into(), socket: "/nowhere".into() };
        State::new(&[watched], Duration::from_secs(1))
    }

    #[test]
    fn windows_marks_and_restarts_are_remembered_and_told() {
        let state = state();
        let mut events = state.events();
        let version = Version::own();
        state.read(0, snapshot(10, true, Some(5_000_000)), &version);
        state.read(0, snapshot(11, false, Some(8_500_000)), &version);
        state.read(0, snapshot(1, true, None), &version);
        state.is(0, Status::Silent { error: "gone".into() });
        let (windows, marks, restarts) =
            state.routers[0].read(|seen| (seen.windows.len(), seen.marks.clone(), seen.restarts));
        assert_eq!((windows, restarts), (2, 1));
        let texts: Vec<&str> = marks.iter().map(|mark| mark.text.as_str()).collect();
        let rate = "link wan: rate 5 Mbit/s became 8.5 Mbit/s";
        let unpaced = "link wan: rate 8.5 Mbit/s became unpaced";
        let anew = "router  was started anew";
        assert_eq!(texts, ["port wan is down", rate, anew, "port wan is up", unpaced]);
        let mut kinds = Vec::new();
        while let Ok(event) = events.try_recv() {
            assert!(event.text.starts_with("{\"router\":\"edge\","), "{}", event.text);
            kinds.push(event.kind);
        }
        let (w, m, s) = ("window", "mark", "status");
        assert_eq!(kinds, [s, w, m, m, w, m, m, m, s]);
    }

    #[test]
    fn the_history_is_bounded_in_time_and_in_rows() {
        let mut seen = Seen::default();
        let link = LinkRates { classes: vec![ClassRates::default(); 65], ..LinkRates::default() };
        let window = Arc::new(RouterRates { links: vec![link; 64], ..RouterRates::default() });
        for _ in 0..1_000 {
            seen.remember(&window, 3_600);
        }
        assert_eq!(seen.windows.len(), MAX_ROWS / (64 * 66));
        let small = Arc::new(RouterRates::default());
        for _ in 0..5_000 {
            seen.remember(&small, 3_600);
        }
        assert_eq!((seen.windows.len(), seen.rows), (3_600, 0));
    }
}
