//! The log of `evenkeel run` while packets flow: lines that a thread of their own writes.
//!
//! Standard error may be a full disk, a pipe that nobody reads any more, or one that nobody reads
//! *now*: a write then fails, or blocks for as long as somebody else likes. So whoever has
//! something to say only puts it into a queue of bounded length. What finds no room there, or
//! cannot be written, is counted ([`lost`], `log_lost` of `ctl show --json`), and said in the log
//! as soon as it can be written again.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_control::JournalLine;
use evenkeel_history::rfc3339;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Lines that wait to be written, per stream.
const LINES: usize = 256;
/// How long the end of the program waits for its last lines to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Lines of the log that are kept for who asks (`ctl journal`).
const KEPT: usize = 1_000;
/// Longest line that is kept, bytes: a backtrace is for the log alone.
const LONGEST: usize = 1_000;

/// The last lines of the log. Only the thread that writes the log and those who ask take the lock.
static JOURNAL: Mutex<(u64, VecDeque<JournalLine>)> = Mutex::new((0, VecDeque::new()));

/// Lines that were never written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many lines were never written.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The lines of the log after this number that are still kept.
pub(crate) fn journal(after: u64) -> Vec<JournalLine> {
    let journal = JOURNAL.lock().unwrap_or_else(PoisonError::into_inner);
    journal.1.iter().filter(|line| line.number > after).cloned().collect()
}

fn keep(line: &Line) {
    let mut journal = JOURNAL.lock().unwrap_or_else(PoisonError::into_inner);
    let (number, lines) = &mut *journal;
    *number += 1;
    let end = line.text.floor_char_boundary(LONGEST);
    lines.push_back(JournalLine {
        number: *number,
        time_ms: line.time_ms,
        level: line.level.as_str().to_ascii_lowercase(),
        text: line.text[..end].to_owned(),
    });
    if lines.len() > KEPT {
        lines.pop_front();
    }
}

/// Something that happened.
struct Line {
    time_ms: u64,
    level: Level,
    text: String,
}

impl Line {
    fn new(level: Level, text: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), level, text }
    }

    /// As it is written: for people with its time; for journald, which has one of its own, with
    /// its priority as sd-daemon(3) says, each line of it.
    fn written(&self, journald: bool) -> String {
        let Self { time_ms, level, text } = self;
        if !journald {
            return format!("{} {level:5} {text}\n", rfc3339(*time_ms));
        }
        let priority = match *level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let lines = text.lines().map(|line| format!("<{priority}>{line}\n"));
        lines.collect()
    }
}

/// Whether a stream goes to journald: systemd says which does.
fn goes_to_journald(stream: impl AsFd) -> bool {
    let Ok(known) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(stream).is_ok_and(|is| known == format!("{}:{}", is.st_dev, is.st_ino))
}

/// The least that is written, `EVENKEEL_LOG`: `error`, `warn`, `info` (if nothing is said),
/// `debug`, `trace`.
fn level() -> LevelFilter {
    let said = std::env::var("EVENKEEL_LOG").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(LevelFilter::INFO)
}

enum Item {
    Text(Vec<u8>),
    Line(Line),
    /// Everything before this was written, or given up.
    Flush(SyncSender<()>),
}

/// A stream that is written by a thread of its own. Never blocks who writes to it.
#[derive(Clone)]
pub(crate) struct Stream {
    items: SyncSender<Item>,
}

impl Stream {
    fn start(name: &str, out: impl Write + Send + 'static, journald: bool) -> io::Result<Self> {
        let (items, waiting) = sync_channel(LINES);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || drain(&waiting, out, journald))?;
        Ok(Self { items })
    }

    /// Has `text` written as soon as that is possible.
    pub(crate) fn print(&self, text: impl Into<Vec<u8>>) {
        self.send(Item::Text(text.into()));
    }

    fn send(&self, item: Item) {
        if self.items.try_send(item).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for at most [`LAST_WORDS`].
    fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.items.try_send(Item::Flush(done)).is_ok() {
            let _ = written.recv_timeout(LAST_WORDS);
        }
    }
}

/// Writes lines until the last sender is gone.
fn drain(items: &Receiver<Item>, mut out: impl Write, journald: bool) {
    let mut told = lost();
    for item in items {
        let item = match item {
            Item::Line(line) => {
                keep(&line);
                Item::Text(line.written(journald).into())
            }
            item => item,
        };
        match item {
            Item::Line(_) => {}
            Item::Text(text) => {
                let untold = lost() - told;
                if untold > 0 {
                    let sentence =
                        format!("evenkeel: {untold} lines before this one could not be written\n");
                    if write(&mut out, sentence.as_bytes()) {
                        told += untold;
                    }
                }
                if !write(&mut out, &text) {
                    LOST.fetch_add(1, Ordering::Relaxed);
                }
            }
            Item::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

fn write(out: &mut impl Write, text: &[u8]) -> bool {
    out.write_all(text).and_then(|()| out.flush()).is_ok()
}

/// Makes lines of `tracing`'s events.
struct Lines {
    to: Stream,
    least: LevelFilter,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, of: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *of.level() <= self.least
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said(String::new());
        event.record(&mut said);
        self.to.send(Item::Line(Line::new(*event.metadata().level(), said.0)));
    }
}

/// What an event says: its message, then its other fields.
struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Standard output and the log, for as long as a router runs.
pub(crate) struct Log {
    /// Standard output.
    pub(crate) out: Stream,
    /// Standard error; events of `tracing` go here.
    pub(crate) err: Stream,
}

impl Log {
    /// Starts the threads. From now on `tracing`'s events, and what panics have to say, are lines
    /// of the log.
    pub(crate) fn start() -> io::Result<Self> {
        let log = Self {
            out: Stream::start("stdout", io::stdout(), false)?,
            err: Stream::start("stderr", io::stderr(), goes_to_journald(io::stderr()))?,
        };
        let subscriber = Registry::default().with(Lines { to: log.err.clone(), least: level() });
        // It can be set once in a process; whoever did before wants to have it.
        let _ = tracing::subscriber::set_global_default(subscriber);
        // The usual hook writes to standard error itself: a worker that panics would hang there,
        // and nobody would learn that it has ended.
        std::panic::set_hook(Box::new(|info| {
            let backtrace = Backtrace::capture();
            if backtrace.status() == BacktraceStatus::Captured {
                tracing::error!("{info}\n{backtrace}");
            } else {
                tracing::error!("{info}");
            }
        }));
        Ok(log)
    }

    /// Waits a moment for the last lines.
    pub(crate) fn flush(&self) {
        self.out.flush();
        self.err.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes so many writes, fails once, and keeps what it took.
    struct Once(Arc<Mutex<(Vec<u8>, bool)>>);

    impl Write for Once {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut inner = self.0.lock().unwrap();
            if std::mem::take(&mut inner.1) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            inner.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_said_later() {
        let inner = Arc::new(Mutex::new((Vec::new(), true)));
        let stream = Stream::start("test", Once(Arc::clone(&inner)), false).unwrap();
        let before = lost();
        stream.print("first\n");
        stream.flush();
        assert!(lost() > before);
        stream.print("second\n");
        stream.flush();
        let text = String::from_utf8(inner.lock().unwrap().0.clone()).unwrap();
        assert!(text.contains("could not be written") && text.ends_with("second\n"), "{text}");
        assert!(!text.contains("first"), "{text}");
    }

    #[test]
    fn lines_have_time_and_level_or_what_journald_wants() {
        let line = Line { time_ms: 1_000, level: Level::WARN, text: "one\ntwo".to_owned() };
        assert_eq!(line.written(false), "1970-01-01T00:00:01Z WARN  one\ntwo\n");
        assert_eq!(line.written(true), "<4>one\n<4>two\n");
    }
}
