//! What holds for every discipline: conservation, order, honest peeks and wake-up times, knobs
//! within their ranges.

use crate::common::{Harness, Op, Outcome, Subject, TestPacket, ops, run};
use evenkeel_core::aqm::AqmConfig;
use evenkeel_core::aqm::elastic::{Aqm, ElasticAqm};
use evenkeel_core::schedule::afan::{Afan, AfanConfig, Afd};
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows, Victim};
use evenkeel_core::schedule::codel::{Codel, CodelConfig};
use evenkeel_core::schedule::drr::{Drr, DrrConfig};
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::fq_codel::{FqCodel, FqCodelConfig};
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::lct::{self, Lct, LctConfig, MultiBacklog};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::priority::{Priority, PriorityConfig};
use evenkeel_core::schedule::qfq::{Qfq, QfqConfig};
use evenkeel_core::schedule::wfq_altq::{
    ClassAqm, ClassAqmConfig, DropRule, QueueSelect, WfqAltq, WfqAltqConfig,
};
use evenkeel_core::schedule::{AnyScheduler, Discipline, DisciplineConfig, Treated, Wake};
use evenkeel_core::settings::{Change, ChangeTime, Key, Kind, PerClass, SettingError, Value};
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Reason, Scheduler, Weight};
use proptest::prelude::*;

fn wfq_configs() -> impl Strategy<Value = WfqAltqConfig> {
    let select = prop_oneof![
        4 => Just(QueueSelect::Class),
        1 => Just(QueueSelect::HashDestination),
        1 => Just(QueueSelect::HashSourcePort),
        1 => Just(QueueSelect::HashFull),
        1 => Just(QueueSelect::HashSource),
    ];
    let drop = prop_oneof![Just(DropRule::Longest), Just(DropRule::Tail)];
    let weight = prop_oneof![Just(1u32), Just(30), Just(100), Just(1_000), Just(10_000)];
    let weights = prop::collection::vec(weight, 0..9);
    let aqm = (prop::sample::select(ClassAqm::ALL), aqm_configs())
        .prop_map(|(aqm, law)| ClassAqmConfig { aqm, law });
    (1u16..9, weights, select, drop, 1_500u64..20_000, 1u32..8, aqm).prop_map(
        |(queues, weights, select, drop, high_water, limit, aqm)| {
            let weights: Vec<_> =
                weights.into_iter().take(usize::from(queues)).map(Weight).collect();
            let (high_water, limit) = (Bytes(high_water), PerClass::all(limit));
            let of = WfqAltqConfig::with_weights(weights);
            WfqAltqConfig { queues, classes: queues, select, drop, high_water, limit, aqm, ..of }
        },
    )
}

fn lct_configs() -> impl Strategy<Value = LctConfig> {
    let x = prop_oneof![Just(0u64), Just(10_000), Just(200_000), Just(20_000_000), 0u64..1_000_000];
    let policy = prop::sample::select(MultiBacklog::ALL);
    let tick = prop_oneof![Just(Nanos::ZERO), Just(lct::FREEBSD_TICK)];
    (prop::collection::vec(x, 1..9), 1u32..8, any::<bool>(), policy, any::<bool>(), tick).prop_map(
        |(x, limit, module2, multi_backlog, rearm_empty, timer_tick)| LctConfig {
            limit: PerClass::all(limit),
            module2,
            multi_backlog,
            rearm_empty,
            timer_tick,
            ..LctConfig::with_delays(x.into_iter().map(Nanos).collect::<Vec<_>>())
        },
    )
}

fn buffers() -> impl Strategy<Value = Buffer> {
    let limit = prop_oneof![
        (1u32..40).prop_map(Buffer::packets),
        (1_538u64..40_000).prop_map(|bytes| Buffer::bytes(Bytes(bytes))),
    ];
    let victim = prop_oneof![Just(Victim::Head), Just(Victim::Tail)];
    (limit, victim).prop_map(|(limit, victim)| Buffer { victim, ..limit })
}

fn known_flows() -> impl Strategy<Value = KnownFlows> {
    let start_limit = prop_oneof![Just(None), (64u64..8_000).prop_map(|bytes| Some(Bytes(bytes)))];
    (1u32..40, start_limit, any::<u64>()).prop_map(|(flows, start_limit, seed)| KnownFlows {
        flows,
        start_limit,
        seed,
    })
}

fn aqm_configs() -> impl Strategy<Value = AqmConfig> {
    // Short: the operations take milliseconds.
    (10_000u64..100_000, 100_000u64..2_000_000).prop_map(|(target, interval)| AqmConfig {
        target: Nanos(target),
        interval: Nanos(interval),
        ..AqmConfig::default()
    })
}

/// Every other one with an AQM, and with a buffer in time.
fn elastic_aqms() -> impl Strategy<Value = ElasticAqm> {
    let aqm = prop::sample::select(Aqm::ALL);
    (aqm, 10_000u64..100_000, aqm_configs()).prop_map(|(aqm, step, law)| ElasticAqm {
        aqm,
        step: Nanos(step),
        law,
    })
}

fn pfq_configs() -> impl Strategy<Value = PfqConfig> {
    let fair = prop::sample::select(Fair::ALL);
    (0u64..4_000, buffers(), known_flows(), elastic_aqms(), fair, any::<bool>()).prop_map(
        |(quantum, buffer, flows, aqm, fair, ack_filter)| {
            let quantum = Bytes(quantum);
            PfqConfig { quantum, buffer, flows, aqm, fair, ack_filter }
        },
    )
}

fn pdrr_configs() -> impl Strategy<Value = PdrrConfig> {
    let linger = prop_oneof![Just(0u64), 0u64..1_000_000];
    let fair = prop::sample::select(Fair::ALL);
    (256u64..4_000, buffers(), known_flows(), linger, elastic_aqms(), fair, any::<bool>()).prop_map(
        |(quantum, buffer, flows, linger, aqm, fair, ack_filter)| {
            let (quantum, afl_linger) = (Bytes(quantum), Nanos(linger));
            PdrrConfig { quantum, buffer, flows, afl_linger, aqm, fair, ack_filter }
        },
    )
}

fn afan_configs() -> impl Strategy<Value = AfanConfig> {
    let afd = (1u32..60, 1u32..4, 1u32..10, 10_000u64..1_000_000).prop_map(
        |(shadow, sample, target, interval)| Afd {
            shadow,
            sample,
            target: (target > 2).then_some(target),
            interval: Nanos(interval),
            ..Afd::default()
        },
    );
    (256u64..4_000, 1u32..30, known_flows(), afd, 1_000_000u64..10_000_000).prop_map(
        |(quantum, limit, flows, afd, window)| {
            let (quantum, window) = (Bytes(quantum), Nanos(window));
            AfanConfig { quantum, limit, flows, afd, window }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn pfq_keeps_the_contract(config in pfq_configs(), ops in ops(200)) {
        run(Pfq::new(config).unwrap(), ops);
    }

    #[test]
    fn pdrr_keeps_the_contract(config in pdrr_configs(), ops in ops(200)) {
        run(Pdrr::new(config).unwrap(), ops);
    }

    #[test]
    fn afan_keeps_the_contract(config in afan_configs(), ops in ops(200)) {
        run(Afan::new(config).unwrap(), ops);
    }

    #[test]
    fn drr_keeps_the_contract(
        (quantum, queues, buffer) in (256u64..4_000, 1u32..40, 1u32..40),
        ops in ops(200),
    ) {
        run(Drr::new(DrrConfig { quantum: Bytes(quantum), queues, buffer }).unwrap(), ops);
    }

    #[test]
    fn codel_keeps_the_contract((limit, aqm) in (1u32..40, aqm_configs()), ops in ops(200)) {
        run(Codel::new(CodelConfig { limit, aqm }).unwrap(), ops);
    }

    #[test]
    fn fq_codel_keeps_the_contract(
        (quantum, queues, buffer) in (256u64..4_000, 1u32..40, 1u32..40),
        aqm in aqm_configs(),
        ops in ops(200),
    ) {
        let quantum = Bytes(quantum);
        run(FqCodel::new(FqCodelConfig { quantum, queues, buffer, aqm }).unwrap(), ops);
    }

    #[test]
    fn priority_keeps_the_contract(
        levels in Just(vec![5u32, 0, 63, 7, 1, 2]).prop_shuffle(),
        limit in 1u32..20,
        ops in ops(200),
    ) {
        let classes = levels.len() as u16;
        let level = PerClass::new(levels, 0);
        run(Priority::new(PriorityConfig { level, limit, classes }).unwrap(), ops);
    }

    #[test]
    fn qfq_keeps_the_contract(
        weights in prop::collection::vec(1u32..=10_000, 1..9),
        limit in 1u32..20,
        ops in ops(200),
    ) {
        let classes = weights.len() as u16;
        let own: Vec<_> = weights.into_iter().map(Weight).collect();
        let weight = PerClass::new(own, Weight(100));
        run(Qfq::new(QfqConfig { weight, limit, classes }).unwrap(), ops);
    }

    #[test]
    fn fifo_keeps_the_contract(limit in 1u32..20, ops in ops(200)) {
        run(Fifo::new(FifoConfig::packets(limit)).unwrap(), ops);
    }

    #[test]
    fn wfq_altq_keeps_the_contract(config in wfq_configs(), ops in ops(200)) {
        run(WfqAltq::new(config).unwrap(), ops);
    }

    #[test]
    fn lct_keeps_the_contract(config in lct_configs(), ops in ops(200)) {
        run(Lct::new(config).unwrap(), ops);
    }
}

fn fifo() -> Fifo<TestPacket> {
    Fifo::new(FifoConfig::default()).unwrap()
}

/// Values at the ends of a kind's range, and some beyond it.
fn ends(kind: &Kind) -> (Vec<Value>, Vec<Value>) {
    let whole = |min: u64, max: u64, of: fn(u64) -> Value| {
        let beyond = min.checked_sub(1).into_iter().chain(max.checked_add(1)).chain(Some(u64::MAX));
        (vec![of(min), of(max)], beyond.filter(|v| *v < min || *v > max).map(of).collect())
    };
    match *kind {
        Kind::Integer { min, max, .. } => whole(min, max, Value::Integer),
        Kind::Time { min, max } => whole(min.0, max.0, |v| Value::Time(Nanos(v))),
        Kind::Size { min, max } => whole(min.0, max.0, |v| Value::Size(Bytes(v))),
        Kind::Rate { min, max } => whole(min.0, max.0, |v| Value::Rate(BitRate(v))),
        Kind::Number { min, max } => {
            let beyond = [min - 1.0, max * 1.001, f64::NAN].map(Value::Number);
            (vec![Value::Number(min), Value::Number(max)], beyond.to_vec())
        }
        Kind::Switch => ([false, true].map(Value::Switch).to_vec(), vec![Value::Integer(1)]),
        Kind::Choice(words) => {
            let word = |(word, _): &(&str, &str)| Value::Text((*word).to_owned());
            (words.iter().map(word).collect(), vec![Value::Text("nonsense".to_owned())])
        }
        Kind::Table(section) => {
            let entry = |key: &Key, value| Value::Table(vec![(key.name, value)]);
            let each = section.keys().map(|key| (key, ends(&key.kind)));
            let (mut good, mut bad) = (Vec::new(), Vec::new());
            for (key, (takes, refuses)) in each {
                good.extend(takes.into_iter().map(|value| entry(key, value)));
                bad.extend(refuses.into_iter().map(|value| entry(key, value)));
            }
            (good, bad)
        }
        Kind::ByClass(of, _) => ends(of),
        ref other => panic!("no setting of a discipline holds {other:?} yet: say its ends here"),
    }
}

/// The state as text: equal before and after means that nothing changed.
fn state(subject: &impl Subject) -> String {
    format!("{subject:?}")
}

fn refused<S: Subject>(subject: &mut S, change: &Change) -> SettingError {
    let before = state(subject);
    let error = subject.set(Nanos(5), change).expect_err(&format!("{change:?}"));
    assert_eq!(before, state(subject), "{change:?} was refused");
    error
}

/// Every live setting takes the ends of its range, with packets queued, and nothing beyond; what is
/// refused changes nothing, and the packets still come out. Fixed settings, classes that do not
/// exist, and settings of other disciplines are refused.
fn check_settings<C: Discipline>(config: &C, classes: u16)
where
    C::Queues<TestPacket>: Subject,
{
    let build = || {
        let mut config = config.clone();
        config.for_classes(classes);
        config.build::<TestPacket>().unwrap()
    };
    for key in C::SECTION.keys() {
        let (good, bad) = ends(&key.kind);
        let usual = config.get(key.name).unwrap();
        if key.change != ChangeTime::Live {
            let error = refused(&mut build(), &Change::new(key.name, usual));
            assert_eq!(error, SettingError::Fixed { key: key.name });
            continue;
        }
        if !config.goes_with(key) {
            let error = refused(&mut build(), &Change::new(key.name, usual));
            assert!(matches!(error, SettingError::OnlyWith { .. }), "{error:?}");
            continue;
        }
        // The largest buffers take hundreds of megabytes.
        let large = key.name.starts_with("buffer");
        let good = good.into_iter().take(if large { 1 } else { usize::MAX });
        for value in good.chain([usual]) {
            let mut harness = Harness::new(build());
            for flow in 0..3 {
                harness.step(Op::Arrive { class: flow.into(), length: 100, flow });
            }
            let set = harness.step(Op::Set(Change::new(key.name, value.clone())));
            assert!(matches!(set, Outcome::Set(Ok(_))), "{} {value:?}: {set:?}", key.name);
            harness.send_all();
        }
        let mut subject = build();
        for value in bad {
            let error = refused(&mut subject, &Change::new(key.name, value));
            // A key of a nested table is named with its table.
            let told = match &error {
                SettingError::Within { table, error, .. } if *table == key.name => &**error,
                error => error,
            };
            let told =
                matches!(told, SettingError::OutOfRange { .. } | SettingError::WrongType { .. });
            assert!(told, "{error:?}");
        }
        let value = config.get_of(key.name, Some(Class(0))).unwrap();
        let of_last = Change::of(key.name, Class(classes - 1), value.clone());
        let beyond = Change::of(key.name, Class(classes), value);
        if key.is_per_class() {
            assert!(subject.set(Nanos(5), &of_last).is_ok());
            let class = Class(classes);
            assert_eq!(
                refused(&mut subject, &beyond),
                SettingError::NoSuchClass { class, classes }
            );
        } else {
            assert_eq!(refused(&mut subject, &beyond), SettingError::NotOfAClass { key: key.name });
        }
    }
    for key in DisciplineConfig::BUILT_IN.iter().flat_map(|(_, section)| section.keys()) {
        if C::SECTION.key(key.name).is_none() {
            let value = ends(&key.kind).0[0].clone();
            let error = refused(&mut build(), &Change::new(key.name, value));
            assert_eq!(error, SettingError::NoSuchSetting { key: key.name, of: C::NAME });
        }
    }
}

/// No configuration is built with a value out of its range.
fn check_build<C: Discipline>(config: &C) {
    for key in C::SECTION.keys() {
        for bad in ends(&key.kind).1 {
            let mut wrong = config.clone();
            if wrong.put(key.name, None, &bad) == Some(true) {
                assert!(wrong.build::<TestPacket>().is_err(), "{} {bad:?}", key.name);
            }
        }
    }
}

#[test]
fn every_setting_takes_its_range_and_nothing_else() {
    check_settings(&FifoConfig::default(), 1);
    check_settings(&WfqAltqConfig::default(), 4);
    check_settings(&WfqAltqConfig { drop: DropRule::Longest, ..WfqAltqConfig::default() }, 4);
    check_settings(&LctConfig::default(), 4);
    let flows = KnownFlows::up_to(20);
    check_settings(&PfqConfig { flows, ..PfqConfig::default() }, 1);
    check_settings(&PdrrConfig { flows, ..PdrrConfig::default() }, 1);
    check_settings(&AfanConfig { flows, ..AfanConfig::default() }, 1);
    let level = PerClass::new(vec![0, 1, 2, 3], 0);
    check_settings(&PriorityConfig { level, ..PriorityConfig::default() }, 4);
    check_settings(&QfqConfig::default(), 4);
    check_settings(&DrrConfig { queues: 8, ..DrrConfig::default() }, 1);
    check_settings(&CodelConfig::default(), 1);
    check_settings(&FqCodelConfig { queues: 8, ..FqCodelConfig::default() }, 1);
}

#[test]
fn configurations_out_of_range_are_refused() {
    check_build(&FifoConfig::default());
    check_build(&WfqAltqConfig::default());
    check_build(&LctConfig::default());
    check_build(&PfqConfig::default());
    check_build(&PdrrConfig::default());
    check_build(&AfanConfig::default());
    check_build(&PriorityConfig::default());
    check_build(&QfqConfig::default());
    check_build(&DrrConfig::default());
    check_build(&CodelConfig::default());
    check_build(&FqCodelConfig::default());
    for classes in [0, 2_049] {
        let by_class = WfqAltqConfig { classes, ..WfqAltqConfig::default() };
        let hashed = WfqAltqConfig { queues: classes, ..WfqAltqConfig::altq() };
        for config in [by_class, hashed] {
            assert!(WfqAltq::<TestPacket>::new(config).is_err(), "{classes} queues");
        }
        let config = LctConfig { classes, ..LctConfig::default() };
        assert!(Lct::<TestPacket>::new(config).is_err(), "{classes} classes");
    }
}

#[test]
fn the_extremes_of_every_configuration_work() {
    let arrivals = |n: usize| {
        (0..n).map(|i| Op::Arrive { class: (i % 3) as u16, length: 1500, flow: i as u8 })
    };
    for limit in [1, 65_536] {
        run(Fifo::new(FifoConfig::packets(limit)).unwrap(), arrivals(10));
    }
    let tail = |limit| WfqAltqConfig { limit: PerClass::all(limit), ..WfqAltqConfig::default() };
    let longest = |bytes| {
        let high_water = Bytes(bytes);
        WfqAltqConfig { drop: DropRule::Longest, high_water, ..WfqAltqConfig::default() }
    };
    for (classes, config) in
        [(1, tail(65_536)), (2_048, tail(1)), (1, longest(1_500)), (2_048, longest(16_777_216))]
    {
        for weight in [1, 10_000] {
            let weight = PerClass::all(Weight(weight));
            run(
                WfqAltq::new(WfqAltqConfig { classes, weight, ..config.clone() }).unwrap(),
                arrivals(10),
            );
        }
    }
    for (x, classes, limit) in [(0, 1, 65_536), (60_000_000_000, 2_048, 1)] {
        let config = LctConfig {
            limit: PerClass::all(limit),
            timer_tick: Nanos::SECOND,
            ..LctConfig::with_delays(vec![Nanos(x); classes])
        };
        run(Lct::new(config).unwrap(), arrivals(10));
    }
}

#[test]
fn a_lowered_limit_keeps_what_is_queued() {
    let mut fifo = fifo();
    for id in 0..5 {
        assert_eq!(
            fifo.enqueue(Nanos(1), TestPacket::new(id, 0, 100), &mut |_, _| ()),
            Treated::Queued
        );
    }
    assert_eq!(fifo.set(Nanos(1), &Change::new("limit", 2_u32)), Ok(Wake::No));
    let refused = Treated::Dropped(Reason::QueueFull);
    for id in 0..4 {
        assert_eq!(fifo.enqueue(Nanos(1), TestPacket::new(9, 0, 100), &mut |_, _| ()), refused);
        assert_eq!(fifo.dequeue(Nanos(1), &mut |_, _| ()).unwrap().id, id);
    }
    assert_eq!(
        fifo.enqueue(Nanos(1), TestPacket::new(10, 0, 100), &mut |_, _| ()),
        Treated::Queued
    );
}

#[test]
fn built_in_and_boxed_disciplines_answer_alike() {
    let fifo = || Fifo::new(FifoConfig::packets(2)).unwrap();
    for mut any in [AnyScheduler::Fifo(fifo()), AnyScheduler::Boxed(Box::new(fifo()))] {
        for (id, treated) in [Treated::Queued, Treated::Queued, Treated::Dropped(Reason::QueueFull)]
            .into_iter()
            .enumerate()
        {
            let packet = TestPacket::new(id as u64, 0, 100);
            assert_eq!(any.enqueue(Nanos(1), packet, &mut |_, _| ()), treated);
        }
        assert_eq!(
            (any.name(), any.busy_queues(), any.peek_len(Nanos(1))),
            ("fifo", 1, Some(Bytes(100)))
        );
        assert_eq!(any.dequeue(Nanos(1), &mut |_, _| ()).unwrap().id, 0);
        assert_eq!(any.tick(Nanos(1)), None);
    }
}
