//! Long work in a thread of its own, so that Ctrl-C reaches Python meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error;

/// How long Ctrl-C waits at most.
const PATIENCE: Duration = Duration::from_millis(50);

/// Does `work` without holding the interpreter. At a signal `stop` is set, and what `work` still
/// does then is waited for; at a second signal it is left to itself.
///
/// # Errors
/// What the signal's handler raises, after what was begun is done; or a panic of `work`.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (done, finished) = channel();
    std::thread::spawn(move || {
        // Nobody listens any more after a second signal.
        let _ = done.send(work());
    });
    let mut raised = None;
    // What is used while the interpreter is not held must be moved there and back.
    let mut finished = finished;
    loop {
        let waited;
        (waited, finished) = py.detach(move || (finished.recv_timeout(PATIENCE), finished));
        match (waited, raised) {
            (Ok(_), Some(raised)) => return Err(raised),
            (Ok(value), None) => return Ok(value),
            (Err(RecvTimeoutError::Disconnected), _) => return Err(error::of_panic()),
            (Err(RecvTimeoutError::Timeout), before) => {
                raised = before;
                if let Err(signal) = py.check_signals() {
                    if raised.is_some() {
                        return Err(signal);
                    }
                    stop.store(true, Ordering::Relaxed);
                    raised = Some(signal);
                }
            }
        }
    }
}
