//! The router's own pipeline between two ports in memory.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use evenkeel_core::Nanos;
use evenkeel_net::fib::{NextHop, Route};
use evenkeel_net::{MacAddr, PortIndex, Prefix};
use evenkeel_ports::memory::{MemoryOptions, MemoryPort};
use evenkeel_ports::{FramePool, Port, RxFrame};
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::{LinkState, Pipeline};

/// Frames given to the router at once.
const BURST: u64 = 32;
const FLOWS: u64 = 64;
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IN: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUT: [u8; 6] = [2, 0, 0, 0, 0, 3];
const SINK: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// A host, the router and a sink.
pub(crate) struct Forwarding {
    pipeline: Pipeline,
    ports: [MemoryPort; 2],
    host: MemoryPort,
    sink: MemoryPort,
    sink_pool: FramePool,
    received: Vec<RxFrame>,
    frames: Vec<Vec<u8>>,
    now: Nanos,
    next: usize,
}

/// An Ethernet frame of `size` bytes (frame check sequence not counted) with a UDP packet of one of 64 flows, from one of four sources.
pub(crate) fn frame_between(to: &[u8], destination: [u8; 4], flow: u64, size: u16) -> Vec<u8> {
    let ip_len = size - 14;
    let mut frame = Vec::with_capacity(usize::from(size));
    frame.extend_from_slice(to);
    frame.extend_from_slice(&HOST);
    frame.extend_from_slice(&0x0800_u16.to_be_bytes());
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&ip_len.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&[10, 0, 1, 1 + (flow % 4) as u8]);
    frame.extend_from_slice(&destination);
    let sum = evenkeel_net::checksum::sum(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&(5000 + flow as u16).to_be_bytes());
    frame.extend_from_slice(&5001_u16.to_be_bytes());
    frame.extend_from_slice(&(ip_len - 20).to_be_bytes());
    frame.resize(usize::from(size), 0);
    frame
}

impl Forwarding {
    /// A router with four classes by source address and a link with discipline `kind`, without a rate, so that nothing is dropped.
    pub(crate) fn new(kind: &str, size: u16) -> Self {
        let knobs = match kind {
            "fifo" => "kind = \"fifo\", limit = 256",
            "wfq-altq" => "kind = \"wfq-altq\", limit = 256, weight = { b = 30, c = 300, d = 1000 }",
            "lct" => {
                "kind = \"lct\", limit = 256, module2 = false, x_delay = { b = \"10us\", c = \"50us\", d = \"200us\" }"
            }
            other => unreachable!("no such case: {other}"),
        };
        let link = format!("[[link]]\nport = \"out\"\ndiscipline = {{ {knobs} }}\n");
        let text = format!("{}{link}", include_str!("router.toml"));
        let config =
            evenkeel_config::RouterConfig::parse(&text, "bench").expect("the configuration is valid");
        let now = Nanos::SECOND;
        let mut pipeline = Pipeline::new(&config, now).expect("the configuration is valid");
        for (index, mac) in [IN, OUT].into_iter().enumerate() {
            let state = LinkState { mac: MacAddr(mac), mtu: 1500, up: true };
            pipeline.set_link(now, PortIndex(index as u16), Some(state));
        }
        let out = PortIndex(1);
        let sink_address = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
        let network = Prefix::new(IpAddr::V4(Ipv4Addr::new(10, 0, 2, 0)), 24).expect("a prefix");
        pipeline.fib_mut().insert(network, Route::via(NextHop::connected(out), 0));
        let reachable = KernelNeighbourState::Reachable(MacAddr(SINK));
        pipeline.set_neighbour(now, out, sink_address, Some(reachable));
        let options = MemoryOptions { slots: 256, mtu: 1500 };
        let (host, port_in) = MemoryPort::pair(options, ("host", HOST), ("in", IN));
        let (port_out, sink) = MemoryPort::pair(options, ("out", OUT), ("sink", SINK));
        Self {
            pipeline,
            ports: [port_in, port_out],
            host,
            sink,
            sink_pool: FramePool::new(512),
            received: Vec::with_capacity(256),
            frames: (0..FLOWS).map(|flow| frame_between(&IN, [10, 0, 2, 1], flow, size)).collect(),
            now,
            next: 0,
        }
    }

    /// Forwards `times` packets, in bursts of 32.
    pub(crate) fn run(&mut self, times: u64) {
        let mut arrived = 0;
        for _ in 0..times / BURST {
            self.now += Nanos(100 * BURST);
            for _ in 0..BURST {
                assert!(self.host.inject(&self.frames[self.next]), "the port takes a burst");
                self.next = (self.next + 1) % self.frames.len();
            }
            self.pipeline.round(self.now, &mut self.ports);
            self.sink.rx_burst(&mut self.sink_pool, self.now, &mut self.received, 256);
            arrived += self.received.len() as u64;
            for received in self.received.drain(..) {
                self.sink_pool.release(received.frame);
            }
        }
        assert_eq!(arrived, times / BURST * BURST, "every packet is forwarded");
    }

    /// Nanoseconds per packet. The copies into and out of the ports in memory are included.
    pub(crate) fn time(&mut self, times: u64) -> f64 {
        let begin = Instant::now();
        self.run(times);
        begin.elapsed().as_nanos() as f64 / times as f64
    }
}
