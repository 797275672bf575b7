//! The router's own pipeline between two ports in memory.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_config::RouterConfig;
use evenkeel_core::{Cycles, Nanos};
use evenkeel_net::fib::{NextHop, Route};
use evenkeel_net::{MacAddr, PortIndex, Prefix};
use evenkeel_ports::memory::{MemoryOptions, MemoryPort};
use evenkeel_ports::tsc::Tsc;
use evenkeel_ports::{FramePool, Port, RxFrame, huge_pages};
use evenkeel_router::Disciplines;
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::cycles::CycleClock;
use evenkeel_router::pipeline::{LinkState, Pipeline, Tunnels, WorkerShares};
use evenkeel_router::snapshot::CycleSnapshot;

/// Frames given to the router at once.
const BURST: u64 = 32;
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IN: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUT: [u8; 6] = [2, 0, 0, 0, 0, 3];
const SINK: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// What a router in memory does with packets, and how many flows there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    /// What follows `port` in `[[link]]`; empty: no such table, which is a FIFO.
    pub(crate) link: &'static str,
    /// Further tables.
    pub(crate) tables: &'static str,
    /// Up to 65,536.
    pub(crate) flows: u64,
    /// Packets that wait at the link all the time; 0: none does.
    pub(crate) backlog: u64,
    /// Every packet is the first of its flow, for as long as there are flows.
    pub(crate) first: bool,
    pub(crate) workers: Workers,
}

/// Who forwards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Workers {
    /// One, which has the link for itself.
    One,
    /// All comes by the second of two, and the link is the first one's: what both do is measured.
    Handed,
    /// All comes by the second of two, which share the link: the first one has nothing to do.
    Shared,
}

impl Setup {
    const fn new(name: &'static str, link: &'static str, tables: &'static str, flows: u64) -> Self {
        Self { name, link, tables, flows, backlog: 0, first: false, workers: Workers::One }
    }
}

const WFQ: &str =
    "discipline = { kind = \"wfq-altq\", limit = 256, weight = { b = 30, c = 300, d = 1000 } }";
const LCT: &str = "discipline = { kind = \"lct\", limit = 256, module2 = false, x_delay = { b = \
                   \"10us\", c = \"50us\", d = \"200us\" } }";
/// At a rate at which nothing waits for long, and a short packet still takes some nanoseconds.
const WFQ_SHARED: &str = "rate = \"100Gbit/s\"\ndiscipline = { kind = \"wfq-altq\", limit = 256 }";
const LCT_SHARED: &str = "rate = \"100Gbit/s\"\ndiscipline = { kind = \"lct\", limit = 256 }";
/// Never refuses: what admission costs is measured, not what it turns away.
const PDRR: &str = "discipline = { kind = \"pdrr\" }\nadmission = { rate = \"1000Gbit/s\", flows = \
                    131072, budget = false, expected_flows = false }";
/// The same at the rate at which packets come, so that what waits goes on waiting.
const PDRR_BUSY: &str = "rate = \"6720Mbit/s\"\ndiscipline = { kind = \"pdrr\", flows = 131072, \
                         buffer = 8192 }\nadmission = { rate = \"1000Gbit/s\", flows = 131072, \
                         budget = false, expected_flows = false, min_fair_rate = 0 }";
const CODEL: &str = "discipline = { kind = \"codel\" }";
const FAIRDROP: &str = "[fairdrop]\non = true\n";

/// Everything that is measured. Links never refuse a packet; all but the last have no rate.
pub(crate) const SETUPS: [Setup; 17] = [
    Setup::new("fifo", "", "", 64),
    Setup::new("wfq-altq", WFQ, "", 64),
    Setup::new("lct", LCT, "", 64),
    Setup::new("admission + pdrr", PDRR, "", 64),
    Setup::new("fifo + fairdrop", "", FAIRDROP, 64),
    Setup::new("fifo, 64 k flows", "", "", 65_536),
    Setup::new("admission + pdrr, 64 k flows", PDRR, "", 65_536),
    Setup::new("fifo + fairdrop, 64 k flows", "", FAIRDROP, 65_536),
    Setup { first: true, ..Setup::new("fifo, first packets", "", "", 65_536) },
    Setup { first: true, ..Setup::new("admission + pdrr, first packets", PDRR, "", 65_536) },
    // What is switched off should not be seen.
    Setup::new("fifo + fairdrop, off", "", "[fairdrop]\non = false\n", 64),
    Setup::new("codel", CODEL, "", 64),
    Setup {
        workers: Workers::Handed,
        ..Setup::new("lct, handed to the first worker", LCT, "", 64)
    },
    // What the next two are to be compared with.
    Setup::new("wfq-altq, with a rate", WFQ_SHARED, "", 64),
    Setup {
        workers: Workers::Shared,
        ..Setup::new("wfq-altq, one of two workers", WFQ_SHARED, "", 64)
    },
    Setup { workers: Workers::Shared, ..Setup::new("lct, one of two workers", LCT_SHARED, "", 64) },
    Setup {
        backlog: 4_096,
        ..Setup::new("admission + pdrr, 64 k flows, 4 k packets wait", PDRR_BUSY, "", 65_536)
    },
];

/// The counter that the bench itself times with, as the clock of the pipeline's own accounts.
struct Clock(Tsc);

impl CycleClock for Clock {
    fn now(&mut self) -> Cycles {
        self.0.now()
    }
    fn spend(&mut self, _: Cycles) {
        unreachable!("no service is configured");
    }
    fn hertz(&self) -> u64 {
        self.0.hertz()
    }
    fn source(&self) -> String {
        format!("{:?}", self.0.source())
    }
}

/// A host, the router and a sink.
pub(crate) struct Forwarding {
    /// `None`: nothing is timed.
    tsc: Option<Tsc>,
    /// Cycles inside the router so far.
    inside: u64,
    /// Of the random numbers that flows are drawn by; `None`: they take turns.
    state: Option<u64>,
    turn: u64,
    pipeline: Pipeline,
    ports: [MemoryPort; 2],
    /// The first worker, if the other one is measured with it.
    owner: Option<(Pipeline, [MemoryPort; 2])>,
    host: MemoryPort,
    sink: MemoryPort,
    sink_pool: FramePool,
    received: Vec<RxFrame>,
    frames: Vec<Vec<u8>>,
    now: Nanos,
}

/// An Ethernet frame of `size` bytes (frame check sequence not counted) with a UDP packet of flow
/// `flow` (below 65,536), from one of four sources.
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
    frame.extend_from_slice(&(5000 + (flow % 64) as u16).to_be_bytes());
    frame.extend_from_slice(&(5001 + (flow / 64) as u16).to_be_bytes());
    frame.extend_from_slice(&(ip_len - 20).to_be_bytes());
    frame.resize(usize::from(size), 0);
    frame
}

/// A worker of the router with its ports, and the other ends of these.
fn worker(
    config: &RouterConfig,
    shares: Option<WorkerShares>,
    tsc: Option<Tsc>,
) -> (Pipeline, [MemoryPort; 2], [MemoryPort; 2]) {
    let now = Nanos::SECOND;
    let mut pipeline = Pipeline::for_worker(config, now, Disciplines::default(), shares)
        .expect("the configuration is valid");
    for (index, mac) in [IN, OUT].into_iter().enumerate() {
        let state = LinkState { mac: MacAddr(mac), mtu: 1500, up: true };
        pipeline.set_link(now, PortIndex(index as u16), Some(state));
    }
    if let Some(tsc) = tsc {
        pipeline
            .set_surroundings(Box::new(Clock(tsc)), Tunnels::with(0..u64::MAX))
            .expect("the configuration is valid");
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
    (pipeline, [port_in, port_out], [host, sink])
}

impl Forwarding {
    /// A router with four classes by source address and frames of `size` bytes (check sequence not
    /// counted). With `accounts` it measures itself, by stage.
    pub(crate) fn new(setup: &Setup, size: u16, accounts: bool) -> Self {
        Self::with_clock(setup, size, accounts, Some(Tsc::calibrate(Nanos::from_millis(20))))
    }

    /// The same without a clock: cycles are virtual, and each run does the same whatever the
    /// machine's speed.
    pub(crate) fn untimed(setup: &Setup, size: u16) -> Self {
        Self::with_clock(setup, size, false, None)
    }

    fn with_clock(setup: &Setup, size: u16, accounts: bool, tsc: Option<Tsc>) -> Self {
        let link = match setup.link {
            "" => String::new(),
            link => format!("[[link]]\nport = \"out\"\n{link}\n"),
        };
        let workers = if setup.workers == Workers::One { 1 } else { 2 };
        let router = format!("[router]\ncycles = {accounts}\nworkers = {workers}\n");
        let text = format!("{router}{}{link}{}", include_str!("router.toml"), setup.tables);
        let config = RouterConfig::parse(&text, "bench").expect("the configuration is valid");
        let now = Nanos::SECOND;
        let mut shares = WorkerShares::for_workers(&config).expect("workers can have it");
        let (pipeline, ports, [host, own_sink]) = worker(&config, shares.pop(), tsc);
        let first = shares.pop().filter(|_| setup.workers == Workers::Handed);
        let first = first.map(|first| worker(&config, Some(first), tsc));
        let (owner, sink) = match first {
            Some((pipeline, ports, [_, sink])) => (Some((pipeline, ports)), sink),
            None => (None, own_sink),
        };
        let mut router = Self {
            tsc,
            inside: 0,
            state: None,
            turn: 0,
            pipeline,
            ports,
            owner,
            host,
            sink,
            sink_pool: FramePool::new(512),
            received: Vec::with_capacity(256),
            frames: (0..setup.flows)
                .map(|flow| frame_between(&IN, [10, 0, 2, 1], flow, size))
                .collect(),
            now,
        };
        // As the router does with its tables.
        huge_pages::gather();
        if !setup.first {
            router.establish();
        }
        for _ in 0..setup.backlog / BURST {
            router.inject();
            router.round();
            router.take();
        }
        router
    }

    /// A round of all workers.
    fn round(&mut self) {
        self.pipeline.round(self.now, &mut self.ports);
        if let Some((owner, ports)) = &mut self.owner {
            owner.round(self.now, ports);
        }
    }

    /// Each flow has sent three packets, and from here on flows are drawn at random.
    fn establish(&mut self) {
        for _ in 0..3 * self.frames.len() as u64 / BURST {
            self.now += Nanos(100 * BURST);
            self.inject();
            self.round();
            self.take();
        }
        self.state = Some(1);
    }

    /// The host sends a burst of packets, of flows drawn at random or one after the other.
    fn inject(&mut self) {
        for _ in 0..BURST {
            let flow = match &mut self.state {
                Some(state) => {
                    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    ((*state >> 32) * self.frames.len() as u64) >> 32
                }
                None => {
                    self.turn += 1;
                    (self.turn - 1) % self.frames.len() as u64
                }
            };
            assert!(self.host.inject(&self.frames[flow as usize]), "the port takes a burst");
        }
    }

    /// The sink takes what has arrived: so many packets.
    fn take(&mut self) -> u64 {
        self.sink.rx_burst(&mut self.sink_pool, self.now, &mut self.received, 256);
        let arrived = self.received.len() as u64;
        for received in self.received.drain(..) {
            self.sink_pool.release(received.frame);
        }
        arrived
    }

    /// Packets that the outgoing link holds.
    fn held(&self) -> u64 {
        let pipeline = self.owner.as_ref().map_or(&self.pipeline, |(owner, _)| owner);
        let held = pipeline.link(PortIndex(1)).expect("it was made").held();
        held.queued + held.in_ring
    }

    /// Forwards `times` packets of flows drawn at random, in bursts of 32.
    pub(crate) fn run(&mut self, times: u64) {
        let mut arrived = 0;
        let before = self.held();
        for _ in 0..times / BURST {
            self.now += Nanos(100 * BURST);
            self.inject();
            let tsc = self.tsc;
            let now = || tsc.map_or(0, |tsc| tsc.now().0);
            let begin = now();
            self.counted_round();
            self.inside += now().saturating_sub(begin);
            arrived += self.take();
        }
        assert_eq!(arrived + self.held(), times / BURST * BURST + before, "nothing is lost");
        assert!(arrived + BURST >= times / BURST * BURST, "as many leave as come");
    }

    /// A round whose instructions are counted, told from others by the name of this function.
    #[inline(never)]
    fn counted_round(&mut self) {
        self.round();
    }

    /// Nanoseconds per packet inside the router; its copies out of and into the ports in memory are
    /// included, what the host and the sink do is not.
    pub(crate) fn time(&mut self, times: u64) -> f64 {
        self.inside = 0;
        self.run(times);
        let tsc = self.tsc.expect("what is timed has a clock");
        tsc.to_nanos(Cycles(self.inside)).0 as f64 / times as f64
    }

    /// The router's own accounts.
    pub(crate) fn accounts(&mut self) -> CycleSnapshot {
        self.pipeline
            .snapshot(self.now, &mut self.ports)
            .cycles
            .expect("it was told to measure itself")
    }
}
