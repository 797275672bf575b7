//! Hosts with their default offloads, joined by a wire of AF_PACKET ports. Needs root.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{TestNet, available, beating, eventually, inside};
use evenkeel_core::{Nanos, Reason};
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::guard::{Guard, GuardKind};
use evenkeel_ports::offload::Offloads;
use evenkeel_ports::sys::{Poller, die_with_parent, monotonic_now, spawn_in_netns};
use evenkeel_ports::{FramePool, Port, PortCounters};

/// Completes the TCP or UDP checksum of an IPv4 frame whose sender left it to the hardware.
fn complete_checksum(frame: &mut [u8]) {
    if frame[12..14] != [8, 0] {
        return;
    }
    let l4 = 14 + usize::from(frame[14] & 15) * 4;
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let at = l4
        + match frame[23] {
            6 => 16,
            17 => 6,
            _ => return,
        };
    let sum = |bytes: &[u8]| -> u32 {
        bytes
            .chunks(2)
            .map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)))
            .sum()
    };
    frame[at..at + 2].fill(0);
    let mut total =
        sum(&frame[26..34]) + u32::from(frame[23]) + (end - l4) as u32 + sum(&frame[l4..end]);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    frame[at..at + 2].copy_from_slice(&(!(total as u16)).to_be_bytes());
}

/// Passes every frame from each port to the other until told to stop; gives the counters of both.
fn wire(ports: &mut [AfPacketPort; 2], stop: &AtomicBool) -> [PortCounters; 2] {
    let mut pool = FramePool::new(4096);
    let poller = Poller::new().unwrap();
    for (token, port) in ports.iter().enumerate() {
        poller.add(port.fd().unwrap(), token as u64).unwrap();
    }
    let mut queues = [VecDeque::new(), VecDeque::new()];
    let (mut events, mut out) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(Nanos::from_millis(20))).unwrap();
        for from in 0..2 {
            ports[from].rx_burst(&mut pool, monotonic_now(), &mut out, 64);
            for rx in out.drain(..) {
                if rx.frame.partial_checksum() {
                    complete_checksum(pool.bytes_mut(&rx.frame));
                }
                queues[from].push_back(rx.frame);
            }
            ports[1 - from].tx_burst(&mut pool, &mut queues[from]);
        }
    }
    ports.each_mut().map(|port| port.counters())
}

/// a - r - b, where r joins its two interfaces by a wire in user space.
fn lab() -> TestNet {
    let lab = TestNet::new(&["a", "r", "b"]);
    lab.wire(("a", "va"), ("r", "ra"));
    lab.wire(("b", "vb"), ("r", "rb"));
    lab.ip("a", "addr add 10.78.0.1/24 dev va");
    lab.ip("b", "addr add 10.78.0.2/24 dev vb");
    lab
}

/// Bytes per second that iperf3 carried from a to b, or what it said.
fn iperf(lab: &TestNet, options: &str) -> Result<f64, String> {
    let mut command = Command::new("iperf3");
    command.args(["-s", "-1", "-B", "10.78.0.2"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server =
        die_with_parent(spawn_in_netns(&mut command, &lab.name("b")).unwrap()).spawn().unwrap();
    eventually("iperf3 listening", || {
        lab.output("b", "ss -ltn").contains("10.78.0.2:5201").then_some(())
    });
    let (ok, text) = lab.try_output("a", &format!("timeout 20 iperf3 -c 10.78.0.2 -J {options}"));
    let _ = server.kill();
    let _ = server.wait();
    if !ok {
        return Err(text);
    }
    let end = text.split("\"sum_received\"").nth(1).ok_or_else(|| text.clone())?;
    let number = end.split("\"bytes\":").nth(1).ok_or_else(|| text.clone())?;
    number
        .split([',', '\n'])
        .next()
        .unwrap()
        .trim()
        .parse()
        .map_err(|error| format!("{error} in {text}"))
}

fn feature(lab: &TestNet, name: &str, interface: &str, feature: &str) -> bool {
    let text = lab.output(name, &format!("ethtool -k {interface}"));
    let line = text.lines().find(|line| line.trim().starts_with(&format!("{feature}:")));
    line.unwrap_or_else(|| panic!("{feature} in {text}")).contains(": on")
}

fn disable(lab: &TestNet, directory: &Path) -> [Offloads; 2] {
    inside(lab, "r", || ["ra", "rb"].map(|name| Offloads::disable(name, directory).unwrap()))
}

#[test]
fn tcp_between_hosts_with_default_offloads_passes_and_no_frame_is_too_long() {
    if !available("super-frames") {
        return;
    }
    let lab = lab();
    let directory = tempfile::tempdir().unwrap();
    let offloads = disable(&lab, directory.path());
    for offload in &offloads {
        assert!(offload.other_end_segments(), "{:?}", offload.warning());
    }
    let (heart, _pulse) = beating(2000);
    let _guards = inside(&lab, "r", || {
        ["ra", "rb"].map(|name| Guard::attach(name, GuardKind::Auto, &[], &heart).unwrap())
    });
    let open = |name| AfPacketPort::open(name, AfPacketOptions::default()).unwrap();
    let mut ports = inside(&lab, "r", || ["ra", "rb"].map(open));
    let stop = AtomicBool::new(false);
    let (result, counters) = std::thread::scope(|scope| {
        let wire = scope.spawn(|| wire(&mut ports, &stop));
        let result = iperf(&lab, "-n 64M");
        stop.store(true, Ordering::Relaxed);
        (result, wire.join().unwrap())
    });
    // The receiver stops counting a little before the last bytes.
    assert!(result.unwrap() > 0.9 * f64::from(64 << 20));
    for counters in counters {
        assert_eq!(counters.dropped_for(Reason::FrameTooLong), 0);
        assert_eq!(counters.dropped, [0; Reason::COUNT]);
    }
    assert!(counters[0].rx_frames >= (60 << 20) / 1448, "real frames: {counters:?}");
}

#[test]
fn without_it_super_frames_are_dropped_and_counted() {
    if !available("super-frames, counter-proof") {
        return;
    }
    let lab = lab();
    let open = |name| AfPacketPort::open(name, AfPacketOptions::default()).unwrap();
    let mut ports = inside(&lab, "r", || ["ra", "rb"].map(open));
    let stop = AtomicBool::new(false);
    let counters = std::thread::scope(|scope| {
        let wire = scope.spawn(|| wire(&mut ports, &stop));
        let _ = iperf(&lab, "-t 2");
        stop.store(true, Ordering::Relaxed);
        wire.join().unwrap()
    });
    assert!(counters[0].dropped_for(Reason::FrameTooLong) > 0, "{counters:?}");
}

#[test]
fn offloads_come_back_on_stop_and_after_a_kill_the_next_start_knows_them() {
    if !available("offloads") {
        return;
    }
    let lab = lab();
    let directory = tempfile::tempdir().unwrap();
    // Neither all on nor all off.
    lab.output("r", "ethtool -K ra gro on tso off");
    let state = || {
        let own = |name, feature_name| feature(&lab, "r", name, feature_name);
        [
            own("ra", "generic-receive-offload"),
            own("ra", "tcp-segmentation-offload"),
            own("ra", "generic-segmentation-offload"),
            own("rb", "generic-receive-offload"),
            own("rb", "tcp-segmentation-offload"),
            feature(&lab, "a", "va", "tcp-segmentation-offload"),
            feature(&lab, "b", "vb", "tcp-segmentation-offload"),
        ]
    };
    let before = state();
    assert!(before[0] && !before[1] && before[2] && before[5]);

    let offloads = disable(&lab, directory.path());
    assert_eq!(state(), [false; 7]);
    let names: Vec<_> = offloads[0].switched_off().collect();
    assert!(names.contains(&"rx-gro") && !names.contains(&"tx-tcp-segmentation"), "{names:?}");
    for offload in offloads {
        offload.restore().unwrap();
    }
    assert_eq!(state(), before);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    // A killed process: its links close, its settings stay, its notes stay.
    let notes = tempfile::tempdir().unwrap();
    let killed = disable(&lab, directory.path());
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), notes.path().join(entry.file_name())).unwrap();
    }
    drop(killed);
    lab.output("r", "ethtool -K ra gro off gso off");
    lab.output("r", "ethtool -K rb gro off gso off tso off");
    let next = disable(&lab, notes.path());
    assert_eq!(state(), [false; 7]);
    drop(next);
    assert_eq!(state(), before);
}

#[test]
fn jumbo_interfaces_and_vanished_ones_are_no_trouble() {
    if !available("jumbo") {
        return;
    }
    let lab = lab();
    let directory = tempfile::tempdir().unwrap();
    for (name, interface) in [("a", "va"), ("r", "ra")] {
        lab.ip(name, &format!("link set {interface} mtu 9000"));
    }
    let offloads = disable(&lab, directory.path());
    assert!(offloads[0].other_end_segments(), "{:?}", offloads[0].warning());
    assert!(!feature(&lab, "a", "va", "tcp-segmentation-offload"));
    lab.ip("r", "link del ra");
    let error = inside(&lab, "r", || Offloads::disable("ra", directory.path())).unwrap_err();
    assert!(error.to_string().contains("ra does not exist"), "{error}");

    // Another interface takes the name before the first one's settings are given up.
    lab.wire(("a", "va"), ("r", "ra"));
    let again = inside(&lab, "r", || Offloads::disable("ra", directory.path())).unwrap();
    for offload in offloads {
        offload.restore().unwrap();
    }
    assert!(!feature(&lab, "r", "ra", "generic-segmentation-offload"), "untouched by the old one");
    let notes = || std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(notes(), 1, "the new one's note is still there");
    drop(again);
    assert!(feature(&lab, "r", "ra", "generic-segmentation-offload"));
    assert_eq!(notes(), 0);
}
