//! Ports that are joined, as an inline interface is: what comes in by one leaves by the other,
//! unchanged, through its link.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use evenkeel_core::{FlowKey, Nanos};
use evenkeel_router::mirror::MirrorEvent;

use crate::common::{Bed, Udp, host_mac, router_mac, udp, v4};

/// `p0` is attached inline; its other half is port 1. Port 2 is routed.
fn bed(links: &str) -> Bed {
    let ports = "[[port]]\nname = \"p0\"\ninterface = \"eth0\"\nattach = \"inline\"\n\
                 [[port]]\nname = \"p2\"\ninterface = \"eth2\"\n";
    Bed::of(&format!("{links}\n{ports}"))
}

fn frame(port: u16, payload: usize) -> Vec<u8> {
    let what = Udp { port, payload, ..Udp::default() };
    // Neither to the router's address nor to one that it has a route to.
    udp((host_mac(0), host_mac(1)), v4(7, 2), v4(9, 2), what)
}

#[test]
fn frames_pass_unchanged_both_ways_whatever_they_are() {
    let mut bed = bed("");
    let mut arp = vec![0xff; 6];
    arp.extend_from_slice(&host_mac(0).0);
    arp.extend_from_slice(&[0x08, 0x06]);
    arp.extend_from_slice(&[0; 46]);
    let mut last_hop = frame(1, 100);
    last_hop[22] = 1;
    let mut broken = frame(1, 100);
    broken[24] ^= 1;
    let mut from_ourselves = frame(1, 100);
    from_ourselves[6..12].copy_from_slice(&router_mac(2).0);
    let mut jumbo = frame(1, 4000);
    jumbo.truncate(1900);
    let all = [frame(1, 100), arp, last_hop, broken, from_ourselves, jumbo, vec![0; 14]];
    for (from, to) in [(0, 1), (1, 0)] {
        for frame in &all {
            bed.inject(from, frame);
        }
        bed.round();
        bed.round();
        assert_eq!(bed.received(to), all, "from {from} to {to}");
        assert!(bed.received(2).is_empty() && bed.received(from).is_empty());
    }
    let ports = bed.snapshot().ports;
    assert!(ports[..2].iter().all(|port| port.forwarded == all.len() as u64));
    assert!(ports.iter().all(|port| port.to_host == 0 && port.originated == 0));
}

#[test]
fn routed_ports_beside_them_never_send_by_them_unasked() {
    let mut bed = bed("");
    // To the network of the inline port: the kernel would send it there, and so do we, as a packet
    // of its own.
    bed.send(2, 0, Udp::default());
    bed.round();
    assert_eq!(bed.received(0).len(), 1);
    assert!(bed.received(1).is_empty());
}

#[test]
fn a_port_that_is_down_takes_nothing_and_it_is_counted() {
    let mut bed = bed("");
    bed.pipeline.set_link(bed.now, evenkeel_net::PortIndex(1), None);
    bed.inject(0, &frame(1, 100));
    bed.round();
    assert!(bed.received(1).is_empty());
    assert_eq!(bed.dropped(0, "link_down"), 1);
}

/// A UDP packet in a session of PPPoE.
fn in_session(port: u16, payload: usize) -> Vec<u8> {
    let plain = frame(port, payload);
    let mut frame = plain[..12].to_vec();
    frame.extend_from_slice(&[0x88, 0x64, 0x11, 0, 0, 9]);
    frame.extend_from_slice(&((plain.len() - 14 + 2) as u16).to_be_bytes());
    frame.extend_from_slice(&[0x00, 0x21]);
    frame.extend_from_slice(&plain[14..]);
    frame
}

/// A UDP packet behind two VLAN tags.
fn tagged(port: u16, payload: usize) -> Vec<u8> {
    let plain = frame(port, payload);
    [&plain[..12], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8], &plain[12..]].concat()
}

#[test]
fn flows_share_the_link_also_inside_sessions_and_behind_tags() {
    for make in [frame, in_session, tagged] {
        let mut bed = bed("[[link]]\nport = \"p0-ingress\"\nrate = \"10Mbit/s\"\n\
             discipline = { kind = \"pdrr\" }\n");
        let mut sent: HashMap<u16, u64> = HashMap::new();
        // One flow sends four times as much as the other, and both more than half of the link.
        for round in 0..4000 {
            bed.inject(0, &make(1, 1000));
            if round % 4 == 0 {
                bed.inject(0, &make(2, 1000));
            }
            bed.pass(Nanos::from_micros(300));
            for frame in bed.received(1) {
                let at = frame.len() - 1000 - 8;
                *sent.entry(u16::from_be_bytes([frame[at], frame[at + 1]])).or_default() += 1;
            }
        }
        let (hog, other) = (sent[&1], sent[&2]);
        // What the second flow offers, 7.1 Mbit/s, is less than it may have beside a hog that is
        // held to the rest.
        assert!(other * 100 >= 1000 * 45, "{other} of 1000 beside {hog}");
        assert!(hog < other * 3 / 2, "{hog} to {other}");
        bed.snapshot();
    }
}

/// A packet as it is at the outer side of a gateway, of the connection that has this port there.
fn translated(port: u16) -> Vec<u8> {
    udp(
        (host_mac(1), host_mac(0)),
        v4(7, 1),
        v4(9, 2),
        Udp { port, payload: 962, ..Udp::default() },
    )
}

/// Of each host, how many of its packets leave in a second: one has 16 connections, the other one.
fn by_host(bed: &mut Bed) -> [usize; 2] {
    let mut left = [0, 0];
    for tick in 0..2_000_u16 {
        bed.inject(1, &translated(5_000 + tick % 16));
        bed.inject(1, &translated(6_000));
        bed.pass(Nanos::from_micros(500));
        for frame in bed.received(0) {
            assert!(frame == translated(6_000) || frame[34..36] < 6_000_u16.to_be_bytes()[..]);
            left[usize::from(frame == translated(6_000))] += 1;
        }
    }
    bed.snapshot();
    left
}

#[test]
fn hosts_behind_a_translation_are_told_apart_where_the_kernel_says_who_they_are() {
    let mut bed = bed("[[link]]\nport = \"p0\"\nrate = \"10Mbit/s\"\n");
    let [many, one] = by_host(&mut bed);
    assert!(one * 8 < many, "the gateway is one host, each flow has a part: {many} {one}");
    let mut tell = |there: bool| {
        for port in (5_000..5_016).chain([6_000]) {
            let flow = FlowKey {
                source: v4(9, 2),
                destination: v4(7, 1),
                protocol: 17,
                source_port: port,
                destination_port: port,
                flow_label: 0,
            };
            let host = Ipv4Addr::new(192, 168, 1, (port / 1_000) as u8);
            let inside = there.then_some(host);
            bed.pipeline.apply(bed.now, MirrorEvent::Translation { flow, inside });
        }
        (bed.pipeline.snapshot(bed.now, &mut bed.ports).translations, by_host(&mut bed))
    };
    let (known, [many, one]) = tell(true);
    assert_eq!(known, 17);
    assert!(one * 10 > many * 8, "as much as the other host: {many} {one}");
    let (known, [many, one]) = tell(false);
    assert_eq!(known, 0);
    assert!(one * 8 < many, "they are forgotten: {many} {one}");
}

#[test]
fn what_comes_in_is_of_the_host_that_it_will_be_translated_to() {
    let mut bed = bed("[[link]]\nport = \"p0-ingress\"\nrate = \"10Mbit/s\"\n\
                       discipline = { kind = \"pdrr\" }\n[link.admission]\n");
    let flow = FlowKey {
        source: v4(7, 2),
        destination: v4(9, 2),
        protocol: 17,
        source_port: 5_000,
        destination_port: 5_000,
        flow_label: 0,
    };
    let inside = Some(Ipv4Addr::new(192, 168, 1, 7));
    bed.pipeline.apply(bed.now, MirrorEvent::Translation { flow, inside });
    bed.inject(0, &frame(5_000, 100));
    bed.round();
    let flows = bed.pipeline.flows(bed.now, None, 9).unwrap();
    assert!(flows[0].flow.contains("192.168.1.7"), "{flows:?}");
    bed.pipeline.apply(bed.now, MirrorEvent::NoTranslations);
    assert_eq!(bed.snapshot().translations, 0);
}
