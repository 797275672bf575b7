//! Shared by the tests: threads that live in a namespace of the test.
#![allow(unreachable_pub, reason = "shared by the tests of this program")]

pub use evenkeel_netns::testing::{TestNet, available, eventually_some as eventually};

/// Runs `work` in a namespace, on a thread of its own.
pub fn inside<T: Send>(net: &TestNet, node: &str, work: impl FnOnce() -> T + Send) -> T {
    evenkeel_ports::sys::in_netns(&net.name(node), work).unwrap()
}
