//! A tree of subscribers under random packets, clocks and plans, of which many do not hang
//! together. Nothing is lost or sent twice, a flow keeps its order, a refused plan changes nothing,
//! counts of nodes are those of the whole, and what waits is asked for at a time at which it goes.
#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::tree::{Kind, Plan, PlanNode, Tree, TreeConfig, Within};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{BitRate, Bytes, Nanos, Reason, Scheduler, Weight};
use evenkeel_fuzz::harness::{Mail, TestPacket, flow};
use libfuzzer_sys::fuzz_target;

/// A node as bytes choose it: rates are in and out of their range.
#[derive(Arbitrary, Debug)]
struct Node {
    at: u8,
    parent: u8,
    kind: u8,
    cap: Option<u64>,
    guarantee: Option<u64>,
    weight: u32,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Arrive { to: u8, flow: u8, length: u16 },
    Send,
    Wait { nanos: u32, times: u8 },
    WaitForWake,
    Plant(Vec<Node>),
    Rate(Option<u64>),
    Drain,
}

#[derive(Arbitrary, Debug)]
struct Case {
    nodes: Vec<Node>,
    quantum: u16,
    buffer: u8,
    aqm: bool,
    start: u64,
    ops: Vec<Op>,
}

/// A rate, of any size: small ones are as likely as large ones.
fn rate(bits: u64) -> BitRate {
    BitRate(bits >> (bits % 64))
}

fn plan(nodes: &[Node]) -> Plan {
    let mut plan = Plan::default();
    for node in nodes {
        let node_of = PlanNode {
            kind: [Kind::Free, Kind::Inner, Kind::Leaf][usize::from(node.kind % 3)],
            parent: u32::from(node.parent % 40),
            cap: node.cap.map(rate),
            guarantee: node.guarantee.map_or(BitRate::ZERO, rate),
            weight: node.weight,
        };
        let _ = plan.put(u32::from(node.at % 40), node_of);
    }
    plan
}

fuzz_target!(|case: Case| {
    let first = plan(&case.nodes);
    let sound = first.check().is_ok();
    let config = TreeConfig {
        plan: Arc::new(first),
        quantum: Bytes(256 + u64::from(case.quantum)),
        aqm: if case.aqm { ElasticAqm::cobalt() } else { ElasticAqm::default() },
        buffer: 1 + u32::from(case.buffer),
        within: match case.buffer % 3 {
            0 => Within::Flows,
            1 => Within::Hosts { send: case.aqm },
            _ => Within::Classes(PerClass::new([30, 100].map(Weight), Weight(300))),
        },
        ..TreeConfig::default()
    };
    // A quantum of more than 65,535 is refused, too.
    let Ok(mut tree) = Tree::<Mail>::new(config) else {
        assert!(!sound || u64::from(case.quantum) + 256 > 65_535, "a sound plan is refused");
        return;
    };
    assert!(sound, "a plan that does not hang together is taken");
    // Instants of caps have room for clocks of 18 years: machines do not run for so long.
    const LATEST: Nanos = Nanos(1 << 58);
    let mut now = Nanos(case.start >> 7);
    let (mut came, mut gone, mut planted) = (0u64, 0u64, 0u64);
    let mut last = HashMap::new();
    for op in case.ops {
        match op {
            Op::Arrive { to, flow: number, length } => {
                came += 1;
                let packet = TestPacket::new(came, 0, u32::from(length).max(20));
                let packet = TestPacket { arrival: now, flow: flow(number % 8), ..packet };
                let mail = Mail::new(packet, u32::from(to % 48));
                let _ = tree.enqueue(now, mail, &mut |_, _: Reason| gone += 1);
            }
            Op::Send => match tree.dequeue(now, &mut |_, _: Reason| gone += 1) {
                Some(mail) => {
                    gone += 1;
                    let before = last.insert((mail.to, mail.packet.flow), mail.packet.id);
                    let overtaken = before >= Some(mail.packet.id);
                    assert!(mail.packet.id <= planted || !overtaken, "a flow was overtaken");
                }
                None if tree.backlog().packets > 0 => {
                    assert!(tree.next_wake(now).expect("what waits has a time") > now);
                }
                None => (),
            },
            Op::Wait { nanos, times } => {
                now = now
                    .saturating_add(Nanos(u64::from(nanos) << (times % 24)))
                    .min(LATEST.max(now));
            }
            Op::WaitForWake => now = tree.next_wake(now).unwrap_or(now),
            Op::Plant(nodes) => {
                let next = plan(&nodes);
                let sound = next.check().is_ok() && tree.has_room(&next);
                let taken = tree.replant(now, Arc::new(next), &mut |_, _: Reason| gone += 1);
                assert_eq!(taken.is_ok(), sound);
                if sound {
                    planted = came;
                    last.clear();
                }
            }
            Op::Rate(bits) => tree.set_rate(bits.map(|bits| BitRate(rate(bits).0.max(1)))),
            Op::Drain => tree.drain(&mut |_| gone += 1),
        }
        let waits = tree.backlog().packets;
        assert_eq!(came - gone, waits, "in = out + dropped + held");
        assert_eq!(tree.next_wake(now).is_some(), waits > 0);
        let of_leaves = (0..48).filter_map(|at| tree.node(at)).map(|node| node.backlog_packets);
        assert_eq!(of_leaves.sum::<u64>(), waits);
    }
});
