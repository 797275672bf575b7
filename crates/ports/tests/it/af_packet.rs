//! AF_PACKET ports over veth pairs between namespaces. Needs root.

use std::collections::VecDeque;

use crate::common::{TestNet, available, eventually, inside, leave_and_come_back};
use evenkeel_core::{Nanos, Reason};
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::sys::{Event, Poller, monotonic_now};
use evenkeel_ports::{Frame, FramePool, Port, PortError, PortState, RxFrame, RxWaiting};

/// A frame of `len` bytes with a number in it; its type is one for local experiments.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; len];
    frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 9]);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 8]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number_of(frame: &[u8]) -> Option<u32> {
    (frame[12..14] == [0x88, 0xb5]).then(|| u32::from_be_bytes(frame[14..18].try_into().unwrap()))
}

/// Two namespaces with one veth pair, and a port at each end.
fn pair(options: AfPacketOptions) -> (TestNet, AfPacketPort, AfPacketPort) {
    let lab = TestNet::new(&["a", "b"]);
    lab.wire(("a", "va"), ("b", "vb"));
    lab.hush("a", "va");
    lab.hush("b", "vb");
    let a = inside(&lab, "a", || AfPacketPort::open("va", options)).unwrap();
    let b = inside(&lab, "b", || AfPacketPort::open("vb", options)).unwrap();
    (lab, a, b)
}

fn send(port: &mut AfPacketPort, pool: &mut FramePool, frame: &[u8]) {
    let mut frames = VecDeque::from([pool.alloc_from(frame).unwrap()]);
    eventually("sending", || (port.tx_burst(pool, &mut frames) == 1).then_some(()));
}

fn receive(port: &mut AfPacketPort, pool: &mut FramePool) -> RxFrame {
    let mut out = Vec::new();
    eventually("receiving", || {
        (port.rx_burst(pool, monotonic_now(), &mut out, 1) == 1).then_some(())
    });
    out.pop().unwrap()
}

#[test]
fn tens_of_thousands_of_numbered_frames_arrive_once_and_in_order() {
    if !available("numbered frames") {
        return;
    }
    const COUNT: u32 = 50_000;
    let (_lab, mut a, mut b) = pair(AfPacketOptions::default());
    let mut pool = FramePool::new(512);
    let mut frames: VecDeque<Frame> = VecDeque::new();
    let mut out = Vec::new();
    let (mut sent, mut expected, mut last) = (0, 0, Nanos::ZERO);
    let started = monotonic_now();
    while expected < COUNT {
        // Never more than the ring holds on the way: what is tested is the port, not the machine's
        // speed.
        while sent < COUNT && frames.len() < 64 && sent - expected < 256 {
            let len = 60 + (sent as usize * 7) % 1400;
            frames.push_back(pool.alloc_from(&numbered(sent, len)).unwrap());
            sent += 1;
        }
        a.tx_burst(&mut pool, &mut frames);
        let now = monotonic_now();
        assert!(now < started + Nanos::from_secs(60), "{expected} of {COUNT} after a minute");
        b.rx_burst(&mut pool, now, &mut out, 64);
        for rx in out.drain(..) {
            assert!(rx.arrival >= last && rx.arrival <= now && rx.arrival >= started);
            last = rx.arrival;
            let bytes = pool.bytes(&rx.frame);
            assert_eq!(number_of(bytes), Some(expected));
            assert_eq!(bytes, numbered(expected, 60 + (expected as usize * 7) % 1400));
            expected += 1;
            pool.release(rx.frame);
        }
    }
    assert_eq!(pool.in_use(), 0);
    let (a, b) = (a.counters(), b.counters());
    assert_eq!((a.tx_frames, b.rx_frames), (COUNT.into(), COUNT.into()));
    assert_eq!((a.tx_bytes, a.rx_frames), (b.rx_bytes, 0), "own frames are not received");
    assert_eq!((b.ring_loss, b.dropped), (0, [0; Reason::COUNT]));
}

#[test]
fn a_tagged_frame_keeps_its_tag() {
    if !available("tags") {
        return;
    }
    let (_lab, mut a, mut b) = pair(AfPacketOptions::default());
    let mut pool = FramePool::new(8);
    for (kind, inner) in [([0x81, 0x00], &[][..]), ([0x88, 0xa8], &[0x81, 0x00, 0x00, 0x07][..])] {
        let mut frame = numbered(7, 100);
        let tag = [kind[0], kind[1], 0x60, 0x2a];
        frame.splice(12..12, tag.iter().chain(inner).copied());
        send(&mut a, &mut pool, &frame);
        let rx = receive(&mut b, &mut pool);
        assert_eq!(pool.bytes(&rx.frame), frame);
        pool.release(rx.frame);
    }
}

#[test]
fn a_frame_longer_than_a_buffer_is_counted_and_not_cut() {
    if !available("long frames") {
        return;
    }
    let (lab, mut a, mut b) = pair(AfPacketOptions::default());
    lab.ip("a", "link set va mtu 9000");
    lab.ip("b", "link set vb mtu 9000");
    let mut jumbo = FramePool::for_frames_of(4, 9018);
    let mut pool = FramePool::new(4);
    // Longer than a ring slot; fits a slot but no buffer; fits both.
    for len in [9000, 1960, 1900] {
        send(&mut a, &mut jumbo, &numbered(len as u32, len));
    }
    let rx = receive(&mut b, &mut pool);
    assert_eq!(number_of(pool.bytes(&rx.frame)), Some(1900));
    pool.release(rx.frame);
    assert_eq!(b.counters().dropped_for(Reason::FrameTooLong), 2);

    let options = AfPacketOptions { max_frame: 9018, ..Default::default() };
    let mut b = inside(&lab, "b", || AfPacketPort::open("vb", options)).unwrap();
    send(&mut a, &mut jumbo, &numbered(1, 9000));
    let rx = receive(&mut b, &mut jumbo);
    assert_eq!(jumbo.bytes(&rx.frame), numbered(1, 9000));
    jumbo.release(rx.frame);

    // What the interface cannot send is refused, and what stands behind it is sent.
    lab.ip("a", "link set va mtu 1500");
    let mut frames: VecDeque<_> = [9000, 100]
        .into_iter()
        .map(|len| jumbo.alloc_from(&numbered(len as u32, len)).unwrap())
        .collect();
    assert_eq!(a.tx_burst(&mut jumbo, &mut frames), 2);
    assert_eq!(a.counters().dropped_for(Reason::PortRefused), 1);
    let rx = receive(&mut b, &mut jumbo);
    assert_eq!(number_of(jumbo.bytes(&rx.frame)), Some(100));
    jumbo.release(rx.frame);
    assert_eq!((pool.in_use(), jumbo.in_use()), (0, 0));
}

#[test]
fn a_full_ring_and_an_empty_pool_lose_frames_and_say_so() {
    if !available("loss") {
        return;
    }
    let options = AfPacketOptions { ring_frames: 64, ..Default::default() };
    let (_lab, mut a, mut b) = pair(options);
    let mut pool = FramePool::new(200);
    let mut frames: VecDeque<_> =
        (0..200).map(|i| pool.alloc_from(&numbered(i, 60)).unwrap()).collect();
    eventually("sending", || {
        a.tx_burst(&mut pool, &mut frames);
        frames.is_empty().then_some(())
    });
    assert_eq!((b.rx_ring(), b.rx_waiting()), (Some(64), Some(RxWaiting::one(64))));
    let mut small = FramePool::new(40);
    let mut out = Vec::new();
    eventually("the ring to be empty", || {
        let before = b.counters();
        b.rx_burst(&mut small, monotonic_now(), &mut out, 64);
        (b.counters() == before && before.rx_frames > 0).then_some(())
    });
    let counters = b.counters();
    assert_eq!(counters.rx_frames, 40);
    assert_eq!(counters.rx_frames + counters.dropped_for(Reason::NoBuffer), 64);
    assert_eq!(counters.ring_loss, 200 - 64);
}

#[test]
fn what_a_host_leaves_to_the_hardware_is_marked() {
    if !available("partial checksums") {
        return;
    }
    let lab = TestNet::new(&["a", "b"]);
    lab.wire(("a", "va"), ("b", "vb"));
    lab.ip("a", "addr add 10.77.0.1/24 dev va");
    lab.ip("a", "neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev va");
    let mut b = inside(&lab, "b", || AfPacketPort::open("vb", AfPacketOptions::default())).unwrap();
    let mut pool = FramePool::new(16);
    let udp = |port: &mut AfPacketPort, pool: &mut FramePool| {
        inside(&lab, "a", || {
            let socket = std::net::UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.send_to(&[1; 100], "10.77.0.2:9").unwrap();
        });
        loop {
            let rx = receive(port, pool);
            let bytes = pool.bytes(&rx.frame);
            let found =
                (bytes[12..14] == [8, 0]).then(|| (rx.frame.partial_checksum(), bytes.len()));
            pool.release(rx.frame);
            if let Some(found) = found {
                return found;
            }
        }
    };
    assert_eq!(udp(&mut b, &mut pool), (true, 142));
    lab.output("a", "ethtool -K va tx off");
    assert_eq!(udp(&mut b, &mut pool), (false, 142));
}

#[test]
fn an_interface_that_vanishes_is_noticed_and_used_again() {
    if !available("vanishing") {
        return;
    }
    let (lab, mut a, mut b) = pair(AfPacketOptions::default());
    let mut pool = FramePool::new(16);
    let mut out = Vec::new();
    // The kernel tells of a carrier up to a second late.
    for port in [&mut a, &mut b] {
        eventually("a carrier", || {
            port.rx_burst(&mut pool, monotonic_now(), &mut out, 8);
            (port.state() == PortState::Up).then_some(())
        });
    }
    let poller = Poller::new().unwrap();
    let mut events: Vec<Event> = Vec::new();
    poller.add(b.fd().unwrap(), 1).unwrap();

    // Down: the descriptor wakes us once, not for ever.
    lab.ip("b", "link set vb down");
    poller.wait(&mut events, Some(Nanos::from_secs(5))).unwrap();
    assert_eq!(events.len(), 1, "going down wakes");
    b.rx_burst(&mut pool, monotonic_now(), &mut out, 8);
    assert_eq!(b.state(), PortState::Down);
    poller.wait(&mut events, Some(Nanos::ZERO)).unwrap();
    assert_eq!(events, [], "and then lets us sleep");
    let mut frames = VecDeque::from([pool.alloc_from(&numbered(1, 60)).unwrap()]);
    assert_eq!(b.tx_burst(&mut pool, &mut frames), 0);
    assert_eq!(frames.len(), 1, "what cannot be sent stays with the caller");

    lab.ip("b", "link set vb up");
    eventually("coming up", || {
        b.rx_burst(&mut pool, monotonic_now(), &mut out, 8);
        (b.state() == PortState::Up).then_some(())
    });
    assert!(!inside(&lab, "b", || b.reopen()).unwrap(), "the same socket goes on");
    assert_eq!(b.tx_burst(&mut pool, &mut frames), 1);
    let rx = receive(&mut a, &mut pool);
    pool.release(rx.frame);

    // Gone: with the pair, both ends vanish.
    lab.ip("a", "link del va");
    for port in [&mut a, &mut b] {
        eventually("being gone", || {
            port.rx_burst(&mut pool, monotonic_now(), &mut out, 8);
            (port.state() == PortState::Gone).then_some(())
        });
    }
    let mut frames = VecDeque::from([pool.alloc_from(&numbered(2, 60)).unwrap()]);
    assert_eq!(a.tx_burst(&mut pool, &mut frames), 0);
    let error = inside(&lab, "a", || a.reopen()).unwrap_err();
    assert!(matches!(error, PortError::NoInterface(ref name) if name == "va"), "{error}");

    // Back, under the same name and another number.
    let counted = b.counters();
    lab.wire(("a", "va"), ("b", "vb"));
    lab.hush("a", "va");
    lab.hush("b", "vb");
    assert!(inside(&lab, "a", || a.reopen()).unwrap());
    assert!(inside(&lab, "b", || b.reopen()).unwrap());
    eventually("sending", || (a.tx_burst(&mut pool, &mut frames) == 1).then_some(()));
    let rx = receive(&mut b, &mut pool);
    assert_eq!(number_of(pool.bytes(&rx.frame)), Some(2));
    pool.release(rx.frame);
    assert_eq!(b.counters().rx_frames, counted.rx_frames + 1, "counters are kept");
    for rx in out {
        pool.release(rx.frame);
    }
    assert_eq!(pool.in_use(), 0);
}

/// It was taken for the old one, and the port was dead for good and shown as up.
#[test]
fn an_interface_that_comes_back_with_its_number_gets_a_new_socket() {
    if !available("an interface that comes back with its number") {
        return;
    }
    let lab = TestNet::new(&["a", "b", "elsewhere"]);
    lab.wire(("a", "va"), ("b", "vb"));
    lab.hush("a", "va");
    let open = |node, name| {
        inside(&lab, node, || AfPacketPort::open(name, AfPacketOptions::default())).unwrap()
    };
    let (mut a, mut b) = (open("a", "va"), open("b", "vb"));
    leave_and_come_back(&lab, "b", "vb");
    lab.hush("b", "vb");
    assert!(inside(&lab, "b", || b.reopen()).unwrap(), "the old socket is detached");
    let mut pool = FramePool::new(64);
    let mut frames = VecDeque::from([pool.alloc_from(&numbered(1, 60)).unwrap()]);
    eventually("sending", || (a.tx_burst(&mut pool, &mut frames) == 1).then_some(()));
    let rx = receive(&mut b, &mut pool);
    assert_eq!(number_of(pool.bytes(&rx.frame)), Some(1));
    pool.release(rx.frame);
}
