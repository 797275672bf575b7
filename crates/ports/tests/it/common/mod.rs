//! Shared by the tests: threads that live in a namespace of the test.
#![allow(unreachable_pub, reason = "shared by the tests of this program")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::heartbeat::{Beater, Heartbeat};
use evenkeel_ports::sys::monotonic_now;

pub use evenkeel_netns::testing::{TestNet, available, eventually_some as eventually};

/// a - r - b, IPv4 and IPv6, and the kernel of r forwards.
pub fn routed() -> TestNet {
    let lab = TestNet::new(&["a", "r", "b"]);
    lab.output("r", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    lab.wire(("a", "va"), ("r", "ra"));
    lab.wire(("b", "vb"), ("r", "rb"));
    for (name, interface, address) in
        [("a", "va", "1.2"), ("r", "ra", "1.1"), ("r", "rb", "2.1"), ("b", "vb", "2.2")]
    {
        let (net, host) = address.split_once('.').unwrap();
        lab.ip(name, &format!("addr add 10.77.{net}.{host}/24 dev {interface}"));
        lab.ip(name, &format!("addr add fd77:{net}::{host}/64 dev {interface} nodad"));
    }
    for (name, net) in [("a", 1), ("b", 2)] {
        lab.ip(name, &format!("route add default via 10.77.{net}.1"));
        lab.ip(name, &format!("-6 route add default via fd77:{net}::1"));
    }
    lab
}

/// a - r - b, the two hosts in one network.
pub fn bridged() -> TestNet {
    let lab = TestNet::new(&["a", "r", "b"]);
    lab.wire(("a", "va"), ("r", "ra"));
    lab.wire(("b", "vb"), ("r", "rb"));
    // A packet socket sends two tags before 1500 bytes only where the MTU has room for them.
    for (name, interface) in [("a", "va"), ("r", "ra"), ("r", "rb"), ("b", "vb")] {
        lab.ip(name, &format!("link set {interface} mtu 1508"));
    }
    for (name, interface, host) in [("a", "va", 1), ("b", "vb", 2)] {
        lab.ip(name, &format!("addr add 10.78.0.{host}/24 dev {interface}"));
        lab.ip(name, &format!("addr add fd78::{host}/64 dev {interface} nodad"));
    }
    lab
}

/// Whether one echo request is answered.
pub fn pings(lab: &TestNet, from: &str, to: &str) -> bool {
    lab.try_output(from, &format!("ping -n -c 1 -W 1 {to}")).0
}

/// Whether echo requests are answered: a busy machine may lose one, or be late for it.
pub fn reaches(lab: &TestNet, from: &str, to: &str) -> bool {
    lab.try_output(from, &format!("ping -n -c 1 -i 0.2 -w 5 {to}")).0
}

/// Runs `work` in a namespace, on a thread of its own.
pub fn inside<T: Send>(net: &TestNet, node: &str, work: impl FnOnce() -> T + Send) -> T {
    evenkeel_ports::sys::in_netns(&net.name(node), work).unwrap()
}

/// Moves an interface to a namespace of its own and back, where it has the number that it had.
pub fn leave_and_come_back(net: &TestNet, node: &str, interface: &str) {
    let index = || {
        let line = net.ip(node, &format!("-o link show dev {interface}"));
        line.split(':').next().unwrap().to_owned()
    };
    let before = index();
    net.ip(node, &format!("link set {interface} netns {}", net.name("elsewhere")));
    net.ip("elsewhere", &format!("link set {interface} netns {}", net.name(node)));
    net.ip(node, &format!("link set {interface} up"));
    assert_eq!(index(), before, "the number is the old one: that is what makes it hard");
}

/// A heart that beats as long as this lives.
pub struct Pulse {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// As that of worker 0.
    pub fn of(heart: &Arc<Heartbeat>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut beater = Beater::new(Arc::clone(heart), 0);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                beater.beat(monotonic_now());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A heart that may be silent for so many milliseconds, and beats.
pub fn beating(limit: u64) -> (Arc<Heartbeat>, Pulse) {
    let heart = Heartbeat::new(Nanos::from_millis(limit)).unwrap();
    let pulse = Pulse::of(&heart);
    (heart, pulse)
}
