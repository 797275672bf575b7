//! The forwarding table against a list that is searched from end to end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_net::fib::{
    Decision, Fib, NO_ROUTE_MTU, NextHop, NextHops, Precedence, Route, RouteKind,
};
use evenkeel_net::{PortIndex, Prefix};
use proptest::prelude::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn via(port: u16, gateway: &str, metric: u32) -> Route {
    Route::via(NextHop::gateway(PortIndex(port), address(gateway)), metric)
}

fn forward(port: u16, next_hop: &str) -> Option<Decision> {
    Some(Decision::Forward {
        port: PortIndex(port),
        next_hop: address(next_hop),
        mtu: NO_ROUTE_MTU,
    })
}

#[test]
fn the_longest_prefix_wins_in_each_family() {
    let fib: Fib = [
        (Prefix::ALL_V4, via(0, "192.0.2.1", 0)),
        (prefix("10.0.0.0/8"), via(1, "192.0.2.2", 0)),
        (prefix("10.1.0.0/16"), Route::via(NextHop::connected(PortIndex(2)), 0)),
        (prefix("10.1.0.1/32"), Route::of(RouteKind::Local)),
        (prefix("10.1.255.255/32"), Route::of(RouteKind::Broadcast)),
        (prefix("10.9.0.0/16"), Route::of(RouteKind::Blackhole)),
        (prefix("2001:db8::/32"), via(3, "fe80::1", 1024)),
        (prefix("2001:db8:ffff::/48"), Route::of(RouteKind::Unreachable)),
        (prefix("2001:db8:eeee::/48"), Route::of(RouteKind::Prohibit)),
        (prefix("ff00::/8"), Route::of(RouteKind::Multicast)),
    ]
    .into_iter()
    .collect();
    assert_eq!(fib.lookup(address("8.8.8.8"), 0), forward(0, "192.0.2.1"));
    assert_eq!(fib.lookup(address("10.255.0.1"), 0), forward(1, "192.0.2.2"));
    assert_eq!(
        fib.lookup(address("10.1.2.3"), 0),
        forward(2, "10.1.2.3"),
        "connected: the destination itself"
    );
    assert_eq!(fib.lookup(address("10.1.0.1"), 0), Some(Decision::Local));
    assert_eq!(fib.lookup(address("10.1.255.255"), 0), Some(Decision::Broadcast));
    assert_eq!(fib.lookup(address("10.9.0.1"), 0), Some(Decision::Blackhole));
    assert_eq!(fib.lookup(address("2001:db8::1"), 0), forward(3, "fe80::1"));
    assert_eq!(fib.lookup(address("2001:db8:ffff::1"), 0), Some(Decision::Unreachable));
    assert_eq!(fib.lookup(address("2001:db8:eeee::1"), 0), Some(Decision::Prohibit));
    assert_eq!(fib.lookup(address("ff02::1"), 0), Some(Decision::Multicast));
    assert_eq!(fib.lookup(address("2001:db9::1"), 0), None, "no default route of IPv6");
    assert_eq!(fib.explain(address("10.1.2.3")).unwrap().0, prefix("10.1.0.0/16"));
    assert_eq!(fib.len(), 10);
}

#[test]
fn removal_uncovers_the_next_best() {
    let mut fib = Fib::new();
    let p = prefix("10.0.0.0/8");
    let main = |metric| Precedence { main: true, metric };
    for metric in [20, 10, 30] {
        assert_eq!(fib.insert(p, via(metric as u16, "192.0.2.1", metric)), None);
    }
    assert_eq!(fib.lookup(address("10.0.0.1"), 0), forward(10, "192.0.2.1"));
    assert_eq!(fib.insert(p, via(11, "192.0.2.9", 10)), Some(via(10, "192.0.2.1", 10)), "replaced");
    assert_eq!(fib.len(), 3);
    assert_eq!(fib.remove(p, main(10)), Some(via(11, "192.0.2.9", 10)));
    assert_eq!(fib.lookup(address("10.0.0.1"), 0), forward(20, "192.0.2.1"));
    assert_eq!(fib.remove(p, main(10)), None, "gone already");
    assert_eq!(fib.remove(prefix("10.0.0.0/9"), main(20)), None, "another prefix");
    // A route to the machine itself goes first, whatever its metric, and hides no other for ever.
    let local = Route { metric: 99, ..Route::of(RouteKind::Local) };
    fib.insert(p, local.clone());
    assert_eq!(fib.lookup(address("10.0.0.1"), 0), Some(Decision::Local));
    assert_eq!(fib.remove(p, local.precedence()), Some(local));
    fib.remove(p, main(20));
    assert_eq!(fib.lookup(address("10.0.0.1"), 0), forward(30, "192.0.2.1"));
    fib.remove(p, main(30));
    assert_eq!((fib.lookup(address("10.0.0.1"), 0), fib.len(), fib.is_empty()), (None, 0, true));
    assert_eq!(fib.iter().count(), 0);
}

#[test]
fn a_port_that_goes_uncovers_the_next_best_too() {
    let mut fib: Fib =
        [(Prefix::ALL_V4, via(0, "192.0.2.1", 1)), (Prefix::ALL_V4, via(1, "192.0.2.2", 2))]
            .into_iter()
            .collect();
    fib.retain(|_, route| !is_via(route, 0));
    assert_eq!((fib.lookup(address("8.8.8.8"), 0), fib.len()), (forward(1, "192.0.2.2"), 1));
    fib.retain(|_, route| !is_via(route, 1));
    assert_eq!((fib.lookup(address("8.8.8.8"), 0), fib.len()), (None, 0));
}

#[test]
fn a_whole_table_takes_the_place_of_another() {
    let mut fib: Fib = [(Prefix::ALL_V4, via(0, "192.0.2.1", 0))].into_iter().collect();
    let old = fib.replace([(Prefix::ALL_V6, via(1, "fe80::1", 0))]);
    assert_eq!(old.lookup(address("1.1.1.1"), 0), forward(0, "192.0.2.1"));
    assert_eq!(fib.lookup(address("1.1.1.1"), 0), None);
    assert_eq!(fib.lookup(address("2001:db8::"), 0), forward(1, "fe80::1"));
    assert_eq!(fib.len(), 1);
}

#[test]
fn flows_are_spread_by_weight_and_stay() {
    let hop = |port, weight| NextHop { weight, ..NextHop::connected(PortIndex(port)) };
    assert_eq!(NextHops::new(Vec::new()), None);
    let hops = NextHops::new(vec![hop(0, 1), hop(1, 0), hop(2, 6)]).unwrap();
    let mut counts = [0_u32; 3];
    let mut rng = 1_u64;
    for _ in 0..80_000 {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        counts[hops.select(rng).port.index()] += 1;
        assert_eq!(hops.select(rng), hops.select(rng));
    }
    for (count, expected) in counts.into_iter().zip([10_000, 10_000, 60_000]) {
        assert!(count.abs_diff(expected) < expected / 20, "{counts:?}");
    }
    assert_eq!(hops.select(0).port, PortIndex(0));
    assert_eq!(hops.select(u64::MAX).port, PortIndex(2));
    let route = Route { metric: 5, ..Route::of(RouteKind::Unicast(hops.clone())) };
    let mut fib: Fib = [(Prefix::ALL_V4, route)].into_iter().collect();
    for hash in [0, u64::MAX / 5, u64::MAX] {
        let port = hops.select(hash).port;
        let expected =
            Decision::Forward { port, next_hop: address("192.0.2.77"), mtu: NO_ROUTE_MTU };
        assert_eq!(fib.lookup(address("192.0.2.77"), hash), Some(expected));
    }
    fib.insert(Prefix::ALL_V4, via(7, "192.0.2.1", 4));
    assert_eq!(
        fib.lookup(address("192.0.2.77"), u64::MAX),
        forward(7, "192.0.2.1"),
        "a better one takes over"
    );
    // The lower half of the hash is left to tables.
    assert_eq!(hops.select(u64::from(u32::MAX)).port, PortIndex(0));
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(Prefix, u32, u16, bool),
    Remove(Prefix, u32, bool),
    DropPort(u16),
    Replace,
}

/// Few bits vary, so that prefixes cover and meet each other.
fn any_address() -> impl Strategy<Value = IpAddr> {
    let spread = |bits: u8| u32::from(bits & 0xf0) << 24 | u32::from(bits & 0x0f);
    prop_oneof![
        any::<u8>().prop_map(move |bits| IpAddr::V4(Ipv4Addr::from_bits(spread(bits)))),
        any::<u8>().prop_map(move |bits| {
            IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(bits & 0xf0) << 120 | u128::from(bits & 0x0f),
            ))
        }),
    ]
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    let lens = vec![0_u8, 1, 2, 3, 4, 5, 24, 28, 29, 30, 31, 32, 64, 124, 125, 127, 128];
    (any_address(), prop::sample::select(lens))
        .prop_filter_map("length of the other family", |(address, len)| Prefix::new(address, len))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (any_prefix(), 0_u32..3, 0_u16..4, any::<bool>())
            .prop_map(|(p, m, port, l)| Operation::Insert(p, m, port, l)),
        4 => (any_prefix(), 0_u32..3, any::<bool>())
            .prop_map(|(p, m, l)| Operation::Remove(p, m, l)),
        1 => (0_u16..4).prop_map(Operation::DropPort),
        1 => Just(Operation::Replace),
    ]
}

fn is_via(route: &Route, port: u16) -> bool {
    matches!(&route.kind, RouteKind::Unicast(hops) if hops.as_slice()[0].port == PortIndex(port))
}

proptest! {
    #[test]
    fn behaves_like_a_list(
        operations in prop::collection::vec(operation(), 0..80),
        destinations in prop::collection::vec(any_address(), 20),
    ) {
        let mut fib = Fib::new();
        let mut list: Vec<(Prefix, Route)> = Vec::new();
        let find = |list: &[(Prefix, Route)], p: Prefix, o: Precedence| {
            list.iter().position(|(q, r)| *q == p && r.precedence() == o)
        };
        for operation in operations {
            match operation {
                Operation::Insert(p, metric, port, local) => {
                    let route = if local {
                        Route { metric, ..Route::of(RouteKind::Local) }
                    } else {
                        Route::via(NextHop::connected(PortIndex(port)), metric)
                    };
                    let old = find(&list, p, route.precedence()).map(|at| list.remove(at).1);
                    list.push((p, route.clone()));
                    prop_assert_eq!(fib.insert(p, route), old);
                }
                Operation::Remove(p, metric, local) => {
                    let precedence = Precedence { main: !local, metric };
                    let old = find(&list, p, precedence).map(|at| list.remove(at).1);
                    prop_assert_eq!(fib.remove(p, precedence), old);
                }
                Operation::DropPort(port) => {
                    list.retain(|(_, route)| !is_via(route, port));
                    fib.retain(|_, route| !is_via(route, port));
                }
                Operation::Replace => {
                    let old = fib.replace(list.clone());
                    prop_assert_eq!(old.len(), fib.len());
                }
            }
            prop_assert_eq!(fib.len(), list.len());
            for destination in destinations.iter().copied() {
                let best = list
                    .iter()
                    .filter(|(p, _)| p.contains(destination))
                    .min_by_key(|(p, r)| (std::cmp::Reverse(p.len()), r.precedence()));
                prop_assert_eq!(fib.explain(destination), best.map(|(p, r)| (*p, r)));
                let expected = best.map(|(_, route)| match &route.kind {
                    RouteKind::Unicast(hops) => {
                        Decision::Forward { port: hops.as_slice()[0].port, next_hop: destination,
                            mtu: NO_ROUTE_MTU }
                    }
                    _ => Decision::Local,
                });
                prop_assert_eq!(fib.lookup(destination, 7), expected);
            }
        }
        list.sort_by_key(|(p, r)| (*p, r.precedence()));
        prop_assert!(fib.iter().eq(list.iter().map(|(p, r)| (*p, r))));
    }
}
