//! Keeps the kernel from forwarding a second copy of what the router forwards, and only while the
//! router lives.
//!
//! A packet socket sees a copy of each frame; the kernel's stack gets the frame too, and with
//! `ip_forward=1` (which must stay on, so that the kernel takes over when the router is gone) would
//! forward it again. The guard is a BPF program at the interface's ingress, behind the packet
//! sockets, that drops transit unicast frames. What is for the machine itself passes: ARP,
//! broadcast, multicast, link-local, and whatever [`Guard::set_local`] names.
//!
//! | kernel | attached as | after `kill -9` |
//! |---|---|---|
//! | 6.6 and newer | TCX link | removed by the kernel with the process |
//! | older (5.5 and newer) | filter of a clsact qdisc | turns inert when the last heartbeat is too old; the next start replaces it |
//!
//! Either lets everything pass while the router hangs ([`crate::heartbeat`]).

pub(crate) mod filter;
mod program;

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crate::bpf::{AttachType, Link, Program, ProgramKind};
use crate::classify::LocalAddresses;
use crate::error::PortError;
use crate::heartbeat::{Heartbeat, KTIME_GET_COARSE_NS, KTIME_GET_NS};
use crate::interface::Control;
use crate::parcel::{Kind, Parcel};
use crate::words::Words;

pub use crate::classify::MAX_LOCAL;

/// How the guard is attached.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GuardKind {
    /// A TCX link where the kernel has it (6.6 and newer), else the filter.
    #[default]
    Auto,
    /// Only a TCX link, which the kernel removes with the process.
    Link,
    /// Only a classic filter, which turns inert when the last heartbeat is too old.
    Filter,
}

/// What holds the program at the interface; dropping it detaches the program.
#[derive(Debug)]
enum Attached {
    Link(Link),
    Filter(#[expect(dead_code, reason = "held for its drop")] filter::Filter),
}

/// The guard of one interface. While it lives, the kernel does not forward what arrives there.
#[derive(Debug)]
pub struct Guard {
    attached: Attached,
    local: LocalAddresses,
    state: Words,
}

impl Guard {
    /// Attaches the guard to `interface`, in the network namespace of the calling thread, with the
    /// addresses that are local (see [`Guard::set_local`]). Give them here rather than later, or
    /// the kernel misses frames in between. It drops
    /// nothing while none of the workers of `heart` beats.
    ///
    /// # Errors
    /// There is no such interface, the process lacks CAP_BPF and CAP_NET_ADMIN, there are more than
    /// [`MAX_LOCAL`] addresses, or the kernel lacks what `kind` needs.
    pub fn attach(
        interface: &str,
        kind: GuardKind,
        local: &[IpAddr],
        heart: &Heartbeat,
    ) -> Result<Self, PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        Self::attach_at(interface, ifindex, kind, local, heart)
            .map_err(|error| control.unless_gone(interface, ifindex, error))
    }

    fn attach_at(
        interface: &str,
        ifindex: u32,
        kind: GuardKind,
        local: &[IpAddr],
        heart: &Heartbeat,
    ) -> Result<Self, PortError> {
        let local = LocalAddresses::create(local)?;
        let state = Words::create(program::STATE)?;
        let load = |clock| {
            let code = program::assemble(&local, state.map(), heart, clock);
            Program::load(ProgramKind::SchedCls, "evenkeel_guard", &code, 0)
        };
        let link = match kind {
            GuardKind::Filter => None,
            GuardKind::Auto | GuardKind::Link => {
                // A kernel with such links has the cheap clock too; which kernel has the clock only
                // loading tells.
                let linked = match load(KTIME_GET_COARSE_NS) {
                    Ok(program) => program.link(ifindex, AttachType::TcxIngress, 0),
                    Err(PortError::Verifier { source, .. })
                        if source.raw_os_error() == Some(libc::EINVAL) =>
                    {
                        Err(source)
                    }
                    Err(error) => return Err(error),
                };
                match linked {
                    Ok(link) => Some(link),
                    // An older kernel knows no such attach type.
                    Err(error)
                        if kind == GuardKind::Auto
                            && error.raw_os_error() == Some(libc::EINVAL) =>
                    {
                        None
                    }
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                        let what = format!("linking the guard to {interface}");
                        return Err(PortError::Unsupported { what, source: error });
                    }
                    Err(error) => {
                        let what = format!("linking the guard to {interface}");
                        return Err(PortError::from_io(what, error));
                    }
                }
            }
        };
        let attached = match link {
            Some(link) => Attached::Link(link),
            None => Attached::Filter(filter::Filter::attach(ifindex, &load(KTIME_GET_NS)?)?),
        };
        Ok(Self { attached, local, state })
    }

    /// Takes over what another process has [passed on](Self::pass_on): the guard of `interface`, in
    /// the network namespace of the calling thread. It gets a program that looks at `heart`, which
    /// must beat.
    ///
    /// # Errors
    /// Something else was passed on; or as [`Guard::attach`].
    pub fn adopt(
        interface: &str,
        local: &[IpAddr],
        heart: &Heartbeat,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        parcel.expect(Kind::Guard)?;
        if parcel.take()? == 0 {
            // The filter has one place, and what is put there takes that of the other process.
            return Self::attach(interface, GuardKind::Filter, local, heart);
        }
        let local = LocalAddresses::create(local)?;
        let state = Words::create(program::STATE)?;
        let code = program::assemble(&local, state.map(), heart, KTIME_GET_COARSE_NS);
        let program = Program::load(ProgramKind::SchedCls, "evenkeel_guard", &code, 0)?;
        let attached = Attached::Link(Link::adopt_for(parcel, &program)?);
        Ok(Self { attached, local, state })
    }

    /// Puts into a parcel what another process needs to take it over. It must be forgotten then:
    /// dropping it would take it away.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.begin(Kind::Guard);
        match &self.attached {
            Attached::Link(link) => {
                parcel.put(1);
                link.pass_on(parcel)
            }
            Attached::Filter(_) => {
                parcel.put(0);
                Ok(())
            }
        }
    }

    /// Replaces the set of addresses that the kernel itself receives: those of *all* interfaces of
    /// the machine, and the broadcast addresses of their networks. An address that is in the old
    /// and in the new set is known throughout.
    ///
    /// # Errors
    /// More than [`MAX_LOCAL`] addresses; nothing is changed then.
    pub fn set_local(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        self.local.set(addresses)
    }

    /// How it is attached: [`GuardKind::Link`] or [`GuardKind::Filter`].
    #[must_use]
    pub const fn kind(&self) -> GuardKind {
        match self.attached {
            Attached::Link(_) => GuardKind::Link,
            Attached::Filter(_) => GuardKind::Filter,
        }
    }

    /// How many frames it has kept from the kernel.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.word(program::DROPPED).load(Ordering::Relaxed)
    }
}
