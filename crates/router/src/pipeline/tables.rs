//! From the events of the mirror to the tables that packets are looked up in.

use std::net::IpAddr;

use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fib::{NO_ROUTE_MTU, NextHop, NextHops, Route, RouteKind};
use evenkeel_net::policy::TableId;
use evenkeel_net::{PortIndex, Prefix};

use super::Pipeline;
use super::neighbours::Waited;
use super::port::LinkState;
use crate::mirror::decode::{KernelNeighbourState, KernelRouteKind};
use crate::mirror::{MirrorEvent, MirroredRoute};

impl Pipeline {
    /// Takes the state of a port's interface; `None`: it is gone. Packets queued for a port that
    /// goes down are dropped as [`Reason::LinkDown`], and so is what is received there until it is
    /// up again.
    pub fn set_link(&mut self, now: Nanos, port: PortIndex, link: Option<LinkState>) {
        self.flow_cache.begin_epoch();
        let Some(slot) = self.ports.get_mut(port.index()) else { return };
        let up = link.is_some_and(|link| link.up);
        if let Some(link) = link {
            slot.mac = link.mac;
            slot.mtu = link.mtu;
        }
        let (goes_down, changes) = (slot.up && !up, slot.up != up);
        slot.up = up;
        self.cluster_port_changed(now, port, link);
        let ports_up = self.ports.iter().filter(|slot| slot.up);
        self.addresses.set_ports(ports_up.map(|slot| slot.mac.bits()));
        if goes_down {
            self.drain_unless_used(now, self.ports[port.index()].link_at);
            self.ports[port.index()].discard_sent(&mut self.pool, Reason::LinkDown);
        }
        if changes {
            self.agenda.touch(port.index());
            self.ports[port.index()].notify_admission(now, up);
        }
        if link.is_none() {
            self.neighbours.remove_port(port);
            self.give_up(now, Reason::LinkDown);
        }
    }

    /// Applies an event of the mirror.
    pub fn apply(&mut self, now: Nanos, event: MirrorEvent) {
        // Ways do not depend on who is behind a translation.
        let translates =
            matches!(event, MirrorEvent::Translation { .. } | MirrorEvent::NoTranslations);
        if !translates {
            self.flow_cache.begin_epoch();
        }
        match event {
            MirrorEvent::Translation { flow, inside } => {
                let Self { translations, classifier, .. } = self;
                translations.learn(&flow, inside, |flow| classifier.hash(flow));
            }
            MirrorEvent::NoTranslations => self.translations.forget(),
            MirrorEvent::Link { port, link } => {
                self.set_link(now, port, link.map(LinkState::from));
            }
            MirrorEvent::Local { address, prefix_len, port, present } => {
                self.addresses.set((address, prefix_len, port), present);
            }
            MirrorEvent::Route { table, prefix, route } => {
                self.set_route(table, prefix, route.as_ref());
            }
            MirrorEvent::Neighbour { port, address, state } => {
                self.set_neighbour(now, port, address, state);
            }
            MirrorEvent::Rules(rules) => self.routing.set_rules(rules),
            MirrorEvent::NotFollowed(what) => self.routing.not_followed(what),
            MirrorEvent::RefusedNeighbours(refused) => self.routing.refused(refused),
            MirrorEvent::Faults(faults) => self.routing.faulted(faults),
        }
    }

    /// Sets the one route of `prefix` in a table. The mirror has chosen it by its metric.
    fn set_route(&mut self, table: TableId, prefix: Prefix, route: Option<&MirroredRoute>) {
        if prefix.is_host() {
            let host = |kind| matches!(kind, KernelRouteKind::Local | KernelRouteKind::Broadcast);
            self.addresses.set_routed(
                table,
                prefix.address(),
                route.is_some_and(|route| host(route.kind)),
            );
        }
        let made = |route: &MirroredRoute| Route {
            mtu: route.mtu.unwrap_or(NO_ROUTE_MTU),
            ..Route::of(kind(route))
        };
        self.routing.tables.set(table, prefix, route.map(made));
    }

    /// Takes what the kernel knows of a neighbour; `None`: nothing. Packets that waited for it are
    /// forwarded or refused.
    pub fn set_neighbour(
        &mut self,
        now: Nanos,
        port: PortIndex,
        address: IpAddr,
        state: Option<KernelNeighbourState>,
    ) {
        self.flow_cache.begin_epoch();
        match self.neighbours.set(now, port, address, state) {
            Waited::Resolved => self.resume(now),
            Waited::Failed => self.give_up(now, Reason::HostUnreachable),
            Waited::Unchanged => {}
        }
    }

    /// The addresses that the kernel receives itself: its own, and the broadcast addresses of its
    /// networks.
    #[must_use]
    pub fn host_addresses(&self) -> Vec<IpAddr> {
        self.addresses.of_host()
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
            // What leaves by an interface that is not a port cannot be forwarded here.
            let none = match route.next_hops.is_empty() {
                true => RouteKind::Unreachable,
                false => RouteKind::Elsewhere,
            };
            NextHops::new(hops.collect()).map_or(none, RouteKind::Unicast)
        }
    }
}
