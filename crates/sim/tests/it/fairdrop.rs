//! FairDrop in virtual time: the shipped scenarios, the authors' tables, and our rule against exact
//! water filling for every flow.

use std::path::{Path, PathBuf};

use evenkeel_core::drop::{
    BandwidthConfig, BandwidthFairDrop, Fixed, FlowTableConfig, MimdBatch, Rule, ShareId,
};
use evenkeel_core::reference::{CoreBudget, CoreFlow};
use evenkeel_core::{BitRate, Bytes, Cycles, Nanos};
use evenkeel_scenario::Scenario;
use evenkeel_scenario::core_model::{CoreFlows, CoreModel};
use evenkeel_sim::SimOptions;
use evenkeel_sim::polled::{FlowCounts, PolledCore};
use evenkeel_traffic::random::Dice;

fn flows(flows: u32, pps: u64, cost: u64, weight: u16) -> CoreFlows {
    CoreFlows {
        name: "flows".into(),
        flows,
        pps: pps as f64,
        size: Bytes(64),
        cost,
        weight,
        poisson: false,
        train: 1,
        change: None,
        start: Nanos::ZERO,
        stop: Nanos::MAX,
    }
}

fn model(rule: Rule, flows: Vec<CoreFlows>) -> CoreModel {
    let (clock, batch, ring, poll) = (2_600_000_000, 256, 2_048, 26);
    CoreModel {
        clock,
        batch,
        ring,
        poll,
        refuse: 10,
        round: 0,
        rule: Some(rule),
        link: None,
        flows,
    }
}

/// Cycles per second of each flow after `settle`, and what water filling gives of the same
/// arrivals.
fn against_water_filling(
    model: &CoreModel,
    settle: u64,
    length: u64,
    polled: Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let mut core = PolledCore::new(model, 7).unwrap();
    core.run_until(Nanos::from_millis(settle));
    let (before, from) = (core.counts().to_vec(), core.cycles()[0].0);
    core.run_until(Nanos::from_millis(settle + length));
    let seconds = (core.cycles()[0].0 - from) as f64 / model.clock as f64;
    let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
    let both = || before.iter().zip(core.counts());
    let cycles = both().map(|(a, b): (&FlowCounts, _)| rate(b.cycles, a.cycles)).collect();
    let kinds = model.flows.iter().flat_map(|kind| (0..kind.flows).map(move |_| kind));
    let offered = both().zip(kinds).map(|((a, b), kind)| CoreFlow {
        offered: rate(b.offered, a.offered),
        cost: kind.cost as f64,
        weight: f64::from(kind.weight),
    });
    let offered: Vec<CoreFlow> = offered.collect();
    let (poll, refuse) = (f64::from(model.poll), f64::from(model.refuse));
    let budget = CoreBudget { cycles: model.clock as f64, poll, refuse };
    let shares =
        polled.map_or_else(|| budget.shares(&offered), |part| budget.shares_at(&offered, part));
    (cycles, shares.admitted.iter().zip(&offered).map(|(a, flow)| a * flow.cost).collect())
}

/// Those for the cycles of a real core, which `scripts/figures.sh` has in the lab alone; it
/// simulates the others.
#[test]
fn scenarios_of_the_lab_come_out_as_they_claim() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/fairdrop");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_lab =
        |file: &PathBuf| file.file_name().is_some_and(|n| n.to_string_lossy().starts_with("lab-"));
    let mut files: Vec<_> = files.filter(of_lab).collect();
    files.sort();
    assert!(files.len() >= 4);
    for file in files {
        let scenario = Scenario::load(&file).expect("it is valid");
        let outcome =
            evenkeel_sim::run(&scenario, &SimOptions::default()).expect("it can be simulated");
        assert_eq!(outcome.run.warnings, Vec::<String>::new());
        let bad: Vec<_> =
            outcome.judgements.iter().filter(|judgement| judgement.verdict.is_bad()).collect();
        assert!(bad.is_empty(), "{}: {bad:?}", scenario.name);
    }
}

/// Claims that cannot fail say nothing: without the dropper, or with the published rule, the demo's
/// fail.
#[test]
fn the_claims_of_the_demo_fail_with_other_rules() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/fairdrop/demo.toml");
    for rule in [None, Some(Rule::JOURNAL)] {
        let mut scenario = Scenario::load(&file).expect("it is valid");
        scenario.core.as_mut().unwrap().rule = rule;
        let outcome =
            evenkeel_sim::run(&scenario, &SimOptions::default()).expect("it can be simulated");
        let failed =
            |name: &str| outcome.judgements.iter().any(|j| j.name == name && j.verdict.is_bad());
        assert!(failed("fair") && failed("max-min"), "{rule:?}");
    }
}

/// Every single flow within 5 %, the total within 2 %, of exact water filling of the same arrivals.
#[track_caller]
fn assert_max_min(what: &str, (cycles, fair): &(Vec<f64>, Vec<f64>)) {
    let total = cycles.iter().sum::<f64>() / fair.iter().sum::<f64>();
    assert!((total - 1.0).abs() < 0.02, "{what}: total {total}");
    for (flow, (cycles, fair)) in cycles.iter().zip(fair).enumerate() {
        let off = cycles / fair - 1.0;
        assert!(off.abs() < 0.05, "{what}: flow {flow} {off:+.4}");
    }
}

/// Random arrivals: which flow finds the last place of the ring is chance then.
fn poisson(kinds: Vec<CoreFlows>) -> Vec<CoreFlows> {
    kinds.into_iter().map(|kind| CoreFlows { poisson: true, ..kind }).collect()
}

#[test]
fn every_flow_has_its_max_min_share() {
    for (heavy, light) in [(1, 1), (2, 18), (20, 180)] {
        for ratio in [1, 2, 5, 10, 14] {
            for load in [0.3, 0.9, 1.3, 2.0, 3.0] {
                let mean = f64::from(350 * (light + heavy * ratio)) / f64::from(light + heavy);
                let pps = (2.6e9 * load / mean / f64::from(light + heavy)) as u64;
                let kinds =
                    vec![flows(light, pps, 350, 1), flows(heavy, pps, 350 * u64::from(ratio), 1)];
                let (kinds, length) = if light > 18 { (poisson(kinds), 200) } else { (kinds, 100) };
                let got = against_water_filling(&model(Rule::default(), kinds), 60, length, None);
                assert_max_min(&format!("{light}+{heavy} 1:{ratio} load {load}"), &got);
            }
        }
    }
}

/// Many flows that are all equally and evenly spaced keep their order for ever: the same ones come
/// too late in every round while the ring overflows.
#[test]
fn a_thousand_flows_have_their_max_min_shares() {
    for (ratio, load, even) in
        [(1, 2.0, false), (10, 1.3, false), (14, 2.0, false), (1, 1.3, true), (10, 3.0, true)]
    {
        let mean = 350.0 * (900.0 + 100.0 * ratio as f64) / 1_000.0;
        let pps = (2.6e9 * load / mean / 1_000.0) as u64;
        let kinds = vec![flows(900, pps, 350, 1), flows(100, pps, 350 * ratio, 1)];
        let kinds = if even { kinds } else { poisson(kinds) };
        let got = against_water_filling(&model(Rule::default(), kinds), 200, 400, None);
        assert_max_min(&format!("1000 flows 1:{ratio} load {load} even {even}"), &got);
    }
}

/// Packets of 64, 576 and 1500 bytes that cost by the byte, as encryption does.
#[test]
fn flows_of_all_sizes_have_their_max_min_shares() {
    for per_byte in [0, 2, 8] {
        for load in [0.3, 0.9, 1.3, 2.0, 3.0] {
            let cost = |size: u64| 350 + per_byte * size;
            let mean = [64, 576, 1_500].map(cost).iter().sum::<u64>() as f64 / 3.0;
            let pps = (2.6e9 * load / mean / 18.0) as u64;
            let sized = |size| CoreFlows { size: Bytes(size), ..flows(6, pps, cost(size), 1) };
            let kinds = poisson([64, 576, 1_500].map(sized).into());
            let got = against_water_filling(&model(Rule::default(), kinds), 100, 200, None);
            assert_max_min(&format!("{per_byte} cycles per byte, load {load}"), &got);
        }
    }
}

#[test]
fn weights_share_cycles() {
    // All are limited: shares follow the weights exactly.
    let kinds = vec![
        flows(4, 2_000_000, 350, 1),
        flows(2, 2_000_000, 3_500, 2),
        flows(2, 2_000_000, 700, 5),
    ];
    let (cycles, _) = against_water_filling(&model(Rule::default(), kinds), 100, 200, None);
    let level = cycles.iter().sum::<f64>() / 18.0;
    for (cycles, weight) in cycles.iter().zip([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 5.0, 5.0]) {
        let off = cycles / level / weight - 1.0;
        assert!(off.abs() < 0.05, "weight {weight}: {off}");
    }
}

/// The authors' cpu-stat: three flows at equal packet rates, costs 5, 3 and 1, half a unit for a
/// refused packet.
fn cpu_stat(rule: Rule, load: f64) -> CoreModel {
    // A unit is 1000 cycles.
    let pps = (2.6e6 * load / 9.0) as u64;
    let kinds = vec![flows(1, pps, 5_000, 1), flows(1, pps, 3_000, 1), flows(1, pps, 1_000, 1)];
    CoreModel { poll: 0, refuse: 500, ring: 4_096, ..model(rule, poisson(kinds)) }
}

const CPU_STAT: [(f64, [f64; 3]); 3] =
    [(1.2, [0.445, 0.400, 0.133]), (2.0, [0.320, 0.320, 0.222]), (4.0, [0.148, 0.150, 0.151])];

/// With the authors' rule: MIMD on full batches, from a tenth of the largest threshold,
/// 5 B / sum(1 / cost) with B = 640.
#[test]
fn the_authors_cycle_shares() {
    let max = Cycles((5.0 * 640.0 / (1.0 / 5_000.0 + 1.0 / 3_000.0 + 1.0 / 1_000.0)) as u64);
    let rule = Rule::MimdBatch(MimdBatch {
        min: Cycles(1),
        max,
        start: Cycles(max.0 / 10),
        ..MimdBatch::default()
    });
    for (load, published) in CPU_STAT {
        let (cycles, _) = against_water_filling(&cpu_stat(rule, load), 400, 1_200, None);
        for (flow, (cycles, published)) in cycles.iter().zip(published).enumerate() {
            let got = cycles / 2.6e9;
            assert!((got - published).abs() < 0.02, "load {load} flow {flow}: {got} {published}");
        }
    }
}

/// Ours polls no more than is needed, and what it saves on refusing is shared, too.
#[test]
fn our_cycle_shares_where_the_authors_measured_theirs() {
    for load in [1.2, 2.0, 3.0, 4.0] {
        let model = cpu_stat(Rule::default(), load);
        let (cycles, fair) = against_water_filling(&model, 400, 1_200, None);
        let off = cycles.iter().zip(&fair).map(|(c, f)| (c - f).abs() / 2.6e9).fold(0.0, f64::max);
        assert!(off < 0.01, "load {load}: {cycles:?} for {fair:?}");
    }
}

/// Offers packets to a link's dropper, each flow Poisson at a fraction of the link; shares of the
/// link that were admitted.
fn link_shares(config: BandwidthConfig, offered: &[f64], shares: &[u8], packets: u64) -> Vec<f64> {
    let rate = config.rate.0 as f64;
    let mut dropper = BandwidthFairDrop::new(config).unwrap();
    let mut dice = Dice::new(3, 0);
    let wire = Bytes(84);
    let slot = wire.0 as f64 * 8e9 / rate;
    let mut next: Vec<f64> = vec![0.0; offered.len()];
    let mut admitted = vec![0u64; offered.len()];
    let (mut now, mut judged) = (0.0, 0);
    while judged < packets {
        let flow = (0..next.len()).min_by(|a, b| next[*a].total_cmp(&next[*b])).unwrap();
        now = f64::max(now, next[flow]);
        next[flow] += slot / offered[flow] * (dice.exponential() as f64 / 4_294_967_296.0);
        dropper.begin_batch(Nanos(now as u64));
        let hash = (flow as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The first tenth fills queues.
        let passed = dropper.admit(hash, ShareId(shares[flow]), wire).is_ok();
        admitted[flow] += u64::from(passed && judged > packets / 10);
        judged += 1;
        if judged == packets / 10 + 1 {
            admitted.fill(0);
        }
    }
    let sum = now * 0.9 / slot;
    admitted.iter().map(|n| *n as f64 / sum).collect()
}

fn close(shares: &[f64], exact: &[f64], within: f64) {
    for (flow, (share, exact)) in shares.iter().zip(exact).enumerate() {
        assert!(
            (share - exact).abs() < within,
            "flow {flow}: {share} instead of {exact} in {shares:?}"
        );
    }
}

#[test]
fn the_authors_bandwidth_shares() {
    // bw-stat: three Poisson flows at 1, 0.6 and 0.1 of the link, threshold 10 packets.
    let config = || BandwidthConfig {
        threshold: Bytes(1_538),
        buffer: Bytes(840),
        ..BandwidthConfig::new(BitRate::from_mbps(1_000))
    };
    close(&link_shares(config(), &[1.0, 0.6, 0.1], &[0; 3], 400_000), &[0.45, 0.45, 0.1], 0.005);
    // The test bed: twenty flows of 14.88 Mpps together, arrival weights 1 to 20, over a link of a
    // tenth: the smallest has its demand, the others a share each.
    let offered: Vec<f64> = (1..=20).map(|k| 10.0 * f64::from(k) / 210.0).collect();
    let shares = link_shares(config(), &offered, &[0; 20], 1_000_000);
    let exact: Vec<(f64, f64)> = offered.iter().map(|o| (*o, 1.0)).collect();
    let exact = evenkeel_core::reference::max_min(1.0, &exact);
    // What the first offered is random: 4000 packets, give or take 1.6 %.
    close(&shares[..1], &exact[..1], 0.002);
    close(&shares[1..], &exact[1..], 0.005 / 20.0);
}

#[test]
fn weights_and_groups_share_a_link() {
    use evenkeel_core::drop::Share;
    let shares =
        [(1, 0), (3, 0), (1, 1), (1, 1)].map(|(weight, group)| Share { weight, group }).to_vec();
    let table = FlowTableConfig { shares, groups: vec![1, 2], ..FlowTableConfig::default() };
    // A small buffer: what is admitted before it is full is not shared.
    let rate = BitRate::from_mbps(1_000);
    let config = BandwidthConfig { table, buffer: Bytes(1_680), ..BandwidthConfig::new(rate) };
    let got = link_shares(config, &[0.8, 0.8, 0.1, 0.9], &[0, 1, 2, 3], 400_000);
    close(&got, &[1.0 / 12.0, 0.25, 0.1, 17.0 / 30.0], 0.003);
}

#[test]
fn a_free_link_and_a_free_core_refuse_nothing() {
    // A burst of 256 full packets after a second of silence.
    let mut link = BandwidthFairDrop::new(BandwidthConfig::new(BitRate::from_mbps(1_000))).unwrap();
    for second in 1..5 {
        link.begin_batch(Nanos::from_secs(second));
        assert!((0..256).all(|_| link.admit(1 << 40, ShareId(0), Bytes(1_538)).is_ok()));
    }
    assert_eq!(link.view().refused, 0);
    // Ours, below capacity; the published ones know no such exception.
    let kinds = vec![flows(18, 160_000, 354, 1), flows(2, 160_000, 3_545, 1)];
    let mut core = PolledCore::new(&model(Rule::default(), kinds), 7).unwrap();
    core.run_until(Nanos::from_millis(100));
    let dropped: u64 = core.counts().iter().map(|c| c.refused_cpu + c.lost_at_ring).sum();
    assert_eq!(dropped, 0);
}

#[test]
fn published_rules_depend_on_the_threshold() {
    let kinds = || vec![flows(18, 744_000, 354, 1), flows(2, 744_000, 3_545, 1)];
    let ratio = |threshold| {
        let model = CoreModel {
            refuse: 0,
            ..model(Rule::Fixed(Fixed { threshold: Cycles(threshold) }), kinds())
        };
        let (cycles, _) = against_water_filling(&model, 100, 100, None);
        cycles[19] / cycles[0]
    };
    assert!((1.4..1.7).contains(&ratio(6_000)), "{}", ratio(6_000));
    assert!((4.4..5.0).contains(&ratio(20_000)), "{}", ratio(20_000));
    assert!(ratio(60_000) > 9.0, "{}", ratio(60_000));
}
