//! Packets whose route leaves by an interface that is no port of the router.

use std::io::Write as _;
use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_netns::testing::{TestNet, available, eventually, has_tool};
use evenkeel_router::{Handle, Options, Router};

use super::common::assert_conserved;

/// Host `a` behind port `lan` of `r`; host `b` behind `vpn`, which is no port, and translated.
fn net() -> TestNet {
    let net = TestNet::new(&["a", "r", "b"]);
    for (host, far, near, at) in [("a", "a0", "lan", 1), ("b", "b0", "vpn", 2)] {
        net.wire((host, far), ("r", near));
        net.ip(host, &format!("address add 10.{at}.0.2/24 dev {far}"));
        net.ip(host, &format!("address add 2001:db8:{at}::2/64 dev {far} nodad"));
        net.ip("r", &format!("address add 10.{at}.0.1/24 dev {near}"));
        net.ip("r", &format!("address add 2001:db8:{at}::1/64 dev {near} nodad"));
        net.ip(host, &format!("route add default via 10.{at}.0.1"));
        net.ip(host, &format!("-6 route add default via 2001:db8:{at}::1"));
    }
    net.sysctl("r", "net.ipv4.ip_forward=1");
    net.sysctl("r", "net.ipv6.conf.all.forwarding=1");
    net
}

fn start(net: &TestNet, runtime: &tempfile::TempDir, io: &str) -> Handle {
    let text = format!("[router]\nio = \"{io}\"\n[[port]]\nname = \"lan\"\ninterface = \"lan\"\n");
    let config = RouterConfig::parse(&text, "test.toml").unwrap();
    let options = Options {
        runtime_dir: runtime.path().to_owned(),
        netns: Some(net.name("r")),
        report: Some(|text| eprintln!("report: {text}")),
        ..Options::default()
    };
    Router::start(config, options).unwrap_or_else(|error| panic!("{error}"))
}

fn pings(net: &TestNet, to: &str) -> bool {
    let told = net.output("a", &format!("ping -n -c 5 -i 0.05 -W 2 {to}"));
    assert!(!told.contains("DUP!"), "{told}");
    told.contains(" 0% packet loss")
}

#[test]
fn go_to_the_kernel_which_forwards_and_translates_them() {
    if !available("elsewhere") || !has_tool("elsewhere", "iperf3", "iperf3") {
        return;
    }
    for io in ["af-packet", "af-xdp"] {
        let (net, runtime) = (net(), tempfile::tempdir().unwrap());
        // The kernel sees them come in by `lan`, as without a router, without a mark.
        let rules = "table ip t { chain f { type filter hook forward priority 0; policy drop; \
                     iifname lan oifname vpn meta mark 0 counter accept; \
                     ct state established,related accept;\n }\n \
                     chain n { type nat hook postrouting priority 100;\n \
                     oifname vpn masquerade; }\n }";
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(rules.as_bytes()).unwrap();
        net.output("r", &format!("nft -f {}", file.path().display()));
        net.sysctl("r", "net.ipv4.conf.lan.rp_filter=1");
        let router = start(&net, &runtime, io);
        assert!(pings(&net, "10.2.0.2") && pings(&net, "2001:db8:2::2"));
        assert!(pings(&net, "10.1.0.1"), "the machine itself");
        let snapshot = router.snapshot().unwrap();
        assert_conserved(&snapshot);
        let lan = snapshot.port("lan").unwrap();
        assert!((10..20).contains(&lan.elsewhere), "each once: {lan:?}");
        assert_eq!(lan.elsewhere_lost, 0);
        let server = net.start("b", "iperf3 -s -1");
        std::thread::sleep(Duration::from_millis(300));
        let told = net.output("a", "iperf3 -c 10.2.0.2 -t 1 -f m");
        drop(server);
        let rate = told.lines().find(|line| line.ends_with("receiver")).unwrap();
        let rate = rate.split("Mbits/sec").next().unwrap().split_whitespace().last().unwrap();
        assert!(rate.parse::<f64>().unwrap() > 50.0, "{told}");
        // A source that the kernel would not send to by `lan`: the kernel refuses it.
        net.ip("a", "address add 192.0.2.7/32 dev a0");
        let told = net.run("a", "ping -n -c 1 -W 0.5 -I 192.0.2.7 10.2.0.2");
        assert!(!told.status.success());
        // The route comes to be by a port, and is not any more: nothing that was known of a flow
        // may stay.
        if io == "af-packet" {
            net.ip("r", "route replace 10.2.0.2/32 via 10.1.0.2 dev lan");
            eventually("the other route", || !pings_once(&net));
            net.ip("r", "route del 10.2.0.2/32");
            eventually("the way by the kernel", || pings_once(&net));
        }
        drop(router);
        assert!(pings(&net, "10.2.0.2"));
    }
}

fn pings_once(net: &TestNet) -> bool {
    net.run("a", "ping -n -c 1 -W 0.3 10.2.0.2").status.success()
}
