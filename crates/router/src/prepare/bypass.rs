//! What the kernel does with packets that it forwards, and does not do with those that are
//! forwarded here: a router that switched off the firewall of its machine without a word would do
//! harm.

use std::io;

use evenkeel_config::{Attach, Bypass, RouterConfig};
use evenkeel_ports::bypass::{self, ReversePath};

use super::WorkerBuilder;
use crate::error::StartError;

impl WorkerBuilder<'_> {
    /// Refuses to forward past something that the kernel does, unless the configuration says that
    /// it may be. In the network namespace of the calling thread. Where an interface is missing
    /// that is told instead, later.
    pub(super) fn refuse_bypass(&self) -> Result<(), StartError> {
        let config = &self.worker.config;
        let ports = config.ports.iter().zip(&self.links);
        let routed = ports.filter(|(port, _)| port.attach() == Attach::Route);
        let routed: Option<Vec<&str>> =
            routed.map(|(port, link)| link.map(|_| port.interface.as_str())).collect();
        match routed {
            Some(routed) if self.options.refuses_bypass && self.worker.mirror.leads() => {
                refuse(config, &routed)
            }
            _ => Ok(()),
        }
    }
}

fn refuse(config: &RouterConfig, routed: &[&str]) -> Result<(), StartError> {
    if routed.is_empty() {
        return Ok(());
    }
    let found = found().map_err(|source| StartError::System {
        what: "asking the kernel what it does with packets".to_owned(),
        source,
    })?;
    let mut kinds: Vec<Bypass> = config.router.bypass.clone();
    let accepted = kinds.len();
    let mut told = Vec::new();
    // Where a cluster shares links nothing may leave by the kernel.
    let closed = config.cluster.is_some() || config.balancer.is_some();
    for (kind, what) in found {
        if config.router.bypass.contains(&kind) || (closed && kind == Bypass::IpForward) {
            continue;
        }
        told.push(format!("{}: {what}", kind.name()));
        if !kinds[accepted..].contains(&kind) {
            kinds.push(kind);
        }
    }
    if told.is_empty() {
        return Ok(());
    }
    let words: Vec<_> = kinds.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
    Err(StartError::Bypassed { found: told, words: words.join(", ") })
}

/// How the sources of what comes by a port are checked: as the kernel is told to, unless that may
/// be bypassed.
pub(crate) fn reverse_path_of(config: &RouterConfig, at: usize) -> ReversePath {
    let port = &config.ports[at];
    let asked = port.attach() == Attach::Route && !config.router.bypass.contains(&Bypass::RpFilter);
    if asked { bypass::reverse_path(&port.interface) } else { ReversePath::Off }
}

const IP_FORWARD: &str = "net.ipv4.ip_forward = 0, so nobody forwards when the router is gone \
                          (`sysctl -w net.ipv4.ip_forward=1`, and the same line without the \
                          command in /etc/sysctl.d, mend it)";

fn found() -> io::Result<Vec<(Bypass, String)>> {
    let mut found: Vec<_> =
        bypass::chains()?.into_iter().map(|chain| (Bypass::Netfilter, chain)).collect();
    let policies = bypass::ipsec_policies()?;
    if policies > 0 {
        let plural = if policies == 1 { "y" } else { "ies" };
        found.push((Bypass::Xfrm, format!("{policies} polic{plural} of IPsec")));
    }
    if !bypass::kernel_forwards() {
        found.push((Bypass::IpForward, IP_FORWARD.to_owned()));
    }
    Ok(found)
}
