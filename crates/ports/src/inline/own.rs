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
use crate::parcel::{Kind, Parcel};
use crate::words::Words;

/// What takes the kernel's packets at the egress of an interface. They are received by an
/// [`InlinePort`](super::InlinePort) of our end of the pair.
#[derive(Debug)]
pub struct OwnTraffic {
    // The interface is given back before what its packets pass is taken away.
    egress: Link,
    sink: Link,
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
        let (state, [sink, egress]) = programs(&pair, heart)?;
        let failed = |error| not_linked(&control, interface, ifindex, error);
        let sink = sink.link(pair.ours, AttachType::TcxIngress, 0).map_err(failed)?;
        let egress = egress.link(ifindex, AttachType::TcxEgress, 0).map_err(failed)?;
        Ok(Self { egress, sink, state, _pair: pair })
    }

    /// Takes over what another process has [passed on](Self::pass_on), in the network namespace of
    /// the calling thread: its links get programs that look at `heart`, which must beat.
    ///
    /// # Errors
    /// Something else was passed on; or as [`OwnTraffic::attach`].
    pub fn adopt(
        names: PairNames,
        heart: &Heartbeat,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        parcel.expect(Kind::OwnTraffic)?;
        let pair = Pair::adopt(names)?;
        let (state, [sink, egress]) = programs(&pair, heart)?;
        let sink = Link::adopt_for(parcel, &sink)?;
        let egress = Link::adopt_for(parcel, &egress)?;
        Ok(Self { egress, sink, state, _pair: pair })
    }

    /// Puts into a parcel what another process needs to take it over. It must be forgotten then:
    /// dropping it would take it away.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.begin(Kind::OwnTraffic);
        self.sink.pass_on(parcel)?;
        self.egress.pass_on(parcel)
    }

    /// How many packets it has taken, super-frames counted once.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.state.word(program::REDIRECTED_FRAMES).load(Ordering::Relaxed)
    }
}

/// The program of our end of the pair, that of the interface, and what this counts in.
fn programs(pair: &Pair, heart: &Heartbeat) -> Result<(Words, [Program; 2]), PortError> {
    let state = Words::create(program::STATE)?;
    let load = |name, code: &[u64]| Program::load(ProgramKind::SchedCls, name, code, 0);
    let sink = load("evenkeel_sink", &program::sink())?;
    let egress = load("evenkeel_own", &program::egress(state.map(), heart, pair.kernel))?;
    Ok((state, [sink, egress]))
}
