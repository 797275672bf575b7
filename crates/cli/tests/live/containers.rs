//! A host of containers, as the usual tools make it: pairs of interfaces on a bridge, sources
//! translated, a port published. Needs root.

use evenkeel_netns::testing::{TestNet, available, has_tool};

use crate::gateway::{Servers, Shaper, connects, rules};

/// Translation and forwarding, as such tools set them up.
const RULES: &str = "
table ip nat {
  chain PREROUTING {
    type nat hook prerouting priority -100;
    fib daddr type local tcp dport 8080 dnat to 172.17.0.2:80
  }
  chain OUTPUT {
    type nat hook output priority -100;
    ip daddr != 127.0.0.0/8 fib daddr type local tcp dport 8080 dnat to 172.17.0.2:80
  }
  chain POSTROUTING {
    type nat hook postrouting priority 100;
    ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade
    ip saddr 172.17.0.2 ip daddr 172.17.0.2 tcp dport 80 masquerade
  }
}
table ip filter {
  chain FORWARD {
    type filter hook forward priority 0; policy drop;
    oifname \"docker0\" ct state related,established accept
    iifname \"docker0\" accept
    iifname != \"docker0\" oifname \"docker0\" ip daddr 172.17.0.2 tcp dport 80 accept
  }
}
";

/// What must hold always.
fn is_as_ever(net: &TestNet, when: &str) {
    let pings =
        |from: &str, to: &str| net.try_output(from, &format!("ping -n -c 2 -i 0.1 -W 2 {to}")).0;
    for container in ["c1", "c2"] {
        assert!(pings(container, "10.2.0.2"), "{when}: {container} reaches the outside");
        let seen = connects(net, container, "10.2.0.2:80");
        assert_eq!(seen.as_deref(), Some("10.2.0.1"), "{when}: as which {container} is seen");
    }
    let published = connects(net, "s", "10.2.0.1:8080");
    assert_eq!(published.as_deref(), Some("10.2.0.2"), "{when}: a published port");
    assert!(connects(net, "c2", "10.2.0.1:8080").is_some(), "{when}: the same from inside");
    let beside = connects(net, "c2", "172.17.0.2:80");
    assert_eq!(beside.as_deref(), Some("172.17.0.3"), "{when}: one container reaches the other");
    assert!(connects(net, "g", "172.17.0.2:80").is_some(), "{when}: the host reaches it");
    assert!(pings("g", "10.2.0.2"), "{when}: the host reaches the outside");
    net.ip("s", "route replace 172.17.0.0/16 via 10.2.0.1");
    assert_eq!(connects(net, "s", "172.17.0.3:80"), None, "{when}: nothing else comes in");
    net.ip("s", "route del 172.17.0.0/16");
}

#[test]
fn containers_reach_and_are_reached_as_before() {
    if !available("containers") || !has_tool("containers", "nft", "nftables") {
        return;
    }
    let net = TestNet::new(&["c1", "c2", "g", "s"]);
    net.ip("g", "link add docker0 type bridge");
    net.ip("g", "address add 172.17.0.1/16 dev docker0");
    net.ip("g", "link set docker0 up");
    for (container, port, address) in [("c1", "veth1", "172.17.0.2"), ("c2", "veth2", "172.17.0.3")]
    {
        net.wire((container, "eth0"), ("g", port));
        net.ip("g", &format!("link set {port} master docker0"));
        net.ip(container, &format!("address add {address}/16 dev eth0"));
        net.ip(container, "route add default via 172.17.0.1");
    }
    net.wire(("s", "s0"), ("g", "wan"));
    net.ip("s", "address add 10.2.0.2/24 dev s0");
    net.ip("g", "address add 10.2.0.1/24 dev wan");
    net.sysctl("g", "net.ipv4.ip_forward=1");
    rules(&net, "g", RULES);
    let mut servers = Servers::default();
    for (node, at) in [("s", "10.2.0.2:80"), ("c1", "172.17.0.2:80"), ("c2", "172.17.0.3:80")] {
        servers.who_am_i(&net.name(node), at);
    }
    let mut shaper = Shaper::new(net, "g");
    is_as_ever(&shaper.net, "before");
    shaper.start("wan --down 100Mbit/s --up 20Mbit/s");
    let through = shaper.sent("wan").0;
    is_as_ever(&shaper.net, "while it runs");
    assert!(shaper.sent("wan").0 > through + 10, "it passes the links");
    // What is between containers is nobody's line.
    let through = shaper.sent("wan").0;
    shaper.net.output("c1", "ping -n -c 20 -i 0.01 172.17.0.3");
    assert!(shaper.sent("wan").0 < through + 20, "containers among one another");
    shaper.kill("-KILL");
    is_as_ever(&shaper.net, "after kill -9");
    shaper.start("docker0 --down 100Mbit/s --up 20Mbit/s");
    is_as_ever(&shaper.net, "while the bridge of the containers is shaped");
    shaper.kill("-TERM");
    is_as_ever(&shaper.net, "afterwards");
}
