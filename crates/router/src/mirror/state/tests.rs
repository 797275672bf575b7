//! The copy of the kernel's tables, by facts made by hand.

use super::super::decode::{KernelNextHop, KernelRoute};
use super::super::rules::KernelAction;
use super::*;
use evenkeel_net::policy::{LOCAL_TABLE, MAIN_TABLE};

fn link(index: IfIndex, name: &str) -> Fact {
    Fact::Link(KernelLink {
        index,
        name: name.into(),
        mac: MacAddr([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        up: true,
        enabled: true,
        master: None,
        vrf_table: None,
    })
}

/// Everything is read again.
fn read_again(copy: &mut KernelCopy, facts: Vec<Fact>, events: &mut Vec<MirrorEvent>) {
    let mut tables = Tables::default();
    let (routes, others): (Vec<_>, Vec<_>) =
        facts.into_iter().partition(|fact| matches!(fact, Fact::Route { .. }));
    let (neighbours, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|fact| matches!(fact, Fact::Neighbour(_)));
    others.into_iter().for_each(|fact| tables.add(fact));
    copy.replace(tables, events);
    copy.begin_neighbours();
    neighbours.into_iter().for_each(|fact| copy.dumped_neighbour(fact, events));
    copy.end_neighbours(true, events);
    copy.begin_routes();
    routes.into_iter().for_each(|fact| copy.dumped_route(fact, events));
    copy.end_routes(true, events);
}

fn route(prefix: &str, table: u32, metric: u32, hops: &[(IfIndex, Option<&str>)]) -> KernelRoute {
    KernelRoute {
        prefix: prefix.parse().unwrap(),
        table,
        metric,
        mtu: None,
        kind: if hops.is_empty() { KernelRouteKind::Local } else { KernelRouteKind::Unicast },
        next_hops: hops
            .iter()
            .map(|(index, gateway)| KernelNextHop {
                index: *index,
                gateway: gateway.map(|text| text.parse().unwrap()),
                weight: 1,
            })
            .collect(),
    }
}

fn add(route: KernelRoute) -> Fact {
    Fact::Route { route, replace: false }
}

/// Two ports, eth1 with index 11 and eth2 with index 12; what has been published so far is dropped.
fn two_ports() -> KernelCopy {
    let mut copy = KernelCopy::new(vec!["eth1".into(), "eth2".into()]);
    let mut events = Vec::new();
    read_again(&mut copy, vec![link(11, "eth1"), link(12, "eth2"), link(1, "lo")], &mut events);
    assert_eq!(events.len(), 2, "one event per port, none for lo: {events:?}");
    copy
}

fn ports_of(event: &MirrorEvent) -> Vec<Option<PortIndex>> {
    match event {
        MirrorEvent::Route { route: Some(route), .. } => {
            route.next_hops.iter().map(|hop| hop.port).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn metric_and_table_decide_and_the_second_best_comes_back() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let far = route("10.0.0.0/8", MAIN_TABLE, 100, &[(11, None)]);
    let near = route("10.0.0.0/8", MAIN_TABLE, 10, &[(12, None)]);
    let own = route("10.0.0.0/8", LOCAL_TABLE, 1000, &[]);
    assert_eq!(copy.apply(add(far), &mut events), Resync::Later);
    let _ = copy.apply(add(near.clone()), &mut events);
    let _ = copy.apply(add(own.clone()), &mut events);
    assert_eq!(ports_of(&events[0]), [Some(PortIndex(0))]);
    assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
    assert_eq!(ports_of(&events[2]), []);
    events.clear();
    let _ = copy.apply(Fact::RouteGone(near), &mut events);
    assert_eq!(events, vec![], "the local route hides the others");
    let _ = copy.apply(Fact::RouteGone(own), &mut events);
    assert_eq!(ports_of(&events[0]), [Some(PortIndex(0))]);
}

#[test]
fn a_dump_that_repeats_what_is_known_publishes_nothing() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let facts = || {
        vec![
            link(11, "eth1"),
            link(12, "eth2"),
            Fact::Address(KernelAddress {
                index: 11,
                address: "10.0.0.1".parse().unwrap(),
                prefix_len: 24,
            }),
            add(route("10.0.0.0/24", MAIN_TABLE, 0, &[(11, None)])),
            Fact::Neighbour(KernelNeighbour {
                index: 11,
                address: "10.0.0.9".parse().unwrap(),
                state: KernelNeighbourState::Reachable(MacAddr([2; 6])),
            }),
        ]
    };
    for fact in facts() {
        let _ = copy.apply(fact, &mut events);
    }
    assert_eq!(events.len(), 3, "{events:?}");
    events.clear();
    read_again(&mut copy, facts(), &mut events);
    assert_eq!(events, vec![]);
}

#[test]
fn what_a_dump_no_longer_has_is_withdrawn() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let _ = copy
        .apply(add(route("10.1.0.0/16", MAIN_TABLE, 0, &[(12, Some("10.0.0.2"))])), &mut events);
    let address: IpAddr = "10.0.0.2".parse().unwrap();
    let neighbour = KernelNeighbour { index: 12, address, state: KernelNeighbourState::Incomplete };
    let _ = copy.apply(Fact::Neighbour(neighbour), &mut events);
    events.clear();
    // eth2 went down: no message says that its routes and neighbours are gone.
    read_again(&mut copy, vec![link(11, "eth1"), link(12, "eth2")], &mut events);
    assert_eq!(
        events,
        vec![
            MirrorEvent::Neighbour { port: PortIndex(1), address, state: None },
            MirrorEvent::Route {
                table: MAIN_TABLE,
                prefix: "10.1.0.0/16".parse().unwrap(),
                route: None
            },
        ]
    );
}

#[test]
fn a_recreated_interface_is_the_same_port() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    assert_eq!(copy.apply(Fact::LinkGone(12), &mut events), Resync::Soon);
    assert_eq!(events, vec![MirrorEvent::Link { port: PortIndex(1), link: None }]);
    events.clear();
    let _ = copy.apply(link(40, "eth2"), &mut events);
    let _ = copy.apply(add(route("10.1.0.0/16", MAIN_TABLE, 0, &[(40, None)])), &mut events);
    assert!(matches!(&events[0], MirrorEvent::Link { port: PortIndex(1), link: Some(link) }
            if link.index == 40));
    assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
}

#[test]
fn one_next_hop_of_several_can_go() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let both =
        route("2001:db8::/32", MAIN_TABLE, 1024, &[(11, Some("fe80::1")), (12, Some("fe80::2"))]);
    let _ = copy.apply(add(both), &mut events);
    let first = route("2001:db8::/32", MAIN_TABLE, 1024, &[(11, Some("fe80::1"))]);
    let second = route("2001:db8::/32", MAIN_TABLE, 1024, &[(12, Some("fe80::2"))]);
    let _ = copy.apply(Fact::RouteGone(first), &mut events);
    assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
    let _ = copy.apply(Fact::RouteGone(second), &mut events);
    assert_eq!(
        events[2],
        MirrorEvent::Route {
            table: MAIN_TABLE,
            prefix: "2001:db8::/32".parse().unwrap(),
            route: None
        }
    );
}

#[test]
fn replace_takes_the_old_one_away() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let _ =
        copy.apply(add(route("0.0.0.0/0", MAIN_TABLE, 0, &[(11, Some("10.0.0.2"))])), &mut events);
    let new = route("0.0.0.0/0", MAIN_TABLE, 0, &[(12, Some("10.0.1.2"))]);
    let _ = copy.apply(Fact::Route { route: new.clone(), replace: true }, &mut events);
    assert_eq!(ports_of(&events[1]), [Some(PortIndex(1))]);
    let _ = copy.apply(Fact::RouteGone(new), &mut events);
    assert!(
        matches!(&events[2], MirrorEvent::Route { route: None, .. }),
        "the replaced one is not behind it"
    );
}

#[test]
fn next_hops_beyond_other_interfaces_have_no_port() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let _ = copy.apply(add(route("192.0.2.0/24", MAIN_TABLE, 0, &[(99, None)])), &mut events);
    assert_eq!(ports_of(&events[0]), [None]);
}

#[test]
fn lost_messages_ask_for_a_dump_at_once() {
    assert_eq!(two_ports().apply(Fact::Overrun, &mut Vec::new()), Resync::Now);
}

#[test]
fn what_happens_during_a_dump_stands_and_what_the_dump_lacks_goes() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let via = |prefix: &str, index| route(prefix, MAIN_TABLE, 0, &[(index, Some("10.0.0.2"))]);
    for prefix in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"] {
        let _ = copy.apply(add(via(prefix, 11)), &mut events);
    }
    events.clear();
    copy.begin_routes();
    // Lost without a word: 10.1/16 leads elsewhere, 10.5/16 is new, 10.4/16 is gone.
    copy.dumped_route(add(via("10.1.0.0/16", 12)), &mut events);
    copy.dumped_route(add(via("10.2.0.0/16", 11)), &mut events);
    assert_eq!(events.len(), 1, "told while the dump is read: {events:?}");
    // Meanwhile 10.2/16 and 10.3/16 change; the dump has the one as it was, and the other not at
    // all.
    let _ = copy.apply(Fact::RouteGone(via("10.2.0.0/16", 11)), &mut events);
    let _ = copy.apply(Fact::Route { route: via("10.3.0.0/16", 12), replace: true }, &mut events);
    copy.dumped_route(add(via("10.2.0.0/16", 11)), &mut events);
    copy.dumped_route(add(via("10.5.0.0/16", 11)), &mut events);
    copy.end_routes(true, &mut events);
    let told: Vec<(String, Vec<Option<PortIndex>>)> = events
        .iter()
        .map(|event| match event {
            MirrorEvent::Route { prefix, route, .. } => {
                let hops =
                    route.iter().flat_map(|route| route.next_hops.iter()).map(|hop| hop.port);
                (prefix.to_string(), hops.collect())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let (first, second) = (vec![Some(PortIndex(0))], vec![Some(PortIndex(1))]);
    let expected = [
        ("10.1.0.0/16", second.clone()),
        ("10.2.0.0/16", vec![]),
        ("10.3.0.0/16", second),
        ("10.5.0.0/16", first),
        ("10.4.0.0/16", vec![]),
    ];
    assert_eq!(told, expected.map(|(prefix, hops)| (prefix.to_owned(), hops)));
    // One that was interrupted takes nothing away.
    events.clear();
    copy.begin_routes();
    copy.end_routes(false, &mut events);
    assert_eq!(events, vec![]);
}

#[test]
fn an_interface_that_is_taken_down_takes_its_next_hops_along_and_one_without_carrier_does_not() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let both = route("10.1.0.0/16", MAIN_TABLE, 0, &[(11, None), (12, None)]);
    let one = route("10.2.0.0/16", MAIN_TABLE, 0, &[(12, None)]);
    for route in [both, one, route("10.9.0.0/16", LOCAL_TABLE, 0, &[])] {
        let _ = copy.apply(add(route), &mut events);
    }
    let mut without = |enabled| {
        let Fact::Link(mut link) = link(12, "eth2") else { unreachable!() };
        (link.up, link.enabled) = (false, enabled);
        events.clear();
        let _ = copy.apply(Fact::Link(link), &mut events);
        events.iter().filter(|event| matches!(event, MirrorEvent::Route { .. })).cloned().collect()
    };
    let told: Vec<MirrorEvent> = without(true);
    assert_eq!(told, vec![], "no carrier");
    let told: Vec<MirrorEvent> = without(false);
    assert_eq!(ports_of(&told[0]), [Some(PortIndex(0))]);
    assert_eq!(
        told[1],
        MirrorEvent::Route {
            table: MAIN_TABLE,
            prefix: "10.2.0.0/16".parse().unwrap(),
            route: None
        }
    );
    assert_eq!(told.len(), 2, "{told:?}");
}

fn told(events: &[MirrorEvent]) -> Vec<String> {
    let line = |event: &MirrorEvent| match event {
        MirrorEvent::Route { table, prefix, route } => {
            format!(
                "{table} {prefix} {}",
                route.as_ref().map_or("gone".to_owned(), |r| format!("{:?}", r.kind))
            )
        }
        MirrorEvent::Rules(rules) => format!("rules {}", rules.rules.is_some()),
        other => format!("{other:?}"),
    };
    events.iter().map(line).collect()
}

#[test]
fn with_rules_of_ones_own_local_and_main_part_and_without_they_join_and_never_is_a_route_missing() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let lookup = |priority, table| KernelRule::all(true, priority, KernelAction::Lookup(table));
    let lookup_v6 = |priority, table| KernelRule::all(false, priority, KernelAction::Lookup(table));
    let usual = || {
        let v6 = [lookup_v6(0, LOCAL_TABLE), lookup_v6(32_766, MAIN_TABLE)];
        [vec![lookup(0, LOCAL_TABLE), lookup(32_766, MAIN_TABLE)], v6.to_vec()].concat()
    };
    copy.replace_rules(usual(), TableNames::default(), &mut events);
    for route in [
        route("10.0.0.1/32", LOCAL_TABLE, 0, &[]),
        route("10.0.0.1/32", MAIN_TABLE, 0, &[(11, None)]),
        route("10.9.0.0/16", 100, 0, &[(12, None)]),
    ] {
        let _ = copy.apply(add(route), &mut events);
    }
    assert_eq!(told(&events), ["rules false", "254 10.0.0.1/32 Local", "100 10.9.0.0/16 Unicast"]);
    events.clear();
    let with_one = [usual(), vec![lookup(100, 100)]].concat();
    copy.replace_rules(with_one, TableNames::default(), &mut events);
    // First all that both ways need, then the rules, then what is no longer needed.
    assert_eq!(told(&events), ["255 10.0.0.1/32 Local", "rules true", "254 10.0.0.1/32 Unicast"]);
    events.clear();
    let _ = copy
        .apply(Fact::RouteGone(route("10.0.0.1/32", MAIN_TABLE, 0, &[(11, None)])), &mut events);
    assert_eq!(told(&events), ["254 10.0.0.1/32 gone"]);
    events.clear();
    copy.replace_rules(usual(), TableNames::default(), &mut events);
    assert_eq!(told(&events), ["254 10.0.0.1/32 Local", "rules false", "255 10.0.0.1/32 gone"]);
    // Routes in the table that is asked last count once there are any.
    events.clear();
    let _ = copy.apply(add(route("10.8.0.0/16", DEFAULT_TABLE, 0, &[(12, None)])), &mut events);
    assert_eq!(told(&events), ["253 10.8.0.0/16 Unicast"], "no rule leads there");
    assert_eq!(copy.apply(Fact::RuleGone, &mut events), Resync::Rules);
}

#[test]
fn what_is_not_followed_is_told_once() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    for _ in 0..3 {
        let _ = copy.apply(Fact::NotFollowed(NotFollowed::RouteTos), &mut events);
        copy.dumped_route(Fact::NotFollowed(NotFollowed::RouteTos), &mut events);
    }
    assert_eq!(events, [MirrorEvent::NotFollowed(NotFollowed::RouteTos)]);
}

#[test]
fn neighbours_that_change_while_they_are_read_stand_and_lost_ones_go() {
    let mut copy = two_ports();
    let mut events = Vec::new();
    let neighbour = |host: u8, mac: u8| {
        let state = KernelNeighbourState::Reachable(MacAddr([2, 0, 0, 0, 0, mac]));
        Fact::Neighbour(KernelNeighbour {
            index: 11,
            address: IpAddr::from([10, 0, 0, host]),
            state,
        })
    };
    for host in [2, 3, 4] {
        let _ = copy.apply(neighbour(host, host), &mut events);
    }
    copy.begin_neighbours();
    copy.dumped_neighbour(neighbour(5, 5), &mut events);
    events.clear();
    // Meanwhile 2 changes and 3 goes; the dump has both as they were, and nothing of 4.
    let _ = copy.apply(neighbour(2, 99), &mut events);
    let _ = copy.apply(Fact::NeighbourGone(11, IpAddr::from([10, 0, 0, 3])), &mut events);
    for host in [2, 3] {
        copy.dumped_neighbour(neighbour(host, host), &mut events);
    }
    copy.end_neighbours(true, &mut events);
    let told: Vec<(IpAddr, bool)> = events
        .iter()
        .map(|event| match event {
            MirrorEvent::Neighbour { address, state, .. } => (*address, state.is_some()),
            other => panic!("{other:?}"),
        })
        .collect();
    let host = |host| IpAddr::from([10, 0, 0, host]);
    assert_eq!(told, [(host(2), true), (host(3), false), (host(4), false)]);
    // The next one that is read to its end says what there is; one that is not takes nothing away.
    events.clear();
    copy.begin_neighbours();
    copy.end_neighbours(false, &mut events);
    assert_eq!(events, []);
}
