//! Links of different rates, and forwarders that serve several of them in one round.

use evenkeel_cluster::model::{ModelConfig, Outcome};
use evenkeel_cluster::{ClusterConfig, ConfigError, Variant};
use evenkeel_core::{BitRate, Bytes, Nanos};

fn mbit(rates: &[u64]) -> Vec<BitRate> {
    rates.iter().map(|rate| BitRate::from_mbps(*rate)).collect()
}

/// P-DS, weights 3 : 1, long packets, links that are the bottleneck.
fn model(forwarders: u16, rates: &[u64]) -> ModelConfig {
    let mut cluster = ClusterConfig::new(forwarders, rates.len(), &[3, 1]);
    cluster.set_variant(Variant::Pipelined, 100, 40);
    cluster.rates = mbit(rates);
    let mut model = ModelConfig::paper(cluster);
    model.cluster.timing.per_packet = Nanos::ZERO;
    model.cluster.timing.decision = Nanos::ZERO;
    (model.per_packet, model.per_exchange) = (Nanos::ZERO, Nanos::ZERO);
    model.sizes = vec![(1_500, 1)];
    model
}

/// Before its first cycle a cluster waits for three of the longest that there could be.
const BEGIN: Nanos = Nanos::from_millis(3_200);
const TIME: Nanos = Nanos::from_millis(1_000);

/// Of each link: the part of the time in which it sent, and voice : rest.
fn links(model: &ModelConfig) -> (Vec<(f64, f64)>, Outcome) {
    let [before, after] = [BEGIN, BEGIN + TIME].map(|duration| {
        let model = ModelConfig { duration, ..model.clone() };
        model.run().unwrap()
    });
    let link = |link: usize| {
        let [voice, rest] = [0, 1].map(|class| {
            let bytes = |outcome: &Outcome| outcome.sent(link, class).bytes;
            (bytes(&after) - bytes(&before)) as f64
        });
        let busy = after.links[link].busy - before.links[link].busy;
        (busy.as_secs_f64() / TIME.as_secs_f64(), voice / rest)
    };
    let all: Vec<(f64, f64)> = (0..model.cluster.links).map(link).collect();
    println!("{all:.4?}");
    assert_eq!(after.collisions, 0);
    (all, after)
}

#[test]
fn each_link_carries_what_it_can_and_shares_by_weight() {
    for rates in [[100, 100, 100], [100, 100, 1_000], [25, 100, 250], [10, 10, 30]] {
        let model = model(3, &rates);
        for (busy, ratio) in links(&model).0 {
            assert!(busy > 0.97, "{rates:?}: {busy}");
            assert!((ratio / 3.0 - 1.0).abs() < 0.01, "{rates:?}: {ratio}");
        }
    }
}

#[test]
fn packets_of_many_sizes_share_by_weight_on_links_of_different_rates() {
    let mut model = model(3, &[100, 100, 1_000]);
    model.cluster.set_variant(Variant::Pipelined, 400, 0);
    model.cluster.round_bytes = Bytes(6_000);
    model.sizes = vec![(64, 50), (576, 15), (1_500, 35)];
    for (busy, ratio) in links(&model).0 {
        assert!(busy > 0.85 && (ratio / 3.0 - 1.0).abs() < 0.02, "{busy} {ratio}");
    }
}

/// Nobody sends onto a link faster than it is: at the switch's port at most the packets of the
/// first instants of a round meet.
#[test]
fn no_link_is_given_more_than_its_rate() {
    let (_, outcome) = links(&model(3, &[100, 100, 1_000]));
    for link in outcome.links {
        assert!(link.most_waiting < 60, "{link:?}");
    }
}

#[test]
fn two_of_three_forwarders_carry_all_links_where_their_rate_allows() {
    let mut model = model(3, &[100, 100, 100]);
    model.stops = vec![(2, Nanos::ZERO)];
    for (rate, low, high) in [(None, 0.55, 0.67), (Some(199), 0.55, 0.67), (Some(200), 0.94, 1.0)] {
        model.cluster.forwarder_rate = rate.map(BitRate::from_mbps);
        let (all, _) = links(&model);
        let busy = all.iter().map(|(busy, _)| busy).sum::<f64>() / 3.0;
        assert!((low..=high).contains(&busy), "{rate:?}: {busy}");
        for (_, ratio) in all {
            assert!((ratio / 3.0 - 1.0).abs() < 0.01, "{rate:?}: {ratio}");
        }
    }
    // All but one.
    model.stops = vec![(0, Nanos::ZERO), (2, Nanos::ZERO)];
    model.cluster.forwarder_rate = Some(BitRate::from_mbps(300));
    for (busy, ratio) in links(&model).0 {
        assert!(busy > 0.94 && (ratio / 3.0 - 1.0).abs() < 0.01, "{busy} {ratio}");
    }
}

/// A class that is on one forwarder only gets its share of all links, which it cannot where a
/// forwarder serves one at a time.
#[test]
fn a_class_on_one_forwarder_has_its_share_of_all_links() {
    let mut model = model(3, &[100, 100, 100]);
    model.holds = vec![0b01, 0b10, 0b10];
    assert!(links(&model).0.iter().all(|(_, ratio)| *ratio < 1.0));
    model.cluster.forwarder_rate = Some(BitRate::from_mbps(300));
    for (busy, ratio) in links(&model).0 {
        assert!(busy > 0.94 && (ratio / 3.0 - 1.0).abs() < 0.02, "{busy} {ratio}");
    }
}

/// A forwarder's processor does for all links that it serves.
#[test]
fn a_round_is_as_long_as_a_forwarders_processor_needs_for_all_its_links() {
    let mut model = model(1, &[1_000, 1_000, 1_000]);
    model.sizes = vec![(64, 1)];
    model.cluster.forwarder_rate = Some(BitRate::from_mbps(3_000));
    model.cluster.timing.per_packet = Nanos::from_micros(5);
    // 64 bytes and what is around them, at 1 Gbit/s.
    let wire = (64.0 + 24.0) * 8e-9;
    let packets: f64 = links(&model).0.iter().map(|(busy, _)| busy / wire).sum();
    let part = packets * 5e-6;
    assert!((0.95..=1.001).contains(&part), "{part}");
}

#[test]
fn what_cannot_be_is_refused_and_what_differs_is_another_configuration() {
    let base = ClusterConfig::new(3, 3, &[3, 1]);
    let text = |change: fn(&mut ClusterConfig)| {
        let mut config = base.clone();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    let few = text(|config| config.rates = vec![BitRate::from_mbps(1); 2]);
    assert!(few.contains("the number of rates is 2"), "{few}");
    let slow = text(|config| config.forwarder_rate = Some(BitRate::from_mbps(999)));
    assert!(slow.contains("forwarder_rate is 999000000"), "{slow}");
    assert!(slow.contains("at least the rate of the fastest link"), "{slow}");
    assert!(matches!(
        ClusterConfig { rates: vec![BitRate(1); 3], ..base.clone() }.validate(),
        Err(ConfigError::Range { what: "a link's rate", .. })
    ));
    let mut same = base.clone();
    same.rates = mbit(&[1_000, 1_000, 1_000]);
    assert_eq!(same.hash(), base.hash(), "written in another way");
    let mut hashes = vec![base.hash()];
    for (rates, room) in
        [(&[1_000, 1_000, 100], 0), (&[100, 1_000, 1_000], 0), (&[100, 1_000, 1_000], 2_000)]
    {
        let mut other = base.clone();
        other.rates = mbit(rates);
        other.forwarder_rate = (room > 0).then(|| BitRate::from_mbps(room));
        hashes.push(other.hash());
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
}
