//! The shadow against the literal walk of the published code, and against hierarchical processor
//! sharing event by event.

use proptest::prelude::*;

use super::config::{FlowTableConfig, Share, ShareId};
use super::shadow::{FRACTION, Shadow};

const UNIT: u64 = 1 << FRACTION;

/// The published drain: walk all backlogged flows, each loses its part; what emptied flows left
/// over is walked over again.
fn walk(queues: &mut [f64], weights: &[f64], credit: f64) {
    let mut credit = credit;
    loop {
        let total: f64 =
            queues.iter().zip(weights).filter(|(q, _)| **q > 0.0).map(|(_, w)| w).sum();
        if total == 0.0 || credit <= 0.0 {
            return;
        }
        let (mut recovered, mut left) = (0.0, false);
        for (queue, weight) in queues.iter_mut().zip(weights).filter(|(q, _)| **q > 0.0) {
            let share = credit * weight / total;
            if *queue > share {
                *queue -= share;
            } else {
                recovered += share - *queue;
                *queue = 0.0;
                left = true;
            }
        }
        if !left {
            return;
        }
        credit = recovered;
    }
}

/// Two levels, event by event: between two departures every flow is served at a constant rate.
fn hierarchy(queues: &mut [f64], shares: &[Share], groups: &[u16], mut credit: f64) {
    while credit > 1e-9 {
        let busy = |flow: &usize| queues[*flow] > 1e-9;
        let of = |group: usize| {
            (0..queues.len()).filter(busy).filter(move |f| usize::from(shares[*f].group) == group)
        };
        let weight = |group: usize| of(group).map(|f| f64::from(shares[f].weight)).sum::<f64>();
        let all: f64 = (0..groups.len())
            .filter(|g| of(*g).next().is_some())
            .map(|g| f64::from(groups[g]))
            .sum();
        if all == 0.0 {
            return;
        }
        let rate = |flow: usize| {
            let group = usize::from(shares[flow].group);
            f64::from(groups[group]) / all * f64::from(shares[flow].weight) / weight(group)
        };
        let rates: Vec<f64> =
            (0..queues.len()).map(|f| if busy(&f) { rate(f) } else { 0.0 }).collect();
        let first =
            (0..queues.len()).filter(busy).map(|f| queues[f] / rates[f]).fold(credit, f64::min);
        for (queue, rate) in queues.iter_mut().zip(&rates) {
            *queue = (*queue - rate * first).max(0.0);
            *queue = if *queue < 1e-9 { 0.0 } else { *queue };
        }
        credit -= first;
    }
}

fn table(shares: Vec<Share>, groups: Vec<u16>) -> FlowTableConfig {
    FlowTableConfig { flows: 256, shares, groups }
}

/// One hash per flow, so that all find a place.
fn hash(flow: usize) -> u64 {
    (flow as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn place(shadow: &mut Shadow, flow: usize) -> u32 {
    shadow.look(hash(flow), ShareId(flow as u8)).index
}

#[test]
fn the_worked_example_of_the_published_drain() {
    // VQ = (5, 1, 3), credit 6: 2 each, one unit recovered, 0.5 each.
    let equal = vec![Share { weight: 1, group: 0 }; 3];
    let mut shadow = Shadow::new(&table(equal, vec![1]));
    for (flow, work) in [5, 1, 3].into_iter().enumerate() {
        let index = place(&mut shadow, flow);
        shadow.charge(index, work * UNIT);
    }
    assert_eq!(shadow.drain(6 * UNIT), 1);
    let left: Vec<u64> =
        (0..3).map(|f| shadow.look(hash(f), ShareId(f as u8)).ahead * 2 / UNIT).collect();
    assert_eq!(left, [5, 0, 1]);
    assert_eq!((shadow.work(), shadow.backlogged()), (u128::from(3 * UNIT), 2));
    let mut walked = [5.0, 1.0, 3.0];
    walk(&mut walked, &[1.0; 3], 6.0);
    assert_eq!(walked, [2.5, 0.0, 0.5]);
}

/// What happens: work for a flow, or a credit for all.
#[derive(Clone, Debug)]
enum Step {
    Charge(usize, u64),
    Drain(u64),
}

fn steps(flows: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..flows, 1u64..20_000).prop_map(|(flow, work)| Step::Charge(flow, work)),
        1 => (0u64..60_000).prop_map(Step::Drain),
        1 => (0u64..300).prop_map(Step::Drain),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Flat and weighted: the clock gives every flow what the walk gives it.
    #[test]
    fn equals_the_walk(steps in steps(24), weights in prop::collection::vec(1u16..9, 24)) {
        let shares = weights.iter().map(|weight| Share { weight: *weight, group: 0 }).collect();
        let mut shadow = Shadow::new(&table(shares, vec![1]));
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let mut queues = vec![0.0; 24];
        for step in steps {
            match step {
                Step::Charge(flow, work) => {
                    let index = place(&mut shadow, flow);
                    shadow.charge(index, work * UNIT);
                    queues[flow] += work as f64;
                }
                Step::Drain(credit) => {
                    shadow.drain(credit * UNIT);
                    walk(&mut queues, &weights, credit as f64);
                }
            }
            for (flow, queue) in queues.iter().enumerate() {
                let index = place(&mut shadow, flow);
                let have = shadow.look(hash(flow),
                    ShareId(flow as u8)).ahead as f64 * weights[flow] / UNIT as f64;
                prop_assert!((have - queue).abs() < 0.05, "flow {flow} at {index}: {have} instead \
                                                           of {queue}");
            }
            let all: f64 = queues.iter().sum();
            prop_assert!((shadow.work() as f64 / UNIT as f64 - all).abs() < 0.5);
        }
    }

    /// Two levels: every flow gets what hierarchical processor sharing gives it.
    #[test]
    fn equals_hierarchical_sharing(
        steps in steps(12),
        rows in prop::collection::vec((1u16..9, 0u8..3), 12),
        groups in prop::collection::vec(1u16..9, 3),
    ) {
        let shares: Vec<Share> = rows.into_iter().map(|(weight, group)| Share { weight, group })
            .collect();
        let mut shadow = Shadow::new(&table(shares.clone(), groups.clone()));
        let mut queues = vec![0.0; 12];
        for step in steps {
            match step {
                Step::Charge(flow, work) => {
                    let index = place(&mut shadow, flow);
                    shadow.charge(index, work * UNIT);
                    queues[flow] += work as f64;
                }
                Step::Drain(credit) => {
                    shadow.drain(credit * UNIT);
                    hierarchy(&mut queues, &shares, &groups, credit as f64);
                }
            }
            for (flow, queue) in queues.iter().enumerate() {
                let ahead = shadow.look(hash(flow), ShareId(flow as u8)).ahead;
                let have = ahead as f64 * f64::from(shares[flow].weight) / UNIT as f64;
                prop_assert!((have - queue).abs() < 0.05, "flow {flow}: {have} instead of {queue}");
            }
        }
    }

    /// A given clock: every flow loses the same of its queue, whoever else has one; who gets work
    /// with none is counted. Queues survive when the clock is given, and when it no longer is.
    #[test]
    fn a_given_clock_serves_all_alike(steps in steps(16),
        weights in prop::collection::vec(1u16..1_001, 16)) {
        let shares = weights.iter().map(|weight| Share { weight: *weight, group: 0 }).collect();
        let config = table(shares, vec![1]);
        let mut shadow = Shadow::new(&config);
        shadow.give_clock(&config, true);
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let (mut queues, mut started) = (vec![0.0_f64; 16], 0);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Charge(flow, work) => {
                    let index = place(&mut shadow, flow);
                    started += u32::from(shadow.look(hash(flow), ShareId(flow as u8)).ahead == 0);
                    shadow.charge(index, work * UNIT);
                    queues[flow] += work as f64 / weights[flow];
                }
                Step::Drain(credit) => {
                    prop_assert_eq!(shadow.advance(credit * UNIT), started);
                    started = 0;
                    queues.iter_mut().for_each(|queue| *queue = (*queue - credit as f64).max(0.0));
                }
            }
            if number % 60 == 59 {
                shadow.give_clock(&config, false);
                prop_assert_eq!(shadow.backlogged() as usize,
                    queues.iter().filter(|q| **q > 5e-4).count());
                shadow.give_clock(&config, true);
                shadow.advance(0);
                started = 0;
            }
            for (flow, queue) in queues.iter().enumerate() {
                let have = shadow.look(hash(flow), ShareId(flow as u8)).ahead as f64 / UNIT as f64;
                prop_assert!((have - queue).abs() < 0.05, "flow {flow}: {have} instead of {queue}");
            }
        }
    }

    /// The clock may wrap, and weights may change under backlogged flows.
    #[test]
    fn wraps_and_reweighs(steps in steps(8), start in 0u64..UNIT << 20) {
        let equal = vec![Share { weight: 1, group: 0 }; 8];
        let mut shadow = Shadow::new(&table(equal, vec![1]));
        shadow.groups[0].clock = 0u64.wrapping_sub(start);
        let mut queues = vec![0.0; 8];
        let mut weights = vec![1.0; 8];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Charge(flow, work) => {
                    let index = place(&mut shadow, flow);
                    shadow.charge(index, work * UNIT);
                    queues[flow] += work as f64;
                }
                Step::Drain(credit) => {
                    shadow.drain(credit * UNIT);
                    walk(&mut queues, &weights, credit as f64);
                }
            }
            if number % 50 == 49 {
                let heavier: Vec<u16> = (0..8).map(|flow| 1 + (flow + number as u16) % 5).collect();
                let shares = heavier.iter().map(|weight| Share { weight: *weight, group: 0 })
                    .collect();
                prop_assert!(shadow.reweigh(&table(shares, vec![3])).is_ok());
                weights = heavier.into_iter().map(f64::from).collect();
            }
            for (flow, queue) in queues.iter().enumerate() {
                let have = shadow.look(hash(flow),
                    ShareId(flow as u8)).ahead as f64 * weights[flow] / UNIT as f64;
                prop_assert!((have - queue).abs() < 0.05, "flow {flow}: {have} instead of {queue}");
            }
        }
    }
}

/// Its finish time was long ago: once round the clock it must not look as if it were yet to come.
#[test]
fn a_given_clock_may_wrap_over_a_silent_flow() {
    let config = table(vec![Share { weight: 1, group: 0 }], vec![1]);
    let mut shadow = Shadow::new(&config);
    shadow.give_clock(&config, true);
    let index = place(&mut shadow, 0);
    shadow.charge(index, UNIT);
    for _ in 0..300 {
        shadow.advance(1 << 56);
        assert_eq!(shadow.backlog_of(index), 0);
    }
}

#[test]
fn a_full_table_keeps_backlogged_flows_and_counts_the_others() {
    let equal = vec![Share { weight: 1, group: 0 }];
    let mut shadow = Shadow::new(&FlowTableConfig { flows: 8, shares: equal, groups: vec![1] });
    for flow in 0..64 {
        let index = shadow.look(hash(flow), ShareId(0)).index;
        shadow.charge(index, 1_000 * UNIT);
    }
    let (unplaced, work) = (shadow.table.unplaced, shadow.work());
    assert!((56..64).contains(&unplaced), "{unplaced} unplaced");
    // Nothing was lost or taken twice: those without a place share the common one.
    assert_eq!(work, u128::from(64_000 * UNIT));
    assert!(shadow.backlogged() <= 9);
    // When all are through, places are free again.
    shadow.drain(64_000 * UNIT);
    assert_eq!((shadow.work(), shadow.backlogged()), (0, 0));
    shadow.look(hash(100), ShareId(0));
    assert_eq!(shadow.table.unplaced, unplaced);
}

#[test]
fn most_places_fill_before_a_flow_finds_none() {
    let equal = vec![Share { weight: 1, group: 0 }];
    let mut shadow =
        Shadow::new(&FlowTableConfig { flows: 131_072, shares: equal, groups: vec![1] });
    for flow in 0..115_000 {
        let index = shadow.look(hash(flow), ShareId(0)).index;
        shadow.charge(index, UNIT);
    }
    let unplaced = shadow.table.unplaced;
    assert!(unplaced < 115, "{unplaced} of 115 000 flows found no place among 131 072");
}

/// With a ring shorter than a burst it was never full enough for anything to be refused.
#[test]
fn of_a_short_ring_half_is_fetched() {
    let of = |ring| {
        let cpu = super::FairDropConfig::default().cpu(1, 0, 1_000_000_000, 256, ring);
        (cpu.batch, cpu.ring)
    };
    assert_eq!(
        (of(64), of(300), of(512), of(2_048)),
        ((32, 64), (150, 300), (256, 512), (256, 2_048))
    );
    // A port that cannot tell: a full burst counts as a full ring.
    assert_eq!(of(0), (256, 256));
}
