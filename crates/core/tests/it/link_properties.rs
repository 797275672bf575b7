//! What holds for a link whatever happens to it, and how far it is from the ideal one.

use crate::common::{longest, tail, weighted};
use crate::wire::{Out, TestPacket, assert_conserved, packet};
use evenkeel_core::aqm::AqmConfig;
use evenkeel_core::link::{Link, LinkConfig, Refill, RingConfig};
use evenkeel_core::reference::Gps;
use evenkeel_core::schedule::afan::{Afan, AfanConfig};
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::buffer::KnownFlows;
use evenkeel_core::schedule::codel::CodelConfig;
use evenkeel_core::schedule::drr::DrrConfig;
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::fq_codel::FqCodelConfig;
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::schedule::lct::{FREEBSD_TICK, Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::priority::PriorityConfig;
use evenkeel_core::schedule::qfq::QfqConfig;
use evenkeel_core::schedule::wfq_altq::{WfqAltq, WfqAltqConfig};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::settings::Change;
use evenkeel_core::settings::PerClass;
use evenkeel_core::shape::ShaperConfig;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Packet, Reason, Scheduler, Weight};
use proptest::prelude::*;

const CLASSES: u16 = 4;
const RATE: BitRate = BitRate(30_000_000_001);

#[derive(Clone, Debug)]
enum Op {
    /// A packet arrives this much later.
    Arrive {
        gap: u64,
        class: u16,
        length: u64,
    },
    /// The caller looks in this much later.
    Advance {
        gap: u64,
    },
    /// The caller comes when the link asked for it.
    Wake,
    Set(Change),
    Swap(Discipline),
    Reconfigure(LinkConfig),
    Drain,
    /// The port says how many frames it can take.
    Room(usize),
}

#[derive(Clone, Debug)]
enum Discipline {
    Fifo(u32),
    Wfq(WfqAltqConfig),
    Lct(LctConfig),
    Pfq(u32),
    Pdrr(u32, Nanos),
    Afan(u32),
    Built(DisciplineConfig),
}

impl Discipline {
    fn build(&self) -> AnyScheduler<TestPacket> {
        match self.clone() {
            Self::Fifo(limit) => AnyScheduler::Fifo(Fifo::new(FifoConfig::packets(limit)).unwrap()),
            Self::Wfq(config) => AnyScheduler::WfqAltq(WfqAltq::new(config).unwrap()),
            Self::Lct(config) => AnyScheduler::Lct(Lct::new(config).unwrap()),
            Self::Pfq(limit) => {
                let (buffer, flows) = (Buffer::packets(limit), KnownFlows::up_to(3));
                AnyScheduler::Pfq(
                    Pfq::new(PfqConfig { buffer, flows, ..PfqConfig::default() }).unwrap(),
                )
            }
            Self::Pdrr(limit, afl_linger) => {
                let (buffer, flows) = (Buffer::packets(limit), KnownFlows::up_to(3));
                let config = PdrrConfig { buffer, flows, afl_linger, ..PdrrConfig::default() };
                AnyScheduler::Pdrr(Pdrr::new(config).unwrap())
            }
            Self::Afan(limit) => {
                let config =
                    AfanConfig { limit, flows: KnownFlows::up_to(3), ..AfanConfig::default() };
                AnyScheduler::Afan(Afan::new(config).unwrap())
            }
            Self::Built(config) => config.build(CLASSES).unwrap(),
        }
    }
}

/// Gaps around the time of a packet (some 300 ns), with long pauses.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..400, 4 => Just(0u64), 1 => 0u64..100_000]
}

fn x_delay() -> impl Strategy<Value = Nanos> {
    prop_oneof![Just(0u64), 0u64..1_000, 0u64..200_000].prop_map(Nanos)
}

fn policy() -> impl Strategy<Value = MultiBacklog> {
    prop::sample::select(MultiBacklog::ALL)
}

/// One of the baselines, with a buffer of so many packets.
fn baseline(limit: u32, which: u8) -> Discipline {
    let aqm = AqmConfig { target: Nanos(10_000), interval: Nanos(100_000), ..AqmConfig::default() };
    let (queues, buffer) = (3, limit);
    Discipline::Built(match which {
        0 => DisciplineConfig::Drr(DrrConfig { queues, buffer, ..DrrConfig::default() }),
        1 => DisciplineConfig::Codel(CodelConfig { limit, aqm }),
        2 => {
            let rest = FqCodelConfig::default();
            DisciplineConfig::FqCodel(FqCodelConfig { queues, buffer, aqm, ..rest })
        }
        3 => {
            let weight = PerClass::new([1, 30, 100, 1_000].map(Weight).to_vec(), Weight(100));
            DisciplineConfig::Qfq(QfqConfig { weight, limit, classes: CLASSES })
        }
        _ => {
            let level = PerClass::new(vec![1, 0, 1, 2], 0);
            DisciplineConfig::Priority(PriorityConfig { level, limit, classes: CLASSES })
        }
    })
}

fn discipline() -> impl Strategy<Value = Discipline> {
    let drop = prop_oneof![(1_500u64..9_000).prop_map(longest), (1u32..12).prop_map(tail),];
    let weights = prop::array::uniform4(prop_oneof![Just(1u32), Just(30), Just(100), Just(1_000)]);
    let tick = prop_oneof![Just(Nanos::ZERO), Just(Nanos(700)), Just(FREEBSD_TICK)];
    let lct = (
        prop::collection::vec(x_delay(), CLASSES as usize),
        1u32..12,
        any::<bool>(),
        policy(),
        any::<bool>(),
        tick,
    )
        .prop_map(|(x_delay, limit, module2, multi_backlog, rearm_empty, timer_tick)| {
            LctConfig {
                limit: PerClass::all(limit),
                module2,
                multi_backlog,
                rearm_empty,
                timer_tick,
                ..LctConfig::with_delays(x_delay)
            }
        });
    prop_oneof![
        (1u32..30, 0u8..5).prop_map(|(limit, which)| baseline(limit, which)),
        (1u32..30).prop_map(Discipline::Fifo),
        (1u32..30).prop_map(Discipline::Pfq),
        (1u32..30, x_delay()).prop_map(|(limit, linger)| Discipline::Pdrr(limit, linger)),
        (1u32..30).prop_map(Discipline::Afan),
        (drop, weights).prop_map(|(drop, weights)| Discipline::Wfq(weighted(&weights, drop))),
        lct.prop_map(Discipline::Lct),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let class = (0..CLASSES + 1).prop_map(Class);
    prop_oneof![
        (class.clone(), 0u32..2_000).prop_map(|(c, w)| Change::of("weight", c, Weight(w))),
        (class.clone(), x_delay()).prop_map(|(c, x)| Change::of("x_delay", c, x)),
        (prop::option::of(class), 0u32..12)
            .prop_map(|(class, n)| Change { class, ..Change::new("limit", n) }),
        any::<bool>().prop_map(|value| Change::new("module2", value)),
        policy().prop_map(|value| Change::new("multi_backlog", value)),
        any::<bool>().prop_map(|value| Change::new("rearm_empty", value)),
    ]
}

/// Rings, dequeue times and shapers of every kind; `rate` as told.
fn config(rate: impl Strategy<Value = Option<BitRate>>) -> impl Strategy<Value = LinkConfig> {
    let refill = prop_oneof![
        Just(Refill::AnySlot),
        Just(Refill::WholeRing),
        Just(Refill::WholeRingBlocking)
    ];
    let dequeue_time = prop_oneof![2 => Just(0u64), 1 => 1u64..300].prop_map(Nanos);
    let shaper = (1_000_000_000u64..40_000_000_000, 64u64..5_000)
        .prop_map(|(rate, burst)| ShaperConfig { rate: BitRate(rate), burst: Bytes(burst) });
    (rate, 1u32..9, refill, dequeue_time, prop::option::weighted(0.2, shaper)).prop_map(
        |(rate, slots, refill, dequeue_time, shaper)| LinkConfig {
            rate,
            ring: RingConfig { slots, refill },
            dequeue_time,
            shaper,
            ..LinkConfig::default()
        },
    )
}

fn arrival() -> impl Strategy<Value = Op> {
    (gap(), 0..CLASSES, 20u64..1_500).prop_map(|(gap, class, length)| Op::Arrive {
        gap,
        class,
        length,
    })
}

/// Anything; links whose configuration changes take rates from `rate`.
fn ops(rate: BoxedStrategy<Option<BitRate>>) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        20 => arrival(),
        3 => gap().prop_map(|gap| Op::Advance { gap }),
        3 => Just(Op::Wake),
        2 => change().prop_map(Op::Set),
        1 => discipline().prop_map(Op::Swap),
        1 => config(rate).prop_map(Op::Reconfigure),
    ];
    let op = prop_oneof![
        60 => op,
        1 => Just(Op::Drain),
        4 => (0usize..6).prop_map(Op::Room),
        1 => Just(Op::Room(usize::MAX)),
    ];
    prop::collection::vec(op, 1..200)
}

fn always() -> BoxedStrategy<Option<BitRate>> {
    Just(Some(RATE)).boxed()
}

fn any_rate() -> BoxedStrategy<Option<BitRate>> {
    prop::option::weighted(0.8, (1_000_000u64..1_000_000_000_000).prop_map(BitRate)).boxed()
}

type AnyLink = Link<TestPacket, AnyScheduler<TestPacket>>;

/// Does the operations, checks after each what holds at every instant, and then waits until nothing
/// more happens.
fn run(config: LinkConfig, discipline: &Discipline, ops: &[Op]) -> (AnyLink, Out) {
    let mut link = Link::new(config, discipline.build(), CLASSES).unwrap();
    let mut out = Out::default();
    let mut now = Nanos(1_000_000_000_000);
    for (id, op) in ops.iter().enumerate() {
        let told = (out.sent.len(), out.dropped.len());
        let before = now;
        match op.clone() {
            Op::Arrive { gap, class, length } => {
                now += Nanos(gap);
                let _ = link.enqueue(now, packet(id as u64, class, Bytes(length), now), &mut out);
            }
            Op::Advance { gap } => {
                now += Nanos(gap);
                link.advance(now, &mut out);
            }
            Op::Wake => {
                if let Some(at) = link.next_wake() {
                    now = at;
                    link.advance(now, &mut out);
                }
            }
            Op::Set(knob) => {
                let _ = link.set(now, &knob, &mut out);
            }
            Op::Swap(discipline) => drop(link.swap(now, discipline.build(), &mut out)),
            Op::Reconfigure(config) => link.reconfigure(now, config, &mut out).unwrap(),
            Op::Drain => link.drain(now, Reason::LinkDown, &mut out),
            Op::Room(room) => out.room = room,
        }
        assert_conserved(&link, &out);
        assert!(link.next_wake().is_none_or(|at| at > now), "everything due has happened");
        let instants = out.sent[told.0..].iter().map(|(at, _)| *at);
        for at in instants.chain(out.dropped[told.1..].iter().map(|(at, ..)| *at)) {
            assert!(before <= at && at <= now);
        }
    }
    out.room = usize::MAX;
    link.advance(now, &mut out);
    while let Some(at) = link.next_wake() {
        link.advance(at, &mut out);
    }
    assert_conserved(&link, &out);
    let held = link.held();
    assert_eq!((held.queued, held.in_ring), (0, 0), "packets wait and nobody is told until when");
    assert!(out.sent.is_sorted_by_key(|(at, _)| *at));
    for class in (0..CLASSES).map(Class) {
        let ids = out.sent.iter().filter(|(_, p)| p.class == class).map(|(_, p)| p.id);
        assert!(ids.is_sorted(), "the order within a flow is kept");
    }
    (link, out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Conservation, order within flows, and that nothing waits for ever, under any sequence of
    /// arrivals and changes.
    #[test]
    fn nothing_is_lost(config in config(any_rate()), discipline in discipline(),
        ops in ops(any_rate())) {
        run(config, &discipline, &ops);
    }

    /// Between any two completions no more leaves than the rate gives.
    #[test]
    fn the_wire_never_exceeds_its_rate(config in config(always()), discipline in discipline(),
        ops in ops(always())) {
        let (_, out) = run(config, &discipline, &ops);
        for from in 0..out.sent.len() {
            let mut bytes = 0u128;
            for (at, packet) in &out.sent[from + 1..] {
                bytes += u128::from(packet.wire_len().0);
                // Instants are told up to a nanosecond late; the first of them may have been exact.
                let interval = u128::from((*at - out.sent[from].0).0) + 1;
                prop_assert!(bytes * 8_000_000_000 <= interval * u128::from(RATE.0));
            }
        }
    }

    /// A FIFO behind a ring that is refilled at once is the ideal one: each packet starts when it
    /// has come and the one before is through, to the nanosecond, and not a bit of time on the wire
    /// is lost.
    #[test]
    fn a_fifo_is_work_conserving(
        slots in 1u32..9,
        rate in 1_000_000u64..200_000_000_000,
        arrivals in prop::collection::vec(arrival(), 1..200),
        looks in prop::collection::vec(0usize..200, 0..20),
    ) {
        let ring = RingConfig { slots, refill: Refill::AnySlot };
        let config = LinkConfig { ring, ..LinkConfig::paced(BitRate(rate)) };
        let mut ops = arrivals;
        for look in looks {
            ops.insert(look % (ops.len() + 1), Op::Wake);
        }
        let (_, out) = run(config, &Discipline::Fifo(9), &ops);
        // Exact time in bit-nanoseconds times rate: no rounding.
        let (mut through, mut told) = (0u128, 0u64);
        for (at, packet) in &out.sent {
            let arrival = packet.arrival().0;
            if arrival > told {
                through = u128::from(arrival) * u128::from(rate);
            }
            through += u128::from(packet.wire_len().0) * 8_000_000_000;
            told = through.div_ceil(u128::from(rate)) as u64;
            prop_assert_eq!(at.0, told);
        }
    }

    /// When the caller looks in between makes no difference to what leaves when.
    #[test]
    fn looking_changes_nothing(
        config in config(always()),
        discipline in discipline(),
        ops in prop::collection::vec(prop_oneof![6 => arrival(), 1 => Just(Op::Wake)], 1..200),
    ) {
        let (link, out) = run(config, &discipline, &ops);
        // The same arrivals, the looks replaced by the time they took.
        let mut now = Nanos(1_000_000_000_000);
        let mut plain = Link::new(config, discipline.build(), CLASSES).unwrap();
        let mut plain_out = Out::default();
        let mut shadow: AnyLink = Link::new(config, discipline.build(), CLASSES).unwrap();
        let mut ignored = Out::default();
        for (id, op) in ops.iter().enumerate() {
            match op {
                Op::Arrive { gap, class, length } => {
                    now += Nanos(*gap);
                    let p = packet(id as u64, *class, Bytes(*length), now);
                    let _ = shadow.enqueue(now, p.clone(), &mut ignored);
                    let _ = plain.enqueue(now, p, &mut plain_out);
                }
                _ => if let Some(at) = shadow.next_wake() {
                    now = at;
                    shadow.advance(now, &mut ignored);
                }
            }
        }
        plain.advance(now + Nanos::SECOND, &mut plain_out);
        prop_assert_eq!(&out.sent, &plain_out.sent);
        prop_assert_eq!(&out.dropped, &plain_out.dropped);
        prop_assert_eq!(link.qostat(), plain.qostat());
    }
}

/// WFQ/ALTQ with every class always backlogged, against the fluid link that shares by the integer
/// quotas: no class is ever further from it than what its own visit and the others' visits of one
/// round can move.
#[test]
fn wfq_stays_close_to_the_fluid_link() {
    // 1462 bytes of IP are 1500 on the wire: 75 Mbit/s there are 73.1 Mbit/s of IP.
    const LENGTH: u64 = 1462;
    const QUOTAS: [u64; 3] = [153, 512, 5120];
    let discipline = Discipline::Wfq(weighted(&[30, 100, 1_000, 100], tail(4_000))).build();
    let ring = RingConfig { slots: 1, refill: Refill::AnySlot };
    let config = LinkConfig { ring, ..LinkConfig::paced(BitRate::from_mbps(75)) };
    let mut link = Link::new(config, discipline, CLASSES).unwrap();
    let mut gps = Gps::new(BitRate(73_100_000), &QUOTAS.map(|q| Weight(q as u32)));
    let mut out = Out::default();
    for id in 0..12_000 {
        let class = (id % 3) as u16;
        let _ = link.enqueue(Nanos::ZERO, packet(id, class, Bytes(LENGTH), Nanos::ZERO), &mut out);
        gps.arrive(Nanos::ZERO, usize::from(class), Bytes(LENGTH));
    }
    // As long as the heaviest class is backlogged.
    link.advance(Nanos::from_millis(600), &mut out);
    assert!(out.dropped.is_empty() && link.scheduler().class_backlog(Class(2)).packets > 0);
    let all: u64 = QUOTAS.iter().sum();
    let off_by = |quota: u64| (quota + LENGTH) as f64;
    let others: f64 = QUOTAS.into_iter().map(off_by).sum();
    let mut served = [0u64; 3];
    let mut worst = [0f64; 3];
    for (at, packet) in &out.sent {
        served[packet.class.index()] += LENGTH;
        gps.advance(*at);
        for class in 0..3 {
            let lag = (gps.served(class) - served[class] as f64).abs();
            let quota = QUOTAS[class];
            let bound = off_by(quota) + others * quota as f64 / all as f64;
            assert!(lag <= bound, "class {class}: {lag} bytes, bound {bound}");
            worst[class] = worst[class].max(lag);
        }
    }
    println!("worst distance from the fluid link: {worst:.0?} bytes of {served:?}");
    // The bound is not idle: a packet is always somewhere.
    assert!(worst.iter().all(|w| *w > LENGTH as f64 / 2.0));
}
