//! Network namespaces by name, as `ip netns` keeps them under `/run/netns`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// An open network namespace. It lives as long as this does, even if its name is removed.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// Opens the namespace that `ip netns` calls `name`.
    ///
    /// # Errors
    /// There is none of that name, or the name is not a plain file name.
    pub fn open(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            let message = format!("{name:?} cannot be the name of a network namespace");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let path = format!("/run/netns/{name}");
        let file = File::open(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        Ok(Self { fd: file.into() })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> io::Result<Self> {
        Ok(Self { fd: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// Moves the calling thread into it; sockets that exist stay where they are.
    ///
    /// # Errors
    /// The process lacks CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// A number that no other living namespace of this machine has.
    ///
    /// # Errors
    /// None that is known.
    pub fn inode(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(File::from(self.fd.try_clone()?).metadata()?.ino())
    }
}

/// Moves the calling thread, and no other, into the namespace `name`. Threads started later start
/// there.
///
/// # Errors
/// There is none of that name, or the process lacks CAP_SYS_ADMIN.
pub fn enter_netns(name: &str) -> io::Result<()> {
    NetNs::open(name)?.enter()
}

/// Runs `work` in the namespace `name`, on a thread of its own, and gives its result.
///
/// # Errors
/// There is none of that name, or the process lacks CAP_SYS_ADMIN.
///
/// # Panics
/// If `work` panics.
pub fn in_netns<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = NetNs::open(name)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| namespace.enter().map(|()| work()));
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Makes the child start in the namespace `name`. Unlike `ip netns exec`, mounts stay as they are:
/// `/sys` shows the parent's interfaces.
///
/// # Errors
/// There is none of that name. Missing privilege shows when the child is started.
pub fn spawn_in_netns<'a>(command: &'a mut Command, name: &str) -> io::Result<&'a mut Command> {
    let namespace = NetNs::open(name)?;
    // SAFETY: the closure makes one system call that is safe after fork; the descriptor lives in
    // the closure.
    Ok(unsafe { command.pre_exec(move || namespace.enter()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        for name in ["", "..", ".", "../net", "a/b"] {
            assert_eq!(NetNs::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let error = in_netns("no-such-namespace", || ()).unwrap_err();
        assert!(error.to_string().contains("/run/netns/no-such-namespace"), "{error}");
    }
}
