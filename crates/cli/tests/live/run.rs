//! The command itself on real interfaces under load: `run`, `ctl`, SIGHUP, SIGTERM and `kill -9`.
//! Needs root; says so and passes otherwise.

use std::process::{Child, Command, Output, Stdio};

use evenkeel_netns::testing::{TestNet, available, eventually, has_tool, text};
use serde_json::Value;

/// What the router logs, in the folder of a test.
const LOG: &str = "router.log";

/// Two classes by destination port; `bulk` (port 5002) is held by LCT-UC.
pub(super) const CONFIG: &str = r#"
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
pub(super) struct Live {
    pub(super) router: Child,
    pub(super) net: TestNet,
    pub(super) folder: tempfile::TempDir,
}

/// Two workers, the interfaces by AF_XDP.
pub(super) const TWO_WORKERS: &str = r#"
[router]
workers = 2
io = "af-xdp"
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
discipline = { kind = "wfq-altq", weight = { rest = 100, bulk = 200 } }
"#;

impl Live {
    fn new(test: &str) -> Option<Self> {
        Self::with(test, CONFIG, 1)
    }

    /// With this configuration, and so many queues at every interface.
    pub(super) fn with(test: &str, config: &str, queues: u16) -> Option<Self> {
        let mut live = Self::prepared(test, config, queues)?;
        live.router = start(&live.net, &live.folder);
        live.wait_until_it_forwards();
        Some(live)
    }

    /// As [`Live::with`]; the router is one that has ended.
    pub(super) fn prepared(test: &str, config: &str, queues: u16) -> Option<Self> {
        if !available(test)
            || !has_tool(test, "iperf3", "iperf3")
            || !has_tool(test, "tcpdump", "tcpdump")
        {
            return None;
        }
        let net = TestNet::new(&["a", "r", "b", "elsewhere"]);
        net.wire_of_queues(("a", "a0"), ("r", "lan"), queues);
        net.wire_of_queues(("b", "b0"), ("r", "wan"), queues);
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
        std::fs::write(folder.path().join("router.toml"), config).unwrap();
        let router = Command::new("true").spawn().unwrap();
        Some(Self { router, net, folder })
    }

    pub(super) fn wait_until_it_forwards(&mut self) {
        eventually("the router answers", || {
            if let Some(status) = self.router.try_wait().unwrap() {
                let log = std::fs::read_to_string(self.folder.path().join(LOG));
                panic!("the router ended with {status}: {}", log.unwrap_or_default());
            }
            self.ctl(&["show"]).status.success()
        });
    }

    pub(super) fn ctl(&self, arguments: &[&str]) -> Output {
        let socket = self.folder.path().join("control.sock");
        Command::new(env!("CARGO_BIN_EXE_evenkeel"))
            .args(["ctl", "--socket"])
            .arg(socket)
            .args(arguments)
            .output()
            .unwrap()
    }

    pub(super) fn show(&self) -> Value {
        let output = self.ctl(&["show", "--json"]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
    }

    /// Class `bulk` on the link to `b`.
    pub(super) fn bulk_class(&self) -> Value {
        let show = self.show();
        let link =
            show["links"].as_array().unwrap().iter().find(|link| link["port"] == "wan").unwrap();
        let class =
            link["classes"].as_array().unwrap().iter().find(|class| class["name"] == "bulk");
        class.unwrap().clone()
    }

    /// A number of it.
    pub(super) fn bulk(&self, number: &str) -> u64 {
        self.bulk_class()[number].as_u64().unwrap()
    }

    /// 10 Mbit/s of `bulk` packets from `a` to `b` until the child is killed, at most for half a
    /// minute.
    pub(super) fn load(&self) -> (Child, Child) {
        self.load_for(30)
    }

    pub(super) fn load_for(&self, seconds: u64) -> (Child, Child) {
        let mut server = self.net.command("b", "iperf3 -s -1 -p 5002");
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("iperf3 listens", || self.net.output("b", "ss -ltn").contains(":5002"));
        let line =
            format!("timeout {seconds} iperf3 -c 10.2.0.2 -p 5002 -u -b 10M -l 1000 -t {seconds}");
        let mut client = self.net.command("a", &line);
        let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the load runs", || self.bulk("in_packets") > 200);
        (server, client)
    }

    pub(super) fn signal(&self, name: &str) {
        let done =
            Command::new("kill").arg(name).arg(self.router.id().to_string()).status().unwrap();
        assert!(done.success());
    }

    pub(super) fn ping(&self) {
        let output = self.net.output("a", "ping -n -c 2 -i 0.1 -W 2 10.2.0.2");
        assert!(output.contains(" 0% packet loss") && !output.contains("DUP!"), "{output}");
    }
}

/// The router; what it logs goes into a file of the folder, which tells why one has not started.
pub(super) fn start(net: &TestNet, folder: &tempfile::TempDir) -> Child {
    let log = std::fs::File::create(folder.path().join(LOG)).unwrap();
    command(net, folder).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// `evenkeel run` in the namespace of the router; what leaves towards `b` is written to a file.
pub(super) fn command(net: &TestNet, folder: &tempfile::TempDir) -> Command {
    let mut command = uncaptured(net, folder);
    let file = folder.path().join("wan.pcapng");
    command.args(["--capture", &format!("wan={}", file.display())]);
    command
}

/// The same without the file, which keeps workers from handing over.
pub(super) fn uncaptured(net: &TestNet, folder: &tempfile::TempDir) -> Command {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["run", &path("router.toml"), "--socket", &path("control.sock")]);
    command.args(["--runtime-dir", &path("run"), "--netns", &net.name("r")]);
    command
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.router.kill();
        let _ = self.router.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default();
            let last = log.lines().count().saturating_sub(40);
            let lines: Vec<_> = log.lines().skip(last).collect();
            eprintln!("the router's log ended with:\n{}", lines.join("\n"));
        }
    }
}

pub(super) fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// One row of `ctl watch` for class `bulk`, as (mean delay in microseconds, packets sent).
pub(super) fn watched(live: &Live) -> (f64, f64) {
    let output =
        live.ctl(&["watch", "--count", "1", "--interval", "500ms", "--link", "wan", "--json"]);
    let rows = text(&output);
    let row = rows
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|row| row["class"] == "bulk")
        .unwrap_or_else(|| panic!("no row for bulk: {rows}"));
    (row["mean_delay_us"].as_f64().unwrap_or(0.0), row["sent"].as_f64().unwrap())
}

#[test]
fn it_does_not_start_where_it_would_switch_off_what_the_kernel_does() {
    let Some(live) = Live::prepared("bypass", CONFIG, 1) else { return };
    if !has_tool("bypass", "nft", "nftables") {
        return;
    }
    let rules = "table inet wall { chain empty { type filter hook forward priority 1; }; \
                 chain gate { type filter hook forward priority 0; ip ttl 77 drop; }; }";
    std::fs::write(live.folder.path().join("rules"), rules).unwrap();
    let file = live.folder.path().join("rules").display().to_string();
    live.net.output("r", &format!("nft -f {file}"));
    live.net.sysctl("r", "net.ipv4.ip_forward=0 net.ipv4.conf.wan.rp_filter=1");
    live.net.ip("r", "xfrm policy add src 10.66.0.0/16 dst 10.67.0.0/16 dir out");
    let folder = live.folder.path().to_owned();
    let write = |bypass: &str| {
        let config = format!("[router]\nbypass = [{bypass}]\n{CONFIG}");
        std::fs::write(folder.join("router.toml"), config).unwrap();
    };
    write("\"xfrm\"");
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut refused = command(&live.net, &live.folder).stderr(log).spawn().unwrap();
    let mut code = None;
    eventually("it is refused", || {
        code = refused.try_wait().unwrap();
        code.is_some()
    });
    let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert_eq!(code.unwrap().code(), Some(2), "{said}");
    for word in [
        "netfilter: table inet wall: chain gate at forward, 1 rule",
        "ip_forward: net.ipv4.ip_forward = 0",
        "bypass = [\"xfrm\", \"netfilter\", \"ip_forward\"]",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    // That is done here as the kernel does it.
    assert!(!said.contains("rp_filter"), "{said}");
    assert!(!said.contains("chain empty") && !said.contains("IPsec"), "{said}");
    // Accepted, it starts.
    write("\"xfrm\", \"netfilter\", \"ip_forward\", \"rp_filter\"");
    let mut accepted = start(&live.net, &live.folder);
    let socket = folder.join("control.sock");
    eventually("it runs", || {
        assert!(accepted.try_wait().unwrap().is_none(), "it was refused");
        socket.exists()
    });
    accepted.kill().unwrap();
    accepted.wait().unwrap();
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

/// The rate of the link to `b` as each worker knows it, Mbit/s, and its discipline.
fn links(live: &Live) -> Vec<(u64, String)> {
    let show = live.show();
    let workers = show["workers"].as_array().unwrap();
    let of = |worker: &Value| {
        let link =
            worker["links"].as_array().unwrap().iter().find(|link| link["port"] == "wan").unwrap();
        (
            link["rate_bps"].as_u64().unwrap() / 1_000_000,
            link["discipline"].as_str().unwrap().to_owned(),
        )
    };
    workers.iter().map(of).collect()
}

#[test]
fn two_workers_are_changed_under_load_and_killed_and_the_kernel_goes_on() {
    let Some(mut live) = Live::with("two_workers", TWO_WORKERS, 4) else { return };
    let (server, client) = live.load();
    let show = live.show();
    for worker in show["workers"].as_array().unwrap() {
        assert!(
            worker["ports"][1]["io"].as_str().unwrap().contains("2 of 4 receive queues"),
            "{worker}"
        );
    }
    let shown = text(&live.ctl(&["show"]));
    assert!(shown.contains("worker  received"), "{shown}");
    let both = |rate: u64, discipline: &str| vec![(rate, discipline.to_owned()); 2];
    assert_eq!(links(&live), both(20, "wfq-altq"));

    // By command, by file, and by a file that asks for what several workers cannot have.
    let output = live.ctl(&["set", "wan", "weight", "bulk", "300"]);
    assert!(output.status.success(), "{}", text(&output));
    let output = live.ctl(&["rate", "wan", "30Mbit/s"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(links(&live), both(30, "wfq-altq"));
    let file = live.folder.path().join("router.toml");
    let fifo = TWO_WORKERS.replace("wfq-altq\", weight = { rest = 100, bulk = 200 }", "fifo\"");
    std::fs::write(&file, fifo).unwrap();
    live.signal("-HUP");
    eventually("both have the discipline and the rate of the file", || {
        links(&live) == both(20, "fifo")
    });
    for (wrong, says) in [
        (
            TWO_WORKERS.replace("wfq-altq\", weight = { rest = 100, bulk = 200 } }", "pdrr\" }")
                + "[link.admission]\nflushing = \"ramaf\"\npinning = true\n",
            "pinning does not work with several workers on this link",
        ),
        (
            TWO_WORKERS.replace("workers = 2", "workers = 2\nseed = 1"),
            "router.toml:4: router.seed cannot change while the router runs",
        ),
    ] {
        std::fs::write(&file, wrong).unwrap();
        let output = live.ctl(&["reload", &file.display().to_string()]);
        assert!(!output.status.success() && text(&output).contains(says), "{}", text(&output));
        assert_eq!(links(&live), both(20, "fifo"));
    }
    live.ping();

    // Fail open: what the load sends goes on through the kernel.
    let forwarded = |live: &Live| {
        let counters = live.net.output("r", "cat /proc/net/snmp");
        let values = counters.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap();
        values.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap()
    };
    let before = forwarded(&live);
    live.router.kill().unwrap();
    live.router.wait().unwrap();
    eventually("the kernel forwards the load", || forwarded(&live) > before + 200);
    live.ping();
    std::fs::write(&file, TWO_WORKERS).unwrap();
    live.router = start(&live.net, &live.folder);
    live.wait_until_it_forwards();
    eventually("the router forwards the load again", || live.bulk("sent_packets") > 200);
    live.ping();
    live.signal("-TERM");
    assert!(live.router.wait().unwrap().success(), "a stop that was asked for is a success");
    end(client);
    end(server);
}

#[test]
fn too_few_queues_for_the_workers_are_told_with_the_line_of_the_interface() {
    let Some(live) = Live::prepared("few_queues", TWO_WORKERS, 1) else { return };
    let file = live.folder.path().join("router.toml").display().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["run", &file, "--netns", &live.net.name("r"), "--runtime-dir"])
        .arg(live.folder.path().join("run"))
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let wanted = "router.toml:7: port.interface: port lan: interface lan has 1 receive and \
                  transmit queues for 2 workers";
    assert!(said.contains(wanted), "{said}");
}

/// The interfaces of the caller's namespace were told, which it could have been none of.
#[test]
fn f13_a_missing_interface_is_told_with_the_namespace_that_was_looked_in() {
    let missing = CONFIG.replace("interface = \"lan\"", "interface = \"gone\"");
    let Some(live) = Live::prepared("missing", &missing, 1) else { return };
    let run = command(&live.net, &live.folder).output().unwrap();
    let said = text(&run);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no interface \"gone\""), "{said}");
    let place = format!("looked for in the network namespace {}", live.net.name("r"));
    assert!(said.contains(&place) && !said.contains("there are:"), "{said}");
}
