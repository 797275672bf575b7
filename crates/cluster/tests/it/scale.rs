//! Large clusters, and trains of packets.

use evenkeel_cluster::model::{LargeCost, ModelConfig, Outcome};
use evenkeel_cluster::{ClusterConfig, Variant};
use evenkeel_core::{Bytes, Nanos};

/// What a packet takes of the paper's forwarders.
const PACKET: Nanos = Nanos(5_376);

/// Each decision as dear as its claim allows, and half a nanosecond for each byte that is heard:
/// more than `evenkeel-bench cluster-scale` measures.
fn large(size: u16, classes: usize, rounds: u16, train: u64, own_core: bool) -> ModelConfig {
    let decision = Nanos(40_000 * u64::from(size).pow(2) / 64_u64.pow(2));
    let record = if train > 0 { 7 } else { 6 };
    let reading = Nanos(record * 4 * u64::from(size) * classes as u64 / 2);
    ModelConfig::large(size, classes, rounds, train, LargeCost { reading, decision, own_core })
}

#[test]
fn sixty_four_forwarders_on_sixty_four_links_do_not_starve() {
    for (size, classes, rounds) in [(16, 4, 60), (32, 8, 120), (64, 8, 340)] {
        let mut model = large(size, classes, rounds, 1_500, false);
        let (part, outcome) = model.part_of(PACKET).unwrap();
        let count = |of: fn(&evenkeel_cluster::Counters) -> u64| {
            outcome.nodes.iter().map(of).sum::<u64>() as f64
        };
        let rounds = count(|node| node.rounds) / count(|node| node.decided);
        println!("{size} x {size} x {classes}: {:.1} %, {rounds:.0} rounds", part * 100.0);
        assert_eq!(outcome.collisions, 0);
        assert!(part >= 0.95, "{size}: {part}");
    }
}

/// As the router does it.
#[test]
fn the_core_that_forwards_decides() {
    for (size, classes, rounds, train) in [(16, 4, 60, 1_500), (64, 8, 60, 16_320)] {
        let (part, _) = large(size, classes, rounds, train, true).part_of(PACKET).unwrap();
        println!("{size}: {:.1} %", part * 100.0);
        assert!((0.95..0.99).contains(&part), "{size}: {part}");
    }
}

#[test]
fn without_trains_the_exchange_and_the_decisions_are_what_is_full() {
    let (part, _) = large(32, 8, 120, 0, false).part_of(PACKET).unwrap();
    println!("{:.1} %", part * 100.0);
    assert!((0.05..0.5).contains(&part), "{part}");
}

/// Mixed sizes, weights 3 : 1: trains share as their packets would, and a round is as long as what
/// is sent in it.
#[test]
fn trains_of_mixed_packets_share_by_weight_and_take_the_time_that_is_reckoned() {
    let run = |train| {
        let mut cluster = ClusterConfig::new(3, 3, &[3, 1]);
        cluster.set_variant(Variant::Pipelined, 8, 32);
        cluster.train = Bytes(train);
        let mut model = ModelConfig::paper(cluster);
        model.cluster.timing.per_packet = Nanos::ZERO;
        model.cluster.timing.decision = Nanos::ZERO;
        (model.per_packet, model.per_exchange) = (Nanos::ZERO, Nanos::ZERO);
        model.sizes = vec![(64, 50), (576, 15), (1_500, 35)];
        model.duration = Nanos::from_millis(200);
        model.run().unwrap()
    };
    let (single, trains) = (run(0), run(3_000));
    assert_eq!(trains.collisions, 0);
    for link in 0..3 {
        let [voice, rest] = [0, 1].map(|class| trains.sent(link, class).bytes as f64);
        let ratio = voice / rest / 3.0;
        let [one, many] = [&single, &trains].map(|outcome| outcome.links[link]);
        println!("{ratio:.4}: {one:?}, trains: {many:?}");
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
        // As many trains as there are long packets without them: 5 of 1,500.
        assert!(one.worst_bytes < 6 * 1_500, "{one:?}");
        assert!(many.worst_bytes < 6 * 3_000, "{many:?}");
        // Were the packets of a train not counted, the next would come before its end.
        assert!(many.most_waiting <= one.most_waiting * 2, "{many:?}");
    }
    let [packets, packets_alone] =
        [&trains, &single].map(|outcome| outcome.packets.iter().sum::<u64>() as f64);
    assert!(packets > packets_alone * 0.97, "{packets} {packets_alone}");
    let rounds = |outcome: &Outcome| outcome.nodes[0].rounds;
    assert!(rounds(&trains) * 2 < rounds(&single), "fewer decisions for as many packets");
}
