//! FairDrop's droppers from outside: bad input, absurd measurements, changes of cost, a full table,
//! no allocation.

use evenkeel_core::drop::{
    BandwidthConfig, BandwidthFairDrop, CpuConfig, CpuFairDrop, Fixed, FlowTableConfig, Kappa,
    Poll, ProcessingClass, Rule, Share, ShareId,
};
use evenkeel_core::settings::SettingError;
use evenkeel_core::{BitRate, Bytes, Cycles, Nanos, Reason, Thousandths};

fn hash(flow: u64) -> u64 {
    (flow + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn two_classes(rule: Rule) -> CpuFairDrop {
    let costs = vec![Cycles(350), Cycles(35_000)];
    CpuFairDrop::new(CpuConfig { costs, rule, ..CpuConfig::default() }).unwrap()
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    let kappa = |kappa| Rule::Kappa(Kappa { kappa: Thousandths(kappa) });
    let cpu = |change: &dyn Fn(&mut CpuConfig)| {
        let mut config = CpuConfig::default();
        change(&mut config);
        match CpuFairDrop::new(config).unwrap_err() {
            SettingError::OutOfRange { key, .. } => key,
            other => panic!("{other}"),
        }
    };
    assert_eq!(cpu(&|c| c.costs = vec![Cycles(0)]), "costs");
    assert_eq!(cpu(&|c| c.costs = vec![Cycles(u64::MAX)]), "costs");
    assert_eq!(cpu(&|c| c.costs = vec![]), "costs");
    assert_eq!(cpu(&|c| c.rule = kappa(999)), "kappa");
    assert_eq!(cpu(&|c| c.rule = Rule::Fixed(Fixed { threshold: Cycles(0) })), "cycles");
    assert_eq!(cpu(&|c| c.ring = 255), "ring");
    assert_eq!(cpu(&|c| c.table.flows = 0), "flows");
    assert_eq!(cpu(&|c| c.table.shares[0].weight = 0), "shares.weight");
    assert_eq!(cpu(&|c| c.table.shares[0].group = 1), "shares.group");
    let link =
        BandwidthConfig { threshold: Bytes(1_537), ..BandwidthConfig::new(BitRate(1_000_000)) };
    let error = BandwidthFairDrop::new(link).unwrap_err();
    assert_eq!(error.to_string(), "threshold: 1537B is out of range; valid: 1538B to 1000000000B");
    let mut live = two_classes(Rule::default());
    assert!(live.set_rule(kappa(1)).is_err());
    assert_eq!(live.config().rule, Rule::default());
}

#[test]
fn absurd_measurements_are_counted_and_harm_nobody() {
    let mut dropper = two_classes(Rule::default());
    dropper.measured(ProcessingClass(0), 0, Cycles(1_000));
    dropper.measured(ProcessingClass(0), 10, Cycles(0));
    dropper.measured(ProcessingClass(1), 1, Cycles(u64::MAX));
    dropper.measured(ProcessingClass(9), 1, Cycles(1));
    assert_eq!(dropper.view().absurd, 4);
    let costs = dropper.view().costs;
    assert!(costs.iter().all(|cost| (1..=1 << 32).contains(cost)), "{costs:?}");
    // A counter that runs backwards, or stands still.
    for now in [1_000, 500, 500, u64::MAX, 0] {
        let poll = Poll {
            now: Cycles(now),
            busy: Cycles(u64::MAX),
            polled: 256,
            waiting: u32::MAX,
            queued: u32::MAX,
        };
        dropper.begin_batch(&poll);
        let _ = dropper.admit(hash(1), ShareId(200), ProcessingClass(77));
    }
    assert!(dropper.view().absurd >= 6);
}

/// A round costs something besides its packets, which those that it has bear together.
#[test]
fn a_class_costs_what_all_its_packets_took_however_many_came_at_once() {
    let mut dropper = two_classes(Rule::default());
    for _ in 0..200 {
        for packets in [1, 9] {
            dropper.measured(
                ProcessingClass(0),
                packets,
                Cycles(1_000 + 1_000 * u64::from(packets)),
            );
        }
    }
    let cost = dropper.view().costs[0];
    assert!((1_185..=1_215).contains(&cost), "{cost} cycles; 10 packets took 12000");
}

/// One round of an overloaded core: 256 packets of 20 flows; flow 0 is of `class`. Returns what
/// flow 0 and flow 1 were charged.
fn round(dropper: &mut CpuFairDrop, now: &mut u64, busy: &mut u64, class: u8) -> [u64; 2] {
    *now += *busy;
    let poll =
        Poll { now: Cycles(*now), busy: Cycles(*busy), polled: 256, waiting: 1_792, queued: 1_792 };
    dropper.begin_batch(&poll);
    let (mut spent, mut of) = (256 * 26, [0; 2]);
    let mut heavy = 0;
    for packet in 0..256 {
        let flow = packet % 20;
        let class = if flow == 0 { class } else { 0 };
        let cost = [350, 35_000][usize::from(class)];
        if dropper.admit(hash(flow), ShareId(0), ProcessingClass(class)).is_ok() {
            spent += cost;
            heavy += u32::from(class);
            if let Some(of) = of.get_mut(flow as usize) {
                *of += cost;
            }
        }
    }
    if heavy > 0 {
        dropper.measured(ProcessingClass(1), heavy, Cycles(35_000 * u64::from(heavy)));
    }
    *busy = spent;
    of
}

#[test]
fn a_flow_that_becomes_a_hundred_times_dearer_is_held_to_its_share_within_100_ms() {
    let mut dropper = two_classes(Rule::default());
    let (mut now, mut busy) = (0, 100_000);
    while now < 260_000_000 {
        round(&mut dropper, &mut now, &mut busy, 0);
    }
    // 100 ms to adapt, 200 ms to measure.
    while now < 520_000_000 {
        round(&mut dropper, &mut now, &mut busy, 1);
    }
    let mut sums = [0; 2];
    while now < 1_040_000_000 {
        let of = round(&mut dropper, &mut now, &mut busy, 1);
        sums = [sums[0] + of[0], sums[1] + of[1]];
    }
    let ratio = sums[0] as f64 / sums[1] as f64;
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn a_full_table_is_counted_and_nobody_passes_for_free() {
    let table = FlowTableConfig { flows: 8, ..FlowTableConfig::default() };
    let mut link = BandwidthFairDrop::new(BandwidthConfig {
        table,
        buffer: Bytes(10_000),
        ..BandwidthConfig::new(BitRate::from_mbps(10))
    })
    .unwrap();
    let mut admitted = 0;
    for ms in 0..1_000 {
        link.begin_batch(Nanos::from_millis(ms));
        for flow in 0..50 {
            match link.admit(hash(flow), ShareId(0), Bytes(125)) {
                Ok(()) => admitted += 125 * 8,
                Err(reason) => assert_eq!(reason, Reason::FairdropBandwidth),
            }
        }
    }
    assert!(link.view().unplaced > 10_000);
    // 10 Mbit in a second, and what may wait.
    assert!((9_900_000..10_400_000).contains(&admitted), "{admitted}");
}

#[test]
fn what_is_refused_by_the_link_is_not_charged_to_the_core() {
    let mut cpu = two_classes(Rule::default());
    let mut link = BandwidthFairDrop::new(BandwidthConfig {
        buffer: Bytes(0),
        ..BandwidthConfig::new(BitRate(1_000))
    })
    .unwrap();
    link.begin_batch(Nanos::ZERO);
    let mut passed = 0;
    for _ in 0..100 {
        let Ok(ticket) = cpu.judge(hash(1), ShareId(0)) else { continue };
        if link.admit(hash(1), ShareId(0), Bytes(1_538)).is_ok() {
            cpu.charge(ticket, ProcessingClass(0));
            passed += 1;
        }
    }
    assert_eq!(passed, link.view().charged);
    assert_eq!((cpu.view().charged, cpu.view().judged), (passed, 100));
    assert!(passed < 100);
    assert_eq!(cpu.flows().map(|flow| flow.charged).sum::<u64>(), passed * 350);
}

#[test]
fn packets_allocate_nothing() {
    let shares = (1..=8).map(|weight| Share { weight, group: 0 }).collect();
    let table = FlowTableConfig { flows: 1_024, shares, groups: vec![1] };
    for rule in [Rule::default(), Rule::KAPPA, Rule::JOURNAL, Rule::MIMD_RING] {
        let config = CpuConfig { table: table.clone(), rule, ..CpuConfig::default() };
        let mut dropper = CpuFairDrop::new(config).unwrap();
        let allocated = allocation_counter::measure(|| {
            for batch in 0..500u64 {
                let poll = Poll {
                    now: Cycles(batch * 90_000),
                    busy: Cycles(90_000),
                    polled: 256,
                    waiting: 1_000,
                    queued: 1_000,
                };
                dropper.begin_batch(&poll);
                for packet in 0..256 {
                    let flow = (batch * 31 + packet * 7) % 2_000;
                    let _ =
                        dropper.admit(hash(flow), ShareId((flow % 8) as u8), ProcessingClass(0));
                }
                dropper.measured(ProcessingClass(0), 256, Cycles(89_000));
            }
        });
        assert_eq!(allocated.count_total, 0, "{rule:?}");
        let view = dropper.view();
        assert_eq!(view.judged, view.charged + view.refused);
    }
}
