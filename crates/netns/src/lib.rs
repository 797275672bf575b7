//! Network namespaces that go when their owner goes.
//!
//! [`Namespaces`] is a set of namespaces with a prefix of its own. Dropping it kills what still
//! runs inside and removes them, also when a panic unwinds. An owner that was killed cannot do
//! that; so the prefix holds its process number and start time, and [`sweep`] removes the
//! namespaces of owners that are no longer there. Nothing else is ever touched.
//!
//! [`shell`] runs the system's own programs (`ip`, `ethtool`, `ping`), and [`testing`] is the same
//! for tests: it panics where the rest gives errors, and sweeps first. [`processors`] tells whether
//! what was measured in them is worth anything.
//!
//! Everything goes through `ip netns`, so the namespaces can be looked at with it. Needs root
//! (CAP_SYS_ADMIN and CAP_NET_ADMIN) and the program `ip` (Debian package iproute2).
#![forbid(unsafe_code)]

pub mod etcd;
pub mod frr;
mod owner;
pub mod processors;
pub mod shell;
pub mod testing;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub use owner::left_behind_in;
pub use shell::ShellError;

/// Where named namespaces are.
const FOLDER: &str = "/run/netns";

/// A set of namespaces with a unique prefix: `ekl<pid>-<start time>-<number>-`. Dropping it removes
/// them, and whatever still runs inside.
#[derive(Debug)]
pub struct Namespaces {
    prefix: String,
    names: Vec<String>,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self::new()
    }
}

impl Namespaces {
    /// No namespace yet, but a prefix.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { prefix: owner::prefix(NEXT.fetch_add(1, Ordering::Relaxed)), names: Vec::new() }
    }

    /// The name that the namespace of `node` has or would have. A folder of that name elsewhere is
    /// found by [`left_behind_in`].
    #[must_use]
    pub fn name_of(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    /// Makes the namespace of `node`, its loopback interface up.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub fn add(&mut self, node: &str) -> Result<(), ShellError> {
        let name = self.name_of(node);
        // First into the list: a command that fails half-way may have made it.
        self.names.push(name.clone());
        shell::output(&["ip", "netns", "add", &name])?;
        shell::output(&["ip", "-n", &name, "link", "set", "lo", "up"])?;
        Ok(())
    }

    /// Joins two nodes by a veth pair: (node, interface) at both ends. The ends are up.
    ///
    /// # Errors
    /// There is no such node, or an interface of that name is there already.
    pub fn wire(&self, left: (&str, &str), right: (&str, &str)) -> Result<(), ShellError> {
        self.wire_with(left, right, None)
    }

    /// As [`Namespaces::wire`]; both ends have this many receive and transmit queues.
    ///
    /// # Errors
    /// As [`Namespaces::wire`]; also a number that the kernel does not take.
    pub fn wire_of_queues(
        &self,
        left: (&str, &str),
        right: (&str, &str),
        queues: u16,
    ) -> Result<(), ShellError> {
        self.wire_with(left, right, Some(queues))
    }

    fn wire_with(
        &self,
        left: (&str, &str),
        right: (&str, &str),
        queues: Option<u16>,
    ) -> Result<(), ShellError> {
        let (from, to) = (self.name_of(left.0), self.name_of(right.0));
        let number = queues.map(|queues| queues.to_string());
        let many = number.as_deref().map(|number| ["numrxqueues", number, "numtxqueues", number]);
        let many = many.as_ref().map_or(&[][..], |many| &many[..]);
        let ends: [&[&str]; 4] = [
            &["ip", "link", "add", left.1, "netns", &from],
            many,
            &["type", "veth", "peer", "name", right.1, "netns", &to],
            many,
        ];
        shell::output(&ends.concat())?;
        shell::output(&["ip", "-n", &from, "link", "set", left.1, "up"])?;
        shell::output(&["ip", "-n", &to, "link", "set", right.1, "up"])?;
        Ok(())
    }

    /// Runs `ip` for a node, its arguments split at spaces, and returns what it printed:
    /// `address add 10.0.0.1/24 dev eth0`.
    ///
    /// # Errors
    /// `ip` could not be started, or refuses.
    pub fn ip(&self, node: &str, arguments: &str) -> Result<String, ShellError> {
        let name = self.name_of(node);
        let words: Vec<&str> =
            ["ip", "-n", &name].into_iter().chain(arguments.split_whitespace()).collect();
        shell::output(&words)
    }

    /// Runs a command line inside a node to its end, split at spaces, and returns what it printed.
    ///
    /// # Errors
    /// It could not be started, or its exit code is not 0.
    pub fn exec(&self, node: &str, line: &str) -> Result<String, ShellError> {
        let name = self.name_of(node);
        let words: Vec<&str> =
            ["ip", "netns", "exec", &name].into_iter().chain(line.split_whitespace()).collect();
        shell::output(&words)
    }

    /// A command line inside a node, split at spaces, to be started by the caller. It is killed
    /// with the namespace, if not before.
    #[must_use]
    pub fn command(&self, node: &str, line: &str) -> Command {
        let name = self.name_of(node);
        let words: Vec<&str> =
            ["ip", "netns", "exec", &name].into_iter().chain(line.split_whitespace()).collect();
        let mut command = shell::command(&words);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.names.drain(..).rev() {
            remove(&name);
        }
    }
}

/// Ends what runs inside a namespace, then removes it. Errors are left alone: there is nobody to
/// tell, and the next sweep tries again.
fn remove(name: &str) {
    if !Path::new(FOLDER).join(name).exists() {
        return;
    }
    if let Ok(pids) = shell::output(&["ip", "netns", "pids", name]) {
        // A thread of ours that is still inside makes us one of them.
        let own = std::process::id().to_string();
        for pid in pids.split_whitespace().filter(|pid| *pid != own) {
            let _ = shell::output(&["sh", "-c", &format!("kill -9 {pid}")]);
        }
    }
    let _ = shell::output(&["ip", "netns", "del", name]);
}

/// Removes the namespaces of owners that are no longer there, and what runs inside.
pub fn sweep() {
    for name in left_behind_in(Path::new(FOLDER)) {
        remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sets_of_one_process_do_not_share_names() {
        let (a, b) = (Namespaces::new(), Namespaces::default());
        assert_ne!(a.name_of("h1"), b.name_of("h1"));
        assert!(a.name_of("h1").starts_with(&format!("ekl{}-", std::process::id())));
    }
}
