//! The cross-protect router's figures as sweeps, with few points and seeds: the orders that the
//! paper tells. `make figures` draws all of them.

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_report::confidence::Estimate;
use evenkeel_sweep::{RunOptions, Shard, Sweep, drawings, merge, run};

/// Means over seeds of each measure, by the values of the axes.
type Means = BTreeMap<(Vec<String>, String), f64>;

/// Runs a part of a sweep: of each axis the values told, with the first `seeds` seeds.
fn sweep(name: &str, seeds: usize, parts: &[(&str, &[&str])]) -> Means {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/sweeps").join(name);
    let mut sweep = Sweep::load(&file).unwrap();
    sweep.seeds.truncate(seeds);
    for (axis, values) in parts {
        let axis = sweep.axes.iter_mut().find(|known| known.name == *axis).unwrap();
        let keep: Vec<bool> = axis
            .values
            .iter()
            .map(|value| values.contains(&value.to_string().trim_matches('"')))
            .collect();
        assert_eq!(keep.iter().filter(|keep| **keep).count(), values.len(), "{:?}", axis.values);
        let mut kept = keep.iter();
        axis.values.retain(|_| *kept.next().unwrap());
        let mut kept = keep.iter();
        axis.put.retain(|_| *kept.next().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        jobs: 0,
        shard: Shard::WHOLE,
        disciplines: Default::default(),
        stop: Default::default(),
    };
    let finished = run(&sweep, folder.path(), &options, &|_, _| {}).unwrap();
    assert_eq!(finished.failed, Vec::<String>::new());
    merge(&[folder.path().to_owned()], folder.path()).unwrap();
    let drawn = drawings(folder.path()).unwrap();
    assert!(
        drawn.iter().any(|drawn| drawn.svg.contains("class=\"seed\"") && drawn.rows.len() > 1),
        "{name}"
    );

    let text = std::fs::read_to_string(folder.path().join("measures.csv")).unwrap();
    let mut rows = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let heading = rows.next().unwrap();
    let axes = sweep.axes.len();
    let mut each: BTreeMap<(Vec<String>, String), Vec<f64>> = BTreeMap::new();
    for row in rows {
        for (measure, value) in heading.iter().zip(&row).skip(2 + axes) {
            let key = (row[1..=axes].to_vec(), measure.clone());
            each.entry(key).or_default().push(value.parse().unwrap());
        }
    }
    each.into_iter().map(|(key, values)| (key, Estimate::of(&values).unwrap().mean)).collect()
}

fn of(means: &Means, values: &[&str], measure: &str) -> f64 {
    means[&(values.iter().map(|value| (*value).to_owned()).collect(), measure.to_owned())]
}

#[test]
fn streams_wait_for_seconds_at_a_standard_router_and_the_longer_the_more_flows() {
    let means = sweep(
        "cross-protect-fig4.toml",
        2,
        &[("router", &["standard"]), ("flows", &["10", "30", "50"])],
    );
    let wait = |flows| of(&means, &["standard", flows], "mean");
    assert!(wait("10") < 0.1, "10 flows are fewer than the 20 that close the link: {}", wait("10"));
    assert!(wait("30") > 2.0 && wait("50") > 1.2 * wait("30"), "{} {}", wait("30"), wait("50"));
}

#[test]
fn emergency_streams_wait_for_nothing_eccm_keeps_its_bound_and_all_together_is_better() {
    let means = sweep(
        "cross-protect-fig4.toml",
        2,
        &[("router", &["ECM", "ECCM", "ECCM + PUF + GPFL"]), ("flows", &["30"])],
    );
    let (ecm, eccm, all) = (["ECM", "30"], ["ECCM", "30"], ["ECCM + PUF + GPFL", "30"]);
    assert_eq!(of(&means, &ecm, "longest"), 0.0, "the first packet gets through");
    // max_accept_delay and a packet spacing, for the mean over seeds of the longest too.
    for router in [&eccm, &all] {
        let longest = of(&means, router, "longest");
        assert!((0.3..=2.01).contains(&longest), "{router:?}: {longest}");
    }
    let mean = |router| of(&means, router, "mean");
    assert!(mean(&all) < mean(&eccm), "{} {}", mean(&all), mean(&eccm));
}

#[test]
fn users_get_in_equally_often_within_one_flow_per_cycle() {
    let means = sweep("cross-protect-fig5.toml", 3, &[]);
    let let_in = |router: &str| ["1", "2", "3"].map(|user| of(&means, &[router, user], "admitted"));
    let (with, without) = (let_in("with PUF"), let_in("without"));
    // Ten cycles, two flows in each.
    assert!(with.iter().all(|flows| (10.0..=20.0).contains(flows)), "{with:?}");
    assert!(without[0] * 1.5 < without[1] && without[1] * 1.3 < without[2], "{without:?}");
    assert!(with.iter().sum::<f64>() < without.iter().sum());
}

#[test]
fn streams_on_the_global_list_switch_over_at_once() {
    let means = sweep("cross-protect-switchover.toml", 1, &[("end", &["11s"])]);
    let time = |router: &str, flow: &str| of(&means, &[router, "11s", flow], "mean");
    assert!(time("GPFL", "stream") < 10.0, "{}", time("GPFL", "stream"));
    for (router, flow) in [("GPFL", "elastic"), ("standard", "stream"), ("standard", "elastic")] {
        assert!(
            (1_000.0..3_000.0).contains(&time(router, flow)),
            "{router}, {flow}: {}",
            time(router, flow)
        );
    }
}
