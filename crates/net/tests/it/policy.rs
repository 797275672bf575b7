//! Rules and tables as `ip-rule(8)` has them.

use std::net::IpAddr;

use evenkeel_core::FlowKey;
use evenkeel_net::fib::{Decision, NO_ROUTE_MTU, NextHop, Route, RouteKind};
use evenkeel_net::policy::{
    Action, DEFAULT_TABLE, Incoming, LOCAL_TABLE, LookupKey, MAIN_TABLE, Origin, PolicyTables,
    PortMatch, Rule, Rules, Selector, TableId,
};
use evenkeel_net::{PortIndex, Prefix};

const RED: TableId = 100;
const BLUE: TableId = 101;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// A packet to 10.9.0.1 that came in by port 0.
fn packet() -> LookupKey {
    let flow = FlowKey {
        source: address("10.1.0.2"),
        destination: address("10.9.0.1"),
        protocol: 17,
        source_port: 4_000,
        destination_port: 53,
        flow_label: 0,
    };
    LookupKey { flow, dscp: 0, origin: Origin::Port(PortIndex(0)) }
}

fn lookup(table: TableId) -> Action {
    Action::Lookup { table, suppress: None }
}

fn rule(selector: Selector, action: Action) -> Rule {
    Rule { selector, action }
}

fn all(action: Action) -> Rule {
    rule(Selector::default(), action)
}

/// The prefix 10.9/16 leads out of port 1 by main, 2 by red, 3 by blue; main has a default route
/// out of port 4.
fn tables(rules: Vec<Rule>) -> PolicyTables {
    let mut tables = PolicyTables::new();
    let via =
        |port: u16| Some(Route::via(NextHop::gateway(PortIndex(port), address("192.0.2.1")), 0));
    for (table, port) in [(MAIN_TABLE, 1), (RED, 2), (BLUE, 3)] {
        tables.set(table, prefix("10.9.0.0/16"), via(port));
    }
    tables.set(MAIN_TABLE, Prefix::ALL_V4, via(4));
    tables.set(LOCAL_TABLE, prefix("10.1.0.1/32"), Some(Route::of(RouteKind::Local)));
    tables.set_rules(Some(Rules { v4: rules, v6: Vec::new() }));
    tables
}

/// The port that a packet leaves by.
fn port(tables: &PolicyTables, key: LookupKey) -> Option<u16> {
    match tables.lookup(key.flow.destination, 0, || key) {
        Some(Decision::Forward { port, .. }) => Some(port.0),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_rules_nobody_asks_for_more_than_the_destination() {
    let mut tables = tables(Vec::new());
    tables.set_rules(None);
    let decision =
        tables.lookup(address("10.9.0.1"), 0, || panic!("a packet's headers are not needed"));
    assert!(matches!(decision, Some(Decision::Forward { port: PortIndex(1), .. })), "{decision:?}");
    let ids: Vec<TableId> = tables.tables().map(|(id, _)| id).collect();
    assert_eq!((ids, tables.len()), (vec![RED, BLUE, MAIN_TABLE, LOCAL_TABLE], 5));
}

#[test]
fn the_first_rule_that_matches_decides_and_a_table_without_a_way_does_not() {
    let of_source = Selector { from: Some(prefix("10.1.0.0/24")), ..Selector::default() };
    let rules = vec![rule(of_source, lookup(RED)), all(lookup(MAIN_TABLE))];
    let mut tables = tables(rules);
    assert_eq!(port(&tables, packet()), Some(2));
    let mut other = packet();
    other.flow.source = address("10.2.0.2");
    assert_eq!(port(&tables, other), Some(1));
    let mut elsewhere = packet();
    elsewhere.flow.destination = address("8.8.8.8");
    assert_eq!(port(&tables, elsewhere), Some(4), "red has no way: main is asked");
    // A longer prefix in a table further down does not count.
    tables.set(MAIN_TABLE, prefix("10.9.0.1/32"), Some(Route::of(RouteKind::Prohibit)));
    assert_eq!(port(&tables, packet()), Some(2));
    // A table that has lost its routes is as one that never was.
    tables.set(RED, prefix("10.9.0.0/16"), None);
    assert!(tables.table(RED).is_none());
    let decision = tables.lookup(address("10.9.0.1"), 0, packet);
    assert_eq!(decision, Some(Decision::Prohibit));
}

#[test]
fn every_selector_matches_what_it_names_and_nothing_else() {
    let ports = |start, end, mask| Some(PortMatch { start, end, mask });
    let any = Selector::default;
    let incoming = |port| Incoming::Ports(vec![PortIndex(7), PortIndex(port)]);
    let cases: Vec<(&str, Selector, bool)> = vec![
        ("from", Selector { from: Some(prefix("10.1.0.0/24")), ..any() }, true),
        ("from another", Selector { from: Some(prefix("10.2.0.0/24")), ..any() }, false),
        ("to", Selector { to: Some(prefix("10.9.0.0/30")), ..any() }, true),
        ("to another", Selector { to: Some(prefix("10.9.0.4/30")), ..any() }, false),
        ("iif", Selector { incoming: incoming(0), ..any() }, true),
        ("another iif", Selector { incoming: incoming(1), ..any() }, false),
        ("iif lo", Selector { incoming: Incoming::Host, ..any() }, false),
        ("ipproto", Selector { protocol: Some(17), ..any() }, true),
        ("another ipproto", Selector { protocol: Some(6), ..any() }, false),
        ("sport", Selector { source_port: ports(3_000, 4_000, 0), ..any() }, true),
        ("another sport", Selector { source_port: ports(4_001, 5_000, 0), ..any() }, false),
        ("dport", Selector { destination_port: ports(53, 53, u16::MAX), ..any() }, true),
        ("another dport", Selector { destination_port: ports(54, 54, u16::MAX), ..any() }, false),
        ("dport by mask", Selector { destination_port: ports(0x35, 0x35, 0x0f), ..any() }, true),
        ("dscp", Selector { dscp: Some((0, 0x3f)), ..any() }, true),
        ("another dscp", Selector { dscp: Some((46, 0x3f)), ..any() }, false),
        ("dscp by mask", Selector { dscp: Some((0x30, 0x07)), ..any() }, true),
    ];
    for (name, selector, expected) in cases {
        assert_eq!(selector.matches(&packet()), expected, "{name}");
        let inverted = Selector { inverted: true, ..selector };
        assert_eq!(inverted.matches(&packet()), !expected, "not {name}");
    }
    let own = LookupKey { origin: Origin::Host(PortIndex(0)), ..packet() };
    assert!(Selector { incoming: Incoming::Host, ..any() }.matches(&own));
    assert!(!Selector { incoming: incoming(0), ..any() }.matches(&own), "it did not come in there");
}

#[test]
fn goto_nop_and_the_rules_that_refuse() {
    let tables = tables(vec![
        all(Action::Nop),
        all(Action::Goto(3)),
        all(Action::Blackhole),
        rule(Selector { dscp: Some((8, 0x3f)), ..Selector::default() }, Action::Prohibit),
        rule(Selector { dscp: Some((16, 0x3f)), ..Selector::default() }, Action::Unreachable),
        rule(Selector { dscp: Some((24, 0x3f)), ..Selector::default() }, Action::Blackhole),
        // One that leads backwards would never end: it is passed over.
        all(Action::Goto(0)),
        all(lookup(BLUE)),
    ]);
    let decision = |dscp| tables.lookup(address("10.9.0.1"), 0, || LookupKey { dscp, ..packet() });
    assert_eq!(port(&tables, packet()), Some(3));
    assert_eq!(decision(8), Some(Decision::Prohibit));
    assert_eq!(decision(16), None, "answered as where there is no route");
    assert_eq!(decision(24), Some(Decision::Blackhole));
}

#[test]
fn throw_and_suppression_go_on_with_the_next_rule() {
    let suppressing = |longest| Action::Lookup { table: MAIN_TABLE, suppress: Some(longest) };
    let mut tables = tables(vec![all(suppressing(0)), all(lookup(RED))]);
    assert_eq!(port(&tables, packet()), Some(1), "longer than the default route");
    tables.set(MAIN_TABLE, prefix("10.9.0.0/16"), None);
    assert_eq!(port(&tables, packet()), Some(2), "main has the default route only");
    tables.set(MAIN_TABLE, Prefix::ALL_V4, Some(Route::of(RouteKind::Blackhole)));
    let decision = tables.lookup(address("10.9.0.1"), 0, packet);
    assert_eq!(decision, Some(Decision::Blackhole), "a refusal is not suppressed");
    tables.set(MAIN_TABLE, prefix("10.9.0.0/24"), Some(Route::of(RouteKind::Throw)));
    assert_eq!(port(&tables, packet()), Some(2));
    tables.set_rules(None);
    assert_eq!(tables.lookup(address("10.9.0.1"), 0, packet), None, "no other table to go on with");
}

#[test]
fn routing_domains_keep_their_ports_and_their_answers_apart() {
    let domains =
        Action::Domain { tables: vec![(PortIndex(0), RED), (PortIndex(1), BLUE)], suppress: None };
    let tables = tables(vec![all(domains), all(lookup(MAIN_TABLE))]);
    let from = |origin| port(&tables, LookupKey { origin, ..packet() });
    assert_eq!(from(Origin::Port(PortIndex(0))), Some(2));
    assert_eq!(from(Origin::Port(PortIndex(1))), Some(3));
    assert_eq!(from(Origin::Host(PortIndex(1))), Some(3), "an answer to a packet of the domain");
    assert_eq!(from(Origin::Port(PortIndex(2))), Some(1), "in no domain");
}

#[test]
fn families_have_rules_of_their_own() {
    let mut tables = tables(vec![all(Action::Blackhole)]);
    let v6 = address("2001:db8::1");
    assert_eq!(tables.lookup(v6, 0, packet), None);
    tables.set(
        DEFAULT_TABLE,
        Prefix::ALL_V6,
        Some(Route::via(NextHop::connected(PortIndex(5)), 0)),
    );
    tables.set_rules(Some(Rules { v4: Vec::new(), v6: vec![all(lookup(DEFAULT_TABLE))] }));
    let mut key = packet();
    key.flow.destination = v6;
    assert_eq!(port(&tables, key), Some(5));
}

#[test]
fn the_mtu_of_a_route_comes_with_it() {
    let mut tables = tables(vec![all(lookup(RED))]);
    let mtu = |tables: &PolicyTables| match tables.lookup(address("10.9.0.1"), 0, packet) {
        Some(Decision::Forward { mtu, .. }) => mtu,
        other => panic!("{other:?}"),
    };
    assert_eq!(mtu(&tables), NO_ROUTE_MTU);
    let narrow = Route { mtu: 1_300, ..Route::via(NextHop::connected(PortIndex(2)), 0) };
    tables.set(RED, prefix("10.9.0.0/16"), Some(narrow));
    assert_eq!(mtu(&tables), 1_300);
}
