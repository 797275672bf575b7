//! Namespaces for tests and benches: what fails panics with what the program said, and what a
//! killed run left is swept first.

use std::io::{Read, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::{Namespaces, shell, sweep};

/// Says why `test` is skipped and how to enable it: on standard error itself, because what a
/// passing test prints is not shown.
///
/// # Panics
/// If `EVENKEEL_NO_SKIP` is set: where everything is there, a skipped test is a failed one.
pub fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("EVENKEEL_NO_SKIP").is_none(), "{test}: must not be skipped: {why}");
    not_on_this_machine(test, why);
}

/// As [`skip`], for what no package brings: another kernel, another machine.
pub fn not_on_this_machine(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "\nskipped: {test}: {why}");
}

/// Whether namespaces can be made here. If not, says why `test` is skipped.
#[must_use]
pub fn available(test: &str) -> bool {
    if !is_root() {
        skip(test, "making network namespaces needs root (sudo -E make test)");
        return false;
    }
    has_tool(test, "ip", "iproute2")
}

/// Whether a program is installed. If not, says why `test` is skipped.
#[must_use]
pub fn has_tool(test: &str, tool: &str, package: &str) -> bool {
    let found = shell::is_installed(tool);
    if !found {
        skip(test, &format!("there is no `{tool}` (Debian package {package}; make setup)"));
    }
    found
}

/// Whether the effective user is root.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.and_then(|users| users.split_whitespace().nth(1)) == Some("0")
}

/// Runs a command line, split at spaces: whether it succeeded, and all it printed.
#[must_use]
pub fn try_run(line: &str) -> (bool, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = shell::command(&words).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
    (output.status.success(), text(&output))
}

/// What a process printed, standard error last.
#[must_use]
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until `condition` holds, for at most twenty seconds.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_some(what, || condition().then_some(()));
}

/// Longer than a process waits for the kernel's lock of all interfaces while namespaces of other
/// tests are taken down. Who promises to be faster measures it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Repeats `check` until it gives something, for at most twenty seconds.
///
/// # Panics
/// If it never does.
#[track_caller]
pub fn eventually_some<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Namespaces of one test, removed when dropped, also by a panic.
#[derive(Debug)]
pub struct TestNet(Namespaces);

impl TestNet {
    /// Makes them; `nodes` are short names, and unique in the test only. Lines stay quiet: no
    /// router solicitations, no autoconfiguration, and no duplicate address detection, which would
    /// make IPv6 addresses unusable for a second.
    ///
    /// # Panics
    /// If one cannot be made.
    #[must_use]
    pub fn new(nodes: &[&str]) -> Self {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let mut net = Self(Namespaces::new());
        for node in nodes {
            net.0.add(node).unwrap_or_else(|error| panic!("{error}"));
            net.sysctl(
                node,
                "net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
                 net.ipv6.conf.default.router_solicitations=0 net.ipv6.conf.default.autoconf=0",
            );
        }
        net
    }

    /// BGP in one of them, with this configuration.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn frr(&self, node: &str, bgp: &str) -> crate::frr::Frr {
        self.routing_daemons(node, &[("bgpd", bgp)])
    }

    /// Routing daemons of FRR in one of them, each with its configuration.
    ///
    /// # Panics
    /// If one does not come up.
    #[must_use]
    pub fn routing_daemons(&self, node: &str, daemons: &[(&str, &str)]) -> crate::frr::Frr {
        crate::frr::Frr::start(&self.0, node, daemons).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The name that `ip netns` knows.
    #[must_use]
    pub fn name(&self, node: &str) -> String {
        self.0.name_of(node)
    }

    /// A pair of Ethernet interfaces, up: (node, interface) at both ends.
    ///
    /// # Panics
    /// As the other methods: if it fails.
    pub fn wire(&self, left: (&str, &str), right: (&str, &str)) {
        self.0.wire(left, right).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A veth pair with this many receive and transmit queues at both ends.
    ///
    /// # Panics
    /// As [`TestNet::wire`].
    pub fn wire_of_queues(&self, left: (&str, &str), right: (&str, &str), queues: u16) {
        self.0.wire_of_queues(left, right, queues).unwrap_or_else(|error| panic!("{error}"));
    }

    /// `ip -n <namespace> ...`; returns what it printed.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, node: &str, arguments: &str) -> String {
        self.0.ip(node, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sets kernel parameters of a node, separated by spaces.
    ///
    /// # Panics
    /// If there is no such parameter.
    pub fn sysctl(&self, node: &str, settings: &str) {
        self.output(node, &format!("sysctl -qw {settings}"));
    }

    /// Keeps the kernel from sending anything of its own on an interface.
    ///
    /// # Panics
    /// If there is no such interface.
    pub fn hush(&self, node: &str, interface: &str) {
        self.sysctl(node, &format!("net.ipv6.conf.{interface}.disable_ipv6=1"));
    }

    /// A command line inside a node, split at spaces.
    #[must_use]
    pub fn command(&self, node: &str, line: &str) -> Command {
        self.0.command(node, line)
    }

    /// Runs a command line inside a node to its end, which it must have by itself (bounded by
    /// `timeout`, 30 s).
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, node: &str, line: &str) -> Output {
        let output = self.command(node, &format!("timeout 30 {line}")).output();
        output.unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// As [`TestNet::run`]: whether it succeeded, and all it printed.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn try_output(&self, node: &str, line: &str) -> (bool, String) {
        let output = self.run(node, line);
        (output.status.success(), text(&output))
    }

    /// As [`TestNet::run`], for all it printed; it must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn output(&self, node: &str, line: &str) -> String {
        let (ok, text) = self.try_output(node, line);
        assert!(ok, "{line}: {text}");
        text
    }

    /// Starts a command line inside a node; it is killed when dropped, and after a minute.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(&self, node: &str, line: &str) -> Running {
        self.start_for(60, node, line)
    }

    /// As [`TestNet::start`], for so many seconds at most.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_for(&self, seconds: u64, node: &str, line: &str) -> Running {
        let mut command = self.command(node, &format!("timeout {seconds} {line}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        let printed = [gather(child.stdout.take()), gather(child.stderr.take())];
        Running(Some((child, printed)))
    }
}

/// Reads all that comes, from now on: who prints much would wait for its reader, and do nothing
/// else meanwhile.
fn gather(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came until it broke is what was printed.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A process that does not outlive its owner.
#[derive(Debug)]
pub struct Running(Option<(Child, [JoinHandle<String>; 2])>);

impl Running {
    /// Asks it to end and gives all it has printed.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn finish(self) -> String {
        if let Some((child, _)) = &self.0 {
            let _ = try_run(&format!("kill -INT {}", child.id()));
        }
        self.wait()
    }

    /// Waits for its end and gives all it has printed.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn wait(mut self) -> String {
        let (mut child, printed) = self.0.take().expect("taken only here and by drop");
        let _ = child.wait();
        printed.map(|thread| thread.join().unwrap_or_default()).concat()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
