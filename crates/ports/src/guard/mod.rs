//! Keeps the kernel from forwarding a second copy of what the router forwards.

use std::net::IpAddr;

use crate::error::PortError;

/// How the guard is attached.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GuardKind {
    /// A TCX link where the kernel has it (6.6 and newer), else the filter.
    #[default]
    Auto,
    /// Only a TCX link, which the kernel removes with the process.
    Link,
    /// Only a classic filter, which turns inert one second after the last [`Guard::beat`].
    Filter,
}

/// The guard of one interface. While it lives, the kernel does not forward what arrives there.
#[derive(Debug)]
pub struct Guard {
    kind: GuardKind,
}

impl Guard {
    /// Attaches the guard to `interface`, in the network namespace of the calling thread. It starts with no local address: until
    /// [`Guard::set_local`] is called, the kernel receives only what is not unicast IP.
    ///
    /// # Errors
    /// There is no such interface, the process lacks CAP_BPF and CAP_NET_ADMIN, or the kernel lacks what `kind` needs.
    pub fn attach(interface: &str, kind: GuardKind, local: &[IpAddr]) -> Result<Self, PortError> {
        let _ = (interface, kind, local);
        Err(PortError::NoInterface(interface.to_owned()))
    }

    /// Replaces the set of addresses that the kernel itself receives: those of all interfaces, and the broadcast addresses of their
    /// networks. Never lets a frame to an address that is in the old and in the new set be dropped.
    ///
    /// # Errors
    /// More than [`MAX_LOCAL`] addresses.
    pub fn set_local(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        let _ = addresses;
        Ok(())
    }

    /// Says that the router is alive. Call it at least each 200 ms; costs a store to memory.
    pub fn beat(&self) {}

    /// How it is attached: [`GuardKind::Link`] or [`GuardKind::Filter`].
    #[must_use]
    pub const fn kind(&self) -> GuardKind {
        self.kind
    }

    /// How many frames it has kept from the kernel.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        0
    }
}

/// The most addresses a guard knows.
pub const MAX_LOCAL: usize = 4096;
