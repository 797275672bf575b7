//! What a worker holds of an interface besides the port that exchanges frames with it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use evenkeel_config::attach::pair_of;
use evenkeel_config::{Attach, PortConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_ports::deferral::Deferral;
use evenkeel_ports::gate;
use evenkeel_ports::guard::{Guard, GuardKind};
use evenkeel_ports::heartbeat::Heartbeat;
use evenkeel_ports::inline::{self, Bridged, Inline, OwnTraffic, PairNames};
use evenkeel_ports::offload::Offloads;
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::{Port, PortError};

use crate::claim::Claim;
use crate::pipeline::LinkState;

/// See the module.
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) interface: String,
    pub(crate) attach: Attach,
    /// Whether what the kernel sends by it is taken, too.
    pub(crate) own_traffic: bool,
    /// Held as long as the worker runs, also while the interface is gone.
    pub(crate) claim: Option<Claim>,
    /// The poller watches its descriptor.
    pub(crate) watched: bool,
    pub(crate) guard: Option<Hold>,
    pub(crate) tuned: Tuned,
    /// Frames are received and sent.
    pub(crate) in_use: bool,
    /// The last state that the mirror reported.
    pub(crate) link: Option<LinkState>,
    /// When to look again at an interface that could not be used.
    pub(crate) retry: Option<Nanos>,
    /// Since when the kernel has not let go of what the interface had before it came back.
    pub(crate) taken: Option<Nanos>,
}

/// What the first worker tells the others of the interfaces.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// By port: it is guarded, and may be used.
    ports: Box<[AtomicBool]>,
    /// How often one was taken into use.
    taken: AtomicU32,
}

impl Guarded {
    /// None is, yet.
    pub(crate) fn none(ports: usize) -> Self {
        let ports = (0..ports).map(|_| AtomicBool::new(false)).collect();
        Self { ports, taken: AtomicU32::new(0) }
    }

    pub(crate) fn is(&self, port: usize) -> bool {
        self.ports[port].load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, port: usize, guarded: bool) {
        self.ports[port].store(guarded, Ordering::Release);
    }

    pub(crate) fn set_all(&self) {
        (0..self.ports.len()).for_each(|port| self.set(port, true));
    }

    /// An interface was taken into use: what others have of it may belong to one that is no more.
    pub(crate) fn took(&self) {
        self.taken.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }
}

/// What is changed at an interface as long as it is in use; dropping it restores that.
#[derive(Debug, Default)]
pub(crate) struct Tuned {
    offloads: Option<Offloads>,
    deferral: Option<Deferral>,
}

impl Tuned {
    /// Makes the interface of a port ready. `report` hears what could not be done and is no
    /// reason to do without the port.
    pub(crate) fn of(
        port: &dyn Port,
        config: &PortConfig,
        busy_poll: Option<Nanos>,
        runtime_dir: &Path,
        report: Option<fn(&str)>,
    ) -> Result<Self, PortError> {
        let tell = |text: &str| report.iter().for_each(|report| report(text));
        let interface = &config.interface;
        let offloads = offloads_of(port, config.attach(), interface, runtime_dir)?;
        offloads.iter().filter_map(Offloads::warning).for_each(tell);
        let is_xdp = config.attach() == Attach::Route && !port.kernel_has_copy();
        let set = |wait| Deferral::set(interface, port.knows_napi(), wait, runtime_dir);
        let deferral = match busy_poll.filter(|_| is_xdp).map(set).transpose() {
            Ok(deferral) => deferral,
            Err(error) => {
                tell(&format!("port {}: no busy polling: {error}", config.name));
                None
            }
        };
        Ok(Self { offloads, deferral })
    }

    /// Looks at the interface again, which may have been down.
    pub(crate) fn renew(&mut self) {
        if let Some(deferral) = &mut self.deferral {
            // One that is gone says so by other ways.
            let _ = deferral.renew();
        }
    }

    /// Restores it now.
    ///
    /// # Errors
    /// Offloads could not be.
    pub(crate) fn restore(&mut self) -> Result<(), PortError> {
        self.deferral = None;
        self.offloads.take().map_or(Ok(()), Offloads::restore)
    }
}

/// Switches off what the interface of a port must not have on, if there is something.
fn offloads_of(
    port: &dyn Port,
    attach: Attach,
    interface: &str,
    runtime_dir: &Path,
) -> Result<Option<Offloads>, PortError> {
    if attach != Attach::Route {
        // Its ports take super-frames.
        return Ok(None);
    }
    if port.takes_whole() {
        return Offloads::keep(interface, runtime_dir);
    }
    let offloads = if port.kernel_has_copy() {
        Offloads::disable(interface, runtime_dir)
    } else {
        Offloads::disable_beside_xdp(interface, runtime_dir)
    };
    offloads.map(Some)
}

/// Whether the port leads to links that a cluster shares: the kernel must never forward by it,
/// also when this process is dead, or it takes the shares of all others.
pub(crate) fn fails_closed(config: &RouterConfig, at: usize) -> bool {
    let forwarder = config.cluster.iter().flat_map(|cluster| &cluster.links);
    let balancer = config.balancer.iter().map(|balancer| balancer.port);
    forwarder.map(|link| link.port).chain(balancer).any(|port| usize::from(port) == at)
}

/// What stays at the interface of a port when the process ends: it is closed, if the port [fails
/// closed](fails_closed); a bridged one is in a bridge of the kernel's with its peer.
pub(crate) fn settle(config: &RouterConfig, at: usize) -> Result<(), PortError> {
    let interface = |at: usize| config.ports[at].interface.as_str();
    if config.ports[at].attach() == Attach::Bridge
        && let Some(peer) = config.peer_of(at)
    {
        let made = config.made_bridge();
        inline::join([interface(at.min(peer)), interface(at.max(peer))], made.as_deref())?;
    }
    if fails_closed(config, at) { gate::close(interface(at)) } else { Ok(()) }
}

/// What keeps the kernel from sending on what goes through the router.
#[derive(Debug)]
pub(crate) enum Hold {
    /// From forwarding a second copy of what a port receives.
    Guard(Guard),
    /// From sending and receiving past the router, at an interface that is attached inline.
    Inline(Inline),
    /// From passing on what goes through the router, at an interface that is bridged.
    Bridge(Bridged),
    /// From sending past the link of a routed port; and as a guard, if the port needs one.
    Own(OwnTraffic, Option<Guard>),
}

impl Hold {
    /// Holds the interface of a port, if the kernel would do something with it.
    pub(crate) fn of(
        port: &dyn Port,
        (attach, own_traffic): (Attach, bool),
        interface: &str,
        local: &[IpAddr],
        heart: &Heartbeat,
    ) -> Result<Option<Self>, PortError> {
        let names = || {
            let (kernel, ours) = pair_of(interface);
            PairNames { kernel, ours }
        };
        match attach {
            Attach::Route => {
                let guard = || Guard::attach(interface, GuardKind::Auto, local, heart);
                let guard = port.kernel_has_copy().then(guard).transpose()?;
                if !own_traffic {
                    return Ok(guard.map(Self::Guard));
                }
                let own = OwnTraffic::attach(interface, names(), heart)?;
                Ok(Some(Self::Own(own, guard)))
            }
            Attach::InlineWire => {
                Inline::attach(interface, names(), heart).map(|inline| Some(Self::Inline(inline)))
            }
            Attach::Bridge => {
                Bridged::attach(interface, heart).map(|bridged| Some(Self::Bridge(bridged)))
            }
            // The other half of the port holds the interface.
            Attach::InlineKernel | Attach::RouteKernel => Ok(None),
        }
    }

    /// Puts it into a parcel for another process, which [adopts](Self::adopt) it. It must be
    /// forgotten then: dropping it would take it away.
    pub(crate) fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        match self {
            Self::Guard(guard) => guard.pass_on(parcel),
            Self::Inline(inline) => inline.pass_on(parcel),
            Self::Bridge(bridged) => bridged.pass_on(parcel),
            Self::Own(own, guard) => {
                own.pass_on(parcel)?;
                guard.iter().try_for_each(|guard| guard.pass_on(parcel))
            }
        }
    }

    /// What held the interface of a port for another process holds it for this one. Its heart must
    /// beat.
    pub(crate) fn adopt(
        port: &dyn Port,
        (attach, own_traffic): (Attach, bool),
        interface: &str,
        local: &[IpAddr],
        heart: &Heartbeat,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        let (kernel, ours) = pair_of(interface);
        let names = PairNames { kernel, ours };
        match attach {
            Attach::Route if !own_traffic => {
                Guard::adopt(interface, local, heart, parcel).map(Self::Guard)
            }
            Attach::Route => {
                let own = OwnTraffic::adopt(names, heart, parcel)?;
                let mut guard = || Guard::adopt(interface, local, heart, parcel);
                let guard = port.kernel_has_copy().then(&mut guard).transpose()?;
                Ok(Self::Own(own, guard))
            }
            Attach::InlineWire => Inline::adopt(interface, names, heart, parcel).map(Self::Inline),
            Attach::Bridge => Bridged::adopt(heart, parcel).map(Self::Bridge),
            Attach::InlineKernel | Attach::RouteKernel => {
                Err(PortError::NotPassed("the other half of the port holds the interface"))
            }
        }
    }

    pub(crate) fn set_local(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        match self {
            Self::Guard(guard) | Self::Own(_, Some(guard)) => guard.set_local(addresses),
            Self::Own(_, None) | Self::Inline(_) | Self::Bridge(_) => Ok(()),
        }
    }

    /// How it is attached, as `ctl show` says it, and how many packets it has kept from the kernel.
    pub(crate) fn told(&self) -> (&'static str, u64) {
        match self {
            Self::Guard(guard) | Self::Own(_, Some(guard)) => {
                let link = guard.kind() == GuardKind::Link;
                (if link { "link" } else { "filter" }, guard.dropped())
            }
            Self::Own(own, None) => ("xdp", own.taken()),
            Self::Bridge(bridged) => ("bridge", bridged.taken()),
            Self::Inline(inline) => {
                let (egress, ingress) = inline.taken();
                ("inline", egress + ingress)
            }
        }
    }
}
