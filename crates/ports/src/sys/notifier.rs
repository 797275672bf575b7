//! Waking a thread that sleeps in a poller: eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A counter whose descriptor is readable while it is not zero. Clones share the counter.
#[derive(Clone, Debug)]
pub struct Notifier {
    fd: Arc<OwnedFd>,
}

impl Notifier {
    /// A counter at zero.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?) })
    }

    /// Adds one. May be called from any thread.
    pub fn notify(&self) {
        // The only failure is a full counter, which is a wake-up already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// How often [`Notifier::notify`] was called since the last call; sets the counter to zero.
    #[must_use]
    pub fn take(&self) -> u64 {
        read_counter(self.fd())
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Reads the eight-byte counter of an eventfd or a timerfd; 0 if there is nothing to read.
pub(super) fn read_counter(fd: BorrowedFd<'_>) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}
