//! Two interfaces joined: every frame passes through the process while it lives, and through the
//! kernel's bridge while it does not. Needs root.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::heartbeat::{Beater, Heartbeat};
use evenkeel_ports::inline::{Bridged, InlinePort, Side, join};
use evenkeel_ports::sys::{in_netns, monotonic_now};
use evenkeel_ports::{FramePool, Port, PortError};

use crate::common::{self, TestNet, available, bridged, eventually, inside};

fn pings(lab: &TestNet, to: &str) -> bool {
    common::pings(lab, "a", to)
}

fn reaches(lab: &TestNet, to: &str) -> bool {
    common::reaches(lab, "a", to)
}

/// What a thread does that passes on what comes.
#[derive(Default)]
struct Passing {
    stop: AtomicBool,
    hangs: AtomicBool,
    passed: AtomicU64,
}

/// Stops the thread also when an assertion fails.
struct Stops<'a>(&'a Passing);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn pass(passing: &Passing) {
    let heart = Heartbeat::new(Nanos::from_millis(200)).unwrap();
    let mut beater = Beater::new(Arc::clone(&heart), 0);
    let mut pool = FramePool::new(4096);
    let mut ports = ["ra", "rb"].map(|name| InlinePort::open(name, Side::Bridge, None).unwrap());
    let _bridged = ["ra", "rb"].map(|name| Bridged::attach(name, &heart).unwrap());
    // What came before the programs were there, the kernel has passed on.
    let mut burst = Vec::new();
    while ports.iter_mut().any(|port| port.rx_burst(&mut pool, monotonic_now(), &mut burst, 64) > 0)
    {
        burst.drain(..).for_each(|received| pool.release(received.frame));
    }
    let mut waiting: [VecDeque<_>; 2] = Default::default();
    while !passing.stop.load(Ordering::Relaxed) {
        if passing.hangs.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        let now = monotonic_now();
        if let Some(span) = beater.beat(now) {
            ports.iter_mut().for_each(|port| port.passed_by(span.clone()));
        }
        for at in 0..2 {
            ports[at].rx_burst(&mut pool, now, &mut burst, 64);
            passing.passed.fetch_add(burst.len() as u64, Ordering::Relaxed);
            waiting[1 - at].extend(burst.drain(..).map(|received| received.frame));
        }
        for at in 0..2 {
            ports[at].tx_burst(&mut pool, &mut waiting[at]);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Frames of all kinds, told apart by their last byte.
fn frames() -> Vec<Vec<u8>> {
    let frame = |to: [u8; 6], rest: &[u8], length: usize, number: u8| {
        let mut frame = to.to_vec();
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 7]);
        frame.extend_from_slice(rest);
        frame.resize(length - 1, 0x55);
        frame.push(number);
        frame
    };
    let station = [2, 0, 0, 0, 0, 9];
    let group = |last: u8| [1, 0x80, 0xc2, 0, 0, last];
    vec![
        // STP, 802.1X, LLDP, OSPF's group.
        frame(group(0), &[0, 39, 0x42, 0x42, 3], 60, 0),
        frame(group(3), &[0x88, 0x8e, 1], 60, 1),
        frame(group(14), &[0x88, 0xcc, 2], 200, 2),
        frame([1, 0, 0x5e, 0, 0, 5], &[8, 0, 0x45], 98, 3),
        // A tag, two tags, three tags.
        frame(station, &[0x81, 0, 0x20, 7, 8, 0, 0x45], 1518, 4),
        frame(station, &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 8, 0, 0x45], 1522, 5),
        frame(station, &[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0], 300, 6),
        // Discovery and a session of PPPoE, MPLS, what nobody knows, the longest.
        frame([0xff; 6], &[0x88, 0x63, 0x11, 9, 0, 0], 60, 7),
        frame(station, &[0x88, 0x64, 0x11, 0, 0, 9, 0, 40, 0, 0x21, 0x45], 70, 8),
        frame(station, &[0x88, 0x47, 0, 0, 0x11, 64, 0x45], 70, 9),
        frame(station, &[0x12, 0x34], 777, 10),
        frame(station, &[8, 0, 0x45], 1514, 11),
    ]
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[frame.len() - 1]).collect()
}

/// Sends frames from a; what of them arrives at b, in order.
fn across(lab: &TestNet, sent: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let options = AfPacketOptions { promiscuous: true, ..AfPacketOptions::default() };
    let open =
        |node: &str, name: &str| inside(lab, node, || AfPacketPort::open(name, options).unwrap());
    let (mut from, mut to) = (open("a", "va"), open("b", "vb"));
    let mut pool = FramePool::new(256);
    let mut frames = sent.iter().map(|bytes| pool.alloc_from(bytes).unwrap()).collect();
    from.tx_burst(&mut pool, &mut frames);
    assert!(frames.is_empty() && from.counters().tx_frames == sent.len() as u64);
    let (mut burst, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(10));
        to.rx_burst(&mut pool, monotonic_now(), &mut burst, 64);
        for received in burst.drain(..) {
            let bytes = pool.bytes(&received.frame).to_vec();
            pool.release(received.frame);
            if bytes[6..12] == [2, 0, 0, 0, 0, 7] {
                arrived.push(bytes);
            }
        }
        if arrived.len() >= sent.len() {
            break;
        }
    }
    arrived
}

#[test]
fn every_frame_passes_with_the_process_and_without_it() {
    if !available("bridge") {
        return;
    }
    let lab = bridged();
    let joined = |make| inside(&lab, "r", || join(["ra", "rb"], make));
    // In no bridge nothing would pass when the process ends.
    let refused = joined(None).unwrap_err();
    assert!(matches!(refused, PortError::NotBridged { .. }), "{refused}");
    assert!(refused.to_string().contains("ra") && refused.to_string().contains("make_bridge"));
    joined(Some("ekb-ra")).unwrap();
    // Joined already: nothing is made.
    joined(None).unwrap();
    joined(Some("another")).unwrap();
    assert!(!lab.ip("r", "-br link").contains("another"));
    eventually("the kernel passing on", || pings(&lab, "10.78.0.2").then_some(()));

    let passing = Passing::default();
    std::thread::scope(|scope| {
        scope.spawn(|| in_netns(&lab.name("r"), || pass(&passing)).unwrap());
        let _stops = Stops(&passing);
        let passed = || passing.passed.load(Ordering::Relaxed);
        eventually("the program at work", || {
            pings(&lab, "10.78.0.2");
            (passed() > 0).then_some(())
        });
        lab.ip("a", "neigh flush dev va");
        assert!(reaches(&lab, "10.78.0.2") && reaches(&lab, "fd78::2"), "and neighbours are found");
        let before = passed();
        let sent = frames();
        let arrived = across(&lab, &sent);
        assert_eq!(numbers(&arrived), numbers(&sent), "each once, in order");
        assert!(arrived == sent, "and unchanged");
        assert!(passed() >= before + sent.len() as u64, "all of them through the process");
        // A process that hangs is passed by.
        passing.hangs.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(250));
        assert!(reaches(&lab, "10.78.0.2"), "the kernel passes by a process that hangs");
        passing.hangs.store(false, Ordering::Relaxed);
        eventually("the process taking over again", || {
            let before = passed();
            pings(&lab, "10.78.0.2");
            (passed() > before).then_some(())
        });
    });
    // Without the process: all but two that are no right packets of IP, which the kernel's bridge
    // looks at.
    let arrived = numbers(&across(&lab, &frames()));
    assert_eq!(arrived, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
    assert!(reaches(&lab, "10.78.0.2") && reaches(&lab, "fd78::2"));

    // Members of different bridges are not joined by us.
    lab.ip("r", "link add br1 type bridge");
    lab.ip("r", "link set ra master br1");
    let refused = joined(Some("ekb-ra")).unwrap_err().to_string();
    assert!(refused.contains("bridge br1") && refused.contains("bridge ekb-ra"), "{refused}");
}
