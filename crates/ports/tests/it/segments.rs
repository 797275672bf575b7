//! Super-frames are cut as the kernel cuts them, byte for byte. Needs root.
//!
//! The same super-frames are sent twice: to an interface that leaves cutting to the receiver, where
//! an inline port cuts them, and to one that cuts before it sends, where a packet socket sees what
//! the kernel has made.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::common::{TestNet, available, inside};
use evenkeel_netns::testing::has_tool;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::inline::{InlinePort, Side};
use evenkeel_ports::sys::{monotonic_now, spawn_in_netns};
use evenkeel_ports::{FramePool, Port};

/// The hardware address that they come from.
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 7];
/// Super-frames that are compared.
const CASES: usize = 300;

/// A frame as a sender hands it to its device, and what it says of it.
#[derive(Clone, Debug)]
struct Super {
    tcp: bool,
    v6: bool,
    /// Bytes of TCP options, a multiple of four.
    options: usize,
    /// TCP flags.
    flags: u8,
    sequence: u32,
    id: u16,
    /// DSCP and ECN.
    traffic_class: u8,
    size: u16,
    data: usize,
    fill: u8,
}

fn super_frame() -> impl Strategy<Value = Super> {
    let headers = (any::<bool>(), any::<bool>(), (0..=10_usize), any::<u8>());
    let fields = (any::<u32>(), any::<u16>(), any::<u8>(), any::<u8>());
    (headers, fields, 400..=1440_u16, 2.0..44.0_f64).prop_map(
        |((tcp, v6, options, flags), (sequence, id, traffic_class, fill), size, segments)| {
            // RST and SYN are never in a super-frame.
            let flags = flags & !0x06 | 0x10;
            let data = (f64::from(size) * segments) as usize;
            let options = if tcp { options * 4 } else { 0 };
            Super { tcp, v6, options, flags, sequence, id, traffic_class, size, data, fill }
        },
    )
}

impl Super {
    fn transport(&self) -> usize {
        if self.tcp { 20 + self.options } else { 8 }
    }

    /// `struct virtio_net_hdr` and the frame.
    fn bytes(&self, to: [u8; 6]) -> Vec<u8> {
        let l4 = 14 + if self.v6 { 40 } else { 20 };
        let length = l4 + self.transport() + self.data;
        let mut frame = vec![0; length];
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&SOURCE);
        let protocol = if self.tcp { 6 } else { 17 };
        let half = |frame: &mut [u8], at: usize, value: usize| {
            frame[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        };
        if self.v6 {
            half(&mut frame, 12, 0x86dd);
            frame[14] = 0x60 | self.traffic_class >> 4;
            frame[15] = self.traffic_class << 4;
            half(&mut frame, 18, length - l4);
            (frame[20], frame[21]) = (protocol, 64);
            frame[22..38].copy_from_slice(&[0xfd, 0x77, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
            frame[38..54].copy_from_slice(&[0xfd, 0x77, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        } else {
            half(&mut frame, 12, 0x0800);
            (frame[14], frame[15]) = (0x45, self.traffic_class);
            half(&mut frame, 16, length - 14);
            half(&mut frame, 18, usize::from(self.id));
            (frame[20], frame[22], frame[23]) = (0x40, 64, protocol);
            frame[26..34].copy_from_slice(&[10, 77, 1, 9, 10, 77, 9, 2]);
            let sum = ones_complement(&frame[14..34]);
            half(&mut frame, 24, usize::from(!sum));
        }
        half(&mut frame, l4, 4000);
        half(&mut frame, l4 + 2, 5000);
        let field = if self.tcp {
            frame[l4 + 4..l4 + 8].copy_from_slice(&self.sequence.to_be_bytes());
            frame[l4 + 12] = (self.transport() as u8 / 4) << 4;
            frame[l4 + 13] = self.flags;
            // No-operations.
            frame[l4 + 20..l4 + 20 + self.options].fill(1);
            16
        } else {
            half(&mut frame, l4 + 4, length - l4);
            6
        };
        for (at, byte) in frame[l4 + self.transport()..].iter_mut().enumerate() {
            *byte = self.fill.wrapping_add((at / 3) as u8);
        }
        // The checksum field holds the sum over the pseudo header.
        let addresses = if self.v6 { 22..54 } else { 26..34 };
        let mut pseudo = frame[addresses].to_vec();
        pseudo.extend_from_slice(&u32::from(protocol).to_be_bytes());
        pseudo.extend_from_slice(&((length - l4) as u32).to_be_bytes());
        let sum = ones_complement(&pseudo);
        half(&mut frame, l4 + field, usize::from(sum));

        let kind: u8 = match (self.tcp, self.v6) {
            (true, false) => 1,
            (true, true) => 4,
            (false, _) => 5,
        };
        // A sender with ECN says so beside the kind.
        let kind = if self.tcp && self.flags & 0x80 != 0 { kind | 0x80 } else { kind };
        let mut all = vec![1, kind];
        let numbers = [l4 + self.transport(), usize::from(self.size), l4, field];
        numbers.iter().for_each(|number| all.extend_from_slice(&(*number as u16).to_ne_bytes()));
        all.extend_from_slice(&frame);
        all
    }
}

fn ones_complement(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sends frames with their headers, one per line in hexadecimal on its standard input.
const SENDER: &str = "
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.setsockopt(263, 15, 1)
s.bind((sys.argv[1], 0))
for line in iter(sys.stdin.readline, ''):
    s.send(bytes.fromhex(line))
";

/// A process that sends super-frames by an interface.
struct Sender(Child);

impl Sender {
    fn start(lab: &TestNet, interface: &str) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", SENDER, interface]).stdin(Stdio::piped());
        Self(spawn_in_netns(&mut python, &lab.name("a")).unwrap().spawn().unwrap())
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut line = String::new();
        bytes.iter().for_each(|byte| write!(line, "{byte:02x}").expect("a string takes it"));
        line.push('\n');
        self.0.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives until `wanted` frames have come, or none has for a while: a busy kernel may lose some.
fn receive(port: &mut dyn Port, pool: &mut FramePool, wanted: usize) -> Vec<Vec<u8>> {
    let (mut burst, mut frames) = (Vec::new(), Vec::new());
    let mut last = Instant::now();
    while frames.len() < wanted && last.elapsed() < Duration::from_secs(2) {
        port.rx_burst(pool, monotonic_now(), &mut burst, 256);
        for received in burst.drain(..) {
            let bytes = pool.bytes(&received.frame).to_vec();
            pool.release(received.frame);
            // Neighbour discovery and the like are not ours.
            if bytes[6..12] == SOURCE {
                frames.push(bytes);
                last = Instant::now();
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    frames
}

#[test]
fn super_frames_are_cut_as_the_kernel_cuts_them() {
    if !available("segments") || !has_tool("segments", "python3", "python3") {
        return;
    }
    let lab = TestNet::new(&["a", "b"]);
    // Ours is cut where it arrives, the other one where it is sent.
    for (from, to) in [("va", "vb"), ("wa", "wb")] {
        lab.wire(("a", from), ("b", to));
    }
    lab.output("a", "ethtool -K va tso on gso on tx on");
    lab.output("a", "ethtool -K va tx-udp-segmentation on");
    lab.output("a", "ethtool -K wa tso off tx off");
    lab.output("a", "ethtool -K wa tx-udp-segmentation off");
    let (mut ours, mut kernels) = inside(&lab, "b", || {
        let options = AfPacketOptions { ring_frames: 16_384, ..AfPacketOptions::default() };
        let kernels = AfPacketPort::open("wb", options).unwrap();
        (InlinePort::open("vb", Side::Wire, None).unwrap(), kernels)
    });
    let mut pool = FramePool::new(20_000);
    let mut runner = TestRunner::deterministic();
    let (mut va, mut wa) = (Sender::start(&lab, "va"), Sender::start(&lab, "wa"));
    let (mut compared, mut lost) = (0, 0);
    for _ in 0..CASES {
        let case = super_frame().new_tree(&mut runner).unwrap().current();
        let wanted = case.data.div_ceil(usize::from(case.size));
        va.send(&case.bytes(ours.mac()));
        wa.send(&case.bytes(kernels.mac()));
        let ours = receive(&mut ours, &mut pool, wanted);
        let kernels = receive(&mut kernels, &mut pool, wanted);
        if ours.len() < wanted || kernels.len() < wanted {
            lost += 1;
            continue;
        }
        assert_eq!(ours.len(), kernels.len(), "{case:?}");
        for (at, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
            // All but the destination's hardware address.
            assert_eq!(ours[6..], kernels[6..], "segment {at} of {case:?}");
        }
        compared += wanted;
    }
    assert!(lost <= CASES / 20, "{lost} of {CASES} could not be compared");
    assert!(compared > CASES * 10, "{compared} segments were compared");
}
