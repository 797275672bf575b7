//! The command itself on real interfaces under load: `run`, `ctl`, SIGHUP, SIGTERM and `kill -9`. Needs root; says so and
//! passes otherwise.

use std::process::{Child, Command, Output, Stdio};

use evenkeel_netns::testing::{TestNet, available, eventually, has_tool, text};
use serde_json::Value;

/// Two classes by destination port; `bulk` (port 5002) is held by LCT-UC.
const CONFIG: &str = r#"
[[port]]
name = "lan"
interface = "lan"
[[port]]
name = "wan"
interface = "wan"
[[class]]
name = "rest"
[[class]]
name = "bulk"
match = [{ protocol = "udp", destination_port = 5002 }]
[[link]]
port = "wan"
rate = "20Mbit/s"
discipline = { kind = "lct", x_delay = { bulk = "1ms" } }
"#;

/// Hosts `a` and `b` with router `r` between them, and an `evenkeel run` there.
struct Live {
    router: Child,
    net: TestNet,
    folder: tempfile::TempDir,
}

impl Live {
    fn new(test: &str) -> Option<Self> {
        if !available(test) || !has_tool(test, "iperf3", "iperf3") || !has_tool(test, "tcpdump", "tcpdump") {
            return None;
        }
        let net = TestNet::new(&["a", "r", "b"]);
        net.wire(("a", "a0"), ("r", "lan"));
        net.wire(("b", "b0"), ("r", "wan"));
        net.sysctl("r", "net.ipv4.ip_forward=1");
        for (node, interface, address) in [
            ("a", "a0", "10.1.0.2/24"),
            ("r", "lan", "10.1.0.1/24"),
            ("b", "b0", "10.2.0.2/24"),
            ("r", "wan", "10.2.0.1/24"),
        ] {
            net.ip(node, &format!("address add {address} dev {interface}"));
        }
        net.ip("a", "route add default via 10.1.0.1");
        net.ip("b", "route add default via 10.2.0.1");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("router.toml"), CONFIG).unwrap();
        let router = start(&net, &folder);
        let live = Self { router, net, folder };
        live.wait_until_it_forwards();
        Some(live)
    }

    fn wait_until_it_forwards(&self) {
        eventually("the router answers", || self.ctl(&["show"]).status.success());
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let socket = self.folder.path().join("control.sock");
        Command::new(env!("CARGO_BIN_EXE_evenkeel"))
            .args(["ctl", "--socket"])
            .arg(socket)
            .args(arguments)
            .output()
            .unwrap()
    }

    fn show(&self) -> Value {
        let output = self.ctl(&["show", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
    }

    /// A number of class `bulk` on the link to `b`.
    fn bulk(&self, number: &str) -> u64 {
        let show = self.show();
        let link = show["links"].as_array().unwrap().iter().find(|link| link["port"] == "wan").unwrap();
        let class = link["classes"].as_array().unwrap().iter().find(|class| class["name"] == "bulk");
        class.unwrap()[number].as_u64().unwrap()
    }

    /// 10 Mbit/s of `bulk` packets from `a` to `b` until the child is killed, at most for half a minute.
    fn load(&self) -> (Child, Child) {
        let mut server = self.net.command("b", "iperf3 -s -1 -p 5002");
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("iperf3 listens", || self.net.output("b", "ss -ltn").contains(":5002"));
        let line = "timeout 30 iperf3 -c 10.2.0.2 -p 5002 -u -b 10M -l 1000 -t 30";
        let mut client = self.net.command("a", line);
        let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the load runs", || self.bulk("in_packets") > 200);
        (server, client)
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").arg(name).arg(self.router.id().to_string()).status().unwrap();
        assert!(done.success());
    }

    fn ping(&self) {
        let output = self.net.output("a", "ping -n -c 2 -i 0.1 -W 2 10.2.0.2");
        assert!(output.contains(" 0% packet loss") && !output.contains("DUP!"), "{output}");
    }
}

fn start(net: &TestNet, folder: &tempfile::TempDir) -> Child {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["run", &path("router.toml"), "--socket", &path("control.sock")]);
    command.args(["--runtime-dir", &path("run"), "--netns", &net.name("r")]);
    command.args(["--capture", &format!("wan={}", path("wan.pcapng"))]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.router.kill();
        let _ = self.router.wait();
    }
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// One row of `ctl watch` for class `bulk`, as (mean delay in microseconds, packets sent).
fn watched(live: &Live) -> (f64, f64) {
    let output = live.ctl(&["watch", "--count", "1", "--interval", "500ms", "--link", "wan", "--json"]);
    let rows = text(&output);
    let row = rows
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|row| row["class"] == "bulk")
        .unwrap_or_else(|| panic!("no row for bulk: {rows}"));
    (row["mean_delay_us"].as_f64().unwrap_or(0.0), row["sent"].as_f64().unwrap())
}

#[test]
fn x_delay_changed_under_load_shows_in_the_next_samples_and_a_wrong_value_changes_nothing() {
    let Some(live) = Live::new("x_delay_under_load") else { return };
    let (server, client) = live.load();
    let (_, sent_before) = watched(&live);

    // 1250 packets a second are offered; one every 10 ms may go.
    let output = live.ctl(&["set", "wan", "x_delay", "bulk", "10ms"]);
    assert!(output.status.success(), "{}", text(&output));
    eventually("the queue fills", || live.bulk("queued_packets") >= 40);
    let (delay_held, sent_held) = watched(&live);
    assert!(sent_held < sent_before / 3.0, "sent {sent_before}, held {sent_held}");
    assert!(delay_held > 100_000.0, "50 packets wait 10 ms each: {delay_held} us");

    for wrong in ["100s", "10", "-1ms"] {
        let output = live.ctl(&["set", "wan", "x_delay", "bulk", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", text(&output));
    }
    let output = live.ctl(&["set", "wan", "x_delay", "bulk", "100s"]);
    assert!(text(&output).contains("60"), "the valid range is named: {}", text(&output));
    let (_, sent_after) = watched(&live);
    assert!(sent_after < sent_before / 3.0, "a refused value changed something: {sent_after}");

    let output = live.ctl(&["set", "wan", "x_delay", "bulk", "0us"]);
    assert!(output.status.success(), "{}", text(&output));
    eventually("what was held goes at once", || watched(&live).1 > sent_before / 2.0);
    end(client);
    end(server);
}

#[test]
fn the_file_is_read_again_on_sighup_and_a_wrong_one_changes_nothing() {
    let Some(live) = Live::new("sighup") else { return };
    let rate = || {
        let show = live.show();
        let links = show["links"].as_array().unwrap();
        links.iter().find(|link| link["port"] == "wan").unwrap()["rate_bps"].as_u64()
    };
    assert_eq!(rate(), Some(20_000_000));
    let file = live.folder.path().join("router.toml");
    std::fs::write(&file, CONFIG.replace("20Mbit/s", "30Mbit/s")).unwrap();
    live.signal("-HUP");
    eventually("the new rate holds", || rate() == Some(30_000_000));
    std::fs::write(&file, CONFIG.replace("20Mbit/s", "fast")).unwrap();
    live.signal("-HUP");
    live.ping();
    assert_eq!(rate(), Some(30_000_000));
}

#[test]
fn a_killed_router_leaves_the_kernel_forwarding_and_the_next_one_starts() {
    let Some(mut live) = Live::new("kill_9") else { return };
    live.ping();
    live.router.kill().unwrap();
    live.router.wait().unwrap();
    live.ping();
    live.router = start(&live.net, &live.folder);
    live.wait_until_it_forwards();
    live.ping();
    live.signal("-TERM");
    assert!(live.router.wait().unwrap().success(), "a stop that was asked for is a success");
    assert!(!live.folder.path().join("control.sock").exists(), "the control socket is removed");
    // What went through was captured as well: both ways, with the router's own rewriting.
    let file = live.folder.path().join("wan.pcapng").display().to_string();
    let captured = live.net.output("r", &format!("tcpdump -nvr {file} icmp"));
    assert!(captured.contains("echo request") && captured.contains("echo reply"), "{captured}");
    assert!(captured.contains("ttl 63"), "{captured}");
    live.ping();
}
