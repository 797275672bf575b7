//! The gateway of an office: a tunnel to another site by a peer in user space (the kernel of a
//! virtual machine may have neither WireGuard nor PPP), rules that count, and the command at the
//! interface outside.

use evenkeel_netns::testing::{Running, TestNet, available, eventually, has_tool};
use serde_json::Value;

use crate::gateway::{Shaper, rules};

/// Passes packets between an interface without Ethernet headers and a UDP socket.
const TUNNEL: &str = r#"
import fcntl, os, select, socket, struct, subprocess, sys
address, local, remote = sys.argv[1:]
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH", b"tun0", 0x1001))
for line in ("link set tun0 mtu 1400 up", f"address add {address} dev tun0"):
    subprocess.run(["ip", *line.split()], check=True)
outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
outside.bind((local, 7000))
outside.connect((remote, 7000))
while True:
    for ready in select.select([tun, outside], [], [])[0]:
        try:
            if ready is tun:
                outside.send(os.read(tun, 65535))
            else:
                os.write(tun, outside.recv(65535))
        except OSError:
            pass
"#;

const RULES: &str = "
table ip office {
  counter to_the_site { }
  counter from_the_site { }
  counter tunnelled { }
  chain post {
    type nat hook postrouting priority 100;
    oifname \"wan\" ip saddr 10.1.0.0/24 masquerade
  }
  chain gate {
    type filter hook forward priority 0; policy drop;
    iifname \"lan\" oifname \"tun0\" counter name to_the_site accept
    iifname \"tun0\" oifname \"lan\" ct state established counter name from_the_site accept
    iifname \"lan\" oifname \"wan\" accept
    ct state established,related accept
  }
  chain outward {
    type filter hook output priority 0;
    oifname \"wan\" udp dport 7000 counter name tunnelled
  }
}
";

/// Packets of a counter of the rules.
fn counted(net: &TestNet, name: &str) -> u64 {
    let listed = net.output("g", &format!("nft -j list counter ip office {name}"));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let found = listed["nftables"].as_array().unwrap().iter().find_map(|one| one.get("counter"));
    found.unwrap()["packets"].as_u64().unwrap()
}

/// What must hold always. Returns what the rules have counted of it.
fn is_as_ever(net: &TestNet, when: &str) -> [u64; 3] {
    let names = ["to_the_site", "from_the_site", "tunnelled"];
    let before = names.map(|name| counted(net, name));
    for to in ["10.9.0.2", "10.2.0.2"] {
        let pings = net.try_output("h", &format!("ping -n -c 10 -i 0.02 -W 2 {to}"));
        assert!(pings.0, "{when}: {to}: {}", pings.1);
    }
    let refused = net.try_output("s", "ping -n -c 2 -i 0.02 -W 0.2 10.1.0.2");
    assert!(!refused.0, "{when}: what nobody inside has begun comes in");
    let after = names.map(|name| counted(net, name));
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// Mbit/s of TCP from the host through the tunnel; it would send 100.
fn through_the_tunnel(net: &TestNet) -> f64 {
    let server = net.start("s", "iperf3 -s -1 -p 5301");
    eventually("the server listens", || net.output("s", "ss -Hltn").contains(":5301"));
    let said = net.output("h", "iperf3 -c 10.9.0.2 -p 5301 -J -t 2 -b 100M -C cubic");
    drop(server);
    // A last packet that is sent again would be counted among the pings that follow.
    eventually("both ends have closed", || {
        let open = "ss -Htn state connected exclude time-wait";
        ["h", "s"].iter().all(|node| net.output(node, open).is_empty())
    });
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    said["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6
}

#[test]
fn an_office_with_a_tunnel_works_as_before_and_the_tunnel_is_shaped() {
    let tools = [("iperf3", "iperf3"), ("nft", "nftables"), ("python3", "python3")];
    let has = |(tool, package): &(&str, &str)| has_tool("office", tool, package);
    if !available("office") || !tools.iter().all(has) {
        return;
    }
    let net = TestNet::new(&["h", "g", "s"]);
    net.wire(("h", "eth0"), ("g", "lan"));
    net.wire(("s", "s0"), ("g", "wan"));
    net.sysctl("g", "net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1");
    // Nothing but what the test sends goes through the tunnel.
    ["g", "s"].iter().for_each(|node| net.sysctl(node, "net.ipv6.conf.all.disable_ipv6=1"));
    for (node, interface, address) in [
        ("h", "eth0", "10.1.0.2/24"),
        ("g", "lan", "10.1.0.1/24"),
        ("g", "wan", "10.2.0.1/24"),
        ("s", "s0", "10.2.0.2/24"),
    ] {
        net.ip(node, &format!("address add {address} dev {interface}"));
    }
    net.ip("h", "route add default via 10.1.0.1");
    rules(&net, "g", RULES);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("tunnel.py");
    std::fs::write(&script, TUNNEL).unwrap();
    let peer = |node: &str, arguments: &str| -> Running {
        net.start_for(300, node, &format!("python3 {} {arguments}", script.display()))
    };
    let peers =
        [peer("g", "10.9.0.1/24 10.2.0.1 10.2.0.2"), peer("s", "10.9.0.2/24 10.2.0.2 10.2.0.1")];
    eventually("the tunnel is there", || {
        ["g", "s"].iter().all(|node| net.ip(node, "-br address").contains("10.9.0."))
    });
    net.ip("s", "route add 10.1.0.0/24 dev tun0");

    let mut shaper = Shaper::new(net, "g");
    eventually("it passes", || shaper.net.try_output("h", "ping -n -c 1 -W 1 10.9.0.2").0);
    let before = is_as_ever(&shaper.net, "before");
    assert_eq!(before, [10, 10, 10], "and what was refused was not answered");
    let unshaped = through_the_tunnel(&shaper.net);
    assert!(unshaped > 30.0, "{unshaped} Mbit/s");
    shaper.start("wan --down 50Mbit/s --up 20Mbit/s");
    assert_eq!(is_as_ever(&shaper.net, "while it runs"), before, "rules count the same");
    let shaped = through_the_tunnel(&shaper.net);
    assert!((12.0..20.0).contains(&shaped), "{shaped} Mbit/s");
    for _ in 0..5 {
        shaper.kill("-KILL");
        assert_eq!(is_as_ever(&shaper.net, "after kill -9"), before, "rules count the same");
        shaper.start("wan --down 50Mbit/s --up 20Mbit/s");
    }
    shaper.kill("-TERM");
    assert_eq!(is_as_ever(&shaper.net, "afterwards"), before, "rules count the same");
    shaper.nothing_is_left();
    drop(peers);
}
