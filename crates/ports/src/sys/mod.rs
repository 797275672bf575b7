//! What the worker's loop and the lab need from Linux: clock, readiness, timers, signals,
//! namespaces, UDP in batches.

mod clock;
pub(crate) mod keeper;
mod namespace;
mod notifier;
mod poller;
mod process;
mod refuse;
mod signals;
mod stamps;
mod tcp;
mod timer;
mod udp;

pub(crate) use clock::{ahead_of_the_kernel, tick_length};
pub use clock::{monotonic_now, realtime_minus_monotonic, thread_time};
pub use keeper::Keeper;
pub use namespace::{NetNs, enter_netns, in_netns, spawn_in_netns};
pub use notifier::Notifier;
pub use poller::{Event, Poller};
pub use process::{
    allow_as_many_files_as_possible, change_nice, die_with_parent, drop_cpu_affinity,
    gain_no_privileges, give_back_large_blocks, is_root, pin_to_cpu, set_precedence,
    set_timer_slack, thread_switches,
};
pub(crate) use process::{limit_of_locked_memory, may_lock_beyond_limit};
pub use refuse::{AF_XDP, refuse_binds, refuse_sockets};
pub use signals::{Signal, Signals, hear_signals};
pub(crate) use stamps::{DayClock, Stamps};
pub use tcp::TcpInfo;
pub use timer::Timer;
pub use udp::{
    MAX_BATCH, Received, UdpReceiver, UdpSender, bind_shared, set_receive_buffer, set_send_buffer,
    set_tos,
};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose content stays whole when a thread panics: what it left half done is not
/// behind this lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a system call that gives a number or -1.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The result of a system call that gives a new descriptor or -1.
pub(crate) fn new_fd(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the call has just created `fd`, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the error that a socket holds, for one after its interface went down, lest it be readable
/// for ever. True if there was one.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> bool {
    matches!(rustix::net::sockopt::socket_error(fd), Ok(Err(_)))
}

/// Sets a socket option of plain data.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is readable for `length` bytes for the time of the call.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    })?;
    Ok(())
}

/// A socket option that is a number.
pub(crate) fn get_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let (to, size) = (std::ptr::from_mut(&mut value), std::ptr::from_mut(&mut length));
    // SAFETY: both live for the time of the call, and `value` is `length` bytes long.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, to.cast(), size) })?;
    Ok(value)
}
