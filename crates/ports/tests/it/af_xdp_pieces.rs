//! AF_XDP ports whose frames are longer than a buffer. Needs root.

use std::collections::VecDeque;

use evenkeel_core::Reason;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort, XdpCommon, XdpPart};
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::sys::{monotonic_now, refuse_binds};
use evenkeel_ports::{Frame, FramePool, Port, PortError, PortState};

use crate::af_xdp::{Pair, TRANSIT, number_of, packet, small};
use crate::common::{TestNet, available, eventually, inside, leave_and_come_back};

/// The longest frame of an MTU of 9000, and what the kernel keeps free in a buffer.
const LONGEST: usize = 9014;
const HEADROOM: usize = 256;

fn wire(mtu: u32) -> TestNet {
    let net = TestNet::new(&["a", "b", "elsewhere"]);
    net.wire(("a", "va"), ("b", "vb"));
    net.hush("a", "va");
    net.hush("b", "vb");
    for (name, interface) in [("a", "va"), ("b", "vb")] {
        net.ip(name, &format!("link set {interface} mtu {mtu}"));
    }
    net
}

fn far(net: &TestNet) -> AfPacketPort {
    let options = AfPacketOptions { max_frame: 10_000, ..AfPacketOptions::default() };
    inside(net, "a", || AfPacketPort::open("va", options)).unwrap()
}

fn jumbo(options: AfXdpOptions, buffers: usize, buffer: usize) -> Pair {
    let net = wire(9000);
    let far = far(&net);
    let mut pool = FramePool::shareable(buffers, buffer);
    let near = inside(&net, "b", || AfXdpPort::open("vb", options, &mut pool, &[])).unwrap();
    assert!(near.mode().pieces && near.mode().native, "{}", near.mode());
    Pair { net, far, far_pool: FramePool::for_frames_of(512, LONGEST), near, pool }
}

/// A frame whose every byte depends on its place.
fn filled(mac: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = packet(mac, TRANSIT, number, len);
    for (at, byte) in frame.iter_mut().enumerate().skip(46) {
        *byte = (at as u32 ^ (at as u32 >> 8) ^ number) as u8;
    }
    frame
}

impl Pair {
    /// What came back.
    fn returned(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let (far, pool) = (&mut self.far, &mut self.far_pool);
        eventually("coming back", || {
            (far.rx_burst(pool, monotonic_now(), &mut out, 1) == 1).then_some(())
        });
        let rx = out.pop().unwrap();
        let bytes = pool.bytes(&rx.frame).to_vec();
        pool.release(rx.frame);
        bytes
    }

    /// Every buffer is free or the kernel's, when it has sent what it has.
    fn leaks_nothing(&mut self) {
        let (near, pool) = (&mut self.near, &mut self.pool);
        eventually("all is sent", || {
            near.tx_burst(pool, &mut VecDeque::new());
            near.rx_burst(pool, monotonic_now(), &mut Vec::new(), 1);
            (near.lent() <= near.rx_ring().unwrap() as usize).then_some(())
        });
        assert_eq!(self.pool.in_use(), self.near.lent());
        assert_eq!(self.pool.super_frames(), 0);
    }
}

#[test]
fn frames_around_the_end_of_each_buffer_come_and_go_as_they_are() {
    if !available("frames in pieces") {
        return;
    }
    for buffer in [2048, 4096] {
        let mut p = jumbo(small(), 2048, buffer);
        println!("{}", p.near.mode());
        let mac = p.near.mac();
        // Received pieces end where the kernel's headroom leaves no more, sent ones with the
        // buffer, and what has come in pieces may fit a buffer with the headroom of the pool.
        let ends = (1..=4).flat_map(|count| [count * buffer, count * (buffer - HEADROOM)]);
        let ends = ends.chain([buffer - 128]).filter(|end| *end < LONGEST).chain([LONGEST - 1, 61]);
        let mut number = 0;
        for len in ends.flat_map(|end| end - 1..=end + 1) {
            let frame = filled(mac, number, len);
            p.send(&frame);
            let rx = p.receive();
            assert_eq!(p.pool.bytes(&rx.frame), frame, "{len} in buffers of {buffer}");
            assert!(rx.arrival <= monotonic_now() && !rx.frame.partial_checksum());
            let mut back = VecDeque::from([rx.frame]);
            assert_eq!(p.near.tx_burst(&mut p.pool, &mut back), 1);
            assert_eq!(p.returned(), frame, "{len} in buffers of {buffer}");
            number += 1;
        }
        p.leaks_nothing();
        let counters = p.near.counters();
        assert_eq!((counters.rx_frames, counters.tx_frames), (number.into(), number.into()));
        assert_eq!(counters.rx_bytes, counters.tx_bytes);
        assert_eq!((counters.ring_loss, counters.dropped), (0, [0; Reason::COUNT]));
    }
}

#[test]
fn long_frames_among_short_ones_keep_their_order_through_rings_that_fill() {
    if !available("long frames among short ones") {
        return;
    }
    const COUNT: u32 = 20_000;
    let lengths = [60, 9014, 700, 1793, 60, 3584, 1514, 4096, 64, 9000, 2048, 1920, 5000];
    let len = |number: u32| lengths[number as usize % lengths.len()];
    // So few slots that a frame often finds some, but not enough.
    let mut p = jumbo(AfXdpOptions { ring: 64, ..small() }, 512, 2048);
    let mac = p.near.mac();
    let (mut frames, mut back) = (VecDeque::<Frame>::new(), VecDeque::<Frame>::new());
    let mut out = Vec::new();
    let (mut sent, mut expected, mut returned) = (0, 0, 0);
    let started = monotonic_now();
    while returned < COUNT {
        while sent < COUNT && frames.len() < 16 && sent - expected < 8 {
            frames.push_back(p.far_pool.alloc_from(&filled(mac, sent, len(sent))).unwrap());
            sent += 1;
        }
        p.far.tx_burst(&mut p.far_pool, &mut frames);
        let now = monotonic_now();
        assert!(now < started + evenkeel_core::Nanos::from_secs(60), "{returned} of {COUNT}");
        p.near.rx_burst(&mut p.pool, now, &mut out, 5);
        for rx in out.drain(..) {
            assert_eq!(p.pool.bytes(&rx.frame), filled(mac, expected, len(expected)));
            expected += 1;
            back.push_back(rx.frame);
        }
        assert_eq!(p.pool.in_use(), back.len() + p.near.lent(), "every buffer is somewhere");
        // They leave many at once.
        if back.len() >= 48 || expected == COUNT {
            p.near.tx_burst(&mut p.pool, &mut back);
            assert_eq!(p.pool.in_use(), back.len() + p.near.lent(), "every buffer is somewhere");
        }
        p.far.rx_burst(&mut p.far_pool, now, &mut out, 64);
        for rx in out.drain(..) {
            let bytes = p.far_pool.bytes(&rx.frame);
            assert_eq!(bytes, filled(mac, returned, len(returned)));
            returned += 1;
            p.far_pool.release(rx.frame);
        }
    }
    p.leaks_nothing();
    let counters = p.near.counters();
    assert_eq!((counters.rx_frames, counters.tx_frames), (COUNT.into(), COUNT.into()));
    assert!(counters.tx_blocked > 0, "the ring was full now and then");
    assert_eq!((counters.ring_loss, counters.dropped), (0, [0; Reason::COUNT]));
}

#[test]
fn a_frame_without_room_is_dropped_with_the_reason_and_its_buffers_come_back() {
    if !available("no room for long frames") {
        return;
    }
    let mut p = jumbo(small(), 1024, 2048);
    let mac = p.near.mac();
    // All rows of buffers are held, so there is nowhere to put one together.
    let mut held = Vec::new();
    while let Some(frame) = p.pool.alloc_for(LONGEST) {
        held.push(frame);
    }
    assert_eq!(held.len(), p.pool.super_frames());
    p.send(&filled(mac, 1, LONGEST));
    p.send(&filled(mac, 2, 60));
    let rx = p.receive();
    assert_eq!(number_of(p.pool.bytes(&rx.frame)), 2);
    p.pool.release(rx.frame);
    let counters = p.near.counters();
    assert_eq!((counters.dropped_for(Reason::NoBuffer), counters.rx_frames), (1, 1));
    // What is left in the pool is less than one needs: it waits for what is being sent, and for
    // that only.
    let mut long = held.pop().unwrap();
    long.trim(LONGEST);
    p.pool.bytes_mut(&long).copy_from_slice(&filled(mac, 3, LONGEST));
    let short = p.pool.alloc_from(&filled(mac, 4, 60)).unwrap();
    let mut singles: Vec<Frame> = std::iter::from_fn(|| p.pool.alloc()).collect();
    singles.drain(..4).for_each(|frame| p.pool.release(frame));
    let mut frames = VecDeque::from([short, long]);
    assert_eq!(p.near.tx_burst(&mut p.pool, &mut frames), 1);
    assert_eq!((frames.len(), p.near.counters().tx_blocked), (1, 1));
    assert_eq!(number_of(&p.returned()), 4);
    // The fifth.
    assert_eq!(p.near.tx_burst(&mut p.pool, &mut frames), 1);
    assert_eq!(p.returned(), filled(mac, 3, LONGEST));
    eventually("all is sent", || {
        p.near.tx_burst(&mut p.pool, &mut VecDeque::new());
        (p.pool.free() == 5).then_some(())
    });
    singles.push(p.pool.alloc().unwrap());
    frames.push_back(held.pop().unwrap());
    assert_eq!(p.near.tx_burst(&mut p.pool, &mut frames), 1);
    let counters = p.near.counters();
    assert_eq!((counters.dropped_for(Reason::NoBuffer), counters.tx_frames), (2, 2));
    held.into_iter().chain(singles).for_each(|frame| p.pool.release(frame));
    p.leaks_nothing();
}

#[test]
fn what_the_interface_never_sends_is_refused() {
    if !available("frames that are never sent") {
        return;
    }
    let mut p = jumbo(small(), 1024, 2048);
    let mac = p.near.mac();
    let mut frames = VecDeque::new();
    let mut long = |p: &mut Pair, len| {
        let frame = p.pool.alloc_for(len).unwrap();
        p.pool.bytes_mut(&frame).copy_from_slice(&filled(mac, len as u32, len));
        frames.push_back(frame);
    };
    // With a tag it may be four bytes longer.
    for len in [LONGEST + 4, LONGEST + 5, 60, 9_000] {
        long(&mut p, len);
    }
    // A super-frame is to be cut before.
    let mut parcel = Parcel::default();
    parcel.put(6 | 54 << 16);
    parcel.put(0);
    parcel.put_bytes(&[]);
    parcel.put_bytes(&[0; 8_000]);
    frames.push_back(p.pool.take_passed(&mut parcel).unwrap().unwrap());
    assert_eq!(p.near.tx_burst(&mut p.pool, &mut frames), 5);
    let counters = p.near.counters();
    assert_eq!((counters.dropped_for(Reason::PortRefused), counters.tx_frames), (2, 3));
    assert_eq!(counters.tx_bytes, (LONGEST + 4 + 60 + 9_000) as u64);
    p.leaks_nothing();
}

#[test]
fn the_longest_mtu_is_as_many_buffers_as_every_kernel_sends() {
    if !available("the longest MTU") {
        return;
    }
    // Packet sockets have no longer slots.
    for (buffer, mtu, len) in [(2048, 34_798, 34_812), (4096, 65_535, 64_900)] {
        let net = wire(mtu);
        let options = AfPacketOptions { max_frame: 65_000, ..AfPacketOptions::default() };
        let far = inside(&net, "a", || AfPacketPort::open("va", options)).unwrap();
        let far_pool = FramePool::for_frames_of(16, 65_000);
        let mut pool = FramePool::with_buffer_size(512, buffer);
        let options = AfXdpOptions { ring: 64, ..small() };
        let near = inside(&net, "b", || AfXdpPort::open("vb", options, &mut pool, &[])).unwrap();
        let mut p = Pair { net, far, far_pool, near, pool };
        let frame = filled(p.near.mac(), 1, len);
        for _ in 0..10 {
            p.send(&frame);
            let rx = p.receive();
            assert!(p.pool.bytes(&rx.frame) == frame, "{len} in buffers of {buffer}");
            assert_eq!(p.near.tx_burst(&mut p.pool, &mut VecDeque::from([rx.frame])), 1);
            assert!(p.returned() == frame, "{len} in buffers of {buffer}");
        }
        p.leaks_nothing();
    }
    let net = wire(34_799);
    let mut pool = FramePool::new(256);
    let open = || AfXdpPort::open("vb", small(), &mut pool, &[]);
    let error = inside(&net, "b", open).unwrap_err();
    assert!(matches!(error, PortError::MtuTooLong { longest: 34_798, refused: None, .. }));
    let told = "up to 34798: set buffer_size = \"4096B\" under [router] (up to 65535), lower";
    assert!(error.to_string().contains(told), "{error}");
}

#[test]
fn a_kernel_without_pieces_is_told_with_the_reason_and_the_remedy() {
    if !available("a kernel without pieces") {
        return;
    }
    // Of the address of an AF_XDP socket.
    const LENGTH: usize = 16;
    let net = wire(3_000);
    let refused = |buffer: usize| {
        let mut pool = FramePool::with_buffer_size(256, buffer);
        let error = inside(&net, "b", || {
            refuse_binds(LENGTH).unwrap();
            AfXdpPort::open("vb", small(), &mut pool, &[]).unwrap_err()
        });
        assert_eq!(pool.in_use(), 0);
        error
    };
    let error = refused(2048);
    assert!(matches!(error, PortError::MtuTooLong { mtu: 3_000, longest: 1_774, .. }), "{error}");
    let error = error.to_string();
    for told in ["up to 1774 (", "Linux 6.6", "buffer_size = \"4096B\" under [router] (up to 3822)"]
    {
        assert!(error.contains(told), "{error}");
    }
    for (name, interface) in [("a", "va"), ("b", "vb")] {
        net.ip(name, &format!("link set {interface} mtu 9000"));
    }
    for (buffer, longest) in [(2048, "up to 1774 ("), (4096, "up to 3822 (")] {
        let error = refused(buffer).to_string();
        assert!(error.contains(longest) && error.contains("lower the MTU"), "{error}");
        assert!(!error.contains("buffer_size"), "larger buffers do not help: {error}");
    }
    assert!(!net.ip("b", "link show vb").contains("xdp"), "nothing is left at the interface");
}

#[test]
fn a_port_whose_frames_fit_a_buffer_asks_for_no_pieces() {
    if !available("no pieces") {
        return;
    }
    let net = wire(1_774);
    let mut far = far(&net);
    let mut pool = FramePool::new(1024);
    let mut near = inside(&net, "b", || AfXdpPort::open("vb", small(), &mut pool, &[])).unwrap();
    assert!(!near.mode().pieces);
    let mut far_pool = FramePool::new(16);
    let frame = filled(near.mac(), 1, 1_788);
    let mut frames = VecDeque::from([far_pool.alloc_from(&frame).unwrap()]);
    far.tx_burst(&mut far_pool, &mut frames);
    let mut out = Vec::new();
    eventually("receiving", || {
        (near.rx_burst(&mut pool, monotonic_now(), &mut out, 1) == 1).then_some(())
    });
    let rx = out.pop().unwrap();
    assert_eq!(pool.bytes(&rx.frame), frame);
    pool.release(rx.frame);
    // It has them as soon as its frames no longer fit, and the peer may have as long ones then.
    net.ip("b", "link set vb mtu 9000");
    eventually("opening anew", || inside(&net, "b", || near.reopen()).is_ok().then_some(()));
    assert!(near.mode().pieces);
    net.ip("a", "link set va mtu 9000");
    let far_pool = FramePool::for_frames_of(16, LONGEST);
    let far = self::far(&net);
    let mut p = Pair { net, far, far_pool, near, pool };
    eventually("the wire is up", || {
        p.near.rx_burst(&mut p.pool, monotonic_now(), &mut Vec::new(), 1);
        (p.near.state() == PortState::Up).then_some(())
    });
    let frame = filled(p.near.mac(), 2, LONGEST);
    p.send(&frame);
    let rx = p.receive();
    assert_eq!(p.pool.bytes(&rx.frame), frame);
    assert_eq!(p.near.tx_burst(&mut p.pool, &mut VecDeque::from([rx.frame])), 1);
    assert_eq!(p.returned(), frame);
    p.leaks_nothing();
    assert!(!inside(&p.net, "b", || p.near.reopen()).unwrap(), "once is enough");
}

/// What the interface has for longer frames is told by netlink, later.
#[test]
fn a_frame_of_more_buffers_than_a_port_may_take_yet_is_refused() {
    if !available("an MTU that has just grown") {
        return;
    }
    for (mtu, grown, fits) in [(1_500, 9_000, 2_048), (9_000, 40_000, 17 * 2_048)] {
        let net = wire(mtu);
        // A port looks at a link that is down.
        net.ip("b", "link set vb down");
        let mut pool = FramePool::new(1024);
        let mut near =
            inside(&net, "b", || AfXdpPort::open("vb", small(), &mut pool, &[])).unwrap();
        net.ip("b", &format!("link set vb mtu {grown}"));
        eventually("the port looks", || {
            near.rx_burst(&mut pool, monotonic_now(), &mut Vec::new(), 1);
            (near.mtu() == grown).then_some(())
        });
        net.ip("b", "link set vb up");
        let mut frames: VecDeque<Frame> =
            [fits, fits + 1].iter().map(|len| pool.alloc_for(*len).unwrap()).collect();
        assert_eq!(near.tx_burst(&mut pool, &mut frames), 2);
        let counters = near.counters();
        assert_eq!((counters.tx_frames, counters.dropped_for(Reason::PortRefused)), (1, 1));
        near.close(&mut pool);
        assert_eq!((pool.in_use(), pool.super_frames()), (0, 0));
        if grown == 40_000 {
            let error = inside(&net, "b", || near.reopen()).unwrap_err();
            assert!(matches!(error, PortError::MtuTooLong { mtu: 40_000, .. }), "{error}");
        }
    }
}

#[test]
fn an_interface_that_comes_back_has_its_pieces_again_and_all_buffers_return() {
    if !available("an interface with pieces that comes back") {
        return;
    }
    let mut p = jumbo(small(), 1024, 2048);
    let frame = filled(p.near.mac(), 1, LONGEST);
    p.send(&frame);
    // It waits in a ring that goes with the interface.
    leave_and_come_back(&p.net, "b", "vb");
    let near = &mut p.near;
    eventually("coming back", || inside(&p.net, "b", || near.reopen()).ok().filter(|new| *new));
    assert!(p.near.mode().pieces);
    eventually("the wire is up", || {
        p.near.rx_burst(&mut p.pool, monotonic_now(), &mut Vec::new(), 1);
        (p.near.state() == PortState::Up).then_some(())
    });
    let frame = filled(p.near.mac(), 2, LONGEST);
    p.send(&frame);
    let rx = p.receive();
    assert_eq!(p.pool.bytes(&rx.frame), frame);
    p.pool.release(rx.frame);
    p.leaks_nothing();
    p.near.close(&mut p.pool);
    assert_eq!(p.pool.in_use(), 0);
}

/// What waits in the rings when a router hands over to another process is not lost.
#[test]
fn another_process_goes_on_with_frames_of_which_some_are_in_pieces() {
    if !available("pieces in other hands") {
        return;
    }
    let mut p = jumbo(small(), 1024, 2048);
    let mac = p.near.mac();
    for number in 0..6 {
        p.send(&filled(mac, number, if number % 2 == 0 { LONGEST } else { 60 }));
    }
    // The first is taken, and the others wait.
    let rx = p.receive();
    p.pool.release(rx.frame);
    let mut parcel = Parcel::default();
    assert!(p.pool.umem().pass_on(&mut parcel).unwrap());
    p.near.pass_on(&mut parcel).unwrap();
    let mut pool = FramePool::of_passed(1024, 2048, &mut parcel).unwrap();
    let near = inside(&p.net, "b", || {
        AfXdpPort::adopt("vb", small(), pool.umem(), &[], None, &mut parcel).unwrap()
    });
    pool.begin(near.lent_buffers());
    assert!(near.mode().pieces);
    let old = std::mem::replace(&mut p.near, near);
    // As a process that ends without a word: the program is the other's now.
    std::mem::forget(old);
    p.pool = pool;
    for number in 1..6 {
        let rx = p.receive();
        let len = if number % 2 == 0 { LONGEST } else { 60 };
        assert_eq!(p.pool.bytes(&rx.frame), filled(mac, number, len));
        assert_eq!(p.near.tx_burst(&mut p.pool, &mut VecDeque::from([rx.frame])), 1);
        assert_eq!(p.returned(), filled(mac, number, len));
    }
    p.send(&filled(mac, 7, LONGEST));
    let rx = p.receive();
    assert_eq!(p.pool.bytes(&rx.frame), filled(mac, 7, LONGEST));
    p.pool.release(rx.frame);
    p.leaks_nothing();
}

#[test]
fn each_of_several_workers_has_frames_in_pieces() {
    if !available("workers with pieces") {
        return;
    }
    for second_looks_first in [true, false] {
        workers_grow(second_looks_first);
    }
}

fn workers_grow(second_looks_first: bool) {
    let net = TestNet::new(&["a", "b", "elsewhere"]);
    net.wire_of_queues(("a", "va"), ("b", "vb"), 2);
    net.hush("a", "va");
    net.hush("b", "vb");
    let common = XdpCommon::default();
    let mut pools = [FramePool::new(1024), FramePool::new(1024)];
    let mut ports: Vec<AfXdpPort> = (0..2)
        .map(|worker| {
            let part = XdpPart { worker, workers: 2, common: common.clone() };
            let pool = &mut pools[worker as usize];
            let open = || AfXdpPort::open_part("vb", small(), pool, &[], part);
            inside(&net, "b", open).unwrap()
        })
        .collect();
    assert!(ports.iter().all(|port| !port.mode().pieces));
    let look = |port: &mut AfXdpPort| inside(&net, "b", || port.reopen());
    let anew = |port: &mut AfXdpPort| {
        eventually("opening anew", || look(port).ok().filter(|new| *new));
        assert!(port.mode().pieces);
    };
    net.ip("b", "link set vb mtu 9000");
    if second_looks_first {
        let error = look(&mut ports[1]).unwrap_err();
        assert!(matches!(error, PortError::NotAttached(_)), "{error}");
        anew(&mut ports[0]);
    } else {
        // It sees the program of the first one, and that its own frames are short again.
        anew(&mut ports[0]);
        net.ip("b", "link set vb mtu 1500");
        assert!(!look(&mut ports[1]).unwrap() && !ports[1].mode().pieces);
        net.ip("b", "link set vb mtu 9000");
    }
    anew(&mut ports[1]);
    assert!(ports.iter_mut().all(|port| look(port).is_ok_and(|new| !new)));
    net.ip("a", "link set va mtu 9000");
    pass_by_both(&net, &mut ports, &mut pools);
    for (port, pool) in ports.iter_mut().zip(&mut pools) {
        port.close(pool);
        assert_eq!(pool.in_use(), 0);
    }
}

fn pass_by_both(net: &TestNet, ports: &mut [AfXdpPort], pools: &mut [FramePool]) {
    let mut far = far(net);
    let mut far_pool = FramePool::for_frames_of(64, LONGEST);
    let mac = ports[0].mac();
    // Another flow, which another queue may carry.
    let of_flow = |flow: u32| {
        let mut frame = filled(mac, flow, LONGEST);
        frame[35] = flow as u8;
        frame
    };
    let mut came = [0; 2];
    eventually("frames come by both and go back", || {
        for flow in 0..8 {
            let frame = far_pool.alloc_from(&of_flow(flow)).unwrap();
            far.tx_burst(&mut far_pool, &mut VecDeque::from([frame]));
        }
        for (at, (port, pool)) in ports.iter_mut().zip(&mut *pools).enumerate() {
            let mut out = Vec::new();
            came[at] += port.rx_burst(pool, monotonic_now(), &mut out, 32);
            let mut back: VecDeque<_> = out.into_iter().map(|rx| rx.frame).collect();
            back.iter().for_each(|frame| assert_eq!(frame.len(), LONGEST));
            port.tx_burst(pool, &mut back);
            assert!(back.is_empty());
        }
        let mut out = Vec::new();
        far.rx_burst(&mut far_pool, monotonic_now(), &mut out, 64);
        for rx in out {
            let bytes = far_pool.bytes(&rx.frame);
            assert_eq!(bytes, of_flow(number_of(bytes)));
            far_pool.release(rx.frame);
        }
        came.iter().all(|frames| *frames > 0).then_some(())
    });
}

/// Behind the driver the kernel may have put the frame together itself.
#[test]
fn an_interface_without_a_hook_in_its_driver_has_pieces_too() {
    if !available("pieces behind the driver") {
        return;
    }
    let net = wire(9000);
    net.ip("b", "link add link vb name vm type macvlan mode bridge");
    net.hush("b", "vm");
    net.ip("b", "link set vm up");
    let far = far(&net);
    let mut pool = FramePool::new(1024);
    let near = inside(&net, "b", || AfXdpPort::open("vm", small(), &mut pool, &[])).unwrap();
    let mode = near.mode();
    assert!(mode.pieces && !mode.native, "{mode}");
    let mut p = Pair { net, far, far_pool: FramePool::for_frames_of(64, LONGEST), near, pool };
    for (number, len) in [(1, LONGEST), (2, 60), (3, 1793), (4, 3584), (5, 5000)] {
        let frame = filled(p.near.mac(), number, len);
        p.send(&frame);
        let rx = p.receive();
        assert_eq!(p.pool.bytes(&rx.frame), frame);
        // To another station: its own address does not leave a macvlan.
        p.pool.bytes_mut(&rx.frame)[5] ^= 1;
        assert_eq!(p.near.tx_burst(&mut p.pool, &mut VecDeque::from([rx.frame])), 1);
        assert_eq!(p.returned()[6..], frame[6..]);
    }
    p.leaks_nothing();
}

#[test]
fn checksums_that_a_host_left_out_are_marked_on_long_frames() {
    if !available("partial checksums of long frames") {
        return;
    }
    let mut p = jumbo(AfXdpOptions { stamp_every: 8, ..small() }, 1024, 2048);
    p.net.ip("a", "address add 10.8.0.1/16 dev va");
    p.net.ip("a", "route add 10.9.0.0/16 dev va");
    let mac: Vec<String> = p.near.mac().iter().map(|byte| format!("{byte:02x}")).collect();
    p.net.ip("a", &format!("neighbour add 10.9.0.1 lladdr {} dev va", mac.join(":")));
    for (offload, partial) in [("on", true), ("off", false)] {
        p.net.output("a", &format!("ethtool -K va tx {offload}"));
        inside(&p.net, "a", || {
            let socket = std::net::UdpSocket::bind("10.8.0.1:5000").unwrap();
            socket.send_to(&[7; 8_900], "10.9.0.1:5001").unwrap();
        });
        let rx = p.receive();
        assert_eq!(rx.frame.len(), 8_942);
        assert_eq!(rx.frame.partial_checksum(), partial, "tx {offload}");
        p.pool.release(rx.frame);
    }
    p.leaks_nothing();
}
