//! The past of a router: what is noted in its file, and what is read of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_control::fold::folded;
use evenkeel_control::rates::RouterRates;
use evenkeel_history::{Happened, History, HistoryError, Step};
use evenkeel_router::Snapshot;
use evenkeel_router::window::between;

use crate::mark::Mark;

/// How long the longer windows are, ms.
const MINUTE: u64 = 60_000;
/// Rows of links and classes in an answer at most, so that a month of a large router is an answer
/// of some megabytes.
const MAX_ROWS: usize = 100_000;

/// Where the past of a router is noted.
#[derive(Debug)]
pub(crate) struct Past {
    history: Option<History>,
    /// What the minute that runs began with, and when.
    began: Option<(Arc<Snapshot>, u64)>,
    /// How often something could not be noted, and why at last.
    pub(crate) failed: u64,
    pub(crate) why: Option<String>,
}

/// The file of a router.
pub(crate) fn file_of(folder: &Path, router: &str) -> PathBuf {
    folder.join(format!("{router}.history"))
}

impl Past {
    /// # Errors
    /// The file cannot be had.
    pub(crate) fn open(place: Option<&(PathBuf, u64)>, router: &str) -> Result<Self, HistoryError> {
        let open = |(folder, size): &(PathBuf, u64)| History::open(&file_of(folder, router), *size);
        let history = place.map(open).transpose()?;
        Ok(Self { history, began: None, failed: 0, why: None })
    }

    /// Nothing is noted any more.
    pub(crate) fn close(&mut self) {
        self.history = None;
    }

    /// The windows from `from_ms` on, and what happened, that are known from before.
    pub(crate) fn known(&self, from_ms: u64) -> (Vec<RouterRates>, Vec<Mark>) {
        let Some(history) = &self.history else { return Default::default() };
        let windows = history.windows(Step::Seconds, from_ms, u64::MAX).unwrap_or_default();
        let events = history.events(0, u64::MAX).unwrap_or_default();
        (windows, events.into_iter().map(Mark::from).collect())
    }

    /// Notes a window; `now` are the counters at its end, `restarted` if they began anew in it.
    pub(crate) fn window(&mut self, rates: &RouterRates, now: &Arc<Snapshot>, restarted: bool) {
        let Some(history) = &mut self.history else { return };
        let mut done = history.window(Step::Seconds, rates);
        let time_ms = rates.time_ms;
        let (began, since_ms) = self.began.get_or_insert_with(|| (Arc::clone(now), time_ms));
        // Whatever the clock does: a minute that runs backwards, or for an hour, is over.
        let over = time_ms / MINUTE != *since_ms / MINUTE;
        if over && !restarted {
            let minute = RouterRates::of(&between(began, now), time_ms);
            done = done.and(history.window(Step::Minutes, &minute)).and(history.sync());
        }
        if over || restarted {
            self.began = Some((Arc::clone(now), time_ms));
        }
        self.note(done);
    }

    /// Notes what happened.
    pub(crate) fn happened(&mut self, mark: &Mark) {
        let Some(history) = &mut self.history else { return };
        let done = history.happened(&Happened::from(mark));
        self.note(done);
    }

    fn note(&mut self, done: std::io::Result<()>) {
        self.why = done.err().map(|error| {
            self.failed += 1;
            error.to_string()
        });
    }
}

/// So many windows of a file at most, which span `from_ms..=to_ms`: seconds where they reach so far
/// back and are not too many, else minutes, else what is folded of these.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(
    file: &Path,
    from_ms: u64,
    to_ms: u64,
    points: usize,
) -> Result<Vec<RouterRates>, HistoryError> {
    let history = History::read_only(file)?;
    let failed = |source| HistoryError::Io { path: file.to_owned(), source };
    let first = |step| history.reach(step).map_or(u64::MAX, |(first, _)| first);
    let (second, minute) = (first(Step::Seconds), first(Step::Minutes));
    let whole = second <= from_ms || second <= minute;
    let last = history.reach(Step::Seconds).map_or(0, |(_, last)| last).min(to_ms);
    let few = last.saturating_sub(from_ms.max(second)) <= points as u64 * 2_000;
    let step = if whole && few { Step::Seconds } else { Step::Minutes };
    let windows = history.windows(step, from_ms, to_ms).map_err(failed)?;
    let rows = |one: &RouterRates| one.links.iter().map(|link| 1 + link.classes.len()).sum();
    let widest: usize = windows.iter().map(rows).max().unwrap_or(0);
    let points = points.min(MAX_ROWS / widest.max(1)).max(1);
    let together = windows.len().div_ceil(points).max(1);
    Ok(windows.chunks(together).filter_map(folded).collect())
}
