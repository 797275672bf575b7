//! The log of `evenkeel run` while packets flow: lines that a thread of their own writes.
//!
//! Standard error may be a full disk, a pipe that nobody reads any more, or one that nobody reads
//! *now*: a write then fails, or blocks for as long as somebody else likes. So whoever has
//! something to say only puts it into a queue of bounded length. What finds no room there, or
//! cannot be written, is counted ([`lost`], `log_lost` of `ctl show --json`), and said in the log
//! as soon as it can be written again.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written, per stream.
const LINES: usize = 256;
/// How long the end of the program waits for its last lines to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Lines that were never written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many lines were never written.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

enum Item {
    Text(Vec<u8>),
    /// Everything before this was written, or given up.
    Flush(SyncSender<()>),
}

/// A stream that is written by a thread of its own. Never blocks who writes to it.
#[derive(Clone)]
pub(crate) struct Stream {
    items: SyncSender<Item>,
}

impl Stream {
    fn start(name: &str, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (items, waiting) = sync_channel(LINES);
        thread::Builder::new().name(name.to_owned()).spawn(move || drain(&waiting, out))?;
        Ok(Self { items })
    }

    /// Has `text` written as soon as that is possible.
    pub(crate) fn print(&self, text: impl Into<Vec<u8>>) {
        if self.items.try_send(Item::Text(text.into())).is_err() {
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
fn drain(items: &Receiver<Item>, mut out: impl Write) {
    let mut told = lost();
    for item in items {
        match item {
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

/// One event on its way to the log: the formatter writes it in one piece.
pub(crate) struct Event<'a>(&'a Stream);

impl Write for Event<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.print(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Stream {
    type Writer = Event<'a>;

    fn make_writer(&'a self) -> Event<'a> {
        Event(self)
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
            out: Stream::start("stdout", io::stdout())?,
            err: Stream::start("stderr", io::stderr())?,
        };
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.err.clone())
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .finish();
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
        let stream = Stream::start("test", Once(Arc::clone(&inner))).unwrap();
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
}
