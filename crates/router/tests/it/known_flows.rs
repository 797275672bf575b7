//! Flows whose way is remembered are held to the long way: `fuzz/cases/known_flows.rs`, with random
//! choices and with those that the fuzzer has found.

use evenkeel_core::{Nanos, Reason};
use evenkeel_net::PortIndex;
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::LinkState;

use crate::common::{Bed, Udp, host_mac, router_mac, udp, v4};
use crate::corpus::replay;

#[path = "../../../../fuzz/cases/known_flows.rs"]
mod case;

/// Random numbers.
fn numbers(seed: u64) -> impl Iterator<Item = u32> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    })
}

#[test]
fn f17_flows_of_the_corpus_are_known_as_they_are_looked_up() {
    replay("known_flows", case::run);
}

#[test]
fn remembered_and_looked_up_packets_cannot_be_told_apart() {
    for tables in case::TABLES {
        for (flows, seed) in [(2, 1), (16, 2), (4_096, 3), (4_096, 4)] {
            println!("{}, {flows} flows, seed {seed}", tables.0);
            let mut choices = case::Choices::new(numbers(seed));
            let forwarded = case::hold_together(tables, flows, 6_000, &mut choices);
            assert!(forwarded > 3_000, "{}: {forwarded} frames", tables.0);
        }
    }
}

/// Runs of packets that pass a link together, where the port has room for all, for some, and for
/// none.
#[test]
fn a_port_that_fills_up_gets_known_flows_as_others() {
    for link in ["", ADMITTED] {
        fill_up(link);
    }
}

const ADMITTED: &str = "[[link]]\nport = \"p1\"\ndiscipline = { kind = \"pdrr\" }\n\
                        admission = { rate = \"1000Gbit/s\" }\n";

fn fill_up(link: &str) {
    let [mut known, mut long] =
        [64, 0].map(|flows| Bed::new(2, &format!("[router]\nflow_cache = {flows}\n{link}")));
    let mut waited = 0;
    for step in 0..300u16 {
        // Just as many as there is room for, or some number.
        for flow in 0..if step / 60 % 2 == 0 { 32 } else { (step * 7) % 40 } {
            for bed in [&mut known, &mut long] {
                bed.send(0, 1, Udp { port: 5_000 + flow % 4, ..Udp::default() });
            }
        }
        let pause = Nanos::from_micros(50);
        assert_eq!(known.pass(pause), long.pass(pause), "step {step}");
        // 512 frames fit between the port and who receives from it.
        if step % 60 == 59 {
            assert_eq!(known.received(1), long.received(1), "step {step}");
        }
        let (ours, theirs) = (known.snapshot(), long.snapshot());
        assert_eq!(ours, theirs, "step {step}");
        waited = waited.max(ours.links[1].queued);
    }
    assert!(waited > 0, "the port was never full");
}

/// A bare acknowledgement of one of four connections, of everything up to `number`.
fn acknowledgement(port: u16, number: u32) -> Vec<u8> {
    let what = Udp { port, payload: 12, ..Udp::default() };
    let mut frame = udp((host_mac(0), router_mac(0)), v4(0, 2), v4(1, 2), what);
    (frame[23], frame[24], frame[25]) = (6, 0, 0);
    let sum = evenkeel_net::checksum::sum(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[38..42].copy_from_slice(&7_u32.to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame[46..54].copy_from_slice(&[0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// An acknowledgement that waits goes when a later one of its connection comes, whether the
/// connection is known or not.
#[test]
fn acknowledgements_of_known_flows_are_filtered_as_those_of_others() {
    let link = "[[link]]\nport = \"p1\"\nrate = \"100kbit/s\"\ndiscipline = { kind = \"pdrr\", \
                ack_filter = true }\n";
    let [mut known, mut long] =
        [64, 0].map(|flows| Bed::new(2, &format!("[router]\nflow_cache = {flows}\n{link}")));
    for step in 0..100 {
        for bed in [&mut known, &mut long] {
            for at in 0..12 {
                bed.inject(0, &acknowledgement(5_000 + at % 4, step * 12_000 + u32::from(at)));
            }
            bed.pass(Nanos::from_millis(5));
        }
        assert_eq!(known.received(1), long.received(1), "step {step}");
        assert_eq!(known.snapshot(), long.snapshot(), "step {step}");
    }
    let dropped = known.pipeline.link(PortIndex(1)).unwrap().qostat().classes()[0].dropped;
    assert!(dropped[Reason::SuperfluousAck.index()] > 500, "{dropped:?}");
}

/// As those of VLANs of one interface have.
#[test]
fn ports_with_the_same_address_are_counted_each() {
    let mut bed = Bed::new(3, "[router]\nflow_cache = 64");
    let state = LinkState { mac: router_mac(0), mtu: 1_500, up: true };
    bed.pipeline.set_link(bed.now, PortIndex(1), Some(state));
    for _ in 0..10 {
        for from in [0, 0, 1, 0, 1, 1, 1] {
            let macs = (host_mac(from), router_mac(0));
            bed.inject(from, &udp(macs, v4(from, 2), v4(2, 2), Udp::default()));
        }
        bed.round();
    }
    let snapshot = bed.snapshot();
    assert_eq!([0, 1].map(|port| snapshot.ports[port].rx_packets), [30, 40]);
    assert_eq!(bed.received(2).len(), 70);
}

/// The kernel has to hear that a neighbour is used which may have gone, also by known flows.
#[test]
fn a_neighbour_in_doubt_is_asked_for_while_known_flows_use_it() {
    let mut bed = Bed::new(3, "[router]\nflow_cache = 64");
    let stale = KernelNeighbourState::Stale(host_mac(1));
    bed.pipeline.set_neighbour(bed.now, PortIndex(1), v4(1, 2), Some(stale));
    let mut asked = 0;
    for _ in 0..50 {
        bed.send(0, 1, Udp::default());
        bed.pass(Nanos::from_millis(100));
        bed.pipeline.drain_requests(bed.now, |_request| asked += 1);
        bed.one(1);
    }
    assert!((4..=6).contains(&asked), "asked {asked} times in 5 s");
}
