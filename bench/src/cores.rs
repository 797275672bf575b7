//! `evenkeel-bench cores`: two workers that share an outgoing link against one that has it alone,
//! in memory.
//!
//! Each worker is a thread with a pipeline, ports in memory, and a host of its own: frames are
//! made, forwarded and thrown away in the same thread, so nothing is shared but the link. What is
//! compared: frames forwarded per second with a rate that binds nobody, and with a rate that does,
//! where classes fall on workers as unevenly as they can: class `a` on the first alone, `b` and `c`
//! on the second. Then the same by flows, with PDRR and admission: 20 of 32 flows on the first
//! worker, at a rate of which it has to carry 20 of 32 parts. And with all packets through one
//! tunnel, which both encrypt for. And with every discipline, 16 of 32 flows on each worker; beside
//! these, two routers of one worker each, which have nothing in common: what the machine gives.
//!
//! By the clock, two workers need two cores that do nothing else. So frames are also counted per
//! second of CPU that each worker's thread got: that tells what sharing costs on a machine that is
//! busy with something else, but neither whether shares hold there nor what cores lose to each
//! other's memory traffic.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_core::{BitRate, Nanos};
use evenkeel_net::fib::{NextHop, Route};
use evenkeel_net::{MacAddr, PortIndex, Prefix};
use evenkeel_ports::memory::{MemoryOptions, MemoryPort};
use evenkeel_ports::{FramePool, Port, RxFrame};
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::cycles::VirtualCycles;
use evenkeel_router::pipeline::{LinkState, Pipeline, Tunnels, WorkerShares};

use crate::pipeline::frame_between;
use crate::timing::{Case, Rounds, Spread};

const RUNS: usize = 7;
/// Of every discipline.
const TURNS: usize = 9;
/// Of each run, and of what comes before it counts.
const TIME: Duration = Duration::from_millis(300);
const WARM: Duration = Duration::from_millis(50);
const SIZE: u16 = 512;
/// Preamble, frame check sequence and gap.
const OVERHEAD: u64 = 24;
/// A rate that binds nobody.
const FREE: BitRate = BitRate(1_000_000_000_000);
/// The part of what two workers forward that the binding rate lets through.
const BINDING: f64 = 0.92;
/// The same by flows: what a worker carries of it must be less than it can.
const BINDING_FLOWS: f64 = 0.7;
const WFQ: &str = "discipline = { kind = \"wfq-altq\", limit = 400, weight = { a = 200, b = 100, c \
                   = 100, d = 100 } }";
/// Never refuses: what it costs is measured, not what it turns away.
const PDRR: &str = "discipline = { kind = \"pdrr\" }\n\
                    admission = { min_fair_rate = 0.0, max_priority_load = 1.0, budget = false }";
/// Encrypted to the host behind the link.
const TUNNEL: &str = r#"discipline = { kind = "fifo", limit = 400 }
[[service]]
name = "vpn"
[service.work]
kind = "esp"
local = "10.0.2.2"
remote = "10.0.2.1"
spi = 256
key = "0x4c80cdefbb5d10da906ac73c3613a6342e443b68"
"#;
/// Every discipline, by how workers have its links. Limits bind nobody: what two workers cost is
/// measured, not what is dropped.
const DISCIPLINES: [(&str, &str); 13] = [
    ("fifo, shared", "discipline = { kind = \"fifo\", limit = 400 }"),
    ("wfq-altq, shared", WFQ),
    ("pfq, shared", "discipline = { kind = \"pfq\" }"),
    ("pdrr, shared", "discipline = { kind = \"pdrr\" }"),
    ("pfq, fair by hosts, shared", "discipline = { kind = \"pfq\", fair = \"source-flow\" }"),
    ("pdrr, fair by hosts, shared", "discipline = { kind = \"pdrr\", fair = \"source-flow\" }"),
    ("afan, shared", "discipline = { kind = \"afan\", limit = 400 }"),
    ("priority, shared", "discipline = { kind = \"priority\", limit = 16384 }"),
    ("qfq, shared", "discipline = { kind = \"qfq\", limit = 16384 }"),
    ("drr, shared", "discipline = { kind = \"drr\", buffer = 16384 }"),
    ("codel, shared", "discipline = { kind = \"codel\", limit = 16384 }"),
    ("fq-codel, shared", "discipline = { kind = \"fq-codel\", buffer = 16384 }"),
    ("lct, shared", "discipline = { kind = \"lct\", limit = 16384 }"),
];
/// Weights of the classes in the file.
const WEIGHTS: [f64; 3] = [200.0, 100.0, 100.0];
const BURST: usize = 32;
/// Flows that are told apart.
const FLOWS: usize = 64;
const MACS: [[u8; 6]; 4] =
    [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]];

struct Bed {
    pipeline: Pipeline,
    ports: [MemoryPort; 2],
    host: MemoryPort,
    sink: MemoryPort,
    sink_pool: FramePool,
    received: Vec<RxFrame>,
    frames: Vec<Vec<u8>>,
    /// Packets of each flow that arrived at the sink.
    arrived: [u64; FLOWS],
}

impl Bed {
    /// A worker whose host sends packets of `flows`, numbers below [`FLOWS`], in turn.
    fn new(
        config: &RouterConfig,
        (place, tunnels): (Option<WorkerShares>, &Arc<Tunnels>),
        flows: &[u64],
        now: Nanos,
    ) -> Self {
        let mut pipeline = Pipeline::for_worker(config, now, Default::default(), place)
            .expect("the configuration is valid");
        pipeline
            .set_surroundings(Box::new(VirtualCycles::default()), Arc::clone(tunnels))
            .expect("the configuration is valid");
        for (index, mac) in [MACS[1], MACS[2]].into_iter().enumerate() {
            let state = LinkState { mac: MacAddr(mac), mtu: 1500, up: true };
            pipeline.set_link(now, PortIndex(index as u16), Some(state));
        }
        let out = PortIndex(1);
        let network = Prefix::new(IpAddr::V4(Ipv4Addr::new(10, 0, 2, 0)), 24).expect("a prefix");
        pipeline.fib_mut().insert(network, Route::via(NextHop::connected(out), 0));
        let reachable = KernelNeighbourState::Reachable(MacAddr(MACS[3]));
        pipeline.set_neighbour(now, out, IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)), Some(reachable));
        let options = MemoryOptions { slots: 1024, mtu: 1500 };
        let (host, port_in) = MemoryPort::pair(options, ("host", MACS[0]), ("in", MACS[1]));
        let (port_out, sink) = MemoryPort::pair(options, ("out", MACS[2]), ("sink", MACS[3]));
        Self {
            pipeline,
            ports: [port_in, port_out],
            host,
            sink,
            sink_pool: FramePool::new(1024),
            received: Vec::with_capacity(1024),
            frames: flows
                .iter()
                .map(|flow| frame_between(&MACS[1], [10, 0, 2, 1], *flow, SIZE))
                .collect(),
            arrived: [0; FLOWS],
        }
    }

    /// Bytes on the wire by class that have left the link.
    fn sent(&mut self, now: Nanos) -> [u64; 4] {
        let snapshot = self.pipeline.snapshot(now, &mut self.ports);
        let classes = &snapshot.links[1].classes;
        std::array::from_fn(|class| classes[class].sent_packets)
    }

    /// Forwards as fast as it can.
    fn run(mut self, start: Instant, barrier: &Barrier) -> Sent {
        let now = || Nanos(start.elapsed().as_nanos() as u64) + Nanos::SECOND;
        barrier.wait();
        let (begin, mut next, mut before) = (Instant::now(), 0, None);
        loop {
            let passed = begin.elapsed();
            if before.is_none() && passed >= WARM {
                before = Some((self.sent(now()), cpu_time()));
                self.arrived = [0; FLOWS];
            }
            if passed >= WARM + TIME {
                break;
            }
            for _ in 0..BURST {
                self.host.inject(&self.frames[next]);
                next = (next + 1) % self.frames.len();
            }
            self.pipeline.round(now(), &mut self.ports);
            self.sink.rx_burst(&mut self.sink_pool, now(), &mut self.received, 1024);
            for received in self.received.drain(..) {
                // The source port tells the flow; that of an encrypted packet nobody asks for.
                let frame = self.sink_pool.bytes(&received.frame);
                let port = usize::from(u16::from_be_bytes([frame[34], frame[35]]));
                self.arrived[port.wrapping_sub(5000) % FLOWS] += 1;
                self.sink_pool.release(received.frame);
            }
        }
        let (after, cpu) = (self.sent(now()), cpu_time());
        let (before, cpu_before) = before.unwrap_or_default();
        let classes: [u64; 4] = std::array::from_fn(|class| after[class] - before[class]);
        let spent = (cpu - cpu_before).as_secs_f64();
        Sent {
            classes,
            flows: self.arrived,
            per_cpu: classes.iter().sum::<u64>() as f64 / spent / 1e6,
        }
    }
}

/// What was sent in the time that counts.
#[derive(Clone, Copy)]
struct Sent {
    /// Packets by class; by flow, which all classes have.
    classes: [u64; 4],
    flows: [u64; FLOWS],
    /// Millions of packets per second of CPU, summed over workers.
    per_cpu: f64,
}

impl Sent {
    /// Millions of packets per second by the clock.
    fn mpps(&self) -> f64 {
        self.classes.iter().sum::<u64>() as f64 / TIME.as_secs_f64() / 1e6
    }

    /// The largest deviation of one of the first `flows` flows from an equal share, percent of it.
    fn flow_error(&self, flows: usize) -> f64 {
        let fair = self.flows[..flows].iter().sum::<u64>() as f64 / flows as f64;
        self.flows[..flows]
            .iter()
            .map(|sent| (*sent as f64 / fair - 1.0).abs() * 100.0)
            .fold(0.0, f64::max)
    }

    /// The largest deviation of a class from its share, percent of the share.
    fn share_error(&self) -> f64 {
        let classes = &self.classes[..WEIGHTS.len()];
        let (all, weights) = (classes.iter().sum::<u64>() as f64, WEIGHTS.iter().sum::<f64>());
        let error = |(sent, weight): (u64, f64)| {
            (sent as f64 / (all * weight / weights) - 1.0).abs() * 100.0
        };
        classes.iter().copied().zip(WEIGHTS).map(error).fold(0.0, f64::max)
    }
}

/// What the calling thread has had of a CPU, to some milliseconds.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("the kernel counts what threads run"))
}

/// What `spread.len()` workers send in `TIME` on a link of this rate, with these lines of its own;
/// each element of `spread` is the flows of a worker.
fn measure(link: &str, spread: &[Vec<u64>], rate: BitRate) -> Sent {
    measure_as(link, spread, rate, spread.len())
}

/// The same of as many routers of one worker each, if `workers` is 1.
fn measure_as(link: &str, spread: &[Vec<u64>], rate: BitRate, workers: usize) -> Sent {
    let encrypted = link.contains("\"vpn\"");
    let service = if encrypted { "service = \"vpn\"\n" } else { "" };
    let classes =
        include_str!("router.toml").replace("[[class]]\n", &format!("[[class]]\n{service}"));
    let text = format!(
        "[router]\nworkers = {workers}\n{classes}[[link]]\nport = \"out\"\nrate = \
         \"{}bit/s\"\n{link}\n",
        rate.0,
    );
    let config = RouterConfig::parse(&text, "bench").expect("the configuration is valid");
    let places = WorkerShares::for_workers(&config).expect("it can be shared");
    let tunnels = Tunnels::with(0..u64::MAX);
    let (start, barrier) = (Instant::now(), Barrier::new(spread.len()));
    let parts = std::thread::scope(|scope| {
        let hire = |(worker, flows): (usize, &Vec<u64>)| {
            let place = (places.get(worker).cloned(), &tunnels);
            let bed = Bed::new(&config, place, flows, Nanos::SECOND);
            let barrier = &barrier;
            scope.spawn(move || bed.run(start, barrier))
        };
        let threads: Vec<_> = spread.iter().enumerate().map(hire).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker panicked"))
            .collect::<Vec<_>>()
    });
    Sent {
        classes: std::array::from_fn(|class| parts.iter().map(|sent| sent.classes[class]).sum()),
        flows: std::array::from_fn(|flow| parts.iter().map(|sent| sent.flows[flow]).sum()),
        per_cpu: parts.iter().map(|sent| sent.per_cpu).sum(),
    }
}

/// 16 flows of each of these classes: the class is known by the source, which is that of the flow
/// modulo four.
fn of_classes(classes: &[u64]) -> Vec<u64> {
    (0..16).flat_map(|n| classes.iter().map(move |class| n * 4 + class)).collect()
}

/// One worker with all flows, two with those of `spread`, and these at `binding` of what they
/// forward: seven figures, of which `error` gives the sixth.
fn compare(
    link: &str,
    alone: &[Vec<u64>],
    spread: &[Vec<u64>],
    binding: f64,
    error: impl Fn(&Sent) -> f64,
) -> [f64; 7] {
    let alone = measure(link, alone, FREE);
    let both = measure(link, spread, FREE);
    let most = both.mpps() * binding;
    let rate = BitRate((most * 1e6) as u64 * (u64::from(SIZE) + OVERHEAD) * 8);
    let bound = measure(link, spread, rate);
    [
        alone.mpps(),
        both.mpps(),
        both.mpps() / alone.mpps(),
        bound.mpps() / alone.mpps(),
        bound.mpps() / most * 100.0,
        error(&bound),
        both.per_cpu / alone.per_cpu,
    ]
}

fn print(title: &str, binding: f64, what: &str, rows: [Vec<f64>; 7]) {
    println!("{title}, {SIZE}-byte frames, medians (least, most) of {RUNS} runs");
    let binding = format!("two workers, rate {:.0} % of that, uneven, to one", binding * 100.0);
    let names = [
        ("one worker", "Mpps"),
        ("two workers, rate not binding", "Mpps"),
        ("  to one worker (aim: 1.7)", "x"),
        (&binding, "x"),
        ("  sent of the rate", "%"),
        (what, "%"),
        ("two workers to one per second of CPU, rate not binding", "x"),
    ];
    for ((what, unit), values) in names.into_iter().zip(rows) {
        let Spread { median, min, max } = Spread::of(values);
        println!("  {what:<66} {median:>8.3} ({min:.3}, {max:.3}) {unit}");
    }
}

pub(crate) fn run() {
    let classes = ([of_classes(&[0, 0, 1, 2])], [of_classes(&[0]), of_classes(&[1, 2])]);
    let flows = ([(0..32).collect::<Vec<u64>>()], [(0..20).collect(), (20..32).collect()]);
    let mut by_class: [Vec<f64>; 7] = Default::default();
    let mut by_flow: [Vec<f64>; 7] = Default::default();
    let mut sealed: [Vec<f64>; 2] = Default::default();
    for _ in 0..RUNS {
        let values = compare(WFQ, &classes.0, &classes.1, BINDING, Sent::share_error);
        by_class.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
        let values = compare(PDRR, &flows.0, &flows.1, BINDING_FLOWS, |sent| sent.flow_error(32));
        by_flow.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
        let [alone, both] = [&flows.0[..], &flows.1].map(|spread| measure(TUNNEL, spread, FREE));
        let ratios = [both.mpps() / alone.mpps(), both.per_cpu / alone.per_cpu];
        sealed.iter_mut().zip(ratios).for_each(|(row, value)| row.push(value));
    }
    let what = "  largest deviation of a class from its share (aim: 1)";
    print("workers of one router on one outgoing link, WFQ/ALTQ", BINDING, what, by_class);
    let what = "  largest deviation of one of 32 flows from its share (aim: 5)";
    print("the same by flows, PDRR with admission", BINDING_FLOWS, what, by_flow);
    println!("all through one tunnel (AES-128-GCM), two workers to one");
    for (what, ratios) in ["by the clock (aim: 1.8)", "per second of CPU"].into_iter().zip(sealed) {
        let Spread { median, min, max } = Spread::of(ratios);
        println!("  {what:<66} {median:>8.3} ({min:.3}, {max:.3}) x");
    }
    let even = [(0..16).collect(), (16..32).collect()];
    print_every(&flows.0, &even);
    println!("  cores here: {}", std::thread::available_parallelism().map_or(1, usize::from));
}

/// Every discipline at a rate that binds nobody: two workers to one, which runs before them and
/// after, as the machine may change its speed meanwhile.
fn print_every(alone: &[Vec<u64>], even: &[Vec<u64>]) {
    let ratio = |link, workers| {
        let one = || measure(link, alone, FREE).mpps();
        let (before, both) = (one(), measure_as(link, even, FREE, workers).mpps());
        2.0 * both / (before + one())
    };
    let case = |(name, link): &(&str, &'static str), workers| -> Case<'_> {
        let link = *link;
        ((*name).to_owned(), Box::new(move || ratio(link, workers)))
    };
    let mut cases: Vec<_> = DISCIPLINES.iter().map(|named| case(named, 2)).collect();
    cases.push(case(&("fifo, two routers with nothing in common", DISCIPLINES[0].1), 1));
    let rounds = Rounds::run(TURNS, &mut cases);
    println!("every discipline, 16 of 32 flows on each of two workers, to one worker (aim: 1.8)");
    for (name, spread) in rounds.rows() {
        let Some(Spread { median, min, max }) = spread else { continue };
        println!("  {name:<66} {median:>8.2} ({min:.2}, {max:.2}) x");
    }
    println!("  {}", rounds.verdict());
}
