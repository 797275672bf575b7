//! An interface closed for what the kernel forwards. Needs root.

use crate::common::{self, TestNet, available, beating, inside};
use evenkeel_ports::gate;
use evenkeel_ports::guard::{Guard, GuardKind};

#[test]
fn a_closed_interface_sends_what_is_its_own_and_nothing_that_is_forwarded() {
    if !available("gate") {
        return;
    }
    let lab = TestNet::new(&["a", "r", "b"]);
    lab.output("r", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    lab.wire(("a", "va"), ("r", "ra"));
    lab.wire(("b", "vb"), ("r", "rb"));
    for (name, interface, net, host) in
        [("a", "va", 1, 2), ("r", "ra", 1, 1), ("r", "rb", 2, 1), ("b", "vb", 2, 2)]
    {
        lab.ip(name, &format!("addr add 10.78.{net}.{host}/24 dev {interface}"));
        lab.ip(name, &format!("addr add fd78:{net}::{host}/64 dev {interface} nodad"));
    }
    for (name, net) in [("a", 1), ("b", 2)] {
        lab.ip(name, &format!("route add default via 10.78.{net}.1"));
        lab.ip(name, &format!("-6 route add default via fd78:{net}::1"));
    }
    let reaches = |from, to| common::reaches(&lab, from, to);
    let pings = |to| common::pings(&lab, "a", to);
    let forwards = || pings("10.78.2.2") || pings("fd78:2::2");
    assert!(reaches("a", "10.78.2.2") && reaches("a", "fd78:2::2"), "the kernel forwards");

    inside(&lab, "r", || gate::close("rb")).unwrap();
    assert!(!forwards(), "closed");
    assert!(reaches("r", "10.78.2.2") && reaches("r", "fd78:2::2"), "its own packets leave");
    assert!(reaches("b", "10.78.1.1") && reaches("b", "fd78:1::1"), "so do its answers");
    // Closing again, and a guard that comes and goes, leave it closed.
    inside(&lab, "r", || gate::close("rb")).unwrap();
    let (heart, _pulse) = beating(2000);
    drop(inside(&lab, "r", || Guard::attach("rb", GuardKind::Filter, &[], &heart)).unwrap());
    assert!(!forwards(), "still closed");

    assert!(inside(&lab, "r", || gate::open("rb")).unwrap(), "it was closed");
    assert!(forwards(), "open");
    assert!(!inside(&lab, "r", || gate::open("rb")).unwrap(), "nothing to open");
    let left = lab.output("r", "tc qdisc show dev rb");
    assert!(!left.contains("clsact"), "{left}");
    assert!(inside(&lab, "r", || gate::close("none")).is_err());
}
