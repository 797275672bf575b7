//! PFQ against its published form, step by step: each packet that it gives must be one that the
//! published list would give, but for the grain in which it tells stamps apart; everything else is
//! the same exactly.
//!
//! The bound is two grains. One is that of a bucket, within which stamps are not told apart. The
//! other: a flow of which nothing waits stands a bucket behind its tag, so that of equal stamps
//! what waits goes first, as published. At its tag itself one grain would hold, but where packets
//! are of one length nearly all stamps are equal, and whoever was new would go before them.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{TestPacket, flow};
use evenkeel_core::reference::ExactPfq;
use evenkeel_core::schedule::Treated;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows, Victim};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet, Scheduler};
use proptest::prelude::*;

/// The grain of stamps, bytes.
const GRAIN: u64 = 32;

/// The list as it is published, made to follow what PFQ does.
struct Law {
    exact: ExactPfq<TestPacket>,
    /// Flows that lost packets with priority and have not caught up since: they may be late.
    late: BTreeSet<u64>,
}

impl Law {
    /// PFQ has dropped the packet with this number: of a flow whose backlog is the longest to a
    /// thirty-second.
    fn lost(&mut self, id: u64) -> Result<(), TestCaseError> {
        let at = self.exact.list().iter().position(|(_, packet)| packet.id == id);
        let at = at.expect("what is dropped has come in");
        let hash = self.exact.list()[at].1.flow_hash();
        let longest = self.exact.flows().values().map(|flow| flow.backlog).max().unwrap();
        let backlog = self.exact.flows()[&hash].backlog;
        prop_assert!(backlog + longest / 32 >= longest, "{} of {}", backlog, longest);
        if at < self.exact.priority_packets() {
            self.late.insert(hash);
        }
        prop_assert_eq!(self.exact.shed(hash).map(|packet| packet.id), Some(id));
        Ok(())
    }

    /// Takes off the list what PFQ has `forgotten`, as far as it may.
    fn forget(&mut self, forgotten: impl Fn(&FlowKey, u64) -> bool) {
        for (key, hash) in (0..12).map(flow).map(|key| (key, u64::from(key.source_port % 64))) {
            let listed = self.exact.flows().get(&hash);
            if listed.is_some_and(|flow| flow.backlog == 0) && forgotten(&key, hash) {
                self.exact.unlist(hash);
            }
        }
    }

    /// PFQ has given the packet with this number.
    fn given(&mut self, id: u64) -> Result<(), TestCaseError> {
        let list = self.exact.list();
        let at = list.iter().position(|(_, packet)| packet.id == id).expect("it waits");
        if self.exact.priority_packets() > 0 {
            prop_assert_eq!(at, 0, "priority packets go first, in their order");
        }
        let (stamp, packet) = &list[at];
        let hash = packet.flow_hash();
        prop_assert!(list[..at].iter().all(|(_, before)| before.flow_hash() != hash));
        let on_time = |packet: &TestPacket| !self.late.contains(&packet.flow_hash());
        let first = list.iter().find(|(_, packet)| on_time(packet)).map_or(*stamp, |first| first.0);
        prop_assert!(*stamp < first + 2 * GRAIN, "{} before {}", stamp, first);
        // Virtual time may have passed the next one too.
        let next = *stamp + packet.wire_len().0;
        if self.exact.priority_packets() == 0 && next >= self.exact.virtual_time() {
            self.late.remove(&hash);
        }
        self.exact.dequeue_at(at);
        if self.exact.list().is_empty() {
            self.late.clear();
        }
        Ok(())
    }
}

/// Packets of a flow that came while the list was full and left after the flow was listed would
/// take off a backlog that they were never part of; flows that came while it was full are not
/// listed before they are gone.
fn is_ambiguous(
    exact: &ExactPfq<TestPacket>,
    packet: &TestPacket,
    unlisted: &BTreeMap<u64, u64>,
) -> bool {
    !exact.flows().contains_key(&packet.flow_hash())
        && unlisted.get(&packet.flow_hash()).is_some_and(|waiting| *waiting > 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_is_a_pifo_with_a_pointer(
        quantum in prop_oneof![Just(0u64), Just(1_500), 0u64..4_000],
        limit in prop_oneof![
            (1u32..60).prop_map(Buffer::packets),
            (1_538u64..60_000).prop_map(|bytes| Buffer::bytes(Bytes(bytes))),
        ],
        tail in any::<bool>(),
        flows in prop_oneof![1u32..6, Just(100)],
        steps in prop::collection::vec((0u8..20, 0u8..12, prop_oneof![20u32..1_500, Just(1_000)]),
            1..400),
    ) {
        let victim = if tail { Victim::Tail } else { Victim::Head };
        let (buffer, flows) = (Buffer { victim, ..limit }, KnownFlows::up_to(flows));
        let quantum = Bytes(quantum);
        let config = PfqConfig { quantum, buffer, flows, ..PfqConfig::default() };
        let mut pfq = Pfq::new(config).unwrap();
        let mut law = Law { exact: ExactPfq::new(quantum, victim), late: BTreeSet::new() };
        let mut priority_bytes = 0;
        // Packets that wait of flows without a place, by flow.
        let mut unlisted: BTreeMap<u64, u64> = BTreeMap::new();
        let mut orphans: BTreeMap<u64, u64> = BTreeMap::new();
        for (id, (op, number, length)) in steps.into_iter().enumerate() {
            if op < 11 {
                let packet = TestPacket {
                    id: id as u64,
                    class: Class(0),
                    length,
                    arrival: Nanos(id as u64),
                    flow: flow(number),
                    overhead: 38,
                    ack: None,
                };
                if is_ambiguous(&law.exact, &packet, &unlisted) {
                    continue;
                }
                let hash = packet.flow_hash();
                let mut lost = Vec::new();
                let drop = &mut |p: TestPacket, _| lost.push(p.id);
                let treated = pfq.enqueue(Nanos(1), packet.clone(), drop);
                if let Treated::Dropped(_) = treated {
                    prop_assert_eq!(lost.pop(), Some(id as u64));
                }
                // Room was made before.
                for lost in lost {
                    law.lost(lost)?;
                }
                let fits = match limit.buffer_bytes {
                    None => law.exact.list().len() < limit.buffer as usize,
                    Some(most) => {
                        let list = law.exact.list();
                        let held: u64 = list.iter().map(|(_, p)| p.wire_len().0).sum();
                        held + packet.wire_len().0 <= most.0 && list.len() < most.0 as usize / 64
                    }
                };
                prop_assert_eq!(fits, !matches!(treated, Treated::Dropped(_)));
                if fits {
                    let length = packet.wire_len().0;
                    let listed = pfq.finish_tag(&packet.flow, hash).is_some();
                    let priority = law.exact.enqueue(packet, listed);
                    let expected = if priority { Treated::Priority } else { Treated::Queued };
                    prop_assert_eq!(treated, expected);
                    priority_bytes += if priority { length } else { 0 };
                    if priority && !listed {
                        *unlisted.entry(hash).or_default() += 1;
                        orphans.insert(id as u64, hash);
                    }
                }
            } else {
                let peeked = pfq.peek_len(Nanos(1));
                if op % 2 == 0 {
                    pfq.settle(Nanos(1));
                    prop_assert_eq!(pfq.peek_len(Nanos(1)), peeked);
                }
                let sent = pfq.dequeue(Nanos(1), &mut |_, _| ());
                prop_assert_eq!(sent.as_ref().map(Packet::ip_len), peeked);
                prop_assert_eq!(sent.is_none(), law.exact.list().is_empty());
                if let Some(sent) = &sent {
                    law.given(sent.id)?;
                }
                if let Some(hash) = sent.and_then(|sent| orphans.remove(&sent.id)) {
                    *unlisted.get_mut(&hash).unwrap() -= 1;
                }
            }
            if flows.most() < 12 {
                // The full list may forget a flow of which nothing waits too early.
                law.forget(|flow, hash| pfq.finish_tag(flow, hash).is_none());
            }
            let (meters, exact) = (pfq.meters(), &law.exact);
            prop_assert_eq!(meters.virtual_time, Some(exact.virtual_time()));
            prop_assert_eq!(meters.priority_bytes, Some(Bytes(priority_bytes)));
            prop_assert_eq!(meters.backlog.packets, exact.list().len() as u64);
            let most = flows.most().min(12);
            prop_assert!(meters.flows.is_some_and(|flows| flows <= most));
            for number in 0..12 {
                let key = flow(number);
                let hash = u64::from(key.source_port % 64);
                let listed = exact.flows().get(&hash);
                let backlog = listed.map_or(0, |flow| flow.backlog);
                prop_assert_eq!(pfq.flow_backlog(&key, hash), Bytes(backlog));
                prop_assert_eq!(pfq.finish_tag(&key, hash), listed.map(|flow| flow.finish));
            }
        }
    }

    /// Whatever their packets, flows that always have some get the same over any time, but for a
    /// longest packet of each and two grains; from the published list, but for a longest packet of
    /// each.
    #[test]
    fn flows_that_always_wait_get_the_same_within_the_bound(
        flows in 2u8..9,
        lengths in prop::collection::vec(64u32..1_500, 40..400),
    ) {
        let config = PfqConfig { buffer: Buffer::packets(10_000), ..PfqConfig::default() };
        let mut pfq = Pfq::new(config).unwrap();
        let mut exact = ExactPfq::new(config.quantum, Victim::Head);
        let longest = u64::from(*lengths.iter().max().unwrap()) + 38;
        for (id, length) in lengths.iter().enumerate() {
            for number in 0..flows {
                let packet = TestPacket {
                    id: id as u64,
                    class: Class(0),
                    // Each in an order of its own.
                    length: lengths[(id * usize::from(2 * number + 1)) % lengths.len()],
                    arrival: Nanos(1),
                    flow: flow(number),
                    overhead: 38,
                    ack: None,
                };
                prop_assert!(*length > 0);
                let _ = pfq.enqueue(Nanos(1), packet.clone(), &mut |_, _| panic!("it has room"));
                let _ = exact.enqueue(packet, true);
            }
        }
        let spread = |next: &mut dyn FnMut() -> Option<TestPacket>| {
            let mut got = vec![0i64; usize::from(flows)];
            let mut left = vec![lengths.len(); usize::from(flows)];
            // The range of the difference between any two, while both wait.
            let mut ranges = vec![vec![(i64::MAX, i64::MIN); got.len()]; got.len()];
            while let Some(packet) = next() {
                let of = usize::from(packet.flow.source_port - flow(0).source_port);
                got[of] += packet.wire_len().0 as i64;
                left[of] -= 1;
                if left.contains(&0) {
                    break;
                }
                // While packets go that came with priority nobody waits for a turn.
                if left.iter().any(|left| lengths.len() - left < 40) {
                    continue;
                }
                for (a, row) in ranges.iter_mut().enumerate() {
                    for (b, range) in row.iter_mut().enumerate() {
                        let difference = got[a] - got[b];
                        *range = (range.0.min(difference), range.1.max(difference));
                    }
                }
            }
            let width = |range: &(i64, i64)| range.1.saturating_sub(range.0).max(0) as u64;
            ranges.iter().flatten().map(width).max().unwrap_or(0)
        };
        let widest = spread(&mut || pfq.dequeue(Nanos(1), &mut |_, _| ()));
        prop_assert!(widest <= 2 * longest + 2 * GRAIN, "{} of {}", widest, longest);
        let widest = spread(&mut || exact.dequeue());
        prop_assert!(widest <= 2 * longest, "{} of {}", widest, longest);
    }
}
