//! What a subscriber has, shared by its hosts or by classes.

use std::net::{IpAddr, Ipv4Addr};

use crate::common::{Mail, TestPacket};
use crate::tree::{leaf, mail, mbps, plan};
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::tree::{LINK, Tree, TreeConfig, UNKNOWN, Within};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{BitRate, Class, Nanos, Packet, Scheduler, Weight};

/// What each of these greedy flows of one subscriber is sent in so many packets: host, flow, class.
fn sent_within(within: Within, aqm: bool, flows: &[(u8, u16, u16)]) -> Vec<f64> {
    let aqm = if aqm { ElasticAqm::cobalt() } else { ElasticAqm::default() };
    let plan = plan(&[leaf(LINK, mbps(20))]);
    let (config, person) = (TreeConfig::default(), UNKNOWN + 1);
    let max_delay = Nanos::SECOND;
    let mut tree: Tree<Mail> =
        Tree::new(TreeConfig { plan, aqm, within, classes: 3, max_delay, ..config }).unwrap();
    tree.set_rate(Some(BitRate(100_000_000)));
    let (mut waits, mut sent) = (vec![0; flows.len()], vec![0.0; flows.len()]);
    let mut now = Nanos::from_secs(1);
    let find = |packet: &TestPacket| {
        let IpAddr::V4(host) = packet.flow.destination else { panic!() };
        let (host, port) = (host.octets()[3], packet.flow.destination_port);
        flows.iter().position(|flow| (flow.0, flow.1) == (host, port)).unwrap()
    };
    for count in 0..40_000 {
        for (at, (host, port, class)) in flows.iter().enumerate() {
            while waits[at] < 8 {
                waits[at] += 1;
                let mut packet = mail(person, 0, 1_500, 0, now);
                packet.packet.class = Class(*class);
                let flow = &mut packet.packet.flow;
                flow.destination = IpAddr::V4(Ipv4Addr::new(10, 0, 0, *host));
                flow.destination_port = *port;
                let mut lost = Vec::new();
                let _ = tree.enqueue(now, packet, &mut |p: Mail, _| lost.push(p));
                lost.iter().for_each(|p| waits[find(&p.packet)] -= 1);
            }
        }
        let mut lost = Vec::new();
        let given = tree.dequeue(now, &mut |p: Mail, _| lost.push(p));
        lost.iter().for_each(|p| waits[find(&p.packet)] -= 1);
        let Some(given) = given else {
            now = tree.next_wake(now).unwrap();
            continue;
        };
        let at = find(&given.packet);
        waits[at] -= 1;
        if count > 4_000 {
            sent[at] += given.wire_len().0 as f64;
        }
        now += Nanos(given.wire_len().0 * 80);
    }
    sent
}

/// A host of a subscriber gets what another gets, however many flows it has, and a class what its
/// weight says; within both flows are alike.
#[test]
fn hosts_and_classes_share_what_a_subscriber_has() {
    let many = (0..16).map(|port| (1, 100 + port, 0));
    let flows: Vec<_> = many.chain([(2, 7, 1), (3, 8, 2), (3, 9, 2)]).collect();
    let weights = PerClass::new([100, 400, 300].map(Weight), Weight(100));
    for aqm in [false, true] {
        for (within, parts) in [
            (Within::Flows, [16.0, 1.0, 2.0]),
            (Within::Hosts { send: false }, [1.0, 1.0, 1.0]),
            (Within::Classes(weights.clone()), [1.0, 4.0, 3.0]),
            // Who sends to them is one host.
            (Within::Hosts { send: true }, [16.0, 1.0, 2.0]),
        ] {
            let sent = sent_within(within.clone(), aqm, &flows);
            let groups = [&sent[..16], &sent[16..17], &sent[17..]];
            let total: f64 = sent.iter().sum();
            for (group, part) in groups.iter().zip(parts) {
                let (is, of) = (group.iter().sum::<f64>(), parts.iter().sum::<f64>());
                let off = is / total / (part / of) - 1.0;
                assert!(off.abs() < 0.02, "{within:?}, AQM {aqm}: {off} of {groups:?}");
                let own = is / group.len() as f64;
                let alike = group.iter().all(|flow| (flow / own - 1.0).abs() < 0.03);
                assert!(alike, "{within:?}, AQM {aqm}: {group:?}");
            }
        }
    }
}

#[test]
fn it_is_told_how_many_flows_share_what_a_subscriber_has() {
    let plan = plan(&[leaf(LINK, mbps(20)), leaf(LINK, None)]);
    let config = TreeConfig { plan, max_delay: Nanos::SECOND, ..TreeConfig::default() };
    let mut tree: Tree<Mail> = Tree::new(config).unwrap();
    let person = UNKNOWN + 1;
    assert_eq!(tree.sharing(person + 1), None, "nobody knows what he may have");
    tree.set_rate(Some(BitRate(100_000_000)));
    assert_eq!(tree.sharing(person + 1).unwrap().rate, BitRate(100_000_000));
    let mut now = Nanos::SECOND;
    let told = |tree: &Tree<Mail>| {
        let sharing = tree.sharing(person).unwrap();
        assert_eq!(sharing.rate, BitRate(20_000_000));
        f64::from(sharing.flows) / f64::from(sharing.whole)
    };
    assert_eq!(told(&tree), 0.0);
    for round in 0..100u64 {
        for flow in 0..3 {
            for number in 0..2 {
                let packet = mail(person, 10 * round + number, 1_000, flow, now);
                let _ = tree.enqueue(now, packet, &mut |_: Mail, _| {});
            }
        }
        now += Nanos::from_millis(1);
        let _ = tree.dequeue(now, &mut |_: Mail, _| {});
    }
    assert!((told(&tree) - 3.0).abs() < 0.2, "{}", told(&tree));
    tree.drain(&mut |_| ());
    assert_eq!(told(&tree), 0.0, "nothing waits");
}
