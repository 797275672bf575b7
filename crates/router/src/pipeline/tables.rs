//! From what the mirror tells to the tables that packets are looked up in.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fib::{NO_ROUTE_MTU, NextHop, NextHops, Route, RouteKind};
use evenkeel_net::neighbour::Known;
use evenkeel_net::policy::TableId;
use evenkeel_net::{MacAddr, PortIndex, Prefix};

use super::Pipeline;
use crate::mirror::decode::{KernelNeighbourState, KernelRouteKind};
use crate::mirror::{MirrorEvent, MirroredLink, MirroredRoute};

/// The addresses of this machine.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    list: Vec<(IpAddr, u8, Option<PortIndex>)>,
    /// Addresses that the kernel's routes give to the host, its own and broadcast addresses, and the tables that say so.
    routed: BTreeSet<(IpAddr, TableId)>,
}

impl OwnAddresses {
    fn set(&mut self, entry: (IpAddr, u8, Option<PortIndex>), present: bool) {
        self.list.retain(|known| *known != entry);
        if present {
            self.list.push(entry);
        }
    }

    fn set_routed(&mut self, table: TableId, address: IpAddr, present: bool) {
        if present {
            self.routed.insert((address, table));
        } else {
            self.routed.remove(&(address, table));
        }
    }

    /// The source address of an answer to `sender`, whose packet came in by `port`: that of the network the sender is in, else another of
    /// the port (RFC 1812, 4.3.2.4), else another of this machine; for IPv4 at last the address that RFC 7600, 3.1 has for nodes without one.
    pub(super) fn source_for(&self, port: PortIndex, sender: IpAddr) -> Option<IpAddr> {
        let usable = |&&(address, _, _): &&(IpAddr, u8, Option<PortIndex>)| {
            address.is_ipv4() == sender.is_ipv4()
                && match address {
                    IpAddr::V4(a) => !a.is_loopback(),
                    IpAddr::V6(a) => !a.is_loopback() && !a.is_unicast_link_local(),
                }
        };
        // Smaller is better.
        let rank = |&&(address, len, on): &&(IpAddr, u8, Option<PortIndex>)| {
            let same_net = Prefix::new(address, len).is_some_and(|net| net.contains(sender));
            (on != Some(port), !same_net, on.is_none())
        };
        let best = self.list.iter().filter(usable).min_by_key(rank).map(|&(address, _, _)| address);
        best.or_else(|| sender.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8))))
    }
}

impl Pipeline {
    /// The state of a port's interface. `None`: it is gone. What is queued for a port that goes down is dropped as
    /// [`Reason::LinkDown`], and so is what is received there until it is up again.
    pub fn set_link(&mut self, now: Nanos, port: PortIndex, link: Option<LinkState>) {
        let Some(slot) = self.ports.get_mut(port.index()) else { return };
        let up = link.is_some_and(|link| link.up);
        if let Some(link) = link {
            slot.mac = link.mac;
            slot.mtu = link.mtu;
        }
        let (goes_down, changes) = (slot.up && !up, slot.up != up);
        slot.up = up;
        self.cluster_port_changed(now, port, link);
        self.port_macs.clear();
        self.port_macs.extend(self.ports.iter().filter(|slot| slot.up).map(|slot| slot.mac.bits()));
        if goes_down {
            let (link, mut egress) = self.outgoing(port.index());
            link.drain(now, Reason::LinkDown, &mut egress);
            self.ports[port.index()].discard_sent(&mut self.pool, Reason::LinkDown);
        }
        if changes {
            self.touch(port.index());
            self.ports[port.index()].notify_admission(now, up);
        }
        if link.is_none() {
            let released = &mut self.released;
            self.neighbours.remove_port(port, |packet| released.push(packet));
            self.give_up(now, Reason::LinkDown);
        }
    }

    /// Takes over what the mirror tells.
    pub fn apply(&mut self, now: Nanos, event: MirrorEvent) {
        match event {
            MirrorEvent::Link { port, link } => {
                self.set_link(now, port, link.map(LinkState::from));
            }
            MirrorEvent::Local { address, prefix_len, port, present } => {
                self.own.set((address, prefix_len, port), present);
            }
            MirrorEvent::Route { table, prefix, route } => self.set_route(table, prefix, route.as_ref()),
            MirrorEvent::Neighbour { port, address, state } => self.set_neighbour(now, port, address, state),
            MirrorEvent::Rules(rules) => {
                self.fib.set_rules(rules.rules.clone());
                self.routing.rules = Some(rules);
            }
            MirrorEvent::NotFollowed(what) => self.routing.not_followed(what),
            MirrorEvent::RefusedNeighbours(refused) => self.routing.refused(refused),
        }
    }

    /// The one route of `prefix` in a table. The mirror has chosen it, so metrics are not compared again.
    fn set_route(&mut self, table: TableId, prefix: Prefix, route: Option<&MirroredRoute>) {
        if prefix.is_host() {
            let host = |kind| matches!(kind, KernelRouteKind::Local | KernelRouteKind::Broadcast);
            self.own.set_routed(table, prefix.address(), route.is_some_and(|route| host(route.kind)));
        }
        let made = |route: &MirroredRoute| Route {
            mtu: route.mtu.unwrap_or(NO_ROUTE_MTU),
            ..Route::of(kind(route))
        };
        self.fib.set(table, prefix, route.map(made));
    }

    /// What the kernel knows of a neighbour; `None`: nothing. Packets that waited go on, or are refused.
    pub fn set_neighbour(
        &mut self,
        now: Nanos,
        port: PortIndex,
        address: IpAddr,
        state: Option<KernelNeighbourState>,
    ) {
        let released = &mut self.released;
        let mut learn = |mac, stale| {
            self.neighbours.learn(port, address, Known { mac, stale }, |packet| released.push(packet));
        };
        match state {
            Some(KernelNeighbourState::Reachable(mac)) => learn(mac, false),
            Some(KernelNeighbourState::Stale(mac)) => learn(mac, true),
            Some(KernelNeighbourState::Failed) => {
                self.neighbours.fail(now, port, address, |packet| released.push(packet));
                return self.give_up(now, Reason::HostUnreachable);
            }
            Some(KernelNeighbourState::Incomplete) => return,
            None => return self.neighbours.remove(port, address),
        }
        self.resume(now);
    }

    /// The addresses that the kernel receives itself: its own, and the broadcast addresses of its networks.
    #[must_use]
    pub fn host_addresses(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self.own.list.iter().map(|&(address, _, _)| address).collect();
        addresses.extend(self.own.routed.iter().map(|(address, _)| *address));
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// What the pipeline must know of a port's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkState {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Longest IP packet, bytes.
    pub mtu: u32,
    /// Up and with carrier.
    pub up: bool,
}

impl From<MirroredLink> for LinkState {
    fn from(link: MirroredLink) -> Self {
        Self { mac: link.mac, mtu: link.mtu, up: link.up }
    }
}

fn kind(route: &MirroredRoute) -> RouteKind {
    match route.kind {
        KernelRouteKind::Local => RouteKind::Local,
        KernelRouteKind::Broadcast => RouteKind::Broadcast,
        KernelRouteKind::Multicast => RouteKind::Multicast,
        KernelRouteKind::Blackhole => RouteKind::Blackhole,
        KernelRouteKind::Unreachable => RouteKind::Unreachable,
        KernelRouteKind::Prohibit => RouteKind::Prohibit,
        KernelRouteKind::Throw => RouteKind::Throw,
        KernelRouteKind::Unicast => {
            let hops = route.next_hops.iter().filter_map(|hop| {
                Some(NextHop { port: hop.port?, gateway: hop.gateway, weight: hop.weight })
            });
            // What leaves by an interface that is not a port cannot be forwarded here, and the guard keeps the kernel from it.
            NextHops::new(hops.collect()).map_or(RouteKind::Unreachable, RouteKind::Unicast)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_from_the_address_the_sender_knows() {
        let mut own = OwnAddresses::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (lan, wan) = (Some(PortIndex(0)), Some(PortIndex(1)));
        for entry in [
            (ip("127.0.0.1"), 8, None),
            (ip("10.0.0.1"), 24, lan),
            (ip("10.0.5.1"), 24, lan),
            (ip("fe80::1"), 64, lan),
            (ip("203.0.113.1"), 24, wan),
            (ip("2001:db8::1"), 64, wan),
        ] {
            own.set(entry, true);
        }
        let source =
            |port: u16, sender: &str| own.source_for(PortIndex(port), ip(sender)).map(|ip| ip.to_string());
        assert_eq!(source(0, "10.0.5.77").as_deref(), Some("10.0.5.1"), "of the sender's network");
        assert_eq!(source(0, "198.51.100.1").as_deref(), Some("10.0.0.1"), "of the port");
        assert_eq!(source(1, "10.0.5.77").as_deref(), Some("203.0.113.1"), "of the port, not of the network");
        assert_eq!(
            source(0, "2001:db8:9::9").as_deref(),
            Some("2001:db8::1"),
            "link-local is no source for routed answers"
        );
        own.set((ip("2001:db8::1"), 64, wan), false);
        assert_eq!(own.source_for(PortIndex(0), ip("2001:db8:9::9")), None);
        assert_eq!(OwnAddresses::default().source_for(PortIndex(0), ip("10.0.0.9")), Some(ip("192.0.0.8")));
    }
}
