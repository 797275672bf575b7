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
