//! A link does not allocate per packet: everything is there after construction.

use crate::common::{longest, tail, weighted};
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::settings::PerClass;
use std::sync::Arc;

use crate::wire::{TestPacket, packet};
use evenkeel_core::link::{Link, LinkConfig, LinkSink, Refill, RingConfig};
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::schedule::afan::{Afan, AfanConfig};
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::buffer::KnownFlows;
use evenkeel_core::schedule::codel::CodelConfig;
use evenkeel_core::schedule::drr::DrrConfig;
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::fq_codel::FqCodelConfig;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::priority::PriorityConfig;
use evenkeel_core::schedule::qfq::QfqConfig;
use evenkeel_core::schedule::wfq_altq::WfqAltq;
use evenkeel_core::settings::Change;
use evenkeel_core::shape::ShaperConfig;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Reason, Weight};

/// Counts, and forgets the packets.
#[derive(Default)]
struct Counter {
    sent: u64,
    dropped: u64,
}

impl LinkSink<TestPacket> for Counter {
    fn transmitted(&mut self, _: Nanos, _: TestPacket) {
        self.sent += 1;
    }
    fn dropped(&mut self, _: Nanos, _: TestPacket, _: Reason) {
        self.dropped += 1;
    }
}

#[test]
fn enqueue_advance_and_set_do_not_allocate() {
    let wfq = |config| {
        AnyScheduler::WfqAltq(WfqAltq::new(weighted(&[1, 30, 100, 1_000], config)).unwrap())
    };
    let x_delay = [0, 10, 50, 200].map(Nanos::from_micros).to_vec();
    // Fewer places than flows: some find the list full, others push idle ones out.
    let (flows, buffer) = (KnownFlows::up_to(150), Buffer::packets(200));
    let fair = Fair::SourceFlow;
    let shared = |discipline: DisciplineConfig| {
        let link = SharedLink::new(2, 1, Nanos::from_millis(5));
        link.set_rate(Some(BitRate::from_mbps(100)));
        discipline.build_part(1, Arc::new(link), 1).unwrap()
    };
    let weight = PerClass::new(vec![Weight(100); 4], Weight(100));
    let disciplines = [
        shared(DisciplineConfig::Pfq(PfqConfig { flows, buffer, ..PfqConfig::default() })),
        shared(DisciplineConfig::Pdrr(PdrrConfig { flows, buffer, ..PdrrConfig::default() })),
        shared(DisciplineConfig::Pfq(PfqConfig { flows, buffer, fair, ..PfqConfig::default() })),
        shared(DisciplineConfig::Pdrr(PdrrConfig { flows, buffer, fair, ..PdrrConfig::default() })),
        shared(DisciplineConfig::Afan(AfanConfig { flows, ..AfanConfig::default() })),
        shared(DisciplineConfig::Drr(DrrConfig { buffer: 200, ..DrrConfig::default() })),
        shared(DisciplineConfig::FqCodel(FqCodelConfig {
            buffer: 200,
            ..FqCodelConfig::default()
        })),
        shared(DisciplineConfig::Codel(CodelConfig::default())),
        shared(DisciplineConfig::Priority(PriorityConfig::default())),
        shared(DisciplineConfig::Qfq(QfqConfig::default())),
        AnyScheduler::Pfq(Pfq::new(PfqConfig { flows, buffer, ..PfqConfig::default() }).unwrap()),
        AnyScheduler::Pdrr(
            Pdrr::new(PdrrConfig { flows, buffer, ..PdrrConfig::default() }).unwrap(),
        ),
        AnyScheduler::Afan(Afan::new(AfanConfig { flows, ..AfanConfig::default() }).unwrap()),
        AnyScheduler::Fifo(Fifo::new(FifoConfig::packets(200)).unwrap()),
        DisciplineConfig::Priority(PriorityConfig::default()).build(4).unwrap(),
        DisciplineConfig::Qfq(QfqConfig { weight, ..QfqConfig::default() }).build(4).unwrap(),
        DisciplineConfig::Drr(DrrConfig { buffer: 200, ..DrrConfig::default() }).build(1).unwrap(),
        DisciplineConfig::Codel(CodelConfig::default()).build(1).unwrap(),
        DisciplineConfig::FqCodel(FqCodelConfig { buffer: 200, ..FqCodelConfig::default() })
            .build(1)
            .unwrap(),
        wfq(tail(50)),
        wfq(longest(65_536)),
        AnyScheduler::Lct(
            Lct::new(LctConfig { limit: PerClass::all(50), ..LctConfig::with_delays(x_delay) })
                .unwrap(),
        ),
    ];
    // The counter counts.
    assert_eq!(
        allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total,
        1
    );
    let shaper = ShaperConfig { rate: BitRate::from_mbps(90), burst: Bytes(6_000) };
    for discipline in disciplines {
        let config = LinkConfig {
            rate: Some(BitRate::from_mbps(100)),
            ring: RingConfig { slots: 128, refill: Refill::WholeRing },
            dequeue_time: Nanos(4_500),
            shaper: Some(shaper),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, discipline, 4).unwrap();
        let mut counter = Counter::default();
        let allocated = allocation_counter::measure(|| {
            for id in 0..20_000u64 {
                let now = Nanos(id * 50_000);
                let length = Bytes(40 + id * 37 % 1_460);
                let _ = link.enqueue(now, packet(id, (id % 400) as u16, length, now), &mut counter);
                if id % 100 == 0 {
                    link.advance(now + Nanos(20_000), &mut counter);
                    let _ =
                        link.set(now, &Change::of("x_delay", Class(1), Nanos(id)), &mut counter);
                    let _ = link.set(
                        now,
                        &Change::of("weight", Class(1), Weight(1 + id as u32 % 99)),
                        &mut counter,
                    );
                }
            }
            link.advance(Nanos::from_secs(100), &mut counter);
        });
        assert_eq!(allocated.count_total, 0);
        assert!(counter.sent > 5_000, "{} sent", counter.sent);
        assert_eq!(counter.sent + counter.dropped, 20_000);
    }
}
