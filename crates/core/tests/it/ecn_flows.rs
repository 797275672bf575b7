//! Flows that listen to marks, over a link of PDRR or PFQ with an AQM: none of their packets is
//! lost to it, and who listens gains nothing by it.
//!
//! Senders are windows that acknowledgements move: +1 packet in a round trip; a classic one
//! (ECT(0)) halves at most once in a round trip, a scalable one (ECT(1)) gives half of the part of
//! its packets that were marked (DCTCP, RFC 8257), one that does not listen halves by losses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::common::TestPacket;
use evenkeel_core::aqm::elastic::{ElasticAqm, Now, Pace};
use evenkeel_core::aqm::{AqmConfig, Codel, Round, Verdict};
use evenkeel_core::link::{Link, LinkConfig, LinkSink};
use evenkeel_core::packet::Ecn;
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Reason};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Sent {
    inner: TestPacket,
    flow: usize,
    ecn: Ecn,
    marked: bool,
}

impl Packet for Sent {
    fn ip_len(&self) -> Bytes {
        self.inner.ip_len()
    }
    fn wire_len(&self) -> Bytes {
        self.inner.wire_len()
    }
    fn class(&self) -> Class {
        self.inner.class()
    }
    fn flow(&self) -> FlowKey {
        self.inner.flow()
    }
    fn flow_hash(&self) -> u64 {
        self.inner.flow_hash()
    }
    fn arrival(&self) -> Nanos {
        self.inner.arrival()
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn mark(&mut self) {
        assert!(self.ecn.listens(), "who does not listen is not marked");
        self.marked = true;
    }
    fn is_marked(&self) -> bool {
        self.marked
    }
}

#[derive(Default)]
struct Out {
    left: Vec<(Nanos, usize, bool)>,
    lost: Vec<(usize, Reason)>,
}

impl LinkSink<Sent> for Out {
    fn transmitted(&mut self, at: Nanos, packet: Sent) {
        self.left.push((at, packet.flow, packet.marked));
    }
    fn dropped(&mut self, _at: Nanos, packet: Sent, reason: Reason) {
        self.lost.push((packet.flow, reason));
    }
}

struct Flow {
    ecn: Ecn,
    window: f64,
    flying: u32,
    slow_start: bool,
    reduced: Nanos,
    alpha: f64,
    acked: f64,
    marks: f64,
    /// In the second half of the run.
    sent: u64,
    marked: u64,
    lost: u64,
}

impl Flow {
    fn new(ecn: Ecn) -> Self {
        Self {
            ecn,
            window: 4.0,
            flying: 0,
            slow_start: true,
            reduced: Nanos::ZERO,
            alpha: 1.0,
            acked: 0.0,
            marks: 0.0,
            sent: 0,
            marked: 0,
            lost: 0,
        }
    }

    fn answered(&mut self, now: Nanos, rtt: Nanos, told: bool) {
        self.flying -= 1;
        (self.acked, self.marks) = (self.acked + 1.0, self.marks + f64::from(u8::from(told)));
        let round = now.saturating_sub(self.reduced) > rtt;
        if self.ecn == Ecn::Scalable {
            if round && self.acked > 0.0 {
                let part = self.marks / self.acked;
                self.alpha += (part - self.alpha) / 16.0;
                if self.marks > 0.0 {
                    self.slow_start = false;
                    self.window *= 1.0 - self.alpha / 2.0;
                }
                (self.acked, self.marks, self.reduced) = (0.0, 0.0, now);
            }
        } else if told && round {
            (self.window, self.slow_start, self.reduced) = (self.window / 2.0, false, now);
        }
        if !told {
            self.window += if self.slow_start { 1.0 } else { 1.0 / self.window };
        }
        self.window = self.window.max(2.0);
    }
}

/// 20 s at 40 Mbit/s and 20 ms; what came of each flow, and the part of the link that was used.
fn run(discipline: &DisciplineConfig, kinds: &[Ecn]) -> (Vec<Flow>, f64) {
    let (rate, rtt) = (BitRate::from_mbps(40), Nanos::from_millis(20));
    let scheduler: AnyScheduler<Sent> = discipline.build(1).unwrap();
    let mut link = Link::new(LinkConfig::paced(rate), scheduler, 1).unwrap();
    let mut flows: Vec<_> = kinds.iter().map(|ecn| Flow::new(*ecn)).collect();
    let mut events: BinaryHeap<Reverse<(Nanos, u64, usize, bool)>> = BinaryHeap::new();
    let (mut number, mut now) = (0, Nanos::from_millis(1));
    let (half, end) = (Nanos::from_secs(10), Nanos::from_secs(20));
    while now < end {
        let mut out = Out::default();
        link.advance(now, &mut out);
        while let Some(Reverse((at, _, flow, told))) = events.peek().copied()
            && at <= now
        {
            events.pop();
            flows[flow].answered(now, rtt, told);
        }
        for (at, flow) in flows.iter_mut().enumerate() {
            while f64::from(flow.flying) < flow.window.floor() {
                flow.flying += 1;
                number += 1;
                let inner =
                    TestPacket { arrival: now, ..TestPacket::new(number, at as u16, 1_500) };
                let sent = Sent { inner, flow: at, ecn: flow.ecn, marked: false };
                let _ = link.enqueue(now, sent, &mut out);
            }
        }
        for (at, flow, marked) in out.left {
            number += 1;
            events.push(Reverse((at + rtt, number, flow, marked)));
            if at >= half {
                flows[flow].sent += 1;
                flows[flow].marked += u64::from(marked);
            }
        }
        for (flow, _) in out.lost {
            number += 1;
            events.push(Reverse((now + rtt, number, flow, true)));
            flows[flow].lost += u64::from(now >= half);
        }
        let next = events.peek().map(|Reverse((at, ..))| *at).into_iter().chain(link.next_wake());
        now = next.min().unwrap_or(end).max(now + Nanos(1));
    }
    let sent: u64 = flows.iter().map(|flow| flow.sent).sum();
    let used = sent as f64 * 1_538.0 * 8.0 / (rate.0 as f64 * 10.0);
    (flows, used)
}

fn disciplines() -> [DisciplineConfig; 2] {
    let buffer = Buffer { max_delay: Some(Nanos::from_millis(50)), ..Buffer::packets(4_096) };
    let aqm = ElasticAqm::cobalt();
    [
        DisciplineConfig::Pdrr(PdrrConfig { buffer, aqm, ..PdrrConfig::default() }),
        DisciplineConfig::Pfq(PfqConfig { buffer, aqm, ..PfqConfig::default() }),
    ]
}

#[test]
fn who_listens_is_marked_and_loses_nothing() {
    for discipline in disciplines() {
        for ecn in [Ecn::Classic, Ecn::Scalable] {
            let (flows, used) = run(&discipline, &[ecn; 4]);
            let lost: u64 = flows.iter().map(|flow| flow.lost).sum();
            let marked: u64 = flows.iter().map(|flow| flow.marked).sum();
            assert!(lost == 0 && marked > 20, "{ecn:?}: {lost} lost, {marked} marked");
            assert!(used > 0.95, "{ecn:?}: {used}");
        }
        let (flows, _) = run(&discipline, &[Ecn::NotCapable; 4]);
        assert!(flows.iter().all(|flow| flow.lost > 0 && flow.marked == 0));
    }
}

/// Who listens gains and loses nothing by it. L4S flows, whose senders here have no pacing, do not
/// fill their share beside flows that always wait: each burst of two waits for more than the step.
#[test]
fn classic_and_deaf_flows_share_alike_and_l4s_takes_nothing_from_them() {
    let kinds = [Ecn::Scalable, Ecn::Classic, Ecn::NotCapable, Ecn::Scalable, Ecn::Classic];
    for discipline in disciplines() {
        let (flows, used) = run(&discipline, &kinds);
        let sent = |scalable: bool| {
            let of_kind = flows.iter().filter(|flow| (flow.ecn == Ecn::Scalable) == scalable);
            of_kind.map(|flow| flow.sent as f64).collect::<Vec<_>>()
        };
        let (scalable, others) = (sent(true), sent(false));
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        assert!(others.iter().all(|x| (x / mean - 1.0).abs() < 0.1), "{others:?}");
        assert!(scalable.iter().all(|x| x / mean > 0.3 && x / mean < 1.05), "{scalable:?} {mean}");
        assert!(used > 0.97, "{used}");
    }
}

/// What a clock may show: anything, or a little more than before.
fn clock() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![any::<u64>(), 0u64..200_000_000];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever clocks, targets and packets are: nothing overflows, who listens is not dropped by
    /// the law, and the last packet of a queue never is.
    #[test]
    fn any_clock_is_survived(
        times in clock(),
        (target, interval, step) in
            (10_000u64..2_000_000_000, 100_000u64..10_000_000_000, any::<u64>()),
        packets in any::<u64>(),
        queues in any::<u64>(),
    ) {
        let law = AqmConfig { target: Nanos(target), interval: Nanos(interval), ecn: true };
        let config = ElasticAqm { law, step: Nanos(step), ..ElasticAqm::cobalt() };
        let (mut queue, mut now) = (Codel::NEW, 0u64);
        for (at, time) in times.into_iter().enumerate() {
            now = now.wrapping_add(time);
            let pace = Pace { packets: Nanos(packets), ..Pace::default() };
            let judge = Now::new(&config, pace, queues, Nanos(now));
            if at % 7 == 0 {
                judge.overflowed(&mut queue);
            }
            let mut round = Round::default();
            for left in [60_000u64, 1_500, 0] {
                let ecn = Ecn::from_bits((time >> 3) as u8);
                let found = (Nanos(now.saturating_sub(time)), Bytes(left), ecn);
                let (verdict, blue) = judge.judge(&mut queue, &mut round, found, time as u32);
                prop_assert!(verdict != Verdict::Drop || left > 0);
                prop_assert!(verdict != Verdict::Mark || ecn.listens());
                prop_assert!(verdict != Verdict::Drop || blue || !ecn.listens());
                if verdict != Verdict::Drop {
                    break;
                }
            }
            if at % 5 == 0 {
                judge.emptied(&mut queue);
            }
        }
    }
}
