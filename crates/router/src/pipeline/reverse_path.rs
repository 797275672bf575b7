//! Sources that the kernel would not send to by the port they come from: `rp_filter`, which it does
//! not ask of packets that it does not forward.

use std::net::IpAddr;

use evenkeel_core::FlowKey;
use evenkeel_net::PortIndex;
use evenkeel_net::fib::Decision;
use evenkeel_net::policy::{LookupKey, Origin};
use evenkeel_ports::bypass::ReversePath;

use super::Pipeline;
use super::packet::UnroutedPacket;

impl Pipeline {
    /// How the sources of what comes by a port are checked.
    pub(crate) fn set_reverse_path(&mut self, port: PortIndex, how: ReversePath) {
        if let Some(slot) = self.ports.get_mut(port.index()) {
            slot.reverse_path = how;
            self.flow_cache.begin_epoch();
        }
    }

    /// Whether a packet of IPv4 comes from where it may.
    #[inline(always)] // where nobody asks for that, who calls need not make what is looked at
    pub(super) fn may_come_from(
        &self,
        packet: &UnroutedPacket,
        flow: impl FnOnce() -> FlowKey,
        flow_hash: u64,
        dscp: impl FnOnce() -> u8,
    ) -> bool {
        match self.ports[packet.port.index()].reverse_path {
            ReversePath::Off => true,
            how => self.leads_back(packet.port, (flow(), flow_hash), dscp(), how),
        }
    }

    #[inline(never)] // so that who asks for nothing does not pay for it
    fn leads_back(
        &self,
        from: PortIndex,
        (flow, flow_hash): (FlowKey, u64),
        dscp: u8,
        how: ReversePath,
    ) -> bool {
        let strict = how == ReversePath::Strict;
        if !matches!(flow.source, IpAddr::V4(_)) {
            return true;
        }
        let back = FlowKey {
            source: flow.destination,
            destination: flow.source,
            source_port: flow.destination_port,
            destination_port: flow.source_port,
            ..flow
        };
        let key = || LookupKey { flow: back, dscp, origin: Origin::Host(from) };
        let tables = &self.routing.tables;
        match tables.lookup(flow.source, flow_hash, key) {
            Some(Decision::Forward { port, .. }) => {
                let choices = || tables.choices(flow.source, key);
                !strict || port == from || choices().iter().any(|hop| hop.port == from)
            }
            Some(Decision::Elsewhere) => !strict,
            _ => false,
        }
    }
}
