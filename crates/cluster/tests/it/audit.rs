//! The audit of a cluster: quiet whatever the cluster is, and told where windows are wrong.

use evenkeel_cluster::audit::{Audit, Seen, Verdict};
use evenkeel_cluster::model::ModelConfig;
use evenkeel_cluster::{ClusterConfig, Granted, Record, Scheduler, Variant, WeightRule, mix64};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{Bytes, Nanos};

const RULES: [WeightRule; 3] = [WeightRule::PerQueue, WeightRule::PerClass, WeightRule::Divided];

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    /// Below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 += 1;
        mix64(self.0) % end
    }
}

/// A cluster of any kind: sides, weights, rule, variant, trains, who holds what, load, loss.
fn any_cluster(seed: u64) -> ModelConfig {
    let draw = &mut Draw(mix64(seed));
    let (members, links) = (1 + draw.below(5) as u16, 1 + draw.below(5) as usize);
    let weights: Vec<u16> = (0..2 + draw.below(3)).map(|_| 1 + draw.below(9) as u16).collect();
    let mut cluster = ClusterConfig::new(members, links, &weights);
    cluster.rule = RULES[draw.below(3) as usize];
    let variants = [Variant::Single, Variant::Multiple, Variant::Lazy, Variant::Pipelined];
    let depth = 2 + draw.below(20) as u16;
    cluster.set_variant(variants[draw.below(4) as usize], depth, draw.below(3) as u16 * depth);
    if draw.below(3) == 0 && matches!(cluster.variant, Variant::Multiple | Variant::Pipelined) {
        cluster.round_bytes = Bytes(3_000);
    }
    if draw.below(4) == 0 && cluster.variant == Variant::Pipelined {
        cluster.train = Bytes(3_200);
    }
    cluster.second_pass = draw.below(2) == 0;
    let mut model = ModelConfig::paper(cluster);
    model.sizes = [vec![(64, 1)], vec![(64, 7), (576, 4), (1_500, 1)], vec![(40, 1), (1_500, 1)]]
        [draw.below(3) as usize]
        .clone();
    model.holds = (0..members).map(|_| 1 + draw.below(15) as u8).collect();
    model.interval =
        [None, None, Some(Nanos::from_micros(20 + draw.below(300)))][draw.below(3) as usize];
    // A frame of a hundred.
    model.loss = [0, 0, u32::MAX / 100][draw.below(3) as usize];
    model.seed = seed;
    model.duration = Nanos::from_millis(60);
    model
}

/// How many windows of how many nodes were judged; the first cluster that is accused fails.
fn judged(seeds: std::ops::Range<u64>) -> u64 {
    let mut windows = 0;
    for seed in seeds {
        let model = any_cluster(seed);
        let audits = model.run().expect("valid").audits;
        for audit in audits {
            assert_eq!(audit.violations, 0, "seed {seed}: {audit:?}\n{model:?}");
            windows += audit.windows;
        }
    }
    windows
}

#[test]
fn clusters_of_two_hundred_seeds_are_not_accused() {
    let windows = judged(0..200);
    assert!(windows > 20_000, "{windows} windows were judged");
}

#[test]
#[ignore = "5,000 clusters, some minutes; 200 are tried always: make soak"]
fn clusters_of_five_thousand_seeds_are_not_accused() {
    println!("{} windows", judged(200..5_200));
}

/// Three forwarders and links with two classes that always wait, over so many windows; `told` is
/// what the audit hears of the records of a queue, and `granted` of what was decided.
fn seen(
    config: &ClusterConfig,
    told: &ClusterConfig,
    hears: impl Fn(usize) -> bool,
    granted: impl Fn(u64, &mut Vec<Granted>),
    windows: u64,
) -> Verdict {
    let mut scheduler = Scheduler::new(config).expect("valid");
    let mut audit = Audit::new(told, 0);
    for cycle in 0..windows {
        for queue in 0..18 {
            let (node, link, class) = (queue / 6, queue / 2 % 3, queue % 2);
            let records = [1_000, 400, 1_400].map(|length| Record::of_packet(0, length));
            audit.announce(node, link, class, &records);
            let tells = if hears(class) { &records[..] } else { &[] };
            scheduler.announce(node, link, class, tells);
        }
        let exact = scheduler.decide(cycle, 7).exact;
        let mut grants = scheduler.granted().to_vec();
        granted(cycle, &mut grants);
        let (forgot, grants) = (scheduler.forgot(), &grants[..]);
        audit.window(&Seen { cycle, present: 7, heard: 7, whole: exact, forgot, grants });
    }
    *audit.verdict()
}

fn two_classes(weights: &[u16], rule: WeightRule) -> ClusterConfig {
    let mut config = ClusterConfig::new(3, 3, weights);
    config.set_variant(Variant::Multiple, 3, 0);
    config.rule = rule;
    config
}

/// The mutants; the honest cluster beside each.
#[test]
fn what_is_wrong_with_a_cluster_is_found() {
    for rule in RULES {
        let [right, wrong] = [[3, 1], [1, 1]].map(|weights| two_classes(&weights, rule));
        let honest = seen(&right, &right, |_| true, |_, _| {}, 200);
        assert_eq!((honest.violations, honest.windows), (0, 200), "{rule:?} {honest:?}");
        assert!(honest.worst_ppm > 0, "{rule:?} {honest:?}");

        let weight = seen(&wrong, &right, |_| true, |_, _| {}, 200);
        let last = weight.last.unwrap_or_else(|| panic!("{rule:?}: a weight {weight:?}"));
        assert_eq!((last.class, last.other, last.told_ppm), (0, 1, 750_000), "{rule:?}");
        assert!(last.delivered_ppm.abs_diff(500_000) < 20_000, "{rule:?} {last:?}");
        assert!(last.lag > last.bound);

        // It may have been ahead by what a class is owed at most: this takes longer.
        let starved = seen(&right, &right, |class| class == 0, |_, _| {}, 2_000);
        let last = starved.last.unwrap_or_else(|| panic!("{rule:?}: starved {starved:?}"));
        assert_eq!((last.class, last.delivered_ppm), (1, 0), "{rule:?}");

        // Each twentieth grant of one class goes to the other.
        let stolen = seen(
            &right,
            &right,
            |_| true,
            |_, grants| {
                let theirs = grants.iter_mut().filter(|granted| granted.grant.class == 0);
                theirs.step_by(20).for_each(|granted| granted.grant.class = 1);
            },
            600,
        );
        assert!(stolen.violations > 0, "{rule:?}: stolen {stolen:?}");
    }
}

/// A class that waits at no forwarder that is free for its link has no claim; nor has one of a
/// window of which not everything was heard.
#[test]
fn who_cannot_be_served_or_was_not_heard_is_not_judged() {
    let mut config = two_classes(&[1, 1], WeightRule::PerClass);
    config.weight = PerClass::all(1);
    let mut model = ModelConfig::paper(config.clone());
    // Class 0 only at the first forwarder, which has three links to serve.
    model.holds = vec![3, 2, 2];
    model.duration = Nanos::from_millis(50);
    let outcome = model.run().expect("valid");
    let of_class =
        |class: usize| (0..3).map(|link| outcome.queues[link * 2 + class].bytes).sum::<u64>();
    assert!(of_class(1) > of_class(0) * 3 / 2, "{:?}", outcome.queues);
    assert!(outcome.audits.iter().all(|audit| audit.violations == 0 && audit.windows > 100));

    let mut scheduler = Scheduler::new(&config).expect("valid");
    let mut audit = Audit::new(&config, 0);
    audit.announce(0, 0, 0, &[Record::of_packet(0, 64)]);
    scheduler.announce(0, 0, 0, &[Record::of_packet(0, 64)]);
    let whole = scheduler.decide(0, 1).exact;
    let grants = scheduler.granted();
    audit.window(&Seen { cycle: 0, present: 3, heard: 3, whole, forgot: 0, grants });
    assert_eq!((audit.verdict().windows, audit.verdict().blind), (0, 1));
}
