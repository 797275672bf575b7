//! `attach = "bridge"` between two hosts: they find each other, are shaped, and go on without the
//! process. Needs root.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use evenkeel_netns::frr::Frr;
use evenkeel_netns::testing::{TestNet, available, eventually, eventually_some, has_tool, text};
use serde_json::Value;

/// Megabits per second towards `b`.
const RATE: u64 = 40;

pub(crate) struct Bridge {
    pub(crate) net: TestNet,
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Bridge {
    pub(crate) fn new() -> Option<Self> {
        if !available("bridge") || !has_tool("bridge", "iperf3", "iperf3") {
            return None;
        }
        let net = TestNet::new(&["a", "g", "b"]);
        net.wire(("a", "a0"), ("g", "left"));
        net.wire(("b", "b0"), ("g", "right"));
        for (node, interface, host) in [("a", "a0", 1), ("b", "b0", 2)] {
            net.ip(node, &format!("address add 10.5.0.{host}/24 dev {interface}"));
            net.ip(node, &format!("address add fd05::{host}/64 dev {interface} nodad"));
        }
        Some(Self { net, folder: tempfile::tempdir().unwrap(), process: None })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, making: bool) -> Command {
        let file = self.path("router.toml");
        let config = format!(
            "[router]\nmake_bridge = {making}\ncontrol = {:?}\n\
             [[port]]\nname = \"left\"\ninterface = \"left\"\nattach = \"bridge\"\n\
             [[port]]\nname = \"right\"\ninterface = \"right\"\nattach = \"bridge\"\n\
             [[class]]\nname = \"rest\"\n[[class]]\nname = \"calls\"\nmatch = [{{ dscp = 46 }}]\n\
             [[link]]\nport = \"right\"\nrate = \"{RATE}Mbit/s\"\n\
             discipline = {{ kind = \"pdrr\" }}\n",
            self.path("control.sock")
        );
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("run").arg(file).args(["--netns", &self.net.name("g")]);
        command.arg("--runtime-dir").arg(self.folder.path());
        command
    }

    pub(crate) fn start(&mut self, making: bool) {
        let log = std::fs::File::create(self.path("log")).unwrap();
        let mut command = self.command(making);
        let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.process = Some(process);
        eventually("the bridge answers", || self.show().is_some());
    }

    pub(crate) fn show(&self) -> Option<Value> {
        let output = ctl(&self.path("control.sock"));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Packets that have left towards `b`, and their bytes on the wire.
    fn sent(&self) -> (u64, u64) {
        let shown = self.show().unwrap_or_else(|| {
            panic!("no answer: {}", std::fs::read_to_string(self.path("log")).unwrap_or_default())
        });
        let class = &shown["links"][1]["classes"][0];
        let packets = class["sent_segments"].as_u64().unwrap();
        (packets, class["sent_bytes"].as_u64().unwrap() + 38 * packets)
    }

    pub(crate) fn pings(&self) -> bool {
        ["10.5.0.2", "fd05::2"]
            .iter()
            .all(|to| self.net.try_output("a", &format!("ping -n -c 1 -W 1 {to}")).0)
    }

    pub(crate) fn signal(&mut self, signal: &str) {
        let mut process = self.process.take().expect("it runs");
        let id = process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        process.wait().unwrap();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn ctl(socket: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["ctl", "--json", "show", "--socket"]).arg(socket).output().unwrap()
}

#[test]
fn two_hosts_are_bridged_with_the_process_and_without_it() {
    let Some(mut bridge) = Bridge::new() else { return };
    // In no bridge nothing would pass when the process ends.
    let refused = bridge.command(false).output().unwrap();
    let said = text(&refused);
    assert!(!refused.status.success(), "{said}");
    for word in ["left", "right", "make_bridge"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(!bridge.net.ip("g", "-br link").contains("ekb-"), "nothing was made");

    bridge.start(true);
    eventually("they find each other", || bridge.pings());
    let before = bridge.sent();
    let server = bridge.net.start("b", "iperf3 -s -1 -p 5302");
    eventually("the server listens", || {
        bridge.net.output("b", "ss -Hltn sport = :5302").contains("5302")
    });
    let began = std::time::Instant::now();
    let output = bridge.net.run("a", "iperf3 -c 10.5.0.2 -p 5302 -t 2 -P 2");
    assert!(output.status.success(), "{}", text(&output));
    let (took, after) = (began.elapsed(), bridge.sent());
    drop(server);
    let bytes = after.1 - before.1;
    let most = RATE * 125_000 * took.as_micros() as u64 / 1_000_000;
    assert!(bytes <= most + 20_000, "{bytes} bytes in {took:?}");
    assert!(bytes > most / 4, "{bytes} bytes in {took:?}");

    // Killed, it leaves the kernel's bridge forwarding; the next start finds that.
    bridge.signal("-KILL");
    eventually("the kernel goes on", || bridge.pings());
    bridge.start(false);
    let before = bridge.sent();
    assert!(bridge.pings(), "after a restart");
    let passed = eventually_some("they are counted", || {
        let after = bridge.sent();
        (after.0 >= before.0 + 2).then_some(after)
    });
    assert!(passed.1 > before.1);
    bridge.signal("-TERM");
    assert!(bridge.pings(), "afterwards");
}

/// When a neighbour is given up.
struct Timers {
    ospf: &'static str,
    /// Keep-alive and hold time, seconds.
    bgp: &'static str,
}

/// OSPF and BGP of one of the two.
fn daemons(timers: &Timers, own: u8, peer: u8, interface: &str) -> [(&'static str, String); 2] {
    let Timers { ospf, bgp } = timers;
    let ospf = format!(
        "interface {interface}\n ip ospf network point-to-point\n{ospf}\
         router ospf\n ospf router-id 10.51.0.{own}\n network 10.5.0.0/24 area 0\n \
         network 10.51.0.{own}/32 area 0\n"
    );
    let bgp = format!(
        "router bgp 6500{own}\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor 10.5.0.{peer} remote-as 6500{peer}\n neighbor 10.5.0.{peer} timers {bgp}\n \
         address-family ipv4 unicast\n  network 10.6{own}.0.0/24\n"
    );
    [("ospfd", ospf), ("bgpd", bgp)]
}

/// Between two routers: their OSPF and BGP neither notice it, nor that it is killed under load.
#[test]
fn two_routers_keep_ospf_and_bgp_through_it_and_through_kills() {
    let ospf = " ip ospf hello-interval 1\n ip ospf dead-interval 5\n";
    two_routers_keep_ospf_and_bgp(&Timers { ospf, bgp: "3 9" });
}

/// The same where OSPF says five hellos a second.
#[test]
#[ignore = "OSPF gives up after a second, which other tests beside it can take: make soak"]
fn two_routers_keep_ospf_and_bgp_with_short_timers() {
    let ospf = " ip ospf dead-interval minimal hello-multiplier 5\n";
    two_routers_keep_ospf_and_bgp(&Timers { ospf, bgp: "1 3" });
}

fn two_routers_keep_ospf_and_bgp(timers: &Timers) {
    if !Frr::available("bridge_frr") {
        return;
    }
    let Some(mut bridge) = Bridge::new() else { return };
    bridge.start(true);
    let frr = |node: &str, own: u8, peer: u8, interface: &str| {
        bridge.net.ip(node, &format!("address add 10.51.0.{own}/32 dev lo"));
        let daemons = daemons(timers, own, peer, interface);
        let daemons: Vec<_> = daemons.iter().map(|(name, text)| (*name, text.as_str())).collect();
        bridge.net.routing_daemons(node, &daemons)
    };
    let routers = [frr("a", 1, 2, "a0"), frr("b", 2, 1, "b0")];
    let peers = ["10.5.0.2", "10.5.0.1"];
    let ospf = |router: &Frr| router.show("show ip ospf neighbor detail").unwrap();
    eventually("both protocols are up", || {
        routers.iter().zip(peers).all(|(router, peer)| {
            router.session(peer).is_ok_and(|session| session.prefixes == 1)
                && ospf(router).contains("State is Full")
        })
    });
    let routes = || bridge.net.output("a", "ip route");
    eventually("routes of both are there", || {
        ["10.51.0.2", "10.62.0.0/24"].iter().all(|prefix| routes().contains(prefix))
    });
    // `State is Full/-, 5 state changes`.
    let changes = |router: &Frr| {
        let text = ospf(router);
        let line = text.lines().find(|line| line.contains("state changes")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{text}"))
    };
    let before: Vec<_> = routers.iter().map(changes).collect();
    let load = bridge.net.start_for(60, "a", "ping -n -q -f -c 20000 10.51.0.2");
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        bridge.signal("-KILL");
        std::thread::sleep(std::time::Duration::from_millis(500));
        bridge.start(false);
    }
    drop(load);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    for ((router, peer), before) in routers.iter().zip(peers).zip(before) {
        assert_eq!(changes(router), before, "OSPF has noticed");
        let session = router.session(peer).unwrap();
        assert!(session.established && session.times_dropped == 0, "{session:?}");
    }
    eventually("what they say is among what passes", || bridge.sent().0 > 3);
}
