//! `evenkeel-bench blocked`: what changes of a running router cost: effective blocked time, packets
//! lost by the offered rate.
//!
//! In memory and virtual time: 10,000 packets a second to a link that carries a little more, with a
//! standing queue when the change is made. Beside it the time that the worker is away for the
//! change, measured: what arrives meanwhile waits in the receive ring.

use std::time::Instant;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_net::fib::{NextHop, Route};
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::FramePool;
use evenkeel_ports::Port as _;
use evenkeel_ports::memory::{MemoryOptions, MemoryPort};
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::{Buffers, LinkState, Pipeline};

use crate::pipeline::frame_between;

const IN: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUT: [u8; 6] = [2, 0, 0, 0, 0, 3];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 5];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SINK: [u8; 6] = [2, 0, 0, 0, 0, 4];
const SPACING: Nanos = Nanos::from_micros(100);
/// Packets sent before the change at once, so that there is a queue; and one by one, before and
/// after it.
const AHEAD: u64 = 60;
const EACH: u64 = 5_000;
const REPEATS: usize = 5;

const BASE: &str = "discipline = { kind = \"wfq-altq\", limit = 400 }";
/// Name, and the link before and after; words in capitals: see [`change`].
const CHANGES: [(&str, &str, &str); 12] = [
    ("weights", BASE, "discipline = { kind = \"wfq-altq\", limit = 400, weight = { d = 1000 } }"),
    ("rate", BASE, "RATE"),
    ("discipline: wfq-altq to fifo", BASE, "discipline = { kind = \"fifo\", limit = 400 }"),
    (
        "discipline: fifo to lct",
        "discipline = { kind = \"fifo\", limit = 400 }",
        "discipline = { kind = \"lct\", limit = 400 }",
    ),
    (
        "discipline: lct to pdrr",
        "discipline = { kind = \"lct\", limit = 400 }",
        "discipline = { kind = \"pdrr\" }",
    ),
    (
        "discipline: pdrr to afan",
        "discipline = { kind = \"pdrr\" }",
        "discipline = { kind = \"afan\", limit = 400 }",
    ),
    (
        "admission, switched on",
        "discipline = { kind = \"pdrr\" }",
        "discipline = { kind = \"pdrr\" }\nadmission = { rate = \"100Mbit/s\" }",
    ),
    ("reload of everything, nothing different", BASE, BASE),
    ("another interface goes and comes", BASE, "INTERFACE"),
    ("another port is removed", BASE, "PORT"),
    ("a class more", BASE, "CLASS"),
    ("other buffers (every frame is copied)", BASE, "BUFFERS"),
];

struct Bed {
    pipeline: Pipeline,
    ports: Vec<MemoryPort>,
    host: MemoryPort,
    sink: MemoryPort,
    pool: FramePool,
    frames: Vec<Vec<u8>>,
    now: Nanos,
    sent: u64,
    arrived: u64,
}

fn config(link: &str, rate: &str) -> RouterConfig {
    config_and(link, rate, "")
}

/// With further tables.
fn config_and(link: &str, rate: &str, tables: &str) -> RouterConfig {
    let text = format!(
        "{}[[port]]\nname = \"other\"\ninterface = \"other\"\n[[link]]\nport = \"out\"\nrate = \
         \"{rate}\"\n{link}\n{tables}",
        include_str!("router.toml")
    );
    RouterConfig::parse(&text, "blocked.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// A pipeline whose tables are as a mirror would fill them.
fn filled(config: &RouterConfig, now: Nanos) -> Pipeline {
    let mut pipeline = Pipeline::new(config, now).expect("the configuration is valid");
    for (index, mac) in [IN, OUT, OTHER].into_iter().enumerate().take(config.ports.len()) {
        let state = LinkState { mac: MacAddr(mac), mtu: 1500, up: true };
        pipeline.set_link(now, PortIndex(index as u16), Some(state));
    }
    let out = PortIndex(1);
    let network = "10.0.2.0/24".parse().expect("a prefix");
    pipeline.fib_mut().insert(network, Route::via(NextHop::connected(out), 0));
    let reachable = KernelNeighbourState::Reachable(MacAddr(SINK));
    pipeline.set_neighbour(now, out, "10.0.2.1".parse().expect("an address"), Some(reachable));
    pipeline
}

impl Bed {
    fn new(link: &str) -> Self {
        let now = Nanos::SECOND;
        let pipeline = filled(&config(link, "40Mbit/s"), now);
        let options = MemoryOptions { slots: 512, mtu: 1500 };
        let (host, port_in) = MemoryPort::pair(options, ("host", HOST), ("in", IN));
        let (port_out, sink) = MemoryPort::pair(options, ("out", OUT), ("sink", SINK));
        let (other, _unused) = MemoryPort::pair(options, ("other", OTHER), ("far", SINK));
        let frames = (0..64).map(|flow| frame_between(&IN, [10, 0, 2, 1], flow, 446)).collect();
        let ports = vec![port_in, port_out, other];
        Self {
            pipeline,
            ports,
            host,
            sink,
            pool: FramePool::new(1024),
            frames,
            now,
            sent: 0,
            arrived: 0,
        }
    }

    fn send(&mut self, packets: u64, spacing: Nanos) {
        for _ in 0..packets {
            let frame = &self.frames[self.sent as usize % self.frames.len()];
            assert!(self.host.inject(frame), "the port takes what comes");
            self.sent += 1;
            self.now += spacing;
            self.round();
        }
    }

    fn round(&mut self) {
        let mut received = Vec::new();
        self.pipeline.round(self.now, &mut self.ports);
        self.sink.rx_burst(&mut self.pool, self.now, &mut received, 512);
        self.arrived += received.len() as u64;
        received.into_iter().for_each(|received| self.pool.release(received.frame));
    }
}

/// Packets that waited when the change was made, packets lost, and microseconds that the worker was
/// away.
fn change(before: &str, after: &str) -> (u64, u64, f64) {
    let mut bed = Bed::new(before);
    bed.send(EACH, SPACING);
    bed.send(AHEAD, Nanos(1));
    let waiting = bed.sent - bed.arrived;
    let mut wanted = match after {
        "RATE" => config(before, "60Mbit/s"),
        "INTERFACE" | "PORT" | "BUFFERS" => config(before, "40Mbit/s"),
        // Parsed with the others: what a discipline has for each class it has for this one too.
        "CLASS" => config_and(before, "40Mbit/s", "[[class]]\nname = \"more\"\n"),
        link => config(link, "40Mbit/s"),
    };
    match after {
        "PORT" => {
            wanted.ports.truncate(2);
            wanted.links.truncate(2);
        }
        "BUFFERS" => wanted.router.buffers += 1_024,
        _ => {}
    }
    // Another pipeline takes the place of this one. It is built and filled while this one forwards.
    let new = ["PORT", "CLASS", "BUFFERS"].contains(&after).then(|| filled(&wanted, bed.now));
    let begin = Instant::now();
    if let Some(mut new) = new {
        let buffers = if after == "BUFFERS" { Buffers::Copied } else { Buffers::Kept };
        std::mem::swap(&mut new, &mut bed.pipeline);
        let mut old = new;
        if after == "PORT" {
            let mut port = bed.ports.pop().expect("the other one");
            old.port_closed("other", &port.counters());
        }
        bed.pipeline.take_over(bed.now, old, buffers);
    } else if after == "INTERFACE" {
        let state = LinkState { mac: MacAddr(OTHER), mtu: 1500, up: true };
        bed.pipeline.set_link(bed.now, PortIndex(2), None);
        bed.pipeline.set_link(bed.now, PortIndex(2), Some(state));
    } else {
        bed.pipeline.reload(bed.now, &wanted).unwrap_or_else(|error| panic!("{error}"));
    }
    let away = begin.elapsed().as_secs_f64() * 1e6;
    bed.send(EACH, SPACING);
    for _ in 0..EACH {
        bed.now += SPACING;
        bed.round();
    }
    (waiting, bed.sent - bed.arrived, away)
}

pub(crate) fn run() {
    println!(
        "Changes of a running router: effective blocked time (packets lost / offered rate; 10,000 \
         packets a second, in memory)"
    );
    println!(
        "  {:<42} {:>8} {:>6} {:>13} {:>26}",
        "", "waiting", "lost", "blocked, ms", "worker away, us (most)"
    );
    for (name, before, after) in CHANGES {
        let mut runs: Vec<(u64, u64, f64)> = (0..REPEATS).map(|_| change(before, after)).collect();
        runs.sort_by(|a, b| a.2.total_cmp(&b.2));
        let (waiting, lost, away) = runs[REPEATS / 2];
        let most = runs[REPEATS - 1].2;
        let blocked = lost as f64 * SPACING.0 as f64 / 1e6;
        println!("  {name:<42} {waiting:>8} {lost:>6} {blocked:>13.1} {away:>17.0} ({most:.0})");
    }
}
