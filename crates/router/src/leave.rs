//! A router leaves its cluster: the kernel may forward again by the ports that its role closed.

use evenkeel_config::RouterConfig;
use evenkeel_ports::{gate, sys};

use crate::attachment::fails_closed;
use crate::claim::Claim;
use crate::error::StartError;
use crate::prepare::{denied, port_error, taken};

/// A port of a cluster's role, and what became of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Left {
    /// The port.
    pub port: String,
    /// Its interface.
    pub interface: String,
    /// It was closed for what the kernel forwards.
    pub was_closed: bool,
}

/// Opens the ports that the role of this configuration closed, in a network namespace (a name
/// under `/run/netns`) or in the caller's.
///
/// # Errors
/// A router forwards from one of them, an interface is missing, or the process lacks
/// CAP_NET_ADMIN.
pub fn leave_cluster(config: &RouterConfig, netns: Option<&str>) -> Result<Vec<Left>, StartError> {
    let work = || {
        if let Some(name) = netns {
            sys::enter_netns(name).map_err(|source| {
                denied(format!("entering network namespace {name}"), "CAP_SYS_ADMIN", source)
            })?;
        }
        let ports = config.ports.iter().enumerate();
        let closed = ports.filter(|(at, _)| fails_closed(config, *at)).map(|(_, port)| port);
        // None is opened while a router still forwards from one.
        let claims: Result<Vec<_>, _> = closed
            .clone()
            .map(|port| Claim::on(&port.interface).map_err(|source| taken(port, source)))
            .collect();
        let _claims = claims?;
        let open = |port: &evenkeel_config::PortConfig| {
            let was_closed =
                gate::open(&port.interface).map_err(|error| port_error(&port.name, error))?;
            Ok(Left { port: port.name.clone(), interface: port.interface.clone(), was_closed })
        };
        closed.map(open).collect()
    };
    // A thread of its own enters the namespace.
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
