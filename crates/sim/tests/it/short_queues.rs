//! Short queues: what flows over one link wait, get and lose, cell by cell, with FQ-CoDel beside.
//!
//! | symbol | here |
//! |---|---|
//! | C | `Cell::rate` |
//! | n | `Cell::flows`, TCP connections that always have something to send |
//! | R | `Cell::rtt`, the same for all, without a queue |
//! | target | the effective one: 5 ms, or 1.5 packets of 1538 bytes at C/n |
//!
//! A link of the core, the simulator's TCP at both ends, wires of R/2, acknowledgements unhindered.
//! What happened in the first part of a run is not counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use evenkeel_core::aqm::elastic::{Aqm, ElasticAqm};
use evenkeel_core::link::{Link, LinkConfig, LinkSink};
use evenkeel_core::packet::Ecn;
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::fq_codel::FqCodelConfig;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Reason};
use evenkeel_sim::tcp::{Congestion, Receiver, ReceiverConfig, Segment, Sender, SenderConfig};
use evenkeel_traffic::random::Dice;

/// A packet of one of the flows: `0..n` are TCP, then sparse ones, then one that does not answer.
#[derive(Clone, Debug)]
struct Sent {
    flow: u32,
    ip_len: u32,
    segment: Option<Segment>,
    arrival: Nanos,
    ecn: Ecn,
    marked: bool,
}

impl Packet for Sent {
    fn ip_len(&self) -> Bytes {
        Bytes(self.ip_len.into())
    }
    fn wire_len(&self) -> Bytes {
        Bytes(u64::from(self.ip_len.max(46)) + 38)
    }
    fn class(&self) -> Class {
        Class(0)
    }
    fn flow(&self) -> FlowKey {
        FlowKey {
            source: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + self.flow)),
            destination: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
            protocol: 6,
            source_port: 5_000,
            destination_port: 80,
            flow_label: 0,
        }
    }
    fn flow_hash(&self) -> u64 {
        u64::from(self.flow + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn mark(&mut self) {
        self.marked = true;
    }
    fn is_marked(&self) -> bool {
        self.marked
    }
}

/// What left the link and what was dropped, in order.
#[derive(Default)]
struct Out {
    left: Vec<(Nanos, Sent)>,
    dropped: Vec<(Sent, Reason)>,
}

impl LinkSink<Sent> for Out {
    fn transmitted(&mut self, at: Nanos, packet: Sent) {
        self.left.push((at, packet));
    }
    fn dropped(&mut self, _at: Nanos, packet: Sent, reason: Reason) {
        self.dropped.push((packet, reason));
    }
}

#[derive(Clone, Copy)]
struct Cell {
    rate: BitRate,
    flows: u32,
    rtt: Nanos,
    congestion: Congestion,
    /// Flows of 200-byte packets, 20 in a second each.
    sparse: u32,
    /// What a flow that does not answer sends, in parts of C.
    unresponsive: f64,
    seconds: u64,
}

const CUBIC: Congestion = Congestion::Cubic { fast_convergence: true };

impl Cell {
    const fn new(mbps: u64, flows: u32, rtt_ms: u64, seconds: u64) -> Self {
        Self {
            rate: BitRate::from_mbps(mbps),
            flows,
            rtt: Nanos::from_millis(rtt_ms),
            congestion: CUBIC,
            sparse: 0,
            unresponsive: 0.0,
            seconds,
        }
    }

    /// The effective target, and a round of all that wait.
    fn target(&self) -> (Nanos, Nanos) {
        let queues = f64::from(self.flows) + if self.unresponsive > 0.0 { 1.0 } else { 0.0 };
        let packet = 1_538.0 * 8e9 / self.rate.0 as f64 * queues;
        (Nanos((1.5 * packet) as u64).max(Nanos::from_millis(5)), Nanos(packet as u64))
    }
}

/// What came of a cell, after slow start.
#[derive(Debug, Default)]
struct Came {
    /// Bytes on the wire in parts of C.
    used: f64,
    /// 99 % of the packets of the greedy flows waited less.
    p99: Nanos,
    sparse_p99: Nanos,
    /// Of sparse flows.
    hurt: u64,
    jain: f64,
    /// Drops of greedy flows, of which by BLUE.
    lost: u64,
    blue: u64,
    /// What the flow that does not answer got, in parts of C.
    unresponsive: f64,
}

enum Event {
    /// Data comes to the link, or an acknowledgement to a sender.
    ToLink(Sent),
    ToReceiver(u32, Segment),
    ToSender(u32, Segment),
    Sparse(u32),
    Unresponsive,
}

struct World {
    cell: Cell,
    link: Link<Sent, AnyScheduler<Sent>>,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    /// When the last packet of each sender came to the link.
    last: Vec<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    bodies: Vec<Option<Event>>,
    free: Vec<usize>,
    number: u64,
    dice: Dice,
}

impl World {
    fn new(cell: Cell, discipline: &DisciplineConfig, seed: u64) -> Self {
        let scheduler = discipline.build(1).expect("it is valid");
        let mut config = LinkConfig::paced(cell.rate);
        config.ring.slots = 1;
        let sender = SenderConfig { congestion: cell.congestion, ..SenderConfig::default() };
        let receiver = ReceiverConfig { buffer: 64 << 20, ..ReceiverConfig::default() };
        let mut world = Self {
            cell,
            link: Link::new(config, scheduler, 1).expect("it is valid"),
            senders: (0..cell.flows).map(|_| Sender::new(sender)).collect(),
            receivers: (0..cell.flows).map(|_| Receiver::new(receiver)).collect(),
            last: vec![Nanos::ZERO; cell.flows as usize],
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            free: Vec::new(),
            number: 0,
            dice: Dice::new(seed, 0),
        };
        for flow in 0..cell.sparse {
            let at = Nanos((world.fraction() * 5e7) as u64);
            world.post(at, Event::Sparse(cell.flows + flow));
        }
        if cell.unresponsive > 0.0 {
            world.post(Nanos::ZERO, Event::Unresponsive);
        }
        world
    }

    fn post(&mut self, at: Nanos, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.bodies.push(None);
            self.bodies.len() - 1
        });
        self.bodies[place] = Some(event);
        self.number += 1;
        self.events.push(Reverse((at, self.number, place)));
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        self.dice.fraction() as f64 / 18_446_744_073_709_551_616.0
    }

    fn packet(&self, now: Nanos, flow: u32, ip_len: u32, segment: Option<Segment>) -> Sent {
        Sent { flow, ip_len, segment, arrival: now, ecn: Ecn::NotCapable, marked: false }
    }

    /// What a flow's ends have to send goes on its way.
    fn pump(&mut self, now: Nanos, flow: u32) {
        let half = Nanos(self.cell.rtt.0 / 2);
        while let Some(segment) = self.senders[flow as usize].transmit(now) {
            // Hosts are not in step: up to 100 us. What a host sends stays in order.
            let at = now + Nanos((self.fraction() * 1e5) as u64);
            let at = at.max(self.last[flow as usize]);
            self.last[flow as usize] = at;
            let packet = self.packet(at, flow, 52 + segment.payload, Some(segment));
            self.post(at, Event::ToLink(packet));
        }
        while let Some(segment) = self.receivers[flow as usize].transmit(now) {
            self.post(now + half, Event::ToSender(flow, segment));
        }
    }

    fn run(mut self) -> Came {
        let cell = self.cell;
        let end = Nanos::from_secs(cell.seconds);
        let begin = Nanos(end.0 * 2 / 5);
        let mut seen = Seen::new(&cell);
        let mut started = 0;
        let mut now = Nanos::ZERO;
        while now < end {
            let mut out = Out::default();
            self.link.advance(now, &mut out);
            // Connections begin one after the other in the first fifth.
            while started < cell.flows
                && now.0 >= end.0 / 5 / u64::from(cell.flows) * u64::from(started)
            {
                self.senders[started as usize].open();
                self.pump(now, started);
                started += 1;
            }
            while let Some(Reverse((at, _, place))) = self.events.peek().copied()
                && at <= now
            {
                self.events.pop();
                self.free.push(place);
                let event = self.bodies[place].take().expect("it was posted");
                self.happens(now, event, &mut out);
            }
            for flow in 0..started {
                let wakes = [
                    self.senders[flow as usize].next_wake(),
                    self.receivers[flow as usize].next_wake(),
                ];
                if wakes.into_iter().flatten().any(|at| at <= now) {
                    self.pump(now, flow);
                }
            }
            for (at, packet) in out.left {
                seen.left(at, begin, &packet);
                if let Some(segment) = packet.segment {
                    self.post(at + Nanos(cell.rtt.0 / 2), Event::ToReceiver(packet.flow, segment));
                }
            }
            out.dropped.iter().for_each(|(packet, why)| seen.dropped(now, begin, packet, *why));
            let ends = (0..started as usize)
                .flat_map(|flow| [self.senders[flow].next_wake(), self.receivers[flow].next_wake()])
                .flatten();
            let next = ends
                .chain(self.events.peek().map(|Reverse((at, ..))| *at))
                .chain(self.link.next_wake())
                .min();
            let start = (started < cell.flows)
                .then(|| Nanos(end.0 / 5 / u64::from(cell.flows) * u64::from(started)));
            now = next.into_iter().chain(start).min().unwrap_or(end).max(now + Nanos(1));
        }
        seen.come((end - begin).0 as f64 / 1e9)
    }

    fn happens(&mut self, now: Nanos, event: Event, out: &mut Out) {
        match event {
            Event::ToLink(packet) => {
                let _ = self.link.enqueue(now, packet, out);
            }
            Event::ToReceiver(flow, segment) => {
                self.receivers[flow as usize].receive(now, &segment);
                self.pump(now, flow);
            }
            Event::ToSender(flow, segment) => {
                self.senders[flow as usize].receive(now, &segment);
                self.pump(now, flow);
            }
            Event::Sparse(flow) => {
                let packet = self.packet(now, flow, 200, None);
                let _ = self.link.enqueue(now, packet, out);
                let gap = -self.fraction().max(1e-9).ln() * 5e7;
                self.post(now + Nanos(gap as u64), Event::Sparse(flow));
            }
            Event::Unresponsive => {
                let packet = self.packet(now, self.cell.flows + self.cell.sparse, 1_500, None);
                let _ = self.link.enqueue(now, packet, out);
                let bits = 1_538.0 * 8e9;
                let gap = bits / (self.cell.rate.0 as f64 * self.cell.unresponsive);
                self.post(now + Nanos(gap as u64), Event::Unresponsive);
            }
        }
    }
}

/// What was seen of a run.
struct Seen {
    cell: Cell,
    waits: Vec<u64>,
    sparse: Vec<u64>,
    bytes: Vec<u64>,
    came: Came,
}

impl Seen {
    fn new(cell: &Cell) -> Self {
        let flows = (cell.flows + cell.sparse + 1) as usize;
        let (waits, sparse) = (Vec::new(), Vec::new());
        Self { cell: *cell, waits, sparse, bytes: vec![0; flows], came: Came::default() }
    }

    fn is_sparse(&self, packet: &Sent) -> bool {
        (self.cell.flows..self.cell.flows + self.cell.sparse).contains(&packet.flow)
    }

    fn left(&mut self, at: Nanos, begin: Nanos, packet: &Sent) {
        if at < begin {
            return;
        }
        self.bytes[packet.flow as usize] += packet.wire_len().0;
        // From its arrival to its leaving, less its own time on the wire.
        let own = packet.wire_len().0 * 8_000_000_000 / self.cell.rate.0;
        let wait = (at - packet.arrival).0.saturating_sub(own);
        if self.is_sparse(packet) {
            self.sparse.push(wait);
            self.came.hurt += u64::from(packet.marked);
        } else if packet.flow < self.cell.flows {
            self.waits.push(wait);
        }
    }

    fn dropped(&mut self, at: Nanos, begin: Nanos, packet: &Sent, reason: Reason) {
        if at < begin {
            return;
        }
        if self.is_sparse(packet) {
            self.came.hurt += 1;
        } else if packet.flow < self.cell.flows {
            self.came.lost += 1;
            self.came.blue += u64::from(reason == Reason::Unresponsive);
        }
    }

    fn come(mut self, seconds: f64) -> Came {
        let capacity = self.cell.rate.0 as f64 / 8.0 * seconds;
        let greedy: Vec<f64> =
            self.bytes[..self.cell.flows as usize].iter().map(|bytes| *bytes as f64).collect();
        let (sum, squares) =
            (greedy.iter().sum::<f64>(), greedy.iter().map(|x| x * x).sum::<f64>());
        let used = self.bytes.iter().sum::<u64>() as f64 / capacity;
        Came {
            used,
            p99: percentile(&mut self.waits),
            sparse_p99: percentile(&mut self.sparse),
            jain: sum * sum / (greedy.len() as f64 * squares),
            unresponsive: self.bytes[self.bytes.len() - 1] as f64 / capacity,
            ..self.came
        }
    }
}

fn percentile(waits: &mut [u64]) -> Nanos {
    waits.sort_unstable();
    Nanos(waits.get(waits.len() * 99 / 100).copied().unwrap_or(0))
}

fn buffer() -> Buffer {
    Buffer { max_delay: Some(Nanos::from_millis(50)), ..Buffer::packets(16_384) }
}

fn pdrr(aqm: Aqm) -> DisciplineConfig {
    let aqm = ElasticAqm { aqm, ..ElasticAqm::default() };
    DisciplineConfig::Pdrr(PdrrConfig { buffer: buffer(), aqm, ..PdrrConfig::default() })
}

fn pfq(aqm: Aqm) -> DisciplineConfig {
    let aqm = ElasticAqm { aqm, ..ElasticAqm::default() };
    DisciplineConfig::Pfq(PfqConfig { buffer: buffer(), aqm, ..PfqConfig::default() })
}

fn fq_codel() -> DisciplineConfig {
    DisciplineConfig::FqCodel(FqCodelConfig::default())
}

/// A percentile of what comes rarely is not the same twice: the page has medians of these.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

fn run(cell: Cell, discipline: &DisciplineConfig, seed: u64) -> Came {
    World::new(cell, discipline, seed).run()
}

/// Whether a cell keeps its promises; else why not.
fn judge(cell: &Cell, came: &Came, rival: &Came) -> Result<(), String> {
    let (target, round) = cell.target();
    let most = Nanos(3 * target.0 + round.0);
    let full = if cell.rtt <= Nanos::from_millis(100) && cell.flows >= 4 {
        0.95
    } else {
        (rival.used - 0.01).min(0.95)
    };
    let mut wrong = String::new();
    if came.p99 > most {
        let _ = write!(wrong, " p99 {} above {most};", came.p99);
    }
    if came.used < full {
        let _ = write!(wrong, " {:.3} of the link, not {full:.3};", came.used);
    }
    if came.jain < 0.99 {
        let _ = write!(wrong, " Jain {:.4};", came.jain);
    }
    if came.hurt > 0 {
        let _ = write!(wrong, " sparse flows lost {};", came.hurt);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn told(cell: &Cell, name: &str, came: &Came) -> String {
    format!(
        "{:>6} {:>3} {:>4} ms {name:<9} used {:.3} p99 {:>8.2} ms sparse {:>6.2} ms jain {:.4} \
         lost {} ({} BLUE)",
        cell.rate.0 / 1_000_000,
        cell.flows,
        cell.rtt.0 / 1_000_000,
        came.used,
        came.p99.0 as f64 / 1e6,
        came.sparse_p99.0 as f64 / 1e6,
        came.jain,
        came.lost,
        came.blue
    )
}

/// Cells of the grid, with FQ-CoDel beside: each seed keeps what is promised. Gives the rows of
/// the page.
fn hold(cells: &[Cell], disciplines: &[(&str, DisciplineConfig)]) -> String {
    let (mut wrong, mut rows) = (Vec::new(), String::new());
    for cell in cells {
        let rival = fq_codel();
        let (rivals, came) = std::thread::scope(|scope| {
            let seeds = |of| scope.spawn(move || SEEDS.map(|seed| run(*cell, of, seed)));
            let all: Vec<_> = disciplines.iter().map(|(_, discipline)| seeds(discipline)).collect();
            let rivals = SEEDS.map(|seed| run(*cell, &rival, seed));
            (rivals, all.into_iter().map(|came| came.join().unwrap()).collect::<Vec<_>>())
        });
        rivals.iter().for_each(|rival| println!("{}", told(cell, "fq-codel", rival)));
        let (target, round) = cell.target();
        let (mbps, rtt) = (cell.rate.0 / 1_000_000, cell.rtt.0 / 1_000_000);
        let most = (3 * target.0 + round.0) as f64 / 1e6;
        let _ = write!(rows, "| {mbps}, {}, {rtt} | {most:.1} | {}", cell.flows, waits(&rivals));
        for ((name, _), came) in disciplines.iter().zip(&came) {
            for ((came, rival), seed) in came.iter().zip(&rivals).zip(SEEDS) {
                let line = told(cell, name, came);
                println!("{line}");
                if let Err(why) = judge(cell, came, rival) {
                    wrong.push(format!("{line}, seed {seed}:{why}"));
                }
            }
            let _ = write!(rows, " | {}", waits(came));
        }
        rows += " |\n";
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    rows
}

/// As the page shows them: of greedy flows and of sparse ones, the latter with the worst seed,
/// milliseconds.
fn waits(came: &[Came; SEEDS.len()]) -> String {
    let sorted = |of: fn(&Came) -> Nanos| {
        let mut waits: Vec<f64> = came.iter().map(|came| of(came).0 as f64 / 1e6).collect();
        waits.sort_by(f64::total_cmp);
        waits
    };
    let (greedy, sparse) = (sorted(|came| came.p99), sorted(|came| came.sparse_p99));
    let middle = SEEDS.len() / 2;
    format!("{:.2}, {:.2} ({:.2})", greedy[middle], sparse[middle], sparse[SEEDS.len() - 1])
}

/// The page's table is what the cells came to.
fn on_page(rows: &str) {
    const ENDS: [&str; 2] = ["<!-- cells: begin -->\n", "<!-- cells: end -->\n"];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/short-queues.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(ENDS[0]).unwrap();
    let (shown, after) = rest.split_once(ENDS[1]).unwrap();
    let head = "| Mbit/s, flows, RTT | promised | FQ-CoDel, sparse (worst) | PDRR, sparse (worst) \
                | PFQ, sparse (worst) |\n|---|---|---|---|---|\n";
    let table = format!("\n{head}{rows}\n");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let [begin, end] = ENDS;
        fs::write(&page, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(shown, table, "UPDATE_DOCS=1 cargo test -p evenkeel-sim --test it short_queues");
}

#[test]
fn greedy_flows_wait_for_three_targets_and_sparse_ones_lose_nothing() {
    let cells: Vec<_> = [
        (1, 1, 20, 60),
        (1, 4, 50, 60),
        (2, 1, 200, 180),
        (2, 4, 100, 60),
        (2, 16, 50, 60),
        (20, 1, 20, 30),
        (20, 2, 50, 30),
        (20, 4, 10, 20),
        (20, 8, 50, 30),
        (20, 16, 20, 20),
        (20, 32, 2, 20),
        (20, 64, 100, 30),
        (100, 1, 10, 20),
        (100, 4, 20, 20),
        (100, 16, 10, 15),
        (100, 16, 100, 40),
        (100, 64, 50, 15),
        (1_000, 4, 10, 8),
        (1_000, 16, 10, 12),
        (1_000, 64, 5, 4),
    ]
    .into_iter()
    .map(|(mbps, flows, rtt, seconds)| Cell { sparse: 3, ..Cell::new(mbps, flows, rtt, seconds) })
    .collect();
    on_page(&hold(&cells, &[("pdrr", pdrr(Aqm::Cobalt)), ("pfq", pfq(Aqm::Cobalt))]));
}

/// The same without the law does not hold, so that the test above can fail.
#[test]
fn without_the_law_flows_wait_behind_themselves() {
    let cell = Cell::new(20, 4, 20, 20);
    let (target, round) = cell.target();
    for none in [pdrr(Aqm::None), pfq(Aqm::None)] {
        let came = run(cell, &none, 1);
        assert!(came.p99 > Nanos(2 * target.0 + round.0 + 10_000_000), "{came:?}");
    }
}

#[test]
fn a_flow_that_does_not_answer_takes_nothing_from_others() {
    for (name, discipline) in [("pdrr", pdrr(Aqm::Cobalt)), ("pfq", pfq(Aqm::Cobalt))] {
        // Twice its share of a fifth.
        let cell = Cell { unresponsive: 0.4, ..Cell::new(20, 4, 20, 30) };
        let came = run(cell, &discipline, 1);
        println!("{} {:.3}", told(&cell, name, &came), came.unresponsive);
        assert!((0.17..=0.205).contains(&came.unresponsive), "{name}: {came:?}");
        assert!(came.used > 0.95 && came.jain > 0.99 && came.blue == 0, "{name}: {came:?}");
    }
}
