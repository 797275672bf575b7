//! Readiness of descriptors: epoll, level-triggered.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use evenkeel_core::Nanos;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// The number it was registered with.
    pub token: u64,
    /// It can be read from.
    pub readable: bool,
    /// It has failed or its other end is closed.
    pub closed: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// How many events one [`Poller::wait`] reports at most; the rest come with the next call.
    pub const BATCH: usize = 64;

    /// An empty set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a descriptor to be watched for reading. It leaves the set when it is closed everywhere.
    ///
    /// # Errors
    /// It is already in the set, or cannot be watched.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// It is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a descriptor is ready or `timeout` has passed (`None`: without end; zero: only
    /// looks), and puts what is ready into `events`, which is cleared first. Woken by a signal, it
    /// reports nothing.
    ///
    /// The timeout is exact to the thread's timer slack (see [`super::set_timer_slack`]); for
    /// deadlines use a [`super::Timer`].
    ///
    /// # Errors
    /// The kernel is older than 5.11.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<()> {
        events.clear();
        let mut room = [const { MaybeUninit::uninit() }; Self::BATCH];
        let timeout = timeout.map(timespec);
        let ready = match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        events.extend(ready.iter().map(|event| {
            let flags = event.flags;
            Event {
                token: event.data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                closed: flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP),
            }
        }));
        Ok(())
    }
}

impl AsFd for Poller {
    /// The set's own descriptor, readable when one of its members is ready: sets can be nested.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// An instant or a span as the kernel takes it.
pub(super) fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::super::{Notifier, Timer, monotonic_now};
    use super::*;

    #[test]
    fn a_notifier_wakes_and_a_removed_one_does_not() {
        let poller = Poller::new().unwrap();
        let notifier = Notifier::new().unwrap();
        let mut events = Vec::new();
        poller.add(notifier.fd(), 7).unwrap();
        poller.wait(&mut events, Some(Nanos::ZERO)).unwrap();
        assert_eq!(events, []);
        notifier.notify();
        poller.wait(&mut events, None).unwrap();
        assert_eq!(events, [Event { token: 7, readable: true, closed: false }]);
        assert_eq!(notifier.take(), 1);
        poller.wait(&mut events, Some(Nanos::ZERO)).unwrap();
        assert_eq!(events, []);
        poller.remove(notifier.fd()).unwrap();
        assert!(poller.remove(notifier.fd()).is_err());
    }

    #[test]
    fn a_timer_never_fires_early() {
        let poller = Poller::new().unwrap();
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
        // A time that has passed fires at once; zero would mean "never" to the kernel and does not
        // here.
        timer.arm(Nanos::ZERO).unwrap();
        poller.wait(&mut events, None).unwrap();
        assert_eq!(events.len(), 1);
        timer.disarm().unwrap();
        poller.wait(&mut events, Some(Nanos::from_micros(100))).unwrap();
        assert_eq!(events, []);
    }

    #[test]
    fn a_short_timeout_is_not_rounded_up_to_a_millisecond() {
        let poller = Poller::new().unwrap();
        let mut shortest = Nanos::MAX;
        for _ in 0..100 {
            let before = monotonic_now();
            poller.wait(&mut Vec::new(), Some(Nanos::from_micros(10))).unwrap();
            shortest = shortest.min(monotonic_now() - before);
        }
        // Not one of a hundred could be shorter if the kernel were asked in milliseconds.
        assert!(shortest < Nanos::from_millis(1), "{shortest:?}");
    }
}
