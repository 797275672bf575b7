//! What a worker holds of an interface besides the port that exchanges frames with it.

use std::net::IpAddr;
use std::path::Path;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_ports::gate;
use evenkeel_ports::guard::{Guard, GuardKind};
use evenkeel_ports::heartbeat::Heartbeat;
use evenkeel_ports::offload::Offloads;
use evenkeel_ports::{Port, PortError};

use crate::claim::Claim;
use crate::pipeline::LinkState;

/// See the module.
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) interface: String,
    /// Held as long as the worker runs, also while the interface is gone.
    pub(crate) claim: Option<Claim>,
    /// The poller watches its descriptor.
    pub(crate) watched: bool,
    pub(crate) guard: Option<Guard>,
    pub(crate) offloads: Option<Offloads>,
    /// Frames are received and sent.
    pub(crate) in_use: bool,
    /// The last state that the mirror reported.
    pub(crate) link: Option<LinkState>,
    /// When to look again at an interface that could not be used.
    pub(crate) retry: Option<Nanos>,
}

/// Switches off what the interface of a port must not have on.
pub(crate) fn offloads_of(
    port: &dyn Port,
    interface: &str,
    runtime_dir: &Path,
) -> Result<Offloads, PortError> {
    if port.kernel_has_copy() {
        Offloads::disable(interface, runtime_dir)
    } else {
        Offloads::disable_beside_xdp(interface, runtime_dir)
    }
}

/// Whether the port leads to links that a cluster shares: the kernel must never forward by it,
/// also when this process is dead, or it takes the shares of all others.
pub(crate) fn fails_closed(config: &RouterConfig, at: usize) -> bool {
    let forwarder = config.cluster.iter().flat_map(|cluster| &cluster.links);
    let balancer = config.balancer.iter().map(|balancer| balancer.port);
    forwarder.map(|link| link.port).chain(balancer).any(|port| usize::from(port) == at)
}

/// Closes the interface of a port that [fails closed](fails_closed).
pub(crate) fn close_gate(
    config: &RouterConfig,
    at: usize,
    interface: &str,
) -> Result<(), PortError> {
    if fails_closed(config, at) { gate::close(interface) } else { Ok(()) }
}

/// Keeps the kernel from forwarding a second copy of what a port receives, if it gets one.
pub(crate) fn guard_of(
    port: &dyn Port,
    interface: &str,
    local: &[IpAddr],
    heart: &Heartbeat,
) -> Result<Option<Guard>, PortError> {
    if !port.kernel_has_copy() {
        return Ok(None);
    }
    Guard::attach(interface, GuardKind::Auto, local, heart).map(Some)
}
