//! Super-frames from routed port to routed port.

use std::time::Duration;

use evenkeel_config::RouterConfig;
use evenkeel_netns::testing::{TestNet, available, eventually_some, has_tool};
use evenkeel_router::{Handle, Options, Router, Snapshot};

use super::common::assert_conserved;

/// Hosts `a` and `b`, each behind an interface of `r`; every offload as the kernel has it.
pub(super) fn net(mtu: u32) -> TestNet {
    let net = TestNet::new(&["a", "r", "b"]);
    for (host, far, near, at) in [("a", "a0", "lan", 1), ("b", "b0", "wan", 2)] {
        net.wire((host, far), ("r", near));
        net.ip(host, &format!("link set {far} mtu {mtu}"));
        net.ip("r", &format!("link set {near} mtu {mtu}"));
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

pub(super) fn start(net: &TestNet, runtime: &tempfile::TempDir, text: &str) -> Handle {
    let ports = "[[port]]\nname = \"lan\"\ninterface = \"lan\"\n[[port]]\nname = \"wan\"\n\
                 interface = \"wan\"\n";
    let config = RouterConfig::parse(&format!("{text}\n{ports}"), "test.toml").unwrap();
    let options = Options {
        runtime_dir: runtime.path().to_owned(),
        netns: Some(net.name("r")),
        report: Some(|text| eprintln!("report: {text}")),
        ..Options::default()
    };
    Router::start(config, options).unwrap_or_else(|error| panic!("{error}"))
}

/// What arrived in a second, Mbit/s.
pub(super) fn tcp(net: &TestNet, to: &str) -> f64 {
    let server = net.start("b", "iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let told = net.output("a", &format!("iperf3 -c {to} -t 1 -f m"));
    drop(server);
    let line = told.lines().find(|line| line.ends_with("receiver")).expect("a result");
    let before = line.split("Mbits/sec").next().unwrap();
    before.split_whitespace().last().unwrap().parse().unwrap()
}

fn features(net: &TestNet) -> String {
    ["lan", "wan"].map(|interface| net.output("r", &format!("ethtool -k {interface}"))).concat()
}

/// When nothing waits any more.
pub(super) fn settled(router: &Handle) -> Snapshot {
    eventually_some("empty queues", || {
        let snapshot = router.snapshot().unwrap();
        let empty = snapshot.links.iter().all(|link| link.queued + link.in_ring == 0);
        empty.then_some(snapshot)
    })
}

/// Of everything that was forwarded: what came in went to a link and left, counted by packets, by
/// segments and by bytes.
fn assert_balanced(snapshot: &Snapshot) {
    assert_conserved(snapshot);
    for (from, to) in [("lan", "wan"), ("wan", "lan")] {
        let (from, to) = (snapshot.port(from).unwrap(), snapshot.port(to).unwrap());
        let link = snapshot.links.iter().find(|link| link.port == to.name).unwrap();
        let sum = |of: fn(&evenkeel_router::snapshot::ClassSnapshot) -> u64| {
            link.classes.iter().map(of).sum::<u64>()
        };
        // What stays here comes in frames that are none.
        let dropped: u64 = from.dropped.values().sum();
        let forwarded = from.rx_segments - from.to_host - dropped;
        assert_eq!(forwarded, sum(|class| class.in_segments), "{from:?}");
        let sent = sum(|class| class.sent_segments);
        assert_eq!(sent, to.tx_segments, "{to:?}");
        let lost = link.classes.iter().flat_map(|class| class.dropped.values()).sum::<u64>();
        if lost == 0 {
            assert_eq!(forwarded, sent);
        }
    }
}

#[test]
fn they_stay_whole_where_the_link_is_fast_and_offloads_stay_as_they_are() {
    if !available("supers") || !has_tool("supers", "iperf3", "iperf3") {
        return;
    }
    let (net, runtime) = (net(1500), tempfile::tempdir().unwrap());
    let before = features(&net);
    let router = start(&net, &runtime, "");
    assert_eq!(features(&net), before, "the router changes nothing at an interface");
    let noted = |file: &std::fs::DirEntry| file.file_name().to_string_lossy().contains("offload");
    let files = std::fs::read_dir(runtime.path()).unwrap();
    assert_eq!(files.flatten().filter(noted).count(), 0, "nothing to be restored");
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        assert!(tcp(&net, to) > 100.0);
    }
    let snapshot = settled(&router);
    assert_balanced(&snapshot);
    let (lan, wan) = (snapshot.port("lan").unwrap(), snapshot.port("wan").unwrap());
    // By default: there is no hardware behind these interfaces.
    assert_eq!(lan.io, "AF_PACKET with super-frames");
    assert!(lan.rx_segments > 5 * lan.rx_packets, "most came as super-frames: {lan:?}");
    assert!(wan.tx_segments > 5 * wan.tx_packets, "and left as such: {wan:?}");
    assert_eq!((lan.cut, wan.cut), (0, 0));
    // Bytes of the wire, those that stay here left out.
    let kept = lan.rx_bytes - wan.tx_bytes;
    assert!(lan.rx_bytes >= wan.tx_bytes && kept < 200 * lan.to_host.max(1), "{lan:?} {wan:?}");
    drop(router);
    assert_eq!(features(&net), before);
}

#[test]
fn a_slow_link_gets_them_cut_while_the_way_back_does_not() {
    if !available("supers-slow") || !has_tool("supers-slow", "iperf3", "iperf3") {
        return;
    }
    let (net, runtime) = (net(1500), tempfile::tempdir().unwrap());
    let router = start(
        &net,
        &runtime,
        "[[link]]\nport = \"wan\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"pdrr\" }",
    );
    let rate = tcp(&net, "10.2.0.2");
    assert!((7.0..10.0).contains(&rate), "{rate}");
    let snapshot = settled(&router);
    assert_balanced(&snapshot);
    let (lan, wan) = (snapshot.port("lan").unwrap(), snapshot.port("wan").unwrap());
    assert!(lan.cut > 10, "{lan:?}");
    assert_eq!(wan.tx_segments, wan.tx_packets, "what leaves are single frames: {wan:?}");
    // `a` is the fast side of the router.
    let server = net.start("a", "iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    net.output("b", "iperf3 -c 10.1.0.2 -t 1");
    drop(server);
    let snapshot = settled(&router);
    assert_balanced(&snapshot);
    let (lan, wan) = (snapshot.port("lan").unwrap(), snapshot.port("wan").unwrap());
    assert!(lan.tx_segments > 3 * lan.tx_packets, "{lan:?}");
    assert_eq!(wan.cut, 0, "{wan:?}");
}

#[test]
fn a_link_that_may_take_none_gets_none_and_segments_too_long_are_told() {
    if !available("supers-none") || !has_tool("supers-none", "iperf3", "iperf3") {
        return;
    }
    let (net, runtime) = (net(1500), tempfile::tempdir().unwrap());
    net.ip("r", "link set wan mtu 1300");
    let router = start(&net, &runtime, "[router]\nsplit_above = \"0ns\"");
    // The first super-frames have segments of 1500 bytes: their sender is told the MTU.
    assert!(tcp(&net, "10.2.0.2") > 100.0);
    let snapshot = settled(&router);
    assert_conserved(&snapshot);
    let wan = snapshot.port("wan").unwrap();
    assert_eq!(wan.tx_segments, wan.tx_packets);
    drop(router);
    let router = start(&net, &runtime, "");
    net.ip("a", "route flush cache");
    assert!(tcp(&net, "10.2.0.2") > 100.0);
    let snapshot = settled(&router);
    assert_conserved(&snapshot);
    let (lan, wan) = (snapshot.port("lan").unwrap(), snapshot.port("wan").unwrap());
    assert!(lan.dropped.contains_key("too_big"), "{lan:?}");
    assert!(wan.tx_segments > 5 * wan.tx_packets, "{wan:?}");
}

/// Long packets reach `b` by a network with shorter frames.
pub(crate) fn pass_in_fragments(net: &TestNet) {
    net.ip("r", "link set wan mtu 4000");
    net.ip("b", "link set b0 mtu 4000");
    let told = net.output("a", "ping -n -c 3 -i 0.1 -W 2 -M dont -s 8900 10.2.0.2");
    assert!(told.contains(" 0% packet loss"), "{told}");
}

#[test]
fn frames_longer_than_the_buffers_pass() {
    if !available("jumbo") || !has_tool("jumbo", "iperf3", "iperf3") {
        return;
    }
    let (net, runtime) = (net(9000), tempfile::tempdir().unwrap());
    let router = start(&net, &runtime, "");
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        let told = net.output("a", &format!("ping -n -c 3 -i 0.1 -W 2 -M do -s 8900 {to}"));
        assert!(told.contains(" 0% packet loss"), "{told}");
        assert!(tcp(&net, to) > 100.0);
    }
    // Into a network with shorter frames: in fragments, where that is allowed.
    pass_in_fragments(&net);
    let snapshot = settled(&router);
    assert_conserved(&snapshot);
    let lan = snapshot.port("lan").unwrap();
    assert_eq!(lan.dropped.get("frame_too_long"), None, "{lan:?}");
    assert!(lan.fragmented >= 3, "{lan:?}");
}
