//! Policy routing and routes' own MTUs on real packets: rules by source, ports in routing domains
//! with the same addresses, and what the kernel itself answers to packets that are too big for a
//! route.

use std::net::UdpSocket;

use super::common::assert_conserved;
use evenkeel_config::RouterConfig;
use evenkeel_netns::testing::{TestNet, available, eventually, text};
use evenkeel_ports::sys;
use evenkeel_router::{Handle, Options, Router, Snapshot};

struct Bed {
    // Stops before the namespaces go.
    router: Option<Handle>,
    net: TestNet,
    runtime: tempfile::TempDir,
    ports: Vec<&'static str>,
}

impl Bed {
    /// Router `r` with these ports, a host at each: its name is that of the port, its interface
    /// `eth`.
    fn new(test: &str, ports: &[&'static str]) -> Option<Self> {
        if !available(test) {
            return None;
        }
        let nodes: Vec<String> = ports.iter().map(|port| format!("h-{port}")).collect();
        let mut names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        names.push("r");
        let net = TestNet::new(&names);
        for (port, node) in ports.iter().zip(&nodes) {
            net.wire((node, "eth"), ("r", port));
        }
        net.sysctl(
            "r",
            "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0",
        );
        Some(Self {
            router: None,
            net,
            runtime: tempfile::tempdir().unwrap(),
            ports: ports.to_vec(),
        })
    }

    fn address(&self, node: &str, address: &str, interface: &str) {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        self.net.ip(node, &format!("address add {address} dev {interface}{nodad}"));
    }

    fn start(&mut self) {
        let config: String = self
            .ports
            .iter()
            .map(|port| format!("[[port]]\nname = \"{port}\"\ninterface = \"{port}\"\n"))
            .collect();
        let config = RouterConfig::parse(&config, "test.toml").unwrap();
        let options = Options {
            runtime_dir: self.runtime.path().to_owned(),
            netns: Some(self.net.name("r")),
            report: Some(|text| eprintln!("report: {text}")),
            ..Options::default()
        };
        self.router =
            Some(Router::start(config, options).unwrap_or_else(|error| panic!("{error}")));
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.router.as_ref().unwrap().snapshot().unwrap();
        assert_conserved(&snapshot);
        snapshot
    }

    fn sent(&self, port: &str) -> u64 {
        self.snapshot().link(port).unwrap().classes[0].sent_packets
    }

    /// Pings until everything is known on the way, then counts what five pings send out of two
    /// ports.
    fn pings(&self, node: &str, ping: &str, ports: [&str; 2]) -> [u64; 2] {
        let all_back = |count: u32| {
            let output =
                text(&self.net.run(node, &format!("ping -n -c {count} -i 0.05 -W 2 {ping}")));
            output.contains(" 0% packet loss") && !output.contains("DUP!")
        };
        eventually(ping, || all_back(1));
        let before = ports.map(|port| self.sent(port));
        assert!(all_back(5), "{ping}");
        let after = ports.map(|port| self.sent(port));
        [after[0] - before[0], after[1] - before[1]]
    }
}

#[test]
fn a_rule_by_source_leads_through_another_table_and_only_while_it_is_there() {
    let Some(mut bed) = Bed::new("rule by source", &["lan", "wan", "dmz"]) else { return };
    for (at, port) in ["lan", "wan", "dmz"].into_iter().enumerate() {
        let (host, n) = (format!("h-{port}"), at + 1);
        for (net, len) in [(format!("10.{n}.0."), 24), (format!("fd0{n}::"), 64)] {
            bed.address("r", &format!("{net}1/{len}"), port);
            bed.address(&host, &format!("{net}2/{len}"), "eth");
            bed.net.ip(&host, &format!("route add default via {net}1"));
        }
        if port != "lan" {
            bed.address(&host, "10.9.0.1/32", "lo");
            bed.address(&host, "fd09::1/128", "lo");
        }
    }
    bed.address("h-lan", "10.1.0.3/24", "eth");
    bed.address("h-lan", "fd01::3/64", "eth");
    // The prefixes overlap: the longer one of main does not win where a rule asks another table
    // first.
    for (shorter, longer, red, main) in [
        ("10.9.0.0/16", "10.9.0.0/24", "10.3.0.2", "10.2.0.2"),
        ("fd09::/32", "fd09::/64", "fd03::2", "fd02::2"),
    ] {
        bed.net.ip("r", &format!("route add {longer} via {main}"));
        bed.net.ip("r", &format!("route add {shorter} via {red} table 100"));
    }
    bed.net.ip("r", "rule add priority 100 from 10.1.0.3 lookup 100");
    bed.start();
    let ports = ["wan", "dmz"];
    assert_eq!(bed.pings("h-lan", "-I 10.1.0.2 10.9.0.1", ports), [5, 0]);
    assert_eq!(bed.pings("h-lan", "-I 10.1.0.3 10.9.0.1", ports), [0, 5]);
    assert_eq!(
        bed.pings("h-lan", "-I fd01::3 fd09::1", ports),
        [5, 0],
        "IPv6 has no such rule yet"
    );
    let snapshot = bed.snapshot();
    assert!(snapshot.routing.by_rules);
    assert!(
        snapshot.routing.rules.contains(&"IPv4 100: from 10.1.0.3/32 lookup 100".to_owned()),
        "{:?}",
        snapshot.routing
    );
    assert!(snapshot.routing.tables.iter().any(|table| table.id == 100 && table.routes == 2));
    // While it runs: a rule comes, a rule goes.
    bed.net.ip("r", "-6 rule add priority 100 from fd01::3 lookup 100");
    bed.net.ip("r", "rule del priority 100");
    eventually("the rules to be followed", || {
        let rules = bed.snapshot().routing.rules;
        rules.iter().any(|rule| rule.starts_with("IPv6 100:"))
            && !rules.iter().any(|rule| rule.starts_with("IPv4 100:"))
    });
    assert_eq!(bed.pings("h-lan", "-I 10.1.0.3 10.9.0.1", ports), [5, 0]);
    assert_eq!(bed.pings("h-lan", "-I fd01::3 fd09::1", ports), [0, 5]);
    // What a table leaves to others.
    bed.net.ip("r", "-6 route replace throw fd09::/48 table 100");
    eventually("the route that throws", || {
        bed.pings("h-lan", "-I fd01::3 fd09::1", ports) == [5, 0]
    });
    // Rules that refuse say so.
    bed.net.ip("r", "rule add priority 90 prohibit from 10.1.0.3");
    eventually("the rule that refuses", || {
        text(&bed.net.run("h-lan", "ping -n -c 1 -W 1 -I 10.1.0.3 10.9.0.1"))
            .contains("Packet filtered")
    });
    // Of rules by mark people hear, and they can look it up.
    bed.net.ip("r", "rule add priority 80 fwmark 7 lookup 100");
    eventually("what is not followed", || bed.snapshot().routing.not_followed.len() == 1);
    assert!(bed.snapshot().routing.not_followed[0].contains("firewall mark"));
}

#[test]
fn ports_in_two_routing_domains_have_the_same_addresses_and_never_meet() {
    let Some(mut bed) = Bed::new("domains", &["red-in", "red-out", "blue-in", "blue-out"]) else {
        return;
    };
    for (domain, table) in [("red", 100), ("blue", 101)] {
        let (inside, outside) = (format!("{domain}-in"), format!("{domain}-out"));
        let (near, far) = (format!("h-{inside}"), format!("h-{outside}"));
        for (port, host, n) in [(&inside, &near, 1), (&outside, &far, 2)] {
            bed.address("r", &format!("10.{n}.0.1/24"), port);
            bed.address(host, &format!("10.{n}.0.2/24"), "eth");
            bed.net.ip(host, &format!("route add default via 10.{n}.0.1"));
            bed.net.ip("r", &format!("route add 10.{n}.0.0/24 dev {port} table {table}"));
            bed.net.ip("r", &format!("rule add priority {table} iif {port} lookup {table}"));
        }
        bed.address(&far, "10.9.0.1/32", "lo");
        bed.net.ip("r", &format!("route add 10.9.0.0/24 via 10.2.0.2 dev {outside} table {table}"));
    }
    bed.start();
    let outs = ["red-out", "blue-out"];
    for round in 0..2 {
        assert_eq!(bed.pings("h-red-in", "10.9.0.1", outs), [5, 0], "round {round}");
        assert_eq!(bed.pings("h-blue-in", "10.9.0.1", outs), [0, 5], "round {round}");
    }
    // A domain without a way has none, whatever the other has.
    bed.net.ip("r", "route del 10.9.0.0/24 table 100");
    eventually("the route to be gone", || {
        !bed.net.run("h-red-in", "ping -n -c 1 -W 1 10.9.0.1").status.success()
    });
    assert_eq!(bed.pings("h-blue-in", "10.9.0.1", outs), [0, 5]);
}

#[test]
fn packets_too_big_for_their_route_are_answered_as_the_kernel_answers_them() {
    let Some(mut bed) = Bed::new("route mtu", &["lan", "wan"]) else { return };
    for (at, port) in ["lan", "wan"].into_iter().enumerate() {
        let (host, n) = (format!("h-{port}"), at + 1);
        for (net, len) in [(format!("10.{n}.0."), 24), (format!("fd0{n}::"), 64)] {
            bed.address("r", &format!("{net}1/{len}"), port);
            bed.address(&host, &format!("{net}2/{len}"), "eth");
            bed.net.ip(&host, &format!("route add default via {net}1"));
        }
    }
    let routes = [
        ("10.9.1", "mtu 1300"),
        ("10.9.2", "mtu lock 1200"),
        ("10.9.3", "advmss 1000"),
        ("10.9.4", "mtu 9000"),
        ("fd09:1:", "mtu 1300"),
        ("fd09:2:", "mtu lock 1290"),
        ("fd09:3:", "mtu 1000"),
    ];
    for (net, mtu) in routes {
        let (v6, host) = (
            net.contains(':'),
            if net.contains(':') { format!("{net}:1") } else { format!("{net}.1") },
        );
        bed.address("h-wan", &format!("{host}/{}", if v6 { 128 } else { 32 }), "lo");
        let gateway = if v6 { "fd02::2" } else { "10.2.0.2" };
        bed.net.ip("r", &format!("route add {host} via {gateway} {mtu}"));
    }
    // Lines that tell of the MTU, or that it came back. The host must not remember what it was
    // told.
    let answers = |bed: &Bed| -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (net, mtu) in routes {
            let v6 = net.contains(':');
            let host = if v6 { format!("{net}:1") } else { format!("{net}.1") };
            // An answer that a limit on answers withheld comes the next time.
            for size in [1_100, 1_245, 1_260, 1_400] {
                let mut found = None;
                eventually("an answer", || {
                    bed.net
                        .ip("h-lan", if v6 { "-6 route flush cache" } else { "route flush cache" });
                    let output = text(
                        &bed.net.run("h-lan", &format!("ping -n -c 1 -W 1 -M do -s {size} {host}")),
                    );
                    let told = output
                        .lines()
                        .find(|line| line.contains("mtu") || line.contains("bytes from"));
                    // Times differ.
                    found =
                        told.map(|line| line.split(" time=").next().unwrap_or_default().to_owned());
                    found.is_some()
                });
                all.push((format!("{host} {mtu}: {size}"), found.unwrap()));
            }
        }
        all
    };
    let of_kernel = answers(&bed);
    bed.start();
    let ours = answers(&bed);
    for (ours, theirs) in ours.iter().zip(&of_kernel) {
        assert_eq!(ours, theirs);
    }
    let told = |mtu: u32| {
        let (v4, v6) = (format!("mtu = {mtu}"), format!("mtu={mtu}"));
        of_kernel.iter().filter(|(_, answer)| answer.contains(&v4) || answer.contains(&v6)).count()
    };
    // The kernel did have something to say.
    assert!(told(1_300) >= 3 && told(1_200) >= 2 && told(1_290) >= 1, "{of_kernel:?}");
    // Without "do not fragment" they pass, in fragments that fit.
    bed.net.ip("h-lan", "route flush cache");
    let fragmented = bed.snapshot().port("lan").unwrap().fragmented;
    let output = bed.net.output("h-lan", "ping -n -c 3 -i 0.1 -W 2 -M dont -s 1250 10.9.2.1");
    assert!(output.contains(" 0% packet loss"), "{output}");
    assert_eq!(bed.snapshot().port("lan").unwrap().fragmented, fragmented + 3);
    // A changed MTU holds from then on.
    bed.net.ip("r", "route replace 10.9.2.1 via 10.2.0.2 mtu 1000");
    eventually("the new MTU", || {
        bed.net.ip("h-lan", "route flush cache");
        text(&bed.net.run("h-lan", "ping -n -c 1 -W 1 -M do -s 1100 10.9.2.1"))
            .contains("mtu = 1000")
    });
}

/// The kernel keeps entries that somebody made (`permanent`) without bound; those that it learns,
/// machine-wide, up to `gc_thresh3`.
#[test]
fn ten_thousand_neighbours_are_used_and_a_hundred_are_learned_at_once() {
    const MADE: u64 = 10_000;
    const LEARNED: u64 = 100;
    let Some(mut bed) = Bed::new("neighbours", &["lan", "wan"]) else { return };
    bed.address("r", "10.1.0.1/24", "lan");
    bed.address("h-lan", "10.1.0.2/24", "eth");
    bed.net.ip("h-lan", "route add default via 10.1.0.1");
    bed.address("r", "10.8.0.1/16", "wan");
    bed.address("h-wan", "10.8.255.254/16", "eth");
    // The host at the other end is all that are asked for.
    bed.net.ip("h-wan", "route add local 10.8.32.0/19 dev lo");
    bed.net.ip("h-wan", "route add 10.1.0.0/24 via 10.8.0.1");
    bed.start();
    let before = bed.snapshot().neighbours;
    let file = bed.net.output("h-wan", "cat /sys/class/net/eth/address");
    let mac = file.trim();
    let address = |n: u64| format!("10.8.{}.{}", 1 + n / 250, 1 + n % 250);
    let lines: String = (0..MADE)
        .map(|n| format!("neigh add {} dev wan lladdr {mac} nud permanent\n", address(n)))
        .collect();
    let batch = bed.runtime.path().join("neighbours");
    std::fs::write(&batch, lines).unwrap();
    bed.net.output("r", &format!("ip -batch {}", batch.display()));
    eventually("all neighbours to be followed", || bed.snapshot().neighbours >= before + MADE);

    let namespace = bed.net.name("h-lan");
    let send = |from: u64, count: u64| {
        sys::in_netns(&namespace, || {
            let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
            for n in from..from + count {
                // Nobody listens there: the host may say so about an earlier one.
                let to = (address(n), 9);
                let _ = socket.send_to(b"x", &to).or_else(|_| socket.send_to(b"x", &to));
                if n % 20 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        })
        .unwrap();
    };
    // On a loaded machine the ring of the port may run over: who got no packet gets one of the
    // next.
    let sent = bed.sent("wan");
    eventually("a packet to each of them", || {
        send(0, MADE);
        bed.sent("wan") >= sent + MADE
    });
    let snapshot = bed.snapshot();
    let lan = snapshot.port("lan").unwrap();
    // While a busy machine kept the router from the processor, the kernel may have forwarded some.
    let lost = lan.dropped.iter().filter(|(reason, _)| *reason != "kernel_forwarded");
    assert_eq!((lan.waiting, lost.map(|(_, count)| count).sum::<u64>()), (0, 0), "{lan:?}");

    // Nobody knows these yet. Where the machine has no room for more, they are asked for again.
    let known = snapshot.neighbours;
    eventually("those that were asked for to be known", || {
        send(MADE, LEARNED);
        bed.snapshot().neighbours >= known + LEARNED
            && bed.snapshot().port("lan").unwrap().waiting == 0
    });
    let sent = bed.sent("wan");
    eventually("a packet to each of them", || {
        send(MADE, LEARNED);
        bed.sent("wan") >= sent + LEARNED
    });
}
