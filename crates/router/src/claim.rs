//! One router per interface: two that forward from the same one would send every packet twice.
//!
//! A claim is a locked file in a folder that only root, or the router's own user, can write to. The
//! kernel gives the lock up with the process, also after `kill -9`; an empty file may stay then,
//! which is no claim. Namespaces are told apart by the number of their inode.
//!
//! Whoever runs a router without a right to that folder claims a name among abstract sockets
//! instead. Any user of the machine can take such names, and so keep that router from starting.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_ports::PortError;
use evenkeel_ports::parcel::Parcel;

/// The same for all routers of a machine, whatever their runtime folders are.
const FOLDER: &str = "/run/evenkeel";

/// A claim just given up may live on for a moment in a child that this process is about to make.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// An interface that this process, and no other, forwards from. It is given up when dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    held: Held,
}

#[derive(Debug)]
enum Held {
    File { path: PathBuf, lock: File },
    Name { socket: UnixListener },
}

impl Claim {
    /// Claims an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another router has it.
    pub(crate) fn on(interface: &str) -> io::Result<Self> {
        Self::within(Path::new(FOLDER), interface)
    }

    /// Puts it into a parcel for another process, in which it is the same claim. It must be
    /// forgotten then: dropping it would give it up.
    pub(crate) fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        match &self.held {
            Held::File { path, lock } => {
                parcel.put_bytes(path.as_os_str().as_bytes());
                parcel.put_file(lock.as_fd())
            }
            Held::Name { socket } => {
                parcel.put_bytes(&[]);
                parcel.put_file(socket.as_fd())
            }
        }
    }

    /// The claim of another process.
    pub(crate) fn adopt(parcel: &mut Parcel) -> Result<Self, PortError> {
        let path = PathBuf::from(OsStr::from_bytes(parcel.take_bytes()?));
        let file = parcel.take_file()?;
        let held = if path.as_os_str().is_empty() {
            Held::Name { socket: file.into() }
        } else {
            Held::File { path, lock: file.into() }
        };
        Ok(Self { held })
    }

    fn within(folder: &Path, interface: &str) -> io::Result<Self> {
        let mut attempts = 0;
        loop {
            let claimed = match lock(folder, interface) {
                Err(error) if is_closed(&error) => bind(interface),
                claimed => claimed,
            };
            match claimed {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(PAUSE);
                }
                claimed => return Ok(Self { held: claimed? }),
            }
        }
    }
}

/// Whether the folder is not this user's to write to.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn lock(folder: &Path, interface: &str) -> io::Result<Held> {
    fs::create_dir_all(folder)?;
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    let path = folder.join(format!("interface-{namespace}-{interface}"));
    let file = File::create(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Removed between opening and locking, it is nobody's file any more: try again.
    if fs::metadata(&path).map(|now| now.ino()).ok() != Some(file.metadata()?.ino()) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok(Held::File { path, lock: file })
}

fn bind(interface: &str) -> io::Result<Held> {
    let address = SocketAddr::from_abstract_name(format!("evenkeel/interface/{interface}"))?;
    Ok(Held::Name { socket: UnixListener::bind_addr(&address)? })
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Self::File { path, .. } = self {
            // Still locked: nobody claims in between what is then removed.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_claimed_once_and_free_again_afterwards() {
        let name = format!("none{}", std::process::id());
        let claim = Claim::on(&name).unwrap();
        assert_eq!(Claim::on(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(claim);
        assert!(Claim::on(&name).is_ok());
    }

    /// Any user could have the abstract name that a claim was, and no router started.
    #[test]
    fn a_name_that_somebody_else_has_taken_keeps_no_router_from_its_interface() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("squat{}", std::process::id());
        let _squatter = bind(&name).unwrap();
        let claim = Claim::within(folder.path(), &name).unwrap();
        let again = Claim::within(folder.path(), &name).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        drop(claim);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        // What a killed router left behind is no claim.
        let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        File::create(folder.path().join(format!("interface-{namespace}-{name}"))).unwrap();
        Claim::within(folder.path(), &name).unwrap();
    }
}
