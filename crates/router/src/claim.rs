//! One router per interface: two that forward from the same one would send every packet twice.
//!
//! A claim is a socket in the abstract name space, which the kernel keeps apart by network
//! namespace and gives up with the process, also after `kill -9`; no file is left behind.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

/// A claim just given up may live on for a moment in a child that this process is about to make.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// An interface that this process, and no other, forwards from. It is given up when dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Claims an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another router has it.
    pub(crate) fn on(interface: &str) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(format!("evenkeel/interface/{interface}"))?;
        let mut attempts = 0;
        loop {
            match UnixListener::bind_addr(&address) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(PAUSE);
                }
                result => return Ok(Self { _socket: result? }),
            }
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
}
