//! Subscribers who are found by station, VLAN, QinQ and session of PPPoE, by real frames: on a
//! bridge and on a port that is inline, in both directions. Needs root.

use std::fs;
use std::process::Child;
use std::thread::{self, sleep};
use std::time::Duration;

use evenkeel_netns::testing::{TestNet, available, eventually, has_tool};

use crate::subscribers::{ctl, rate, start};
use crate::tagged::AROUND;

/// Everybody's cap in Mbit/s, down and up, and what stands around his packets.
const PEOPLE: [(&str, f64, f64, &str); 4] = [
    ("ann", 8.0, 2.0, "station 02:00:00:00:05:02"),
    ("bob", 6.0, 3.0, "VLAN 7"),
    ("kim", 4.0, 4.0, "VLAN 8.9"),
    ("pia", 3.0, 5.0, "PPPoE session 7"),
];

const LIST: &str = "name,macs,vlans,sessions,down,up
ann,02:00:00:00:05:02,,,8,2
bob,,7,,6,3
kim,,8.9,,4,4
pia,,,7,3,5
";

/// Sends frames of each of them, and some of nobody's, until it is stopped.
const FLOOD: &str = r#"
KINDS = [
    (2, ether),
    (3, lambda ip: tags((0x8100, 7)) + ether(ip)),
    (3, lambda ip: tags((0x88a8, 8), (0x8100, 9)) + ether(ip)),
    (3, lambda ip: tags((0x8100, 3)) + session(ip)),
    (3, lambda ip: tags((0x8100, 8)) + ether(ip)),
]
s, down = bound(sys.argv[1]), sys.argv[2] == "down"
frames = []
for last, around in KINDS:
    near, far = bytes([2, 0, 0, 0, 5, last]), bytes([2, 0, 0, 0, 9, 9])
    frames.append((near + far if down else far + near) + around(packet(0, 0, False, 900)))
begin, number = time.monotonic(), 0
while time.monotonic() < begin + 40:
    for frame in frames:
        try:
            s.send(frame)
        except OSError:
            pass
    number += 1
    time.sleep(max(0, begin + number * 0.0005 - time.monotonic()))
"#;

struct Street {
    net: TestNet,
    folder: tempfile::TempDir,
    process: Child,
}

impl Street {
    /// `ports`: the ports and links of the file, the tree's two links named in it.
    fn new(ports: &str) -> Option<Self> {
        let test = "subscribers by layer two";
        if !available(test) || !has_tool(test, "python3", "python3") {
            return None;
        }
        let net = TestNet::new(&["a", "g", "b"]);
        net.wire(("a", "a0"), ("g", "wan"));
        net.wire(("b", "b0"), ("g", "lan"));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("people.csv"), LIST).unwrap();
        fs::write(folder.path().join("flood.py"), format!("{AROUND}{FLOOD}")).unwrap();
        let socket = folder.path().join("control.sock");
        let config = format!("[router]\ncontrol = {socket:?}\nmake_bridge = true\n{ports}");
        fs::write(folder.path().join("router.toml"), config).unwrap();
        let process = start(&net, folder.path());
        eventually("the router answers", || socket.exists());
        Some(Self { net, folder, process })
    }

    /// Everybody is sent more than the plan has, and has the plan.
    fn judge(&self, node: &str, interface: &str, link: &str, is_down: bool) {
        let way = if is_down { "down" } else { "up" };
        let script = self.folder.path().join("flood.py");
        let line = format!("python3 {} {interface} {way}", script.display());
        let flood = self.net.start_for(60, node, &line);
        sleep(Duration::from_secs(1));
        // Of all at once: each takes seconds.
        let folder = self.folder.path();
        let look = |name: &'static str| {
            (rate(folder, link, name), ctl(folder, &format!("explain subscriber {name}")))
        };
        let (looked, unknown) = thread::scope(|scope| {
            let looked = PEOPLE.map(|(name, ..)| scope.spawn(move || look(name)));
            let unknown = rate(folder, link, "unknown");
            (looked.map(|looked| looked.join().unwrap()), unknown)
        });
        for ((name, down, up, found), (rate, told)) in PEOPLE.into_iter().zip(looked) {
            let plan = if is_down { down } else { up };
            println!("{name} on {link}: {rate:.2} Mbit/s of {plan}");
            assert!((rate / plan - 1.0).abs() < 0.05, "{name} on {link}: {rate}, not {plan}");
            assert!(told.contains(&format!("found by {found}\n")), "{told}");
            assert!(told.contains("its own cap"), "{told}");
        }
        assert!(unknown > 3.0, "whose VLAN is nobody's");
        drop(flood);
    }
}

impl Drop for Street {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn tree(down: &str, up: &str) -> String {
    let link = |port: &str| format!("[[link]]\nport = {port:?}\nrate = \"100Mbit/s\"\n");
    let links = [link(down), link(up)].concat();
    format!("{links}[[tree]]\nsubscribers = \"people.csv\"\ndown = {down:?}\nup = {up:?}\n")
}

#[test]
fn on_a_bridge_they_are_found_in_both_directions() {
    let port = |name: &str| {
        format!("[[port]]\nname = {name:?}\ninterface = {name:?}\nattach = \"bridge\"\n")
    };
    let file = [port("lan"), port("wan"), tree("lan", "wan")].concat();
    let Some(street) = Street::new(&file) else { return };
    street.judge("a", "a0", "lan", true);
    street.judge("b", "b0", "wan", false);
}

#[test]
fn at_an_inline_port_they_are_found_in_what_the_kernel_sends_and_gets() {
    let port = "[[port]]\nname = \"lan\"\ninterface = \"lan\"\nattach = \"inline\"\n";
    let file = format!("{port}{}", tree("lan", "lan-ingress"));
    let Some(street) = Street::new(&file) else { return };
    street.judge("g", "lan", "lan", true);
    // What is for another station the kernel does not take, and so neither does the router.
    street.net.ip("g", "link set lan address 02:00:00:00:09:09");
    street.judge("b", "b0", "lan-ingress", false);
}
