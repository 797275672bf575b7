//! Where it is measured: a generator, a router and a sink in namespaces of their own.
//!
//! ```text
//!  g: out ──veth── in r: 10.0.1.254, 10.0.2.1 out ──veth── in s
//! ```
//!
//! The packets' destination lies behind a neighbour whose address nobody has, so the sink's kernel
//! drops each frame as one for another station: the cheapest end there is, and the same for all.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_netns::testing::TestNet;
use evenkeel_ports::sys;

use super::generator::Generator;

/// What the router is told of its neighbours. A forwarder that changes its interfaces makes the
/// kernel forget it.
pub(super) const NEIGHBOURS: [&str; 2] = [
    "neighbour replace 10.0.2.2 lladdr 02:00:00:00:00:99 nud permanent dev out",
    "neighbour replace 10.0.1.2 lladdr 02:00:00:00:00:98 nud permanent dev in",
];

/// The CPU of the generator.
pub(crate) const GENERATOR_CPU: usize = 0;
/// The CPU of the router, and of Linux where it is told so.
pub(crate) const ROUTER_CPU: usize = 1;

/// How Linux forwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linux {
    /// Receive packet steering to the router's CPU; else all is done on the generator's.
    pub(crate) own_cpu: bool,
    /// Two levels of HTB on the outgoing interface, never limiting.
    pub(crate) htb: bool,
}

/// The namespaces.
pub(crate) struct Bed {
    net: TestNet,
    folder: tempfile::TempDir,
}

/// Counters at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) at: Instant,
    /// Frames that arrived at the sink.
    pub(crate) arrived: u64,
    /// Packets that the kernel of the router forwarded.
    pub(crate) by_kernel: u64,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let net = TestNet::new(&["g", "r", "s"]);
        for node in ["g", "r", "s"] {
            net.sysctl(
                node,
                "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
            );
        }
        net.wire(("g", "out"), ("r", "in"));
        net.wire(("r", "out"), ("s", "in"));
        net.ip("r", "address add 10.0.1.254/24 dev in");
        net.ip("r", "address add 10.0.2.1/24 dev out");
        for neighbour in NEIGHBOURS {
            net.ip("r", neighbour);
        }
        net.ip("r", "route add 10.9.0.0/24 via 10.0.2.2");
        net.sysctl("r", "net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
        net.sysctl("r", "net.ipv4.conf.in.rp_filter=0");
        Self { net, folder: tempfile::tempdir().expect("a folder for the router's files") }
    }

    /// The namespace of the router.
    pub(crate) fn router(&self) -> String {
        self.net.name("r")
    }

    /// A path for a file of this run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The Ethernet address of the router's incoming interface.
    pub(crate) fn router_mac(&self) -> [u8; 6] {
        let text = self.net.output("r", "cat /sys/class/net/in/address");
        evenkeel_lab::qualify::parse_mac(text.trim()).expect("an address")
    }

    /// Where frames are sent from, and where they arrive: namespace and interface.
    pub(crate) fn ends(&self) -> [(String, &'static str); 2] {
        [(self.net.name("g"), "out"), (self.net.name("s"), "in")]
    }

    /// A generator of frames of `size` bytes (check sequence not counted): UDP packets of 64 flows
    /// from four sources.
    pub(crate) fn generate(&self, size: u16) -> Generator {
        let router = self.router_mac();
        let frames =
            (0..64).map(|flow| crate::pipeline::frame_between(&router, [10, 9, 0, 1], flow, size));
        Generator::start(self.net.name("g"), "out", GENERATOR_CPU, frames.collect())
    }

    /// Makes Linux forward as told, or as it does by itself.
    pub(crate) fn linux(&self, how: Linux) {
        let cpus = if how.own_cpu { 1 << ROUTER_CPU } else { 0 };
        let shell = self
            .net
            .command("r", "sh -c")
            .arg(format!("echo {cpus:x} > /sys/class/net/in/queues/rx-0/rps_cpus"))
            .status();
        assert!(shell.is_ok_and(|status| status.success()), "receive packet steering can be set");
        let _ = self.net.try_output("r", "tc qdisc del dev out root");
        if how.htb {
            for command in [
                "qdisc add dev out root handle 1: htb default 10",
                "class add dev out parent 1: classid 1:1 htb rate 40gbit burst 1m cburst 1m",
                "class add dev out parent 1:1 classid 1:10 htb rate 40gbit burst 1m cburst 1m",
                "qdisc add dev out parent 1:10 handle 10: pfifo limit 1000",
            ] {
                self.net.output("r", &format!("tc {command}"));
            }
        }
    }

    /// Whether the kernel forwards what it gets.
    pub(crate) fn kernel_forwards(&self, on: bool) {
        self.net.sysctl("r", &format!("net.ipv4.ip_forward={}", u8::from(on)));
    }

    /// The counters now.
    pub(crate) fn counts(&self) -> Counts {
        let (arrived, at) = sys::in_netns(&self.net.name("s"), || {
            let devices =
                fs::read_to_string("/proc/thread-self/net/dev").expect("/proc is mounted");
            let line = devices
                .lines()
                .find_map(|line| line.trim().strip_prefix("in:"))
                .expect("it is there");
            (
                line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number"),
                Instant::now(),
            )
        })
        .expect("the namespace is there");
        let by_kernel = sys::in_netns(&self.router(), || {
            let snmp = fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc is mounted");
            let values = snmp
                .lines()
                .filter(|line| line.starts_with("Ip:"))
                .nth(1)
                .expect("a line of values");
            values.split_whitespace().nth(6).and_then(|n| n.parse().ok()).expect("a number")
        })
        .expect("the namespace is there");
        Counts { at, arrived, by_kernel }
    }
}

/// How long a thread has run, and how long it has waited for its CPU because something else ran
/// there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) ran: Duration,
    pub(crate) waited: Duration,
}

impl CpuTime {
    /// Of the thread with this folder under `/proc`.
    pub(crate) fn of(task: &str) -> Self {
        let text = fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
        let mut numbers =
            text.split_whitespace().map(|n| Duration::from_nanos(n.parse().unwrap_or(0)));
        Self { ran: numbers.next().unwrap_or_default(), waited: numbers.next().unwrap_or_default() }
    }

    /// From an earlier reading to this one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { ran: self.ran - earlier.ran, waited: self.waited - earlier.waited }
    }
}
