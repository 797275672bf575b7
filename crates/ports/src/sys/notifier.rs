//! Waking a thread that sleeps in a poller: eventfd.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::new_fd;

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
        // SAFETY: no pointers are passed.
        let fd = new_fd(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        Ok(Self { fd: Arc::new(fd) })
    }

    /// Adds one. May be called from any thread.
    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is readable for eight bytes. The only failure is a full counter, which is a wake-up already.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// How often [`Notifier::notify`] was called since the last call; sets the counter to zero.
    #[must_use]
    pub fn take(&self) -> u64 {
        read_counter(self.fd())
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Reads the eight-byte counter of an eventfd or a timerfd; 0 if there is nothing to read.
pub(super) fn read_counter(fd: RawFd) -> u64 {
    let mut count = [0; 8];
    // SAFETY: `count` is writable for eight bytes.
    let read = unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
    if read == 8 { u64::from_ne_bytes(count) } else { 0 }
}
