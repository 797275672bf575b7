//! Admission controls to test with: one fed with rates chosen by hand, and one in front of a real
//! link.
#![allow(dead_code, unreachable_pub, reason = "each test and each fuzz target uses a part")]

pub mod ops;
pub mod world;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use evenkeel_core::admit::{
    Admission, AdmissionConfig, Observed, Pin, RouterLists, RouterListsConfig, Verdict,
};
use evenkeel_core::schedule::Treated;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Ppm};

/// The capacity of the published test network.
pub const C: BitRate = BitRate::from_mbps(10);

/// A packet on a wire that adds `overhead` bytes: with none the link's rate is that of IP packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct XpPacket {
    pub flow: FlowKey,
    pub len: u64,
    pub overhead: u64,
    pub arrival: Nanos,
    /// Which source sent it.
    pub source: u32,
    /// The router itself made it, to keep the network running.
    pub own: bool,
}

impl Packet for XpPacket {
    fn ip_len(&self) -> Bytes {
        Bytes(self.len)
    }
    fn wire_len(&self) -> Bytes {
        Bytes(self.len + self.overhead)
    }
    fn class(&self) -> Class {
        Class(0)
    }
    fn flow(&self) -> FlowKey {
        self.flow
    }
    fn flow_hash(&self) -> u64 {
        hash(&self.flow)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
    fn is_own_control(&self) -> bool {
        self.own
    }
    /// Users of 256 are a subscriber's.
    fn subscriber(&self) -> u32 {
        match self.flow.source {
            IpAddr::V4(user) => UNKNOWN + u32::from(user.octets()[2]),
            IpAddr::V6(_) => UNKNOWN,
        }
    }
}

/// A hash of the sources, destinations and ports of these tests.
pub fn hash(flow: &FlowKey) -> u64 {
    let low = |address: IpAddr| match address {
        IpAddr::V4(a) => u64::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits() as u64,
    };
    let ports = u64::from(flow.source_port) << 16 | u64::from(flow.destination_port);
    (low(flow.source) << 32 ^ low(flow.destination) ^ ports << 8)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// UDP flow `n` of user `user`: 10.0.x.y -> 10.1.0.1.
pub fn flow(user: u16, n: u16) -> FlowKey {
    let [high, low] = user.to_be_bytes();
    FlowKey {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, high, low)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
        protocol: 17,
        source_port: n,
        destination_port: 80,
        flow_label: 0,
    }
}

/// An admission control whose link has the fair rate and priority load that the test says.
pub struct Fluid {
    pub admission: Admission,
    pub lists: RouterLists,
    pub now: Nanos,
    pub fair: BitRate,
    pub load: Ppm,
    observed: Observed,
    /// Bit-nanoseconds that were not a whole byte.
    rest: (u128, u128),
    pub backlog: fn(&FlowKey) -> Bytes,
}

impl Fluid {
    pub fn new(config: AdmissionConfig) -> Self {
        let observed = Observed {
            fair_bytes: Some(Bytes(0)),
            priority_bytes: Some(Bytes(0)),
            ..Observed::default()
        };
        Self {
            admission: Admission::new(config, 7, Nanos::ZERO).unwrap(),
            lists: RouterLists::new(RouterListsConfig::default(), 8).unwrap(),
            now: Nanos::ZERO,
            fair: C,
            load: Ppm::ZERO,
            observed,
            rest: (0, 0),
            backlog: |_| Bytes::ZERO,
        }
    }

    /// One of several workers of a link.
    pub fn of_link(config: AdmissionConfig, link: &Arc<SharedLink>, worker: usize) -> Self {
        let mut one = Self::new(config);
        one.admission.share(Some((Arc::clone(link), worker)));
        one
    }

    /// Another admission takes its place.
    pub fn rebuild(&mut self, link: &Arc<SharedLink>, worker: usize) {
        let config = self.admission.config().clone();
        self.admission = Admission::new(config, 7, self.now).unwrap();
        self.admission.share(Some((Arc::clone(link), worker)));
        self.admission.link_up(self.now, &self.observed);
    }

    fn flow_on(&mut self, to: Nanos) {
        let elapsed = u128::from(to.0 - self.now.0);
        let byte = 8_000_000_000;
        let (fair, load) = &mut self.rest;
        *fair += elapsed * u128::from(self.fair.0);
        *load += elapsed * u128::from(self.load.of(self.admission.config().rate.0));
        let count = |bytes: &mut Option<Bytes>, rest: &mut u128| {
            *bytes = bytes.map(|bytes| bytes + Bytes((*rest / byte) as u64));
            *rest %= byte;
        };
        count(&mut self.observed.fair_bytes, fair);
        count(&mut self.observed.priority_bytes, load);
        self.now = to;
    }

    /// Lets time pass up to `to`, ticks at their instants.
    pub fn until(&mut self, to: Nanos) {
        while self.admission.next_tick() <= to {
            let at = self.admission.next_tick().max(self.now);
            self.flow_on(at);
            self.admission.tick(at, &self.observed);
        }
        self.flow_on(to);
    }

    /// The link is closed by its fair rate from the next estimate on: now, in effect.
    pub fn close(&mut self) {
        self.fair = BitRate(self.admission.config().min_fair_bits() / 2);
        self.until(self.now + self.admission.config().fair_rate_interval * 2);
        assert!(self.admission.view().congested.is_some());
    }

    /// A packet of a flow comes at `at`; if it passes the scheduler takes it as told.
    pub fn packet_at(&mut self, at: Nanos, flow: FlowKey, elastic: bool) -> Verdict {
        self.until(at);
        self.packet(flow, elastic)
    }

    pub fn packet(&mut self, flow: FlowKey, elastic: bool) -> Verdict {
        self.offer(flow, elastic, false)
    }

    /// A packet that the router itself has made.
    pub fn own_packet(&mut self, flow: FlowKey) -> Verdict {
        self.offer(flow, false, true)
    }

    fn offer(&mut self, flow: FlowKey, elastic: bool, own: bool) -> Verdict {
        let arrival = self.now;
        let packet = XpPacket { flow, len: 100, overhead: 0, arrival, source: 0, own };
        let verdict = self.admission.decide(self.now, &packet, PIN, &self.backlog, &mut self.lists);
        if verdict == Verdict::Pass {
            let treated = if elastic { Treated::Queued } else { Treated::Priority };
            self.admission.treated(self.now, treated, &mut self.lists);
        }
        verdict
    }

    pub fn protects(&self, flow: FlowKey) -> bool {
        self.admission.explain(self.now, &flow, hash(&flow)).protected.is_some()
    }
}

/// Where the tests' flows leave.
pub const PIN: Pin = Pin { next_hop: 1, ttl: 64 };

/// Milliseconds.
pub const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// What is published for the test network, all tables small.
pub fn config() -> AdmissionConfig {
    AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::published(C) }
}

/// The defaults, all tables small.
pub fn defaults() -> AdmissionConfig {
    AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::new(C) }
}
