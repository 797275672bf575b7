//! PFQ when more comes than the buffer holds: whoever loses packets does not pay for them.

use crate::common::{TestPacket, flow};
use evenkeel_core::schedule::buffer::{Buffer, Victim};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::{Bytes, Class, Nanos, Packet, Scheduler};

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// How long the packets of a flow are.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// All alike.
    Same(u64),
    /// Anything from 64 to 1500 bytes.
    Mixed,
}

impl Lengths {
    fn draw(self, state: &mut u64) -> u64 {
        match self {
            Self::Same(length) => length,
            Self::Mixed => 64 + random(state) % 1_437,
        }
    }
}

/// Flows that send at `offered` times the fair share of a link that carries a byte per unit of
/// time, evenly spaced, whatever is lost. Gives what each gets, in fair shares, after a start.
fn delivered(config: PfqConfig, offered: &[u64], lengths: &[Lengths]) -> Vec<f64> {
    const TIME: u64 = 20_000_000;
    const START: u64 = TIME / 10;
    let mut pfq = Pfq::new(config).unwrap();
    let (mut state, mut id, mut lost) = (1, 0, 0u64);
    let flows = offered.len() as u64;
    let mut next = vec![0; offered.len()];
    let mut bytes = vec![0; offered.len()];
    let mut now = 0;
    while now < TIME {
        // What comes until the wire is free, in the order of time.
        while let Some((at, first)) =
            next.iter().copied().zip(0..).min().filter(|(at, _)| *at <= now)
        {
            let length = lengths[first % lengths.len()].draw(&mut state);
            next[first] = at + length * flows / offered[first];
            id += 1;
            let packet = TestPacket {
                id,
                class: Class(0),
                length: length as u32,
                arrival: Nanos(at),
                flow: flow(first as u8),
                overhead: 0,
                ack: None,
            };
            let _ = pfq.enqueue(Nanos(at), packet, &mut |_, _| lost += 1);
        }
        let Some(packet) = pfq.dequeue(Nanos(now), &mut |_, _| ()) else {
            now += 1;
            continue;
        };
        now += packet.ip_len().0;
        if now > START {
            bytes[usize::from(packet.flow.source_port - 5_000)] += packet.ip_len().0;
        }
    }
    assert!(lost > 1_000, "the buffer overflowed");
    bytes.into_iter().map(|bytes| (bytes * flows) as f64 / (TIME - START) as f64).collect()
}

/// Flow 0 has four packets of 1000 bytes, which fill the buffer, the first with priority; then one
/// of flow 1 comes.
#[test]
fn a_lost_packet_is_taken_out_of_the_tags() {
    // Virtual time as each packet goes: the stamps of flow 0 were 0 (priority), 1000, 2000, 3000.
    let expected = [
        (Victim::Head, 1, [(5, 0), (2, 0), (3, 1_000), (4, 2_000)]),
        (Victim::Tail, 4, [(1, 0), (5, 0), (2, 1_000), (3, 2_000)]),
    ];
    for (victim, loses, order) in expected {
        let buffer = Buffer { victim, ..Buffer::packets(4) };
        let mut pfq =
            Pfq::new(PfqConfig { quantum: Bytes(0), buffer, ..PfqConfig::default() }).unwrap();
        let mut lost = Vec::new();
        for (id, class) in [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1)] {
            let packet = TestPacket { overhead: 0, ..TestPacket::new(id, class, 1_000) };
            let _ = pfq.enqueue(Nanos(1), packet, &mut |p: TestPacket, _| lost.push(p.id));
        }
        assert_eq!(lost, [loses]);
        let hash = TestPacket::new(0, 0, 1).flow_hash();
        assert_eq!(pfq.finish_tag(&flow(0), hash), Some(3_000));
        assert_eq!(
            pfq.meters().priority_bytes,
            Some(Bytes(2_000)),
            "what was taken in stays counted"
        );
        let served = order.map(|_| {
            let packet = pfq.dequeue(Nanos(1), &mut |_, _| ()).unwrap();
            (packet.id, pfq.meters().virtual_time.unwrap())
        });
        assert_eq!(served, order);
    }
}

#[test]
fn flows_that_send_more_than_their_share_get_their_share() {
    let offered = [1, 2, 4, 10, 1, 2, 4, 10];
    let lengths = [
        &[Lengths::Same(1_000)][..],
        &[Lengths::Mixed],
        &[Lengths::Same(1_500), Lengths::Same(300), Lengths::Mixed],
    ];
    let limits = [Buffer::packets(100), Buffer::bytes(Bytes(100_000))];
    for victim in [Victim::Head, Victim::Tail] {
        for (limit, lengths) in limits.into_iter().flat_map(|b| lengths.map(|l| (b, l))) {
            let config = PfqConfig { buffer: Buffer { victim, ..limit }, ..PfqConfig::default() };
            let shares = delivered(config, &offered, lengths);
            for (share, times) in shares.iter().zip(offered) {
                assert!(
                    (share - 1.0).abs() < 0.015,
                    "{victim:?}, {limit:?}, {lengths:?}: {times} times its share: {share}"
                );
            }
        }
    }
}
