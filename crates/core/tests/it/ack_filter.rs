//! The ACK filter: what of the acknowledgements that wait goes, and what stays.

use std::net::{IpAddr, Ipv4Addr};

use crate::common::TestPacket;
use evenkeel_core::packet::Ack;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::{Bytes, FlowKey, Nanos, Reason, Scheduler};

/// Segment `id` of connection `connection` of one host, which acknowledges.
fn segment(id: u64, connection: u16, ack: Option<Ack>) -> TestPacket {
    let flow = FlowKey {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
        protocol: 6,
        source_port: connection,
        destination_port: 80,
        flow_label: 0,
    };
    TestPacket { flow, ack, ..TestPacket::new(id, 0, 52) }
}

const fn bare(number: u32) -> Option<Ack> {
    Some(Ack { number, flags: 0, is_bare: true })
}

/// Disciplines that give nothing priority, so that all waits in queues.
fn both(fair: Fair, ack_filter: bool) -> [Box<dyn Scheduler<TestPacket>>; 2] {
    let pfq = PfqConfig { quantum: Bytes(0), fair, ack_filter, ..PfqConfig::default() };
    let pdrr = PdrrConfig { quantum: Bytes(256), fair, ack_filter, ..PdrrConfig::default() };
    let mut both: [Box<dyn Scheduler<TestPacket>>; 2] =
        [Box::new(Pfq::new(pfq).unwrap()), Box::new(Pdrr::new(pdrr).unwrap())];
    for queues in &mut both {
        assert_eq!(queues.reads_acks(), ack_filter);
        // PDRR gives a flow's first 256 bytes priority.
        for id in 0..3 {
            let _ = queues.enqueue(Nanos::ZERO, segment(1_000 + id, 1, None), &mut |_, _| ());
            let _ = queues.enqueue(Nanos::ZERO, segment(1_000 + id, 2, None), &mut |_, _| ());
        }
    }
    both
}

/// Which of these are dropped, each with its connection and what it acknowledges.
fn dropped(fair: Fair, ack_filter: bool, segments: &[(u16, Option<Ack>)]) -> Vec<u64> {
    let [mut pfq, mut pdrr] = both(fair, ack_filter);
    let of = |queues: &mut Box<dyn Scheduler<TestPacket>>| {
        let mut dropped = Vec::new();
        for (id, (connection, ack)) in segments.iter().enumerate() {
            let segment = segment(id as u64, *connection, *ack);
            let _ = queues.enqueue(Nanos::ZERO, segment, &mut |packet: TestPacket, reason| {
                assert_eq!(reason, Reason::SuperfluousAck);
                dropped.push(packet.id);
            });
        }
        let (mut sent, mut all) = (Vec::new(), dropped.clone());
        while let Some(packet) = queues.dequeue(Nanos::ZERO, &mut |_, _| panic!("nothing more")) {
            sent.push(packet.id);
        }
        all.extend(sent.iter().filter(|id| **id < 1_000));
        all.sort_unstable();
        assert!(all.into_iter().eq(0..segments.len() as u64), "each goes or is dropped");
        assert_eq!(queues.meters().backlog, Default::default());
        dropped
    };
    let dropped = of(&mut pfq);
    assert_eq!(dropped, of(&mut pdrr));
    dropped
}

#[test]
fn two_acknowledgements_of_a_connection_wait_and_the_newest_is_one() {
    let acks: Vec<_> = (1..=20).map(|number| (1, bare(number * 3_000))).collect();
    assert_eq!(dropped(Fair::Flow, true, &acks), (0..18).collect::<Vec<_>>());
    assert!(dropped(Fair::Flow, false, &acks).is_empty());
    // Numbers go round.
    let acks = [u32::MAX - 1, 5, 9].map(|number| (1, bare(number)));
    assert_eq!(dropped(Fair::Flow, true, &acks), [0]);
}

#[test]
fn what_says_anything_else_stays() {
    let said = |flags, is_bare| Some(Ack { number: 2, flags, is_bare });
    for other in [None, said(0, false), said(1, true), bare(4), bare(5)] {
        // The one in question is the oldest of three; the second would go if it were covered, too.
        let acks = [(1, other), (1, bare(3)), (1, bare(4))];
        assert!(dropped(Fair::Flow, true, &acks).is_empty(), "{other:?}");
    }
    // Data that acknowledges makes older ones superfluous.
    let last = Some(Ack { number: 9, flags: 0, is_bare: false });
    assert_eq!(dropped(Fair::Flow, true, &[(1, bare(1)), (1, bare(2)), (1, last)]), [0]);
}

#[test]
fn connections_of_a_host_in_one_queue_are_told_apart() {
    let acks: Vec<_> = (1..=6).flat_map(|n| [(1, bare(n * 10)), (2, bare(1_000 - n))]).collect();
    // The numbers of the second one fall: none covers another.
    assert_eq!(dropped(Fair::Source, true, &acks), [0, 2, 4, 6]);
}

/// Sixteen packets are looked at, so that a long queue costs no more.
#[test]
fn what_stands_far_ahead_stays() {
    let mut acks = vec![(1, bare(1)), (1, bare(2))];
    acks.extend((0..16).map(|_| (1, None)));
    acks.push((1, bare(3)));
    assert!(dropped(Fair::Flow, true, &acks).is_empty());
    acks.remove(5);
    acks.remove(5);
    assert_eq!(dropped(Fair::Flow, true, &acks), [0]);
}
