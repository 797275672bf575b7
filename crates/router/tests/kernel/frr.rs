//! A routing daemon beside the router: its routes are followed, and its sessions live through
//! overload.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::common::assert_conserved;
use evenkeel_config::RouterConfig;
use evenkeel_netns::frr::{Frr, ip_batch};
use evenkeel_netns::{Namespaces, testing};
use evenkeel_ports::sys;
use evenkeel_router::{Options, Router};

/// Routes that the neighbour announces.
const ROUTES: u64 = 2_000;
/// The link that is overloaded, and several times what it carries.
const OFFERED_BPS: u64 = 12_000_000;
const OVERLOAD: Duration = Duration::from_secs(5);

const ROUTER: &str = r#"
[[port]]
name = "lan"
interface = "lan"
[[port]]
name = "wan"
interface = "wan"
[[class]]
name = "data"
[[class]]
name = "control"
match = [{ dscp = [48] }]
[[link]]
port = "wan"
rate = "3Mbit/s"
discipline = { kind = "wfq-altq", limit = 50, weight = { control = 100 } }
"#;

/// A hold time of three seconds: one keep-alive lost is noticed, three end the session.
fn bgp(number: u32, id: &str, neighbours: &[(&str, u32)], announces: bool) -> String {
    let mut text = format!(
        "router bgp {number}\n bgp router-id {id}\n no bgp ebgp-requires-policy\n timers bgp 1 3\n"
    );
    for (address, remote) in neighbours {
        text += &format!(
            " neighbor {address} remote-as {remote}\n neighbor {address} timers connect 1\n \
             neighbor {address} advertisement-interval 0\n neighbor {address} ebgp-multihop 3\n"
        );
    }
    if announces {
        text += " address-family ipv4 unicast\n  redistribute kernel\n exit-address-family\n";
    }
    text
}

/// Sends datagrams from the namespace until told to stop; gives how many bytes of IP packets.
fn flood(namespace: &str, stop: &AtomicBool, sent: &AtomicU64) {
    sys::enter_netns(namespace).unwrap();
    let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
    let (begin, datagram) = (Instant::now(), [0; 1_200]);
    while !stop.load(Ordering::Relaxed) {
        let due = begin.elapsed().as_micros() as u64 * OFFERED_BPS / 8_000_000;
        while sent.load(Ordering::Relaxed) < due {
            // Nobody listens there: the host may say so.
            let _ = socket.send_to(&datagram, "10.2.0.9:9");
            sent.fetch_add(datagram.len() as u64 + 28, Ordering::Relaxed);
        }
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn bgp_sessions_stay_up_under_overload_and_their_routes_are_followed() {
    if !testing::available("frr") || !Frr::available("frr") {
        return;
    }
    let mut net = Namespaces::new();
    let check = |result: Result<String, _>| {
        result.unwrap_or_else(|error: evenkeel_netns::ShellError| panic!("{error}"))
    };
    for node in ["a", "r", "b"] {
        net.add(node).unwrap();
    }
    net.wire(("a", "a0"), ("r", "lan")).unwrap();
    net.wire(("b", "b0"), ("r", "wan")).unwrap();
    for (node, arguments) in [
        ("a", "address add 10.1.0.2/24 dev a0"),
        ("r", "address add 10.1.0.1/24 dev lan"),
        ("r", "address add 10.2.0.1/24 dev wan"),
        ("b", "address add 10.2.0.2/24 dev b0"),
        ("b", "address add 10.2.0.9/24 dev b0"),
        ("a", "route add 10.2.0.0/24 via 10.1.0.1"),
        ("b", "route add 10.1.0.0/24 via 10.2.0.1"),
    ] {
        check(net.ip(node, arguments));
    }
    check(net.exec("r", "sysctl -qw net.ipv4.ip_forward=1"));
    let runtime = tempfile::tempdir().unwrap();
    let lines: String = (0..ROUTES)
        .map(|i| format!("route add blackhole 100.{}.{}.0/24\n", i / 256, i % 256))
        .collect();
    ip_batch(&net, "a", &lines, runtime.path()).unwrap();

    let options = Options {
        runtime_dir: runtime.path().to_owned(),
        netns: Some(net.name_of("r")),
        report: Some(|text| eprintln!("report: {text}")),
        ..Options::default()
    };
    let config = RouterConfig::parse(ROUTER, "test.toml").unwrap_or_else(|error| panic!("{error}"));
    let router = Router::start(config, options).unwrap_or_else(|error| panic!("{error}"));
    let before = router.snapshot().unwrap().routes;

    // One session ends at the router's own kernel, the other passes through the router.
    let through = [("10.1.0.2", 65_001), ("10.2.0.2", 65_002)];
    let start = |node: &str, config: String| {
        Frr::start(&net, node, &[("bgpd", &config)]).unwrap_or_else(|error| panic!("{error}"))
    };
    let a = start("a", bgp(65_001, "10.1.0.2", &[("10.1.0.1", 65_000), through[1]], true));
    let r = start("r", bgp(65_000, "10.1.0.1", &[("10.1.0.2", 65_001)], false));
    let b = start("b", bgp(65_002, "10.2.0.2", &through[..1], false));
    let sessions = || {
        [(&r, "10.1.0.2"), (&b, "10.1.0.2"), (&a, "10.2.0.2")]
            .map(|(frr, peer)| frr.session(peer).unwrap())
    };
    let complete = || {
        sessions()[..2].iter().all(|session| u64::from(session.prefixes) >= ROUTES)
            && router.snapshot().unwrap().routes >= before + ROUTES
    };
    let end = Instant::now() + Duration::from_secs(30);
    while !complete() {
        assert!(
            Instant::now() < end,
            "{:?}, {} routes",
            sessions(),
            router.snapshot().unwrap().routes
        );
        sleep(Duration::from_millis(100));
    }
    let up = sessions();
    assert!(up.iter().all(|session| session.established), "{up:?}");

    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let namespace = net.name_of("a");
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&namespace, &stop, &sent));
        // As long as it takes to offer so much, however busy the machine is.
        let begin = Instant::now();
        while begin.elapsed() < OVERLOAD
            || sent.load(Ordering::Relaxed) < OFFERED_BPS / 8 * OVERLOAD.as_secs() / 2
        {
            sleep(Duration::from_millis(100));
        }
        let during = sessions();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(during, up, "a session went down under overload");
    });
    let snapshot = router.snapshot().unwrap();
    assert_conserved(&snapshot);
    let classes = &snapshot.link("wan").unwrap().classes;
    let lost = |class: usize| classes[class].dropped.values().sum::<u64>();
    assert!(lost(0) > classes[0].sent_packets, "it was no overload: {classes:?}");
    assert_eq!(lost(1), 0, "control traffic was dropped: {classes:?}");
    assert!(
        classes[1].sent_packets >= OVERLOAD.as_secs(),
        "keep-alives took another way: {classes:?}"
    );

    // The routes of a neighbour that is gone go.
    drop(a);
    let end = Instant::now() + Duration::from_secs(30);
    while router.snapshot().unwrap().routes > before + 100 {
        let left = router.snapshot().unwrap().routes;
        assert!(
            Instant::now() < end,
            "{left} routes, {before} before: {:?}",
            r.session("10.1.0.2")
        );
        sleep(Duration::from_millis(100));
    }
}
