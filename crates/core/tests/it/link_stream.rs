//! Packets that leave a busy link one after the other: what is the same for each is asked once, and
//! nobody can tell.

use crate::link_bypass::{But, PROMISE};
use crate::wire::{Out, TestPacket, assert_conserved, packet};
use evenkeel_core::aqm::AqmConfig;
use evenkeel_core::audit::Told;
use evenkeel_core::link::{Link, LinkConfig, Refill, RingConfig};
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::codel::CodelConfig;
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::shape::ShaperConfig;
use evenkeel_core::{BitRate, Bytes, Nanos, Scheduler};
use proptest::prelude::*;

/// What happens this much later.
#[derive(Clone, Debug)]
enum Op {
    /// Packets of flows arrive, with these lengths.
    Arrive(u64, Vec<(u16, u64)>),
    Advance(u64),
    /// The link is held until then.
    Hold(u64),
    /// It is told another ring, rate and time of a call.
    Reconfigure(u64, LinkConfig),
}

/// A shaper that lets everything pass is asked about each packet all the same.
const ASKS: ShaperConfig =
    ShaperConfig { rate: LinkConfig::MAX_RATE, burst: LinkConfig::MAX_BURST };

fn config() -> impl Strategy<Value = LinkConfig> {
    let rate = prop_oneof![
        1 => Just(None),
        // Some packets take no time at the fastest.
        12 => prop::sample::select(vec![10u64, 1_000, 9_999, 1_000_000]).prop_map(Some),
    ];
    let refill = prop_oneof![6 => Just(Refill::AnySlot), 1 => Just(Refill::WholeRing)];
    let slots = prop_oneof![6 => Just(2u32), 1 => 1u32..4];
    let call = prop_oneof![6 => Just(0u64), 1 => 1u64..2_000];
    (rate, refill, slots, call).prop_map(|(mbps, refill, slots, call)| LinkConfig {
        rate: mbps.map(BitRate::from_mbps),
        ring: RingConfig { slots, refill },
        dequeue_time: Nanos(call),
        ..LinkConfig::default()
    })
}

fn op() -> impl Strategy<Value = Op> {
    let gap = || prop_oneof![9 => 0u64..3_000, 1 => 0u64..2_000_000];
    let packets = prop::collection::vec((0u16..5, 1u64..1_500), 1..7);
    prop_oneof![
        12 => (gap(), packets).prop_map(|(gap, packets)| Op::Arrive(gap, packets)),
        4 => gap().prop_map(Op::Advance),
        1 => gap().prop_map(Op::Hold),
        1 => (gap(), config()).prop_map(|(gap, config)| Op::Reconfigure(gap, config)),
    ]
}

/// Does the same to a link that lets packets leave in a stream and to one that does not.
fn both_ways<S: Scheduler<TestPacket>>(first: LinkConfig, build: impl Fn() -> S, ops: &[Op]) {
    let asking = |config| LinkConfig { shaper: Some(ASKS), ..config };
    let [mut streams, mut asks] = [first, asking(first)].map(|config| {
        let mut link = Link::new(config, But::ticking(build()), 5).unwrap();
        link.tell(Nanos::ZERO, Told { link: first, promise: PROMISE });
        link
    });
    let (mut streams_out, mut asks_out) = (Out::default(), Out::default());
    let (mut now, mut id) = (Nanos::ZERO, 0);
    for op in ops {
        match op {
            Op::Arrive(gap, packets) => {
                now += Nanos(*gap);
                for (flow, length) in packets {
                    let packet = packet(id, *flow, Bytes(*length), now);
                    id += 1;
                    let treated = streams.queue(now, packet.clone(), &mut streams_out);
                    assert_eq!(treated, asks.queue(now, packet, &mut asks_out));
                }
            }
            Op::Advance(gap) => {
                now += Nanos(*gap);
                streams.advance(now, &mut streams_out);
                asks.advance(now, &mut asks_out);
            }
            Op::Hold(gap) => {
                streams.hold(now + Nanos(*gap));
                asks.hold(now + Nanos(*gap));
            }
            Op::Reconfigure(gap, config) => {
                now += Nanos(*gap);
                streams.reconfigure(now, *config, &mut streams_out).unwrap();
                asks.reconfigure(now, asking(*config), &mut asks_out).unwrap();
            }
        }
        assert_eq!(streams_out.sent, asks_out.sent);
        assert_eq!(streams_out.dropped, asks_out.dropped);
        assert_eq!(streams.qostat(), asks.qostat());
        assert_eq!((streams.held(), streams.next_wake()), (asks.held(), asks.next_wake()));
        assert_eq!(streams.verdict(), asks.verdict());
        assert_eq!(streams.idle_time(now), asks.idle_time(now));
        let [order, asked] = [&streams, &asks].map(|link| link.scheduler().order);
        assert_eq!(order, asked, "work of the discipline's own");
        assert_conserved(&streams, &streams_out);
    }
}

proptest! {
    /// Also where others drop what waits, give nothing for a while, or have work of their own; and
    /// where a call takes time, or the ring is another one.
    #[test]
    fn a_stream_is_as_its_packets_one_by_one(
        first in config(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        both_ways(first, || Fifo::new(FifoConfig::packets(9)).unwrap(), &ops);
        let buffer = Buffer::packets(9);
        let pdrr = PdrrConfig { buffer, ..PdrrConfig::default() };
        both_ways(first, || Pdrr::new(pdrr).unwrap(), &ops);
        let any = || -> AnyScheduler<TestPacket> { DisciplineConfig::Pdrr(pdrr).build(5).unwrap() };
        both_ways(first, any, &ops);
        let lct = || Lct::new(LctConfig::with_delays(vec![Nanos(2_000); 5])).unwrap();
        both_ways(first, lct, &ops);
        // Short enough for a queue of nine.
        let (target, interval) = (Nanos::from_micros(10), Nanos::from_micros(100));
        let aqm = AqmConfig { target, interval, ..AqmConfig::default() };
        let codel = CodelConfig { limit: 9, aqm };
        let codel = || -> AnyScheduler<TestPacket> {
            DisciplineConfig::Codel(codel).build(5).unwrap()
        };
        both_ways(first, codel, &ops);
    }
}
