//! A kernel without a kind of sockets, or of bindings, for tests: a filter on system calls answers
//! as such a kernel would.

use std::io;
use std::mem::offset_of;

use super::check;

/// The address family of AF_XDP sockets.
pub const AF_XDP: i32 = libc::AF_XDP;

/// From now on the calling thread, and the threads and processes that it starts later, get no
/// socket of `family`: they are told that the kernel has none of that kind. It cannot be undone: so
/// do it in a thread made for it.
///
/// # Errors
/// The kernel has no filters for system calls.
pub fn refuse_sockets(family: i32) -> io::Result<()> {
    refuse(libc::SYS_socket, (0, family as u32), libc::EAFNOSUPPORT)
}

/// As [`refuse_sockets`], for binding sockets to an address of so many bytes: they are told that it
/// is not valid, as by a kernel that does not know a flag in it.
///
/// # Errors
/// The kernel has no filters for system calls.
pub fn refuse_binds(length: usize) -> io::Result<()> {
    refuse(libc::SYS_bind, (2, length as u32), libc::EINVAL)
}

/// Answers a system call with an error if the low half of an argument, told by its place, has this
/// value.
fn refuse(call: libc::c_long, (place, value): (usize, u32), error: i32) -> io::Result<()> {
    let argument = offset_of!(libc::seccomp_data, args)
        + 8 * place
        + if cfg!(target_endian = "little") { 0 } else { 4 };
    let load = |at: usize| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32, 0, 0);
    let unless =
        |value: u32, skip: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, skip);
    let answer = |action: u32| step(libc::BPF_RET | libc::BPF_K, action, 0, 0);
    let mut steps = [
        load(offset_of!(libc::seccomp_data, nr)),
        unless(call as u32, 3),
        load(argument),
        unless(value, 1),
        answer(libc::SECCOMP_RET_ERRNO | error as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    // Filters are for those who gain no privileges by starting programs.
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the program and its steps outlive the call, which copies them.
    check(unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    })?;
    Ok(())
}

const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    #[test]
    fn sockets_of_one_family_are_refused_to_the_thread_and_what_it_starts() {
        let open = |family| rustix::net::socket(family, SocketType::DGRAM, None).map(drop);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                refuse_sockets(libc::AF_UNIX).unwrap();
                assert_eq!(open(AddressFamily::UNIX), Err(Errno::AFNOSUPPORT));
                assert_eq!(open(AddressFamily::INET), Ok(()));
                let child = scope.spawn(|| open(AddressFamily::UNIX));
                assert_eq!(child.join().unwrap(), Err(Errno::AFNOSUPPORT));
            });
        });
        assert_eq!(open(AddressFamily::UNIX), Ok(()));
    }
}
