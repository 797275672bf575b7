//! What was read of the routers: the last counters, the windows of the last hour, what changed.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use evenkeel_control::rates::RouterRates;
use evenkeel_control::{JournalLine, Version};
use evenkeel_history::HistoryError;
use evenkeel_router::Snapshot;
use evenkeel_router::window::between;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::alarms::{self, Alarm, Alarms, Kind};
use crate::hook::Hook;
use crate::list::Lists;
use crate::mark::{Mark, now_ms};
use crate::options::{HISTORY, Options, Watched};
use crate::past::Past;

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
    pub(crate) hook: Option<Hook>,
    began: Instant,
    events: broadcast::Sender<Arc<Event>>,
    stopping: AtomicBool,
}

/// What happened, as the stream tells it.
#[derive(Debug)]
pub(crate) struct Event {
    /// `window`, `mark`, `alarm` or `status`.
    pub(crate) kind: &'static str,
    /// JSON.
    pub(crate) text: String,
}

/// A router and what is known of it.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) watched: Watched,
    /// The file of its past.
    pub(crate) file: Option<PathBuf>,
    pub(crate) lists: Lists,
    seen: RwLock<Seen>,
    past: Mutex<Past>,
}

/// What is known of a router.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) windows: VecDeque<Arc<RouterRates>>,
    pub(crate) marks: VecDeque<Mark>,
    pub(crate) alarms: Alarms,
    /// The last line of the router's journal that was read; `None`: it keeps none.
    journal: Option<u64>,
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

/// What a router is called with what is said of it.
#[derive(Serialize)]
struct Named<'a, T: Serialize> {
    router: &'a str,
    #[serde(flatten)]
    of: &'a T,
}

impl State {
    /// # Errors
    /// The file of a router's past cannot be had.
    pub(crate) fn new(options: &Options) -> Result<Self, HistoryError> {
        let keep = u64::try_from(HISTORY.as_millis()).unwrap_or(u64::MAX);
        let router = |watched: &Watched| -> Result<Router, HistoryError> {
            let place = options.history.as_ref();
            let past = Past::open(place, &watched.name)?;
            let (windows, marks) = past.known(now_ms().saturating_sub(keep));
            let mut seen = Seen { journal: Some(0), ..Seen::default() };
            for window in windows {
                seen.remember(&Arc::new(window), HISTORY.as_secs() as usize * 5);
            }
            seen.remember_marks(&marks);
            let file = place.map(|(folder, _)| crate::past::file_of(folder, &watched.name));
            let past = Mutex::new(past);
            let (watched, lists, seen) = (watched.clone(), Lists::default(), RwLock::new(seen));
            Ok(Router { watched, file, lists, seen, past })
        };
        Ok(Self {
            routers: options.routers.iter().map(router).collect::<Result<_, _>>()?,
            interval: options.interval,
            hook: options.hook.clone(),
            began: Instant::now(),
            events: broadcast::channel(BEHIND).0,
            stopping: AtomicBool::new(false),
        })
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Whoever comes next may write them, however long a thread waits for its router.
        self.routers.iter().for_each(|router| router.past().close());
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
        let bad = match &status {
            Status::Silent { error } => Some(format!(
                "the router does not answer: the kernel forwards, nothing is shaped ({error})"
            )),
            Status::Unknown | Status::Answers { .. } => None,
        };
        let mut seen = router.write();
        let alarms = seen.alarms.one(self.began.elapsed(), now_ms(), Kind::Silent, bad);
        let new = seen.status != status;
        seen.status = status.clone();
        drop(seen);
        if new {
            self.tell("status", router, &status);
        }
        self.alarmed(router, alarms);
    }

    /// After which line the journal of the router is to be read; `None`: it keeps none.
    pub(crate) fn journal_after(&self, at: usize) -> Option<u64> {
        self.routers[at].read(|seen| seen.journal)
    }

    /// The router's journal was read, or it has none.
    pub(crate) fn said(&self, at: usize, lines: Option<Vec<JournalLine>>) {
        let router = &self.routers[at];
        let mut seen = router.write();
        let Some(lines) = lines else {
            seen.journal = None;
            return;
        };
        if let Some(last) = lines.last() {
            seen.journal = Some(last.number);
        }
        // What an earlier life of this server has read already, or this one before the router was
        // started anew, ends with a line that is known; times do not tell, as clocks are set back.
        // (After more than MAX_MARKS other things it is told a second time.)
        let is_known = |line: &JournalLine| {
            seen.marks.iter().any(|mark| mark.time_ms == line.time_ms && mark.text == line.text)
        };
        let known = lines.iter().rposition(is_known).map_or(0, |last| last + 1);
        drop(seen);
        let new = lines.into_iter().skip(known);
        let marks: Vec<_> = new.map(|line| Mark::change(line.time_ms, line.text)).collect();
        self.happened(router, &marks);
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
        let window = between(&before, &snapshot);
        let rates = Arc::new(RouterRates::of(&window, time_ms));
        let keep = (HISTORY.as_millis() / self.interval.as_millis().max(1)) as usize;
        let mut seen = router.write();
        seen.restarts += u64::from(restarted);
        // A router that says itself what changes says it better; but not that it was not there.
        let says = seen.journal.is_some();
        if restarted && says {
            seen.journal = Some(0);
        }
        let mut marks = changes(&before, &snapshot, time_ms);
        marks.retain(|mark| !says || mark.text.ends_with(ANEW));
        let signs = alarms::signs(&before, &snapshot, &window.counted, &rates);
        let now = self.began.elapsed();
        let mut alarms = seen.alarms.counted(now, time_ms, signs);
        seen.snapshot = Some(Arc::clone(&snapshot));
        seen.remember(&rates, keep);
        drop(seen);
        let mut past = router.past();
        past.window(&rates, &snapshot, restarted);
        let why = past.why.clone().map(|why| format!("the past is not noted: {why}"));
        drop(past);
        alarms.extend(router.write().alarms.one(now, time_ms, Kind::NoHistory, why));
        self.tell("window", router, &*rates);
        self.happened(router, &marks);
        self.alarmed(router, alarms);
    }

    /// Remembers and tells what happened.
    fn happened(&self, router: &Router, marks: &[Mark]) {
        router.write().remember_marks(marks);
        for mark in marks {
            router.past().happened(mark);
            self.tell("mark", router, mark);
        }
    }

    /// Tells alarms that are raised or over: to who listens, in the log, by the hook.
    fn alarmed(&self, router: &Router, alarms: Vec<Alarm>) {
        for alarm in alarms {
            let (kind, word) = if alarm.raised { ("raised", "alarm") } else { ("cleared", "over") };
            let name = &router.watched.name;
            tracing::warn!("router {name}: {word}: {}", alarm.text);
            let (time_ms, text) = (alarm.since_ms, alarm.text.clone());
            self.happened(router, &[Mark { time_ms, kind: kind.to_owned(), text }]);
            self.tell("alarm", router, &alarm);
            self.hook.iter().for_each(|hook| hook.run(name, &alarm));
        }
    }
}

impl Router {
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.seen.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Seen> {
        self.seen.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn past(&self) -> std::sync::MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn remember_marks(&mut self, marks: &[Mark]) {
        self.marks.extend(marks.iter().cloned());
        let surplus = self.marks.len().saturating_sub(MAX_MARKS);
        self.marks.drain(..surplus);
    }

    /// What a clock that was set back has shown before is forgotten, as it comes again.
    fn remember(&mut self, window: &Arc<RouterRates>, keep: usize) {
        while self.windows.back().is_some_and(|last| last.time_ms > window.time_ms) {
            self.rows -= self.windows.pop_back().map_or(0, |last| rows(&last));
        }
        self.rows += rows(window);
        self.windows.push_back(Arc::clone(window));
        while self.windows.len() > keep.max(1) || (self.rows > MAX_ROWS && self.windows.len() > 1) {
            let Some(oldest) = self.windows.pop_front() else { break };
            self.rows -= rows(&oldest);
        }
    }
}

/// How the sentence ends that says that a router is not the one it was.
const ANEW: &str = "was started anew";

fn rows(window: &RouterRates) -> usize {
    window.links.iter().map(|link| 1 + link.classes.len()).sum()
}

/// What changed between two readings, in words: what an operator looks for beside a curve that
/// jumps.
fn changes(before: &Snapshot, now: &Snapshot, time_ms: u64) -> Vec<Mark> {
    let mut texts = Vec::new();
    if now.uptime_ns < before.uptime_ns {
        texts.push(format!("router {} {ANEW}", now.router));
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
    texts.into_iter().map(|text| Mark::change(time_ms, text)).collect()
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
        State::new(&crate::options::edge()).unwrap()
    }

    #[test]
    fn windows_marks_and_restarts_are_remembered_and_told() {
        let state = state();
        let mut events = state.events();
        state.said(0, None);
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
        let links = vec![link; 64];
        let at = |time_ms, links: &[LinkRates]| {
            Arc::new(RouterRates { time_ms, links: links.to_vec(), ..RouterRates::default() })
        };
        for n in 1..=200 {
            seen.remember(&at(n, &links), 3_600);
        }
        assert_eq!(seen.windows.len(), MAX_ROWS / (64 * 66));
        for n in 1_001..=6_000 {
            seen.remember(&at(n, &[]), 3_600);
        }
        assert_eq!((seen.windows.len(), seen.rows), (3_600, 0));
        // The clock is set back by an hour and a bit.
        seen.remember(&at(3_000, &links), 3_600);
        assert_eq!(seen.windows.back().map(|last| last.time_ms), Some(3_000));
        assert_eq!(seen.windows.len(), 601);
    }

    /// Whoever reads the journal again knows what was read, and the clock that was set back in
    /// between hides nothing: until it had caught up, no change was noted.
    #[test]
    fn lines_of_the_journal_are_noted_once_whatever_the_clock_does() {
        let state = state();
        let line = |number, time_ms, text: &str| JournalLine {
            number,
            time_ms,
            level: "info".to_owned(),
            text: text.to_owned(),
        };
        let (a, b) = (line(1, 9_000, "a"), line(2, 9_001, "b"));
        let back = line(3, 2_000, "an hour back");
        state.said(0, Some(vec![a.clone(), b.clone()]));
        assert_eq!(state.journal_after(0), Some(2));
        // Read whole once more, as after a start of the router that was none.
        state.said(0, Some(vec![a, b, back]));
        state.said(0, Some(vec![line(4, 2_000, "and at once")]));
        let texts = state.routers[0]
            .read(|seen| seen.marks.iter().map(|mark| mark.text.clone()).collect::<Vec<_>>());
        assert_eq!(texts, ["a", "b", "an hour back", "and at once"]);
    }
}
