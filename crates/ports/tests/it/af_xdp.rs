//! AF_XDP ports over veth pairs between namespaces. Needs root.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Pulse, TestNet, available, beating, eventually, inside, leave_and_come_back};
use evenkeel_core::{Nanos, Reason};
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort, OwnFrames, XdpCommon, XdpPart};
use evenkeel_ports::heartbeat::Beater;
use evenkeel_ports::sys::{AF_XDP, Event, Poller, monotonic_now, refuse_sockets};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{self, AddressFamily, SocketType, sockopt};

use evenkeel_ports::{Frame, FramePool, Port, PortError, PortState, RxFrame, RxWaiting};

const RING: u32 = 256;
const LOCAL: [u8; 4] = [10, 0, 0, 1];
pub(crate) const TRANSIT: [u8; 4] = [10, 9, 0, 1];

/// A UDP packet to `to` in a frame for station `mac`, `len` bytes long, with a number behind its
/// headers.
pub(crate) fn packet(mac: [u8; 6], to: [u8; 4], number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; len];
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 8]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].fill(0);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&[10, 8, 0, 1]);
    frame[30..34].copy_from_slice(&to);
    frame[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
    // No checksum: neither partial nor wrong.
    frame[40..42].fill(0);
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

pub(crate) fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

pub(crate) struct Pair {
    pub(crate) net: TestNet,
    /// Sends and receives at the far end, with a pool of its own.
    pub(crate) far: AfPacketPort,
    pub(crate) far_pool: FramePool,
    pub(crate) near: AfXdpPort,
    pub(crate) pool: FramePool,
}

fn local() -> Vec<IpAddr> {
    vec![IpAddr::from(LOCAL)]
}

/// Two namespaces with one veth pair; `near` in `b`.
pub(crate) fn pair(options: AfXdpOptions) -> Pair {
    pair_over(options, |net| net.wire(("a", "va"), ("b", "vb")))
}

/// The same over another wire between `va` in `a` and `vb` in `b`.
pub(crate) fn pair_over(options: AfXdpOptions, wire: impl FnOnce(&TestNet)) -> Pair {
    let net = TestNet::new(&["a", "b", "elsewhere"]);
    wire(&net);
    net.hush("a", "va");
    net.hush("b", "vb");
    let far = inside(&net, "a", || AfPacketPort::open("va", AfPacketOptions::default())).unwrap();
    let mut pool = FramePool::new(2048);
    let near = inside(&net, "b", || AfXdpPort::open("vb", options, &mut pool, &local())).unwrap();
    Pair { net, far, far_pool: FramePool::new(512), near, pool }
}

pub(crate) fn small() -> AfXdpOptions {
    AfXdpOptions { ring: RING, ..AfXdpOptions::default() }
}

impl Pair {
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let mut frames = VecDeque::from([self.far_pool.alloc_from(frame).unwrap()]);
        let (far, pool) = (&mut self.far, &mut self.far_pool);
        eventually("sending", || (far.tx_burst(pool, &mut frames) == 1).then_some(()));
    }

    pub(crate) fn receive(&mut self) -> RxFrame {
        let mut out = Vec::new();
        let (near, pool) = (&mut self.near, &mut self.pool);
        eventually("receiving", || {
            (near.rx_burst(pool, monotonic_now(), &mut out, 1) == 1).then_some(())
        });
        out.pop().unwrap()
    }

    /// The next burst gives new sockets their buffers.
    pub(crate) fn wait_until_up(&mut self) {
        eventually("the wire is up", || {
            self.near.rx_burst(&mut self.pool, monotonic_now(), &mut Vec::new(), 1);
            (self.near.state() == PortState::Up).then_some(())
        });
    }

    /// Sends a packet and expects it to come in.
    pub(crate) fn passes(&mut self, number: u32) {
        let frame = packet(self.near.mac(), TRANSIT, number, 100);
        self.send(&frame);
        let rx = self.receive();
        assert_eq!(self.pool.bytes(&rx.frame), frame);
        self.pool.release(rx.frame);
    }

    /// Sends a packet and expects that the kernel gets it.
    fn is_passed_by(&mut self) {
        self.send(&packet(self.near.mac(), TRANSIT, 0, 100));
        std::thread::sleep(Duration::from_millis(20));
        let got = self.near.rx_burst(&mut self.pool, monotonic_now(), &mut Vec::new(), 8);
        assert_eq!(got, 0, "frames came here");
    }
}

#[test]
fn transit_frames_arrive_once_in_order_and_stamped_and_go_back_where_they_lie() {
    if !available("transit through AF_XDP") {
        return;
    }
    const COUNT: u32 = 20_000;
    let mut p = pair(small());
    println!("{}", p.near.mode());
    let mac = p.near.mac();
    let (mut frames, mut back) = (VecDeque::<Frame>::new(), VecDeque::<Frame>::new());
    let mut out = Vec::new();
    let (mut sent, mut expected, mut last, mut returned) = (0, 0, Nanos::ZERO, 0);
    let started = monotonic_now();
    while returned < COUNT {
        while sent < COUNT && frames.len() < 32 && sent - returned < 128 {
            let len = 60 + (sent as usize * 7) % 1400;
            frames.push_back(p.far_pool.alloc_from(&packet(mac, TRANSIT, sent, len)).unwrap());
            sent += 1;
        }
        p.far.tx_burst(&mut p.far_pool, &mut frames);
        let now = monotonic_now();
        assert!(now < started + Nanos::from_secs(60), "{returned} of {COUNT} after a minute");
        p.near.rx_burst(&mut p.pool, now, &mut out, 64);
        for rx in out.drain(..) {
            assert!(rx.arrival >= last && rx.arrival <= now && rx.arrival >= started);
            last = rx.arrival;
            let bytes = p.pool.bytes(&rx.frame);
            assert_eq!(bytes, packet(mac, TRANSIT, expected, 60 + (expected as usize * 7) % 1400));
            expected += 1;
            back.push_back(rx.frame);
        }
        assert_eq!(p.pool.in_use(), back.len() + p.near.lent(), "every buffer is somewhere");
        p.near.tx_burst(&mut p.pool, &mut back);
        p.far.rx_burst(&mut p.far_pool, now, &mut out, 64);
        for rx in out.drain(..) {
            assert_eq!(number_of(p.far_pool.bytes(&rx.frame)), returned);
            returned += 1;
            p.far_pool.release(rx.frame);
        }
    }
    let counters = p.near.counters();
    assert_eq!((counters.rx_frames, counters.tx_frames), (COUNT.into(), COUNT.into()));
    assert_eq!((counters.ring_loss, counters.dropped), (0, [0; Reason::COUNT]));
}

#[test]
fn a_few_stamps_order_the_frames_between_them() {
    if !available("some stamps") {
        return;
    }
    let mut p = pair(AfXdpOptions { stamp_every: 8, ..small() });
    let mac = p.near.mac();
    for number in 0..8 {
        p.passes(number);
    }
    // Twice through all buffers, so that some hold the stamp of an earlier frame.
    let mut out = Vec::new();
    for _ in 0..2 * 2048 / 32 {
        let before = monotonic_now();
        assert_eq!(p.near.rx_burst(&mut p.pool, before, &mut out, 64), 0);
        for number in 0..32 {
            p.send(&packet(mac, TRANSIT, number, 100));
        }
        let sent = monotonic_now();
        let (near, pool) = (&mut p.near, &mut p.pool);
        eventually("receiving", || {
            near.rx_burst(pool, monotonic_now(), &mut out, 64);
            (out.len() == 32).then_some(())
        });
        assert!(out.is_sorted_by_key(|rx| rx.arrival));
        assert!(out[0].arrival >= before, "not before the queue was seen empty");
        let mut arrivals: Vec<Nanos> =
            out.iter().map(|rx| rx.arrival).filter(|at| *at <= sent).collect();
        arrivals.dedup();
        // Each CPU counts for itself, and this thread may change its.
        assert!((2..=16).contains(&arrivals.len()), "{arrivals:?}");
        for (number, rx) in (0..).zip(out.drain(..)) {
            assert_eq!(number_of(p.pool.bytes(&rx.frame)), number);
            p.pool.release(rx.frame);
        }
    }
}

#[test]
fn what_is_for_the_machine_itself_goes_to_the_kernel() {
    if !available("frames for the host") {
        return;
    }
    let mut p = pair(small());
    p.net.ip("b", "address add 10.0.0.1/24 dev vb");
    p.net.ip("a", "address add 10.0.0.2/24 dev va");
    // Address resolution and echo are the kernel's.
    p.net.output("a", "ping -c 1 -W 2 10.0.0.1");
    let mac = p.near.mac();
    for (station, to) in [
        (mac, LOCAL),
        ([0xff; 6], TRANSIT),
        ([0x02, 0, 0, 0, 0, 0x77], TRANSIT),
        (mac, [224, 0, 0, 5]),
    ] {
        p.send(&packet(station, to, 1, 100));
    }
    p.passes(2);
    assert_eq!(p.near.counters().rx_frames, 1, "only transit came here");

    // An address that is no longer local is transit, and the other way round.
    p.near.set_local(&[IpAddr::from(TRANSIT)]).unwrap();
    p.send(&packet(mac, TRANSIT, 3, 100));
    p.send(&packet(mac, LOCAL, 4, 100));
    let rx = p.receive();
    assert_eq!(number_of(p.pool.bytes(&rx.frame)), 4);
    p.pool.release(rx.frame);

    // Others whose last four bytes are those of a local address are not local for that.
    let alike = Ipv4Addr::from(TRANSIT).to_ipv6_compatible();
    p.near.set_local(&[alike.into(), IpAddr::from(LOCAL)]).unwrap();
    p.send(&packet(mac, LOCAL, 5, 100));
    p.send(&packet(mac, TRANSIT, 6, 100));
    let rx = p.receive();
    assert_eq!(number_of(p.pool.bytes(&rx.frame)), 6);
    p.pool.release(rx.frame);
}

/// The exchange frames of a cluster are sent to all stations.
#[test]
fn frames_of_the_routers_own_protocol_come_whatever_their_destination_is() {
    if !available("frames of the router's own protocol") {
        return;
    }
    for (vlan, tag) in [(3_001, &[0x81, 0, 0x0b, 0xb9][..]), (0, &[])] {
        let own = Some(OwnFrames { vlan, ethertype: 0x88b5 });
        let mut p = pair(AfXdpOptions { own, ..small() });
        let frame = |tag: &[u8], kind: [u8; 2]| {
            let mut frame = [&[0xff; 6], &[2, 0, 0, 0, 0, 9], tag, &kind].concat();
            frame.resize(60, 7);
            frame
        };
        // Of another VLAN, of another protocol: the kernel's.
        p.send(&frame(&[0x81, 0, 0x0b, 0xba], [0x88, 0xb5]));
        for kind in [[0x88, 0xb4], [0x88, 0xb7], [0x08, 0x06]] {
            p.send(&frame(tag, kind));
        }
        // The last as it comes where the tag was taken away.
        for (kind, sent) in [([0x88, 0xb5], tag), ([0x88, 0xb6], tag), ([0x88, 0xb6], &[])] {
            p.send(&frame(sent, kind));
            let rx = p.receive();
            let bytes = p.pool.bytes(&rx.frame);
            assert_eq!(bytes[..16 + tag.len()], frame(tag, kind)[..16 + tag.len()], "VLAN {vlan}");
            p.pool.release(rx.frame);
        }
        assert_eq!(p.near.counters().rx_frames, 3, "VLAN {vlan}");
        p.send(&packet(p.near.mac(), TRANSIT, 8, 100));
        let rx = p.receive();
        assert_eq!(number_of(p.pool.bytes(&rx.frame)), 8);
        p.pool.release(rx.frame);
    }
}

#[test]
fn checksums_that_a_host_left_out_are_marked() {
    if !available("partial checksums") {
        return;
    }
    let mut p = pair(small());
    p.net.ip("a", "address add 10.8.0.1/16 dev va");
    p.net.ip("a", "route add 10.9.0.0/16 dev va");
    let mac: Vec<String> = p.near.mac().iter().map(|byte| format!("{byte:02x}")).collect();
    p.net.ip("a", &format!("neighbour add 10.9.0.1 lladdr {} dev va", mac.join(":")));
    inside(&p.net, "a", || {
        let socket = std::net::UdpSocket::bind("10.8.0.1:5000").unwrap();
        socket.send_to(b"checksum left to hardware", "10.9.0.1:5001").unwrap();
    });
    let rx = p.receive();
    assert!(rx.frame.partial_checksum(), "veth hosts leave the checksum out");
    p.pool.release(rx.frame);
    p.net.output("a", "ethtool -K va tx off");
    inside(&p.net, "a", || {
        let socket = std::net::UdpSocket::bind("10.8.0.1:5000").unwrap();
        socket.send_to(b"checksum computed", "10.9.0.1:5001").unwrap();
    });
    let rx = p.receive();
    assert!(!rx.frame.partial_checksum());
    p.pool.release(rx.frame);
}

#[test]
fn frames_without_a_buffer_are_counted_and_none_is_lost_for_good() {
    if !available("exhausted buffers") {
        return;
    }
    let mut p = pair(AfXdpOptions { ring: 64, ..small() });
    let frame = packet(p.near.mac(), TRANSIT, 0, 100);
    for _ in 0..200 {
        p.send(&frame);
    }
    let mut out = Vec::new();
    p.near.rx_burst(&mut p.pool, monotonic_now(), &mut out, 256);
    let received = out.len() as u64;
    assert!(received <= 64, "{received} of a ring of 64");
    assert_eq!(p.near.counters().ring_loss, 200 - received);
    for rx in out.drain(..) {
        p.pool.release(rx.frame);
    }
    assert_eq!(p.pool.in_use(), p.near.lent());
    p.passes(1);
}

#[test]
fn an_interface_that_comes_back_is_used_again_and_its_buffers_return() {
    if !available("an interface that vanishes") {
        return;
    }
    let mut p = pair(small());
    p.passes(1);
    p.net.ip("b", "link del vb");
    let near = &mut p.near;
    eventually("noticing", || {
        let _ = near.reopen();
        (near.state() == PortState::Gone).then_some(())
    });
    assert_eq!(p.near.tx_burst(&mut p.pool, &mut VecDeque::new()), 0);
    p.net.wire(("a", "va"), ("b", "vb"));
    p.net.hush("a", "va");
    p.net.hush("b", "vb");
    p.far = inside(&p.net, "a", || AfPacketPort::open("va", AfPacketOptions::default())).unwrap();
    let near = &mut p.near;
    let renewed = inside(&p.net, "b", || near.reopen()).unwrap();
    assert!(renewed);
    // The next burst gives the new socket its buffers.
    assert_eq!(p.near.rx_burst(&mut p.pool, monotonic_now(), &mut Vec::new(), 1), 0);
    p.passes(2);
    assert_eq!(p.pool.in_use(), p.near.lent(), "the buffers of the old sockets came back");
}

/// It was taken for the old one, and the port was dead for good and shown as up.
#[test]
fn an_interface_that_comes_back_with_its_number_gets_new_sockets() {
    if !available("an interface that comes back with its number") {
        return;
    }
    let mut p = pair(small());
    p.passes(1);
    leave_and_come_back(&p.net, "b", "vb");
    let near = &mut p.near;
    assert!(inside(&p.net, "b", || near.reopen()).unwrap(), "the old sockets are detached");
    p.wait_until_up();
    p.passes(2);
}

/// The second worker took the program of an interface that had left once more for the one that is
/// there, and was dead for good and shown as up, if it was slow.
#[test]
fn a_slow_worker_is_not_left_with_the_program_of_an_interface_that_left_twice() {
    if !available("an interface that leaves twice") {
        return;
    }
    let (net, mut far) = wire_of_queues(2);
    let mut far_pool = FramePool::new(512);
    let common = XdpCommon::default();
    let part = |worker| XdpPart { worker, workers: 2, common: common.clone() };
    let mut pools = [FramePool::new(256), FramePool::new(256)];
    let mut open = |worker: u32| {
        let pool = &mut pools[worker as usize];
        let port = || AfXdpPort::open_part("vb", small(), pool, &local(), part(worker));
        inside(&net, "b", port).unwrap()
    };
    let (mut first, mut second) = (open(0), open(1));
    // The kernel lets go of queues late.
    let again = |port: &mut AfXdpPort| {
        let begun = std::time::Instant::now();
        loop {
            match inside(&net, "b", || port.reopen()) {
                Ok(renewed) => return renewed,
                Err(PortError::QueueTaken { .. }) if begun.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    leave_and_come_back(&net, "b", "vb");
    assert!(again(&mut first));
    leave_and_come_back(&net, "b", "vb");
    // It has not seen the first time yet, and the first worker not the second.
    assert!(again(&mut second));
    assert!(again(&mut first));
    // Its sockets are in the map of a program that is no more.
    assert!(!again(&mut second) && !again(&mut first), "they are those of the interface");
    let mut ports = [first, second];
    let mut came = [0; 2];
    eventually("frames come by both", || {
        for number in 0..8_u32 {
            // Another flow, which another queue may carry.
            let mut frame = packet(ports[0].mac(), TRANSIT, number, 100);
            frame[35] = number as u8;
            let frame = far_pool.alloc_from(&frame);
            far.tx_burst(&mut far_pool, &mut VecDeque::from([frame.unwrap()]));
        }
        for (at, port) in ports.iter_mut().enumerate() {
            let mut out = Vec::new();
            came[at] += port.rx_burst(&mut pools[at], monotonic_now(), &mut out, 32);
            out.into_iter().for_each(|rx| pools[at].release(rx.frame));
        }
        (came.iter().all(|frames| *frames > 0)).then_some(())
    });
}

/// The driver's program handed frames to a worker that had stopped, for as long as that took.
#[test]
fn a_worker_that_hangs_leaves_its_frames_to_the_kernel() {
    if !available("a worker that hangs") {
        return;
    }
    let (heart, pulse) = beating(500);
    let mut p = pair(AfXdpOptions { heart: Some(Arc::clone(&heart)), ..small() });
    let sleep = |millis| std::thread::sleep(Duration::from_millis(millis));
    p.passes(1);
    drop(pulse);
    sleep(520);
    p.is_passed_by();
    let pulse = Pulse::of(&heart);
    p.passes(2);
    // What counts is how old the last beat is, whenever the first frame after it comes, if any.
    drop(pulse);
    for before in [400, 0] {
        let _beater = Beater::new(Arc::clone(&heart), 0);
        sleep(before);
        if before > 0 {
            p.passes(3);
        }
        sleep(520 - before);
        p.is_passed_by();
    }
    let _pulse = Pulse::of(&heart);
    p.passes(4);
}

/// Two namespaces with one veth pair of so many queues; the port in `a`.
fn wire_of_queues(queues: u32) -> (TestNet, AfPacketPort) {
    let net = TestNet::new(&["a", "b", "elsewhere"]);
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    net.ip("a", &format!("link add va {queues} type veth peer name vb {queues}"));
    net.ip("a", &format!("link set vb netns {}", net.name("b")));
    net.hush("a", "va");
    net.hush("b", "vb");
    net.ip("a", "link set va up");
    net.ip("b", "link set vb up");
    let far = inside(&net, "a", || AfPacketPort::open("va", AfPacketOptions::default())).unwrap();
    (net, far)
}

#[test]
fn every_receive_queue_has_a_socket() {
    if !available("several queues") {
        return;
    }
    let (net, far) = wire_of_queues(3);
    let mut pool = FramePool::new(4096);
    let wrong = AfXdpOptions { queues: Some(2), ..small() };
    let error = inside(&net, "b", || AfXdpPort::open("vb", wrong, &mut pool, &[])).unwrap_err();
    assert!(matches!(error, PortError::QueueCount { has: 3, wanted: 2, .. }), "{error}");
    assert!(error.to_string().contains("`ethtool -L vb combined 2` changes that"), "{error}");
    let near = inside(&net, "b", || AfXdpPort::open("vb", small(), &mut pool, &[])).unwrap();
    assert_eq!(near.mode().queues, 3);
    let mut p = Pair { net, far, far_pool: FramePool::new(512), near, pool };
    let poller = Poller::new().unwrap();
    poller.add(p.near.fd().unwrap(), 1).unwrap();
    // From every CPU, so that different queues carry them.
    for number in 0..8u32 {
        evenkeel_ports::sys::pin_to_cpu(number as usize % 2).unwrap();
        let frame = packet(p.near.mac(), TRANSIT, number, 100);
        p.send(&frame);
        let mut events: Vec<Event> = Vec::new();
        poller.wait(&mut events, Some(Nanos::from_secs(5))).unwrap();
        assert!(!events.is_empty(), "the joined descriptor tells of a frame");
        let rx = p.receive();
        assert_eq!(number_of(p.pool.bytes(&rx.frame)), number);
        p.pool.release(rx.frame);
    }
}

/// FairDrop is void without it.
#[test]
fn a_port_tells_how_many_frames_wait() {
    if !available("waiting frames") {
        return;
    }
    let mut p = pair(small());
    assert_eq!(p.near.rx_ring(), Some(RING));
    let frame = packet(p.near.mac(), TRANSIT, 1, 100);
    let waits = |p: &Pair, frames: u32| {
        let near = &p.near;
        eventually("waiting", || {
            (near.rx_waiting() == Some(RxWaiting { frames, fullest: frames })).then_some(())
        });
    };
    waits(&p, 0);
    (0..100).for_each(|_| p.send(&frame));
    waits(&p, 100);
    let mut out = Vec::new();
    assert_eq!(p.near.rx_burst(&mut p.pool, monotonic_now(), &mut out, 40), 40);
    waits(&p, 60);
    // More than it holds: it is full, and no more than full.
    (0..2 * RING).for_each(|_| p.send(&frame));
    eventually("overflowing", || (p.near.counters().ring_loss > 0).then_some(()));
    let waiting = p.near.rx_waiting().unwrap().frames;
    assert!((RING / 8 * 7..=RING).contains(&waiting), "{waiting}");
    out.drain(..).for_each(|rx| p.pool.release(rx.frame));
}

/// A burst that the first queue can fill left out the others as long as that lasted.
#[test]
fn a_full_queue_does_not_keep_the_others_waiting() {
    if !available("queues in turns") {
        return;
    }
    let net = TestNet::new(&["a", "b"]);
    net.wire_of_queues(("a", "va"), ("b", "vb"), 2);
    net.hush("a", "va");
    net.hush("b", "vb");
    let mut pool = FramePool::new(4096);
    let near = inside(&net, "b", || AfXdpPort::open("vb", small(), &mut pool, &[])).unwrap();
    assert_eq!((near.mode().queues, near.rx_ring()), (2, Some(2 * RING)));
    let far = inside(&net, "a", || AfPacketPort::open("va", AfPacketOptions::default())).unwrap();
    let mut p = Pair { net, far, far_pool: FramePool::new(512), near, pool };
    // A queue for each processor that sends.
    for cpu in [0, 1] {
        evenkeel_ports::sys::pin_to_cpu(cpu).unwrap();
        let frame = packet(p.near.mac(), TRANSIT, cpu as u32, 100);
        (0..64).for_each(|_| p.send(&frame));
    }
    let waiting = || p.near.rx_waiting().unwrap();
    eventually("waiting", || (waiting().frames == 128).then_some(()));
    if waiting().fullest == 256 {
        eprintln!("skipped: this kernel put both processors' frames into one queue");
        return;
    }
    assert_eq!(waiting().fullest, 128);
    let mut of = [0; 2];
    for _ in 0..4 {
        let mut out = Vec::new();
        assert_eq!(p.near.rx_burst(&mut p.pool, monotonic_now(), &mut out, 16), 16);
        for rx in out {
            of[number_of(p.pool.bytes(&rx.frame)) as usize] += 1;
            p.pool.release(rx.frame);
        }
    }
    assert_eq!(of, [32, 32]);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    if !available("refusals") {
        return;
    }
    let p = pair(small());
    let mut pool = FramePool::new(1024);
    let mut open = |options| inside(&p.net, "b", || AfXdpPort::open("vb", options, &mut pool, &[]));
    let error = open(small()).unwrap_err();
    assert!(matches!(error, PortError::XdpTaken(_)), "{error}");
    let error = open(AfXdpOptions { ring: 100, ..small() }).unwrap_err();
    assert!(error.to_string().contains("power of two"), "{error}");
    drop(p.near);
    let mut odd = FramePool::with_buffer_size(64, 1920);
    let error = inside(&p.net, "b", || AfXdpPort::open("vb", small(), &mut odd, &[])).unwrap_err();
    assert!(error.to_string().contains("buffer_size"), "{error}");
    assert!(matches!(
        inside(&p.net, "b", || AfXdpPort::open("no-such-if", small(), &mut pool, &[])),
        Err(PortError::NoInterface(_))
    ));
}

/// Takes queue 0 of `vb`, and nothing else of it, as what is left of a killed router does. Its
/// memory comes along.
fn take_queue() -> (OwnedFd, Vec<u8>) {
    const LEN: usize = 64 << 10;
    let memory = vec![0; LEN + 4096];
    let fd = net::socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
    let umem = XdpUmemReg {
        addr: (memory.as_ptr() as u64).next_multiple_of(4096),
        len: LEN as u64,
        chunk_size: 2048,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(&fd, umem).unwrap();
    sockopt::set_xdp_umem_fill_ring_size(&fd, 32).unwrap();
    sockopt::set_xdp_umem_completion_ring_size(&fd, 32).unwrap();
    sockopt::set_xdp_rx_ring_size(&fd, 32).unwrap();
    let any = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let index = net::netdevice::name_to_index(&any, "vb").unwrap();
    net::bind(&fd, &SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, 0)).unwrap();
    (fd, memory)
}

#[test]
fn a_queue_that_a_busy_kernel_gives_up_late_is_waited_for() {
    if !available("a queue that is given up late") {
        return;
    }
    let lab = TestNet::new(&["a", "b"]);
    lab.wire(("a", "va"), ("b", "vb"));
    let taken = inside(&lab, "b", take_queue);
    let mut pool = FramePool::new(1024);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2500));
        drop(taken);
    });
    drop(inside(&lab, "b", || AfXdpPort::open("vb", small(), &mut pool, &[])).unwrap());
    late.join().unwrap();
}

/// A worker has other interfaces to look after.
#[test]
fn a_port_that_comes_back_does_not_wait_for_a_queue() {
    if !available("a queue that is taken when its interface comes back") {
        return;
    }
    let mut p = pair(small());
    p.passes(1);
    leave_and_come_back(&p.net, "b", "vb");
    p.net.ip("b", "link set vb up");
    let taken = inside(&p.net, "b", take_queue);
    let begin = std::time::Instant::now();
    let net = &p.net;
    let port = &mut p.near;
    let error = inside(net, "b", || port.reopen()).unwrap_err();
    assert!(matches!(error, PortError::QueueTaken { queue: 0, .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
    drop(taken);
    eventually("the queue is free", || inside(net, "b", || port.reopen()).ok());
    p.wait_until_up();
    p.passes(2);
}

#[test]
fn a_kernel_without_such_sockets_is_told_before_anything_is_attached() {
    if !available("a kernel without AF_XDP") {
        return;
    }
    let net = TestNet::new(&["a", "b"]);
    net.wire(("a", "va"), ("b", "vb"));
    let mut pool = FramePool::new(1024);
    let error = inside(&net, "b", || {
        refuse_sockets(AF_XDP).unwrap();
        AfXdpPort::open("vb", small(), &mut pool, &[]).unwrap_err()
    });
    assert!(
        matches!(&error, PortError::NoXdpSockets { interface, .. } if interface == "vb"),
        "{error}"
    );
    assert!(error.is_missing_privilege_or_feature());
    assert_eq!(pool.in_use(), 0);
    assert!(!net.ip("b", "link show vb").contains("xdp"));
    drop(inside(&net, "b", || AfXdpPort::open("vb", small(), &mut pool, &[])).unwrap());
}
