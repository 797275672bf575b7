//! PFQ against its published form, taken literally: one list sorted by stamp and a pointer to its
//! last priority packet. What is ours: a dropped packet is taken out of its flow's tags.

use std::collections::BTreeMap;

use crate::common::{TestPacket, flow};
use evenkeel_core::schedule::Treated;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows, Victim};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::{Bytes, Class, Nanos, Packet, Scheduler};
use proptest::prelude::*;

struct Listed {
    finish: u64,
    bytes: u64,
    backlog: u64,
}

/// The push-in-first-out list, with everything found by looking at all of it.
struct Pifo {
    config: PfqConfig,
    list: Vec<(u64, TestPacket)>,
    /// How many packets stand up to and with the pointer.
    pointer: usize,
    virtual_time: u64,
    priority_bytes: u64,
    flows: BTreeMap<u64, Listed>,
}

impl Pifo {
    fn fits(&self, length: u64) -> bool {
        let Buffer { buffer, buffer_bytes, .. } = self.config.buffer;
        match buffer_bytes {
            None => self.list.len() < buffer as usize,
            Some(most) => {
                let held: u64 = self.list.iter().map(|(_, p)| p.wire_len().0).sum();
                held + length <= most.0 && self.list.len() < most.0 as usize / 64
            }
        }
    }

    /// The flow with the longest backlog, that with the smallest hash among equals.
    fn longest(&self) -> Option<u64> {
        let waiting = self.flows.iter().filter(|(_, flow)| flow.backlog > 0);
        waiting
            .max_by(|a, b| a.1.backlog.cmp(&b.1.backlog).then(b.0.cmp(a.0)))
            .map(|(hash, _)| *hash)
    }

    /// Drops a packet of a flow. What the flow has behind it, and what it will send, gets the
    /// stamps it would have had without it.
    fn lose(&mut self, victim: u64) -> u64 {
        let mut of_flow = (0..self.list.len()).filter(|i| self.list[*i].1.flow_hash() == victim);
        let at = match self.config.buffer.victim {
            Victim::Head => of_flow.next(),
            Victim::Tail => of_flow.next_back(),
        };
        let at = at.unwrap();
        let (_, gone) = self.list.remove(at);
        self.pointer -= usize::from(at < self.pointer);
        let behind = at.max(self.pointer);
        for (stamp, _) in self.list[behind..].iter_mut().filter(|(_, p)| p.flow_hash() == victim) {
            *stamp -= gone.wire_len().0;
        }
        self.list[self.pointer..].sort_by_key(|(stamp, p)| (*stamp, p.id));
        let flow = self.flows.get_mut(&victim).unwrap();
        flow.backlog -= gone.wire_len().0;
        flow.finish -= gone.wire_len().0;
        if flow.finish <= self.virtual_time {
            self.flows.remove(&victim);
        }
        gone.id
    }

    fn enqueue(&mut self, packet: TestPacket, dropped: &mut Vec<u64>) -> bool {
        let (hash, length) = (packet.flow_hash(), packet.wire_len().0);
        while !self.fits(length) {
            let Some(victim) = self.longest() else {
                dropped.push(packet.id);
                return false;
            };
            dropped.push(self.lose(victim));
        }
        let list_full = self.flows.len() >= self.config.flows.most() as usize;
        let stamp = match self.flows.get_mut(&hash) {
            Some(flow) => {
                let stamp = (flow.bytes >= self.config.quantum.0).then_some(flow.finish);
                flow.bytes += if stamp.is_none() { length } else { 0 };
                flow.finish += length;
                flow.backlog += length;
                stamp
            }
            None => {
                if !list_full {
                    let flow = Listed {
                        finish: self.virtual_time + length,
                        bytes: length,
                        backlog: length,
                    };
                    self.flows.insert(hash, flow);
                }
                None
            }
        };
        match stamp {
            None => {
                self.list.insert(self.pointer, (self.virtual_time, packet));
                self.pointer += 1;
                self.priority_bytes += length;
                true
            }
            Some(stamp) => {
                let at = self.list.iter().position(|(s, _)| *s > stamp).unwrap_or(self.list.len());
                self.list.insert(at, (stamp, packet));
                false
            }
        }
    }

    fn dequeue(&mut self) -> Option<u64> {
        if self.list.is_empty() {
            return None;
        }
        let (stamp, packet) = self.list.remove(0);
        self.pointer = self.pointer.saturating_sub(1);
        if let Some(flow) = self.flows.get_mut(&packet.flow_hash()) {
            flow.backlog = flow.backlog.saturating_sub(packet.wire_len().0);
        }
        assert!(stamp >= self.virtual_time, "virtual time runs forwards");
        self.virtual_time = stamp;
        self.flows.retain(|_, flow| flow.finish > stamp);
        if self.list.is_empty() {
            self.flows.clear();
        }
        Some(packet.id)
    }
}

/// Packets of a flow that came while the list was full and left after the flow was listed would
/// take off a backlog that they were never part of; flows that came while it was full are not
/// listed before they are gone.
fn is_ambiguous(pifo: &Pifo, packet: &TestPacket, unlisted: &BTreeMap<u64, u64>) -> bool {
    !pifo.flows.contains_key(&packet.flow_hash())
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
        let mut pifo = Pifo {
            config,
            list: Vec::new(),
            pointer: 0,
            virtual_time: 0,
            priority_bytes: 0,
            flows: BTreeMap::new(),
        };
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
                };
                if is_ambiguous(&pifo, &packet, &unlisted) {
                    continue;
                }
                let (mut lost, mut model_lost) = (Vec::new(), Vec::new());
                let treated = pfq.enqueue(Nanos(1), packet.clone(), &mut |p: TestPacket,
                    _| lost.push(p.id));
                let hash = packet.flow_hash();
                let priority = pifo.enqueue(packet, &mut model_lost);
                prop_assert_eq!(&lost, &model_lost);
                let expected = if lost.contains(&(id as u64)) {
                    matches!(treated, Treated::Dropped(_))
                } else {
                    treated == if priority { Treated::Priority } else { Treated::Queued }
                };
                prop_assert!(expected, "{:?}", treated);
                if priority && !pifo.flows.contains_key(&hash) {
                    *unlisted.entry(hash).or_default() += 1;
                    orphans.insert(id as u64, hash);
                }
            } else {
                let sent = pfq.dequeue(Nanos(1), &mut |_, _| ()).map(|p| p.id);
                prop_assert_eq!(sent, pifo.dequeue());
                if let Some(hash) = sent.and_then(|id| orphans.remove(&id)) {
                    *unlisted.get_mut(&hash).unwrap() -= 1;
                }
            }
            let meters = pfq.meters();
            prop_assert_eq!(meters.virtual_time, Some(pifo.virtual_time));
            prop_assert_eq!(meters.priority_bytes, Some(Bytes(pifo.priority_bytes)));
            prop_assert_eq!(meters.flows, Some(pifo.flows.len() as u32));
            prop_assert_eq!(meters.backlog.packets, pifo.list.len() as u64);
            for number in 0..12 {
                let key = flow(number);
                let hash = u64::from(key.source_port % 64);
                let backlog = pifo.flows.get(&hash).map_or(0, |flow| flow.backlog);
                prop_assert_eq!(pfq.flow_backlog(&key, hash), Bytes(backlog));
                prop_assert_eq!(pfq.finish_tag(&key, hash),
                    pifo.flows.get(&hash).map(|flow| flow.finish));
            }
        }
    }
}
