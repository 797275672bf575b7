//! What the kernel sends by a routed interface, taken to the router, so that it goes through the
//! link like all else: what the machine sends itself, and what the kernel forwards from interfaces
//! that are no ports.
//!
//! ```text
//!   kernel: sockets, tunnels, containers
//!     │ leaves by eth0
//!   egress of eth0: ours: mark := 0, next · else redirect to ekh-eth0
//!     ▼
//!   ekh-eth0 ════ eku-eth0 ── packet socket, Side::Kernel ──▶ Evenkeel ── marked ──▶ eth0
//! ```
//!
//! The program is linked by TCX: the kernel removes it with the process, and while that gives no
//! sign of life everything passes.

use std::sync::atomic::Ordering;

use super::pair::{Pair, PairNames};
use super::{fit, not_linked, program};
use crate::bpf::{AttachType, Link, Program, ProgramKind};
use crate::error::PortError;
use crate::heartbeat::Heartbeat;
use crate::interface::Control;
use crate::words::Words;

/// What takes the kernel's packets at the egress of an interface. They are received by an
/// [`InlinePort`](super::InlinePort) of our end of the pair.
#[derive(Debug)]
pub struct OwnTraffic {
    // The interface is given back before what its packets pass is taken away.
    _egress: Link,
    _sink: Link,
    state: Words,
    _pair: Pair,
}

impl OwnTraffic {
    /// Makes a pair for `interface` and attaches the programs, in the network namespace of the
    /// calling thread. Whoever sends by the interface for the router marks it
    /// ([`AfPacketOptions::marked`](crate::af_packet::AfPacketOptions)) or bypasses queueing
    /// disciplines.
    ///
    /// # Errors
    /// There is no such interface, or it has no Ethernet header, or a shaper of the kernel's; the
    /// name of an end is taken; the process lacks CAP_BPF and CAP_NET_ADMIN; the kernel has no TCX.
    /// Nothing is left behind.
    pub fn attach(interface: &str, names: PairNames, heart: &Heartbeat) -> Result<Self, PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        fit::check(interface, ifindex)?;
        let pair = Pair::make(interface, names)?;
        let state = Words::create(program::STATE)?;
        let failed = |error| not_linked(&control, interface, ifindex, error);
        let load = |name, code: &[u64]| Program::load(ProgramKind::SchedCls, name, code, 0);
        let sink = load("evenkeel_sink", &program::sink())?
            .link(pair.ours, AttachType::TcxIngress, 0)
            .map_err(failed)?;
        let egress = load("evenkeel_own", &program::egress(state.map(), heart, pair.kernel))?
            .link(ifindex, AttachType::TcxEgress, 0)
            .map_err(failed)?;
        Ok(Self { _egress: egress, _sink: sink, state, _pair: pair })
    }

    /// How many packets it has taken, super-frames counted once.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.state.word(program::REDIRECTED_FRAMES).load(Ordering::Relaxed)
    }
}
