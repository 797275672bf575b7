//! Threads that end when they are asked to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::sys;

use crate::LabError;

/// How long a thread waits at most before it looks whether it shall end.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// A thread that is asked to end, and waited for, when its owner goes.
#[derive(Debug)]
pub(crate) struct Stopping {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopping {
    /// Starts `work`, which looks now and then (each [`PATIENCE`]) whether it shall end. Timers of
    /// the thread are exact.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<Self, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = thread::Builder::new()
            // The kernel keeps 15 bytes of it.
            .name(name.chars().take(15).collect())
            .spawn(move || {
                // Without it sources wake later, and say so when they fall behind.
                let _ = sys::set_timer_slack(Nanos(1));
                work(&asked);
            })
            .map_err(|source| LabError::System { what: "start a thread".into(), source })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether the work has come to its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the thread to end and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed; its counts up to then stand.
            let _ = thread.join();
        }
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.stop();
    }
}
