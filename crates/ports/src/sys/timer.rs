//! A timer with an absolute time: timerfd on CLOCK_MONOTONIC.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use evenkeel_core::Nanos;

use super::{check, new_fd};

/// A timer whose descriptor becomes readable at the time it is armed for. Late by 5 us or so on an idle core, whatever
/// the timer slack.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that is not armed.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = new_fd(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
        })?;
        Ok(Self { fd })
    }

    /// Arms the timer for the instant `due`; an instant that has passed fires at once. Replaces an earlier arming.
    ///
    /// # Errors
    /// None that the arguments could cause.
    pub fn arm(&self, due: Nanos) -> io::Result<()> {
        // Zero disarms; no instant that matters is the first nanosecond after boot.
        self.set(due.0.clamp(1, i64::MAX as u64))
    }

    /// Disarms the timer and forgets that it has fired.
    ///
    /// # Errors
    /// None that the arguments could cause.
    pub fn disarm(&self) -> io::Result<()> {
        self.set(0)
    }

    fn set(&self, at: u64) -> io::Result<()> {
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: (at / 1_000_000_000) as libc::time_t,
                tv_nsec: (at % 1_000_000_000) as libc::c_long,
            },
        };
        // SAFETY: `spec` is readable for the time of the call, and the old value is not asked for.
        check(unsafe {
            libc::timerfd_settime(
                self.fd.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Whether the timer has fired since the last call; makes the descriptor unreadable again.
    pub fn take(&self) -> bool {
        super::notifier::read_counter(self.fd()) > 0
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
