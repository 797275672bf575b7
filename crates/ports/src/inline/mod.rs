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

mod inbox;
mod pair;
mod port;
mod program;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bpf::{AttachType, Link, MMAPABLE, Map, MapKind, Program, ProgramKind};
use crate::error::PortError;
use crate::heartbeat::Heartbeat;
use crate::interface::Control;
use crate::mapping::Mapping;

use pair::Pair;
pub use pair::PairNames;
pub use port::{InlinePort, Side};

/// The kernel gives whole pages; the value is at the start of the first.
const PAGE: usize = 4096;

/// What holds an interface inline. While it lives, and the heart beats, packets go through the two
/// [`InlinePort`]s.
#[derive(Debug)]
pub struct Inline {
    // The interface is given back before what its packets pass is taken away.
    _interface: [Link; 2],
    _pair_links: [Link; 2],
    state: State,
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
        let pair = Pair::make(interface, names)?;
        let state = State::create()?;
        let failed = |error: io::Error| {
            let what = format!("linking programs to {interface}");
            match error.raw_os_error() {
                Some(libc::EINVAL) => PortError::Unsupported { what, source: error },
                _ => control.unless_gone(interface, ifindex, PortError::from_io(what, error)),
            }
        };
        let load = |name, code: &[u64]| Program::load(ProgramKind::SchedCls, name, code, 0);
        let link = |program: &Program, at, to| program.link(at, to, 0).map_err(failed);
        let sink = load("evenkeel_sink", &program::sink())?;
        let inject = load("evenkeel_inject", &program::inject(ifindex))?;
        let egress = load("evenkeel_egress", &program::egress(&state.map, heart, pair.kernel))?;
        let ingress = load("evenkeel_ingress", &program::ingress(&state.map, heart))?;
        // What packets are sent to is ready before they are sent there.
        let pair_links = [
            link(&sink, pair.ours, AttachType::TcxIngress)?,
            link(&inject, pair.kernel, AttachType::TcxIngress)?,
        ];
        let interface = [
            link(&egress, ifindex, AttachType::TcxEgress)?,
            link(&ingress, ifindex, AttachType::TcxIngress)?,
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

/// The state that the programs and this process share, mapped into memory.
#[derive(Debug)]
struct State {
    map: Map,
    memory: Mapping,
}

impl State {
    fn create() -> Result<Self, PortError> {
        let map = Map::create(MapKind::Array, 4, program::STATE, 1, MMAPABLE)?;
        let memory = Mapping::shared(map.as_fd(), PAGE, 0, false)
            .map_err(|error| PortError::from_io("mapping a BPF map", error))?;
        Ok(Self { map, memory })
    }

    fn word(&self, offset: i16) -> &AtomicU64 {
        assert!(offset >= 0 && (offset as usize) + 8 <= PAGE && offset % 8 == 0);
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; the kernel side
        // accesses the word only whole, by an atomic or an aligned load.
        unsafe { AtomicU64::from_ptr(self.memory.start().add(offset as usize).cast()) }
    }
}
