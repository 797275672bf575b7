//! Readiness of descriptors: epoll, level-triggered.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use evenkeel_core::Nanos;

use super::{check, new_fd};

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// The number it was registered with.
    pub token: u64,
    /// It can be read from.
    pub readable: bool,
    /// It can be written to.
    pub writable: bool,
    /// It has failed or its other end is closed.
    pub closed: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    ready: Box<[libc::epoll_event; Self::BATCH]>,
}

impl Poller {
    /// How many events one [`Poller::wait`] reports at most; the rest come with the next call.
    pub const BATCH: usize = 64;

    /// An empty set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let epoll = new_fd(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self { epoll, ready: Box::new([libc::epoll_event { events: 0, u64: 0 }; Self::BATCH]) })
    }

    /// Adds a descriptor to be watched for reading. It must be removed before it is closed, or be closed everywhere.
    ///
    /// # Errors
    /// It is already in the set, or cannot be watched.
    pub fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, token)
    }

    /// Says whether a registered descriptor is also watched for writing.
    ///
    /// # Errors
    /// It is not in the set.
    pub fn watch_writable(&self, fd: RawFd, token: u64, writable: bool) -> io::Result<()> {
        let events = libc::EPOLLIN | if writable { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// It is not in the set.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, what: i32, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` is a valid epoll_event for the time of the call; a bad `fd` is an error, not a fault.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &raw mut event) })?;
        Ok(())
    }

    /// Waits until a descriptor is ready or `timeout` has passed (`None`: without end; zero: only looks), and puts
    /// what is ready into `events`, which is cleared first. Woken by a signal, it reports nothing.
    ///
    /// The timeout is exact to the thread's timer slack (see [`super::set_timer_slack`]); for deadlines use a [`super::Timer`].
    ///
    /// # Errors
    /// The kernel is older than 5.11.
    pub fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<()> {
        events.clear();
        let limit = timeout.map(|t| libc::timespec {
            tv_sec: (t.0 / 1_000_000_000) as libc::time_t,
            tv_nsec: (t.0 % 1_000_000_000) as libc::c_long,
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `ready` has BATCH writable entries; `limit` is null or points to a timespec that lives until the
        // call returns; a null signal mask is allowed. Called by number, since C libraries got the wrapper late.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.ready.as_mut_ptr(),
                Self::BATCH as libc::c_int,
                limit,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        let count = match check(count as libc::c_int) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        events.extend(self.ready[..count].iter().map(|event| {
            let bits = event.events as i32;
            Event {
                token: event.u64,
                readable: bits & libc::EPOLLIN != 0,
                writable: bits & libc::EPOLLOUT != 0,
                closed: bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0,
            }
        }));
        Ok(())
    }

    /// The set's own descriptor, readable when one of its members is ready: sets can be nested.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.epoll)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Notifier, Timer, monotonic_now};
    use super::*;

    #[test]
    fn a_notifier_wakes_and_a_removed_one_does_not() {
        let mut poller = Poller::new().unwrap();
        let notifier = Notifier::new().unwrap();
        let mut events = Vec::new();
        poller.add(notifier.fd(), 7).unwrap();
        poller.wait(&mut events, Some(Nanos::ZERO)).unwrap();
        assert_eq!(events, []);
        notifier.notify();
        poller.wait(&mut events, None).unwrap();
        assert_eq!(events, [Event { token: 7, readable: true, writable: false, closed: false }]);
        assert_eq!(notifier.take(), 1);
        poller.wait(&mut events, Some(Nanos::ZERO)).unwrap();
        assert_eq!(events, []);
        poller.remove(notifier.fd()).unwrap();
        assert!(poller.remove(notifier.fd()).is_err());
    }

    #[test]
    fn a_timer_never_fires_early() {
        let mut poller = Poller::new().unwrap();
        let timer = Timer::new().unwrap();
        poller.add(timer.fd(), 1).unwrap();
        let mut events = Vec::new();
        let due = monotonic_now() + Nanos::from_millis(3);
        timer.arm(due).unwrap();
        poller.wait(&mut events, None).unwrap();
        assert!(monotonic_now() >= due);
        assert_eq!(events[0].token, 1);
        assert!(timer.take());
        assert!(!timer.take());
        // A time that has passed fires at once; zero would mean "never" to the kernel and does not here.
        timer.arm(Nanos::ZERO).unwrap();
        poller.wait(&mut events, None).unwrap();
        assert_eq!(events.len(), 1);
        timer.disarm().unwrap();
        poller.wait(&mut events, Some(Nanos::from_micros(100))).unwrap();
        assert_eq!(events, []);
    }
}
