//! A simulated router: the router's own pipeline, its tables filled as the mirror of a kernel's
//! would fill them.

use std::net::IpAddr;

use evenkeel_core::Nanos;
use evenkeel_net::policy::MAIN_TABLE;
use evenkeel_net::{MacAddr, PortIndex, Prefix};
use evenkeel_router::mirror::decode::{KernelNeighbourState, KernelRouteKind};
use evenkeel_router::mirror::{MirrorEvent, MirroredLink, MirroredNextHop, MirroredRoute};
use evenkeel_router::pipeline::{Pipeline, Round};
use evenkeel_router::{Disciplines, Snapshot};
use evenkeel_scenario::{FIRST_WEIGHT, Interface, Route, Scenario, SetChange};

use crate::error::SimError;
use crate::port::{SimFrame, SimPort};

/// The Ethernet address of an end of a wire: locally administered, numbered. Two of them differ in
/// their last bits, as those of real ports do: routers tell their own from others by these.
pub(crate) fn mac(wire: usize, end: usize) -> MacAddr {
    let [a, b, c, d] = (2 * wire as u32 + end as u32).to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

/// A router of the scenario.
pub(crate) struct SimRouter {
    pub(crate) pipeline: Pipeline,
    pub(crate) ports: Vec<SimPort>,
    /// The ports that have received something.
    receiving: Vec<usize>,
    /// The direction of a wire that each port sends into.
    pub(crate) outward: Vec<u32>,
    /// The call that has been asked for; `Nanos::MAX`: none.
    pub(crate) wake: Nanos,
    /// Whether it waits for its turn in the present instant.
    pub(crate) ready: bool,
}

impl SimRouter {
    /// The router called `name`, all its links up, its routes those of [`Scenario::routes`], every
    /// neighbour known.
    pub(crate) fn new(
        scenario: &Scenario,
        name: &str,
        disciplines: &Disciplines,
    ) -> Result<Self, SimError> {
        let config = scenario.router(name).map(|router| &router.config);
        let config = config.ok_or_else(|| SimError::NoNode(name.to_owned()))?;
        let mut config = config.clone();
        config.router.flow_cache = config.router.flow_cache.min(known_flows(scenario));
        let mut pipeline =
            Pipeline::with_disciplines(&config, Nanos::ZERO, disciplines.clone()).map_err(
                |error| SimError::Router { router: name.to_owned(), source: Box::new(error) },
            )?;
        let interfaces = scenario.interfaces(name);
        let mut ports = Vec::with_capacity(config.ports.len());
        let mut outward = Vec::with_capacity(config.ports.len());
        let mut tell = |event| pipeline.apply(Nanos::ZERO, event);
        for (index, port) in config.ports.iter().enumerate() {
            let interface = interfaces.iter().find(|interface| interface.name == port.interface);
            let interface = interface.ok_or_else(|| SimError::NoPort {
                node: name.to_owned(),
                interface: port.interface.clone(),
            })?;
            let near = usize::from(scenario.wires[interface.wire].ends[0].node != name);
            let (own, mtu) = (mac(interface.wire, near), u32::from(interface.mtu));
            let port = PortIndex(index as u16);
            let link = MirroredLink { index: index as u32 + 1, mac: own, mtu, up: true };
            tell(MirrorEvent::Link { port, link: Some(link) });
            addresses(interface, port, &mut tell);
            let far = &scenario.wires[interface.wire].ends[1 - near];
            for address in [IpAddr::V4(far.v4), IpAddr::V6(far.v6)] {
                let state = Some(KernelNeighbourState::Reachable(mac(interface.wire, 1 - near)));
                tell(MirrorEvent::Neighbour { port, address, state });
            }
            ports.push(SimPort::new(&interface.name, own.0, mtu));
            outward.push((2 * interface.wire + near) as u32);
        }
        for route in scenario.routes(name) {
            let place =
                |interface: &str| config.ports.iter().position(|port| port.interface == interface);
            tell(ways(&route, place));
        }
        let receiving = Vec::with_capacity(ports.len());
        Ok(Self { pipeline, ports, receiving, outward, wake: Nanos::MAX, ready: false })
    }

    /// A frame arrives at a port.
    pub(crate) fn arrived(&mut self, port: u32, frame: &SimFrame) {
        let rx = &mut self.ports[port as usize].rx;
        if rx.is_empty() {
            self.receiving.push(port as usize);
        }
        rx.push(*frame);
    }

    /// A round of its pipeline.
    pub(crate) fn round(&mut self, now: Nanos) -> Round {
        // What arrives at the same instant is read port by port, in the order of the ports.
        if self.receiving.len() > 1 {
            self.receiving.sort_unstable();
        }
        let round = self.pipeline.round_of(now, &mut self.ports, self.receiving.iter().copied());
        if round.more {
            self.receiving.retain(|port| !self.ports[*port].rx.is_empty());
        } else {
            self.receiving.clear();
        }
        round
    }

    /// Tells what the mirror of a kernel would when wires went down or came up and a routing
    /// protocol made up for it: `before` and `then` are the scenario's layouts.
    pub(crate) fn lay_out(&mut self, now: Nanos, name: &str, before: &Scenario, then: &Scenario) {
        let pipeline = &mut self.pipeline;
        let ports: Vec<_> =
            self.ports.iter().map(|port| (port.interface().to_owned(), port.mtu())).collect();
        let place = |interface: &str| ports.iter().position(|(known, _)| known == interface);
        for interface in then.interfaces(name) {
            let down = then.wires[interface.wire].down;
            let Some(index) =
                place(&interface.name).filter(|_| down != before.wires[interface.wire].down)
            else {
                continue;
            };
            let near = usize::from(then.wires[interface.wire].ends[0].node != name);
            let mac = mac(interface.wire, near);
            let port = PortIndex(index as u16);
            let link =
                MirroredLink { index: index as u32 + 1, mac, mtu: ports[index].1, up: !down };
            pipeline.apply(now, MirrorEvent::Link { port, link: Some(link) });
            for (address, prefix_len) in [
                (IpAddr::V4(interface.v4), interface.prefix4),
                (IpAddr::V6(interface.v6), interface.prefix6),
            ] {
                let hop = MirroredNextHop { port: Some(port), gateway: None, weight: 1 };
                pipeline.apply(
                    now,
                    if down {
                        gone(address, prefix_len)
                    } else {
                        unicast(address, prefix_len, hop)
                    },
                );
            }
        }
        let (old, new) = (before.routes(name), then.routes(name));
        for route in old.iter().filter(|old| {
            new.iter().all(|new| (new.destination, new.prefix) != (old.destination, old.prefix))
        }) {
            pipeline.apply(now, gone(route.destination, route.prefix));
        }
        for route in new.iter().filter(|new| !old.contains(new)) {
            pipeline.apply(now, ways(route, place));
        }
    }

    /// Makes a change of a step.
    pub(crate) fn set(&mut self, now: Nanos, set: &SetChange) -> Result<(), SimError> {
        self.pipeline.change(now, &set.change).map_err(|error| SimError::Change {
            change: format!("{} {} {}", set.router, set.link, set.knob),
            source: Box::new(error),
        })
    }

    /// Its counters.
    pub(crate) fn snapshot(&mut self, now: Nanos) -> Snapshot {
        self.pipeline.snapshot(now, &mut self.ports)
    }
}

/// How many flows a router of the scenario remembers at most. How many is nobody's outcome, but
/// the flows of a large table lie far apart, each in pages of its own.
fn known_flows(scenario: &Scenario) -> u32 {
    let flows = scenario.traffic.iter().map(|traffic| traffic.flows);
    // Both ways of each, in a table that is half full.
    flows.fold(0, u32::saturating_add).saturating_mul(4).max(LEAST_KNOWN)
}

/// Flows that come and go are one in the scenario.
const LEAST_KNOWN: u32 = 4_096;

/// What the kernel knows of an interface with these addresses.
fn addresses(interface: &Interface, port: PortIndex, tell: &mut impl FnMut(MirrorEvent)) {
    let own = [
        (IpAddr::V4(interface.v4), interface.prefix4),
        (IpAddr::V6(interface.v6), interface.prefix6),
    ];
    for (address, prefix_len) in own {
        tell(MirrorEvent::Local { address, prefix_len, port: Some(port), present: true });
        let local = MirroredRoute {
            kind: KernelRouteKind::Local,
            metric: 0,
            mtu: None,
            next_hops: [].into(),
        };
        tell(MirrorEvent::Route {
            table: MAIN_TABLE,
            prefix: Prefix::host(address),
            route: Some(local),
        });
        tell(unicast(
            address,
            prefix_len,
            MirroredNextHop { port: Some(port), gateway: None, weight: 1 },
        ));
    }
}

/// A route that is no more.
fn gone(destination: IpAddr, prefix_len: u8) -> MirrorEvent {
    let prefix = Prefix::new(destination, prefix_len).unwrap_or_else(|| Prefix::host(destination));
    MirrorEvent::Route { table: MAIN_TABLE, prefix, route: None }
}

fn unicast(destination: IpAddr, prefix_len: u8, next_hop: MirroredNextHop) -> MirrorEvent {
    several(destination, prefix_len, vec![next_hop])
}

/// A route of the scenario; `place` gives the port of an interface.
fn ways(route: &Route, place: impl Fn(&str) -> Option<usize>) -> MirrorEvent {
    let hop = |via: IpAddr, interface: &str, weight| MirroredNextHop {
        port: place(interface).map(|index| PortIndex(index as u16)),
        gateway: Some(via),
        weight,
    };
    let first = if route.others.is_empty() { 1 } else { FIRST_WEIGHT };
    let first = std::iter::once(hop(route.via, &route.interface, first));
    let others = route.others.iter().map(|(via, interface)| hop(*via, interface, 1));
    several(route.destination, route.prefix, first.chain(others).collect())
}

fn several(destination: IpAddr, prefix_len: u8, next_hops: Vec<MirroredNextHop>) -> MirrorEvent {
    // The scenario's prefixes are no longer than their addresses.
    let prefix = Prefix::new(destination, prefix_len).unwrap_or_else(|| Prefix::host(destination));
    let route = MirroredRoute {
        kind: KernelRouteKind::Unicast,
        metric: 0,
        mtu: None,
        next_hops: next_hops.into(),
    };
    MirrorEvent::Route { table: MAIN_TABLE, prefix, route: Some(route) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header;

    const SCENARIO: &str = r#"
name = "refused"
title = "What is refused"
source = "a test"
seed = 1
sample = "100ms"
duration = "1s"
[[host]]
name = "a"
[[host]]
name = "b"
[[router]]
name = "r1"
[[router.config.class]]
name = "rest"
[[router.config.link]]
port = "a"
rate = "5Mbit/s"
discipline = { kind = "lct" }
[router.config.link.control]
kind = "lct"
[[router.config.link]]
port = "b"
rate = "5Mbit/s"
discipline = { kind = "pfq" }
[router.config.link.admission]
second_link = "a"
[[wire]]
ends = ["a", "r1"]
[[wire]]
ends = ["b", "r1"]
[[traffic]]
name = "t"
from = "a"
to = "b"
kind = "cbr"
rate = "1Mbit/s"
"#;

    fn change(link: &str, knob: &str, value: &str) -> SetChange {
        let change = evenkeel_config::parse_change(knob, None, value, &["rest"]).unwrap();
        SetChange {
            router: "r1".to_owned(),
            link: link.to_owned(),
            knob: knob.to_owned(),
            class: None,
            value: value.to_owned(),
            change: change.on(link),
        }
    }

    /// 20 ms of packets of several flows, more than the links carry, both ways. All counters, and
    /// how many frames have left.
    fn behaviour(router: &mut SimRouter, scenario: &Scenario, now: &mut Nanos) -> String {
        let hosts = ["a", "b"].map(|host| IpAddr::V4(scenario.interfaces(host)[0].v4));
        let mut left = 0;
        for n in 0..200_u16 {
            *now += Nanos::from_micros(100);
            let (from, to) = if n % 2 == 0 { (0, 1) } else { (1, 0) };
            let ethernet = header::ethernet(mac(from, 1), mac(from, 0), false);
            let source = (hosts[from], 4_000 + n % 5).into();
            let (frame, _) = header::udp(ethernet, source, (hosts[to], 9).into(), 0, 500);
            router.arrived(from as u32, &frame);
            router.round(*now);
            left += router.ports.iter_mut().map(|port| port.tx.drain(..).count()).sum::<usize>();
        }
        format!("{left} frames\n{:#?}", router.snapshot(*now))
    }

    /// Of two routers that are alike, one is asked for what it refuses: it goes on as the other.
    #[test]
    fn what_a_step_is_refused_has_changed_nothing() {
        let scenario = Scenario::parse(SCENARIO, "test.toml", ".".as_ref()).unwrap();
        let new = || SimRouter::new(&scenario, "r1", &Disciplines::default()).unwrap();
        let (mut asked, mut other) = (new(), new());
        let mut times = [Nanos::ZERO; 2];
        let mut same = |asked: &mut SimRouter, other: &mut SimRouter| {
            let told = behaviour(asked, &scenario, &mut times[0]);
            assert!(!told.starts_with("0 frames"), "{told}");
            told == behaviour(other, &scenario, &mut times[1])
        };
        let now = |n: u64| Nanos::from_millis(20 * n);
        assert!(same(&mut asked, &mut other));
        for (n, (link, knob, value, words)) in [
            ("a", "x_delay", "1ms", "turned by its control"),
            ("b", "limit", "7", "limit"),
            ("a", "rate", "unpaced", "second link has no rate"),
            ("b", "discipline", "{ kind = \"fifo\" }", "measures no fair rate"),
            ("b", "control", "on", "has no control"),
            ("a", "admission.user_flows", "3", "has no admission"),
            ("b", "admission.probation", "999s", "probation"),
            ("b", "admission", "{ flows = 50000 }", "flows"),
        ]
        .into_iter()
        .enumerate()
        {
            let error = asked.set(now(1 + n as u64), &change(link, knob, value)).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(words), "{link} {knob}: {error}");
            assert!(same(&mut asked, &mut other), "{link} {knob} has changed something");
        }
        for router in [&mut asked, &mut other] {
            router.set(now(9), &change("b", "rate", "1Mbit/s")).unwrap();
            router.set(now(9), &change("a", "control", "off")).unwrap();
        }
        assert!(same(&mut asked, &mut other), "as it would have changed");
    }
}
