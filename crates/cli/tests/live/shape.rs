//! `evenkeel shape` in the gateway of a home: a firewall with memory, addresses translated, hosts
//! behind it. Nothing of that changes while it runs, nor before or after. Needs root.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_netns::testing::{TestNet, available, eventually, eventually_some, has_tool, text};
use serde_json::Value;

/// What a gateway has: sources are translated, and only what inside began comes in.
const FIREWALL: &str = "
table ip translation {
  chain post {
    type nat hook postrouting priority 100;
    oifname \"wan\" masquerade
  }
}
table inet firewall {
  counter allowed { }
  chain gate {
    type filter hook forward priority 0; policy drop;
    ct state established,related counter name allowed accept
    iifname \"lan\" counter name allowed accept
  }
}
";

/// Megabits per second.
const DOWN: u64 = 40;
const UP: u64 = 10;

/// A host `h`, its gateway `g`, and a host `s` of the internet.
struct Home {
    net: TestNet,
    folder: tempfile::TempDir,
    shaper: Option<Child>,
}

impl Home {
    fn new(test: &str) -> Option<Self> {
        let tools = [("iperf3", "iperf3"), ("nft", "nftables"), ("ping", "iputils-ping")];
        if !available(test) || !tools.iter().all(|(tool, package)| has_tool(test, tool, package)) {
            return None;
        }
        let net = TestNet::new(&["h", "g", "s"]);
        net.wire(("h", "h0"), ("g", "lan"));
        net.wire(("s", "s0"), ("g", "wan"));
        net.sysctl("g", "net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1");
        for (node, interface, address) in [
            ("h", "h0", "10.1.0.2/24"),
            ("g", "lan", "10.1.0.1/24"),
            ("s", "s0", "10.2.0.2/24"),
            ("g", "wan", "10.2.0.1/24"),
        ] {
            net.ip(node, &format!("address add {address} dev {interface}"));
        }
        // The server knows no way back to the host: answers find it only if sources are translated.
        net.ip("h", "route add default via 10.1.0.1");
        let mut nft = net.command("g", "nft -f -");
        let mut nft = nft.stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(FIREWALL.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "the firewall");
        let folder = tempfile::tempdir().unwrap();
        Some(Self { net, folder, shaper: None })
    }

    /// The command, with the folders of this test.
    fn shape(&self, interface: &str) -> Command {
        self.shape_to(interface, DOWN, UP)
    }

    fn shape_to(&self, interface: &str, down: u64, up: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        let socket = self.folder.path().join("control.sock");
        command.args(["shape", interface, "--netns", &self.net.name("g")]);
        command.args(["--down", &format!("{down}Mbit/s"), "--up", &format!("{up}Mbit/s")]);
        command.arg("--socket").arg(socket).arg("--runtime-dir").arg(self.folder.path());
        command
    }

    fn start(&mut self) {
        self.start_at(DOWN, UP);
    }

    fn start_at(&mut self, down: u64, up: u64) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let shaper =
            self.shape_to("wan", down, up).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        self.shaper = Some(shaper.unwrap());
        eventually("the shaper answers", || self.try_show().is_some());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn try_show(&self) -> Option<Value> {
        let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
            .args(["ctl", "--json", "show", "--socket"])
            .arg(self.folder.path().join("control.sock"))
            .output()
            .unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// What a link has sent so far: packets as the wire carries them, and their bytes there.
    fn sent(&self, link: &str) -> (u64, u64) {
        let shown = self.try_show().unwrap_or_else(|| panic!("no answer; log: {}", self.log()));
        let links = shown["links"].as_array().unwrap();
        let found = links.iter().find(|one| one["port"] == link).unwrap();
        let class = &found["classes"][0];
        let packets = class["sent_segments"].as_u64().unwrap();
        // Header, check sequence, preamble and gap.
        (packets, class["sent_bytes"].as_u64().unwrap() + 38 * packets)
    }

    /// What must hold always: the host reaches the server by its gateway's address, the server
    /// does not reach the host, and the gateway itself is reached.
    fn is_as_ever(&self, when: &str) {
        let pings = |from: &str, to: &str| {
            self.net.try_output(from, &format!("ping -n -c 2 -i 0.2 -W 2 {to}")).0
        };
        assert!(pings("h", "10.2.0.2"), "{when}: the host reaches the server");
        assert!(pings("g", "10.2.0.2"), "{when}: the gateway reaches the server");
        assert!(pings("s", "10.2.0.1"), "{when}: the server reaches the gateway");
        self.net.ip("s", "route replace 10.1.0.0/24 via 10.2.0.1");
        let through = self.net.try_output("s", "ping -n -c 1 -W 1 10.1.0.2").0;
        self.net.ip("s", "route del 10.1.0.0/24");
        assert!(!through, "{when}: the firewall lets in what nobody inside has begun");
    }

    /// A transfer of two seconds, `streams` connections; Mbit/s that arrived.
    fn transfer(&self, streams: u32, downwards: bool) -> f64 {
        let server = self.net.start("s", "iperf3 -s -1 -p 5301");
        eventually("the server listens", || {
            self.net.output("s", "ss -Hltn sport = :5301").contains("5301")
        });
        let direction = if downwards { "-R" } else { "" };
        let line = format!("iperf3 -c 10.2.0.2 -p 5301 -J -t 2 -C cubic -P {streams} {direction}");
        let output = self.net.run("h", &line);
        assert!(output.status.success(), "{}", text(&output));
        drop(server);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6
    }

    fn kill(&mut self, signal: &str) {
        let mut shaper = self.shaper.take().expect("it runs");
        let killed = Command::new("kill").args([signal, &shaper.id().to_string()]).status();
        assert!(killed.unwrap().success());
        shaper.wait().unwrap();
    }

    /// Nothing of the pair is left in the gateway.
    fn nothing_is_left(&self) {
        let links = self.net.ip("g", "-br link");
        assert!(!links.contains("ekh-") && !links.contains("eku-"), "{links}");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(mut shaper) = self.shaper.take() {
            let _ = shaper.kill();
            let _ = shaper.wait();
        }
    }
}

#[test]
fn a_gateway_is_shaped_and_nothing_else_changes() {
    let Some(mut home) = Home::new("shape") else { return };
    home.is_as_ever("before");
    home.start();
    home.is_as_ever("while it runs");
    for (downwards, link, rate) in [(true, "wan-ingress", DOWN), (false, "wan", UP)] {
        let (began, before) = (Instant::now(), home.sent(link));
        let reached = home.transfer(4, downwards);
        let (took, after) = (began.elapsed(), home.sent(link));
        let (packets, bytes) = (after.0 - before.0, after.1 - before.1);
        // What left the link was never more than its rate, on the wire, headers and gaps counted.
        let most = rate * 125_000 * took.as_micros() as u64 / 1_000_000;
        assert!(bytes <= most + 20_000, "{link}: {bytes} bytes in {took:?}");
        assert!(reached < rate as f64, "{link}: {reached} of {rate} Mbit/s");
        assert!(packets * 1538 >= bytes, "{link}: {packets} packets, {bytes} bytes");
        // Generous: other tests run beside this one.
        assert!(reached > rate as f64 * 0.5, "{link}: {reached} of {rate} Mbit/s");
    }
    // What takes a link longer than a millisecond was cut: 5000 bytes inwards, 1250 outwards.
    let shown = home.try_show().unwrap();
    for (port, most) in shown["ports"].as_array().unwrap().iter().zip([3, 1]) {
        let count = |name: &str| port[name].as_u64().unwrap();
        assert!(count("rx_segments") <= most * count("rx_packets"), "{port}");
        assert!(count("cut") > 0, "{port}");
    }
    // The box's own traffic goes through the links as well.
    let (before, _) = home.sent("wan");
    home.net.output("g", "ping -n -c 5 -i 0.2 10.2.0.2");
    assert!(home.sent("wan").0 >= before + 5, "pings of the gateway itself are queued");
    let counted = home.net.output("g", "nft list counter inet firewall allowed");
    assert!(!counted.contains("packets 0 "), "rules count what passes: {counted}");

    // A second one for the same interface is refused, and harms nobody.
    let second = home.shape("wan").output().unwrap();
    let said = text(&second);
    assert!(!second.status.success() && said.contains("wan"), "{said}");
    home.is_as_ever("after a second one was refused");

    // Killed, it leaves the kernel forwarding; the next one takes the pair over.
    home.kill("-KILL");
    home.is_as_ever("after kill -9");
    home.start();
    home.is_as_ever("after a restart");
    home.kill("-TERM");
    home.is_as_ever("afterwards");
    home.nothing_is_left();
}

#[test]
fn super_frames_stay_whole_on_a_fast_link_and_everything_balances() {
    let Some(mut home) = Home::new("shape") else { return };
    let features = |home: &Home| home.net.output("g", "ethtool -k wan");
    let before = has_tool("shape", "ethtool", "ethtool").then(|| features(&home));
    // A super-frame takes 0.6 ms of this.
    home.start_at(900, 900);
    home.is_as_ever("while it runs");
    for downwards in [true, false] {
        assert!(home.transfer(2, downwards) > 100.0, "downwards: {downwards}");
    }
    // What was on its way has arrived.
    let shown = eventually_some("all is sent", || {
        let shown = home.try_show()?;
        let quiet = shown["links"]
            .as_array()?
            .iter()
            .all(|link| link["queued"] == 0 && link["in_ring"] == 0);
        quiet.then_some(shown)
    });
    let [ports, links] = ["ports", "links"].map(|part| shown[part].as_array().unwrap().clone());
    for (at, to) in [(0, 1), (1, 0)] {
        let (port, link, out) = (&ports[at], &links[to]["classes"][0], &ports[to]);
        let count = |of: &Value, name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}"));
        let (packets, segments) = (count(port, "rx_packets"), count(port, "rx_segments"));
        assert!(segments > 4 * packets, "{packets} packets, {segments} segments");
        assert_eq!(segments, count(link, "in_segments"), "{port} {link}");
        let gone = count(link, "sent_segments") + count(link, "dropped_segments");
        assert_eq!(segments, gone, "{link}");
        assert_eq!(count(link, "sent_segments"), count(out, "tx_segments"), "{link} {out}");
        if count(link, "dropped_segments") == 0 {
            assert_eq!(count(port, "rx_bytes"), count(out, "tx_bytes"), "{port} {out}");
        }
        // Every segment has its headers: 14 bytes of Ethernet are no part of what a link counts.
        let ip = count(out, "tx_bytes") - 14 * count(out, "tx_segments");
        assert_eq!(ip, count(link, "sent_bytes"), "{link} {out}");
    }
    let told = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["ctl", "show", "--socket"])
        .arg(home.folder.path().join("control.sock"))
        .output()
        .unwrap();
    assert!(text(&told).contains("super-frames of wan: "), "{}", text(&told));
    // Nothing of the interface was changed, and so nothing stays changed.
    home.kill("-KILL");
    if let Some(before) = before {
        assert_eq!(before, features(&home));
    }
    home.is_as_ever("afterwards");
}

#[test]
fn a_shaper_that_hangs_is_passed_by_and_takes_over_again() {
    let Some(mut home) = Home::new("shape") else { return };
    home.start();
    home.is_as_ever("while it runs");
    let signal = |home: &Home, signal: &str| {
        let shaper = home.shaper.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &shaper]).status().unwrap().success());
    };
    signal(&home, "-STOP");
    std::thread::sleep(Duration::from_millis(300));
    home.is_as_ever("while it hangs");
    signal(&home, "-CONT");
    eventually("it takes over again", || {
        let before = home.sent("wan");
        home.net.output("g", "ping -n -c 1 -W 2 10.2.0.2");
        home.sent("wan").0 > before.0
    });
    home.kill("-TERM");
    home.nothing_is_left();
}

#[test]
fn what_cannot_be_shaped_is_refused_and_nothing_is_left() {
    let Some(home) = Home::new("shape") else { return };
    let missing = home.shape("nowhere").output().unwrap();
    let said = text(&missing);
    assert_eq!(missing.status.code(), Some(2), "{said}");
    assert!(said.contains("nowhere"), "{said}");
    // Loopback has no wire.
    let loopback = home.shape("lo").output().unwrap();
    let said = text(&loopback);
    assert!(loopback.status.code() == Some(2) && said.contains("lo"), "{said}");
    // Somebody else's interface has the name of an end.
    home.net.ip("g", "link add ekh-wan type veth peer name other");
    home.net.ip("g", "link set ekh-wan alias mine");
    let taken = home.shape("wan").output().unwrap();
    let said = text(&taken);
    assert!(!taken.status.success() && said.contains("ekh-wan"), "{said}");
    home.net.ip("g", "link del ekh-wan");
    home.nothing_is_left();
    home.is_as_ever("afterwards");
}
