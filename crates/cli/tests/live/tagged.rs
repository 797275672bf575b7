//! `attach = "bridge"` and what is inside tags, sessions and labels: it is classified by its IP
//! header, passes unchanged, and goes on when the process is killed. Needs root.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use evenkeel_netns::testing::{eventually, eventually_some, has_tool};

use crate::bridge::Bridge;

/// Packets, and what may stand around them in a frame.
pub(crate) const AROUND: &str = r#"
import hashlib, socket, struct, sys, time

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff

def packet(number, call, v6, room=40):
    data = b"evenkeel" + struct.pack("!IB", number, call) + bytes(room)
    udp = struct.pack("!4H", 1000 + number % 7, 9, 8 + len(data), 0 if not v6 else 1) + data
    tos = 46 << 2 if call else 0
    if v6:
        ends = bytes.fromhex("fd0600000000000000000000000000010000")[:16]
        return struct.pack("!IHBB", 6 << 28 | tos << 20, len(udp), 17, 64) + ends + ends + udp
    head = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20 + len(udp), number & 0xffff, 0, 64, 17, 0,
                       bytes([10, 6, 0, 1]), bytes([10, 6, 0, 2]))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp

def tags(*of):
    return b"".join(struct.pack("!HH", *tag) for tag in of)

def session(ip):
    head = struct.pack("!HBBHHH", 0x8864, 0x11, 0, 7, len(ip) + 2, 0x21 if ip[0] >> 4 == 4 else 0x57)
    return head + ip

def labels(count, ip):
    stack = [(16 + at) << 12 | (at + 1 == count) << 8 | 64 for at in range(count)]
    return struct.pack(f"!H{count}I", 0x8847, *stack) + ip

def ether(ip):
    return struct.pack("!H", 0x0800 if ip[0] >> 4 == 4 else 0x86dd) + ip

def bound(interface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((interface, 0))
    return s
"#;

/// Sends or receives numbered frames of ten kinds in turn, and prints the number, whether it is a
/// call, and a digest of each.
const FRAMES: &str = r#"
what, interface, amount, gap = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
s = bound(interface)

def tell(number, call, frame):
    print(number, call, hashlib.sha256(frame).hexdigest(), flush=True)

KINDS = [
    (False, ether),
    (False, lambda ip: tags((0x8100, 100)) + ether(ip)),
    (False, lambda ip: tags((0x88a8, 100), (0x8100, 200)) + ether(ip)),
    (False, lambda ip: tags((0x8100, 100), (0x8100, 200)) + ether(ip)),
    (False, session),
    (False, lambda ip: tags((0x8100, 100)) + session(ip)),
    (False, lambda ip: labels(1, ip)),
    (False, lambda ip: labels(3, ip)),
    (True, lambda ip: tags((0x88a8, 100), (0x8100, 200)) + session(ip)),
    (True, lambda ip: tags((0x8100, 100)) + labels(2, ip)),
]
if what == "send":
    to = bytes.fromhex(sys.argv[5].replace(":", ""))
    begin = time.monotonic()
    for number in range(int(amount)):
        call = number // len(KINDS) % 2
        v6, around = KINDS[number % len(KINDS)]
        frame = to + bytes([2, 0, 0, 0, 5, 1]) + around(packet(number, call, v6))
        s.send(frame)
        tell(number, call, frame)
        time.sleep(max(0, begin + (number + 1) * gap - time.monotonic()))
else:
    # Until none has come for a while.
    s.setsockopt(263, 8, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    open(sys.argv[5], "w").close()
    end = time.monotonic() + amount
    s.settimeout(0.1)
    last = end
    while time.monotonic() < min(end, last + 3):
        try:
            frame, more, _, sender = s.recvmsg(4096, 256)
        except socket.timeout:
            continue
        at = frame.find(b"evenkeel")
        if at < 0 or sender[2] == 4:
            continue
        for level, kind, data in more:
            status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", data[:20])
            if status & 0x10:
                frame = frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
                at += 4
        last = time.monotonic()
        tell(*struct.unpack("!IB", frame[at + 8:at + 13]), frame)
"#;

struct Told {
    digests: HashMap<u32, String>,
    calls: u64,
    twice: Vec<u32>,
}

fn told(text: &str) -> Told {
    let mut told = Told { digests: HashMap::new(), calls: 0, twice: Vec::new() };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(number), Some(call), Some(digest)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let number = number.parse().unwrap();
        told.calls += call.parse::<u64>().unwrap();
        if told.digests.insert(number, digest.to_owned()).is_some() {
            told.twice.push(number);
        }
    }
    told
}

impl Bridge {
    /// Sends so many frames from `a`, one in each `gap` seconds, and does something meanwhile: what
    /// was sent, and what has come to `b`.
    fn exchange(&mut self, frames: u32, gap: f64, meanwhile: impl FnOnce(&mut Self)) -> [Told; 2] {
        let script = self.path("frames.py");
        std::fs::write(&script, format!("{AROUND}{FRAMES}")).unwrap();
        let script = script.display();
        let mac = self.net.output("b", "cat /sys/class/net/b0/address");
        let ready = self.path("ready");
        let _ = std::fs::remove_file(&ready);
        let line = format!("python3 {script} receive b0 50 0 {}", ready.display());
        let receiver = self.net.start_for(60, "b", &line);
        eventually("the receiver is there", || ready.exists());
        let line = format!("python3 {script} send a0 {frames} {gap} {}", mac.trim());
        let sender = self.net.start_for(60, "a", &line);
        meanwhile(self);
        [sender.wait(), receiver.wait()].map(|text| told(&text))
    }
}

#[test]
fn what_is_in_tags_sessions_and_labels_is_classified_and_survives_a_kill() {
    if !has_tool("tagged", "python3", "python3") {
        return;
    }
    let Some(mut bridge) = Bridge::new() else { return };
    bridge.start(true);
    eventually("they find each other", || bridge.pings());
    let calls = |bridge: &Bridge| {
        let shown = bridge.show()?;
        let class = shown["links"][1]["classes"][1].clone();
        assert_eq!(class["name"], "calls");
        class["sent_packets"].as_u64()
    };
    let before = calls(&bridge).unwrap();
    let [sent, came] = bridge.exchange(400, 0.002, |_| ());
    assert_eq!((sent.digests.len(), sent.calls), (400, 200));
    assert_eq!(came.digests, sent.digests, "all of them, byte for byte");
    assert_eq!((came.calls, came.twice.len()), (200, 0));
    let counted =
        eventually_some("they are counted", || calls(&bridge).filter(|now| now - before >= 200));
    assert_eq!(counted - before, 200, "by the DSCP inside");

    // Killed and started again: the kernel's bridge passes them meanwhile.
    for more in [true, true, false] {
        let [sent, came] = bridge.exchange(3_000, 0.001, |bridge| {
            sleep(Duration::from_millis(800));
            bridge.signal("-KILL");
            sleep(Duration::from_millis(400));
            bridge.start(false);
        });
        assert!(came.twice.is_empty(), "nothing passes twice: {:?}", came.twice);
        assert!(came.digests.iter().all(|(number, digest)| sent.digests[number] == *digest));
        let (mut run, mut longest) = (0, 0);
        for number in 0..3_000 {
            run = if came.digests.contains_key(&number) { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        let lost = 3_000 - came.digests.len();
        println!("kill -9 and a start: {lost} of 3000 frames lost, {longest} at a time");
        // Of one each millisecond. What a busy machine takes is no fault of the bridge's.
        if longest <= 300 {
            return;
        }
        assert!(more, "{longest} at a time, three times of three");
    }
}
