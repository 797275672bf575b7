//! `evenkeel-bench flows`: what flow-aware scheduling costs per packet when there are many flows,
//! arrivals uniformly random over them, in bursts of 32 whose table entries are read ahead.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use evenkeel_core::admit::{
    Admission, AdmissionConfig, BudgetConfig, Observed, Pin, RouterLists, RouterListsConfig,
    Verdict,
};
use evenkeel_core::aqm::AqmConfig;
use evenkeel_core::aqm::elastic::{Aqm, ElasticAqm};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows};
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::{BitRate, Bytes, Class, Cycles, FlowKey, Nanos, Packet, Reason, Scheduler};
use evenkeel_ports::huge_pages;
use evenkeel_ports::tsc::Tsc;

use crate::allocations;
use crate::handle::{Handle, Record, Spare};
use crate::plot;
use crate::timing::{Case, Rounds, Spread};

/// What is measured.
pub(crate) const KINDS: [&str; 8] = [
    "pfq",
    "pfq+aqm",
    "pfq+hosts",
    "pdrr",
    "pdrr+aqm",
    "pdrr+hosts",
    "pdrr+host-flow",
    "admission+pdrr",
];
/// Numbers of flows of the table and the plot.
const FLOWS: [u32; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
/// Numbers of flows at which instructions are counted.
pub(crate) const COUNTED: [u32; 4] = [1 << 10, 1 << 12, 1 << 14, 1 << 16];
pub(crate) const BURST: usize = 32;
/// Packets that wait in the scheduler behind admission.
const BACKLOG: u32 = 1_000;
/// Flows that the scheduler behind admission keeps state of: several times as many as have packets
/// in the backlog.
const ACTIVE: u32 = 4_096;
const ROUNDS: usize = 5;
const PACKETS: u64 = 200_000;
/// Nanoseconds between two packets.
const SPACING: u64 = 100;

/// A packet of flow `number`: key and hash cost a few multiplications, no memory.
pub(crate) fn record(number: u32) -> Record {
    let hash = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let address = |bits: u32| IpAddr::V4(Ipv4Addr::from_bits(bits));
    let flow = FlowKey {
        source: address(0x0a00_0000 | number >> 4),
        destination: address(0xac10_0001),
        protocol: 17,
        source_port: 1_024 + (number & 15) as u16,
        destination_port: 5_001,
        flow_label: 0,
    };
    let flow = PackedFlow::new(&flow);
    Record {
        flow,
        hash: hash ^ hash >> 29,
        arrival: Nanos::ZERO,
        places: Places::UNKNOWN,
        subscriber: UNKNOWN,
        len: 1_000,
        class: Class(0),
    }
}

/// A scheduler with a standing backlog, with or without admission before it.
pub(crate) struct ManyFlows {
    admission: Option<(Admission, RouterLists)>,
    scheduler: AnyScheduler<Handle>,
    spare: Spare,
    /// Where the packets of each flow are queued, where that is remembered from packet to packet.
    remembered: Vec<Places>,
    flows: u32,
    state: u64,
    now: Nanos,
}

impl ManyFlows {
    /// `pfq` and `pdrr` with one packet waiting in each of `flows` flows; `admission+pdrr` with
    /// `flows` protected flows, of which 1000 packets wait.
    pub(crate) fn new(kind: &str, flows: u32) -> Self {
        let protected = kind == "admission+pdrr";
        let backlog = if protected { BACKLOG } else { flows };
        // Room for a burst beyond the backlog: nothing is dropped.
        let buffer = Buffer::packets(backlog + BURST as u32);
        // It judges every packet and drops none: packets are not told when they came.
        let law = AqmConfig {
            target: Nanos::SECOND,
            interval: Nanos::from_secs(10),
            ..AqmConfig::default()
        };
        let aqm = if kind.ends_with("+aqm") { Aqm::Cobalt } else { Aqm::None };
        let aqm = ElasticAqm { aqm, law, ..ElasticAqm::default() };
        // 16 flows to a host that sends, and all to one that receives.
        let fair = match kind.split_once('+') {
            Some((_, "hosts")) => Fair::SourceFlow,
            Some((_, "host-flow")) => Fair::HostFlow,
            _ => Fair::Flow,
        };
        let scheduler = if kind.starts_with("pfq") {
            let flows = KnownFlows::up_to(flows);
            let config = PfqConfig { buffer, flows, aqm, fair, ..PfqConfig::default() };
            AnyScheduler::Pfq(Pfq::new(config).expect("the configuration is in range"))
        } else {
            let flows = KnownFlows::up_to(if protected { ACTIVE } else { flows });
            let config = PdrrConfig { buffer, flows, aqm, fair, ..PdrrConfig::default() };
            AnyScheduler::Pdrr(Pdrr::new(config).expect("the configuration is in range"))
        };
        let admission = protected.then(|| {
            let config = AdmissionConfig {
                flows,
                budget: BudgetConfig { on: false, ..BudgetConfig::default() },
                probation: Nanos::ZERO,
                flow_timeout: Nanos::from_secs(3_600),
                ..AdmissionConfig::published(BitRate::from_mbps(100_000))
            };
            let admission =
                Admission::new(config, 7, Nanos::ZERO).expect("the configuration is in range");
            let lists = RouterLists::new(RouterListsConfig::default(), 8)
                .expect("the defaults are in range");
            (admission, lists)
        });
        let (spare, remembered) = (Spare::default(), Vec::new());
        let mut many =
            Self { admission, scheduler, spare, remembered, flows, state: 1, now: Nanos::ZERO };
        for number in 0..flows {
            let packet = many.spare.packet(record(number));
            many.arrive(packet);
            if number >= backlog {
                many.leave();
            }
        }
        if let Some((admission, _)) = &many.admission {
            assert_eq!(admission.view().protected, flows, "every flow was let in");
        }
        huge_pages::gather();
        // The first packets of all flows have priority: not what a steady state is like.
        many.run(2 * u64::from(backlog.max(ACTIVE)));
        many
    }

    fn arrive(&mut self, packet: Handle) {
        let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
        match &mut self.admission {
            None => {
                let _ = black_box(self.scheduler.enqueue(self.now, packet, &mut lost));
            }
            Some((admission, lists)) => {
                let pin = Pin { next_hop: 0, ttl: 64 };
                let verdict =
                    admission.decide(self.now, &packet, pin, &|_: &FlowKey| Bytes::ZERO, lists);
                assert_eq!(verdict, Verdict::Pass, "protected flows pass");
                let treated = self.scheduler.enqueue(self.now, packet, &mut lost);
                admission.treated(self.now, treated, lists);
            }
        }
    }

    fn leave(&mut self) {
        let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
        if let Some(packet) = black_box(self.scheduler.dequeue(self.now, &mut lost)) {
            self.spare.take(packet);
        }
    }

    /// From now on each packet is told where the one before of its flow was queued, as the router's
    /// cache of flows tells it.
    pub(crate) fn remember(&mut self) {
        self.remembered = vec![Places::UNKNOWN; self.flows as usize];
    }

    /// Packets of flows that are drawn, with the numbers of these.
    fn burst(&mut self) -> ([u32; BURST], [Handle; BURST]) {
        let flows = std::array::from_fn(|_| self.draw());
        let packets = flows.map(|flow| {
            let places = self.remembered.get(flow as usize).copied();
            let places = places.unwrap_or(Places::UNKNOWN);
            self.spare.packet(Record { places, ..record(flow) })
        });
        (flows, packets)
    }

    /// `times` packets come in bursts, and as many leave.
    pub(crate) fn run(&mut self, times: u64) {
        for _ in 0..times / BURST as u64 {
            self.now += Nanos(SPACING * BURST as u64);
            let (_, burst) = self.burst();
            if let Some((admission, _)) = &mut self.admission {
                if admission.next_tick() <= self.now {
                    admission.tick(
                        self.now,
                        &Observed::new(&self.scheduler.meters(), Nanos::ZERO, self.now),
                    );
                }
                burst.iter().for_each(|packet| admission.prefetch_bucket(packet.flow_hash()));
                burst.iter().for_each(|packet| admission.prefetch(packet.flow_hash()));
            }
            self.prefetch(&burst);
            burst.into_iter().for_each(|packet| self.arrive(packet));
            (0..BURST).for_each(|_| self.leave());
        }
    }

    /// Nanoseconds per packet of `bursts` bursts that leave and are replaced. As in
    /// `bench/rte_sched` only that is timed, and not how the packets that come are made up.
    pub(crate) fn time_calls(&mut self, bursts: u64, tsc: &Tsc) -> f64 {
        let mut cycles = 0;
        for _ in 0..bursts {
            let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
            self.now += Nanos(SPACING * BURST as u64);
            let begin = tsc.now();
            let gone: [_; BURST] =
                std::array::from_fn(|_| self.scheduler.dequeue(self.now, &mut lost));
            cycles += tsc.now().0.saturating_sub(begin.0);
            gone.into_iter().flatten().for_each(|packet| self.spare.take(packet));
            let (flows, burst) = self.burst();
            let begin = tsc.now();
            self.prefetch(&burst);
            let queues = burst.map(|packet| {
                let _ = black_box(self.scheduler.enqueue(self.now, packet, &mut lost));
                self.scheduler.last_place()
            });
            cycles += tsc.now().0.saturating_sub(begin.0);
            for (flow, queue) in flows.into_iter().zip(queues) {
                if let Some(places) = self.remembered.get_mut(flow as usize) {
                    places.queue = queue;
                }
            }
        }
        tsc.to_nanos(Cycles(cycles)).0 as f64 / (bursts * BURST as u64) as f64
    }

    /// As the trait says it costs least.
    fn prefetch(&self, burst: &[Handle; BURST]) {
        let scheduler = &self.scheduler;
        if !self.remembered.is_empty() {
            return burst.iter().for_each(|packet| scheduler.prefetch_place(packet.0.places.queue));
        }
        burst.iter().for_each(|packet| scheduler.prefetch_bucket(packet.0.hash));
        burst.iter().for_each(|packet| scheduler.prefetch(packet.0.hash));
    }

    fn draw(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (((self.state >> 32) * u64::from(self.flows)) >> 32) as u32
    }

    /// Nanoseconds per packet.
    pub(crate) fn time(&mut self, times: u64) -> f64 {
        let begin = Instant::now();
        self.run(times);
        begin.elapsed().as_nanos() as f64 / times as f64
    }
}

/// A table of one cache line per flow, and how long it takes to change a random one.
struct Lines {
    lines: Vec<[u64; 8]>,
    state: u64,
}

impl Lines {
    /// Nanoseconds per line, the smallest of some rounds. The accesses of a burst do not depend on
    /// each other, so the processor overlaps them as it does what schedulers read ahead.
    fn time(flows: u32) -> f64 {
        let mut this = Self { lines: vec![[1; 8]; flows as usize], state: 1 };
        this.visit(u64::from(flows));
        let rounds = (0..ROUNDS).map(|_| {
            let begin = Instant::now();
            this.visit(PACKETS);
            begin.elapsed().as_nanos() as f64 / PACKETS as f64
        });
        rounds.fold(f64::INFINITY, f64::min)
    }

    fn visit(&mut self, times: u64) {
        for _ in 0..times {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = ((self.state >> 32) * self.lines.len() as u64) >> 32;
            let line = &mut self.lines[at as usize];
            line[0] = line[0].wrapping_add(1);
        }
        black_box(&self.lines);
    }
}

pub(crate) fn name(flows: u32) -> String {
    if flows >= 1 << 20 { format!("{} M", flows >> 20) } else { format!("{} k", flows >> 10) }
}

pub(crate) fn run() {
    println!(
        "Many flows in memory: admission and scheduler, one packet in and one out, uniformly \
         random over the flows, bursts of {BURST} ({ROUNDS} rounds in turn)"
    );
    println!(
        "  {:<16} {:>8} {:>10} {:>17} {:>12} {:>9} {:>10}",
        "", "flows", "ns/packet", "(min to max)", "allocations", "ns/line", "more lines"
    );
    let mut plot = Vec::new();
    let lines = FLOWS.map(Lines::time);
    for kind in KINDS {
        let mut first = None;
        // One after the other: the largest take hundreds of megabytes.
        for (flows, line) in FLOWS.into_iter().zip(lines) {
            let mut many = ManyFlows::new(kind, flows);
            many.run(PACKETS);
            let counted = allocations::measure(|| many.run(PACKETS)).count;
            assert_eq!(counted, 0, "{kind} allocates per packet");
            let case: Case<'_> = (String::new(), Box::new(move || many.time(PACKETS)));
            let rounds = Rounds::run(ROUNDS, &mut [case]);
            let spread: Spread =
                rounds.rows().next().and_then(|(_, s)| s).expect("nothing is refused here");
            let (base, base_line) = *first.get_or_insert((spread.min, line));
            // What fits the nearest cache has nothing to wait for.
            let waits = if line > 2.0 * base_line {
                format!("{:>10.1}", (spread.min - base) / (line - base_line))
            } else {
                String::new()
            };
            println!(
                "  {kind:<16} {:>8} {:>10.1} {:>17} {counted:>12} {line:>9.1} {waits}",
                name(flows),
                spread.median,
                format!("({:.1} to {:.1})", spread.min, spread.max),
            );
            plot.push((kind, flows, spread.min));
        }
    }
    println!(
        "  ns/line: a random cache line of a table with one line per flow, 32 of them at once: the \
         limit of the machine's memory"
    );
    println!("  more lines: what a packet takes more than with the fewest flows, in such lines");
    println!("\n  Smallest of the rounds; a column is 10 ns");
    for (kind, flows, time) in &plot {
        println!(
            "  {kind:<16} {:>8} {} {time:.0}",
            name(*flows),
            "#".repeat((time / 10.0).round() as usize)
        );
    }
    plot::write("flows.svg", "Time per packet by the number of flows", "ns", &plot);
}
