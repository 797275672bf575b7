//! What the kernel does with packets that it forwards, and a router must not switch off.

use evenkeel_config::RouterConfig;
use evenkeel_netns::testing::{TestNet, available, has_tool};
use evenkeel_router::{Handle, Options, Router, StartError};

use super::common::assert_conserved;

fn net() -> TestNet {
    let net = TestNet::new(&["a", "r", "b"]);
    for (host, far, near, at) in [("a", "a0", "lan", 1), ("b", "b0", "wan", 2)] {
        net.wire((host, far), ("r", near));
        net.ip(host, &format!("address add 10.{at}.0.2/24 dev {far}"));
        net.ip("r", &format!("address add 10.{at}.0.1/24 dev {near}"));
        net.ip(host, &format!("route add default via 10.{at}.0.1"));
    }
    net.sysctl("r", "net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
    net
}

fn start(net: &TestNet, runtime: &tempfile::TempDir, bypass: &str) -> Result<Handle, StartError> {
    let bypass = if bypass.is_empty() { String::new() } else { format!("bypass = [{bypass}]\n") };
    let text = format!(
        "[router]\nio = \"af-packet\"\n{bypass}[[port]]\nname = \"lan\"\n\
         interface = \"lan\"\n[[port]]\nname = \"wan\"\ninterface = \"wan\"\n"
    );
    let options = Options {
        runtime_dir: runtime.path().to_owned(),
        netns: Some(net.name("r")),
        refuses_bypass: true,
        ..Options::default()
    };
    Router::start(RouterConfig::parse(&text, "test.toml").unwrap(), options)
}

#[test]
fn rules_of_legacy_iptables_are_seen_and_refused() {
    if !available("legacy") || !has_tool("legacy", "iptables-legacy", "iptables") {
        return;
    }
    let (net, runtime) = (net(), tempfile::tempdir().unwrap());
    // Tables without rules do nothing.
    net.output("r", "iptables-legacy -P FORWARD ACCEPT");
    net.output("r", "ip6tables-legacy -A INPUT -p tcp -j ACCEPT");
    drop(start(&net, &runtime, "").unwrap());
    let refused = |says: &[&str]| {
        let told = match start(&net, &runtime, "") {
            Err(error) => error.to_string(),
            Ok(_) => panic!("started beside {says:?}"),
        };
        for part in says.iter().chain(&["bypass = [\"netfilter\"]"]) {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
    };
    net.output("r", "iptables-legacy -P FORWARD DROP");
    refused(&["iptables-legacy table filter: chain FORWARD, policy drop"]);
    net.output("r", "iptables-legacy -P FORWARD ACCEPT");
    net.output("r", "ip6tables-legacy -A FORWARD -p udp -j DROP");
    net.output("r", "iptables-legacy -t nat -A POSTROUTING -o wan -j MASQUERADE");
    refused(&[
        "ip6tables-legacy table filter: chain FORWARD, with rules",
        "iptables-legacy table nat: chain POSTROUTING, with rules",
    ]);
    drop(start(&net, &runtime, "\"netfilter\"").unwrap());
}

/// A source that the router would send to by the other port, and one that it would send to nowhere.
const ELSEWHERE: &str = "10.2.0.77";
const NOWHERE: &str = "192.0.2.7";

/// Whether an echo request with this source gets to `b`.
fn arrives(net: &TestNet, source: &str) -> bool {
    let received = || {
        let counters = net.output("b", "cat /proc/net/snmp");
        let values = counters.lines().filter(|line| line.starts_with("Icmp:")).nth(1).unwrap();
        values.split_whitespace().nth(9).unwrap().parse::<u64>().unwrap()
    };
    let before = received();
    let _unanswered = net.run("a", &format!("ping -n -c 1 -W 0.2 -I {source} 10.2.0.2"));
    received() > before
}

#[test]
fn sources_are_checked_as_the_kernel_checks_them() {
    if !available("reverse-path") {
        return;
    }
    for (how, elsewhere, nowhere) in [(0, true, true), (1, false, false), (2, true, false)] {
        let (net, runtime) = (net(), tempfile::tempdir().unwrap());
        net.ip("a", &format!("address add {ELSEWHERE}/32 dev a0"));
        net.ip("a", &format!("address add {NOWHERE}/32 dev a0"));
        net.sysctl("b", "net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.b0.rp_filter=0");
        net.sysctl("r", &format!("net.ipv4.conf.lan.rp_filter={how}"));
        for who in ["kernel", "router", "bypass"] {
            let bypass = if who == "bypass" { "\"rp_filter\"" } else { "" };
            let router = (who != "kernel").then(|| start(&net, &runtime, bypass).unwrap());
            let all = who == "bypass";
            assert!(arrives(&net, "10.1.0.2"), "{who}, {how}");
            assert_eq!(arrives(&net, ELSEWHERE), elsewhere || all, "{who}, {how}: elsewhere");
            assert_eq!(arrives(&net, NOWHERE), nowhere || all, "{who}, {how}: nowhere");
            if let Some(router) = router {
                let snapshot = router.snapshot().unwrap();
                assert_conserved(&snapshot);
                let lan = snapshot.port("lan").unwrap();
                let strange = lan.dropped.get("martian_source").copied().unwrap_or(0);
                let expected = if all { 0 } else { u64::from(!elsewhere) + u64::from(!nowhere) };
                assert_eq!(strange, expected, "{who}, {how}: {lan:?}");
            }
        }
    }
}
