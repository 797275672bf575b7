// Included by `main.rs`, once for each way to exchange frames with the kernel, which `IO` names.

use std::thread::sleep;
use std::time::Duration;

use super::common::assert_conserved;
use evenkeel_config::{LinkChange, RouterConfig};
use evenkeel_core::BitRate;
use evenkeel_core::settings;
use evenkeel_netns::testing::{TestNet, available, eventually, has_tool, text};
use evenkeel_router::{Command, CommandError, Handle, Options, Router, Snapshot, StartError};

/// Host `a`, router `r`, host `b`: `10.1.0.0/24` and `2001:db8:1::/64` before the router,
/// `10.2.0.0/24` and `2001:db8:2::/64` behind it.
struct Lab {
    // Stops before the namespaces go.
    router: Option<Handle>,
    net: TestNet,
    runtime: tempfile::TempDir,
}

impl Lab {
    fn new(test: &str) -> Option<Self> {
        Self::wired(test, |net, left, right| net.wire(left, right))
    }

    fn wired(test: &str, wire: impl Fn(&TestNet, (&str, &str), (&str, &str))) -> Option<Self> {
        if !available(test) {
            return None;
        }
        let net = TestNet::new(&["a", "r", "b"]);
        wire(&net, ("a", "a0"), ("r", "lan"));
        wire(&net, ("b", "b0"), ("r", "wan"));
        net.sysctl("r", "net.ipv4.ip_forward=1");
        net.sysctl("r", "net.ipv6.conf.all.forwarding=1");
        for (namespace, interface, host) in [
            ("a", "a0", "10.1.0.2/24"),
            ("r", "lan", "10.1.0.1/24"),
            ("b", "b0", "10.2.0.2/24"),
            ("r", "wan", "10.2.0.1/24"),
        ] {
            net.ip(namespace, &format!("address add {host} dev {interface}"));
        }
        for (namespace, interface, host) in [
            ("a", "a0", "2001:db8:1::2/64"),
            ("r", "lan", "2001:db8:1::1/64"),
            ("b", "b0", "2001:db8:2::2/64"),
            ("r", "wan", "2001:db8:2::1/64"),
        ] {
            net.ip(namespace, &format!("address add {host} dev {interface} nodad"));
        }
        net.ip("a", "route add default via 10.1.0.1");
        net.ip("b", "route add default via 10.2.0.1");
        net.ip("a", "-6 route add default via 2001:db8:1::1");
        net.ip("b", "-6 route add default via 2001:db8:2::1");
        Some(Self { router: None, net, runtime: tempfile::tempdir().unwrap() })
    }

    fn config(rest: &str) -> RouterConfig {
        let text = "[[port]]\nname = \"lan\"\ninterface = \"lan\"\n[[port]]\nname = \
                    \"wan\"\ninterface = \"wan\"\n";
        // A test may have a `[router]` of its own.
        let section = format!("[router]\nio = \"{IO}\"\n");
        let text = if rest.contains("[router]\n") {
            format!("{text}{}", rest.replace("[router]\n", &section))
        } else {
            format!("{section}{text}{rest}")
        };
        RouterConfig::parse(&text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
    }

    /// Packets that the kernel of the router forwarded.
    fn forwarded_by_kernel(&self) -> u64 {
        let counters = self.net.output("r", "cat /proc/net/snmp");
        let values = counters.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap();
        values.split_whitespace().nth(6).unwrap().parse().unwrap()
    }

    fn start(&mut self, rest: &str) {
        self.start_with(Self::config(rest));
    }

    fn start_with(&mut self, config: RouterConfig) {
        let options = Options {
            runtime_dir: self.runtime.path().to_owned(),
            netns: Some(self.net.name("r")),
            report: Some(|text| eprintln!("report: {text}")),
            // The interfaces of tests are all virtual.
            takes_virtual_for_nics: true,
            ..Options::default()
        };
        self.router =
            Some(Router::start(config, options).unwrap_or_else(|error| panic!("{error}")));
    }

    fn started(test: &str, rest: &str) -> Option<Self> {
        let mut lab = Self::new(test)?;
        lab.start(rest);
        Some(lab)
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.router.as_ref().unwrap().snapshot().unwrap();
        assert_conserved(&snapshot);
        snapshot
    }

    /// All packets that were forwarded from a port, and all that were dropped there.
    fn forwarded(&self, port: &str) -> u64 {
        self.snapshot().port(port).unwrap().forwarded
    }

    fn dropped(&self, port: &str, reason: &str) -> u64 {
        self.snapshot().port(port).unwrap().dropped.get(reason).copied().unwrap_or(0)
    }

    /// Pings `to` from `a`; all must come back.
    fn ping(&self, to: &str, count: u32) {
        let output = self.net.output("a", &format!("ping -n -c {count} -i 0.05 -W 2 {to}"));
        assert!(output.contains(" 0% packet loss"), "{output}");
        // A second copy, forwarded by the kernel, would be told as a duplicate.
        assert!(!output.contains("DUP!"), "{output}");
    }
}

#[test]
fn ping_passes_through_and_the_router_not_the_kernel_forwards() {
    let Some(lab) = Lab::started("ping", "") else { return };
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        lab.ping(to, 20);
    }
    let snapshot = lab.snapshot();
    let (lan, wan) = (snapshot.port("lan").unwrap(), snapshot.port("wan").unwrap());
    assert!(lan.forwarded >= 40 && wan.forwarded >= 40, "{snapshot:?}");
    assert_eq!((lan.ring_loss, wan.ring_loss), (0, 0));
    let by_kernel = lab.forwarded_by_kernel();
    assert!(by_kernel <= 2, "the kernel forwarded {by_kernel} packets");
}

#[test]
fn a_second_router_on_the_same_interface_is_refused_and_the_first_goes_on() {
    let Some(lab) = Lab::started("second_router", "") else { return };
    let options = Options {
        runtime_dir: lab.runtime.path().join("second"),
        netns: Some(lab.net.name("r")),
        ..Options::default()
    };
    let error = Router::start(Lab::config(""), options).unwrap_err();
    assert!(matches!(&error, StartError::Taken { interface, .. } if interface == "lan"), "{error}");
    lab.ping("10.2.0.2", 3);
}

#[test]
fn the_routers_own_addresses_answer() {
    let Some(lab) = Lab::started("own", "") else { return };
    for to in ["10.1.0.1", "10.2.0.1", "2001:db8:1::1", "2001:db8:2::1"] {
        lab.ping(to, 3);
    }
    // Past the kernel's stack, they do not even come here.
    let expected = if IO == "af-packet" { 12 } else { 0 };
    assert!(lab.snapshot().port("lan").unwrap().to_host >= expected);
    assert_eq!(lab.dropped("lan", "missed_host"), 0);
}

#[test]
fn traceroute_shows_the_hop() {
    if !has_tool("traceroute", "traceroute", "traceroute") {
        return;
    }
    let Some(lab) = Lab::started("traceroute", "") else { return };
    for (to, hop) in [("10.2.0.2", "10.1.0.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
        let output = lab.net.output("a", &format!("traceroute -n -q 1 -w 1 -m 4 {to}"));
        let hops: Vec<_> =
            output.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, [hop, to], "{output}");
    }
}

#[test]
fn packets_that_are_too_big_are_told_the_mtu() {
    let Some(lab) = Lab::new("mtu") else { return };
    let mut lab = lab;
    lab.net.ip("r", "link set wan mtu 1300");
    lab.net.ip("b", "link set b0 mtu 1300");
    lab.start("");
    let output = text(&lab.net.run("a", "ping -n -c 1 -W 1 -M do -s 1400 10.2.0.2"));
    assert!(output.contains("Frag needed") && output.contains("mtu = 1300"), "{output}");
    let output = text(&lab.net.run("a", "ping -n -c 1 -W 1 -M do -s 1400 2001:db8:2::2"));
    assert!(output.contains("Packet too big") && output.contains("mtu=1300"), "{output}");
    assert_eq!(lab.dropped("lan", "too_big"), 2);
    // Without "do not fragment" it passes in fragments.
    lab.net.ip("a", "route flush cache");
    let output = lab.net.output("a", "ping -n -c 3 -i 0.1 -W 2 -M dont -s 1400 10.2.0.2");
    assert!(output.contains(" 0% packet loss"), "{output}");
    assert!(lab.snapshot().port("lan").unwrap().fragmented >= 3);
}

#[test]
fn tcp_completes_with_default_offloads_and_no_checksum_is_bad() {
    if !has_tool("tcp", "iperf3", "iperf3") || !has_tool("tcp", "tcpdump", "tcpdump") {
        return;
    }
    let Some(mut lab) = Lab::new("tcp") else { return };
    // Checksums that a sender has left to its device are completed by the last one, which here is
    // made to have no hardware for it; and frames on the wire are single ones.
    lab.net.output("r", "ethtool -K wan tx off");
    lab.start("");
    let dump = lab.net.start("b", "tcpdump -i b0 -nn -vvv -Q in -c 4000 tcp");
    let server = lab.net.start("b", "iperf3 -s");
    sleep(Duration::from_millis(500));
    for family in ["-4 -c 10.2.0.2", "-6 -c 2001:db8:2::2"] {
        let output = lab.net.output("a", &format!("iperf3 {family} -t 2 -f m"));
        let receiver = output
            .lines()
            .find(|line| line.ends_with("receiver"))
            .unwrap_or_else(|| panic!("{output}"));
        let rate: f64 = receiver
            .split("Mbits/sec")
            .next()
            .unwrap()
            .split_whitespace()
            .last()
            .unwrap()
            .parse()
            .unwrap();
        // Not a speed test: with super-frames dropped or checksums wrong it would be near zero.
        assert!(rate > 20.0, "{output}");
    }
    drop(server);
    let dump = dump.finish();
    assert!(dump.contains("cksum"), "{dump}");
    assert!(
        !dump.contains("incorrect") && !dump.contains("bad cksum"),
        "{}",
        dump.lines()
            .filter(|l| l.contains("incorrect") || l.contains("bad"))
            .take(5)
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert_eq!(lab.dropped("lan", "frame_too_long"), 0);
}

#[test]
fn a_change_of_routes_is_followed() {
    let Some(lab) = Lab::started("routes", "") else { return };
    lab.net.ip("b", "address add 192.0.2.1/32 dev lo");
    let unreachable = text(&lab.net.run("a", "ping -n -c 1 -W 1 192.0.2.1"));
    assert!(unreachable.contains("Net Unreachable"), "{unreachable}");
    lab.net.ip("r", "route add 192.0.2.0/24 via 10.2.0.2");
    eventually("the new route", || {
        lab.net.run("a", "ping -n -c 1 -W 1 192.0.2.1").status.success()
    });
    lab.net.ip("r", "route replace prohibit 192.0.2.0/24");
    eventually("the route that refuses", || {
        text(&lab.net.run("a", "ping -n -c 1 -W 1 192.0.2.1")).contains("Packet filtered")
    });
    lab.net.ip("r", "route del prohibit 192.0.2.0/24");
    eventually("no route", || {
        text(&lab.net.run("a", "ping -n -c 1 -W 1 192.0.2.1")).contains("Net Unreachable")
    });
}

#[test]
fn a_neighbour_is_resolved_from_cold_and_one_that_is_not_there_is_told() {
    let Some(lab) = Lab::started("neighbour", "") else { return };
    lab.net.ip("r", "neigh flush all");
    eventually("the neighbours to be forgotten", || lab.snapshot().neighbours <= 2);
    // The very first packet waits for the answer and then passes.
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        let output = lab.net.output("a", &format!("ping -n -c 1 -W 3 {to}"));
        assert!(output.contains(" 0% packet loss"), "{output}");
    }
    let output = text(&lab.net.run("a", "ping -n -c 1 -W 6 10.2.0.99"));
    assert!(output.contains("Destination Host Unreachable"), "{output}");
    assert!(lab.dropped("lan", "host_unreachable") >= 1);
    assert_eq!(lab.snapshot().port("lan").unwrap().waiting, 0);
}

#[test]
fn an_interface_that_vanishes_is_used_again_when_it_returns() {
    let Some(lab) = Lab::started("vanish", "") else { return };
    lab.ping("10.2.0.2", 3);
    lab.net.ip("r", "link del wan");
    eventually("the port to be down", || !lab.snapshot().port("wan").unwrap().up);
    assert!(!lab.net.run("a", "ping -n -c 2 -i 0.1 -W 1 10.2.0.2").status.success());
    // The other port goes on.
    lab.ping("10.1.0.1", 2);

    lab.net.wire(("b", "b0"), ("r", "wan"));
    lab.net.ip("b", "address add 10.2.0.2/24 dev b0");
    lab.net.ip("b", "route add default via 10.2.0.1");
    lab.net.ip("r", "address add 10.2.0.1/24 dev wan");
    eventually("the port to be back", || lab.snapshot().port("wan").unwrap().up);
    eventually("traffic to pass again", || {
        lab.net.run("a", "ping -n -c 1 -W 1 10.2.0.2").status.success()
    });
    let before = lab.forwarded("lan");
    lab.ping("10.2.0.2", 10);
    assert!(lab.forwarded("lan") >= before + 10, "the router, not the kernel, forwards");
}

/// F3: it kept the socket of the interface that had gone, and was shown as up for ever.
#[test]
fn f3_an_interface_that_returns_with_the_same_index_is_used_again() {
    let Some(lab) = Lab::started("same_index", "") else { return };
    lab.ping("10.2.0.2", 3);
    let index = || lab.net.ip("r", "-o link show wan").split(':').next().unwrap().to_owned();
    let before = index();
    lab.net.ip("r", &format!("link set wan netns {}", lab.net.name("b")));
    eventually("the port to be down", || !lab.snapshot().port("wan").unwrap().up);
    lab.net.ip("b", &format!("link set wan netns {}", lab.net.name("r")));
    assert_eq!(index(), before, "the kernel gives it the same");
    lab.net.ip("r", "address add 10.2.0.1/24 dev wan");
    lab.net.ip("r", "link set wan up");
    eventually("the port to be back", || lab.snapshot().port("wan").unwrap().up);
    eventually("traffic to pass again", || {
        lab.net.run("a", "ping -n -c 1 -W 1 10.2.0.2").status.success()
    });
    let before = lab.forwarded("lan");
    lab.ping("10.2.0.2", 10);
    assert!(lab.forwarded("lan") >= before + 10, "the router, not the kernel, forwards");
}

#[test]
fn a_link_that_goes_down_takes_its_routes_along() {
    let Some(lab) = Lab::started("down", "") else { return };
    lab.ping("10.2.0.2", 3);
    lab.net.ip("r", "link set wan down");
    eventually("the port to be down", || !lab.snapshot().port("wan").unwrap().up);
    eventually("the route to be gone", || {
        text(&lab.net.run("a", "ping -n -c 1 -W 1 10.2.0.2")).contains("Net Unreachable")
    });
    lab.net.ip("r", "link set wan up");
    eventually("traffic to pass again", || {
        lab.net.run("a", "ping -n -c 1 -W 1 10.2.0.2").status.success()
    });
    let before = lab.forwarded("lan");
    lab.ping("10.2.0.2", 5);
    assert!(lab.forwarded("lan") >= before + 5);
}

#[test]
fn after_a_stop_the_kernel_forwards_again_and_the_next_start_works() {
    let Some(mut lab) = Lab::started("stop", "") else { return };
    lab.ping("10.2.0.2", 3);
    for _ in 0..2 {
        let last = lab.router.take().unwrap().stop().unwrap();
        assert_conserved(&last);
        lab.ping("10.2.0.2", 3);
        lab.start("");
        let before = lab.forwarded("lan");
        lab.ping("10.2.0.2", 3);
        assert!(lab.forwarded("lan") >= before + 3);
    }
}

/// A router in a process of its own, to be killed: this test binary, started again with the name of
/// a namespace.
#[test]
fn router_process() {
    let (Ok(namespace), Ok(runtime)) =
        (std::env::var("EK_TEST_NETNS"), std::env::var("EK_TEST_RUNTIME"))
    else {
        return;
    };
    let options =
        Options { runtime_dir: runtime.into(), netns: Some(namespace), ..Options::default() };
    let _router = Router::start(Lab::config(""), options).unwrap();
    println!("forwarding");
    sleep(Duration::from_secs(60));
}

#[test]
fn after_kill_9_the_kernel_forwards_again_and_the_next_start_works() {
    let Some(mut lab) = Lab::new("kill") else { return };
    let before = lab.net.output("r", "ethtool -k wan");
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            format!("{}::router_process", module_path!().rsplit("::").next().unwrap()).as_str(),
            "--exact",
            "--nocapture",
        ])
        .env("EK_TEST_NETNS", lab.net.name("r"))
        .env("EK_TEST_RUNTIME", lab.runtime.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let printed = std::io::BufReader::new(process.stdout.take().unwrap());
    assert!(
        std::io::BufRead::lines(printed).any(|line| line.unwrap().ends_with("forwarding")),
        "it did not start"
    );
    lab.ping("10.2.0.2", 3);
    let by_kernel = lab.forwarded_by_kernel();
    process.kill().unwrap();
    process.wait().unwrap();

    // Where the guard is a filter, it takes a second to notice.
    eventually("the kernel to forward", || {
        lab.net.run("a", "ping -n -c 1 -W 1 10.2.0.2").status.success()
    });
    lab.ping("10.2.0.2", 5);
    assert!(lab.forwarded_by_kernel() >= by_kernel + 10, "the kernel forwards");

    lab.start("");
    let before_ping = lab.forwarded("lan");
    lab.ping("10.2.0.2", 5);
    assert!(lab.forwarded("lan") >= before_ping + 5);
    lab.router.take().unwrap().stop().unwrap();
    assert_eq!(
        lab.net.output("r", "ethtool -k wan"),
        before,
        "the next start restores what the killed one had changed"
    );
}

#[test]
fn tens_of_thousands_of_routes_in_one_burst_arrive() {
    let Some(lab) = Lab::started("burst", "") else { return };
    let before = lab.snapshot().routes;
    let batch = lab.runtime.path().join("routes");
    let count = 50_000;
    let lines = |verb: &str| -> String {
        (0..count)
            .map(|i| format!("route {verb} 100.{}.{}.0/24 via 10.2.0.2\n", i / 256, i % 256))
            .collect()
    };
    for (verb, expected) in [("add", before + count), ("del", before)] {
        std::fs::write(&batch, lines(verb)).unwrap();
        lab.net.output("r", &format!("ip -batch {}", batch.display()));
        eventually("all routes to have been followed", || lab.snapshot().routes == expected);
        lab.ping("10.2.0.2", 2);
    }
    // Without one message per route: the interface takes its routes along.
    std::fs::write(&batch, lines("add")).unwrap();
    lab.net.output("r", &format!("ip -batch {}", batch.display()));
    lab.net.ip("r", "link set wan down");
    eventually("the routes to be gone with the link", || lab.snapshot().routes < before);
}

#[test]
fn ten_thousand_neighbours_are_followed() {
    let Some(lab) = Lab::started("neighbours", "") else { return };
    lab.net.ip("r", "address add 10.8.0.1/16 dev wan");
    let before = lab.snapshot().neighbours;
    let batch = lab.runtime.path().join("neighbours");
    let count = 10_000_u64;
    for (verb, expected) in [("add", before + count), ("del", before)] {
        let line = |i| {
            let mac = format!("lladdr 02:00:00:00:{:02x}:{:02x} nud permanent", i / 250, i % 250);
            format!(
                "neigh {verb} 10.8.{}.{} dev wan {}\n",
                i / 250,
                2 + i % 250,
                if verb == "add" { &mac } else { "" }
            )
        };
        std::fs::write(&batch, (0..count).map(line).collect::<String>()).unwrap();
        lab.net.output("r", &format!("ip -batch {}", batch.display()));
        eventually("all neighbours to have been followed", || {
            let now = lab.snapshot().neighbours;
            if verb == "add" { now >= expected } else { now <= expected + 2 }
        });
        lab.ping("10.2.0.2", 2);
    }
}

#[test]
fn a_paced_link_and_busy_mode_work_on_real_interfaces() {
    let rest = "[router]\nmode = \"busy\"\n[[link]]\nport = \"wan\"\nrate = \
                \"10Mbit/s\"\ndiscipline = { kind = \"fifo\", limit = 50 }";
    let Some(lab) = Lab::started("busy", rest) else { return };
    lab.ping("10.2.0.2", 5);
    let snapshot = lab.snapshot();
    let link = snapshot.link("wan").unwrap();
    assert_eq!(link.rate_bps, Some(10_000_000));
    assert!(link.classes[0].sent_packets >= 5);
}

#[test]
fn commands_are_carried_out_while_it_forwards() {
    let Some(lab) = Lab::started("commands", "") else { return };
    let router = lab.router.as_ref().unwrap();
    let rate = |rate| {
        Command::Change(LinkChange::Wire(settings::Change::new("rate", rate)).on("wan"))
    };
    router.send(rate(Some(BitRate::from_mbps(5)))).unwrap();
    assert_eq!(lab.snapshot().link("wan").unwrap().rate_bps, Some(5_000_000));
    let error = router.send(rate(Some(BitRate(10)))).unwrap_err();
    assert!(error.to_string().contains("out of range"), "{error}");
    assert_eq!(lab.snapshot().link("wan").unwrap().rate_bps, Some(5_000_000), "nothing changed");

    let wanted = Lab::config(
        "[[link]]\nport = \"wan\"\nrate = \"7Mbit/s\"\ndiscipline = { kind = \"lct\", limit = 20 }",
    );
    router.send(Command::Reload(Box::new(wanted.clone()))).unwrap();
    let snapshot = lab.snapshot();
    let link = snapshot.link("wan").unwrap();
    assert_eq!((link.discipline.as_str(), link.rate_bps), ("lct", Some(7_000_000)));
    lab.ping("10.2.0.2", 5);

    let mut other_seed = wanted;
    other_seed.router.seed = Some(1);
    let error = router.send(Command::Reload(Box::new(other_seed))).unwrap_err();
    assert!(matches!(error, CommandError::NeedsRestart { .. }), "{error}");
    assert!(
        error.to_string().starts_with("router.seed cannot change while the router runs ("),
        "{error}"
    );
    let last = router.stop().unwrap();
    assert!(last.port("lan").unwrap().forwarded >= 5);
    assert!(matches!(router.send(Command::Show), Err(CommandError::Stopped)));
    assert!(!router.is_running());
}

#[test]
fn what_is_missing_is_said() {
    if !available("missing") {
        return;
    }
    let net = TestNet::new(&["r"]);
    let config =
        RouterConfig::parse("[[port]]\nname = \"lan\"\ninterface = \"nosuch0\"", "test.toml")
            .unwrap();
    let runtime = tempfile::tempdir().unwrap();
    let options = Options {
        runtime_dir: runtime.path().to_owned(),
        netns: Some(net.name("r")),
        ..Options::default()
    };
    let error = Router::start(config, options).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert_eq!(
        error.to_string(),
        "port lan: there is no interface \"nosuch0\": create it or correct `interface`"
    );
}

#[test]
fn an_adaptive_worker_forwards_before_while_and_after_it_is_kept_awake() {
    let Some(mut lab) = Lab::new("adaptive") else { return };
    lab.start("[router]\nmode = \"adaptive\"\nspin = \"1ms\"\n");
    for _ in 0..3 {
        lab.ping("10.2.0.2", 3);
        // As fast as answers come: it stops to be woken by frames, and asks for them.
        let output = lab.net.output("a", "ping -n -q -f -c 3000 -W 2 10.2.0.2");
        assert!(output.contains(" 0% packet loss"), "{output}");
        // It sleeps.
        sleep(Duration::from_millis(30));
    }
    lab.ping("2001:db8:2::2", 3);
    assert!(lab.forwarded_by_kernel() <= 2);
}
