//! What the kernel says of an interface, through the classic ioctls.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::error::PortError;

/// An interface as it is at the moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    /// Administratively up, and with a carrier.
    pub(crate) running: bool,
}

/// A socket for ioctls, which kind does not matter to them. It belongs for ever to the network
/// namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Control {
    fd: OwnedFd,
}

impl Control {
    pub(crate) fn open() -> Result<Self, PortError> {
        socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map(|fd| Self { fd })
            .map_err(|error| PortError::from_io("opening a control socket", error.into()))
    }

    /// Asks for all there is to know of `name`.
    pub(crate) fn interface(&self, name: &str) -> Result<Interface, PortError> {
        let mut request = named(name)?;
        let failed = |error: io::Error| at_interface(name, "asking about", error);
        let ask = |request: &mut libc::ifreq, what| self.ioctl(what, request).map_err(failed);
        let index = self.index_of(name)?;
        ask(&mut request, libc::SIOCGIFHWADDR)?;
        // SAFETY: SIOCGIFHWADDR has filled this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(PortError::NotEthernet {
                interface: name.to_owned(),
                hardware_type: address.sa_family,
            });
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        ask(&mut request, libc::SIOCGIFMTU)?;
        // SAFETY: SIOCGIFMTU has filled this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu } as u32;
        ask(&mut request, libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS has filled this member.
        let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(Interface { index, mac, mtu, running: flags & wanted == wanted })
    }

    /// The number of the interface with this name, whatever kind it is of.
    pub(crate) fn index_of(&self, name: &str) -> Result<u32, PortError> {
        netdevice::name_to_index(&self.fd, name)
            .map_err(|error| at_interface(name, "asking about", error.into()))
    }

    /// The name of the interface with this number, if there is one.
    pub(crate) fn name_of(&self, index: u32) -> Option<String> {
        netdevice::index_to_name(&self.fd, index).ok()
    }

    /// What to say of a failure at an interface that was found before: if it is gone by now, that.
    /// How system calls fail then tells nothing.
    pub(crate) fn unless_gone(&self, name: &str, index: u32, error: PortError) -> PortError {
        if self.name_of(index).is_some() { error } else { PortError::NoInterface(name.to_owned()) }
    }

    /// One ethtool command; `data` begins with the command's number and is as long as the command
    /// says.
    pub(crate) fn ethtool(&self, name: &str, data: &mut [u32]) -> Result<(), PortError> {
        let mut request = named(name)?;
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        self.ioctl(libc::SIOCETHTOOL as libc::c_ulong, &mut request)
            .map_err(|error| at_interface(name, "ethtool on", error))
    }

    fn ioctl(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: every request used here takes an ifreq; that of SIOCETHTOOL points to a buffer
        // which its caller sizes as the command demands.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), what as _, request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The error of a call about an interface: that it is not there, or what was tried and failed.
fn at_interface(name: &str, what: &str, error: io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => PortError::NoInterface(name.to_owned()),
        _ => PortError::from_io(format!("{what} interface {name}"), error),
    }
}

fn named(name: &str) -> Result<libc::ifreq, PortError> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
        return Err(PortError::BadName(name.to_owned()));
    }
    // SAFETY: ifreq is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_the_kernel_sees_them() {
        let control = Control::open().unwrap();
        for name in ["", "sixteen_bytes_xx", "a\0b"] {
            assert!(matches!(control.interface(name), Err(PortError::BadName(_))), "{name:?}");
        }
        assert!(matches!(control.interface("no-such-if"), Err(PortError::NoInterface(_))));
        assert!(matches!(control.interface("lo"), Err(PortError::NotEthernet { .. })));
        assert_eq!(control.name_of(1).as_deref(), Some("lo"));
        assert_eq!(control.name_of(u32::MAX), None);
    }
}
