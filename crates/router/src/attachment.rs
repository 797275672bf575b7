//! What a worker holds of an interface besides the port that exchanges frames with it.

use std::net::IpAddr;
use std::path::Path;

use evenkeel_core::Nanos;
use evenkeel_ports::guard::{Guard, GuardKind};
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

/// Keeps the kernel from forwarding a second copy of what a port receives, if it gets one.
pub(crate) fn guard_of(
    port: &dyn Port,
    interface: &str,
    local: &[IpAddr],
) -> Result<Option<Guard>, PortError> {
    if !port.kernel_has_copy() {
        return Ok(None);
    }
    Guard::attach(interface, GuardKind::Auto, local).map(Some)
}
