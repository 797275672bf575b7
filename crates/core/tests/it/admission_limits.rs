//! Knobs at and beyond their limits, memory, allocations, and random operations on everything at
//! once.

use crate::admit::ops::{self, Subject};
use crate::admit::world;
use crate::admit::{C, Fluid, XpPacket, config, flow, hash, ms};
use evenkeel_core::Prefix;
use evenkeel_core::admit::{
    Admission, AdmissionConfig, BudgetConfig, EccmConfig, EmergencyConfig, EmergencyRule, Flush,
    FlushConfig, Observed, PerUserConfig, Pin, PinningConfig, RouterLists, RouterListsConfig,
    SecondLinkConfig, Verdict,
};
use evenkeel_core::schedule::Treated;
use evenkeel_core::{BitRate, Bytes, Nanos, Ppm};
use proptest::prelude::*;

type Change = fn(&mut AdmissionConfig, u64);

/// Every knob with its name in messages, how it is set, and its smallest and largest value.
fn knobs() -> Vec<(&'static str, Change, u64, u64)> {
    fn eccm(c: &mut AdmissionConfig) -> &mut EccmConfig {
        c.eccm.on = true;
        &mut c.eccm
    }
    fn user(c: &mut AdmissionConfig) -> &mut PerUserConfig {
        c.per_user.on = true;
        &mut c.per_user
    }
    fn flush(c: &mut AdmissionConfig) -> &mut FlushConfig {
        c.flushing.kind = Flush::Ramaf;
        &mut c.flushing
    }
    fn second(c: &mut AdmissionConfig) -> &mut SecondLinkConfig {
        c.second_link.rate = Some(C);
        &mut c.second_link
    }
    let (ms10, hour) = (10_000_000, 3_600_000_000_000);
    vec![
        ("rate", |c, v| c.rate = BitRate(v), 1_000, 1_000_000_000_000),
        ("min_fair_rate", |c, v| c.min_fair_rate = Ppm(v as u32), 0, 1_000_000),
        ("max_priority_load", |c, v| c.max_priority_load = Ppm(v as u32), 1, 1_000_000),
        ("fair_rate_interval", |c, v| c.fair_rate_interval = Nanos(v), ms10, 60_000_000_000),
        ("load_interval", |c, v| c.load_interval = Nanos(v), 1_000_000, 10_000_000_000),
        ("smoothing", |c, v| c.smoothing = Ppm(v as u32), 0, 990_000),
        (
            "flow_timeout",
            |c, v| (c.flow_timeout, c.probation) = (Nanos(v), Nanos::ZERO),
            ms10,
            hour,
        ),
        ("class_window", |c, v| c.class_window = Nanos(v), ms10, hour),
        ("listing_chance", |c, v| c.listing_chance = Ppm(v as u32), 1, 1_000_000),
        ("budget_share", |c, v| c.budget.share = Ppm(v as u32), 1, 1_000_000),
        ("flood_share", |c, v| c.budget.flood_share = Ppm(v as u32), 1, 1_000_000),
        ("budget_burst", |c, v| c.budget.burst = Nanos(v), 100_000, 50_000_000),
        (
            "probation",
            |c, v| (c.probation, c.flow_timeout) = (Nanos(v), Nanos(3_600_000_000_000)),
            ms10,
            hour,
        ),
        ("max_accept_delay", |c, v| eccm(c).max_accept_delay = Nanos(v), ms10, hour),
        ("eccm_table", |c, v| eccm(c).table = v as u32, 1, 16_777_216),
        ("user_flows", |c, v| user(c).flows = v as u32, 1, 65_535),
        ("user_ipv4_prefix", |c, v| user(c).ipv4_prefix = v as u8, 1, 32),
        ("user_ipv6_prefix", |c, v| user(c).ipv6_prefix = v as u8, 1, 128),
        ("users", |c, v| user(c).users = v as u32, 1, 16_777_216),
        ("flush_interval", |c, v| flush(c).interval = Nanos(v), ms10, hour),
        ("active_time", |c, v| flush(c).active_time = Nanos(v), ms10, hour),
        ("blocking_time", |c, v| flush(c).blocking_time = Nanos(v), ms10, hour),
        ("priority_access_time", |c, v| flush(c).priority_access_time = Nanos(v), ms10, hour),
        ("others_chance", |c, v| flush(c).others_chance = Ppm(v as u32), 0, 1_000_000),
        ("most_active", |c, v| flush(c).most_active = v as u32, 1, 64),
        ("flush_table", |c, v| flush(c).table = v as u32, 1, 16_777_216),
        ("second_link_rate", |c, v| second(c).rate = Some(BitRate(v)), 1_000, 1_000_000_000_000),
        ("second_link_max_load", |c, v| second(c).max_load = Ppm(v as u32), 1, 1_000_000),
        ("second_link_flows", |c, v| second(c).flows = v as u32, 1, 16_777_216),
        (
            "cost_factor",
            |c, v| c.pinning = PinningConfig { on: true, cost_factor: v as u32 },
            1,
            1_000,
        ),
        ("flows", |c, v| c.flows = v as u32, 1, 16_777_216),
        ("history", |c, v| c.history = v as u32, 1, 16_777_216),
    ]
}

#[test]
fn every_knob_works_at_its_limits_and_is_refused_beyond() {
    for (name, change, min, max) in knobs() {
        let with = |value| {
            let mut wanted = config();
            change(&mut wanted, value);
            wanted
        };
        for value in [min.wrapping_sub(1), max + 1] {
            if value > max {
                let checked = with(value).check_on_link();
                // A value that does not fit the field at all needs no check.
                if with(value) != with(0) {
                    let message = checked.expect_err(name).to_string();
                    assert!(message.starts_with(&format!("{name}: ")), "{name}: {message}");
                }
            }
        }
        for value in [min, max] {
            with(value).check_on_link().unwrap_or_else(|error| panic!("{name} {value}: {error}"));
            // Tables of gigabytes are not built here.
            if max == 16_777_216 && value == max {
                continue;
            }
            // Live, in the middle of traffic, and from the start.
            let mut live = Fluid::new(config());
            let fixed = ["flows", "history"].contains(&name);
            for n in 0..200u16 {
                let _ = live.packet_at(ms(u64::from(n) * 10), flow(n % 9, n % 50), n % 3 == 0);
                if n == 100 {
                    let set = live.admission.set(live.now, with(value));
                    assert_eq!(set.is_err(), fixed, "{name} {value}");
                }
            }
            world::accounts(&live.admission);
            let mut fresh = Fluid::new(with(value));
            for n in 0..50u16 {
                let _ = fresh.packet_at(ms(u64::from(n) * 30), flow(n % 9, n), n % 3 == 0);
            }
            world::accounts(&fresh.admission);
        }
    }
}

#[test]
fn combinations_that_contradict_are_refused_with_the_reason() {
    let emergency = |fair, load, sources| EmergencyConfig {
        sources,
        destinations: vec![],
        rule: EmergencyRule::Thresholds,
        min_fair_rate: Ppm::percent(fair),
        max_priority_load: Ppm::percent(load),
    };
    let refused = |change: &dyn Fn(&mut AdmissionConfig)| {
        let mut wanted = config();
        change(&mut wanted);
        let mut live = Fluid::new(config());
        assert_eq!(live.admission.set(Nanos::ZERO, wanted.clone()), wanted.check_on_link());
        assert_eq!(*live.admission.config(), config(), "nothing changed");
        wanted.check_on_link().unwrap_err().to_string()
    };
    let probation = refused(&|c| c.probation = Nanos::from_secs(21));
    assert_eq!(
        probation,
        "probation: above flow_timeout: a new flow would be kept longer than a known one"
    );
    let fair = refused(&|c| c.emergency = emergency(6, 80, vec![]));
    assert!(fair.starts_with("emergency_min_fair_rate: above min_fair_rate"));
    let load = refused(&|c| c.emergency = emergency(2, 60, vec![]));
    assert!(load.starts_with("max_priority_load: above emergency_max_priority_load"));
    let many = vec![Prefix::ALL_V4; 4_097];
    let many = refused(&|c| c.emergency = emergency(2, 80, many.clone()));
    assert_eq!(many, "emergency_sources: 4097 is out of range; valid: 0 to 4096 prefixes");
    let burst = refused(&|c| c.budget = BudgetConfig { burst: ms(51), ..BudgetConfig::default() });
    assert!(burst.starts_with("budget_burst: above load_interval"));
    let size =
        Fluid::new(config()).admission.set(Nanos::ZERO, AdmissionConfig { flows: 5, ..config() });
    assert_eq!(size.unwrap_err().to_string(), "flows cannot change while the router runs");
    for lists in [
        RouterListsConfig { flows: 0, ..RouterListsConfig::default() },
        RouterListsConfig { k_add: 0, ..RouterListsConfig::default() },
        RouterListsConfig { k_add: 256, ..RouterListsConfig::default() },
        RouterListsConfig { flow_timeout: Nanos(1), ..RouterListsConfig::default() },
    ] {
        assert!(RouterLists::new(lists, 1).is_err());
    }
}

/// All mechanisms at once.
fn everything() -> AdmissionConfig {
    AdmissionConfig {
        emergency: EmergencyConfig {
            sources: vec![Prefix::host([10, 0, 0, 1].into())],
            ..EmergencyConfig::default()
        },
        eccm: EccmConfig { on: true, max_accept_delay: ms(2_000), table: 64 },
        global_list: true,
        per_user: PerUserConfig { on: true, users: 64, ..PerUserConfig::default() },
        flushing: FlushConfig { table: 64, ..FlushConfig::new(Flush::Ramaf) },
        second_link: SecondLinkConfig { flows: 64, ..SecondLinkConfig::new(BitRate::from_mbps(1)) },
        pinning: PinningConfig { on: true, ..PinningConfig::default() },
        ..AdmissionConfig { flows: 500, history: 100, ..AdmissionConfig::new(C) }
    }
}

#[test]
fn nothing_allocates_per_packet() {
    let mut admission = Admission::new(everything(), 1, Nanos::ZERO).unwrap();
    let mut lists =
        RouterLists::new(RouterListsConfig { flows: 200, ..RouterListsConfig::default() }, 2)
            .unwrap();
    let memory = admission.view().memory;
    assert_eq!(
        allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total,
        1
    );
    let mut passed = 0;
    let allocated = allocation_counter::measure(|| {
        for n in 0..100_000u64 {
            let now = Nanos(n * 200_000);
            let fair_bytes = Some(Bytes(n * 200_000 * 400_000 / 8_000_000_000));
            if admission.next_tick() <= now {
                admission.tick(
                    now,
                    &Observed { fair_bytes, priority_bytes: Some(Bytes(n)), ..Observed::default() },
                );
            }
            let key = flow((n * 7 % 301) as u16, (n * n % 977) as u16);
            let packet =
                XpPacket { flow: key, len: 100, overhead: 0, arrival: now, source: 0, own: false };
            admission.prefetch(hash(&key));
            let pin = Pin { next_hop: 0, ttl: 9 };
            let backlogs = |flow: &evenkeel_core::FlowKey| Bytes(flow.source_port.into());
            if admission.decide(now, &packet, pin, &backlogs, &mut lists) == Verdict::Pass {
                passed += 1;
                let treated = if n % 3 == 0 { Treated::Queued } else { Treated::Priority };
                admission.treated(now, treated, &mut lists);
            }
        }
    });
    assert_eq!(allocated.count_total, 0);
    let view = admission.view();
    assert!(
        passed > 1_000 && view.clearings > 1 && view.openings + view.diverted_packets > 1,
        "{view:?}"
    );
    assert_eq!(view.memory, memory);
}

#[test]
fn a_protected_flow_takes_sixty_four_bytes() {
    let memory = |flows| {
        Admission::new(AdmissionConfig { flows, ..config() }, 1, Nanos::ZERO).unwrap().view().memory
    };
    assert_eq!(memory(100_000) - memory(50_000), 50_000 * 64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn everything_is_accounted_for_whatever_happens(
        code in any::<[u8; 8]>(),
        operations in proptest::collection::vec(any::<[u8; ops::OP_BYTES]>(), 1..400),
    ) {
        let mut subject = Subject::new(ops::config(code));
        for operation in operations {
            subject.step(operation);
        }
    }
}
