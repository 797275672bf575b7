//! PDRR and PFQ by hosts: a host gets what another gets, however many flows it has, and within it
//! each flow what its siblings get.

use std::net::{IpAddr, Ipv4Addr};

use crate::common::TestPacket;
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::Treated;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows};
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::{BitRate, FlowKey, Nanos, Packet, Reason, Scheduler};

/// Where the other ends of the flows are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Peers {
    /// All flows go to one.
    One,
    /// Each flow goes to its own.
    Many,
    /// Each flow comes from its own.
    Sources,
}

/// Flow `flow` of the host 10.0.0.`host`.
fn packet(peers: Peers, host: u8, flow: u16, length: u32, now: Nanos) -> TestPacket {
    let peer = if peers == Peers::One { 1 } else { flow };
    let [high, low] = peer.to_be_bytes();
    let ends = [Ipv4Addr::new(10, 0, 0, host), Ipv4Addr::new(10, 1 + host, high, low)];
    let [own, peer] = ends.map(IpAddr::V4);
    let (source, destination) = if peers == Peers::Sources { (peer, own) } else { (own, peer) };
    let flow = FlowKey {
        source,
        destination,
        protocol: 6,
        source_port: flow,
        destination_port: 80,
        flow_label: 0,
    };
    TestPacket { arrival: now, flow, ..TestPacket::new(0, 0, length) }
}

/// The host that a packet is of.
fn host_of(peers: Peers, packet: &TestPacket) -> u8 {
    let FlowKey { source, destination, .. } = packet.flow;
    let own = if peers == Peers::Sources { destination } else { source };
    let IpAddr::V4(own) = own else { panic!() };
    own.octets()[3]
}

/// A discipline with this rule, at 20 Mbit/s.
type Build = fn(Fair, ElasticAqm) -> Box<dyn Scheduler<TestPacket>>;

fn pdrr(fair: Fair, aqm: ElasticAqm) -> Box<dyn Scheduler<TestPacket>> {
    let config = PdrrConfig { fair, aqm, buffer: Buffer::packets(400), ..PdrrConfig::default() };
    at_20_mbps(Pdrr::new(config).unwrap())
}

fn pfq(fair: Fair, aqm: ElasticAqm) -> Box<dyn Scheduler<TestPacket>> {
    let config = PfqConfig { fair, aqm, buffer: Buffer::packets(400), ..PfqConfig::default() };
    at_20_mbps(Pfq::new(config).unwrap())
}

fn at_20_mbps(mut queues: impl Scheduler<TestPacket> + 'static) -> Box<dyn Scheduler<TestPacket>> {
    queues.set_rate(Some(BitRate::from_mbps(20)));
    Box::new(queues)
}

const BOTH: [(&str, Build); 2] = [("pdrr", pdrr), ("pfq", pfq)];

/// A flow that always has packets: host, flow, their length.
type Greedy = (u8, u16, u32);

/// What each flow was sent, with as many as eight packets of each that wait at 20 Mbit/s.
fn shares(
    mut queues: Box<dyn Scheduler<TestPacket>>,
    peers: Peers,
    flows: &[Greedy],
    sent: u32,
) -> Vec<f64> {
    let (mut bytes, mut waits) = (vec![0.0; flows.len()], vec![0; flows.len()]);
    let mut now = Nanos::from_secs(1);
    let find = |p: &TestPacket| {
        let (host, flow) = (host_of(peers, p), p.flow.source_port);
        flows.iter().position(|f| (f.0, f.1) == (host, flow)).unwrap()
    };
    for count in 0..sent {
        for (at, (host, flow, length)) in flows.iter().enumerate() {
            while waits[at] < 8 {
                waits[at] += 1;
                let mut lost = Vec::new();
                let packet = packet(peers, *host, *flow, *length, now);
                let _ = queues.enqueue(now, packet, &mut |p, _| lost.push(p));
                lost.iter().for_each(|p| waits[find(p)] -= 1);
            }
        }
        let mut lost = Vec::new();
        let told = queues.peek_len(now);
        let packet = queues.dequeue(now, &mut |p, _| lost.push(p)).unwrap();
        if lost.is_empty() {
            assert_eq!(told, Some(packet.ip_len()));
        }
        lost.iter().for_each(|p| waits[find(p)] -= 1);
        let at = find(&packet);
        waits[at] -= 1;
        if count > sent / 10 {
            bytes[at] += packet.wire_len().0 as f64;
        }
        now += Nanos(packet.wire_len().0 * 400);
    }
    bytes
}

fn flows() -> Vec<Greedy> {
    let many = (0..16).map(|flow| (1, 100 + flow, 1_500));
    many.chain([(2, 7, 1_500), (3, 1, 300), (3, 2, 1_500)]).collect()
}

#[test]
fn hosts_with_16_flows_and_with_one_share_alike_and_so_do_their_flows() {
    for (fair, aqm, peers) in [
        (Fair::SourceFlow, ElasticAqm::default(), Peers::One),
        (Fair::SourceFlow, ElasticAqm::cobalt(), Peers::Many),
        (Fair::DestinationFlow, ElasticAqm::cobalt(), Peers::Sources),
        (Fair::HostFlow, ElasticAqm::default(), Peers::Many),
        (Fair::HostFlow, ElasticAqm::cobalt(), Peers::Sources),
        (Fair::Source, ElasticAqm::default(), Peers::One),
        (Fair::Destination, ElasticAqm::default(), Peers::Sources),
    ] {
        for (name, build) in BOTH {
            let case = format!("{name} {fair:?} {peers:?}");
            let bytes = shares(build(fair, aqm), peers, &flows(), 40_000);
            let hosts =
                [&bytes[..16], &bytes[16..17], &bytes[17..]].map(|own| own.iter().sum::<f64>());
            let mean = hosts.iter().sum::<f64>() / 3.0;
            for host in hosts {
                assert!((host / mean - 1.0).abs() < 0.01, "{case}: {hosts:?}");
            }
            if matches!(fair, Fair::Source | Fair::Destination) {
                continue;
            }
            for own in [&bytes[..16], &bytes[17..]] {
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                assert!(own.iter().all(|x| (x / mean - 1.0).abs() < 0.02), "{case}: {own:?}");
            }
        }
    }
}

/// By flow the first host has 16 of 19 parts, and by the hosts that are many, each flow its own.
#[test]
fn by_flow_a_host_gets_as_much_as_it_has_flows() {
    for (name, build) in BOTH {
        for (fair, peers) in [
            (Fair::Flow, Peers::One),
            (Fair::DestinationFlow, Peers::Many),
            (Fair::SourceFlow, Peers::Sources),
        ] {
            let bytes = shares(build(fair, ElasticAqm::default()), peers, &flows(), 40_000);
            let first: f64 = bytes[..16].iter().sum();
            let part = first / bytes.iter().sum::<f64>();
            assert!((part - 16.0 / 19.0).abs() < 0.01, "{name} {fair:?}: {bytes:?}");
        }
    }
}

/// Whoever comes first: a flow that began before its host had others is counted with them, once
/// there are.
#[test]
fn a_flow_goes_over_to_the_busier_of_its_hosts() {
    for (name, build) in BOTH {
        for last in 0..=16 {
            let mut flows: Vec<Greedy> = (0..16).map(|flow| (1, 100 + flow, 1_500)).collect();
            flows.insert(last, (2, 7, 1_500));
            let queues = build(Fair::HostFlow, ElasticAqm::default());
            let bytes = shares(queues, Peers::Sources, &flows, 8_000);
            let part = bytes[last] / bytes.iter().sum::<f64>();
            assert!((part - 0.5).abs() < 0.01, "{name} {last}: {bytes:?}");
        }
    }
}

/// Flows between the same two hosts are alike also where others have come to one of the two and
/// gone again, so that each was once counted on another side.
#[test]
fn flows_between_the_same_two_hosts_are_alike_whoever_came_and_went() {
    let flow = |source: u8, port: u16| FlowKey {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, source)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
        ..packet(Peers::One, 1, port, 1_500, Nanos::ZERO).flow
    };
    for (name, build) in BOTH {
        let mut queues = build(Fair::HostFlow, ElasticAqm::default());
        let mut now = Nanos::from_secs(1);
        let mut sent = [0.0_f64; 3];
        let mut waits = std::collections::HashMap::new();
        for count in 0..6_000 {
            // One flow, then many others to the same host; they go, and then two more come.
            let others = if (200..2_000).contains(&count) { 6 } else { 0 };
            let own = if count < 3_000 { 1 } else { 3 };
            let flows = (0..own).map(|port| flow(1, port));
            for flow in flows.chain((0..others).map(|other| flow(2 + other, 9))) {
                while *waits.entry(flow).or_insert(0) < 4 {
                    *waits.get_mut(&flow).unwrap() += 1;
                    let whole = TestPacket { arrival: now, flow, ..TestPacket::new(0, 0, 1_500) };
                    let _ = queues.enqueue(now, whole, &mut |_, _| panic!("there is room"));
                }
            }
            let packet = queues.dequeue(now, &mut |_, _| ()).unwrap();
            *waits.get_mut(&packet.flow).unwrap() -= 1;
            if count > 3_200 {
                sent[usize::from(packet.flow.source_port)] += 1.0;
            }
            now += Nanos(1_538 * 400);
        }
        assert!(sent.iter().all(|flow| (flow / sent[0] - 1.0).abs() < 0.01), "{name}: {sent:?}");
    }
}

/// Hosts that talk to each other are on both sides, one has no address yet, and there are fewer
/// places than flows: whatever comes and goes, nothing is lost count of.
#[test]
fn hosts_on_both_sides_are_kept_apart() {
    let flows = KnownFlows::up_to(6);
    let buffer = Buffer::packets(40);
    for aqm in [ElasticAqm::default(), ElasticAqm::cobalt()] {
        let pdrr = PdrrConfig { fair: Fair::HostFlow, aqm, buffer, flows, ..PdrrConfig::default() };
        let pfq = PfqConfig { fair: Fair::HostFlow, aqm, buffer, flows, ..PfqConfig::default() };
        for mut queues in [at_20_mbps(Pdrr::new(pdrr).unwrap()), at_20_mbps(Pfq::new(pfq).unwrap())]
        {
            let (mut state, mut now, mut held) = (1u64, Nanos::from_secs(1), 0u64);
            let mut below = |end: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                ((state >> 33) * end) >> 31
            };
            for _ in 0..60_000 {
                now += Nanos(below(400_000));
                let mut lost = 0;
                let mut drop = |_: TestPacket, _: Reason| lost += 1;
                match below(200) {
                    0 => queues.drain(&mut |_| held -= 1),
                    1..=105 => {
                        let [source, destination] = [0, 1].map(|_| {
                            let host = below(5) as u8;
                            // Nobody, as who asks for an address.
                            let unknown = host == 0;
                            let known = Ipv4Addr::new(10, 0, 0, host);
                            IpAddr::V4(if unknown { Ipv4Addr::UNSPECIFIED } else { known })
                        });
                        let packet = packet(Peers::One, 1, below(3) as u16, 1_500, now);
                        let flow = FlowKey { source, destination, ..packet.flow };
                        held += 1;
                        let _ = queues.enqueue(now, TestPacket { flow, ..packet }, &mut drop);
                    }
                    _ => held -= u64::from(queues.dequeue(now, &mut drop).is_some()),
                }
                held -= lost;
                assert_eq!(queues.meters().backlog.packets, held);
            }
        }
    }
}

/// Flows that send little have priority in both, and pay for it as a host: one that has very many
/// of them does not get more than its share.
#[test]
fn a_host_of_many_small_flows_pays_for_their_priority() {
    let mut pdrr = pdrr(Fair::SourceFlow, ElasticAqm::default());
    let packet = |host, flow, length, now| packet(Peers::One, host, flow, length, now);
    let (mut sent, mut now) = ([0.0; 2], Nanos::from_secs(1));
    let mut first = 0;
    for round in 0..60_000u32 {
        // The first host: 500 flows of 200 bytes in turn, and one that always waits.
        for _ in 0..2 {
            let small = packet(1, 1_000 + (round % 500) as u16, 200, now);
            let treated = pdrr.enqueue(now, small, &mut |_, _| ());
            first += u32::from(treated == Treated::Priority);
        }
        for host in [1, 2] {
            let _ = pdrr.enqueue(now, packet(host, 1, 1_500, now), &mut |_, _| ());
        }
        for _ in 0..3 {
            if let Some(packet) = pdrr.dequeue(now, &mut |_, _| ()) {
                if round > 10_000 {
                    sent[usize::from(host_of(Peers::One, &packet)) - 1] +=
                        packet.wire_len().0 as f64;
                }
                now += Nanos(packet.wire_len().0 * 400);
            }
        }
    }
    assert!(first > 100_000, "{first} of 120000 have priority");
    assert!((sent[0] / sent[1] - 1.0).abs() < 0.03, "{sent:?}");
}
