//! Frames longer than the buffers, by AF_XDP.

use evenkeel_netns::testing::{TestNet, available, eventually_some, has_tool};
use evenkeel_router::Snapshot;

use super::common::assert_conserved;
use super::supers::{net, pass_in_fragments, settled, start, tcp};

fn io(snapshot: &Snapshot) -> [String; 2] {
    ["lan", "wan"].map(|port| snapshot.port(port).unwrap().io.clone())
}

/// Long and short packets from `a` to `b` and back.
fn pings(net: &TestNet, to: &str) {
    for size in [8_952, 56, 1_765, 4_000] {
        let told = net.output("a", &format!("ping -n -c 5 -i 0.05 -W 2 -M do -s {size} {to}"));
        assert!(told.contains(" 0% packet loss") && !told.contains("DUP!"), "{told}");
    }
}

/// Nothing fell for want of buffers or for its length, and every buffer came back.
fn assert_whole(snapshot: &Snapshot) {
    assert_conserved(snapshot);
    let buffers = &snapshot.buffers;
    assert_eq!((buffers.total - buffers.free, buffers.super_frames), (buffers.lent, 0));
    for port in &snapshot.ports {
        for reason in ["frame_too_long", "no_buffer", "port_refused"] {
            assert_eq!(port.dropped.get(reason), None, "{port:?}");
        }
    }
}

#[test]
fn they_pass_between_af_xdp_ports_whole_and_in_fragments() {
    if !available("jumbo, AF_XDP") || !has_tool("jumbo, AF_XDP", "iperf3", "iperf3") {
        return;
    }
    let (net, runtime) = (net(9000), tempfile::tempdir().unwrap());
    let link = "[[link]]\nport = \"wan\"\nrate = \"2Gbit/s\"\n";
    let router = start(&net, &runtime, &format!("[router]\nio = \"af-xdp\"\n{link}"));
    let before = router.snapshot().unwrap();
    assert!(io(&before).iter().all(|io| io.contains("long frames in pieces")), "{:?}", io(&before));
    pings(&net, "10.2.0.2");
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        assert!(tcp(&net, to) > 100.0);
    }
    // Into a network with shorter frames, which yet do not fit a buffer.
    pass_in_fragments(&net);
    let snapshot = settled(&router);
    assert_whole(&snapshot);
    let (lan, wan) = (snapshot.port("lan").unwrap(), snapshot.port("wan").unwrap());
    assert!(lan.fragmented >= 3, "{lan:?}");
    assert!(lan.rx_bytes > 5_000 * lan.rx_packets && wan.tx_bytes > 3_000 * wan.tx_packets);
}

#[test]
fn they_pass_between_packet_sockets_and_af_xdp() {
    if !available("jumbo, both kinds") {
        return;
    }
    let (net, runtime) = (net(9000), tempfile::tempdir().unwrap());
    // The other one is named in the common part.
    let text = "[router]\nio = \"af-xdp\"\n[[port]]\nname = \"spare\"\ninterface = \"spare\"\n\
                io = \"af-packet\"\n";
    net.ip("r", "link add spare mtu 9000 type veth peer name other");
    net.ip("r", &format!("link set other netns {}", net.name("b")));
    net.ip("r", "address add 10.3.0.1/24 dev spare");
    net.ip("r", "link set spare up");
    net.ip("b", "link set other mtu 9000 up");
    net.ip("b", "address add 10.3.0.2/24 dev other");
    net.ip("b", "route add 10.1.0.0/24 via 10.3.0.1 metric 1");
    net.sysctl("b", "net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.other.rp_filter=0");
    let router = start(&net, &runtime, text);
    let snapshot = router.snapshot().unwrap();
    assert!(snapshot.port("spare").unwrap().io.starts_with("AF_PACKET"), "{:?}", snapshot.ports);
    assert!(io(&snapshot).iter().all(|io| io.contains("long frames in pieces")));
    pings(&net, "10.3.0.2");
    let snapshot = settled(&router);
    assert_whole(&snapshot);
}

#[test]
fn an_mtu_that_grows_beyond_a_buffer_is_followed() {
    if !available("an MTU that grows") {
        return;
    }
    for workers in [1, 2] {
        let (net, runtime) = (net(1500), tempfile::tempdir().unwrap());
        if workers == 2 {
            for (host, far, near) in [("a", "a0", "lan"), ("b", "b0", "wan")] {
                net.output("r", &format!("ethtool -L {near} rx 2 tx 2"));
                net.output(host, &format!("ethtool -L {far} rx 2 tx 2"));
            }
        }
        let text = format!("[router]\nio = \"af-xdp\"\nworkers = {workers}\n");
        let router = start(&net, &runtime, &text);
        let before = router.snapshot().unwrap();
        assert!(io(&before).iter().all(|io| !io.contains("pieces")), "{:?}", io(&before));
        for near in ["lan", "wan"] {
            net.ip("r", &format!("link set {near} mtu 9000"));
        }
        eventually_some("frames in pieces", || {
            let now = router.snapshot().unwrap();
            io(&now).iter().all(|io| io.contains("long frames in pieces")).then_some(())
        });
        net.ip("a", "link set a0 mtu 9000");
        net.ip("b", "link set b0 mtu 9000");
        eventually_some("long packets pass", || {
            net.try_output("a", "ping -n -c 1 -W 1 -M do -s 8900 10.2.0.2").0.then_some(())
        });
        pings(&net, "10.2.0.2");
        assert_whole(&settled(&router));
    }
}
