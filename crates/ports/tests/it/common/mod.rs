//! Shared by the tests: threads that live in a namespace of the test.
#![allow(unreachable_pub, reason = "shared by the tests of this program")]

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
