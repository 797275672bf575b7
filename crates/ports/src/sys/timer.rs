//! A timer with an absolute time: timerfd on CLOCK_MONOTONIC.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use evenkeel_core::Nanos;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::poller::timespec;

/// A timer whose descriptor becomes readable at the time it is armed for. Late by 5 us or so on an
/// idle core, whatever the timer slack.
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
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Arms the timer for the instant `due`; an instant that has passed fires at once. Replaces an
    /// earlier arming.
    ///
    /// # Errors
    /// None that the arguments could cause.
    pub fn arm(&self, due: Nanos) -> io::Result<()> {
        // Zero disarms; no instant that matters is the first nanosecond after boot.
        self.set(due.clamp(Nanos(1), Nanos(i64::MAX as u64)))
    }

    /// Disarms the timer and forgets that it has fired.
    ///
    /// # Errors
    /// None that the arguments could cause.
    pub fn disarm(&self) -> io::Result<()> {
        self.set(Nanos::ZERO)
    }

    fn set(&self, due: Nanos) -> io::Result<()> {
        let spec = Itimerspec { it_interval: timespec(Nanos::ZERO), it_value: timespec(due) };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Whether the timer has fired since the last call; makes the descriptor unreadable again.
    pub fn take(&self) -> bool {
        super::notifier::read_counter(self.fd()) > 0
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
