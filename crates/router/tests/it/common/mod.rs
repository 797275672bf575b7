//! Shared by the tests: frames made by hand, and a router of memory ports with hosts at its other
//! ends.
#![allow(dead_code, unreachable_pub, reason = "the tests on real interfaces use a part")]

use std::error::Error;
use std::net::IpAddr;

use evenkeel_config::{Change, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_net::fib::{NextHop, Route, RouteKind};
use evenkeel_net::frame::{Headers, Parsed, parse};
use evenkeel_net::{MacAddr, PortIndex, checksum};
use evenkeel_ports::memory::{MemoryOptions, MemoryPort};
use evenkeel_router::mirror::MirrorEvent;
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::{LinkState, Pipeline, Round, WorkerShares};
use evenkeel_router::{Disciplines, Snapshot};

/// What a test frame is like.
#[derive(Clone, Copy, Debug)]
pub struct Udp {
    pub ttl: u8,
    pub payload: usize,
    pub dscp: u8,
    pub dont_fragment: bool,
    pub port: u16,
}

impl Default for Udp {
    fn default() -> Self {
        Self { ttl: 64, payload: 100, dscp: 0, dont_fragment: false, port: 5000 }
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A UDP frame with right checksums.
pub fn udp(macs: (MacAddr, MacAddr), source: IpAddr, destination: IpAddr, udp: Udp) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&macs.1.0);
    frame.extend_from_slice(&macs.0.0);
    let udp_len = (8 + udp.payload) as u16;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend_from_slice(&[0x08, 0x00]);
            let mut header = vec![0x45, udp.dscp << 2];
            header.extend_from_slice(&(20 + udp_len).to_be_bytes());
            header.extend_from_slice(&[
                0x12,
                0x34,
                if udp.dont_fragment { 0x40 } else { 0 },
                0,
                udp.ttl,
                17,
                0,
                0,
            ]);
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&destination.octets());
            let sum = checksum::sum(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60 | udp.dscp >> 2, (udp.dscp & 3) << 6, 0, 0]);
            frame.extend_from_slice(&udp_len.to_be_bytes());
            frame.extend_from_slice(&[17, udp.ttl]);
            frame.extend_from_slice(&source.octets());
            frame.extend_from_slice(&destination.octets());
        }
        _ => panic!("two families"),
    }
    let l4 = frame.len();
    frame.extend_from_slice(&udp.port.to_be_bytes());
    frame.extend_from_slice(&udp.port.to_be_bytes());
    frame.extend_from_slice(&udp_len.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend((0..udp.payload).map(|i| i as u8));
    let sum = checksum::pseudo_header(source, destination, 17, u32::from(udp_len))
        .plus(checksum::sum(&frame[l4..]));
    frame[l4 + 6..l4 + 8].copy_from_slice(&sum.checksum().to_be_bytes());
    frame
}

/// An echo request, or the reply to one.
pub fn echo(
    macs: (MacAddr, MacAddr),
    (source, destination): (IpAddr, IpAddr),
    number: u16,
    is_reply: bool,
) -> Vec<u8> {
    let mut frame = udp(macs, source, destination, Udp { payload: 56, ..Udp::default() });
    frame[23] = 1;
    frame[24..26].fill(0);
    let sum = checksum::sum(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..42].copy_from_slice(&[if is_reply { 0 } else { 8 }, 0, 0, 0, 0, 7, 0, 0]);
    frame[40..42].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The headers of a frame that must be an IP packet.
pub fn headers(frame: &[u8]) -> Headers {
    match parse(frame) {
        Ok(Parsed::Ip(headers)) => headers,
        other => panic!("{other:?}: {frame:02x?}"),
    }
}

/// Whether the transport checksum of a frame is right.
pub fn l4_checksum_is_right(frame: &[u8]) -> bool {
    let headers = headers(frame);
    let l4 = &frame[usize::from(headers.l4)..headers.frame_len()];
    let pseudo = match (headers.protocol, headers.flow.source.is_ipv4()) {
        // ICMP of IPv4 has no pseudo-header.
        (1, _) => checksum::Sum::default(),
        (protocol, _) => checksum::pseudo_header(
            headers.flow.source,
            headers.flow.destination,
            protocol,
            l4.len() as u32,
        ),
    };
    pseudo.plus(checksum::sum(l4)).fold() == 0xffff
}

/// A router of memory ports. Port `i` has the networks `10.0.i.0/24` and `2001:db8:i::/64`, itself
/// `.1`; a host with `.2` at its other end.
pub struct Bed {
    pub pipeline: Pipeline,
    pub ports: Vec<MemoryPort>,
    pub hosts: Vec<MemoryPort>,
    pub now: Nanos,
}

pub fn router_mac(port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, port as u8])
}

pub fn host_mac(port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 2, port as u8])
}

/// The host's address at a port, or another of its network.
pub fn v4(port: usize, host: u8) -> IpAddr {
    ip(&format!("10.0.{port}.{host}"))
}

pub fn v6(port: usize, host: u8) -> IpAddr {
    ip(&format!("2001:db8:{port}::{host}"))
}

impl Bed {
    /// `rest` is what the configuration says beside the ports, which are `p0`, `p1`, ...
    pub fn new(count: usize, rest: &str) -> Self {
        Self::with_mtu(count, rest, 9000, 1500)
    }

    /// `wire` is what the memory ports carry, `mtu` what the router believes.
    pub fn with_mtu(count: usize, rest: &str, wire: u32, mtu: u32) -> Self {
        Self::all(count, rest, wire, mtu).remove(0)
    }

    /// One for each worker of the router, which share nothing but its links.
    pub fn workers(count: usize, rest: &str) -> Vec<Self> {
        Self::all(count, rest, 9000, 1500)
    }

    /// Of a whole configuration, ports included.
    pub fn of(text: &str) -> Self {
        let config =
            RouterConfig::parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}"));
        Self::at(&config, None, 9000, 1500)
    }

    /// The configuration that [`Bed::new`] starts with.
    pub fn config(count: usize, rest: &str) -> RouterConfig {
        let mut text = rest.to_owned();
        for i in 0..count {
            text += &format!("\n[[port]]\nname = \"p{i}\"\ninterface = \"eth{i}\"\n");
        }
        RouterConfig::parse(&text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
    }

    fn all(count: usize, rest: &str, wire: u32, mtu: u32) -> Vec<Self> {
        let config = Self::config(count, rest);
        let places = WorkerShares::for_workers(&config).unwrap();
        if places.is_empty() {
            return vec![Self::at(&config, None, wire, mtu)];
        }
        places.into_iter().map(|place| Self::at(&config, Some(place), wire, mtu)).collect()
    }

    fn at(config: &RouterConfig, place: Option<WorkerShares>, wire: u32, mtu: u32) -> Self {
        let count = config.ports.len();
        let now = Nanos::from_secs(1);
        let mut pipeline =
            Pipeline::for_worker(config, now, Disciplines::default(), place).unwrap();
        let (mut ports, mut hosts) = (Vec::new(), Vec::new());
        for i in 0..count {
            let options = MemoryOptions { slots: 512, mtu: wire };
            let (port, host) = MemoryPort::pair(
                options,
                (&format!("p{i}"), router_mac(i).0),
                (&format!("h{i}"), host_mac(i).0),
            );
            ports.push(port);
            hosts.push(host);
            let index = PortIndex(i as u16);
            pipeline.set_link(now, index, Some(LinkState { mac: router_mac(i), mtu, up: true }));
            for (network, own, host, len) in [
                (format!("10.0.{i}.0/24"), v4(i, 1), v4(i, 2), 24),
                (format!("2001:db8:{i}::/64"), v6(i, 1), v6(i, 2), 64),
            ] {
                let fib = pipeline.fib_mut();
                fib.insert(network.parse().unwrap(), Route::via(NextHop::connected(index), 0));
                fib.insert(own.into(), Route::of(RouteKind::Local));
                let local = MirrorEvent::Local {
                    address: own,
                    prefix_len: len,
                    port: Some(index),
                    present: true,
                };
                pipeline.apply(now, local);
                let reachable = KernelNeighbourState::Reachable(host_mac(i));
                pipeline.set_neighbour(now, index, host, Some(reachable));
            }
        }
        Self { pipeline, ports, hosts, now }
    }

    /// The host at port `i` sends to the host at port `j`.
    pub fn send(&mut self, i: usize, j: usize, what: Udp) {
        let frame = udp((host_mac(i), router_mac(i)), v4(i, 2), v4(j, 2), what);
        self.inject(i, &frame);
    }

    pub fn send_v6(&mut self, i: usize, j: usize, what: Udp) {
        let frame = udp((host_mac(i), router_mac(i)), v6(i, 2), v6(j, 2), what);
        self.inject(i, &frame);
    }

    pub fn inject(&mut self, i: usize, frame: &[u8]) {
        assert!(self.hosts[i].inject(frame), "the wire is full");
    }

    /// A round, 1 us later.
    pub fn round(&mut self) -> Round {
        self.pass(Nanos::from_micros(1))
    }

    /// A round, `time` later.
    pub fn pass(&mut self, time: Nanos) -> Round {
        self.now += time;
        self.pipeline.round(self.now, &mut self.ports)
    }

    /// What the host at port `i` has received.
    pub fn received(&mut self, i: usize) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.hosts[i].take()).collect()
    }

    /// The one frame that the host at port `i` has received.
    pub fn one(&mut self, i: usize) -> Vec<u8> {
        let mut frames = self.received(i);
        assert_eq!(frames.len(), 1, "{frames:02x?}");
        frames.remove(0)
    }

    /// The counters, having checked that they add up.
    pub fn snapshot(&mut self) -> Snapshot {
        let snapshot = self.pipeline.snapshot(self.now, &mut self.ports);
        assert_conserved(&snapshot);
        snapshot
    }

    /// How often packets received at port `i` were dropped for `reason`.
    pub fn dropped(&mut self, i: usize, reason: &str) -> u64 {
        self.snapshot().ports[i].dropped.get(reason).copied().unwrap_or(0)
    }
}

/// Every identity that the counters promise.
pub fn assert_conserved(snapshot: &Snapshot) {
    let sum = |drops: &evenkeel_router::snapshot::Drops| drops.values().sum::<u64>();
    let (mut handed, mut entered, mut held) = (0, 0, 0);
    let removed = snapshot.removed.iter().map(|removed| (&removed.port, &removed.link));
    for (port, link) in snapshot.ports.iter().zip(&snapshot.links).chain(removed) {
        assert_eq!(
            port.rx_packets,
            port.to_host
                + port.exchange_received
                + port.forwarded
                + port.waiting
                + sum(&port.dropped),
            "what came in by a port: {port:?}"
        );
        handed += port.forwarded + port.originated - port.fragmented;
        // Of several workers.
        handed += port.handed_in;
        entered += port.handed_on;
        held += port.waiting + port.originated_waiting + port.tx_waiting;
        let mut sent = 0;
        let (mut queued, mut through) = (0, 0);
        for class in &link.classes {
            entered += class.in_packets;
            sent += class.sent_packets;
            queued += class.queued_packets;
            through += class.in_packets - class.sent_packets - sum(&class.dropped);
            assert_eq!(class.delay_buckets.iter().map(|(_, n)| n).sum::<u64>(), class.out_packets);
        }
        assert_eq!(through, link.queued + link.in_ring, "what a link holds: {link:?}");
        assert_eq!(queued, link.queued, "by class or in all: {link:?}");
        held += through;
        assert_eq!(
            sent + port.exchange_sent + port.from_others,
            port.tx_packets + port.tx_waiting + sum(&port.tx_dropped) + port.by_others,
            "what left a link: {port:?}"
        );
    }
    for class in
        snapshot.cluster.iter().flat_map(|cluster| &cluster.links).flat_map(|link| &link.classes)
    {
        let gone = class.granted_packets + sum(&class.dropped) + class.queued_packets;
        assert_eq!(class.in_packets, gone, "what a queue of the cluster holds: {class:?}");
        entered += sum(&class.dropped) + class.queued_packets;
        held += class.queued_packets;
    }
    let granted = snapshot.cluster.as_ref().map_or(0, |cluster| cluster.granted_waiting);
    entered += granted;
    held += granted;
    assert_eq!(handed, entered, "what was handed to links came in there");
    let buffers = &snapshot.buffers;
    let used = buffers.total - buffers.free - buffers.lent + buffers.super_frames;
    assert_eq!(used, held, "no buffer is lost");
}

/// Changes a key of `[fairdrop]` as `evenkeel ctl fairdrop` does.
pub fn set_fairdrop(bed: &mut Bed, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
    let change = evenkeel_config::parse_fairdrop(key, value, &[])?;
    Ok(bed.pipeline.change(bed.now, &Change::FairDrop(change))?)
}
