//! What holds for every discipline: conservation, order, honest peeks and wake-up times, knobs within their ranges.

use crate::common::{Harness, OP_BYTES, Op, Outcome, Subject, TestPacket, run};
use evenkeel_core::queue::LIMIT_RANGE;
use evenkeel_core::schedule::afan::{Afan, AfanConfig, Afd};
use evenkeel_core::schedule::buffer::{Buffer, BufferLimit, KnownFlows, Victim};
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::lct::{self, Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::wfq_altq::{self, DropRule, HashPolicy, QueueSelect, WfqAltq, WfqAltqConfig};
use evenkeel_core::schedule::{AnyScheduler, Knob, KnobError, MultiBacklog, Treated, Wake};
use evenkeel_core::{Bytes, Class, Nanos, Reason, Scheduler, Weight};
use proptest::prelude::*;

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = any::<[u8; OP_BYTES]>().prop_map(Op::from_bytes);
    prop::collection::vec(op, 0..most)
}

fn wfq_configs() -> impl Strategy<Value = WfqAltqConfig> {
    let select = prop_oneof![
        3 => Just(QueueSelect::Class),
        1 => Just(QueueSelect::Hash(HashPolicy::Destination)),
        1 => Just(QueueSelect::Hash(HashPolicy::SourcePort)),
        1 => Just(QueueSelect::Hash(HashPolicy::Full)),
        1 => Just(QueueSelect::Hash(HashPolicy::Source)),
    ];
    let drop = prop_oneof![
        (1_500u64..20_000).prop_map(|b| DropRule::LongestHead { high_water: Bytes(b) }),
        (1u32..8).prop_map(|limit| DropRule::TailPerQueue { limit }),
    ];
    let weight = prop_oneof![Just(1u32), Just(30), Just(100), Just(1_000), Just(10_000)];
    (1u16..9, prop::collection::vec(weight, 0..9), select, drop).prop_map(
        |(queues, weights, select, drop)| {
            let weights = weights.into_iter().take(usize::from(queues)).map(Weight).collect();
            WfqAltqConfig { queues, weights, select, drop }
        },
    )
}

fn lct_configs() -> impl Strategy<Value = LctConfig> {
    let x = prop_oneof![Just(0u64), Just(10_000), Just(200_000), Just(20_000_000), 0u64..1_000_000];
    let policy = prop::sample::select(&MultiBacklog::ALL[..]);
    let tick = prop_oneof![Just(Nanos::ZERO), Just(lct::FREEBSD_TICK)];
    (prop::collection::vec(x, 1..9), 1u32..8, any::<bool>(), policy, any::<bool>(), tick).prop_map(
        |(x, limit, module2, policy, rearm_empty, timer_tick)| LctConfig {
            x_delay: x.into_iter().map(Nanos).collect(),
            limit,
            module2,
            policy,
            rearm_empty,
            timer_tick,
        },
    )
}

fn buffers() -> impl Strategy<Value = Buffer> {
    let limit = prop_oneof![
        (1u32..40).prop_map(BufferLimit::Packets),
        (1_538u64..40_000).prop_map(|bytes| BufferLimit::Bytes(Bytes(bytes))),
    ];
    let victim = prop_oneof![Just(Victim::Head), Just(Victim::Tail)];
    (limit, victim).prop_map(|(limit, victim)| Buffer { limit, victim })
}

fn known_flows() -> impl Strategy<Value = KnownFlows> {
    let start_limit = prop_oneof![Just(None), (64u64..8_000).prop_map(|bytes| Some(Bytes(bytes)))];
    (1u32..40, start_limit, any::<u64>()).prop_map(|(most, start_limit, seed)| KnownFlows {
        most,
        start_limit,
        seed,
    })
}

fn pfq_configs() -> impl Strategy<Value = PfqConfig> {
    (0u64..4_000, buffers(), known_flows()).prop_map(|(quantum, buffer, flows)| PfqConfig {
        quantum: Bytes(quantum),
        buffer,
        flows,
    })
}

fn pdrr_configs() -> impl Strategy<Value = PdrrConfig> {
    let linger = prop_oneof![Just(0u64), 0u64..1_000_000];
    (256u64..4_000, buffers(), known_flows(), linger).prop_map(|(quantum, buffer, flows, linger)| {
        let (quantum, afl_linger) = (Bytes(quantum), Nanos(linger));
        PdrrConfig { quantum, buffer, flows, afl_linger }
    })
}

fn afan_configs() -> impl Strategy<Value = AfanConfig> {
    let afd =
        (1u32..60, 1u32..4, 1u32..10, 10_000u64..1_000_000).prop_map(|(shadow, sample, target, interval)| {
            Afd { shadow, sample, target, interval: Nanos(interval), ..Afd::default() }
        });
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
    fn fifo_keeps_the_contract(limit in 1u32..20, ops in ops(200)) {
        run(Fifo::new(FifoConfig { limit }).unwrap(), ops);
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

fn wfq(drop: DropRule) -> WfqAltq<TestPacket> {
    let config = WfqAltqConfig { queues: 4, select: QueueSelect::Class, drop, ..WfqAltqConfig::default() };
    WfqAltq::new(config).unwrap()
}

fn lct() -> Lct<TestPacket> {
    Lct::new(LctConfig { x_delay: vec![Nanos::ZERO; 4], ..LctConfig::default() }).unwrap()
}

fn pfq() -> Pfq<TestPacket> {
    Pfq::new(PfqConfig { flows: KnownFlows::up_to(20), ..PfqConfig::default() }).unwrap()
}

fn pdrr() -> Pdrr<TestPacket> {
    Pdrr::new(PdrrConfig { flows: KnownFlows::up_to(20), ..PdrrConfig::default() }).unwrap()
}

fn afan() -> Afan<TestPacket> {
    Afan::new(AfanConfig { flows: KnownFlows::up_to(20), ..AfanConfig::default() }).unwrap()
}

const TAIL: DropRule = DropRule::TailPerQueue { limit: 50 };
const LONGEST: DropRule = DropRule::LongestHead { high_water: wfq_altq::DEFAULT_HIGH_WATER };

/// The state as text: equal before and after means that nothing changed.
fn state(subject: &impl Subject) -> String {
    format!("{subject:?}")
}

/// The ends of `range` and the `usual` value are taken, with packets queued; each of `bad` is refused, with the range
/// told, and changes nothing. Then the packets still come out.
fn knob_range<S: Subject>(subject: S, knob: impl Fn(u64) -> Knob, range: [u64; 2], usual: u64, bad: &[u64]) {
    let [least, most] = range;
    let mut harness = Harness::new(subject);
    for value in [least, usual, most] {
        let set = harness.step(Op::Set(knob(value)));
        assert!(matches!(set, Outcome::Set(Ok(_))), "{:?}: {set:?}", knob(value));
        harness.step(Op::Arrive { class: 0, length: 100, flow: 0 });
    }
    for value in bad {
        match harness.step(Op::Set(knob(*value))) {
            Outcome::Set(Err(KnobError::OutOfRange { knob: name, value: told, min, max, .. })) => {
                assert_eq!((name, told, min, max), (knob(*value).name(), *value, least, most));
            }
            other => panic!("{:?}: {other:?}", knob(*value)),
        }
    }
    harness.send_all();
}

#[test]
fn every_knob_takes_its_range_and_nothing_else() {
    let limits = [u64::from(*LIMIT_RANGE.start()), u64::from(*LIMIT_RANGE.end())];
    let limit = |class: Option<u16>| move |v: u64| Knob::QueueLimit(class.map(Class), v as u32);
    knob_range(fifo(), limit(None), limits, 50, &[0, 65_537, u64::from(u32::MAX)]);
    knob_range(fifo(), limit(Some(0)), limits, 50, &[0, 65_537]);
    for class in [None, Some(0), Some(3)] {
        knob_range(wfq(TAIL), limit(class), limits, 50, &[0, 65_537]);
        knob_range(lct(), limit(class), limits, 50, &[0, 65_537]);
    }
    for drop in [TAIL, LONGEST] {
        let weight = |v: u64| Knob::Weight(Class(3), Weight(v as u32));
        knob_range(wfq(drop), weight, [1, 10_000], 100, &[0, 10_001, u64::from(u32::MAX)]);
    }
    let water = |v: u64| Knob::HighWater(Bytes(v));
    knob_range(wfq(LONGEST), water, [1_500, 16_777_216], 65_536, &[0, 1_499, 16_777_217, u64::MAX]);
    let x = |v: u64| Knob::XDelay(Class(3), Nanos(v));
    knob_range(lct(), x, [0, 60_000_000_000], 200_000, &[60_000_000_001, u64::MAX]);
}

#[test]
fn knobs_of_flow_aware_disciplines_take_their_ranges_and_nothing_else() {
    let quantum = |v: u64| Knob::Quantum(Bytes(v));
    knob_range(pfq(), quantum, [0, 65_535], 1_500, &[65_536, u64::MAX]);
    knob_range(pdrr(), quantum, [256, 65_535], 1_500, &[0, 255, 65_536, u64::MAX]);
    knob_range(afan(), quantum, [256, 65_535], 1_500, &[0, 255, 65_536, u64::MAX]);
    let packets = |v: u64| Knob::Buffer(BufferLimit::Packets(v as u32));
    let bytes = |v: u64| Knob::Buffer(BufferLimit::Bytes(Bytes(v)));
    // The largest take hundreds of megabytes: their ends are tried with the configurations' own check.
    for mut subject in [AnyScheduler::Pfq(pfq()), AnyScheduler::Pdrr(pdrr())] {
        for knob in [packets(1), packets(70_000), bytes(1_538), bytes(4_000_000)] {
            assert_eq!(subject.set(Nanos(5), knob), Ok(Wake::No));
        }
    }
    for (limit, in_range) in [(0, false), (4_194_304, true), (4_194_305, false)] {
        assert_eq!(BufferLimit::Packets(limit).check().is_ok(), in_range);
    }
    for (limit, in_range) in [(1_537, false), (268_435_456, true), (268_435_457, false)] {
        assert_eq!(BufferLimit::Bytes(Bytes(limit)).check().is_ok(), in_range);
    }
    let start = |v: u64| Knob::StartLimit(Some(Bytes(v)));
    knob_range(pfq(), start, [64, 1_048_576], 3_000, &[0, 63, 1_048_577, u64::MAX]);
    knob_range(pdrr(), start, [64, 1_048_576], 3_000, &[0, 63, 1_048_577, u64::MAX]);
    knob_range(afan(), start, [64, 1_048_576], 3_000, &[0, 63, 1_048_577, u64::MAX]);
    let linger = |v: u64| Knob::AflLinger(Nanos(v));
    knob_range(pdrr(), linger, [0, 10_000_000_000], 100_000_000, &[10_000_000_001, u64::MAX]);
    let limit = |v: u64| Knob::QueueLimit(None, v as u32);
    knob_range(afan(), limit, [1, 65_536], 500, &[0, 65_537]);
    let window = |v: u64| Knob::Window(Nanos(v));
    knob_range(afan(), window, [1_000_000, 60_000_000_000], 500_000_000, &[0, 999_999, 60_000_000_001]);
    let afd = Afd::default();
    let mut subject = afan();
    for good in [
        Afd { shadow: 1, sample: 1, target: 1, alpha: 0, beta: 0, interval: Nanos(10_000) },
        Afd { shadow: 65_536, sample: 65_536, target: 65_536, alpha: 1_000_000, ..afd },
        Afd { beta: 1_000_000, interval: Nanos(10_000_000_000), ..afd },
    ] {
        assert_eq!(subject.set(Nanos(5), Knob::Afd(good)), Ok(Wake::No));
        for at in [5, 60_000_000_000, u64::MAX] {
            let _ = subject.enqueue(Nanos(at), TestPacket::new(0, 0, 1_500), &mut |_, _| ());
        }
    }
    for (bad, name) in [
        (Afd { shadow: 0, ..afd }, "afd.shadow"),
        (Afd { shadow: 65_537, ..afd }, "afd.shadow"),
        (Afd { sample: 0, ..afd }, "afd.sample"),
        (Afd { sample: 65_537, ..afd }, "afd.sample"),
        (Afd { target: 0, ..afd }, "afd.target"),
        (Afd { target: 65_537, ..afd }, "afd.target"),
        (Afd { alpha: 1_000_001, ..afd }, "afd.alpha"),
        (Afd { beta: 1_000_001, ..afd }, "afd.beta"),
        (Afd { interval: Nanos(9_999), ..afd }, "afd.interval"),
        (Afd { interval: Nanos(10_000_000_001), ..afd }, "afd.interval"),
    ] {
        let before = state(&subject);
        let refused = subject.set(Nanos(5), Knob::Afd(bad));
        assert!(matches!(refused, Err(KnobError::OutOfRange { knob, .. }) if knob == name), "{refused:?}");
        assert_eq!(before, state(&subject));
    }
    let flows = |flows| KnownFlows::up_to(flows).check().is_ok();
    assert_eq!([0, 1, 4_194_304, 4_194_305].map(flows), [false, true, true, false]);
}

#[test]
fn switches_take_each_position() {
    for knob in [
        Knob::Module2(false),
        Knob::Module2(true),
        Knob::RearmEmpty(false),
        Knob::RearmEmpty(true),
        Knob::MultiBacklog(MultiBacklog::Hold),
        Knob::MultiBacklog(MultiBacklog::EarliestDue),
        Knob::MultiBacklog(MultiBacklog::MinX),
    ] {
        assert_eq!(lct().set(Nanos(5), knob), Ok(Wake::No), "{knob:?}: nothing waits");
    }
}

/// `knob` is refused as unknown to the discipline and nothing changes.
fn unknown<S: Subject>(mut subject: S, knobs: &[Knob]) {
    for knob in knobs {
        let before = state(&subject);
        let refused = KnobError::NoSuchKnob { knob: knob.name(), discipline: subject.name() };
        assert_eq!(subject.set(Nanos(5), *knob), Err(refused));
        assert_eq!(before, state(&subject));
    }
}

#[test]
fn knobs_of_other_disciplines_are_refused() {
    let weight = Knob::Weight(Class(0), Weight(100));
    let water = Knob::HighWater(wfq_altq::DEFAULT_HIGH_WATER);
    let limit = Knob::QueueLimit(None, 50);
    let lct_knobs = [
        Knob::XDelay(Class(0), Nanos(5)),
        Knob::Module2(true),
        Knob::MultiBacklog(MultiBacklog::Hold),
        Knob::RearmEmpty(true),
    ];
    unknown(fifo(), &[weight, water]);
    unknown(fifo(), &lct_knobs);
    unknown(wfq(TAIL), &lct_knobs);
    unknown(wfq(TAIL), &[water]);
    unknown(wfq(LONGEST), &[limit]);
    unknown(lct(), &[weight, water]);
    let linger = Knob::AflLinger(Nanos(5));
    let afd = [Knob::Afd(Afd::default()), Knob::Window(Nanos::SECOND)];
    let buffer = [Knob::Buffer(BufferLimit::default()), Knob::Victim(Victim::Tail)];
    unknown(pfq(), &[weight, water, limit, linger]);
    unknown(pfq(), &afd);
    unknown(pdrr(), &[weight, water, limit]);
    unknown(pdrr(), &afd);
    unknown(afan(), &[weight, water, linger]);
    unknown(afan(), &buffer);
    unknown(fifo(), &buffer);
    unknown(fifo(), &[Knob::Quantum(Bytes(1_500)), Knob::StartLimit(None)]);
}

/// Classes beyond the last are refused and nothing changes.
fn no_such_class<S: Subject>(mut subject: S, classes: u16, knob: Knob, class: u16) {
    let before = state(&subject);
    let refused = KnobError::NoSuchClass { class: Class(class), classes };
    assert_eq!(subject.set(Nanos(5), knob), Err(refused));
    assert_eq!(before, state(&subject));
}

#[test]
fn knobs_of_classes_that_do_not_exist_are_refused() {
    let limit = |class| Knob::QueueLimit(Some(Class(class)), 50);
    no_such_class(fifo(), 1, limit(1), 1);
    no_such_class(wfq(TAIL), 4, limit(4), 4);
    no_such_class(wfq(TAIL), 4, Knob::Weight(Class(u16::MAX), Weight(100)), u16::MAX);
    no_such_class(lct(), 4, limit(4), 4);
    no_such_class(afan(), 1, limit(1), 1);
    no_such_class(lct(), 4, Knob::XDelay(Class(4), Nanos(5)), 4);
}

#[test]
fn configurations_out_of_range_are_refused() {
    let out_of = |error: KnobError| match error {
        KnobError::OutOfRange { knob, value, .. } => (knob, value),
        other => panic!("{other}"),
    };
    for limit in [0, 65_537] {
        let refused = ("limit", u64::from(limit));
        assert_eq!(out_of(Fifo::<TestPacket>::new(FifoConfig { limit }).unwrap_err()), refused);
        let config = WfqAltqConfig { drop: DropRule::TailPerQueue { limit }, ..WfqAltqConfig::default() };
        assert_eq!(out_of(WfqAltq::<TestPacket>::new(config).unwrap_err()), refused);
        let config = LctConfig { limit, ..LctConfig::default() };
        assert_eq!(out_of(Lct::<TestPacket>::new(config).unwrap_err()), refused);
    }
    let wfq = |config| WfqAltq::<TestPacket>::new(config).map(|_| ()).unwrap_err();
    for queues in [0, 2_049] {
        let config = WfqAltqConfig { queues, ..WfqAltqConfig::default() };
        assert_eq!(out_of(wfq(config)), ("queues", u64::from(queues)));
    }
    for weight in [0, 10_001] {
        let config = WfqAltqConfig { weights: vec![Weight(weight)], ..WfqAltqConfig::default() };
        assert_eq!(out_of(wfq(config)), ("weight", u64::from(weight)));
    }
    for water in [1_499, 16_777_217] {
        let drop = DropRule::LongestHead { high_water: Bytes(water) };
        let config = WfqAltqConfig { drop, ..WfqAltqConfig::default() };
        assert_eq!(out_of(wfq(config)), ("high_water", water));
    }
    let config = WfqAltqConfig { queues: 2, weights: vec![Weight(1); 3], ..WfqAltqConfig::default() };
    assert_eq!(wfq(config), KnobError::NoSuchClass { class: Class(2), classes: 2 });

    let lct = |config| out_of(Lct::<TestPacket>::new(config).map(|_| ()).unwrap_err());
    for classes in [0, 2_049] {
        let config = LctConfig { x_delay: vec![Nanos::ZERO; classes], ..LctConfig::default() };
        assert_eq!(lct(config), ("classes", classes as u64));
    }
    let config = LctConfig { x_delay: vec![Nanos(60_000_000_001)], ..LctConfig::default() };
    assert_eq!(lct(config), ("x_delay", 60_000_000_001));
    let config = LctConfig { timer_tick: Nanos(1_000_000_001), ..LctConfig::default() };
    assert_eq!(lct(config), ("timer_tick", 1_000_000_001));
}

#[test]
fn the_extremes_of_every_configuration_work() {
    let arrivals =
        |n: usize| (0..n).map(|i| Op::Arrive { class: (i % 3) as u16, length: 1500, flow: i as u8 });
    for limit in [1, 65_536] {
        run(Fifo::new(FifoConfig { limit }).unwrap(), arrivals(10));
    }
    for (queues, drop) in [
        (1, DropRule::TailPerQueue { limit: 65_536 }),
        (2_048, DropRule::TailPerQueue { limit: 1 }),
        (1, DropRule::LongestHead { high_water: Bytes(1_500) }),
        (2_048, DropRule::LongestHead { high_water: Bytes(16_777_216) }),
    ] {
        for weight in [1, 10_000] {
            let weights = vec![Weight(weight); usize::from(queues)];
            let config = WfqAltqConfig { queues, weights, drop, ..WfqAltqConfig::default() };
            run(WfqAltq::new(config).unwrap(), arrivals(10));
        }
    }
    for (x, classes, limit) in [(0, 1, 65_536), (60_000_000_000, 2_048, 1)] {
        let config = LctConfig {
            x_delay: vec![Nanos(x); classes],
            limit,
            timer_tick: Nanos::SECOND,
            ..LctConfig::default()
        };
        run(Lct::new(config).unwrap(), arrivals(10));
    }
}

#[test]
fn a_lowered_limit_keeps_what_is_queued() {
    let mut fifo = fifo();
    for id in 0..5 {
        assert_eq!(fifo.enqueue(Nanos(1), TestPacket::new(id, 0, 100), &mut |_, _| ()), Treated::Queued);
    }
    assert_eq!(fifo.set(Nanos(1), Knob::QueueLimit(None, 2)), Ok(Wake::No));
    let refused = Treated::Dropped(Reason::QueueFull);
    for id in 0..4 {
        assert_eq!(fifo.enqueue(Nanos(1), TestPacket::new(9, 0, 100), &mut |_, _| ()), refused);
        assert_eq!(fifo.dequeue(Nanos(1), &mut |_, _| ()).unwrap().id, id);
    }
    assert_eq!(fifo.enqueue(Nanos(1), TestPacket::new(10, 0, 100), &mut |_, _| ()), Treated::Queued);
}

#[test]
fn built_in_and_boxed_disciplines_answer_alike() {
    let fifo = || Fifo::new(FifoConfig { limit: 2 }).unwrap();
    for mut any in [AnyScheduler::Fifo(fifo()), AnyScheduler::Boxed(Box::new(fifo()))] {
        for (id, treated) in
            [Treated::Queued, Treated::Queued, Treated::Dropped(Reason::QueueFull)].into_iter().enumerate()
        {
            let packet = TestPacket::new(id as u64, 0, 100);
            assert_eq!(any.enqueue(Nanos(1), packet, &mut |_, _| ()), treated);
        }
        assert_eq!((any.name(), any.busy_queues(), any.peek_len(Nanos(1))), ("fifo", 1, Some(Bytes(100))));
        assert_eq!(any.dequeue(Nanos(1), &mut |_, _| ()).unwrap().id, 0);
        assert_eq!(any.tick(Nanos(1)), None);
    }
}
