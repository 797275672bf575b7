//! The balancer: even, steady, and gentle with flows that are established.

use evenkeel_cluster::balancer::{
    Balancer, FULL, Maglev, State, TABLE, Target, TargetError, weight_for_load,
};
use evenkeel_cluster::{NodeId, mix64};
use evenkeel_core::Nanos;

fn targets(states: &[State]) -> Vec<Target> {
    let target = |(id, state): (usize, &State)| Target {
        id: NodeId(id as u16),
        mac: [id as u8; 6],
        state: *state,
    };
    states.iter().enumerate().map(target).collect()
}

const ON: State = State::Active(FULL);

#[test]
fn shares_differ_by_one_place_and_removal_moves_little() {
    for members in [2_u16, 3, 7, 16, 64] {
        let all = Maglev::new(9, (0..members).map(|id| (NodeId(id), FULL)));
        let shares: Vec<_> = all.shares().iter().map(|(_, places)| *places).collect();
        assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        assert_eq!(shares.iter().sum::<usize>(), TABLE);
        let reversed = Maglev::new(9, (0..members).rev().map(|id| (NodeId(id), FULL)));
        assert_eq!(all, reversed, "the same on all balancers");
        let fewer = Maglev::new(9, (1..members).map(|id| (NodeId(id), FULL)));
        let moved =
            (0..TABLE as u64).filter(|place| all.lookup(*place) != fewer.lookup(*place)).count();
        // 1/M must move; the more members, the more of the others' places change hands besides.
        let most = if members > 16 { 1.5 } else { 1.3 };
        assert!(moved as f64 <= most * TABLE as f64 / f64::from(members), "{members}: {moved}");
    }
    let halves = Maglev::new(9, [(NodeId(0), FULL), (NodeId(1), FULL / 2)].into_iter()).shares();
    assert!(halves[0].1.abs_diff(2 * halves[1].1) <= 2, "{halves:?}");
}

#[test]
fn established_flows_stay_when_forwarders_join_and_drain() {
    let mut balancer = Balancer::new(4, 1 << 14, Nanos::from_secs(60));
    balancer.set_targets(&targets(&[ON, ON, ON])).unwrap();
    let mut now = Nanos::SECOND;
    let flows: Vec<u64> = (0..2_000).map(mix64).collect();
    let before: Vec<_> = flows.iter().map(|flow| balancer.pick(now, *flow).unwrap().id).collect();
    for states in [&[ON, ON, ON, ON][..], &[State::Draining, ON, ON, ON]] {
        balancer.set_targets(&targets(states)).unwrap();
        now += Nanos::SECOND;
        let after: Vec<_> =
            flows.iter().map(|flow| balancer.pick(now, *flow).unwrap().id).collect();
        assert_eq!(after, before);
    }
    let new: Vec<_> =
        (5_000..6_000).map(|flow| balancer.pick(now, mix64(flow)).unwrap().id).collect();
    assert!(new.iter().all(|id| id.0 != 0) && new.iter().any(|id| id.0 == 3));
    assert!(balancer.flows(now, NodeId(0)) > 500);
    assert_eq!(balancer.flows(now + Nanos::from_secs(61), NodeId(0)), 0, "drained");
    // Gone: its flows alone move.
    balancer.set_targets(&targets(&[ON, ON, ON, ON])[1..]).unwrap();
    for (flow, id) in flows.iter().zip(&before) {
        let now_at = balancer.pick(now, *flow).unwrap().id;
        assert!(now_at == *id || id.0 == 0);
    }
}

#[test]
fn a_full_table_is_counted_and_bad_targets_refused() {
    let mut balancer = Balancer::new(4, 64, Nanos::from_secs(60));
    assert_eq!(balancer.pick(Nanos::ZERO, 5), None);
    balancer.set_targets(&targets(&[ON, ON])).unwrap();
    for flow in 0..1_000 {
        assert!(balancer.pick(Nanos::SECOND, mix64(flow)).is_some());
    }
    assert!(balancer.counters().untracked >= 936);
    assert_eq!(balancer.set_targets(&[]), Err(TargetError::Number(0)));
    assert_eq!(balancer.set_targets(&targets(&[State::Active(0)])), Err(TargetError::Weight(0)));
    let twice = [targets(&[ON])[0]; 2];
    assert_eq!(balancer.set_targets(&twice), Err(TargetError::Twice(0)));
}

#[test]
fn feedback_moves_weights_towards_equal_loads() {
    assert_eq!(weight_for_load(256, 100, 100), 256);
    assert_eq!(weight_for_load(256, 200, 100), 192);
    assert_eq!(weight_for_load(128, 50, 100), 192);
    assert_eq!(weight_for_load(32, u64::MAX, 1), 32);
    // Loads proportional to weight times an unknown factor settle.
    let (mut weights, factors) = ([256_u16; 3], [1_u64, 1, 2]);
    for _ in 0..20 {
        let loads: Vec<u64> =
            weights.iter().zip(factors).map(|(w, f)| u64::from(*w) * f * 1000).collect();
        let mean = loads.iter().sum::<u64>() / 3;
        for (weight, load) in weights.iter_mut().zip(&loads) {
            *weight = weight_for_load(*weight, *load, mean);
        }
    }
    assert!((120..=140).contains(&weights[2]) && weights[0] == 256, "{weights:?}");
}
