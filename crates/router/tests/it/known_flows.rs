//! Flows whose way is remembered are held to the long way: `fuzz/cases/known_flows.rs`, with random
//! choices and with those that the fuzzer has found.

use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_router::mirror::decode::KernelNeighbourState;

use crate::common::{Bed, Udp, host_mac, v4};
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
