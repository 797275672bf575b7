//! The signals that stop or re-read, as something to poll: signalfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::new_fd;

/// A signal that the router and the lab act on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// SIGTERM: stop cleanly.
    Terminate,
    /// SIGINT: stop cleanly, asked for at the keyboard.
    Interrupt,
    /// SIGHUP: read the configuration again, or the terminal is gone.
    HangUp,
}

/// Receives SIGTERM, SIGINT and SIGHUP through a descriptor.
///
/// The signals are blocked in the calling thread and in all threads that it starts later: make this
/// before the first thread. Programs started later inherit the block, and would not hear SIGTERM:
/// start them with [`hear_signals`].
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals and opens the descriptor.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn block() -> io::Result<Self> {
        // SAFETY: an all-zero sigset_t is a valid object, and sigemptyset then makes it the empty
        // set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a writable sigset_t and the numbers are signals.
        unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
        }
        // SAFETY: `set` is initialised, and the old mask is not asked for.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        } {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let fd = new_fd(unsafe {
            libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
        })?;
        Ok(Self { fd })
    }

    /// The next signal that has come, if any. Never waits.
    pub fn take(&self) -> Option<Signal> {
        // The number of the signal is the first word of signalfd_siginfo.
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        rustix::io::read(&self.fd, &mut info).ok().filter(|read| *read == info.len())?;
        match i32::from_ne_bytes([info[0], info[1], info[2], info[3]]) {
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGINT => Some(Signal::Interrupt),
            _ => Some(Signal::HangUp),
        }
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// The descriptor cannot be polled.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            if let Some(signal) = self.take() {
                return Ok(signal);
            }
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
                Err(error) if error != Errno::INTR => return Err(error.into()),
                _ => {}
            }
        }
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the child receive every signal, whatever the parent has blocked.
pub fn hear_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call that is safe after fork, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_this_thread_arrives_through_the_descriptor() {
        let signals = Signals::block().unwrap();
        assert_eq!(signals.take(), None);
        // SAFETY: sends a blocked signal to this very thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
        assert_eq!(signals.wait().unwrap(), Signal::HangUp);
        assert_eq!(signals.take(), None);
    }

    #[test]
    fn a_child_hears_what_the_parent_has_blocked() {
        let _signals = Signals::block().unwrap();
        let blocked = |command: &mut Command| {
            let output = command.args(["^SigBlk", "/proc/self/status"]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            u64::from_str_radix(text.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        let terminate = 1 << (libc::SIGTERM - 1);
        assert_ne!(blocked(&mut Command::new("grep")) & terminate, 0);
        assert_eq!(blocked(hear_signals(&mut Command::new("grep"))), 0);
    }
}
