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
use crate::parcel::{Kind, Parcel};
use crate::words::Words;

pub use bridge::{Bridged, join};
pub use fit::check_alone;
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
    interface: [Link; 2],
    pair_links: [Link; 2],
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
        let Programs { state, sink, inject, egress, ingress } =
            Programs::load(ifindex, &pair, heart)?;
        let failed = |error| not_linked(&control, interface, ifindex, error);
        let link = |program: &Program, at, to, order| program.link(at, to, order).map_err(failed);
        // What packets are sent to is ready before they are sent there.
        let pair_links = [
            link(&sink, pair.ours, AttachType::TcxIngress, 0)?,
            link(&inject, pair.kernel, AttachType::TcxIngress, 0)?,
        ];
        let interface = [
            link(&egress, ifindex, AttachType::TcxEgress, FIRST)?,
            link(&ingress, ifindex, AttachType::TcxIngress, FIRST)?,
        ];
        Ok(Self { interface, pair_links, state, _pair: pair })
    }

    /// Takes over what another process has [passed on](Self::pass_on), in the network namespace of
    /// the calling thread: its links get programs that look at `heart`, which must beat.
    ///
    /// # Errors
    /// Something else was passed on; or as [`Inline::attach`].
    pub fn adopt(
        interface: &str,
        names: PairNames,
        heart: &Heartbeat,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        parcel.expect(Kind::InlineHold)?;
        let ifindex = Control::open()?.interface(interface)?.index;
        let pair = Pair::adopt(names)?;
        let Programs { state, sink, inject, egress, ingress } =
            Programs::load(ifindex, &pair, heart)?;
        let mut next = |program| Link::adopt_for(parcel, program);
        let pair_links = [next(&sink)?, next(&inject)?];
        let interface = [next(&egress)?, next(&ingress)?];
        Ok(Self { interface, pair_links, state, _pair: pair })
    }

    /// Puts into a parcel what another process needs to take it over. It must be forgotten then:
    /// dropping it would take it away.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.begin(Kind::InlineHold);
        let mut links = self.pair_links.iter().chain(&self.interface);
        links.try_for_each(|link| link.pass_on(parcel))
    }

    /// How many packets were taken out of the kernel's way at the interface's egress and ingress,
    /// super-frames counted once.
    #[must_use]
    pub fn taken(&self) -> (u64, u64) {
        let word = |at| self.state.word(at).load(Ordering::Relaxed);
        (word(program::REDIRECTED_FRAMES), word(program::TAKEN_FRAMES))
    }
}

/// The four programs, and what they count in.
struct Programs {
    state: Words,
    sink: Program,
    inject: Program,
    egress: Program,
    ingress: Program,
}

impl Programs {
    fn load(ifindex: u32, pair: &Pair, heart: &Heartbeat) -> Result<Self, PortError> {
        let state = Words::create(program::STATE)?;
        let load = |name, code: &[u64]| Program::load(ProgramKind::SchedCls, name, code, 0);
        Ok(Self {
            sink: load("evenkeel_sink", &program::sink())?,
            inject: load("evenkeel_inject", &program::inject(ifindex))?,
            egress: load("evenkeel_egress", &program::egress(state.map(), heart, pair.kernel))?,
            ingress: load("evenkeel_ingress", &program::ingress(state.map(), heart))?,
            state,
        })
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
