//! Takes over the queues of an interface, in both directions, and leaves everything else to the
//! kernel: routing, filters, translation, tunnels, sockets.
//!
//! ```text
//!            kernel: routing, netfilter, NAT, tunnels, sockets
//!              │ leaves by eth0                    ▲ as if it had just arrived on eth0
//!   egress of eth0: redirect to ekh-eth0    ingress of eth0: ours: next · else drop
//!              ▼                                   ▲ ingress of ekh-eth0: redirect to eth0
//!         ekh-eth0 ═══════════ eku-eth0  a veth pair
//!                                │ ▲ packet socket, Side::Kernel
//!                                ▼ │
//!                              Evenkeel
//!                                │ ▲ packet socket, Side::Wire
//!                                ▼ │
//!                               eth0
//! ```
//!
//! The programs are linked by TCX (Linux 6.6 and newer): the kernel removes them with the process,
//! and forwards as if there had never been a router. While that gives no sign of life
//! ([`crate::heartbeat`]) they let everything pass.

mod bridge;
mod fit;
mod inbox;
mod own;
mod pair;
mod port;
mod program;

use std::io;
use std::sync::atomic::Ordering;

use crate::bpf::{AttachType, Link, Program, ProgramKind};
use crate::error::PortError;
use crate::heartbeat::Heartbeat;
use crate::interface::Control;
use crate::words::Words;

pub use bridge::{Bridged, join};
pub use own::OwnTraffic;
use pair::Pair;
pub use pair::PairNames;
pub(crate) use pair::master_of;
pub use port::{InlinePort, Side};
pub(crate) use program::OURS;

/// `BPF_F_BEFORE`: before the programs of others, which so see each packet once, after it has
/// waited. Behind them, what they have seen would come by them again.
const FIRST: u32 = 1 << 3;

/// What holds an interface inline. While it lives, and the heart beats, packets go through the two
/// [`InlinePort`]s.
#[derive(Debug)]
pub struct Inline {
    // The interface is given back before what its packets pass is taken away.
    _interface: [Link; 2],
    _pair_links: [Link; 2],
    state: Words,
    _pair: Pair,
}

impl Inline {
    /// Makes a pair for `interface` and attaches the programs, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// There is no such interface, or it has no Ethernet header; the name of an end is taken; the
    /// process lacks CAP_BPF and CAP_NET_ADMIN; the kernel has no TCX. Nothing is left behind.
    pub fn attach(interface: &str, names: PairNames, heart: &Heartbeat) -> Result<Self, PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        fit::check(interface, ifindex)?;
        let pair = Pair::make(interface, names)?;
        let state = Words::create(program::STATE)?;
        let failed = |error| not_linked(&control, interface, ifindex, error);
        let load = |name, code: &[u64]| Program::load(ProgramKind::SchedCls, name, code, 0);
        let link = |program: &Program, at, to, order| program.link(at, to, order).map_err(failed);
        let sink = load("evenkeel_sink", &program::sink())?;
        let inject = load("evenkeel_inject", &program::inject(ifindex))?;
        let egress = load("evenkeel_egress", &program::egress(state.map(), heart, pair.kernel))?;
        let ingress = load("evenkeel_ingress", &program::ingress(state.map(), heart))?;
        // What packets are sent to is ready before they are sent there.
        let pair_links = [
            link(&sink, pair.ours, AttachType::TcxIngress, 0)?,
            link(&inject, pair.kernel, AttachType::TcxIngress, 0)?,
        ];
        let interface = [
            link(&egress, ifindex, AttachType::TcxEgress, FIRST)?,
            link(&ingress, ifindex, AttachType::TcxIngress, FIRST)?,
        ];
        Ok(Self { _interface: interface, _pair_links: pair_links, state, _pair: pair })
    }

    /// How many packets were taken out of the kernel's way at the interface's egress and ingress,
    /// super-frames counted once.
    #[must_use]
    pub fn taken(&self) -> (u64, u64) {
        let word = |at| self.state.word(at).load(Ordering::Relaxed);
        (word(program::REDIRECTED_FRAMES), word(program::TAKEN_FRAMES))
    }
}

/// Why programs could not be linked to an interface.
fn not_linked(control: &Control, interface: &str, ifindex: u32, error: io::Error) -> PortError {
    let what = format!("linking programs to {interface}");
    match error.raw_os_error() {
        Some(libc::EINVAL) => PortError::NoTcx { interface: interface.to_owned(), source: error },
        _ => control.unless_gone(interface, ifindex, PortError::from_io(what, error)),
    }
}
