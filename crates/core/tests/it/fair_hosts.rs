//! PDRR by hosts: a host gets what another gets, however many flows it has, and within it each flow
//! what its siblings get.

use std::net::{IpAddr, Ipv4Addr};

use crate::common::TestPacket;
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::Treated;
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::pdrr::{Fair, Pdrr, PdrrConfig};
use evenkeel_core::{BitRate, FlowKey, Nanos, Packet, Scheduler};

/// Flow `flow` of the host 10.0.0.`host`.
fn packet(host: u8, flow: u16, length: u32, now: Nanos) -> TestPacket {
    let flow = FlowKey {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
        protocol: 6,
        source_port: flow,
        destination_port: 80,
        flow_label: 0,
    };
    TestPacket { arrival: now, flow, ..TestPacket::new(0, 0, length) }
}

fn pdrr(fair: Fair, aqm: ElasticAqm) -> Pdrr<TestPacket> {
    let config = PdrrConfig { fair, aqm, buffer: Buffer::packets(400), ..PdrrConfig::default() };
    let mut pdrr = Pdrr::new(config).unwrap();
    pdrr.set_rate(Some(BitRate::from_mbps(20)));
    pdrr
}

/// A flow that always has packets: host, flow, their length.
type Greedy = (u8, u16, u32);

/// What each flow was sent, with as many as eight packets of each that wait at 20 Mbit/s.
fn shares(mut pdrr: Pdrr<TestPacket>, flows: &[Greedy], sent: u32) -> Vec<f64> {
    let (mut bytes, mut waits) = (vec![0.0; flows.len()], vec![0; flows.len()]);
    let mut now = Nanos::from_secs(1);
    let find = |p: &TestPacket| {
        let IpAddr::V4(host) = p.flow.source else { panic!() };
        let flow = |f: &Greedy| (f.0, f.1) == (host.octets()[3], p.flow.source_port);
        flows.iter().position(flow).unwrap()
    };
    for count in 0..sent {
        for (at, (host, flow, length)) in flows.iter().enumerate() {
            while waits[at] < 8 {
                waits[at] += 1;
                let mut lost = Vec::new();
                let packet = packet(*host, *flow, *length, now);
                let _ = pdrr.enqueue(now, packet, &mut |p, _| lost.push(p));
                lost.iter().for_each(|p| waits[find(p)] -= 1);
            }
        }
        let mut lost = Vec::new();
        let told = pdrr.peek_len(now);
        let packet = pdrr.dequeue(now, &mut |p, _| lost.push(p)).unwrap();
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
    for (fair, aqm) in [
        (Fair::SourceFlow, ElasticAqm::default()),
        (Fair::SourceFlow, ElasticAqm::cobalt()),
        (Fair::Source, ElasticAqm::default()),
    ] {
        let bytes = shares(pdrr(fair, aqm), &flows(), 40_000);
        let hosts = [&bytes[..16], &bytes[16..17], &bytes[17..]].map(|own| own.iter().sum::<f64>());
        let mean = hosts.iter().sum::<f64>() / 3.0;
        for host in hosts {
            assert!((host / mean - 1.0).abs() < 0.01, "{fair:?}: {hosts:?}");
        }
        if fair == Fair::SourceFlow {
            for own in [&bytes[..16], &bytes[17..]] {
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                assert!(own.iter().all(|x| (x / mean - 1.0).abs() < 0.02), "{fair:?}: {own:?}");
            }
        }
    }
}

/// By flow the first host has 16 of 19 parts, and by destination all are one.
#[test]
fn by_flow_a_host_gets_as_much_as_it_has_flows() {
    let bytes = shares(pdrr(Fair::Flow, ElasticAqm::default()), &flows(), 40_000);
    let first: f64 = bytes[..16].iter().sum();
    assert!((first / bytes.iter().sum::<f64>() - 16.0 / 19.0).abs() < 0.01, "{bytes:?}");
    let bytes = shares(pdrr(Fair::DestinationFlow, ElasticAqm::default()), &flows(), 40_000);
    let first: f64 = bytes[..16].iter().sum();
    assert!((first / bytes.iter().sum::<f64>() - 16.0 / 19.0).abs() < 0.01, "{bytes:?}");
}

/// Flows that send little have priority in both, and pay for it as a host: one that has very many
/// of them does not get more than its share.
#[test]
fn a_host_of_many_small_flows_pays_for_their_priority() {
    let mut pdrr = pdrr(Fair::SourceFlow, ElasticAqm::default());
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
                let IpAddr::V4(host) = packet.flow.source else { panic!() };
                if round > 10_000 {
                    sent[usize::from(host.octets()[3]) - 1] += packet.wire_len().0 as f64;
                }
                now += Nanos(packet.wire_len().0 * 400);
            }
        }
    }
    assert!(first > 100_000, "{first} of 120000 have priority");
    assert!((sent[0] / sent[1] - 1.0).abs() < 0.03, "{sent:?}");
}
