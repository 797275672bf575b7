//! People behind hosts: who there is, where they are, and every mistake told with its line.

use std::net::IpAddr;
use std::path::Path;

use evenkeel_config::subscribers::Role;
use evenkeel_core::BitRate;
use evenkeel_scenario::Scenario;

const BASE: &str = r#"name = "t/people"
title = "people"
duration = "10s"
[[host]]
name = "net"
[[host]]
name = "town"
[[wire]]
ends = ["net", "r1"]
[[wire]]
ends = ["r1", "r2"]
[[wire]]
ends = ["r2", "town"]
[[subscribers]]
name = "hill"
down = "50Mbit/s"
[[subscribers]]
name = "farm"
parent = "hill"
host = "town"
count = 8
plans = [{ part = 3.0, down = "10Mbit/s" }, { part = 1.0, down = "20Mbit/s", min_down = "1Mbit/s" }]
[[router]]
name = "r1"
[[router.config.tree]]
subscribers = "subscribers"
down = "r2"
[[router.config.link]]
port = "r2"
rate = "100Mbit/s"
[[router]]
name = "r2"
[[traffic]]
name = "all"
from = "net"
to = "town"
subscribers = "farm"
flows = 2
rate = "1Mbit/s"
[[traffic]]
name = "up"
from = "town"
to = "net"
subscribers = "farm-3"
rate = "1Mbit/s"
[[traffic]]
name = "some"
from = "net"
to = "town"
subscribers = "farm"
part = 0.5
rate = "1Mbit/s"
ipv6 = true
[[expect]]
name = "fair"
claim = "All is fair."
that = "jain(subscriber_rate(farm-*)@start) > 0.9 and max(share_error(r1/r2/farm-1)@start) < 0.1"
"#;

fn parsed(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "t.toml", Path::new(".")).map_err(|errors| errors.to_string())
}

/// What is told of the text with one thing put in another's place.
fn told(from: &str, to: &str) -> String {
    let text = BASE.replacen(from, to, 1);
    assert_ne!(text, BASE, "{from}");
    parsed(&text).expect_err(to)
}

#[test]
fn a_list_has_all_of_them_with_plans_in_their_parts() {
    let scenario = parsed(BASE).unwrap();
    let tree = &scenario.router("r1").unwrap().config.trees[0];
    let entries = &tree.list.entries;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names[..3], ["hill", "farm", "farm-1"]);
    assert_eq!(entries.len(), 10);
    assert_eq!((entries[0].role, entries[1].parent.as_str()), (Role::Node, "hill"));
    let caps: Vec<u64> = entries[2..].iter().map(|one| one.down.cap.unwrap().0).collect();
    // Any four neighbours have three of the one and one of the other.
    for four in caps.windows(4) {
        assert_eq!(four.iter().filter(|cap| **cap == 20_000_000).count(), 1, "{caps:?}");
    }
    let assured = entries.iter().filter(|one| one.down.guarantee == BitRate::from_mbps(1));
    assert!(assured.clone().all(|one| one.down.cap == Some(BitRate::from_mbps(20))));
    assert_eq!(assured.count(), 2);
}

#[test]
fn flows_are_dealt_out_to_people_and_routes_lead_to_them() {
    let scenario = parsed(BASE).unwrap();
    let ends = |traffic: usize, flow| scenario.ends(&scenario.traffic[traffic], flow).unwrap();
    assert_eq!(scenario.traffic[0].flows, 16);
    let net: IpAddr = "10.1.0.1".parse().unwrap();
    assert_eq!(ends(0, 0), (net, "100.64.0.1".parse().unwrap()));
    assert_eq!(ends(0, 9), (net, "100.64.0.2".parse().unwrap()));
    // At the other end the host is itself.
    assert_eq!(ends(1, 0), ("100.64.0.3".parse().unwrap(), net));
    assert_eq!(scenario.traffic[1].flows, 1);
    let some = scenario.traffic[2].party.as_ref().unwrap();
    let members: Vec<IpAddr> = (0..4).map(|flow| some.address(flow)).collect();
    assert_eq!(some.len(), 4);
    assert!(members.windows(2).all(|pair| pair[0] < pair[1]), "{members:?}");
    assert!(members[0].to_string().starts_with("fd00:8000::"), "{members:?}");
    let route = |node: &str, to: &str| {
        let to: IpAddr = to.parse().unwrap();
        let found = scenario.routes(node).into_iter().find(|route| route.destination == to);
        found.map(|route| (route.prefix, route.interface, route.via.to_string()))
    };
    let by = |prefix, interface: &str, via: &str| Some((prefix, interface.into(), via.into()));
    assert_eq!(route("r2", "100.64.0.0"), by(16, "town", "10.3.0.1"));
    assert_eq!(route("r1", "100.64.0.0"), by(16, "r2", "10.2.0.253"));
    assert_eq!(route("net", "fd00:8000::"), by(64, "r1", "fd00:1::fe"));
    assert_eq!(route("town", "100.64.0.0"), None);
}

#[test]
fn every_mistake_is_told_with_its_line() {
    let mut wrong = String::new();
    for (from, to, line, words) in [
        ("host = \"town\"\n", "", 17, "must be named with a `count`"),
        ("count = 8\n", "", 17, "how many are behind the host?"),
        ("host = \"town\"", "host = \"twon\"", 20, "no host \"twon\"; did you mean \"town\""),
        ("parent = \"hill\"", "parent = \"hil\"", 19, "no node \"hil\" before this one"),
        ("name = \"farm\"", "name = \"hill\"", 18, "already"),
        ("name = \"farm\"", "name = \"unknown\"", 18, "already"),
        ("part = 3.0", "part = 0.0", 22, "0.001"),
        ("down = \"10Mbit/s\"", "down = \"1bit/s\"", 22, "out of range"),
        ("subscribers = \"farm\"\nflows", "subscribers = \"fram\"\nflows", 37, "\"farm\""),
        ("subscribers = \"farm-3\"", "subscribers = \"farm-9\"", 44, "nor one of them"),
        ("subscribers = \"farm\"\nflows", "subscribers = \"hill\"\nflows", 37, "behind it"),
        ("flows = 2", "flows = 1000000", 38, "8000000 flows"),
        ("subscribers = \"farm\"\npart", "part", 50, "only together with"),
        ("to = \"town\"\nsubscribers = \"farm\"\nflows", "to = \"net\"\nflows", 36, "itself"),
        ("farm-*", "form-*", 57, "no subscriber \"form-*\""),
        ("r1/r2/farm-1", "r1/net/farm-1", 57, "no [[tree]] is on link \"r1/net\""),
        ("jain(subscriber_rate(farm-*)@start)", "subscriber_rate(farm-1)@start", 57, "each sub"),
        ("jain(subscriber_rate(farm-*)@start)", "jain(subscriber_rate(farm-*))", 57, "`@`"),
    ] {
        let told = told(from, to);
        let here = format!("t.toml:{line}:");
        if !told.contains(&here) || !told.contains(words) {
            wrong.push_str(&format!("{from} -> {to}: {told}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // The tree is that of a list, which must be there.
    let gone = told("subscribers = \"subscribers\"", "subscribers = \"people.csv\"");
    assert!(gone.contains("people.csv"), "{gone}");
}

#[test]
fn a_list_of_nodes_alone_has_nobody() {
    let text = BASE.replace("host = \"town\"\ncount = 8\n", "");
    let text = text.replace("subscribers = \"farm\"\n", "").replace("part = 0.5\n", "");
    let told = parsed(&text.replace("subscribers = \"farm-3\"\n", "")).unwrap_err();
    assert!(told.contains("nobody is in list \"subscribers\""), "{told}");
}
