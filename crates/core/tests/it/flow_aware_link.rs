//! PFQ, PDRR and AFAN on a link in virtual time: greedy flows and streams at 10 Mbit/s, ring of
//! one.
//!
//! Lengths count at IP level on the wire too, so that the law of the fair rate is exact: FR = (C -
//! R_stream) / n.

use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::link::{Link, LinkConfig, LinkSink, Refill, RingConfig};
use evenkeel_core::schedule::afan::{Afan, AfanConfig, Afd};
use evenkeel_core::schedule::buffer::KnownFlows;
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::{AnyScheduler, Treated};
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Reason, Scheduler};

const RATE: BitRate = BitRate(10_000_000);
/// The published quantum, of IP packets.
const MTU: Bytes = Bytes(1_500);
const GREEDY_LEN: u64 = 1_000;
/// Packets that a greedy flow keeps in the link.
const WINDOW: usize = 8;
const STREAM_LEN: u64 = 100;
const STREAM_SPACING: u64 = 10_000_000;
const T_FR: Nanos = Nanos(500_000_000);

#[derive(Clone, Debug)]
struct Sent {
    flow: usize,
    length: u64,
    arrival: Nanos,
    key: FlowKey,
}

impl Packet for Sent {
    fn ip_len(&self) -> Bytes {
        Bytes(self.length)
    }
    fn wire_len(&self) -> Bytes {
        Bytes(self.length)
    }
    fn class(&self) -> Class {
        Class(0)
    }
    fn flow(&self) -> FlowKey {
        self.key
    }
    fn flow_hash(&self) -> u64 {
        self.flow as u64
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
}

fn sent(flow: usize, length: u64, arrival: Nanos) -> Sent {
    let address = |n: usize| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n as u32));
    let key = FlowKey {
        source: address(flow),
        destination: address(0x1_0000),
        protocol: 17,
        source_port: 1,
        destination_port: 2,
        flow_label: 0,
    };
    Sent { flow, length, arrival, key }
}

#[derive(Default)]
struct Out {
    sent: Vec<(Nanos, Sent)>,
    dropped: Vec<(Sent, Reason)>,
}

impl LinkSink<Sent> for Out {
    fn transmitted(&mut self, at: Nanos, packet: Sent) {
        self.sent.push((at, packet));
    }
    fn dropped(&mut self, _: Nanos, packet: Sent, reason: Reason) {
        self.dropped.push((packet, reason));
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn discipline(name: &str, start_limit: Option<Bytes>) -> AnyScheduler<Sent> {
    let flows = KnownFlows { start_limit, ..KnownFlows::default() };
    match name {
        "pfq" => AnyScheduler::Pfq(
            Pfq::new(PfqConfig { quantum: MTU, flows, ..PfqConfig::default() }).unwrap(),
        ),
        "pdrr" => AnyScheduler::Pdrr(
            Pdrr::new(PdrrConfig { quantum: MTU, flows, ..PdrrConfig::default() }).unwrap(),
        ),
        "afan" => AnyScheduler::Afan(
            Afan::new(AfanConfig { quantum: MTU, flows, ..AfanConfig::default() }).unwrap(),
        ),
        other => panic!("{other}"),
    }
}

/// An AFAN whose elastic queue is steered to several packets of each of a hundred flows: a greedy
/// flow that has none there starts anew, with priority.
fn roomy_afan() -> AnyScheduler<Sent> {
    let afd = Afd { target: Some(400), ..Afd::default() };
    AnyScheduler::Afan(
        Afan::new(AfanConfig { quantum: MTU, afd, ..AfanConfig::default() }).unwrap(),
    )
}

fn link(scheduler: AnyScheduler<Sent>) -> Link<Sent, AnyScheduler<Sent>> {
    let ring = RingConfig { slots: 1, refill: Refill::AnySlot };
    Link::new(LinkConfig { ring, ..LinkConfig::paced(RATE) }, scheduler, 1).unwrap()
}

/// What was seen of a run. Rates in Mbit/s, delays in nanoseconds.
struct Seen {
    /// One estimate of the fair rate per `T_FR`, not clipped, the first left out.
    fair: Vec<f64>,
    /// Share of priority bytes after the first second.
    priority_load: f64,
    /// Bytes of each flow after the first second; greedy ones come first.
    bytes: Vec<u64>,
    /// Delays of stream packets that came in the first second, and later.
    early: Vec<u64>,
    delays: Vec<u64>,
}

impl Seen {
    fn mean(&self) -> f64 {
        self.fair.iter().sum::<f64>() / self.fair.len() as f64
    }

    fn p99(&self) -> u64 {
        let mut sorted = self.delays.clone();
        sorted.sort_unstable();
        sorted[sorted.len() * 99 / 100]
    }

    fn mean_delay(&self) -> f64 {
        self.delays.iter().sum::<u64>() as f64 / self.delays.len() as f64
    }
}

/// Greedy flows that start together, and streams of 80 kbit/s with random phases, for some seconds.
fn run(scheduler: AnyScheduler<Sent>, greedy: usize, streams: usize, seconds: u64) -> Seen {
    let mut link = link(scheduler);
    let mut out = Out::default();
    let mut seen = Seen {
        fair: Vec::new(),
        priority_load: 0.0,
        bytes: vec![0; greedy + streams],
        early: Vec::new(),
        delays: Vec::new(),
    };
    let mut state = 0x5eed ^ (greedy * 1_000 + streams) as u64;
    let mut due: BinaryHeap<_> = (greedy..greedy + streams)
        .map(|flow| (std::cmp::Reverse(random(&mut state) % STREAM_SPACING), flow))
        .collect();
    for flow in 0..greedy {
        for _ in 0..WINDOW {
            let _ = link.enqueue(Nanos::ZERO, sent(flow, GREEDY_LEN, Nanos::ZERO), &mut out);
        }
    }
    let mut again = VecDeque::new();
    let mut last = (Nanos::ZERO, 0);
    let mut estimate = T_FR;
    let mut at_second = 0;
    let end = Nanos::from_secs(seconds);
    loop {
        let stream = due.peek().map_or(Nanos::MAX, |(at, _)| Nanos(at.0));
        let now = link.next_wake().unwrap_or(Nanos::MAX).min(stream).min(estimate);
        link.advance(now, &mut out);
        // What is dropped, by AFAN or because many windows fill the buffer, comes again behind the
        // next packets sent.
        for (packet, reason) in out.dropped.drain(..) {
            let known =
                matches!(reason, Reason::FairShare | Reason::LongestFlow | Reason::QueueFull);
            assert!(packet.flow < greedy && known, "{packet:?} {reason}");
            again.push_back(packet.flow);
        }
        for (at, packet) in core::mem::take(&mut out.sent) {
            if let Some(flow) = again.pop_front() {
                let _ = link.enqueue(at, sent(flow, GREEDY_LEN, at), &mut out);
            }
            if packet.flow < greedy {
                let _ = link.enqueue(at, sent(packet.flow, GREEDY_LEN, at), &mut out);
            } else {
                let delays =
                    if packet.arrival < Nanos::SECOND { &mut seen.early } else { &mut seen.delays };
                delays.push(at.0 - packet.arrival.0);
            }
            if at >= Nanos::SECOND {
                seen.bytes[packet.flow] += packet.length;
            }
        }
        if now == stream {
            let (_, flow) = due.pop().unwrap();
            due.push((std::cmp::Reverse(now.0 + STREAM_SPACING), flow));
            let _ = link.enqueue(now, sent(flow, STREAM_LEN, now), &mut out);
        }
        if now == estimate {
            let meters = link.scheduler().meters();
            let (idle, fair) = (link.idle_time(now), meters.fair_bytes.unwrap().0);
            let by_idle = (idle - last.0).0 as f64 * RATE.0 as f64 / 1e9;
            let rate = by_idle.max((fair - last.1) as f64 * 8.0) / 0.5 / 1e6;
            if estimate > T_FR {
                seen.fair.push(rate);
            }
            if now == Nanos::SECOND {
                at_second = meters.priority_bytes.unwrap().0;
            }
            last = (idle, fair);
            estimate += T_FR;
            if now >= end {
                let bits = (meters.priority_bytes.unwrap().0 - at_second) as f64 * 8.0;
                seen.priority_load = bits / (RATE.0 as f64 * (seconds - 1) as f64);
                return seen;
            }
        }
    }
}

#[test]
fn v5_steady_state() {
    // Greedy flows, streams, then (min, max) of estimates: PFQ, PDRR; of all but the first.
    let rows = [
        (1, 0, [(9.984, 10.016), (9.984, 10.032)]),
        (4, 0, [(2.496, 2.512), (2.496, 2.520)]),
        (4, 5, [(2.384, 2.416), (2.376, 2.424)]),
        (21, 0, [(0.464, 0.480), (0.456, 0.480)]),
        (50, 5, [(0.184, 0.200), (0.168, 0.216)]),
    ];
    for (greedy, streams, spreads) in rows {
        let stream_rate = streams as f64 * 0.08;
        let law = (10.0 - stream_rate) / greedy as f64;
        for (name, (min, max)) in ["pfq", "pdrr"].into_iter().zip(spreads) {
            let seen = run(discipline(name, None), greedy, streams, 20);
            let case = format!("{name}, {greedy} greedy, {streams} streams");
            assert!((seen.mean() - law).abs() <= 0.004 * law, "{case}: mean {}", seen.mean());
            for fair in &seen.fair {
                assert!(*fair > min - 1e-6 && *fair < max + 1e-6, "{case}: {fair}");
            }
            let load = stream_rate / 10.0;
            assert!(
                (seen.priority_load - load).abs() < 0.0005,
                "{case}: PL {}",
                seen.priority_load
            );
            let elastic = &seen.bytes[..greedy];
            let (least, most) = (elastic.iter().min().unwrap(), elastic.iter().max().unwrap());
            // A round of packets either way at the ends of the measurement.
            assert!(most - least <= *most / 500 + 2 * GREEDY_LEN, "{case}: {least} to {most}");
            if streams > 0 {
                assert!(seen.mean_delay() <= 700_000.0, "{case}: {}", seen.mean_delay());
            }
        }
    }
}

#[test]
fn the_law_of_the_fair_rate_holds_over_a_sweep() {
    for (greedy, streams) in [(2, 20), (8, 62), (16, 10), (30, 40), (60, 20), (100, 0)] {
        let law = (10.0 - streams as f64 * 0.08) / greedy as f64;
        // n * 8 Q / (C T) <= 0.5 %.
        let seconds = 2 + (greedy as u64 * 8 * 1_500 * 200).div_ceil(RATE.0).max(4);
        for name in ["pfq", "pdrr"] {
            let seen = run(discipline(name, None), greedy, streams, seconds);
            let error = seen.mean() / law - 1.0;
            assert!(
                error.abs() <= 0.01,
                "{name}, {greedy} greedy, {streams} streams: {}",
                seen.mean()
            );
        }
    }
}

#[test]
fn streams_wait_for_one_packet_whatever_the_greedy_flows() {
    let most = RATE.time_for(Bytes(GREEDY_LEN)).0 + 500_000;
    // Up to half of the capacity in streams, whose own 80 kbit/s go up to 92 % of the fair rate.
    let cases = [
        (1, 5),
        (10, 5),
        (60, 5),
        (100, 5),
        (110, 5),
        (1, 62),
        (10, 62),
        (30, 62),
        (50, 62),
        (58, 62),
    ];
    let cases = ["pfq", "pdrr", "afan"].into_iter().flat_map(|name| cases.map(|case| (name, case)));
    // With 4 places of its elastic queue for each greedy flow AFAN finds many of them without a
    // packet there.
    for (name, (greedy, streams)) in
        cases.filter(|(name, (greedy, _))| *name != "afan" || *greedy < 100)
    {
        let fair = (10.0 - streams as f64 * 0.08) / greedy as f64;
        assert!(fair > 0.08, "these are no streams: {greedy} greedy, {streams} streams");
        let scheduler = if name == "afan" { roomy_afan() } else { discipline(name, None) };
        let seen = run(scheduler, greedy, streams, 6);
        assert!(
            seen.p99() <= most,
            "{name}, {greedy} greedy, {streams} streams: {} ns",
            seen.p99()
        );
    }
}

#[test]
fn the_peak_of_a_common_start_is_brought_down() {
    for name in ["pfq", "pdrr", "afan"] {
        let peak = |limit| *run(discipline(name, limit), 50, 5, 2).early.iter().max().unwrap();
        let (published, limited) = (peak(None), peak(Some(Bytes(3_000))));
        // A quantum each of 1000-byte packets: 40 ms for one packet of each flow, 80 ms for two.
        assert!(published > 20_000_000, "{name}: {published}");
        // 3000 bytes, a packet on the wire, a few other streams.
        assert!(limited < 4_000_000, "{name}: {limited} ns, {published} ns as published");
        println!(
            "{name}: longest delay of a stream at the start {published} ns, with a limit of 3000 \
             bytes {limited} ns"
        );
    }
}

/// Poisson arrivals of 1000-byte packets at these rates in bit/s for 60 s; goodput in Mbit/s and
/// the mean of the queue.
fn afd_alone(offered: &[u64]) -> (Vec<f64>, f64, usize) {
    // No packet of 1000 bytes fits into this quantum: nothing has priority. The published target.
    let afd = Afd { target: Some(50), ..Afd::default() };
    let config = AfanConfig { quantum: Bytes(256), afd, ..AfanConfig::default() };
    let mut link = link(AnyScheduler::Afan(Afan::new(config).unwrap()));
    let mut out = Out::default();
    let mut state = 7;
    let mut next = |flow: usize, now: u64| {
        let uniform = (random(&mut state) as f64 + 1.0) / 2f64.powi(31);
        (std::cmp::Reverse(now + (-uniform.ln() * 8e12 / offered[flow] as f64) as u64), flow)
    };
    let mut due: BinaryHeap<_> = (0..offered.len()).map(|flow| next(flow, 0)).collect();
    let (mut queue, mut steps) = (0, 0);
    let mut look = Nanos::ZERO;
    let end = Nanos::from_secs(60);
    while let Some((std::cmp::Reverse(now), flow)) = due.pop() {
        let now = Nanos(now);
        if now >= end {
            break;
        }
        while look <= now {
            link.advance(look, &mut out);
            queue += link.scheduler().meters().backlog.packets;
            steps += 1;
            look += Nanos(5_000_000);
        }
        assert_ne!(link.enqueue(now, sent(flow, GREEDY_LEN, now), &mut out), Treated::Priority);
        due.push(next(flow, now.0));
    }
    let mut rates = vec![0.0; offered.len()];
    for (_, packet) in &out.sent {
        rates[packet.flow] += packet.length as f64 * 8.0 / 60e6;
    }
    (rates, queue as f64 / f64::from(steps), out.dropped.len())
}

#[test]
fn v6_approximate_fair_dropping() {
    let mega = 1_000_000;
    let near = |rates: &[f64], wanted: &[f64], tolerance: f64| {
        for (rate, wanted) in rates.iter().zip(wanted) {
            assert!((rate / wanted - 1.0).abs() <= tolerance, "{rates:?}, wanted {wanted}");
        }
    };
    let (rates, queue, _) = afd_alone(&[mega, 2 * mega, 3 * mega, 4 * mega, 5 * mega]);
    near(&rates, &[1.02, 1.96, 2.31, 2.35, 2.38], 0.05);
    assert!((queue - 50.0).abs() < 2.5, "mean queue {queue}");
    let (rates, queue, _) = afd_alone(&[5 * mega; 5]);
    near(&rates, &[2.0; 5], 0.05);
    assert!((queue - 50.0).abs() < 2.5, "mean queue {queue}");
    let (rates, _, _) = afd_alone(&[mega; 25]);
    near(&rates, &[0.4; 25], 0.10);
    let (rates, _, dropped) = afd_alone(&[mega; 2]);
    near(&rates, &[1.0; 2], 0.05);
    assert_eq!(dropped, 0);
}

/// With a target of 50 packets greedy flows from 15 on found nothing of theirs in the elastic queue
/// and had priority: Jain's index fell below 0.2, and the fair rate said nothing.
#[test]
fn afan_by_time_shares_among_a_hundred_greedy_flows() {
    for greedy in [1, 5, 10, 15, 20, 35, 50, 75, 100] {
        let streams = if greedy < 75 { 10 } else { 1 };
        let seen = run(discipline("afan", None), greedy, streams, 20);
        let law = (10.0 - 0.08 * streams as f64) / greedy as f64;
        let elastic = seen.bytes[..greedy].iter().map(|bytes| *bytes as f64);
        let (sum, squares) = elastic.fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        let jain = sum * sum / (greedy as f64 * squares);
        let case = format!("{greedy} greedy flows");
        assert!(jain >= 0.99, "{case}: Jain's index {jain:.4}");
        let fair = seen.mean() / law;
        assert!((fair - 1.0).abs() < 0.03, "{case}: fair rate {fair:.3} of what it is");
        // A packet of others that go first, now and then.
        assert!(seen.p99() <= 2_000_000, "{case}: streams wait for {} ns", seen.p99());
        let streams = 0.008 * streams as f64;
        let load = seen.priority_load - streams;
        assert!(load < 0.08, "{case}: greedy flows have {load:.3} of priority");
    }
}

#[test]
fn afan_protects_streams_and_tells_the_fair_rate() {
    // Greedy flows with a bounded window are never dropped from here: their windows fill the queue
    // to 160.
    let seen = run(roomy_afan(), 20, 10, 10);
    let law = (10.0 - 0.8) / 20.0;
    assert!((seen.mean() / law - 1.0).abs() <= 0.01, "{}", seen.mean());
    assert!((seen.priority_load - 0.08).abs() < 0.002, "{}", seen.priority_load);
    assert!(seen.p99() <= 1_300_000, "{}", seen.p99());
}

#[test]
fn idle_time_is_that_of_the_wire() {
    let mut link = link(discipline("pdrr", None));
    let mut out = Out::default();
    let at = Nanos::from_millis(2);
    let _ = link.enqueue(at, sent(0, 1_000, at), &mut out);
    assert_eq!(
        link.scheduler().busy_queues(),
        0,
        "the scheduler is empty, its packet is on the wire"
    );
    let idle = |link: &mut Link<_, _>, micros: u64| {
        link.advance(Nanos::from_micros(micros), &mut Out::default());
        link.idle_time(Nanos::from_micros(micros))
    };
    assert_eq!(idle(&mut link, 2_500), at);
    assert_eq!(idle(&mut link, 2_800), at);
    assert_eq!(idle(&mut link, 3_000), at + Nanos::from_micros(200));
    // A packet right behind another leaves no gap; a drained wire is idle from then on.
    let mut now = Nanos::from_micros(4_000);
    for _ in 0..2 {
        let _ = link.enqueue(now, sent(0, 1_000, now), &mut out);
    }
    now = Nanos::from_micros(5_000);
    assert_eq!(idle(&mut link, 5_000), Nanos::from_micros(3_200));
    link.drain(now, Reason::LinkDown, &mut out);
    assert_eq!(idle(&mut link, 6_000), Nanos::from_micros(4_200));
}
