//! PFQ and PDRR packet by packet: the worked examples of the published pseudo-code, start-up
//! bounds, overflow, knobs.

use crate::common::{TestPacket, flow};
use evenkeel_core::schedule::buffer::{Buffer, DEFAULT_QUANTUM, KnownFlows, Victim};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::{Treated, Wake};
use evenkeel_core::settings::Change;
use evenkeel_core::{Bytes, FlowKey, Nanos, Packet, Reason, Scheduler};

const NOW: Nanos = Nanos(1);

/// The published quantum, of IP packets: the wire of these examples adds nothing.
const MTU: Bytes = Bytes(1_500);

/// As configured, but where the quantum is the default: the published one.
fn pfq(config: PfqConfig) -> Pfq<TestPacket> {
    let quantum = if config.quantum == DEFAULT_QUANTUM { MTU } else { config.quantum };
    Pfq::new(PfqConfig { quantum, ..config }).unwrap()
}

fn pdrr(config: PdrrConfig) -> Pdrr<TestPacket> {
    Pdrr::new(PdrrConfig { quantum: MTU, ..config }).unwrap()
}

fn packet(id: u64, class: u16, length: u32) -> TestPacket {
    TestPacket { overhead: 0, ..TestPacket::new(id, class, length) }
}

/// A packet of flow `class` arrives.
fn put(scheduler: &mut impl Scheduler<TestPacket>, class: u16, length: u32) -> Treated {
    scheduler.enqueue(NOW, packet(0, class, length), &mut |p, _| panic!("{p:?} dropped"))
}

/// The flow of the next packet.
fn next(scheduler: &mut impl Scheduler<TestPacket>) -> u16 {
    scheduler.dequeue(NOW, &mut |p, _| panic!("{p:?} dropped")).unwrap().class.0
}

fn id(class: u16) -> (FlowKey, u64) {
    (flow(class as u8), TestPacket::new(0, class, 1).flow_hash())
}

use Treated::{Priority, Queued};

#[test]
fn v1_plain_start_time_fair_queueing() {
    // Without a quantum only a flow's first packet has the stamp vt, and stamps are those of SFQ.
    // Lengths are a hundred times those of the example: stamps are told apart to within 32 bytes.
    let mut pfq = pfq(PfqConfig { quantum: Bytes(0), ..PfqConfig::default() });
    let tag = |pfq: &Pfq<TestPacket>, class| {
        let (key, hash) = id(class);
        pfq.finish_tag(&key, hash)
    };
    let mut tags = Vec::new();
    for length in [1_000, 500, 1_000, 500] {
        tags.push(tag(&pfq, 1).unwrap_or(0));
        let _ = put(&mut pfq, 1, length);
    }
    assert_eq!(tags, [0, 1_000, 1_500, 2_500]);
    let mut order = Vec::new();
    let mut vt = Vec::new();
    let mut serve = |pfq: &mut Pfq<TestPacket>| {
        order.push(next(pfq));
        vt.push(pfq.meters().virtual_time.unwrap());
    };
    (0..3).for_each(|_| serve(&mut pfq));
    let mut tags = Vec::new();
    for (length, treated) in [(800, Priority), (500, Queued), (1_000, Queued)] {
        tags.push(tag(&pfq, 2).unwrap_or(1_500));
        assert_eq!(put(&mut pfq, 2, length), treated);
    }
    assert_eq!(tags, [1_500, 2_300, 2_800]);
    (0..4).for_each(|_| serve(&mut pfq));
    assert_eq!(order, [1, 1, 1, 2, 2, 1, 2]);
    assert_eq!(vt, [0, 1_000, 1_500, 1_500, 2_300, 2_500, 2_800]);
}

#[test]
fn v2_pfq() {
    let (a, b, v) = (0, 1, 2);
    let mut pfq = pfq(PfqConfig::default());
    for class in [a, b] {
        let treated: Vec<_> = (0..4).map(|_| put(&mut pfq, class, 1_000)).collect();
        assert_eq!(treated, [Priority, Priority, Queued, Queued]);
        let (key, hash) = id(class);
        assert_eq!(pfq.finish_tag(&key, hash), Some(4_000));
        assert_eq!(pfq.flow_backlog(&key, hash), Bytes(4_000));
    }
    assert_eq!([0; 3].map(|_| next(&mut pfq)), [a, a, b]);
    assert_eq!(put(&mut pfq, v, 200), Priority);
    let mut order = Vec::new();
    let mut vt = Vec::new();
    for _ in 0..6 {
        order.push(next(&mut pfq));
        vt.push(pfq.meters().virtual_time.unwrap());
    }
    assert_eq!(order, [b, v, a, b, a, b]);
    assert_eq!(vt, [0, 0, 2_000, 2_000, 3_000, 3_000]);
    let meters = pfq.meters();
    assert_eq!(
        (meters.priority_bytes, meters.fair_bytes),
        (Some(Bytes(4_200)), Some(Bytes(3_000)))
    );
    assert_eq!(meters.flows, Some(0), "nothing waits, nobody is listed");
}

#[test]
fn v3_pdrr() {
    let (a, b, v) = (0, 1, 2);
    let mut pdrr = pdrr(PdrrConfig::default());
    for class in [a, b] {
        let treated: Vec<_> = (0..4).map(|_| put(&mut pdrr, class, 1_000)).collect();
        assert_eq!(treated, [Priority, Queued, Queued, Queued]);
    }
    let deficit = |pdrr: &Pdrr<TestPacket>| {
        let (key, hash) = id(a);
        pdrr.deficit(&key, hash)
    };
    let fair = |pdrr: &Pdrr<TestPacket>| pdrr.meters().fair_bytes.unwrap().0;
    assert_eq!([0; 2].map(|_| next(&mut pdrr)), [a, b]);
    assert_eq!((fair(&pdrr), deficit(&pdrr)), (0, Some(-1_000)));
    assert_eq!(next(&mut pdrr), a);
    assert_eq!((fair(&pdrr), deficit(&pdrr)), (3_000, Some(1_000)));
    assert_eq!(put(&mut pdrr, v, 200), Priority);
    assert_eq!(next(&mut pdrr), v);
    assert_eq!(next(&mut pdrr), a, "a priority packet does not end a turn");
    assert_eq!((fair(&pdrr), deficit(&pdrr)), (3_000, Some(0)));
    let mut order = Vec::new();
    let mut credit = Vec::new();
    for _ in 0..4 {
        order.push(next(&mut pdrr));
        credit.push(fair(&pdrr));
    }
    assert_eq!(order, [b, b, a, b]);
    assert_eq!(credit, [3_000, 3_000, 4_500, 4_500]);
    let meters = pdrr.meters();
    assert_eq!((meters.priority_bytes, meters.flows), (Some(Bytes(2_200)), Some(0)));
    // A and B were streaming once and then elastic; V never changed.
    assert_eq!(meters.class_flips, Some(2));
    let flips = [a, b, v].map(|class| {
        let (key, hash) = id(class);
        pdrr.class_flips(&key, hash)
    });
    assert_eq!(flips, [Some(1), Some(1), Some(0)]);
}

/// 50 flows put in two 1000-byte packets each, then a voice packet comes: bytes with priority, and
/// how many of them go before it.
fn start(scheduler: &mut impl Scheduler<TestPacket>) -> (u64, u64) {
    for class in 0..50 {
        for _ in 0..2 {
            let _ = put(scheduler, class, 1_000);
        }
    }
    let ahead = scheduler.meters().priority_bytes.unwrap().0;
    assert_eq!(put(scheduler, 99, 100), Priority);
    let before = (0..).find(|_| next(scheduler) == 99).unwrap();
    (ahead, before)
}

#[test]
fn a_start_limit_takes_the_peak_off() {
    assert_eq!(start(&mut pfq(PfqConfig::default())), (100_000, 100));
    assert_eq!(start(&mut pdrr(PdrrConfig::default())), (50_000, 50));
    let flows = KnownFlows { start_limit: Some(Bytes(3_000)), ..KnownFlows::default() };
    assert_eq!(start(&mut pfq(PfqConfig { flows, ..PfqConfig::default() })), (3_000, 3));
    assert_eq!(start(&mut pdrr(PdrrConfig { flows, ..PdrrConfig::default() })), (3_000, 3));
}

#[test]
fn overflow_takes_from_the_longest_flow() {
    let buffers = [Buffer::packets(8), Buffer::bytes(Bytes(8_000))];
    for (limit, victim) in buffers.into_iter().flat_map(|b| [(b, Victim::Head), (b, Victim::Tail)])
    {
        let buffer = Buffer { victim, ..limit };
        let mut all: [Box<dyn Scheduler<TestPacket>>; 2] = [
            Box::new(pfq(PfqConfig { quantum: Bytes(1_000), buffer, ..PfqConfig::default() })),
            Box::new(pdrr(PdrrConfig { buffer, ..PdrrConfig::default() })),
        ];
        for scheduler in &mut all {
            let mut came = 0;
            let mut lost = Vec::new();
            let mut arrive = |scheduler: &mut Box<dyn Scheduler<TestPacket>>, class| {
                came += 1;
                let packet = packet(came, class, 1_000);
                scheduler
                    .enqueue(NOW, packet, &mut |p: TestPacket, reason| lost.push((p.id, reason)))
            };
            // Flow 0 has packets 1 to 5 (the first with priority), flow 1 packets 6 to 8.
            for class in [0, 0, 0, 0, 0, 1, 1, 1] {
                assert!(!matches!(arrive(scheduler, class), Treated::Dropped(_)));
            }
            assert_eq!(arrive(scheduler, 2), Priority);
            let pfq_drops_priority_heads = scheduler.name() == "pfq";
            let expected = match victim {
                Victim::Head if pfq_drops_priority_heads => 1,
                Victim::Head => 2,
                Victim::Tail => 5,
            };
            assert_eq!(lost, [(expected, Reason::LongestFlow)], "{} {victim:?}", scheduler.name());
        }
    }
    // PDRR never drops priority packets: with nothing else, the arrival goes.
    let mut pdrr = pdrr(PdrrConfig { buffer: Buffer::packets(3), ..PdrrConfig::default() });
    (0..3).for_each(|class| assert_eq!(put(&mut pdrr, class, 100), Priority));
    let mut lost = 0;
    let treated = pdrr.enqueue(NOW, packet(9, 9, 100), &mut |p: TestPacket, _| {
        assert_eq!(p.id, 9);
        lost += 1;
    });
    assert_eq!((treated, lost), (Treated::Dropped(Reason::PriorityFull), 1));
}

#[test]
fn a_lingering_flow_is_not_taken_for_a_stream() {
    let after_a_gap = |afl_linger, gap| {
        let mut pdrr = pdrr(PdrrConfig { afl_linger, ..PdrrConfig::default() });
        for class in [0, 0, 1, 1, 1, 1, 1] {
            let _ = put(&mut pdrr, class, 1_500);
        }
        // Flow 0 runs empty; its turn ends with the next packet of flow 1.
        assert_eq!([0; 5].map(|_| next(&mut pdrr)), [0, 1, 0, 1, 1]);
        pdrr.enqueue(NOW + gap, packet(0, 0, 1_500), &mut |_, _| ())
    };
    let second = Nanos::SECOND;
    assert_eq!(after_a_gap(Nanos::ZERO, Nanos(0)), Priority);
    assert_eq!(after_a_gap(second, Nanos(999_999_999)), Queued);
    // The time is kept in steps of 16 us.
    assert_eq!(after_a_gap(second, second + Nanos(1 << 14)), Priority);
}

#[test]
fn a_full_list_gives_priority_and_keeps_the_order() {
    let mut pfq = pfq(PfqConfig { flows: KnownFlows::up_to(2), ..PfqConfig::default() });
    let mut pdrr = pdrr(PdrrConfig { flows: KnownFlows::up_to(2), ..PdrrConfig::default() });
    for scheduler in [&mut pfq as &mut dyn Scheduler<TestPacket>, &mut pdrr] {
        let mut put = |class, length| {
            scheduler.enqueue(NOW, packet(0, class, length), &mut |_, _| panic!("dropped"))
        };
        for class in [0, 1] {
            assert_eq!([put(class, 1_500), put(class, 1_500)], [Priority, Queued]);
        }
        assert_eq!([put(2, 1_500), put(2, 1_500)], [Priority, Priority]);
        assert_eq!(scheduler.meters().flows, Some(2));
        let order: Vec<_> =
            (0..6).map(|_| scheduler.dequeue(NOW, &mut |_, _| ()).unwrap().class.0).collect();
        assert_eq!(order, [0, 1, 2, 2, 0, 1]);
        // Idle flows make room.
        let treated = scheduler.enqueue(NOW, packet(0, 3, 100), &mut |_, _| ());
        assert_eq!((treated, scheduler.meters().flows), (Priority, Some(1)));
    }
}

#[test]
fn a_raised_quantum_does_not_let_packets_overtake() {
    let mut pfq = pfq(PfqConfig::default());
    let mut pdrr = pdrr(PdrrConfig::default());
    for scheduler in [&mut pfq as &mut dyn Scheduler<TestPacket>, &mut pdrr] {
        let put = |scheduler: &mut dyn Scheduler<TestPacket>, id| {
            scheduler.enqueue(NOW, packet(id, 0, 1_500), &mut |_, _| panic!("dropped"))
        };
        assert_eq!([put(scheduler, 1), put(scheduler, 2)], [Priority, Queued]);
        assert_eq!(scheduler.set(NOW, &Change::new("quantum", Bytes(60_000))), Ok(Wake::No));
        assert_eq!(put(scheduler, 3), Queued);
        let order: Vec<_> =
            (0..3).map(|_| scheduler.dequeue(NOW, &mut |_, _| ()).unwrap().id).collect();
        assert_eq!(order, [1, 2, 3]);
    }
}

/// With packets six times the quantum a sender that waits to be inactive had six times the share of
/// a greedy flow, and strict priority at that.
#[test]
fn a_packet_longer_than_the_quantum_is_paid_for() {
    for length in [9_000u32, 4_000] {
        let mut pdrr = pdrr(PdrrConfig::default());
        let mut bytes = [0u64; 3];
        let mut inside = [0u32; 3];
        let inactive = |pdrr: &Pdrr<TestPacket>| {
            let (key, hash) = id(2);
            pdrr.deficit(&key, hash).is_none()
        };
        for _ in 0..60_000 {
            for class in 0..2 {
                while inside[usize::from(class)] < 20 {
                    let _ = put(&mut pdrr, class, 1_000);
                    inside[usize::from(class)] += 1;
                }
            }
            if inside[2] == 0 && inactive(&pdrr) {
                let _ = put(&mut pdrr, 2, length);
                inside[2] += 1;
            }
            let flow = usize::from(next(&mut pdrr));
            inside[flow] -= 1;
            bytes[flow] += if flow == 2 { u64::from(length) } else { 1_000 };
        }
        let share = bytes[2] as f64 / bytes[0] as f64;
        assert!(share < 1.1, "{length}: {share} times a greedy flow");
    }
}

/// A shaper asks for the length of the next packet before each: with many flows that was a walk
/// over all of them. Turned beforehand it is the first one's, and the same.
#[test]
fn the_next_length_is_known_once_turns_are_settled() {
    let mut pdrr = pdrr(PdrrConfig::default());
    for n in 0..800u32 {
        let _ = put(&mut pdrr, (n % 200) as u16, 100 + n * 7 % 1_400);
    }
    let mut sent = 0;
    loop {
        let told = pdrr.peek_len(NOW);
        pdrr.settle(NOW);
        assert_eq!(pdrr.peek_len(NOW), told, "it is told right either way");
        let packet = pdrr.dequeue(NOW, &mut |p: TestPacket, _| panic!("{p:?} dropped"));
        assert_eq!(packet.as_ref().map(Packet::ip_len), told);
        if packet.is_none() {
            break;
        }
        sent += 1;
    }
    assert_eq!(sent, 800);
}
