//! Workers of a link tell each other what came and went once for a burst: whoever comes after it
//! cannot tell that from being told of each packet.

use std::sync::Arc;

use evenkeel_core::link::{Link, LinkConfig};
use evenkeel_core::schedule::drr::DrrConfig;
use evenkeel_core::schedule::fifo::FifoConfig;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::lct::LctConfig;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;
use evenkeel_core::schedule::priority::PriorityConfig;
use evenkeel_core::schedule::wfq_altq::WfqAltqConfig;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Nanos, Reason, Scheduler};
use proptest::prelude::*;

use crate::link_bypass::But;
use crate::wire::{Out, TestPacket, packet};

const CLASSES: u16 = 3;
const RATE: BitRate = BitRate::from_mbps(1_000);

/// What happens to a worker, so much after what was before.
#[derive(Clone, Debug)]
enum Op {
    /// It looks in.
    Advance,
    /// A burst of flows and lengths comes to it.
    Come(Vec<(u16, u64)>),
    /// Its part of the link is emptied.
    Drain,
}

fn op() -> impl Strategy<Value = (usize, u64, Op)> {
    let gap = prop_oneof![Just(0u64), 0u64..20_000, 0u64..300_000];
    let burst = prop::collection::vec((0u16..6, 64u64..1_500), 1..12);
    let op = prop_oneof![
        30 => burst.prop_map(Op::Come),
        10 => Just(Op::Advance),
        1 => Just(Op::Drain),
    ];
    (0usize..2, gap, op)
}

/// The workers of a link, and what they sent and dropped.
struct Workers<S> {
    link: Arc<SharedLink>,
    parts: [(Link<TestPacket, S>, Out); 2],
}

impl<S: Scheduler<TestPacket>> Workers<S> {
    fn new(discipline: &DisciplineConfig, told: impl Fn(AnyScheduler<TestPacket>) -> S) -> Self {
        let link = Arc::new(SharedLink::new(2, usize::from(CLASSES), Nanos::from_millis(1)));
        link.set_rate(Some(RATE));
        let config = LinkConfig { rate: Some(RATE), ..LinkConfig::default() };
        let parts = [0, 1].map(|worker| {
            let queues = discipline.build(CLASSES).unwrap().shared(Arc::clone(&link), worker);
            (Link::new(config, told(queues), CLASSES).unwrap(), Out::default())
        });
        Self { link, parts }
    }
}

fn disciplines() -> Vec<DisciplineConfig> {
    let pdrr = |fair| DisciplineConfig::Pdrr(PdrrConfig { fair, ..PdrrConfig::default() });
    let x_delay = vec![Nanos(30_000), Nanos::ZERO, Nanos::ZERO];
    vec![
        DisciplineConfig::Fifo(FifoConfig::packets(20)),
        DisciplineConfig::WfqAltq(WfqAltqConfig::default()),
        DisciplineConfig::Priority(PriorityConfig::default()),
        DisciplineConfig::Lct(LctConfig::with_delays(x_delay)),
        DisciplineConfig::Drr(DrrConfig { buffer: 20, ..DrrConfig::default() }),
        DisciplineConfig::Pfq(PfqConfig::default()),
        pdrr(Fair::Flow),
        pdrr(Fair::SourceFlow),
    ]
}

/// The same bursts as bursts, and packet by packet.
fn both_ways(discipline: &DisciplineConfig, ops: &[(usize, u64, Op)]) {
    let mut told_once = Workers::new(discipline, |queues| queues);
    let mut told_each = Workers::new(discipline, But::long);
    let (mut now, mut id) = (Nanos::ZERO, 0);
    for (worker, gap, op) in ops {
        now += Nanos(*gap);
        let (once, sent) = &mut told_once.parts[*worker];
        let (each, sent_each) = &mut told_each.parts[*worker];
        match op {
            Op::Advance => {
                once.advance(now, sent);
                each.advance(now, sent_each);
            }
            Op::Come(flows) => {
                let packets = flows.iter().map(|(flow, length)| {
                    id += 1;
                    packet(id, *flow, Bytes(*length), now)
                });
                let packets: Vec<_> = packets.collect();
                once.queue_all(now, packets.iter().cloned(), sent, |_, _, _| ());
                each.queue_all(now, packets.into_iter(), sent_each, |_, _, _| ());
            }
            Op::Drain => {
                once.drain(now, Reason::LinkDown, sent);
                each.drain(now, Reason::LinkDown, sent_each);
            }
        }
        assert_eq!(sent.sent, sent_each.sent, "{discipline:?}");
        assert_eq!(sent.dropped, sent_each.dropped, "{discipline:?}");
        assert_eq!(told_once.link.together(), told_each.link.together(), "{discipline:?}");
    }
}

proptest! {
    #[test]
    fn a_burst_that_is_told_once_is_as_its_packets_told_one_by_one(
        ops in prop::collection::vec(op(), 1..80),
    ) {
        disciplines().iter().for_each(|discipline| both_ways(discipline, &ops));
    }
}
