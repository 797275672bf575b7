//! A second process that shares the memory of this one, for the case that this one is killed.
//!
//! The kernel ends a killed process in this order: it unmaps its memory, which takes a second for
//! some gigabytes, then it closes its descriptors, sockets and programs among them, which wait for
//! locks of the whole machine. Only then do the programs go that keep packets from the kernel. With
//! a process that shares the memory the first step is a matter of a counter. And the descriptor
//! that is closed first tells it: it takes the heartbeats out of the memory, so that the programs
//! let everything pass before they are gone.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::mapping::Mapping;

/// Bytes of its stack: it makes seven system calls.
const STACK: usize = 64 << 10;
/// As `ps` shows it.
const NAME: &[u8] = b"evenkeel-memory\0";
/// Sent when it keeps the memory.
const READY: [u8; 1] = [1];

/// The first descriptor that a killed process closes: the kernel begins with the highest.
const FIRST_CLOSED: i32 = 1000;

/// Memory that is zeroed when the process is killed, each [`ZEROED`] bytes.
static ZEROED_AT_END: [AtomicPtr<u64>; 8] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 8];
/// So many bytes of it.
pub(crate) const ZEROED: usize = 4096;

/// Has a page zeroed if the process is killed, until [`forget`]. With more pages than a process
/// ever has at once the others are left as they are.
pub(crate) fn zero_at_end(page: *mut u8) {
    for place in &ZEROED_AT_END {
        let (none, page) = (std::ptr::null_mut(), page.cast());
        if place.compare_exchange(none, page, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
    }
}

/// The page is about to be unmapped.
pub(crate) fn forget(page: *mut u8) {
    for place in &ZEROED_AT_END {
        let (none, page) = (std::ptr::null_mut(), page.cast());
        let _ = place.compare_exchange(page, none, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// As long as it lives the other process waits; it ends with this value, or with the process.
#[derive(Debug)]
pub struct Keeper {
    /// Whose other end the keeper reads: its end is ours.
    _alive: OwnedFd,
    /// The keeper runs on it until it has ended, which nobody waits for.
    _stack: std::mem::ManuallyDrop<Mapping>,
}

/// What the keeper is told at its start.
struct Order {
    alive: libc::c_int,
    ready: libc::c_int,
}

impl Keeper {
    /// Starts it. Call it while the process has one thread: the keeper takes no lock, but its first
    /// calls may set the caller's `errno`.
    ///
    /// # Errors
    /// The kernel starts no process, or has no seccomp.
    pub fn start() -> io::Result<Self> {
        let stack = std::mem::ManuallyDrop::new(Mapping::anonymous(STACK)?);
        let (alive_end, alive) = io::pipe()?;
        let (mut ready, ready_end) = io::pipe()?;
        let order = Order { alive: alive_end.as_raw_fd(), ready: ready_end.as_raw_fd() };
        let restore = block_all()?;
        // SAFETY: the stack is STACK bytes of our own that are never given back; `order` lives
        // until the keeper has read it, which its byte, or its end, tells below.
        let started = unsafe {
            let top = stack.start().add(STACK).cast();
            libc::clone(keep, top, libc::CLONE_VM, (&raw const order).cast_mut().cast())
        };
        let error = io::Error::last_os_error();
        restore_mask(&restore)?;
        drop((alive_end, ready_end));
        if started < 0 {
            return Err(error);
        }
        let mut told = [0; 1];
        let alive: OwnedFd = alive.into();
        let alive = rustix::io::fcntl_dupfd_cloexec(&alive, FIRST_CLOSED).unwrap_or(alive);
        match ready.read(&mut told)? {
            1 if told == READY => Ok(Self { _alive: alive, _stack: stack }),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no seccomp")),
        }
    }
}

impl Drop for Keeper {
    /// An orderly end: what was to be zeroed is unmapped by those who have mapped it.
    fn drop(&mut self) {
        for place in &ZEROED_AT_END {
            place.store(std::ptr::null_mut(), Ordering::Release);
        }
    }
}

/// Blocks all signals for the calling thread, and so for what it starts. Returns what was blocked.
fn block_all() -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain data, filled by the calls, which are given valid pointers to it.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) {
            0 => Ok(before),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn restore_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the mask is initialised, and the old one is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// All that the keeper does, in the memory of the process: nothing but system calls. It holds no
/// descriptor of the process but the two pipes, and once it has said that it is ready, the kernel
/// lets it read, write and end, whatever somebody who has broken into the process may write onto
/// its stack.
extern "C" fn keep(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `Keeper::start` waits, with the order, until this has said that it is ready or ended.
    let Order { alive, ready } = unsafe { order.cast::<Order>().read() };
    // SAFETY: plain system calls on descriptors and constants; this process shares no descriptors.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, NAME.as_ptr());
        let (low, high) = (alive.min(ready) as u32, alive.max(ready) as u32);
        for (first, end) in [(0, low), (low + 1, high), (high + 1, u32::MAX)] {
            if first < end {
                libc::syscall(libc::SYS_close_range, first, end - 1, 0);
            }
        }
        let strict = libc::SECCOMP_MODE_STRICT;
        if libc::syscall(libc::SYS_prctl, libc::PR_SET_SECCOMP, strict, 0, 0, 0) == 0 {
            libc::syscall(libc::SYS_write, ready, READY.as_ptr(), 1);
            // Nobody writes: it returns when the process has closed its end, or has ended.
            let mut byte = [0_u8; 1];
            libc::syscall(libc::SYS_read, alive, byte.as_mut_ptr(), 1);
            for place in &ZEROED_AT_END {
                let page = place.load(Ordering::Acquire);
                // SAFETY: mapped as long as it stands here: the process has ended, and its memory
                // lives on in this one; or it has taken the page out before.
                for at in 0..if page.is_null() { 0 } else { ZEROED / 8 } {
                    AtomicU64::from_ptr(page.add(at)).store(0, Ordering::Release);
                }
            }
        }
        // Not that of the C library, which would run what is to run at the end of the process.
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, Instant};

    /// Processes with this one's memory that keep it.
    fn keepers() -> usize {
        let me = std::process::id().to_string();
        let is_one = |path: std::path::PathBuf| {
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let says = |key: &str, value: &str| {
                status.lines().any(|line| {
                    line.strip_prefix(key).is_some_and(|rest| rest.trim().starts_with(value))
                })
            };
            says("Name:", "evenkeel-memory")
                && says("PPid:", &me)
                && says("Seccomp:", "1")
                && !says("State:", "Z")
        };
        fs::read_dir("/proc").unwrap().flatten().filter(|entry| is_one(entry.path())).count()
    }

    /// Whether this is a process of its own, where no other test has keepers and heartbeats. If
    /// not, it is made, and what it says is judged.
    fn alone(test: &str) -> bool {
        if std::env::var_os("EVENKEEL_ALONE").is_some() {
            return true;
        }
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", &format!("sys::keeper::tests::{test}")]).env("EVENKEEL_ALONE", "1");
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        false
    }

    #[test]
    fn the_keeper_lives_confined_as_long_as_its_value() {
        if !alone("the_keeper_lives_confined_as_long_as_its_value") {
            return;
        }
        let before = keepers();
        let keeper = Keeper::start().unwrap();
        assert_eq!(keepers(), before + 1);
        drop(keeper);
        let begun = Instant::now();
        while keepers() > before {
            assert!(begun.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_is_registered_is_zeroed_by_a_kill_alone() {
        if !alone("what_is_registered_is_zeroed_by_a_kill_alone") {
            return;
        }
        let page = Mapping::anonymous(ZEROED).unwrap();
        // SAFETY: aligned, inside of the mapping, and read and written through atomics only.
        let words = |at| unsafe { AtomicU64::from_ptr(page.start().add(8 * at).cast()) };
        let last = ZEROED / 8 - 1;
        [0, last].into_iter().for_each(|at| words(at).store(7, Ordering::Release));
        zero_at_end(page.start());
        drop(Keeper::start().unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!([0, last].map(|at| words(at).load(Ordering::Acquire)), [7, 7]);
        zero_at_end(page.start());
        let keeper = Keeper::start().unwrap();
        // As the kernel does it: nothing of ours runs any more.
        // SAFETY: it is open, and nobody closes it again.
        unsafe { libc::close(keeper._alive.as_raw_fd()) };
        std::mem::forget(keeper);
        let begun = Instant::now();
        while [0, last].map(|at| words(at).load(Ordering::Acquire)) != [0, 0] {
            assert!(begun.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(1));
        }
        forget(page.start());
    }
}
